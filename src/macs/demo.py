"""The paper's idea in a minute, without a download: the digits 0 to 7 are known, everything else is unknown.

For each seed, a small WRN is pretrained on digits, then fine-tuned twice from the same weights: with outlier exposure
and with MaCS. The plain classifier is measured too (MSP). The report is about the MaCS network of the first seed.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from torch import nn

from macs import data, report
from macs.core.errors import MacsError
from macs.evaluation import Evaluation, evaluate
from macs.evaluation.tables import percent, plain_text
from macs.metrics import deviation
from macs.training import PRETRAINING, Recipe, finetune, pretrain, starting_net

NET = "wrn-10-1"
PRETRAIN_EPOCHS, FINETUNE_EPOCHS = 12, 5
OOD = {
    "digits 8, 9": "digits-8-9",
    "textures": "digits-textures",
    "faces": "digits-faces",
    "text": "digits-text",
    "scans": "digits-scans",
}


@dataclass(frozen=True)
class DemoResult:
    """One evaluation per method and seed, where the runs are, and the report on MaCS."""

    seeds: tuple[int, ...]
    evaluations: dict[str, list[Evaluation]]
    folder: Path
    report: Path

    def as_dict(self) -> dict[str, Any]:
        methods = {method: [run.as_dict() for run in runs] for method, runs in self.evaluations.items()}
        return {"seeds": list(self.seeds), "methods": methods}

    def __rich__(self) -> Any:
        table = Table(title="AUROC ↑ in %, digits 0 to 7 against each OOD set", title_justify="left")
        table.add_column("method")
        for name in (*OOD, "mean", "ID lost at\n95% of OOD\ncaught ↓", "ID\naccuracy"):
            table.add_column(name, justify="right", no_wrap=True)
        for method, runs in self.evaluations.items():
            sets = [[run.sets[index].full.auroc for run in runs] for index in range(len(OOD))]
            summary = [[run.mean("auroc") for run in runs], [run.mean("fpr95") for run in runs]]
            cells = [*sets, *summary, [run.accuracy for run in runs]]
            table.add_row(method, *map(with_spread, cells))
        return Group(table, self.note)

    @property
    def note(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        if len(self.seeds) == 1:
            return f"One training seed ({seeds}); other seeds and other machines give other numbers."
        return f"Mean ± standard deviation over the training seeds {seeds}; other machines give other numbers."

    def __str__(self) -> str:
        return plain_text(self)


def with_spread(shares: Sequence[float]) -> str:
    """Return the mean in percent and, for several seeds, their standard deviation."""
    mean = percent(float(np.mean(shares)))
    return mean if len(shares) == 1 else f"{mean}±{percent(deviation(shares))}"


def demo(folder: str | Path = "runs/demo", *, seeds: int = 1, progress: bool = True) -> DemoResult:
    """Run the demo with the training seeds 0, 1, ...; trainings that are already in the folder are not done again."""
    if seeds < 1:
        raise MacsError("The demo needs at least one training seed.")
    folder = Path(folder)
    test = data.load("digits", "test")
    ood = {title: data.load(name, "test") for title, name in OOD.items()}
    page = folder / "report.html"
    evaluations: dict[str, list[Evaluation]] = {"MSP": [], "OE": [], "MaCS": []}
    for seed in range(seeds):
        seed_folder = folder / f"seed-{seed}"
        plain, tuned = trained(seed_folder, seed, progress)
        macs_net = tuned("macs")
        evaluations["MSP"].append(evaluate(plain, test, ood, progress=progress))
        evaluations["OE"].append(evaluate(tuned("oe"), test, ood, progress=progress))
        evaluations["MaCS"].append(
            report.write(page, macs_net, test, ood, run=seed_folder / "macs", progress=progress)
            if seed == 0
            else evaluate(macs_net, test, ood, progress=progress)
        )
    return DemoResult(tuple(range(seeds)), evaluations, folder, page)


def trained(folder: Path, seed: int, progress: bool) -> tuple[nn.Module, Callable[[str], nn.Module]]:
    """Return the plain classifier of a seed, and a function that fine-tunes a copy of it with a method."""
    train, outliers = data.load("digits", "train"), data.load("digits-outliers", "train")
    pretraining = replace(PRETRAINING, dropout=0.0, epochs=PRETRAIN_EPOCHS, batch_in=64, seed=seed)
    start = starting_net(NET, classes=len(train.classes), dropout=0.0, seed=seed)
    pretrain(start, train, recipe=pretraining, run=folder / "msp", resume=True, progress=progress)

    def tuned(method: str) -> nn.Module:
        net = copy.deepcopy(start)
        recipe = Recipe(epochs=FINETUNE_EPOCHS, batch_in=64, batch_out=64, lr=0.01, seed=seed)
        finetune(
            net, train, outliers, method=method, recipe=recipe, run=folder / method, resume=True, progress=progress
        )
        return net

    return start, tuned
