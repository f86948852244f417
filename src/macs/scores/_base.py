"""What all scores share: the class to subclass, what a score may be fitted to, and the names."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.registry import Registry, users_code


@dataclass(frozen=True, eq=False)  # tensors do not compare to a yes or a no
class Known:
    """What a score may learn before it is asked: the last layer, and what the network says of N ID training images.

    Without training images N is 0; the last layer is there all the same.
    """

    logits: Tensor  # N x K
    features: Tensor  # N x D, what the last layer is fed
    labels: Tensor | None  # N; None where the images have none
    weight: Tensor  # K x D, of the last layer
    bias: Tensor  # K, of the last layer
    source: str = ""  # name of the images

    def __len__(self) -> int:
        return len(self.features)

    def detached(self) -> "Known":
        """The same numbers without the graph that they were computed by."""
        logits, features, weight, bias = (
            tensor.detach() for tensor in (self.logits, self.features, self.weight, self.bias)
        )
        return replace(self, logits=logits, features=features, weight=weight, bias=bias)


class Score:
    """Turns what a network says of N images into N confidences. Subclass it, and register it with `@score("name")`.

    A score of the logits defines `confidence`. One that reads features, or is fitted first, is a `FeatureScore`. One
    that has to pass pixels through the network itself sets `needs_pixels` and defines `from_pixels`.
    """

    needs_features: ClassVar[bool] = False
    """Whether it is fitted to the last layer first, and then reads the features that this layer is fed."""

    needs_training: ClassVar[bool] = False
    """Whether it is fitted to ID training images as well."""

    needs_pixels: ClassVar[bool] = False
    """Whether `from_pixels` answers instead of `confidence`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def fit(self, known: Known) -> Self:
        """Learn what there is to learn. Scores of the logits have nothing to learn and need not be fitted."""
        return self

    def confidence(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        """N confidences, higher for ID, from N x K logits and, where needed, N x D features."""
        raise MacsError(f"{type(self).__name__} is no score of the logits; call from_pixels(net, pixels).")

    def from_pixels(self, net: nn.Module, pixels: Tensor) -> Tensor:
        """N confidences, higher for ID, from N x 3 x H x W pixels in [0, 1] and a network in evaluation mode."""
        raise MacsError(f"{type(self).__name__} is no score of the pixels; call confidence(logits, features).")


class FeatureScore(Score):
    """A score of the features before the last layer: define `learn` and `from_features`."""

    needs_features: ClassVar[bool] = True
    fitted = False

    def learn(self, known: Known) -> None:
        """Keep, as attributes, what `from_features` needs: tensors on the device of `known`, in its precision."""
        raise NotImplementedError

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        """N confidences, higher for ID."""
        raise NotImplementedError

    def fit(self, known: Known) -> Self:
        if self.needs_training and not len(known):
            raise MacsError(
                f"{type(self).__name__} is fitted to ID training images and there are none; give them as `train`, "
                "or choose a score that needs none."
            )
        self.learn(known.detached())
        self.fitted = True
        return self

    def confidence(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        if features is None or not self.fitted:
            what = "reads features: pass those of the last layer" if self.fitted else "is not fitted: call fit(known)"
            raise MacsError(f"{type(self).__name__} {what} first.")
        return self.from_features(logits, features)


score: Registry[type[Score]] = Registry("macs.scores", "score")


def get(name: str | Score) -> Score:
    """A new score by its name, or by 'module:Class' for one of your own; a score that is one already stays as it is."""
    if isinstance(name, Score):
        return name
    chosen = score[name] if isinstance(name, str) else name
    if not (isinstance(chosen, type) and issubclass(chosen, Score)):
        raise MacsError(f"{name} is not a score: it must be a subclass of macs.scores.Score.")
    with blamed(chosen):
        return chosen()


def blamed(score: Score | type[Score]) -> AbstractContextManager[None]:
    """Whatever a score of the user's own raises becomes one sentence that names it; a fault of ours stays one."""
    kind = score if isinstance(score, type) else type(score)
    ours = kind.__module__.startswith("macs.scores.")
    return nullcontext() if ours else users_code(f"The score {kind.__name__} failed")


def available() -> list[str]:
    """The names of all scores."""
    return score.available()
