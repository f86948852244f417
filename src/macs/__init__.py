"""MaCS: margin-bounded confidence scores for out-of-distribution detection.

    net = macs.nets.load("classifier.pt", "wrn-40-2", classes=10)
    macs.finetune(net, train, outliers, method="macs", recipe=macs.Recipe(margin=0.5), run="runs/mine")
    print(macs.evaluate(net, test, {"svhn": svhn}))

Nothing is imported before it is used, so that `import macs` is quick and needs no torch.
"""

from typing import TYPE_CHECKING

from macs.core import __version__ as __version__
from macs.core import lazily

if TYPE_CHECKING:
    from macs import data, evaluation, experiments, losses, methods, metrics, nets, report, scores, training
    from macs.core.devices import use_device
    from macs.core.errors import MacsError
    from macs.core.interpreter import keep_freed_memory
    from macs.data import FeatureSet, ImageSet
    from macs.detector import Detector, FeatureDetector, FeatureRuntime, Runtime
    from macs.evaluation import evaluate
    from macs.training import PRETRAINING, Recipe, TrainingSpec, finetune, pretrain

__all__ = [
    "PRETRAINING",
    "Detector",
    "FeatureDetector",
    "FeatureRuntime",
    "FeatureSet",
    "ImageSet",
    "MacsError",
    "Recipe",
    "Runtime",
    "TrainingSpec",
    "data",
    "evaluate",
    "evaluation",
    "experiments",
    "finetune",
    "keep_freed_memory",
    "losses",
    "methods",
    "metrics",
    "nets",
    "pretrain",
    "report",
    "scores",
    "training",
    "use_device",
]


_MODULES = (
    "data",
    "evaluation",
    "experiments",
    "losses",
    "methods",
    "metrics",
    "nets",
    "report",
    "scores",
    "training",
)
__getattr__ = lazily(
    __name__,
    {
        **{name: f"macs.{name}" for name in _MODULES},
        "Detector": "macs.detector",
        "FeatureDetector": "macs.detector",
        "FeatureRuntime": "macs.detector",
        "FeatureSet": "macs.data",
        "ImageSet": "macs.data",
        "MacsError": "macs.core.errors",
        "PRETRAINING": "macs.training.recipe",
        "Recipe": "macs.training.recipe",
        "Runtime": "macs.detector",
        "TrainingSpec": "macs.training.spec",
        "evaluate": "macs.evaluation",
        "finetune": "macs.training",
        "keep_freed_memory": "macs.core.interpreter",
        "pretrain": "macs.training",
        "use_device": "macs.core.devices",
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
