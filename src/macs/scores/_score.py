"""Score, the base class of all scores, and Known, what a score may be fitted to."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.registry import Registry, users_code
from macs.core.settings import check
from macs.data import ImageSet
from macs.inference import Outputs

SIGNED = 0.25  # a larger share of negative features is more than smooth activations such as GELU leave behind
NETWORK = "network"  # the buffer with the hash of the network that a score is fitted to
Need = Literal["nothing", "last layer", "training images", "held-out images"]


@dataclass(frozen=True, eq=False)  # comparing tensors does not give one bool
class Known:
    """What a score may be fitted to: a network's last layer, and its outputs for N ID training images.

    Without training images N is 0, and only the last layer is known. Held-out images are other ID images, on which sums
    of scores are standardised.
    """

    logits: Tensor  # N x K
    features: Tensor  # N x D, the inputs of the last layer
    labels: Tensor | None  # N; None if the images have none
    weight: Tensor  # K x D, of the last layer; 0 x D if it is not known
    bias: Tensor  # K, of the last layer
    source: str = ""  # name of the images
    negative: float = 0.0  # share of negative features in the sum of all absolute values
    network: str = ""  # hash of the network's weights; a score that is fitted to it is for this network only
    held_out: Outputs | None = None  # the network's outputs for ID images that are not among the N
    held_out_source: str = ""  # name of these images
    net: nn.Module | None = None  # the network, for scores that run it again
    images: ImageSet | None = None  # the N images
    held_out_images: ImageSet | None = None

    def __len__(self) -> int:
        return len(self.features)

    def divided(self, held_out: int, seed: int = 0) -> "Known":
        """The same with `held_out` of the N images, drawn at random, as held-out images."""
        order = np.random.default_rng(seed).permutation(len(self))
        out, rest = (torch.from_numpy(np.sort(part)) for part in (order[:held_out], order[held_out:]))
        return replace(
            self,
            logits=self.logits[rest],
            features=self.features[rest],
            labels=None if self.labels is None else self.labels[rest],
            held_out=Outputs(self.logits[out], self.features[out]),
            held_out_source=self.source,
            images=None if self.images is None else self.images.subset(rest.numpy()),
            held_out_images=None if self.images is None else self.images.subset(out.numpy()),
        )

    def detached(self) -> "Known":
        """The same tensors, detached from the graph that computed them."""
        logits, features, weight, bias = (
            tensor.detach() for tensor in (self.logits, self.features, self.weight, self.bias)
        )
        return replace(self, logits=logits, features=features, weight=weight, bias=bias)


class NotFitted(MacsError, AttributeError):
    """A tensor was used that a score has only after fitting."""


@dataclass(eq=False, repr=False)
class Score(nn.Module):
    """From a network's outputs for N images to N confidences, higher for ID.

    Subclass it as a dataclass, define `confidence`, and register it with `@score("name")`. Its fields are its settings,
    which are checked against their annotations and cannot be changed later. A score that is fitted sets `fitted_to`,
    defines `learn`, and declares the tensors that it keeps as fields with `field(init=False)`: they become buffers,
    which are saved with the score, moved by `.to()` and exported to ONNX.
    """

    reads: ClassVar[Literal["logits", "features", "pixels"]] = "logits"
    """Which outputs it needs: the logits alone, the features as well, or the pixels and the network itself."""

    uses_logits: ClassVar[bool] = True
    """Whether it uses the logits; a score that does not judges the features of any model, classifier or not."""

    uses_head: ClassVar[bool] = False
    """Whether fitting it takes the weights of the last layer."""

    fitted_to: ClassVar[Need] = "nothing"
    """What it has to be fitted to first; any images will do to find the last layer."""

    labelled: ClassVar[bool] = False
    """Whether the training images that it is fitted to must have labels."""

    multilabel: ClassVar[bool] = False
    """Whether it is for logits of independent sigmoids; macs compares such a score with others only if it is named."""

    if_signed: ClassVar[Literal["apply", "warn", "refuse"]] = "apply"
    """What to do if many features are negative: nothing; warn, if its authors assume features that are never negative,
    as after a ReLU; or refuse, if its formula then makes no sense."""

    zero_shot: ClassVar[bool] = False
    """Whether it is for zero-shot classifiers alone, such as CLIP, whose logits are cosines."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep methods that a plain @dataclass would replace; a torch module, for one, must stay hashable."""
        super().__init_subclass__(**options)
        for name in ("__repr__", "__eq__", "__hash__"):
            setattr(cls, name, getattr(cls, name))

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check(self)

    def confidence(self, outputs: Outputs) -> Tensor:
        """N confidences, higher for ID."""
        raise NotImplementedError(f"{type(self).__name__} does not define `confidence`")

    def forward(self, outputs: Outputs | Tensor) -> Tensor:
        """N confidences from outputs, or from logits N x K alone, for a score that reads nothing else."""
        return self.confidence(Outputs(outputs) if isinstance(outputs, Tensor) else outputs)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        """The buffers by name, on the device of `known` and in its precision."""
        raise NotImplementedError(f"{type(self).__name__} does not define `learn`")

    def fit(self, train: Any, net: nn.Module | None = None, held_out: Any = None) -> Self:
        """Return a copy of this score that is fitted; the score itself does not change.

        Parameters
        ----------
        train
            ID training images in any form that `know` takes, such as a DataLoader; or `Known`, from `know`.
        net
            The network, for images.
        held_out
            Other ID images, for a sum.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.scores.KNN(k=10).fit(macs.data.load("digits", "val"), net)
        KNN(k=10)
        """
        if self.fitted_to == "nothing":
            return self
        if not isinstance(train, Known):
            from macs.scores._passes import know  # which imports this file

            if net is None:
                raise MacsError(f"{self!r} is fitted to images as a network sees them; give it too: fit(images, net).")
            train = know(net, train, held_out)
        return self._fit(train)

    def _fit(self, known: Known) -> Self:
        """Return a copy that is fitted to `known`."""
        if self.fitted_to == "training images" and not len(known):
            raise MacsError(
                f"{type(self).__name__} is fitted to ID training images, but there are none; give them as `train`, "
                "or choose a score that needs none."
            )
        if self.uses_head and not len(known.weight):
            raise MacsError(
                f"{type(self).__name__} uses the weights of the last layer; give them as head=(W, b), or choose a "
                "score that does without."
            )
        if self.labelled and known.labels is None:
            raise MacsError(f"{type(self).__name__} is fitted class by class, but the training images have no labels.")
        self._check_signs(known)
        with blamed(self):
            learnt = self.learn(known.detached())
        if set(learnt) != set(self.buffer_names()):
            given, declared = (", ".join(names) or "none" for names in (learnt, self.buffer_names()))
            raise MacsError(f"{type(self).__name__} declares the buffers {declared}, but `learn` returns {given}.")
        return replace(self)._keep(learnt, known.network)

    def _keep(self, learnt: Mapping[str, Tensor], network: str) -> Self:
        """This score with these tensors as its buffers."""
        for name, tensor in learnt.items():
            self.register_buffer(name, tensor.contiguous())  # as in a file, so that results are the same after loading
        if network:
            self.register_buffer(NETWORK, torch.tensor([*bytes.fromhex(network)], dtype=torch.uint8))
        return self

    def needs(self, what: Need) -> bool:
        """Whether it has to be fitted to this before it can be used."""
        return self.fitted_to == what

    def _check_signs(self, known: Known) -> None:
        """Warn, or raise an error, if features have both signs and the score assumes that they are not negative."""
        if self.if_signed == "apply" or known.negative <= SIGNED:
            return
        fact = f"{known.negative:.0%} of this network's features, by absolute value, are negative"
        if self.if_signed == "refuse":
            raise MacsError(
                f"{type(self).__name__} takes the sum of an image's features as a measure of activity, but {fact} and "
                "cancel the others; use another score."
            )
        warn(f"{type(self).__name__} was made for features that are never negative, but {fact}; it may fail.")

    @property
    def fitted(self) -> bool:
        """Whether it is ready to use."""
        return all(name in self._buffers for name in self.buffer_names())

    @property
    def bound_to(self) -> str:
        """The hash of the network that it is fitted to; empty if there is none."""
        held = self._buffers.get(NETWORK)
        return "" if held is None else bytes(held.tolist()).hex()

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.setting_names()}

    @property
    def accepts(self) -> list[str]:
        """The names of the settings that `get` takes for it."""
        return self.setting_names()

    @property
    def tensor_names(self) -> set[str]:
        """The names of its tensors after fitting, without the hash of the network."""
        return {*self.buffer_names()}

    @property
    def written(self) -> str:
        """The Python expression for it, for example KNN(k=10); settings at their defaults are left out."""
        defaults = {field.name: field.default for field in fields(self)}
        own = (f"{name}={value!r}" for name, value in self.settings.items() if value != defaults[name])
        return f"{type(self).__name__}({', '.join(own)})"

    def __repr__(self) -> str:
        return self.written if self.fitted else f"{self.written} [unfitted]"

    @classmethod
    def setting_names(cls) -> list[str]:
        return [field.name for field in fields(cls) if field.init]

    @classmethod
    def buffer_names(cls) -> list[str]:
        return [field.name for field in fields(cls) if not field.init]

    def __setattr__(self, name: str, value: Any) -> None:
        if "_buffers" in self.__dict__ and name in self.setting_names():
            raise MacsError(
                f"{name} of {self!r} cannot be changed; make another: {type(self).__name__}({name}={value!r})."
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in self.buffer_names():
                raise NotFitted(f"{self!r} is not fitted: call fit first.") from None
            raise

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """A hook of torch's load_state_dict: a score that is not fitted yet takes the shapes from the state."""
        for name in (*self.buffer_names(), NETWORK):
            if prefix + name in state:
                self._buffers[name] = torch.empty_like(state[prefix + name])
        super()._load_from_state_dict(state, prefix, *more)


score: Registry[type[Score]] = Registry("macs.scores", "score")


def registered_name(given: Score) -> str:
    """The name of a single score: "knn", or "module:Class" for a user's own."""
    kind = type(given)
    if _is_ours(kind):
        return next(name for name, entry in score.entries().items() if entry is kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_ours(kind: type[Score]) -> bool:
    return kind.__module__.startswith("macs.scores.")


def blamed(score: Score | type[Score]) -> AbstractContextManager[None]:
    """A guard: whatever a user's own score raises becomes a MacsError that names it; errors of ours pass through."""
    kind = score if isinstance(score, type) else type(score)
    return nullcontext() if _is_ours(kind) else users_code(f"The score {kind.__name__} failed")


def confidence_of(score: Score, outputs: Outputs) -> Tensor:
    """Return the confidences of a score for a batch; raise if they are not one number per image."""
    with blamed(score):
        confidences = score.confidence(outputs)
    if not isinstance(confidences, Tensor) or confidences.shape != outputs.logits.shape[:1]:
        shape = tuple(confidences.shape) if isinstance(confidences, Tensor) else type(confidences).__name__
        raise MacsError(
            f"The score {type(score).__name__} gives {shape} for {len(outputs)} images; it must return a tensor with "
            "one confidence per image."
        )
    return confidences
