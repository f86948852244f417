"""`macs evaluate`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from macs.cli._app import Data, Json, Whole, app, show
from macs.core.errors import MacsError
from macs.training.recipe import Recipe

if TYPE_CHECKING:
    from macs.data import ImageSet


@app.command
def evaluate(
    run: Path | None = None,
    /,
    *,
    ood: Annotated[list[str], Parameter(consume_multiple=True, negative="")],
    net: str | None = None,
    checkpoint: Path | None = None,
    normalisation: str | None = None,
    id: str | None = None,
    size: Whole | None = None,
    score: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    fit_images: Whole = 10_000,
    trials: Whole = 10,
    share: float = 0.2,
    seed: Whole = 0,
    fpr_rule: Literal["first", "nearest"] = "first",
    precision: Literal["auto", "bf16", "float32"] = "auto",
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure how well a classifier's confidence tells its own test images from unknown ones.

    Give a run folder, or --net, --checkpoint and --id. Several scores, or `--score all`, are ranked:

        macs evaluate runs/mine --ood svhn textures --score all

    Parameters
    ----------
    run
        Folder of a finished run.
    ood
        OOD test sets: names from `macs data list`, folders of images, or .npy files.
    net
        Network of the checkpoint.
    checkpoint
        Weights: ours, or the public OE, energy_ood, margin_ood and OpenOOD files.
    normalisation
        How the checkpoint's inputs were normalised, where it does not say so itself: oe, openood-cifar10,
        openood-cifar100, kuangliu, imagenet, half, none [default: oe].
    id
        ID test set that the network was trained for.
    size
        Edge of the square images, in pixels [default: the run's, else 32].
    score
        Confidence: msp, energy, knn, ... (docs/scores.md), several of them, or all; odin takes four times as long
        [default: what the run's method detects with, else msp].
    fit_images
        ID training images, drawn at random, for scores that are fitted to some; 0 is all.
    trials
        Draws of the paper's protocol.
    share
        Share of the ID test set in a draw.
    seed
        Decides the draws, and which training images scores are fitted to.
    fpr_rule
        Threshold of FPR95: the first that reaches 95%, or the nearest to it as in the authors' code.
    precision
        Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster.
    """
    from macs.data import load
    from macs.data.fitness import same_classes
    from macs.data.loading import Place
    from macs.evaluation.protocol import check_protocol
    from macs.training.runs import RunFolder

    check_protocol(trials, share, seed, fit_images)
    if run is not None:
        folder = RunFolder(run)
        recipe = folder.finished_recipe()
        if id is None and Place(recipe.id).undivided:
            raise MacsError(f"The network was trained on all images of {recipe.id}; name other ID images with --id.")
        net, checkpoint, id = net or recipe.net, checkpoint or folder.net_file, recipe.id if id is None else id
    elif net is None or checkpoint is None or id is None:
        raise MacsError("Name a run folder, or give --net, --checkpoint and --id.")
    else:
        recipe = Recipe(net=net, id=id, method="msp")
    if size is not None:
        recipe = replace(recipe, size=size)  # which knows the sizes that there are
    test = load(id, "test", root=data, size=recipe.size)
    sets = {name: load(name, "test", root=data, size=recipe.size, labelled=False) for name in ood}

    from macs import methods, nets, scores
    from macs.core.devices import best_device
    from macs.evaluation import evaluate_scores

    names = score or [methods.build(recipe).score]
    names = scores.available() if "all" in names else names
    scorers = {name: scores.get(name) for name in names}  # a wrong name is an error before anything slow
    network = nets.load(checkpoint, net, len(test.classes) or None, normalisation=normalisation).to(best_device())
    same_classes(test, nets.class_names(checkpoint), f"{checkpoint} was trained for")
    ranking = evaluate_scores(
        network,
        test,
        sets,
        list(scorers),
        train=lambda: _training_images(id, data, recipe.size),
        fit_images=fit_images,
        trials=trials,
        share=share,
        seed=seed,
        fpr_rule=fpr_rule,
        precision=precision,
    )
    table = ranking.evaluations[0] if len(scorers) == 1 else ranking
    show(table, {"net": net, "checkpoint": str(checkpoint), **table.as_dict()}, json)


def _training_images(id: str, data: Path | None, size: int) -> "ImageSet":
    """The train split of the ID set. A folder without splits is the test set, to which nothing is fitted."""
    from macs.data import load
    from macs.data.loading import Place

    if Place(id).undivided:
        raise MacsError(f"{id} is not divided into train and test; put its images into two such folders.")
    return load(id, "train", root=data, size=size)
