"""The demo, shortened: it must end with its table, and a second call must not compute anything again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from macs import demo
from macs.data import ImageSet, load


def every_sixth(name: str, split: str) -> ImageSet:
    images = load(name, split)
    return images.subset(range(0, len(images), 6))


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PRETRAIN_EPOCHS", 1)
        patch.setattr(demo, "FINETUNE_EPOCHS", 1)
        patch.setattr(demo, "OOD", {"digits 8, 9": "digits-8-9", "scans": "digits-scans"})
        patch.setattr("macs.data.load", every_sixth)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(short: None, folder: Path) -> demo.DemoResult:
    return demo.demo(folder, seeds=2, progress=False)


def test_the_demo_ends_with_a_table_and_runs_that_are_kept(first: demo.DemoResult, folder: Path) -> None:
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("net.safetensors")}
    assert len(written) == 6
    assert first.report.read_text().startswith("<!doctype html>")
    second = demo.demo(folder, seeds=2, progress=False)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("net.safetensors")} == written
    assert str(first) == str(second)
    for words in ("MSP", "OE", "MaCS", "digits 8, 9", "mean"):
        assert words in str(first)


def test_the_table_shows_the_mean_over_seeds_and_their_spread(first: demo.DemoResult) -> None:
    one, other = first.evaluations["MSP"]
    shares = 100 * one.accuracy, 100 * other.accuracy
    assert f"{sum(shares) / 2:.2f}±{abs(shares[0] - shares[1]) / 2**0.5:.2f}" in str(first)
    assert "seeds 0, 1" in str(first)
