"""The same application under Ray Serve, on a local Ray cluster: `pytest -m cluster` runs it."""

from pathlib import Path

import httpx
import pytest
from running import form, verdicts

from macs.core.errors import MacsError
from macs.detector import Runtime
from macs.serve.on_ray import deployment


@pytest.mark.cluster
def test_replicas_answer_as_macs_predict_does(exported: Path, pictures: dict[str, bytes], folder: Path) -> None:
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": 8765})
        serve.run(deployment(exported, min_replicas=2, max_replicas=2))
        with httpx.Client(base_url="http://127.0.0.1:8765", timeout=120) as client:
            assert client.get("/readyz").json() == {"ready": True}
            rows = verdicts(client.post("/v1/predict", files=form(pictures)))
            expected = sorted(Runtime(exported).predict_files(folder), key=lambda row: row.path)
            assert [(row["index"], row["is_ood"]) for row in rows] == [(row.label, row.is_ood) for row in expected]
            assert client.get("/v2/models/d").json()["name"] == "d"
            assert client.post("/v1/predict", files={"x": b"x"}).status_code == 422
        assert len(serve.status().applications["default"].deployments["macs"].replica_states) >= 1
    finally:
        serve.shutdown()
        ray.shutdown()


def test_numbers_of_replicas_must_make_sense(exported: Path) -> None:
    pytest.importorskip("ray.serve")
    with pytest.raises(MacsError, match="at least one replica"):
        deployment(exported, min_replicas=0)
    with pytest.raises(MacsError, match="at least one replica"):
        deployment(exported, min_replicas=5, max_replicas=4)
