"""The run folder: whose it is, and what a killed process may have left in it."""

import pytest

from macs import Recipe
from macs.core.errors import MacsError
from macs.training.runs import RunFolder


def test_a_run_killed_as_it_began_can_be_started_again(tmp_path):
    (tmp_path / ".recipe.toml.0123abcd.part").write_text("epo")
    RunFolder(tmp_path).claim(Recipe(), resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_a_folder_of_other_files_is_not_taken(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(MacsError, match="holds files that are not a run"):
        RunFolder(tmp_path).claim(Recipe(), resume=False)
