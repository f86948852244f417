"""Sums of scores, such as `msp+vim`: each part is standardised on held-out ID images, then they are averaged.

    confidence(x) = 1/J * sum_j (c_j(x) - mean_j) / std_j        in (-inf, inf)

c_j is the confidence of part j; mean_j and std_j are its mean and standard deviation over ID images that no part was
fitted to. Without standardising, the part with the largest numbers would decide alone.

The network should not have been trained on the held-out images. It is more confident on training images: their MSP, for
example, varies less, so that MSP would get too large a weight.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.inference import Outputs
from macs.scores._score import Known, Need, Score, confidence_of, registered_name

PLUS = "+"
FEWEST = 20  # images for a usable standard deviation
MOST = 1000  # images, which give mean and standard deviation to a few percent


def held_out_of(images: int) -> int:
    """The number of images to hold out of so many: a quarter, at most MOST."""
    return min(MOST, images // 4)


def enough_held_out(images: int, purpose: str) -> None:
    """Refuse too few held-out images; `purpose` begins the sentence."""
    if images < FEWEST:
        raise MacsError(f"{purpose} takes at least {FEWEST} held-out ID images, but there are {images}; give more.")


@dataclass
class Combined(Score):
    fitted_to = "held-out images"
    parts: Sequence[Score] = ()  # copied, not yet fitted
    mean: Tensor = field(init=False)  # J
    std: Tensor = field(init=False)  # J
    images: Tensor = field(init=False)  # how many were held out, for the record

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        self._hold(replace(part) for part in self.parts)
        for part in self.parts:
            if part.reads == "pixels" or isinstance(part, Combined):
                why = "is a sum itself" if isinstance(part, Combined) else "passes pixels through the network itself"
                raise MacsError(f"{part.written} cannot be part of a sum, since it {why}; name other scores.")
        if len(self.parts) < 2:
            raise MacsError("A sum takes two scores or more; write it like msp+vim.")
        if twice := [name for name, count in Counter(map(registered_name, self.parts)).items() if count > 1]:
            raise MacsError(f"{twice[0]} occurs twice in {self.name}; name each score once.")
        reads = "features" if any(part.reads == "features" for part in self.parts) else "logits"
        object.__setattr__(self, "reads", reads)
        for use in ("uses_logits", "uses_head"):
            object.__setattr__(self, use, any(getattr(part, use) for part in self.parts))

    def _hold(self, parts: Iterable[Score]) -> None:
        object.__setattr__(self, "parts", tuple(parts))
        for i, part in enumerate(self.parts):
            self.add_module(f"part{i}", part)

    def needs(self, what: Need) -> bool:
        return super().needs(what) or any(part.needs(what) for part in self.parts)

    def _fit(self, known: Known) -> Self:
        held = known.held_out or Outputs(known.logits[:0])
        enough_held_out(len(held), f"To standardise {self.name}")
        fitted = replace(self)
        fitted._hold(part.fit(known) for part in self.parts)
        confidences = fitted.confidences(held).detach().cpu().double()  # not every GPU has float64
        mean, std = confidences.mean(1), confidences.std(1, correction=0)
        for part, centre, spread in zip(self.parts, mean, std, strict=True):
            if not (centre.isfinite() and 0 < spread < torch.inf):
                raise MacsError(
                    f"{part.written} cannot be standardised for {self.name}: over {len(held)} held-out images its mean "
                    f"is {centre:g} and its standard deviation {spread:g}; leave it out."
                )
        learnt = {"mean": mean.to(held.logits), "std": std.to(held.logits), "images": torch.tensor(len(held))}
        return fitted._keep(learnt, known.network)

    def confidences(self, outputs: Outputs) -> Tensor:
        """The confidences of the parts, not standardised, J x N."""
        return torch.stack([confidence_of(part, outputs) for part in self.parts])

    def confidence(self, outputs: Outputs) -> Tensor:
        return ((self.confidences(outputs) - self.mean[:, None]) / self.std[:, None]).mean(0)

    @property
    def fitted(self) -> bool:
        return super().fitted and all(part.fitted for part in self.parts)

    @property
    def name(self) -> str:
        return PLUS.join(map(registered_name, self.parts))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of each part, by its name."""
        return {registered_name(part): part.settings for part in self.parts if part.settings}

    @property
    def accepts(self) -> list[str]:
        return sorted({*self.settings, *(setting for part in self.parts for setting in part.accepts)})

    @property
    def tensor_names(self) -> set[str]:
        inner = {f"part{i}.{name}" for i, part in enumerate(self.parts) for name in part.tensor_names}
        return super().tensor_names | inner

    @property
    def written(self) -> str:
        return f"Combined([{', '.join(part.written for part in self.parts)}])"
