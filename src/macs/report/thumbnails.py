"""The images that go wrong first, as PNG inside the page: unknown ones of high and known ones of low confidence."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from macs.report.findings import Judged

EDGE = 64  # larger images are reduced to this size, so that a hundred of them stay below two megabytes


@dataclass(frozen=True)
class Thumbnail:
    uri: str
    name: str  # its file, or its position in the set
    truth: str | None  # its class, if the set has classes
    verdict: str  # the class that the network predicts
    right: bool
    confidence: float


def most_confident(judged: Judged, classes: Sequence[str], count: int) -> list[Thumbnail]:
    """Return the unknown images that the network is most confident about."""
    order = np.argsort(-judged.confidence, kind="stable")[:count]
    return [thumbnail(judged, classes, int(i)) for i in order]


def least_confident(judged: Judged, classes: Sequence[str], count: int) -> list[Thumbnail]:
    """Return the known images that the network is least confident about."""
    order = np.argsort(judged.confidence, kind="stable")[:count]
    return [thumbnail(judged, classes, int(i)) for i in order]


def thumbnail(judged: Judged, classes: Sequence[str], i: int) -> Thumbnail:
    """An image of a set; the answer is right if its class is one of the network's and the predicted one."""
    images, predicted = judged.images, int(judged.index[i])
    right = images.labels is not None and images.classes == tuple(classes) and bool(images.labels[i] == predicted)
    return Thumbnail(
        uri=png_uri(images.pixels[np.array([i])][0]),
        name=images.name_of(i),
        truth=None if images.labels is None else images.classes[images.labels[i]],
        verdict=classes[predicted] if predicted < len(classes) else f"class {predicted}",
        right=right,
        confidence=float(judged.confidence[i]),
    )


def png_uri(pixels: NDArray[np.uint8]) -> str:
    """Return an image as a data URI."""
    image = Image.fromarray(pixels)
    if max(image.size) > EDGE:
        image = image.resize((EDGE, EDGE), Image.Resampling.BOX)
    png = BytesIO()
    image.save(png, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
