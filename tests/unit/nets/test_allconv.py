"""AllConv against a second computation of it, with the indices of the public checkpoints."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from macs import MacsError, nets

# Where the convolutions stand in the public nn.Sequential, and their padding: a batch norm and a GELU follow each, and
# a max-pool and a dropout the third and the sixth.
CONVOLUTIONS = [(0, 1), (3, 1), (6, 1), (11, 1), (14, 1), (17, 1), (22, 0), (25, 1), (28, 1)]


def recomputed_map(state: dict[str, Tensor], pixels: Tensor) -> Tensor:
    mean, std = torch.tensor([125.3, 123.0, 113.9]).double() / 255, torch.tensor([63.0, 62.1, 66.7]).double() / 255
    x = (pixels - mean[:, None, None]) / std[:, None, None]
    for index, padding in CONVOLUTIONS:
        conv, norm = f"trunk.{index}", f"trunk.{index + 1}"
        x = F.conv2d(x, state[f"{conv}.weight"], state[f"{conv}.bias"], padding=padding)
        mean, variance, weight, bias = (
            state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = F.batch_norm(x, mean, variance, weight, bias)
        x = x / (1 + torch.exp(-1.702 * x))
        if index in (6, 17):
            x = torch.stack([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]).amax(0)
    return x


# 32 pixels make a map of 10, of which pooling by 8 keeps the corner; 64 make 18, of which it keeps four such.
@pytest.mark.parametrize(("size", "edge", "kept"), [(32, 10, 8), (64, 18, 16), (16, 6, 6)])
def test_features_are_the_mean_of_the_upper_left_of_the_map(
    shaken: Callable[..., nets.Net], size: int, edge: int, kept: int
) -> None:
    net = shaken("allconv")
    pixels = torch.rand(1, 3, size, size, dtype=torch.float64)
    final = recomputed_map(net.state_dict(), pixels)
    assert final.shape[2:] == (edge, edge)
    expected = final[:, :, :kept, :kept].flatten(2).mean(2)
    assert torch.allclose(net.features(pixels), expected, rtol=1e-5, atol=1e-6)
    logits = expected @ net.state_dict()["fc.weight"].T + net.state_dict()["fc.bias"]
    assert torch.allclose(net(pixels), logits, rtol=1e-5, atol=1e-6)


def test_half_of_what_the_pools_give_is_dropped() -> None:
    torch.manual_seed(0)
    net: Any = nets.build("allconv", classes=2)
    shares = []
    for index in (10, 21):
        net.trunk[index].register_forward_hook(lambda _, i, out: shares.append(out.eq(0).double().mean().item()))
    net(torch.rand(2, 3, 32, 32))
    assert shares == [pytest.approx(0.5, abs=0.02)] * 2


def test_images_too_small_for_it_are_refused_by_size() -> None:
    net = nets.build("allconv", classes=2).eval()
    assert net(torch.rand(1, 3, 12, 12)).shape == (1, 2)
    with pytest.raises(MacsError, match="12 x 12"):
        net(torch.rand(1, 3, 11, 11))
