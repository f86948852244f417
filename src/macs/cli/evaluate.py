"""`macs evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from macs.cli._app import Data, FprRuleOption, Json, Settings, Several, Whole, app, show
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.data import ImageSet, Preparation
    from macs.evaluation import Evaluation, Ranking


@app.command
def evaluate(
    run: Path | None = None,
    /,
    *,
    ood: Annotated[list[str] | None, Several] = None,
    benchmark: str | None = None,
    net: str | None = None,
    checkpoint: Path | None = None,
    normalisation: str | None = None,
    id: str | None = None,
    size: Whole | None = None,
    score: Annotated[list[str] | None, Several] = None,
    settings: Settings = None,
    metrics: Annotated[list[str] | None, Several] = None,
    fit_images: Whole = 10_000,
    trials: Whole = 10,
    share: float = 0.2,
    seed: Whole = 0,
    fpr_rule: FprRuleOption = "first",
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
        OOD test sets: names from `macs data list`, folders of images, lists of image files, or .npy files.
    benchmark
        Measure on the sets of a public benchmark instead, by its own protocol, with --data as the folder of its lists
        and pictures: openood-cifar10, openood-cifar100, openood-imagenet200, openood-imagenet (docs/data.md).
    net
        Network of the checkpoint.
    checkpoint
        Weights: ours, or the public OE, energy_ood, margin_ood and OpenOOD files.
    normalisation
        How the checkpoint's inputs were normalised, if the file does not say so: oe, openood-cifar10,
        openood-cifar100, kuangliu, imagenet, half, none [default: oe].
    id
        ID set that the network was trained for.
    size
        Edge of the square images, in pixels [default: the run's, else 32].
    score
        Confidence: msp, energy, knn, ... (docs/scores.md), several of them, or all; odin takes four times as long
        [default: the score of the run's method, else msp]. A setting, such as --score.k 10, goes to the scores that
        have it.
    metrics
        Columns of the tables, by the names in the JSON output; one of your own is module:name
        [default: auroc aupr fpr95 aupr_id fpr95_id].
    fit_images
        Number of ID training images, drawn at random, for scores that are fitted; 0 means all.
    trials
        Number of draws in the paper's protocol.
    share
        Share of the ID test set in a draw.
    seed
        Seed of the draws, and of the choice of training images that scores are fitted to.
    precision
        Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster.
    """
    from macs.data import load
    from macs.evaluation import benchmarks
    from macs.evaluation.protocol import Protocol, check_fit_images
    from macs.metrics import shown
    from macs.training.trained import open_trained, refuse_trained_on_all

    protocol = Protocol(trials, share, seed, fpr_rule)
    check_fit_images(fit_images)
    shown(metrics)
    public = None if benchmark is None else benchmarks.get(benchmark)
    if public is not None and (ood or id is not None):
        raise MacsError(f"The benchmark {public.name} has its own sets; leave out --ood and --id.")
    if public is None and not ood:
        raise MacsError("Name OOD test sets with --ood, or a public benchmark with --benchmark.")
    trained = open_trained(
        run, net=net, checkpoint=checkpoint, id=benchmark or id, size=size, normalisation=normalisation
    )
    refuse_trained_on_all(trained, benchmark or id)
    if public is not None:
        trained = public.suited(trained) if run is None and size is None else trained
        test, sets = public.sets(data, trained.preparation)
    else:
        test = load(trained.id, "test", root=data, preparation=trained.preparation)
        sets = {n: load(n, "test", root=data, preparation=trained.preparation, labelled=False) for n in ood or ()}

    from macs import scores
    from macs.evaluation import evaluate_scores

    names = [trained.score] if score is None else score
    names = scores.available() if "all" in names else names
    scorers = scores.get_all(names, settings or {})  # report a wrong name before anything slow
    network = trained.network_for(test)
    ranking = evaluate_scores(
        network,
        test,
        sets,
        scorers,
        train=lambda: (
            public.load("train", root=data, preparation=trained.preparation)
            if public is not None
            else _training_images(trained.id, data, trained.preparation)
        ),
        fit_images=fit_images,
        protocol=protocol,
        precision=precision,
    )
    if public is not None:
        result: benchmarks.BenchmarkResult | Evaluation | Ranking = benchmarks.BenchmarkResult(public, ranking)
    else:
        result = ranking.evaluations[0] if len(scorers) == 1 else ranking
    value = {"net": trained.net, "checkpoint": str(trained.checkpoint), **result.as_dict()}
    show(result.table(metrics), value, json)


def _training_images(id: str, data: Path | None, preparation: "Preparation") -> "ImageSet":
    """The train split of the ID set. A folder without splits is the test set, to which scores must not be fitted."""
    from macs.data import load
    from macs.data.loading import Place

    if Place(id).undivided:
        raise MacsError(f"{id} is not divided into train and test; put its images into two such folders.")
    return load(id, "train", root=data, preparation=preparation)
