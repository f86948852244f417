"""Pipeline: threads decode images, and one thread runs the network on those that wait for it.

    submit ──▶ decoders (threads) ──▶ waiting ──▶ network (one thread) ──▶ the event loop, which answers

While the network is busy, images gather; when it is free, it takes those that have gathered, up to the largest batch.
So batches grow with the load, and a single image does not wait for others unless a delay is set.

At most `queue` images are inside: from the moment a request is accepted until it is answered.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.batches import DECODERS
from macs.data.preparation import Undecodable
from macs.predictions import Predictions
from macs.serve.loaded_detector import LoadedDetector

Read = Callable[[LoadedDetector], NDArray[Any]]  # pixels as the detector's preparation wants them, or a row
MEMORY = 0.9  # weight of the past in the mean time per image

log = logging.getLogger("macs.serve")


class Overloaded(Exception):
    """The queue is full; it may have room again after `retry_after` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class NetworkFailed(Exception):
    """The network failed, which is no fault of the request."""


class Watcher(Protocol):
    """Counts and measures; called in the event loop."""

    def on_batch(self, by: LoadedDetector, answers: Predictions, seconds: float, waits: Sequence[float]) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """One image: its row in the network's answers, or the reason why there is none."""

    answers: Predictions | None = None
    row: int = 0
    reason: str = ""


@dataclass(eq=False)
class Ticket:
    """The images of one request on their way."""

    detector: LoadedDetector
    future: "asyncio.Future[list[Outcome]]"
    outcomes: list[Outcome | None]
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.outcomes)

    @property
    def dropped(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.future.done()

    def settle(self, place: int, outcome: Outcome) -> None:
        """In the event loop: one image is done; the last one answers the request."""
        self.outcomes[place] = outcome
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result([settled for settled in self.outcomes if settled is not None])

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True, eq=False)
class Entry:
    """A decoded image that waits for the network."""

    ticket: Ticket
    place: int
    pixels: NDArray[Any]
    since: float


class Pipeline:
    """Belongs to the event loop in which it was started."""

    def __init__(self, batch: int, delay: float, queue: int, watcher: Watcher) -> None:
        """`delay` is in seconds."""
        self.batch, self.delay, self.queue, self.watcher = batch, delay, queue, watcher
        self.inside = 0
        self.seconds_per_image = 0.01
        self._waiting: deque[Entry] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoders = ThreadPoolExecutor(DECODERS.workers, thread_name_prefix="decoder")
        self._network = threading.Thread(target=self._run, name="network", daemon=True)
        self._network.start()

    async def close(self) -> None:
        """Finish what was accepted, then end the threads."""
        while self.inside:
            await asyncio.sleep(0.01)
        with self._changed:
            self._closed = True
            self._changed.notify()
        await asyncio.to_thread(self._network.join)
        self._decoders.shutdown(cancel_futures=True)

    def check_room(self, images: int = 1) -> None:
        """Raise Overloaded if there is no room for this many more."""
        if self.inside + images > self.queue:
            raise Overloaded(math.ceil(max(1.0, self.inside * self.seconds_per_image)))

    async def judge(self, detector: LoadedDetector, reads: Sequence[Read]) -> list[Outcome]:
        """One outcome per image, in order. If the caller is cancelled, images that still wait are dropped."""
        self.check_room(len(reads))
        ticket = Ticket(detector, self._loop.create_future(), [None] * len(reads))
        self.inside += len(reads)
        try:
            for place, read in enumerate(reads):
                self._decoders.submit(self._decode, ticket, place, read)
            return await ticket.future
        finally:
            ticket.future.cancel()
            self.inside -= len(reads)

    def _decode(self, ticket: Ticket, place: int, read: Read) -> None:
        """In a decoder's thread."""
        if ticket.dropped:
            return
        try:
            pixels = read(ticket.detector)
        except (Undecodable, MacsError) as error:
            outcome = Outcome(reason=str(error))
        except Exception as error:
            log.exception("decoder failed")
            outcome = Outcome(reason=f"its decoder failed ({type(error).__name__})")
        else:
            with self._changed:
                self._waiting.append(Entry(ticket, place, pixels, time.perf_counter()))
                self._changed.notify()
            return
        self._loop.call_soon_threadsafe(ticket.settle, place, outcome)

    def _run(self) -> None:
        """In the network's thread: batch after batch."""
        while batch := self._next_batch():
            start = time.perf_counter()
            try:
                answers = batch[0].ticket.detector.ask(np.stack([entry.pixels for entry in batch]))
            except Exception:
                log.exception("network failed")
                self._loop.call_soon_threadsafe(self._fail, batch)
            else:
                self._loop.call_soon_threadsafe(self._deliver, batch, answers, start, time.perf_counter() - start)

    def _next_batch(self) -> list[Entry]:
        """Images for one detector that somebody still waits for; empty when the pipeline is closed."""
        with self._changed:
            while True:
                while not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                detector = self._waiting[0].ticket.detector
                most = min(self.batch, detector.largest_batch)
                until = self._waiting[0].since + self.delay
                while len(self._waiting) < most and (left := until - time.perf_counter()) > 0 and not self._closed:
                    self._changed.wait(left)
                batch: list[Entry] = []
                while self._waiting and len(batch) < most and self._waiting[0].ticket.detector is detector:
                    entry = self._waiting.popleft()
                    if not entry.ticket.dropped:
                        batch.append(entry)
                if batch:
                    return batch

    def _deliver(self, batch: list[Entry], answers: Predictions, start: float, seconds: float) -> None:
        """In the event loop."""
        self.seconds_per_image = MEMORY * self.seconds_per_image + (1 - MEMORY) * seconds / len(batch)
        waits = [start - entry.since for entry in batch]
        self.watcher.on_batch(batch[0].ticket.detector, answers, seconds, waits)
        for row, entry in enumerate(batch):
            entry.ticket.settle(entry.place, Outcome(answers, row))

    def _fail(self, batch: list[Entry]) -> None:
        for entry in batch:
            entry.ticket.fail(NetworkFailed())
