"""A detector in one .safetensors file: the weights, and a label, a JSON object in the file's metadata, with the rest.

Reading runs no code from the file, nor code that the file names. The label holds a checksum of everything else, so that
a file that was edited or damaged is refused. All checks but those of the weights' values need no torch.
"""

import hashlib
import json
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import macs
from macs.core.errors import MacsError
from macs.core.files import write_atomically
from macs.detector.calibration import Calibration

if TYPE_CHECKING:
    from torch import Tensor, nn

    from macs.detector._detector import Detector
    from macs.nets import Normalisation

FORMAT, VERSION = "macs-detector", 2
KINDS: dict[str, type | tuple[type, ...]] = {
    "macs": str,
    "net": str,
    "normalisation": (dict, type(None)),  # version 1 had none
    "classes": list,
    "size": int,
    "preparation": str,
    "score": str,
    "calibration": dict,
    "recipe": (dict, type(None)),
}
NET = "net."  # before the names of the network's tensors: a fitted score may have tensors too


def save(detector: "Detector", path: str | Path) -> None:
    """Write a calibrated detector, whole or not at all."""
    import safetensors.torch
    import torch

    from macs import nets

    path = Path(path)
    if path.suffix != ".safetensors":
        raise MacsError(f"Cannot save a detector as {path}: the name must end in .safetensors.")
    if ":" in detector.score:
        raise MacsError(f"Cannot save a detector with a score of your own ({detector.score}): a file must run no code.")
    label = {
        "format": FORMAT,
        "version": VERSION,
        "macs": macs.__version__,
        "net": nets.name_of(detector.net),
        "normalisation": None if (values := nets.normalisation_of(detector.net)) is None else asdict(values),
        "classes": list(detector.classes),
        "size": detector.size,
        "preparation": detector.preparation,
        "score": detector.score,
        "calibration": detector.calibrated.as_dict(),
        "recipe": None if detector.recipe is None else dict(detector.recipe),
    }
    # Copies, since safetensors takes neither tied nor channels-last tensors.
    tensors = {
        NET + name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in detector.net.state_dict().items()
    }
    label["sha256"] = checksum(label, *_parts(safetensors.torch.save(tensors)))
    content = safetensors.torch.save(tensors, metadata={"macs": json.dumps(label)})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def load(path: str | Path, net: "nn.Module | str | None" = None) -> "Detector":
    """The detector in a file. A network that is not ours must be given, and gets the file's weights in place."""
    import safetensors.torch
    from torch import nn

    from macs import nets
    from macs.core.devices import device_of
    from macs.detector._detector import Detector, count_outputs
    from macs.nets._files import misfit

    label, content = read(path)
    if not isinstance(net, nn.Module) and not net and ":" in label["net"]:
        raise MacsError(
            f"{path} holds a network of your own, here {label['net']}, and loads only with it: give net=YourNet(...) "
            f"in Python, --net {label['net']} on the command line."
        )
    classes = tuple(label["classes"])
    network = net if isinstance(net, nn.Module) else nets.build(net or label["net"], len(classes))
    tensors: dict[str, Tensor] = safetensors.torch.load(content)
    state = {name.removeprefix(NET): tensor for name, tensor in tensors.items() if name.startswith(NET)}
    wrong = misfit(state, network.state_dict(), len(classes))
    if wrong:
        raise MacsError(f"{path} does not fit {nets.name_of(network)} with {len(classes)} classes: {wrong}.")
    for name, tensor in state.items():
        if not tensor.isfinite().all():
            raise MacsError(f"{path} holds weights that are not finite ({name}); calibrate another network.")
    network.load_state_dict(state)
    if isinstance(network, nets.Net) and label.get("normalisation") is not None:
        network.normalise = nets.Normalise(_normalisation(label, path)).to(device_of(network))
    network.eval()
    outputs = count_outputs(network, label["size"])
    if outputs != len(classes):
        raise MacsError(f"{path} names {len(classes)} classes, but its network tells {outputs} apart; save it anew.")
    try:
        calibration = Calibration.from_dict(label["calibration"])
    except (KeyError, TypeError, ValueError):
        raise MacsError(f"{path} has a calibration that macs did not write; calibrate anew.") from None
    if len(calibration.thresholds) not in (1, outputs):
        raise MacsError(f"{path} has {len(calibration.thresholds)} thresholds for {outputs} classes; calibrate anew.")
    return Detector(network, label["score"], classes, label["recipe"], label["size"], calibration)


def _normalisation(label: dict[str, Any], path: str | Path) -> "Normalisation":
    from macs import nets

    try:
        return nets.Normalisation(**label["normalisation"])
    except (TypeError, MacsError):
        raise MacsError(f"{path} has a label that macs did not write (normalisation); calibrate anew.") from None


def read(path: str | Path) -> tuple[dict[str, Any], bytes]:
    """The label and the content of a detector file, whole and unchanged since it was written."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MacsError(f"There is no detector at {path}; make one with: macs calibrate.") from None
    except OSError as error:
        raise MacsError(f"Cannot read {path}: {error.strerror or error}.") from None
    try:
        header, tensors = _parts(content)
        label = json.loads(header.pop("__metadata__", {}).get("macs", "{}"))
        whole = len(tensors) == max(entry["data_offsets"][1] for entry in header.values())
        kind, version = label.get("format"), label.get("version", 0)
    except Exception:  # what was cut short or overwritten is a random text: it fails in any way at all
        raise MacsError(f"{path} is damaged or no detector; copy it again, or make one with: macs calibrate.") from None
    if kind != FORMAT:
        what = f"says that it is a {kind}" if kind else "has no label of ours"
        raise MacsError(f"{path} is not a detector: it {what}; make one with: macs calibrate.")
    if not isinstance(version, int) or version > VERSION:
        raise MacsError(f"{path} was written by a newer macs ({label.get('macs')}); upgrade to read it.")
    if not whole:
        raise MacsError(f"{path} is damaged: it was cut short or added to; copy it again.")
    told = label.pop("sha256", None)
    if told != checksum(label, header, tensors):
        raise MacsError(f"{path} was changed after it was saved: its checksum does not match; copy it again.")
    wrong = [key for key, kind in KINDS.items() if not isinstance(label.get(key), kind)]
    if wrong or ":" in label["score"]:
        raise MacsError(f"{path} has a label that macs did not write ({', '.join(wrong) or 'score'}); calibrate anew.")
    return label, content


def onnx_path(path: str | Path) -> Path:
    """A path to export to, once what that needs is there."""
    if missing := [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]:
        raise MacsError(f"To export takes {', '.join(missing)}: pip install 'macs-ood[onnx]'.")
    if Path(path).suffix != ".onnx":
        raise MacsError(f"Cannot export to {path}: the name must end in .onnx.")
    return Path(path)


def checksum(label: dict[str, Any], header: dict[str, Any], tensors: bytes) -> str:
    """SHA-256 of the label without its checksum, of the tensors' names, types and shapes, and of their bytes."""
    text = json.dumps([label, header], sort_keys=True)
    return hashlib.sha256(text.encode() + tensors).hexdigest()


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """A safetensors file is the length of its header in 8 bytes, the header as JSON, and the tensors' bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]
