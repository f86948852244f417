"""Unknown images that need no download and that no training saw: for choosing a score, never for measuring one.

shuffled       ID images cut into 4 x 4 blocks, in another order
inverted       ID images with every pixel turned to 255 minus itself
noise          a third each: uniform, Gaussian, and Gaussian that is blurred and stretched to full contrast
photographs    patches of photographs that come with scikit-image and scikit-learn

Three more kinds are near: each joins two ID images of different classes, so that no single class is right.

cut            the left half of one image and the right half of the other
mixed          the mean of both
exchanged      one image with two opposite quarters of the other
"""

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.imageset import ImageSet
from macs.data.loading import load

GRID = 4  # blocks along an edge


def unknowns_for(images: ImageSet, seed: int = 0) -> tuple[dict[str, ImageSet], dict[str, str]]:
    """Return each kind by its name, of the ID images' size, and the kinds that are missing, with the reason."""
    pixels = images.pixels[:]
    random = np.random.default_rng(seed)
    arrays = {"shuffled": shuffled(pixels, random), "inverted": 255 - pixels, "noise": noise(pixels.shape, random)}
    sets = {name: ImageSet.from_array(array, name=name) for name, array in arrays.items()}
    missing = {}
    try:
        sets["photographs"] = load("digits-outliers", "val", size=images.size)
    except MacsError as error:
        missing["photographs"] = str(error)
    return sets, missing


def near_unknowns_for(images: ImageSet, seed: int = 0) -> dict[str, ImageSet]:
    """Return each near kind by its name, with as many images as are given, which need labels of two classes."""
    pixels, others = images.pixels[:], images.pixels[:][partners(images.labels, seed)]
    half = pixels.shape[1] // 2
    cut, exchanged = pixels.copy(), pixels.copy()
    cut[:, :, half:] = others[:, :, half:]
    exchanged[:, :half, half:], exchanged[:, half:, :half] = others[:, :half, half:], others[:, half:, :half]
    mixed = ((pixels.astype(np.uint16) + others + 1) // 2).astype(np.uint8)
    arrays = {"cut": cut, "mixed": mixed, "exchanged": exchanged}
    return {name: ImageSet.from_array(array, name=name) for name, array in arrays.items()}


def partners(labels: NDArray[np.int64] | None, seed: int = 0) -> NDArray[np.int64]:
    """Return for each image the index of a random image of another class."""
    if labels is None or len(np.unique(labels)) < 2:
        raise MacsError("Near unknown images are joined from two classes; give labelled images of at least two.")
    random = np.random.default_rng(seed)
    return np.array([random.choice(np.flatnonzero(labels != label)) for label in labels], np.int64)


def shuffled(pixels: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """Return each image's blocks in a random order; rows and columns that do not fill a block stay."""
    count, size = len(pixels), pixels.shape[1]
    edge = max(1, size // GRID)
    across = size // edge
    used = across * edge
    blocks = pixels[:, :used, :used].reshape(count, across, edge, across, edge, 3).swapaxes(2, 3)
    blocks = blocks.reshape(count, across**2, edge, edge, 3)
    order = random.permuted(np.tile(np.arange(across**2), (count, 1)), axis=1)
    mixed = np.take_along_axis(blocks, order[:, :, None, None, None], axis=1)
    whole = mixed.reshape(count, across, across, edge, edge, 3).swapaxes(2, 3).reshape(count, used, used, 3)
    result = pixels.copy()
    result[:, :used, :used] = whole
    return result


def noise(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.uint8]:
    """Uniform, Gaussian and blurred Gaussian noise in turn."""
    from scipy.ndimage import gaussian_filter

    made = np.empty(shape, np.uint8)
    made[0::3] = random.integers(0, 256, made[0::3].shape, dtype=np.uint8)
    made[1::3] = np.clip(random.normal(127.5, 64, made[1::3].shape), 0, 255)
    blur = shape[1] / 16
    for image in made[2::3]:
        smooth = gaussian_filter(random.normal(size=image.shape), (blur, blur, 0), mode="wrap")
        image[:] = 255 * (smooth - smooth.min()) / np.ptp(smooth)
    return made
