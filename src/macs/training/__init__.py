"""Training: the recipe, the spec, the loop, and the run folder that holds the results."""

from typing import TYPE_CHECKING

from macs.core import lazily

if TYPE_CHECKING:
    from macs.training.loop import finetune, pretrain, run
    from macs.training.recipe import FROM_LIBRARY, PRETRAINING, Recipe
    from macs.training.runs import Epoch
    from macs.training.sources import starting_net
    from macs.training.spec import TrainingSpec

__all__ = [
    "FROM_LIBRARY",
    "PRETRAINING",
    "Epoch",
    "Recipe",
    "TrainingSpec",
    "finetune",
    "pretrain",
    "run",
    "starting_net",
]

__getattr__ = lazily(
    __name__,
    {
        "FROM_LIBRARY": "macs.training.recipe",
        "PRETRAINING": "macs.training.recipe",
        "Epoch": "macs.training.runs",
        "Recipe": "macs.training.recipe",
        "TrainingSpec": "macs.training.spec",
        "finetune": "macs.training.loop",
        "pretrain": "macs.training.loop",
        "run": "macs.training.loop",
        "starting_net": "macs.training.sources",
    },
)
