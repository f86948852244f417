"""A detector's file that changes while it is served: every request is answered, and a broken file changes nothing."""

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path

import httpx
import pytest

from macs.detector import Detector, Runtime
from running import Running, load, serving
from tiny import stripes


@pytest.fixture(scope="module")
def other(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network with another threshold."""
    path = tmp_path_factory.mktemp("other") / "other.onnx"
    Detector(detector.net, "msp").calibrate(stripes(100, seed=5), keep=0.5).export(path)
    return path


def put(content: Path, path: Path) -> None:
    """Replace a file as a careful user does."""
    shutil.copy(content, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def threshold(service: Running) -> float:
    return float(httpx.get(f"{service.url}/v1/detector", timeout=60).json()["thresholds"][0])


def test_reloads_under_load_fail_no_request(
    exported: Path, other: Path, pictures: dict[str, bytes], tmp_path: Path
) -> None:
    async def reloaded(service: Running, path: Path, times: int) -> Counter[object]:
        done = asyncio.Event()
        loading = asyncio.create_task(load(service.url, pictures["12.png"], clients=8, until=done))
        for turn in range(times):
            put((other, exported)[turn % 2], path)
            service.signal(signal.SIGHUP)
            await asyncio.to_thread(service.event, "reloaded")
        done.set()
        return await loading

    path = tmp_path / "d.onnx"
    shutil.copy(exported, path)
    with serving(path, "--threads", 1, "--watch", 0) as service:
        count = asyncio.run(reloaded(service, path, 11))
        assert count.keys() == {200}
        assert threshold(service) == Runtime(other).calibrated.values
        told = httpx.get(f"{service.url}/metrics", timeout=60).text
        assert 'macs_reloads_total{result="loaded"} 11.0' in told
        assert f'checksum="{Runtime(other).sha256}"' in told and f'checksum="{Runtime(exported).sha256}"' not in told
        assert service.stop() == 0


def test_a_changed_file_is_loaded_and_a_broken_one_is_not(exported: Path, other: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.onnx"
    shutil.copy(exported, path)
    before, after = (float(Runtime(each).calibrated.values) for each in (exported, other))
    with serving(path, "--threads", 1, "--watch", 0.05) as service:
        path.write_bytes(other.read_bytes()[:5000])  # half a file, as a copy that is under way
        assert "is damaged or not an ONNX file" in service.event("reload failed")["error"]
        assert threshold(service) == pytest.approx(before)
        path.unlink()  # nothing to load: it goes on
        assert threshold(service) == pytest.approx(before)
        put(other, path)
        assert service.event("reloaded")["checksum"] == Runtime(other).sha256
        assert threshold(service) == pytest.approx(after)
        told = httpx.get(f"{service.url}/metrics", timeout=60).text
        assert 'macs_reloads_total{result="refused"} 1.0' in told
