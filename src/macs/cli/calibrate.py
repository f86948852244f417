"""`macs calibrate`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from macs.cli._app import Data, Flag, Json, Whole, app, show
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.training.recipe import Recipe

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]


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
    net: str | None = None,
    checkpoint: Path | None = None,
    normalisation: str | None = None,
    classes: Names = None,
    size: Whole | None = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Turn a classifier into a detector: find the threshold that keeps a share of ID images.

    Give a run folder, or --net, --checkpoint and --images. The threshold comes from ID images alone, which the network
    must not have been trained on; a new image of their kind is then kept with probability at least --keep.

        macs calibrate runs/mine --images photos/val --out detector.safetensors
        macs calibrate runs/mine --check 0.5 --out detector.safetensors   # and count
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
        Which part of them, where there are parts [default: val, else test]. Training images are not offered: the
        network knows them.
    keep
        Share of new ID images to keep.
    check
        Share of the images to hold back, and to count on them what the threshold keeps.
    per_class
        Find one threshold for each predicted class.
    outliers
        Sets of unknown images, to report which share of each would pass: their val part, else test.
    score
        Confidence: msp, maxlogit, energy, gen [default: what the run's method detects with, else msp].
    net
        Network of the checkpoint.
    checkpoint
        Weights: ours, or the public OE, energy_ood, margin_ood and OpenOOD files.
    normalisation
        How the checkpoint's inputs were normalised, where it does not say so itself: oe, openood-cifar10,
        openood-cifar100, kuangliu, imagenet, half, none [default: oe].
    classes
        Names of the classes, for images that lie in no class folders.
    size
        Edge of the square images, in pixels [default: the run's, else 32].
    """
    from macs.data.fitness import few, refuse_seen, same_classes
    from macs.data.loading import load_unseen
    from macs.detector.calibration import share_to_keep
    from macs.detector.files import detector_path
    from macs.training.runs import RunFolder

    detector_path(out, inputs=[each for each in (checkpoint, images) if each is not None])
    share_to_keep(keep)
    Span(0, 1, open="most").hold("--check, the share of images to hold back,", check)
    recipe: Recipe | None = None
    if run is not None:
        folder = RunFolder(run)
        recipe = folder.finished_recipe()
        net, checkpoint = net or recipe.net, checkpoint or folder.net_file
        images = recipe.id if images is None else images
        size = recipe.size if size is None else size
    elif net is None or checkpoint is None or images is None:
        raise MacsError("Name a run folder, or give --net, --checkpoint and --images.")
    validation = load_unseen(images, split, data, size)
    if recipe is not None:
        refuse_seen(validation, recipe.id)
    others, validation = validation.split(check) if check else (None, validation)
    unknown = {name: load_unseen(name, None, data, size, labelled=False) for name in outliers or ()}

    from macs import Detector, methods, nets
    from macs.core.devices import best_device

    trained, given = nets.class_names(checkpoint), tuple(classes or ())
    if trained and given and given != trained:
        raise MacsError(f"--classes are {few(given)}, but {checkpoint} was trained for {few(trained)}; leave them out.")
    same_classes(validation, trained, f"{checkpoint} was trained for")
    names = trained or given or validation.classes
    network = nets.load(checkpoint, net, len(names) or None, normalisation=normalisation).to(best_device())
    chosen = score or (methods.build(recipe).score if recipe else "msp")
    detector = Detector(network, chosen, trained or given, None if recipe is None else asdict(recipe))
    detector = detector.calibrate(validation, keep, per_class, unknown, others, progress=True)
    detector.save(out)
    calibration = detector.calibrated
    show(f"{calibration}\nThe detector is in {out}.", {"detector": str(out), **calibration.as_dict()}, json)
