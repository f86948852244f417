"""What the service counts and measures: requests, latencies, images, batches, the queue, drift; and its log.

Prometheus reads the numbers. The share of OOD images is given over sliding windows. Drift is a statistical test with a
stated rate of false alarms on p-values (macs.serve.drift); its alarm is one gauge and one line in the log. The log has
one JSON object per line, on standard error.
"""

import json
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from macs.core import __version__
from macs.core.console import LogLines
from macs.core.errors import MacsError
from macs.predictions import Predictions
from macs.serve.drift import DriftTest
from macs.serve.loaded_detector import LoadedDetector

WINDOWS = {"1m": 60, "10m": 600, "1h": 3600}  # seconds
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

log = logging.getLogger("macs.serve")


class SlidingShare:
    """Images and OOD images of the last hour, in buckets of one second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: deque[list[int]] = deque()  # second, images, OOD images

    def add(self, images: int, ood: int) -> None:
        second = int(self._clock())
        if not self._buckets or self._buckets[-1][0] != second:
            self._buckets.append([second, 0, 0])
            while self._buckets[0][0] <= second - max(WINDOWS.values()):
                self._buckets.popleft()
        self._buckets[-1][1] += images
        self._buckets[-1][2] += ood

    def over(self, seconds: int) -> float:
        """The share of OOD images in the last `seconds` seconds; NaN if there were no images."""
        first = int(self._clock()) - seconds
        images = ood = 0
        for second, more, of_them in reversed(self._buckets):
            if second <= first:
                break
            images, ood = images + more, ood + of_them
        return ood / images if images else math.nan


class Metrics:
    """The numbers of one service, in a registry of its own."""

    def __init__(self, detector: LoadedDetector, false_alarm_rate: float) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter("macs_requests", "answered", ["route", "status"], registry=registry)
        self.seconds = Histogram("macs_request_seconds", "latency", ["route"], buckets=SECONDS, registry=registry)
        self.images = Counter("macs_images", "images judged or refused", ["verdict"], registry=registry)
        self.batches = Histogram("macs_batch_images", "images per pass", buckets=SIZES, registry=registry)
        self.network = Histogram("macs_network_seconds", "per pass", buckets=SECONDS, registry=registry)
        self.waits = Histogram("macs_wait_seconds", "decoded images' waits", buckets=SECONDS, registry=registry)
        self.queue = Gauge("macs_queue_images", "accepted and not yet answered", registry=registry)
        self.limit = Gauge("macs_queue_limit", "most images in the queue", registry=registry)
        self.buffered = Gauge("macs_buffered_bytes", "bodies in memory", registry=registry)
        self.reloads = Counter("macs_reloads", "of the detector", ["result"], registry=registry)
        self.detector = Gauge(
            "macs_detector_info", "what is served", ["name", "checksum", "version"], registry=registry
        )
        self.shares = Gauge("macs_ood_share", "OOD images in a sliding window", ["window"], registry=registry)
        self.alarm = Gauge("macs_drift_alarm", "1: recent images are not those of calibration", registry=registry)
        self.evidence = Gauge("macs_drift_evidence", "of the drift test", registry=registry)
        self.tested = Gauge("macs_drift_images", "images that the drift test has seen", registry=registry)
        self.share = SlidingShare()
        self._false_alarm_rate = false_alarm_rate
        self._loaded: LoadedDetector | None = None
        for window, length in WINDOWS.items():
            self.shares.labels(window).set_function(partial(self.share.over, length))
        self.alarm.set_function(lambda: float(self.drift.alarm) if self.drift else math.nan)
        self.evidence.set_function(lambda: self.drift.evidence if self.drift else math.nan)
        self.tested.set_function(lambda: self.drift.images if self.drift else math.nan)
        self._id, self._ood, self._unreadable = (self.images.labels(verdict) for verdict in ("id", "ood", "unreadable"))
        for result in ("loaded", "refused"):  # from 0 on: Prometheus sees no increase in a counter that is born at 1
            self.reloads.labels(result)
        self.on_detector(detector)

    def on_detector(self, detector: LoadedDetector) -> None:
        """Another detector has other p-values, so the drift test starts again."""
        before, self._loaded = self._loaded, detector
        if before is not None and before.runtime.sha256 == detector.runtime.sha256:
            return
        self.detector.clear()
        self.detector.labels(detector.name, detector.runtime.sha256, __version__).set(1)
        ranked = detector.runtime.calibration.ranked
        self.drift = DriftTest(ranked, false_alarm_rate=self._false_alarm_rate) if sum(ranked) else None

    def on_batch(self, by: LoadedDetector, answers: Predictions, seconds: float, waits: Sequence[float]) -> None:
        self.batches.observe(len(waits))
        self.network.observe(seconds)
        for wait in waits:
            self.waits.observe(wait)
        if self.drift is not None and by is self._loaded:
            self._test(self.drift, answers)

    def _test(self, drift: DriftTest, answers: Predictions) -> None:
        """Give the drift test further images; if it fails, the verdicts must not be lost."""
        before = drift.alarm
        try:
            drift.update(answers.p_value, answers.index)
        except MacsError as error:
            log.warning("drift test ended", extra={"fields": {"error": error.sentence}})
            self.drift = None
        if drift.alarm and not before:
            log.warning("drift", extra={"fields": drift.state()})

    def on_verdicts(self, is_ood: Sequence[bool], unreadable: int) -> None:
        """The images of one request."""
        ood = sum(is_ood)
        self._id.inc(len(is_ood) - ood)
        self._ood.inc(ood)
        self._unreadable.inc(unreadable)
        if is_ood:
            self.share.add(len(is_ood), ood)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class JsonLines(logging.Formatter):
    """`extra={"fields": {...}}` of a record become keys of its object."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class Lines(logging.StreamHandler[TextIO]):
    """A reader that went away must not end the service."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def write_log(level: str = "info") -> None:
    """Write the service's log, and uvicorn's messages about requests that it refuses.

    What --verbose prints in other commands is part of that log.
    """
    handler = Lines(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, least in (("macs.serve", level.upper()), ("uvicorn.error", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
    package = logging.getLogger("macs")
    package.handlers = [handler if isinstance(each, LogLines) else each for each in package.handlers]
