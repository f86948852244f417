"""The paper's idea in a few minutes, with no download: digits 0 to 7 are known, everything else is not.

A small WRN is pretrained on digits, then fine-tuned twice from the same weights, with outlier exposure and with MaCS.
The plain classifier is scored as it is (MSP). A report on the network of MaCS is written in the end.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from macs import data, report
from macs.evaluation import Evaluation, evaluate
from macs.evaluation.tables import percent, plain_text
from macs.training import finetune, pretrain, starting_net
from macs.training.recipe import PRETRAINING, Recipe

NET = "wrn-10-1"
PRETRAIN_EPOCHS, FINETUNE_EPOCHS = 15, 10
OOD = {
    "digits 8, 9": "digits-8-9",
    "textures": "digits-textures",
    "faces": "digits-faces",
    "text": "digits-text",
    "scans": "digits-scans",
}


@dataclass(frozen=True)
class DemoResult:
    """One evaluation a method, where the runs are, and the report on MaCS."""

    evaluations: dict[str, Evaluation]
    folder: Path
    report: Path

    def __rich__(self) -> Any:
        table = Table(title="AUROC ↑ in %, digits 0 to 7 against each OOD set", title_justify="left")
        table.add_column("method")
        for name in (*OOD, "mean", "mean FPR95 ↓", "ID accuracy"):
            table.add_column(name, justify="right")
        for method, evaluation in self.evaluations.items():
            cells = [percent(result.full.auroc) for result in evaluation.sets]
            summary = (evaluation.mean("auroc"), evaluation.mean("fpr95"), evaluation.accuracy)
            table.add_row(method, *cells, *(percent(value) for value in summary))
        return table

    def __str__(self) -> str:
        return plain_text(self)


def demo(folder: str | Path = "runs/demo", *, seed: int = 0, progress: bool = True) -> DemoResult:
    """Run it; what is already in the folder is not computed again."""
    folder = Path(folder)
    train, test = data.load("digits", "train"), data.load("digits", "test")
    outliers = data.load("digits-outliers", "train")
    ood = {title: data.load(name, "test") for title, name in OOD.items()}

    pretraining = replace(PRETRAINING, net=NET, dropout=0.0, epochs=PRETRAIN_EPOCHS, batch_in=64, seed=seed)
    start = starting_net(pretraining, classes=len(train.classes))
    pretrain(start, train, recipe=pretraining, run=folder / "msp", resume=True, progress=progress)

    def tuned(method: str) -> nn.Module:
        net = copy.deepcopy(start)
        recipe = Recipe(epochs=FINETUNE_EPOCHS, batch_in=64, batch_out=64, lr=0.01, seed=seed)
        finetune(
            net, train, outliers, method=method, recipe=recipe, run=folder / method, resume=True, progress=progress
        )
        return net

    page = folder / "report.html"
    evaluations = {
        "MSP": evaluate(start, test, ood, progress=progress),
        "OE": evaluate(tuned("oe"), test, ood, progress=progress),
        "MaCS": report.write(page, tuned("macs"), test, ood, run=folder / "macs", progress=progress),
    }
    return DemoResult(evaluations, folder, page)
