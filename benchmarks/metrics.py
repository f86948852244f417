"""All metrics at once, against scikit-learn."""

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bench import interleaved, report, seconds
from macs.metrics import ood_metrics


def by_scikit_learn(conf_in: np.ndarray, conf_out: np.ndarray) -> list[float]:
    is_ood = np.r_[np.zeros(len(conf_in), bool), np.ones(len(conf_out), bool)]
    confidence = np.r_[conf_in, conf_out]
    values = []
    for positive, score in ((is_ood, -confidence), (~is_ood, confidence)):
        fpr, recall, _ = roc_curve(positive, score, drop_intermediate=False)
        values += [average_precision_score(positive, score), float(fpr[np.argmax(recall >= 0.95)])]
    return [roc_auc_score(is_ood, -confidence), *values]


def ours(conf_in: np.ndarray, conf_out: np.ndarray) -> list[float]:
    found = ood_metrics(conf_in, conf_out)
    return [found.auroc, found.aupr, found.fpr95, found.aupr_id, found.fpr95_id]


def main() -> None:
    random = np.random.default_rng(0)
    n = 10_000_000
    conf_in, conf_out = (random.beta(a, b, n).astype(np.float32) for a, b in ((8, 2), (4, 4)))
    values: dict[str, list[float]] = {}

    def timed(name: str, compute: Callable[[np.ndarray, np.ndarray], list[float]]) -> float:
        return seconds(lambda: values.update({name: compute(conf_in, conf_out)}))

    methods = {"scikit-learn": by_scikit_learn, "ours": ours}
    found = interleaved({name: partial(timed, name, compute) for name, compute in methods.items()}, 2, warm_up=False)
    difference = max(abs(a - b) for a, b in zip(*values.values(), strict=True))
    ratios: dict[str, float | str] = {
        "scikit-learn / ours": found["scikit-learn"].median / found["ours"].median,
        "largest difference of the five numbers": f"{difference:.1e}",
    }
    report("metrics", f"Five metrics of {n:,} + {n:,} confidences", found, "s", ratios)


if __name__ == "__main__":
    main()
