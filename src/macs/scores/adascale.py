"""AdaSCALE: energy after scaling, as SCALE, but by more for images whose features hardly change with their pixels.

    g = gradient of the largest logit by the normalised pixels
    h' = features after 0.5 sign(g) is added to the 5% of the normalised pixels with the smallest |g|
    Q = sum_{top 5% of h} max(0, h') + 10 sum_{top 1% of h} |h - h'|
    p = p_min + (1 - F(Q)) (p_max - p_min)                          F: share of ID images whose Q is at most this
    r = sum_d max(0, h_d) / sum of the largest (1 - p/100) D of these

    adascale-a        confidence(x) = log sum_k exp(W (h exp(r)) + b)_k        in (-inf, inf)
    adascale-l        confidence(x) = log sum_k exp(z_k r^2)                   in (-inf, inf)

Regmi: AdaSCALE: Adaptive Scaling for OOD Detection, 2025. The numbers 0.5, 5%, 10 and 1% are theirs, as are p_min = 75
and p_max = 85 (`least` and `most`; for a ResNet-50 it is 80 to 85). OpenOOD chooses them on validation outliers; we do
not. Their F comes from at most 5,000 ID validation images, ours from at most 1,000 held-out ID images.

It needs the pixels, the network with its last layer, and held-out ID images without labels; it keeps one number for
each of these. Per image it takes one backward and two forward passes, always in float32, so that it is measured like
ODIN and not put into a detector. It was made for features after a ReLU; for features of both signs it warns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from macs import nets
from macs.core.errors import MacsError
from macs.data.preparation import DEFAULT
from macs.inference import GRADIENT_ROWS, Outputs, outputs_of, tracked
from macs.scores import Known, Score, enough_held_out, score
from macs.scores.ash import Percentile, kept

STEP = 0.5  # of normalised pixels
MOVED = 0.05  # share of the pixels' values that are moved
ACTIVE, SHIFTED = 95, 99  # percentiles of an image's features, above which they count in Q
SHIFT = 10  # weight of the shift in Q


@dataclass
class AdaSCALE(Score):
    reads = "pixels"
    fitted_to = "held-out images"
    if_signed = "warn"
    least: Percentile = 75
    most: Percentile = 85
    shifts: Tensor = field(init=False)  # Q of the held-out images, ascending

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.most:
            raise MacsError(f"least must be at most {self.most:g}, which is `most`, not {self.least:g}.")

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        images = known.held_out_images
        enough_held_out(0 if images is None else len(images), f"To fit {type(self).__name__}")
        assert known.net is not None and images is not None
        shifts = [
            shift(*moved_features(outputs.net, rows)[:2])
            for outputs in outputs_of(known.net, images, precision="float32", doing="fitting to")
            for rows in outputs.pixels.split(GRADIENT_ROWS)
        ]
        return {"shifts": torch.cat(shifts).sort().values}

    def confidence(self, outputs: Outputs) -> Tensor:
        return torch.cat([self._confidence(outputs.net, rows) for rows in outputs.pixels.split(GRADIENT_ROWS)])

    def _confidence(self, net: nn.Module, pixels: Tensor) -> Tensor:
        features, moved, logits, head = moved_features(net, pixels)
        share = torch.searchsorted(self.shifts, shift(features, moved), right=True) / len(self.shifts)
        percentiles = self.least + (1 - share) * (self.most - self.least)
        with torch.no_grad():
            return self.scaled(features, logits, head, scaling(features, percentiles)).logsumexp(1)

    def scaled(self, features: Tensor, logits: Tensor, head: nn.Linear, by: Tensor) -> Tensor:
        """The logits after scaling by r, N x K."""
        raise NotImplementedError(f"{type(self).__name__} does not define `scaled`")


@score("adascale-a")
@dataclass
class AdaSCALEA(AdaSCALE):
    def scaled(self, features: Tensor, logits: Tensor, head: nn.Linear, by: Tensor) -> Tensor:
        rescaled: Tensor = head(features * by.exp())
        return rescaled


@score("adascale-l")
@dataclass
class AdaSCALEL(AdaSCALE):
    def scaled(self, features: Tensor, logits: Tensor, head: nn.Linear, by: Tensor) -> Tensor:
        return logits * by.square()


def moved_features(net: nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, nn.Linear]:
    """h and h', the logits, and the last layer."""
    with tracked(pixels) as inputs:
        head, features, logits = nets.through_head(net, inputs)
        (slope,) = torch.autograd.grad(logits.amax(1).sum(), inputs)
    # Normalised pixels are (x - mean) / std, so that their gradient is that of x times std, and a step of 0.5 in them
    # is one of 0.5 std in x.
    std = pixels.new_tensor((nets.preparation_of(net) or DEFAULT).normalisation.std).view(3, 1, 1)
    sizes = (slope * std).abs().flatten(1)
    weakest = sizes.topk(max(1, round(MOVED * sizes.shape[1])), largest=False).indices
    chosen = torch.zeros_like(sizes).scatter(1, weakest, 1).view_as(pixels)
    with torch.no_grad():
        _, moved, _ = nets.through_head(net, pixels + chosen * STEP * std * slope.sign())
    return features.detach(), moved, logits.detach(), head


def shift(features: Tensor, moved: Tensor) -> Tensor:
    """Q, one per image."""
    active, shifted = (kept(features, percentile)[1] for percentile in (ACTIVE, SHIFTED))
    change = (features - moved).abs().gather(1, shifted).sum(1)
    return moved.clamp(min=0).gather(1, active).sum(1) + SHIFT * change


def scaling(features: Tensor, percentiles: Tensor) -> Tensor:
    """r, N x 1, for one percentile per image; 1 for an image without positive features."""
    positive = features.clamp(min=0).sort(1, descending=True).values
    count = features.shape[1]
    largest = (count - (count * percentiles / 100).round().long()).clamp(min=1)[:, None]
    top = positive.cumsum(1).gather(1, largest - 1)
    total = positive.sum(1, keepdim=True)
    return torch.where(top > 0, total / top, 1)
