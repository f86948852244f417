"""What tests share: the real data when it is there, and tiny sets to train on."""

import os
from pathlib import Path

import pytest

from macs.data import ImageSet
from tiny import noise, stripes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("MACS_DATA"):
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason="MACS_DATA does not point at real datasets"))


@pytest.fixture(scope="session")
def data_root() -> Path:
    return Path(os.environ["MACS_DATA"])


@pytest.fixture(scope="session")
def public_weights() -> str:
    """A WRN-40-2 for CIFAR-10 in the format of the public checkpoints."""
    if "MACS_WEIGHTS" not in os.environ:
        pytest.skip("MACS_WEIGHTS names no public WRN-40-2 for CIFAR-10")
    return os.environ["MACS_WEIGHTS"]


@pytest.fixture(scope="session")
def known() -> ImageSet:
    return stripes(192, seed=1)


@pytest.fixture(scope="session")
def known_test() -> ImageSet:
    return stripes(120, seed=2)


@pytest.fixture(scope="session")
def outliers() -> ImageSet:
    return noise(256, seed=3)
