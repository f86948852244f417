"""The command `macs`, and what its subcommands share: option types and printing."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import App, Parameter, Token
from cyclopts.command_spec import CommandSpec

from macs.cli import ABOUT, COMMANDS
from macs.core.errors import MacsError
from macs.core.settings import Span, shown
from macs.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from macs.data import ImageSet
    from macs.detector.base import ImageDetector
    from macs.detector.metadata import DetectorMetadata
    from macs.detector.row_detector import RowDetector
    from macs.training.spec import TrainingSpec


class Later:
    """A terminal that is made when something is printed on it, so that an error does not wait for rich."""

    def __getattr__(self, name: str) -> Any:
        from macs.core.console import terminal

        return getattr(terminal(), name)


def _version() -> str:
    from macs.doctor import version_line

    return version_line()


app = App(
    name="macs",
    version=_version,
    help=ABOUT,
    help_format="markdown",
    console=cast("Console", Later()),
    error_console=cast("Console", Later()),
    suppress_keyboard_interrupt=False,
)


class Command(CommandSpec):
    """A command whose file is imported when it is called; from then on its docstring is its help."""

    def resolve(self, parent_app: App) -> App:
        self.help = None
        return super().resolve(parent_app)


for _place, (_name, (_path, _summary)) in enumerate(
    command for group in COMMANDS.values() for command in group.items()
):
    # app.command(path) would keep the summary as the command's whole help.
    app._commands[_name] = Command(f"macs.cli.{_path}", _name, help=_summary, sort_key=_place)
app._commands["--install-completion"] = Command("macs.cli._completion:install", "--install-completion")

Flag = Parameter(negative="")
Several = Parameter(consume_multiple=True, negative="")  # an option followed by any number of values
DATA_HELP = "Folder of the datasets [default: $MACS_DATA, else the user's cache folder]."
NoCache = Annotated[
    bool,
    Flag,
    Parameter(help="Run the network on every image again: neither use nor keep outputs in the cache folder."),
]
Json = Annotated[bool, Flag, Parameter(help="Print the results as JSON.")]


def whole_number(kind: Any, tokens: Sequence[Token]) -> int:
    """An int as written; cyclopts would silently round 1.5 to 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"it must be a whole number, not {shown(tokens[0].value)}.") from None


Data = Annotated[Path | None, Parameter(help=DATA_HELP)]
Whole = Annotated[int, Parameter(converter=whole_number)]
FprRuleOption = Annotated[
    Literal["first", "nearest"],
    Parameter(help="Threshold of FPR95: the first that reaches 95%, or the nearest to it, as in the authors' code."),
]
Settings = Annotated[
    dict[str, float | str | bool] | None,
    Parameter(name="--score", help="A setting of the score, for example --score.k 10 (docs/scores.md)."),
]


@dataclass(frozen=True)
class Hardware:
    """The options of a command that runs networks."""

    device: str = "auto"
    """Where networks run: cpu, cuda, cuda:1, mps, or auto, which takes a GPU if there is one."""

    threads: Whole | None = None
    """Threads of networks on the CPU [default: one per core]."""

    workers: Whole | None = None
    """Threads that decode pictures [default: one per core, at most 8]."""

    def prepare(self) -> None:
        """Apply the options that do not need torch."""
        from macs.data.batches import set_workers

        set_workers(self.workers)
        if self.threads is not None:
            Span(1, 1024).hold("--threads", self.threads)

    def use(self) -> None:
        """Apply these options to torch, which is not imported if none of them is given."""
        self.prepare()
        if self.device != "auto":
            from macs.core.devices import use_device

            use_device(self.device)
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)


HardwareOptions = Annotated[Hardware, Parameter(name="*")]
ANY_HARDWARE = Hardware()


def show(table: Any, value: Mapping[str, Any], as_json: bool) -> None:
    """Print results to standard output: a table for people, or one JSON object for programs."""
    if as_json:
        print(json.dumps(value, indent=2), flush=True)
    elif isinstance(table, str):
        print(*map(printable, table.split("\n")), sep="\n", flush=True)
    else:
        from macs.core.console import terminal

        terminal(width=None if sys.stdout.isatty() else 120).print(table)


Provider = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        negative="",
        help="For an exported detector: execution providers of ONNX Runtime, in order of preference [default: cpu].",
    ),
]


def detector_file(
    path: Path, net: str | None, score: str | None, provider: list[str] | None, hardware: Hardware
) -> "tuple[DetectorMetadata, Callable[[], ImageDetector | RowDetector]]":
    """Read a file of `macs calibrate` or `macs export`; `net` and `score` are the user's own, as module:Class.

    The second value is a function that gives the detector, for which it may have to import torch.
    """
    from macs.detector.hub import local_file

    hardware.prepare()
    path = local_file(path)
    if path.suffix == ".onnx":
        from macs.detector.runtime import open_onnx

        if net or score:
            raise MacsError(f"{path} holds its network and score; leave --net and --score out.")
        if hardware.device != "auto":
            raise MacsError(f"{path} is run by ONNX Runtime, which takes --provider; leave --device out.")
        runtime = open_onnx(path, providers=provider or (), threads=hardware.threads or 0)
        return runtime.metadata, lambda: runtime
    if provider:
        raise MacsError("--provider is for an exported detector, which ends in .onnx; leave it out.")
    from macs.detector.saving import read

    file = read(path)

    def load() -> "ImageDetector | RowDetector":
        if find_spec("torch") is None:
            raise MacsError(f"{path} is run by torch, which is not installed; give its exported file (macs export).")
        hardware.use()
        from macs.core.devices import best_device

        return file.open(net, score).to(best_device())

    return file.metadata, load


def image_detector_file(
    path: Path, net: str | None, score: str | None, provider: list[str] | None, hardware: Hardware
) -> "tuple[DetectorMetadata, Callable[[], ImageDetector]]":
    """The same for a file that must be a detector of images."""
    metadata, load = detector_file(path, net, score, provider, hardware)
    metadata.for_images(path)
    return metadata, cast("Callable[[], ImageDetector]", load)


def detector_sets(
    metadata: "DetectorMetadata", id: str | None, ood: list[str], data: Path | None
) -> "tuple[ImageSet, dict[str, ImageSet]]":
    """ID and OOD test images, prepared as the detector's network expects them."""
    from macs.data import load
    from macs.training.runs import load_apart

    if id is None:
        raise MacsError("Name ID test images with --id; a detector file does not record any.")
    preparation = metadata.for_images("The detector")
    test = load_apart(spec_in(metadata), id, "test", data, preparation)
    sets = {name: load(name, "test", root=data, preparation=preparation, labelled=False) for name in ood}
    return test, sets


def spec_in(metadata: "DetectorMetadata") -> "TrainingSpec | None":
    """The record of the training of a detector's network, if it has one that can be read."""
    from macs.training.spec import TrainingSpec

    try:
        return None if metadata.recipe is None else TrainingSpec.from_dict(metadata.recipe)
    except MacsError:
        return None


def training_images(metadata: "DetectorMetadata", path: Path, data: Path | None) -> "ImageSet | None":
    """The images that a detector's network was trained on, where its record names them and they are on this disk."""
    from macs.data.loading import Place
    from macs.data.spec import MEMORY
    from macs.training.spec import refuse_unnamed

    spec = spec_in(metadata)
    if spec is None or spec.train.source == MEMORY or Place(spec.train.source).kind == "hf":  # which would be fetched
        return None
    try:
        refuse_unnamed(path, "--id", spec.train.source)
        return spec.train.load(data, spec.preparation)
    except MacsError:
        return None


def refuse_beside_detector(**options: Any) -> None:
    """Refuse options about a network, since a detector file holds its own; the error names the first one given."""
    for name, value in options.items():
        if value is not None and value is not False:
            option = "the run folder" if name == "run" else f"--{name.replace('_', '-')}"
            raise MacsError(
                f"A detector has one network, one score and their settings in its file; leave {option} out."
            )


def refuse_without_detector(provider: list[str] | None) -> None:
    """Refuse an option that applies to detectors only."""
    if provider:
        raise MacsError("--provider is for an exported detector, which --detector names; leave it out.")
