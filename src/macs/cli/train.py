"""`macs pretrain` and `macs finetune`, whose options are the fields of TrainingOptions and Recipe."""

import os
import shlex
import sys
from contextlib import AbstractContextManager
from dataclasses import InitVar, asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

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
    app,
    ood_sets_for,
    show,
    whole_number,
)
from macs.core.console import tell, warn
from macs.core.errors import MacsError
from macs.core.files import same_path, user_path
from macs.data.stores import is_url
from macs.training.options import (
    FROM_LIBRARY_OPTIONS,
    METHODS,
    PRETRAINING_OPTIONS,
    TrainingOptions,
    is_from_library,
    refuse_unnamed,
)
from macs.training.recipe import Recipe


def options_from(base: TrainingOptions, without: tuple[str, ...] = ()) -> type:
    """A dataclass of the options of a training, None unless given; the help texts name the defaults of `base`.

    If these are those of fine-tuning, the texts also name the ones that another library's networks have instead.
    """
    texts: dict[str, str] = {}
    hints: dict[str, Any] = {}
    for kind in (TrainingOptions, Recipe):
        texts |= {p.arg_name: p.description or "" for p in docstring_parser.parse_from_object(kind).params}
        hints |= get_type_hints(kind)
    texts["method"] = texts["method"].replace("METHODS", ", ".join(METHODS))
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
    from macs.data import ImageSet

    FinetuneOptions: TypeAlias = TrainingOptions
    PretrainOptions: TypeAlias = TrainingOptions
else:
    FinetuneOptions = options_from(TrainingOptions())
    about_outliers = ("outliers", "batch_out", "outlier_sampling", "outlier_quantile", "outlier_mix")
    without = ("method", "margin", "options", *about_outliers)
    PretrainOptions = options_from(PRETRAINING_OPTIONS, without)

FINETUNE_DEFAULTS, PRETRAIN_DEFAULTS = FinetuneOptions(), PretrainOptions()

Run = Annotated[str | None, Parameter(help="Folder to write [default: a folder in runs/ with a descriptive name].")]
Resume = Annotated[bool, Flag, Parameter(help="Continue the interrupted run in that folder.")]
Broken = Annotated[
    Literal["stop", "skip"],
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
        """Start the processes, wait for them and end; or, in a process that shall train, what to do that in."""
        from macs.training.launching import after_the_first, start

        code = start(self.devices, self.nodes, self.rendezvous, sys.argv[1:], cpu=hardware.device == "cpu")
        if code is not None:
            sys.exit(code)
        return after_the_first()


DevicesOptions = Annotated[Devices, Parameter(name="*")]
ONE_DEVICE = Devices()


@app.command
def pretrain(
    *,
    options: Annotated[PretrainOptions, Parameter(name="*")] = PRETRAIN_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    broken: Broken = "stop",
    resume: Resume = False,
    devices: DevicesOptions = ONE_DEVICE,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Train a plain classifier from scratch: the starting point of every method, and the baseline MSP."""
    hardware.use()
    wanted = wanted_from(PRETRAINING_OPTIONS, recipe, options)
    if wanted.method != PRETRAINING_OPTIONS.method:
        raise MacsError(f"{recipe} is a recipe for {wanted.method}; use it with `macs finetune`, or name another.")
    with devices.started(hardware):
        _train(wanted, run, data, broken, resume, json, from_scratch=True)


@app.command
def finetune(
    *,
    options: Annotated[FinetuneOptions, Parameter(name="*")] = FINETUNE_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    broken: Broken = "stop",
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
    with devices.started(hardware):
        _train(wanted, run, data, broken, resume, json, from_scratch=False)


def finetuning_from(file: Path | None, options: Any) -> TrainingOptions:
    """The options of a fine-tuning, whose defaults depend on whether its network is another library's."""
    wanted = wanted_from(TrainingOptions(), file, options)
    return wanted_from(FROM_LIBRARY_OPTIONS, file, options) if is_from_library(wanted.net) else wanted


def wanted_from(base: TrainingOptions, file: Path | None, options: Any) -> TrainingOptions:
    """The base options, overridden by those in the file, then by those on the command line."""
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
    broken: Literal["stop", "skip"],
    resume: bool,
    as_json: bool,
    from_scratch: bool,
) -> None:
    from macs.data import load
    from macs.data.loading import load_held_out
    from macs.training.runs import RunFolder, run_name

    recipe = wanted.recipe
    recipe.check_validation(wanted.validate)
    margin = [] if wanted.margin is None else [f"m{wanted.margin:g}"]
    name = run_name(wanted.id, wanted.net, wanted.method, *margin, f"seed{recipe.seed}")
    if run is not None and is_url(run):
        raise MacsError(f"{run} is a URL, but a training writes to a folder; name one.")
    folder = RunFolder(user_path(Path("runs") / name if run is None else run))
    folder.check_writable()
    preparation = wanted.preparation
    train, validation = _id_images(wanted, data, broken)

    from macs import methods, training
    from macs.training.checks import warn_of_known_outliers

    outliers = validation_outliers = None
    if methods.build(wanted.method, recipe.options).needs_outliers:
        outliers = load(wanted.outliers, "train", root=data, preparation=preparation, labelled=False, broken=broken)
        if validation is not None:
            validation_outliers = load_held_out(wanted.outliers, data, preparation, labelled=False, broken=broken)
            if validation_outliers is None:
                warn(f"{wanted.outliers} has no val part, so validation measures accuracy alone.")
    net = wanted.starting_net(classes=len(train.classes))
    if not (wanted.checkpoint or from_scratch or resume):
        warn("There is no --checkpoint, so training starts from random weights; `macs pretrain` gives better ones.")
    if outliers is not None and wanted.checkpoint and not resume and os.environ.get("RANK", "0") == "0":
        warn_of_known_outliers(net, train, outliers, recipe.precision, progress=True)
    history = training.finetune(
        net,
        train,
        outliers,
        method=wanted.method,
        recipe=recipe,
        validation=validation,
        validation_outliers=validation_outliers,
        run=folder.path,
        resume=resume,
    )
    if os.environ.get("RANK", "0") != "0":  # of several processes, one speaks; another machine may have no run folder
        return
    value = {
        "run": str(folder.path),
        "recipe": TrainingOptions.of(folder.spec).flat(),
        "history": [asdict(epoch) for epoch in history],
    }
    kept = next(epoch.epoch for epoch in history if epoch.kept)
    which = f", with the weights of epoch {kept} of {len(history)}" if recipe.keep == "best" else ""
    command = measuring(folder.path, wanted, data)
    show(f"The run is in {folder.path}{which}; measure it with: {command}", value, as_json)


def _id_images(
    wanted: TrainingOptions, data: Path | None, broken: Literal["stop", "skip"]
) -> "tuple[ImageSet, ImageSet | None]":
    """Training images, and validation images if they are wanted; a set without splits is divided."""
    from macs.data import load
    from macs.data.loading import load_held_out

    if parts := parts_of_undivided(wanted, data, broken):
        return parts["train"], parts["val"] if wanted.validate else None
    train = load(wanted.id, "train", root=data, preparation=wanted.preparation, broken=broken)
    validation = load_held_out(wanted.id, data, wanted.preparation, broken=broken) if wanted.validate else None
    if wanted.validate and validation is None:
        raise MacsError(f"{wanted.id} has no val part to validate on; name a set that has one, or drop --validate.")
    return train, validation


def parts_of_undivided(
    wanted: TrainingOptions, data: Path | None, broken: Literal["stop", "skip"] = "stop"
) -> "dict[str, ImageSet]":
    """The parts train, val and test of an ID set without splits, told in one line; none if it has splits."""
    from macs.data import load
    from macs.data.loading import DIVISIBLE, Place, divided

    if not Place(wanted.id).undivided:
        return {}
    images = load(wanted.id, "train", root=data, preparation=wanted.preparation, broken=broken)
    if len(images) < DIVISIBLE:
        return {}
    parts = divided(images)
    tell(
        f"{wanted.id} has no train, val and test parts: of its {len(images):,} images, {len(parts['train']):,} train "
        f"the network, {len(parts['val']):,} are held out to calibrate on and {len(parts['test']):,} to evaluate on "
        "(drawn at random, always the same ones)."
    )
    return parts


def measuring(run: Path, wanted: TrainingOptions, data: Path | None) -> str:
    """The command that measures a run: with OOD sets on disk that suit its ID set, else with a folder of the user's."""
    from macs.data.loading import Place, available

    id = wanted.id
    sets = ood_sets_for(id, data)[:3] if id in available() else []
    words = ["macs", "evaluate", str(run), "--ood", *(sets or ["FOLDER_OF_UNKNOWN_IMAGES"])]
    # The user's own code is only imported if the command names it.
    words += ["--id", id] if ":" in id and Place(id).kind == "dataset" else []
    words += ["--net", wanted.net] if ":" in wanted.net else []
    words += ["--score", "msp"] if ":" in wanted.method else []
    words += ["--data", str(data)] if data is not None and sets else []
    return shlex.join(words)
