"""What is refused or pointed out before a training, and what is said where its loss is no number any more."""

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from macs import methods, nets
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.training.checks import check_compatibility, divergence, warn_of_familiar_sets, warn_of_known_outliers
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder, TrainedNetwork
from short_training import SHORT, small_net
from tiny import noise, stripes


def test_what_fits_passes_in_silence(known: ImageSet, outliers: ImageSet) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        check_compatibility(small_net(), known, outliers, SHORT, methods.build("macs"))
        check_compatibility(small_net(), known, None, replace(SHORT, batch_out=0), methods.build("msp"))


def test_a_method_with_outliers_takes_some_in_every_step(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.raises(MacsError, match="^oe needs outliers, so batch_out must be at least 1[.]$"):
        check_compatibility(small_net(), known, outliers, replace(SHORT, batch_out=0), methods.build("oe"))


def test_a_loss_that_is_no_number_names_the_place_the_suspects_and_what_is_kept(tmp_path: Path) -> None:
    """lr is unusual above 0.5, weights of terms above 100; epochs and steps are counted from 1."""
    large = divergence(Recipe(lr=2), methods.build("oe", {"weight": 300}), 4, 0, RunFolder(tmp_path))
    assert large == (
        "The loss of oe is not finite in epoch 5, by step 1; these settings are unusually large: lr = 2, weight = 300. "
        f"{tmp_path} keeps the last finished epoch."
    )
    usual = divergence(Recipe(lr=0.5), methods.build("oe"), 0, 9, None)
    assert usual.endswith(
        "epoch 1, by step 10; no setting is unusually large, so check the learning rate (0.5) and the starting weights."
    )


def mixed(known_images: int, seed: int = 50) -> ImageSet:
    """200 outliers, the last ones of which are images of a known class."""
    vertical = stripes(3 * known_images + 30, seed=seed)
    assert vertical.labels is not None
    pixels = vertical.pixels[:][vertical.labels == 1][:known_images]
    return ImageSet.from_array(np.concatenate([noise(200 - known_images, seed=seed).pixels[:], pixels]), name="others")


def test_outliers_that_show_known_classes_are_pointed_out_by_name(trained: nn.Module) -> None:
    train, outliers = stripes(400, seed=40), mixed(100)
    state = {name: value.clone() for name, value in trained.state_dict().items()}
    with pytest.warns(MacsWarning) as caught:
        warn_of_known_outliers(trained, train, outliers)
    (sentence,) = [str(each.message) for each in caught]
    found = re.match(r"Of 200 outliers of others, (\d+) are closer to a known class than three quarters", sentence)
    examples = re.findall(r"others\[(\d+)\] \(like (\w+)\)", sentence)
    assert found and len(examples) == 3
    for position, name in examples:
        assert int(str(position)) >= 100 and name == "vertical"
    assert all(torch.equal(value, state[name]) for name, value in trained.state_dict().items())

    # The count by loops over single images.
    bank, others = train.split(200)
    labels = np.asarray(bank.labels)

    def units(images: ImageSet) -> Any:
        pixels = torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255
        features = nets.features_of(trained.eval(), pixels)[0].detach().numpy().astype(float)
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    def nearest(images: ImageSet) -> list[tuple[int, float]]:
        best = [max((float(unit @ one), i) for i, one in enumerate(known_units)) for unit in units(images)]
        return [(int(labels[i]), closeness) for closeness, i in best]

    known_units = units(bank)
    reference = nearest(others)
    bars = [np.quantile([closeness for its, closeness in reference if its == label], 0.75) for label in range(3)]
    expected = sum(closeness > bars[label] for label, closeness in nearest(outliers))
    assert abs(int(found[1]) - expected) <= 2  # rounding


def test_an_outlier_of_a_large_set_is_named_by_its_place_in_that_set(trained: nn.Module) -> None:
    many = ImageSet.from_array(np.concatenate([mixed(0).pixels[:]] * 3 + [mixed(150).pixels[:]] * 2), name="many")
    with pytest.warns(MacsWarning, match="Of 300 outliers of many") as caught:
        warn_of_known_outliers(trained, stripes(400, seed=40), many)
    positions = re.findall(r"many\[(\d+)\]", str(caught[0].message))
    assert len(positions) == 3 and all(int(position) >= 600 for position in positions)


def test_other_outliers_pass_in_silence(trained: nn.Module) -> None:
    headless = nn.Sequential(nn.Conv2d(3, 3, 16), nn.Flatten())
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        warn_of_known_outliers(trained, stripes(400, seed=40), mixed(0))
        warn_of_known_outliers(trained, stripes(39, seed=40), mixed(100))  # too few to compare with
        warn_of_known_outliers(headless, stripes(400, seed=40), mixed(100))  # no features


def test_ood_sets_that_are_like_the_outliers_of_the_training_are_pointed_out(trained: nn.Module) -> None:
    sets = {"like them": noise(80, seed=61), "other": stripes(80, seed=62)}
    with pytest.warns(MacsWarning) as caught:
        warn_of_familiar_sets(trained, noise(400, seed=60), sets)
    (sentence,) = [str(each.message) for each in caught]
    found = re.match(
        r"Of 80 images of like them, (\d+) are as close to outliers .*, for example noise\[\d+\], ", sentence
    )
    assert found and 5 < int(found[1]) < 40  # a quarter, if they are drawn alike
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        warn_of_familiar_sets(trained, noise(39, seed=60), sets)  # too few to compare with
        warn_of_familiar_sets(nn.Sequential(nn.Conv2d(3, 3, 16), nn.Flatten()), noise(400, seed=60), sets)


@pytest.mark.parametrize(
    ("id", "normalisation", "warned"), [("svhn", None, True), ("svhn", "none", False), ("cifar10", None, False)]
)
def test_a_public_network_for_svhn_may_expect_plain_pixels(
    id: str, normalisation: str | None, warned: bool, tmp_path: Path
) -> None:
    file = tmp_path / "public.pt"
    net: Any = nets.build("wrn-10-1", 10)
    torch.save(net.published.state_dict(), file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TrainedNetwork("wrn-10-1", file, id, normalisation=normalisation).network(10)
    assert any("--normalisation none" in str(each.message) for each in caught) == warned


def test_our_own_network_for_svhn_says_how_its_images_are_normalised(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    nets.save(nets.build("wrn-10-1", 10), tmp_path / "own.safetensors")
    TrainedNetwork("wrn-10-1", tmp_path / "own.safetensors", "svhn").network(10)
    assert not recwarn.list
