"""The geometry of the plots, computed another way."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid

from macs.data import ImageSet
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.evaluation import measure
from macs.report import charts
from macs.report.charts import BINS, SMOOTHING, Axis, path
from macs.report.findings import Judged, TrainingRecord
from macs.report.thresholds import choose
from macs.training.recipe import Recipe
from macs.training.runs import Epoch
from macs.training.spec import Start, TrainingSpec

RANDOM = np.random.default_rng(1)
SPEC = TrainingSpec(
    train=DataSpec("cifar10", "train"),
    outliers=DataSpec("300k", "train", labelled=False),
    net="wrn-40-2",
    classes=(),
    preparation=Preparation(),
    start=Start("random"),
    method="macs",
    recipe=Recipe(),
)


def judged(title: str, confidences: Sequence[float] | np.ndarray) -> Judged:
    count = len(confidences)
    images = ImageSet.from_array(np.zeros((count, 4, 4, 3), np.uint8), name=title)
    return Judged(np.zeros(count, np.int64), np.asarray(confidences, np.float32), title=title, images=images)


def points(drawn: str) -> np.ndarray:
    """The points of a path in the unit square, y upwards."""
    numbers = np.array([float(number) for number in re.findall(r"-?\d+", drawn)]).reshape(-1, 2) / 1000
    return np.stack([numbers[:, 0], 1 - numbers[:, 1]], axis=1)


def test_a_path_goes_through_its_points_once() -> None:
    assert path([0, 0.5, 0.5, 1], [0, 1, 1, 0.25]) == "M0 1000L500 0L1000 750"
    assert path([0.5], [0.5]) == "M500 500L500 500"


def test_the_area_under_the_roc_is_the_auroc() -> None:
    known, *unknown = (RANDOM.beta(*shape).astype(np.float32) for shape in ((5, 1, 500), (2, 2, 300), (1, 4, 900)))
    evaluation = measure("known", np.ones(500, bool), known, {"a": unknown[0], "b": unknown[1]})
    drawn = charts.roc(choose([known, *unknown]), ["s0", "s1"], evaluation)
    for curve, result in zip(drawn.curves, evaluation.sets, strict=True):
        x, y = points(curve.path).T
        assert x[0] == y[0] == 0 and x[-1] == y[-1] == 1
        assert trapezoid(y, x) == pytest.approx(result.full.auroc, abs=0.004)
        assert f"{100 * result.full.auroc:.2f}%" in drawn.alt


@pytest.mark.parametrize("places", [RANDOM.beta(5, 1, 200), np.zeros(10), np.ones(3), RANDOM.random(5)])
def test_a_density_is_the_sum_of_reflected_kernels_and_has_area_one(places: np.ndarray) -> None:
    middles = (np.arange(BINS) + 0.5) / BINS
    centres = (np.minimum(np.floor(places * BINS), BINS - 1) + 0.5) / BINS
    mirrored = np.concatenate([centres, -centres, 2 - centres])
    kernels = np.exp(-0.5 * ((middles[:, None] - mirrored) / SMOOTHING) ** 2) / (SMOOTHING * np.sqrt(2 * np.pi))
    density = charts.smoothed(places)
    assert density.mean() == pytest.approx(1)
    np.testing.assert_allclose(density, kernels.sum(axis=1) / len(places), atol=0.01)


def test_densities_share_one_scale_and_fill_the_plot() -> None:
    drawn = charts.density(Axis(0, 1), judged("k", RANDOM.beta(9, 1, 300)), judged("u", RANDOM.random(100)), "s3")
    assert max(points(curve.path)[:, 1].max() for curve in drawn.curves) == 1
    heights = [points(curve.path) for curve in drawn.curves]
    areas = [trapezoid(y**2, x) for x, y in (height.T for height in heights)]  # heights are square roots
    assert areas[0] == pytest.approx(areas[1], rel=0.03)


@pytest.mark.parametrize(("low", "high"), [(0.13, 0.9998), (0, 1), (-812.4, -3.0), (2e-7, 3e-7), (5, 5), (1e6, 3e6)])
def test_ticks_are_round_ordered_and_inside(low: float, high: float) -> None:
    axis = Axis.around(low, high)
    assert axis.low <= low + 1e-12 and axis.high >= high - 1e-12 and axis.high > axis.low
    ticks = axis.ticks()
    values = [float(tick.label.replace(",", "")) for tick in ticks]
    assert 2 <= len(ticks) <= 7 and values == sorted(set(values))
    np.testing.assert_allclose(100 * axis.at(values), [tick.at for tick in ticks], atol=0.02)


def test_far_away_confidences_do_not_squeeze_the_known_ones_into_a_line() -> None:
    axis = charts.confidence_axis(judged("k", RANDOM.normal(-40, 3, 200)), [judged("u", [-1e6, -50.0])])
    assert -120 < axis.low < -50
    assert axis.at(-1e6) == 0


def test_a_box_holds_the_quantiles() -> None:
    box = charts.box(Axis(0, 100), "a", "s0", np.arange(101.0))
    assert box.numbers == box.at == [5, 25, 50, 75, 95]


def test_the_slider_axis_labels_stand_where_their_thresholds_are() -> None:
    chosen = choose([RANDOM.beta(5, 1, 400), RANDOM.beta(1, 3, 200)])
    drawn = charts.survival(chosen, ["k", "u"], ["known", "s0"])
    for tick in drawn.x_ticks:
        index = round(tick.at / 100 * (len(chosen.values) - 1))
        assert float(tick.label) == pytest.approx(chosen.values[index], rel=1e-5)
    assert points(drawn.curves[0].path)[0].tolist() == [0, 1]


def epochs(count: int, outliers: bool) -> list[Epoch]:
    return [
        Epoch(
            epoch=n + 1,
            loss=2.0 / (n + 1),
            accuracy=0.9 + n / 1000,
            confidence_in=0.8,
            confidence_out=0.3 if outliers else 0.0,
            mcd=0.1 * n,
            lr=0.1,
            seconds=1.0,
            images_per_second=100.0,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 10, 100])
def test_training_curves_of_any_length(count: int) -> None:
    with_outliers = dict(charts.training_curves(TrainingRecord(SPEC, 0.5, 0.5, epochs(count, True))))
    plain = dict(charts.training_curves(TrainingRecord(SPEC, None, None, epochs(count, False))))
    assert list(with_outliers) == ["Loss", "Accuracy", "Confidence", "Confidence gap"]
    assert list(plain) == ["Loss", "Accuracy", "Confidence"]
    assert [curve.name for curve in with_outliers["Confidence"].curves] == ["known", "outliers"]
    assert [curve.name for curve in plain["Confidence"].curves] == ["known"]
    assert f"{2 / count:.3g}" in plain["Loss"].alt and len(plain["Loss"].x_ticks) <= 7
    assert charts.training_curves(TrainingRecord(SPEC, None, None, [])) == []


def test_the_margin_is_drawn_where_the_gap_has_to_reach() -> None:
    gap = dict(charts.training_curves(TrainingRecord(SPEC, 0.2, 0.2, epochs(5, True))))["Confidence gap"]
    line = next(curve for curve in gap.curves if curve.name == "margin 0.2")
    (at,) = {float(y) for y in points(line.path)[:, 1]}
    tick = next(tick for tick in gap.y_ticks if tick.label == "0.2")
    assert 100 * at == pytest.approx(tick.at, abs=0.1)


def test_validation_and_the_epoch_that_is_kept_are_drawn_where_there_are_any() -> None:
    plain = epochs(5, True)
    accurate = [replace(epoch, validation_accuracy=0.5 + epoch.epoch / 10) for epoch in plain]
    whole = [replace(epoch, validation_auroc=1 - epoch.epoch / 10, kept=epoch.epoch == 2) for epoch in accurate]
    drawn = {
        name: dict(charts.training_curves(TrainingRecord(SPEC, None, None, each)))
        for name, each in {"plain": plain, "accurate": accurate, "whole": whole}.items()
    }
    assert [curve.name for curve in drawn["plain"]["Accuracy"].curves] == ["training"]
    assert [curve.name for curve in drawn["accurate"]["Accuracy"].curves] == ["training", "validation"]
    assert "validation goes from 0.6 to 1" in drawn["accurate"]["Accuracy"].alt
    assert "Validation" not in drawn["accurate"]
    auroc, kept = drawn["whole"]["Validation"].curves
    places = points(auroc.path)
    assert (np.diff(places[:, 0]) > 0).all() and (np.diff(places[:, 1]) < 0).all()
    assert kept.name == "epoch 2, which is kept" and drawn["whole"]["Validation"].alt.endswith(" Epoch 2 is kept.")
    np.testing.assert_allclose(points(kept.path), [[0.25, 0], [0.25, 1]])
    last = [replace(epoch, kept=epoch.epoch == 5) for epoch in plain]
    assert all(len(chart.curves) <= 2 for _, chart in charts.training_curves(TrainingRecord(SPEC, None, None, last)))
    loss = dict(charts.training_curves(TrainingRecord(SPEC, None, None, last)))["Loss"]
    assert [curve.name for curve in loss.curves] == ["loss"]
