"""`macs evaluate`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from macs.cli._app import Data, Json, Whole, app, show
from macs.errors import MacsError
from macs.recipe import Recipe


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
    trials: Whole = 10,
    share: float = 0.2,
    seed: Whole = 0,
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
    show(table, {"net": net, "checkpoint": str(checkpoint), **table.as_dict()}, json)
