"""A text classifier that says "I do not know": texts -> features -> a small network -> verdicts.

    python examples/your_text.py

The texts are docstrings of installed packages, without code, so nothing is downloaded. Eight parts of scipy are the
classes. Unknown are other parts of scipy, and numpy, torch and Python's own library; docstrings of scikit-learn are the
outliers to train with. Features are TF-IDF in 256 dimensions (LSA, fitted to training texts and outliers), and the
network is an MLP with one hidden layer.

It prints AUROC and FPR95 of several scores, without outliers and after `macs.finetune` with them, then the verdicts of
a calibrated detector on sentences that it has never seen. `texts.onnx`, the exported detector, gives the same verdicts.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from torch import nn

import macs

KNOWN = ("stats", "signal", "linalg", "optimize", "special", "sparse", "fft", "interpolate")
UNKNOWN = {
    "other scipy": [
        f"scipy.{part}" for part in ("ndimage", "spatial", "integrate", "io", "cluster.vq", "cluster.hierarchy")
    ],
    "numpy": ["numpy", "numpy.random", "numpy.ma", "numpy.polynomial", "numpy.linalg"],
    "torch": ["torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.distributions"],
    "Python": ["asyncio", "email", "http", "json", "logging", "os", "pathlib", "threading", "unittest", "zipfile"],
}
OUTLIERS = ["sklearn"]
SCORES = ("msp", "maxlogit", "energy", "gen", "knn", "vim", "mahalanobis", "relative-mahalanobis")
WORDS = re.compile(r"[A-Za-z]{3,}")
NAMES = re.compile(r"\b(scipy|numpy|torch|sklearn|scikit|python|pytorch|ndarray|np|array_like)\b", re.IGNORECASE)
FEWEST = 20  # words in a text


def modules(name: str) -> Iterator[object]:
    """Yield a package and, for scikit-learn, its subpackages."""
    package = importlib.import_module(name)
    yield package
    if name in OUTLIERS:
        for entry in pkgutil.iter_modules(package.__path__):
            if not entry.name.startswith("_") and entry.name not in ("conftest", "experimental"):
                yield importlib.import_module(f"{name}.{entry.name}")


def prose(docstring: str) -> str:
    """A docstring without code and without names that give its package away."""
    lines = [line for line in docstring.splitlines() if not line.strip().startswith((">>>", "...", ".."))]
    return NAMES.sub(" ", " ".join(lines))


def docstrings(*names: str) -> list[str]:
    """The texts of the public functions, classes and methods of packages, each once, in a fixed order."""
    found: dict[str, None] = {}
    for name in names:
        for module in modules(name):
            for key in sorted(vars(module)):
                entry = getattr(module, key)
                if key.startswith("_") or inspect.ismodule(entry):
                    continue
                members = [entry]
                if inspect.isclass(entry):
                    members += [value for own, value in sorted(vars(entry).items()) if not own.startswith("_")]
                for member in members:
                    text = prose(inspect.getdoc(member) or "")
                    if len(WORDS.findall(text)) >= FEWEST:
                        found[text] = None
    return list(found)


class Texts(NamedTuple):
    """All texts: train, calibration and test of the known classes, outliers, and unknown ones by name."""

    known: list[list[str]]
    labels: list[NDArray[np.int64]]
    outliers: list[str]
    unknown: dict[str, list[str]]


def collected() -> Texts:
    """Collect the texts; what occurs in several places stays where it occurs first, so no text is in two sets."""
    seen: set[str] = set()

    def fresh(texts: list[str]) -> list[str]:
        new = [text for text in texts if text not in seen]
        seen.update(new)
        return new

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names, which `vars` lists too
        by_class = [fresh(docstrings(f"scipy.{part}")) for part in KNOWN]
        unknown = {name: fresh(docstrings(*packages)) for name, packages in UNKNOWN.items()}
        outliers = fresh(docstrings(*OUTLIERS))
    texts = [text for own in by_class for text in own]
    labels = np.repeat(np.arange(len(KNOWN)), [len(own) for own in by_class])
    order = np.random.default_rng(0).permutation(len(texts))
    parts = np.split(order, [len(order) // 2, 3 * len(order) // 4])
    return Texts([[texts[i] for i in part] for part in parts], [labels[part] for part in parts], outliers, unknown)


def outputs_of(net: nn.Module, rows: macs.FeatureSet) -> dict[str, NDArray[np.float32]]:
    """The arrays that a FeatureDetector takes."""
    with torch.inference_mode():
        return {"logits": net(torch.from_numpy(rows.pixels[:])).numpy()}


def main(
    seeds: Sequence[int] = (0, 1, 2), exported: Path = Path("texts.onnx")
) -> dict[str, dict[str, NDArray[np.float64]]]:
    texts = collected()
    print(f"Known texts {[len(part) for part in texts.known]}, outliers {len(texts.outliers)},", end=" ")
    print("unknown", {name: len(own) for name, own in texts.unknown.items()})
    embed = make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2), TruncatedSVD(256, random_state=0))
    embed.fit(texts.known[0] + texts.outliers)

    def rows(name: str, own: list[str], labels: NDArray[np.int64] | None = None) -> macs.FeatureSet:
        classes = () if labels is None else KNOWN
        return macs.FeatureSet.from_array(16 * embed.transform(own), labels, classes, name=name)  # entries of about 1

    train, calibration, test = map(rows, ("train", "calibration", "test"), texts.known, texts.labels)
    outliers = rows("scikit-learn", texts.outliers)
    unknown = {name: rows(name, own) for name, own in texts.unknown.items()}

    results: dict[str, dict[str, list[list[float]]]] = {}
    for seed in seeds:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(train.size, 64), nn.ReLU(), nn.Linear(64, len(KNOWN)))
        recipe = macs.Recipe(epochs=30, lr=0.05, batch_in=64, batch_out=0, seed=seed)
        macs.pretrain(net, train, recipe=recipe, progress=False)
        add(results, "without outliers", net, train, test, unknown)
        recipe = macs.Recipe(epochs=10, lr=0.02, batch_in=64, batch_out=64, margin=0.5, seed=seed)
        macs.finetune(net, train, outliers, method="macs", recipe=recipe, progress=False)
        add(results, "with outliers", net, train, test, unknown)
    means = {name: {row: np.mean(found, 0) for row, found in own.items()} for name, own in results.items()}
    for name, own in means.items():
        print(f"\n{name}, {len(seeds)} seeds: AUROC / FPR95 (ID lost at 95% of OOD caught)")
        print(f"{'':22}" + "".join(f"{column:>16}" for column in (*unknown, "mean")))
        for row, values in own.items():
            print(f"{row:22}" + "".join(f"{a:10.1f} /{b:4.0f}" for a, b in values))

    detector = macs.FeatureDetector("energy", classes=KNOWN)
    held_out, checked = outputs_of(net, calibration), outputs_of(net, test)
    detector.calibrate(held_out, labels=calibration.labels, keep=0.9, check=checked)
    print(f"\n{detector.calibration}")
    sentences = [
        "Design a digital Butterworth filter of a given order and return the coefficients of its transfer function.",
        "Compute the cumulative distribution function of a continuous random variable with shape parameters.",
        "Whisk the eggs with sugar, fold in the flour, and bake the cake for forty minutes until it is golden.",
        "The licensee may distribute copies of the work provided that this notice is retained on every copy of it.",
    ]
    asked = outputs_of(net, rows("sentences", sentences))
    verdicts = detector.predict(asked)
    for sentence, verdict in zip(sentences, verdicts.rows(sentences), strict=True):
        answer = "unknown" if verdict.is_ood else verdict.class_
        print(f"{answer:>10}  p = {verdict.p_value:.3f}  {sentence[:60]}...")
    detector.export(exported)
    everything = [asked, *(outputs_of(net, each) for each in (test, *unknown.values()))]
    pairs = [(detector.predict(each), macs.FeatureRuntime(exported).predict(each)) for each in everything]
    equal = sum(int((one.is_ood == other.is_ood).sum()) for one, other in pairs)
    print(f"The ONNX file gives {equal:,} of {sum(len(one) for one, _ in pairs):,} texts the same verdict.")
    return means


def add(
    results: dict[str, dict[str, list[list[float]]]],
    name: str,
    net: nn.Module,
    train: macs.FeatureSet,
    test: macs.FeatureSet,
    unknown: dict[str, macs.FeatureSet],
) -> None:
    """Add AUROC and FPR95 of every score on every unknown set, and their means, and the accuracy."""
    fitted = macs.scores.fit_all({score: macs.scores.get(score) for score in SCORES}, net, test, train)
    own = results.setdefault(name, {})
    known, _ = macs.scores.ask_all(net, test, fitted.scores)
    asked = [macs.scores.ask_all(net, images, fitted.scores)[0] for images in unknown.values()]
    for score in fitted.scores:
        metrics = [macs.metrics.ood_metrics(known[score].confidence, each[score].confidence) for each in asked]
        values = [[100 * each.auroc, 100 * each.fpr95] for each in metrics]
        own.setdefault(score, []).append([*values, np.mean(values, 0).tolist()])
    accuracy = 100 * float((known["msp"].index == test.labels).mean())
    print(f"{name}: accuracy on test texts {accuracy:.1f}%")


if __name__ == "__main__":
    main(range(int(sys.argv[1])) if len(sys.argv) > 1 else (0, 1, 2))
