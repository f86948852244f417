"""The first layer: (pixels - mean) / std by channel."""

from typing import Any

import numpy as np
import pytest
import torch

from macs.core.errors import MacsError
from macs.nets import NORMALISATIONS, Normalisation, Normalise


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
