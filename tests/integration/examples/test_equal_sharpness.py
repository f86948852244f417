"""The example, run on pictures made here: soft and sharp blots, told apart by their sharpness before but not after."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from scipy.ndimage import gaussian_filter

from repository import ROOT

pytestmark = pytest.mark.docs

EXAMPLE = ROOT / "examples" / "equal_sharpness.py"
COUNT = 12


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def blots(sigma: float, random: np.random.Generator) -> Image.Image:
    """Smooth noise in three colours, which varies over about `sigma` pixels."""
    values = gaussian_filter(random.normal(size=(56, 48, 3)), (sigma, sigma, 0))
    values = 128 + random.uniform(25, 45) * values / values.std()
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("photos")
    for folder, sigmas in {"known/a": (2.4, 4), "unknown": (1.0, 2.0)}.items():
        (root / folder).mkdir(parents=True)
        for i, sigma in enumerate(np.linspace(*sigmas, COUNT)):
            blots(sigma, random).save(root / folder / f"{i}.jpg", quality=90)
    return root


def by_hand(file: Path) -> tuple[float, float]:
    """Sharpness and contrast of a picture, pixel by pixel."""
    grey = [[float(value) for value in row] for row in np.asarray(Image.open(file).convert("L"))]
    turned = [list(column) for column in zip(*grey, strict=True)]
    means = []
    for lines in (grey, turned):
        second = [abs(a - 2 * b + c) for line in lines for a, b, c in zip(line, line[1:], line[2:], strict=False)]
        means.append(sum(second) / len(second))
    contrast = float(np.std(grey))
    return sum(means) / 2 / contrast, contrast


def above(known: list[float], unknown: list[float]) -> float:
    """The share of pairs in which the unknown picture has the higher value."""
    return float(np.mean([high > low for high in unknown for low in known]))


def test_folders_have_equal_sharpness_afterwards(
    example: dict[str, Any], photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "equal"
    example["main"](photos, out, ["known", "unknown"])
    found = {
        root: [[by_hand(file) for file in sorted((root / folder).rglob("*.jpg"))] for folder in ("known", "unknown")]
        for root in (photos, out)
    }
    before, after = ([[sharp for sharp, _ in values] for values in found[root]] for root in (photos, out))
    assert above(*before) == 1 and 0.35 < above(*after) < 0.65
    old, new = ([contrast for values in found[root] for _, contrast in values] for root in (photos, out))
    np.testing.assert_allclose(new, old, rtol=0.1)
    written = [Image.open(file) for file in out.rglob("*.jpg")]
    assert len(written) == 2 * COUNT and all(isinstance(picture, JpegImageFile) for picture in written)
    assert len({str(picture.quantization) for picture in written if isinstance(picture, JpegImageFile)}) == 1
    (line,) = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("unknown") and "sharpness" in line
    )
    shown_before, shown_after = (float(number) for number in line.split("sharpness")[1].split("->"))
    assert shown_before == 100 and shown_after == pytest.approx(100 * above(*after), abs=0.1)


def test_the_target_is_the_lowest_at_the_same_rank(example: dict[str, Any]) -> None:
    first, second = example["targets"]([np.array([5.0, 1.0, 3.0]), np.array([2.0, 6.0, 4.0])])
    # Ranks 1/6, 3/6 and 5/6, interpolated between the sorted values 1, 3, 5 and 2, 4, 6.
    np.testing.assert_allclose(first, [1 + 4 * 5 / 6, 1 + 4 / 6, 3])
    np.testing.assert_allclose(second, [1 + 4 / 6, 1 + 4 * 5 / 6, 3])


def test_nothing_is_overwritten(example: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exists; name a new folder"):
        example["main"](photos, tmp_path, ["known"])
    with pytest.raises(SystemExit, match=r"other has no \.jpg files"):
        example["main"](photos, tmp_path / "new", ["known", "other"])
    assert not list(tmp_path.iterdir())
