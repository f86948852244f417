"""From a trained network on disk to a calibrated detector: `Detector.from_run` and `macs calibrate`.

The rules are here and in `Detector`: which images calibrate, which are held out, which fit a score, which choose one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.data import ImageSet, Preparation, load
from macs.data.compatibility import few, refuse_seen, same_classes
from macs.data.loading import Place, load_unseen
from macs.detector.calibration import share_to_keep
from macs.detector.row_files import head_in, rows_in
from macs.detector.score_selection import AUTO, allowed_cost, candidate_names
from macs.training.runs import TrainedNetwork, load_run

if TYPE_CHECKING:
    from macs.detector._detector import Detector
    from macs.detector._feature_detector import FeatureDetector


def detector_from_run(
    run: str | Path | None = None,
    *,
    images: str | None = None,
    split: str | None = None,
    keep: float = 0.95,
    check: float = 0.0,
    per_class: bool = False,
    outliers: Sequence[str] = (),
    score: str | None = None,
    settings: Mapping[str, Any] | None = None,
    fit_on: str | None = None,
    fit_images: int = 10_000,
    choose_on: Sequence[str] = (),
    max_cost: float | None = None,
    net: str | None = None,
    checkpoint: str | Path | None = None,
    normalisation: str | None = None,
    classes: Sequence[str] = (),
    size: int | None = None,
    data: str | Path | None = None,
    progress: bool = False,
) -> "Detector":
    """Do what `macs calibrate` does, with its options as arguments, and return the calibrated detector."""
    share_to_keep(keep)
    Span(0, 1, open="most").hold("--check, the share of images to hold back,", check)
    trained = load_run(
        None if run is None else Path(run),
        net=net,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        id=images,
        size=size,
        normalisation=normalisation,
        images="--images",
    )
    root = None if data is None else Path(data)
    validation = images_to_calibrate_on(trained, split, root)
    unknown = {
        name: load_unseen(name, None, root, labelled=False, preparation=trained.preparation) for name in outliers
    }

    from macs.detector._detector import Detector
    from macs.detector.scored import Auto
    from macs.scores import get_all

    name = trained.score if score is None else score
    auto = name == AUTO
    if choose_on and not auto:
        raise MacsError(
            "--choose-on is for --score auto; for the share of unknown images that would pass, use --outliers."
        )
    if max_cost is not None:
        if not auto:
            raise MacsError("--max-cost is for --score auto; a score that you name is taken at any cost.")
        allowed_cost(max_cost)
    candidates = get_all(candidate_names() if auto else [name], settings or {})
    train = None
    if any(candidate.needs("training images") for candidate in candidates.values()):
        train = images_to_fit(trained, name, fit_on, root)
    elif fit_on is not None:
        raise MacsError(f"{name} is not fitted to training images; leave --fit-on out.")
    kinds = {kind: images_to_choose_on(kind, root, trained.preparation) for kind in choose_on}

    known, given = trained.classes, tuple(classes)
    if trained.zero_shot and len(given) == 1:  # --classes "cat, dog"
        given = tuple(word.strip() for word in given[0].split(","))
    if known and given and given != known:
        raise MacsError(
            f"--classes are {few(given)}, but {trained.checkpoint} was trained for {few(known)}; leave them out."
        )
    same_classes(validation, known, f"{trained.checkpoint} was trained for")
    names = known or given or validation.classes
    network = trained.network(len(names) or None, names)
    record = None if trained.spec is None else trained.spec.as_dict()
    detector = Detector(network, Auto(candidates, max_cost) if auto else candidates[name], known or given, record)
    if auto or train is not None:
        detector.fit(train, unknown=kinds or None, images=fit_images, progress=progress)
    return detector.calibrate(validation, keep, per_class, unknown, check, progress)


def detector_from_rows(
    features: Path | None,
    logits: Path | None,
    head: Path | None,
    *,
    keep: float,
    check: float,
    per_class: bool,
    outliers: Sequence[str],
    score: str | None,
    settings: Mapping[str, Any] | None,
    fit_on: str | None,
    fit_rows: int,
    classes: Sequence[str],
) -> "FeatureDetector":
    """Do what `macs calibrate` does with files of features and logits, and return the calibrated detector."""
    share_to_keep(keep)
    from macs.detector._feature_detector import FeatureDetector
    from macs.scores import get

    if features is None and logits is None:
        raise MacsError("--head is the last layer above features; give these too, with --features.")
    files = {kind: path for kind, path in (("features", features), ("logits", logits)) if path is not None}
    kind = next(iter(files))
    rows = rows_in(files, classes)
    layer = None if head is None else head_in(head)
    name = score or "energy"
    if name == AUTO:
        raise MacsError("--score auto chooses a score by looking at images; name one for features and logits.")
    detector = FeatureDetector(get(name, **settings or {}), layer, tuple(classes))
    if fit_on is not None:
        detector.fit(rows_in({kind: fit_on}, classes), rows=fit_rows)
    elif detector.score.needs("training images"):
        raise MacsError(f"{name} is fitted to ID training rows; name a file of them with --fit-on.")
    unknown = {path: rows_in({kind: path}, classes) for path in outliers}
    return detector.calibrate(rows, keep=keep, per_class=per_class, outliers=unknown, check=check)


def images_to_calibrate_on(trained: TrainedNetwork, split: str | None, data: Path | None) -> ImageSet:
    """The val part of the ID set, else its test part; never images that the network was trained on."""
    if trained.divided:
        return trained.images(split or "val", data)
    images = load_unseen(trained.id, split, data, preparation=trained.preparation)
    if split is None and images.origin.split == "test":
        tell(f"{trained.id} has no val part, so the threshold is calibrated on test images; evaluate it on others.")
    if trained.trained_on is not None:
        refuse_seen(images, trained.trained_on)
    return images


def images_to_fit(trained: TrainedNetwork, score: str, fit_on: str | None, data: Path | None) -> ImageSet | None:
    """The images to fit a score to: by default those that the network was trained on."""
    if trained.divided and fit_on is None:
        return trained.images("train", data)
    source = fit_on or trained.trained_on
    if source is not None:
        return load(source, "train", root=data, preparation=trained.preparation)
    if score == AUTO:  # there are still scores to choose among
        return None
    raise MacsError(f"{score} is fitted to ID training images; name them with --fit-on.")


def images_to_choose_on(name: str, data: Path | None, preparation: Preparation) -> ImageSet:
    """Unknown images to choose a score on; of a set with splits only the val split, never test images."""
    splits = Place(name).splits
    if splits and "val" not in splits:
        raise MacsError(
            f"{name} has {', '.join(splits)} but no val split, and a score must not be chosen on test images; give "
            "--choose-on a folder or a .npy file of other images."
        )
    return load(name, "val", root=data, labelled=False, preparation=preparation)
