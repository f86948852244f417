"""Reading and decoding in threads, ahead of use."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, TypeVar

from macs.core.settings import Span, typed

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Decoders:
    """The number of threads that decode pictures, for the whole process.

    Pillow releases the GIL while it decodes and resizes, so processes would be no faster (docs/performance.md).
    """

    workers: int = min(8, os.cpu_count() or 1)


DECODERS = Decoders()


def set_workers(count: int | None) -> None:
    """Decode pictures in this many threads from now on; None: one per core, at most 8. The pixels stay the same."""
    DECODERS.workers = Decoders.workers if count is None else typed("workers", count, Annotated[int, Span(1, 256)])


def map_ahead(function: Callable[[S], T], items: Iterable[S], threads: int, ahead: int) -> Iterator[T]:
    """map(function, items) in threads, in order, with up to `ahead` results computed in advance.

    An exception in a thread is raised here, in its turn. Closing the iterator ends the threads. Every call has its own
    pool: threads that are kept from one call to the next would not survive a fork.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")
    pending: deque[Future[T]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def in_threads(function: Callable[[S], object], items: Iterable[S]) -> None:
    """Call function(item) for each item, in the threads that decode pictures."""
    with ThreadPoolExecutor(DECODERS.workers, thread_name_prefix="ahead") as pool:
        for _ in pool.map(function, items):  # raises what a call has raised
            pass
