"""The terms against double loops, numbers worked out by hand, finite differences and closed forms."""

import math
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import cross_entropy

from macs import losses
from macs.core.errors import MacsError
from macs.losses import (
    confidence,
    energy,
    energy_margin,
    hinge_penalty,
    log_odds,
    macs_penalty,
    mcd,
    outlier_exposure,
)

FORMS = {"dense": 1 << 60, "sorted": -1}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to sum over pairs, whatever the size."""
    monkeypatch.setattr(losses, "_DENSE_PAIRS", FORMS[request.param])
    return request.param


def double_loop(
    a: list[float], b: list[float], gap: Callable[[float, float], float]
) -> tuple[float, list[float], list[float]]:
    """Sum of max(0, gap)^2 over pairs, and its gradient with respect to the gap summed over rows and over columns."""
    excess = [[max(0.0, gap(x, y)) for y in b] for x in a]
    rows = [math.fsum(2 * e for e in row) for row in excess]
    columns = [math.fsum(2 * row[j] for row in excess) for j in range(len(b))]
    return math.fsum(e * e for row in excess for e in row), rows, columns


def draw(n: int, kind: str, seed: int) -> Tensor:
    """Confidences as they occur: spread out, on a coarse grid (many ties), or crowded just below 1."""
    generator = random.Random(seed)
    draws: dict[str, Callable[[], float]] = {
        "spread": generator.random,
        "ties": lambda: generator.randrange(5) / 4,
        "crowded": lambda: 1 - 1e-6 * generator.random(),
    }
    return torch.tensor([draws[kind]() for _ in range(n)])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("kind", ["spread", "ties", "crowded"])
@pytest.mark.parametrize(("n_in", "n_out"), [(1, 1), (1, 9), (9, 1), (17, 40), (64, 64)])
@pytest.mark.parametrize("term", ["mean", "paper", "hinge"])
def test_pair_terms_equal_the_double_loop_in_value_and_gradient(
    form: str, term: Any, n_in: int, n_out: int, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    a = draw(n_in, kind, seed=n_in).to(dtype).requires_grad_()
    b = draw(n_out, kind, seed=100 + n_out).to(dtype).requires_grad_()
    if term == "hinge":
        value, sign, count = hinge_penalty(a, b, 0.3), -1, n_in * n_out
        total, rows, columns = double_loop(a.tolist(), b.tolist(), lambda x, y: 0.3 - (x - y))
    else:
        value, sign, count = mcd(a, b, term), 1, n_in * (n_out if term == "mean" else 1)
        total, rows, columns = double_loop(a.tolist(), b.tolist(), lambda x, y: x - y)
    value.backward()
    assert value.dtype == dtype
    assert value.item() == pytest.approx(total / count, rel=tolerance, abs=1e-300)
    # A float32 gap loses digits where a - b + 0.3 is rounded: that much is allowed at any size.
    absolute = tolerance * 2 / max(n_in, n_out) if term == "hinge" else 1e-300
    assert a.grad.tolist() == pytest.approx([sign * g / count for g in rows], rel=tolerance, abs=absolute)
    assert b.grad.tolist() == pytest.approx([-sign * g / count for g in columns], rel=tolerance, abs=absolute)


def test_both_forms_agree_on_both_sides_of_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    a, b = torch.rand(500, dtype=torch.float64), torch.rand(500, dtype=torch.float64)
    assert a.numel() * b.numel() < losses._DENSE_PAIRS < 2 * a.numel() * b.numel()
    dense = mcd(a, b)
    monkeypatch.setattr(losses, "_DENSE_PAIRS", 0)
    assert mcd(a, b).item() == pytest.approx(dense.item(), rel=1e-13)


def test_gradients_pass_finite_differences(form: str) -> None:
    torch.manual_seed(1)
    a, b = (torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (6, 9))
    assert gradcheck(mcd, (a, b))
    assert gradcheck(lambda x, y: mcd(x, y, "paper"), (a, b))
    assert gradcheck(lambda x, y: macs_penalty(x, y, 0.9), (a, b))
    assert gradcheck(lambda x, y: hinge_penalty(x, y, 0.5), (a, b))


def all_pairs(a: Tensor, b: Tensor, term: str) -> Tensor:
    """The pair terms from the matrix of all pairs, which torch differentiates by itself as often as it likes."""
    gaps = torch.relu(0.5 - (a[:, None] - b) if term == "hinge" else a[:, None] - b).square()
    return torch.relu(0.9 - gaps.mean()) if term == "penalty" else gaps.mean()


TERMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mcd": mcd,
    "penalty": lambda x, y: macs_penalty(x, y, 0.9),
    "hinge": lambda x, y: hinge_penalty(x, y, 0.5),
}


@pytest.mark.parametrize("term", TERMS)
def test_second_derivatives_are_exact(form: str, term: str) -> None:
    torch.manual_seed(7)
    a, b = (torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (6, 9))
    assert gradgradcheck(TERMS[term], (a, b))
    ours = torch.autograd.functional.hessian(TERMS[term], (a, b))
    theirs = torch.autograd.functional.hessian(lambda x, y: all_pairs(x, y, term), (a, b))
    torch.testing.assert_close(ours, theirs)
    assert ours[0][0].any() and ours[0][1].any()


@pytest.mark.parametrize("term", TERMS)
def test_function_transforms_agree_with_the_matrix_of_all_pairs(form: str, term: str) -> None:
    torch.manual_seed(8)
    a, b = torch.rand(3, 6, dtype=torch.float64), torch.rand(3, 9, dtype=torch.float64)

    def theirs(x: Tensor, y: Tensor) -> Tensor:
        return all_pairs(x, y, term)

    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacrev):
        ours = transform(TERMS[term], (0, 1))
        torch.testing.assert_close(ours(a[0], b[0]), transform(theirs, (0, 1))(a[0], b[0]))
        torch.testing.assert_close(torch.vmap(ours)(a, b), torch.vmap(transform(theirs, (0, 1)))(a, b))


def test_third_derivatives_of_a_square_are_exact(form: str) -> None:
    torch.manual_seed(9)
    a, b = torch.rand(5, dtype=torch.float64, requires_grad=True), torch.rand(4, dtype=torch.float64)
    found = []
    for gap in (mcd, lambda x, y: all_pairs(x, y, "mcd")):
        slope = gap(a, b) ** 2
        for _ in range(3):
            (slope,) = torch.autograd.grad(slope.sum(), a, create_graph=True)
        found.append(slope)
    torch.testing.assert_close(*found)


def test_a_large_batch_is_differentiated_twice_without_its_pairs() -> None:
    # Of two grids like those below, a_i is above i of the b_j: the curvature along a alone is 2 i / n^2.
    n = 1 << 18
    a = (torch.arange(n) / n).requires_grad_()
    b = torch.arange(n) / n
    (slope,) = torch.autograd.grad(mcd(a, b), a, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), a)
    torch.testing.assert_close(curvature, 2 * torch.arange(n) / n**2)


def test_a_million_confidences_a_side_give_the_closed_form() -> None:
    # For a = b = {0, 1/n, ..., (n-1)/n}: sum_d (n - d) d^2 / n^4 = (n^2 - 1) / (12 n^2). All pairs would need 4 TB.
    n = 1 << 20
    grid = torch.arange(n) / n
    a, b = grid.clone().requires_grad_(), grid.flip(0).requires_grad_()
    value = mcd(a, b)
    value.backward()
    assert value.item() == pytest.approx((n**2 - 1) / (12 * n**2), rel=1e-7)
    # The highest ID confidence has gaps 1/n, ..., (n-1)/n: 2/n^2 * (n-1)/2. Likewise the lowest outlier.
    assert a.grad[-1].item() == pytest.approx((n - 1) / n**2, rel=1e-6)
    assert b.grad[-1].item() == pytest.approx(-(n - 1) / n**2, rel=1e-6)
    assert a.grad[0].item() == 0 == b.grad[0].item()


def test_two_clouds_apart_give_the_sum_of_mean_and_variance(form: str) -> None:
    # Where every a_i > b_j: mean_ij (a_i - b_j)^2 = (mean a - mean b)^2 + var a + var b.
    torch.manual_seed(2)
    a, b = 0.6 + 0.4 * torch.rand(500, dtype=torch.float64), 0.5 * torch.rand(700, dtype=torch.float64)
    expected = (a.mean() - b.mean()) ** 2 + a.var(correction=0) + b.var(correction=0)
    assert mcd(a, b).item() == pytest.approx(expected.item(), rel=1e-12)


def test_exploded_and_tied_pairs_get_no_gradient_from_mcd(form: str) -> None:
    a = torch.tensor([0.3, 0.5, 0.5], requires_grad=True)
    b = torch.tensor([0.5, 0.9], requires_grad=True)
    value = mcd(a, b)
    value.backward()
    assert value.item() == 0
    assert not a.grad.any()
    assert not b.grad.any()


def test_the_hinge_pushes_the_pairs_that_mcd_leaves_alone(form: str) -> None:
    # Gaps -0.25 and 0.5 under a margin of 0.25: only the first pair is short, by 0.5.
    a, b = torch.tensor([0.5]).requires_grad_(), torch.tensor([0.75, 0.0]).requires_grad_()
    value = hinge_penalty(a, b, 0.25)
    value.backward()
    assert value.item() == 0.5**2 / 2
    assert a.grad.tolist() == [-0.5]
    assert b.grad.tolist() == [0.5, 0.0]


def test_the_penalty_is_what_is_missing_to_the_margin_and_stops_there() -> None:
    # MCD = (0.5^2 + 1^2) / 2 = 0.625; printed as in Eq. 3, without the mean over outliers, 1.25.
    a, b = torch.tensor([1.0]).requires_grad_(), torch.tensor([0.5, 0.0]).requires_grad_()
    assert mcd(a, b).item() == 0.625
    assert mcd(a, b, "paper").item() == 1.25
    assert macs_penalty(a, b, 0.75).item() == 0.125
    assert macs_penalty(a, b, 0.75, "paper").item() == 0
    macs_penalty(a, b, 0.75).backward()
    assert a.grad.tolist() == [-1.5]
    assert b.grad.tolist() == [0.5, 1.0]
    for leaf in (a, b):
        leaf.grad.zero_()
    macs_penalty(a, b, 0.625).backward()  # exactly at the margin
    assert a.grad.tolist() == [0]
    assert b.grad.tolist() == [0, 0]


def test_below_the_margin_the_gradient_does_not_depend_on_it() -> None:
    gradients = []
    for margin in (0.5, 0.9):
        a, b = (torch.linspace(0, 0.8, 33) + s for s in (0.1, 0.05))
        macs_penalty(a.requires_grad_(), b.requires_grad_(), margin).backward()
        gradients.append(torch.cat([a.grad, b.grad]))
    assert torch.equal(*gradients)
    assert gradients[0].any()


@pytest.mark.parametrize("n_out", [50, 5000])
def test_macs_without_a_margin_is_outlier_exposure_to_the_bit(n_out: int) -> None:
    torch.manual_seed(4)
    z_in, z_out, labels = 3 * torch.randn(40, 10), 3 * torch.randn(n_out, 10), torch.randint(10, (40,))
    results = []
    for margin in (None, 0.0):
        x, o = z_in.clone().requires_grad_(), z_out.clone().requires_grad_()
        loss = cross_entropy(x, labels) + 0.5 * outlier_exposure(o)
        if margin is not None:
            penalty = macs_penalty(x.softmax(1).amax(1), o.softmax(1).amax(1), margin)
            assert penalty.item() == 0
            loss = loss + 0.5 * penalty
        loss.backward()
        results.append((loss, x.grad, o.grad))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_no_outliers_cost_nothing() -> None:
    a, nothing = torch.rand(4).requires_grad_(), torch.empty(0).requires_grad_()
    logits, no_logits = torch.randn(4, 3), torch.empty(0, 3).requires_grad_()
    for value in (mcd(a, nothing), mcd(a, nothing, "paper"), hinge_penalty(a, nothing, 0.5)):
        value.backward()
        assert value.item() == 0
        assert not a.grad.any()
        assert nothing.grad.shape == (0,)
    assert outlier_exposure(no_logits).item() == 0
    assert energy_margin(logits, no_logits, 100.0, -5.0).item() == 0


def test_half_precision_and_autocast_compute_in_float32(form: str) -> None:
    torch.manual_seed(5)
    a, b = torch.rand(30).bfloat16().requires_grad_(), torch.rand(20).bfloat16()
    logits = torch.randn(8, 4).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        value, exposure = mcd(a, b), outlier_exposure(logits)
        full = mcd(a.detach().float(), b.float())
    assert value.dtype == exposure.dtype == torch.float32
    assert value.item() == full.item() == mcd(a.float(), b.float()).item()
    assert exposure.item() == outlier_exposure(logits.float()).item()
    value.backward()
    assert a.grad.dtype == torch.bfloat16


def test_a_float32_and_a_float64_side_meet_in_float64() -> None:
    assert mcd(torch.tensor([0.75]), torch.tensor([0.5], dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("margin", [-0.1, math.inf, math.nan, "wide"])
@pytest.mark.parametrize("penalty", [macs_penalty, hinge_penalty])
def test_what_cannot_be_a_margin_is_refused(penalty: Callable[..., Any], margin: Any) -> None:
    with pytest.raises(MacsError, match="not negative, and below 1 for confidences"):
        penalty(torch.rand(3), torch.rand(3), margin)


def test_pair_terms_take_energies_and_margins_of_any_size(form: str) -> None:
    torch.manual_seed(10)
    a, b = (20 * torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (6, 9))
    gaps = [x - y for x in a.tolist() for y in b.tolist()]
    assert hinge_penalty(a, b, 12.5).item() == pytest.approx(sum(max(0, 12.5 - gap) ** 2 for gap in gaps) / 54)
    missing = 1000 - sum(max(0, gap) ** 2 for gap in gaps) / 54
    assert macs_penalty(a, b, 1000.0).item() == pytest.approx(missing) and missing > 0
    assert gradcheck(lambda x, y: hinge_penalty(x, y, 12.5), (a, b))


def test_log_odds_are_those_of_the_largest_probability() -> None:
    torch.manual_seed(11)
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    p = logits.softmax(1).amax(1)
    torch.testing.assert_close(log_odds(logits), (p / (1 - p)).log())
    assert gradcheck(log_odds, logits.requires_grad_())
    # Where p rounds to 1 they are still exact, and for two classes they are the difference of the logits.
    assert log_odds(torch.tensor([[90.0, -10.0], [0.0, 200.0]])).tolist() == [100.0, 200.0]
    assert log_odds(torch.tensor([[1.0, 1.0]])).item() == 0
    with pytest.raises(MacsError, match=r"at least two classes, but the shape is \(3, 1\)"):
        log_odds(torch.zeros(3, 1))


def test_mistakes_are_named() -> None:
    with pytest.raises(MacsError, match="no reduction called 'sum'"):
        mcd(torch.rand(3), torch.rand(3), cast(Any, "sum"))
    with pytest.raises(MacsError, match=r"\(3, 10\) and \(3,\)"):
        mcd(torch.rand(3, 10), torch.rand(3))


def test_outlier_exposure_is_cross_entropy_to_the_uniform_distribution() -> None:
    rows = [(2.0, 0.0, -1.0), (0.5, 0.5, 3.0)]
    by_hand = 0.0
    for row in rows:
        exponentials = [math.exp(v) for v in row]
        by_hand -= sum(math.log(e / sum(exponentials)) for e in exponentials) / 3 / len(rows)
    assert outlier_exposure(torch.tensor(rows, dtype=torch.float64)).item() == pytest.approx(by_hand, rel=1e-12)
    assert outlier_exposure(torch.zeros(5, 7)).item() == pytest.approx(math.log(7), rel=1e-6)


def test_the_gradient_of_outlier_exposure_is_softmax_minus_uniform() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    outlier_exposure(logits).backward()
    torch.testing.assert_close(logits.grad, (logits.detach().softmax(1) - 1 / 3) / 2)


def test_energies_are_pressed_to_their_own_side_of_the_margins() -> None:
    # Equal logits v over 4 classes have E = -v - log 4.
    log4 = math.log(4)
    inside = torch.tensor([[30.0] * 4, [20.0] * 4], dtype=torch.float64)
    outside = torch.tensor([[0.0] * 4, [10.0] * 4, [4.0] * 4], dtype=torch.float64)
    assert energy(inside).tolist() == pytest.approx([-30 - log4, -20 - log4], rel=1e-14)
    by_hand = (0 + (-20 - log4 + 23) ** 2) / 2 + (0 + (-5 + 10 + log4) ** 2 + (-5 + 4 + log4) ** 2) / 3
    assert energy_margin(inside, outside, m_in=-23, m_out=-5).item() == pytest.approx(by_hand, rel=1e-14)


def test_logit_terms_pass_finite_differences() -> None:
    torch.manual_seed(6)
    z_in, z_out = (5 * torch.randn(n, 4, dtype=torch.float64) for n in (5, 7))
    assert gradcheck(outlier_exposure, z_out.requires_grad_())
    assert gradcheck(lambda x, o: energy_margin(x, o, -8.0, -4.0), (z_in.requires_grad_(), z_out))


def test_a_confidence_is_the_largest_probability_of_its_row() -> None:
    rows = [[0.0, math.log(3), 0.0], [math.log(6), 0.0, 0.0]]  # odds of 1 : 3 : 1 and 6 : 1 : 1
    assert confidence(torch.tensor(rows, dtype=torch.float64)).tolist() == pytest.approx([3 / 5, 6 / 8], rel=1e-14)


def test_one_outlier_costs_its_own_loss() -> None:
    logits = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    by_hand = math.log(math.exp(2) + 1) - 1  # lse(z) - mean z
    assert outlier_exposure(logits).item() == pytest.approx(by_hand, rel=1e-14)
    energy_of = -math.log(math.exp(2) + 1)
    assert energy_margin(logits, logits, energy_of - 3, energy_of + 2).item() == pytest.approx(3**2 + 2**2, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_precision_is_raised(dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, 1.0], [0.5, 2.0]], dtype=dtype)
    for term in (confidence, energy, log_odds, outlier_exposure):
        assert term(logits).dtype == torch.float32
        assert torch.equal(term(logits), term(logits.float()))
    assert mcd(logits[:, 0], logits[:, 1].float()).dtype == torch.float32


@pytest.mark.parametrize("term", TERMS)
def test_pairs_at_the_edge_have_no_curvature(form: str, term: str) -> None:
    """Gaps of exactly 0, or of the hinge's margin: the second derivative is that of the side where nothing pushes."""
    a = torch.tensor([0.25, 0.5, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.5, 0.0, 0.25, 0.5, 0.75], dtype=torch.float64, requires_grad=True)
    ours = torch.autograd.functional.hessian(TERMS[term], (a, b))
    theirs = torch.autograd.functional.hessian(lambda x, y: all_pairs(x, y, term), (a, b))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert any(block.any() for row in ours for block in row)


@pytest.mark.parametrize("side", [0, 1])
def test_a_step_of_one_side_alone_gives_its_own_slope(form: str, side: int) -> None:
    """Forward mode, with a derivative by one of the two inputs."""
    torch.manual_seed(12)
    sides = [torch.rand(n, dtype=torch.float64) for n in (5, 7)]
    step = torch.rand(len(sides[side]), dtype=torch.float64)

    def slope(term: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        def moved(x: Tensor) -> Tensor:
            return term(*(x if place == side else other for place, other in enumerate(sides)))

        value: Tensor = torch.func.jvp(torch.func.grad(moved), (sides[side],), (step,))[1]
        return value

    torch.testing.assert_close(slope(mcd), slope(lambda x, y: all_pairs(x, y, "mcd")))


@pytest.mark.parametrize("term", TERMS)
def test_forward_mode_gives_the_slope_along_a_step_of_both_sides(form: str, term: str) -> None:
    torch.manual_seed(13)
    a, b = (torch.rand(n, dtype=torch.float64) for n in (5, 7))
    step_a, step_b = (torch.randn(n, dtype=torch.float64) for n in (5, 7))
    found: tuple[Any, ...] = torch.func.jvp(TERMS[term], (a, b), (step_a, step_b))
    torch.testing.assert_close(found[0], all_pairs(a, b, term))
    ahead, behind = (all_pairs(a + h * step_a, b + h * step_b, term).item() for h in (1e-6, -1e-6))
    assert found[1].item() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6) and ahead != behind


def test_sums_are_wide_where_the_device_has_float64() -> None:
    assert losses._widest_float(torch.device("cpu")) == losses._widest_float(torch.device("cuda")) == torch.float64
    assert losses._widest_float(torch.device("mps")) == torch.float32


def test_a_mistake_on_the_side_of_the_outliers_is_named_too() -> None:
    with pytest.raises(MacsError, match=r"the shapes are \(3,\) and \(3, 10\); reduce over classes"):
        mcd(torch.rand(3), torch.rand(3, 10))
