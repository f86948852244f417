"""Cells: found again by all that they depend on, never by less, and never computed twice."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import macs
from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.experiments.cells import Cell, Examination, fingerprint, weights_of
from macs.metrics import ood_metrics
from macs.training.recipe import Recipe
from tiny import noise, stripes

RECIPE = Recipe(
    method="macs",
    margin=0.9,
    epochs=1,
    batch_in=32,
    batch_out=32,
    lr=0.02,
    size=16,
    net="wrn-10-1",
    precision="float32",
)
SEEN = Examination(stripes(40, seed=5), noise(40, seed=6), stripes(50, seed=7), {"noise": noise(60, seed=8)})


def start() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nets.build("wrn-10-1", classes=3)


@pytest.fixture
def cell(tmp_path, known, outliers) -> Cell:
    return Cell(tmp_path, "cell", RECIPE, known, outliers, weights_of(start()), start)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(cell: Cell, **changes: Any) -> Cell:
    return replace(cell, recipe=replace(cell.recipe, **changes))


CHANGES: list[dict[str, Any]] = [
    {"margin": 0.0},
    {"seed": 1},
    {"options": {"margin_weight": 2.0}},
    {"options": {"weight": 0.1}},
    {"method": "divoe", "margin": None},
    {"method": "energy", "margin": None},
    {"lr": 0.03},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_changed_recipe_is_another_cell_with_another_result(change, cell):
    other = changed(cell, **change)
    assert other.key != cell.key
    results = []
    for each in (cell, other):
        each.run(progress=False)
        results.append(each.examine(SEEN, progress=False))
    assert results[0].weights != results[1].weights
    assert not np.array_equal(results[0].confidences["noise"], results[1].confidences["noise"])


def test_other_images_or_weights_or_version_are_another_cell(cell, known, monkeypatch):
    darker = ImageSet(known.name, known.pixels[:] // 2, known.labels, known.classes)
    others = [
        replace(cell, train=darker),
        replace(cell, train=known.subset(range(100))),
        replace(cell, outliers=noise(256, seed=4)),
        replace(cell, start="elsewhere"),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 5
    monkeypatch.setattr("macs.experiments.cells.__version__", "99")
    assert replace(cell).key != cell.key


def test_a_fingerprint_sees_pixels_labels_and_mirrors_but_no_names(known):
    assert fingerprint(known) == fingerprint(replace(known, name="other", pixels=known.pixels[:].copy()))
    pixels = known.pixels[:].copy()
    pixels[17, 3, 4, 2] ^= 1
    labels = known.labels.copy()
    labels[5] = (labels[5] + 1) % 3
    changes = (replace(known, pixels=pixels), replace(known, labels=labels), replace(known, mirror=False))
    assert len({fingerprint(known), *map(fingerprint, changes)}) == 4


def test_weights_are_told_apart_by_one_bit():
    one, other = start(), start()
    assert weights_of(one) == weights_of(other)
    with torch.no_grad():
        other.fc.bias[0] += 1e-7
    assert weights_of(one) != weights_of(other)


def test_a_finished_cell_is_neither_trained_nor_scored_again(cell, tmp_path, monkeypatch):
    cell.run(progress=False)
    first = cell.examine(SEEN, progress=False)
    before = files(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed twice")

    monkeypatch.setattr("macs.training.finetune", refuse)
    monkeypatch.setattr("macs.scores.ask", refuse)
    again = replace(cell)
    again.run(progress=False)
    assert again.examine(SEEN, progress=False).test == first.test
    assert files(tmp_path) == before


def test_one_more_test_set_costs_one_pass_and_no_training(cell, monkeypatch):
    cell.run(progress=False)
    cell.examine(SEEN, progress=False)
    scored = []
    real = macs.scores.ask
    monkeypatch.setattr("macs.training.finetune", None)
    monkeypatch.setattr("macs.scores.ask", lambda net, images, *rest: scored.append(images) or real(net, images, *rest))
    more = noise(30, seed=11)
    result = cell.examine(replace(SEEN, ood={**SEEN.ood, "more": more}), progress=False)
    assert scored == [more]
    assert [each.name for each in result.test.sets] == ["noise", "more"]


def test_the_numbers_are_those_of_the_networks_confidences(cell):
    cell.run(progress=False)
    result = cell.examine(SEEN, progress=False)
    net = cell.net().eval()

    def confidences(images: ImageSet) -> np.ndarray:
        pixels = torch.from_numpy(np.array(images.pixels[:])).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            return net(pixels).softmax(1).amax(1).numpy()

    assert np.allclose(result.confidences["id"], confidences(SEEN.test), atol=1e-5)
    by_hand = ood_metrics(confidences(SEEN.val), confidences(SEEN.val_outliers))
    assert result.validation.sets[0].full.auroc == pytest.approx(by_hand.auroc, abs=2e-3)
    lines = (cell.folder.path / "metrics.jsonl").read_text().splitlines()
    assert result.mcd == tuple(json.loads(line)["mcd"] for line in lines)


def test_an_interrupted_cell_goes_on_and_ends_with_the_same_bits(cell, tmp_path, monkeypatch):
    longer = changed(cell, epochs=3)
    undisturbed = replace(longer, root=tmp_path / "undisturbed")
    undisturbed.run(progress=False)

    epochs = []

    def stop(*_: object) -> None:
        epochs.append(1)
        if len(epochs) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("macs.training.progress.TrainingProgress.epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            longer.run(progress=False)
    assert not longer.finished
    longer.run(progress=False)
    assert longer.folder.net_file.read_bytes() == undisturbed.folder.net_file.read_bytes()


def test_a_cell_of_another_recipe_is_named_and_left_alone(cell, tmp_path):
    old = changed(cell, lr=0.5)
    old.run(progress=False)
    before = files(tmp_path)
    assert cell.others() == ["lr is 0.5 there and 0.02 here"]
    assert replace(old, start="elsewhere").others() == ["other starting weights"]
    cell.run(progress=False)
    assert before.items() <= files(tmp_path).items()


@pytest.mark.parametrize("content", [b"", b"\xff", b"7", b"[]", b"{}", b'{"recipe": 7}'])
def test_a_cell_that_does_not_say_what_it_is_is_left_alone(content, cell, tmp_path):
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell/0123456789ab.json").write_bytes(content)
    assert cell.others() == ["it does not say what it depends on"]


def test_weights_from_elsewhere_become_a_cell_unchanged(cell, tmp_path):
    cell.adopt()
    assert cell.finished and cell.epochs() == []
    assert weights_of(cell.net()) == weights_of(start())
    assert cell.examine(SEEN, progress=False).mcd == ()


def test_damaged_files_get_one_sentence(cell):
    cell.run(progress=False)
    cell.examine(SEEN, progress=False)
    kept = cell.folder.path / f"confidences-{fingerprint(SEEN.val)}.npz"
    for content in (b"no zip", b"", kept.read_bytes()[:-100]):
        kept.write_bytes(content)
        with pytest.raises(MacsError, match="npz is damaged; delete it"):
            cell.examine(SEEN, progress=False)
    np.savez(kept, correct=np.ones(3, bool), values=np.ones(3, np.float32))
    with pytest.raises(MacsError, match="npz is damaged; delete it"):
        cell.examine(SEEN, progress=False)
    kept.unlink()
    cell.folder.metrics_file.write_bytes(b"\xff")
    with pytest.raises(MacsError, match="Cannot read the epochs in .*metrics.jsonl"):
        cell.examine(SEEN, progress=False)
    cell.folder.net_file.write_bytes(b"no tensors")
    with pytest.raises(MacsError, match="Cannot read .*net.safetensors.*train it again"):
        cell.net()


def test_without_test_images_there_are_no_test_results(cell):
    cell.run(progress=False)
    result = cell.examine(Examination(SEEN.val, SEEN.val_outliers), progress=False)
    assert result.test is None and result.of("validation") is result.validation
    with pytest.raises(MacsError, match="no test results"):
        result.of("test")
