"""MaCS: margin-bounded confidence scores for out-of-distribution detection.

    net = macs.nets.load("classifier.pt", "wrn-40-2", classes=10)
    macs.finetune(net, train, outliers, method="macs", recipe=macs.Recipe(margin=0.5), run="runs/mine")
    print(macs.evaluate(net, test, {"svhn": svhn}))

Nothing is imported before it is used, so that `import macs` is quick and needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from macs import data, losses, methods, metrics, nets, report, scores
    from macs.data import ImageSet
    from macs.detector import Detector
    from macs.errors import MacsError
    from macs.evaluation import evaluate
    from macs.recipe import Recipe
    from macs.training import finetune, pretrain

_MODULES = {"data", "evaluation", "losses", "margins", "methods", "metrics", "nets", "report", "scores", "training"}
_NAMES = {
    "Detector": "macs.detector",
    "ImageSet": "macs.data",
    "MacsError": "macs.errors",
    "Recipe": "macs.recipe",
    "evaluate": "macs.evaluation",
    "finetune": "macs.training",
    "pretrain": "macs.training",
}

__all__ = [
    "Detector",
    "ImageSet",
    "MacsError",
    "Recipe",
    "data",
    "evaluate",
    "finetune",
    "losses",
    "methods",
    "metrics",
    "nets",
    "pretrain",
    "report",
    "scores",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"macs.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'macs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
