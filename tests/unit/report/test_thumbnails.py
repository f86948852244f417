"""The pictures of a report, decoded again."""

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from macs.data import ImageSet
from macs.report.findings import Judged
from macs.report.thumbnails import EDGE, least_confident, most_confident, png_uri
from tiny import noise, stripes


def decoded(uri: str) -> np.ndarray:
    kind, _, content = uri.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(content))))


@pytest.fixture
def known() -> Judged:
    images = stripes(6, seed=0)
    confidences = np.array([0.5, 0.1, 0.9, 0.1, 0.3, 0.7], np.float32)
    predictions = images.labels.copy()
    predictions[3] = (predictions[3] + 1) % 3
    return Judged(predictions, confidences, title="stripes", images=images)


def test_the_least_sure_known_images_come_first_and_equals_in_order(known: Judged) -> None:
    shown = least_confident(known, known.images.classes, 4)
    for thumbnail, place in zip(shown, (1, 3, 4, 0), strict=True):
        np.testing.assert_array_equal(decoded(thumbnail.uri), known.images.pixels[:][place])
        assert thumbnail.confidence == pytest.approx(known.confidence[place])
        assert thumbnail.truth == known.images.classes[known.images.labels[place]]
        assert thumbnail.verdict == known.images.classes[known.index[place]]
        assert thumbnail.right == (place != 3)


def test_the_surest_unknown_images_come_first_and_are_never_right() -> None:
    images = noise(5, seed=1)
    judged = Judged(
        np.array([0, 1, 2, 3, 0]), np.array([0.1, 0.9, 0.5, 0.95, 0.9], np.float32), title="noise", images=images
    )
    shown = most_confident(judged, ("a", "b", "c"), 9)
    assert [thumbnail.verdict for thumbnail in shown] == ["class 3", "b", "a", "c", "a"]
    assert [thumbnail.truth for thumbnail in shown] == [None] * 5 and not any(thumbnail.right for thumbnail in shown)
    np.testing.assert_array_equal(decoded(shown[0].uri), images.pixels[:][3])


def test_small_images_are_kept_to_the_pixel_and_large_ones_averaged() -> None:
    small = noise(1, seed=2, size=EDGE).pixels[:][0]
    np.testing.assert_array_equal(decoded(png_uri(small)), small)
    large = np.kron(small, np.ones((2, 2, 1), np.uint8))  # each pixel four times
    np.testing.assert_array_equal(decoded(png_uri(large)), small)


def test_labels_that_are_not_there_are_no_mistake() -> None:
    images = ImageSet.from_array(noise(2, seed=3).pixels[:])
    judged = Judged(np.array([0, 1]), np.array([0.2, 0.1], np.float32), title="plain", images=images)
    assert [(each.truth, each.right) for each in least_confident(judged, ("a", "b"), 2)] == [(None, False)] * 2
