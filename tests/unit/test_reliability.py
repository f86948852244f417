"""Class probabilities: the ECE by brute force, the temperature on a grid, and both in detectors and evaluations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import macs
from dots import Dots
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.evaluation.tables import plain_text
from macs.metrics import expected_calibration_error, fit_temperature
from tiny import noise, stripes


def by_hand(correct: list[bool], probabilities: list[float], bins: int) -> float:
    total = 0.0
    for b in range(bins):
        inside = [i for i, p in enumerate(probabilities) if b / bins < p <= (b + 1) / bins or (p == 0 and b == 0)]
        if inside:
            gap = np.mean([probabilities[i] for i in inside]) - np.mean([correct[i] for i in inside])
            total += len(inside) / len(probabilities) * abs(float(gap))
    return total


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_the_ece_is_its_definition(bins: int) -> None:
    random = np.random.default_rng(bins)
    probabilities = random.random(300).round(2).tolist()  # some on the edge of a bin
    correct = (random.random(300) < 0.6).tolist()
    assert expected_calibration_error(correct, probabilities, bins) == pytest.approx(
        by_hand(correct, probabilities, bins)
    )


@pytest.mark.parametrize(
    ("correct", "probabilities", "words"),
    [([True], [0.1, 0.2], "one probability per prediction"), ([True], [1.5], "outside"), ([], [], "one probability")],
)
def test_what_has_no_ece_is_refused(correct: list[bool], probabilities: list[float], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        expected_calibration_error(correct, probabilities)


@pytest.mark.parametrize("true", [0.01, 0.5, 4.0])
def test_the_temperature_is_found_that_made_the_labels(true: float) -> None:
    """Logits of any scale: labels are drawn from softmax(z / true), and no temperature of a fine grid does better."""
    random = np.random.default_rng(0)
    logits = true * random.normal(0, 2, (4000, 6))
    labels = (logits / true + random.gumbel(size=logits.shape)).argmax(axis=1)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(true, rel=0.05)
    z, y = torch.tensor(logits), torch.tensor(labels)
    losses = {t: float(cross_entropy(z / t, y)) for t in found * np.geomspace(0.9, 1.1, 41)}
    assert min(losses, key=losses.__getitem__) == pytest.approx(found, rel=0.006)


def test_perfect_predictions_have_no_temperature() -> None:
    assert fit_temperature([[2.0, 1.0], [0.0, 3.0]], [0, 1]) is None


def dots() -> nn.Module:
    """A network that answers in clear words: its features are hardly different from image to image."""
    torch.manual_seed(0)
    net = Dots()
    nn.init.normal_(net.fc.weight, std=30)
    with torch.no_grad():
        grey = net(torch.full((1, 3, 16, 16), 0.5))[0]
        net.fc.bias.sub_(grey)
    return net


@pytest.fixture(scope="module")
def labelled() -> ImageSet:
    """Noise whose labels are mostly what the network says."""
    images = noise(200, seed=1)
    net = dots()
    logits = net(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255)
    labels = logits.argmax(dim=1).numpy().copy()
    labels[::4] = (labels[::4] + 1) % logits.shape[1]
    return ImageSet.from_array(images.pixels[:], labels, [str(k) for k in range(logits.shape[1])], name="labelled")


def test_a_detector_keeps_its_temperature_and_no_verdict_depends_on_it(labelled: ImageSet, tmp_path: Path) -> None:
    net = dots()
    detector = Detector(net).calibrate(labelled)
    unlabelled = Detector(net).calibrate(labelled.pixels[:])
    assert unlabelled.temperature is None and detector.temperature is not None
    for name in ("index", "confidence", "p_value", "is_ood"):
        ours, theirs = (getattr(each.predict(labelled), name) for each in (detector, unlabelled))
        np.testing.assert_array_equal(ours, theirs)
    logits = net(torch.from_numpy(labelled.pixels[:]).permute(0, 3, 1, 2) / 255).detach()
    assert detector.temperature == pytest.approx(fit_temperature(logits, labelled.labels), rel=1e-4)
    expected = (logits / detector.temperature).softmax(dim=1).numpy()
    np.testing.assert_allclose(detector.probabilities(labelled), expected, atol=1e-6)
    np.testing.assert_allclose(unlabelled.probabilities(labelled), logits.softmax(dim=1).numpy(), atol=1e-6)

    result = detector.evaluate(labelled, {"stripes": stripes(50, seed=2)}, progress=False)
    right = expected.argmax(axis=1) == labelled.labels
    assert result.reliability.ece_scaled == pytest.approx(
        by_hand(right.tolist(), expected.max(axis=1).tolist(), 15), abs=1e-6
    )
    assert json.loads(json.dumps(result.as_dict()))["probabilities"]["temperature"] == detector.temperature
    assert "the calibration images" in " ".join(plain_text(result).split())

    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors", net=dots())
    assert loaded.temperature == detector.temperature
    np.testing.assert_array_equal(loaded.probabilities(labelled), detector.probabilities(labelled))


def test_a_network_is_scaled_on_held_out_images(labelled: ImageSet) -> None:
    test, held_out = labelled.split(100, seed=0)
    unknown = {"stripes": stripes(50, seed=2)}
    plain = macs.evaluate(dots(), test, unknown, progress=False)
    scaled = macs.evaluate(dots(), test, unknown, held_out=held_out, progress=False)
    assert plain.reliability.temperature is None and plain.reliability.ece == scaled.reliability.ece
    assert scaled.reliability.ece_scaled < scaled.reliability.ece
    assert scaled.reliability.fitted_to == "100 images of labelled (100 of 200)"
    assert "with the temperature" in str(scaled) and "with the temperature" not in str(plain)
    assert scaled.sets == plain.sets
