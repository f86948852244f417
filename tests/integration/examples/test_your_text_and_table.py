"""The examples of texts and of tables, run as they stand, with fewer seeds and splits."""

import runpy
from pathlib import Path

import httpx
import numpy as np
import pytest

import macs
from repository import ROOT
from running import serving

pytestmark = pytest.mark.docs


def test_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "your_text.py"))
    assert "def" not in example["prose"]("Return x.\n>>> def f(): pass\n")
    results = example["main"]([0], tmp_path / "texts.onnx")
    assert [*results] == ["without outliers", "with outliers"]
    for own in results.values():
        assert {*own} == {*example["SCORES"]} and own["energy"][-1][0] > 85  # the mean AUROC
        np.testing.assert_allclose(own["msp"][-1], np.mean(own["msp"][:-1], axis=0))
    printed = capsys.readouterr().out
    count = printed.split("The ONNX file gives ")[1].split(" of ")
    assert count[0] == count[1].split(" ")[0]
    assert "   unknown  p = " in printed and "    signal  p = " in printed
    logits = np.random.default_rng(0).normal(0, 2, (60, 8)).round(3)
    verdicts = macs.FeatureRuntime(tmp_path / "texts.onnx").predict(logits=logits)
    with serving(tmp_path / "texts.onnx") as service:
        answer = httpx.post(f"{service.url}/v1/predict", json={"logits": logits.tolist()}, timeout=60).json()
    assert [row["is_ood"] for row in answer["rows"]] == verdicts.is_ood.tolist()
    assert 0 < verdicts.is_ood.mean() < 1


def test_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "your_table.py"))
    tables = {"iris": example["load_iris"]}
    monkeypatch.setitem(example["main"].__globals__, "TABLES", tables)
    example["main"](1, 3)
    printed = capsys.readouterr().out
    assert "mahalanobis" in printed and "energy + outliers" in printed and "over 3 splits" in printed
