"""`macs pretrain` and `macs finetune`, whose options are the fields of TrainingOptions and Recipe."""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import InitVar, asdict, dataclass, field, make_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import docstring_parser
from cyclopts import Parameter

from macs.cli._app import (
    ANY_HARDWARE,
    Data,
    Flag,
    Hardware,
    HardwareOptions,
    Json,
    Whole,
    show,
    whole_number,
)
from macs.core.console import tell, warn
from macs.core.errors import MacsError
from macs.core.files import is_url, same_path, user_path
from macs.data.pixels import OnBroken
from macs.training.recipe import AUTO, Recipe
from macs.training.spec import (
    FROM_LIBRARY_OPTIONS,
    METHODS,
    PRETRAINING_OPTIONS,
    TrainingOptions,
    is_from_library,
    refuse_unnamed,
)

PRETRAINING_METHODS = """Training method, one that needs no outliers: msp (cross-entropy), logitnorm (cross-entropy of
    logits of constant norm), or your own as module:Class."""


def options_from(
    base: TrainingOptions, without: tuple[str, ...] = (), own_texts: Mapping[str, str] = MappingProxyType({})
) -> type:
    """Return a dataclass of the options of a training, None unless given; the help texts name the defaults of `base`.

    If these are those of fine-tuning, the texts also name the ones that another library's networks have instead.
    """
    texts: dict[str, str] = {}
    hints: dict[str, Any] = {}
    for kind in (TrainingOptions, Recipe):
        texts |= {p.arg_name: p.description or "" for p in docstring_parser.parse_from_object(kind).params}
        hints |= get_type_hints(kind)
    texts["method"] = texts["method"].replace("METHODS", ", ".join(METHODS))
    texts |= own_texts
    options = []
    library = (FROM_LIBRARY_OPTIONS if base == TrainingOptions() else base).flat()
    for name, default in base.flat().items():
        if name not in without:
            hint = hints[name].type if isinstance(hints[name], InitVar) else hints[name]
            defaults = [] if default in (None, "", {}) else [f"{default}"]
            defaults += [] if library[name] == default else [f"{library[name]} for another library's network"]
            default_text = f" [default: {'; '.join(defaults)}]" if defaults else ""
            converter = whole_number if hint in (int, int | None) else None
            parameter = Parameter(help=texts[name] + default_text, show_default=False, converter=converter)
            options.append((name, Annotated[hint | None, parameter], field(default=None)))
    return make_dataclass("Options", options, namespace={"__module__": __name__})


if TYPE_CHECKING:
    FinetuneOptions: TypeAlias = TrainingOptions
    PretrainOptions: TypeAlias = TrainingOptions
else:
    FinetuneOptions = options_from(TrainingOptions())
    about_outliers = ("outliers", "batch_out", "outlier_sampling", "outlier_quantile", "outlier_mix")
    PretrainOptions = options_from(PRETRAINING_OPTIONS, ("margin", *about_outliers), {"method": PRETRAINING_METHODS})

FINETUNE_DEFAULTS, PRETRAIN_DEFAULTS = FinetuneOptions(), PretrainOptions()

Run = Annotated[str | None, Parameter(help="Folder to write [default: a folder in runs/ with a descriptive name].")]
Resume = Annotated[bool, Flag, Parameter(help="Continue the interrupted run in that folder.")]
BrokenOption = Annotated[
    OnBroken,
    Parameter(help="An image in a folder or list that cannot be read ends the command, or is reported and left out."),
]
RecipeFile = Annotated[Path | None, Parameter(help="A recipe.toml to start from; options given here override it.")]


@dataclass(frozen=True)
class Devices:
    """The options of a training on several devices."""

    devices: Whole = 1
    """Devices of this machine that train together, with one process each: GPUs, or processes that share the CPU. They
    share out each batch; the result is that of one device up to rounding, dropout and batch norm (--sync-bn)."""

    nodes: Whole = 1
    """Machines that train together; start the same command on each."""

    rendezvous: str | None = None
    """HOST:PORT of one of the machines, where they all meet."""

    def started(self, hardware: Hardware) -> AbstractContextManager[None]:
        """Start the processes, wait for them and end; or return the context in which this process trains."""
        if self == ONE_DEVICE and "TORCHELASTIC_RUN_ID" not in os.environ:
            return nullcontext()  # without an import of torch
        from macs.training.distributed import after_the_first, start

        code = start(self.devices, self.nodes, self.rendezvous, sys.argv[1:], cpu=hardware.device == "cpu")
        if code is not None:
            sys.exit(code)
        return after_the_first()


DevicesOptions = Annotated[Devices, Parameter(name="*")]
ONE_DEVICE = Devices()


def pretrain(
    *,
    options: Annotated[PretrainOptions, Parameter(name="*")] = PRETRAIN_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    broken: BrokenOption = "stop",
    resume: Resume = False,
    devices: DevicesOptions = ONE_DEVICE,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Train a classifier from scratch, without outliers: the baseline MSP, from which all methods start."""
    hardware.use()
    wanted = wanted_from(PRETRAINING_OPTIONS, recipe, options)

    from macs import methods

    if methods.method[wanted.method].needs_outliers:
        file = f"{recipe} is a recipe for {wanted.method}, which trains"
        raise MacsError(
            f"{f'{wanted.method} trains' if options.method else file} with outliers; use it with `macs finetune`, or "
            "name another."
        )
    with devices.started(hardware):
        _train(wanted, run, data, broken, resume, json, from_scratch=True)


def finetune(
    *,
    options: Annotated[FinetuneOptions, Parameter(name="*")] = FINETUNE_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    broken: BrokenOption = "stop",
    resume: Resume = False,
    devices: DevicesOptions = ONE_DEVICE,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Fine-tune a classifier with its own images and auxiliary outliers.

    The defaults are the paper's protocol. Networks of other libraries have defaults of their own, chosen on validation
    photographs. With --freeze backbone, only the last layer is trained: after one pass over the images, that takes
    seconds.

        macs finetune --id photos/known --outliers photos/other --net timm/resnet50 --checkpoint pretrained \\
            --freeze backbone
    """
    hardware.use()
    wanted = finetuning_from(recipe, options)
    if options.method == AUTO and "RANK" not in os.environ:
        tell(f"auto: {in_words(wanted)}. `macs calibrate --score auto` chooses the score.")
    with devices.started(hardware):
        _train(wanted, run, data, broken, resume, json, from_scratch=False)


def finetuning_from(file: Path | None, options: Any) -> TrainingOptions:
    """Return the options of a fine-tuning, whose defaults depend on whether its network is another library's."""
    wanted = wanted_from(TrainingOptions(), file, options)
    return wanted_from(FROM_LIBRARY_OPTIONS, file, options) if is_from_library(wanted.net) else wanted


def in_words(wanted: TrainingOptions) -> str:
    """Return the method with its settings, and the hyper-parameters that `auto` may decide."""
    recipe = wanted.recipe
    settings = ", ".join(f"{name} {value}" for name, value in recipe.options.items())
    share = f", start share {recipe.start_share:g}" if recipe.start_share else ""
    return f"{wanted.method} with {settings}; learning rate {recipe.lr:g}{share}"


def wanted_from(base: TrainingOptions, file: Path | None, options: Any) -> TrainingOptions:
    """Return the base options, overridden by those in the file, then by those on the command line."""
    from_command_line = {key: value for key, value in vars(options).items() if value is not None}
    wanted = (TrainingOptions.from_toml(file, base) if file else base).updated(from_command_line)
    for name in ("net", "method", "id", "outliers"):
        if name in vars(options) and name not in from_command_line:
            refuse_unnamed(file or "", f"--{name}", getattr(wanted, name))
    if wanted.outliers and (wanted.id == wanted.outliers or same_path(user_path(wanted.id), wanted.outliers)):
        raise MacsError(f"The outliers are the ID set itself, {wanted.id}; name images that belong to no class.")
    return wanted


def _train(
    wanted: TrainingOptions,
    run: str | None,
    data: Path | None,
    broken: OnBroken,
    resume: bool,
    as_json: bool,
    from_scratch: bool,
) -> None:
    from macs.training.runs import RunFolder, run_name
    from macs.training.sources import requested

    recipe = wanted.recipe
    recipe.check_validation(wanted.validate)
    margin = [] if wanted.margin is None else [f"m{wanted.margin:g}"]
    name = run_name(wanted.id, wanted.net, wanted.method, *margin, f"seed{recipe.seed}")
    if run is not None and is_url(run):
        raise MacsError(f"{run} is a URL, but a training writes to a folder; name one.")
    folder = RunFolder(user_path(Path("runs") / name if run is None else run))
    folder.check_writable()
    training = requested(wanted, data, broken)
    first = os.environ.get("RANK", "0") == "0"
    if not (wanted.checkpoint or from_scratch or resume):
        warn("There is no --checkpoint, so training starts from random weights; `macs pretrain` gives better ones.")
    if training.outliers is not None and wanted.checkpoint and not resume and first:
        from macs.training.checks import warn_of_known_outliers

        warn_of_known_outliers(training.net, training.train, training.outliers, recipe.precision, progress=True)

    from macs.training import run as run_training

    history = run_training(training, folder.path, resume=resume)
    if not first:  # of several processes, one speaks; another machine may have no run folder
        return
    value = {
        "run": str(folder.path),
        "recipe": TrainingOptions.of(training.spec).flat(),
        "history": [asdict(epoch) for epoch in history],
    }
    kept = next(epoch.epoch for epoch in history if epoch.kept)
    which = f", with the weights of epoch {kept} of {len(history)}" if recipe.keep == "best" else ""
    command = measuring(folder.path, wanted, data)
    show(f"The run is in {folder.path}{which}; measure it with: {command}", value, as_json)


def measuring(run: Path, wanted: TrainingOptions, data: Path | None) -> str:
    """Return the command that measures a run: with OOD sets on disk that suit its ID set, else with a user's folder."""
    from macs.data.loading import Place, available, ood_sets_for

    id = wanted.id
    sets = ood_sets_for(id, data)[:3] if id in available() else []
    words = ["macs", "evaluate", str(run), "--ood", *(sets or ["FOLDER_OF_UNKNOWN_IMAGES"])]
    # The user's own code is only imported if the command names it.
    words += ["--id", id] if ":" in id and Place(id).kind == "dataset" else []
    words += ["--net", wanted.net] if ":" in wanted.net else []
    words += ["--score", "msp"] if ":" in wanted.method else []
    words += ["--data", str(data)] if data is not None and sets else []
    return shlex.join(words)
