"""The memory that decoding an image takes, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

EDGE = 3000

# A small image first: what it imports and allocates is not the memory of the large one. The peak is that of the address
# space; ru_maxrss begins with the peak of the process that started this one.
PEAK = """
import re, sys
from pathlib import Path
from macs.data.preparation import Preparation
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
Preparation(32).read(Path(sys.argv[1]))
before = peak()
Preparation(32).read(Path(sys.argv[2]))
print(peak() - before)
"""


# Pillow keeps an RGB pixel in 4 bytes. Another mode needs its own bytes too, progressive JPEG 2 per coefficient, and
# WebP three copies.
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("mode", "suffix", "options", "bytes_per_pixel"),
    [
        ("RGB", "png", {}, 4),
        ("RGB", "jpg", {"progressive": True, "subsampling": 0}, 10),
        ("I;16", "png", {}, 6),
        ("I", "tif", {"compression": "tiff_adobe_deflate"}, 8),
        ("P", "png", {"transparency": 0}, 5),
        ("LA", "png", {}, 8),
        ("RGBA", "png", {}, 8),
        ("RGBA", "webp", {"lossless": True, "method": 0}, 16),
    ],
)
def test_decoding_takes_few_bytes_per_pixel(
    tmp_path: Path, mode: str, suffix: str, options: dict[str, Any], bytes_per_pixel: int
) -> None:
    small, large = tmp_path / f"small.{suffix}", tmp_path / f"large.{suffix}"
    Image.new(mode, (8, 8)).save(small, **options)
    Image.new(mode, (EDGE, EDGE)).save(large, **options)
    command = [sys.executable, "-c", PEAK, str(small), str(large)]
    taken = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert taken < 1.05 * bytes_per_pixel * EDGE**2 + 8 * 2**20  # and a few megabytes for what is converted at a time
