"""The grid behind the paper's tables and figures: scales, rows, and the trainings that they share.

A scale says how much of the paper's protocol to run (all of it, as much as fits into an evening, or a rehearsal on
small images) and what stands for each ID set, OOD set and network of the paper. Results are named by what was run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.experiments.margins import MARGINS
from macs.research import paper_numbers as numbers
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
        """Whether budget and data are the paper's, so that a difference from its numbers means something."""
        recipes = {key: replace(getattr(self, key), precision="auto") for key in ("pretraining", "finetuning")}
        return replace(self, about=FULL.about, released=False, **recipes) == FULL

    def ood_sets(self, id: str) -> dict[str, str]:
        """Return the OOD sets in the averages for this ID set: the paper's name -> the set that stands for it."""
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
FIXED = 0.5  # the paper's margin where it does not choose one
SettingPairs = tuple[tuple[str, str | float], ...]


@dataclass(frozen=True)
class PaperTraining:
    """One training, named by what is really run. Trainings of one ID set and network share the pretraining, `msp`.

    In the released loop over margins, a training starts where the one with the margin before ended: its `round` counts
    the trainings between it and the pretraining.
    """

    id: str
    net: str
    method: str
    margin: float | None = None
    settings: SettingPairs = ()  # of the method, besides the margin
    seed: int = 0
    round: int = 0

    @property
    def name(self) -> str:
        margin = "" if self.margin is None else f"-m{self.margin:g}"
        settings = "".join(
            f"-{value}" if isinstance(value, str) else f"-{key}{value:g}" for key, value in self.settings
        )
        loop = f"-round{self.round}" if self.round else ""
        return f"{self.id}-{self.net}-{self.method}{margin}{settings}{loop}-seed{self.seed}"

    @property
    def pretraining(self) -> "PaperTraining":
        return PaperTraining(self.id, self.net, "msp", seed=self.seed)

    def before(self, margins: Sequence[float]) -> "PaperTraining":
        """Return the training whose network this one starts from."""
        if not self.round:
            return self.pretraining
        earlier = replace(self, round=self.round - 1)
        return earlier if self.margin is None else replace(earlier, margin=margins[self.round - 1])


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a method, with a fixed margin or with one chosen on validation or test images."""

    name: str
    label: str
    method: str
    margin: float | Literal["validation", "test"] | None = None
    settings: SettingPairs = ()
    paper: str = ""  # what the paper's tables call it, if they have it
    as_printed: bool = False  # whether the paper's run has the same settings
    long: bool = False  # for as many epochs as the released loop gives to the paper's margin

    def training(self, id: str, net: str, margin: float | None, seed: int, scale: PaperScale) -> PaperTraining:
        training = PaperTraining(id, net, self.method, margin, self.settings, seed)
        if self.long:
            return replace(training, round=scale.margins.index(FIXED))
        looped = scale.released and self.method == "macs" and not self.settings
        return replace(training, round=scale.margins.index(margin)) if looped and margin is not None else training

    def trainings(self, id: str, net: str, seeds: Sequence[int], scale: PaperScale) -> Iterator[PaperTraining]:
        """Yield all trainings that the row depends on, those before others that start from them."""
        for margin in scale.margins if isinstance(self.margin, str) else [self.margin]:
            for seed in seeds:
                chain = [self.training(id, net, margin, seed, scale)]
                while chain[0].round:
                    chain.insert(0, chain[0].before(scale.margins))
                yield from chain


MSP = TableRow("msp", "MSP", "msp", paper="msp")  # the paper is silent on its pretraining
OE = TableRow("oe", "OE", "oe", paper="oe", as_printed=True)
OE_LONG = TableRow("oe-long", f"OE, as long as MaCS with m = {FIXED}", "oe", long=True)
BASELINES = (
    OE,
    *(TableRow(name.lower(), name, name.lower(), paper=name.lower()) for name in ("Energy", "MixOE", "DivOE")),
)
MACS = TableRow("macs", f"MaCS, m = {FIXED}", "macs", FIXED, paper="macs")
BY_VALIDATION = TableRow("macs-validation", "MaCS, validation-chosen", "macs", "validation")
BY_TEST = TableRow("macs-test", "MaCS*, test-chosen", "macs", "test", paper="macs*")
ONLY_MCD = TableRow("mcd", "+MCD, without margin", "mcd")
UNBOUNDED = TableRow("unbounded", "−MCD, the push without bound", "macs", settings=(("variant", "unbounded"),))
ABLATIONS = (
    OE,
    *(TableRow(f"macs-{margin:g}", f"MaCS, m = {margin:g}", "macs", margin) for margin in (0.1, FIXED, 0.9)),
    ONLY_MCD,
    UNBOUNDED,
    TableRow("hinge", "hinge on probabilities, m = 0.5", "macs", settings=(("variant", "hinge"),)),
    TableRow("hinge-energy", "hinge on energies, m = 10", "macs", settings=(("on", "energy"), ("variant", "hinge"))),
)
METHODS = (*BASELINES, MACS, BY_VALIDATION, BY_TEST)
RELEASED: dict[str, tuple[str, SettingPairs]] = {  # a row's method and settings in the released code
    "energy": ("energy-oe", ()),
    "mixoe": ("mixoe", (("beta", 1.0),)),
    "divoe": ("divoe", (("eps", 0.01),)),
}


@dataclass(frozen=True)
class PaperPart:
    """A table or figure: the ID sets and networks in it, by the paper's names, and its rows."""

    ids: tuple[str, ...]
    nets: tuple[str, ...]
    rows: tuple[TableRow, ...] = METHODS
    metrics: tuple[str, ...] = ("auroc", "aupr", "fpr95")


CIFAR, OTHERS = IDS[:2], IDS[2:]
PAIR, TRIO = NETS[:2], NETS[1:]
PARTS = {
    "table1": PaperPart(CIFAR, NETS[:1], metrics=("auroc", "aupr", "fpr95", "accuracy")),
    "table2": PaperPart(OTHERS, NETS[:1], metrics=("auroc", "aupr", "fpr95", "accuracy")),
    "table3": PaperPart(CIFAR, PAIR),
    "table4": PaperPart(OTHERS, PAIR),
    "table5": PaperPart(IDS, NETS, (BY_TEST, BY_VALIDATION)),
    "table6": PaperPart(CIFAR, TRIO),
    "table7": PaperPart(OTHERS, TRIO),
    "figure1": PaperPart(("cifar100",), NETS[:1], (MSP, OE, MACS)),
    "figure3": PaperPart(("cifar100",), PAIR, (MACS, OE)),
    "figure4": PaperPart(IDS, PAIR, (BY_VALIDATION,)),
    "figure5": PaperPart(IDS, NETS[:1], (OE, MACS, ONLY_MCD, UNBOUNDED)),
    "ablation": PaperPart(CIFAR, NETS[:1], ABLATIONS, metrics=("auroc", "fpr95", "accuracy")),
}


def chosen_parts(targets: Sequence[str]) -> list[str]:
    """Return the parts that the targets name; `all` stands for every part of the paper, so not for our own ablation."""
    if not targets:
        raise MacsError(f"Name what to reproduce: {', '.join(PARTS)} or all.")
    for target in targets:
        if target not in (*PARTS, "all"):
            raise unknown("table or figure", target, [*PARTS, "all"])
    return [part for part in PARTS if part in targets or ("all" in targets and part != "ablation")]


@dataclass(frozen=True)
class Only:
    """The ID sets, networks and rows to which a reproduction is restricted; no rows means all of them."""

    ids: tuple[str, ...] = IDS
    nets: tuple[str, ...] = NETS
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = tuple(dict.fromkeys(row.name for part in PARTS.values() for row in (*part.rows, OE_LONG)))
        kinds = (("ID set in the paper", self.ids, IDS), ("network in the paper", self.nets, NETS))
        for kind, names, known in (*kinds, ("row of a table", self.rows, rows)):
            for name in names:
                if name not in known:
                    raise unknown(kind, name, list(known))


def rows_of(part: str, scale: PaperScale, only: Only) -> tuple[TableRow, ...]:
    """Return the rows of a part that are wanted, as in the released code if the scale says so."""
    rows = PARTS[part].rows
    if scale.released:
        rows = tuple(_as_released(row) for row in rows)
        if MACS.name in (row.name for row in rows) and part.startswith("table"):
            rows = (*rows, OE_LONG)
    return tuple(row for row in rows if not only.rows or row.name in only.rows)


def _as_released(row: TableRow) -> TableRow:
    method, settings = RELEASED.get(row.name, (row.method, row.settings))
    return replace(row, method=method, settings=settings, as_printed=bool(row.paper) and row != MSP)


def places(part: PaperPart, scale: PaperScale, only: Only) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return each ID set and network that is run for a part, with those of the paper that it stands for."""
    stands_for: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for id in part.ids:
        for net in part.nets:
            if id in only.ids and net in only.nets:
                stands_for.setdefault((scale.ids[id], scale.nets[net]), []).append((id, net))
    return stands_for


def trainings(parts: Sequence[str], scale: PaperScale, only: Only, seeds: Sequence[int]) -> list[PaperTraining]:
    """Return each training that the parts need, ID set by ID set, and after the one that it starts from."""
    needed = dict.fromkeys(training for part in parts for training in _trainings(part, scale, only, seeds))
    if not needed:
        wanted = f"{', '.join(only.ids)} on {', '.join(only.nets)}"
        rows = f" in the rows {', '.join(only.rows)}" if only.rows else ""
        raise MacsError(f"{', '.join(parts)} has nothing of {wanted}{rows}.")
    return sorted(needed, key=lambda t: (t.id, t.net, t.seed, t.method != "msp", t.round))


def _trainings(part: str, scale: PaperScale, only: Only, seeds: Sequence[int]) -> Iterator[PaperTraining]:
    rows = rows_of(part, scale, only)
    for id, net in places(PARTS[part], scale, only):
        for row in (MSP, *rows) if rows else ():
            yield from row.trainings(id, net, seeds, scale)
