"""ODIN against its authors' recipe on normalised inputs, with gradients by finite differences."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from macs import nets, scores
from macs.core.errors import MacsError
from macs.inference import GRADIENT_ROWS, Outputs
from macs.nets import Normalise
from macs.scores.odin import ODIN


@pytest.fixture
def net() -> nn.Module:
    """A network with random batch norms, in evaluation mode and float64."""
    torch.manual_seed(0)
    made = nets.build("wrn-10-1", classes=3).double().eval()
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    return made


def pixels(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


def odin(score: ODIN, net: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    return score.confidence(Outputs(torch.zeros(len(images), 3), pixels=images, net=net))


def authors(net: torch.nn.Module, image: torch.Tensor, temperature: float, epsilon: float) -> float:
    """Their recipe: normalise, find the sign of the gradient there, step by eps / std, take the softmax."""
    normalise = Normalise().double()
    inputs = normalise(image)
    std = normalise.std.expand_as(inputs)

    def logits(batch: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            return net(batch * normalise.std + normalise.mean).numpy()

    answer = logits(inputs[None])[0].argmax()
    step = 1e-5 * torch.eye(inputs.numel(), dtype=torch.float64).view(-1, *inputs.shape)
    losses = [-np.log(softmax(logits(inputs + way) / temperature, axis=1)[:, answer]) for way in (step, -step)]
    slope = torch.from_numpy(losses[0] - losses[1]).view_as(inputs)
    moved = inputs - epsilon * slope.sign() / std
    return softmax(logits(moved[None])[0] / temperature).max()


@pytest.mark.parametrize(("temperature", "epsilon"), [(10.0, 0.0014), (1.0, 0.02)])
def test_a_step_in_pixels_is_the_authors_step_in_normalised_inputs(
    net: nn.Module, temperature: float, epsilon: float
) -> None:
    images = pixels(3)
    found = odin(ODIN(temperature, epsilon), net, images)
    expected = [authors(net, image, temperature, epsilon) for image in images]
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    plain = odin(ODIN(temperature, 0), net, images)
    assert (found > plain).all()  # the step is towards the answer


def test_at_temperature_1_without_a_step_it_is_msp(net: nn.Module) -> None:
    images = pixels(5)
    expected = scores.get("msp").confidence(Outputs(net(images))).tolist()
    assert odin(ODIN(1, 0), net, images).tolist() == pytest.approx(expected)


def test_batches_do_not_matter_and_nothing_is_left_behind(net: nn.Module) -> None:
    images = pixels(GRADIENT_ROWS + 6)
    with torch.inference_mode():
        together = odin(ODIN(), net, images)
    alone = torch.cat([odin(ODIN(), net, image[None]) for image in images])
    assert together.tolist() == pytest.approx(alone.tolist(), rel=1e-12)
    assert all(parameter.grad is None for parameter in net.parameters()) and not images.requires_grad
    assert not together.requires_grad


def test_it_says_what_it_lacks() -> None:
    with pytest.raises(MacsError, match="hold no pixels"):
        ODIN().confidence(Outputs(torch.zeros(1, 3)))
