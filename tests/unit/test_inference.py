"""The one pass over images: evaluation mode, the network's own device, every image once, in order."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import macs
from dots import Dots
from macs import methods, nets
from macs.core.cache import FOLDER, keeping
from macs.core.errors import MacsError
from macs.data.batches import batches_of
from macs.inference import Outputs, inference, normalising_layer, outputs_of
from macs.training.checks import check_compatibility
from short_training import SHORT
from tiny import classifier, noise, stripes


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return nets.build("wrn-10-1", classes=3)


def by_hand(net: nn.Module, images: Any) -> torch.Tensor:
    return net.eval()(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255).detach()


def test_outputs_are_the_networks_own_in_evaluation_mode(net: Any) -> None:
    images = noise(10, seed=0)
    expected = by_hand(net, images)
    net.train()
    running = net.bn1.running_mean.clone()
    (outputs,) = outputs_of(net, images, features=True, precision="float32")
    torch.testing.assert_close(outputs.logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs.features @ net.fc.weight.T.detach() + net.fc.bias.detach(), outputs.logits)
    torch.testing.assert_close(outputs.pixels * 255, torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2).float())
    assert len(outputs) == 10 and outputs.net is net and not outputs.logits.requires_grad
    assert net.training and torch.equal(net.get_buffer("bn1.running_mean"), running)


def test_a_set_and_its_batches_give_the_same(net: Any) -> None:
    images = noise(10, seed=0)
    batches = list(batches_of(images, 4))
    assert [len(batch) for batch in batches] == [4, 4, 2] and batches[0].dtype == np.uint8
    np.testing.assert_array_equal(np.concatenate(batches), images.pixels[:])
    parts = [outputs.logits for outputs in outputs_of(net, batches, precision="float32")]
    torch.testing.assert_close(torch.cat(parts), by_hand(net, images), rtol=1e-4, atol=1e-4)


def test_the_mode_comes_back_after_an_error_too(net: Any) -> None:
    net.train()
    with pytest.raises(RuntimeError), inference(net) as run:
        run(torch.zeros(1, 16, 16, 4, dtype=torch.uint8))  # four channels
    assert net.training


def test_bf16_is_used_where_it_is_asked_for_and_answers_are_float32(net: Any) -> None:
    images = noise(10, seed=0)
    (exact,) = outputs_of(net, images, precision="float32")
    (rough,) = outputs_of(net, images, precision="bf16")
    assert rough.logits.dtype == torch.float32 and not torch.equal(rough.logits, exact.logits)
    torch.testing.assert_close(rough.logits, exact.logits, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(("part", "words"), [("features", "features=True"), ("pixels", "pixels"), ("net", "network")])
def test_what_outputs_do_not_hold_is_said(part: Any, words: Any) -> None:
    with pytest.raises(MacsError, match=f"These outputs hold no .*{words}"):
        getattr(Outputs(torch.zeros(2, 3)), part)


def told(net: nn.Module, *work: Callable[[nn.Module], object]) -> list[str]:
    """The warnings about a softmax."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in work:
            each(net)
    return [str(each.message) for each in caught if "softmax" in str(each.message)]


KNOWN, UNKNOWN = stripes(40, seed=0), {"noise": noise(20, seed=1), "more": noise(20, seed=2)}


@pytest.mark.parametrize(
    "work",
    [
        lambda net: macs.evaluate(net, KNOWN, UNKNOWN, progress=False),
        lambda net: macs.evaluate(net, KNOWN, UNKNOWN, score="energy", progress=False),
        lambda net: macs.Detector(net).calibrate(KNOWN, outliers=UNKNOWN, check=stripes(20, seed=3)),
        lambda net: check_compatibility(net, KNOWN, UNKNOWN["noise"], SHORT, methods.build("macs")),
        lambda net: list(outputs_of(net, KNOWN)),
        lambda net: list(outputs_of(net, [KNOWN.pixels[:4], KNOWN.pixels[4:8]])),
    ],
)
@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.Softmax(dim=1), "are probabilities, not logits, .* remove the softmax at the end of the network"),
        (nn.LogSoftmax(dim=1), "are logarithms of probabilities, not logits, .* remove the log_softmax at the end of"),
    ],
)
def test_a_softmax_inside_a_network_is_pointed_out_once(
    work: Callable[[nn.Module], object], layer: nn.Module, words: str
) -> None:
    (sentence,) = told(nn.Sequential(classifier(), layer), work, work)
    assert re.search(words, sentence)
    assert told(classifier(), work) == []


@pytest.mark.parametrize(
    ("layer", "name"), [(nn.Softmax(dim=1), "softmax"), (nn.LogSoftmax(dim=1), "log_softmax"), (nn.Identity(), "")]
)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_layer_is_recognised_in_any_precision(layer: nn.Module, name: str, kind: torch.dtype) -> None:
    logits = 3 * torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    assert normalising_layer(layer(logits.to(kind)).float()) == name


@pytest.mark.parametrize(
    "rows",
    [
        [[0.5, 0.52]] * 8,  # the sum is not 1
        [[-0.7, -0.6]] * 8,  # that of the exponentials is not, either
        [[0.5, 0.5]] * 7 + [[1.5, -0.5]],  # one row has a negative number
        [[0.5, 0.5]] * 7,  # too few rows
    ],
)
def test_what_only_resembles_probabilities_is_not(rows: list[list[float]]) -> None:
    class Says(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return torch.tensor(rows)

    assert told(Says(), lambda net: list(outputs_of(net, [noise(len(rows), seed=0).pixels[:]]))) == []


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The number of images in each pass of a network, and an empty cache."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    counted: list[int] = []
    for name in ("features_of", "logits_of"):
        function = getattr(nets, name)

        def counting(net: Any, pixels: Any, function: Any = function) -> Any:
            counted.append(len(pixels))
            return function(net, pixels)

        monkeypatch.setattr(nets, name, counting)
    return counted


def joined(net: nn.Module, images: Any, **options: Any) -> list[bytes]:
    return [
        part.cpu().numpy().tobytes()
        for outputs in outputs_of(net, images, **options)
        for part in (outputs.logits, outputs.pixels, *([outputs.features] if options.get("features") else []))
    ]


@pytest.mark.parametrize("features", [True, False])
def test_kept_outputs_are_the_same_bits_and_take_no_pass(net: Any, passes: list[int], features: bool) -> None:
    images = noise(300, seed=0)
    plain = joined(net, images, features=features)
    assert passes == [256, 44]
    with keeping():
        assert joined(net, images, features=features) == plain and passes == [256, 44] * 2
        assert joined(net, images, features=features) == plain and passes == [256, 44] * 2
        (outputs,) = outputs_of(net, images.pixels[:256][None], features=features)
        assert passes == [256, 44] * 2 and outputs.net is net and not outputs.logits.requires_grad
    with keeping():  # another command
        assert joined(net, images, features=features) == plain and passes == [256, 44] * 2
    with keeping(False):
        assert joined(net, images, features=features) == plain and passes == [256, 44] * 3


def test_other_pixels_weights_precisions_or_parts_take_a_pass_of_their_own(net: Any, passes: list[int]) -> None:
    images = noise(10, seed=0)
    changed = images.pixels[:].copy()
    changed[9, 15, 15, 2] ^= 1
    with keeping():
        joined(net, images, precision="float32")
        for batch in (changed, images.pixels[:9], images.pixels[::-1].copy()):
            joined(net, [batch], precision="float32")
        joined(net, images, precision="bf16")
        joined(net, images, precision="float32", features=True)
        with torch.no_grad():
            net.fc.bias[0] += 1
        joined(net, images, precision="float32")
        assert passes == [10, 10, 9, 10, 10, 10, 10]
        hooked = Dots()
        joined(hooked, images)
        joined(hooked, images)
    assert passes[7:] == [10, 10]  # a user's own network may change its code at any time


def test_a_damaged_file_is_computed_again(net: Any, passes: list[int], tmp_path: Path) -> None:
    images = noise(10, seed=0)
    with keeping():
        plain = joined(net, images, features=True)
        (path,) = tmp_path.rglob("*.safetensors")
        path.write_bytes(path.read_bytes()[:-3])
        for _ in range(2):
            assert joined(net, images, features=True) == plain
    assert passes == [10, 10]
