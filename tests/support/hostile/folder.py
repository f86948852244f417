"""The prepared folder: a user's images, runs, detector and networks, made with the package itself, and nasty files."""

import os
import shutil
import socket
from pathlib import Path

import spoiled
from harness import Workshop
from options import GOOD

TRAINING = ("--id", "mine", "--size", "16", "--net", "wrn-10-1", "--batch-in", "16", "--lr", "0.01")
FINETUNING = ("finetune", *TRAINING, "--outliers", "outliers.npy", "--batch-out", "16")

PICTURES = """
for split, count, seed in (("train", 24, 1), ("val", 24, 2), ("test", 24, 3)):
    part = stripes(count, seed)
    for i, (pixels, label) in enumerate(zip(part.pixels[:], part.labels)):
        path = Path("mine", split, STRIPES[label], f"{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
np.save("outliers.npy", noise(24, seed=4).pixels[:])
Path("unknown").mkdir()
for i, pixels in enumerate(noise(4, seed=5).pixels[:]):
    Image.fromarray(pixels).save(f"unknown/{i}.jpg")
Image.fromarray(pixels).save("good.png")
"""

INTERRUPTED = f"""
from macs.training import loop
from macs.__main__ import main

def epoch(self, epoch):
    def stop(*_):
        raise KeyboardInterrupt
    loop.TrainingProgress.step = stop

loop.TrainingProgress.epoch = epoch
sys.argv = ["macs", *{FINETUNING!r}, "--epochs", "2", "--run", "interrupted"]
main()
"""

MODULE = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(3 * 16 * 16, classes)

    def forward(self, pixels):
        return self.head(pixels.flatten(1))
"""


def prepare(workshop: Workshop, folder: Path) -> None:
    """What a user may have, small enough to be copied often."""
    workshop.make(python=PICTURES)
    workshop.make("pretrain", *TRAINING, "--epochs", "1", "--run", "run")
    workshop.make(python=INTERRUPTED, codes=(130,))
    workshop.make("calibrate", "run", "--keep", "0.8", "--out", "detector.safetensors")
    workshop.make("export", "detector.safetensors", "detector.onnx")
    workshop.make(python="torch.save(load_file('run/net.safetensors'), 'checkpoint.pt')")
    workshop.make(python="Path('recipe.toml').write_text('epochs = 1')")
    for rehearsal in (
        ("report", "run", "--ood", "unknown", "--out", "rehearsed"),
        ("predict", "unknown", "--detector", "detector.safetensors", "--out", "rehearsed", "--format", "parquet"),
    ):
        workshop.make(*rehearsal)
    (folder / "rehearsed").unlink()
    workshop.make(*GOOD["sweep"].split())
    shutil.rmtree(folder / "new")
    workshop.make(python="[macs.data.load(name, 'test') for name in ('digits', 'digits-textures', 'digits-faces')]")
    for script in (spoiled.ARRAYS, spoiled.PICTURES, spoiled.CHECKPOINTS, spoiled.STATES):
        workshop.make(python=script)
    (folder / "own.py").write_text(MODULE)
    (folder / "file.txt").write_text("hello\n")


def finish(folder: Path) -> None:
    """What lies in wait: no regular file, not ours to read, or not what its name says."""
    os.mkfifo(folder / "fifo")
    os.mkfifo(folder / "fifo.npy")
    os.mkfifo(folder / "fifo.png")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(folder)  # the address of a socket may not be long
        bound.bind("socket")
        os.chdir(here)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing-there")
    (folder / "link.csv").symlink_to("target.csv")
    (folder / "target.csv").write_text("old\n")
    (folder / "into-itself").mkdir()
    (folder / "into-itself" / "again").symlink_to(".", target_is_directory=True)
    (folder / "into-itself" / "picture.png").write_bytes((folder / "good.png").read_bytes())
    for name in ("locked", "read-only"):
        (folder / name).mkdir()
        (folder / name / "good.png").write_bytes((folder / "good.png").read_bytes())
    for name in ("locked.png", "locked.npy", "locked.toml", "locked.safetensors"):
        (folder / name).write_bytes(b"locked")
        (folder / name).chmod(0)
    (folder / "locked").chmod(0)
    (folder / "read-only").chmod(0o555)
    for raw in (b"new\nline.png", "\N{GRINNING FACE}.png".encode(), b"byte\xff.png", b"\x1b[31mred.png"):
        (folder / "names").mkdir(exist_ok=True)
        (folder / "names" / os.fsdecode(raw)).write_bytes((folder / "good.png").read_bytes())
