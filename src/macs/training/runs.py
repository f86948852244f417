"""A run folder: the recipe of a training, what happened each epoch, and the weights.

    recipe.toml       every hyper-parameter, written first
    metrics.jsonl     one line an epoch
    state.pt          all that is needed to go on after the last finished epoch
    net.safetensors   the trained network, written last: a folder that has it is finished

Each file is replaced whole, so that a run killed at any moment can be resumed from its last finished epoch.
"""

import json
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs.core.errors import MacsError
from macs.core.files import write_atomically, write_text
from macs.training.recipe import Recipe

if TYPE_CHECKING:
    from macs.data import ImageSet


def check_classes(recorded: tuple[str, ...], images: "ImageSet", run: Path) -> None:
    """Refuse labelled ID images of other classes, or in another order, than those that a network was trained on.

    Where no names are recorded, or the images have none but numbers, there is nothing to compare.
    """
    found = images.classes
    if not recorded or not found or found == recorded or found == tuple(map(str, range(len(recorded)))):
        return
    if len(found) != len(recorded):
        difference = f"{len(found)} in {images.name}, {len(recorded)} in {run}"
    else:
        place = next(i for i, (ours, theirs) in enumerate(zip(found, recorded, strict=True)) if ours != theirs)
        difference = f"class {place} is {found[place]!r} in {images.name} and {recorded[place]!r} in {run}"
    raise MacsError(f"The images have other classes than the network knows ({difference}); give images of its classes.")


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def recipe_file(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def state_file(self) -> Path:
        return self.path / "state.pt"

    @property
    def net_file(self) -> Path:
        return self.path / "net.safetensors"

    @property
    def finished(self) -> bool:
        return self.net_file.exists()

    @property
    def recipe(self) -> Recipe:
        return Recipe.from_toml(self.recipe_file)

    def finished_recipe(self) -> Recipe:
        """The recipe of a run whose network is there to be used, or an error."""
        recipe = self.recipe
        if not self.finished:
            raise MacsError(f"The run in {self.path} is not finished; go on with it by --resume.")
        return recipe

    def claim(self, recipe: Recipe, resume: bool) -> None:
        """Make the folder this recipe's, or refuse: nothing that another run wrote is ever overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise MacsError(f"{self.path} is a file; name another folder for the run.")
        if not self.recipe_file.exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise MacsError(f"{self.path} holds files that are not a run; name another folder.")
            write_text(self.recipe_file, recipe.to_toml())
            return
        theirs, ours = asdict(self.recipe), asdict(recipe)
        other = [f"{key} is {theirs[key]!r} there and {ours[key]!r} here" for key in ours if ours[key] != theirs[key]]
        if other:
            raise MacsError(f"{self.path} already holds another run ({'; '.join(other)}); name another folder.")
        if not resume:
            raise MacsError(
                f"{self.path} already holds this run; add --resume to go on with it, or name another folder."
            )

    def save_state(self, state: dict[str, Any]) -> None:
        import torch

        write_atomically(self.state_file, lambda path: torch.save(state, path))
        lines = "".join(json.dumps(epoch) + "\n" for epoch in state["history"])
        write_text(self.path / "metrics.jsonl", lines)

    def load_state(self) -> dict[str, Any] | None:
        """The state after the last finished epoch; None if the run was stopped before its first save."""
        import torch

        if not self.state_file.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.state_file, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise MacsError(
                f"Cannot read {self.state_file} ({reason}); start the run anew in another folder."
            ) from None
        return state
