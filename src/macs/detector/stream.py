"""Verdicts for any number of files in bounded memory: threads decode a little ahead of the network."""

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.image_files import in_batches
from macs.data.prefetch import DECODERS, batch_at, map_ahead
from macs.data.preparation import Preparation
from macs.detector.judge import Judge
from macs.detector.paths import Item, find_images
from macs.detector.verdicts import Prediction, predictions

log = logging.getLogger(__name__)

AHEAD = 2  # batches that are decoded in advance


class Picture(NamedTuple):
    name: str
    pixels: NDArray[np.uint8] | None
    reason: str = ""


def predict_files(
    judge: Judge, paths: str | Path | Iterable[str | Path], threshold: float | None = None
) -> Iterator[Prediction]:
    """One row per image, in the order in which the paths give them."""
    if not isinstance(paths, str | Path | Iterable):
        raise MacsError(f"predict_files takes a path or a list of paths, not a {type(paths).__name__}.")
    return predict_items(judge, find_images(paths), threshold)


def predict_items(judge: Judge, items: Iterable[Item], threshold: float | None = None) -> Iterator[Prediction]:
    """One row per image, in order."""
    thresholds = judge.thresholds(threshold)  # here, so that a mistake is raised now and not with the first row
    return _rows(judge, items, thresholds)


def _rows(judge: Judge, items: Iterable[Item], thresholds: NDArray[np.float32]) -> Iterator[Prediction]:
    log.info("%d threads decode pictures", DECODERS.workers)
    with judge.asking() as ask:
        for batch in in_batches(decoded(items, judge.preparation), batch_at(judge.preparation.size)):
            readable = [picture for picture in batch if picture.pixels is not None]
            rows: Iterator[Prediction] = iter(())
            if readable:
                answers = ask(np.stack([picture.pixels for picture in readable if picture.pixels is not None]))
                rows = predictions((picture.name for picture in readable), judge.judge(answers, thresholds))
            for picture in batch:
                yield Prediction(picture.name, reason=picture.reason) if picture.pixels is None else next(rows)


def decoded(items: Iterable[Item], preparation: Preparation) -> Iterator[Picture]:
    """The images in order; each is decoded as its own task, so that large ones use every core."""
    read = partial(decode, preparation=preparation)
    return map_ahead(read, items, threads=DECODERS.workers, ahead=AHEAD * batch_at(preparation.size))


def decode(item: Item, preparation: Preparation) -> Picture:
    """The pixels of an image, or the reason why it cannot be read."""
    try:
        return Picture(item.name, item.read(preparation))
    except MacsError as error:
        return Picture(item.name, None, str(error))
