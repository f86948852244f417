"""Training and prediction on pictures of every kind: the same pixels give the same numbers, however they are stored."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.Image import Transpose

import macs
from macs import nets
from macs.core.errors import MacsWarning
from macs.data import ImageSet
from macs.training.recipe import PRETRAINING

Draw = Callable[[np.ndarray, Path], None]


def grey(pixels: np.ndarray, file: Path) -> None:
    Image.fromarray(pixels[..., 0]).save(file.with_suffix(".png"))


def grey_16_bit(pixels: np.ndarray, file: Path) -> None:
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(file.with_suffix(".png"))


def cmyk(pixels: np.ndarray, file: Path) -> None:
    inks = np.concatenate([255 - pixels, np.zeros_like(pixels[..., :1])], axis=2)
    Image.fromarray(inks, "CMYK").save(file.with_suffix(".tif"))


def on_its_side(pixels: np.ndarray, file: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).transpose(Transpose.ROTATE_90).save(file.with_suffix(".png"), exif=exif)


def animated(pixels: np.ndarray, file: Path) -> None:
    others = [Image.fromarray(255 - pixels), Image.fromarray(pixels[::-1].copy())]
    Image.fromarray(pixels).save(file.with_suffix(".webp"), save_all=True, append_images=others, lossless=True)


def transparent(pixels: np.ndarray, file: Path) -> None:
    opaque = np.full_like(pixels[..., :1], 255)
    Image.fromarray(np.concatenate([pixels, opaque], axis=2)).save(file.with_suffix(".png"))


KINDS: list[Draw] = [grey, grey_16_bit, cmyk, on_its_side, animated, transparent]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same 24 pictures of different sizes in two classes: of all kinds, and as plain PNGs."""
    random = np.random.default_rng(0)
    for i in range(24):
        pixels = random.integers(0, 256, (*random.integers(20, 60, 2), 3), dtype=np.uint8)
        kind = KINDS[i % len(KINDS)]
        if kind in (grey, grey_16_bit):
            pixels = pixels[..., :1].repeat(3, axis=2)
        for name in ("odd", "plain"):
            (tmp_path / name / "ab"[i // 12]).mkdir(parents=True, exist_ok=True)
        kind(pixels, tmp_path / "odd" / "ab"[i // 12] / f"{i:02}")
        Image.fromarray(pixels).save(tmp_path / "plain" / "ab"[i // 12] / f"{i:02}.png")
    return tmp_path / "odd", tmp_path / "plain"


def test_pictures_of_every_kind_train_and_are_judged_as_their_pixels_say(folders: tuple[Path, Path]) -> None:
    recipe = macs.Recipe(**{**vars(PRETRAINING), "epochs": 2, "batch_in": 8, "augment": "resized-crop", "jitter": 0.4})
    losses, rows = [], []
    for folder in folders:
        torch.manual_seed(0)
        train, net = ImageSet.from_folder(folder, 16), nets.build("wrn-10-1", classes=2)
        losses.append([epoch.loss for epoch in macs.pretrain(net, train, recipe=recipe, progress=False)])
        detector = macs.Detector(net).calibrate(train, 0.5, progress=False)
        rows.append([(row.confidence, row.index) for row in detector.predict_files(folder)])
    assert losses[0] == losses[1] and rows[0] == rows[1] and len(rows[0]) == 24


def test_a_class_of_one_picture_trains_with_a_warning(folders: tuple[Path, Path]) -> None:
    odd, _ = folders
    (odd / "c").mkdir()
    (odd / "a" / "00.png").rename(odd / "c" / "00.png")
    with pytest.warns(MacsWarning, match="c holds one image, from which no class can be learned"):
        train = macs.data.load(odd, "train", size=16)
    net = nets.build("wrn-10-1", classes=3)
    recipe = macs.Recipe(**{**vars(PRETRAINING), "epochs": 1, "batch_in": 24, "augment": "resized-crop"})
    (epoch,) = macs.pretrain(net, train, recipe=recipe, progress=False)
    assert np.isfinite(epoch.loss)
