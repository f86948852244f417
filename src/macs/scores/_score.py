"""What all scores share: the class to subclass, and what a score may be fitted to."""

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
from macs.inference import Outputs

SIGNED = 0.25  # a larger share of negative features is more than smooth activations such as GELU leave behind
NETWORK = "network"  # the buffer with the hash of the network that a score is fitted to
Need = Literal["nothing", "last layer", "training images", "held-out images"]


@dataclass(frozen=True, eq=False)  # tensors do not compare to a yes or a no
class Known:
    """What a score may learn before it is asked: the last layer, and what the network says of N ID training images.

    Without training images N is 0; the last layer is there all the same. Held-out images are other ID images, which
    sums of scores are standardised on.
    """

    logits: Tensor  # N x K
    features: Tensor  # N x D, what the last layer is fed
    labels: Tensor | None  # N; None where the images have none
    weight: Tensor  # K x D, of the last layer
    bias: Tensor  # K, of the last layer
    source: str = ""  # name of the images
    negative: float = 0.0  # share of negative ones in the sum of all features' absolute values
    network: str = ""  # hash of the network's weights; what is fitted here answers for no other network
    held_out: Outputs | None = None  # what the network says of ID images that are not among the N
    held_out_source: str = ""  # name of these images

    def __len__(self) -> int:
        return len(self.features)

    def divided(self, held_out: int, seed: int = 0) -> "Known":
        """The same with so many of the N images held out, drawn at random."""
        order = np.random.default_rng(seed).permutation(len(self))
        out, rest = (torch.from_numpy(np.sort(part)) for part in (order[:held_out], order[held_out:]))
        return replace(
            self,
            logits=self.logits[rest],
            features=self.features[rest],
            labels=None if self.labels is None else self.labels[rest],
            held_out=Outputs(self.logits[out], self.features[out]),
            held_out_source=self.source,
        )

    def detached(self) -> "Known":
        """The same numbers without the graph that they were computed by."""
        logits, features, weight, bias = (
            tensor.detach() for tensor in (self.logits, self.features, self.weight, self.bias)
        )
        return replace(self, logits=logits, features=features, weight=weight, bias=bias)


class NotFitted(MacsError, AttributeError):
    """A score was asked for a tensor that it gets by fitting."""


@dataclass(eq=False, repr=False)
class Score(nn.Module):
    """From a network's outputs for N images to N confidences, higher for ID.

    Subclass it as a dataclass, define `confidence`, and register it with `@score("name")`. Its fields are its settings,
    checked by their annotations and fixed once it is made. A score that is fitted says what to, defines `learn`, and
    declares the tensors that it keeps as fields with `field(init=False)`: they are buffers, saved with the score, moved
    by `.to()` and exported to ONNX.
    """

    reads: ClassVar[Literal["logits", "features", "pixels"]] = "logits"
    """What of the outputs it needs: the logits alone, the features as well, or the pixels and the network itself."""

    fitted_to: ClassVar[Need] = "nothing"
    """What it has to be shown first; the last layer is shown with any images."""

    if_signed: ClassVar[Literal["apply", "warn", "refuse"]] = "apply"
    """What to do if many features are negative: nothing; warn, if its authors assume that none is, as after a ReLU; or
    refuse, if its formula then makes no sense."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A plain @dataclass would replace these, and a torch module must stay hashable."""
        super().__init_subclass__(**options)
        for name in ("__repr__", "__eq__", "__hash__"):
            setattr(cls, name, getattr(cls, name))

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        check(self)

    def confidence(self, outputs: Outputs) -> Tensor:
        """N confidences, higher for ID."""
        raise NotImplementedError(f"{type(self).__name__} does not define `confidence`")

    def forward(self, outputs: Outputs) -> Tensor:
        return self.confidence(outputs)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        """The buffers by name, on the device of `known` and in its precision."""
        raise NotImplementedError(f"{type(self).__name__} does not define `learn`")

    def fit(self, known: Known) -> Self:
        """A copy that has learnt from what is known; this score stays as it is."""
        if self.fitted_to == "nothing":
            return self
        if self.fitted_to == "training images" and not len(known):
            raise MacsError(
                f"{type(self).__name__} is fitted to ID training images and there are none; give them as `train`, "
                "or choose a score that needs none."
            )
        self._check_signs(known)
        with blamed(self):
            learnt = self.learn(known.detached())
        if set(learnt) != set(self.buffer_names()):
            given, declared = (", ".join(names) or "none" for names in (learnt, self.buffer_names()))
            raise MacsError(f"{type(self).__name__} declares the buffers {declared}, but `learn` returns {given}.")
        return replace(self)._keep(learnt, known.network)

    def _keep(self, learnt: Mapping[str, Tensor], network: str) -> Self:
        """This score with what it has learnt as its buffers."""
        for name, tensor in learnt.items():
            self.register_buffer(name, tensor.contiguous())  # as a file will hold it, so that it rounds alike
        if network:
            self.register_buffer(NETWORK, torch.tensor([*bytes.fromhex(network)], dtype=torch.uint8))
        return self

    def needs(self, what: Need) -> bool:
        """Whether it has to be shown this before it can be asked."""
        return self.fitted_to == what

    def _check_signs(self, known: Known) -> None:
        """Warn of a score that takes large features for active ones, or refuse it, if features have both signs."""
        if self.if_signed == "apply" or known.negative <= SIGNED:
            return
        fact = f"{known.negative:.0%} of this network's features, by absolute value, are negative"
        if self.if_signed == "refuse":
            raise MacsError(
                f"{type(self).__name__} takes the sum of an image's features as a measure of activity, but {fact} and "
                "cancel the others; use another score."
            )
        warn(f"{type(self).__name__} was made for features that are never negative, but {fact}; expect little of it.")

    @property
    def fitted(self) -> bool:
        """Whether it can be asked."""
        return all(name in self._buffers for name in self.buffer_names())

    @property
    def bound_to(self) -> str:
        """The hash of the network that it is fitted to; empty where there is none."""
        held = self._buffers.get(NETWORK)
        return "" if held is None else bytes(held.tolist()).hex()

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.setting_names()}

    @property
    def accepts(self) -> list[str]:
        """The names of the settings that it can be made with."""
        return self.setting_names()

    @property
    def tensor_names(self) -> set[str]:
        """The names of what it keeps once it is fitted, without the hash of the network."""
        return {*self.buffer_names()}

    @property
    def written(self) -> str:
        """As it is written in Python, for example KNN(k=10); settings that have their default are left out."""
        defaults = {each.name: each.default for each in fields(self)}
        own = (f"{name}={value!r}" for name, value in self.settings.items() if value != defaults[name])
        return f"{type(self).__name__}({', '.join(own)})"

    def __repr__(self) -> str:
        return self.written if self.fitted else f"{self.written} [unfitted]"

    @classmethod
    def setting_names(cls) -> list[str]:
        return [each.name for each in fields(cls) if each.init]

    @classmethod
    def buffer_names(cls) -> list[str]:
        return [each.name for each in fields(cls) if not each.init]

    def __setattr__(self, name: str, value: Any) -> None:
        if "_buffers" in self.__dict__ and name in self.setting_names():
            raise MacsError(f"{name} of {self!r} is fixed; make another: {type(self).__name__}({name}={value!r}).")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in self.buffer_names():
                raise NotFitted(f"{self!r} is not fitted: call fit(known) first.") from None
            raise

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """torch's part of load_state_dict; what is not fitted yet takes its shapes from the state."""
        for name in (*self.buffer_names(), NETWORK):
            if prefix + name in state:
                self._buffers[name] = torch.empty_like(state[prefix + name])
        super()._load_from_state_dict(state, prefix, *more)


score: Registry[type[Score]] = Registry("macs.scores", "score")


def registered_name(given: Score) -> str:
    """The name of a single score: "knn", or "module:Class" for one that is not ours."""
    kind = type(given)
    if _is_ours(kind):
        return next(name for name, entry in score.entries().items() if entry is kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_ours(kind: type[Score]) -> bool:
    return kind.__module__.startswith("macs.scores.")


def blamed(score: Score | type[Score]) -> AbstractContextManager[None]:
    """Whatever a score of the user's own raises becomes one sentence that names it; a fault of ours stays one."""
    kind = score if isinstance(score, type) else type(score)
    return nullcontext() if _is_ours(kind) else users_code(f"The score {kind.__name__} failed")


def confidence_of(score: Score, outputs: Outputs) -> Tensor:
    """What a score makes of a batch, refused if it is not one number per image."""
    with blamed(score):
        found = score.confidence(outputs)
    if not isinstance(found, Tensor) or found.shape != outputs.logits.shape[:1]:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise MacsError(
            f"The score {type(score).__name__} gives {shape} for {len(outputs)} images; it must return a tensor with "
            "one confidence per image."
        )
    return found
