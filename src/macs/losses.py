"""The terms of the training objectives, as pure functions of logits or of confidences.

z are logits (N x K), a_i and b_j the confidences of the N_in ID images and of the N_out outliers of a batch. Every term
is a number to minimise, except `mcd`, which the MaCS penalty pushes up to its margin. The pair terms also accept other
numbers per image, such as energies. A batch without outliers costs 0, with gradient 0. Half precision, as autocast
leaves it, is raised to float32 first.
"""

import math
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import Function

from macs.core.errors import MacsError

Reduction = Literal["mean", "paper"]

# Up to this many pairs, 512 x 512, the matrix of all pairs is at least as fast as sorting (measured on one core).
_DENSE_PAIRS = 1 << 18


def outlier_exposure(logits_out: Tensor) -> Tensor:
    """Cross-entropy between the uniform distribution and the prediction on outliers.

        mean_j [ lse(z_j) - mean_k z_jk ]                                             (MaCS paper, second term of Eq. 1)

    Its minimum is log K, at equal logits.
    Hendrycks, Mazeika, Dietterich: Deep Anomaly Detection with Outlier Exposure, ICLR 2019.

    Parameters
    ----------
    logits_out
        Logits of the outliers, N_out x K.

    Returns
    -------
    Tensor
        One number.

    Examples
    --------
    >>> import torch
    >>> outlier_exposure(torch.zeros(5, 4))  # log 4
    tensor(1.3863)
    """
    logits_out = _at_least_float32(logits_out)
    return _mean(logits_out.logsumexp(1) - logits_out.mean(1))


def confidence(logits: Tensor) -> Tensor:
    """The largest softmax probability of each image: a_i of ID images, b_j of outliers, in [1/K, 1]."""
    return _at_least_float32(logits).softmax(1).amax(1)


def log_odds(logits: Tensor) -> Tensor:
    """The log-odds of the predicted class, one per image, computed from logits so that p does not round to 1.

        log(p / (1 - p)) = max_k z_k - lse of the other z,   p the largest softmax probability

    It orders images as their confidence p does, but does not saturate.
    """
    logits = _at_least_float32(logits)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise MacsError(f"Log-odds need logits of at least two classes, but the shape is {tuple(logits.shape)}.")
    best, which = logits.max(1, keepdim=True)
    return best.squeeze(1) - logits.scatter(1, which, -torch.inf).logsumexp(1)


def energy(logits: Tensor) -> Tensor:
    """Free energy E(x) = -lse(z), one per image. Lower for ID: the confidence is -E.

    Liu, Wang, Owens, Li: Energy-based Out-of-distribution Detection, NeurIPS 2020, Eq. 4 at temperature 1.
    """
    return -_at_least_float32(logits).logsumexp(1)


def energy_margin(logits_in: Tensor, logits_out: Tensor, m_in: float, m_out: float) -> Tensor:
    """Squared hinges that press ID energies below m_in and outlier energies above m_out.

    mean_i max(0, E(x_i) - m_in)^2 + mean_j max(0, m_out - E(o_j))^2                           (Liu et al., Eq. 8-9)

    Parameters
    ----------
    logits_in, logits_out
        Logits of the ID images and of the outliers, N x K.
    m_in, m_out
        The energy that ID images should stay below, and the energy that outliers should stay above.

    Returns
    -------
    Tensor
        One number.

    Examples
    --------
    >>> import torch
    >>> sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> energy_margin(sure, unsure, m_in=-8, m_out=-2)  # the energies are -9 and -0.7
    tensor(0.)
    """
    excess_in = torch.relu(energy(logits_in) - m_in)
    excess_out = torch.relu(m_out - energy(logits_out))
    return _mean(excess_in.square()) + _mean(excess_out.square())


def mcd(conf_in: Tensor, conf_out: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Mean confidence difference: how far ID confidences lie above outlier confidences, over all pairs.

        MCD = 1/N * sum_i sum_j max(0, a_i - b_j)^2                                                 (MaCS paper, Eq. 3)

        d MCD / d a_i =  2/N * sum_j max(0, a_i - b_j)
        d MCD / d b_j = -2/N * sum_i max(0, a_i - b_j)

    A pair in which the outlier is at least as confident as the ID image adds nothing to the value or to a gradient.

    reduction="mean" divides by the number of pairs, N = N_in * N_out, as the released code does; the value lies in
    [0, 1). reduction="paper" divides by N = N_in, as Eq. 3 is printed; that is N_out times larger.

    Cost: O(n log n) time and O(n) memory for n = N_in + N_out; no N_in x N_out matrix, except for small batches, where
    it is faster. Second derivatives are exact and cost the same, by backward as well as by torch.func.

    Parameters
    ----------
    conf_in
        Confidences of the ID images, one per image.
    conf_out
        Confidences of the outliers, one per image.
    reduction
        "mean" or "paper", as above.

    Returns
    -------
    Tensor
        One number.

    Examples
    --------
    >>> import torch
    >>> mcd(torch.tensor([0.9, 0.7]), torch.tensor([0.5]))  # (0.4^2 + 0.2^2) / 2
    tensor(0.1000)
    """
    return _squared_gaps(conf_in, conf_out, 0.0, _weight(conf_in, conf_out, reduction))


def macs_penalty(conf_in: Tensor, conf_out: Tensor, margin: float, reduction: Reduction = "mean") -> Tensor:
    """How far the mean confidence difference falls short of the margin.

        W = max(0, m - MCD)                                                                         (MaCS paper, Eq. 4)

        dW = -dMCD while MCD < m, else 0 (also at MCD = m)

    The gradient does not depend on m: the margin only says when the push stops. m bounds a mean *square*: 0.5 asks for
    a root mean square gap of 0.71. At m = 0 the value and the gradients are exactly 0 and MaCS is Outlier Exposure.

    Numbers that are not confidences, such as energies, may differ by 1 or more, and m may be any size for them;
    confidences never reach such a margin.

    Parameters
    ----------
    conf_in
        Confidences of the ID images, one per image.
    conf_out
        Confidences of the outliers, one per image.
    margin
        The margin m.
    reduction
        As in `mcd`.

    Returns
    -------
    Tensor
        One number.

    Examples
    --------
    >>> import torch
    >>> macs_penalty(torch.tensor([0.9, 0.7]), torch.tensor([0.5]), margin=0.5)  # MCD is 0.1
    tensor(0.4000)
    """
    _check_margin(margin)
    return torch.relu(margin - mcd(conf_in, conf_out, reduction))  # relu, not clamp: clamp has slope 1 at 0


def hinge_penalty(conf_in: Tensor, conf_out: Tensor, margin: float) -> Tensor:
    """A margin for every pair: pushes exactly the pairs that violate it, also those that MCD ignores. Our extension.

        H = mean_ij max(0, m - (a_i - b_j))^2

        d H / d a_i = -2 / (N_in N_out) * sum_j max(0, m - (a_i - b_j))
        d H / d b_j =  2 / (N_in N_out) * sum_i max(0, m - (a_i - b_j))

    Here m bounds the gap itself, not its square; it is below 1 for confidences and any size for other numbers. The cost
    is that of `mcd`.

    Parameters
    ----------
    conf_in
        Confidences of the ID images, one per image.
    conf_out
        Confidences of the outliers, one per image.
    margin
        The margin m.

    Returns
    -------
    Tensor
        One number.

    Examples
    --------
    >>> import torch
    >>> hinge_penalty(torch.tensor([0.9, 0.7]), torch.tensor([0.5]), margin=0.3)  # (0 + 0.1^2) / 2
    tensor(0.0050)
    """
    _check_margin(margin)
    return _squared_gaps(conf_out, conf_in, margin, _weight(conf_in, conf_out, "mean"))


def _weight(conf_in: Tensor, conf_out: Tensor, reduction: str) -> float:
    if reduction not in ("mean", "paper"):
        raise MacsError(f"There is no reduction called {reduction!r} for pairs of confidences; use 'mean' or 'paper'.")
    return 1 / max(1, conf_in.numel() * (conf_out.numel() if reduction == "mean" else 1))


def _check_margin(margin: float) -> None:
    if not isinstance(margin, Real) or not 0 <= margin < math.inf:
        raise MacsError(
            f"The margin is {margin}; choose a number that is not negative, and below 1 for confidences, whose "
            "differences are."
        )


def _at_least_float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _widest_float(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(1, values.numel())  # Tensor.mean of an empty tensor is nan


def _squared_gaps(high: Tensor, low: Tensor, shift: float, weight: float) -> Tensor:
    """weight * sum_ij max(0, high_i + shift - low_j)^2, of which both pair terms are special cases."""
    if high.ndim != 1 or low.ndim != 1:
        shapes = f"{tuple(high.shape)} and {tuple(low.shape)}"
        raise MacsError(f"Pair terms need one confidence per image, but the shapes are {shapes}; reduce over classes.")
    high, low = _at_least_float32(high), _at_least_float32(low)
    dtype = torch.promote_types(high.dtype, low.dtype)
    high, low = high.to(dtype), low.to(dtype)
    if torch._C._are_functorch_transforms_active():  # torch.func.grad, vmap, ...
        transformed: Tensor = _SquaredGaps.apply(high, low, shift, weight)[0]
        return transformed
    value: Tensor = _PlainSquaredGaps.apply(high, low, shift, weight)
    return value


class _PlainSquaredGaps(Function):
    """The sum of `_SquaredGaps` alone, for plain training: a third faster in small batches, where every call counts.

    Its backward is one multiplication; if the gradient is differentiated again, `_SquaredGaps` computes it instead.
    """

    @staticmethod
    def forward(ctx: Any, high: Tensor, low: Tensor, shift: float, weight: float) -> Tensor:
        value, slope_high, slope_low = _SquaredGaps.forward(high, low, shift, weight)
        ctx.shift, ctx.weight = shift, weight
        ctx.save_for_backward(high, low, slope_high, slope_low)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        high, low, slope_high, slope_low = ctx.saved_tensors
        if torch.is_grad_enabled():  # with create_graph=True
            _, slope_high, slope_low = _SquaredGaps.apply(high, low, ctx.shift, ctx.weight)
        return grad * slope_high, grad * slope_low, None, None


class _SquaredGaps(Function):
    """The sum and its gradient, computed together, so that backward is one multiplication.

    The gradient of an element is, up to a factor, its reach: the sum of max(0, high_i + shift - low_j) over its pairs.
    The gradient is an output too, and can be differentiated again: the Hessian of the sum is twice `_Laplacian`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(high: Tensor, low: Tensor, shift: float, weight: float) -> tuple[Tensor, Tensor, Tensor]:
        small = high.numel() * low.numel() <= _DENSE_PAIRS
        total, reach_high, reach_low = (_dense if small else _by_sorting)(high, low, shift)
        parts = (weight * total, 2 * weight * reach_high, -2 * weight * reach_low)
        return parts[0].to(high.dtype), parts[1].to(high.dtype), parts[2].to(high.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float, float], output: tuple[Tensor, ...]) -> None:
        high, low, ctx.shift, ctx.weight = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(high, low, *output[1:])
        ctx.save_for_forward(high, low, *output[1:])

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_high: Tensor | None, grad_low: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None]:
        high, low, slope_high, slope_low = ctx.saved_tensors
        first = (None, None) if grad is None else (grad * slope_high, grad * slope_low)
        second = _curvature(ctx, high, low, grad_high, grad_low)
        return _sum(first[0], second[0]), _sum(first[1], second[1]), None, None

    @staticmethod
    def jvp(ctx: Any, step_high: Tensor | None, step_low: Tensor | None, *_: None) -> tuple[Tensor, ...]:
        high, low, slope_high, slope_low = ctx.saved_tensors
        step_high = torch.zeros_like(high) if step_high is None else step_high
        step_low = torch.zeros_like(low) if step_low is None else step_low
        slope = (slope_high * step_high).sum() + (slope_low * step_low).sum()
        curved_high, curved_low = _curvature(ctx, high, low, step_high, step_low)
        assert curved_high is not None and curved_low is not None
        return slope, curved_high, curved_low


def _curvature(
    ctx: Any, high: Tensor, low: Tensor, along_high: Tensor | None, along_low: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The Hessian of `_SquaredGaps` times a vector, where None stands for zero."""
    if along_high is None and along_low is None:
        return None, None
    along_high = torch.zeros_like(high) if along_high is None else along_high
    along_low = torch.zeros_like(low) if along_low is None else along_low
    curved_high, curved_low = _Laplacian.apply(along_high, along_low, high, low, ctx.shift)
    return 2 * ctx.weight * curved_high, 2 * ctx.weight * curved_low


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return a if b is None else b if a is None else a + b


class _Laplacian(Function):
    """The Laplacian of the graph that joins every high to each low below it, times a vector (u, v).

        u_i -> sum_j [high_i + shift > low_j] (u_i - v_j)
        v_j -> sum_i [high_i + shift > low_j] (v_j - u_i)

    It is linear in (u, v) and symmetric, so that it is its own derivative and its own adjoint; its derivative with
    respect to high and low is zero. One sort of each side and cumulative sums: O(n log n) time, O(n) memory.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, v: Tensor, high: Tensor, low: Tensor, shift: float) -> tuple[Tensor, Tensor]:
        wide = _widest_float(high.device)
        high, low = high.to(wide) + shift, low.to(wide)
        below, v_below = _sums_below(low, v.to(wide), high, right=False)
        not_above, u_not_above = _sums_below(high, u.to(wide), low, right=True)
        above, u_above = len(high) - not_above, u.to(wide).sum() - u_not_above
        return (below * u - v_below).to(u.dtype), (above * v - u_above).to(v.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor, float], output: object) -> None:
        *_, high, low, ctx.shift = inputs
        ctx.save_for_backward(high, low)
        ctx.save_for_forward(high, low)

    @staticmethod
    def backward(ctx: Any, grad_u: Tensor, grad_v: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        return *_Laplacian.apply(grad_u, grad_v, *ctx.saved_tensors, ctx.shift), None, None, None

    @staticmethod
    def jvp(ctx: Any, step_u: Tensor, step_v: Tensor, *_: None) -> tuple[Tensor, Tensor]:
        curved: tuple[Tensor, Tensor] = _Laplacian.apply(step_u, step_v, *ctx.saved_tensors, ctx.shift)
        return curved


def _sums_below(points: Tensor, values: Tensor, places: Tensor, right: bool) -> tuple[Tensor, Tensor]:
    """For each place, the number of points below it (if `right`, also those at it) and the sum of their values."""
    ordered, order = points.sort()
    counts = torch.searchsorted(ordered, places, right=right)
    sums = torch.cat([values.new_zeros(1), values[order].cumsum(0)])
    return counts, sums[counts]


def _dense(high: Tensor, low: Tensor, shift: float) -> tuple[Tensor, Tensor, Tensor]:
    """Total and reaches from the matrix of all pairs."""
    gaps = (high[:, None] - (low - shift)).relu_()
    flat = gaps.view(-1)
    return flat.dot(flat), gaps.sum(1), gaps.sum(0)


def _by_sorting(high: Tensor, low: Tensor, shift: float) -> tuple[Tensor, Tensor, Tensor]:
    """Total and reaches from one walk over all points, highs and lows together, in ascending order.

    Cut the line at its points into steps of length s, with L lows on the left of a step and H highs on its right. A gap
    is the sum of the steps between its low and its high; so the reach R of a high is the sum of L s over the steps on
    its left, and that of a low the sum of H s over the steps on its right. Crossing a step, the gaps g_j from the lows
    behind it grow by s, and the sum of their squares by sum_j (g_j + s)^2 - g_j^2 = s (2 R + L s), with the reach R of
    the point before the step: times H, summed over the steps, that is the total.

    Every term is non-negative: nothing cancels, unlike in n a^2 - 2 a sum b + sum b^2. Equal points are a step of 0
    apart, so that their order does not matter and relu'(0) = 0.
    """
    wide = _widest_float(high.device)
    points, order = torch.cat([high.to(wide) + shift, low.to(wide)]).sort()
    steps = points.diff()
    is_high = order < len(high)
    highs_left = is_high[:-1].cumsum(0)
    lows_left = torch.arange(1, len(points), device=high.device) - highs_left
    lows, highs = lows_left * steps, (len(high) - highs_left) * steps

    zero = steps.new_zeros(1)
    below = torch.cat([zero, lows.cumsum(0)])
    above = torch.cat([highs.flip(0).cumsum(0).flip(0), zero])
    total = (highs * (below[:-1] + below[1:])).sum()

    reach = torch.empty_like(points)
    reach[order] = torch.where(is_high, below, above)
    return total, reach[: len(high)], reach[len(high) :]
