"""What both kinds of detector share: prepared images, thresholds, and false discovery rates they can promise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from macs.core.errors import MacsError
from macs.data import ImageSet, Preparation, load
from macs.detector import Detector
from macs.detector.base import ImageDetector
from macs.evaluation import evaluate
from tiny import classifier, noise


def test_verdicts_by_p_values_are_those_of_the_ranks(detector: Detector, validation: ImageSet) -> None:
    images = noise(30, seed=5)
    verdicts = detector.predict(images, fdr=0.4)
    calibrated = detector.predict(validation).confidence
    n = len(calibrated)
    p_values = np.array([(1 + (calibrated <= c).sum()) / (n + 1) for c in verdicts.confidence])
    np.testing.assert_allclose(verdicts.p_value, p_values, rtol=1e-6)
    ascending = np.sort(p_values)
    reached = [p for i, p in enumerate(ascending, 1) if p <= 0.4 * i / 30 + 1e-9]
    np.testing.assert_array_equal(verdicts.is_ood, p_values <= max(reached, default=-1) + 1e-9)
    assert 0 < verdicts.is_ood.sum() < 30 or not reached or verdicts.is_ood.all()


def test_an_image_below_the_threshold_has_a_p_value_of_at_most_what_is_lost(
    detector: Detector, validation: ImageSet
) -> None:
    verdicts = detector.predict(noise(200, seed=6))
    (threshold,) = detector.calibrated.thresholds
    np.testing.assert_array_equal(verdicts.is_ood, verdicts.p_value <= (threshold.rank + 0.5) / (threshold.images + 1))


def test_a_rate_below_the_resolution_of_the_calibration_is_refused(detector: Detector) -> None:
    n = detector.calibrated.images
    with pytest.raises(MacsError, match=rf"takes at least 9999 calibration images, but there are {n}"):
        detector.predict(noise(2, seed=0), fdr=0.0001)
    with pytest.raises(MacsError, match="two ways to decide; give one of them"):
        detector.predict(noise(2, seed=0), fdr=0.5, threshold=0.5)
    with pytest.raises(MacsError, match="must be above 0 and below 1"):
        detector.predict_files("x", fdr=2)


def test_a_subclass_says_how_to_ask() -> None:
    with pytest.raises(NotImplementedError, match="ImageDetector does not define `asking`"):
        ImageDetector().asking()


PREPARATION = Preparation(24, 28, "bicubic")
SIZES = ((28, 40), (24, 24), (61, 33), (30, 30), (90, 120), (17, 25))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNG files of several sizes, among them that of the network itself."""
    folder = tmp_path_factory.mktemp("photographs")
    for i, (height, width) in enumerate(SIZES):
        coarse = Image.fromarray(np.random.default_rng(i).integers(0, 256, (5, 5, 3), dtype=np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6 if i == 4 else 1  # one photograph was taken with the camera turned by 90 degrees
        coarse.resize((width, height)).save(folder / f"{i}.png", exif=exif)
    return folder


@pytest.fixture(scope="module")
def of_photographs(photographs: Path) -> Detector:
    """A detector whose network takes 24 pixels out of 28, calibrated on files that were read at 32 pixels."""
    net = classifier()
    net.preparation = PREPARATION.normalised(net.preparation.normalisation)
    return Detector(net, "energy").calibrate(ImageSet.from_folder(photographs), keep=0.5)


class Pictures(Dataset[Image.Image]):
    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Image.Image:
        return Image.open(self.files[i])


def cropped(picture: Image.Image) -> np.ndarray:
    """The pixels of torchvision's Resize(28) and CenterCrop(24), written out."""
    if picture.getexif()[0x0112] == 6:
        picture = picture.transpose(Image.Transpose.ROTATE_270)
    width, height = picture.size
    shape = (28, 28 * height // width) if width <= height else (28 * width // height, 28)
    left, top = (round((edge - 24) / 2) for edge in shape)
    return np.asarray(picture.resize(shape, Image.Resampling.BICUBIC))[top : top + 24, left : left + 24]


def test_the_same_files_get_the_same_verdicts_in_every_form(
    of_photographs: Detector, photographs: Path, tmp_path: Path
) -> None:
    files = sorted(photographs.iterdir())
    pictures = [Image.open(file) for file in files]
    pixels = np.stack([cropped(picture) for picture in pictures])
    np.save(tmp_path / "pixels.npy", pixels)
    # The threshold lies between two images: one that equals a confidence depends on how a batch rounds.
    threshold = float(np.median(of_photographs.predict(pixels).confidence))
    expected = of_photographs.predict(pixels, threshold=threshold)
    assert expected.is_ood.sum() == len(files) / 2
    loader: DataLoader[Any] = DataLoader(Pictures(files), batch_size=2, collate_fn=list)
    forms: dict[str, Any] = {
        "paths": files,
        "folder": photographs,
        "pictures": pictures,
        "dataset": Pictures(files),
        "loader": loader,
        "loader of pictures": DataLoader(Pictures(files), batch_size=4),
        "tensor": torch.from_numpy(pixels),
        "channels first": torch.from_numpy(pixels).permute(0, 3, 1, 2),
        "floats": torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255,
        "list of tensors": [torch.from_numpy(each).permute(2, 0, 1) / 255 for each in pixels],
        "loader of tensors": DataLoader(
            TensorDataset(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255), batch_size=4
        ),
        "from_folder": ImageSet.from_folder(photographs),
        "another size": ImageSet.from_folder(photographs, size=24),
        "part": ImageSet.from_folder(photographs).split(0.5)[0],
        "from_files": ImageSet.from_files(files, size=48),
        "from_dataset": ImageSet.from_dataset(Pictures(files)),
        "load": load(photographs),
        "npy": load(tmp_path / "pixels.npy", preparation=PREPARATION),
        "from_array": ImageSet.from_array(pixels),
    }
    for form, images in forms.items():
        found = of_photographs.predict(images, threshold=threshold)
        chosen = [int(name[0]) for name in images.files] if form == "part" else slice(None)
        np.testing.assert_array_equal(found.is_ood, expected.is_ood[chosen], form)
        np.testing.assert_allclose(found.confidence, expected.confidence[chosen], rtol=1e-5, err_msg=form)
    for i, (file, picture) in enumerate(zip(files, pictures, strict=True)):
        for one in (file, str(file), picture):
            assert of_photographs.predict(one).confidence == pytest.approx(expected.confidence[i], rel=1e-5)
    for source in (photographs, tmp_path / "pixels.npy"):
        rows = [row.confidence for row in of_photographs.predict_files(source)]
        np.testing.assert_allclose(rows, expected.confidence, rtol=1e-5)


def test_a_detector_is_calibrated_and_measured_in_its_own_preparation(
    of_photographs: Detector, photographs: Path
) -> None:
    assert of_photographs.preparation.geometry == PREPARATION
    prepared, read = ImageSet.from_folder(photographs, preparation=PREPARATION), ImageSet.from_folder(photographs)
    again = Detector(of_photographs.net, "energy").calibrate(prepared, keep=0.5)
    assert again.calibrated == of_photographs.calibrated
    fitted = [Detector(of_photographs.net, "knn").fit(images.subset([2, 3, 4])) for images in (prepared, read)]
    one, other = (detector.calibrate(read, keep=0.5).predict(photographs).confidence for detector in fitted)
    np.testing.assert_array_equal(one, other)
    labelled = [replace(images, labels=np.arange(6) % 3, classes=tuple("abc")) for images in (prepared, read)]
    for score in ("msp", "knn"):
        measured = [
            evaluate(of_photographs.net, images, {"noise": noise(9, 1)}, score=score, train=images.subset([2, 3, 4]))
            for images in labelled
        ]
        assert measured[0].sets == measured[1].sets and measured[0].accuracy == measured[1].accuracy


def test_a_loader_that_shuffles_is_refused(of_photographs: Detector, photographs: Path) -> None:
    with pytest.raises(MacsError, match="shuffles or samples gives images in no fixed order; give its dataset"):
        of_photographs.predict(DataLoader(Pictures([*photographs.iterdir()]), shuffle=True))
