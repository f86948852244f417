"""`macs evaluate`."""

import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from macs.cli._app import (
    ANY_HARDWARE,
    Data,
    FprRuleOption,
    HardwareOptions,
    Json,
    NoCache,
    Provider,
    Settings,
    Several,
    Whole,
    detector_sets,
    image_detector_file,
    refuse_beside_detector,
    refuse_without_detector,
    show,
    spec_in,
)
from macs.core.cache import keeping
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.data import ImageSet
    from macs.evaluation import Evaluation, Ranking
    from macs.evaluation.benchmarks import Benchmark
    from macs.training.runs import TrainedNetwork
    from macs.training.spec import TrainingSpec

FIT_IMAGES = 10_000


def evaluate(
    run: Path | None = None,
    /,
    *,
    ood: Annotated[list[str] | None, Several] = None,
    benchmark: str | None = None,
    detector: Path | None = None,
    net: str | None = None,
    checkpoint: Path | None = None,
    normalisation: str | None = None,
    id: str | None = None,
    size: Whole | None = None,
    score: Annotated[list[str] | None, Several] = None,
    settings: Settings = None,
    metrics: Annotated[list[str] | None, Several] = None,
    fit_images: Whole = FIT_IMAGES,
    trials: Whole = 10,
    share: float = 0.2,
    seed: Whole = 0,
    fpr_rule: FprRuleOption = "first",
    precision: Literal["auto", "bf16", "float32"] = "auto",
    provider: Provider = None,
    export_csv: Path | None = None,
    no_cache: NoCache = False,
    hardware: HardwareOptions = ANY_HARDWARE,
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure how well a classifier's confidence tells its own test images from unknown ones.

    Give a run folder; or --net, --checkpoint and --id; or --detector and --id. Several scores, or `--score all`, are
    ranked; a detector is measured by its own score. An exported detector is measured without torch.

        macs evaluate runs/mine --ood svhn textures --score all
        macs evaluate --detector detector.onnx --id photos/test --ood unknown/

    Parameters
    ----------
    run
        Folder of a finished run.
    ood
        OOD test sets: names from `macs data list`, folders of images, lists of image files, or .npy files.
    benchmark
        Measure on the sets of a public benchmark instead, by its own protocol, with --data as the folder of its lists
        and pictures: openood-cifar10, openood-cifar100, openood-imagenet200, openood-imagenet (docs/data.md).
    detector
        File from `macs calibrate` or `macs export`, or hf://org/name, instead of a network. If its network or score are
        your own, name them with --net and --score as module:Class.
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
        Edge of the square images, in pixels [default: that of the run or the checkpoint, else 32].
    score
        Confidence: msp, energy, knn, ... (docs/scores.md), a sum such as msp+vim, several of them, or all, which leaves
        out odin, adascale-a and adascale-l, since each takes a gradient per image, and joint-energy, which is for
        multi-label networks, unless they are named beside all
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
        Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster. A detector
        always computes in float32, or in int8 if it was exported so.
    export_csv
        With --benchmark, also write a row per score in the columns of OpenOOD's leaderboard to this file (.csv). Its
        values are means over three trainings; these are of one.
    """
    from macs.data import load
    from macs.evaluation import benchmarks
    from macs.evaluation.protocol import Protocol, check_fit_images
    from macs.metrics import shown

    protocol = Protocol(trials, share, seed, fpr_rule)
    shown(metrics)
    check_fit_images(fit_images)
    public = _public(benchmark, ood, id, export_csv)
    if detector is not None:
        if benchmark is not None:
            raise MacsError("--benchmark measures a network; for a detector, name the sets with --id and --ood.")
        refuse_beside_detector(
            run=run,
            checkpoint=checkpoint,
            normalisation=normalisation,
            size=size,
            fit_images=fit_images != FIT_IMAGES,
            precision=precision != "auto",
            score=bool(settings) or len(score or ()) > 1,
        )
        metadata, open_detector = image_detector_file(detector, net, score[0] if score else None, provider, hardware)
        test, sets = detector_sets(metadata, id, ood or [], data)
        _familiar(sets, spec_in(metadata))
        with keeping(not no_cache):
            evaluation = open_detector().evaluate(test, sets, **asdict(protocol))
        value = {"net": metadata.net, "detector": str(detector), **evaluation.as_dict()}
        show(evaluation.table(metrics), value, json)
        _draw(evaluation, json)
        return
    refuse_without_detector(provider)
    hardware.use()

    from macs.training.runs import load_run

    trained = load_run(run, net=net, checkpoint=checkpoint, id=benchmark or id, size=size, normalisation=normalisation)
    if public is not None:
        trained = public.suited(trained) if run is None and size is None else trained
        test, sets = public.sets(data, trained.preparation)
    else:
        test = trained.images("test", data)
        sets = {n: load(n, "test", root=data, preparation=trained.preparation, labelled=False) for n in ood or ()}

    from macs import scores
    from macs.evaluation import evaluate_scores
    from macs.training.checks import warn_of_familiar_sets

    named = [trained.score] if score is None else score
    scorers = scores.get_all(named, settings or {})  # report a wrong name before anything slow
    network = trained.network_for(test)
    outliers = None if public is not None else trained.outliers(data)
    known = _familiar(sets, trained.spec)
    with keeping(not no_cache):
        if outliers is not None:
            others = {name: images for name, images in sets.items() if name not in known}
            warn_of_familiar_sets(network, outliers, others, precision)
        ranking = evaluate_scores(
            network,
            test,
            sets,
            scorers,
            train=lambda: (
                public.load("train", root=data, preparation=trained.preparation)
                if public is not None
                else trained.images_to_fit(data)
            ),
            held_out=None if public else lambda: trained.held_out_images(data),
            fit_images=fit_images,
            protocol=protocol,
            precision=precision,
        )
    if public is not None:
        compared = benchmarks.BenchmarkResult(public, ranking)
        if export_csv is not None:
            compared.write_csv(export_csv, **_described(trained))
        result: benchmarks.BenchmarkResult | Evaluation | Ranking = compared
    else:
        result = ranking.evaluations[0] if len(scorers) == 1 else ranking
    value = {"net": trained.net, "checkpoint": str(trained.checkpoint), **result.as_dict()}
    show(result.table(metrics), value, json)
    _draw(result, json)


def _draw(result: object, json: bool) -> None:
    """On a terminal, draw where the confidences of known and unknown images lie."""
    histogram = getattr(result, "histogram", None)
    if histogram is not None and not json and sys.stdout.isatty():
        from macs.evaluation.histogram import ASCII, BLOCKS

        try:
            BLOCKS.encode(sys.stdout.encoding)
            blocks = BLOCKS
        except UnicodeEncodeError:
            blocks = ASCII
        show(histogram.drawn(shutil.get_terminal_size().columns, blocks), {}, as_json=False)


def _public(
    benchmark: str | None, ood: list[str] | None, id: str | None, export_csv: Path | None
) -> "Benchmark | None":
    """Return the public benchmark that is asked for, if one is; raise if what is asked for contradicts itself."""
    from macs.evaluation import benchmarks

    public = None if benchmark is None else benchmarks.get(benchmark)
    if public is not None and (ood or id is not None):
        raise MacsError(f"The benchmark {public.name} has its own sets; leave out --ood and --id.")
    if public is None and not ood:
        raise MacsError("Name OOD test sets with --ood, or a public benchmark with --benchmark.")
    if export_csv is not None:
        if public is None:
            raise MacsError("--export-csv writes the columns of a public benchmark; name one with --benchmark.")
        benchmarks.csv_path(export_csv)
    return public


def _familiar(sets: "dict[str, ImageSet]", spec: "TrainingSpec | None") -> set[str]:
    """The names of the OOD sets that hold outliers of the training, each with a warning."""
    from macs.data.compatibility import warn_of_trained_outliers

    return set() if spec is None or spec.outliers is None else warn_of_trained_outliers(sets, spec.outliers)


def _described(trained: "TrainedNetwork") -> dict[str, Any]:
    """Return what the leaderboard's columns say of a network; without a run, that it was trained with cross-entropy."""
    spec = trained.spec
    if spec is None:
        return {"training": "CrossEntropy", "arch": trained.net}
    epochs = spec.recipe.epochs
    return {
        "training": "CrossEntropy" if spec.method == "msp" else spec.method,
        "arch": trained.net,
        "outliers": spec.outliers is not None,
        "description": f"{epochs} epoch{'s' * (epochs != 1)}, seed {spec.recipe.seed}",
    }
