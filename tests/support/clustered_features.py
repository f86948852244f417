"""Features around a mean for each class, their logits, and what a score says of them."""

import numpy as np
import torch

from macs import scores
from macs.inference import Outputs
from macs.scores import Known

CLASSES, FEATURES = 4, 13
READ_FEATURES = [name for name in scores.available() if scores.get(name).reads == "features"]


def activations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features as a ReLU leaves them, around a mean for each class, and the classes."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    means = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    return np.maximum(0, means[labels] + random.normal(size=(count, FEATURES))), labels


WEIGHT, BIAS = np.random.default_rng(1).normal(size=(CLASSES, FEATURES)), np.random.default_rng(2).normal(size=CLASSES)
TRAIN, LABELS = activations(300, seed=3)
TEST, _ = activations(40, seed=4)
TEST *= np.random.default_rng(5).uniform(0.2, 3, (40, 1))  # some near the training features, some far


def logits_of(features: np.ndarray) -> np.ndarray:
    return features @ WEIGHT.T + BIAS


def known(dtype: torch.dtype = torch.float64, features: np.ndarray = TRAIN) -> Known:
    tensors = (torch.tensor(array, dtype=dtype) for array in (logits_of(features), features, WEIGHT, BIAS))
    logits, rows, weight, bias = tensors
    return Known(logits, rows, torch.tensor(LABELS[: len(features)]), weight, bias)


def asked(fitted: scores.Score, features: np.ndarray = TEST, dtype: torch.dtype = torch.float64) -> np.ndarray:
    """What a fitted score says of features."""
    outputs = Outputs(torch.tensor(logits_of(features), dtype=dtype), torch.tensor(features, dtype=dtype))
    return fitted.confidence(outputs).numpy()
