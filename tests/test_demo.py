"""The demo, shortened: it must end with its table, and a second call must not compute anything again."""

import pytest

from macs import demo
from macs.data import load


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(demo, "PRETRAIN_EPOCHS", 2)
    monkeypatch.setattr(demo, "FINETUNE_EPOCHS", 1)


def test_the_demo_ends_with_a_table_and_runs_that_are_kept(short, tmp_path):
    first = demo.demo(tmp_path / "demo", progress=False)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("net.safetensors")}
    assert len(written) == 3
    assert first.report.read_text().startswith("<!doctype html>")
    second = demo.demo(tmp_path / "demo", progress=False)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("net.safetensors")} == written
    assert str(first) == str(second)
    for words in ("MSP", "OE", "MaCS", "digits 8, 9", "mean"):
        assert words in str(first)


def test_its_ood_sets_hold_no_training_image():
    train = {image.tobytes() for name, split in (("digits", "train"), ("digits-outliers", "train")) for image in
             load(name, split).pixels[:]}  # fmt: skip
    for name in demo.OOD.values():
        assert not train & {image.tobytes() for image in load(name, "test").pixels[:]}
