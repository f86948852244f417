"""The command line: parse, call, print. Nothing heavy is imported before a command needs it."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

import docstring_parser
from cyclopts import App, CycloptsError, Parameter, Token
from rich.console import Console

import macs
from macs.errors import MacsError
from macs.recipe import PRETRAINING, Recipe

app = App(
    name="macs",
    version=macs.__version__,
    help="""Equip an image classifier with out-of-distribution (OOD) detection.

    Start with `macs demo`. Then, with your data root in $MACS_DATA:

        macs finetune --id cifar10 --outliers 300k --checkpoint classifier.pt --method macs --run runs/mine
        macs evaluate runs/mine --ood svhn textures places365""",
    help_format="markdown",
    suppress_keyboard_interrupt=False,
)
data_app = App(name="data", help="The datasets: what there is and what is on disk.")
app.command(data_app)


def whole_number(kind: Any, tokens: Sequence[Token]) -> int:
    """An int as written; the library would round 1.5 to 2 without a word."""
    return int(tokens[0].value)


def options_from(base: Recipe, without: tuple[str, ...] = ()) -> type:
    """A dataclass with Recipe's fields as options, None where not given, its help naming the base's defaults."""
    texts = {p.arg_name: p.description or "" for p in docstring_parser.parse_from_object(Recipe).params}
    hints = get_type_hints(Recipe)
    options = []
    for f in (f for f in fields(Recipe) if f.name not in without):
        default = getattr(base, f.name)
        shown = f" [default: {default}]" if default not in (None, "", {}) else ""
        converter = whole_number if hints[f.name] is int else None
        parameter = Parameter(help=texts[f.name] + shown, show_default=False, converter=converter)
        options.append((f.name, Annotated[hints[f.name] | None, parameter], field(default=None)))
    return make_dataclass("RecipeOptions", options, namespace={"__module__": __name__})


if TYPE_CHECKING:
    FinetuneOptions: TypeAlias = Recipe
    PretrainOptions: TypeAlias = Recipe
else:
    FinetuneOptions = options_from(Recipe())
    PretrainOptions = options_from(PRETRAINING, without=("method", "margin", "options", "outliers", "batch_out"))

FINETUNE_DEFAULTS, PRETRAIN_DEFAULTS = FinetuneOptions(), PretrainOptions()

Flag = Parameter(negative="")
Data = Annotated[Path | None, Parameter(help="Data root; else $MACS_DATA, else the user's cache folder.")]
Json = Annotated[bool, Flag, Parameter(help="Print the results as JSON, per draw or epoch.")]
Run = Annotated[Path | None, Parameter(help="Folder to write [default: in runs/, by a name that says what it is].")]
Resume = Annotated[bool, Flag, Parameter(help="Go on with the interrupted run in that folder.")]
RecipeFile = Annotated[Path | None, Parameter(help="A recipe.toml to start from; options given here override it.")]


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: int = 0, json: Json = False) -> None:
    """See the paper's idea work on embedded images: no download, a few minutes on two cores.

    Parameters
    ----------
    out
        Folder for the runs; what is already there is not computed again.
    seed
        Decides every random number.
    """
    from macs.demo import demo as run_demo

    result = run_demo(out, seed=seed)
    _print(result, {name: each.as_dict() for name, each in result.evaluations.items()}, json)
    if not json:
        print(f"The runs are in {result.folder}: recipe.toml, metrics.jsonl and net.safetensors each.")


@data_app.command(name="list")
def data_list(*, data: Data = None, json: Json = False) -> None:
    """Every dataset by name: its role, its splits, and whether it is on disk."""
    from macs.data import catalog_rows

    rows = catalog_rows(data)
    if json:
        _print_json([asdict(row) for row in rows])
    else:
        from macs.tables import catalog_table

        Console().print(catalog_table(rows))


@app.command
def pretrain(
    *,
    options: Annotated[PretrainOptions, Parameter(name="*")] = PRETRAIN_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Train a plain classifier from scratch: the start for every method, and the baseline MSP."""
    _train(_recipe(PRETRAINING, recipe, options), run, data, resume, json)


@app.command
def finetune(
    *,
    options: Annotated[FinetuneOptions, Parameter(name="*")] = FINETUNE_DEFAULTS,
    recipe: RecipeFile = None,
    run: Run = None,
    data: Data = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Fine-tune a classifier with its own images and auxiliary outliers. The defaults are the paper's protocol."""
    _train(_recipe(Recipe(), recipe, options), run, data, resume, json)


@app.command
def evaluate(
    run: Path | None = None,
    /,
    *,
    ood: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    net: str | None = None,
    checkpoint: Path | None = None,
    id: str | None = None,
    score: str | None = None,
    trials: int = 10,
    share: float = 0.2,
    seed: int = 0,
    fpr_rule: Literal["first", "nearest"] = "first",
    precision: Literal["auto", "bf16", "float32"] = "auto",
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure how well a classifier's confidence tells its own test images from unknown ones.

    Give a run folder, or --net, --checkpoint and --id.

    Parameters
    ----------
    run
        Folder of a finished run.
    ood
        OOD test sets: names from `macs data list`, folders of images, or .npy files.
    net
        Network of the checkpoint.
    checkpoint
        Weights: ours, or the public OE, energy_ood and margin_ood files.
    id
        ID test set that the network was trained for.
    score
        Confidence: msp, maxlogit, energy [default: what the run's method detects with, else msp].
    trials
        Draws of the paper's protocol.
    share
        Share of the ID test set in a draw.
    seed
        Decides the draws.
    fpr_rule
        Threshold of FPR95: the first that reaches 95%, or the nearest to it as in the authors' code.
    precision
        Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster.
    """
    from macs.data import load
    from macs.runs import RunFolder

    if run is not None:
        folder = RunFolder(run)
        recipe = folder.recipe
        if not folder.finished:
            raise MacsError(f"The run in {run} is not finished; go on with it by --resume.")
        net, checkpoint, id = net or recipe.net, checkpoint or folder.net_file, id or recipe.id
    elif net is None or checkpoint is None or id is None:
        raise MacsError("Name a run folder, or give --net, --checkpoint and --id.")
    else:
        recipe = Recipe(net=net, id=id, method="msp")
    test = load(id, "test", root=data, size=recipe.size)
    sets = {name: load(name, "test", root=data, size=recipe.size) for name in ood}

    from macs import methods, nets
    from macs.devices import best_device
    from macs.evaluation import evaluate as measure

    network = nets.load(checkpoint, net, classes=len(test.classes)).to(best_device())
    table = measure(
        network,
        test,
        sets,
        score=score or methods.build(recipe).score,
        trials=trials,
        share=share,
        seed=seed,
        fpr_rule=fpr_rule,
        precision=precision,
    )
    _print(table, {"net": net, "checkpoint": str(checkpoint), **table.as_dict()}, json)


def _recipe(base: Recipe, file: Path | None, options: Any) -> Recipe:
    """The file's recipe or the base, with the options that were given."""
    given = {key: value for key, value in vars(options).items() if value is not None}
    return replace(Recipe.from_toml(file) if file else base, **given)


def _train(recipe: Recipe, run: Path | None, data: Path | None, resume: bool, as_json: bool) -> None:
    from macs.data import load

    # Named as the recipe names them, so that its paths find the same images again.
    train = replace(load(recipe.id, "train", root=data, size=recipe.size), name=recipe.id)
    outliers = None
    if recipe.outliers:
        outliers = replace(load(recipe.outliers, "train", root=data, size=recipe.size), name=recipe.outliers)
    margin = "" if recipe.margin is None else f"-m{recipe.margin:g}"
    name = f"{Path(recipe.id).name}-{recipe.net}-{recipe.method}{margin}-seed{recipe.seed}".replace(":", ".")
    folder = run or Path("runs") / name

    from macs import training

    net = training.starting_net(recipe, classes=len(train.classes))
    history = training.finetune(net, train, outliers, recipe=recipe, run=folder, resume=resume)
    if as_json:
        _print_json({"run": str(folder), "recipe": asdict(recipe), "history": [asdict(epoch) for epoch in history]})
    else:
        print(f"The run is in {folder}; measure it with: macs evaluate {folder} --ood svhn textures")


def _print(shown: Any, value: Any, as_json: bool) -> None:
    if as_json:
        _print_json(value)
    else:
        Console(width=None if sys.stdout.isatty() else 120).print(shown)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def main() -> None:
    """Entry point; mistakes of the user become one sentence and exit code 2."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False)
    except (MacsError, CycloptsError) as error:
        errors.print(f"[bold red]error:[/] {error}", markup=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("Stopped. An interrupted run goes on with the same command and --resume.")
        sys.exit(130)
