"""Training: the recipe, the loop, and the run folder that keeps what came of it."""

from typing import TYPE_CHECKING

from macs.core.lazy import lazily

if TYPE_CHECKING:
    from macs.training.loop import finetune, pretrain, starting_net
    from macs.training.recipe import PRETRAINING, Recipe

__all__ = ["PRETRAINING", "Recipe", "finetune", "pretrain", "starting_net"]

__getattr__ = lazily(
    __name__,
    {
        "PRETRAINING": "macs.training.recipe",
        "Recipe": "macs.training.recipe",
        "finetune": "macs.training.loop",
        "pretrain": "macs.training.loop",
        "starting_net": "macs.training.loop",
    },
)
