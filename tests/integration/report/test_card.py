"""The model card that `macs report --card` writes: what the run recorded, what was measured, and what is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import macs
from command import run
from macs.report.card import model_card
from macs.training.runs import RunFolder
from tiny import noise, stripes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "run"
    recipe = macs.Recipe(epochs=1, batch_in=16, batch_out=16, lr=0.02, seed=7, precision="float32")
    net = macs.nets.build("wrn-10-1", classes=3)
    macs.finetune(net, stripes(48, 1), noise(40, 2), method="oe", recipe=recipe, run=folder, progress=False)
    return folder


def cells(card: str, row: str) -> list[str]:
    (line,) = [line for line in card.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_it_states_the_training_and_the_numbers(trained: Path) -> None:
    net = macs.nets.load(trained, "wrn-10-1", classes=3)
    test, unknown = stripes(30, 3), noise(20, 4)
    evaluation = macs.evaluate(net, test, {"noise|y": unknown}, progress=False)
    card = model_card(RunFolder(trained).spec, evaluation)
    assert cells(card, "method")[0].startswith("oe, ") and cells(card, "epochs, learning rate, seed") == ["1, 0.02, 7"]
    assert f"Accuracy on 30 images of stripes: {100 * evaluation.accuracy:.2f} %" in card
    shown = [metric for metric in macs.metrics.available() if metric.shown]
    numbers = [f"{100 * evaluation.sets[0].full[metric.name]:.2f}" for metric in shown]
    assert cells(card, r"noise\|y")[-len(numbers) - 1 :] == ["20", *numbers]
    assert all(metric.convention in card for metric in shown)
    assert RunFolder(trained).spec.train.fingerprint in card and card.count("*to be written*") >= 5
    assert len(re.findall("^### ", card, flags=re.MULTILINE)) == 2  # training images and outliers


def test_the_catalogue_fills_in_what_it_knows(trained: Path) -> None:
    spec = RunFolder(trained).spec
    evaluation = macs.evaluate(
        macs.nets.load(trained, "wrn-10-1", classes=3), stripes(30, 3), {"noise": noise(20, 4)}, progress=False
    )
    named = replace(spec, train=replace(spec.train, source="cifar10", split="train"))
    card = model_card(named, evaluation)
    from macs.data.catalog import catalog

    assert catalog["cifar10"].licence in card and catalog["cifar10"].home in card


def test_the_command_writes_it_beside_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    training = (
        "--id digits --net wrn-10-1 --epochs 1 --epoch-size 64 --batch-in 32 --precision float32 --run runs/plain"
    )
    run("pretrain", *training.split())
    capsys.readouterr()
    run("report", "runs/plain", "--ood", "digits-8-9", "--card", "card.md", "--json")
    captured = capsys.readouterr()
    auroc = json.loads(captured.out)["mean"]["full"]["auroc"]
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert f"{100 * auroc:.2f}" in cells(card, "digits-8-9") and "card.md" in captured.err
    assert "### Outliers" not in card and "Unknown" not in card.splitlines()[0]
