"""map_ahead: in order, as far ahead as was said and no further, and no thread is left behind."""

import os
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.data import set_workers
from macs.data.prefetch import DECODERS, in_threads, map_ahead


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize(("count", "ahead"), [(1, 2), (4, 16), (8, 1)])
def test_results_come_in_order_and_stay_so_many_ahead(count: int, ahead: int) -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for i in range(10 * ahead):
            taken += 1
            yield i

    def slow(i: int) -> int:
        time.sleep(0.002 * (i % 3))  # so that a later one is ready before an earlier one
        return i * i

    results = map_ahead(slow, source(), count, ahead)
    for i in range(3 * ahead):
        assert next(results) == i * i
        assert taken == i + 1 + ahead
        assert len(threads()) <= count
    assert list(results) == [i * i for i in range(3 * ahead, 10 * ahead)]
    assert not threads()


def test_results_are_made_while_the_one_before_is_used() -> None:
    made = []
    seen = []

    def make(number: int) -> int:
        made.append(number)
        return number

    for number in map_ahead(make, range(6), threads=1, ahead=2):
        seen.append(number)
        deadline = time.monotonic() + 5
        while len(made) < min(6, number + 3) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.005)
        assert made == list(range(min(6, number + 3)))
    assert seen == list(range(6)) and not threads()
    assert list(map_ahead(str, [], 1, 2)) == [] and list(map_ahead(str, [0], 1, 2)) == ["0"]


def test_an_exception_in_a_thread_reaches_the_caller_at_its_place() -> None:
    def make(number: int) -> int:
        if number == 3:
            raise MacsError("the fourth image is broken")
        return number

    seen: list[int] = []
    with pytest.raises(MacsError, match="the fourth image is broken"):
        seen.extend(map_ahead(make, range(10), threads=2, ahead=4))
    assert seen == [0, 1, 2] and not threads()


def test_closing_early_ends_the_threads() -> None:
    results = map_ahead(str, range(1000), threads=3, ahead=8)
    next(results)
    assert threads()
    assert isinstance(results, Generator)
    results.close()
    assert not threads()


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_workers_is_the_number_of_threads(count: int) -> None:
    """Every call waits until all threads have one; a thread more or less would break the barrier."""
    together = threading.Barrier(count)
    set_workers(count)
    try:
        in_threads(lambda _: together.wait(timeout=20), range(4 * count))
        assert not threads()
    finally:
        set_workers(None)
    assert DECODERS.workers == min(8, os.cpu_count() or 1)


def test_what_a_thread_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 // number, [2, 1, 0, 1])


@pytest.mark.parametrize("count", [0, -1, 257, 2.5, "two", 10**30])
def test_a_wrong_number_of_workers_is_refused(count: Any) -> None:
    with pytest.raises(MacsError, match="^workers must be"):
        set_workers(count)
