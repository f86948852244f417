"""`macs calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from macs.cli._app import ANY_HARDWARE, Data, Flag, HardwareOptions, Json, NoCache, Settings, Several, Whole, app, show
from macs.core.cache import keeping
from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.settings import Span

if TYPE_CHECKING:
    from macs.data import ImageSet, Preparation
    from macs.training.trained import Trained

Names = Annotated[list[str] | None, Several]
AUTO = "auto"  # the score that is chosen


@app.command
def calibrate(
    run: Path | None = None,
    /,
    *,
    out: Path,
    images: str | None = None,
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

    Give a run folder, or --net, --checkpoint and --images. The threshold comes from ID images alone, which the network
    must not have been trained on; a new image of their kind is then kept with probability at least --keep.

        macs calibrate runs/mine --images photos/val --out detector.safetensors
        macs calibrate runs/mine --check 0.5 --out detector.safetensors   # checked on half of the images
        macs predict new/ --detector detector.safetensors

    Parameters
    ----------
    run
        Folder of a finished run.
    out
        File to write, ending in .safetensors.
    images
        ID images: a name from `macs data list`, a folder, or a .npy file [default: the run's ID set].
    split
        Split of these images, if they have splits [default: val, else test]; without splits, the images that the run
        held out. Training images are not accepted, since the network is more confident on them.
    keep
        Share of new ID images to keep.
    check
        Share of the images to hold back; the share of these that the threshold keeps is counted and printed.
    per_class
        Find one threshold for each predicted class.
    outliers
        Sets of unknown images (their val split, else test); the share of each that would pass as ID is printed.
    score
        Confidence: any score of docs/scores.md except odin, a sum such as msp+vim, or auto, which chooses a score on
        held-out images [default: the score of the run's method, else msp]; settings are given as --score.k 10. For a
        sum and for auto, a quarter of the images, at most 1,000, is held out and takes no part in the calibration.
    fit_on
        ID training images, for a score that is fitted to such images: a name, a folder with or without a train folder
        inside, or a .npy file [default: the images that the run was trained on].
    fit_images
        Number of these images, drawn at random; 0 means all.
    choose_on
        For --score auto: sets of unknown images to choose on, in addition to those that macs makes itself: a dataset
        with a val split, a folder, or a .npy file; never those to test on.
    net
        Network of the checkpoint.
    checkpoint
        Weights: ours, or the public OE, energy_ood, margin_ood and OpenOOD files.
    normalisation
        How the checkpoint's inputs were normalised, if the file does not say so: oe, openood-cifar10,
        openood-cifar100, kuangliu, imagenet, half, none [default: oe].
    classes
        Names of the classes, for images that are not in class folders.
    size
        Edge of the square images, in pixels [default: that of the run or the checkpoint, else 32].
    """
    from macs.data.fitness import few, same_classes
    from macs.data.loading import load_unseen
    from macs.detector.calibration import share_to_keep
    from macs.detector.choosing import candidate_names
    from macs.detector.saving import detector_path
    from macs.training.trained import open_trained

    hardware.use()
    detector_path(out, inputs=[path for path in (checkpoint, images) if path is not None])
    share_to_keep(keep)
    Span(0, 1, open="most").hold("--check, the share of images to hold back,", check)
    trained = open_trained(
        run, net=net, checkpoint=checkpoint, id=images, size=size, normalisation=normalisation, images="--images"
    )
    validation = images_to_calibrate_on(trained, split, data)
    others, validation = validation.split(check) if check else (None, validation)
    unknown = {
        name: load_unseen(name, None, data, labelled=False, preparation=trained.preparation) for name in outliers or ()
    }

    from macs import Detector, scores

    name = trained.score if score is None else score
    auto = name == AUTO
    if choose_on is not None and not auto:
        raise MacsError(
            "--choose-on is for --score auto; for the share of unknown images that would pass, use --outliers."
        )
    candidates = scores.get_all(candidate_names() if auto else [name], settings or {})
    train = held_out = None
    if any(candidate.needs("training images") for candidate in candidates.values()):
        spec = fit_on or trained.trained_on
        if spec or not auto:  # without training images there are still scores to choose among
            if trained.divided and fit_on is None:
                train = trained.images("train", data)
            else:
                train = training_images(spec, name, data, trained.preparation, validation)
    elif fit_on is not None:
        raise MacsError(f"{name} is not fitted to training images; leave --fit-on out.")
    if any(candidate.needs("held-out images") for candidate in candidates.values()):
        held_out, validation = hold_out(validation, name)
    kinds = {kind: load_kind(kind, data, trained.preparation) for kind in choose_on or ()}

    known, given = trained.classes, tuple(classes or ())
    if known and given and given != known:
        raise MacsError(
            f"--classes are {few(given)}, but {trained.checkpoint} was trained for {few(known)}; leave them out."
        )
    same_classes(validation, known, f"{trained.checkpoint} was trained for")
    network = trained.network(len(known or given or validation.classes) or None)
    record = None if trained.spec is None else trained.spec.as_dict()
    detector = Detector(network, "msp" if auto else candidates[name], known or given, record)
    with keeping(not no_cache):
        if auto and held_out is not None:
            detector = detector.choose(train, held_out, kinds, candidates, images=fit_images, progress=True)
        elif train is not None or held_out is not None:
            detector = detector.fit(train, held_out, images=fit_images, progress=True)
        detector = detector.calibrate(validation, keep, per_class, unknown, others, progress=True)
    detector.save(out)
    calibration, choice = detector.calibrated, detector.choice
    lines = [] if choice is None else [str(choice)]
    if held_out is not None:
        lines.append(f"{len(held_out):,} images were held out for {name}; they take no part in the calibration.")
    value = {
        "detector": str(out),
        **calibration.as_dict(),
        "held_out": 0 if held_out is None else len(held_out),
        "choice": None if choice is None else choice.as_dict(),
    }
    show("\n".join([*lines, str(calibration), f"The detector is in {out}."]), value, json)


def images_to_calibrate_on(trained: "Trained", split: str | None, data: Path | None) -> "ImageSet":
    """The val part of the ID set, else its test part; never images that the network was trained on."""
    from macs.data.fitness import refuse_seen
    from macs.data.loading import load_unseen

    if trained.divided:
        return trained.images(split or "val", data)
    images = load_unseen(trained.id, split, data, preparation=trained.preparation)
    if split is None and images.origin.split == "test":
        tell(f"{trained.id} has no val part, so the threshold is calibrated on test images; evaluate it on others.")
    if trained.trained_on is not None:
        refuse_seen(images, trained.trained_on)
    return images


def hold_out(images: "ImageSet", score: str) -> "tuple[ImageSet, ImageSet]":
    """Held-out images, on which a sum is standardised or a score is chosen, and the others, to calibrate on."""
    from macs import scores

    if len(images) < 4 * scores.FEWEST:
        raise MacsError(
            f"For {score}, a quarter of the images is held out, so at least {4 * scores.FEWEST} are needed, but "
            f"{images.name} has {len(images)}; give more."
        )
    return images.split(scores.held_out_of(len(images)))


def load_kind(name: str, data: Path | None, preparation: "Preparation") -> "ImageSet":
    """Unknown images to choose a score on; of a set with splits only the val split, never test images."""
    from macs.data import load
    from macs.data.loading import Place

    splits = Place(name).splits
    if splits and "val" not in splits:
        raise MacsError(
            f"{name} has {', '.join(splits)} but no val split, and a score must not be chosen on test images; give "
            "--choose-on a folder or a .npy file of other images."
        )
    return load(name, "val", root=data, labelled=False, preparation=preparation)


def training_images(
    spec: str | None, score: str, data: Path | None, preparation: "Preparation", others: "ImageSet"
) -> "ImageSet":
    """The images to fit a score to; an error if they are those to calibrate on."""
    from macs.data import load
    from macs.data.fingerprint import same_pixels

    if spec is None:
        raise MacsError(f"{score} is fitted to ID training images; name them with --fit-on.")
    train = load(spec, "train", root=data, preparation=preparation)
    if same_pixels(train, others):
        raise MacsError(f"{spec} holds the images to calibrate on; fit {score} to the training images.")
    return train
