"""Photographs at 224 pixels: ours beside a plain script of timm, torchvision and a DataLoader with two workers.

python benchmarks/photographs.py [--photos FOLDER] [--images N] [--rounds N] [--threads N] [--parts decoding ...]

The JPEGs, of 500 x 375 pixels in class folders, are made of the photographs in FOLDER, or else of random shapes. The
plain script is what one first writes: float32, N x C x H x W, normalised tensors from the workers, batches of 32. Ours
decodes by threads. Both have the same network with random weights, the same crops and the same interpolation. On a
busy machine, `--threads 1` for the network of both keeps its threads from waiting for each other.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import macs
from bench import answer, interleaved, report, seconds, standing
from cpu_torchvision import make_importable
from macs import nets
from macs.data import ImageSet, Preparation, set_workers
from macs.data.image_files import images_under
from macs.data.pixels import FilePictures, decode
from macs.detector import Detector
from macs.training.recipe import PRETRAINING
from predicting import exhaust, jpeg

MODEL = "tf_efficientnet_lite0"
CLASSES = 5
BATCH = 32
PREPARATION = Preparation(224, 256, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # that of the model
EDGES = (128, 500)  # longer sides, in pixels
WORKERS = (1, 2, 4)
KINDS = {"plain script": "processes", "ours": "threads"}  # of workers
PARTS = ("decoding", "scoring", "training")


def make_jpegs(folder: Path, photos: Path | None, count: int, edge: int) -> Path:
    """JPEGs in class folders, of photographs where there are some."""
    width, height = edge, edge * 3 // 4
    found = [photos / name for name in images_under(photos)] if photos else []
    chosen = cycle(found[:: max(1, len(found) // count)])
    for i in range(count):
        file = folder / f"class {i % CLASSES}" / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if found:
            picture = Image.open(next(chosen)).convert("RGB")
            picture.resize((width, height), Image.Resampling.BICUBIC).save(file, quality=88)
        else:
            jpeg(file, width, height)
    return folder


def our_decoding(folder: Path, workers: int) -> float:
    set_workers(workers)
    pictures = FilePictures(folder, images_under(folder))
    return len(pictures) / seconds(lambda: decode(pictures, range(len(pictures)), PREPARATION))


def our_scoring(folder: Path, detector: Detector) -> float:
    return len(images_under(folder)) / seconds(lambda: exhaust(detector.predict_files(folder)))


def our_training(train: ImageSet, net: nn.Module) -> float:
    recipe = macs.Recipe(**{**vars(PRETRAINING), "epochs": 1, "batch_in": BATCH, "augment": "resized-crop", "lr": 0.01})
    (epoch,) = macs.pretrain(net, train, recipe=recipe, progress=False)
    return epoch.images_per_second


def torchvision(part: str) -> Any:
    """A part of torchvision, which has no types."""
    return import_module(f"torchvision.{part}")


def loader(folder: Path, chosen: Sequence[object], workers: int = 2, training: bool = False) -> DataLoader[Any]:
    """Batches as a plain script reads them, by processes; `chosen` are its transforms."""
    images = torchvision("datasets").ImageFolder(str(folder), torchvision("transforms").Compose(chosen))
    return DataLoader(images, BATCH, num_workers=workers, shuffle=training, drop_last=training)


def resized_and_cropped() -> list[object]:
    transforms = torchvision("transforms")
    return [transforms.Resize(256, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(224)]


def normalised() -> list[object]:
    transforms = torchvision("transforms")
    return [transforms.ToTensor(), transforms.Normalize(PREPARATION.mean, PREPARATION.std)]


def their_decoding(folder: Path, workers: int) -> float:
    batches = loader(folder, [*resized_and_cropped(), torchvision("transforms").PILToTensor()], workers)
    return len(images_under(folder)) / seconds(lambda: exhaust(batches))


@torch.inference_mode()
def their_scoring(folder: Path, net: nn.Module) -> float:
    batches = loader(folder, [*resized_and_cropped(), *normalised()])
    net.eval()

    def work() -> None:
        torch.cat([net(pixels).softmax(dim=1).amax(dim=1) for pixels, _ in batches])

    return len(images_under(folder)) / seconds(work)


def their_training(folder: Path, net: nn.Module) -> float:
    transforms = torchvision("transforms")
    crop = transforms.RandomResizedCrop(224, interpolation=transforms.InterpolationMode.BICUBIC)
    batches = loader(folder, [crop, transforms.RandomHorizontalFlip(), *normalised()], training=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    net.train()

    def work() -> None:
        for pixels, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pixels), labels).backward()
            optimizer.step()

    return len(batches) * BATCH / seconds(work)


def measure(part: str, who: str, folder: Path, workers: int, threads: int) -> Callable[[], float]:
    """What a process of its own measures, over and over."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    if part == "decoding":
        return partial(our_decoding if who == "ours" else their_decoding, folder, workers)
    if who == "plain script":
        import timm

        net = timm.create_model(MODEL, num_classes=CLASSES)
        return partial(their_scoring if part == "scoring" else their_training, folder, net)
    macs.keep_freed_memory()  # as every command does
    ours = nets.build(f"timm/{MODEL}", classes=CLASSES)
    images = ImageSet.from_folder(folder, preparation=PREPARATION)
    if part == "training":
        return partial(our_training, images, ours)
    return partial(our_scoring, folder, Detector(ours).calibrate(images.subset(range(64)), progress=False))


def standing_case(part: str, who: str, folder: Path, workers: int = 2) -> Callable[[], float]:
    """A case in a process of its own, with the macs and the number of threads of this process."""
    numbers = (str(workers), str(torch.get_num_threads()))
    return standing(__file__, part, who, str(folder), *numbers, source=Path(macs.__file__).parents[1])


def compare(part: str, title: str, folder: Path, rounds: int) -> None:
    cases = {who: standing_case(part, who, folder) for who in ("plain script", "ours")}
    found = interleaved(cases, rounds)
    pairs = zip(found["ours"].values, found["plain script"].values, strict=True)
    each = sorted(ours / theirs for ours, theirs in pairs)
    ratios: dict[str, float | str] = {
        "ours / plain script": found["ours"].median / found["plain script"].median,
        "ours / plain script, round by round": f"{each[0]:.2f} to {each[-1]:.2f}",
    }
    report(f"photographs-{part}", title, found, "images/s", ratios)


def compare_decoding(edge: int, folder: Path, rounds: int) -> None:
    """Threads of ours beside the processes of a DataLoader."""
    cases = {
        f"{who}, {KINDS[who]}: {workers}": standing_case("decoding", who, folder, workers)
        for workers in WORKERS
        for who in ("plain script", "ours")
    }
    found = interleaved(cases, rounds)
    ratios = {
        f"ours / plain script, {n} of each": found[f"ours, threads: {n}"].median
        / found[f"plain script, processes: {n}"].median
        for n in WORKERS
    }
    report(f"photographs-decoding-{edge}", f"Decoding JPEGs of {edge} pixels to 224", found, "images/s", ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folders = {edge: make_jpegs(Path(name) / str(edge), options.photos, options.images, edge) for edge in EDGES}
        if "decoding" in options.parts:
            for edge, folder in folders.items():
                compare_decoding(edge, folder, options.rounds)
        what = f"{options.images} JPEGs of 500 pixels, {MODEL} at 224"
        if "scoring" in options.parts:
            compare("scoring", f"Scoring {what}", folders[500], options.rounds)
        if "training" in options.parts:
            compare("training", f"An epoch of {what}", folders[500], options.rounds)


if __name__ == "__main__":
    make_importable()
    if len(sys.argv) > 1 and sys.argv[1] in PARTS:
        part, who, folder, workers, threads = sys.argv[1:]
        answer(measure(part, who, Path(folder), int(workers), int(threads)))
    else:
        main()
