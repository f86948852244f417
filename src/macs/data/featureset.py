"""FeatureSet: rows of features in the place of images, for networks that take features: a linear layer, or a small MLP.

Everything that runs a network on an ImageSet runs one on a FeatureSet too: training, evaluation and the fitting of
scores. What is for pictures alone, such as crops and colours, does not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.data.imageset import ImageSet, as_array
from macs.data.preparation import DEFAULT, Preparation

if TYPE_CHECKING:
    from macs.data.pixels import Pixels


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(ImageSet):
    """Rows of float32 features, optionally with labels and class names; make one with `FeatureSet.from_array`.

    Examples
    --------
    >>> import macs, numpy as np
    >>> macs.FeatureSet.from_array(np.zeros((4, 10)), labels=[0, 1, 1, 0], classes=["low", "high"])
    <FeatureSet array: 4 rows of 10 features, 2 classes>
    """

    preparation: Preparation | None = DEFAULT  # of no effect

    def __repr__(self) -> str:
        count = len(self.classes)
        classes = "no labels" if self.labels is None else f"{count:,} class{'es' if count > 1 else ''}"
        return f"<FeatureSet {self.name}: {len(self):,} rows of {self.size} features, {classes}>"

    @classmethod
    def _pixels(cls, array: ArrayLike, what: str) -> Pixels:
        """The features as float32; an error if that is impossible."""
        given = as_array(array, what)
        if given.dtype.kind not in "fiu" or given.ndim != 2 or 0 in given.shape:
            raise MacsError(f"{what} are {given.dtype} of shape {given.shape}; give numbers, one row per input, N x D.")
        with np.errstate(over="ignore"):
            features = given.astype(np.float32, copy=False)
        if broken := int((~np.isfinite(features)).any(axis=1).sum()):
            raise MacsError(f"{what} have {broken:,} of {len(features):,} rows with NaN or inf; leave these out.")
        return cast("Pixels", features)

    def _check_pixels(self) -> None:
        if not isinstance(self.pixels[:1], np.ndarray) or len(self.pixels.shape) != 2:
            raise MacsError(f"{self.name} is no set of features; make one with FeatureSet.from_array.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.pixels.shape[1:]

    def rows(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """The features at these positions."""
        return self.pixels[index]

    def resized(self, to: int | Preparation) -> FeatureSet:
        """The set itself: features are never prepared."""
        return self

    def prepared(self, preparation: Preparation) -> FeatureSet:
        """The set itself: features are never prepared."""
        return self
