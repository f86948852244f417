"""What all tests share: real data where it is at hand, tiny sets, and detectors that know them."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Some virtual machines promise AMX and hide a part of it, so that torch dies of an illegal instruction at the first
# product in bf16. The tests do without AMX everywhere, and so compute alike on all machines.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")  # or scikit-learn starts a process to count the cores
os.environ["PYTHONSAFEPATH"] = "1"  # no process that a test starts imports files of its working folder

import hypothesis
import pytest
import torch
from torch import nn

import fitting_torchvision  # noqa: F401 - before any test imports torchvision
from dots import Dots
from macs import keep_freed_memory
from macs.data import ImageSet
from macs.detector import Detector
from tiny import classifier, noise, stripes

keep_freed_memory()  # as every command does
os.environ["MACS_CACHE"] = tempfile.mkdtemp(prefix="macs-cache-")  # where commands keep outputs, not the user's folder
atexit.register(shutil.rmtree, os.environ["MACS_CACHE"], ignore_errors=True)
hypothesis.settings.register_profile("quick", max_examples=20, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=100, deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "quick")


@pytest.fixture(scope="session")
def data_root() -> Path:
    if not os.environ.get("MACS_DATA"):
        pytest.skip("MACS_DATA does not point at real datasets")
    return Path(os.environ["MACS_DATA"])


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder to work in as a user to whom files can be denied: root, as tests run in a container, may read all."""
    if not hasattr(os, "setresuid"):
        pytest.skip("this system has no rights to take away")
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        os.setresuid(65534, 65534, 0)
    try:
        yield folder
    finally:
        if root:
            os.setresuid(0, 0, 0)
        for inner, _, _ in os.walk(folder):
            Path(inner).chmod(0o700)
        shutil.rmtree(folder)


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


@pytest.fixture(scope="session")
def validation() -> ImageSet:
    return stripes(100, seed=5)


@pytest.fixture(scope="session")
def trained() -> nn.Module:
    """A WRN that tells the stripes apart."""
    return classifier()


@pytest.fixture(scope="session")
def detector(trained: nn.Module, validation: ImageSet) -> Detector:
    return Detector(trained, "msp").calibrate(validation, keep=0.9)


@pytest.fixture(scope="session")
def exported(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That detector as an ONNX file, for all tests that only read it."""
    path = tmp_path_factory.mktemp("exported") / "d.onnx"
    detector.export(path)
    return path


@pytest.fixture
def dots(validation: ImageSet) -> Detector:
    """A detector with a user's own network."""
    torch.manual_seed(1)
    return Detector(Dots(), "energy").calibrate(validation, keep=0.8)
