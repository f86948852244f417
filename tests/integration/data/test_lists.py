"""A training on a list of image files."""

from pathlib import Path

import pytest

from command import refused, run
from macs.data.loading import Place
from tiny import save, stripes


def test_a_network_trained_on_a_list_has_seen_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(stripes(6, seed=4, size=8), tmp_path)
    lines = [f"{path.relative_to(tmp_path)} {path.parent.name}\n" for path in sorted(tmp_path.rglob("*.png"))]
    every, some = tmp_path / "list.txt", tmp_path / "test.txt"
    every.write_text("".join(lines))
    some.write_text(lines[0] + lines[-1])
    assert Place(every).kind == "list" and Place(every).undivided
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "2", "--size", "8", "--json"]
    run("pretrain", "--id", every, *small, "--run", tmp_path / "run")
    capsys.readouterr()
    sentence = refused(capsys, "evaluate", tmp_path / "run", "--ood", every)
    assert "was trained on all images of" in sentence
    run("evaluate", tmp_path / "run", "--id", some, "--ood", every)
