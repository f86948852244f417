"""Detectors written and read, and the files that must not be."""

import errno
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from dots import Dots
from torch import nn

import macs
from macs import nets
from macs.core.errors import MacsError
from macs.detector import Detector
from macs.detector.files import read
from tiny import noise


class Tied(Dots):
    """Two names for one weight."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(classes)
        self.again = self.fc


def forged(source: Path, target: Path, tensors: dict[str, torch.Tensor] | None = None, **changes: object) -> Path:
    """A file with another label or other tensors whose checksum is right, put together byte by byte."""
    content = source.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    label = json.loads(json.loads(content[8:start])["__metadata__"]["macs"]) | changes
    del label["sha256"]
    plain = safetensors.torch.save(tensors or safetensors.torch.load(content))
    start = 8 + int.from_bytes(plain[:8], "little")
    text = json.dumps([label, json.loads(plain[8:start])], sort_keys=True)
    label["sha256"] = hashlib.sha256(text.encode() + plain[start:]).hexdigest()
    safetensors.torch.save_file(safetensors.torch.load(plain), target, {"macs": json.dumps(label)})
    return target


@pytest.fixture
def saved(detector: Detector, tmp_path: Path) -> Path:
    detector.save(tmp_path / "d.safetensors")
    return tmp_path / "d.safetensors"


@pytest.mark.parametrize("per_class", [False, True])
def test_what_is_saved_comes_back(trained, validation, tmp_path, per_class):
    recipe = asdict(macs.Recipe(net="wrn-10-1", id="stripes", options={"weight": 0.3}))
    detector = Detector(trained, "energy", recipe=recipe).calibrate(validation, keep=0.8, per_class=per_class)
    detector.save(tmp_path / "new" / "d.safetensors")
    loaded = Detector.load(tmp_path / "new" / "d.safetensors")
    for name in ("score", "classes", "recipe", "size", "calibration"):
        assert getattr(loaded, name) == getattr(detector, name)
    images = noise(50, seed=1)
    ours, theirs = detector.predict(images), loaded.predict(images)
    for name in ("labels", "confidences", "is_ood"):
        np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
    assert not loaded.net.training
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["d.safetensors"]


def test_the_same_detector_gives_the_same_bytes(detector, saved, tmp_path):
    detector.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_the_label_is_json_that_other_tools_can_read(saved, detector):
    with safetensors.safe_open(saved, "numpy") as file:
        label = json.loads(file.metadata()["macs"])
    assert (label["format"], label["version"], label["macs"]) == ("macs-detector", 2, macs.__version__)
    assert label["net"] == "wrn-10-1" and label["classes"] == ["horizontal", "vertical", "plain"]
    assert label["size"] == 16 and label["score"] == "msp" and label["recipe"] is None
    assert "no normalisation" in label["preparation"] and "16" in label["preparation"]
    assert label["calibration"]["thresholds"][0]["value"] == float(detector.thresholds())


def test_a_network_of_the_users_is_loaded_only_with_it(dots, tmp_path):
    path = tmp_path / "d.safetensors"
    dots.save(path)
    images = noise(20, seed=1)
    expected = dots.predict(images).confidences
    for net in (Dots(classes=3), "dots:Dots"):
        np.testing.assert_array_equal(Detector.load(path, net=net).predict(images).confidences, expected)
    for nothing in (None, ""):
        with pytest.raises(MacsError, match=r"network of your own, here dots:Dots, .* --net dots:Dots"):
            Detector.load(path, nothing)
    with pytest.raises(MacsError, match="does not fit wrn-10-1 with 3 classes: it lacks"):
        Detector.load(path, "wrn-10-1")
    with pytest.raises(MacsError, match="does not fit"):
        Detector.load(path, nn.Sequential())


def test_tied_weights_come_back(validation, tmp_path):
    detector = Detector(Tied()).calibrate(validation)
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors", net=Tied())
    np.testing.assert_array_equal(loaded.predict(validation).labels, detector.predict(validation).labels)


@pytest.mark.parametrize("changes", [{"net": "sly:Net"}, {"score": "sly:Score"}])
def test_a_name_in_a_file_imports_nothing(saved, tmp_path, monkeypatch, changes):
    (tmp_path / "sly.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    forged(saved, Path("sly.safetensors"), **changes)
    with pytest.raises(MacsError, match="network of your own|label that macs did not write"):
        Detector.load("sly.safetensors")
    assert not Path("ran").exists()


def test_a_score_of_the_users_cannot_be_saved(trained, validation, tmp_path, monkeypatch):
    (tmp_path / "own_score.py").write_text(
        "from macs.scores import Score\n\n\n"
        "class Mine(Score):\n"
        "    def confidence(self, logits, features=None):\n"
        "        return logits.amax(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    detector = Detector(trained, "own_score:Mine").calibrate(validation)
    with pytest.raises(MacsError, match=r"score of your own \(own_score:Mine\)"):
        detector.save(tmp_path / "d.safetensors")


@pytest.mark.parametrize("share", [0.0, 1e-5, 1e-4, 0.01, 0.3, 0.9, 0.9999])
def test_a_file_cut_short_is_damaged(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(MacsError, match="is damaged"):
        Detector.load(saved)


def test_a_change_of_any_byte_is_refused(saved):
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


def test_an_edited_threshold_is_refused(saved, detector):
    content = saved.read_bytes()
    value = str(float(detector.thresholds())).encode()
    assert content.count(value) == 1
    saved.write_bytes(content.replace(value, b"0." + b"1" * (len(value) - 2)))
    with pytest.raises(MacsError, match="was changed after it was saved"):
        Detector.load(saved)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 3}, "newer macs"),
        ({"version": "x"}, "newer macs"),
        ({"format": "macs-net"}, "not a detector: it says that it is a macs-net"),
        ({"classes": ["a", "b"]}, "does not fit wrn-10-1 with 2 classes: it has 3 classes"),
        ({"classes": 3}, r"label that macs did not write \(classes\)"),
        ({"size": "16", "macs": None}, r"label that macs did not write \(macs, size\)"),
        ({"normalisation": 3}, r"label that macs did not write \(normalisation\)"),
        ({"normalisation": {"mean": [0, 0, 0]}}, r"label that macs did not write \(normalisation\)"),
        ({"calibration": {}}, "calibration that macs did not write"),
        ({"net": "wrn-x"}, "There is no network called 'wrn-x'"),
        ({"score": "knn"}, "score of the logits"),
    ],
)
def test_labels_that_are_wrong(saved, tmp_path, changes, complaint):
    with pytest.raises(MacsError, match=complaint):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", **changes))


def test_normalisation_travels_with_a_detector(known, tmp_path):
    net = nets.build("wrn-10-1", len(known.classes), normalisation="openood-cifar100")
    detector = Detector(net).calibrate(known)
    detector.save(tmp_path / "d.safetensors")
    expected = detector.predict(known).confidences
    for given in (None, nets.build("wrn-10-1", len(known.classes))):
        loaded = Detector.load(tmp_path / "d.safetensors", given)
        np.testing.assert_array_equal(loaded.predict(known).confidences, expected)
        assert loaded.net.normalise.values.mean == pytest.approx((0.5071, 0.4867, 0.4408))


def test_detectors_of_version_1_normalise_as_they_did(saved, tmp_path, detector):
    old = forged(saved, tmp_path / "old.safetensors", version=1, normalisation=None)
    images = noise(5, seed=1)
    np.testing.assert_array_equal(Detector.load(old).predict(images).confidences, detector.predict(images).confidences)


def test_a_number_of_thresholds_that_does_not_fit(saved, tmp_path, detector):
    record = detector.calibrated.as_dict()
    record["thresholds"] = list(record["thresholds"]) * 2
    with pytest.raises(MacsError, match="2 thresholds for 3 classes"):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", calibration=record))


def test_a_forged_file_without_a_mistake_loads(saved, tmp_path):
    """So that the tests above fail for what they change and not for how they change it."""
    assert Detector.load(forged(saved, tmp_path / "forged.safetensors", size=20)).size == 20


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, tmp_path, value):
    tensors = safetensors.torch.load_file(saved)
    tensors["net.fc.weight"][0, 0] = value
    with pytest.raises(MacsError, match=r"not finite \(fc.weight\)"):
        Detector.load(forged(saved, tmp_path / "forged.safetensors", tensors))


def test_a_users_network_with_another_number_of_outputs_than_class_names(dots, tmp_path):
    dots.save(tmp_path / "d.safetensors")
    forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", classes=["a", "b"])
    with pytest.raises(MacsError, match="names 2 classes, but its network tells 3 apart"):
        Detector.load(tmp_path / "forged.safetensors", net=Dots(3))


def test_other_files_are_no_detectors(trained, detector, tmp_path):
    nets.save(trained, tmp_path / "net.safetensors")
    with pytest.raises(MacsError, match="not a detector: it says that it is a macs-net"):
        Detector.load(tmp_path / "net.safetensors")
    safetensors.torch.save_file(Dots().state_dict(), tmp_path / "theirs.safetensors")
    with pytest.raises(MacsError, match="not a detector: it has no label of ours"):
        Detector.load(tmp_path / "theirs.safetensors")
    with pytest.raises(MacsError, match="no detector at"):
        Detector.load(tmp_path / "absent.safetensors")
    with pytest.raises(MacsError, match="Is a directory"):
        Detector.load(tmp_path)
    detector.save(tmp_path / "d.safetensors")
    with pytest.raises(MacsError, match="is not a network: it says that it is a macs-detector"):
        nets.load(tmp_path / "d.safetensors")


def test_only_safetensors_are_written(detector, tmp_path):
    with pytest.raises(MacsError, match=r"end in \.safetensors"):
        detector.save(tmp_path / "d.pt")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_and_nothing_else(detector, validation, saved, monkeypatch):
    before = saved.read_bytes()

    def half(self, content):
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(MacsError, match="No space left on device"):
        detector.calibrate(validation, keep=0.5).save(saved)
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
