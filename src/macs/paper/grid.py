"""The trainings behind each table and figure of the paper: one grid, which they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.paper.scales import IDS, NETS, PaperScale

FIXED = 0.5  # the paper's margin where it does not choose one


@dataclass(frozen=True)
class Training:
    """One training, named by what is really run. Trainings of one ID set and network share the pretraining, `msp`."""

    id: str
    net: str
    method: str
    margin: float | None = None
    unbounded: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        variant = "-unbounded" if self.unbounded else "" if self.margin is None else f"-m{self.margin:g}"
        return f"{self.id}-{self.net}-{self.method}{variant}-seed{self.seed}"


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a method, with a fixed margin or with one chosen on validation or test images."""

    label: str
    method: str
    margin: float | Literal["validation", "test"] | None = None
    unbounded: bool = False
    paper: str = ""  # what the paper's tables call it, if they have it

    def trainings(self, id: str, net: str, seeds: Sequence[int], margins: Sequence[float]) -> list[Training]:
        """All trainings that the row depends on."""
        tried = margins if isinstance(self.margin, str) else [self.margin]
        return [Training(id, net, self.method, m, self.unbounded, seed) for m in tried for seed in seeds]


BASELINES = tuple(TableRow(name, name.lower(), paper=name.lower()) for name in ("OE", "Energy", "MixOE", "DivOE"))
MSP, OE = TableRow("MSP", "msp", paper="msp"), BASELINES[0]
MACS = TableRow(f"MaCS, m = {FIXED}", "macs", FIXED, paper="macs")
BY_VALIDATION = TableRow("MaCS, validation-chosen", "macs", "validation")
BY_TEST = TableRow("MaCS*, test-chosen", "macs", "test", paper="macs*")
UNBOUNDED = TableRow("MCD without margin", "macs", unbounded=True)
METHODS = (*BASELINES, MACS, BY_VALIDATION, BY_TEST)


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
    "figure5": PaperPart(IDS, NETS[:1], (MACS, UNBOUNDED)),
}


def chosen_parts(targets: Sequence[str]) -> list[str]:
    """The parts that the targets name; `all` stands for every part."""
    if not targets:
        raise MacsError(f"Name what to reproduce: {', '.join(PARTS)} or all.")
    for target in targets:
        if target not in (*PARTS, "all"):
            raise unknown("table or figure", target, [*PARTS, "all"])
    return [part for part in PARTS if part in targets or "all" in targets]


def places(part: PaperPart, scale: PaperScale, only: "Only") -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Each ID set and network that is run for a part, with those of the paper that it stands for."""
    stands_for: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for id in part.ids:
        for net in part.nets:
            if id in only.ids and net in only.nets:
                stands_for.setdefault((scale.ids[id], scale.nets[net]), []).append((id, net))
    return stands_for


@dataclass(frozen=True)
class Only:
    """The ID sets and networks of the paper to which a reproduction is restricted."""

    ids: tuple[str, ...] = IDS
    nets: tuple[str, ...] = NETS

    def __post_init__(self) -> None:
        for kind, names, known in (("ID set in the paper", self.ids, IDS), ("network in the paper", self.nets, NETS)):
            for name in names:
                if name not in known:
                    raise unknown(kind, name, list(known))


def trainings(parts: Sequence[str], scale: PaperScale, only: Only, seeds: Sequence[int]) -> list[Training]:
    """Every training that the parts need, once, ID set by ID set; pretrainings before those that start from them."""
    needed = dict.fromkeys(training for part in parts for training in _trainings(PARTS[part], scale, only, seeds))
    if not needed:
        raise MacsError(f"{', '.join(parts)} has nothing of {', '.join(only.ids)} on {', '.join(only.nets)}.")
    return sorted(needed, key=lambda t: (t.id, t.net, t.seed, t.method != "msp"))


def _trainings(part: PaperPart, scale: PaperScale, only: Only, seeds: Sequence[int]) -> Iterator[Training]:
    for id, net in places(part, scale, only):
        for row in (MSP, *part.rows):
            yield from row.trainings(id, net, seeds, scale.margins)
