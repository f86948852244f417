"""Deep nearest neighbours: the distance of the features to those of ID training images.

    confidence(x) = -r_k,    r_k = || u - u_(k) ||,    u = f / ||f||        in [-2, 0]

u_(k) is the k-th nearest in the bank, which holds the training images' unit features. A smaller bank holds `bank`
of them, drawn at random, or as many centres of clusters (spherical k-means). With `normalise` false u = f, which suits
the columns of a table, where the length of a row means something.

Sun, Ming, Zhu, Li: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022. k = 50 is theirs for CIFAR-10
with all 50,000 training images; they show that the choice matters little. They also draw smaller banks at random, and
reduce k in proportion; k-means is ours. With fewer than k images per class in the bank, the k-th neighbour of an image
cannot be of its own class: it may then rank images worse than chance, and warns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import compared, drawn

ROUNDS = 10  # of k-means: the bank has to cover the features well, for which the best clusters are not needed
ROWS = 4096  # points that are compared with all centres at a time


@score("knn")
@dataclass
class KNN(Score):
    reads = "features"
    fitted_to = "training images"
    uses_logits = False
    k: Annotated[int, Span(1, 10**9)] = 50
    bank: Annotated[int, Span(0, 10**9)] = 0  # how many unit features to keep; 0: all
    reduce: Literal["random", "kmeans"] = "random"  # how a smaller bank is made
    normalise: bool = True
    vectors: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reduce == "kmeans" and not self.normalise:
            raise MacsError("k-means makes a bank of unit features; with normalise false, reduce it at random.")

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        points = normalize(known.features) if self.normalise else known.features
        size = self.bank if 0 < self.bank < len(points) else len(points)
        classes = known.logits.shape[1] if known.labels is None else len(known.labels.unique())
        if size < self.k * classes:
            warn(
                f"KNN with k={self.k} needs at least {self.k} images per class, but there are {size} of {classes} "
                "classes, so it may rank images worse than chance; give a smaller k, or more images."
            )
        if size == len(points):
            return {"vectors": points}
        bank = points[drawn(points, size)]
        return {"vectors": clustered(points, bank) if self.reduce == "kmeans" else bank}

    def confidence(self, outputs: Outputs) -> Tensor:
        measure = self._between_units if self.normalise else self._between_rows
        return -compared(measure, outputs.features, self.vectors)

    def _between_units(self, features: Tensor) -> Tensor:
        """r_k. Between unit vectors ||u - v||^2 = 2 - 2 u.v, so the nearest have the largest products."""
        k = min(self.k, len(self.vectors))  # with fewer than k images, the farthest one
        return (2 - 2 * kth_largest(normalize(features) @ self.vectors.T, k)).clamp(min=0).sqrt()

    def _between_rows(self, features: Tensor) -> Tensor:
        k, lengths = min(self.k, len(self.vectors)), self.vectors.square().sum(1)
        kth = (features @ self.vectors.T - lengths / 2).topk(k).indices[:, -1]
        return (features - self.vectors[kth]).square().sum(1).sqrt()  # exact, where lengths less products cancel


def kth_largest(products: Tensor, k: int) -> Tensor:
    """The k-th largest number of each row, whose order it may change.

    numpy selects it in half the time that torch takes, but not on a GPU, in an exported graph or for a gradient.
    """
    if torch.compiler.is_exporting() or products.requires_grad or not products.is_cpu:
        return products.topk(k, sorted=False).values.amin(1)
    products.numpy().partition(-k, axis=1)
    return products[:, -k]


def clustered(points: Tensor, centres: Tensor) -> Tensor:
    """Lloyd's algorithm on the unit sphere: each centre becomes the direction of the mean of the points nearest to it.

    A centre that is nearest to no point stays where it is.
    """
    for _ in range(ROUNDS):
        nearest = torch.cat([(rows @ centres.T).argmax(1) for rows in points.split(ROWS)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        counts = nearest.bincount(minlength=len(centres))[:, None]
        centres = normalize(sums).where(counts > 0, centres)
    return centres
