"""Running a trained network over images: the one place where batches, device and precision are decided.

for outputs in outputs_of(net, images, features=True):
    outputs.logits, outputs.features
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macs import nets
from macs.core.cache import Cache, kept
from macs.core.console import timed, warn
from macs.core.devices import arithmetic_of, channels_last, device_of, explained, use_bf16
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import batches_of, to_float

log = logging.getLogger(__name__)
RawPixels = Tensor | NDArray[np.uint8]  # N x H x W x 3, 0..255

NEAR = 0.01  # of 1, since bf16 rounds
GRADIENT_ROWS = 64  # images per pass: a gradient needs the activations of all layers at once
ENOUGH = 8  # images whose outputs are not all probabilities by chance
_warned: WeakSet[nn.Module] = WeakSet()  # networks whose softmax has been pointed out


class Outputs:
    """The outputs of a network for N images, in float32 on its own device, with the pixels and the network."""

    def __init__(
        self,
        logits: Tensor,
        features: Tensor | None = None,
        pixels: Tensor | None = None,
        net: nn.Module | None = None,
    ) -> None:
        self.logits = logits  # N x K
        self._features, self._pixels, self._net = features, pixels, net

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def features(self) -> Tensor:
        """N x D, the inputs of the last layer."""
        if self._features is None:
            raise MacsError("These outputs hold no features; ask for them with outputs_of(net, images, features=True).")
        return self._features

    @property
    def pixels(self) -> Tensor:
        """N x 3 x H x W in [0, 1]."""
        if self._pixels is None:
            raise MacsError("These outputs hold no pixels; get them from outputs_of(net, images).")
        return self._pixels

    @property
    def net(self) -> nn.Module:
        """The network itself, in evaluation mode, for scores that run it again."""
        if self._net is None:
            raise MacsError("These outputs hold no network; get them from outputs_of(net, images).")
        return self._net


def outputs_of(
    net: nn.Module,
    images: ImageSet | Iterable[RawPixels],
    *,
    features: bool = False,
    precision: str = "auto",
    doing: str = "scoring",
    progress: bool = False,
) -> Iterator[Outputs]:
    """Pass once over a set, prepared as the network expects it, or over uint8 batches N x H x W x 3; yield batches."""
    if not isinstance(images, ImageSet):
        with inference(net, precision, features) as run:
            yield from map(run, images)
        return
    images = nets.prepared_for(net, images)
    if log.isEnabledFor(logging.INFO):
        log.info("%s runs %s", nets.name_of(net), explained(device_of(net), precision))
    with timed(log, f"{doing} {images.name}, {len(images):,} images,"), inference(net, precision, features) as run:
        yield from map(run, batches_of(images, doing=doing, progress=progress))


@contextmanager
def inference(
    net: nn.Module, precision: str = "auto", features: bool = False
) -> Iterator[Callable[[RawPixels], Outputs]]:
    """A function from a uint8 batch, N x H x W x 3, to the network's outputs, in evaluation mode on its own device.

    with inference(net) as run:
        logits = run(batch).logits

    In a block of `macs.core.cache.keeping`, outputs that were computed before are read from the disk, if network,
    arithmetic and every pixel of the batch are the same: they are the same bits.

    If all outputs are probabilities or their logarithms, it ends with a warning, once per network.
    """
    device = device_of(net)
    bf16 = use_bf16(precision, device)
    was_training = net.training
    channels_last(net.eval())
    seen, last = 0, ""

    @torch.inference_mode()
    def run(batch: RawPixels) -> Outputs:
        pixels = to_float(torch.as_tensor(batch), device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            if features:
                penultimate, logits = nets.features_of(net, pixels)
                return Outputs(logits.float(), penultimate.float(), pixels, net)
            return Outputs(nets.logits_of(net, pixels).float(), None, pixels, net)

    cache = kept()
    identity = None if cache is None else nets.identity(net)
    try:
        ask: Callable[[RawPixels], Outputs] = run
        if cache is not None and identity is not None:
            ask = remembering(run, cache, repr((identity, features, bf16, arithmetic_of(device))), net)

        def watched(batch: RawPixels) -> Outputs:
            nonlocal seen, last
            outputs = ask(batch)
            if not seen or last:
                found = normalising_layer(outputs.logits)
                last = found if not seen or found == last else ""
            seen += len(outputs)
            return outputs

        yield watched
        if seen >= ENOUGH:
            warn_of_softmax(net, last)
    finally:
        net.train(was_training)


def normalising_layer(logits: Tensor) -> str:
    """Return the layer after which each row is a distribution or its logarithm; empty for logits."""
    for name, probabilities in (("softmax", logits), ("log_softmax", logits.exp())):
        if (probabilities >= 0).all() and ((probabilities.sum(dim=1) - 1).abs() <= NEAR).all():
            return name
    return ""


def warn_of_softmax(net: nn.Module, last: str) -> None:
    """Warn, once per network, that its outputs are those of a normalising layer, if it has one at its end."""
    if last and net not in _warned:
        _warned.add(net)
        misled = {
            "softmax": "probabilities, not logits, which misleads energy, maxlogit and most other scores, and training",
            "log_softmax": "logarithms of probabilities, not logits, so that energy is the same for every image",
        }
        warn(f"The outputs of {nets.name_of(net)} are {misled[last]}; remove the {last} at the end of the network.")


def remembering(
    run: Callable[[RawPixels], Outputs], cache: Cache, setting: str, net: nn.Module
) -> Callable[[RawPixels], Outputs]:
    """Return the same function, which looks into the cache first; `setting` tells all but the pixels."""
    device = device_of(net)

    @torch.inference_mode()
    def recall(batch: RawPixels) -> Outputs:
        raw = np.ascontiguousarray(torch.as_tensor(batch).cpu().numpy())
        key = hashlib.sha256(f"{setting} {raw.dtype} {raw.shape} ".encode() + raw.tobytes()).hexdigest()
        found = cache.get(key)
        if found is None:
            outputs = run(batch)
            parts = {"logits": outputs.logits, "features": outputs._features}
            tensors = {name: tensor for name, tensor in parts.items() if tensor is not None}
            if all(tensor.is_contiguous() for tensor in tensors.values()):  # others would come back in another layout
                cache.put(key, {name: tensor.cpu().numpy() for name, tensor in tensors.items()})
            return outputs
        # Cloned, since a product may round differently in memory that is aligned differently.
        tensors = {name: torch.from_numpy(array).clone().to(device) for name, array in found.items()}
        return Outputs(tensors["logits"], tensors.get("features"), to_float(torch.as_tensor(batch), device), net)

    return recall


@contextmanager
def tracked(pixels: Tensor) -> Iterator[Tensor]:
    """A copy of the pixels by which outputs can be differentiated, even within torch's inference mode.

    All images at once: in evaluation mode, outputs do not depend on other images.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield pixels.clone().requires_grad_()
