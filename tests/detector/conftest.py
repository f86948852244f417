"""A detector that has learned something, and one with a user's own network."""

from dataclasses import replace

import pytest
import torch
from dots import Dots
from torch import nn

import macs
from macs.data import ImageSet
from macs.detector import Detector
from macs.training.recipe import PRETRAINING
from tiny import stripes


@pytest.fixture(scope="session")
def validation() -> ImageSet:
    return stripes(100, seed=5)


@pytest.fixture(scope="session")
def trained(known: ImageSet) -> nn.Module:
    """A WRN that tells the stripes apart."""
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=3)
    recipe = replace(PRETRAINING, epochs=3, batch_in=32, precision="float32")
    macs.pretrain(net, known, recipe=recipe, progress=False)
    return net


@pytest.fixture(scope="session")
def detector(trained: nn.Module, validation: ImageSet) -> Detector:
    return Detector(trained, "msp").calibrate(validation, keep=0.9)


@pytest.fixture
def dots(validation: ImageSet) -> Detector:
    torch.manual_seed(1)
    return Detector(Dots(), "energy").calibrate(validation, keep=0.8)
