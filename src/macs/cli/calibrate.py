"""`macs calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from macs.cli._app import ANY_HARDWARE, Data, Flag, HardwareOptions, Json, NoCache, Settings, Several, Whole, show
from macs.core.cache import keeping
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.detector import Detector, FeatureDetector

Names = Annotated[list[str] | None, Several]


def calibrate(
    run: Path | None = None,
    /,
    *,
    out: Path,
    images: str | None = None,
    features: Path | None = None,
    logits: Path | None = None,
    head: Path | None = None,
    split: Literal["val", "test"] | None = None,
    keep: float = 0.95,
    check: float = 0.0,
    per_class: Annotated[bool, Flag] = False,
    outliers: Names = None,
    score: str | None = None,
    settings: Settings = None,
    fit_on: str | None = None,
    fit_images: Whole = 10_000,
    choose_on: Names = None,
    max_cost: float | None = None,
    net: str | None = None,
    checkpoint: Path | None = None,
    normalisation: str | None = None,
    classes: Names = None,
    size: Whole | None = None,
    no_cache: NoCache = False,
    hardware: HardwareOptions = ANY_HARDWARE,
    data: Data = None,
    json: Json = False,
) -> None:
    """Turn a classifier into a detector: find the threshold that keeps a share of ID images.

    Give a run folder; or --net, --checkpoint and --images; or, for any other model, files of --features, --logits or
    both. Only ID images set the threshold, and the network must not have been trained on them; a new image of their
    kind is then kept with probability at least --keep.

        macs calibrate runs/mine --images photos/val --out detector.safetensors
        macs calibrate runs/mine --check 0.5 --out detector.safetensors   # checked on half of the images
        macs calibrate --features val.npz --fit-on train.npz --score knn --out detector.safetensors
        macs predict new/ --detector detector.safetensors

    Parameters
    ----------
    run
        Folder of a finished run.
    out
        File to write, ending in .safetensors.
    images
        ID images: a name from `macs data list`, a folder, or a .npy file [default: the run's ID set].
    features
        ID rows of any model: a .npz file with the arrays features, logits or probabilities, and labels; a .npy file of
        features; or a .parquet or .csv table (docs/features.md). With them, --fit-on and --outliers are such files.
    logits
        Likewise, but a .npy file holds logits; together with --features, the file of the logits of the same rows.
    head
        With --features: a .npz file with weight (K x D) and bias (K) of the model's last layer, which gives the logits.
    split
        Split of these images, if they have splits [default: val, else test]; without splits, the images that the run
        held out. Training images are not accepted, since the network is more confident on them.
    keep
        Share of new ID images to keep.
    check
        Share of the images to hold back, to count and print how many of them the threshold keeps.
    per_class
        Find one threshold for each predicted class.
    outliers
        Sets of unknown images (their val split, else test); the share of each that would pass as ID is printed.
    score
        Confidence: any score of docs/scores.md except odin and adascale, a sum such as msp+vim, or auto, which chooses
        a score on held-out images [default: the score of the run's method, else msp; for rows, energy]. Settings are
        given as --score.k 10. For a sum and for auto, a quarter of the images, at most 1,000, is held out and takes no
        part in the calibration.
    fit_on
        ID training images, for a score that is fitted to such images: a name, a folder with or without a train folder
        inside, or a .npy file [default: the images that the run was trained on].
    fit_images
        Number of these images, drawn at random; 0 means all.
    choose_on
        For --score auto: sets of unknown images to choose on, in addition to those that macs makes itself: a dataset
        with a val split, a folder, or a .npy file; never those to test on.
    max_cost
        For --score auto: the time that a score may take per image, in microseconds, beyond the network's own pass, as
        measured on this machine; scores that take longer are no candidates [default: no limit].
    net
        Network of the checkpoint; clip/NAME needs none.
    checkpoint
        Weights: ours, or the public OE, energy_ood, margin_ood and OpenOOD files.
    normalisation
        How the checkpoint's inputs were normalised, if the file does not say so: oe, openood-cifar10,
        openood-cifar100, kuangliu, imagenet, half, none [default: oe].
    classes
        Names of the classes, for images that are not in class folders; for a zero-shot network (--net clip/NAME) the
        words that describe them, such as "cat, dog".
    size
        Edge of the square images, in pixels [default: that of the run or the checkpoint, else 32].
    """
    from macs.detector.from_run import detector_from_rows, detector_from_run
    from macs.detector.saving import detector_path

    hardware.use()
    rows = [path for path in (features, logits, head) if path is not None]
    detector_path(out, inputs=[path for path in (checkpoint, images, *rows) if path is not None])
    detector: Detector | FeatureDetector
    if rows:
        refuse_beside_rows(
            run=run,
            images=images,
            split=split,
            choose_on=choose_on,
            max_cost=max_cost,
            net=net,
            checkpoint=checkpoint,
            normalisation=normalisation,
            size=size,
        )
        detector = detector_from_rows(
            features,
            logits,
            head,
            keep=keep,
            check=check,
            per_class=per_class,
            outliers=outliers or (),
            score=score,
            settings=settings,
            fit_on=fit_on,
            fit_rows=fit_images,
            classes=classes or (),
        )
    else:
        with keeping(not no_cache):
            detector = detector_from_run(
                run,
                images=images,
                split=split,
                keep=keep,
                check=check,
                per_class=per_class,
                outliers=outliers or (),
                score=score,
                settings=settings,
                fit_on=fit_on,
                fit_images=fit_images,
                choose_on=choose_on or (),
                max_cost=max_cost,
                net=net,
                checkpoint=checkpoint,
                normalisation=normalisation,
                classes=classes or (),
                size=size,
                data=data,
                progress=True,
            )
    detector.save(out)
    calibration, choice, held_out = detector.calibrated, detector.choice, detector.held_out
    lines = [] if choice is None else [str(choice)]
    if held_out:
        name = calibration.score if choice is None else score
        lines.append(f"{held_out:,} {calibration.unit} were held out for {name}; they take no part in the calibration.")
    temperature = getattr(detector, "temperature", None)  # a detector of rows has none
    if temperature is not None:
        lines.append(f"Class probabilities get the temperature {temperature:.4g}, which changes no verdict.")
    value = {
        "detector": str(out),
        **calibration.as_dict(),
        "temperature": temperature,
        "held_out": held_out,
        "choice": None if choice is None else choice.as_dict(),
    }
    show("\n".join([*lines, str(calibration), f"The detector is in {out}."]), value, json)


def refuse_beside_rows(**options: Any) -> None:
    """Refuse options about images, where rows are calibrated on; the error names the first one given."""
    for name, value in options.items():
        if value is not None:
            option = "the run folder" if name == "run" else f"--{name.replace('_', '-')}"
            raise MacsError(f"--features and --logits need no network and no images; leave {option} out.")
