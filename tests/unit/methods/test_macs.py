"""MaCS on confidences, energies and log-odds: its equations written out, its derivatives, and its margins."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from command import refused
from macs import methods
from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.losses import confidence, hinge_penalty, macs_penalty, mcd, outlier_exposure
from macs.methods.macs import QUANTITIES, MarginBoundedConfidence
from macs.training.recipe import Recipe
from macs.training.spec import Start, TrainingSpec


def logits(seed: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of five ID images and seven outliers of four classes, and the labels."""
    torch.manual_seed(seed)
    return 3 * torch.randn(5, 4).double(), torch.randint(4, (5,)), 2 * torch.randn(7, 4).double()


def quantity(on: str, z: list[float]) -> float:
    """s by its definition, from probabilities that do not saturate here."""
    total = sum(math.exp(v) for v in z)
    p = max(math.exp(v) for v in z) / total
    return {"confidence": p, "energy": math.log(total), "log-odds": math.log(p / (1 - p))}[on]


def written_out(on: str, variant: str, reduction: str, margin: float, z_in: Tensor, z_out: Tensor) -> float:
    gaps = [quantity(on, x) - quantity(on, o) for x in z_in.tolist() for o in z_out.tolist()]
    mcd = sum(max(0.0, gap) ** 2 for gap in gaps) / (len(gaps) if reduction == "mean" else len(z_in))
    short = sum(max(0.0, margin - gap) ** 2 for gap in gaps) / len(gaps)
    if on == "confidence":
        return {"margin": max(0.0, margin - mcd), "hinge": short, "unbounded": -mcd}[variant]
    square = margin**2
    return {"margin": max(0.0, 1 - mcd / square), "hinge": short / square, "unbounded": -mcd / square}[variant]


@pytest.mark.parametrize("reduction", ["mean", "paper"])
@pytest.mark.parametrize("variant", ["margin", "hinge", "unbounded"])
@pytest.mark.parametrize(("on", "margin"), [("confidence", 0.6), ("energy", 7.0), ("energy", 0.7), ("log-odds", 8.0)])
def test_it_is_its_equations_written_out(on: Any, margin: float, variant: Any, reduction: Any) -> None:
    z_in, labels, z_out = logits()
    push = written_out(on, variant, reduction, margin, z_in, z_out)
    uniform = torch.full((7, 4), 0.25).double()
    expected = cross_entropy(z_in, labels).item() + 0.7 * cross_entropy(z_out, uniform).item() + 0.2 * push
    method = MarginBoundedConfidence(margin, 0.7, 0.2, variant, reduction, on)
    assert method.loss(z_in, labels, z_out).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variant", ["margin", "hinge", "unbounded"])
@pytest.mark.parametrize("on", ["confidence", "energy", "log-odds"])
def test_its_gradient_passes_finite_differences(on: Any, variant: Any) -> None:
    z_in, labels, z_out = logits()
    method = MarginBoundedConfidence(variant=variant, on=on)
    assert gradcheck(lambda x, o: method.loss(x, labels, o), (z_in.requires_grad_(), z_out.requires_grad_()))


@pytest.mark.parametrize("variant", ["margin", "hinge", "unbounded"])
def test_on_confidences_it_is_the_papers_to_the_bit(variant: Any) -> None:
    z_in, labels, z_out = (each.float() if each.is_floating_point() else each for each in logits())
    a, b = confidence(z_in), confidence(z_out)
    push = {"margin": macs_penalty(a, b, 0.5), "hinge": hinge_penalty(a, b, 0.5), "unbounded": -mcd(a, b)}[variant]
    expected = cross_entropy(z_in, labels) + 0.5 * outlier_exposure(z_out) + 0.5 * push
    assert torch.equal(MarginBoundedConfidence(variant=variant).loss(z_in, labels, z_out), expected)


@pytest.mark.parametrize("on", ["energy", "log-odds"])
def test_it_still_pushes_where_confidences_are_saturated(on: Any) -> None:
    # Both probabilities round to 1 in float32; the outlier has even more of it.
    unsure, sure = torch.tensor([[30.0, 0.0, 0.0]]), torch.tensor([[60.0, 0.0, 0.0]])
    slopes = {}
    for which in ("confidence", on):
        x, o = unsure.clone().requires_grad_(), sure.clone().requires_grad_()
        method = MarginBoundedConfidence(weight=0, variant="hinge", on=which)
        method.penalty(QUANTITIES[which](x), QUANTITIES[which](o)).backward()
        assert x.grad is not None and o.grad is not None
        slopes[which] = x.grad[0, 0].item(), o.grad[0, 0].item()
    assert slopes["confidence"] == pytest.approx((0, 0), abs=1e-9)
    # One pair whose gap is -30 at the margin 10: the slope of (10 + 30)^2 / 10^2.
    assert slopes[on] == pytest.approx((-0.8, 0.8), rel=1e-6)


def test_the_scale_of_the_logits_is_only_the_unit_of_the_margin() -> None:
    torch.manual_seed(0)
    s_in, s_out = torch.randn(6).double() + 1, torch.randn(8).double()
    variants: tuple[Any, ...] = ("margin", "hinge", "unbounded")
    for variant in variants:
        small, large = (MarginBoundedConfidence(m, variant=variant, on="energy") for m in (2.0, 20.0))
        assert small.penalty(s_in, s_out).item() == pytest.approx(large.penalty(10 * s_in, 10 * s_out).item())


@pytest.mark.parametrize("variant", ["margin", "hinge", "unbounded"])
@pytest.mark.parametrize("on", ["confidence", "energy", "log-odds"])
def test_a_focus_takes_the_least_confident_images_and_the_most_confident_outliers(on: Any, variant: Any) -> None:
    z_in, labels, z_out = logits()
    method = MarginBoundedConfidence(weight=0, margin_weight=1, variant=variant, on=on, focus=0.4)
    # 0.4 of five images are two; 0.4 of seven outliers are 2.8, so three.
    hard_in = sorted(z_in.tolist(), key=lambda z: quantity(on, z))[:2]
    hard_out = sorted(z_out.tolist(), key=lambda z: quantity(on, z))[-3:]
    push = written_out(on, variant, "mean", method.m, torch.tensor(hard_in), torch.tensor(hard_out))
    expected = cross_entropy(z_in, labels).item() + push
    assert method.loss(z_in, labels, z_out).item() == pytest.approx(expected, rel=1e-6)
    x, o = z_in.requires_grad_(), z_out.requires_grad_()
    assert gradcheck(lambda x, o: method.loss(x, labels, o), (x, o))
    (pushed,) = torch.autograd.grad(method.loss(x, labels, o), o)
    assert {tuple(o[i].tolist()) for i in range(7) if pushed[i].any()} <= {tuple(z) for z in hard_out}


def test_every_focus_keeps_at_least_one_image_of_each_kind() -> None:
    s_in, s_out = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.5])
    method = MarginBoundedConfidence(1.0, variant="hinge", on="energy", focus=0.001)
    assert method.penalty(s_in, s_out).item() == 0.25  # the pair (1, 0.5) lacks 0.5
    assert method.penalty(s_in, torch.empty(0)).item() == 0
    with pytest.raises(MacsError, match="focus must be above 0 and at most 1"):
        methods.build("macs", {"focus": 0})


def test_the_margin_has_a_default_for_each_quantity_and_is_recorded() -> None:
    for on, margin in (("confidence", 0.5), ("energy", 10.0), ("log-odds", 10.0)):
        method = methods.build("macs", {"on": on})
        assert methods.settings_of(method)["margin"] == margin
    assert methods.build("macs", Recipe(margin=25, options={"on": "energy"}).options) == MarginBoundedConfidence(
        25.0, on="energy"
    )


def test_energies_are_detected_by_energy_and_have_no_limit_on_mcd() -> None:
    scores = {on: methods.build("macs", {"on": on}).score for on in ("confidence", "energy", "log-odds")}
    assert scores == {"confidence": "msp", "energy": "energy", "log-odds": "msp"}
    assert methods.build("macs").gap_limit == 0.5 and methods.build("macs", {"on": "energy"}).gap_limit is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"margin": 5}, "below 1, not 5, .* set on to energy"),
        ({"margin": 0, "on": "energy"}, "above 0 on energy"),
        ({"margin": -1, "on": "log-odds"}, "margin must be at least 0"),
        ({"on": "margin"}, "on must be one of confidence, energy, log-odds"),
    ],
)
def test_a_margin_that_does_not_suit_its_quantity_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        methods.build("macs", settings)


def test_the_command_says_what_a_large_margin_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--options.on energy" in refused(capsys, "finetune", "--margin", 10)
    assert "--options.on energy" in refused(capsys, "sweep", "--margins", 1, 10)


def test_a_cell_from_before_the_quantity_could_be_chosen_is_found_again() -> None:
    def identity(**settings: Any) -> Any:
        images, start = DataSpec("cifar10", "train", fingerprint="aa"), Start("classifier.pt", "bb")
        recipe = Recipe(options=settings)
        return TrainingSpec(images, images, "wrn-40-2", (), Preparation(), start, "macs", recipe).identity()

    assert identity(margin=0.5, on="confidence", focus=1.0) == identity(margin=0.5)
    assert identity(margin=0.5, focus=0.2) != identity(margin=0.5)
    assert identity(margin=0.5, on="energy") != identity(margin=0.5)
