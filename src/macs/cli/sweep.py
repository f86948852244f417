"""`macs sweep`: Algorithm 1 of the paper, the choice of the margin."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from macs.cli._app import ANY_HARDWARE, Data, FprRuleOption, HardwareOptions, Json, Several, Whole, show
from macs.cli._engines import SERIAL, EngineOptions
from macs.cli.train import RecipeFile, finetuning_from, options_from
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.training.spec import TrainingOptions

if TYPE_CHECKING:
    SweepOptions: TypeAlias = TrainingOptions
else:
    SweepOptions = options_from(TrainingOptions(), without=("margin", "seed", "validate"))

DEFAULTS = SweepOptions()


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
    fpr_rule: FprRuleOption = "first",
    run: str | None = None,
    engine: EngineOptions = SERIAL,
    hardware: HardwareOptions = ANY_HARDWARE,
    data: Data = None,
    json: Json = False,
) -> None:
    """Choose the margin of MaCS: fine-tune with each one from the same weights, and compare on held-out images.

    The same command continues an interrupted sweep; nothing is computed twice.

        macs sweep --id cifar10 --outliers 300k --checkpoint classifier.pt --ood svhn textures --seeds 0 1 2
        macs sweep --id cifar10 --outliers 300k --checkpoint classifier.pt --engine ray --threads 1

    Parameters
    ----------
    margins
        Margins to try [default: 0.0 0.1 ... 0.9, and 1 2 5 10 20 with --options.on energy or log-odds].
    seeds
        Training seeds, whose mean decides [default: 0].
    validation
        Images held out from training to choose by, from the ID set and from the outliers: a share below 1, or a number
        of images. A set with a validation split uses that instead; an ID set without splits is divided (docs/data.md).
    val_outliers
        Another set of held-out outliers: a name from `macs data list`, a folder of images, or a .npy.
    ood
        OOD test sets to measure on as well; they do not influence the choice.
    choose
        Images that the margin is chosen by. `test` takes the best on the OOD test sets, as the paper's MaCS* does, and
        says so.
    run
        Folder to write [default: a folder in runs/ with a descriptive name]; with --engine ray, perhaps a URL.
    """
    from macs.data import load
    from macs.experiments.cells import SerialEngine
    from macs.experiments.margins import check_grid, held_out, usual_margins
    from macs.training.runs import run_name
    from macs.training.sources import parts_of_undivided

    hardware.use()
    wanted = finetuning_from(recipe, options)
    margins, seeds = margins or list(usual_margins(wanted.recipe)), seeds or [0]
    check_grid(wanted.recipe, margins, seeds)
    if choose == "test" and not ood:
        raise MacsError("--choose test needs OOD test sets to choose on; name them with --ood.")
    if not (0 < validation < 1 or (validation >= 1 and validation.is_integer())):
        raise MacsError(f"--validation must be a share above 0 and below 1, or a number of images, not {validation:g}.")
    share_or_count = validation if validation < 1 else int(validation)
    name = run_name(wanted.id, "sweep", wanted.net, wanted.method)
    with engine.results(Path("runs") / name if run is None else run) as results:
        runner = engine.make(data, SerialEngine(), results)
        preparation = wanted.preparation
        parts = parts_of_undivided(wanted, data)
        if parts:
            train, val = parts["train"], parts["val"]
        else:
            train, val = held_out(wanted.id, share_or_count, data, preparation=preparation)
        outliers, other_outliers = held_out(
            wanted.outliers, share_or_count, data, elsewhere=val_outliers, labelled=False, preparation=preparation
        )
        test = (parts.get("test") or load(wanted.id, "test", root=data, preparation=preparation)) if ood else None
        sets = {name: load(name, "test", root=data, preparation=preparation, labelled=False) for name in ood or []}

        from macs.experiments.margins import sweep as choose_margin

        if not wanted.checkpoint:
            warn("There is no --checkpoint, so every margin starts from the same random weights.")
        result = choose_margin(
            wanted.starting_net(classes=len(train.classes)),
            train,
            outliers,
            validation=(val, other_outliers),
            run=results.folder,
            test=test,
            ood=sets,
            margins=margins,
            seeds=seeds,
            method=wanted.method,
            recipe=wanted.recipe,
            choose=choose,
            fpr_rule=fpr_rule,
            engine=runner,
        )
        files = result.write()
    names = list(map(results.named, files))
    show(result, {**result.as_dict(), "files": names}, json)
    if not json:
        where = results.folder if results.mirror is None else results.mirror.url
        print(f"The curve is in {where}: {', '.join(file.name for file in files)}.")
