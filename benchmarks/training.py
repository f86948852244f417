"""Fine-tuning end to end, in images a second: ours, the released way of working, and the machine's limit."""

import copy
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import macs
from bench import WRN_40_2, in_new_process, interleaved, multiply_rate, report, seconds
from macs import nets
from macs.data import ImageSet
from macs.losses import outlier_exposure
from macs.methods import Batch
from macs.methods.divoe import DiversifiedOutlierExposure
from macs.training.recipe import Recipe
from released import PilImages, train, without_our_layers

STEPS = 3
random = np.random.default_rng(0)
KNOWN = random.integers(0, 256, (4096, 32, 32, 3), dtype=np.uint8)
LABELS = random.integers(0, 10, len(KNOWN))
OUTLIERS = random.integers(0, 256, (4096, 32, 32, 3), dtype=np.uint8)


def ours(net: nn.Module) -> float:
    """Images a second of an epoch of macs.finetune, after a step to warm up."""
    macs.keep_freed_memory()  # as every command does
    known = ImageSet.from_array(KNOWN, LABELS, [str(i) for i in range(10)])
    outliers = ImageSet.from_array(OUTLIERS)
    for steps in (1, STEPS):
        with tempfile.TemporaryDirectory() as folder:
            recipe, run = Recipe(epochs=1, epoch_size=128 * steps), Path(folder) / "run"
            (epoch,) = macs.finetune(net, known, outliers, recipe=recipe, run=run, progress=False)
    return epoch.images_per_second


def released(net: nn.Module) -> float:
    return STEPS * 256 / train(without_our_layers(net), PilImages(KNOWN, LABELS), PilImages(OUTLIERS), STEPS)


def straightforward_extrapolation(net: nn.Module, outliers: Tensor, eps: float = 0.05) -> Tensor:
    """DivOE's inner steps as one would first write them: backward() fills every parameter's gradient too."""
    moved = (outliers + torch.empty_like(outliers).uniform_(-eps, eps)).clamp(0, 1)
    net.eval()
    for _ in range(5):
        moved = moved.detach().requires_grad_(True)
        outlier_exposure(net(moved)).backward()
        moved = moved + eps / 4 * moved.grad.sign()
        moved = torch.minimum(torch.maximum(moved, outliers - eps), outliers + eps).clamp(0, 1)
    net.train()
    return moved.detach()


def divoe() -> None:
    net = nets.build("wrn-40-2", classes=10)
    images = [torch.rand(128, 3, 32, 32) for _ in range(2)]
    labels = torch.randint(10, (128,))
    plain = without_our_layers(copy.deepcopy(net))
    fast: Any = copy.deepcopy(net)
    fast.to(memory_format=torch.channels_last)
    method = DiversifiedOutlierExposure()

    def theirs() -> None:
        x, o = images
        harder = straightforward_extrapolation(plain, o[:64])
        logits = plain(torch.cat([x, harder, o[64:]]))
        loss = nn.functional.cross_entropy(logits[:128], labels) + 0.5 * outlier_exposure(logits[128:])
        plain.zero_grad()
        loss.backward()

    def mine() -> None:
        x, o = (each.contiguous(memory_format=torch.channels_last) for each in images)
        fast.zero_grad()
        method.step(fast, Batch(x, labels, o)).loss.backward()

    found = interleaved({"straightforward": lambda: seconds(theirs), "ours": lambda: seconds(mine)}, 2)
    ratio = found["straightforward"].median / found["ours"].median
    report("divoe", "One DivOE step of WRN-40-2, 128 + 128 images", found, "s", {"straightforward / ours": ratio})


def most_images(dtype: torch.dtype) -> float:
    """The images per second that multiplication alone would allow."""
    return multiply_rate(dtype) / (3 * WRN_40_2)


def compare(name: str, repeats: int) -> None:
    cases: dict[str, Callable[[], float]] = {
        "released way of working": partial(in_new_process, __file__, "released", name),
        "ours": partial(in_new_process, __file__, "ours", name),
    }
    if name == "wrn-40-2":
        for precision, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
            limit = f"limit by {precision} multiplication"
            cases[limit] = partial(most_images, dtype)
    found = interleaved(cases, repeats, warm_up=False)
    rest = (case for case in found if case != "ours")
    ratios = {f"ours / {case}": found["ours"].median / found[case].median for case in rest}
    report(f"training-{name}", f"Fine-tuning {name} with MaCS, 128 + 128", found, "images/s", ratios)


def main() -> None:
    if sys.argv[1:]:
        torch.manual_seed(0)
        print({"ours": ours, "released": released}[sys.argv[1]](nets.build(sys.argv[2], classes=10)))
        return
    compare("wrn-40-2", 3)
    compare("allconv", 2)
    divoe()


if __name__ == "__main__":
    main()
