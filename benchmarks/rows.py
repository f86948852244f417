"""A million rows of 512 features: macs.FeatureDetector beside the same arithmetic in numpy, and beside peers.

python benchmarks/rows.py [ROWS]

The scores are fitted to 10,000 rows of ten classes. numpy does all that `calibrate` and `predict` have to (predicted
class, confidence, p-value, comparison with the threshold), in batches as large as ours. `predict_features` of
pytorch-ood and `decision_function` of PyOD's KNN, if installed, give confidences alone, for a twentieth of the rows.
All take turns; rates are in rows per second, and memory is what a first prediction takes beyond its rows, verdicts
included. knn has a fiftieth of the rows, since it compares each with all 10,000.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import macs
from bench import interleaved, memory_peak, report, seconds
from cpu_torchvision import make_importable
from macs.detector.rows import BATCH
from macs.scores._statistics import fit_gaussians

Floats = NDArray[np.float32]
Confidences = Callable[[Floats], NDArray[Any]]
WIDTH, CLASSES, FIT, K, REPEATS = 512, 10, 10_000, 50, 3
RANDOM = np.random.default_rng(0)
MEANS = RANDOM.normal(size=(CLASSES, WIDTH)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, FIT)


def around(labels: NDArray[np.int64]) -> Floats:
    """Rows around the mean of their class, as a ReLU leaves them."""
    rows = RANDOM.standard_normal((len(labels), WIDTH), np.float32)
    rows += MEANS[labels]
    return np.maximum(rows, 0, out=rows)


TRAIN = around(LABELS)


def unit(rows: Floats) -> Floats:
    lengths: Floats = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows / lengths


def by_numpy(score: str) -> Confidences:
    """The formula of a score; for energy with the predicted class, as any user of logits needs it."""
    bank = unit(TRAIN)
    centre, whiten, means = (part.numpy() for part in fit_gaussians(torch.from_numpy(TRAIN), torch.from_numpy(LABELS)))

    def energy(rows: Floats) -> Floats:
        logits = rows @ MEANS.T
        logits.argmax(axis=1)
        largest = logits.max(axis=1, keepdims=True)
        return np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]

    def mahalanobis(rows: Floats) -> Floats:
        points = (rows - centre) @ whiten
        both = np.square(points).sum(axis=1, keepdims=True) + np.square(means).sum(axis=1)
        return -(both - 2 * points @ means.T).min(axis=1)

    def knn(rows: Floats) -> Floats:
        kth = np.partition(unit(rows) @ bank.T, -K, axis=1)[:, -K]
        return -np.sqrt(np.maximum(2 - 2 * kth, 0))

    of_batch: Confidences = {"energy": energy, "mahalanobis": mahalanobis, "knn": knn}[score]
    return lambda rows: np.concatenate([of_batch(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)])


def by_peers(score: str) -> dict[str, Confidences]:
    """What other libraries give, in our units, where they compute the same."""
    found: dict[str, Confidences] = {}
    if score != "energy" and find_spec("pytorch_ood"):
        from pytorch_ood.detector import KNN, Mahalanobis

        theirs, factor = (KNN(None, k=K), 1) if score == "knn" else (Mahalanobis(None), 2 * FIT)  # half of a sum
        theirs.fit_features(torch.from_numpy(TRAIN), torch.from_numpy(LABELS))

        def predict_features(rows: Floats) -> NDArray[Any]:
            parts = torch.from_numpy(rows).split(BATCH)
            return -factor * torch.cat([theirs.predict_features(part) for part in parts]).numpy()

        found["pytorch-ood"] = predict_features
    if score == "knn" and find_spec("pyod"):
        from pyod.models.knn import KNN as PyODsKNN

        of_pyod = PyODsKNN(n_neighbors=K).fit(unit(TRAIN))
        found["PyOD"] = lambda rows: -of_pyod.decision_function(unit(rows))
    return found


def compare(score: str, calibration: Floats, new: Floats) -> None:
    head = (MEANS, np.zeros(CLASSES, np.float32)) if score == "energy" else None
    ours = macs.FeatureDetector(score, head).fit(TRAIN, labels=LABELS).calibrate(calibration)
    in_numpy, peers = by_numpy(score), by_peers(score)
    known, threshold = np.sort(in_numpy(calibration)), ours.thresholds()

    def predicted(rows: Floats) -> NDArray[Any]:
        confidence = in_numpy(rows)
        (1 + np.searchsorted(known, confidence, side="right")) / (1 + len(known)), confidence >= threshold
        return confidence

    predict: dict[str, Confidences] = {
        "MaCS": lambda rows: ours.predict(rows).confidence,
        "numpy": predicted,
        **peers,
    }
    again = macs.FeatureDetector(score, head).fit(TRAIN, labels=LABELS)
    works: dict[str, Callable[[Floats], object]] = {
        **predict,
        "MaCS, calibrate": again.calibrate,
        "numpy, calibrate": lambda rows: np.sort(in_numpy(rows))[len(rows) // 20],
    }
    given = {name: new[: len(new) // 20] if name in peers else new for name in works}
    memory = {name: memory_peak(partial(ask, given[name])) / 2**20 for name, ask in predict.items()}
    cases = {name: partial(rate, work, given[name]) for name, work in works.items()}
    found = interleaved(cases, REPEATS, warm_up=False)
    mine = predict["MaCS"](new)
    ratios: dict[str, float | str] = {
        f"MaCS / {name}": found["MaCS"].median / found[name].median for name in predict if name != "MaCS"
    }
    ratios["MaCS / numpy, calibrate"] = found["MaCS, calibrate"].median / found["numpy, calibrate"].median
    for name, ask in predict.items():
        theirs = ask(given[name])
        apart = np.abs(theirs - mine[: len(theirs)]).max() / np.abs(mine).max()
        ratios[f"{name}: memory"] = f"{memory[name]:,.0f} MiB; confidences differ from ours by up to {apart:.1e}"
    report(f"rows-{score}", f"{score}: {len(new):,} rows of {WIDTH} features", found, "rows/s", ratios)


def rate(work: Callable[[Floats], object], rows: Floats) -> float:
    return len(rows) / seconds(lambda: work(rows))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    make_importable()
    rows = around(RANDOM.integers(0, CLASSES, count))
    calibration = around(RANDOM.integers(0, CLASSES, FIT))
    for name in ("energy", "mahalanobis", "knn"):
        compare(name, calibration, rows if name != "knn" else rows[: max(count // 50, 1000)])
