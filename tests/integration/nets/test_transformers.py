"""Image classifiers of transformers by their names, from folders as the hub has them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import macs
from borrowed import CLASSES, built, check_everything
from macs import nets
from macs.core.errors import MacsError
from macs.data import Preparation
from tiny import stripes

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZE = 32
transformers.utils.logging.disable_progress_bar()


def vit(**options: Any) -> Any:
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return transformers.ViTConfig(**small, image_size=SIZE, patch_size=8, **options)


def resnet(**options: Any) -> Any:
    shape = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return transformers.ResNetConfig(**shape, **options)


def published(folder: Path, config: Any, processor: Any = None, labels: int = 11) -> Any:
    """A model with random weights, written as the hub has it."""
    config.num_labels, config.architectures = labels, []
    torch.manual_seed(1)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model.save_pretrained(folder)
    cropped = {"size": {"shortest_edge": 36}, "crop_size": {"height": SIZE, "width": SIZE}}
    (processor or transformers.BitImageProcessor(**cropped)).save_pretrained(folder)
    return model


@pytest.mark.architectures
def test_a_transformer_goes_through_everything(tmp_path: Path) -> None:
    published(tmp_path / "hub", vit())
    check_everything(built(f"hf/{tmp_path}/hub", SIZE), tmp_path, signed=True)


@pytest.mark.architectures
def test_a_convolutional_network_goes_through_everything(tmp_path: Path) -> None:
    published(tmp_path / "hub", resnet())
    check_everything(built(f"hf/{tmp_path}/hub", SIZE), tmp_path, signed=False)


def test_a_detector_holds_all_that_builds_its_network(tmp_path: Path) -> None:
    published(tmp_path / "hub", vit())
    net = built(f"hf/{tmp_path}/hub", 16)  # its position embeddings are those of smaller images
    shutil.rmtree(tmp_path / "hub")
    macs.Detector(net).calibrate(stripes(40, 2, 16)).save(tmp_path / "d.safetensors")
    nets.save(net, tmp_path / "n.safetensors")
    for again in (macs.Detector.load(tmp_path / "d.safetensors").net, nets.load(tmp_path / "n.safetensors")):
        assert nets.weights_hash(again) == nets.weights_hash(net)
        assert nets.preparation_of(again) == net.preparation


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"num_hidden_layers": 10**9}, "does not fit hf/.* with 3 classes: it has"),
        ({"hidden_size": 2 * 10**6}, "does not fit hf/.* with 3 classes"),
        ({"model_type": "none"}, "Cannot build hf/"),
        ({"model_type": 3}, "Cannot build hf/"),
        ({"patch_size": 0}, "Cannot build hf/"),
    ],
)
def test_a_forged_configuration_is_refused(forged: dict[str, Any], message: str, tmp_path: Path) -> None:
    published(tmp_path / "hub", vit())
    net = built(f"hf/{tmp_path}/hub", SIZE)
    net.config |= forged
    macs.Detector(net).calibrate(stripes(40, 2, SIZE)).save(tmp_path / "d.safetensors")
    with pytest.raises(MacsError, match=message):
        macs.Detector.load(tmp_path / "d.safetensors")


@pytest.mark.parametrize("config", [vit, resnet])
def test_files_and_pretrained_weights_give_the_library_s_own_answers(
    config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, name, pixels = published(tmp_path / "hub", config()), f"hf/{tmp_path}/hub", torch.rand(2, 3, SIZE, SIZE)
    file = tmp_path / "hub/model.safetensors"
    torch.save(safetensors.torch.load_file(file), tmp_path / "pytorch_model.bin")
    for source in (file, file.parent, tmp_path / "pytorch_model.bin", "pretrained"):
        net = nets.load(source, name, 11).eval()
        assert isinstance(net, nets.LibraryNet)
        with torch.no_grad():
            assert torch.allclose(net(pixels), theirs(net.normalise(pixels)).logits, atol=1e-6)
    assert capsys.readouterr().err == ""
    for source in (file, "pretrained"):
        net = nets.load(source, name, CLASSES).eval()
        assert "has no last layer for 3 classes" in capsys.readouterr().err
        assert isinstance(net, nets.LibraryNet) and net.head.out_features == CLASSES
        base = {key: value for key, value in theirs.state_dict().items() if not key.startswith("classifier")}
        assert all(torch.equal(net.wrapped.state_dict()[key], value) for key, value in base.items())


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    published(tmp_path / "vit", vit())
    published(tmp_path / "resnet", resnet())
    with pytest.raises(MacsError, match="does not fit hf/.*/vit with 3 classes: it lacks"):
        nets.load(tmp_path / "resnet/model.safetensors", f"hf/{tmp_path}/vit", CLASSES)


@pytest.mark.parametrize(
    ("processor", "settings", "expected", "warns"),
    [
        ("BitImageProcessor", {}, (224, 224, "bicubic"), False),
        ("BitImageProcessor", {"size": {"shortest_edge": 256}, "resample": 2}, (224, 256, "bilinear"), False),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 256, "bicubic"), False),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, (384, 384, "bicubic"), True),
        ("ViTImageProcessor", {}, (224, 224, "bilinear"), True),
        ("DeiTImageProcessor", {}, (224, 256, "bicubic"), True),
    ],
)
def test_the_preparation_is_that_of_the_image_processor(
    processor: str,
    settings: dict[str, Any],
    expected: tuple[Any, ...],
    warns: bool,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    made = getattr(transformers, processor)(**settings, image_mean=[0.4, 0.5, 0.6], image_std=[0.1, 0.2, 0.3])
    made.save_pretrained(tmp_path)
    recwarn.clear()
    found = nets.usual_preparation(f"hf/{tmp_path}")
    assert found == Preparation(*expected).normalised(nets.Normalisation((0.4, 0.5, 0.6), (0.1, 0.2, 0.3)))
    assert any("crops the centre" in str(each.message) for each in recwarn) == warns


def test_what_macs_cannot_do_is_one_sentence(tmp_path: Path) -> None:
    for settings, message in (
        ({"resample": 1}, "macs cannot prepare images as hf/.* needs them: .*lanczos"),
        ({"rescale_factor": 1 / 127.5}, "another range"),
        ({"do_resize": False}, "does not say to which size"),
        ({"crop_size": {"height": 224, "width": 192}}, "224 x 192 pixels, but macs prepares squares only"),
    ):
        transformers.BitImageProcessor(**settings).save_pretrained(tmp_path)
        with pytest.raises(MacsError, match=message):
            nets.usual_preparation(f"hf/{tmp_path}")


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co'\nCheck your connection.")

    monkeypatch.setattr(transformers.AutoImageProcessor, "from_pretrained", fail)
    with pytest.raises(MacsError, match=r"preparation of hf/google/vit cannot be downloaded .*huggingface\.co'\.$"):
        nets.build("hf/google/vit", CLASSES)
