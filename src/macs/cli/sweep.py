"""`macs sweep`: Algorithm 1, the choice of the margin."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from macs.cli._app import Data, Json, Several, Whole, app, show
from macs.cli.train import RecipeFile, options_from, wanted_from
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.files import output_folder
from macs.training.options import TrainingOptions

if TYPE_CHECKING:
    SweepOptions: TypeAlias = TrainingOptions
else:
    SweepOptions = options_from(TrainingOptions(), without=("margin", "seed"))

DEFAULTS = SweepOptions()


@app.command
def sweep(
    *,
    options: Annotated[SweepOptions, Parameter(name="*")] = DEFAULTS,
    recipe: RecipeFile = None,
    margins: Annotated[list[float] | None, Several] = None,
    seeds: Annotated[list[Whole] | None, Several] = None,
    validation: float = 0.1,
    val_outliers: str | None = None,
    ood: Annotated[list[str] | None, Several] = None,
    choose: Literal["validation", "test"] = "validation",
    fpr_rule: Literal["first", "nearest"] = "first",
    run: str | None = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Choose the margin of MaCS: fine-tune with each one from the same weights, and compare on held-out images.

    An interrupted sweep goes on with the same command; nothing is computed twice.

        macs sweep --id cifar10 --outliers 300k --checkpoint classifier.pt --ood svhn textures --seeds 0 1 2

    Parameters
    ----------
    margins
        Margins to try [default: 0.0 0.1 ... 0.9].
    seeds
        Training seeds, whose mean decides [default: 0].
    validation
        Images held out from training to choose by, of the ID set and of the outliers: a share, or from 1 on a number.
        A set that has a validation split of its own gives that instead.
    val_outliers
        Held-out outliers from elsewhere: a name from `macs data list`, a folder of images, or a .npy.
    ood
        OOD test sets to measure on as well; they do not decide.
    choose
        What decides. `test` takes the best on the OOD test sets, as the paper's MaCS* does, and says so.
    fpr_rule
        Threshold of FPR95: the first that reaches 95%, or the nearest to it as in the authors' code.
    run
        Folder to write [default: in runs/, by a name that says what it is].
    """
    from macs.data import load
    from macs.experiments.margins import MARGINS, check_grid, held_out
    from macs.training.runs import run_name

    wanted = wanted_from(TrainingOptions(), recipe, options)
    tried, seeds = margins or list(MARGINS), seeds or [0]
    check_grid(wanted.recipe, tried, seeds)
    if choose == "test" and not ood:
        raise MacsError("--choose test needs OOD test sets to choose on; name them with --ood.")
    if not (0 < validation < 1 or (validation >= 1 and validation.is_integer())):
        raise MacsError(f"--validation must be a share above 0 and below 1, or a number of images, not {validation:g}.")
    first = validation if validation < 1 else int(validation)
    name = run_name(wanted.id, "sweep", wanted.net, wanted.method)
    folder = output_folder(Path("runs") / name if run is None else run)
    train, val = held_out(wanted.id, first, data, wanted.size)
    outliers, held = held_out(wanted.outliers, first, data, wanted.size, elsewhere=val_outliers, labelled=False)
    test = load(wanted.id, "test", root=data, size=wanted.size) if ood else None
    sets = {name: load(name, "test", root=data, size=wanted.size, labelled=False) for name in ood or []}

    from macs.experiments.margins import sweep as choose_margin

    if not wanted.checkpoint:
        warn("There is no --checkpoint, so every margin starts from the same random weights.")
    result = choose_margin(
        wanted.starting_net(classes=len(train.classes)),
        train,
        outliers,
        validation=(val, held),
        run=folder,
        test=test,
        ood=sets,
        margins=tried,
        seeds=seeds,
        method=wanted.method,
        recipe=wanted.recipe,
        choose=choose,
        fpr_rule=fpr_rule,
    )
    files = result.write()
    show(result, {**result.as_dict(), "files": list(map(str, files))}, json)
    if not json:
        print(f"The curve is in {result.folder}: {', '.join(file.name for file in files)}.")
