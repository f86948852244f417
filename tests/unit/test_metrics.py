"""The metrics against scikit-learn, brute force over thresholds in exact fractions, and numbers worked out by hand."""

import copy
import math
import pickle
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from macs import metrics
from macs.core.errors import MacsError
from macs.metrics import OODMetrics, Ranked, _ranked, available, get, mean_and_error, metric, ood_metrics, shown
from repository import ROOT

NAMES = ["auroc", "aupr", "fpr95", "aupr_id", "fpr95_id", "aupr_trapezoid", "aupr_trapezoid_id"]


def values(result: OODMetrics) -> list[float]:
    return [getattr(result, name) for name in NAMES]


def by_scikit_learn(conf_in: np.ndarray, conf_out: np.ndarray) -> list[float]:
    """Each by its own call: OOD is positive when the score is the negative confidence."""
    scores = np.concatenate([conf_in, conf_out]).astype(np.float64)
    is_out = np.repeat([0, 1], [len(conf_in), len(conf_out)])
    fpr, trapezoids = [], []
    for labels, score in ((is_out, -scores), (1 - is_out, scores)):
        false, true, _ = roc_curve(labels, score, drop_intermediate=False)
        fpr.append(false[np.argmax(true >= 0.95)])
        precision, recall, _ = precision_recall_curve(labels, score)
        trapezoids.append(auc(recall, precision))
    return [
        roc_auc_score(is_out, -scores),
        average_precision_score(is_out, -scores),
        fpr[0],
        average_precision_score(1 - is_out, scores),
        fpr[1],
        *trapezoids,
    ]


def fpr95_nearest(positive: list[float], negative: list[float]) -> float:
    """The rule 'nearest' read off the list of all thresholds, with fractions; a lower value is flagged."""
    points = []
    for threshold in sorted({*positive, *negative}):
        recall = Fraction(sum(p <= threshold for p in positive), len(positive))
        points.append((recall, sum(n <= threshold for n in negative)))
    nearest = min(abs(recall - Fraction(95, 100)) for recall, _ in points)
    recall = max(recall for recall, _ in points if abs(recall - Fraction(95, 100)) == nearest)
    false_positives = [false for r, false in points if r == recall]
    return (min if recall == 1 else max)(false_positives) / len(negative)


def cases(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sets of 1 to 80 images a side, with confidences from very few values (heavy ties) to all different."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n_in, n_out = rng.integers(1, 80, 2)
        distinct = int(rng.choice([1, 2, 3, 10, 1000]))
        dtype = rng.choice(["float32", "float64", "float16"])
        shift = rng.integers(0, distinct + 1) // 2
        yield (
            (rng.integers(0, distinct, n_in) + shift).astype(dtype) / 8,
            rng.integers(0, distinct, n_out).astype(dtype) / 8,
        )


def test_random_cases_equal_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for i, (conf_in, conf_out) in enumerate(cases(250)):
        monkeypatch.setattr(_ranked, "_BLOCK", (1, 7, 1 << 14)[i % 3])
        assert values(ood_metrics(conf_in, conf_out)) == pytest.approx(by_scikit_learn(conf_in, conf_out), abs=1e-12)


def test_the_nearest_rule_equals_the_search_over_all_thresholds() -> None:
    for conf_in, conf_out in cases(300):
        found = ood_metrics(conf_in, conf_out, fpr_rule="nearest")
        a, b = conf_in.tolist(), conf_out.tolist()
        assert found.fpr95 == fpr95_nearest(b, a)
        assert found.fpr95_id == fpr95_nearest([-v for v in a], [-v for v in b])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_images_equal_scikit_learn(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    conf_in, conf_out = rng.beta(5, 1, 70_000).astype(dtype), rng.beta(2, 2, 50_000).astype(dtype)
    conf_in[:20_000] = 1  # as a saturated softmax gives
    assert values(ood_metrics(conf_in, conf_out)) == pytest.approx(by_scikit_learn(conf_in, conf_out), abs=1e-12)


def test_worked_out_by_hand() -> None:
    # Ascending, OOD in brackets: (1) 2 (3) (3) 3 4. Pairs in order: 3 + 2 + 2 of 9, and 2 ties at one half.
    result = ood_metrics([3, 4, 2], [1, 3, 3])
    assert result.auroc == pytest.approx((3 + 1 + 1 + 2 / 2) / 9, abs=1e-15)
    # Flagging up to 1: precision 1, one OOD image of three; up to 3: three OOD images of five.
    assert result.aupr == pytest.approx(1 / 3 * 1 + 2 / 3 * 3 / 5, abs=1e-15)
    assert result.fpr95 == pytest.approx(2 / 3, abs=1e-15)
    # Accepting from 4: precision 1; from 3: two of four; from 2: three of five. The last is the first to keep 95%.
    assert result.aupr_id == pytest.approx((1 + 2 / 4 + 3 / 5) / 3, abs=1e-15)
    assert result.fpr95_id == pytest.approx(2 / 3, abs=1e-15)
    # Between the points: precision 1 before the first OOD image, and 1/2 with 2 flagged as well, before both 3s.
    assert result.aupr_trapezoid == pytest.approx(1 / 3 * (1 + 1) / 2 + 2 / 3 * (1 / 2 + 3 / 5) / 2, abs=1e-15)


def test_the_two_rules_differ_where_recall_jumps_over_95_percent() -> None:
    # 21 OOD images at 0..20: recall 20/21 = 0.952, at the thresholds 19 and 19.5, is the nearest and the first above.
    # 'first' stops at 19; 'nearest', like the released code, at 19.5, with two ID images of four flagged.
    conf_out, conf_in = np.arange(21), np.array([19.5, 19.5, 20, 30])
    assert ood_metrics(conf_in, conf_out).fpr95 == 0
    assert ood_metrics(conf_in, conf_out, fpr_rule="nearest").fpr95 == 0.5
    # 30 OOD images, the last 3 tied: recall jumps from 0.9 to 1. Both are 0.05 away, so the higher counts.
    conf_out = np.minimum(np.arange(30), 27)
    assert ood_metrics([26.5, 27, 28], conf_out, fpr_rule="nearest").fpr95 == 2 / 3
    # The last 4 tied: from 26/30 to 1. Now 1 is nearer; with 2 tied, 28/30 is nearer than 1 and is taken.
    assert ood_metrics([25.5, 27, 28], np.minimum(np.arange(30), 26), fpr_rule="nearest").fpr95 == 1 / 3
    assert ood_metrics([27.5, 28, 29], np.minimum(np.arange(30), 28), fpr_rule="nearest").fpr95 == 1 / 3
    assert ood_metrics([27.5, 28, 29], np.minimum(np.arange(30), 28)).fpr95 == 2 / 3


@pytest.mark.parametrize("n", [20, 40, 100, 2000, 26_020])
def test_exactly_95_percent_is_enough(n: int) -> None:
    # The threshold lies on OOD image number 0.95 n; the ID images sit one by one above the OOD images.
    conf_out = np.arange(n)
    assert ood_metrics(conf_out + 0.5, conf_out).fpr95 == pytest.approx((0.95 * n - 1) / n, abs=1e-15)


def test_turning_the_sign_and_swapping_the_sides_swaps_the_conventions() -> None:
    for conf_in, conf_out in cases(50):
        one, other = ood_metrics(conf_in, conf_out), ood_metrics(-conf_out, -conf_in)
        assert (one.aupr, one.fpr95, one.auroc) == (other.aupr_id, other.fpr95_id, other.auroc)
        assert one.aupr_trapezoid == other.aupr_trapezoid_id


def test_only_the_order_of_confidences_matters() -> None:
    for conf_in, conf_out in cases(50):
        double_in, double_out = conf_in.astype(np.float64), conf_out.astype(np.float64)
        assert ood_metrics(double_in, double_out) == ood_metrics(np.exp(double_in / 16), np.exp(double_out / 16))


def test_the_extremes() -> None:
    assert values(ood_metrics([2, 3], [0, 1, 1])) == [1, 1, 0, 1, 0, 1, 1]
    # One threshold: a straight line from precision 1 to the share of positives.
    assert values(ood_metrics([5] * 3, [5])) == [0.5, 0.25, 1, 0.75, 1, 1.25 / 2, 1.75 / 2]
    assert values(ood_metrics([0], [1])) == [0, 0.5, 1, 0.5, 1, 0.25, 0.25]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_tensors_of_any_type_are_read(dtype: torch.dtype) -> None:
    a, b = torch.tensor([3, 4, 2], dtype=dtype), torch.tensor([1, 3, 3], dtype=dtype)
    if dtype.is_floating_point:
        a.requires_grad_()
    assert ood_metrics(a, b) == ood_metrics([3, 4, 2], [1, 3, 3])


def test_a_float64_tensor_keeps_the_digits_that_float32_would_drop() -> None:
    higher, lower = (torch.tensor([value], dtype=torch.float64) for value in (0.5 + 1e-12, 0.5))
    assert ood_metrics(higher, lower).auroc == 1 and ood_metrics(lower, higher).auroc == 0


def test_sides_of_different_precision_are_compared_exactly() -> None:
    # float32(0.1) is larger than 0.1: not a tie.
    assert ood_metrics(np.array([0.1], np.float32), np.array([0.1])).auroc == 1


def test_the_arguments_are_left_as_they_were() -> None:
    conf_in, conf_out = np.array([3.0, 1.0, 2.0]), np.array([2.0, 0.0])
    ood_metrics(conf_in, conf_out)
    assert conf_in.tolist() == [3, 1, 2]
    assert conf_out.tolist() == [2, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_confidences_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(MacsError, match="Some OOD confidences are infinite or not numbers"):
        ood_metrics([0.5, 0.6], [0.1, bad, 0.3])
    with pytest.raises(MacsError, match="Some ID confidences"):
        ood_metrics([bad, 0.6], [0.1])


def test_mistakes_are_named() -> None:
    with pytest.raises(MacsError, match=r"The OOD confidences have the shape \(0,\)"):
        ood_metrics([0.5], [])
    with pytest.raises(MacsError, match=r"The ID confidences have the shape \(4, 10\)"):
        ood_metrics(np.zeros((4, 10)), [0.5])
    with pytest.raises(MacsError, match="no FPR95 rule called 'last'"):
        ood_metrics([0.5], [0.5], fpr_rule=cast(Any, "last"))
    with pytest.raises(MacsError, match="no values"):
        mean_and_error([])


@pytest.mark.parametrize(
    "labels", [[0, 1, 0, 1], [True, False, True, False], np.array([1.0, 1.0, 0.0, 1.0]), torch.tensor([-1, 1, 1, -1])]
)
def test_scores_with_labels_are_refused_in_either_order(labels: Any) -> None:
    confidences = [0.1, 0.9, 0.4, 0.8]
    with pytest.raises(MacsError, match="first argument holds labels.*ood_metrics\\(confidences\\[is_id\\]"):
        ood_metrics(labels, confidences)
    with pytest.raises(MacsError, match="second argument holds labels"):
        ood_metrics(confidences, labels)


def test_confidences_that_resemble_labels_are_not_refused() -> None:
    assert ood_metrics([1, 1, 1], [0.1, 0.5, 0.9]).auroc == 1  # a saturated softmax
    assert ood_metrics([1, 1, 0], [0, 0, 1]).auroc == pytest.approx((4 + 2 / 2 + 2 / 2) / 9)  # a detector that votes
    assert ood_metrics([0, 1], [0.5, 0.4, 0.3]).auroc == 0.5


def test_mean_and_standard_error_by_hand() -> None:
    # Deviations -3, -1, 1, 3: variance 20 / 3, error sqrt(20 / 3 / 4).
    assert mean_and_error([1, 3, 5, 7]) == pytest.approx((4, math.sqrt(5 / 3)), rel=1e-15)
    assert mean_and_error([1, 3]) == pytest.approx((2, 1))
    with warnings.catch_warnings(action="error"):  # numpy's, which a single value would cause
        mean, error = mean_and_error([0.25])
    assert mean == 0.25
    assert math.isnan(error)


def test_results_are_attributes_and_items_that_do_not_change() -> None:
    found = ood_metrics([3, 4, 2], [1, 3, 3])
    assert dict(found) == {name: getattr(found, name) for name in NAMES}
    assert found == OODMetrics(**found) == pickle.loads(pickle.dumps(found)) == copy.deepcopy(found)
    assert hash(found) == hash(OODMetrics(**found)) and found != ood_metrics([3, 4], [1, 3])
    assert eval(repr(found)) == found
    with pytest.raises(AttributeError):
        found.auroc = 1.0
    with pytest.raises(AttributeError):
        cast(Any, found).aurco  # noqa: B018


def test_every_record_says_what_it_is() -> None:
    assert [each.name for each in available()[:7]] == NAMES
    assert [each.heading for each in shown()] == ["AUROC ↑", "AUPR ↑", "FPR95 ↓", "AUPR-ID ↑", "FPR95-ID ↓"]
    for each in available()[:7]:
        better, worse = ood_metrics([4, 3], [1, 2]), ood_metrics([1, 2], [4, 3])
        assert (better[each.name] > worse[each.name]) == (each.better == "higher")
        positive = "whichever class" if each.name == "auroc" else f"{'ID' if '_id' in each.name else 'OOD'} as positive"
        assert positive in each.convention


def test_the_documentation_quotes_every_convention() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for each in available()[:7]:
        title = each.label if each.shown else f"{each.label}, if asked for"
        assert f"| `{each.name}` | {title} | {each.convention} |" in text


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Metrics that a test adds are forgotten after it."""
    before = dict(metrics._registry.entries())
    yield
    metrics._registry._entries = before


@pytest.mark.usefixtures("forgetful")
def test_a_metric_from_outside_is_computed_with_ours() -> None:
    @metric("balanced_error", title="Error", better="lower", convention="the smallest mean of both error rates")
    def balanced_error(ranked: Ranked) -> float:
        return min((np.mean(ranked.positive > t) + np.mean(ranked.negative <= t)) / 2 for t in ranked.positive)

    @metric("fpr99", title="FPR99", better="lower", convention="share of ID images flagged when 99% of OOD are caught")
    def fpr99(ranked: Ranked) -> float:
        return ranked.fpr(99)

    found = ood_metrics([3, 4, 2], [1, 3, 3])
    assert found["balanced_error"] == pytest.approx((0 + 2 / 3) / 2)  # flag up to 3; up to 1 is (2/3 + 0) / 2 as well
    assert type(found["balanced_error"]) is float
    assert shown(["fpr99", "auroc"]) == [fpr99, get("auroc")] and fpr99 not in shown()
    conf_out, conf_in = np.arange(200), np.arange(200) + 0.5
    assert (ood_metrics(conf_in, conf_out)["fpr99"], ood_metrics(conf_in, conf_out).fpr95) == (197 / 200, 189 / 200)
    again = metric("fpr99", title="FPR99", better="lower", convention="as before")(fpr99.compute)
    assert get("fpr99") is again  # a notebook's cell that is run once more


@pytest.mark.usefixtures("forgetful")
def test_mistakes_in_a_metric_get_one_sentence() -> None:
    def wrong(ranked: Ranked) -> float:
        raise ValueError("no such thing")

    with pytest.raises(MacsError, match="metric name 'auroc' is taken by macs.metrics.standard:auroc"):
        metric("auroc", title="AUROC", better="higher", convention="")(wrong)
    for name in ("items", "fpr 99", ""):
        with pytest.raises(MacsError, match="A metric cannot be called"):
            metric(name, title="x", better="higher", convention="")
    with pytest.raises(MacsError, match="no metric called 'aurocc' .did you mean 'auroc'"):
        get("aurocc")
    with pytest.raises(MacsError, match="math:pi is not a metric"):
        get("math:pi")
    metric("wrong", title="Wrong", better="higher", convention="")(wrong)
    with pytest.raises(MacsError, match="The metric wrong failed: ValueError: no such thing"):
        ood_metrics([0.5], [0.5])


def test_shared_results_are_computed_once() -> None:
    ranked = Ranked.of([3, 4, 2], [1, 3, 3])
    assert ranked.areas is ranked.areas and ranked.swapped.areas is ranked.swapped.areas
    assert ranked.positive.tolist() == [1, 3, 3] and ranked.negative.tolist() == [2, 3, 4]
    assert ranked.swapped.positive.tolist() == [-4, -3, -2]
