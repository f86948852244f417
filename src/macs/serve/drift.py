"""Drift: are the images that arrive still like those that calibrated the detector? A test with a false-alarm rate.

**Ranks.** All p-values of a detector share one calibration set, and its luck: if that came out a little too easy, every
new image looks a little too hard, for ever, and a test that took p-values for independent would raise a false alarm
sooner or later. So an image is ranked among the n calibration images *and* all images before it, ties broken by chance:

    u_t = (#{i : c_i <= c(x_t)} + #{s < t : p_s < p_t} + U_t (1 + #{s < t : p_s = p_t})) / (n + t),    U_t uniform.

If calibration images and stream are exchangeable and no two confidences are equal, the ranks u_1, u_2, ... are
independent and uniform (Vovk et al.). Where confidences are equal, p-values count all equal ones as below, so that u_t
can only be larger than such a uniform rank. With one threshold per class an image ranks among those predicted as its
class, and all of this still holds.

**Bets.** If a share a of the images were to fall among the lowest q of ranks, the likelihood ratio against uniform
ranks would be

    f(u) = (1 - a) + a [u <= q] / q,

which has mean 1 for a uniform u and never rises with u. Nobody knows a and q, so K pairs of them bet side by side; nor
does anybody know when the change comes, so each pair bets another 1 on every image (Shiryaev-Roberts):

    R_t = (R_(t-1) + 1) f(u_t),   R_0 = 0,      evidence_t = rate * (mean of R_t over the K),      alarm: evidence >= 1.

**Guarantee.** For independent uniform ranks, R_t - t is a martingale. Hence E[evidence_t] = rate * t; by Doob's
inequality, and by optional stopping,

    P(false alarm among the first T images) <= rate * T,        E[images until a false alarm] >= 1 / rate,

for every T, every n, every network and score. R_t never rises with a rank, so that larger ranks only make false alarms
rarer. The probability is over calibration sets as well as streams. Nothing is promised for images that depend on each
other.

Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, 2005 (ranks, conformal test martingales).
Shin, Ramdas, Rinaldo: E-detectors, New England Journal of Statistics in Data Science 2024 (sums over starting times).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.core.settings import Span

RATE = 1e-8  # false alarms per image: at one image per second, one in three years
SHARES = (0.03, 0.1, 0.3, 0.8)  # a
LOWEST = (0.01, 0.05, 0.1, 0.2, 0.4)  # q
CHUNK = 64  # images that are computed together; products of this many bets do not overflow
EARLIER = np.tril(np.ones((CHUNK, CHUNK), bool), -1)  # [t, s]: whether s came before t


class DriftTest:
    """Bets against the exchangeability of a stream and its calibration images, until the evidence raises the alarm.

    `calibration_images` is how many the p-values rank among: one number, or one per class (`Calibration.ranked`). The
    alarm ends the test; it stays until a new one is made.
    """

    bets: ClassVar = tuple(product(SHARES, LOWEST))  # a and q of each; benchmarks/drift.py shows how they were chosen

    def __init__(
        self, calibration_images: int | Sequence[int], *, false_alarm_rate: float = RATE, seed: int = 0
    ) -> None:
        sizes = [calibration_images] if isinstance(calibration_images, int) else list(calibration_images)
        if not sizes or min(sizes) < 0 or not sum(sizes):
            raise MacsError("A drift test needs a detector that kept its calibration confidences; calibrate it again.")
        self.false_alarm_rate = Span(0, 1, open="both").hold("The false-alarm rate per image", false_alarm_rate)
        self.images = 0
        self.evidence = 0.0  # at 1 the alarm is raised
        self.alarm_after: int | None = None  # images
        self._sizes = sizes  # n of each group
        self._seen = [np.zeros(size + 1, np.int64) for size in sizes]  # earlier images per group and p-value
        self._wealth = np.zeros(len(self.bets))  # R
        self._random = np.random.default_rng(seed)  # U

    @property
    def alarm(self) -> bool:
        return self.alarm_after is not None

    def update(self, p_values: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Add further images in the order in which they came.

        `labels` are the predicted classes, which matter only where there is one threshold per class.
        """
        p = np.asarray(p_values, np.float64).reshape(-1)
        groups = self._groups(labels, len(p))
        places = p * (1 + np.array(self._sizes)[groups])  # 1 + the number of calibration images at or below it
        below = np.rint(places).astype(np.int64) - 1 if np.isfinite(places).all() else np.full(len(p), -1)
        if (below < 0).any() or (p > 1).any() or (abs(places - 1 - below) > 0.01).any():
            raise MacsError(f"These are not p-values among {sum(self._sizes):,} calibration images.")
        for start in range(0, len(p), CHUNK):
            chunk = slice(start, start + CHUNK)
            if not self.alarm:
                self._bet(self._ranks(below[chunk], groups[chunk]))
            self.images += len(p[chunk])

    def state(self) -> dict[str, Any]:
        """The values that a log line or a metric reports."""
        return {
            "alarm": self.alarm,
            "alarm_after": self.alarm_after,
            "evidence": self.evidence,
            "images": self.images,
            "false_alarm_rate": self.false_alarm_rate,
            "calibration_images": sum(self._sizes),
        }

    def _groups(self, labels: ArrayLike | None, count: int) -> NDArray[np.int64]:
        if len(self._sizes) == 1:
            return np.zeros(count, np.int64)
        if labels is None:
            raise MacsError("This detector has one threshold per class; a drift test needs the predicted classes too.")
        groups = np.asarray(labels, np.int64).reshape(-1)
        if len(groups) != count or (count and not 0 <= groups.min() <= groups.max() < len(self._sizes)):
            raise MacsError(f"There must be one class per p-value, from 0 to {len(self._sizes) - 1}.")
        return groups

    def _ranks(self, below: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
        """u of each image; `below` is the number of calibration images that are no more confident."""
        ranks, chance = np.empty(len(below)), self._random.random(len(below))
        for group in np.unique(groups):
            members = groups == group
            places, seen = below[members], self._seen[group]
            before, count = seen.cumsum(), len(places)
            in_chunk = EARLIER[:count, :count]
            lower = before[places] - seen[places] + (in_chunk & (places < places[:, None])).sum(axis=1)
            equal = seen[places] + (in_chunk & (places == places[:, None])).sum(axis=1)
            total = self._sizes[group] + before[-1] + np.arange(1, count + 1)
            ranks[members] = (places + lower + chance[members] * (1 + equal)) / total
            np.add.at(seen, places, 1)
        return ranks

    def _wealths(self, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
        """R after each image, unrolled with P_t = f(u_1) ... f(u_t): R_t = P_t (R_0 + 1/P_0 + ... + 1/P_(t-1))."""
        a, q = np.array(self.bets).T
        odds = (1 - a) + a * (ranks[:, None] <= q) / q
        product_until = odds.cumprod(axis=0)
        staked = (odds / product_until).cumsum(axis=0)  # 1 / P_(t-1) = f(u_t) / P_t
        wealth: NDArray[np.float64] = product_until * (self._wealth + staked)
        return wealth

    def _bet(self, ranks: NDArray[np.float64]) -> None:
        wealth = self._wealths(ranks)
        evidence = self.false_alarm_rate * wealth.mean(axis=1)
        last = len(ranks) - 1
        if (evidence >= 1).any():
            last = int(np.argmax(evidence >= 1))
            self.alarm_after = self.images + last + 1
        self.evidence, self._wealth = float(evidence[last]), wealth[last]
