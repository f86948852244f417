"""Predictions: a class, a confidence and a p-value per image or row, whichever runtime computed them."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError

NO_CLASS = -1  # the index where no class is predicted: without a classifier, or for a row that cannot be judged


def renamed(old: str, new: str) -> Any:
    """Return a property that gives an attribute by its old name, with a warning."""

    def get(self: object) -> Any:
        warnings.warn(f"{type(self).__name__}.{old} is now called {new}.", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(get)


@dataclass(frozen=True, eq=False)  # comparing arrays does not give one bool
class Predictions:
    """One predicted class, one confidence and one p-value per image."""

    index: NDArray[np.int64]  # of the predicted class; NO_CLASS if there is none
    confidence: NDArray[np.float32]
    p_value: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))  # NaN unless calibrated

    predictions = renamed("predictions", "index")
    confidences = renamed("confidences", "confidence")
    p_values = renamed("p_values", "p_value")

    def __post_init__(self) -> None:
        if not len(self.p_value):
            object.__setattr__(self, "p_value", np.full(len(self), np.nan, np.float32))

    def __len__(self) -> int:
        return len(self.index)

    def checked(self, images: str) -> Self:
        """Return the predictions themselves; raise if a confidence is not a number."""
        if broken := np.count_nonzero(np.isnan(self.confidence)):
            raise MacsError(
                f"{broken} of {len(self)} images of {images} get a confidence that is not a number; look "
                "at the network's logits for them, then at the score."
            )
        return self


P = TypeVar("P", bound=Predictions)


def joined(parts: Iterable[P]) -> P:
    """Return the predictions for all batches as one."""
    parts = list(parts)
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(parts[0]))
    return type(parts[0])(*columns)
