"""Running a trained network over images: the one place where scoring, predicting and exporting meet the network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from macs import nets
from macs.core.devices import channels_last, device_of, keep_freed_memory, use_bf16
from macs.data.batches import to_float

BATCH = 256


class Outputs(NamedTuple):
    """What the network says of one batch, in float32 on the network's device."""

    logits: Tensor
    features: Tensor | None


@contextmanager
def inference(net: nn.Module, precision: str = "auto", features: bool = False) -> Iterator[Callable[[Tensor], Outputs]]:
    """A function from a uint8 batch, N x H x W x 3, to the network's outputs, in evaluation mode on its own device.

    with inference(net) as run:
        logits = run(batch).logits
    """
    device = device_of(net)
    if device.type == "cpu":
        keep_freed_memory()
    bf16 = use_bf16(precision, device)
    was_training = net.training
    channels_last(net.eval())

    @torch.inference_mode()
    def run(batch: Tensor) -> Outputs:
        pixels = to_float(batch, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            if features:
                found, logits = nets.features_of(net, pixels)
                return Outputs(logits.float(), found.float())
            return Outputs(nets.logits_of(net, pixels).float(), None)

    try:
        yield run
    finally:
        net.train(was_training)
