"""The metrics of confidences that another program has written: no network, no torch.

    python examples/your_scores.py known.npy unknown.npy

Each file holds one number per image, higher for images that are more likely ID. If your score is higher for OOD, as an
energy or a distance is, negate it first.
"""

import sys
from pathlib import Path

import numpy as np

from macs import metrics


def main(known: Path, unknown: Path) -> metrics.OODMetrics:
    result = metrics.ood_metrics(np.load(known), np.load(unknown))
    for name, value in result.items():
        print(f"{100 * value:6.2f}%  {metrics.get(name).title}: {metrics.get(name).convention}")
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
