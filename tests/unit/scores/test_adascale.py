"""AdaSCALE in lists and loops, with gradients by finite differences in the normalised pixels."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import macs
from macs import nets, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.inference import GRADIENT_ROWS, Outputs
from macs.nets import Normalise
from macs.scores import know
from macs.scores.adascale import AdaSCALE, AdaSCALEA, AdaSCALEL, scaling
from tiny import noise, stripes

CLASSES = 3


@pytest.fixture
def net() -> nn.Module:
    """A network with random batch norms and other means and stds than the usual ones, in evaluation mode."""
    torch.manual_seed(0)
    made = nets.build("wrn-10-1", classes=CLASSES, normalisation="openood-cifar100").eval()
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    return made


def pixels(count: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


class ByHand:
    """One image through a float64 copy of the network."""

    def __init__(self, net: nn.Module, image: Tensor) -> None:
        self.net = net
        (normalise,) = (module for module in net.modules() if isinstance(module, Normalise))
        self.mean, self.std = normalise.mean.double(), normalise.std.double()
        inputs = (image.double() - self.mean) / self.std
        self.features, self.logits = self.through(inputs[None])
        answer = self.logits[0].index(max(self.logits[0]))
        steps = 1e-5 * torch.eye(inputs.numel(), dtype=torch.float64).view(-1, *inputs.shape)
        ahead, behind = (self.through(inputs + step)[1] for step in (steps, -steps))
        slope = [(a[answer] - b[answer]) / 2e-5 for a, b in zip(ahead, behind, strict=True)]
        weakest = sorted(range(len(slope)), key=lambda i: abs(slope[i]))[: round(0.05 * len(slope))]
        moved = inputs.flatten().tolist()
        for i in weakest:
            moved[i] += 0.5 * math.copysign(1, slope[i])
        self.moved, _ = self.through(torch.tensor(moved, dtype=torch.float64).view_as(inputs)[None])

    def through(self, inputs: Tensor) -> tuple[list[list[float]], list[list[float]]]:
        with torch.no_grad():
            features, logits = nets.features_of(self.net, inputs * self.std + self.mean)
        return features.tolist(), logits.tolist()

    @property
    def shift(self) -> float:
        before, after = self.features[0], self.moved[0]
        ranked = sorted(range(len(before)), key=lambda d: -before[d])
        top, first = (
            ranked[: len(before) - round(0.95 * len(before))],
            ranked[: len(before) - round(0.99 * len(before))],
        )
        return sum(max(0, after[d]) for d in top) + 10 * sum(abs(before[d] - after[d]) for d in first)

    def confidences(self, shifts: list[float], least: float, most: float) -> tuple[float, float]:
        """Those of adascale-a and adascale-l."""
        share = sum(each <= self.shift for each in shifts) / len(shifts)
        percentile = least + (1 - share) * (most - least)
        positive = sorted((max(0, f) for f in self.features[0]), reverse=True)
        r = sum(positive) / sum(positive[: len(positive) - round(len(positive) * percentile / 100)])
        weight, bias = (self.net.get_parameter(f"fc.{name}").tolist() for name in ("weight", "bias"))
        scaled = [
            sum(w * f * math.exp(r) for w, f in zip(row, self.features[0], strict=True)) + b
            for row, b in zip(weight, bias, strict=True)
        ]
        return tuple(
            math.log(sum(math.exp(z - max(logits)) for z in logits)) + max(logits)
            for logits in (scaled, [z * r**2 for z in self.logits[0]])
        )  # type: ignore[return-value]


def with_shifts(score: AdaSCALE, shifts: list[float]) -> AdaSCALE:
    """A score that is fitted to these values of Q."""
    return score._keep({"shifts": torch.tensor(sorted(shifts), dtype=torch.float64)}, "")


def confidences(score: AdaSCALE, net: nn.Module, images: Tensor) -> list[float]:
    return score.confidence(Outputs(torch.zeros(len(images), CLASSES), pixels=images, net=net)).tolist()


@pytest.mark.parametrize(("least", "most"), [(75.0, 85.0), (30.0, 90.0), (80.0, 80.0)])
def test_both_variants_by_hand(net: nn.Module, least: float, most: float) -> None:
    images = pixels(4)
    by_hand = [ByHand(net.double(), image) for image in images]
    shifts = [each.shift + more for each in by_hand for more in (-1e-3, 1e-3)]  # so that F is 1/8, 3/8, ...
    expected = [each.confidences(shifts, least, most) for each in by_hand]
    for kind, column in ((AdaSCALEA, 0), (AdaSCALEL, 1)):
        found = confidences(with_shifts(kind(least, most), shifts), net, images)
        assert found == pytest.approx([row[column] for row in expected], rel=1e-9)


def test_fitting_collects_the_shifts_of_held_out_images(net: nn.Module, known: ImageSet) -> None:
    held_out = noise(25, seed=5)
    fitted = AdaSCALEA().fit(know(net, known, held_out, precision="float32"))
    images = torch.from_numpy(held_out.pixels[:]).permute(0, 3, 1, 2) / 255
    expected = sorted(ByHand(net.double(), image).shift for image in images)
    assert fitted.shifts.tolist() == pytest.approx(expected, rel=1e-3)
    assert fitted.bound_to and not fitted.shifts.requires_grad


def test_held_out_images_may_come_from_the_training_images(net: nn.Module) -> None:
    known = know(net, stripes(100, seed=1), precision="float32")
    divided = known.divided(25, seed=0)
    assert len(divided.held_out_images) == 25 and len(divided.images) == 75
    rows = {row.tobytes() for part in (divided.images, divided.held_out_images) for row in part.pixels[:]}
    assert rows == {row.tobytes() for row in known.images.pixels[:]}
    again = know(net, divided.held_out_images, precision="float32").features
    assert torch.allclose(again, divided.held_out.features, atol=1e-5)
    assert len(AdaSCALEL().fit(divided).shifts) == 25


def test_batches_do_not_matter_and_nothing_is_left_behind(net: nn.Module) -> None:
    images = pixels(GRADIENT_ROWS + 6)
    score = with_shifts(AdaSCALEA(), [1.0, 2.0, 3.0])
    net.double()
    with torch.inference_mode():
        together = confidences(score, net, images)
    alone = [value for image in images[::7] for value in confidences(score, net, image[None])]
    assert together[::7] == pytest.approx(alone, rel=1e-9)
    assert all(parameter.grad is None for parameter in net.parameters()) and not images.requires_grad


def test_a_users_network_takes_part_and_an_image_without_features_is_not_scaled(known: ImageSet) -> None:
    torch.manual_seed(0)
    own = nn.Sequential(nn.Flatten(), nn.Linear(768, 40), nn.ReLU(), nn.Linear(40, 3))
    test, sets = stripes(60, seed=2), {"noise": noise(60, seed=3)}
    for name in ("adascale-a", "adascale-l"):
        table = macs.evaluate(own, test, sets, score=name, train=known, progress=False)
        assert table.score == name and 0 <= table.sets[0].full.auroc <= 1
    assert scaling(torch.zeros(1, 8), torch.tensor([80.0])).tolist() == [[1]]
    assert scaling(-torch.ones(1, 8), torch.tensor([80.0])).tolist() == [[1]]
    assert scaling(torch.arange(10.0)[None], torch.tensor([100.0])).item() == pytest.approx(45 / 9)


def test_it_says_what_it_lacks(net: nn.Module, known: ImageSet) -> None:
    with pytest.raises(MacsError, match="To fit AdaSCALEA takes at least 20 held-out ID images, but there are 0"):
        AdaSCALEA().fit(know(net, known))
    with pytest.raises(MacsError, match="least must be at most 85, which is `most`, not 90"):
        scores.get("adascale-a", least=90)
    with pytest.raises(MacsError, match="needs the gradient of the network"):
        macs.Detector(net, "adascale-l")
    with pytest.raises(MacsError, match="cannot be part of a sum"):
        scores.get("msp+adascale-a")
    assert np.isclose(scores.get("adascale-a").settings["least"], 75)
