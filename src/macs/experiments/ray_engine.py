"""RayEngine: cells as tasks of a Ray cluster, on this machine or on many.

Images and starting networks that the driver holds travel once to each machine, through Ray's object store. A cell is
trained below its own folder, which all machines share, and continues there after its last finished epoch if its worker
or machine is lost. A task computes with as many threads as the driver would, so that on one kind of machine both
engines give the same bits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from macs.core.clusters import TRIES, connected, slots
from macs.core.console import Terminal
from macs.core.errors import MacsError, first_line
from macs.core.version import __version__
from macs.experiments.cells import Cell, Examination
from macs.experiments.engine import Done
from macs.metrics import FprRule

if TYPE_CHECKING:
    from macs.training.sources import Held

LOOK_EVERY = 1.0  # seconds between two looks at the running cells


class Terms(NamedTuple):
    """What every task of a run is told beside its cell."""

    data: Path | None
    fpr_rule: FprRule
    threads: int
    version: str


@dataclass
class RayEngine:
    """As many cells at a time as the cluster has CPUs and GPUs for."""

    data: Path | None = None  # root of the datasets that cells name
    address: str | None = None  # of an existing cluster; else $RAY_ADDRESS, else one on this machine
    gpus: float = 0.0  # of each cell
    progress: bool = True
    held: "Held | None" = None
    local: dict[str, Any] = field(default_factory=dict)  # settings of a cluster on this machine, for ray.init

    def hold(self, held: "Held") -> None:
        self.held = held

    def run(self, cells: Iterable[Cell], on: Examination, fpr_rule: FprRule = "first") -> Iterator[Done]:
        import torch

        from macs.training.sources import NOTHING

        ray = connected(self.address, self.local)
        threads = torch.get_num_threads()
        room = slots(ray, threads, self.gpus)
        task = ray.remote(num_cpus=threads, num_gpus=self.gpus, max_retries=TRIES - 1)(train_and_measure)
        shipped, terms = ray.put((self.held or NOTHING, on)), Terms(self.data, fpr_rule, threads, __version__)
        rest = iter(cells)
        running: dict[Any, Cell] = {}
        try:
            with Display(self.progress) as display:
                while True:
                    while len(running) < room and (cell := next(rest, None)) is not None:
                        assert cell.key  # computed here, it travels with the cell, and the worker compares it
                        running[task.remote(cell, shipped, terms)] = cell
                    if not running:
                        return
                    ended, _ = ray.wait([*running], timeout=LOOK_EVERY)
                    display.show(running.values())
                    for each in ended:
                        yield outcome(ray, running.pop(each), each)
        finally:  # also after Ctrl-C: what the cells have written stays, and the same command continues
            for each in running:
                ray.cancel(each, force=True)


def train_and_measure(cell: Cell, shipped: tuple["Held", Examination], terms: Terms) -> Done:
    """In a worker: what the serial engine does with one cell."""
    import socket

    import torch

    held, on = shipped
    torch.set_num_threads(terms.threads)
    here = socket.gethostname()
    try:
        check_machine(cell, terms)
        cell.run(terms.data, held, progress=False)
        return Done(cell, cell.examine(on, held, terms.fpr_rule, progress=False))
    except (MacsError, OSError) as error:
        return Done(cell, None, MacsError(f"On the machine {here}: {str(error).rstrip('.')}."))
    except Exception as error:  # whatever it is, it must survive the way back
        return Done(cell, None, RuntimeError(f"{type(error).__name__}: {error} (on the machine {here})"))


def check_machine(cell: Cell, terms: Terms) -> None:
    """Refuse a machine whose results would not be those that the driver records."""
    if terms.version != __version__:
        raise MacsError(f"it has macs {__version__} and the driver {terms.version}; install the same version")
    if Cell(cell.root, cell.name, cell.spec, cell.trained).key != cell.key:
        raise MacsError("it would compute in another precision than the driver; set --precision")


def outcome(ray: Any, cell: Cell, task: Any) -> Done:
    """What a task has returned; or that its worker was lost each time it was tried."""
    try:
        done: Done = ray.get(task)
    except ray.exceptions.RayError as error:
        why = first_line(error)
        sentence = f"{cell.name} was tried {TRIES} times, and its worker was lost each time ({why}); the same command"
        return Done(cell, None, MacsError(f"{sentence} continues after its last finished epoch."))
    if done.error is None and not cell.finished:
        where = cell.folder.path
        missing = f"{cell.name} was trained on another machine, and {where} is not here"
        return Done(cell, None, MacsError(f"{missing}; name a folder that all machines of the cluster share."))
    return Done(cell, done.result, done.error)


class Display:
    """On a terminal, one line per running cell with its last epoch, as its run folder tells."""

    def __init__(self, show: bool) -> None:
        console = Terminal(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        self.shown = show and console.is_terminal
        self.bar = Progress(*columns, console=console, disable=not self.shown, transient=True)
        self.lines: dict[str, TaskID] = {}

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, cells: Iterable[Cell]) -> None:
        if not self.shown:
            return
        running = {cell.key: cell for cell in cells}
        for key in self.lines.keys() - running.keys():
            self.bar.remove_task(self.lines.pop(key))
        for key, cell in running.items():
            epochs = cell.epochs()
            total = cell.spec.recipe.epochs
            state = f"epoch {len(epochs)}/{total}" + (f"  loss {epochs[-1].loss:.3f}" if epochs else "")
            if key not in self.lines:
                self.lines[key] = self.bar.add_task(cell.name, total=total, state=state)
            self.bar.update(self.lines[key], completed=len(epochs), state=state)
