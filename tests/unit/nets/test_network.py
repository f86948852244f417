"""What all networks share: normalisation, features, dropout; and the same asked of networks that are not ours."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from macs import MacsError, nets
from macs.core.errors import MacsWarning
from macs.data import ImageSet
from macs.nets import NORMALISATIONS, Normalisation, Normalise
from macs.nets._network import Dropout, ReluDropout, prepared_for


class Foreign(nn.Module):
    """The last layer is registered first, so that registration order would find the wrong features."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.first = nn.Linear(3, 4)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(self.drop(x).mean(dim=(2, 3))).relu())


@pytest.mark.parametrize("name", ["wrn-10-1", "allconv", "resnet-18", "densenet-121"])
def test_forward_is_the_head_of_the_features(name: str) -> None:
    torch.manual_seed(0)
    net = nets.build(name, classes=3).eval()
    assert isinstance(net, nets.Net)
    pixels = torch.rand(2, 3, 32, 32)
    features, logits = nets.features_of(net, pixels)
    assert features.shape == (2, net.head.in_features)
    assert torch.equal(logits, net(pixels))
    assert torch.allclose(features @ net.head.weight.T + net.head.bias, logits, atol=1e-5)


@pytest.mark.parametrize("name", ["wrn-10-1", "allconv", "resnet-18", "densenet-121"])
@pytest.mark.parametrize("size", [24, 48])
def test_other_sizes_of_image_pass(name: str, size: int) -> None:
    assert nets.build(name, classes=3).eval()(torch.rand(1, 3, size, size)).isfinite().all()


# Of the batch norms stay those that no convolution stands before, and in resnet-18 those of its three shortcuts.
@pytest.mark.parametrize(("name", "left"), [("wrn-10-1", 4), ("allconv", 0), ("resnet-18", 3), ("densenet-121", 62)])
def test_inference_mode_folds_batch_norms_into_convolutions_and_says_the_same(
    shaken: Callable[..., nets.Net], name: str, left: int
) -> None:
    net, pixels = shaken(name), torch.rand(2, 3, 32, 32, dtype=torch.float64)
    called = []
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(lambda *_: called.append(1))
    with torch.inference_mode():
        folded = net(pixels)
    assert len(called) == left
    with torch.no_grad():
        assert torch.allclose(net(pixels), folded, rtol=1e-11, atol=1e-11)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    assert len(called) == left + norms
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        net.float()(pixels.float())
    assert len(called) == left + 2 * norms


def test_normalisation_is_by_channel_and_not_in_the_state_dict() -> None:
    net = nets.build("wrn-10-1", classes=2)
    assert isinstance(net, nets.Net)
    pixels = torch.tensor([[125.3, 123.0, 113.9], [125.3 + 63.0, 123.0 - 62.1, 113.9 + 2 * 66.7]]) / 255
    found = net.normalise(pixels[:, :, None, None]).flatten(1)
    assert torch.allclose(found, torch.tensor([[0.0, 0, 0], [1, -1, 2]]), atol=1e-5)
    assert not any("mean" in key.split(".") or "std" in key.split(".") for key in net.state_dict())


def test_bytes_are_refused_instead_of_read_as_pixels() -> None:
    with pytest.raises(MacsError, match="divide the bytes by 255"):
        nets.build("wrn-10-1", classes=2)(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


def test_features_of_a_foreign_network_feed_the_linear_layer_that_ran_last() -> None:
    torch.manual_seed(0)
    net = Foreign().eval()
    pixels = torch.rand(5, 3, 8, 8)
    features, logits = nets.features_of(net, pixels)
    assert torch.equal(features, net.first(pixels.mean(dim=(2, 3))).relu())
    assert torch.equal(logits, net.last(features))
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_features_of_a_network_without_a_linear_layer_are_refused() -> None:
    with pytest.raises(MacsError, match="no linear layer"):
        nets.features_of(nn.Sequential(nn.Conv2d(3, 2, 8), nn.Flatten()), torch.rand(1, 3, 8, 8))


def test_hooks_go_even_if_the_network_fails() -> None:
    net = Foreign()
    with pytest.raises(MacsError, match="Foreign cannot take 8 x 8 images: RuntimeError: mat1"):
        nets.features_of(net, torch.rand(1, 7, 8, 8))
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_set_dropout_reaches_every_layer() -> None:
    net = nets.build("wrn-16-1", classes=2)
    nets.set_dropout(net, 0.0)
    pixels = torch.rand(4, 3, 8, 8)
    assert net.dropout == 0
    assert torch.equal(net(pixels), net(pixels))  # in training mode, so that any dropout left would show
    foreign = Foreign()
    nets.set_dropout(foreign, 0.4)
    assert foreign.drop.p == 0.4


def test_set_dropout_where_there_is_none() -> None:
    net = nets.build("resnet-18", classes=2)
    nets.set_dropout(net, 0.0)
    with pytest.raises(MacsError, match="resnet-18 has no dropout"):
        nets.set_dropout(net, 0.1)


class Functional(nn.Module):
    """Drops activations by a function, so that there is no layer whose rate could be set."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.norm, self.last, self.rate = nn.BatchNorm2d(3), nn.Linear(3, 2), rate

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(self.norm(x).amax(dim=(2, 3)), self.rate, self.training))


def test_dropout_that_is_no_layer_is_found_by_running_the_network() -> None:
    net = Functional()
    before, generator = net.norm.running_mean.clone(), torch.get_rng_state()
    with pytest.warns(MacsWarning, match="Functional is still random in training mode"):
        nets.set_dropout(net, 0, (3, 4, 4))
    assert torch.equal(net.norm.running_mean, before) and torch.equal(torch.get_rng_state(), generator)
    assert all(module.training for module in net.modules())
    with pytest.warns(MacsWarning, match="no dropout layer to set to 0"):
        nets.set_dropout(net, 0)
    with pytest.raises(MacsError, match="Functional has no dropout layer whose rate could be set"):
        nets.set_dropout(net, 0.1)
    with warnings.catch_warnings(action="error"):
        nets.set_dropout(Functional(rate=0), 0, (3, 4, 4))
        nets.set_dropout(Foreign(), 0, (3, 4, 4))
        nets.set_dropout(nets.build("resnet-18", classes=2), 0, (3, 4, 4))


def answering(answer: Callable[[Tensor], Any]) -> nn.Module:
    """A network that is not ours and answers with whatever `answer` makes of its logits."""

    class Answering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return answer(self.fc(input=x.mean(dim=(2, 3))))

    return Answering()


def raising(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda z: (z, z), "returns a tuple"),
        (lambda z: {"logits": z}, "returns a dict"),
        (lambda z: None, "returns a NoneType"),
        (lambda z: z[:, :, None], r"shape \(4, 2, 1\) and type torch.float32 for 4 images"),
        (lambda z: z[:1], r"shape \(1, 2\)"),
        (lambda z: z[:, :1], r"shape \(4, 1\)"),
        (lambda z: z.argmax(), r"shape \(\) and type torch.int64"),
        (lambda z: z.long(), "type torch.int64"),
        (lambda z: z * float("nan"), "not numbers"),
        (lambda z: raising(KeyError("layer")), "cannot take 5 x 6 images: KeyError: 'layer'"),
        (lambda z: raising(AssertionError()), "cannot take 5 x 6 images: AssertionError."),
        (lambda z: raising(ValueError("first\nsecond")), "ValueError: first."),
        (lambda z: sys.exit(0), r"it calls sys.exit\(0\)"),
    ],
)
@pytest.mark.parametrize("run", [nets.logits_of, nets.features_of])
def test_what_a_foreign_network_does_wrong_is_one_sentence_with_its_name(
    run: Callable[..., Any], answer: Callable[..., Any], complaint: str
) -> None:
    with pytest.raises(MacsError, match=complaint) as caught:
        run(answering(answer), torch.rand(4, 3, 5, 6))
    assert "Answering" in str(caught.value) and "\n" not in str(caught.value)


def test_a_foreign_network_that_does_nothing_wrong_is_left_alone() -> None:
    net, pixels = answering(lambda z: z), torch.rand(4, 3, 5, 6)
    assert torch.equal(nets.logits_of(net, pixels), net(pixels))
    assert torch.equal(nets.features_of(net, pixels)[0], pixels.mean(dim=(2, 3)))
    with pytest.raises(KeyboardInterrupt):
        nets.logits_of(answering(lambda z: raising(KeyboardInterrupt())), pixels)
    with pytest.raises(SystemExit):  # as SIGTERM ends the command
        nets.logits_of(answering(lambda z: sys.exit(143)), pixels)


def test_names_of_networks() -> None:
    assert nets.name_of(nets.build("wrn-010-1", classes=2)) == "wrn-10-1"
    assert nets.name_of(Foreign()) == f"{__name__}:Foreign"


@pytest.mark.parametrize("shape", [(7, 11), (5, 3, 9, 9), (2, 3)])
def test_dropout_keeps_the_expectation_and_drops_at_its_rate(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = Dropout(0.3)
    passed = torch.stack([layer(torch.ones(shape)) for _ in range(2000)])
    kept = passed != 0
    rate = 77 / 256  # the nearest to 0.3
    assert torch.allclose(passed[kept], torch.tensor(1 / (1 - rate)))
    for shares, draws in ((kept, kept.numel()), (kept.flatten(1)[:, 0], 2000)):
        assert abs(shares.float().mean().item() - (1 - rate)) < 5 * (rate * (1 - rate) / draws) ** 0.5


def test_dropout_treats_neighbours_independently_in_either_memory_layout() -> None:
    torch.manual_seed(1)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        pixels = torch.ones(64, 8, 16, 16).contiguous(memory_format=memory_format)
        kept = (Dropout(0.5)(pixels) != 0).double() - 0.5
        for dim in range(4):
            neighbours = (kept * kept.roll(1, dim)).mean().item() * 4  # 0 if independent, 1 if equal
            assert abs(neighbours) < 5 / kept.numel() ** 0.5


def test_dropout_passes_gradients_where_it_passed_values_and_does_nothing_in_evaluation() -> None:
    torch.manual_seed(2)
    x = torch.rand(4, 3, 8, 8, requires_grad=True)
    layer = Dropout(0.3)
    y = layer(x)
    y.sum().backward()
    assert torch.allclose(x.grad * x.detach(), y.detach())
    assert layer.eval()(x) is x


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_relu_and_dropout_at_once_are_relu_then_dropout(memory_format: torch.memory_format) -> None:
    before = torch.randn(6, 4, 8, 8).contiguous(memory_format=memory_format)
    results = []
    for layers in (ReluDropout(0.3), torch.nn.Sequential(torch.nn.ReLU(), Dropout(0.3))):
        x = before.clone().requires_grad_(True)
        torch.manual_seed(3)
        y = layers(x * 1)  # a copy, for the first works in place
        (y * before.square()).sum().backward()
        results.append((y.detach(), x.grad))
    (ours, slope), (theirs, their_slope) = results
    assert torch.allclose(ours, theirs) and torch.allclose(slope, their_slope)
    assert torch.equal(ReluDropout(0.3).eval()(before.clone()), before.relu())
    assert torch.equal(ReluDropout(0.0)(before.clone()), before.relu())


def prepared_by(size: int, preparation: nets.Preparation | None = None) -> ImageSet:
    images = ImageSet.from_array(np.zeros((2, size, size, 3), np.uint8))
    return replace(images, preparation=preparation)


def test_a_network_knows_how_pictures_become_its_pixels() -> None:
    net = nets.build("wrn-10-1", classes=2)
    assert isinstance(net, nets.Net)
    assert net.preparation.geometry == nets.Preparation(32)
    assert net.preparation.mean == pytest.approx((125.3 / 255, 123.0 / 255, 113.9 / 255), rel=1e-6)
    imagenet = nets.Preparation(64, 72, "bicubic", *nets.NORMALISATIONS["imagenet"])
    assert nets.build("wrn-10-1", classes=2, preparation=imagenet).preparation == imagenet
    both = nets.build("wrn-10-1", 2, normalisation="half", preparation=imagenet)
    assert both.preparation == imagenet.normalised(nets.NORMALISATIONS["half"])
    before = net.normalise
    net.preparation = nets.Preparation(64).normalised(net.preparation.normalisation)
    assert net.normalise is before and net.preparation.size == 64


def test_a_network_is_prepared_for_the_images_it_is_used_on() -> None:
    own = nets.Preparation(32, 36, "bicubic", *nets.NORMALISATIONS["half"])
    net = nets.build("wrn-10-1", classes=2, preparation=own)
    assert nets.preparation_for(net, prepared_by(32)) == own
    assert nets.preparation_for(net, prepared_by(24)) == nets.Preparation(24, mean=own.mean, std=own.std)
    known = nets.Preparation(32, 40)
    assert nets.preparation_for(net, prepared_by(32, known)) == known.normalised(own.normalisation)
    assert nets.preparation_for(nn.Identity(), prepared_by(20)) == nets.Preparation(20)
    mine: Any = nn.Identity()
    mine.preparation = own
    assert nets.preparation_for(mine, prepared_by(32)) == own
    mine.preparation = "as you like"
    assert nets.preparation_of(mine) is None


def test_pixels_that_are_enlarged_are_pointed_out() -> None:
    net = nets.build("wrn-10-1", classes=2, preparation=nets.Preparation(32))
    small = ImageSet.from_array(np.zeros((2, 16, 16, 3), np.uint8), name="small")
    with pytest.warns(MacsWarning, match="small holds pixels of size 16, which are enlarged to the network's 32"):
        assert prepared_for(net, small).size == 32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (32, 48):
            assert prepared_for(net, ImageSet.from_array(np.zeros((2, size, size, 3), np.uint8))).size == 32


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_pixels_are_normalised_as_numpy_does(name: Any) -> None:
    pixels = torch.rand(2, 3, 4, 5)
    mean, std = (np.array(part)[:, None, None] for part in NORMALISATIONS[name])
    np.testing.assert_allclose(Normalise(name)(pixels), (pixels.numpy() - mean) / std, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_a_layer_says_what_it_does_in_the_digits_that_were_given(name: Any) -> None:
    given = NORMALISATIONS[name]
    found = Normalise(given).values
    assert found == Normalise(found).values
    np.testing.assert_array_equal(np.array(found, np.float32), np.array(given, np.float32))
    if name not in ("oe",):  # whose numbers are fractions of 255 and no short decimals
        assert found == given


def test_what_was_changed_by_hand_is_what_it_says() -> None:
    layer = Normalise("half")
    layer.mean.fill_(0.25)
    layer.std = torch.tensor(0.75)
    assert layer.values == Normalisation((0.25,) * 3, (0.75,) * 3)


def test_the_state_dict_has_no_names_of_its_own() -> None:
    assert dict(Normalise().state_dict()) == {} and {name for name, _ in Normalise().named_buffers()} == {"mean", "std"}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_bytes_are_refused(dtype: Any) -> None:
    with pytest.raises(MacsError, match=f"takes float pixels in .0, 1., not {dtype}: divide the bytes by 255"):
        Normalise()(torch.zeros(1, 3, 2, 2, dtype=dtype))


def test_a_name_that_is_unknown_brings_the_nearest() -> None:
    with pytest.raises(MacsError, match="did you mean 'imagenet'"):
        Normalise("imagnet")
