"""Each method against its formula written out again, and the interface that the training loop relies on."""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from macs import methods
from macs.core.errors import MacsError
from macs.methods import Batch
from macs.methods.divoe import DiversifiedOutlierExposure
from macs.methods.energy import EnergyBounded
from macs.methods.energy_oe import EnergyWithExposure
from macs.methods.logitnorm import LogitNorm
from macs.methods.macs import MarginBoundedConfidence
from macs.methods.mcd import ConfidenceDifference
from macs.methods.mixoe import MixtureOutlierExposure, cutmix
from macs.methods.oe import OutlierExposure
from macs.training.recipe import Recipe
from macs.training.spec import METHODS


class Counting(nn.Module):
    """A linear network that remembers what went through it."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 8 * 8, classes)
        self.seen: list[Tensor] = []

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen.append(pixels.detach().clone())
        return self.fc(pixels.flatten(1))


@pytest.fixture
def net() -> Counting:
    torch.manual_seed(0)
    return Counting()


def batch(n_in: int = 6, n_out: int = 10) -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(n_in, 3, 8, 8), torch.randint(4, (n_in,)), torch.rand(n_out, 3, 8, 8))


def gradients(net: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters())))


def test_the_files_are_the_methods() -> None:
    assert (
        methods.available()
        == sorted(METHODS)
        == ["aoe", "dal", "divoe", "energy", "energy-oe", "logitnorm", "macs", "mcd", "mixoe", "msp", "oe", "oecc"]
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("msp", "oe", "energy", "energy-oe", "macs", "mcd", "dal", "oecc", "aoe")),
        ("mixoe", {"joint": True}),
    ],
)
def test_images_and_outliers_share_one_forward_pass(name: str, options: dict[str, bool], net: Counting) -> None:
    pair = batch()
    method = methods.build(name, options).prepare(net, pair)
    net.seen.clear()
    method.step(net, pair)
    assert [len(seen) for seen in net.seen] == [16]


def test_macs_at_margin_zero_is_outlier_exposure_to_the_bit(net: Counting) -> None:
    with_margin = MarginBoundedConfidence(margin=0.0).step(net, batch())
    without = OutlierExposure().step(net, batch())
    assert with_margin.loss.item() == without.loss.item()
    pairs = zip(gradients(net, with_margin.loss), gradients(net, without.loss), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("variant", ["margin", "hinge", "unbounded"])
@pytest.mark.parametrize("reduction", ["mean", "paper"])
def test_macs_is_its_equations_written_out(variant: Any, reduction: Any) -> None:
    torch.manual_seed(3)
    logits_in, logits_out = torch.randn(5, 4).double() * 2, torch.randn(7, 4).double()
    labels = torch.randint(4, (5,))
    confidences_in = [max(math.exp(v) for v in z) / sum(math.exp(v) for v in z) for z in logits_in.tolist()]
    confidences_out = [max(math.exp(v) for v in z) / sum(math.exp(v) for v in z) for z in logits_out.tolist()]
    gaps = [a - b for a in confidences_in for b in confidences_out]
    mcd = sum(max(0.0, gap) ** 2 for gap in gaps) / (35 if reduction == "mean" else 5)
    push = {
        "margin": max(0.0, 0.3 - mcd),
        "hinge": sum(max(0.0, 0.3 - gap) ** 2 for gap in gaps) / 35,
        "unbounded": -mcd,
    }[variant]
    uniform = torch.full((7, 4), 0.25).double()
    expected = cross_entropy(logits_in, labels) + 0.7 * cross_entropy(logits_out, uniform) + 0.2 * push
    method = MarginBoundedConfidence(0.3, weight=0.7, margin_weight=0.2, variant=variant, reduction=reduction)
    assert method.loss(logits_in, labels, logits_out).item() == pytest.approx(expected.item(), rel=1e-12)


def test_mcd_is_what_the_unbounded_push_takes_away() -> None:
    torch.manual_seed(3)
    logits_in, logits_out, labels = torch.randn(5, 4).double() * 2, torch.randn(7, 4).double(), torch.randint(4, (5,))
    exposed, closing, opening = (
        method.loss(logits_in, labels, logits_out).item()
        for method in (
            OutlierExposure(0.7),
            ConfidenceDifference(0.7, 0.2),
            MarginBoundedConfidence(0.0, 0.7, 0.2, "unbounded"),
        )
    )
    gap = (logits_in.softmax(1).amax(1)[:, None] - logits_out.softmax(1).amax(1)).clamp(min=0).square().mean().item()
    assert closing - exposed == pytest.approx(0.2 * gap, rel=1e-9)
    assert exposed - opening == pytest.approx(0.2 * gap, rel=1e-9)


def test_energy_with_exposure_is_the_sum_of_both() -> None:
    torch.manual_seed(3)
    logits_in, logits_out, labels = torch.randn(5, 4) * 9, torch.randn(7, 4) * 9, torch.randint(4, (5,))
    both = EnergyWithExposure().loss(logits_in, labels, logits_out)
    energy, exposed = (
        method.loss(logits_in, labels, logits_out) for method in (EnergyBounded(0.1, -25.0, -7.0), OutlierExposure(0.5))
    )
    assert both.item() == pytest.approx((energy + exposed - cross_entropy(logits_in, labels)).item(), rel=1e-6)
    assert (EnergyWithExposure().score, EnergyBounded().score) == ("msp", "energy")


@pytest.mark.parametrize("temperature", [0.04, 1.0])
def test_logitnorm_is_its_equation_and_ignores_the_size_of_logits(temperature: float) -> None:
    torch.manual_seed(3)
    logits, labels = torch.randn(5, 4).double(), torch.randint(4, (5,))
    terms = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        norm = math.sqrt(sum(value**2 for value in row)) + 1e-7
        scaled = [value / norm / temperature for value in row]
        terms.append(math.log(sum(math.exp(value) for value in scaled)) - scaled[label])
    method = LogitNorm(temperature)
    assert method.loss(logits, labels, logits[:0]).item() == pytest.approx(sum(terms) / 5, rel=1e-12)
    assert method.loss(9 * logits, labels, logits[:0]).item() == pytest.approx(sum(terms) / 5, rel=1e-5)
    assert not method.needs_outliers


def test_only_the_hinge_pushes_a_pair_whose_outlier_is_more_confident() -> None:
    for method, pushed in (
        (MarginBoundedConfidence(0.5, variant="margin"), False),
        (MarginBoundedConfidence(0.5, variant="hinge"), True),
    ):
        unsure, confident = torch.tensor([0.3], requires_grad=True), torch.tensor([0.9], requires_grad=True)
        method.penalty(unsure, confident).backward()
        assert unsure.grad is not None and confident.grad is not None
        assert (unsure.grad.item() < 0) == (confident.grad.item() > 0) == pushed


def test_energy_margins_come_from_the_network_when_none_are_given(net: Counting) -> None:
    pair = batch()
    prepared = EnergyBounded().prepare(net, pair)

    def mean(images: Tensor) -> float:
        return -torch.log(torch.exp(net.fc(images.flatten(1))).sum(1)).mean().item()

    assert prepared.m_in == pytest.approx(mean(pair.images), rel=1e-5)
    assert prepared.m_out == pytest.approx(mean(pair.outliers), rel=1e-5)
    for given in ({"m_in": -23.0}, {"m_out": -5.0}):  # the other one is found
        assert EnergyBounded(**given).prepare(net, pair) == replace(prepared, **given)
    assert net.training


def test_energy_has_no_outlier_exposure_term() -> None:
    logits = torch.zeros(4, 4)
    # All energies are -log 4; with margins that they satisfy only the cross-entropy is left.
    loss = EnergyBounded(m_in=0.0, m_out=-5.0).loss(logits, torch.arange(4), logits)
    assert loss.item() == pytest.approx(math.log(4))


def test_mixup_is_cross_entropy_to_the_soft_target(net: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = batch(n_in=4, n_out=6)
    lam = 0.3
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self: torch.tensor(lam, dtype=torch.float64))
    step = MixtureOutlierExposure().step(net, pair)
    partner = [0, 1, 2, 3, 0, 1]
    mixed = lam * pair.images[partner] + (1 - lam) * pair.outliers
    target = lam * one_hot(pair.labels[partner], 4) + (1 - lam) / 4
    logits = net.fc(torch.cat([pair.images, mixed]).flatten(1))
    expected = cross_entropy(logits[:4], pair.labels) + 5 * cross_entropy(logits[4:], target)
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_mixoe_shows_the_network_id_images_first_and_mixed_images_alone(net: Counting) -> None:
    pair = batch(n_in=4, n_out=6)
    MixtureOutlierExposure().step(net, pair)
    assert [len(seen) for seen in net.seen] == [4, 6]
    assert torch.equal(net.seen[0], pair.images)


def test_mixoe_normalises_id_and_mixed_images_by_their_own_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    pair = batch(n_in=4, n_out=6)
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self: torch.tensor(0.0))  # only the outlier is left

    def alone(images: Tensor) -> Tensor:
        mean, var = images.mean((0, 2, 3), keepdim=True), images.var((0, 2, 3), keepdim=True, correction=0)
        return net[2](((images - mean) / (var + 1e-5).sqrt()).flatten(1))

    step = MixtureOutlierExposure().step(net, pair)
    torch.testing.assert_close(step.logits_in, alone(pair.images))
    torch.testing.assert_close(step.logits_out, alone(pair.outliers))


def test_the_side_of_a_cutmix_patch_is_the_root_of_the_share_that_is_pasted() -> None:
    """In the middle of 64 x 64 pixels nothing is cut off: a quarter of the area has half of the side."""
    images, outliers = torch.zeros(1, 3, 64, 64), torch.ones(1, 3, 64, 64)
    for lam, side in ((0.75, 32), (0.0, 64), (0.9375, 16)):
        mixed, left = cutmix(images, outliers, lam, 32, 32)
        assert mixed[0, 0].sum() == side**2 and left == 1 - side**2 / 64**2


def test_cutmix_reports_the_area_that_is_left() -> None:
    torch.manual_seed(0)
    images, outliers = torch.zeros(2, 3, 16, 16), torch.ones(2, 3, 16, 16)
    for lam in (0.0, 0.1, 0.5, 0.9, 1.0):
        for _ in range(20):
            y, x = torch.randint(16, (2,)).tolist()
            mixed, left = cutmix(images, outliers, lam, y, x)
            assert left == pytest.approx(1 - mixed.mean().item())


def test_divoe_moves_half_of_the_outliers_uphill_inside_ball_and_pixels(net: Counting) -> None:
    pair = batch(n_out=10)
    method = DiversifiedOutlierExposure(eps=0.05)
    torch.manual_seed(5)
    step = method.step(net, pair)
    moved = net.seen[-1][6:]
    assert torch.equal(moved[5:], pair.outliers[5:])
    assert (moved[:5] - pair.outliers[:5]).abs().max() <= 0.05 + 1e-6
    assert moved.min() >= 0 and moved.max() <= 1
    uniform = torch.full((5, 4), 0.25)
    assert cross_entropy(net(moved[:5]), uniform) > cross_entropy(net(pair.outliers[:5]), uniform)
    assert step.loss.item() == pytest.approx(OutlierExposure().step(net, replace(pair, outliers=moved)).loss.item())
    assert net.fc.weight.grad is None and net.training


def test_a_step_of_divoe_by_hand() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    net[1].weight = nn.Parameter(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))  # the first class, where x > y: raise x - y

    def moved(pixels: list[float], start: list[float], steps: int) -> list[float]:
        images, shift = (torch.tensor(values).view(1, 1, 1, 2) for values in (pixels, start))
        return DiversifiedOutlierExposure(eps=0.08, steps=steps).extrapolate(net, images, shift).flatten().tolist()

    assert moved([0.5, 0.4], [0.03, -0.01], steps=0) == pytest.approx([0.53, 0.39])
    assert moved([0.99, 0.01], [0.05, -0.05], steps=0) == [1, 0]  # pixels stay pixels
    assert moved([0.5, 0.4], [0.03, -0.01], steps=1) == pytest.approx([0.55, 0.37])  # by eps / 4
    assert moved([0.5, 0.4], [0.07, -0.01], steps=2) == pytest.approx([0.58, 0.35])  # x at the edge of its ball
    assert moved([0.4, 0.5], [0.0, 0.0], steps=1) == pytest.approx([0.38, 0.52])  # the second class


def test_divoe_looks_for_hard_outliers_in_evaluation_mode() -> None:
    class Modes(Counting):
        def forward(self, pixels: Tensor) -> Tensor:
            modes.append(self.training)
            return super().forward(pixels)

    modes: list[bool] = []
    DiversifiedOutlierExposure(steps=3).step(Modes(), batch())
    assert modes == [False, False, False, True]


def test_a_recipe_sets_the_fields_of_its_method() -> None:
    method = methods.build("macs", Recipe(margin=0.2, options={"weight": 1, "variant": "hinge"}).options)
    assert method == MarginBoundedConfidence(margin=0.2, weight=1.0, variant="hinge")


@dataclass(frozen=True)
class Incomplete(methods.Method):
    strength: float


class Plain(methods.Method):
    strength: float = 1.0


def test_settings_hold_however_a_method_is_made() -> None:
    assert OutlierExposure(weight=1).weight == 1.0
    with pytest.raises(MacsError, match="weight must be a number, not nan"):
        OutlierExposure(weight=math.nan)
    assert methods.build("mixoe", {"joint": "true"}) == MixtureOutlierExposure(joint=True)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("oe", {"margin": 0.5}, "no setting of oe called 'margin'"),
        ("macs", {"wait": 1}, "did you mean 'weight'"),
        (
            "macs",
            {"variant": "soft"},
            "of macs, variant must be one of margin, hinge",
        ),
        ("divoe", {"steps": 2.5}, "settings of divoe, steps must be a whole number, not 2.5"),
        ("divoe", {"steps": -1}, "steps must be at least 0"),
        ("divoe", {"share": 2}, "share must be at least 0 and at most 1, not 2.0"),
        ("divoe", {"eps": -0.1}, "eps must be at least 0"),
        ("mixoe", {"alpha": 0}, "alpha must be at least 0.001"),
        ("mixoe", {"joint": "perhaps"}, "joint must be true or false"),
        ("oe", {"weight": -1}, "weight must be at least 0"),
        ("energy", {"m_in": 1e30}, "m_in must be at least -1,000,000"),
        ("macs", {"margin": 1.5}, "margin must be at least 0 and below 1"),
        (f"{__name__}:Incomplete", {}, "no default for strength"),
        (f"{__name__}:Plain", {}, "must be a dataclass"),
        ("no_such_module:Thing", {}, "no_such_module"),
        ("math:pi", {}, "subclass of macs.methods.Method"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        methods.build(name, settings)


def test_a_method_is_built_again_from_its_name_and_settings() -> None:
    for name in methods.available():
        made = methods.build(name)
        assert methods.name_of(made) == name and methods.build(name, methods.settings_of(made)) == made
    own = Incomplete(strength=2.0)
    assert methods.name_of(own) == f"{__name__}:Incomplete" and methods.settings_of(own) == {"strength": 2.0}


RENAMED = """
from dataclasses import dataclass
from macs.methods import Method, method


@method("renamed")
@dataclass(frozen=True)
class Renamed(Method):
    pass
"""


def test_a_method_may_be_registered_under_another_name_than_its_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aaa.py").write_text(RENAMED)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    monkeypatch.setattr(methods.method, "_entries", dict(methods.method.entries()))
    monkeypatch.setattr(methods.method, "_complete", False)
    for name in methods.available():
        assert methods.name_of(methods.build(name)) == name
    assert "renamed" in methods.available()
    monkeypatch.delitem(sys.modules, "macs.methods.aaa")


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, 0.3), ({"variant": "hinge"}, None), ({"variant": "unbounded"}, None), ({"reduction": "paper"}, None)],
)
def test_a_method_says_where_it_stops_pushing(options: dict[str, Any], limit: float | None) -> None:
    assert MarginBoundedConfidence(margin=0.3, **options).gap_limit == limit
    assert OutlierExposure().gap_limit is None
