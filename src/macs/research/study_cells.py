"""A cell of the study: one training, measured on every set by every score, in two small files.

    FOLDER/KEY.json    what the cell depends on (KEY is its hash); metrics per score and set; how it was made
    FOLDER/KEY.npz     confidences of a few scores on the test sets, in half precision

The trained network itself stays in a run folder of `macs.experiments.cells`, outside the repository.

A cell also depends on the code of its method's loss, by `loss_code`, so that a changed loss makes new cells, but only
for the methods that use it.
"""

import ast
import importlib
import inspect
import json
import platform
import shutil
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core import __version__
from macs.core.errors import MacsError
from macs.core.files import check_unpacked, write_text
from macs.data import ImageSet
from macs.data.spec import fingerprint, short_hash
from macs.data.synthetic_ood import near_unknowns_for, unknowns_for
from macs.experiments.cells import Cell, Examination, key_of, save_arrays
from macs.metrics import ood_metrics
from macs.research.study_plan import FIT_IMAGES, KEPT, LARGER_KEPT, MADE_IMAGES, OOD, Trial

if TYPE_CHECKING:
    from torch import nn

    from macs.scores import Predictions

FORMAT = 1  # of a cell's files
METRICS = ("auroc", "aupr", "fpr95", "aupr_id", "fpr95_id")
VALIDATION = "validation"  # the name of the validation outliers among the sets
MOST = 2**26  # bytes of a cell's confidences; those of today take 60 kB
PLACES = 5  # decimals of a stored metric
FOLLOWED = ("macs.losses", "macs.methods")  # modules whose definitions are part of a loss
INTERFACE = ("Batch", "Method", "Step", "method")  # how the training loop calls a method: no part of its loss
Machine = tuple[str, int]  # a processor, and the number of its threads


@dataclass(frozen=True)
class CellRecord:
    """The results of a cell, as its JSON file holds them."""

    key: str
    trial: Mapping[str, Any]
    code: str  # hash of the loss's code
    depends: Mapping[str, Any]
    accuracy: float  # on the ID test images
    validation_accuracy: float
    scores: Mapping[str, Mapping[str, list[float]]]  # score -> set -> METRICS
    cost: Mapping[str, float]  # training: seconds, cpu_seconds, and images that passed through the network
    made_with: Mapping[str, Any]
    unknowns: Mapping[str, Mapping[str, list[float]]] = field(default_factory=dict)
    """score -> kind of unknown images that macs makes -> METRICS, on validation images; older cells have none."""
    stored: Mapping[str, int] = field(default_factory=dict)
    """score -> how many numbers it stores, once it is fitted; older cells have none."""

    @property
    def made_on(self) -> Machine:
        """Only cells that were made on the same machine may be compared in seconds."""
        return self.made_with.get("processor", ""), self.made_with.get("threads", 0)

    def value(self, metric: str, score: str, where: str) -> float:
        """Return a metric of a score on one set."""
        return self.scores[score][where][METRICS.index(metric)]

    def rank(self, score: str) -> tuple[float, float]:
        """Return what choices are made by, the lowest first: FPR95 on validation outliers, and for ties minus AUROC."""
        return self.value("fpr95", score, VALIDATION), -self.value("auroc", score, VALIDATION)

    def mean(self, metric: str, score: str, over: Sequence[str] = OOD) -> float:
        """Return the mean of a metric over OOD test sets."""
        return float(np.mean([self.value(metric, score, name) for name in over]))


@dataclass(frozen=True)
class StudyCell(Cell):
    """A training of the study. The key covers the loss's code and the measured sets, but not our version."""

    code: str = ""
    measured_on: str = ""
    carried: tuple[float, ...] = ()  # as in Trial

    @cached_property
    def depends(self) -> dict[str, Any]:
        own = {"format": FORMAT, "trained": self.trained, "code": self.code, "measured_on": self.measured_on}
        carried = {"carried": list(self.carried)} if self.carried else {}
        return {**own, **carried, **self.spec.identity()}


def cell_for(trial: Trial, root: Path, sets: "StudySets") -> StudyCell:
    """Return the cell of a trial; its training is stored below `root`."""
    from macs import methods
    from macs.training.sources import Training

    method = methods.build(trial.method or "msp", trial.recipe.options)
    outliers = sets.outliers if not trial.outliers else sets.outliers.split(trial.outliers)[0]
    spec = Training(sets.net, sets.train, outliers, method, trial.recipe).spec
    code = loss_code(trial.method)
    return StudyCell(root, trial.name, spec, not trial.method, code, sets.measured_on, trial.carried)


@dataclass(frozen=True, eq=False)
class StudySets:
    """The images of the study and its starting classifier, in memory."""

    net: "nn.Module"
    train: ImageSet
    outliers: ImageSet
    examination: Examination

    @property
    def tested(self) -> dict[str, ImageSet]:
        """Everything that is measured, by the names in a record; "id" and "id-validation" are ID images."""
        on = self.examination
        assert on.test is not None
        return {"id-validation": on.val, VALIDATION: on.val_outliers, "id": on.test, **on.ood}

    @property
    def measured_on(self) -> str:
        return short_hash(*(f"{name} {fingerprint(images)}".encode() for name, images in self.tested.items()))


def compute(cell: StudyCell, trial: Trial, sets: StudySets, folder: Path, progress: bool = False) -> CellRecord:
    """Train the cell, measure it, and write its two files.

    An interrupted training is not continued but begun again: otherwise the cost of the cell would be incomplete.
    """
    net, cost = (shared if trial.larger else counted)(cell, trial, sets, progress)
    return measured(cell, trial, sets, folder, net, cost, progress)


def shared(cell: StudyCell, trial: Trial, sets: StudySets, progress: bool) -> "tuple[nn.Module, dict[str, float]]":
    """Return the network of a cell and what its training cost; all averages of one training share it."""
    from macs.core.devices import best_device
    from macs.training.checkpointing import averaged
    from macs.training.sources import Held

    share = trial.recipe.start_share
    cell = cell_for(trial.whole, cell.root, sets)
    file = cell.root / f"{cell.key}-cost.json"
    if not (cell.finished and file.exists()):
        write_text(file, json.dumps(counted(cell, trial.whole, sets, progress)[1]))
    net = cell.net(Held.of([], [sets.net]))
    if share:
        start = {name: value.to(best_device()) for name, value in sets.net.state_dict().items()}
        net.load_state_dict(averaged(start, net.state_dict(), share))
    return net, json.loads(file.read_text(encoding="utf-8"))


def counted(cell: StudyCell, trial: Trial, sets: StudySets, progress: bool) -> "tuple[nn.Module, dict[str, float]]":
    """Train the cell from the beginning, and return its network and what the training cost."""
    passed = [0]

    def count(_: Any, inputs: tuple[Any, ...]) -> None:
        passed[0] += len(inputs[0])

    handle = sets.net.register_forward_pre_hook(count)  # a training starts from a copy, which has the hook too
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        net = trained(cell, trial, sets, progress)
        cost = {
            "seconds": round(time.perf_counter() - wall, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "images": passed[0],
        }
    finally:
        handle.remove()
    return net, cost


def trained(cell: StudyCell, trial: Trial, sets: StudySets, progress: bool) -> "nn.Module":
    """Return the network of a cell, after the trainings that come before it, which it shares with no other cell."""
    from macs.training.sources import Held

    root = cell.root / cell.key
    for earlier in trial.before():
        sets = replace(sets, net=trained(cell_for(earlier, root, sets), earlier, sets, progress))
        cell = cell_for(replace(trial, carried=()), root, sets)
    shutil.rmtree(cell.folder.path, ignore_errors=True)
    images = [sets.train, sets.outliers]
    held = Held.of([*images, *([sets.outliers.split(trial.outliers)[0]] if trial.outliers else [])], [sets.net])
    cell.run(None, held, progress)
    return cell.net(held)


def measured(
    cell: StudyCell,
    trial: Trial,
    sets: StudySets,
    folder: Path,
    net: "nn.Module",
    cost: dict[str, float],
    progress: bool,
) -> CellRecord:
    """Run a trained network once over each set, and compute the metrics of every score."""
    from macs import scores

    precision = "float32"  # of the measurement; the logits of bf16 would often tie
    on = sets.examination
    assert on.test is not None
    fit = scores.fit_all(
        {name: scores.get(name) for name in trial.scores},
        net,
        on.test,
        sets.train,
        on.val,
        limit=FIT_IMAGES,
        precision=precision,
    )
    answers = {}
    some = on.val.subset(np.arange(min(len(on.val), MADE_IMAGES)))
    made = unknowns_for(some)[0] | (near_unknowns_for(some) if trial.larger else {})
    for name, images in {**sets.tested, **made}.items():
        answers[name], left_out = scores.ask_all(net, images, fit.scores, precision, progress)
        if fit.left_out | left_out:
            raise MacsError(f"Not every score can be computed: {fit.left_out | left_out}.")
    known, held_out = answers["id"], answers["id-validation"]

    def table(ids: "Mapping[str, Predictions]", names: Iterable[str]) -> dict[str, dict[str, list[float]]]:
        return {score: {name: metrics_of(ids[score], answers[name][score]) for name in names} for score in trial.scores}

    validated, tested = table(held_out, [VALIDATION]), table(known, on.ood)
    record = CellRecord(
        key=cell.key,
        trial=trial.as_dict(),
        code=cell.code,
        depends=cell.depends,
        accuracy=float(np.mean(known["msp"].index == on.test.labels)),
        validation_accuracy=float(np.mean(held_out["msp"].index == on.val.labels)),
        scores={score: {**validated[score], **tested[score]} for score in trial.scores},
        cost=cost,
        made_with=machine(),
        unknowns=table(held_out, made),
        stored={name: sum(buffer.numel() for buffer in score.buffers()) for name, score in fit.scores.items()},
    )
    # Half precision is exact enough for distances and energies; a probability is stored as 1 - p, which is near 0.
    of = LARGER_KEPT if trial.larger else KEPT
    kept = {(name, score): answers[name][score].confidence for name in ("id", *on.ood) for score in of}
    small = {
        f"{name}/{score}": (1 - c if score == "msp" else c).astype(np.float16) for (name, score), c in kept.items()
    }
    save_arrays(folder / f"{cell.key}.npz", small)
    write_text(folder / f"{cell.key}.json", _as_text(record))
    return record


def metrics_of(known: "Predictions", unknown: "Predictions") -> list[float]:
    """METRICS, as a record holds them."""
    values = ood_metrics(known.confidence, unknown.confidence)
    return [round(values[metric], PLACES) for metric in METRICS]


def machine() -> dict[str, Any]:
    """Return the processor, its threads and the versions that a cell is made with."""
    import torch

    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "macs": __version__,
    }


def _as_text(record: CellRecord) -> str:
    """JSON with one line per score, so that a changed cell can be read in a diff."""
    values = asdict(record)
    scores = values.pop("scores")
    lines = ",\n".join(f"  {json.dumps(score)}: {json.dumps(sets)}" for score, sets in scores.items())
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return f'{{\n{head},\n "scores": {{\n{lines}\n }}\n}}\n'


def confidences_in(folder: Path, key: str) -> dict[str, NDArray[np.float64]]:
    """Return the stored confidences of a cell, by SET/SCORE; the set "id" holds the ID test images."""
    file = folder / f"{key}.npz"
    try:
        check_unpacked(file, MOST)
        with np.load(file) as saved:
            values = {name: saved[name].astype(np.float64) for name in saved.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        raise MacsError(f"Cannot read {file}; restore it from the repository, or compute the cell again.") from None
    return {name: 1 - value if name.endswith("/msp") else value for name, value in values.items()}


def records_in(folder: Path) -> list[CellRecord]:
    """Return all cells of a folder; a file that is not a cell is an error."""
    records = []
    for file in sorted(folder.glob("*.json")):
        try:
            record = CellRecord(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            raise MacsError(f"{file} is not a cell of the study; restore it from the repository.") from None
        if record.key != file.stem or record.key != key_of(record.depends):
            raise MacsError(f"{file} does not hold the cell that its name says; restore it from the repository.")
        records.append(record)
    return records


@cache
def loss_code(method: str) -> str:
    """Return the hash of a method's loss; empty for the classifier as it is.

    It covers the method's module and the functions of `macs.losses` and `macs.methods` that the module uses, directly
    or through others. Comments, docstrings and layout do not count.
    """
    if not method:
        return ""
    from macs import methods

    module = importlib.import_module(methods.method[method].__module__)
    tree = _tree(module)
    parts = {f"{module.__name__}": ast.dump(tree)}
    _follow(tree, module, parts)
    return short_hash(*(f"{name}\n{code}\n".encode() for name, code in sorted(parts.items())))


def _follow(code: ast.AST, module: ModuleType, parts: dict[str, str]) -> None:
    """Add the definitions that this code uses from the modules that are followed."""
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    for name in sorted(names):
        value = getattr(module, name, None)
        home = getattr(value, "__module__", None) or ""
        if name in INTERFACE or not home.startswith(FOLLOWED):
            continue
        where = f"{home}.{getattr(value, '__name__', name)}"
        owner = importlib.import_module(home)
        definition = _definition(_tree(owner), getattr(value, "__name__", name))
        if definition is not None and where not in parts:
            parts[where] = ast.dump(definition)
            _follow(definition, owner, parts)


def _definition(tree: ast.Module, name: str) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next((node for node in tree.body if isinstance(node, kinds) and node.name == name), None)


def _tree(module: ModuleType) -> ast.Module:
    """Return the module's code without docstrings."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
