"""Scoring images with WRN-40-2, and a whole evaluation with ten draws, against plain PyTorch and the released way."""

import copy
import sys
from collections.abc import Callable

import numpy as np
import torch

import macs
from bench import WRN_40_2, answer, interleaved, multiply_rate, report, seconds, standing
from macs import nets
from macs.data import ImageSet
from macs.data.batches import BATCH
from macs.inference import inference
from released import MEAN, STD, PilImages, evaluate, without_our_layers

random = np.random.default_rng(0)


def images(count: int) -> np.ndarray:
    return random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


@torch.no_grad()
def eager(net: torch.nn.Module, pixels: torch.Tensor) -> None:
    """As a plain script scores: float32, N x C x H x W."""
    for batch in pixels.split(BATCH):
        net(normalised(batch)).softmax(1).amax(1)


def normalised(batch: torch.Tensor) -> torch.Tensor:
    return (batch.permute(0, 3, 1, 2).contiguous().float() / 255 - MEAN) / STD


def ours(net: torch.nn.Module, pixels: torch.Tensor) -> None:
    with inference(net) as run:
        for batch in pixels.split(BATCH):
            run(batch).logits.softmax(1).amax(1)


def answer_rates(score: Callable[[torch.nn.Module, torch.Tensor], None], net: torch.nn.Module) -> None:
    """Images a second, whenever asked."""
    pixels = torch.from_numpy(images(512))
    answer(lambda: len(pixels) / seconds(lambda: score(net, pixels)))


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return nets.build("wrn-40-2", classes=10).eval()


def scoring() -> None:
    cases = {
        "float32, N x C x H x W, eager": standing(__file__, "eager"),
        "ours": standing(__file__, "ours"),
        "limit by float32 multiplication": lambda: multiply_rate(torch.float32) / WRN_40_2,
    }
    found = interleaved(cases, 15)
    ratios = {f"ours / {name}": found["ours"].median / found[name].median for name in found if name != "ours"}
    report("scoring", "Scoring with WRN-40-2", found, "images/s", ratios)


def evaluating(net: torch.nn.Module) -> None:
    """OOD sets as large as one draw of the ID set, which every draw of the released way passes whole.

    Starting its workers takes 4% of the released way's time with sets of this size, and less with larger ones.
    """
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
    found = interleaved(cases, 2, warm_up=False)
    ratio = found["released way of working"].median / found["ours"].median
    title = "One ID set of 500 images and four OOD sets of 100, ten draws"
    report("evaluating", title, found, "s", {"released / ours": ratio})


def main() -> None:
    if sys.argv[1:] == ["eager"]:
        answer_rates(eager, without_our_layers(network()))
    elif sys.argv[1:] == ["ours"]:
        macs.keep_freed_memory()  # as every command does
        answer_rates(ours, network())
    else:
        scoring()
        macs.keep_freed_memory()  # for both, which share a process
        evaluating(network())


if __name__ == "__main__":
    main()
