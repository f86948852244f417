"""A cluster that is not there, has no room, or cannot be had because Ray is not installed."""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from macs.core import clusters
from macs.core.clusters import connected, ended_tasks, same_version, slots
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


class FakeRay:
    """A cluster whose tasks are their items' names and end in the order in which they were started."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def wait(self, tasks: list[str], timeout: float | None) -> tuple[list[str], list[str]]:
        return tasks[:1], tasks[1:]

    def cancel(self, task: str, force: bool) -> None:
        self.cancelled.append(task)


def test_every_item_has_a_task_and_no_more_than_there_is_room_for() -> None:
    ray, seen, taken = FakeRay(), [], []

    def start(item: int) -> str:
        taken.append(item)
        return f"task {item}"

    def look(running: Any) -> None:
        seen.append([*running])

    ended = []
    for item, task in ended_tasks(ray, range(5), start, 2, look):
        assert task == f"task {item}" and len(taken) <= item + 2  # the next item is taken when there is room for it
        ended.append(item)
    assert ended == [*range(5)] and seen == [[0, 1], [1, 2], [2, 3], [3, 4], [4]] and not ray.cancelled


def test_tasks_are_cancelled_when_nobody_waits_for_them() -> None:
    ray = FakeRay()
    with closing(ended_tasks(ray, "abcd", str.upper, 3)) as tasks:
        assert next(tasks) == ("a", "A")
    assert ray.cancelled == ["B", "C"]


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(MacsError, match=r"the driver 0\.0\.1; install the same version"):
        same_version("0.0.1")
