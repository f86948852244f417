"""A Hugging Face dataset on disk, from training to evaluation."""

import json
from pathlib import Path

import pytest

from command import refused, run
from hub_datasets import save_splits


def test_from_training_to_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"hf/{save_splits(tmp_path / 'pets')}"
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "4", "--batch-out", "4", "--size", "8", "--json"]
    run("finetune", "--id", name, "--outliers", "digits", *small, "--run", tmp_path / "run")
    capsys.readouterr()
    run("evaluate", tmp_path / "run", "--ood", "digits", "--json")
    assert json.loads(capsys.readouterr().out)["id"] | {"accuracy": 0} == {"name": name, "images": 6, "accuracy": 0}
    assert "Cannot load hf/" in refused(capsys, "evaluate", tmp_path / "run", "--ood", f"hf/{tmp_path}/gone/away")
