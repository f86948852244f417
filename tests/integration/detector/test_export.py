"""The exported file against PyTorch, with and without torch in the process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnxruntime import InferenceSession
from torch import Tensor, nn

import macs
from dots import Dots
from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.preparation import Preparation
from macs.detector import Detector, Verdicts, export, saving
from macs.detector.runtime import session
from tiny import noise

WITHOUT_TORCH = """
import sys
for name in ("torch", "macs"):
    sys.modules[name] = None
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options)
images = np.load(sys.argv[2])
names = ["index", "confidence", "p_value", "is_ood"]
np.savez(sys.argv[3], **dict(zip(names, session.run(names, {"images": images}))))
"""


class Stubborn(nn.Module):
    """A network that looks at its numbers to decide what to do, which no graph can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, pixels: Tensor) -> Tensor:
        means = pixels.mean(dim=(2, 3))
        return self.fc(means) if means.sum().item() > 0.5 else self.fc(-means)


def equal(found: list[np.ndarray], expected: Verdicts, tau: np.ndarray) -> None:
    label, confidence, p_value, is_ood = found
    assert [part.dtype for part in found] == [np.int64, np.float32, np.float32, np.bool_]
    np.testing.assert_array_equal(label, expected.index)
    np.testing.assert_allclose(confidence, expected.confidence, rtol=1e-5, atol=1e-5)
    near = np.abs(expected.confidence - tau) < 1e-5  # where rounding may decide
    assert ((is_ood == expected.is_ood) | near).all() and near.mean() < 0.1
    # A rounding moves an image past one of the calibration that is just as confident.
    np.testing.assert_allclose(p_value, expected.p_value, atol=0.06)


@pytest.fixture(scope="module")
def onnx_session(exported: Path) -> InferenceSession:
    return session(exported.read_bytes())


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_verdicts_are_pytorchs_on_random_images_for_any_number_of_them(
    detector: Detector, onnx_session: InferenceSession, count: int
) -> None:
    images = noise(count, seed=count)
    found = onnx_session.run(None, {"images": images.pixels[:]})
    equal(found, detector.predict(images), detector.thresholds())


def test_verdicts_are_pytorchs_on_real_images(detector: Detector, onnx_session: InferenceSession) -> None:
    images = load("digits", "test", size=16)
    found = onnx_session.run(None, {"images": images.pixels[:]})
    equal(found, detector.predict(images), detector.thresholds())
    assert 0 < found[3].mean() <= 1


def test_the_threshold_is_inside_and_may_be_overridden(
    detector: Detector, onnx_session: InferenceSession, validation: ImageSet
) -> None:
    (optional,) = onnx_session.get_overridable_initializers()
    assert (optional.name, optional.type, optional.shape) == ("threshold", "tensor(float)", [])
    (needed,) = onnx_session.get_inputs()
    assert (needed.name, needed.type, needed.shape) == ("images", "tensor(uint8)", ["batch", 16, 16, 3])
    pixels = validation.pixels[:]
    for tau in (-1.0, 0.7, float(detector.thresholds()), 2.0):
        found = onnx_session.run(None, {"images": pixels, "threshold": np.array(tau, np.float32)})
        equal(found, detector.predict(pixels, threshold=tau), np.array(tau, np.float32))


def test_a_process_without_torch_runs_the_file(exported: Path, detector: Detector, tmp_path: Path) -> None:
    images = noise(20, seed=3).pixels[:]
    np.save(tmp_path / "x.npy", images)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(exported), str(tmp_path / "x.npy"), str(tmp_path / "y.npz")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as found:
        parts = [found[name] for name in ("index", "confidence", "p_value", "is_ood")]
    equal(parts, detector.predict(images), detector.thresholds())


def test_the_file_says_in_words_what_it_takes_and_gives(exported: Path, detector: Detector) -> None:
    model = onnx.load(exported)
    onnx.checker.check_model(model, full_check=True)
    told = {entry.key: entry.value for entry in model.metadata_props}
    assert told["input"] == "raw uint8 RGB pixels 0..255, N x H x W x 3, no normalisation"
    assert told["preparation"] == detector.preparation.describe()
    assert Preparation.from_dict(json.loads(told["preparation.json"])) == detector.preparation
    assert json.loads(told["classes"]) == list(detector.classes)
    calibration = json.loads(told["calibration"])
    assert calibration["keep"] == 0.9 and calibration["thresholds"][0]["rank"] == 10
    assert (told["score"], told["net"], told["precision"], told["macs"]) == (
        "msp",
        "wrn-10-1",
        "float32",
        macs.__version__,
    )
    assert model.opset_import[0].version >= 18


def test_the_file_is_the_weights_and_little_more_and_names_no_folder(exported: Path, detector: Detector) -> None:
    weights = sum(tensor.nbytes for tensor in detector.net.state_dict().values())
    assert exported.stat().st_size < 1.1 * weights + 10_000
    content = exported.read_bytes()
    for folder in (Path(macs.__file__).parent, Path(torch.__file__).parent, Path(__file__).parent):
        assert str(folder).encode() not in content


def test_one_threshold_a_class_is_a_vector(validation: ImageSet, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Dots()
    with torch.no_grad():  # so that every class is predicted for some images
        logits = net(torch.from_numpy(validation.pixels[:]).permute(0, 3, 1, 2) / 255)
        net.fc.bias.sub_(logits.median(dim=0).values)
    detector = Detector(net, "maxlogit").calibrate(validation, keep=0.5, per_class=True)
    detector.export(tmp_path / "d.onnx")
    found = session((tmp_path / "d.onnx").read_bytes())
    (optional,) = found.get_overridable_initializers()
    assert optional.shape == [3]
    expected = detector.predict(validation)
    assert len(set(expected.index.tolist())) == 3
    equal(found.run(None, {"images": validation.pixels[:]}), expected, detector.thresholds()[expected.index])
    other = np.array([9, -9, 9], np.float32)
    *_, is_ood = found.run(None, {"images": validation.pixels[:], "threshold": other})
    np.testing.assert_array_equal(is_ood, expected.index != 1)


def test_a_users_network_with_energy_which_stays_as_it_was(dots: Detector, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in dots.net.state_dict().items()}
    dots.net.train()
    dots.export(tmp_path / "new" / "d.onnx")
    assert dots.net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in dots.net.state_dict().items())
    images = noise(30, seed=6)
    found = session((tmp_path / "new" / "d.onnx").read_bytes()).run(None, {"images": images.pixels[:]})
    equal(found, dots.predict(images), dots.thresholds())


def test_a_network_that_no_graph_can_follow_is_refused(validation: ImageSet, tmp_path: Path) -> None:
    detector = Detector(Stubborn()).calibrate(ImageSet.from_array(validation.pixels[:]))
    with pytest.raises(MacsError, match=f"torch cannot export {__name__}:Stubborn to ONNX") as caught:
        detector.export(tmp_path / "d.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_graph_that_answers_otherwise_is_not_written(
    detector: Detector, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(detector, net=macs.nets.build("wrn-10-1", classes=3))
    monkeypatch.setattr(export, "translated", lambda detector: onnx.load(exported))
    with pytest.raises(MacsError, match="does not answer as the network itself does"):
        other.export(tmp_path / "d.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_missing_or_misnamed_is_said_first(
    dots: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MacsError, match=r"end in \.onnx"):
        dots.export(tmp_path / "d.pb")
    monkeypatch.setattr(saving, "find_spec", lambda name: None if name == "onnxscript" else "there")
    with pytest.raises(MacsError, match=r"Exporting needs onnxscript: pip install 'macs-ood\[onnx\]'"):
        dots.export(tmp_path / "d.onnx")
