"""`macs pretrain` and `macs finetune`: their options are the fields of Recipe."""

from dataclasses import asdict, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import docstring_parser
from cyclopts import Parameter

from macs.cli._app import Data, Flag, Json, app, show, whole_number
from macs.training.recipe import PRETRAINING, Recipe


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

Run = Annotated[Path | None, Parameter(help="Folder to write [default: in runs/, by a name that says what it is].")]
Resume = Annotated[bool, Flag, Parameter(help="Go on with the interrupted run in that folder.")]
RecipeFile = Annotated[Path | None, Parameter(help="A recipe.toml to start from; options given here override it.")]


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
    _train(recipe_from(PRETRAINING, recipe, options), run, data, resume, json)


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
    _train(recipe_from(Recipe(), recipe, options), run, data, resume, json)


def recipe_from(base: Recipe, file: Path | None, options: Any) -> Recipe:
    """The file's recipe or the base, with the options that were given."""
    given = {key: value for key, value in vars(options).items() if value is not None}
    return replace(Recipe.from_toml(file) if file else base, **given)


def _train(recipe: Recipe, run: Path | None, data: Path | None, resume: bool, as_json: bool) -> None:
    from macs.data import load

    train = load(recipe.id, "train", root=data, size=recipe.size)

    from macs import methods, training

    outliers = None
    if methods.build(recipe).needs_outliers:
        outliers = load(recipe.outliers, "train", root=data, size=recipe.size, labelled=False)
    margin = "" if recipe.margin is None else f"-m{recipe.margin:g}"
    name = f"{Path(recipe.id).name}-{recipe.net}-{recipe.method}{margin}-seed{recipe.seed}".replace(":", ".")
    folder = run or Path("runs") / name
    net = training.starting_net(recipe, classes=len(train.classes))
    history = training.finetune(net, train, outliers, recipe=recipe, run=folder, resume=resume)
    value = {"run": str(folder), "recipe": asdict(recipe), "history": [asdict(epoch) for epoch in history]}
    show(f"The run is in {folder}; measure it with: macs evaluate {folder} --ood svhn textures", value, as_json)
