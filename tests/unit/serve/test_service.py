"""Parsing of large bodies, which other requests must not wait for longer than for one of them."""

import asyncio
import gc
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from macs.serve.service import IN_LOOP, Service, uncollected


def test_large_bodies_are_parsed_one_at_a_time_beside_the_event_loop() -> None:
    inside, most, threads = 0, 0, set()

    def parse() -> int:
        nonlocal inside, most
        inside += 1
        threads.add(threading.get_ident())
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return 7

    async def several() -> list[int]:
        service = cast(Any, SimpleNamespace(parsing=asyncio.Lock()))
        assert await Service.parsed(service, IN_LOOP, threading.get_ident) == threading.get_ident()
        return await asyncio.gather(*(Service.parsed(service, IN_LOOP + 1, parse) for _ in range(5)))

    assert asyncio.run(several()) == [7] * 5
    assert most == 1 and threading.get_ident() not in threads


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_not_collected_while_a_body_is_parsed(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    try:
        assert uncollected(gc.isenabled) is False
        assert gc.isenabled() is on
        with pytest.raises(ZeroDivisionError):
            uncollected(lambda: 1 // 0)
        assert gc.isenabled() is on
    finally:
        gc.enable()
