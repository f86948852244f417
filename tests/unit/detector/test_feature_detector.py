"""Verdicts on rows, against the same arithmetic in numpy and against the image detector."""

import math
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import macs
from clustered_features import BIAS, CLASSES, FEATURES, WEIGHT, activations, logits_of
from macs.core.errors import MacsError, MacsWarning
from macs.detector.rows import Columns, Rows
from macs.inference import outputs_of
from macs.metrics import ood_metrics
from macs.serve.drift import DriftTest
from tiny import stripes

TRAIN, LABELS = activations(300, seed=3)
VALIDATION, TRUE = activations(200, seed=6)
NEW, _ = activations(60, seed=7)
NEW[::3] *= 4
UNNAMED: Any = NEW
HEAD = (WEIGHT, BIAS)
SINGLE = [name for name in macs.scores.available() if macs.scores.get(name).reads != "pixels"]


def fitted(score: str = "knn", **given: Any) -> macs.FeatureDetector:
    detector = macs.FeatureDetector(score, **given).fit(TRAIN, labels=LABELS)
    return detector.calibrate(VALIDATION, labels=TRUE if given.get("head") else None)


def p_values(calibration: np.ndarray, new: np.ndarray) -> np.ndarray:
    """By their definition, one row at a time."""
    return np.array([(1 + (calibration <= one).sum()) / (1 + len(calibration)) for one in new])


def test_energy_is_the_arithmetic_of_numpy() -> None:
    logits, new = logits_of(VALIDATION), logits_of(NEW)
    energy, of_new = (np.log(np.exp(z.astype(np.float32)).sum(1)) for z in (logits, new))
    verdicts = macs.FeatureDetector("energy").calibrate(logits=logits, keep=0.9).predict(logits=new)
    threshold = np.sort(energy)[math.floor(201 * 0.1 + 1e-9) - 1]
    assert verdicts.confidence == pytest.approx(of_new, abs=1e-4)
    assert verdicts.threshold == pytest.approx(np.full(60, threshold), abs=1e-4)
    assert verdicts.is_ood.tolist() == (of_new < threshold).tolist()
    assert verdicts.p_value == pytest.approx(p_values(energy, of_new), abs=1e-6)
    assert verdicts.index.tolist() == new.argmax(1).tolist()


def test_knn_needs_no_classifier() -> None:
    detector = macs.FeatureDetector(macs.scores.get("knn", k=3)).fit(TRAIN).calibrate(VALIDATION)
    unit, bank = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (NEW, TRAIN))
    distances = np.sort(np.linalg.norm(unit[:, None] - bank[None], axis=2), axis=1)[:, 2]
    verdicts = detector.predict(NEW)
    assert verdicts.confidence == pytest.approx(-distances, abs=1e-3)
    assert set(verdicts.index) == {-1} and set(verdicts.class_) == {None} and detector.classes == ()
    assert [row.index for row in verdicts.rows("abc")] == [None] * 3


@pytest.mark.filterwarnings("ignore::macs.core.errors.MacsWarning")  # of a network that is not trained
@pytest.mark.parametrize("score", [*SINGLE, "energy+knn"])
def test_the_image_detector_is_this_plus_a_network(score: str, tiny_net: nn.Module) -> None:
    train, validation, new = stripes(120, 1), stripes(84, 2), stripes(12, 3)
    of_images = macs.Detector(tiny_net, score).fit(train).calibrate(validation, keep=0.8)

    def rows(images: macs.ImageSet) -> dict[str, Any]:
        (outputs,) = outputs_of(tiny_net, images, features=True)
        return {"features": outputs.features, "logits": outputs.logits, "labels": images.labels}

    head: Any = tiny_net.fc if macs.scores.get(score).uses_head else None
    of_rows = macs.FeatureDetector(score, head).fit(rows(train)).calibrate(rows(validation), keep=0.8)
    ours, theirs = of_rows.predict(rows(new)), of_images.predict(new)
    assert ours.confidence == pytest.approx(theirs.confidence, rel=1e-4, abs=1e-4)
    assert np.abs(ours.p_value - theirs.p_value).max() <= 1.01 / 64  # a rank, where rounding parts two that are equal
    assert of_rows.calibrated.accuracy == of_images.calibrated.accuracy
    assert of_rows.held_out == of_images.held_out


@pytest.fixture(scope="module", name="tiny_net")
def _tiny_net() -> nn.Module:
    torch.manual_seed(0)
    return macs.nets.build("wrn-10-1", classes=3).eval()


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows.astype(np.float16),
        lambda rows: rows.astype(np.float64),
        torch.from_numpy,
        lambda rows: torch.from_numpy(rows).bfloat16(),
        np.asfortranarray,
        lambda rows: rows.tolist(),
    ],
)
def test_arrays_of_any_kind(convert: Any) -> None:
    rows = np.round(4 * TRAIN) / 4  # exact in 16 bits
    new = np.round(4 * NEW) / 4
    plain = macs.FeatureDetector("knn").fit(rows.astype(np.float32)).calibrate(new.astype(np.float32))
    other = macs.FeatureDetector("knn").fit(convert(rows)).calibrate(convert(new))
    assert plain.predict(new.astype(np.float32)).confidence.tolist() == other.predict(convert(new)).confidence.tolist()


def test_columns_of_a_frame_are_matched_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TRAIN, columns=[f"c{i}" for i in range(FEATURES)])
    detector = macs.FeatureDetector("knn").fit(frame).calibrate(pandas.DataFrame(VALIDATION, columns=frame.columns))
    new = pandas.DataFrame(NEW, columns=frame.columns)
    assert detector.predict(new[frame.columns[::-1]]).confidence.tolist() == detector.predict(NEW).confidence.tolist()
    with pytest.raises(MacsError, match="has no column 'c3'; the detector was fitted to c0, c1"):
        detector.predict(new.drop(columns="c3"))
    with pytest.raises(MacsError, match="The column 'c1' of .* does not hold numbers"):
        detector.predict(new.assign(c1="text"))


def test_columns_that_are_called_so_are_logits() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {f"logit_{i}": logits_of(VALIDATION)[:, i] for i in (2, 0, 3, 1)}
    frame = pandas.DataFrame({**columns, "label": TRUE})
    detector = macs.FeatureDetector("maxlogit").calibrate(frame)
    assert detector.accepted == Columns(0, CLASSES)
    assert detector.calibrated.accuracy == (logits_of(VALIDATION).argmax(1) == TRUE).mean()


def test_labels_do_not_matter_to_predict() -> None:
    pandas = pytest.importorskip("pandas")
    detector, logits = macs.FeatureDetector("msp").calibrate(logits=logits_of(VALIDATION)), logits_of(NEW)
    expected = detector.predict(logits=logits).confidence.tolist()
    frame = pandas.DataFrame({**{f"logit_{i}": column for i, column in enumerate(logits.T)}, "label": "unknown"})
    assert detector.predict(frame).confidence.tolist() == expected
    assert detector.predict({"logits": logits, "labels": np.full(60, 99)}).confidence.tolist() == expected


def test_columns_of_logits_may_be_called_as_the_classes() -> None:
    pandas = pytest.importorskip("pandas")
    names = ["eel", "cat", "fox", "dog"]
    frame, new = (pandas.DataFrame(logits_of(rows), columns=names) for rows in (VALIDATION, NEW))
    detector = macs.FeatureDetector("msp").calibrate(logits=frame, labels=np.array(names)[TRUE])
    assert detector.classes == tuple(names)
    assert detector.calibrated.accuracy == (logits_of(VALIDATION).argmax(1) == TRUE).mean()
    expected = detector.predict(logits=logits_of(NEW))
    assert detector.predict(logits=new[sorted(names)]).class_ == expected.class_
    assert detector.predict(logits=new.set_axis([*"abcd"], axis=1)).class_ == expected.class_


def test_nothing_of_a_batch_is_kept_but_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays that outlive the large ones of their batch break up the free memory: 500 MB for a million rows."""
    detector, many = fitted(), np.tile(NEW, (50, 1))
    kept: list[Any] = []
    alive: list[int] = []
    answer = detector.answer

    def watched(*arrays: Any) -> Any:
        alive.append(sum(old() is not None for old in kept))
        answered = answer(*arrays)
        kept.append(weakref.ref(answered.confidence))
        return answered

    monkeypatch.setattr(detector, "answer", watched)
    detector.predict(many)
    assert len(alive) == 3 and max(alive) <= 1


def test_a_row_that_is_not_finite_gets_a_reason_and_the_others_a_verdict() -> None:
    detector = fitted()
    broken = NEW.copy()
    broken[3, 1], broken[7], broken[9, 0] = np.nan, 1e39, -np.inf
    verdicts, whole = detector.predict(broken), detector.predict(NEW)
    others = np.setdiff1d(np.arange(60), [3, 7, 9])
    assert [*verdicts.reasons] == [3, 7, 9] and "NaN, infinite or beyond 32 bits" in verdicts.reason[3]
    assert verdicts.confidence[others].tolist() == pytest.approx(whole.confidence[others].tolist(), abs=1e-6)
    assert verdicts.is_ood[[3, 7, 9]].all() and np.isnan(verdicts.p_value[[3, 7, 9]]).all()
    rows = [*verdicts.rows(map(str, range(60)))]
    assert rows[3].is_ood is None and rows[3].reason and not rows[4].reason
    by_p_values = detector.predict(broken, fdr=0.3)
    assert by_p_values.is_ood[others].tolist() == detector.predict(NEW[others], fdr=0.3).is_ood.tolist()
    assert by_p_values.is_ood[[3, 7, 9]].all()


def test_rows_that_are_not_finite_are_left_out_of_a_calibration() -> None:
    broken = np.vstack([VALIDATION, np.full((2, FEATURES), np.nan)])
    with pytest.warns(MacsWarning, match="2 of the 202 rows of calibration data are left out to calibrate"):
        detector = macs.FeatureDetector("knn").fit(TRAIN).calibrate(broken)
    assert detector.thresholds() == fitted().thresholds() and detector.calibrated.images == 200


def test_thresholds_per_class_and_a_reason() -> None:
    logits = np.random.default_rng(8).normal(size=(260, CLASSES))
    logits[200:, 0] = np.nan
    detector = macs.FeatureDetector("energy").calibrate(logits=logits[:200], keep=0.5, per_class=True)
    verdicts = detector.predict(logits=logits)
    assert verdicts.threshold[:200].tolist() == detector.thresholds()[logits[:200].argmax(1)].tolist()
    assert np.isnan(verdicts.threshold[200:]).all()
    with pytest.raises(MacsError, match="One threshold per class needs predicted classes"):
        macs.FeatureDetector("knn").fit(TRAIN).calibrate(VALIDATION, per_class=True)


def test_probabilities_are_softmaxed_logits() -> None:
    def softmax(rows: np.ndarray) -> np.ndarray:
        powers = np.exp(logits_of(rows))
        return powers / powers.sum(1, keepdims=True)

    of_logits = macs.FeatureDetector("msp").calibrate(logits=logits_of(VALIDATION))
    detector = macs.FeatureDetector("msp").calibrate(probabilities=softmax(VALIDATION))
    ours, theirs = detector.predict(probabilities=softmax(NEW)), of_logits.predict(logits=logits_of(NEW))
    assert ours.confidence == pytest.approx(theirs.confidence, abs=1e-5)
    assert "must sum to one" in detector.predict(probabilities=[[0.5] * 4]).reason[0]
    with pytest.raises(
        MacsError, match="are probabilities, since every row sums to one; give the logits, or calibrate on"
    ):
        macs.FeatureDetector("msp").calibrate(logits=softmax(VALIDATION))
    with pytest.raises(MacsError, match="gives all rows the same confidence, 0, as energy does to probabilities"):
        macs.FeatureDetector("energy").calibrate(probabilities=softmax(VALIDATION))
    with pytest.raises(MacsError, match="take msp or gen"):
        macs.FeatureDetector("energy").calibrate(logits=np.log(softmax(VALIDATION)))
    with pytest.raises(MacsError, match="has logits, but the detector was fitted to probabilities"):
        detector.predict(logits=logits_of(NEW))


def test_labels_may_be_names() -> None:
    names = np.array(["cat", "dog", "eel", "fox"])
    detector = macs.FeatureDetector("msp").calibrate(logits=logits_of(VALIDATION), labels=names[TRUE])
    assert detector.classes == tuple(names) and detector.predict(logits=logits_of(NEW)).class_[0] in names
    assert detector.calibrated.accuracy == (logits_of(VALIDATION).argmax(1) == TRUE).mean()
    reordered = macs.FeatureDetector("msp", classes=("fox", "cat", "dog", "eel"))
    order = [3, 0, 1, 2]
    reordered.calibrate(logits=logits_of(VALIDATION)[:, order], labels=names[TRUE])
    assert reordered.calibrated.accuracy == detector.calibrated.accuracy


def test_saved_and_loaded_it_gives_the_same_verdicts(tmp_path: Path) -> None:
    for score, head in (("knn", None), ("energy+vim", HEAD), ("mahalanobis", None)):
        detector = fitted(score, head=head)
        detector.save(tmp_path / "d.safetensors")
        loaded = macs.FeatureDetector.load(tmp_path / "d.safetensors")
        assert repr(loaded) == repr(detector) and loaded.calibrated == detector.calibrated
        ours, theirs = detector.predict(NEW), loaded.predict(NEW)
        assert ours.confidence.tolist() == theirs.confidence.tolist()
        assert ours.p_value.tolist() == theirs.p_value.tolist() and ours.index.tolist() == theirs.index.tolist()
    with pytest.raises(MacsError, match=r"judges rows of features \(N x 13\), not images"):
        macs.Detector.load(tmp_path / "d.safetensors")


def test_a_calibration_leaves_the_head_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made the head anew on the CPU. No other device is here, so this notes what is moved where."""
    detector, moved = macs.FeatureDetector("energy", HEAD).to("cpu:0"), list[torch.device]()
    to = macs.FeatureDetector.to

    def noted(made: macs.FeatureDetector, device: torch.device) -> macs.FeatureDetector:
        moved.append(device)
        return to(made, device)

    monkeypatch.setattr(macs.FeatureDetector, "to", noted)
    detector.calibrate(VALIDATION)
    assert moved == [torch.device("cpu:0")]


def test_a_pending_sum_is_completed_by_the_calibration() -> None:
    detector = macs.FeatureDetector("energy+knn", head=HEAD).fit(TRAIN)
    assert "unfitted" in repr(detector)
    detector.calibrate(VALIDATION)
    assert (detector.held_out, detector.calibrated.images) == (50, 150)


@pytest.mark.parametrize(
    "step",
    [
        lambda detector: detector.fit(NEW[0]),
        lambda detector: detector.calibrate(VALIDATION[:3]),
        lambda detector: detector.calibrate(VALIDATION, outliers={"other": NEW[:, :2]}),
    ],
)
def test_a_failed_step_changes_nothing(step: Any) -> None:
    detector = fitted()
    before = detector.predict(NEW).p_value.tolist()
    with pytest.raises(MacsError):
        step(detector)
    assert detector.predict(NEW).p_value.tolist() == before


def test_passing_and_checks_are_counted() -> None:
    detector = macs.FeatureDetector("knn").fit(TRAIN).calibrate(VALIDATION, outliers={"new": NEW}, check=TRAIN[:50])
    record = detector.calibrated
    assert record.passing == {"new": 1 - detector.predict(NEW).is_ood.mean()}
    assert record.checks[0].kept == 1 - detector.predict(TRAIN[:50]).is_ood.mean()
    assert "Of 50 other ID rows it keeps" in str(record) and "images" not in str(record)


def test_drift_is_tested_with_its_p_values() -> None:
    detector = fitted()
    test = DriftTest(detector.calibrated.ranked, false_alarm_rate=1e-4)
    for _ in range(10):
        test.update(detector.predict(NEW[1::3] * np.linspace(-1, 1, FEATURES)).p_value)
    assert test.alarm


def test_it_is_evaluated_as_a_network_is() -> None:
    detector = fitted("energy", head=HEAD)
    result = detector.evaluate({"features": VALIDATION, "labels": TRUE}, {"new": NEW})
    known, unknown = (detector.predict(rows).confidence for rows in (VALIDATION, NEW))
    assert result.sets[0].full.auroc == ood_metrics(known, unknown).auroc
    assert result.accuracy == detector.calibrated.accuracy


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fitted().predict(NEW[:, :4]), "has 4 features per row, but the detector was fitted to 13"),
        (lambda: fitted().predict(logits=NEW), "but the data has no features"),
        (lambda: fitted().predict(), "the data has no arrays; give features="),
        (lambda: fitted().predict(NEW[:0]), "there is no row"),
        (lambda: fitted().predict([]), "The features of the data have no rows; give one at least"),
        (lambda: fitted().predict(NEW[0]), "must have two dimensions.*give one row as an array of 1 x D"),
        (lambda: fitted().predict(NEW[None]), "flatten or pool"),
        (lambda: fitted().predict([[1, 2], [3]]), "its rows differ in length or in kind"),
        (lambda: fitted().predict(np.array([[object()]])), "holds Python objects"),
        (lambda: fitted().predict(NEW.astype(complex)), "not of complex128"),
        (lambda: fitted().predict(torch.eye(FEATURES).to_sparse()), r"are sparse; give \.to_dense\(\) of them"),
        (
            lambda: macs.FeatureDetector("relative-mahalanobis").fit(TRAIN, labels=np.zeros(len(TRAIN), int)),
            "give labels of two or more",
        ),
        (lambda: fitted().predict(NEW.astype(str)), "must be an array of numbers, not of <U"),
        (lambda: fitted().predict({"rows": NEW}), "has rows; it needs arrays called features, logits, probab"),
        (lambda: fitted().predict(NEW, threshold=math.nan), "The threshold must be a number"),
        (lambda: macs.FeatureDetector("knn").predict(NEW), "has no threshold yet"),
        (
            lambda: macs.FeatureDetector("knn").calibrate(NEW),
            r"has to be fitted to ID training rows .*\.fit\(features\)",
        ),
        (
            lambda: macs.FeatureDetector("knn").fit(TRAIN).calibrate(TRAIN),
            "training data holds the rows to calibrate on",
        ),
        (lambda: macs.FeatureDetector("mahalanobis").fit(TRAIN), "is fitted class by class; give labels="),
        (lambda: macs.FeatureDetector("energy").calibrate(TRAIN), "judges logits; give logits, or a head"),
        (lambda: macs.FeatureDetector("vim").fit(TRAIN, logits=logits_of(TRAIN)), r"give them as head=\(W, b\)"),
        (lambda: macs.FeatureDetector("odin"), "needs the gradient of the network"),
        (lambda: macs.FeatureDetector("caref").fit(TRAIN, logits=NEW), "rows of features and 60 of logits"),
        (lambda: fitted().predict("new.npz"), "not a text or a path; predict_files judges files"),
        (lambda: fitted().calibrate(VALIDATION[:50], outliers=UNNAMED), "outliers must be a dict of rows by name, not"),
        (
            lambda: fitted().evaluate({"features": NEW}, UNNAMED),
            "OOD sets must be a dict of rows by name, not a ndarray",
        ),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW[:, :1]), "one column, so there is one class only"),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW[:5]), "takes at least 19 calibration rows"),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW, labels=np.full(60, 13)), "has the label 13"),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW, labels=[0]), r"60 rows, but its labels .* \(1,\)"),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW, labels=[0.5] * 60), "whole numbers or names"),
        (
            lambda: macs.FeatureDetector("msp").calibrate(logits=NEW, labels=["a", "b"] * 30),
            "name 2 classes .* 13 logits",
        ),
        (lambda: macs.FeatureDetector("msp").calibrate(logits=NEW * np.nan), "No row of calibration data can be used"),
        (
            lambda: macs.FeatureDetector("knn", head=(WEIGHT, BIAS + 9)).fit(TRAIN, logits=logits_of(TRAIN)),
            "does not compute",
        ),
        (lambda: macs.FeatureDetector("knn", head=WEIGHT), r"a pair \(W, b\)"),
        (lambda: macs.FeatureDetector("knn", head=(WEIGHT.T, BIAS)), r"not \(13, 4\) and \(4,\)"),
        (
            lambda: macs.FeatureDetector("knn", head=HEAD).fit(TRAIN[:0], logits=logits_of(TRAIN)[:0]),
            "training data has no rows to fit",
        ),
        (
            lambda: macs.FeatureDetector("knn", head=HEAD).fit(TRAIN[:, :3]),
            "has 3 features per row, but the head takes 13",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Any, words: str) -> None:
    with pytest.raises(MacsError, match=words):
        call()


def test_a_classifier_that_is_sure_of_every_row_is_calibrated() -> None:
    sure = np.tile([1.0, 0, 0], (60, 1))
    detector = macs.FeatureDetector("msp").calibrate(probabilities=sure)
    assert detector.predict(probabilities=[[1, 0, 0], [0.6, 0.4, 0]]).is_ood.tolist() == [False, True]


def test_auto_is_for_images() -> None:
    with pytest.raises(MacsError, match="auto chooses among scores by looking at images"):
        macs.FeatureDetector("auto")


def test_rows_are_split_as_images_are() -> None:
    images = stripes(50, 1)
    of_images, _ = images.split(20, 3)
    of_rows, _ = Rows.of(images.pixels[:].reshape(50, -1)).split(20, 3)
    assert of_images.pixels[:].reshape(20, -1).tolist() == of_rows.features.tolist()


def test_masked_numbers_are_missing() -> None:
    masked = np.ma.masked_array(NEW, np.arange(NEW.size).reshape(NEW.shape) == 5 * FEATURES)
    assert [*fitted().predict(masked).reasons] == [5]
