"""The option `--detector`, which takes both kinds of detector file."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter

from macs.cli._app import Hardware
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.data import ImageSet
    from macs.detector.base import ImageDetector
    from macs.detector.metadata import DetectorMetadata
    from macs.detector.row_detector import RowDetector
    from macs.training.spec import TrainingSpec

Provider = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        negative="",
        help="For an exported detector: execution providers of ONNX Runtime, in order of preference [default: cpu].",
    ),
]


def detector_file(
    path: Path, net: str | None, score: str | None, provider: list[str] | None, hardware: Hardware
) -> "tuple[DetectorMetadata, Callable[[], ImageDetector | RowDetector]]":
    """Read a file of `macs calibrate` or `macs export`; `net` and `score` are the user's own, as module:Class.

    The second value is a function that gives the detector, for which it may have to import torch.
    """
    from macs.detector.hub import local_file

    hardware.prepare()
    path = local_file(path)
    if path.suffix == ".onnx":
        from macs.detector.runtime import open_onnx

        if net or score:
            raise MacsError(f"{path} holds its network and score; leave --net and --score out.")
        if hardware.device != "auto":
            raise MacsError(f"{path} is run by ONNX Runtime, which takes --provider; leave --device out.")
        runtime = open_onnx(path, providers=provider or (), threads=hardware.threads or 0)
        return runtime.metadata, lambda: runtime
    if provider:
        raise MacsError("--provider is for an exported detector, which ends in .onnx; leave it out.")
    from macs.detector.saving import read

    file = read(path)

    def load() -> "ImageDetector | RowDetector":
        if find_spec("torch") is None:
            raise MacsError(f"{path} is run by torch, which is not installed; give its exported file (macs export).")
        hardware.use()
        from macs.core.devices import best_device

        return file.open(net, score).to(best_device())

    return file.metadata, load


def image_detector_file(
    path: Path, net: str | None, score: str | None, provider: list[str] | None, hardware: Hardware
) -> "tuple[DetectorMetadata, Callable[[], ImageDetector]]":
    """The same for a file that must be a detector of images."""
    metadata, load = detector_file(path, net, score, provider, hardware)
    metadata.for_images(path)
    return metadata, cast("Callable[[], ImageDetector]", load)


def detector_sets(
    metadata: "DetectorMetadata", id: str | None, ood: list[str], data: Path | None
) -> "tuple[ImageSet, dict[str, ImageSet]]":
    """ID and OOD test images, prepared as the detector's network expects them."""
    from macs.data import load
    from macs.training.runs import load_apart

    if id is None:
        raise MacsError("Name ID test images with --id; a detector file does not record any.")
    preparation = metadata.for_images("The detector")
    test = load_apart(spec_in(metadata), id, "test", data, preparation)
    sets = {name: load(name, "test", root=data, preparation=preparation, labelled=False) for name in ood}
    return test, sets


def spec_in(metadata: "DetectorMetadata") -> "TrainingSpec | None":
    """The record of the training of a detector's network, if it has one that can be read."""
    from macs.training.spec import TrainingSpec

    try:
        return None if metadata.recipe is None else TrainingSpec.from_dict(metadata.recipe)
    except MacsError:
        return None


def training_images(metadata: "DetectorMetadata", path: Path, data: Path | None) -> "ImageSet | None":
    """The images that a detector's network was trained on, where its record names them and they are on this disk."""
    from macs.data.loading import Place
    from macs.data.spec import MEMORY
    from macs.training.spec import refuse_unnamed

    spec = spec_in(metadata)
    if spec is None or spec.train.source == MEMORY or Place(spec.train.source).kind == "hf":  # which would be fetched
        return None
    try:
        refuse_unnamed(path, "--id", spec.train.source)
        return spec.train.load(data, spec.preparation)
    except MacsError:
        return None


def refuse_beside_detector(**options: Any) -> None:
    """Refuse options about a network, since a detector file holds its own; the error names the first one given."""
    for name, value in options.items():
        if value is not None and value is not False:
            option = "the run folder" if name == "run" else f"--{name.replace('_', '-')}"
            raise MacsError(
                f"A detector has one network, one score and their settings in its file; leave {option} out."
            )


def refuse_without_detector(provider: list[str] | None) -> None:
    """Refuse an option that applies to detectors only."""
    if provider:
        raise MacsError("--provider is for an exported detector, which --detector names; leave it out.")
