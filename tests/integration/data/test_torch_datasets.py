"""Datasets of torch and torchvision as image sets."""

import json
import sys
from pathlib import Path

import pytest

from command import run
from macs.core.errors import MacsError
from macs.data import DataSpec, load


def test_a_function_of_the_split_is_a_data_name_that_can_be_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_pets.py").write_text(
        "import numpy as np\n"
        "def pets(split):\n"
        "    random = np.random.default_rng(len(split))\n"
        "    return [(random.integers(0, 256, (8, 8, 3), dtype=np.uint8), i % 2) for i in range(6)]\n"
        "number = 5\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    train = load("own_pets:pets", "train", size=8)
    assert (len(train), train.name, train.spec.source, train.spec.split) == (
        6,
        "own_pets:pets",
        "own_pets:pets",
        "train",
    )
    again = DataSpec.from_dict(json.loads(json.dumps(train.spec.as_dict()))).load(preparation=train.preparation)
    assert again.spec == train.spec
    with pytest.raises(MacsError, match="own_pets:number is not a dataset; make it a function of the split"):
        load("own_pets:number")
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "4", "--batch-out", "4", "--size", "8", "--json"]
    run("finetune", "--id", "own_pets:pets", "--outliers", "digits", *small, "--run", tmp_path / "run")
    capsys.readouterr()
    run("evaluate", tmp_path / "run", "--id", "own_pets:pets", "--ood", "digits", "--json")
    assert json.loads(capsys.readouterr().out)["id"]["images"] == 6
