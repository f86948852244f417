"""A cluster that is not there, has no room, or cannot be had because Ray is not installed."""

from types import SimpleNamespace

import pytest

from macs.core import clusters
from macs.core.clusters import connected, slots
from macs.core.errors import MacsError


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    with pytest.raises(MacsError, match=r"pip install 'macs-ood\[ray\]'"):
        connected(None)


def test_room_for_tasks() -> None:
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": 2.0})
    assert slots(ray, 1) == 8 and slots(ray, 3) == 2
    assert slots(ray, 1, gpus=0.5) == 4 and slots(ray, 4, gpus=0.5) == 2
    with pytest.raises(MacsError, match="has 8 CPUs and 2 GPUs, but a task needs 9 CPUs; ask for less"):
        slots(ray, 9)
    with pytest.raises(MacsError, match="but a task needs 1 CPUs and 3 GPUs"):
        slots(ray, 1, gpus=3)
