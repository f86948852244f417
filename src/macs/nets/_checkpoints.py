"""Checkpoints: reads our files and the public ones, writes ours.

Ours are safetensors files with a label, a JSON object in their metadata that describes the network. Public ones are
state dicts, written by torch.save or as safetensors. Reading either kind runs no code from the file and no code that
the file names.
"""

import json
import logging
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from macs.core.console import tell, warn
from macs.core.errors import MacsError
from macs.core.files import (
    input_file,
    kind_of,
    label_text,
    output_file,
    read_header,
    reason,
    refuse_bomb,
    user_path,
    write_atomically,
)
from macs.core.settings import from_dict
from macs.data.preparation import NORMALISATIONS, Normalisation, Preparation
from macs.nets._building import PRETRAINED, LibraryNet, State, build, library_of
from macs.nets._network import USUAL, Net, is_ours, name_of, preparation_of, require_net
from macs.nets._weights import remember_origin

log = logging.getLogger(__name__)

RUN_FILE = "net.safetensors"  # the network of a run folder
LIBRARY_FILES = ("model.safetensors", "pytorch_model.bin")  # in folders as timm and transformers write them
FORMAT, VERSION = "macs-net", 3
DAMAGED = "is damaged or not a checkpoint; copy or download it again"
WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "ema", "model_ema", "state_dict_ema")


@dataclass(frozen=True)
class WeightsLabel:
    """The description of a network in its file; `name` is None in files that are not ours."""

    name: str | None = None
    classes: int | None = None
    dropout: float | None = None
    class_names: tuple[str, ...] = ()
    preparation: Preparation | None = None  # of our own networks, and of users' networks that have one
    config: dict[str, Any] | None = None  # for networks that cannot be built from their name alone
    format: str = FORMAT
    version: int = VERSION

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self) | {"preparation": None if self.preparation is None else self.preparation.as_dict()}
        return {key: value for key, value in values.items() if not (key == "config" and value is None)}

    @classmethod
    def from_json(cls, values: Any) -> "WeightsLabel":
        """Return a label from the JSON that `save` wrote; a MacsError says what is wrong with anything else."""
        given = {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else {}
        label = from_dict(cls, given)
        if label.name is None or label.format != FORMAT:
            raise MacsError(f"A label needs a name and the format {FORMAT}.")
        return label


def save(net: nn.Module, path: str | Path, class_names: Sequence[str] = ()) -> None:
    """Write a network as safetensors, whole or not at all.

    Parameters
    ----------
    net
        The network; its name, number of classes and preparation are recorded.
    path
        File to write, ending in .safetensors.
    class_names
        Names of the classes, which a detector of this network takes over.

    Examples
    --------
    >>> import macs
    >>> net = macs.nets.build("wrn-10-1", classes=2)
    >>> macs.nets.save(net, "classifier.safetensors", class_names=["cat", "dog"])
    >>> macs.nets.class_names("classifier.safetensors")
    ('cat', 'dog')
    """
    require_net(net)
    path = user_path(path)
    if path.suffix != ".safetensors":
        raise MacsError(f"Cannot save a network as {path}: the name must end in .safetensors.")
    if kind_of(path) is not None:
        output_file(path)  # refuses to overwrite the network of a run
    classes = getattr(net, "classes", None)
    label = WeightsLabel(
        name=name_of(net),
        classes=classes if type(classes) is int else None,
        dropout=float(net.dropout) if isinstance(net, Net) and is_ours(net) else None,  # others may have several rates
        class_names=tuple(map(str, class_names)),
        preparation=preparation_of(net),
        config=net.config if isinstance(net, Net) else None,
    )
    # Copies, since safetensors accepts neither tied nor channels-last tensors.
    state = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in net.state_dict().items()
    }
    # One metadata key: the order of several is random, and the same network should give the same bytes.
    content = safetensors.torch.save(state, metadata={"macs": json.dumps(label.as_dict())})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def load(
    path: str | Path,
    name: str | None = None,
    classes: int | None = None,
    dropout: float | None = None,
    normalisation: Normalisation | str | None = None,
    preparation: Preparation | None = None,
    seed: int = 0,
) -> nn.Module:
    """Load a network from a file, or from the file in a run folder; every tensor must fit.

    If the weights of another library's network are for other classes, the last layer is replaced by a random one.

    Parameters
    ----------
    path
        One of our .safetensors files, which record name, classes and preparation; a state dict in a .pt, .pth, .ckpt,
        .bin or .safetensors file, as other libraries and the authors of OE, energy_ood, margin_ood and OpenOOD publish
        them; or a run folder.
    name
        Name of the network, as in `build`; needed if the file does not record it.
    classes
        Number of classes; needed if the file does not record it.
    dropout
        Rate of all dropout layers; by default that of the file.
    normalisation
        How the inputs were normalised, which state dicts do not say: a name from `nets.NORMALISATIONS` or a
        `Normalisation`.
    preparation
        How pictures become pixels for the network, including the normalisation.
    seed
        Seed of the new last layer, if there is one.

    Returns
    -------
    nn.Module
        The network with these weights.

    Examples
    --------
    >>> import macs
    >>> net = macs.nets.build("wrn-10-1", classes=3)
    >>> macs.nets.save(net, "classifier.safetensors")
    >>> macs.nets.name_of(macs.nets.load("classifier.safetensors"))
    'wrn-10-1'
    """
    if _is_word(path) and library_of(name or ""):
        warnings.warn(
            f'nets.load("{PRETRAINED}", name, classes) is deprecated; use nets.build(name, classes, pretrained=True).',
            DeprecationWarning,
            stacklevel=2,
        )
    return load_weights(path, name, classes, dropout, normalisation, preparation, seed)


def load_weights(
    path: str | Path | None,
    name: str | None = None,
    classes: int | None = None,
    dropout: float | None = None,
    normalisation: Normalisation | str | None = None,
    preparation: Preparation | None = None,
    seed: int = 0,
) -> nn.Module:
    """Do what `load` does; without a path, or with the command line's word for it, take a library's own weights."""
    published = library_of(name or "") if path is None or _is_word(path) else None
    if published is not None:
        adapter, model = published
        path = source = PRETRAINED
        label = WeightsLabel()
        state = adapter.pretrained(model, None if preparation is None else preparation.size)
    else:
        file = _find(path or "")
        path, source = file, str(file.resolve())
        label, state = _read(file)
    if name is None and label.name is not None and ":" in label.name:
        raise MacsError(f"{path} holds your own network; give its name to load it, here probably {label.name!r}.")
    name, classes = label.name if name is None else name, label.classes if classes is None else classes
    if name is None or classes is None:
        raise MacsError(f"{path} does not say what it holds; give the network's name and its number of classes.")
    if dropout is None and name == label.name:
        dropout = label.dropout
    normalised = normalisation is not None or preparation is not None or label.preparation is not None
    config = label.config if name == label.name else None
    net = build(name, classes, dropout, normalisation, preparation or label.preparation, config)
    target = net.published if isinstance(net, Net) else net
    state = _our_names(state, target)
    replaced = None
    if isinstance(net, LibraryNet) and label.name is None:
        state = net.translated(state)
        replaced = net.with_new_head(state)
        state = state if replaced is None else replaced
    if isinstance(net, Net) and (kernel := _other_stem(state, net)):
        raise MacsError(
            f"{path} holds a network that begins with a {kernel} convolution, the stem for large images such as "
            f"ImageNet's, but our {name} is the variant for small images with a 3 x 3 stem; use other weights, or the "
            f"network for large images, torchvision/{name.replace('-', '')}."
        )
    if why := misfit(state, target.state_dict(), classes):
        hint = "give the name and the classes that it was trained with"
        if label.name not in (None, name):
            hint = f"it was saved as {label.name}"
        raise MacsError(f"{path} does not fit {name} with {classes} classes: {why}; {hint}.")
    for key, value in state.items():
        if not value.float().isfinite().all():
            raise MacsError(
                f"{path} holds weights that are not finite ({key}): its training diverged; use another file."
            )
    fill(target, state)
    if isinstance(net, LibraryNet) and replaced is not None:
        net.draw_head(seed)
        tell(f"{path} has no last layer for {classes} classes, so the last layer of {name} starts at random.")
    remember_origin(net, source, None if replaced is None else seed)
    log.info("%s with %d classes has the %d tensors of %s", name, classes, len(state), source)
    if isinstance(net, Net) and not normalised and label.name is None and net.public_normalisation is None:
        warn(
            f"{path} does not say how its inputs were normalised, and public files of {name} differ in this: "
            f"{USUAL!r} is assumed; to change it, use nets.load(..., normalisation=NAME), or --normalisation NAME of "
            f"finetune, sweep, evaluate and calibrate, with one of {', '.join(NORMALISATIONS)}."
        )
    return net


def class_names(path: str | Path) -> tuple[str, ...]:
    """Return the class names in a file that `save` wrote, or in the network of a run folder; empty if it has none."""
    if _is_word(path):
        return ()
    path = _find(path)
    return _label(path).class_names if path.suffix == ".safetensors" else ()


def recorded_preparation(path: str | Path) -> Preparation | None:
    """Return the preparation in a file that `save` wrote, or in the network of a run folder; None if it has none."""
    if not str(path) or _is_word(path):
        return None
    path = _find(path)
    return _label(path).preparation if path.suffix == ".safetensors" else None


def _is_word(path: str | Path) -> bool:
    """Return whether this is the word that stands for a library's own weights, and not a file."""
    return str(path) == PRETRAINED and kind_of(user_path(path)) is None


def _find(path: str | Path) -> Path:
    """Return the file that a path refers to: itself, or the network in a run folder or in a library's folder."""
    path = user_path(path)
    if kind_of(path) != "a folder":
        return input_file(path, "checkpoint")
    for name in (RUN_FILE, *LIBRARY_FILES):
        if kind_of(path / name) is not None:
            return input_file(path / name, "checkpoint")
    raise MacsError(f"There is no {RUN_FILE} in {path}; name a file, or the folder of a finished run.")


def _read(path: Path) -> tuple[WeightsLabel, State]:
    """Return the label and the tensors of a file; tensors that cannot be weights are refused."""
    try:
        if path.suffix == ".safetensors":
            # From bytes: safetensors itself opens only files whose names are UTF-8.
            label, state = _label(path), safetensors.torch.load(path.read_bytes())
        else:
            refuse_bomb(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of kinds of tensors that are refused below
                content = torch.load(path, map_location="cpu", weights_only=True)
            label, state = WeightsLabel(), _state_dict(content, path)
    except MacsError:
        raise
    except OSError as error:
        raise MacsError(f"Cannot read {path}: {reason(error)}.") from None
    except Exception as error:  # damaged files make torch raise nearly anything, down to a bare KeyError
        what = DAMAGED
        if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
            what = "holds Python objects, which can run code, and is refused; save net.state_dict() there instead"
        elif "TorchScript" in str(error):
            what = "is a program in TorchScript, which is refused; save net.state_dict() there instead"
        elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            what = "is too large for this machine's memory, or damaged"
        raise MacsError(f"{path} {what}.") from None
    for key, value in state.items():
        if kind := _unfit_kind(value):
            raise MacsError(f"{path} holds {kind} ({key}); save plain float tensors there.")
    return label, state


def _unfit_kind(value: Tensor) -> str:
    """Return the kind of a tensor that cannot be a weight; empty for a plain tensor."""
    kinds = {
        "a tensor without values": value.is_meta,
        "a nested tensor": value.is_nested,
        "a sparse tensor": value.layout is not torch.strided,
        "a quantised tensor": value.is_quantized,
        "complex numbers": value.is_complex(),
    }
    return next((kind for kind, applies in kinds.items() if applies), "")


def _label(path: Path) -> WeightsLabel:
    """Return the label in the header of a safetensors file."""
    with path.open("rb") as file:
        try:
            text = label_text(read_header(file)[0])
            values = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            raise MacsError(f"{path} {DAMAGED}.") from None
    if text is None:
        return WeightsLabel()
    kind, version = (values.get("format"), values.get("version")) if isinstance(values, dict) else (None, None)
    if isinstance(kind, str) and kind != FORMAT:
        raise MacsError(f"{path} is not a network: it says that it is a {kind}.")
    if type(version) is int and version > VERSION:
        raise MacsError(f"{path} was written by a newer macs; upgrade to read it.")
    try:
        return WeightsLabel.from_json(values)
    except MacsError:
        raise MacsError(f"{path} has a label that macs did not write: {text:.200}.") from None


def _state_dict(content: Any, path: Path) -> State:
    """Return the state dict in the content of a file, unwrapped from the dicts that training scripts put around it."""
    for _ in range(4):  # nested wrappers; a dict may even contain itself
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
    """Return the state without the prefixes of wrapped networks (module., _orig_mod., ...), and with our names."""
    public = net.public_names if isinstance(net, Net) else {}
    known = public.keys() | {key.partition(".")[0] for key in net.state_dict()}
    if "n_averaged" not in known:  # the counter of torch's averaged models
        state = {key: value for key, value in state.items() if key != "n_averaged"}
    while len(prefixes := {key.partition(".")[0] for key in state}) == 1 and not prefixes & (known | state.keys()):
        state = {key.partition(".")[2]: value for key, value in state.items()}
    renamed = {".".join(public.get(part, part) for part in key.split(".")): value for key, value in state.items()}
    return renamed if len(renamed) == len(state) else state


def _other_stem(state: State, net: Net) -> str:
    """Return the kernel size of a checkpoint's first convolution if it differs from ours, else empty."""
    theirs, ours = state.get("conv1.weight"), net.state_dict().get("conv1.weight")
    if theirs is None or ours is None or theirs.ndim != 4 or theirs.shape[2:] == ours.shape[2:]:
        return ""
    return _dimensions(theirs.shape[2:])


def fill(net: nn.Module, state: State) -> None:
    """Give a network the weights of a state that fits it."""
    # Some modules ask which version of their format a state has; only a module's own state dict says so.
    versioned = net.state_dict()
    versioned.update(state)
    net.load_state_dict(versioned)


def misfit(state: State, expected: State, classes: int) -> str:
    """Return why a state does not fit, as a clause of a sentence; empty if it fits."""
    # Checkpoints of torch before 0.4.1 have no count of batches; torch then starts at 0.
    missing = [key for key in expected.keys() - state.keys() if not key.endswith("num_batches_tracked")]
    extra = state.keys() - expected.keys()
    if missing or extra:
        lacks = f"lacks {len(missing)} tensors (the first is {min(missing)})" if missing else ""
        surplus = f"has {len(extra)} tensors too many (the first is {min(extra):.100})" if extra else ""
        return "it " + " and ".join(filter(None, (lacks, surplus)))
    wrong = [(key, state[key].shape, expected[key].shape) for key in state if state[key].shape != expected[key].shape]
    if wrong:
        if all(want[:1] == (classes,) and have[1:] == want[1:] for _, have, want in wrong):
            return f"it has {wrong[0][1][0]} classes"
        key, have, want = wrong[0]
        return f"its {key} is {_dimensions(have)} instead of {_dimensions(want)}"
    for key, value in state.items():
        if expected[key].is_floating_point() and not value.is_floating_point():
            return f"its {key} holds {value.dtype} instead of floating-point numbers"
    return ""


def _dimensions(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "a number"
