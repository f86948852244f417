"""What /metrics tells, counted by hand; the share of OOD images over sliding windows; the drift signal."""

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from running import form, png, serving, verdicts
from tiny import noise


def numbers(url: str) -> dict[str, float]:
    """Every sample, by its name and labels."""
    told = httpx.get(f"{url}/metrics", timeout=60).text
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }


def test_counts_and_the_drift_alarm(exported: Path, pictures: dict[str, bytes]) -> None:
    # So high a rate of false alarms that a few dozen images which are all alike raise one.
    with (
        serving(exported, "--threads", 1, "--drift-rate", 0.05) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        client.timeout = httpx.Timeout(60)
        rows = verdicts(client.post("/v1/predict", files=form(pictures | {"x.png": b"x"})))
        assert client.get("/nothing").status_code == 404
        ood = sum(row.get("is_ood", False) for row in rows)
        found = numbers(service.url)
        assert found["macs_images_total[('verdict', 'ood')]"] == ood
        assert found["macs_images_total[('verdict', 'id')]"] == len(pictures) - ood
        assert found["macs_images_total[('verdict', 'unreadable')]"] == 1
        assert found["macs_requests_total[('route', '/v1/predict'), ('status', '200')]"] == 1
        assert found["macs_requests_total[('route', 'other'), ('status', '404')]"] == 1
        assert found["macs_request_seconds_count[('route', '/v1/predict')]"] == 1
        assert found["macs_batch_images_sum"] == len(pictures) == found["macs_wait_seconds_count"]
        assert found["macs_batch_images_count"] == found["macs_network_seconds_count"]
        assert found["macs_queue_limit"] == 128 and found["macs_queue_images"] == 0
        for window in ("1m", "10m", "1h"):
            assert found[f"macs_ood_share[('window', '{window}')]"] == pytest.approx(ood / len(pictures))
        assert found["macs_drift_images"] == len(pictures) and found["process_resident_memory_bytes"] > 0

        worst = min((row for row in rows if "p_value" in row), key=lambda row: row["p_value"])["name"]
        for _ in range(20):
            verdicts(client.post("/v1/predict", files=form({f"{i}": pictures[worst] for i in range(60)})))
            if client.get("/v1/drift").json()["alarm"]:
                break
        assert service.event("drift").items() >= {"level": "warning", "alarm": True, "false_alarm_rate": 0.05}.items()
        found, state = numbers(service.url), client.get("/v1/drift").json()
        assert found["macs_drift_alarm"] == 1 and found["macs_drift_evidence"] >= 1 and state["evidence"] >= 1
        assert found["macs_drift_images"] == state["images"] >= state["alarm_after"]


def test_no_picture_is_kept_in_a_log(exported: Path) -> None:
    content = png(noise(1, seed=2).pixels[:][0])
    with serving(exported, "--threads", 1) as service:
        verdicts(httpx.post(f"{service.url}/v1/predict", files=form({"secret.png": content}), timeout=60))
        assert service.stop() == 0
        assert not any("secret" in line for line in service.lines)
