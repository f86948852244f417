"""Networks of timm by their names."""

import json
from pathlib import Path

import pytest
import torch

import macs
from borrowed import built, check_everything, check_split
from command import refused, run
from macs import nets
from macs.data import ImageSet, Preparation
from macs.detector.int8 import export_int8
from macs.detector.runtime import Runtime
from macs.inference import outputs_of
from tiny import noise, save, stripes

timm = pytest.importorskip("timm", reason="timm is not installed")

IN_BOTH_SIGNS = {
    "mobilenetv3_small_050",
    "convnext_atto",
    "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
    "deit_tiny_patch16_224",
    "test_vit",
}
SMALL = "timm/test_resnet"


@pytest.mark.architectures
@pytest.mark.parametrize("model", ["test_resnet", "test_vit"])
def test_a_convolutional_network_and_a_transformer_go_through_everything(model: str, tmp_path: Path) -> None:
    check_everything(built(f"timm/{model}", 64), tmp_path, model in IN_BOTH_SIGNS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "model",
    [
        "resnext50_32x4d",
        "densenet121",
        "mobilenetv3_small_050",
        "convnext_atto",
        "swin_tiny_patch4_window7_224",
        "deit_tiny_patch16_224",
        "regnetx_002",
    ],
)
def test_many_architectures_go_through_everything(model: str, tmp_path: Path) -> None:
    check_everything(built(f"timm/{model}", 64), tmp_path, model in IN_BOTH_SIGNS)


@pytest.mark.architectures
@pytest.mark.parametrize("model", ["resnet18", "tf_efficientnet_lite0", "vit_tiny_patch16_224"])
def test_architectures_of_three_families_go_through_everything(model: str, tmp_path: Path) -> None:
    check_everything(built(f"timm/{model}", 64), tmp_path, model in IN_BOTH_SIGNS)


@pytest.mark.architectures
@pytest.mark.parametrize("model", ["test_resnet", "test_vit"])
def test_eight_bits_make_the_file_smaller(model: str, tmp_path: Path) -> None:
    detector = macs.Detector(built(f"timm/{model}", 64)).calibrate(stripes(40, 2, 64))
    path = tmp_path / "small.onnx"
    small = export_int8(detector, path, stripes(60, 3, 64), {"noise": noise(20, 4, 64)}, max_drop=100)
    assert small.bytes_int8 == path.stat().st_size < 0.4 * small.bytes_float32
    assert len(Runtime(path).predict(noise(5, 5, 64)).is_ood) == 5


@pytest.mark.architectures
def test_the_command_line_needs_nothing_but_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, unknown, start = tmp_path / "known", tmp_path / "unknown", tmp_path / "start.pth"
    for split, seed in (("train", 1), ("val", 2), ("test", 3)):
        save(stripes(48, seed, 40), known / split)
        save(noise(16, seed, 40), unknown / split)
    torch.save(timm.create_model("test_resnet").state_dict(), start)
    short = ["--epochs", 1, "--batch-in", 16, "--batch-out", 16, "--lr", 0.01, "--json"]
    tuned, found, graph = tmp_path / "tuned", tmp_path / "d.safetensors", tmp_path / "d.onnx"
    options = ["--id", known, "--outliers", unknown, "--net", SMALL, "--checkpoint", start, "--size", 48]
    run("finetune", *options, *short, "--run", tuned)
    assert json.loads(capsys.readouterr().out)["recipe"]["net"] == SMALL
    run("evaluate", tuned, "--ood", unknown, "--score", "all", "--json")
    assert len(json.loads(capsys.readouterr().out)["scores"]) >= 10
    run("calibrate", tuned, "--keep", 0.8, "--out", found)
    run("export", found, graph)
    capsys.readouterr()
    verdicts = []
    for detector in (found, graph):
        run("predict", known / "test", "--detector", detector, "--format", "jsonl")
        rows = map(json.loads, capsys.readouterr().out.splitlines())
        verdicts.append([(row["index"], row["is_ood"]) for row in rows])
    assert verdicts[0] == verdicts[1] and len(verdicts[0]) == 48
    assert macs.Detector.load(found).preparation == Preparation(48, 50, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert "did you mean timm/test_resnet" in refused(capsys, "pretrain", "--id", known, "--net", "timm/test_resnt")


# Computed by other code, in float32, from timm's own network and preparation: the number of images, the mean largest
# probability and the mean logsumexp of the logits.
FLOWERS = {
    "daisy": (164, 0.2989, 8.5936),
    "dandelion": (213, 0.1609, 8.2840),
    "rose": (163, 0.1549, 8.3040),
    "sunflower": (129, 0.1519, 8.2014),
    "tulip": (197, 0.1452, 8.1517),
}
DAISY = 985  # among ImageNet's classes


@pytest.mark.data
def test_published_weights_give_the_known_answers(data_root: Path, public_weights: str) -> None:
    weights = Path(public_weights).with_name("imagenet_tf_efficientnet_lite0.safetensors")
    if not weights.exists():
        pytest.skip(f"there is no {weights}")
    net = nets.load(weights, "timm/tf_efficientnet_lite0", 1000).eval()
    assert isinstance(net, nets.LibraryNet)
    check_split(net)
    for name, (count, probability, energy) in FLOWERS.items():
        folder = data_root / "photos/flowers/test" / name
        images = ImageSet.from_folder(folder, labelled=False, preparation=nets.preparation_of(net))
        logits = torch.cat([outputs.logits for outputs in outputs_of(net, images, precision="float32")])
        assert len(logits) == count
        assert float(logits.softmax(1).amax(1).mean()) == pytest.approx(probability, abs=5.1e-5)
        assert float(logits.logsumexp(1).mean()) == pytest.approx(energy, abs=5.1e-5)
        if name == "daisy":
            assert int((logits.argmax(1) == DAISY).sum()) == 67
