"""Starting weights of several networks: one file for all, the folder of a run, or a folder with a file for each."""

from pathlib import Path

import pytest

from macs.experiments.cells import checkpoint_of, for_all


def test_one_file_or_run_stands_for_all_networks(tmp_path: Path) -> None:
    file, run = tmp_path / "any.pt", tmp_path / "run"
    run.mkdir()
    (run / "net.safetensors").touch()
    file.touch()
    for path in (file, run):
        assert for_all(path) and checkpoint_of(path, "cifar10", "allconv") == path


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_a_folder_has_a_file_for_each_network_or_none(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"cifar10-allconv{suffix}"
    file.touch()
    assert not for_all(tmp_path)
    assert checkpoint_of(tmp_path, "cifar10", "allconv") == file
    assert checkpoint_of(tmp_path, "cifar10", "wrn-40-2") is None
