"""Pictures in files and in bytes, and one running service."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from running import Running, png, serving
from tiny import noise, stripes


@pytest.fixture(scope="session")
def pictures() -> dict[str, bytes]:
    """Stripes and noise of another size than the network's, so that the preparation has work to do."""
    images = [*stripes(12, seed=7, size=20).pixels[:], *noise(12, seed=8, size=40).pixels[:]]
    return {f"{i:02d}.png": png(pixels) for i, pixels in enumerate(images)}


@pytest.fixture(scope="session")
def folder(pictures: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def running(exported: Path) -> Iterator[Running]:
    with serving(exported, "--threads", 1) as service:
        yield service


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=60) as client:
        yield client
