"""Checkpoints: ours and the public ones in, ours out.

Ours are safetensors files with a label, a JSON object in their metadata that says what was saved. Theirs are state
dicts written by torch.save. Reading either runs no code from the file, nor code that the file names.
"""

import json
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.files import input_file, kind_of, output_file, reason, user_path, write_atomically
from macs.data.preparation import DEFAULT, NORMALISATIONS, Normalisation, Preparation
from macs.nets._names import build
from macs.nets._network import Net, name_of, preparation_of, require_net
from macs.nets._normalise import USUAL
from macs.nets._weights import remember_origin

RUN_FILE = "net.safetensors"  # the network of a run folder
FORMAT, VERSION = "macs-net", 3
LARGEST_HEADER = 100_000_000  # bytes, the limit of safetensors itself
DAMAGED = "is damaged or no checkpoint; copy or download it again"
WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "ema", "model_ema", "state_dict_ema")
State = dict[str, Tensor]


@dataclass(frozen=True)
class WeightsLabel:
    """What a file says of itself; `name` is None in files that are not ours."""

    name: str | None = None
    classes: int | None = None
    dropout: float | None = None
    class_names: tuple[str, ...] = ()
    preparation: Preparation | None = None  # of our own networks, and of others that have one
    format: str = FORMAT
    version: int = VERSION

    @classmethod
    def from_json(cls, told: Any) -> "WeightsLabel":
        """What `save` wrote as JSON; a TypeError or a MacsError for anything else."""
        if not isinstance(told, dict):
            raise TypeError(told)
        names, preparation, values = (told.pop(key, None) for key in ("class_names", "preparation", "normalisation"))
        names = [] if names is None else names
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise TypeError(names)
        prepared = None if preparation is None else Preparation.from_dict(preparation)
        if values is not None:  # before version 3 the normalisation stood alone
            prepared = DEFAULT.normalised(Normalisation(**values))
        label = cls(**told, class_names=tuple(names), preparation=prepared)
        numbers_fit = type(label.classes) in (int, NoneType) and type(label.dropout) in (float, NoneType)
        if not (isinstance(label.name, str) and numbers_fit and label.format == FORMAT and type(label.version) is int):
            raise TypeError(told)
        return label


def save(net: nn.Module, path: str | Path, class_names: Sequence[str] = ()) -> None:
    """Write a network as safetensors, whole or not at all, with the names of its classes if they are given."""
    require_net(net)
    path = user_path(path)
    if path.suffix != ".safetensors":
        raise MacsError(f"Cannot save a network as {path}: the name must end in .safetensors.")
    if kind_of(path) is not None:
        output_file(path)  # which refuses to overwrite the network of a run
    classes = getattr(net, "classes", None)
    label = WeightsLabel(
        name=name_of(net),
        classes=classes if type(classes) is int else None,
        dropout=float(net.dropout) if isinstance(net, Net) else None,
        class_names=tuple(map(str, class_names)),
        preparation=preparation_of(net),
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
    path: str | Path,
    name: str | None = None,
    classes: int | None = None,
    dropout: float | None = None,
    normalisation: Normalisation | str | None = None,
    preparation: Preparation | None = None,
) -> nn.Module:
    """A network with the weights of a file, or of the file in a run folder; every tensor must fit.

    Takes our .safetensors, which know their name, classes and preparation, and state dicts in .pt, .pth or .ckpt files,
    as the authors of OE, energy_ood, margin_ood and OpenOOD publish them. Those do not say how their inputs were
    normalised: `normalisation` does, by a name from `nets.NORMALISATIONS` or as a `Normalisation`, or `preparation`.
    """
    path = _find(path)
    label, state = _read(path)
    if name is None and label.name is not None and ":" in label.name:
        raise MacsError(f"{path} holds your own network; give its name to load it, here probably {label.name!r}.")
    name, classes = label.name if name is None else name, label.classes if classes is None else classes
    if name is None or classes is None:
        raise MacsError(f"{path} does not say what it holds; give the network's name and its number of classes.")
    if dropout is None and name == label.name:
        dropout = label.dropout
    told = normalisation is not None or preparation is not None or label.preparation is not None
    net = build(name, classes, dropout, normalisation, preparation or label.preparation)
    state = _our_names(state, net)
    if isinstance(net, Net) and (kernel := _other_stem(state, net)):
        raise MacsError(
            f"{path} holds a network that begins with a {kernel} convolution, the stem for large images such as "
            f"ImageNet's, but our {name} is the variant for small images with a 3 x 3 stem; use other weights, or that "
            "network as your own module:Class."
        )
    wrong = misfit(state, net.state_dict(), classes)
    if wrong:
        hint = "give the name and the classes that it was trained with"
        if label.name not in (None, name):
            hint = f"it was saved as {label.name}"
        raise MacsError(f"{path} does not fit {name} with {classes} classes: {wrong}; {hint}.")
    for key, value in state.items():
        if not value.float().isfinite().all():
            raise MacsError(f"{path} holds weights that are not finite ({key}): its training diverged, use another.")
    net.load_state_dict(state)
    remember_origin(net, str(path.resolve()))
    if isinstance(net, Net) and not told and label.name is None and net.public_normalisation is None:
        warn(
            f"{path} does not say how its inputs were normalised, and public files of {name} differ in that: "
            f"{USUAL!r} is assumed; say otherwise by nets.load(..., normalisation=NAME), or by --normalisation NAME of "
            f"finetune, sweep, evaluate and calibrate, with one of {', '.join(NORMALISATIONS)}."
        )
    return net


def class_names(path: str | Path) -> tuple[str, ...]:
    """The names of the classes that `save` wrote into a file, or into that of a run folder; empty if there are none."""
    path = _find(path)
    return _label(path).class_names if path.suffix == ".safetensors" else ()


def _find(path: str | Path) -> Path:
    """The file that a path means: itself, or the network in a run folder."""
    path = user_path(path)
    if kind_of(path) != "a folder":
        return input_file(path, "checkpoint")
    if kind_of(path / RUN_FILE) is None:
        raise MacsError(f"There is no {RUN_FILE} in {path}; name a file, or the folder of a finished run.")
    return input_file(path / RUN_FILE, "checkpoint")


def _read(path: Path) -> tuple[WeightsLabel, State]:
    """The label and the tensors of a file, all of them of the plain kind."""
    try:
        if path.suffix == ".safetensors":
            label, state = _label(path), safetensors.torch.load_file(path)
        else:
            label, state = WeightsLabel(), _state_dict(torch.load(path, map_location="cpu", weights_only=True), path)
    except MacsError:
        raise
    except OSError as error:
        raise MacsError(f"Cannot read {path}: {reason(error)}.") from None
    except Exception as error:  # damaged files make torch raise nearly anything, down to a bare KeyError
        what = DAMAGED
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            what = "holds Python objects, which can run code, and is refused; save net.state_dict() there instead"
        elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            what = "is too large for this machine's memory, or damaged"
        raise MacsError(f"{path} {what}.") from None
    for key, value in state.items():
        if odd := _odd(value):
            raise MacsError(f"{path} holds {odd} ({key}); save plain float tensors there.")
    return label, state


def _odd(value: Tensor) -> str:
    """What makes a tensor unfit to be a weight; empty for a plain one."""
    kinds = {
        "a tensor without values": value.is_meta,
        "a nested tensor": value.is_nested,
        "a sparse tensor": value.layout is not torch.strided,
        "a quantised tensor": value.is_quantized,
        "complex numbers": value.is_complex(),
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "")


def _label(path: Path) -> WeightsLabel:
    """What a safetensors file says of itself in its header: the length in 8 bytes, then that much JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length) if length <= LARGEST_HEADER else b"")
            text = header.get("__metadata__", {}).get("macs")
            told = None if text is None else json.loads(text)
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise MacsError(f"{path} {DAMAGED}.") from None
    if text is None:
        return WeightsLabel()
    kind, version = (told.get("format"), told.get("version")) if isinstance(told, dict) else (None, None)
    if isinstance(kind, str) and kind != FORMAT:
        raise MacsError(f"{path} is not a network: it says that it is a {kind}.")
    if type(version) is int and version > VERSION:
        raise MacsError(f"{path} was written by a newer macs; upgrade to read it.")
    try:
        return WeightsLabel.from_json(told)
    except (TypeError, MacsError):
        raise MacsError(f"{path} has a label that macs did not write: {text:.200}.") from None


def _state_dict(content: Any, path: Path) -> State:
    """The state dict in what torch.load gave, however training scripts wrapped theirs."""
    for _ in range(4):  # wrappers in wrappers; a dict may even contain itself
        if _is_state(content):
            return dict(content)
        if not isinstance(content, dict):
            break
        inner = [content[key] for key in WRAPPERS if isinstance(content.get(key), dict)]
        others = [value for value in content.values() if _is_state(value)]
        content = inner[0] if inner else others[0] if len(others) == 1 else None
    raise MacsError(f"{path} holds something other than a state dict; save net.state_dict() there.")


def _is_state(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items())
    )


def _our_names(state: State, net: nn.Module) -> State:
    """Without the prefixes that wrappers of networks add (module., _orig_mod., ...), and with our names for others'."""
    public = net.public_names if isinstance(net, Net) else {}
    known = public.keys() | {key.partition(".")[0] for key in net.state_dict()}
    if "n_averaged" not in known:  # the counter of torch's averaged models
        state = {key: value for key, value in state.items() if key != "n_averaged"}
    while len(first := {key.partition(".")[0] for key in state}) == 1 and not first & (known | state.keys()):
        state = {key.partition(".")[2]: value for key, value in state.items()}
    renamed = {".".join(public.get(part, part) for part in key.split(".")): value for key, value in state.items()}
    return renamed if len(renamed) == len(state) else state


def _other_stem(state: State, net: Net) -> str:
    """The kernel of a checkpoint's first convolution where it is not ours; empty if it is."""
    theirs, ours = state.get("conv1.weight"), net.state_dict().get("conv1.weight")
    if theirs is None or ours is None or theirs.ndim != 4 or theirs.shape[2:] == ours.shape[2:]:
        return ""
    return _by(theirs.shape[2:])


def misfit(state: State, expected: State, classes: int) -> str:
    """What does not fit, in half a sentence; empty if all does."""
    # Checkpoints of torch before 0.4.1 do not count batches, and torch then starts to.
    missing = [key for key in expected.keys() - state.keys() if not key.endswith("num_batches_tracked")]
    extra = state.keys() - expected.keys()
    if missing or extra:
        lacks = f"lacks {len(missing)} tensors (the first is {min(missing)})" if missing else ""
        adds = f"has {len(extra)} tensors too many (the first is {min(extra):.100})" if extra else ""
        return "it " + " and ".join(filter(None, (lacks, adds)))
    wrong = [(key, state[key].shape, expected[key].shape) for key in state if state[key].shape != expected[key].shape]
    if wrong:
        if all(want[:1] == (classes,) and have[1:] == want[1:] for _, have, want in wrong):
            return f"it has {wrong[0][1][0]} classes"
        key, have, want = wrong[0]
        return f"its {key} is {_by(have)} instead of {_by(want)}"
    for key, value in state.items():
        if expected[key].is_floating_point() and not value.is_floating_point():
            return f"its {key} holds {value.dtype} instead of floating-point numbers"
    return ""


def _by(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "a number"
