"""A trained network on disk: that of a run folder, or one that is named by its parts."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from macs.core.errors import MacsError
from macs.data.loading import Place
from macs.data.preparation import DEFAULT, Preparation, preparation_from
from macs.data.spec import MEMORY
from macs.training.runs import RunFolder
from macs.training.spec import TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from macs.data import ImageSet


@dataclass(frozen=True)
class Trained:
    """Where a network is and what it was trained on; nothing is loaded before it is asked for."""

    net: str
    checkpoint: Path
    id: str  # its ID set
    preparation: Preparation = DEFAULT  # of the images that it is shown
    normalisation: str | None = None
    spec: TrainingSpec | None = None  # of the run that it comes from

    @property
    def trained_on(self) -> str | None:
        """The ID set of its run."""
        return None if self.spec is None else self.spec.train.source

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes, if its file has them."""
        from macs import nets

        return nets.class_names(self.checkpoint)

    @property
    def score(self) -> str:
        """The score that its method's authors detect with."""
        from macs import methods

        return "msp" if self.spec is None else methods.build(self.spec.method, self.spec.recipe.options).score

    def network(self, classes: int | None = None) -> "nn.Module":
        """The network, on the best device."""
        from macs import nets
        from macs.core.devices import best_device

        return nets.load(self.checkpoint, self.net, classes, normalisation=self.normalisation).to(best_device())

    def network_for(self, images: "ImageSet") -> "nn.Module":
        """The network for images that must be of its classes, on the best device."""
        from macs.data.fitness import same_classes

        network = self.network(len(images.classes) or None)
        same_classes(images, self.classes, f"{self.checkpoint} was trained for")
        return network


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
    """The network of a finished run, parts of which may be given otherwise; without a run all parts must be given.

    `images` is the option by which `id` was given, for messages.
    """
    if run is None:
        if net is None or checkpoint is None or id is None:
            raise MacsError(f"Name a run folder, or give --net, --checkpoint and {images}.")
        return Trained(net, checkpoint, id, preparation_from(size, None), normalisation)
    folder = RunFolder(run)
    spec = folder.finished_spec()
    if id is None and spec.train.source == MEMORY:
        raise MacsError(f"The network in {run} was trained on images in memory; name ID images with {images}.")
    return Trained(
        net or spec.net,
        checkpoint or folder.net_file,
        spec.train.source if id is None else id,
        spec.preparation if size in (None, spec.preparation.size) else Preparation(size),
        normalisation,
        spec,
    )


def refuse_trained_on_all(trained: Trained, id: str | None) -> None:
    """A set that is not divided has no test images that its network has not seen."""
    if id is None and trained.trained_on is not None and Place(trained.trained_on).undivided:
        raise MacsError(
            f"The network was trained on all images of {trained.trained_on}; name other ID images with --id."
        )
