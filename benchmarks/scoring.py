"""Scoring images with WRN-40-2, and a whole evaluation with ten draws, against plain PyTorch and the released way."""

import copy

import numpy as np
import torch

import macs
from bench import WRN_40_2, interleaved, multiply_rate, report, seconds
from macs import nets
from macs.data import ImageSet
from macs.inference import BATCH, inference
from released import PilImages, evaluate, without_our_layers

random = np.random.default_rng(0)


def images(count: int) -> np.ndarray:
    return random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def scoring(net: torch.nn.Module) -> None:
    pixels = torch.from_numpy(images(1024))
    plain = copy.deepcopy(net).eval()

    @torch.no_grad()
    def eager() -> None:
        for batch in pixels.split(BATCH):
            plain(batch.permute(0, 3, 1, 2).contiguous().float() / 255).softmax(1).amax(1)

    fast = copy.deepcopy(net)

    def ours() -> None:
        with inference(fast) as run:
            for batch in pixels.split(BATCH):
                run(batch).logits.softmax(1).amax(1)

    cases = {
        "float32, N x C x H x W, eager": lambda: len(pixels) / seconds(eager),
        "ours": lambda: len(pixels) / seconds(ours),
        "limit by float32 multiplication": lambda: multiply_rate(torch.float32) / WRN_40_2,
    }
    found = interleaved(cases, 3)
    ratios = {f"ours / {name}": found["ours"].median / found[name].median for name in found if name != "ours"}
    report("scoring", "Scoring with WRN-40-2", found, "images/s", ratios)


def evaluating(net: torch.nn.Module) -> None:
    """Small sets: both sides grow with the number of images alone."""
    known, ood = images(500), [images(100) for _ in range(4)]
    labels = random.integers(0, 10, len(known))
    plain = without_our_layers(copy.deepcopy(net))
    test = ImageSet.from_array(known, labels, [str(i) for i in range(10)])
    sets = {f"set {i}": ImageSet.from_array(each) for i, each in enumerate(ood)}
    unchanged = [PilImages(each, augment=False) for each in ood]
    cases = {
        "released way of working": lambda: seconds(lambda: evaluate(plain, PilImages(known, augment=False), unchanged)),
        "ours": lambda: seconds(lambda: macs.evaluate(net, test, sets, trials=10, progress=False)),
    }
    found = interleaved(cases, 2)
    ratio = found["released way of working"].median / found["ours"].median
    title = "One ID set of 500 images and four OOD sets of 100, ten draws"
    report("evaluating", title, found, "s", {"released / ours": ratio})


def main() -> None:
    torch.manual_seed(0)
    net = nets.build("wrn-40-2", classes=10).eval()
    scoring(net)
    evaluating(net)


if __name__ == "__main__":
    main()
