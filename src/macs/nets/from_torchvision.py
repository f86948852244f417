"""Networks of torchvision: "torchvision/resnet50" or, for one of several weights, "torchvision/resnet50.IMAGENET1K_V1".

TorchVision maintainers and contributors: TorchVision, https://github.com/pytorch/vision.
"""

from typing import Any, ClassVar

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.preparation import Preparation
from macs.nets import net
from macs.nets._building import (
    LibraryNet,
    State,
    building,
    downloading,
    last_defined_linear,
    library,
    no_such_model,
    usable_preparation,
)


@net("torchvision")
class TorchvisionNet(LibraryNet):
    examples: ClassVar = ("torchvision/resnet50",)

    def __init__(self, model: str, *, classes: int, size: int | None = None) -> None:
        preparation = self.usual_preparation(model).at_size(size)
        with building(f"torchvision/{model}"):
            wrapped = _create(model, size, num_classes=classes)
        if getattr(wrapped, "aux_logits", False):
            raise MacsError(
                f"torchvision/{model} has other outputs besides the logits in training; use timm's version of it."
            )
        super().__init__(f"torchvision/{model}", classes, wrapped, last_defined_linear(wrapped), preparation)

    @classmethod
    def usual_preparation(cls, model: str) -> Preparation:
        _, weights = _published(model)
        steps = weights.transforms()
        (crop,), (resize,) = steps.crop_size, steps.resize_size
        return usable_preparation(
            f"torchvision/{model}", (crop, crop), resize, steps.interpolation.value, steps.mean, steps.std
        )

    @classmethod
    def pretrained(cls, model: str, size: int | None) -> State:
        _, weights = _published(model)
        with downloading(f"torchvision/{model}", "weights"):
            state: State = weights.get_state_dict(progress=False, check_hash=True)
        return state


def _create(model: str, size: int | None, **options: Any) -> Any:
    """Make a network of torchvision; a vision transformer is made for this size, since it cannot take others."""
    models, _ = _published(model)
    name = model.partition(".")[0]
    if size is not None and name.startswith("vit_"):
        options["image_size"] = size
    return models.get_model(name, **options)


def _published(model: str) -> tuple[Any, Any]:
    """Return torchvision's models, and the published weights of a name; raise if there is no such model."""
    models = library("torchvision", "torchvision").models
    name, dot, tag = model.partition(".")
    known = models.list_models(module=models)
    if name not in known:
        raise no_such_model("torchvision", name, known)
    weights = models.get_model_weights(name)
    if dot and tag not in weights.__members__:
        raise unknown(f"version of torchvision/{name}", tag, [*weights.__members__])
    return models, weights[tag or "DEFAULT"]
