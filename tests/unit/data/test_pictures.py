"""Images of every kind in files of every kind."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from macs.core.errors import MacsError
from macs.data.preparation import Preparation, Undecodable, decode_rgb, fit, open_rgb, to_rgb
from official import images


@pytest.mark.parametrize("shape", [(32, 32), (100, 60), (60, 100), (33, 32), (31, 90), (8, 5), (5, 13), (321, 481)])
@pytest.mark.parametrize("size", [32, 17])
def test_fit_is_resizing_the_shorter_side_and_then_cropping_the_centre(shape: tuple[int, ...], size: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    height, width = shape
    wide, high = (int(size * edge / min(shape)) for edge in (width, height))
    whole = Image.fromarray(pixels).resize((wide, high), Image.Resampling.BILINEAR)
    left, top = round((wide - size) / 2), round((high - size) / 2)
    expected = np.asarray(whole.crop((left, top, left + size, top + size)))
    np.testing.assert_array_equal(fit(Image.fromarray(pixels), size), expected)


def test_an_image_of_the_right_size_keeps_every_pixel() -> None:
    pixels = images(1)[0]
    np.testing.assert_array_equal(fit(Image.fromarray(pixels), 32), pixels)


def test_a_strip_a_million_pixels_long_is_cropped_without_being_blown_up() -> None:
    assert fit(Image.new("RGB", (1_000_000, 1), "red"), 32).tolist() == [[[255, 0, 0]] * 32] * 32


def grey(path: Path) -> list[list[int]]:
    return np.asarray(open_rgb(path))[..., 0].tolist()


def test_grey_bilevel_and_palette_images_become_rgb(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 7, 255]], np.uint8)).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(np.asarray(open_rgb(tmp_path / "grey.png")), [[[0] * 3, [7] * 3, [255] * 3]])
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bilevel.png")
    assert grey(tmp_path / "bilevel.png") == [[255, 0]]
    palette = Image.fromarray(np.array([[1, 0, 1]], np.uint8), mode=None).convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60] + [0] * 762)
    palette.save(tmp_path / "palette.png")
    rgb = np.asarray(open_rgb(tmp_path / "palette.png"))
    np.testing.assert_array_equal(rgb, [[[40, 50, 60], [10, 20, 30], [40, 50, 60]]])


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_grey_is_scaled_and_not_cut_off(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65407, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    assert grey(tmp_path / f"deep.{suffix}") == [[round(value * 255 / 65535) for value in values[0].tolist()]]


def test_32_bit_integers_are_read_only_where_their_range_is_16_bits(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 65535]], np.int32)).save(tmp_path / "a.tif")
    assert grey(tmp_path / "a.tif") == [[0, 255]]
    Image.fromarray(np.array([[0, 65536]], np.int32)).save(tmp_path / "b.tif")
    with pytest.raises(MacsError, match=r"b\.tif: its pixels are 32-bit numbers"):
        open_rgb(tmp_path / "b.tif")


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(MacsError, match=r"a\.tif: its pixels are floating-point numbers"):
        open_rgb(tmp_path / "a.tif")


def test_transparency_lies_over_white(tmp_path: Path) -> None:
    rgba = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    blended = [round(0.2 * value + 0.8 * 255) for value in (200, 100, 0)]
    np.testing.assert_allclose(np.asarray(open_rgb(tmp_path / "a.png")), [[[200, 100, 0], [255] * 3, blended]], atol=1)


def test_a_transparent_palette_entry_and_a_transparent_grey_become_white(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60] + [0] * 762)
    image.save(tmp_path / "a.png", transparency=1)
    np.testing.assert_array_equal(np.asarray(open_rgb(tmp_path / "a.png")), [[[10, 20, 30], [255] * 3]])
    Image.fromarray(np.array([[5, 9]], np.uint8)).save(tmp_path / "b.png", transparency=9)
    assert grey(tmp_path / "b.png") == [[5, 255]]
    Image.fromarray(np.array([[5, 9]], np.uint8)).convert("LA").save(tmp_path / "c.png")
    assert grey(tmp_path / "c.png") == [[5, 9]]


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    pixel = np.asarray(open_rgb(tmp_path / "a.jpg"))[8, 8]
    assert pixel[0] > 245 and pixel[1] < 10 and pixel[2] < 10  # no cyan, all magenta and yellow: red


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I"])
def test_a_large_16_bit_image_is_scaled_like_a_small_one(mode: str) -> None:
    height, width = 700, 501  # more pixels than are converted at a time, and a last part of fewer rows
    values = (np.arange(height * width) * 48271 % 65536).reshape(height, width)
    kind = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[mode]
    rgb = to_rgb(Image.frombytes(mode, (width, height), values.astype(kind).tobytes()))
    expected = np.rint(values * (255 / 65535)).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(rgb), np.repeat(expected[..., None], 3, axis=2))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])  # the last three with one transparent colour
def test_a_large_transparent_image_lies_over_white_like_a_small_one(mode: str) -> None:
    height, width = 700, 501
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    image = Image.frombytes(mode, (width, height), pixels.tobytes())
    if mode == "P":
        image.putpalette(np.random.default_rng(1).integers(0, 256, 768, dtype=np.uint8).tobytes())
    if mode in ("P", "L", "RGB"):
        image.info["transparency"] = (*pixels[0, 0].tolist(),) if channels > 1 else int(pixels[0, 0, 0])
    rgba = image.convert("RGBA")
    whole = Image.alpha_composite(Image.new("RGBA", image.size, "white"), rgba).convert("RGB")
    assert np.asarray(rgba)[..., 3].min() < 255
    np.testing.assert_array_equal(np.asarray(to_rgb(image)), np.asarray(whole))


@pytest.mark.parametrize("size", [(65_501, 1), (1, 65_501)])
def test_a_side_that_is_too_long_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    Image.new("L", size).save(tmp_path / "a.png")
    with pytest.raises(MacsError, match=rf"a\.png: one side of its {size[0]} x {size[1]} pixels exceeds 65,500"):
        open_rgb(tmp_path / "a.png")
    Image.new("L", (min(size[0], 65_500), min(size[1], 65_500))).save(tmp_path / "b.png")
    assert max(open_rgb(tmp_path / "b.png").size) == 65_500


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(tmp_path: Path, orientation: int) -> None:
    upright = Image.fromarray(images(1, size=6)[0][:4])
    undo = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 7: "TRANSVERSE"}
    undo |= {6: "ROTATE_90", 8: "ROTATE_270"}  # the camera lay on its side; the tag says how to turn it back
    stored = upright.transpose(Image.Transpose[undo[orientation]]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_rgb(tmp_path / "a.png")), np.asarray(upright))


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif"])
def test_of_an_animation_or_several_pages_the_first_is_read(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], lossless=True)  # for webp
    with Image.open(tmp_path / f"a.{suffix}") as animation:
        assert getattr(animation, "n_frames", 1) == 3
    assert np.asarray(open_rgb(tmp_path / f"a.{suffix}"))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tif", "webp", "ppm"])
def test_a_truncated_image_names_its_file_wherever_it_ends(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"broken.{suffix}"
    Image.fromarray(images(1)[0]).save(file)
    content = file.read_bytes()
    for length in np.linspace(0, 0.9 * len(content), 25).astype(int):
        file.write_bytes(content[:length])
        with pytest.raises(MacsError, match=rf"Cannot read the image .*broken\.{suffix}"):
            Preparation(32)(open_rgb(file))


def test_a_missing_image_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match=r"gone\.png"):
        Preparation(32)(open_rgb(tmp_path / "gone.png"))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("limit", [511, 600, 1023])  # beyond its limit Pillow only warns, beyond twice that it raises
def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1024)
    assert Preparation(32)(open_rgb(tmp_path / "bomb.png")).shape == (32, 32, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(MacsError, match=r"bomb\.png.*limit"):
        Preparation(32)(open_rgb(tmp_path / "bomb.png"))


def test_a_postscript_program_that_calls_itself_png_is_not_run(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(MacsError, match=r"a\.png: it is not one of PNG"):
        Preparation(32)(open_rgb(tmp_path / "a.png"))


def test_orientation_is_applied_before_the_crop(tmp_path: Path) -> None:
    """A tall image stored on its side: cropping first would keep another part of it."""
    tall = Image.fromarray(np.repeat(np.arange(60, dtype=np.uint8)[:, None], 20, axis=1)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    tall.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a.png", exif=exif)
    expected = np.asarray(ImageOps.fit(tall, (20, 20)))
    np.testing.assert_array_equal(Preparation(20)(open_rgb(tmp_path / "a.png")), expected)


@pytest.mark.parametrize(
    ("kind", "options", "most"),
    [
        ("WEBP", {}, 200),
        ("TIFF", {"compression": "tiff_deflate"}, 200),
        ("JPEG", {"progressive": True}, 150),
        ("JPEG", {}, 100),
        ("PPM", {}, 125),
        ("MPO", {"save_all": True, "append_images": [Image.new("RGB", (10, 10))], "progressive": True}, 150),
        ("PNG", {}, 100),
    ],
)
def test_the_limit_counts_the_memory_that_decoding_takes(kind: str, options: dict[str, Any], most: int) -> None:
    file = io.BytesIO()
    Image.new("RGB", (10, 10)).save(file, kind, **options)
    assert decode_rgb(file, most=most).size == (10, 10)
    with pytest.raises(Undecodable, match="its 10 x 10 pixels exceed the limit of 99"):
        decode_rgb(file, most=most - 1)
    assert decode_rgb(file).size == (10, 10)  # no limit but Pillow's


def test_a_jpeg_with_one_scan_per_colour_counts_as_progressive() -> None:
    file = io.BytesIO(one_scan_per_colour(20))
    assert decode_rgb(file, most=600).size == (20, 20)
    with pytest.raises(Undecodable, match="exceed the limit of 399 for progressive JPEG"):
        decode_rgb(file, most=599)


def one_scan_per_colour(size: int) -> bytes:
    """A baseline JPEG, made of a grey one whose only scan is repeated for each of three colours."""
    grey = io.BytesIO()
    Image.new("L", (size, size), 7).save(grey, "JPEG")
    rest, scans = grey.getvalue()[2:], b""
    parts = [b"\xff\xd8"]
    while not scans:
        marker, length = rest[1], 2 + int.from_bytes(rest[2:4], "big")
        segment, rest = rest[:length], rest[length:]
        if marker == 0xC0:  # the frame: its size, then a number, the sampling and a table for each colour
            colours = b"".join(bytes((colour, 0x11, 0)) for colour in (1, 2, 3))
            segment = b"\xff\xc0\x00\x11" + segment[4:9] + b"\x03" + colours
        elif marker == 0xDA:
            scans = b"".join(
                b"\xff\xda\x00\x08\x01" + bytes((colour, 0)) + segment[-3:] + rest[:-2] for colour in (1, 2, 3)
            )
            segment = scans
        parts.append(segment)
    return b"".join([*parts, b"\xff\xd9"])


def test_a_small_tiff_with_a_large_tile_is_refused() -> None:
    side = 400
    pixels = zlib.compress(bytes(side * side * 3))
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 2, 277: 3, 322: side, 323: side, 324: 0, 325: len(pixels)}
    start = 8 + 2 + 12 * len(tags) + 4
    tags[324] = start
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    file = io.BytesIO(struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + pixels)
    assert decode_rgb(file, most=2 * side**2).size == (16, 16)
    with pytest.raises(Undecodable, match="its tiles of 160,000 pixels exceed the limit of 159,999 for TIFF"):
        decode_rgb(file, most=2 * side**2 - 1)
