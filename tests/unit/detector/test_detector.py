"""Verdicts, against the network and the threshold applied by hand."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import macs
from dots import Dots
from macs.core.errors import MacsError
from macs.core.settings import from_dict
from macs.data import ImageSet
from macs.data.preparation import fit
from macs.detector import Detector
from macs.detector.calibration import Calibration, Check
from macs.predictions import Predictions
from macs.scores.knn import KNN
from tiny import STRIPES, noise, stripes

SCORES = {
    "msp": lambda logits: logits.softmax(1).max(1).values,
    "maxlogit": lambda logits: logits.max(1).values,
    "energy": lambda logits: logits.logsumexp(1),
}


def by_hand(net: nn.Module, pixels: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return net.eval()(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)


@pytest.mark.parametrize("score", SCORES)
def test_verdicts_are_what_network_score_and_rank_give_by_hand(
    trained: nn.Module, validation: ImageSet, score: str
) -> None:
    detector = Detector(trained, score).calibrate(validation, keep=0.9)
    confidences = SCORES[score](by_hand(trained, validation.pixels[:]))
    tau = np.sort(confidences.numpy())[101 // 10 - 1]
    assert detector.thresholds() == pytest.approx(tau, rel=1e-5)

    unknown = noise(40, seed=8)
    logits = by_hand(trained, unknown.pixels[:])
    found = detector.predict(unknown)
    np.testing.assert_array_equal(found.index, logits.argmax(1))
    np.testing.assert_allclose(found.confidence, SCORES[score](logits), rtol=1e-5)
    np.testing.assert_array_equal(found.is_ood, found.confidence < np.float32(tau))
    assert found.class_ == [STRIPES[label] for label in found.index]
    assert len(found) == 40


def test_of_its_calibration_images_a_detector_keeps_all_but_those_below_the_kth(
    detector: Detector, validation: ImageSet
) -> None:
    verdicts = detector.predict(validation)
    distinct_below = np.sum(verdicts.confidence < detector.thresholds())
    assert verdicts.is_ood.sum() == distinct_below <= 101 // 10 - 1


def test_the_record_has_accuracy_and_the_share_of_outliers_that_pass(trained: nn.Module, validation: ImageSet) -> None:
    unknown = noise(50, seed=9)
    detector = Detector(trained).calibrate(validation, outliers={"noise": unknown})
    record = detector.calibrated
    predicted = by_hand(trained, validation.pixels[:]).argmax(1).numpy()
    assert record.accuracy == np.mean(predicted == validation.labels)
    passed = SCORES["msp"](by_hand(trained, unknown.pixels[:])).numpy() >= record.thresholds[0].value
    assert record.passing == {"noise": passed.mean()}
    assert (record.data, record.images, record.keep, record.score) == ("stripes", 100, 0.95, "msp")


@pytest.mark.parametrize("per_class", [False, True])
def test_a_check_counts_what_is_kept_of_other_images(trained: nn.Module, validation: ImageSet, per_class: bool) -> None:
    others = stripes(80, seed=31)
    detector = Detector(trained, "energy").calibrate(validation, keep=0.8, per_class=per_class, check=others)
    verdicts, record = detector.predict(others), detector.calibrated
    groups = [verdicts.index == label for label in range(3)] if per_class else [np.ones(80, bool)]
    assert [check.images for check in record.checks] == [group.sum() for group in groups]
    assert [check.kept for check in record.checks] == [np.mean(~verdicts.is_ood[group]) for group in groups]
    for check, threshold in zip(record.checks, record.thresholds, strict=True):
        assert check.expected == threshold.interval_on(check.images) and check.group == threshold.group
        assert f"{check.images} other " in str(check) and str(check) in str(record)
    assert from_dict(Calibration, json.loads(json.dumps(record.as_dict()))) == record


def test_a_check_that_fails_says_so() -> None:
    assert "95.00%, as expected" in str(Check("", 100, 0.95, (0.9, 0.99)))
    assert "80.00%, NOT as expected" in str(Check("", 100, 0.80, (0.9, 0.99)))


def test_one_threshold_a_predicted_class(trained: nn.Module, validation: ImageSet) -> None:
    detector = Detector(trained, "maxlogit").calibrate(validation, keep=0.8, per_class=True)
    logits = by_hand(trained, validation.pixels[:])
    labels, confidences = logits.argmax(1).numpy(), logits.max(1).values.numpy()
    for label in range(3):
        group = np.sort(confidences[labels == label])
        assert detector.thresholds()[label] == pytest.approx(group[(len(group) + 1) // 5 - 1], rel=1e-5)
    found = detector.predict(noise(30, seed=4))
    taus = detector.thresholds()[found.index]
    np.testing.assert_array_equal(found.is_ood, found.confidence < taus)


def test_a_set_an_array_and_single_images_get_the_same_verdicts(detector: Detector, validation: ImageSet) -> None:
    whole = detector.predict(validation)
    array = detector.predict(validation.pixels[:])
    one = [detector.predict(image) for image in validation.pixels[:5]]
    np.testing.assert_allclose(array.confidence, whole.confidence)
    np.testing.assert_allclose([each.confidence[0] for each in one], whole.confidence[:5], rtol=1e-5)
    assert [each.index[0] for each in one] == whole.index[:5].tolist()


@pytest.mark.parametrize("shape", [(30, 47), (47, 30), (16, 20), (33, 33)])
def test_images_of_another_size_are_fitted_as_files_are(detector: Detector, shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, *shape, 3), dtype=np.uint8)
    fitted = np.stack([fit(Image.fromarray(image), 16) for image in images])
    expected = detector.predict(fitted)
    np.testing.assert_array_equal(detector.predict(images).confidence, expected.confidence)
    if shape[0] == shape[1]:
        np.testing.assert_array_equal(detector.predict(ImageSet.from_array(images)).confidence, expected.confidence)


def test_the_threshold_can_be_overridden(detector: Detector, trained: nn.Module, validation: ImageSet) -> None:
    confidences = detector.predict(validation).confidence
    middle = float(np.median(confidences))
    found = detector.predict(validation, threshold=middle)
    np.testing.assert_array_equal(found.is_ood, confidences < np.float32(middle))
    each = Detector(trained).calibrate(validation, keep=0.8, per_class=True)
    np.testing.assert_array_equal(each.predict(validation, threshold=middle).is_ood, found.is_ood)
    with pytest.raises(MacsError, match="must be a number"):
        detector.predict(validation, threshold=float("nan"))


def test_a_confidence_that_is_no_number_is_ood(detector: Detector) -> None:
    labels, confidences = np.array([0, 1]), np.array([np.nan, 1.0], np.float32)
    verdicts = detector.judge(Predictions(labels, confidences, confidences), np.array(0.5, np.float32))
    assert verdicts.is_ood.tolist() == [True, False]


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 16, 16, 3), np.float32),
        np.zeros((2, 16, 16, 3), np.int64),
        np.zeros((16, 16), np.uint8),
        np.zeros((0, 16, 16, 3), np.uint8),
    ],
)
def test_what_is_not_raw_pixels_is_refused_with_what_to_give(detector: Detector, images: np.ndarray) -> None:
    with pytest.raises(MacsError, match=r"must be uint8 pixels 0\.\.255, N x H x W x 3 or N x 3 x H x W, or float"):
        detector.predict(images)


def test_without_calibration_there_is_no_verdict(trained: nn.Module, validation: ImageSet, tmp_path: Path) -> None:
    bare = Detector(trained)
    for action in (
        lambda: bare.predict(validation),
        lambda: bare.predict_files([tmp_path]),
        lambda: bare.save(tmp_path / "d.safetensors"),
    ):
        with pytest.raises(MacsError, match=r"no threshold yet; call \.calibrate"):
            action()


def test_labels_are_not_needed_and_classes_are_then_numbered(trained: nn.Module, validation: ImageSet) -> None:
    unlabelled = ImageSet.from_array(validation.pixels[:])
    detector = Detector(trained).calibrate(unlabelled)
    assert detector.classes == ("0", "1", "2")
    assert detector.calibrated.accuracy is None
    assert Detector(trained, classes=STRIPES).calibrate(unlabelled).classes == STRIPES


def test_classes_that_do_not_fit_are_refused(trained: nn.Module, validation: ImageSet) -> None:
    pixels, labels = validation.pixels[:], validation.labels
    four = ImageSet.from_array(pixels, labels, ("a", "b", "c", "d"), name="four")
    with pytest.raises(MacsError, match=r"3 classes apart, but four has 4 \(a, b, c, d\)"):
        Detector(trained).calibrate(four)
    with pytest.raises(MacsError, match="3 classes apart, but the detector was given 2"):
        Detector(trained, classes=("a", "b")).calibrate(validation)
    with pytest.raises(MacsError, match="stripes has the classes horizontal, vertical, plain, but the detector was"):
        Detector(trained, classes=("vertical", "horizontal", "plain")).calibrate(validation)


@pytest.mark.parametrize("names", [("a", "b", "a"), ("a", " ", "b")])
def test_classes_that_cannot_be_told_apart_are_refused(
    trained: nn.Module, validation: ImageSet, names: tuple[str, ...]
) -> None:
    with pytest.raises(MacsError, match="Cannot tell the classes apart"):
        Detector(trained, classes=names).calibrate(ImageSet.from_array(validation.pixels[:]))


def test_a_score_that_needs_gradients_is_refused_with_the_reason(trained: nn.Module) -> None:
    with pytest.raises(MacsError, match=r"ODIN\(.*\) needs the gradient of the network"):
        Detector(trained, "odin")


def test_a_detector_shows_itself_in_one_line(trained: nn.Module, validation: ImageSet) -> None:
    net = macs.nets.name_of(trained)
    assert repr(Detector(trained, "knn")) == f"<Detector {net}, KNN() [unfitted], not calibrated>"
    calibrated = Detector(trained).calibrate(validation, keep=0.9)
    assert repr(calibrated) == f"<Detector {net}, MSP(), keeps 0.9 of {validation.name}>"


def test_a_detector_moves_as_a_whole(trained: nn.Module, known: ImageSet, validation: ImageSet) -> None:
    detector = Detector(trained, "knn").fit(known).calibrate(validation)
    before = detector.predict(validation).confidence
    assert detector.to("cpu") is detector
    np.testing.assert_array_equal(detector.predict(validation).confidence, before)
    moved = Detector(Dots(), "knn").fit(known).to("meta")
    assert {tensor.device.type for tensor in (*moved.net.parameters(), *moved.score.buffers())} == {"meta"}


def test_an_unknown_score_is_named(trained: nn.Module) -> None:
    with pytest.raises(MacsError, match="did you mean 'msp'"):
        Detector(trained, "mps")


def test_a_network_that_cannot_take_the_images_or_is_no_classifier_says_so(validation: ImageSet) -> None:
    with pytest.raises(MacsError, match="cannot take 16 x 16 images"):
        Detector(nn.Sequential(nn.Flatten(), nn.Linear(5, 3))).calibrate(validation)
    with pytest.raises(MacsError, match=r"shape \(1, 3, 16, 16\) .* for 1 image;"):
        Detector(nn.ReLU()).calibrate(validation)


def test_a_network_in_training_mode_is_run_in_evaluation_mode_and_left_as_it_was(
    trained: nn.Module, validation: ImageSet
) -> None:
    expected = Detector(trained).calibrate(validation).thresholds()
    trained.train()
    try:
        assert Detector(trained).calibrate(validation).thresholds() == expected
        assert trained.training
    finally:
        trained.eval()


def test_a_constant_network_keeps_everything(validation: ImageSet) -> None:
    """All confidences are tied at the threshold, and what reaches it is kept."""
    net = Dots()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    detector = Detector(net).calibrate(validation)
    assert not detector.predict(stripes(50, seed=11)).is_ood.any()


def test_fitting_and_calibrating_change_the_detector_and_return_it(
    trained: nn.Module, known: ImageSet, validation: ImageSet
) -> None:
    detector = Detector(trained, "knn")
    assert detector.fit(known) is detector and detector.score.fitted and detector.calibration is None
    assert detector.calibrate(validation, keep=0.9) is detector and detector.calibrated.keep == 0.9
    first = replace(detector)
    detector.calibrate(validation, keep=0.5)
    assert detector.calibrated.keep == 0.5 and first.calibrated.keep == 0.9
    assert detector.thresholds() > first.thresholds()


def test_a_failure_leaves_the_detector_as_it_was(
    trained: nn.Module, known: ImageSet, validation: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Detector(trained, "knn").fit(known).calibrate(validation)
    before = dict(vars(detector))
    wrong = ImageSet.from_array(validation.pixels[:], validation.labels, ("a", "b", "c", "d"), name="four")
    failures: list[Callable[[], Any]] = [
        lambda: detector.calibrate(wrong),
        lambda: detector.calibrate(validation, keep=2),
        lambda: detector.calibrate(validation, check=noise(5, 1), outliers={"broken": torch.full((2, 3, 16, 16), 9.0)}),
        lambda: detector.fit(known, known),
        lambda: detector.fit(None),
        lambda: detector.choose(known, validation.subset(range(19))),
    ]
    for failing in failures:
        with pytest.raises(MacsError):
            failing()
        assert vars(detector) == before
    monkeypatch.setattr(KNN, "learn", lambda *_: {})
    with pytest.raises(MacsError, match="declares the buffers"):
        detector.fit(known)
    assert vars(detector) == before and detector.predict(validation).is_ood.shape == (100,)


def test_a_share_of_the_images_is_held_back_to_check_on(trained: nn.Module, validation: ImageSet) -> None:
    others, rest = validation.split(0.3)
    by_hand = Detector(trained).calibrate(rest, check=others).calibrated
    assert Detector(trained).calibrate(validation, check=0.3).calibrated == by_hand
    assert Detector(trained).calibrate(validation, check=0.0).calibrated.checks == ()
    with pytest.raises(MacsError, match="the share of images to hold back"):
        Detector(trained).calibrate(validation, check=1.5)


def test_the_images_of_the_fit_do_not_calibrate(trained: nn.Module, known: ImageSet) -> None:
    with pytest.raises(
        MacsError, match=r"stripes holds the images to calibrate on; fit KNN\(\) to the training images"
    ):
        Detector(trained, "knn").fit(known).calibrate(known)
    with pytest.raises(MacsError, match="stripes holds the images to calibrate on"):
        Detector(trained, "msp+vim").fit(known).calibrate(known)


def test_a_tensor_without_the_last_class_calibrates(trained: nn.Module, validation: ImageSet) -> None:
    first = validation.subset(validation.labels < 2)
    detector = Detector(trained).calibrate((first.pixels[:], first.labels))
    assert detector.classes == ("0", "1", "2") and detector.calibrated.accuracy is not None


def test_the_name_at_the_top_is_the_class() -> None:
    assert macs.Detector is Detector
