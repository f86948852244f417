"""A small benchmark that needs no download: every image comes with scikit-learn or scikit-image.

The ID images are the handwritten digits 0 to 7. Outliers are patches of photographs, cut at several scales, in colour
and in grey; training outliers, validation outliers and OOD sets come from different photographs.
"""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from macs.core.errors import MacsError
from macs.data.catalog import Source, Split, dataset
from macs.data.imageset import ImageSet
from macs.data.preparation import fit, open_rgb

SIZE = 32
SCALES = (32, 48, 64, 96, 128)  # edges of the squares that patches are cut from
SEED = 0

PHOTOS = {
    "train": ("astronaut", "camera", "chelsea", "china", "coffee", "coins", "motorcycle_left"),
    "val": ("clock_motion", "flower", "rocket"),
}
TEXTURES = ("brick", "grass", "gravel")
TEXT = ("page", "text")
SCANS = ("cell", "hubble_deep_field", "ihc", "microaneurysms", "moon", "retina")

handwritten = partial(
    dataset,
    home="https://scikit-learn.org/stable/datasets/toy_dataset.html",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI 1998",
    mirror=False,
    packages=("sklearn",),
)
photographed = partial(
    dataset,
    home="https://scikit-image.org/docs/stable/api/skimage.data.html",
    licence="public domain or Creative Commons, as the packages state for each image",
    citation="van der Walt et al.: scikit-image: image processing in Python, PeerJ 2014",
    packages=("sklearn", "skimage"),
)


@handwritten(
    "digits",
    title="Handwritten digits 0 to 7",
    role="id",
    splits={"train": Split(1010), "val": Split(145), "test": Split(288)},
)
def digits(source: Source) -> ImageSet:
    images, labels = handwriting()
    random = np.random.default_rng(SEED)
    positions: list[int] = []
    for digit in range(8):
        order = random.permutation(np.flatnonzero(labels == digit))
        train, val = round(0.7 * len(order)), round(0.8 * len(order))
        parts = {"train": order[:train], "val": order[train:val], "test": order[val:]}
        positions += parts[source.split].tolist()
    positions.sort()
    return ImageSet("digits", images[positions], labels[positions], tuple("01234567"))


@handwritten("digits-8-9", title="Handwritten digits 8 and 9 (near OOD)", role="ood", splits={"test": Split(354)})
def digits_8_9(source: Source) -> ImageSet:
    images, labels = handwriting()
    return ImageSet("digits-8-9", images[labels > 7], labels[labels > 7] - 8, ("8", "9"))


@photographed(
    "digits-outliers",
    title="Patches of photographs",
    role="outliers",
    splits={"train": Split(4200), "val": Split(900)},
)
def digits_outliers(source: Source) -> ImageSet:
    return patches(PHOTOS[source.split], per_photograph=600 if source.split == "train" else 300)


@photographed("digits-textures", title="Patches of brick, grass and gravel", role="ood", splits={"test": Split(600)})
def digits_textures(source: Source) -> ImageSet:
    return patches(TEXTURES, per_photograph=200)


@photographed("digits-text", title="Patches of printed text", role="ood", splits={"test": Split(600)}, mirror=False)
def digits_text(source: Source) -> ImageSet:
    return patches(TEXT, per_photograph=300)


@photographed("digits-scans", title="Patches of medical and sky images", role="ood", splits={"test": Split(600)})
def digits_scans(source: Source) -> ImageSet:
    return patches(SCANS, per_photograph=100)


@photographed("digits-faces", title="Faces of LFW", role="ood", splits={"test": Split(100)})
def digits_faces(source: Source) -> ImageSet:
    faces = np.load(package_file("lfw_subset"))[:100]  # the other half of the file is patches without a face
    return ImageSet("digits-faces", upscaled(faces))


def handwriting() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the 1,797 digits of scikit-learn, white on black, with their labels."""
    from sklearn.datasets import load_digits

    content = load_digits()
    return upscaled(content.images / 16), content.target.astype(np.int64)


def upscaled(grey: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Small grey images in [0, 1] as 32 x 32 RGB."""
    images = (Image.fromarray(image).convert("RGB") for image in np.rint(255 * grey).astype(np.uint8))
    return np.stack([fit(image, SIZE) for image in images])


def patches(photographs: Sequence[str], per_photograph: int) -> ImageSet:
    """Return squares cut at random from each photograph and reduced to 32 x 32, half of them turned grey."""
    pixels, names = [], []
    for name in photographs:
        photograph = open_rgb(package_file(name))
        random = np.random.default_rng([SEED, *name.encode()])  # patches depend on their own photograph alone
        for _ in range(per_photograph):
            edge = int(random.choice([scale for scale in SCALES if scale <= min(photograph.size)]))
            left, top = (int(random.integers(length - edge + 1)) for length in photograph.size)
            patch = photograph.crop((left, top, left + edge, top + edge))
            pixels.append(fit(patch.convert("L").convert("RGB") if random.random() < 0.5 else patch, SIZE))
            names.append(f"{name}@{left},{top},{edge}")
    return ImageSet("patches", np.stack(pixels), files=tuple(names))


def package_file(name: str) -> Path:
    """Return the file of that name, whatever its suffix, in scikit-image or scikit-learn, without importing either."""
    for package, folder in (("skimage", "data"), ("sklearn", "datasets/images")):
        spec = find_spec(package)
        if spec and spec.origin:
            for file in sorted((Path(spec.origin).parent / folder).glob(f"{name}.*")):
                return file
    raise MacsError(
        f"Neither scikit-image nor scikit-learn holds {name} here; reinstall them: pip install 'macs-ood[demo]'."
    )
