"""A trained network on disk: from a run folder, or from a checkpoint and its description."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from macs.core.errors import MacsError
from macs.core.files import same_path
from macs.data.loading import Place, divided_as, load
from macs.data.preparation import DEFAULT, Preparation
from macs.data.spec import MEMORY
from macs.training.options import is_from_library, preparation_named, refuse_unnamed
from macs.training.runs import RunFolder
from macs.training.spec import TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from macs.data import ImageSet


@dataclass(frozen=True)
class Trained:
    """Where a network is stored and what it was trained on; the network is loaded on demand."""

    net: str
    checkpoint: Path
    id: str  # its ID set
    preparation: Preparation = DEFAULT  # of its input images
    normalisation: str | None = None
    spec: TrainingSpec | None = None  # of its run

    @property
    def trained_on(self) -> str | None:
        """The ID set of its run; None if that is code that only the run's record names."""
        source = None if self.spec is None else self.spec.train.source
        return None if source and source != self.id and ":" in source and Place(source).kind == "dataset" else source

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class names, if its file has them."""
        from macs import nets

        return nets.class_names(self.checkpoint)

    @property
    def score(self) -> str:
        """The score that its method's authors use for detection."""
        from macs import methods

        if self.spec is None:
            return "msp"
        if ":" in self.spec.method:
            raise MacsError(
                f"The run was trained by a method of your own, {self.spec.method}, which is not imported because the "
                "run's record names it; choose a score with --score."
            )
        return methods.build(self.spec.method, self.spec.recipe.options).score

    @property
    def divided(self) -> bool:
        """Whether its ID set has no splits, so that its own training has divided the set."""
        return self.spec is not None and bool(self.spec.train.parts) and trained_on_undivided(self.spec, self.id)

    def images(self, split: str, root: str | Path | None = None) -> "ImageSet":
        """The train, val or test images of its ID set; see `load_apart`."""
        return load_apart(self.spec, self.id, split, root, self.preparation)

    def held_out_images(self, root: str | Path | None = None) -> "ImageSet | None":
        """The validation images of its ID set, where there are some."""
        return self.images("val", root) if self.divided or "val" in Place(self.id).splits else None

    def network(self, classes: int | None = None) -> "nn.Module":
        """The network, on the best device."""
        from macs import nets
        from macs.core.devices import best_device
        from macs.training.checks import warn_of_normalisation

        warn_of_normalisation(self.id, self.checkpoint, self.normalisation)
        preparation = self.preparation if is_from_library(self.net) else None
        network = nets.load_weights(self.checkpoint, self.net, classes, None, self.normalisation, preparation)
        nets.set_geometry(network, self.preparation)
        return network.to(best_device())

    def outliers(self, data: Path | None) -> "ImageSet | None":
        """The outliers that it was trained with, where its record names them and they are still there."""
        spec = None if self.spec is None else self.spec.outliers
        if spec is None or spec.source == MEMORY:
            return None
        try:
            refuse_unnamed(self.checkpoint, "--outliers", spec.source)
            return spec.load(data, self.preparation)
        except MacsError:
            return None

    def network_for(self, images: "ImageSet") -> "nn.Module":
        """The network, on the best device; an error if the images have other classes."""
        from macs.data.fitness import same_classes

        same_classes(images, self.classes, f"{self.checkpoint} was trained for")
        return self.network(len(images.classes) or None)


def open_trained(
    run: Path | None,
    *,
    net: str | None = None,
    checkpoint: Path | None = None,
    id: str | None = None,
    size: int | None = None,
    normalisation: str | None = None,
    images: str = "--id",
) -> Trained:
    """The network of a finished run, where other arguments override the run's own; without a run they are required.

    `images` is the command line's name for `id`, used in messages.
    """
    if run is None:
        if net is None or checkpoint is None or id is None:
            raise MacsError(f"Name a run folder, or give --net, --checkpoint and {images}.")
        return Trained(net, checkpoint, id, preparation_named(net, checkpoint, size), normalisation)
    folder = RunFolder(run)
    spec = folder.finished_spec()
    if id is None and spec.train.source == MEMORY:
        raise MacsError(f"The network in {run} was trained on images in memory; name ID images with {images}.")
    if net is None:
        refuse_unnamed(folder.recipe_file, "--net", spec.net)
    if id is None:
        refuse_unnamed(folder.recipe_file, images, spec.train.source)
    return Trained(
        net or spec.net,
        checkpoint or folder.net_file,
        spec.train.source if id is None else id,
        spec.preparation if size in (None, spec.preparation.size) else Preparation(size),
        normalisation,
        spec,
    )


def load_apart(
    spec: TrainingSpec | None, id: str, split: str, root: str | Path | None, preparation: Preparation
) -> "ImageSet":
    """The train, val or test images of an ID set, for a network that was trained as `spec` says.

    If it was trained on this very set, and the set has no splits, they are the part that it was trained on and the two
    parts that the training held out.
    """
    if spec is None or not trained_on_undivided(spec, id):
        return load(id, split, root=root, preparation=preparation)
    if not spec.train.parts or any(part.side == "chosen" for part in spec.train.parts):
        raise MacsError(f"The network was trained on all images of {id}; name other ID images with --id.")
    return divided_as(spec.train, root, spec.preparation)[split].prepared(preparation)


def trained_on_undivided(spec: TrainingSpec, id: str) -> bool:
    """Whether an ID set is the one that a network was trained on and has no splits."""
    place = Place(id)
    return place.undivided and (id == spec.train.source or same_path(place.path, spec.train.source))
