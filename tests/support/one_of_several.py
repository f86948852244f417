"""One of several processes that compute the first step of every method together; test_distributed.py starts them.

python one_of_several.py FOLDER RANK COUNT [smooth]
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from macs import methods, nets
from macs.core.processes import Processes
from macs.data import ImageSet
from macs.methods import Batch
from macs.nets import _network, wrn
from macs.training.distributed import average_norms, shared_norms
from macs.training.recipe import Recipe
from macs.training.training_batches import pixel_batches
from tiny import noise

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("msp", {}),
    ("logitnorm", {}),
    ("oe", {}),
    ("mcd", {}),
    ("energy", {}),
    ("energy-oe", {}),
    ("mixoe", {}),
    ("mixoe", {"mix": "cutmix", "joint": True}),
    ("divoe", {}),
    ("dal", {"rho": 0.1}),
    ("oecc", {}),
    ("aoe", {}),
    ("macs", {"margin": 0.9}),
    ("macs", {"variant": "hinge"}),
    ("macs", {"variant": "unbounded", "reduction": "paper"}),
]
SIZES = ((16, 16), (13, 10))  # images and outliers of a batch; the second is shared out unevenly


@contextmanager
def smooth_activations() -> Iterator[None]:
    """Networks with softplus in place of ReLU.

    In float32, rounding decides on which side of zero a few activations lie, and so whether they have a gradient at
    all: a single one changes gradients of these small layers by percents, whether the rounding comes from the number of
    processes or from input that is moved by its last bit. Without the kink, only rounding is left.
    """

    def softplus(x: Tensor, inplace: bool = False) -> Tensor:
        return torch.nn.functional.softplus(x, beta=5)

    modules, relu = (vars(wrn), vars(_network)), torch.nn.functional.relu
    for module in modules:
        module["relu"] = softplus
    try:
        yield
    finally:
        for module in modules:
            module["relu"] = relu


def batch_of(processes: Processes, images: int, outliers: int, dtype: torch.dtype) -> Batch:
    """The first batch, or this process's part of it."""
    recipe = Recipe(batch_in=images, batch_out=outliers, augment="crop-flip", jitter=0.2, outlier_mix="diverse")
    torch.manual_seed(0)
    mixer = nets.build("wrn-10-1", classes=3)
    known = ImageSet.from_array(noise(40, seed=0).pixels[:], np.arange(40) % 3, ("a", "b", "c"))
    batch = next(pixel_batches(mixer, mixer, known, noise(40, seed=1), recipe, torch.device("cpu"), processes)(0))
    return replace(batch, images=batch.images.to(dtype), outliers=batch.outliers.to(dtype))


def first_steps(processes: Processes, dtype: torch.dtype = torch.float64) -> dict[str, dict[str, Tensor]]:
    """Loss, logits, gradients and running statistics of every method."""
    found = {}
    for number, (name, settings) in enumerate(METHODS):
        for sizes in SIZES:
            batch = batch_of(processes, *sizes, dtype)
            torch.manual_seed(number)
            net = nets.build("wrn-10-1", classes=3, dropout=0.0).to(dtype)
            torch.manual_seed(number)
            method = methods.build(name, settings).prepare(net, batch)
            net.train()
            with shared_norms(net, processes, synchronised=True):
                step = method.step(net, batch)
                methods.check_step(step, method, batch)
                step.loss.backward()
            gradients = {key: weight.grad for key, weight in net.named_parameters() if weight.grad is not None}
            processes.average(gradients.values())
            average_norms(net, processes)
            statistics = {key: value for key, value in net.named_buffers() if "running" in key}
            values = {"loss": step.loss, "logits_in": step.logits_in, "logits_out": step.logits_out}
            found[f"{number}-{name}-{sizes[0]}"] = {
                key: value.detach() for key, value in {**values, **gradients, **statistics}.items()
            }
    return found


def main(folder: Path, rank: int, count: int, *kind: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=count)
    if kind == ("smooth",):
        with smooth_activations():
            found = first_steps(Processes(rank, count), torch.float32)
    else:
        found = first_steps(Processes(rank, count))
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
