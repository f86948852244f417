"""The choice of the margin: a fair race from one start, decided on held-out images, with nothing hidden."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command import refused
from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.evaluation import Evaluation, measure
from macs.experiments.cells import Result
from macs.experiments.margins import (
    MARGINS,
    Point,
    best_margin,
    chosen_margin,
    held_out,
    plateaus,
    sweep,
)
from macs.research import paper_numbers as numbers
from macs.training.recipe import Recipe
from tiny import noise, stripes

RECIPE = Recipe(epochs=1, batch_in=32, batch_out=32, lr=0.02, precision="float32")
HELD = (stripes(60, seed=5), noise(60, seed=6))


@pytest.fixture(scope="module")
def start() -> torch.nn.Module:
    torch.manual_seed(0)
    return nets.build("wrn-10-1", classes=3)


def test_the_rule_gives_table_5_from_figure_4_except_where_the_paper_contradicts_itself() -> None:
    curves = {(c.id, c.net, c.metric): c for c in numbers.margin_curves()}
    wrong = []
    for printed in numbers.margins():
        if (printed.id, printed.net, "fpr95") in curves:
            fpr95, auroc = (curves[printed.id, printed.net, metric] for metric in ("fpr95", "auroc"))
            if best_margin(fpr95.margins, fpr95.values, auroc.values) != printed.margin:
                wrong.append((printed.id, printed.net))
    assert wrong == [("imagenet32", "wrn-40-2")]  # where no metric is best at the printed margin


def test_the_rule_against_brute_force() -> None:
    draw = random.Random(3)
    for _ in range(200):
        margins = draw.sample(MARGINS, 5)
        fpr95, auroc = ([draw.choice((0.1, 0.2)) for _ in margins] for _ in range(2))
        lowest = min(fpr95)
        left = [(m, a) for m, f, a in zip(margins, fpr95, auroc, strict=True) if f == lowest]
        highest = max(a for _, a in left)
        assert best_margin(margins, fpr95, auroc) == min(m for m, a in left if a == highest)


def result(fpr95: float, test: float, weights: str = "a", mcd: float = 0.5) -> Result:
    """A result with this share of ID images flagged, on validation and on test images."""

    def flagged(share: float) -> Evaluation:
        conf_in = np.where(np.arange(100) < 100 * share, 0.05, 0.9).astype(np.float32)
        return measure("x", np.ones(100, bool), conf_in, {"o": np.linspace(0.1, 0.2, 100, dtype=np.float32)})

    return Result(flagged(fpr95), flagged(test), {}, (mcd,), weights)


def test_validation_decides_unless_the_test_sets_are_asked_to() -> None:
    points = [Point(m, (result(v, t),)) for m, v, t in ((0.1, 0.3, 0.0), (0.2, 0.1, 0.5), (0.3, 0.2, 0.9))]
    assert chosen_margin(points, "validation") == 0.2
    assert chosen_margin(points, "test") == 0.1


def test_the_mean_over_seeds_decides_and_the_spread_is_the_deviation() -> None:
    points = [Point(0.1, (result(0.0, 0), result(0.5, 0))), Point(0.2, (result(0.2, 0), result(0.2, 0)))]
    assert chosen_margin(points, "validation") == 0.2
    assert points[0].spread("fpr95", "validation") == pytest.approx(0.25 * math.sqrt(2))
    assert math.isnan(Point(0.1, (result(0.1, 0.1),)).spread("fpr95", "test"))


def test_margins_that_were_always_exceeded_get_another_reason() -> None:
    points = [Point(m, (result(0.1, 0.1, weights, 0.5),)) for m, weights in ((0.0, "a"), (0.1, "a"), (0.7, "b"))]
    (sentence,) = plateaus(points, (0,))
    assert "0, 0.1 are one objective" in sentence and "above them from the start" in sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"margins": ()}, "at least one margin"),
        ({"margins": (0.1, 0.1)}, "none of them twice"),
        ({"margins": (1.0,)}, "below 1"),
        ({"choose": "test"}, "at least one OOD set"),
        ({"recipe": Recipe(options={"variant": "unbounded"})}, "no margin to choose"),
        ({"method": "oe"}, "no setting of oe called 'margin'"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    changes: dict[str, Any], words: str, start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    options: Any = {"validation": HELD, "run": tmp_path, "recipe": RECIPE, "progress": False} | changes
    with pytest.raises(MacsError, match=words):
        sweep(start, known, outliers, **options)


def images(rows: ImageSet) -> set[bytes]:
    return {image.tobytes() for image in rows.pixels[:]}


def test_held_out_images_are_not_trained_on(tmp_path: Path) -> None:
    array = noise(50, seed=1).pixels[:]
    np.save(tmp_path / "o.npy", array)
    for first, count in ((0.2, 10), (7, 7)):
        kept, held = held_out(str(tmp_path / "o.npy"), first, size=16)
        assert len(held) == count and len(kept) == 50 - count and not images(kept) & images(held)
        again = held_out(str(tmp_path / "o.npy"), first, size=16)[1]
        assert images(again) == images(held)


def test_a_validation_split_is_taken_where_there_is_one() -> None:
    kept, held = held_out("digits", 0.5)
    assert len(kept) == 1010 and np.array_equal(held.pixels[:], load("digits", "val").pixels[:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--margins", "0.2", "1.2"], "below 1"),
        (["--choose", "test"], "--ood"),
        (["--validation", "0"], "--validation"),
        (["--margin", "0.5"], "--margin"),
        (["--seeds", "1.5"], "--seeds"),
        (["--id", "cifar11"], "did you mean 'cifar10'"),
    ],
)
def test_a_mistake_in_the_command_gets_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", "nowhere")
    assert words in refused(capsys, "sweep", *arguments)
