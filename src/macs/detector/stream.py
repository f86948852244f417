"""Verdicts for files in bounded memory: threads decode a little ahead of the network, and rows go out as they come."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from macs import scores
from macs.core.errors import MacsError
from macs.data.ahead import DECODERS, map_ahead
from macs.data.preparation import Preparation
from macs.data.walking import in_batches
from macs.detector._detector import PRECISION, Detector, Verdicts
from macs.detector.paths import Item, find_images
from macs.inference import BATCH, inference

BLOCK = 32  # images that a thread decodes at a time
AHEAD = 2 * BATCH // BLOCK  # blocks that may be decoded or waiting while one is used


@dataclass(frozen=True, slots=True)
class Prediction:
    """One image: its class, confidence and verdict, or the reason why there are none."""

    path: str
    label: int | None = None
    name: str | None = None
    confidence: float | None = None
    is_ood: bool | None = None
    reason: str = ""


class Picture(NamedTuple):
    name: str
    pixels: NDArray[np.uint8] | None
    reason: str = ""


def predict_files(
    detector: Detector, paths: str | Path | Iterable[str | Path], threshold: float | None = None
) -> Iterator[Prediction]:
    """A row for each image, in the order in which the paths give them."""
    if not isinstance(paths, str | Path | Iterable):
        raise MacsError(f"predict_files takes a path or a list of paths, not a {type(paths).__name__}.")
    thresholds = detector.thresholds(threshold)  # here, so that a mistake is raised now and not by the first row
    return _rows(detector, paths, thresholds)


def _rows(
    detector: Detector, paths: str | Path | Iterable[str | Path], thresholds: NDArray[np.float32]
) -> Iterator[Prediction]:
    blocks = in_batches(find_images(paths), BLOCK)
    decoded = map_ahead(partial(decode, preparation=detector.preparation), blocks, threads=DECODERS, ahead=AHEAD)
    pictures = (picture for block in decoded for picture in block)
    score = detector.score
    with inference(detector.net, PRECISION, features=score.reads == "features") as run:
        for batch in in_batches(pictures, BATCH):
            found: Iterator[tuple[int, str, float, bool]] = iter(())
            pixels = [picture.pixels for picture in batch if picture.pixels is not None]
            if pixels:
                answers = scores.answer(score, run(torch.from_numpy(np.stack(pixels))))
                found = _verdicts(detector.judge(answers, thresholds))
            for name, image, reason in batch:
                yield Prediction(name, reason=reason) if image is None else Prediction(name, *next(found))


def _verdicts(verdicts: Verdicts) -> Iterator[tuple[int, str, float, bool]]:
    confidences = (float(str(value)) for value in verdicts.confidences)  # the fewest digits that are the same float32
    return zip(verdicts.predictions.tolist(), verdicts.names, confidences, verdicts.is_ood.tolist(), strict=True)


def decode(items: list[Item], preparation: Preparation) -> list[Picture]:
    """The pixels of each image, or the reason why it has none."""
    pictures = []
    for item in items:
        try:
            pictures.append(Picture(item.name, item.read(preparation)))
        except MacsError as error:
            pictures.append(Picture(item.name, None, str(error)))
    return pictures
