"""Known against unknown confidences as lines of text, for a terminal.

photos/test     ▁▁▁▂▃▅▇█   866 images
photos/unknown  ▅█▇▅▃▁▁    600 images
                4.1   12
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 48
BLOCKS = " ▁▂▃▄▅▆▇█"
OUTSIDE = 0.5  # percent of all confidences beyond each end of the axis, which are drawn at that end
LONGEST = 28  # letters of a set's name


@dataclass(frozen=True)
class Histogram:
    """How many images of each set fall into each of BINS equal parts of an axis; the first set is the known one."""

    low: float
    high: float
    counts: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, known: str, conf_in: NDArray[np.float32], conf_out: Mapping[str, NDArray[np.float32]]) -> "Histogram":
        """Count confidences; an unknown set that is called like the known one gets a name of its own."""
        sets = {known: conf_in} | {
            (f"{name} (unknown)" if name == known else name): conf_out[name] for name in conf_out
        }
        every = np.concatenate([values.astype(np.float64) for values in sets.values()])
        low, high = map(float, np.percentile(every, [OUTSIDE, 100 - OUTSIDE]))
        if high <= low:
            low, high = low - 0.5, high + 0.5
        counts = {
            name: tuple(np.histogram(np.clip(values.astype(np.float64), low, high), BINS, (low, high))[0].tolist())
            for name, values in sets.items()
        }
        return cls(low, high, counts)

    def __str__(self) -> str:
        from macs.evaluation.tables import short_names

        names = short_names(list(self.counts), LONGEST)
        width = max(map(len, names))
        lines = [
            f"{name:<{width}}  {bar(counts)}  {sum(counts):,} images"
            for name, counts in zip(names, self.counts.values(), strict=True)
        ]
        low, high = f"{self.low:.3g}", f"{self.high:.3g}"
        axis = f"{'':<{width}}  {low}{high:>{BINS - len(low)}}  confidence"
        return "\n".join([*lines, axis])


def bar(counts: tuple[int, ...]) -> str:
    """Return one block per bin, as high as its share of the largest bin; a bin with any image is never empty."""
    most = max(counts)
    return "".join(BLOCKS[0 if not count else max(1, round(8 * count / most))] for count in counts)
