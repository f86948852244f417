"""What tests share: the real data when it is there, and tiny sets to train on."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Some virtual machines promise AMX and hide a part of it, so that torch dies of an illegal instruction at the first
# product in bf16. The tests do without AMX everywhere, and so compute alike on all machines.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest

import fitting_torchvision  # noqa: F401 - before any test imports torchvision
from macs import keep_freed_memory
from macs.data import ImageSet
from tiny import noise, stripes

keep_freed_memory()  # as every command does
LONGEST = ("test_demo.py", "test_training.py", "test_your_model.py")  # files that take a minute or more


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)  # so that no process ends long after the others
    for marker in ("architectures", "cluster", "commands", "fuzz", "tutorial"):
        for item in items if marker not in config.option.markexpr else []:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"takes minutes; pytest -m {marker} runs it"))
    if not os.environ.get("MACS_DATA"):
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason="MACS_DATA does not point at real datasets"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process for each file, as with `--dist loadfile`, and one for all hostile calls: they share a workshop."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return "hostile" if nodeid.startswith("tests/hostile/") else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def data_root() -> Path:
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
