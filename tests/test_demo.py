"""The demo, shortened: it must end with its table, and a second call must not compute anything again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from macs import demo
from macs.core.errors import MacsError
from macs.data import load


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PRETRAIN_EPOCHS", 2)
        patch.setattr(demo, "FINETUNE_EPOCHS", 1)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(short: None, folder: Path) -> demo.DemoResult:
    return demo.demo(folder, seeds=(0, 1), progress=False)


def test_the_demo_ends_with_a_table_and_runs_that_are_kept(first: demo.DemoResult, folder: Path) -> None:
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("net.safetensors")}
    assert len(written) == 6
    assert first.report.read_text().startswith("<!doctype html>")
    second = demo.demo(folder, seeds=(0, 1), progress=False)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("net.safetensors")} == written
    assert str(first) == str(second)
    for words in ("MSP", "OE", "MaCS", "digits 8, 9", "mean"):
        assert words in str(first)


def test_the_table_shows_the_mean_over_seeds_and_their_spread(first: demo.DemoResult) -> None:
    one, other = first.evaluations["MSP"]
    shares = 100 * one.accuracy, 100 * other.accuracy
    assert f"{sum(shares) / 2:.2f}±{abs(shares[0] - shares[1]) / 2**0.5:.2f}" in str(first)
    assert "seeds 0, 1" in str(first)


@pytest.mark.parametrize("seeds", [(), (1, 1)])
def test_seeds_are_given_and_given_once(seeds: tuple[Any, ...], tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="at least one seed"):
        demo.demo(tmp_path, seeds=seeds)


def test_its_ood_sets_hold_no_training_image() -> None:
    train = {image.tobytes() for name, split in (("digits", "train"), ("digits-outliers", "train")) for image in
             load(name, split).pixels[:]}  # fmt: skip
    for name in demo.OOD.values():
        assert not train & {image.tobytes() for image in load(name, "test").pixels[:]}
