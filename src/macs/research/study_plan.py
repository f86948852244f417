"""What the study trains: rows, the small grid that each row's settings are chosen from, and seeds.

There are two budgets. The tables of today come from short trainings (BASE). SCREENING is the first stage of a larger
study: every method once, with five times as many images, judged by unknown images that no training resembles.

Every training starts from the same classifier and sees the same number of images. A row's learning rate and weights are
chosen from its candidates with seed 0 on validation images and validation outliers: lower rates are tried as long as
each is better than the one before. The other seeds then repeat the chosen candidate alone, and the one that is best of
all rows, which is recommended. The order of `trials` is the order of work: each row once, then the grids, then seed by
seed, so that whatever is finished makes a table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from macs.training.recipe import Recipe

NET, SECOND_NET, ID = "wrn-40-2", "allconv", "cifar10"
OUTLIERS, VAL_OUTLIERS = "outliers_train.npy", "outliers_val.npy"  # in the data folder
FAR, NEAR = ("svhn", "textures", "places365"), ("cifar100",)  # from the classes of the ID set
OOD = FAR + NEAR
VALIDATION, VAL_IMAGES, TEST_IMAGES = 2000, 1000, 3000  # of CIFAR-10's test images, the first are for validation
OOD_IMAGES, FIT_IMAGES = 1000, 2000
MADE_IMAGES = 500  # validation images that unknown ones are made from, for `--score auto`
IMAGES = 2000  # ID images of a training, and as many outliers
BASE = Recipe(epochs=1, epoch_size=IMAGES, batch_in=32, batch_out=32, dropout=0.0, lr=0.005, precision="float32")
AS_IT_IS = Recipe(dropout=0.0, precision="float32")  # of the classifier that is not trained further
RATES = (0.005, 0.002, 0.001)  # none is higher: the first already costs OE nearly five points of validation accuracy
AVERAGED_RATES = (0.01, 0.005, 0.002)  # for a network that then goes half of the way back to its start
SCORES = (
    *("msp", "maxlogit", "energy", "gen", "react", "ash", "scale", "knn", "vim", "mahalanobis", "relative-mahalanobis"),
    *("energy+knn", "gen+knn", "energy+vim", "msp+vim", "energy+knn+vim"),
)
KEPT = ("msp", "energy", "knn", "energy+knn")  # scores whose confidences are stored
SEEDS, MORE_SEEDS = (0, 1, 2), (3, 4)
LARGER = Recipe(epochs=1, epoch_size=10_000, batch_in=64, batch_out=64, dropout=0.0, lr=0.005, precision="bf16")
LARGER_SCORES = (
    *SCORES,
    *("fdbd", "nci", "nnguide", "caref", "she", "normalised-mahalanobis", "normalised-relative-mahalanobis"),
)
LARGER_KEPT = ("msp", "energy")
LARGER_TEST, LARGER_OOD = 5000, 2000
GROUPS = "outlier-groups.npz"  # beside the cells: the group of look-alikes of every outlier, from 0 to 19
HELD_OUT_GROUPS = (5, 6, 9, 10, 13)  # drawn at random; the larger study trains on none of these and validates on all
TrialSettings = dict[str, float | str | bool]


@dataclass(frozen=True)
class Trial:
    """One training; `method` is empty for the starting classifier as it is."""

    method: str
    recipe: Recipe = BASE
    outliers: int = 0  # number of auxiliary outliers to draw from; 0: all
    carried: tuple[float, ...] = ()  # margins that the network was trained with before, one after another
    net: str = NET
    larger: bool = False  # measured on the sets of the larger study

    @property
    def sets(self) -> str:
        """The name of the images and the starting classifier."""
        return f"{self.net}, larger" if self.larger else self.net

    @property
    def scores(self) -> tuple[str, ...]:
        return LARGER_SCORES if self.larger else SCORES

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def name(self) -> str:
        """A short name for a folder."""
        return f"{self.method or 'plain'}-seed{self.seed}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, without defaults of the recipe, so that later hyper-parameters do not matter."""
        usual, recipe = asdict(Recipe()), asdict(self.recipe)
        changed = {key: value for key, value in recipe.items() if key != "options" and value != usual[key]}
        carried = {"carried": list(self.carried)} if self.carried else {}
        net = {"net": self.net} if self.net != NET else {}
        larger = {"larger": True} if self.larger else {}
        return {
            "method": self.method,
            "settings": dict(self.recipe.options),
            "recipe": changed,
            "outliers": self.outliers,
            **carried,
            **net,
            **larger,
        }

    @property
    def whole(self) -> "Trial":
        """The training itself, without an average with its start."""
        return replace(self, recipe=replace(self.recipe, start_share=0.0))

    def before(self) -> Iterator["Trial"]:
        """Yield the trainings that come first, each with images of its own; none if the network is the classifier's."""
        for number, margin in enumerate(self.carried, start=1):
            options = {**self.recipe.options, "margin": margin}
            yield replace(self, carried=(), recipe=replace(self.recipe, options=options, seed=self.seed + number))


@dataclass(frozen=True)
class Row:
    """One row of the table: a method, and the candidates among which its settings are chosen."""

    name: str
    title: str
    method: str
    settings: TrialSettings = field(default_factory=dict)
    others: tuple[TrialSettings, ...] = ()  # further settings, tried at the first rate
    recipe: dict[str, Any] = field(default_factory=dict)  # hyper-parameters that are part of the method
    learning_rates: tuple[float, ...] = RATES
    ours: bool = False  # proposed here, not in a paper
    main: bool = False  # five seeds instead of three, as the recommended method has them
    outliers: int = 0  # as in Trial, and so are the next two
    carried: tuple[float, ...] = ()
    net: str = NET
    once: bool = False  # one training with one seed and no grid, for a table of its own
    apart: bool = False  # for a table of its own, too, but with several seeds
    larger: bool = False  # a row of the larger study, whose candidates are all computed

    def rates(self) -> list[Trial]:
        """Return the trials with seed 0 at each learning rate, the highest first."""
        if not self.method:
            return [Trial("", AS_IT_IS, net=self.net, larger=self.larger)]
        return [self._trial(self.settings, rate) for rate in self.learning_rates[: 1 if self.once else None]]

    def candidates(self) -> list[Trial]:
        """Return the trials with seed 0 that settings are chosen from; the first comes first in the order of work."""
        return self.rates() + [self._trial({**self.settings, **other}, self.learning_rates[0]) for other in self.others]

    def _trial(self, settings: TrialSettings, rate: float) -> Trial:
        changes: dict[str, Any] = {**self.recipe, "options": dict(settings), "lr": rate}
        base = LARGER if self.larger else BASE
        return Trial(self.method, replace(base, **changes), self.outliers, self.carried, self.net, self.larger)

    def seeds(self) -> tuple[int, ...]:
        return (0,) if self.once or self.larger or not self.method else SEEDS + MORE_SEEDS * self.main


ENERGY_HINGE: TrialSettings = {"on": "energy", "variant": "hinge", "margin": 10.0, "margin_weight": 2.0}
AVERAGED: dict[str, Any] = {"recipe": {"start_share": 0.5}, "learning_rates": AVERAGED_RATES, "ours": True}
ROWS = (
    Row("plain", "plain classifier", ""),
    Row("oe", "OE", "oe", others=({"weight": 1.0},), main=True),
    Row("macs-energy-hinge", "energy hinge (ours)", "macs", ENERGY_HINGE,
        others=({"margin": 5.0, "margin_weight": 0.5}, {"margin_weight": 4.0}), ours=True),
    Row("macs", "MaCS, margin 0.5", "macs", {"margin": 0.5}, main=True),
    Row("energy", "Energy", "energy", others=({"weight": 0.02},), main=True),
    Row("msp", "fine-tuned without outliers", "msp", main=True),
    Row("hinge", "hinge on probabilities (ours)", "macs", {"variant": "hinge", "margin": 0.5}, ours=True),
    Row("macs-chosen", "MaCS, margin chosen on validation", "macs", {"margin": 0.5},
        others=({"margin": 0.2}, {"margin": 0.8})),
    Row("mixoe", "MixOE (mixup)", "mixoe", {"mix": "mixup"}, others=({"beta": 1.0},), main=True),
    Row("mixoe-cutmix", "MixOE (CutMix)", "mixoe", {"mix": "cutmix"}, others=({"beta": 1.0},), main=True),
    Row("divoe", "DivOE", "divoe"),
    Row("dal", "DAL", "dal"),
    Row("oecc", "OECC", "oecc"),
    Row("macs-focus", "energy hinge, focus 0.5 (ours)", "macs",
        {**ENERGY_HINGE, "focus": 0.5}, ours=True),
    Row("macs-energy", "MaCS on energies (ours)", "macs",
        {"on": "energy", "margin": 10.0, "margin_weight": 2.0}, ours=True),
    Row("diversemix", "Energy with diverseMix", "energy", others=({"weight": 0.02},),
        recipe={"outlier_mix": "diverse"}),
    Row("oe-hardest", "OE on the hardest outliers", "oe", recipe={"outlier_sampling": "hardest"}, main=True),
    Row("aoe", "AOE (experimental)", "aoe"),
    Row("oe-averaged", "OE, averaged (ours)", "oe", **AVERAGED),
    Row("hinge-averaged", "energy hinge, averaged (ours)", "macs", ENERGY_HINGE,
        others=({"margin_weight": 4.0},), **AVERAGED),
    Row("focus-averaged", "energy hinge, focus 0.5, averaged (ours)", "macs",
        {**ENERGY_HINGE, "focus": 0.5}, **AVERAGED),
    Row("hinge-nearer", "energy hinge, averaged with 0.7 (ours)", "macs",
        {**ENERGY_HINGE, "margin_weight": 4.0}, **{**AVERAGED, "recipe": {"start_share": 0.7}}),
)  # fmt: skip
ONE_RATE: dict[str, Any] = {"learning_rates": RATES[:1], "apart": True}
EQUAL = (  # the main rows at one learning rate, so that nothing but the method differs
    Row("oe-equal", "OE", "oe", main=True, **ONE_RATE),
    Row("macs-equal", "MaCS, margin 0.5", "macs", {"margin": 0.5}, main=True, **ONE_RATE),
    Row("energy-equal", "Energy", "energy", **ONE_RATE),
    Row("macs-energy-hinge-equal", "energy hinge (ours)", "macs", ENERGY_HINGE, ours=True, **ONE_RATE),
)
COSTS = (  # OE with other budgets
    Row("oe-half", "half as many images", "oe", recipe={"epoch_size": IMAGES // 2}, once=True),
    Row("oe-once", "2,000 images once", "oe", once=True),
    Row("oe-twice", "two epochs", "oe", recipe={"epochs": 2}, once=True),
    Row("oe-four", "four epochs", "oe", recipe={"epochs": 4}, once=True),
    Row("oe-1000", "1,000 different outliers", "oe", outliers=1000, once=True),
    Row("oe-10000", "10,000 different outliers", "oe", outliers=10_000, once=True),
    Row("oe-block1", "first stage frozen", "oe", recipe={"freeze": "block1"}, once=True),
    Row("oe-block2", "first two stages frozen", "oe", recipe={"freeze": "block2"}, once=True),
    Row("oe-backbone", "all but the last layer frozen", "oe", recipe={"freeze": "backbone", "augment": "crop-flip"},
        once=True),
)  # fmt: skip
PROTOCOLS = (  # MaCS from margin to margin: each from the classifier, or from the network of the margin before
    *(Row(f"macs-{margin}", f"{margin}", "macs", {"margin": margin}, once=True) for margin in (0.2, 0.5, 0.8)),
    Row("macs-unbounded", "none (unbounded)", "macs", {"variant": "unbounded"}, once=True),
    Row("macs-carried-0.5", "0.2, then 0.5", "macs", {"margin": 0.5}, carried=(0.2,), once=True),
    Row("macs-carried-0.8", "0.2, then 0.5, then 0.8", "macs", {"margin": 0.8}, carried=(0.2, 0.5), once=True),
    Row("macs-carried-same", "0.5 three times", "macs", {"margin": 0.5}, carried=(0.5, 0.5), once=True),
)


CHOSEN: dict[str, dict[str, Any]] = {  # what validation chose where it is not a row's first candidate
    "oe": {"learning_rates": (0.001,)},
    "energy": {"learning_rates": (0.002,)},
    "macs-focus": {"learning_rates": (0.002,)},
    "hinge-averaged": {"settings": {**ENERGY_HINGE, "margin_weight": 4.0}, "learning_rates": (0.01,)},
}


def _as_chosen(row: str, name: str, **changes: Any) -> Row:
    """Return one training of a row of the first table, with what validation chose for it, but for the changes."""
    first = next(each for each in ROWS if each.name == row)
    return replace(first, name=name, others=(), main=False, once=True, **{**CHOSEN.get(row, {}), **changes})


def _longer(row: str, epochs: int, **changes: Any) -> Row:
    chosen = _as_chosen(row, f"{row}-longer-{epochs}", **changes)
    words = {1: "one epoch", 2: "two epochs", 4: "four epochs"}[epochs]
    title, recipe = f"{chosen.title}, {words}", {**chosen.recipe, "epochs": epochs}
    several = epochs == 2  # seeds, to tell how much is chance
    return replace(chosen, title=title, recipe=recipe, once=not several, apart=several)


ELSEWHERE = tuple(  # the main rows with another network
    _as_chosen(row, f"{SECOND_NET}-{row}", net=SECOND_NET)
    for row in ("plain", "oe", "macs", "energy", "macs-focus", "hinge-averaged")
)
LONGER = (  # whether the recommended training stays ahead of OE with more of it
    *(_longer("oe", epochs, learning_rates=(0.002,)) for epochs in (1, 2, 4)),
    *(_longer("hinge-averaged", epochs) for epochs in (1, 2, 4)),
    *(_longer("hinge-nearer", epochs, learning_rates=(0.01,)) for epochs in (1, 2, 4)),
)
HINGE: TrialSettings = {**ENERGY_HINGE, "margin_weight": 4.0}
LOWER_RATES, FEWER_RATES = (0.005, 0.002, 0.001), (0.005, 0.001)
HIGHER_RATES = (0.01, 0.005)  # of a network that is averaged with its start


def _screened(name: str, title: str, method: str, settings: TrialSettings | None = None, **fields: Any) -> Row:
    fields = {"learning_rates": LOWER_RATES, **fields}
    return Row(f"{name}-screening", title, method, settings or {}, apart=True, larger=True, **fields)


def _screened_average(name: str, title: str, method: str, settings: TrialSettings | None = None) -> tuple[Row, ...]:
    def averaged(share: float) -> Row:
        fields = {"learning_rates": HIGHER_RATES, "recipe": {"start_share": share}, "ours": True}
        words = f"{title}, averaged with {share:g} (ours)"
        return _screened(f"{name}-averaged-{share:g}", words, method, settings, **fields)

    return averaged(0.5), averaged(0.7)


SCREENING = (
    _screened("plain", "plain classifier", ""),
    _screened("oe", "OE", "oe"),
    *_screened_average("hinge", "energy hinge", "macs", HINGE),
    _screened("macs", "MaCS, margin 0.5", "macs", {"margin": 0.5}),
    *_screened_average("oe", "OE", "oe"),
    _screened("energy", "Energy", "energy"),
    _screened("hinge", "energy hinge (ours)", "macs", HINGE, ours=True),
    *_screened_average("macs", "MaCS, margin 0.5", "macs", {"margin": 0.5}),
    *_screened_average("energy", "Energy", "energy"),
    _screened("msp", "fine-tuned without outliers", "msp", learning_rates=FEWER_RATES),
    _screened("hinge-block2", "energy hinge, averaged with 0.5, two stages frozen (ours)", "macs", HINGE, ours=True,
              recipe={"start_share": 0.5, "freeze": "block2"}, learning_rates=(0.01,)),
    _screened("oe-block2", "OE, first two stages frozen", "oe", recipe={"freeze": "block2"},
              learning_rates=FEWER_RATES),
    _screened("logitnorm", "LogitNorm", "logitnorm", learning_rates=FEWER_RATES),
    _screened("dal", "DAL", "dal", learning_rates=FEWER_RATES),
    _screened("oecc", "OECC", "oecc", learning_rates=FEWER_RATES),
    _screened("oe-hardest", "OE on the hardest outliers", "oe", recipe={"outlier_sampling": "hardest"},
              learning_rates=FEWER_RATES),
)  # fmt: skip
EVERY_ROW = ROWS + EQUAL + COSTS + LONGER + PROTOCOLS + ELSEWHERE + SCREENING


def repeated(trial: Trial, seeds: Sequence[int]) -> list[Trial]:
    """Return the same training with each of the seeds."""
    return [replace(trial, recipe=replace(trial.recipe, seed=seed)) for seed in seeds]


def trials(
    rows: tuple[Row, ...],
    chosen: Callable[[Row], Trial | None],
    candidates: Callable[[Row], Sequence[Trial]] = Row.candidates,
) -> Iterator[Trial]:
    """All trials in the order of work; when it is a row's turn, `candidates` names those that are worth a training,
    which may become more as they are computed, and `chosen` the one that other seeds repeat."""
    yield from (row.candidates()[0] for row in rows)
    for row in rows:
        given = 1
        while given < len(planned := candidates(row)):
            yield planned[given]
            given += 1
    for seed in (*SEEDS, *MORE_SEEDS):
        for row in rows:
            best = chosen(row)
            if seed in row.seeds() and best is not None:
                yield from repeated(best, [seed])
