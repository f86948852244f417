"""The run folder: whose it is, what it records, and what a killed process may have left in it."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder
from macs.training.spec import Start, TrainingSpec

SPEC = TrainingSpec(
    train=DataSpec("digits", "train", images=10, fingerprint="a"),
    outliers=None,
    net="wrn-10-1",
    classes=("0", "1"),
    preparation=Preparation(size=16),
    start=Start("random", "b", 0),
    method="msp",
    recipe=Recipe(batch_out=0),
)


def test_a_run_killed_as_it_began_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / ".recipe.toml.0123abcd.part").write_text("epo")
    RunFolder(tmp_path).claim(SPEC, resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]
    assert RunFolder(tmp_path).spec == SPEC


def test_a_folder_of_other_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(MacsError, match="holds files that are not a run"):
        RunFolder(tmp_path).claim(SPEC, resume=False)


def test_a_run_is_known_by_hashes_and_not_by_places(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.claim(SPEC, resume=False)
    folder.claim(replace(SPEC, train=replace(SPEC.train, source="/elsewhere/digits")), resume=True)
    for changed, words in (
        (replace(SPEC, train=replace(SPEC.train, fingerprint="x")), "other training images"),
        (replace(SPEC, start=Start("random", "x", 0)), "other starting weights"),
        (replace(SPEC, classes=("a", "b")), "other classes"),
        (replace(SPEC, net="allconv"), "net is 'wrn-10-1' there and 'allconv' here"),
        (replace(SPEC, recipe=Recipe(batch_out=0, seed=3)), "seed is 0 there and 3 here"),
    ):
        with pytest.raises(MacsError, match=f"another run .*{words}"):
            folder.claim(changed, resume=True)


def test_weights_in_memory_need_not_be_made_again_to_go_on(tmp_path: Path) -> None:
    """The state has the weights; a network that was built without a seed could never be resumed otherwise."""
    folder, ours = RunFolder(tmp_path), replace(SPEC, start=Start("memory", "b"))
    folder.claim(ours, resume=False)
    folder.claim(replace(ours, start=Start("memory", "c")), resume=True)


def test_a_state_that_unpacks_to_far_more_than_its_file_is_refused(tmp_path: Path) -> None:
    torch.save({"net": {}}, tmp_path / "state.pt")
    assert RunFolder(tmp_path).load_state() == {"net": {}}
    with zipfile.ZipFile(tmp_path / "state.pt", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state/data/0", bytes(2**26))
    with pytest.raises(MacsError, match=r"state\.pt would take 67 MB of memory"):
        RunFolder(tmp_path).load_state()
