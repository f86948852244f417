"""Known against unknown confidences as lines of text, for a terminal.

photos/test     ▁▁▁▂▃▅▇█   866 images
photos/unknown  ▅█▇▅▃▁▁    600 images
                4.1   12
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 48
BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*%#"  # for a terminal that cannot show blocks
AXIS = "confidence"
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
        return self.drawn()

    def drawn(self, width: int = 120, blocks: str = BLOCKS) -> str:
        """Draw one line per set, or two where one does not fit into the width; a narrow window gets fewer bars."""
        from macs.evaluation.tables import short_names

        names = short_names(list(self.counts), LONGEST)
        column = max(map(len, names))
        sizes = [f"{sum(counts):,} images" for counts in self.counts.values()]
        low, high = f"{self.low:.3g}", f"{self.high:.3g}"
        if column + BINS + 4 + max(map(len, [*sizes, AXIS])) <= width:
            bars = [bar(counts, blocks) for counts in self.counts.values()]
            lines = [f"{n:<{column}}  {b}  {size}" for n, b, size in zip(names, bars, sizes, strict=True)]
            return "\n".join([*lines, f"{'':<{column}}  {low}{high:>{BINS - len(low)}}  {AXIS}"])
        together = next((each for each in (1, 2, 3, 4) if BINS // each <= width), 4)
        lines = []
        for name, size, counts in zip(names, sizes, self.counts.values(), strict=True):
            joined = [sum(counts[i : i + together]) for i in range(0, BINS, together)]
            lines += [f"{name}, {size}", bar(joined, blocks)]
        return "\n".join([*lines, f"{low}{high:>{BINS // together - len(low)}}", AXIS])


def bar(counts: Sequence[int], blocks: str = BLOCKS) -> str:
    """Return one block per bin, as high as its share of the largest bin; a bin with any image is never empty."""
    most = max(counts)
    return "".join(blocks[0 if not count else max(1, round(8 * count / most))] for count in counts)
