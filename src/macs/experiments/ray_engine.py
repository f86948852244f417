"""RayEngine: cells as tasks of a Ray cluster, on this machine or on many.

Images and starting networks travel once to each machine, through Ray's object store. A cell is trained below its own
folder, which all machines share, or in a copy of it that is written back to a URL after each epoch; if its worker or
machine is lost, it continues there after its last finished epoch. A task computes with as many threads as the driver
would, so that on one kind of machine both engines give the same bits.
"""

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from macs.core import __version__
from macs.core.clusters import TRIES, connected, ended_tasks, same_version, slots
from macs.core.console import show_log, terminal
from macs.core.errors import MacsError, first_line, last_line
from macs.experiments.cells import Cell, Done, Examination
from macs.experiments.mirrors import STATE, Mirror, to_read
from macs.metrics import FprRule
from macs.training.sources import NOTHING, Held, load_start

if TYPE_CHECKING:
    from torch import nn

LOOK_EVERY = 1.0  # seconds between two looks at the running cells
PULL_EVERY = 10.0  # the same, if each look reads from a URL


class Terms(NamedTuple):
    """What every task of a run gets besides its cell."""

    data: Path | None
    fpr_rule: FprRule
    threads: int
    version: str
    mirror: Mirror | None = None  # the driver's, if results are behind a URL


@dataclass
class RayEngine:
    """As many cells at a time as the cluster has CPUs and GPUs for."""

    data: Path | None = None  # root of the datasets that cells name
    address: str | None = None  # of an existing cluster; else $RAY_ADDRESS, else one on this machine
    gpus: float = 0.0  # of each cell
    progress: bool = True
    local: dict[str, Any] = field(default_factory=dict)  # settings of a cluster on this machine, for ray.init
    mirror: Mirror | None = None  # of the folder of results, if that is behind a URL

    def run(
        self, cells: Iterable[Cell], on: Examination, held: Held = NOTHING, fpr_rule: FprRule = "first"
    ) -> Iterator[Done]:
        import torch

        ray = connected(self.address, self.local)
        threads = torch.get_num_threads()
        room = slots(ray, threads, self.gpus)
        task = ray.remote(num_cpus=threads, num_gpus=self.gpus, max_retries=TRIES - 1)(train_and_measure)
        shipped, terms = ray.put((held, on)), Terms(self.data, fpr_rule, threads, __version__, self.mirror)
        starts: dict[str, Any] = {}  # by hash: networks whose files may be on this machine only

        def start(cell: Cell) -> Any:
            assert cell.key  # computed now, so that it travels with the cell and the worker can compare it
            weights = cell.spec.start.weights
            if cell.spec.start.file and weights not in {*held.nets, *starts}:
                starts[weights] = ray.put(load_start(cell.spec, held))
            return task.remote(cell, shipped, starts.get(weights), terms)

        def look(running: Collection[Cell]) -> None:
            if display.due(PULL_EVERY if self.mirror else LOOK_EVERY):
                for cell in running:
                    fetch(cell, self.mirror, to_read)
                display.show(running)

        with (
            Display(self.progress) as display,
            closing(ended_tasks(ray, cells, start, room, look, LOOK_EVERY)) as tasks,
        ):
            for cell, ended in tasks:
                yield outcome(ray, cell, ended, self.mirror)


def train_and_measure(cell: Cell, shipped: tuple[Held, Examination], start: "nn.Module | None", terms: Terms) -> Done:
    """In a worker: what the serial engine does with one cell."""
    import socket

    import torch

    from macs.nets import remember_origin

    show_log()
    held, on = shipped
    if start is not None:
        held = replace(held, nets={**held.nets, cell.spec.start.weights: start})
    torch.set_num_threads(terms.threads)
    here = socket.gethostname()
    try:
        check_machine(cell, terms)
        with copied(cell, terms.mirror) as (copy, push):
            if start is not None:
                remember_origin(start, copy.spec.start.source)
            copy.run(terms.data, held, progress=False, on_epoch=lambda *_: push())
            result = copy.examine(on, held, terms.fpr_rule, progress=False)
            push()
        return Done(cell, result)
    except (MacsError, OSError) as error:
        return Done(cell, None, MacsError(f"On the machine {here}: {str(error).rstrip('.')}."))
    except Exception as error:  # whatever it is, it must survive being sent back
        return Done(cell, None, RuntimeError(f"{type(error).__name__}: {error} (on the machine {here})"))


@contextmanager
def copied(cell: Cell, mirror: Mirror | None) -> Iterator[tuple[Cell, Callable[[], None]]]:
    """The cell, or with the driver's mirror its copy in a temporary folder, and a function that writes that back."""
    if mirror is None:
        yield cell, lambda: None
        return
    start = cell.spec.start
    if start.file and Path(start.file).is_relative_to(mirror.folder):  # a path of the driver, no use elsewhere
        start = replace(start, source=mirror.named(Path(start.file)))
    with tempfile.TemporaryDirectory(prefix="macs-") as folder:
        here = Mirror(mirror.url, Path(folder))
        root = here.folder / cell.root.relative_to(mirror.folder)
        copy = replace(cell, root=root, spec=replace(cell.spec, start=start))
        fetch(copy, here, lambda name: name != STATE)
        if not copy.finished:
            fetch(copy, here)
        yield copy, here.push


def fetch(cell: Cell, mirror: Mirror | None, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Pull the files of a cell."""
    if mirror is not None:
        mirror.pull(cell.root / cell.name, lambda name: name.startswith(cell.key) and wanted(name.rpartition("/")[2]))


def check_machine(cell: Cell, terms: Terms) -> None:
    """Refuse a machine whose results would not be those that the driver records."""
    same_version(terms.version)
    if Cell(cell.root, cell.name, cell.spec, cell.trained).key != cell.key:
        raise MacsError("it would compute in another precision than the driver; set --precision")


def outcome(ray: Any, cell: Cell, task: Any, mirror: Mirror | None = None) -> Done:
    """Return what a task has returned, or the error that its worker was lost at every attempt."""
    try:
        done: Done = ray.get(task)
    except ray.exceptions.RayTaskError as error:  # raised before our code, which catches everything
        why = last_line(getattr(error, "cause", None) or error)
        hint = f"install macs {__version__} on every machine of the cluster"
        return Done(cell, None, MacsError(f"{cell.name} could not begin on its machine ({why}); {hint}."))
    except ray.exceptions.RayError as error:
        why = first_line(error)
        sentence = f"{cell.name} was tried {TRIES} times, and its worker was lost each time ({why}); the same command"
        return Done(cell, None, MacsError(f"{sentence} continues after its last finished epoch."))
    if done.error is None:
        fetch(cell, mirror, to_read)
    if done.error is None and not cell.finished:
        where = cell.folder.path
        missing = f"{cell.name} was trained on another machine, and {where} is not here"
        hint = "name a folder that all machines of the cluster share, or a URL"
        return Done(cell, None, MacsError(f"{missing}; {hint}."))
    return Done(cell, done.result, done.error)


class Display:
    """On a terminal, one line per running cell with its last epoch, from its run folder."""

    def __init__(self, show: bool) -> None:
        console = terminal(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        self.shown = show and console.is_terminal
        self.bar = Progress(*columns, console=console, disable=not self.shown, transient=True)
        self.lines: dict[str, TaskID] = {}
        self.last = 0.0

    def due(self, every: float) -> bool:
        """Return whether it is shown, and was last updated at least `every` seconds ago."""
        if not self.shown or time.monotonic() - self.last < every:
            return False
        self.last = time.monotonic()
        return True

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, cells: Iterable[Cell]) -> None:
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
