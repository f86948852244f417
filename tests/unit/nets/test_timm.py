"""Networks of timm by their names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from borrowed import CLASSES, built
from macs import nets
from macs.core.errors import MacsError, MacsWarning
from macs.data import Preparation
from macs.inference import outputs_of
from tiny import STRIPES, noise

timm = pytest.importorskip("timm", reason="timm is not installed")
SMALL = "timm/test_resnet"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # size / crop_pct, rounded down: 224 / 0.95, 224 / 0.9, 160 / 0.95
        ("resnet50.a1_in1k", Preparation(224, 235, "bicubic", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ("vit_tiny_patch16_224", Preparation(224, 248, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))),
        ("test_resnet", Preparation(160, 168, "bilinear", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))),
    ],
)
def test_the_preparation_is_that_of_the_published_weights(model: str, expected: Preparation) -> None:
    assert nets.usual_preparation(f"timm/{model}") == expected


def test_it_prepares_a_photograph_as_timm_does() -> None:
    preparation = nets.usual_preparation("timm/tf_efficientnet_lite0")
    config = timm.data.resolve_data_config(pretrained_cfg=timm.get_pretrained_cfg("tf_efficientnet_lite0").to_dict())
    coarse = np.random.default_rng(0).integers(0, 256, (12, 17, 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((500, 333), Image.Resampling.BICUBIC)
    theirs = timm.data.create_transform(**config)(picture) * 0.5 + 0.5
    ours = torch.tensor(preparation(picture)).permute(2, 0, 1) / 255
    assert (ours - theirs).abs().max() <= 2.01 / 255


def test_a_network_that_needs_whole_images_is_told_that_they_are_cropped() -> None:
    with pytest.warns(MacsWarning, match="squash"):
        nets.usual_preparation("timm/efficientnet_b5")


def test_a_file_gives_the_library_s_own_answers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = timm.create_model("test_resnet", num_classes=CLASSES).eval()
    pixels = torch.rand(2, 3, 64, 64)
    wrapped = {f"module.{key}": value for key, value in theirs.state_dict().items()}
    torch.save({"state_dict": wrapped}, tmp_path / "x.pth")
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "x.safetensors")
    for path in (tmp_path / "x.pth", tmp_path / "x.safetensors", tmp_path):
        net = nets.load(path, SMALL, CLASSES).eval()
        with torch.no_grad():
            assert torch.equal(net(pixels), theirs((pixels - 0.5) / 0.5))
        assert nets.origin_of(net).seed is None


def test_a_head_for_other_classes_is_drawn_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = timm.create_model("test_resnet", num_classes=11)
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "eleven.safetensors")
    headless = {key: value for key, value in theirs.state_dict().items() if not key.startswith("fc.")}
    torch.save(headless, tmp_path / "headless.pth")
    for name in ("eleven.safetensors", "headless.pth"):
        first, same, other = (nets.load(tmp_path / name, SMALL, CLASSES, seed=seed) for seed in (3, 3, 4))
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 3 and f"{name} has no last layer for 3 classes" in lines[0]
        assert isinstance(first, nets.LibraryNet) and isinstance(same, nets.LibraryNet)
        for key, value in headless.items():
            assert torch.equal(first.wrapped.state_dict()[key], value)
        assert torch.equal(first.head.weight, same.head.weight) and nets.origin_of(first).seed == 3
        assert nets.weights_hash(first) != nets.weights_hash(other)


def test_our_own_file_keeps_its_classes(tmp_path: Path) -> None:
    net = built(SMALL, 48)
    nets.save(net, tmp_path / "ours.safetensors", STRIPES)
    again = nets.load(tmp_path / "ours.safetensors")
    assert nets.weights_hash(again) == nets.weights_hash(net) and nets.preparation_of(again) == net.preparation
    with pytest.raises(MacsError, match="it has 3 classes; "):
        nets.load(tmp_path / "ours.safetensors", classes=4)


def test_pretrained_weights_come_from_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published, create = timm.create_model("test_resnet"), timm.create_model

    def downloaded(model: str, pretrained: bool = False, **options: Any) -> Any:
        return published if pretrained else create(model, **options)

    monkeypatch.setattr(timm, "create_model", downloaded)
    net = nets.build(SMALL, CLASSES, pretrained=True)
    assert "pretrained has no last layer for 3 classes" in capsys.readouterr().err
    assert isinstance(net, nets.LibraryNet) and nets.origin_of(net).source == "pretrained"
    assert torch.equal(net.wrapped.state_dict()["conv1.0.weight"], published.conv1[0].weight)
    whole = nets.build(SMALL, 1000, pretrained=True)
    assert isinstance(whole, nets.LibraryNet) and torch.equal(whole.head.weight, published.fc.weight)
    assert capsys.readouterr().err == ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrained").write_bytes(b"a file of this name is not read")
    assert nets.weights_hash(nets.build(SMALL, CLASSES, pretrained=True, seed=3)) != nets.weights_hash(net)


def test_the_old_spelling_of_pretrained_weights_still_works_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained=False, **more: create(name, **more))
    with pytest.warns(DeprecationWarning, match=r"use nets\.build\(name, classes, pretrained=True\)") as warned:
        assert nets.origin_of(nets.load("pretrained", SMALL, CLASSES)).source == "pretrained"
    assert warned[0].filename == __file__


def test_only_a_library_has_weights_to_download() -> None:
    with pytest.raises(MacsError, match=r"wrn-10-1 has no published weights .* nets\.load\(path, 'wrn-10-1'\)"):
        nets.build("wrn-10-1", CLASSES, pretrained=True)


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, pretrained: bool = False, **__: Any) -> None:
        raise OSError("Name or service not known\nRetry")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(MacsError, match=r"weights of timm/test_resnet cannot be downloaded .*service not known\.$"):
        nets.build(SMALL, CLASSES, pretrained=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm/resnet_18", "no network called 'timm/resnet_18' .* did you mean timm/resnet18"),
        ("timm/resnet50.a9_in1k", "no version of timm/resnet50 called 'a9_in1k' .did you mean"),
        ("timm/", "no network called 'timm/'"),
        ("timm", "no network called 'timm'"),
        ("timm-18", "no network called 'timm-18'"),
        ("tim/resnet18", "no network called 'tim/resnet18' .did you mean 'timm/"),
        ("wrn/40", "no network called 'wrn/40'"),
        ("timm/deit_tiny_distilled_patch16_224", "does not end in one linear layer"),
        ("timm/samvit_base_patch16", "does not end in one linear layer"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(MacsError, match=message):
        nets.build(name, CLASSES)


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_vit", num_classes=CLASSES).state_dict(), tmp_path / "vit.pth")
    with pytest.raises(MacsError, match="vit.pth does not fit timm/test_resnet with 3 classes: it lacks"):
        nets.load(tmp_path / "vit.pth", SMALL, CLASSES)


def test_images_of_a_size_that_a_transformer_cannot_take_are_refused() -> None:
    net = built("timm/vit_tiny_patch16_224", 64)
    with pytest.raises(MacsError, match="timm/vit_tiny_patch16_224 cannot take 32 x 32 images: .*doesn't match"):
        list(outputs_of(net, [noise(2, 0, 32).pixels[:]]))
    assert len(next(outputs_of(net, noise(2, 0, 32)))) == 2  # a set is prepared again


def test_a_missing_and_a_broken_library_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.nets._building.find_spec", lambda _: None)
    with pytest.raises(MacsError, match=r"need timm: pip install 'macs-ood\[timm\]'\.$"):
        nets.build(SMALL, CLASSES)

    def broken(reason: str) -> str:
        def fail(_: str) -> None:
            raise RuntimeError(reason)

        with monkeypatch.context() as patch:
            patch.setattr("importlib.import_module", fail)
            with pytest.raises(MacsError) as caught:
                nets.build(SMALL, CLASSES)
        return str(caught.value)

    monkeypatch.setattr("macs.nets._building.find_spec", lambda _: True)
    assert broken("no such symbol").endswith(f"(does it fit torch {torch.__version__}?): RuntimeError: no such symbol.")
    unfit = broken("operator torchvision::nms does not exist")
    assert f"torchvision does not load its operators beside torch {torch.__version__}, so timm cannot be used" in unfit
    assert nets.fitting_torchvision(torch.__version__) in unfit and "nms" not in unfit


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.13.0", "pip install torch==2.13.0 torchvision ("),
        ("2.13.0+cpu", "torch==2.13.0 torchvision, both with the --index-url that your cpu build of torch came from ("),
        ("2.9.1+cu128", "torch==2.9.1 torchvision, both with the --index-url that your cu128 build"),
    ],
)
def test_the_torchvision_for_a_torch_comes_from_the_same_index(version: str, command: str) -> None:
    sentence = nets.fitting_torchvision(version)
    assert sentence.startswith("run: pip uninstall -y torchvision && ") and command in sentence
