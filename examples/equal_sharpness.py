"""Bring folders of photographs to equal sharpness, so that no detector can tell them apart by it.

    python examples/equal_sharpness.py photos equal flowers/test flowers/train unknown/scenes unknown/textures

Photographs from different collections often differ in sharpness, because others have reduced or compressed them, and a
detector that looks good may only have noticed that. The sharpness of a picture is the mean absolute second difference
of neighbouring grey pixels, divided by the contrast. Every picture of each folder is blurred, and stretched again to
the contrast that it had: the one at rank q of its folder gets the lowest sharpness that any of the folders has at rank
q. All folders then have about the same distribution of sharpness. All are written as JPEGs of one quality.

It prints how well the sharpness alone, without any network, tells the first folder from each other one, before and
after: an AUROC of 50% is chance. It does the same for statistics that were not equalised, and for a logistic regression
on all of them (fitted to four fifths of the pictures, five times): equal sharpness is not equality in everything.
"""

import io
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from macs.metrics import ood_metrics

QUALITY = 75  # of the JPEGs that are written
HALVINGS = 8  # of the interval in which a radius is searched
LARGEST = 8.0  # pixels; the largest radius of a blur
Numbers = NDArray[np.float64]
Statistic = Callable[[Image.Image], float]


def grey(picture: Image.Image) -> Numbers:
    return np.asarray(picture.convert("L"), dtype=np.float64)


def contrast(picture: Image.Image) -> float:
    """The standard deviation of the grey pixels; 1 for a picture of a single grey."""
    return float(grey(picture).std()) or 1.0


def differences(picture: Image.Image, order: int) -> float:
    """The mean absolute difference, of first or second order, of neighbouring grey pixels in both directions."""
    pixels = grey(picture)
    return float(np.mean([np.abs(np.diff(pixels, order, axis=axis)).mean() for axis in (0, 1)]))


def sharpness(picture: Image.Image) -> float:
    return differences(picture, 2) / contrast(picture)


def gradient(picture: Image.Image) -> float:
    return differences(picture, 1) / contrast(picture)


def high_frequencies(picture: Image.Image) -> float:
    """The share of the power at more than a quarter of the sampling frequency, in either direction."""
    pixels = grey(picture)
    power = np.abs(np.fft.fft2(pixels - pixels.mean())) ** 2
    fast = [np.abs(np.fft.fftfreq(length)) > 0.25 for length in pixels.shape]
    return float(power[np.logical_or.outer(*fast)].sum() / (power.sum() or 1.0))


STATISTICS: dict[str, Statistic] = {
    "sharpness": sharpness,
    "gradient / contrast": gradient,
    "high frequencies": high_frequencies,
    "contrast": contrast,
}


def encoded(picture: Image.Image, radius: float) -> bytes:
    """A JPEG of the picture, blurred by a Gaussian with this radius, with the contrast that it had."""
    soft = picture.filter(ImageFilter.GaussianBlur(radius))
    pixels = np.asarray(soft, dtype=np.float64)
    mean = pixels.mean(axis=(0, 1))
    stretched = mean + (pixels - mean) * (contrast(picture) / contrast(soft))
    buffer = io.BytesIO()
    Image.fromarray(stretched.round().clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def decoded(file: Path | bytes) -> Image.Image:
    return Image.open(io.BytesIO(file) if isinstance(file, bytes) else file).convert("RGB")


def blurred(picture: Image.Image, target: float) -> bytes:
    """A JPEG of the picture, blurred until its sharpness, as read from the JPEG, is about the target."""
    low, high = 0.0, LARGEST
    for _ in range(HALVINGS):
        radius = (low + high) / 2
        too_sharp = sharpness(decoded(encoded(picture, radius))) > target
        low, high = (radius, high) if too_sharp else (low, radius)
    return encoded(picture, low)


def targets(found: Sequence[Numbers]) -> list[Numbers]:
    """The sharpness that each picture of each folder should have: the lowest of any folder at the same rank."""
    shares = [(values.argsort().argsort() + 0.5) / len(values) for values in found]
    return [np.min([np.quantile(values, share) for values in found], axis=0) for share in shares]


def equalise(source: Path, folders: Sequence[str], out: Path) -> dict[str, list[Path]]:
    """Write the pictures of the folders, at equal sharpness, to the same places below `out`; return these files."""
    files = {folder: sorted((source / folder).rglob("*.jpg")) for folder in folders}
    with ThreadPoolExecutor() as threads:  # Pillow releases the GIL
        # Encoded once more without a blur, since the encoding changes the sharpness too.
        found = [
            np.array([*threads.map(lambda file: sharpness(decoded(encoded(decoded(file), 0))), each)])
            for each in files.values()
        ]

        def write(file: Path, target: float) -> Path:
            path = out / file.relative_to(source)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blurred(decoded(file), target))
            return path

        return {
            folder: [*threads.map(write, each, aims)]
            for (folder, each), aims in zip(files.items(), targets(found), strict=True)
        }


def measured(files: Sequence[Path]) -> Numbers:
    """All statistics of all pictures, one row per picture."""
    with ThreadPoolExecutor() as threads:
        pictures = threads.map(decoded, files)
        return np.array([[statistic(picture) for statistic in STATISTICS.values()] for picture in pictures])


def separations(known: Numbers, unknown: Numbers) -> dict[str, float]:
    """The AUROC, in percent, of each statistic, whose lower values count as known, and of all of them together."""
    logs = np.log(np.concatenate([known, unknown]) + 1e-9)
    is_unknown = np.arange(len(logs)) >= len(known)
    regression = make_pipeline(StandardScaler(), LogisticRegression())
    together = cross_val_predict(regression, logs, is_unknown, cv=5, method="decision_function")
    confidences = dict(zip([*STATISTICS, "all together"], -np.column_stack([logs, together]).T, strict=True))
    return {
        name: 100 * ood_metrics(values[~is_unknown], values[is_unknown]).auroc for name, values in confidences.items()
    }


def main(source: Path, out: Path, folders: Sequence[str]) -> None:
    if out.exists():
        sys.exit(f"{out} exists; name a new folder.")
    for folder in folders:
        if not any((source / folder).rglob("*.jpg")):
            sys.exit(f"{source / folder} has no .jpg files.")
    after = equalise(source, folders, out)
    before = {folder: [source / file.relative_to(out) for file in files] for folder, files in after.items()}
    first, *others = folders
    numbers = [{folder: measured(files) for folder, files in each.items()} for each in (before, after)]
    print(f"AUROC in percent, {first} against:  before -> after")
    for other in others:
        old, new = (separations(each[first], each[other]) for each in numbers)
        for name in old:
            print(f"{other:<20} {name:<20} {old[name]:5.1f} -> {new[name]:5.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
