"""Do the promises of p-values and of --fdr hold on real images? And how many unknown images does each rule find?

python benchmarks/false_discoveries.py DATA CHECKPOINT [SCORE ...]

The WRN-40-2 of the checkpoint scores 4,000 of CIFAR-10's test images and 1,600 unknown images of four sets. Then the
test images are split at random again and again: 2,000 calibrate, and the others are new. How many of the new ones have
p-values below 1, 5 and 10%, and does a two-sample Kolmogorov-Smirnov test tell them from the calibration images more
often than it must? In batches of 1,000 images, what share of those called unknown is known, by --fdr and by the
threshold?
"""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import ks_2samp

import macs
from macs.detector.calibration import PValues, conformal_threshold
from macs.predictions import Predictions, highest_discovery

Confidences = NDArray[np.float32]

UNKNOWN = ("svhn", "textures", "places365", "cifar100")
KNOWN, EACH = 4_000, 400  # images of CIFAR-10, and of each unknown set
FITTED = 2_000  # training images that scores are fitted to
CALIBRATION, SPLITS = 2_000, 500
BATCH, SHARES, LEVELS = 1_000, (0.1, 0.5), (0.05, 0.1, 0.2)


def confidences_of(names: Sequence[str], data: Path, checkpoint: Path) -> dict[str, dict[str, Confidences]]:
    """For each score the confidences of the test images and of each unknown set, from one pass over the sets."""
    net = macs.nets.load(checkpoint, "wrn-40-2", classes=10)
    scores = macs.scores.get_all(names, {})
    if any(not score.fitted for score in scores.values()):
        train = macs.data.load("cifar10", "train", root=data)
        known = macs.scores.know(net, train, limit=FITTED, precision="float32")
        scores = {name: score if score.fitted else score.fit(known) for name, score in scores.items()}
    confidences: dict[str, dict[str, Confidences]] = {name: {} for name in scores}
    for title, images in {"known": "cifar10", **{name: name for name in UNKNOWN}}.items():
        drawn, _ = macs.data.load(images, "test", root=data).split(KNOWN if title == "known" else EACH)
        answers, _ = macs.scores.ask_all(net, drawn, scores, "float32")
        for name, answer in answers.items():
            confidences[name][title] = answer.confidence
    return confidences


def p_values(calibration: Confidences, new: Confidences) -> Confidences:
    reference, answers = (Predictions(np.zeros(len(values), np.int64), values) for values in (calibration, new))
    return PValues.of(reference, classes=1, per_class=False)(answers)


def uniformity(known: Confidences) -> str:
    """The share of new ID images below each level, and how often the test rejects at 5%."""
    below, rejected = [], 0
    for seed in range(SPLITS):
        calibration, new = np.split(np.random.default_rng(seed).permutation(known), [CALIBRATION])
        ranks = p_values(calibration, new)
        below.append([np.mean(ranks <= level) for level in (0.01, 0.05, 0.1)])
        rejected += ks_2samp(calibration, new).pvalue <= 0.05
    shares = ", ".join(f"{share:.2%}" for share in np.mean(below, axis=0))
    return f"p <= 1, 5, 10%: {shares} of new ID images; Kolmogorov-Smirnov rejects {rejected / SPLITS:.1%} at 5%"


def batches(known: Confidences, unknown: Confidences, share: float, level: float) -> list[float]:
    """Mean false share and share found, by --fdr at this level and by the threshold that keeps 95%."""
    rows, count = [], round(share * BATCH)
    is_known = np.arange(BATCH) < BATCH - count
    for seed in range(SPLITS):
        random = np.random.default_rng(seed)
        calibration, new = np.split(random.permutation(known), [CALIBRATION])
        batch = np.concatenate([new[: BATCH - count], random.permutation(unknown)[:count]])
        ranks = p_values(calibration, batch)
        row = []
        for called in (ranks <= highest_discovery(ranks, level), batch < conformal_threshold(calibration, 0.95).value):
            row += [float(np.mean(is_known[called])) if called.any() else 0.0, float(np.mean(called[~is_known]))]
        rows.append(row)
    return [float(value) for value in np.mean(rows, axis=0)]


def main(data: Path, checkpoint: Path, *scores: str) -> None:
    warnings.simplefilter("ignore")
    console = Console()
    for score, confidences in confidences_of(scores or ("energy", "knn"), data, checkpoint).items():
        unknown = np.concatenate([confidences[name] for name in UNKNOWN])
        console.print(f"{score}: {uniformity(confidences['known'])}")
        table = Table(title=f"{score}: {SPLITS} batches of {BATCH:,} images; false share of those called, share found")
        for title in ("unknown", "--fdr", "false", "found", "threshold: false", "found"):
            table.add_column(title, justify="right")
        for share in SHARES:
            for level in LEVELS:
                values = batches(confidences["known"], unknown, share, level)
                table.add_row(f"{share:.0%}", f"{level:g}", *(f"{value:.1%}" for value in values))
        console.print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
