"""Service: the parts that a request needs, and the routes that judge images."""

import asyncio
import gc
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Query, Request, Response
from numpy.typing import NDArray
from pydantic import BeforeValidator

from macs.core.errors import MacsError
from macs.predictions import Predictions
from macs.serve import open_inference, uploads
from macs.serve.loaded_detector import DetectorFile, DetectorWatch, LoadedDetector
from macs.serve.metrics import Metrics
from macs.serve.open_inference import HEADER
from macs.serve.pipeline import NetworkFailed, Outcome, Overloaded, Pipeline, Read
from macs.serve.rows import Row, from_json
from macs.serve.settings import ServeSettings
from macs.serve.uploads import BodyReader, ClientGone, Refused, busy

T = TypeVar("T")
IN_LOOP = 2**16  # bytes of a body that are parsed in the event loop; larger ones are parsed in a thread


def plain(value: object) -> object:
    """Refuse what only Python takes for a number, such as 1_0."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError("it is not a number")
    return value


Threshold = Annotated[float | None, BeforeValidator(plain), Query(description="replaces the calibrated thresholds")]
Keep = Annotated[
    float | None, BeforeValidator(plain), Query(description="share of ID images to keep, above 0 and below 1")
]


@dataclass
class Visit:
    """One request, as it will be logged."""

    request_id: str
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    unread: bool = False  # whether some of its body has not arrived
    images: int = 0
    ood: int = 0


class Service:
    """The parts of one service, and what its routes do with them."""

    def __init__(self, source: DetectorFile, settings: ServeSettings) -> None:
        self.settings = settings
        self.watch = DetectorWatch(source, self._reloaded)
        self.metrics = Metrics(self.watch.detector, settings.drift_rate)
        self.pipeline = Pipeline(settings.batch, settings.delay / 1000, settings.queue, self.metrics)
        self.metrics.limit.set(settings.queue)
        self.metrics.queue.set_function(lambda: self.pipeline.inside)
        self.bodies = BodyReader(settings, self.pipeline.check_room)
        self.metrics.buffered.set_function(lambda: self.bodies.buffered)
        self.parsing = asyncio.Lock()
        self.started = self.draining = False
        self.accepted = self.answered = 0  # requests

    @property
    def ready(self) -> bool:
        """Whether requests are welcome."""
        return self.started and not self.draining

    def _reloaded(self, succeeded: bool) -> None:
        self.metrics.reloads.labels("loaded" if succeeded else "refused").inc()
        if succeeded:
            self.metrics.on_detector(self.watch.detector)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        self.pipeline.start()
        interval = self.settings.watch
        looking = asyncio.create_task(self.watch.run(interval)) if interval else None
        self.started = True
        try:
            yield
        finally:
            self.started = False
            if looking is not None:
                looking.cancel()
            await self.pipeline.close()

    async def predict(self, request: Request, threshold: Threshold = None, keep: Keep = None) -> Response:
        """Judge images or rows: those of one request share its threshold. An unreadable one gets a reason instead."""
        detector, most = self.watch.detector, self.settings.max_images
        columns = detector.columns
        refuse_unknown(request, "threshold", "keep")
        tau = thresholds(detector, threshold, keep)
        async with self.bodies.body(request.receive) as body:
            content_type = request.headers.get("content-type", "")
            sent: Sequence[uploads.Upload | Row]
            if columns is None:
                sent = await self.parsed(len(body), lambda: uploads.parse(content_type, body, most))
            else:
                sent = await self.parsed(len(body), lambda: from_json(body, columns, most))
            outcomes = await self.judge(request, detector, sent)
        rows = verdict_rows(detector, outcomes, tau)
        if columns is not None:
            return as_json({"rows": rows, "request_id": self.record(request, rows)})
        images = [{"name": upload.name, **row} for upload, row in zip(sent, rows, strict=True)]
        return as_json({"images": images, "request_id": self.record(request, rows)})

    async def infer(self, request: Request, name: str, threshold: Threshold = None, keep: Keep = None) -> Response:
        """Judge a tensor of pixels (images) or of image files (files); tensors may be binary."""
        detector, limits = self.model(name), self.settings
        refuse_unknown(request, "threshold", "keep")
        async with self.bodies.body(request.receive) as body:
            length = request.headers.get(HEADER)
            asked = await self.parsed(
                len(body),
                lambda: open_inference.parse(body, length, limits.max_images, limits.max_pixels, detector.columns),
            )
            tau = thresholds(detector, **({"threshold": threshold, "keep": keep} | asked.settings))
            outcomes = await self.judge(request, detector, asked.images)
        rows = verdict_rows(detector, outcomes, tau)
        self.record(request, rows)
        for place, row in enumerate(rows):
            if "reason" in row:
                one = "Image" if detector.columns is None else "Row"
                raise Refused(422, f"{one} {place} of {len(rows)}: {row['reason']}")
        columns = {column: [row[column] for row in rows] for column in open_inference.OUTPUTS}
        content, json_length = open_inference.answer(asked, detector, columns)
        if json_length is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={HEADER: str(json_length)}, media_type="application/octet-stream")

    async def parsed(self, size: int, parse: Callable[[], T]) -> T:
        """A body of `size` bytes, parsed; a large one in a thread, and no two at a time.

        JSON is parsed in one call that keeps the interpreter. Several such threads would pass it to each other, and the
        event loop would wait for all of them.
        """
        if size <= IN_LOOP:
            return parse()
        async with self.parsing:
            return await asyncio.to_thread(uncollected, parse)

    async def judge(
        self,
        request: Request,
        detector: LoadedDetector,
        images: Sequence[uploads.Upload | open_inference.TensorImage | Row],
    ) -> list[Outcome]:
        """The outcomes of a request's images, unless its client hangs up or the time is over."""
        reads: list[Read] = [partial(image.read, most_pixels=self.settings.max_pixels) for image in images]
        work = asyncio.current_task()
        gone = False

        async def watch_client() -> None:
            nonlocal gone
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone = True
            if work is not None:
                work.cancel()

        watching = asyncio.create_task(watch_client())
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await self.pipeline.judge(detector, reads)
        except asyncio.CancelledError:
            if gone and work is not None:
                work.uncancel()
                raise ClientGone from None
            raise
        except TimeoutError:
            raise Refused(503, f"The images were not judged within {self.settings.timeout:g} seconds.") from None
        except Overloaded as overload:
            raise busy(overload) from None
        except NetworkFailed:
            raise Refused(500, "The network failed on these images; the service's log says why.") from None
        finally:
            watching.cancel()

    def record(self, request: Request, rows: list[dict[str, Any]]) -> str:
        """Count the verdicts, and return the request's id."""
        visit: Visit = request.scope["macs.visit"]
        judged = [row for row in rows if "reason" not in row]
        is_ood = [row["is_ood"] for row in judged]
        visit.images, visit.ood = len(rows), sum(is_ood)
        self.metrics.on_verdicts(is_ood, len(rows) - len(judged))
        return visit.request_id

    def model(self, name: str) -> LoadedDetector:
        if name != self.watch.detector.name:
            raise Refused(404, f"There is no model of this name; the one served is {self.watch.detector.name!r}.")
        return self.watch.detector


def as_json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def thresholds(detector: LoadedDetector, threshold: float | None, keep: float | None) -> NDArray[np.float32]:
    try:
        return detector.thresholds(threshold, keep)
    except MacsError as error:
        raise Refused(422, error.sentence) from None


def uncollected(parse: Callable[[], T]) -> T:
    """Parse without garbage collection, which visits every new list again and again and takes most of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        return parse()
    finally:
        if on:
            gc.enable()


def refuse_unknown(request: Request, *known: str) -> None:
    """Refuse parameters that do not exist: a mistyped threshold would silently be the calibrated one."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            raise Refused(422, f"There is no parameter {name[:80]!r}; there are {' and '.join(known)}.")
        if names.count(name) > 1:
            raise Refused(422, f"The parameter {name} is given more than once; give it once.")


def verdict_rows(detector: LoadedDetector, outcomes: list[Outcome], tau: NDArray[np.float32]) -> list[dict[str, Any]]:
    """One row per image, by the rule of `macs predict`, or the reason why there is none."""
    judged = [outcome for outcome in outcomes if outcome.answers is not None]
    rows = iter(judged_rows(detector, judged, tau) if judged else ())
    of_rows = detector.columns is not None
    return [failure(outcome.reason, of_rows) if outcome.answers is None else next(rows) for outcome in outcomes]


def failure(reason: str, of_rows: bool = False) -> dict[str, Any]:
    """Return the row of an image without a verdict; `error` is the former name of `reason`."""
    sentence = reason if of_rows else f"Cannot read the image: {reason}."
    return {"reason": sentence, "error": sentence}


def judged_rows(detector: LoadedDetector, outcomes: list[Outcome], tau: NDArray[np.float32]) -> list[dict[str, Any]]:
    columns = [
        np.array([getattr(outcome.answers, name)[outcome.row] for outcome in outcomes])
        for name in ("index", "confidence", "p_value")
    ]
    verdicts = detector.runtime.judge(Predictions(*columns), tau)
    return [
        {
            "class": row.class_,
            "index": row.index,
            "confidence": row.confidence if math.isfinite(row.confidence or 0.0) else None,  # JSON has no infinity
            "p_value": row.p_value,
            "threshold": row.threshold,
            "is_ood": row.is_ood,
        }
        for row in verdicts.rows([""] * len(outcomes))
    ]
