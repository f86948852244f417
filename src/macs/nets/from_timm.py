"""Networks of timm: "timm/resnet50" or, for one of several published weights, "timm/resnet50.a1_in1k".

Wightman: PyTorch Image Models, https://github.com/huggingface/pytorch-image-models.
"""

import math
from typing import Any, ClassVar

from torch import Tensor

from macs.core.console import warn
from macs.core.registry import unknown
from macs.data.preparation import Preparation
from macs.nets import net
from macs.nets._building import LibraryNet, State, building, downloading, library, no_such_model, usable_preparation


@net("timm")
class TimmNet(LibraryNet):
    examples: ClassVar = ("timm/resnet50",)

    def __init__(self, model: str, *, classes: int, size: int | None = None) -> None:
        with building(f"timm/{model}"):
            wrapped = _create(model, size, num_classes=classes)
        preparation = self.usual_preparation(model).at_size(size)
        super().__init__(f"timm/{model}", classes, wrapped, wrapped.get_classifier(), preparation)

    def features(self, pixels: Tensor) -> Tensor:
        model: Any = self.wrapped
        features: Tensor = model.forward_head(model.forward_features(self.normalise(pixels)), pre_logits=True)
        return features.flatten(1)

    @classmethod
    def usual_preparation(cls, model: str) -> Preparation:
        timm, published = _timm(model)
        config = timm.data.resolve_data_config(pretrained_cfg=published.to_dict())
        if config["crop_mode"] != "center":
            warn(
                f"timm prepares images for {model} without cropping them (crop mode {config['crop_mode']!r}), but macs "
                "crops the centre; the two differ for images that are not square."
            )
        _, height, width = config["input_size"]
        resize = math.floor(width / config["crop_pct"])
        return usable_preparation(
            f"timm/{model}", (height, width), resize, config["interpolation"], config["mean"], config["std"]
        )

    @classmethod
    def pretrained(cls, model: str, size: int | None) -> State:
        with downloading(f"timm/{model}", "weights"):
            state: State = _create(model, size, pretrained=True).state_dict()
        return state


def _create(model: str, size: int | None, **options: Any) -> Any:
    """Return a network as timm makes it, for this size if its images must have a fixed one."""
    timm, config = _timm(model)
    if size is not None and config.fixed_input_size and size != config.input_size[-1]:
        options["img_size"] = size
    return timm.create_model(model, **options)


def _timm(model: str) -> tuple[Any, Any]:
    """Return timm, and what it records about a model's published weights; raise if it has no such model."""
    timm = library("timm", "timm")
    name, dot, tag = model.partition(".")
    if not timm.is_model(name):
        raise no_such_model("timm", model, timm.list_models())
    known = [full_name.partition(".")[2] for full_name in timm.list_pretrained(f"{name}.*")]
    if dot and tag not in known:
        raise unknown(f"version of timm/{name}", tag, known or ["none"])
    return timm, timm.get_pretrained_cfg(model)
