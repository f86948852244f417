"""This checkout beside another one: training, scoring and metrics through public names that both have.

python benchmarks/versions.py ../other-checkout

Both compute in float32: what "auto" chooses on a machine may differ between versions.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bench import answer, interleaved, report, seconds, standing

if TYPE_CHECKING:
    from macs.data import ImageSet

HERE = Path(__file__).parents[1]
IMAGES = 256


def training() -> Callable[[], float]:
    """Images per second of OE with WRN-40-2, from the second epoch on."""
    import macs

    known, outliers, _ = sets()
    net = macs.nets.build("wrn-40-2", classes=10)
    recipe = macs.Recipe(epochs=1, dropout=0.0, epoch_size=IMAGES, precision="float32")
    return lambda: (
        2 * IMAGES / seconds(lambda: macs.finetune(net, known, outliers, method="oe", recipe=recipe, progress=False))
    )


def scoring() -> Callable[[], float]:
    """Images per second of a whole evaluation by energy."""
    import macs

    known, _, unknown = sets()
    torch.manual_seed(0)
    net = macs.nets.build("wrn-40-2", classes=10)

    def evaluate() -> None:
        macs.evaluate(net, known, {"noise": unknown}, score="energy", precision="float32", progress=False)

    return lambda: 2 * IMAGES / seconds(evaluate)


def metrics() -> Callable[[], float]:
    """Calls per second of all metrics on 10,000 + 10,000 confidences."""
    import macs

    random = np.random.default_rng(0)
    known, unknown = random.normal(1, 1, 10_000), random.normal(0, 1, 10_000)
    return lambda: 20 / seconds(lambda: [macs.metrics.ood_metrics(known, unknown) for _ in range(20)])


def keep_freed_memory() -> None:
    """Either checkout at its best: the other one may do this by itself."""
    import macs

    getattr(macs, "keep_freed_memory", lambda: None)()


def sets() -> "tuple[ImageSet, ...]":
    import macs

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (3, IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, IMAGES)
    return (
        macs.ImageSet.from_array(pixels[0], labels, [f"class {k}" for k in range(10)], name="known"),
        macs.ImageSet.from_array(pixels[1], name="outliers"),
        macs.ImageSet.from_array(pixels[2], name="unknown"),
    )


CASES = {"training": training, "scoring": scoring, "metrics": metrics}


def compare(other: Path) -> None:
    for name, case in CASES.items():
        trees = {"this checkout": HERE, "the other one": other}
        cases = {title: standing(__file__, name, source=tree / "src") for title, tree in trees.items()}
        found = interleaved(cases, 7)
        ratio = found["this checkout"].median / found["the other one"].median
        unit = "calls/s" if name == "metrics" else "images/s"
        report(f"versions-{name}", f"{name.capitalize()}: {case.__doc__}", found, unit, {"this / the other": ratio})


if __name__ == "__main__":
    if sys.argv[1] in CASES:
        keep_freed_memory()
        warnings.simplefilter("ignore")  # a network that has learned nothing is pointed out every time
        answer(CASES[sys.argv[1]]())
    else:
        compare(Path(sys.argv[1]))
