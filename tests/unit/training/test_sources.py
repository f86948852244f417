"""From a spec back to the images and the network of a training; and from these to the spec."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from macs import methods, nets
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet, Preparation, load
from macs.data.spec import MEMORY
from macs.nets import weights_hash
from macs.training.recipe import Recipe
from macs.training.sources import NOTHING, Held, Training, load_images, load_start, starting_net
from macs.training.spec import RANDOM, Start
from tiny import noise

RECIPE = Recipe(epochs=1, batch_in=8, dropout=0.2)


def spec_from(net: Any, known: ImageSet) -> Any:
    return Training(net, known, None, methods.build("msp"), RECIPE).spec


def test_a_spec_says_what_the_training_really_starts_from(known: ImageSet, outliers: ImageSet) -> None:
    net: Any = starting_net("wrn-10-1", 3, seed=5)
    spec = Training(net, known, outliers, methods.build("oe", {"weight": 0.25}), RECIPE).spec
    assert (spec.train, spec.outliers, spec.classes) == (known.spec, outliers.spec, known.classes)
    assert (spec.net, spec.method, spec.recipe.options) == ("wrn-10-1", "oe", {"weight": 0.25})
    assert spec.start == Start(RANDOM, weights_hash(net), 5)
    assert spec.preparation.normalisation == net.preparation.normalisation and spec.preparation.size == known.size


def test_the_seed_decides_random_weights_and_the_callers_numbers_are_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    hashes = [weights_hash(starting_net("wrn-10-1", 3, seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_network_is_started_from_its_file_again(known: ImageSet, tmp_path: Path) -> None:
    saved = starting_net("wrn-10-1", 3, seed=2)
    nets.save(saved, tmp_path / "net.safetensors")
    net = starting_net("wrn-10-1", 3, checkpoint=tmp_path / "net.safetensors")
    spec = spec_from(net, known)
    assert spec.start == Start(str(tmp_path / "net.safetensors"), weights_hash(saved))
    assert weights_hash(load_start(spec, NOTHING)) == weights_hash(saved)
    nets.save(starting_net("wrn-10-1", 3, seed=3), tmp_path / "net.safetensors")
    with pytest.raises(MacsError, match=r"net\.safetensors holds other weights \(hash .{12}\) than the spec"):
        load_start(spec, NOTHING)


def test_random_weights_are_drawn_again_with_their_dropout_and_preparation(known: ImageSet) -> None:
    net = starting_net("wrn-10-1", 3, seed=4, preparation=Preparation(16).normalised(nets.NORMALISATIONS["half"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        again = load_start(spec_from(net, known), NOTHING)
    assert weights_hash(again) == weights_hash(net) and again.preparation.mean == (0.5, 0.5, 0.5)
    assert {layer.p for layer in again.modules() if type(layer).__name__.endswith("Dropout")} == {0.2}


def test_random_weights_of_another_torch_are_pointed_out(known: ImageSet) -> None:
    spec = spec_from(starting_net("wrn-10-1", 3, seed=4), known)
    with pytest.warns(MacsWarning, match="The random weights of seed 4 are not those of the spec"):
        load_start(replace(spec, start=replace(spec.start, weights="0" * 12)), NOTHING)


def test_weights_in_memory_start_only_where_they_are_held(known: ImageSet) -> None:
    net = nets.build("wrn-10-1", 3)
    spec = spec_from(net, known)
    assert spec.start.source == MEMORY
    with pytest.raises(MacsError, match=f"from weights in memory .hash {spec.start.weights}. that are not in a file"):
        load_start(spec, NOTHING)
    held = load_start(spec, Held.of([], [net]))
    assert held is not net and weights_hash(held) == weights_hash(net)
    with torch.no_grad():
        held.get_parameter("fc.bias").add_(1)
    assert weights_hash(net) == spec.start.weights  # what is held was not trained


def test_images_that_are_held_are_not_read_again(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", noise(5, seed=0).pixels[:])
    images = load(tmp_path / "x.npy", size=16)
    preparation = Preparation(16)
    assert load_images(images.spec, preparation, None, Held.of([images])) is images
    again = load_images(images.spec, preparation, None, NOTHING)
    assert again is not images and again.spec == images.spec
    (tmp_path / "x.npy").unlink()
    assert load_images(images.spec, preparation, None, Held.of([images])) is images
    with pytest.raises(MacsError, match=r"x\.npy"):
        load_images(images.spec, preparation, None, NOTHING)
