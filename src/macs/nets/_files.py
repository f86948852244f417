"""Checkpoints: ours and the public ones in, ours out.

Ours are safetensors files with a label, a JSON object in their metadata that says what was saved. Theirs are state
dicts written by torch.save. Reading either runs no code from the file, nor code that the file names.
"""

import json
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.files import write_atomically
from macs.nets._base import Net, name_of
from macs.nets._names import build

RUN_FILE = "net.safetensors"  # the network of a run folder
FORMAT, VERSION = "macs-net", 1
State = dict[str, Tensor]


@dataclass(frozen=True)
class Label:
    """What a file says of itself; `name` is None in files that are not ours."""

    name: str | None = None
    classes: int | None = None
    dropout: float | None = None
    class_names: tuple[str, ...] = ()
    format: str = FORMAT
    version: int = VERSION


def save(net: nn.Module, path: str | Path, class_names: Sequence[str] = ()) -> None:
    """Write a network as safetensors, whole or not at all, with the names of its classes if they are given."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise MacsError(f"Cannot save a network as {path}: the name must end in .safetensors.")
    classes = getattr(net, "classes", None)
    label = Label(
        name=name_of(net),
        classes=classes if isinstance(classes, int) else None,
        dropout=float(net.dropout) if isinstance(net, Net) else None,
        class_names=tuple(map(str, class_names)),
    )
    # Copies, since safetensors takes neither tied nor channels-last tensors.
    state = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in net.state_dict().items()
    }
    # One metadata key: the order of several is random, and the same network should give the same bytes.
    content = safetensors.torch.save(state, metadata={"macs": json.dumps(asdict(label))})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def load(
    path: str | Path, name: str | None = None, classes: int | None = None, dropout: float | None = None
) -> nn.Module:
    """A network with the weights of a file, or of the file in a run folder; every tensor must fit.

    Takes our .safetensors, which know their name and classes, and state dicts in .pt, .pth or .ckpt files, as the
    authors of OE, energy_ood and margin_ood publish them.
    """
    path = _find(Path(path))
    label, state = _read(path)
    if name is None and label.name is not None and ":" in label.name:
        raise MacsError(f"{path} holds your own network; give its name to load it, here probably {label.name!r}.")
    name, classes = label.name if name is None else name, label.classes if classes is None else classes
    if name is None or classes is None:
        raise MacsError(f"{path} does not say what it holds; give the network's name and its number of classes.")
    if dropout is None and name == label.name:
        dropout = label.dropout
    net = build(name, classes, dropout)
    state = _our_names(state, net)
    wrong = misfit(state, net.state_dict(), classes)
    if wrong:
        hint = "give the name and the classes that it was trained with"
        if label.name not in (None, name):
            hint = f"it was saved as {label.name}"
        raise MacsError(f"{path} does not fit {name} with {classes} classes: {wrong}; {hint}.")
    net.load_state_dict(state)
    return net


def class_names(path: str | Path) -> tuple[str, ...]:
    """The names of the classes that `save` wrote into a file, or into that of a run folder; empty if there are none."""
    path = _find(Path(path))
    return tuple(_read(path)[0].class_names) if path.suffix == ".safetensors" else ()


def _find(path: Path) -> Path:
    if path.is_dir():
        if not (path / RUN_FILE).is_file():
            raise MacsError(f"There is no {RUN_FILE} in {path}; name a file, or the folder of a finished run.")
        return path / RUN_FILE
    if not path.is_file():
        raise MacsError(f"There is no checkpoint at {path}; check the path.")
    return path


def _read(path: Path) -> tuple[Label, State]:
    """The label and the tensors of a file, all of them finite."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                label = _label(file.metadata() or {}, path)
            state = safetensors.torch.load_file(path)
        else:
            label, state = Label(), _state_dict(torch.load(path, map_location="cpu", weights_only=True), path)
    except MacsError:
        raise
    except OSError as error:
        raise MacsError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # damaged files make torch raise nearly anything, down to a bare KeyError
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            what = "holds Python objects, which can run code, and is refused; save net.state_dict() there instead"
        else:
            what = "is damaged or no checkpoint; copy or download it again"
        raise MacsError(f"{path} {what}.") from None
    for key, value in state.items():
        if not value.isfinite().all():
            raise MacsError(f"{path} holds weights that are not finite ({key}): its training diverged, use another.")
    return label, state


def _label(metadata: dict[str, str], path: Path) -> Label:
    if "macs" not in metadata:
        return Label()
    told = json.loads(metadata["macs"])
    if told["format"] != FORMAT:
        raise MacsError(f"{path} is not a network: it says that it is a {told['format']}.")
    if told["version"] > VERSION:
        raise MacsError(f"{path} was written by a newer macs; upgrade to read it.")
    label = Label(**told)
    numbers_fit = isinstance(label.classes, int | None) and isinstance(label.dropout, float | None)
    if not (isinstance(label.name, str) and numbers_fit):
        raise MacsError(f"{path} has a label that macs did not write: {metadata['macs']}.")
    return label


def _state_dict(content: Any, path: Path) -> State:
    """The state dict in what torch.load gave, where training scripts keep theirs."""
    for key in ("state_dict", "model", "net"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    state = dict(content) if isinstance(content, dict) else {}
    if not state or not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()):
        raise MacsError(f"{path} holds something other than a state dict; save net.state_dict() there.")
    return state


def _our_names(state: State, net: nn.Module) -> State:
    """Without the prefix that data-parallel training adds, and with our names for the public ones."""
    if all(key.startswith("module.") for key in state) and not hasattr(net, "module"):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    public = net.public_names if isinstance(net, Net) else {}
    parted = ((key.partition("."), value) for key, value in state.items())
    return {public.get(first, first) + dot + rest: value for (first, dot, rest), value in parted}


def misfit(state: State, expected: State, classes: int) -> str:
    """What does not fit, in half a sentence; empty if all does."""
    # Checkpoints of torch before 0.4.1 do not count batches, and torch then starts to.
    missing = [key for key in expected.keys() - state.keys() if not key.endswith("num_batches_tracked")]
    extra = state.keys() - expected.keys()
    if missing or extra:
        lacks = f"lacks {len(missing)} tensors (the first is {min(missing)})" if missing else ""
        adds = f"has {len(extra)} tensors too many (the first is {min(extra)})" if extra else ""
        return "it " + " and ".join(filter(None, (lacks, adds)))
    wrong = [(key, state[key].shape, expected[key].shape) for key in state if state[key].shape != expected[key].shape]
    if not wrong:
        return ""
    if all(want[:1] == (classes,) and have[1:] == want[1:] for _, have, want in wrong):
        return f"it has {wrong[0][1][0]} classes"
    key, have, want = wrong[0]
    return f"its {key} is {_by(have)} instead of {_by(want)}"


def _by(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "a number"
