"""The experiments of docs/paper.md: one small file per training, and the tables that follow from them.

After a reproduction, `keep_trainings` writes what each network says of the test images, for each set (`id` and the OOD
sets): 1 - confidence in half precision if confidences are probabilities, which is exact near 1, and otherwise the
confidences in single precision. JSON under `about` names the training, its recipe, ID accuracy, MCD on
the training images after each epoch, the hash of the weights, and the machine. The repository has such files in
study/paper.
"""

import json
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import check_unpacked
from macs.experiments.cells import save_arrays
from macs.metrics import OODMetrics, ood_metrics
from macs.research.paper_grid import ABLATIONS, FIXED, LAB, MSP, PaperTraining, TableRow
from macs.research.paper_runs import Reproduction
from macs.research.publication import ResultTable, plain
from macs.research.seed_statistics import estimate, paired_difference
from macs.research.study_cells import machine

ROWS = (MSP, *ABLATIONS)
MOST = 2**26  # bytes of a file, unpacked; those of today take 60 kB
COLUMNS = {  # header -> metric, and whether over the near sets
    "AUROC ↑": ("auroc", False),
    "FPR95 ↓": ("fpr95", False),
    "near: AUROC ↑": ("auroc", True),
    "near: FPR95 ↓": ("fpr95", True),
}


@dataclass(frozen=True)
class KeptTraining:
    """What one training's network says of the test images."""

    training: PaperTraining
    about: Mapping[str, Any]
    confidences: Mapping[str, NDArray[np.float64]]

    @cached_property
    def metrics(self) -> dict[str, OODMetrics]:
        """The metrics of each OOD set."""
        known = self.confidences["id"]
        return {name: ood_metrics(known, values) for name, values in self.confidences.items() if name != "id"}

    def mean(self, metric: str, near: bool) -> float:
        """Return the mean of a metric over the far OOD sets, or its value on the near one."""
        apart = LAB.near.get(self.training.id)
        return float(np.mean([values[metric] for name, values in self.metrics.items() if (name == apart) == near]))


def keep_trainings(done: Reproduction) -> None:
    """Write one file per finished training into the folder `trainings` of a reproduction's output."""
    for training, result in done.results.items():
        shares = all(((values >= 0) & (values <= 1)).all() for values in result.confidences.values())
        kept = {name: (1 - v).astype(np.float16) if shares else v for name, v in result.confidences.items()}
        about = {
            "training": asdict(training),
            "recipe": asdict(done.setup.finetuning(training)),
            "accuracy": result.of("test").accuracy,
            "mcd": [round(value, 4) for value in result.mcd],
            "weights": result.weights,
            "made_with": machine(),
        }
        file = done.setup.out / "trainings" / f"{training.name}.npz"
        save_arrays(file, {"about": np.array(json.dumps(about)), **kept})


def kept_training(file: Path) -> KeptTraining:
    """Return the training in a file that `keep_trainings` wrote."""
    try:
        check_unpacked(file, MOST)
        with np.load(file) as saved:
            about = json.loads(str(saved["about"]))
            arrays = {name: saved[name] for name in saved.files if name != "about"}
        values = {name: 1 - v.astype(np.float64) if v.dtype == np.float16 else v for name, v in arrays.items()}
        fields = about["training"]
        settings = tuple((key, value) for key, value in fields["settings"])
        return KeptTraining(PaperTraining(**{**fields, "settings": settings}), about, values)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        raise MacsError(f"{file} is not a training of docs/paper.md; restore it from the repository.") from None


def experiment_tables(folder: Path) -> dict[str, ResultTable]:
    """Return the table of each experiment, a folder of trainings, under `paper-` and its name."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return {
        f"paper-{path.name}": experiment_table([kept_training(f) for f in sorted(path.glob("*.npz"))])
        for path in folders
    }


def experiment_table(kept: Sequence[KeptTraining]) -> ResultTable:
    """Return one row per training, over its seeds, and the difference between MaCS and OE."""
    rows: dict[PaperTraining, dict[int, KeptTraining]] = {}
    for each in sorted(kept, key=lambda each: _order(each.training)):
        rows.setdefault(replace(each.training, seed=0), {})[each.training.seed] = each
    trained = next(each.about for each in kept if each.training.method != "msp")
    recipe, looped = trained["recipe"], any(training.round for training in rows)
    lines = [
        [_title(training, recipe["epochs"] if looped else 0), *_values(list(seeds.values()))]
        for training, seeds in rows.items()
    ]
    for training, seeds in rows.items():
        against = rows.get(replace(training, method="oe", margin=None))
        if training.margin == FIXED and against is not None:
            over = f", 95% interval over {len(seeds)} seeds" if len(seeds) > 1 else ""
            lines.append([f"MaCS − OE{over}", *_gaps(seeds, against)])
    epochs, size = "one epoch" if recipe["epochs"] == 1 else f"{recipe['epochs']} epochs", recipe["epoch_size"]
    per = " per margin" if looped else ""
    header = [f"{epochs}{per} of {size:,} + {size:,}", *COLUMNS, "ID accuracy", "MCD: first, middle, last epoch"]
    return ResultTable(header=header, sections={"": plain(lines)}, align="r")


def _row(training: PaperTraining) -> TableRow:
    return next(row for row in ROWS if (row.method, row.settings) == (training.method, training.settings))


def _order(training: PaperTraining) -> tuple[float, ...]:
    return ROWS.index(_row(training)), training.round, training.margin or 0, training.seed


def _title(training: PaperTraining, epochs: int) -> str:
    """Return the row's title; in the released loop over margins, with the epochs of all its trainings so far."""
    if training.method == MSP.method:
        return "plain classifier"
    title = _row(training).label if training.margin is None else f"MaCS, m = {training.margin:g}"
    return f"{title}, {epochs * (training.round + 1)} epochs" if epochs else title


def _values(kept: Sequence[KeptTraining]) -> list[str]:
    def over_seeds(values: Iterable[float]) -> str:
        value = estimate([100 * value for value in values])
        return f"{value.mean:.2f}" + ("" if math.isnan(value.error) else f" ± {value.error:.2f}")

    columns = [over_seeds(each.mean(metric, near) for each in kept) for metric, near in COLUMNS.values()]
    mcd = np.mean([each.about["mcd"] for each in kept], axis=0)
    shown = ", ".join(f"{mcd[epoch]:.4f}" for epoch in sorted({0, (len(mcd) - 1) // 2, len(mcd) - 1}) if len(mcd))
    return [*columns, over_seeds(each.about["accuracy"] for each in kept), shown or "–"]


def _gaps(ours: Mapping[int, KeptTraining], theirs: Mapping[int, KeptTraining]) -> list[str]:
    """Return the differences in each column, with their intervals over paired seeds."""
    gaps = []
    for metric, near in COLUMNS.values():
        a, b = ({seed: 100 * kept.mean(metric, near) for seed, kept in each.items()} for each in (ours, theirs))
        gap = paired_difference(a, b)
        assert gap is not None, "each seed has both"
        gaps.append(
            f"{gap.mean:+.2f}".replace("-", "−") + ("" if math.isnan(gap.half_width) else f" ± {gap.half_width:.2f}")
        )
    return [*gaps, "", ""]
