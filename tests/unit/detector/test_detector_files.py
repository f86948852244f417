"""Detectors written and read, and the files that must not be."""

import errno
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import macs
from dots import Dots
from forging import forged
from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector, saving
from macs.detector.saving import read
from tiny import noise


class Tied(Dots):
    """Two names for one weight."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.again = self.fc


@pytest.fixture
def saved(detector: Detector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "d.safetensors")
    return tmp_path / "d.safetensors"


@pytest.mark.parametrize("per_class", [False, True])
def test_what_is_saved_comes_back(trained: nn.Module, validation: ImageSet, tmp_path: Path, per_class: bool) -> None:
    recipe = {"recipe": asdict(macs.Recipe(options={"weight": 0.3}))}
    detector = Detector(trained, "energy", recipe=recipe).calibrate(validation, keep=0.8, per_class=per_class)
    detector.save(tmp_path / "new" / "d.safetensors")
    loaded = Detector.load(tmp_path / "new" / "d.safetensors")
    assert repr(loaded.score) == repr(detector.score) == "Energy()"
    for name in ("classes", "recipe", "size", "calibration"):
        assert getattr(loaded, name) == getattr(detector, name)
    images = noise(50, seed=1)
    ours, theirs = detector.predict(images), loaded.predict(images)
    for name in ("index", "confidence", "is_ood"):
        np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
    assert not loaded.net.training
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["d.safetensors"]


def test_the_same_detector_gives_the_same_bytes(detector: Detector, saved: Path, tmp_path: Path) -> None:
    detector.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_the_label_is_json_that_other_tools_can_read(saved: Path, detector: Detector) -> None:
    with safetensors.safe_open(saved, "numpy") as file:
        label = json.loads(file.metadata()["macs"])
    assert (label["format"], label["version"], label["macs"]) == ("macs-detector", 4, macs.__version__)
    assert label["net"] == "wrn-10-1" and label["classes"] == ["horizontal", "vertical", "plain"]
    assert label["score"] == "msp" and label["recipe"] is None
    prepared = label["preparation"]
    assert (prepared["size"], prepared["resize"], prepared["interpolation"]) == (16, 16, "bilinear")
    assert prepared["mean"] == pytest.approx([125.3 / 255, 123.0 / 255, 113.9 / 255])
    assert label["calibration"]["thresholds"][0]["value"] == float(detector.thresholds())


def test_a_network_of_the_users_is_loaded_only_with_it(dots: Detector, tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    dots.save(path)
    images = noise(20, seed=1)
    expected = dots.predict(images).confidence
    for net in (Dots(classes=3), "dots:Dots"):
        np.testing.assert_array_equal(Detector.load(path, net=net).predict(images).confidence, expected)
    for nothing in (None, ""):
        with pytest.raises(MacsError, match=r"network of your own, here dots:Dots, .* --net dots:Dots"):
            Detector.load(path, nothing)
    with pytest.raises(MacsError, match="does not fit wrn-10-1 with 3 classes: it has 4 tensors"):
        Detector.load(path, "wrn-10-1")
    with pytest.raises(MacsError, match="does not fit"):
        Detector.load(path, nn.Sequential())


def test_tied_weights_come_back(validation: ImageSet, tmp_path: Path) -> None:
    detector = Detector(Tied()).calibrate(validation)
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors", net=Tied())
    np.testing.assert_array_equal(loaded.predict(validation).index, detector.predict(validation).index)


@pytest.mark.parametrize("changes", [{"net": "sly:Net"}, {"score": "sly:Score"}])
def test_a_name_in_a_file_imports_nothing(
    saved: Path, detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    (tmp_path / "sly.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    forged(saved, Path("sly.safetensors"), **changes)
    with pytest.raises(MacsError, match="network of your own|metadata that macs did not write"):
        Detector.load("sly.safetensors")
    record = json.loads(json.dumps(detector.calibrated.as_dict())) | {"score": "sly:Score"}
    forged(saved, Path("sly.safetensors"), score="sly:Score", calibration=record)
    with pytest.raises(MacsError, match=r"score of your own, here sly:Score, .* --score sly:Score"):
        Detector.load("sly.safetensors")
    assert not Path("ran").exists()


@pytest.mark.parametrize("share", [0.0, 1e-5, 1e-4, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_cut_short_is_damaged(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(MacsError, match="is damaged"):
        Detector.load(saved)


def test_a_change_of_any_byte_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    random = np.random.default_rng(0)
    places = [*range(0, 8, 3), *random.integers(8, header, 60), *random.integers(header, len(content), 20)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1
        saved.write_bytes(bytes(changed))
        with pytest.raises(MacsError):
            read(saved)
    saved.write_bytes(content + b"x")
    with pytest.raises(MacsError, match="added to"):
        read(saved)


def test_an_edited_threshold_is_refused(saved: Path, detector: Detector) -> None:
    content = saved.read_bytes()
    value = str(float(detector.thresholds())).encode()
    assert content.count(value) == 1
    saved.write_bytes(content.replace(value, b"0." + b"1" * (len(value) - 2)))
    with pytest.raises(MacsError, match="was changed after it was saved"):
        Detector.load(saved)


Change = Callable[[dict[str, Any]], Any]  # of a record


def threshold(**changes: object) -> Change:
    """A change to the only threshold of a calibration."""
    return lambda record: record | {"thresholds": [record["thresholds"][0] | changes]}


def without(key: str) -> Change:
    return lambda record: {name: value for name, value in record.items() if name != key}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 5}, "newer macs"),
        ({"version": "x"}, "version must be a whole number, not 'x'"),
        ({"version": True}, "version must be a whole number, not True"),
        ({"version": 3}, "older macs .* calibrate again"),
        ({"version": -1}, "older macs"),
        ({"preparation": {"size": 16, "std": [1, 0, 1]}}, r"preparation.std\[1\] must be above 0"),
        ({"preparation": 3}, "preparation must be a table of settings, not 3"),
        (
            {"preparation": {"size": 16, "crop": 1}},
            "There is no setting of Preparation called 'crop'",
        ),
        ({"format": "macs-net"}, "not a detector: it says that it is a macs-net"),
        ({"format": ["x"] * 1000}, "not a detector"),
        ({"extra": 1}, "no setting of DetectorMetadata called 'extra'"),
        ({"macs": None}, "macs must be a string, not None"),
        ({"classes": ["a", "b"]}, "does not fit wrn-10-1 with 2 classes: it has 3 classes"),
        ({"classes": 3}, "classes must be a list, not 3"),
        ({"classes": []}, "there are no classes"),
        ({"classes": ["a"]}, "there is only one class"),
        ({"classes": ["a", "b", 3]}, r"classes\[2\] must be a string"),
        ({"classes": ["a", "b", "a"]}, "two classes are called 'a'"),
        ({"classes": ["a", "", "b"]}, "a class has no name"),
        ({"classes": [str(i) for i in range(10**5)]}, "it has 3 classes"),
        ({"preparation": {"size": "16"}}, "size must be a whole number"),
        ({"preparation": {"size": True}}, "size must be a whole number"),
        ({"preparation": {"size": 16.5}}, "size must be a whole number"),
        ({"preparation": {"size": 10**9}}, "size must be at least 1 and at most 1,024, not 1000000000"),
        ({"preparation": {"size": -1}}, "size must be at least 1"),
        ({"preparation": {"size": 10**5000}}, "damaged or not a detector"),
        ({"recipe": []}, "recipe must be a table of settings"),
        ({"calibration": {}}, "A Calibration needs the setting keep"),
        ({"calibration": None}, "calibration must be a table of settings, not None"),
        ({"net": "wrn-x"}, "There is no network called 'wrn-x'"),
        ({"net": "wrn-1000000000-1"}, "does not fit wrn-1000000000-1"),
        ({"net": "wrn-10-100000"}, "does not fit wrn-10-100000"),
        ({"net": "wrn-10-40"}, "does not fit wrn-10-40"),
        ({"net": "wrn-" + "9" * 5000 + "-1"}, "does not fit"),
        ({"net": "../../etc/passwd"}, "There is no network called"),
        ({"net": ""}, "There is no network called"),
        ({"score": "knn"}, "the score is 'knn', and that of the calibration 'msp'"),
    ],
)
def test_labels_that_are_wrong(saved: Path, tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    forgery = forged(saved, tmp_path / "forged.safetensors", **changes)
    sys.set_int_max_str_digits(limit)
    with pytest.raises(MacsError, match=complaint):
        Detector.load(forgery)


def test_normalisation_travels_with_a_detector(known: ImageSet, tmp_path: Path) -> None:
    net = nets.build("wrn-10-1", len(known.classes), normalisation="openood-cifar100")
    detector = Detector(net).calibrate(known)
    detector.save(tmp_path / "d.safetensors")
    expected = detector.predict(known).confidence
    for given in (None, nets.build("wrn-10-1", len(known.classes))):
        loaded = Detector.load(tmp_path / "d.safetensors", given)
        np.testing.assert_array_equal(loaded.predict(known).confidence, expected)
        assert isinstance(loaded.net, nets.Net)
        assert loaded.net.normalise.values.mean == pytest.approx((0.5071, 0.4867, 0.4408))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (threshold(value="x"), r"calibration.thresholds\[0\].value must be a number, not 'x'"),
        (threshold(value=None), "value must be a number, not None"),
        (threshold(value=math.nan), "value must be a number, not nan"),
        (threshold(value=math.inf), "value must be a number, not inf"),
        (threshold(value=10**400), "value must be a number, not a number of about 400 digits"),
        (threshold(value=1e300), "the threshold 1e\\+300 is not a 32-bit number"),
        (threshold(value=0.1), "the threshold 0.1 is not a 32-bit number"),
        (threshold(rank=101), "a threshold of rank 101 among 100 images does not keep 0.9"),
        (threshold(rank=0), "rank 0"),
        (threshold(rank=9), "rank 9"),
        (threshold(rank=10.5), "rank must be a whole number"),
        (threshold(images=10**300), "do not add up"),
        (threshold(images=-100), "do not add up"),
        (threshold(interval=[0.9]), "interval must be a list of 2"),
        (threshold(interval=[0.9, 0.1]), "the interval 0.9 to 0.1 holds no shares"),
        (threshold(interval=[-1, 2]), "holds no shares"),
        (threshold(interval=["a", "b"]), "interval\\[0\\] must be a number"),
        (threshold(group="x"), "not those of the classes"),
        (threshold(more=1), "no setting of Threshold called 'more'"),
        (lambda record: record | {"thresholds": record["thresholds"] * 2}, "2 thresholds for 3 classes"),
        (lambda record: record | {"thresholds": []}, "0 thresholds for 3 classes"),
        (lambda record: record | {"thresholds": {}}, "thresholds must be a list"),
        (lambda record: record | {"more": 1}, "no setting of Calibration called 'more'"),
        (without("keep"), "A Calibration needs the setting keep"),
        (without("thresholds"), "A Calibration needs the setting thresholds"),
        (lambda record: record | {"keep": 0}, "keep is 0.0"),
        (lambda record: record | {"keep": math.nan}, "keep must be a number, not nan"),
        (lambda record: record | {"score": "energy"}, "the score is 'msp', and that of the calibration 'energy'"),
        (lambda record: record | {"accuracy": 7}, "a share of images lies outside 0 to 1"),
        (lambda record: record | {"accuracy": "all"}, "accuracy must be a number, not 'all'"),
        (lambda record: record | {"passing": {"x": -1}}, "a share of images"),
        (lambda record: record | {"passing": ["x"]}, "passing must be a table of settings"),
        (lambda record: record | {"checks": [1]}, "checks\\[0\\] must be a table of settings, not 1"),
        (
            lambda record: record | {"checks": [{"group": "", "images": 0, "kept": 1, "expected": [0, 1]}]},
            "the checks are not those of the thresholds",
        ),
    ],
)
def test_calibrations_that_are_wrong(
    saved: Path, tmp_path: Path, detector: Detector, change: Change, complaint: str
) -> None:
    record = json.loads(json.dumps(detector.calibrated.as_dict()))
    forgery = forged(saved, tmp_path / "forged.safetensors", calibration=change(record))
    with pytest.raises(MacsError, match=f"metadata that macs did not write: .*{complaint}.*; calibrate again"):
        read(forgery)


@pytest.mark.parametrize("depth", [500, 900, 990, 2000, 100_000])
def test_a_label_nested_too_deeply(saved: Path, tmp_path: Path, depth: int) -> None:
    """Whatever Python's own limit is, a sentence comes of it, and from somewhere below it a detector."""
    content = saved.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    label = header["__metadata__"]["macs"]
    header["__metadata__"]["macs"] = label.replace(
        '"recipe": null', '"recipe": {"x": ' + "[" * depth + "]" * depth + "}"
    )
    text = json.dumps(header).encode()
    saved.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    with pytest.raises(MacsError, match="damaged|changed after"):
        read(saved)


def test_a_header_as_long_as_it_likes(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (2**63, 2**40, len(content), len(content) - 7):
        saved.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(MacsError, match="damaged"):
            read(saved)
    with saved.open("r+b") as file:  # 2**42 bytes that take no room on the disk, and would take all of the memory
        file.write((2**41).to_bytes(8, "little"))
        file.truncate(2**42)
    with pytest.raises(MacsError, match="damaged"):
        read(saved)


def test_what_is_no_file_is_refused_without_being_opened(saved: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    for path, words in (("fifo", "is a FIFO"), (".", "is a folder"), ("empty", "damaged"), ("gone", "no detector")):
        with pytest.raises(MacsError, match=words):
            Detector.load(tmp_path / path)
    for path, words in (("", "empty"), ("/dev/zero", "is a device"), ("a\0b", "NUL")):
        with pytest.raises(MacsError, match=words):
            Detector.load(path)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_weights_of_another_type_are_refused(saved: Path, tmp_path: Path, kind: torch.dtype) -> None:
    tensors = safetensors.torch.load_file(saved)
    tensors["net.fc.weight"] = tensors["net.fc.weight"].to(kind)
    with pytest.raises(MacsError, match=f"its fc.weight (is|holds) .*{str(kind)[6:]} instead of float"):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", tensors))


def test_tensors_that_are_not_the_networks_are_refused(saved: Path, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(saved) | {"score.vectors": torch.zeros(3)}
    with pytest.raises(MacsError, match=r"does not fit MSP\(\), whose tensors are none"):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", tensors))


def test_a_forged_list_of_tensors_is_damage(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    label = json.loads(header.pop("__metadata__")["macs"])
    del label["sha256"]
    header["net.fc.weight"]["dtype"] = "F7"
    text = json.dumps([label, header], sort_keys=True)
    label["sha256"] = hashlib.sha256(text.encode() + content[start:]).hexdigest()
    made = json.dumps({"__metadata__": {"macs": json.dumps(label)}, **header}).encode()
    saved.write_bytes(len(made).to_bytes(8, "little") + made + content[start:])
    with pytest.raises(MacsError, match="is damaged"):
        Detector.load(saved)


def test_a_forged_file_without_a_mistake_loads(saved: Path, tmp_path: Path) -> None:
    """So that the tests above fail for what they change and not for how they change it."""
    assert Detector.load(forged(saved, tmp_path / "forged.safetensors", preparation={"size": 20})).size == 20


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved: Path, tmp_path: Path, value: float) -> None:
    tensors = safetensors.torch.load_file(saved)
    tensors["net.fc.weight"][0, 0] = value
    with pytest.raises(MacsError, match=r"not finite \(fc.weight\)"):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", tensors))


def test_a_users_network_with_another_number_of_outputs_than_class_names(dots: Detector, tmp_path: Path) -> None:
    dots.save(tmp_path / "d.safetensors")
    forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", classes=["a", "b"])
    with pytest.raises(MacsError, match="names 2 classes, but its network has 3"):
        Detector.load(tmp_path / "forged.safetensors", net=Dots(3))


def test_other_files_are_no_detectors(trained: nn.Module, detector: Detector, tmp_path: Path) -> None:
    nets.save(trained, tmp_path / "net.safetensors")
    with pytest.raises(MacsError, match="not a detector: it says that it is a macs-net"):
        Detector.load(tmp_path / "net.safetensors")
    safetensors.torch.save_file(Dots().state_dict(), tmp_path / "theirs.safetensors")
    with pytest.raises(MacsError, match="not a detector: it has no metadata of ours"):
        Detector.load(tmp_path / "theirs.safetensors")
    with pytest.raises(MacsError, match="no detector at"):
        Detector.load(tmp_path / "absent.safetensors")
    detector.save(tmp_path / "d.safetensors")
    with pytest.raises(MacsError, match="is not a network: it says that it is a macs-detector"):
        nets.load(tmp_path / "d.safetensors")


def test_only_safetensors_are_written(detector: Detector, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match=r"end in \.safetensors"):
        detector.save(tmp_path / "d.pt")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    detector: Detector, validation: ImageSet, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def half(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(MacsError, match="No space left on device"):
        replace(detector).calibrate(validation, keep=0.5).save(saved)
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_calibration_confidences_travel_with_the_file(detector: Detector, tmp_path: Path) -> None:
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    images = noise(20, seed=4)
    np.testing.assert_array_equal(loaded.predict(images).p_value, detector.predict(images).p_value)
    assert loaded.p_values is not None and detector.p_values is not None
    assert loaded.p_values.sizes == detector.p_values.sizes == (100,)


@pytest.mark.parametrize("spoil", ["missing", "shorter", "float64", "not a number", "not sorted"])
def test_calibration_confidences_that_macs_did_not_write_are_refused(
    detector: Detector, tmp_path: Path, spoil: str
) -> None:
    path = tmp_path / "d.safetensors"
    detector.save(path)
    _, metadata, content = saving.read(path)
    tensors = safetensors.torch.load(content)
    held = tensors.pop(saving.CONFIDENCES)
    changed = {
        "shorter": held[:-1].clone(),
        "float64": held.double(),
        "not a number": held * torch.nan,
        "not sorted": held.flip(0),
    }
    tensors |= {saving.CONFIDENCES: changed[spoil]} if spoil in changed else {}
    told = asdict(metadata)
    told["sha256"] = saving.checksum(told, *saving._parts(safetensors.torch.save(tensors)))
    path.write_bytes(safetensors.torch.save(tensors, metadata={"macs": json.dumps(told)}))
    with pytest.raises(MacsError, match=r"holds calibration confidences that macs did not write|not finite"):
        Detector.load(path)
