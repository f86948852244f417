"""Cells: found again by all that they depend on, never by less, and never computed twice."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import macs
from cases import slow
from macs import methods, nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.spec import fingerprint
from macs.experiments.cells import Cell, Examination
from macs.metrics import ood_metrics
from macs.training.recipe import Recipe
from macs.training.sources import Held, Training
from macs.training.spec import Start
from tiny import noise, stripes

RECIPE = Recipe(margin=0.9, epochs=1, batch_in=32, batch_out=32, lr=0.02, precision="float32")
SEEN = Examination(stripes(40, seed=5), noise(40, seed=6), stripes(50, seed=7), {"noise": noise(60, seed=8)})


def start() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nets.build("wrn-10-1", classes=3)


@pytest.fixture
def held(known: ImageSet, outliers: ImageSet) -> Held:
    return Held.of([known, outliers], [start()])


def cell_of(root: Path, train: ImageSet, others: ImageSet, recipe: Recipe = RECIPE, method: str = "macs") -> Cell:
    return Cell(root, "cell", Training(start(), train, others, methods.build(method, recipe.options), recipe).spec)


@pytest.fixture
def cell(tmp_path: Path, known: ImageSet, outliers: ImageSet) -> Cell:
    return cell_of(tmp_path, known, outliers)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, spec=replace(cell.spec, recipe=replace(cell.spec.recipe, **changes)))


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("macs", {"options": {"margin": 0.0}}),
    ("macs", {"seed": 1}),
    ("macs", {"options": {"margin": 0.9, "margin_weight": 2.0}}),
    ("macs", {"options": {"margin": 0.9, "weight": 0.1}}),
    ("divoe", {"options": {}}),
    ("energy", {"options": {}}),
    ("macs", {"lr": 0.03}),
]


@pytest.mark.parametrize(("method", "change"), [*CHANGES[:3], *slow(*CHANGES[3:])], ids=str)
def test_a_changed_recipe_is_another_cell_with_another_result(
    method: str, change: dict[str, Any], cell: Cell, held: Held, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    other = cell_of(tmp_path, known, outliers, replace(RECIPE, **change), method)
    assert other.key != cell.key
    results = []
    for each in (cell, other):
        each.run(None, held, progress=False)
        results.append(each.examine(SEEN, held, progress=False))
    assert results[0].weights != results[1].weights
    assert not np.array_equal(results[0].confidences["noise"], results[1].confidences["noise"])


def test_other_images_or_weights_or_version_are_another_cell(
    cell: Cell, known: ImageSet, outliers: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    darker = ImageSet(known.name, known.pixels[:] // 2, known.labels, known.classes)
    others = [
        cell_of(tmp_path, darker, outliers),
        cell_of(tmp_path, known.subset(range(100)), outliers),
        cell_of(tmp_path, known, noise(256, seed=4)),
        replace(cell, spec=replace(cell.spec, start=Start("memory", "other"))),
        replace(cell, trained=True),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 6
    monkeypatch.setattr("macs.experiments.cells.__version__", "99")
    assert replace(cell).key != cell.key


def test_a_fingerprint_sees_pixels_labels_and_mirrors_but_no_names(known: ImageSet) -> None:
    assert fingerprint(known) == fingerprint(replace(known, name="other", pixels=known.pixels[:].copy()))
    pixels = known.pixels[:].copy()
    pixels[17, 3, 4, 2] ^= 1
    labels = known.labels.copy()
    labels[5] = (labels[5] + 1) % 3
    changes = (replace(known, pixels=pixels), replace(known, labels=labels), replace(known, mirror=False))
    assert len({fingerprint(known), *map(fingerprint, changes)}) == 4


def test_a_cell_is_where_its_images_and_weights_are_not_looked_at(cell: Cell) -> None:
    """The same images under another path, and the same weights in another file, are the same training."""
    moved = replace(cell.spec, train=replace(cell.spec.train, source="/mnt/stripes"))
    moved = replace(moved, start=Start("/mnt/start.pt", moved.start.weights))
    assert replace(cell, spec=moved).key == cell.key


def test_auto_is_the_cell_of_the_arithmetic_that_it_stands_for(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    automatic = changed(cell, precision="auto")
    for bf16, name in ((True, "bf16"), (False, "float32")):
        monkeypatch.setattr(
            "macs.core.devices.use_bf16",
            lambda precision, _, auto=bf16: precision == "bf16" or (precision == "auto" and auto),
        )
        assert replace(automatic).key == changed(cell, precision=name).key


def test_every_setting_counts_whether_it_was_given_or_is_the_default(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    said = replace(RECIPE, options={"margin": 0.5, "weight": 0.5})
    assert (
        cell_of(tmp_path, known, outliers, said).key
        == cell_of(tmp_path, known, outliers, Recipe(**{**vars(RECIPE), "options": {}})).key
    )


def test_a_finished_cell_is_neither_trained_nor_scored_again(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    cell.run(None, held, progress=False)
    first = cell.examine(SEEN, held, progress=False)
    before = files(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed twice")

    monkeypatch.setattr("macs.training.run", refuse)
    monkeypatch.setattr("macs.scores.ask", refuse)
    again = replace(cell)
    again.run(None, held, progress=False)
    assert again.examine(SEEN, held, progress=False).test == first.test
    assert files(tmp_path) == before


def test_one_more_test_set_costs_one_pass_and_no_training(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    cell.run(None, held, progress=False)
    cell.examine(SEEN, held, progress=False)
    scored: list[ImageSet] = []
    real = macs.scores.ask

    def noted(net: nn.Module, images: ImageSet, *rest: Any) -> Any:
        scored.append(images)
        return real(net, images, *rest)

    monkeypatch.setattr("macs.training.run", None)
    monkeypatch.setattr("macs.scores.ask", noted)
    more = noise(30, seed=11)
    result = cell.examine(replace(SEEN, ood={**SEEN.ood, "more": more}), held, progress=False)
    assert scored == [more]
    assert [each.name for each in result.test.sets] == ["noise", "more"]


def test_the_numbers_are_those_of_the_networks_confidences(cell: Cell, held: Held) -> None:
    cell.run(None, held, progress=False)
    result = cell.examine(SEEN, held, progress=False)
    net = cell.net(held).eval()

    def confidences(images: ImageSet) -> np.ndarray:
        pixels = torch.from_numpy(np.array(images.pixels[:])).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            return net(pixels).softmax(1).amax(1).numpy()

    assert np.allclose(result.confidences["id"], confidences(SEEN.test), atol=1e-5)
    by_hand = ood_metrics(confidences(SEEN.val), confidences(SEEN.val_outliers))
    assert result.validation.sets[0].full.auroc == pytest.approx(by_hand.auroc, abs=2e-3)
    lines = (cell.folder.path / "metrics.jsonl").read_text().splitlines()
    assert result.mcd == tuple(json.loads(line)["mcd"] for line in lines)


def test_an_interrupted_cell_goes_on_and_ends_with_the_same_bits(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    longer = changed(cell, epochs=3)
    undisturbed = replace(longer, root=tmp_path / "undisturbed")
    undisturbed.run(None, held, progress=False)

    epochs = []

    def stop(*_: object) -> None:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("macs.training.loop.TrainingProgress.epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            longer.run(None, held, progress=False)
    assert not longer.finished
    longer.run(None, held, progress=False)
    assert longer.folder.net_file.read_bytes() == undisturbed.folder.net_file.read_bytes()


def test_a_cell_of_another_recipe_is_named_and_left_alone(cell: Cell, tmp_path: Path, held: Held) -> None:
    old = changed(cell, lr=0.5)
    old.run(None, held, progress=False)
    before = files(tmp_path)
    assert cell.others() == ["lr is 0.5 there and 0.02 here"]
    assert replace(old, spec=replace(old.spec, start=Start("memory", "other"))).others() == ["other starting weights"]
    cell.run(None, held, progress=False)
    assert before.items() <= files(tmp_path).items()


@pytest.mark.parametrize("content", [b"", b"\xff", b"7", b"[]", b"{}", b'{"depends": 7}'])
def test_a_cell_that_does_not_say_what_it_is_is_left_alone(content: bytes, cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell/0123456789ab.json").write_bytes(content)
    assert cell.others() == ["it does not say what it depends on"]


def test_weights_from_elsewhere_become_a_cell_unchanged(cell: Cell, tmp_path: Path, held: Held) -> None:
    cell = replace(cell, trained=True)
    cell.run(None, held, progress=False)
    assert cell.finished and cell.epochs() == []
    assert nets.weights_hash(cell.net(held)) == nets.weights_hash(start())
    assert cell.examine(SEEN, held, progress=False).mcd == ()


def test_damaged_files_get_one_sentence(cell: Cell, held: Held) -> None:
    cell.run(None, held, progress=False)
    cell.examine(SEEN, held, progress=False)
    kept = cell.folder.path / f"confidences-msp-{fingerprint(SEEN.val)}.npz"
    for content in (b"no zip", b"", kept.read_bytes()[:-100]):
        kept.write_bytes(content)
        with pytest.raises(MacsError, match="npz is damaged; delete it"):
            cell.examine(SEEN, held, progress=False)
    np.savez(kept, correct=np.ones(3, bool), values=np.ones(3, np.float32))
    with pytest.raises(MacsError, match="npz is damaged; delete it"):
        cell.examine(SEEN, held, progress=False)
    np.savez_compressed(kept, correct=np.ones(3, bool), values=np.zeros(2**24, np.float32))  # 64 MB in 64 kB
    tracemalloc.start()
    with pytest.raises(MacsError, match="npz is damaged; delete it"):
        cell.examine(SEEN, held, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
    kept.unlink()
    cell.folder.metrics_file.write_bytes(b"\xff")
    with pytest.raises(MacsError, match="Cannot read the epochs in .*metrics.jsonl"):
        cell.examine(SEEN, held, progress=False)
    cell.folder.net_file.write_bytes(b"no tensors")
    with pytest.raises(MacsError, match="Cannot read .*net.safetensors.*train it again"):
        cell.net(held)


def test_without_test_images_there_are_no_test_results(cell: Cell, held: Held) -> None:
    cell.run(None, held, progress=False)
    result = cell.examine(Examination(SEEN.val, SEEN.val_outliers), held, progress=False)
    assert result.test is None and result.of("validation") is result.validation
    with pytest.raises(MacsError, match="no test results"):
        result.of("test")
