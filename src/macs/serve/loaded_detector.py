"""The detector that answers requests: loaded from its file without torch, and again when the file changes."""

import asyncio
import logging
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core import __version__
from macs.core.errors import MacsError
from macs.core.files import input_file
from macs.core.interpreter import python
from macs.data.batches import batch_at
from macs.detector.calibration import images_needed, rank, share_to_keep
from macs.detector.rows import BATCH, Columns
from macs.detector.runtime import FeatureRuntime, Runtime, open_onnx, run
from macs.predictions import Predictions, shortest
from macs.serve.settings import ServeSettings

log = logging.getLogger("macs.serve")

QUANTILES = 51  # of the calibration confidences, for a histogram


@dataclass(frozen=True)
class DetectorFile:
    """Where a detector comes from, and how it is run."""

    path: Path
    providers: tuple[str, ...] = ()
    threads: int = 0
    net: str | None = None  # the user's own, as module:Class, for a .safetensors file
    score: str | None = None

    def signature(self) -> tuple[int, int, int] | None:
        """What changes when the file does; None while there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def load(self) -> "LoadedDetector":
        """The detector, which has judged an image once, so that the first request is as fast as the next."""
        path = input_file(self.path, "detector", "make one with: macs calibrate, then macs export")
        if path.suffix not in (".onnx", ".safetensors"):
            raise MacsError(f"{path} is not a detector file: those end in .onnx (macs export) or .safetensors.")
        if path.suffix == ".onnx" and (self.net or self.score):
            raise MacsError(f"{path} holds its network and score; leave --net and --score out.")
        if path.suffix == ".onnx":
            return self._opened(path)
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "detector.onnx"
            export_apart(path, exported, self.net, self.score)
            return self._opened(exported)

    def _opened(self, path: Path) -> "LoadedDetector":
        detector = LoadedDetector(self.path.stem, open_onnx(path, providers=self.providers, threads=self.threads))
        try:
            detector.ask(detector.zeros())
        except Exception as error:
            raise MacsError(f"{self.path} fails on its first input: {str(error).splitlines()[0]:.200}") from None
        return detector


@dataclass(frozen=True, eq=False)
class LoadedDetector:
    """A calibrated detector under a name."""

    name: str
    runtime: Runtime | FeatureRuntime
    size: int = field(init=False)  # edge of the images that its network takes; 0 for rows
    largest_batch: int = field(init=False)
    values: NDArray[np.float32] = field(init=False)  # calibrated thresholds: one, or one per class

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 0 if isinstance(self.runtime, FeatureRuntime) else self.runtime.size)
        object.__setattr__(self, "largest_batch", batch_at(self.size) if self.size else BATCH)
        object.__setattr__(self, "values", self.runtime.thresholds())

    @property
    def columns(self) -> Columns | None:
        """The arrays of rows that it judges; None if it judges images."""
        return self.runtime.metadata.columns

    def zeros(self) -> NDArray[Any]:
        """A batch of one black image, or of one row of zeros."""
        if self.columns is None:
            return np.zeros((1, self.size, self.size, 3), np.uint8)
        return np.zeros((1, sum(self.columns.takes.values())), np.float32)

    def ask(self, batch: NDArray[Any]) -> Predictions:
        """Predictions for images, or for rows of features and logits side by side."""
        if isinstance(self.runtime, Runtime):
            return run(self.runtime.session, {"images": batch})
        features, logits = np.split(batch, [self.runtime.columns.features], axis=1)
        return self.runtime.answer(features if features.size else None, logits if logits.size else None)

    def thresholds(self, threshold: float | None = None, keep: float | None = None) -> NDArray[np.float32]:
        """The calibrated thresholds, or a given one for all images, or those that keep another share of ID images."""
        if threshold is not None and keep is not None:
            raise MacsError("A threshold and a share to keep are two ways to judge; give one of them.")
        if threshold is not None:
            return self.runtime.thresholds(threshold)
        if keep is None or share_to_keep(keep) == self.runtime.calibration.keep:
            return self.values
        return self._keeping(keep)

    def _keeping(self, keep: float) -> NDArray[np.float32]:
        """By the rule of `macs calibrate`, from the calibration confidences that the file kept."""
        kept = self.runtime.p_values
        sizes, unit = kept.sizes, self.runtime.calibration.unit
        ranks = np.array([rank(size, keep) for size in sizes])
        if (ranks < 1).any():
            where = " predicted as each class" if len(sizes) > 1 else ""
            raise MacsError(
                f"To keep {keep} of the ID {unit} takes at least {images_needed(keep)} calibration {unit}{where}, "
                f"and there are {min(sizes)}; keep less."
            )
        starts = np.cumsum(sizes) - sizes
        values: NDArray[np.float32] = kept.confidences[starts + ranks - 1]
        return values.reshape(self.values.shape)

    def describe(self, settings: ServeSettings) -> dict[str, Any]:
        """The answer of /v1/detector, with the facts that `macs inspect` reports."""
        metadata = self.runtime.metadata
        return {
            "network": metadata.net,
            "score": metadata.score,
            "classes": list(metadata.classes),
            "thresholds": [one.value for one in metadata.calibration.thresholds],
            "keep": metadata.calibration.keep,
            "calibration": {"images": metadata.calibration.images, "confidences": self._quantiles()},
            **self._takes(),
            "limits": {"images": settings.max_images, "bytes": settings.max_bytes, "pixels": settings.max_pixels},
            "version": __version__,
            "checksum": self.runtime.sha256,
        }

    def _takes(self) -> dict[str, Any]:
        """How images are prepared, or which arrays rows have."""
        if isinstance(self.runtime, FeatureRuntime):
            return {"preparation": None, "columns": asdict(self.runtime.columns)}
        preparation = self.runtime.preparation
        return {"preparation": {**preparation.as_dict(), "description": preparation.describe()}}

    def _quantiles(self) -> list[float]:
        confidences = self.runtime.p_values.confidences
        finite = confidences[np.isfinite(confidences)]
        quantiles = np.quantile(finite, np.linspace(0, 1, QUANTILES), method="nearest") if len(finite) else finite
        return list(map(shortest, quantiles))


class DetectorWatch:
    """Requests that were accepted before a reload are answered by the detector that they began with."""

    def __init__(self, source: DetectorFile, heard: Callable[[bool], None]) -> None:
        """Load the detector; `heard(succeeded)` is called after every later attempt."""
        self.source, self._heard = source, heard
        self._seen = source.signature()
        self.detector: LoadedDetector = source.load()
        self._loading = asyncio.Lock()

    async def reload(self) -> bool:
        """Load the file again, while requests go on; return whether that succeeded."""
        async with self._loading:
            self._seen = self.source.signature()
            try:
                self.detector = await asyncio.to_thread(self.source.load)
            except MacsError as error:
                log.warning("reload failed", extra={"fields": {"error": error.sentence, "kept": self._checksum}})
                self._heard(False)
                return False
            except Exception:
                log.exception("reload failed", extra={"fields": {"kept": self._checksum}})
                self._heard(False)
                return False
        log.info("reloaded", extra={"fields": {"checksum": self._checksum}})
        self._heard(True)
        return True

    async def run(self, interval: float) -> None:
        """Look at the file every `interval` seconds, for ever. A file that is missing is waited for."""
        while True:
            await asyncio.sleep(interval)
            signature = self.source.signature()
            if signature is not None and signature != self._seen:
                await self.reload()

    @property
    def _checksum(self) -> str:
        return self.detector.runtime.sha256


def export_apart(detector: Path, exported: Path, net: str | None, score: str | None) -> None:
    """Export in a process of its own, so that this one never imports torch."""
    if find_spec("torch") is None:
        raise MacsError(f"{detector} is exported by torch, which is not installed; give its exported file (.onnx).")
    options = [*(("--net", net) if net else ()), *(("--score", score) if score else ())]
    command = python("-m", "macs", "export", str(detector.absolute()), str(exported), *options)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise MacsError(f"{detector} cannot be exported: {complaint(done.stderr.splitlines())}")


def complaint(lines: Sequence[str]) -> str:
    """The error message of a command that failed."""
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or [line for line in lines if line.strip()] or ["it ended without a reason."])[-1][:500]


def quiet_pillow() -> None:
    """Silence Pillow's warnings about broken images: the answers give the reasons."""
    warnings.filterwarnings("ignore", module="PIL")
