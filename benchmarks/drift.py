"""Does the drift test keep its false-alarm rate on real images, and how soon does it notice unknown ones?

python benchmarks/drift.py DATA CHECKPOINT [SCORE ...]

The WRN-40-2 of the checkpoint answers CIFAR-10's test images and those of SVHN, once per score. A run splits the
10,000 CIFAR-10 images at random: 5,000 calibrate, and a stream is drawn from the others, with replacement. In 200 hours
of 1,000 images each, how many runs raise the alarm? How many if calibration images and stream are both drawn from
all 10,000, which makes them exchangeable exactly? And how many would, if p-values were taken for independent? Then part
of the stream is SVHN, from the start or after ten hours: after how many images does the alarm come?
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import macs
from macs.serve.drift import DriftTest

Confidences = NDArray[np.float32]

CALIBRATION, HOURS, PER_HOUR = 5_000, 200, 1_000
RUNS, DELAYS = 20, 40  # runs without and with SVHN
RATES = (1e-6, 1e-8)
SHARES, BEFORE = (0.03, 0.1, 0.3, 1.0), (0, 10 * PER_HOUR)
PATIENCE = 50_000  # images with SVHN, after which a run without an alarm ends
PIECE = 4_096


class Naive(DriftTest):
    """What would happen if p-values were taken for independent and uniform."""

    def _ranks(self, below: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
        return (below + self._random.random(len(below))) / (1 + self._sizes[0])


def confidences_of(score: str, data: Path, checkpoint: Path) -> dict[str, Confidences]:
    """The confidences of CIFAR-10's test images and of SVHN's."""
    sets = {name: macs.data.load(name, "test", root=data) for name in ("cifar10", "svhn")}
    detector = macs.Detector(macs.nets.load(checkpoint, "wrn-40-2", classes=10), score)
    if detector.score.needs("training images"):
        detector = detector.fit(macs.data.load("cifar10", "train", root=data))
    detector = detector.calibrate(sets["cifar10"].subset(np.arange(200)))  # only so that it answers
    return {name: detector.predict(images).confidences for name, images in sets.items()}


def alarm_after(test: DriftTest, calibration: Confidences, stream: Confidences) -> int | None:
    """The number of images until the alarm; None if it does not come."""
    ranked = np.sort(calibration)
    p_values = (1 + np.searchsorted(ranked, stream, side="right")) / (1 + len(ranked))
    for piece in np.split(p_values, np.arange(PIECE, len(p_values), PIECE)):
        test.update(piece)
        if test.alarm:
            break
    return test.alarm_after


def halves(known: Confidences, random: np.random.Generator) -> list[Confidences]:
    return np.split(random.permutation(known), [CALIBRATION])


def false_alarms(kind: type[DriftTest], known: Confidences, rate: float, exchangeable: bool) -> int:
    """In how many runs of 200 hours of CIFAR-10 images the alarm was raised."""
    alarms = 0
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        if exchangeable:
            calibration, pool = random.choice(known, CALIBRATION), known
        else:
            calibration, pool = halves(known, random)
        test = kind(CALIBRATION, false_alarm_rate=rate, seed=seed)
        alarms += alarm_after(test, calibration, random.choice(pool, HOURS * PER_HOUR)) is not None
    return alarms


def delays(known: Confidences, unknown: Confidences, rate: float, share: float, before: int) -> list[int | None]:
    """After how many images the alarm came, counted from the first that may be SVHN's."""
    found: list[int | None] = []
    for seed in range(DELAYS):
        random = np.random.default_rng(seed)
        calibration, pool = halves(known, random)
        stream = random.choice(pool, before + PATIENCE)
        is_unknown = random.random(len(stream)) < share
        is_unknown[:before] = False
        stream[is_unknown] = random.choice(unknown, int(is_unknown.sum()))
        after = alarm_after(DriftTest(CALIBRATION, false_alarm_rate=rate, seed=seed), calibration, stream)
        found.append(None if after is None else after - before)
    return found


def main(data: Path, checkpoint: Path, *scores: str) -> None:
    warnings.simplefilter("ignore")
    console = Console(width=120)
    for score in scores or ("msp", "energy"):
        found = confidences_of(score, data, checkpoint)
        known, unknown = found["cifar10"], found["svhn"]
        table = Table(title=f"{score}: runs of {RUNS} with a false alarm in {HOURS} hours, {PER_HOUR:,} images each")
        for title in ("rate", "at most, on average", "other half", "exchangeable", "naive"):
            table.add_column(title, justify="right")
        for rate in RATES:
            bound = min(1.0, rate * HOURS * PER_HOUR) * RUNS
            cases = ((DriftTest, False), (DriftTest, True), (Naive, False))
            counts = [false_alarms(kind, known, rate, exchangeable) for kind, exchangeable in cases]
            table.add_row(f"{rate:g}", f"{bound:.3g}", *map(str, counts))
        console.print(table)
        table = Table(title=f"{score}: images until the alarm, median of {DELAYS} runs (5% to 95%)")
        for title in ("SVHN", *(f"rate {rate:g}, after {before:,}" for rate in RATES for before in BEFORE)):
            table.add_column(title, justify="right")
        for share in SHARES:
            cells = []
            for rate in RATES:
                for before in BEFORE:
                    after = delays(known, unknown, rate, share, before)
                    early = sum(each is not None and each <= 0 for each in after)
                    times = [np.inf if each is None else each for each in after if each is None or each > 0]
                    low, middle, high = np.quantile(times, [0.05, 0.5, 0.95], method="nearest")
                    cells.append(f"{middle:,.0f} ({low:,.0f} to {high:,.0f})" + (f", {early} early" if early else ""))
            table.add_row(f"{share:.0%}", *cells)
        console.print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
