"""Engines: results as they come, failures that end nothing, and cells that another process can run."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import macs
from macs import methods, nets, training
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.experiments.cells import Cell, Done, Examination, SerialEngine
from macs.experiments.margins import sweep
from macs.training.recipe import Recipe
from macs.training.sources import Held, Training
from tiny import noise, stripes

RECIPE = Recipe(epochs=1, batch_in=32, batch_out=32, lr=0.02, precision="float32")
SEEN = Examination(stripes(40, seed=5), noise(40, seed=6))


def cells(root: Path, train: ImageSet, outliers: ImageSet, *names: str) -> list[Cell]:
    net = training.starting_net("wrn-10-1", classes=3)
    made = (methods.build(name) for name in names)
    return [Cell(root, methods.name_of(m), Training(net, train, outliers, m, RECIPE).spec) for m in made]


def test_cells_are_taken_when_there_is_room_and_results_come_one_by_one(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    taken = []

    def given() -> Iterator[Cell]:
        for cell in cells(tmp_path, known, outliers, "oe", "macs"):
            taken.append(cell.name)
            yield cell

    done = SerialEngine(progress=False).run(given(), SEEN, Held.of([known, outliers]))
    assert taken == []
    first = next(done)
    assert taken == [first.cell.name] == ["oe"] and first.error is None
    assert first.value().validation.accuracy is not None
    assert [each.cell.name for each in done] == ["macs"] and len(list(tmp_path.rglob("net.safetensors"))) == 2


def test_a_cell_that_fails_ends_no_other(
    known: ImageSet, outliers: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("macs.methods.oe.OutlierExposure.loss", broken)
    both, held = cells(tmp_path, known, outliers, "oe", "macs"), Held.of([known, outliers])
    failed, fine = SerialEngine(progress=False).run(both, SEEN, held)
    assert failed.result is None and str(failed.error) == "out of memory" and fine.result is not None
    with pytest.raises(RuntimeError, match="out of memory"):
        failed.value()


def test_what_is_not_held_is_loaded_and_what_cannot_be_is_said(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    (done,) = SerialEngine(progress=False).run(cells(tmp_path, known, outliers, "oe"), SEEN)
    assert isinstance(done.error, MacsError) and "made in memory" in str(done.error)


def test_a_cell_is_plain_values_from_which_it_can_be_made_again(tmp_path: Path) -> None:
    """What an engine on another machine gets: a root, a name and a spec."""
    train, outliers = (macs.data.load(name, "train", size=16) for name in ("digits", "digits-outliers"))
    net = training.starting_net("wrn-10-1", classes=8)
    recipe = replace(RECIPE, epoch_size=64)
    cell = Cell(tmp_path / "a", "oe", Training(net, train, outliers, methods.build("oe"), recipe).spec)
    sent = json.dumps(cell.spec.as_dict())
    other = Cell(tmp_path / "b", "oe", training.TrainingSpec.from_dict(json.loads(sent)))
    assert other.key == cell.key and other.spec == cell.spec
    seen = Examination(macs.data.load("digits", "val", size=16), noise(40, seed=6))
    results = []
    for each, held in ((cell, Held.of([train, outliers], [net])), (other, Held())):
        (done,) = SerialEngine(progress=False).run([each], seen, held)
        results.append(done.value())
    assert results[0].weights == results[1].weights and results[0].validation == results[1].validation
    record = json.loads((tmp_path / f"b/oe/{cell.key}.json").read_text())
    assert training.TrainingSpec.from_dict(record["spec"]) == cell.spec


def test_a_sweep_takes_any_engine(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    class Backwards(SerialEngine):
        def run(self, cells: Iterable[Cell], *more: Any) -> Iterator[Done]:
            yield from super().run(reversed(list(cells)), *more)

    start = nets.build("wrn-10-1", classes=3)
    validation = (SEEN.val, SEEN.val_outliers)
    options: Any = {"validation": validation, "margins": (0.0, 0.9), "recipe": RECIPE, "progress": False}
    forwards = sweep(start, known, outliers, run=tmp_path / "a", **options)
    backwards = sweep(start, known, outliers, run=tmp_path / "b", engine=Backwards(progress=False), **options)
    found = [[point.results[0].weights for point in each.points] for each in (forwards, backwards)]
    assert found[0] == found[1] and found[0][0] != found[0][1]
