"""Does the drift test keep its false-alarm rate on real images, and how soon does it notice unknown ones?

    python benchmarks/drift.py choose DATA CHECKPOINT      which bets to make
    python benchmarks/drift.py report DATA CHECKPOINT      how well they do, on images that had no part in the choice

The WRN-40-2 of the checkpoint answers CIFAR-10's test images and those of four unknown sets, with two scores.

Choice: the bets of every candidate meet streams of the first half of CIFAR-10's test images into which Places is mixed.
The candidate with the smallest geometric mean of delays, over scores, shares and runs, is chosen.

Report: delays, with the second half of CIFAR-10's test images and with SVHN, Textures and CIFAR-100. A run splits the
known images at random: one half calibrates, and the stream is drawn from the other, with replacement; part of the
stream is unknown, from the start or after ten hours. False alarms, with all of CIFAR-10's test images, as the guarantee
does not depend on the choice: in 200 hours of 1,000 images each, how many runs raise the alarm? How many if calibration
images and stream are both drawn from all images, which makes them exchangeable exactly? And how many would, if p-values
were taken for independent?
"""

import sys
import warnings
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import macs
from macs.scores import ask_all
from macs.serve.drift import RATE, DriftTest

Confidences = NDArray[np.float32]

SCORES = ("msp", "energy")
CHOICE, REPORTED = ("places365",), ("svhn", "textures", "cifar100")
HOURS, PER_HOUR = 200, 1_000
RUNS, DELAYS, TRIALS = 20, 40, 10  # runs without and with unknown images, and with them for each candidate
RATES = (1e-6, 1e-8)
SHARES, BEFORE = (0.03, 0.1, 0.3, 1.0), (0, 10 * PER_HOUR)
PATIENCE = 50_000  # images after the change, after which a run without an alarm ends
PIECE = 4_096

CANDIDATE_SHARES = ((0.1,), (0.1, 0.5), (0.03, 0.3), (0.03, 0.1, 0.3, 0.8), (0.01, 0.03, 0.1, 0.3, 0.8))
CANDIDATE_LOWEST = (
    (0.05,),
    (0.01, 0.1),
    (0.1, 0.4),
    (0.02, 0.05, 0.1, 0.2),
    (0.005, 0.02, 0.1, 0.4),
    (0.01, 0.05, 0.1, 0.2, 0.4),
)


Bets = tuple[tuple[float, float], ...]


class Alarms(DriftTest):
    """Drift tests with several sets of bets and several rates on one stream, whose ranks are the same for all."""

    candidates: ClassVar[tuple[Bets, ...]] = (DriftTest.bets,)

    def __init__(self, calibration_images: int, rates: tuple[float, ...] = RATES, seed: int = 0) -> None:
        self.bets = tuple(sorted(set().union(*self.candidates)))  # type: ignore[misc]
        super().__init__(calibration_images, seed=seed)
        members = np.array([[bet in candidate for candidate in self.candidates] for bet in self.bets], float)
        self.means, self.rates = members / members.sum(axis=0), np.array(rates)
        self.after = np.full((len(self.candidates), len(rates)), np.inf)  # images until each alarm

    def _bet(self, ranks: NDArray[np.float64]) -> None:
        wealth = self._wealths(ranks)
        raised = (wealth @ self.means)[:, :, None] * self.rates >= 1
        first = np.where(raised.any(axis=0), self.images + 1 + raised.argmax(axis=0), np.inf)
        self.after = np.minimum(self.after, first)
        self._wealth = wealth[-1]
        if np.isfinite(self.after).all():
            self.alarm_after = self.images + len(ranks)  # nothing is left to find


class Naive(Alarms):
    """What would happen if p-values were taken for independent and uniform."""

    def _ranks(self, below: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
        return (below + self._random.random(len(below))) / (1 + self._sizes[0])


class Candidates(Alarms):
    candidates: ClassVar[tuple[Bets, ...]] = tuple(
        tuple(product(shares, lowest)) for shares, lowest in product(CANDIDATE_SHARES, CANDIDATE_LOWEST)
    )


def confidences_of(data: Path, checkpoint: Path, sets: tuple[str, ...]) -> dict[str, dict[str, Confidences]]:
    """The confidences of the sets' test images, by score; one pass per set."""
    net = macs.nets.load(checkpoint, "wrn-40-2", classes=10)
    scores = {name: macs.scores.get(name) for name in SCORES}
    found: dict[str, dict[str, Confidences]] = {name: {} for name in SCORES}
    for name in ("cifar10", *sets):
        answers, _ = ask_all(net, macs.data.load(name, "test", root=data), scores, "float32")
        for score, each in answers.items():
            found[score][name] = each.confidence
    return found


def fed(test: Alarms, calibration: Confidences, stream: Confidences) -> NDArray[np.float64]:
    """The numbers of images until the alarms, by candidate and rate; infinite where none comes."""
    ranked = np.sort(calibration)
    p_values = (1 + np.searchsorted(ranked, stream, side="right")) / (1 + len(ranked))
    for piece in np.split(p_values, np.arange(PIECE, len(p_values), PIECE)):
        test.update(piece)
        if test.alarm:
            break
    return test.after


def halves(known: Confidences, random: np.random.Generator) -> list[Confidences]:
    return np.array_split(random.permutation(known), 2)


def false_alarms(kind: type[Alarms], known: Confidences, exchangeable: bool) -> NDArray[np.int64]:
    """In how many runs of 200 hours of CIFAR-10 images the alarm was raised, by rate."""
    alarms = np.zeros(len(RATES), np.int64)
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        if exchangeable:
            calibration, pool = random.choice(known, len(known) // 2), known
        else:
            calibration, pool = halves(known, random)
        found = fed(kind(len(calibration), seed=seed), calibration, random.choice(pool, HOURS * PER_HOUR))
        alarms += np.isfinite(found[0])
    return alarms


def delays(
    known: Confidences,
    unknown: Confidences,
    share: float,
    before: int = 0,
    runs: int = DELAYS,
    kind: type[Alarms] = Alarms,
) -> NDArray[np.float64]:
    """After how many images the alarms came, counted from the first that may be unknown: run x candidate x rate."""
    found = []
    for seed in range(runs):
        random = np.random.default_rng(seed)
        calibration, pool = halves(known, random)
        stream = random.choice(pool, before + PATIENCE)
        is_unknown = random.random(len(stream)) < share
        is_unknown[:before] = False
        stream[is_unknown] = random.choice(unknown, int(is_unknown.sum()))
        found.append(fed(kind(len(calibration), seed=seed), calibration, stream) - before)
    return np.array(found)


def choose(console: Console, found: dict[str, dict[str, Confidences]]) -> None:
    """The candidates, by the geometric mean of their delays at the service's rate; none counts as all images."""
    times = [
        delays(first_half(sets), sets[name], share, runs=TRIALS, kind=Candidates)[:, :, RATES.index(RATE)]
        for sets in found.values()
        for name in CHOICE
        for share in SHARES
    ]
    means = np.exp(np.log(np.minimum(times, PATIENCE)).mean(axis=(0, 1)))
    table = Table(title=f"{', '.join(CHOICE)}, first half of CIFAR-10: geometric mean of the delays")
    for title in ("images", "shares", "lowest ranks"):
        table.add_column(title, justify="right")
    pairs = list(product(CANDIDATE_SHARES, CANDIDATE_LOWEST))
    for place in np.argsort(means):
        table.add_row(f"{means[place]:,.0f}", *map(str, pairs[place]))
    console.print(table)


def first_half(sets: dict[str, Confidences]) -> Confidences:
    return sets["cifar10"][: len(sets["cifar10"]) // 2]


def second_half(sets: dict[str, Confidences]) -> Confidences:
    return sets["cifar10"][len(sets["cifar10"]) // 2 :]


def report(console: Console, found: dict[str, dict[str, Confidences]]) -> None:
    for score, sets in found.items():
        table = Table(title=f"{score}: runs of {RUNS} with a false alarm in {HOURS} hours, {PER_HOUR:,} images each")
        for title in ("rate", "at most, on average", "other half", "exchangeable", "naive"):
            table.add_column(title, justify="right")
        cases = ((Alarms, False), (Alarms, True), (Naive, False))
        counts = [false_alarms(kind, sets["cifar10"], exchangeable) for kind, exchangeable in cases]
        for place, rate in enumerate(RATES):
            bound = min(1.0, rate * HOURS * PER_HOUR) * RUNS
            table.add_row(f"{rate:g}", f"{bound:.3g}", *(str(count[place]) for count in counts))
        console.print(table)
        table = Table(title=f"{score}: images until the alarm, median of {DELAYS} runs (5% to 95%)")
        for title in ("unknown", *(f"rate {rate:g}, after {before:,}" for rate in RATES for before in BEFORE)):
            table.add_column(title, justify="right")
        for name, share in product(REPORTED, SHARES):
            after = [delays(second_half(sets), sets[name], share, before)[:, 0] for before in BEFORE]
            cells = [spread(each[:, place]) for place in range(len(RATES)) for each in after]
            table.add_row(f"{share:.0%} {name}", *cells)
        console.print(table)


def spread(after: NDArray[np.float64]) -> str:
    """The median and the range of delays; alarms before the change are counted apart."""
    early = int((after <= 0).sum())
    low, middle, high = np.quantile(after[after > 0], [0.05, 0.5, 0.95], method="nearest")
    return f"{middle:,.0f} ({low:,.0f} to {high:,.0f})" + (f", {early} early" if early else "")


def main(task: str, data: Path, checkpoint: Path) -> None:
    warnings.simplefilter("ignore")
    sets, work = {"choose": (CHOICE, choose), "report": (REPORTED, report)}[task]
    work(Console(width=130), confidences_of(data, checkpoint, sets))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
