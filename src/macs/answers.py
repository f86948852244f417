"""Answers: a prediction and a confidence for each image, whichever runtime computed them."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError


@dataclass(frozen=True, eq=False)  # comparing arrays does not give one bool
class Answers:
    """One prediction and one confidence per image."""

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.predictions)

    def checked(self, images: str) -> Self:
        """These answers, or an error if a confidence is not a number."""
        if broken := np.count_nonzero(np.isnan(self.confidences)):
            raise MacsError(
                f"{broken} of {len(self.confidences)} images of {images} get a confidence that is not a number; look "
                "at the network's logits for them, then at the score."
            )
        return self


A = TypeVar("A", bound=Answers)


def joined(parts: Iterable[A]) -> A:
    """The answers for all batches as one."""
    parts = list(parts)
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(parts[0]))
    return type(parts[0])(*columns)
