"""How much of the paper's protocol to run: all of it, as much as fits into an evening, or a rehearsal on small images.

A scale says what stands for each ID set, OOD set and network of the paper. Results are always named by what was run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from macs.experiments.margins import MARGINS
from macs.paper import numbers
from macs.training.recipe import PRETRAINING, Recipe

IDS = ("cifar10", "cifar100", "svhn", "imagenet32")
NETS = ("wrn-40-2", "allconv", "resnet-18", "densenet-121")
OOD = ("textures", "isun", "lsun-c", "svhn", "places365")


@dataclass(frozen=True)
class PaperScale:
    name: str
    about: str  # what it leaves out, for the readers of the tables
    pretraining: Recipe
    finetuning: Recipe
    outliers: str
    ids: Mapping[str, str]  # the paper's ID set -> the set that stands for it, perhaps itself
    nets: Mapping[str, str]
    ood: Mapping[str, str]
    margins: tuple[float, ...] = MARGINS
    size: int = 32  # edge of the images, in pixels
    validation: int = 2000  # held-out ID images, and as many outliers, where a set has no validation split
    limit: int = 0  # at most this many images of a validation or test set, spread over it; 0 means all
    complete: bool = True  # whether missing data is an error rather than a gap in the table
    near: Mapping[str, str] = field(default_factory=dict)  # ID set -> near unknowns, which the paper does not measure
    released: bool = False  # whether methods and margins run as in the released code, where that differs

    @property
    def as_printed(self) -> bool:
        """Whether the budget is the paper's, so that a difference from its numbers means something."""
        return self.name == "full"

    def ood_sets(self, id: str) -> dict[str, str]:
        """The OOD sets in the averages for this ID set: the paper's name -> the set that stands for it."""
        wanted = {name for paper, ours in self.ids.items() if ours == id for name in numbers.averaged_over(paper)}
        return {name: ours for name, ours in self.ood.items() if name in wanted}


def themselves(names: tuple[str, ...]) -> dict[str, str]:
    return {name: name for name in names}


FULL = PaperScale(
    name="full",
    about="The paper's protocol: 100 epochs of pretraining, 10 of fine-tuning, 128 + 128 images per step.",
    pretraining=PRETRAINING,
    finetuning=Recipe(),
    outliers="300k",
    ids=themselves(IDS),
    nets=themselves(NETS),
    ood=themselves(OOD),
)
LAB = replace(
    FULL,
    name="lab",
    about="A fifth of the paper's budget for fine-tuning, on the data that is on disk.",
    pretraining=replace(PRETRAINING, epochs=4, epoch_size=10_000, batch_in=64, dropout=0.0),
    finetuning=Recipe(epochs=10, epoch_size=10_000, dropout=0.3),
    validation=1000,
    complete=False,
    near={"cifar10": "cifar100", "cifar100": "cifar10"},
)
SMOKE = PaperScale(
    name="smoke",
    about="A rehearsal: digits stand for every ID set, small networks for the paper's; the numbers cannot be compared.",
    pretraining=replace(PRETRAINING, epochs=4, batch_in=32, dropout=0.0, precision="float32"),
    finetuning=Recipe(epochs=3, batch_in=64, batch_out=64, lr=0.01, dropout=0.0, precision="float32"),
    outliers="digits-outliers",
    ids=dict.fromkeys(IDS, "digits"),
    nets={"wrn-40-2": "wrn-10-1", "allconv": "wrn-16-1", "resnet-18": "wrn-10-1", "densenet-121": "wrn-16-1"},
    ood={
        "textures": "digits-textures",
        "isun": "digits-scans",
        "lsun-c": "digits-text",
        "svhn": "digits-8-9",
        "places365": "digits-faces",
    },
    size=16,
    limit=300,
)
SCALES = {scale.name: scale for scale in (FULL, LAB, SMOKE)}
