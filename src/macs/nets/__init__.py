"""Networks: pixels in [0, 1] -> features -> logits; one file per family.

    net = macs.nets.build("wrn-40-2", classes=10)
    net = macs.nets.load("cifar10_wrn.pt", "wrn-40-2", classes=10)

    net = macs.nets.build("timm/resnet50", classes=10, pretrained=True)

A new family is one new file here whose class is registered with `@net("family")`; a network is named by its family and
its numbers. Networks of timm, torchvision and transformers are named "timm/...", "torchvision/..." and "hf/...". Any
other nn.Module that returns logits works too: pass it, or name it as "module:Class".
"""

from typing import TYPE_CHECKING

from macs.core import lazily
from macs.data.preparation import NORMALISATIONS, Normalisation, Preparation
from macs.nets._building import LibraryNet, NoShapes, available, build, fitting_torchvision, net, usual_preparation
from macs.nets._checkpoints import class_names, fill, load, load_weights, misfit, recorded_preparation, save
from macs.nets._network import (
    Net,
    Normalise,
    ReluDropout,
    features_of,
    is_ours,
    last_linear,
    logits_of,
    name_of,
    preparation_for,
    preparation_of,
    prepared_for,
    require_net,
    running,
    set_dropout,
    set_geometry,
    through_head,
)
from macs.nets._weights import Origin, identity, origin_of, remember_origin, weights_hash

if TYPE_CHECKING:
    from macs.nets.from_clip import zero_shot

__getattr__ = lazily(__name__, {"zero_shot": "macs.nets.from_clip"})  # after the families that it builds on

__all__ = [
    "NORMALISATIONS",
    "LibraryNet",
    "Net",
    "NoShapes",
    "Normalisation",
    "Normalise",
    "Origin",
    "Preparation",
    "ReluDropout",
    "available",
    "build",
    "class_names",
    "features_of",
    "fill",
    "fitting_torchvision",
    "identity",
    "is_ours",
    "last_linear",
    "load",
    "load_weights",
    "logits_of",
    "misfit",
    "name_of",
    "net",
    "origin_of",
    "preparation_for",
    "preparation_of",
    "prepared_for",
    "recorded_preparation",
    "remember_origin",
    "require_net",
    "running",
    "save",
    "set_dropout",
    "set_geometry",
    "through_head",
    "usual_preparation",
    "weights_hash",
    "zero_shot",
]
