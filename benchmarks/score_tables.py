"""The tables of docs/score-tables.md: every score on three classifiers, near and far unknown images, with their costs.

python benchmarks/score_tables.py DATA WEIGHTS WORK [CASE ...] [--images N] [--fit N] [--slow N]

It takes about an hour on one core, and WORK keeps what was made. DATA holds the datasets and, in photos/, the
photographs; WEIGHTS a WRN-40-2 for CIFAR-10 (cifar10_wrn_baseline.pt) and timm's EfficientNet-Lite0 for ImageNet
(imagenet_tf_efficientnet_lite0.safetensors). The classifiers are

    plain        the WRN-40-2
    oe           the same after one epoch of Outlier Exposure, 5,000 + 5,000 images in bf16, seed 0
    flowers      the EfficientNet with a new last layer for four of five flowers, 5 epochs; the fifth flower is near,
                 scenes and textures are far, all at equal sharpness

ID images that had no part in the choice of `--score auto` are measured, in float32: at most N of each set, drawn with
seed 0 (--images; 0, the default, is all), by scores fitted to at most N training images (--fit). odin and adascale take
gradients, so they are measured on fewer (--slow). The tables replace those in docs/score-tables.md.
"""

import argparse
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import macs
from cpu_torchvision import make_importable
from macs import data, nets, scores
from macs.core.cache import keeping
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector.score_selection import SUMS, candidate_names, choose, microseconds
from macs.inference import outputs_of
from macs.metrics import OODMetrics, ood_metrics
from macs.scores import Score
from macs.training.recipe import FROM_LIBRARY, Recipe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "score-tables.md"
MODEL = "timm/tf_efficientnet_lite0"
FLOWERS, NEAR_FLOWER = ("daisy", "dandelion", "rose", "sunflower"), "tulip"
CIFAR_SETS = {"near": ("cifar100",), "far": ("svhn", "textures", "places365")}
NEWER = (
    *("adascale-a", "adascale-l", "caref", "fdbd", "nci", "neco", "nnguide", "she"),
    *("normalised-mahalanobis", "normalised-relative-mahalanobis"),
)  # what `--score auto` did not consider before
GRADIENTS = ("odin", "adascale-a", "adascale-l")
TIMED = 256  # images that scores are timed on
PRECISION = "float32"


@dataclass(frozen=True)
class Case:
    """A classifier, the images that its scores are fitted to, held-out images, test images and unknown ones."""

    net: nn.Module
    train: ImageSet
    held_out: ImageSet
    test: ImageSet
    unknown: Mapping[str, Mapping[str, ImageSet]]  # group -> name -> images


@dataclass(frozen=True)
class Line:
    """What one score does for one classifier."""

    metrics: Mapping[str, Mapping[str, float]]  # group -> metric -> mean over its sets
    microseconds: float
    bytes: int

    @property
    def auroc(self) -> float:
        return float(np.mean([values["auroc"] for values in self.metrics.values()]))


def cifar(root: Path, net: nn.Module) -> Case:
    held_out, test = data.load("cifar10", "test", root=root).split(1000, 0)
    unknown = {g: {name: data.load(name, "test", root=root) for name in names} for g, names in CIFAR_SETS.items()}
    return Case(net, data.load("cifar10", "train", root=root), held_out, test, unknown)


def plain(root: Path, weights: Path, work: Path) -> Case:
    return cifar(root, nets.load(weights / "cifar10_wrn_baseline.pt", "wrn-40-2", classes=10))


def with_oe(root: Path, weights: Path, work: Path) -> Case:
    run = work / "oe"
    if not run.exists():
        net = nets.load(weights / "cifar10_wrn_baseline.pt", "wrn-40-2", classes=10, dropout=0)
        recipe = Recipe(epochs=1, epoch_size=5000, lr=0.005, dropout=0, precision="bf16")
        outliers = data.load(str(root / "outliers_train.npy"), labelled=False)
        macs.finetune(net, data.load("cifar10", "train", root=root), outliers, method="oe", recipe=recipe, run=run)
    return cifar(root, nets.load(run))


def flowers(root: Path, weights: Path, work: Path) -> Case:
    """Every third photograph to train on and every second to test on, at equal sharpness."""
    equal = work / "equal"
    if not equal.exists():
        part = work / "part"
        steps = {"flowers/train": 3, "flowers/test": 2, "unknown/scenes": 2, "unknown/textures": 2}
        for folder, step in steps.items():
            for file in sorted((root / "photos" / folder).rglob("*.jpg"))[::step]:
                link = part / file.relative_to(root / "photos")
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(file)
        runpy.run_path(str(ROOT / "examples" / "equal_sharpness.py"))["equalise"](part, [*steps], equal)
    make_importable()
    checkpoint, preparation = weights / "imagenet_tf_efficientnet_lite0.safetensors", nets.usual_preparation(MODEL)

    def photographs(folder: str, kept: tuple[str, ...] = ()) -> ImageSet:
        images = data.load(str(equal / folder), preparation=preparation, labelled=bool(kept))
        if not kept:
            return images
        chosen = np.isin(np.array(images.classes)[images.labels], kept)
        labels = np.array([kept.index(images.classes[label]) for label in images.labels[chosen]])
        return ImageSet.from_array(images.subset(np.flatnonzero(chosen)).pixels[:], labels, list(kept), name=folder)

    net = nets.load(checkpoint, MODEL, classes=len(FLOWERS), preparation=preparation)
    train, (held_out, test) = photographs("flowers/train", FLOWERS), photographs("flowers/test", FLOWERS).split(100, 0)
    recipe = Recipe(**{**vars(FROM_LIBRARY), "batch_out": 0, "freeze": "backbone"})
    macs.finetune(net, train, None, method="msp", recipe=recipe, progress=False)
    far = {name: photographs(f"unknown/{name}") for name in ("scenes", "textures")}
    near = {NEAR_FLOWER: photographs(f"flowers/test/{NEAR_FLOWER}")}
    return Case(net, train, held_out, test, {"near": near, "far": far})


CASES: dict[str, Callable[[Path, Path, Path], Case]] = {"plain": plain, "oe": with_oe, "flowers": flowers}


@dataclass(frozen=True)
class Limits:
    """How many images are used of each set: to measure, to fit scores to, and for scores that take gradients."""

    images: int
    fit: int
    slow: int


def measured(case: Case, limits: Limits) -> tuple[dict[str, Line], dict[str, str], float]:
    """What every score does, why others were left out, and the accuracy."""
    known = scores.know(case.net, case.train, case.held_out, limit=limits.fit, precision=PRECISION)
    small = case.test.size < 100  # gradients with respect to photographs would take hours
    named = scores.get_all(["all", *SUMS, *(GRADIENTS if small else ())], {})
    fitted, left_out = {}, {}
    for name, score in named.items():
        try:
            fitted[name] = score.fit(known)
        except MacsError as error:
            left_out[name] = str(error)
    lines, accuracy = {}, 0.0
    slow = {name: score for name, score in fitted.items() if score.reads == "pixels"}
    quick = {name: score for name, score in fitted.items() if name not in slow}
    for group, limit in ((quick, limits.images), (slow, limits.slow)):
        if not group:
            continue
        answers, failed = scores.ask_all(case.net, drawn(case.test, limit), group, PRECISION)
        left_out |= failed
        if group is quick:
            accuracy = float(np.mean(answers["msp"].index == drawn(case.test, limit).labels))
        unknown = {
            kind: [scores.ask_all(case.net, drawn(images, limit), group, PRECISION)[0] for images in sets.values()]
            for kind, sets in case.unknown.items()
        }
        some = next(outputs_of(case.net, drawn(case.test, TIMED), features=True, precision=PRECISION))
        for name in (name for name in group if name in answers):
            found: dict[str, list[OODMetrics]] = {
                kind: [ood_metrics(answers[name].confidence, on_set[name].confidence) for on_set in sets]
                for kind, sets in unknown.items()
            }
            means = {
                kind: {metric: float(np.mean([each[metric] for each in of_sets])) for metric in ("auroc", "fpr95")}
                for kind, of_sets in found.items()
            }
            lines[name] = Line(means, microseconds(group[name], some), size(group[name]))
    return lines, left_out, accuracy


def drawn(images: ImageSet, limit: int) -> ImageSet:
    """At most `limit` of the images, drawn with seed 0; all if it is 0."""
    return images.split(limit, 0)[0] if 0 < limit < len(images) else images


def size(score: Score) -> int:
    """The bytes of its tensors in a detector's file, which holds each once."""
    return sum(buffer.numel() * buffer.element_size() for buffer in score.buffers())


def chosen(case: Case, names: list[str], limits: Limits) -> str:
    """The choice of `--score auto` among these scores."""
    candidates = scores.get_all(names, {})
    options: dict[str, Any] = {"images": limits.fit, "seed": 0, "precision": PRECISION, "progress": False}
    return choose(case.net, case.train, case.held_out, {}, candidates, **options)[1].score


def table(lines: Mapping[str, Line]) -> list[str]:
    rows = [
        "| score | near: AUROC ↑ | FPR95 ↓ | far: AUROC ↑ | FPR95 ↓ | µs per image | kB in the file |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, line in sorted(lines.items(), key=lambda item: -item[1].auroc):
        numbers = [
            f"{100 * line.metrics[kind][metric]:.1f}" for kind in ("near", "far") for metric in ("auroc", "fpr95")
        ]
        cost = f"{line.microseconds:.1f}" if line.microseconds < 10 else f"{line.microseconds:,.0f}"
        rows.append(f"| `{name}` | {' | '.join(numbers)} | {cost} | {line.bytes / 1000:,.0f} |")
    return rows


def sentence(lines: Mapping[str, Line], choices: Mapping[str, str]) -> str:
    """What `--score auto` chose, and what that is worth here: the mean AUROC of near and far."""
    best = max((name for name in lines if name in candidate_names()), key=lambda name: lines[name].auroc)
    parts = [f"{when} `{name}` ({100 * lines[name].auroc:.1f})" for when, name in choices.items()]
    return (
        f"`--score auto` chose {', '.join(parts)}; the best candidate here is `{best}` "
        f"({100 * lines[best].auroc:.1f}), and `msp` has {100 * lines['msp'].auroc:.1f} (mean AUROC of near and far)."
    )


def replaced(text: str, name: str, lines: list[str]) -> str:
    """The page with the lines between its two comments for `name`."""
    begin, end = f"<!-- {name}: made by benchmarks/score_tables.py -->", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        sys.exit(f"{PAGE} has no place for {name}: it needs the lines {begin} and {end}.")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{rest.partition(end)[2]}"


def main(root: Path, weights: Path, work: Path, wanted: list[str], limits: Limits) -> None:
    os.environ.setdefault("MACS_CACHE", str(work / "cache"))
    for name in wanted or CASES:
        replaced(PAGE.read_text(encoding="utf-8"), name, [])  # a place that is missing is told before the work
    for name in wanted or CASES:
        with keeping(True):
            case = CASES[name](root, weights, work)
            lines, left_out, accuracy = measured(case, limits)
            before = [candidate for candidate in candidate_names() if candidate not in NEWER]
            choices = {"before": chosen(case, before, limits), "now": chosen(case, candidate_names(), limits)}
        out = [*table(lines), "", f"Accuracy {100 * accuracy:.1f}%. {sentence(lines, choices)}"]
        out += [f"Left out: `{score}`. {reason}" for score, reason in left_out.items()]
        (work / f"{name}.json").write_text(
            json.dumps({"accuracy": accuracy, "choices": choices, "lines": {k: vars(v) for k, v in lines.items()}})
        )
        print(name, *out, sep="\n", flush=True)
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), name, out), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "weights", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("cases", nargs="*")
    for name, usual in (("images", 0), ("fit", scores.LIMIT), ("slow", 500)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    main(given.data, given.weights, given.work, given.cases, Limits(given.images, given.fit, given.slow))
