"""Images share passes of the network; what does not fit is refused; what nobody waits for is dropped."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.predictions import Predictions
from macs.serve.loaded_detector import DetectorFile, LoadedDetector
from macs.serve.pipeline import Outcome, Overloaded, Pipeline
from tiny import noise


class Passes:
    """Counts the passes of the network."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.loaded: list[LoadedDetector] = []

    def on_batch(self, loaded: LoadedDetector, answers: Predictions, seconds: float, waits: Sequence[float]) -> None:
        assert seconds > 0 and len(waits) == len(answers)
        self.sizes.append(len(answers))
        self.loaded.append(loaded)


@pytest.fixture(scope="module")
def loaded(exported: Path) -> LoadedDetector:
    return DetectorFile(exported, threads=1).load()


def image(i: int, loaded: LoadedDetector) -> NDArray[np.uint8]:
    return noise(1, seed=i).pixels[:][0]


def reads(count: int, start: int = 0) -> list[Callable[[LoadedDetector], NDArray[np.uint8]]]:
    return [partial(image, i) for i in range(start, start + count)]


def confidences(outcomes: list[Outcome]) -> list[float]:
    return [float(outcome.answers.confidence[outcome.row]) for outcome in outcomes]


def run(work: Callable[[Pipeline], Coroutine[Any, Any, Any]], passes: Passes, **changes: Any) -> Any:
    """Work with a pipeline in a loop of its own."""

    async def inside() -> Any:
        options: dict[str, Any] = {"batch": 8, "delay": 0.0, "queue": 64, "watcher": passes} | changes
        pipeline = Pipeline(**options)
        pipeline.start()
        try:
            return await work(pipeline)
        finally:
            await pipeline.close()
            assert pipeline.inside == 0

    return asyncio.run(inside())


def test_requests_share_passes_and_get_their_own_images(loaded: LoadedDetector) -> None:
    async def work(pipeline: Pipeline) -> list[list[Outcome]]:
        return await asyncio.gather(*(pipeline.judge(loaded, reads(3, 3 * i)) for i in range(8)))

    passes = Passes()
    found = [each for request in run(work, passes, delay=0.5) for each in confidences(request)]
    pixels = np.concatenate([noise(1, seed=i).pixels[:] for i in range(24)])
    np.testing.assert_allclose(found, loaded.ask(pixels).confidence, rtol=1e-5)
    assert passes.sizes == [8, 8, 8]  # full batches do not wait for the delay


def test_a_single_image_waits_only_as_long_as_the_delay(loaded: LoadedDetector) -> None:
    passes = Passes()
    run(lambda pipeline: pipeline.judge(loaded, reads(1)), passes)
    run(lambda pipeline: pipeline.judge(loaded, reads(1)), passes, delay=0.01)
    assert passes.sizes == [1, 1]


def test_a_reason_is_an_outcome(loaded: LoadedDetector) -> None:
    def broken(loaded: LoadedDetector) -> NDArray[np.uint8]:
        raise MacsError("it is torn")

    def fault(loaded: LoadedDetector) -> NDArray[np.uint8]:
        raise RuntimeError("inside")

    async def work(pipeline: Pipeline) -> list[Outcome]:
        return await pipeline.judge(loaded, [broken, *reads(1), fault])

    first, second, third = run(work, Passes())
    assert first.reason == "it is torn" and second.answers is not None
    assert third.reason == "its decoder failed (RuntimeError)"


def test_the_queue_is_bounded_and_empties(loaded: LoadedDetector) -> None:
    gate = threading.Event()

    def wait(loaded: LoadedDetector) -> NDArray[np.uint8]:
        gate.wait(30)
        return image(0, loaded)

    async def work(pipeline: Pipeline) -> None:
        first = asyncio.create_task(pipeline.judge(loaded, [wait] * 3))
        await asyncio.sleep(0)
        assert pipeline.inside == 3
        with pytest.raises(Overloaded) as overload:
            await pipeline.judge(loaded, reads(2))
        assert overload.value.retry_after >= 1
        pipeline.check_room(1)
        gate.set()
        assert len(await first) == 3
        assert len(await pipeline.judge(loaded, reads(4))) == 4

    run(work, Passes(), queue=4)


def test_what_nobody_waits_for_is_dropped(loaded: LoadedDetector) -> None:
    gate = threading.Event()

    def wait(loaded: LoadedDetector) -> NDArray[np.uint8]:
        gate.wait(30)
        return image(0, loaded)

    async def work(pipeline: Pipeline) -> None:
        request = asyncio.create_task(pipeline.judge(loaded, [wait] * 40))
        await asyncio.sleep(0.05)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert pipeline.inside == 0
        gate.set()
        assert len(await pipeline.judge(loaded, reads(1))) == 1

    passes = Passes()
    run(work, passes)
    assert sum(passes.sizes) == 1


def test_images_for_two_detectors_do_not_share_a_pass(loaded: LoadedDetector, exported: Path) -> None:
    newer = DetectorFile(exported, threads=1).load()

    async def work(pipeline: Pipeline) -> None:
        await asyncio.gather(*(pipeline.judge(each, reads(2)) for each in (loaded, newer, loaded)))

    passes = Passes()
    run(work, passes, delay=0.2)
    assert sum(passes.sizes) == 6 and set(passes.loaded) == {loaded, newer}


def test_a_network_that_fails_fails_its_requests_only(loaded: LoadedDetector) -> None:
    from macs.serve.pipeline import NetworkFailed

    def wrong(loaded: LoadedDetector) -> NDArray[np.uint8]:
        return np.zeros((5, 5, 3), np.uint8)  # not the network's size

    async def work(pipeline: Pipeline) -> None:
        with pytest.raises(NetworkFailed):
            await pipeline.judge(loaded, [wrong])
        assert len(await pipeline.judge(loaded, reads(2))) == 2

    run(work, Passes())
