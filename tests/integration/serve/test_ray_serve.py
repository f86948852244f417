"""The service on a local Ray cluster: the verdicts of the local one, more replicas under load, and a replica killed."""

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from macs.core.errors import MacsError
from macs.serve.app import create_app
from macs.serve.settings import DEFAULT, ServeSettings
from ray_serve import Wanted, application, build, replica_app
from repository import ROOT
from running import form, verdicts

# Looked for and not imported: Ray reads its settings on import, and other tests set them.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
SOURCE = ROOT / "src"
NAME = f"macs-test-{os.getpid()}"  # of the application, and so in the names of its processes
CLIENTS = 16


def test_a_detector_comes_from_a_file_or_a_url(exported: Path, pictures: dict[str, bytes]) -> None:
    answers = []
    for where in (str(exported), f"file://{exported}"):
        with TestClient(replica_app(where, 1, DEFAULT, "secret")) as client:
            assert client.post("/v1/predict", files=form(pictures)).status_code == 401
            answers.append(verdicts(client.post("/v1/predict", files=form(pictures), headers={"x-api-key": "secret"})))
            assert client.get("/v2/models/d", headers={"x-api-key": "secret"}).status_code == 200
    assert answers[0] == answers[1]


@pytest.mark.parametrize("local", [False, True])
def test_without_a_key_a_replica_answers_under_its_own_names(exported: Path, local: bool) -> None:
    where = str(exported) if local else f"file://{exported}"
    with TestClient(replica_app(where, 1, DEFAULT, None, ["detector.example"])) as client:
        for name, status in (("detector.example", 200), ("localhost", 200), ("rebound.example", 421)):
            assert client.get("/v1/detector", headers={"host": name}).status_code == status


def test_settings_reach_ray(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported.parent)
    settings = ServeSettings(queue=100, batch=8, timeout=5)
    made = application("d.onnx", threads=2, settings=settings, max_replicas=7)._bound_deployment
    scaling = made._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.target_ongoing_requests) == (1, 7, 4)
    assert (made.max_ongoing_requests, made.max_queued_requests) == (200, 100)
    assert made.ray_actor_options["num_cpus"] == 2
    with pytest.raises(MacsError, match="AutoscalingConfig has no field 'max_replica'"):
        application("d.onnx", max_replica=7)


def test_what_a_shell_may_say(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = build(
        Wanted.model_validate({"path": str(exported), "max_replicas": "3"})
    )._bound_deployment._deployment_config
    assert scaling.autoscaling_config.max_replicas == 3
    with pytest.raises(ValidationError, match="max_replica"):
        Wanted.model_validate({"path": str(exported), "max_replica": 3})
    monkeypatch.setenv("MACS_API_KEY", "")
    with pytest.raises(MacsError, match="MACS_API_KEY holds no key"):
        build(Wanted(path=str(exported)))


@pytest.fixture(scope="module")
def address(exported: Path) -> Iterator[str]:
    """One replica, and up to three when there is load."""
    import ray
    from ray import serve

    from macs.core.clusters import connected

    monkeypatch = pytest.MonkeyPatch()
    for check in ("READY", "HEALTH"):  # a busy machine takes longer than Ray allows its own proxy
        monkeypatch.setenv(f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S", "60")
    connected(None, {"num_cpus": 4, "runtime_env": {"env_vars": {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}}})
    quick: dict[str, Any] = {
        "upscale_delay_s": 1,
        "downscale_delay_s": 600,
        "look_back_period_s": 2,
        "metrics_interval_s": 0.5,
    }
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with suppress(TimeoutError):  # after a minute; the proxy goes on starting
            serve.start(http_options={"port": port})
        app = application(exported, min_replicas=1, max_replicas=3, target_ongoing_requests=2, **quick)
        serve.run(app, name=NAME, route_prefix="/")
        wait_until(lambda: answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
        monkeypatch.undo()


@pytest.mark.cluster
def test_on_a_cluster(address: str, exported: Path, pictures: dict[str, bytes]) -> None:
    sent = {**pictures, "broken.png": b"broken"}
    with TestClient(create_app(exported, threads=1), base_url="http://localhost") as local:
        expected = verdicts(local.post("/v1/predict", files=form(sent)))
    with httpx.Client(base_url=address, timeout=60) as client:
        assert verdicts(client.post("/v1/predict", files=form(sent))) == expected
        assert client.get("/readyz").json() == {"ready": True} and "page/app.js" in client.get("/").text
        assert client.post("/v1/predict", content=b"").status_code == 415
        assert client.post("/v2/models/other/infer", json={}).status_code == 404

    (first,) = replicas()
    with Load(address, pictures["00.png"]) as load:
        wait_until(lambda: len(replicas()) >= 2)  # the load asks for more replicas
        wait_until(lambda: load.count[200] > 100)
        before = load.count[200]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: load.count[200] > before + 200 and first not in replicas() and len(replicas()) >= 2)
    # Requests that were inside the killed replica are lost, at most one per client; no other is.
    assert load.count.keys() <= {200, 500, 503} and load.count.total() - load.count[200] <= CLIENTS
    with httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(6):  # all replicas have a turn
            assert verdicts(client.post("/v1/predict", files=form(sent))) == expected


class Load:
    """Clients that send one request after the other while the block lasts."""

    def __init__(self, address: str, content: bytes) -> None:
        self.count: Counter[int] = Counter()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(address, content)) for _ in range(CLIENTS)]

    def _work(self, address: str, content: bytes) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while not self._over.is_set():
                answer = client.post("/v1/predict", content=content, headers={"content-type": "image/png"})
                self.count[answer.status_code] += 1

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def replicas() -> set[int]:
    """The processes of the replicas, which Ray names after the application."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"ServeReplica:{NAME}:" in entry.read_text(errors="replace"):
                found.add(int(entry.parent.name))
        except OSError:  # it has ended
            continue
    return found


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
