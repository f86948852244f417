"""The grid: each training once, shared by the tables, and all that a table of the paper has."""

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.research import paper_numbers as numbers
from macs.research.paper_grid import (
    FULL,
    IDS,
    LAB,
    NETS,
    PARTS,
    SCALES,
    SMOKE,
    Only,
    PaperScale,
    PaperTraining,
    chosen_parts,
    places,
    rows_of,
    trainings,
)
from macs.research.paper_runs import Setup

EVERYTHING = Only()


@pytest.mark.parametrize("part", [f"table{number}" for number in numbers.TABLES])
def test_a_table_has_the_papers_sets_networks_methods_and_metrics(part: str) -> None:
    printed = numbers.table(int(part[-1]))
    ours = PARTS[part]
    assert set(product(ours.ids, ours.nets)) == {(cell.id, cell.net) for cell in printed}
    assert {row.paper for row in ours.rows} - {""} == {cell.method for cell in printed}
    assert set(ours.metrics) == {cell.metric for cell in printed}


def test_the_figures_have_what_the_paper_draws() -> None:
    assert {(b.id, b.net) for b in numbers.bars()} == set(product(PARTS["figure5"].ids, PARTS["figure5"].nets))
    assert {(c.id, c.net) for c in numbers.margin_curves()} == set(product(PARTS["figure4"].ids, PARTS["figure4"].nets))
    assert [row.paper for row in PARTS["figure1"].rows] == list(dict.fromkeys(box.method for box in numbers.boxes()))
    assert {(m.id, m.net) for m in numbers.margins()} == set(product(PARTS["table5"].ids, PARTS["table5"].nets))


def test_the_whole_paper_is_counted_by_hand() -> None:
    """4 ID sets x 4 networks x (pretraining, 4 baselines, 10 margins), and 4 x 2 ablations; times the seeds.

    Our own ablation adds two hinges for each of the two CIFARs.
    """
    for seeds in ((0,), (0, 1, 2)):
        assert len(trainings(chosen_parts(["all"]), FULL, EVERYTHING, seeds)) == (16 * 15 + 4 * 2) * len(seeds)
        found = trainings(list(PARTS), FULL, EVERYTHING, seeds)
        assert len(found) == len(set(found)) == (16 * 15 + 4 * 2 + 2 * 2) * len(seeds)


def test_the_released_loop_continues_each_margin_from_the_one_before() -> None:
    released = replace(FULL, released=True)
    found = trainings(["table1"], released, Only(("cifar10",), rows=("macs", "oe-long")), (0,))
    names = [training.name.removeprefix("cifar10-wrn-40-2-").removesuffix("-seed0") for training in found]
    macs = ["macs-m0", *(f"macs-m0.{k}-round{k}" for k in range(1, 6))]
    oe = ["oe", *(f"oe-round{k}" for k in range(1, 6))]
    assert sorted(names) == sorted(["msp", *macs, *oe])
    by_name = dict(zip(names, found, strict=True))
    for chain in (["msp", *macs], ["msp", *oe]):
        for before, after in pairwise(chain):
            assert by_name[after].before(released.margins) == by_name[before]
            assert found.index(by_name[before]) < found.index(by_name[after])
    recipes = [Setup(released, Path("out")).finetuning(by_name[name]) for name in macs]
    assert [recipe.cosine for recipe in recipes] == ["falling", "rising"] * 3
    assert len({recipe.seed for recipe in recipes}) == 6


def test_as_released_changes_the_baselines_and_the_epochs_of_imagenet32() -> None:
    released = replace(FULL, released=True)
    rows = {row.name: row for row in rows_of("table1", released, EVERYTHING)}
    assert (rows["energy"].method, rows["mixoe"].settings, rows["divoe"].settings) == (
        "energy-oe",
        (("beta", 1.0),),
        (("eps", 0.01),),
    )
    assert all(row.as_printed for row in rows.values() if row.paper)
    assert [row.name for row in rows_of("table1", FULL, EVERYTHING) if row.as_printed] == ["oe"]
    for scale, sizes in ((released, (0, 300_000)), (FULL, (0, 0))):
        setup = Setup(scale, Path("out"))
        trained = [setup.finetuning(PaperTraining(id, "wrn-40-2", "oe")).epoch_size for id in ("cifar10", "imagenet32")]
        assert tuple(trained) == sizes


def test_rows_restrict_a_table() -> None:
    found = trainings(["table1"], LAB, Only(("cifar10",), rows=("oe", "macs")), (0, 1))
    assert {(training.method, training.margin) for training in found} == {("msp", None), ("oe", None), ("macs", 0.5)}
    with pytest.raises(MacsError, match="has nothing of .* in the rows oe"):
        trainings(["table5"], LAB, Only(rows=("oe",)), (0,))


def test_a_pretraining_comes_before_what_starts_from_it() -> None:
    found = trainings(list(PARTS), FULL, EVERYTHING, (0, 1))
    for place, training in enumerate(found):
        assert found.index(PaperTraining(training.id, training.net, "msp", seed=training.seed)) <= place


def test_tables_share_their_trainings() -> None:
    tables = [set(trainings([part], FULL, EVERYTHING, (0,))) for part in ("table1", "table3")]
    assert tables[0] < tables[1]
    assert set(trainings(["figure4"], FULL, EVERYTHING, (0,))) <= set(trainings(["table5"], FULL, EVERYTHING, (0,)))


def test_names_of_trainings_differ() -> None:
    found = trainings(list(PARTS), FULL, EVERYTHING, (0, 1))
    assert len({training.name for training in found}) == len(found)


def test_in_a_rehearsal_one_training_stands_for_many_and_says_so() -> None:
    found = places(PARTS["table5"], SMOKE, EVERYTHING)
    assert {id for id, _ in found} == {"digits"} and len(found) == 2
    assert sorted(paper for papers in found.values() for paper in papers) == sorted(product(IDS, NETS))
    assert all(training.id == "digits" for training in trainings(list(PARTS), SMOKE, EVERYTHING, (0,)))


def test_a_selection_restricts_the_grid() -> None:
    found = trainings(["table3"], FULL, Only(("cifar10",), ("allconv",)), (0,))
    assert {(training.id, training.net) for training in found} == {("cifar10", "allconv")}
    with pytest.raises(MacsError, match="table1 has nothing of svhn"):
        trainings(["table1"], FULL, Only(("svhn",)), (0,))


@pytest.mark.parametrize("wrong", [{"ids": ("cifar1",)}, {"nets": ("wrn",)}, {"rows": ("mac",)}])
def test_a_name_that_the_paper_does_not_have_is_refused(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(MacsError, match="There is no"):
        Only(**wrong)


def test_targets() -> None:
    assert chosen_parts(["all"]) == [part for part in PARTS if part != "ablation"]
    assert chosen_parts(["figure4", "table1"]) == ["table1", "figure4"]
    with pytest.raises(MacsError, match="Name what to reproduce: table1"):
        chosen_parts([])
    with pytest.raises(MacsError, match="did you mean 'table7'"):
        chosen_parts(["table77"])


@pytest.mark.parametrize("scale", SCALES.values(), ids=str)
def test_a_scale_has_something_for_every_name_of_the_paper(scale: PaperScale) -> None:
    assert set(scale.ids) == set(IDS) and set(scale.nets) == set(NETS)
    for id in IDS:
        assert set(numbers.averaged_over(id)) <= set(scale.ood_sets(scale.ids[id]))


@pytest.mark.parametrize("scale", [FULL, LAB], ids=str)
def test_real_sets_are_averaged_over_exactly_what_the_paper_averages_over(scale: PaperScale) -> None:
    for id in IDS:
        assert scale.ood_sets(id) == {name: name for name in scale.ood if name in numbers.averaged_over(id)}
