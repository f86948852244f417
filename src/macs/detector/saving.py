"""A detector in one .safetensors file: tensors, and metadata, a JSON object with everything else.

Reading runs no code from the file and no code that the file names. The metadata contain a checksum of everything
else, so that a file that was edited or damaged is refused. Only the checks of the tensors' values need torch.
"""

import hashlib
import io
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from macs.core import __version__
from macs.core.errors import MacsError, first_line
from macs.core.files import input_file, label_text, output_file, read_header, reason, write_atomically
from macs.core.settings import Span
from macs.detector.calibration import PValues
from macs.detector.hub import PYTORCH, local_file
from macs.detector.metadata import FORMAT, OF_ROWS, VERSION, DetectorMetadata, recognise

if TYPE_CHECKING:
    from torch import Tensor, nn

    from macs.detector._detector import Detector
    from macs.detector._feature_detector import FeatureDetector
    from macs.inference import Outputs
    from macs.scores import Score

log = logging.getLogger(__name__)

NET, HEAD, SCORE = "net.", "head.", "score."  # prefixes of the tensors of network, last layer and fitted score
CONFIDENCES = "calibration.confidences"  # the tensor that p-values are computed from


def save(detector: "Detector | FeatureDetector", path: str | Path) -> None:
    """Write a calibrated detector, whole or not at all."""
    import safetensors.torch
    import torch

    path = detector_path(path)
    metadata = metadata_of(detector).as_dict()
    # Copies, since safetensors accepts neither tied nor channels-last tensors.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in _tensors_of(detector).items()
    }
    assert detector.p_values is not None  # since it is calibrated
    tensors[CONFIDENCES] = torch.from_numpy(detector.p_values.confidences)
    metadata["sha256"] = checksum(metadata, *_parts(safetensors.torch.save(tensors)))
    content = safetensors.torch.save(tensors, metadata={"macs": json.dumps(metadata)})
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def _tensors_of(detector: "Detector | FeatureDetector") -> "dict[str, Tensor]":
    """The tensors of the score, and of the network or the last layer."""
    from macs.detector._feature_detector import FeatureDetector

    if not isinstance(detector, FeatureDetector):
        model = {NET + name: tensor for name, tensor in detector.net.state_dict().items()}
    else:
        model = {HEAD + name: tensor for name, tensor in zip(("weight", "bias"), detector.head or (), strict=False)}
    return model | {SCORE + name: tensor for name, tensor in detector.score.state_dict().items()}


def metadata_of(detector: "Detector | FeatureDetector") -> DetectorMetadata:
    """Everything about a calibrated detector except its tensors; raise if its network has other weights by now."""
    from macs import nets, scores
    from macs.detector._feature_detector import FeatureDetector

    of: dict[str, Any]
    if isinstance(detector, FeatureDetector):
        of = {"version": OF_ROWS, "net": "", "preparation": None, "recipe": None, "columns": detector.accepted}
    else:
        scores.ready(detector.score, detector.net)
        of = {
            "version": VERSION,
            "net": nets.name_of(detector.net),
            "preparation": detector.preparation,
            "recipe": None if detector.recipe is None else dict(detector.recipe),
            "config": detector.net.config if isinstance(detector.net, nets.Net) else None,
            "temperature": detector.temperature,
        }
    return DetectorMetadata(
        format=FORMAT,
        macs=__version__,
        classes=detector.classes,
        score=scores.name_of(detector.score),
        settings=detector.score.settings,
        calibration=detector.calibrated,
        choice=detector.choice,
        **of,
    )


class SavedDetector(NamedTuple):
    """A detector file that was read: it is complete and unchanged since it was written."""

    path: Path
    metadata: DetectorMetadata
    content: bytes

    def open(
        self, net: "nn.Module | str | None" = None, score: "Score | str | None" = None
    ) -> "Detector | FeatureDetector":
        """Return the detector, whichever kind it is."""
        if self.metadata.columns is None:
            return self.load(net, score)
        if net is not None:
            raise MacsError(f"{self.path} judges rows and holds no network; leave the network out.")
        return self.load_features(score)

    def load(self, net: "nn.Module | str | None" = None, score: "Score | str | None" = None) -> "Detector":
        """Return the detector. A user's own network must be given; it gets the file's weights, in place.

        A user's own score must be given too; the detector gets a copy of it with the file's tensors.
        """
        import torch
        from torch import nn

        from macs import nets
        from macs.detector._detector import Detector, count_outputs
        from macs.inference import outputs_of
        from macs.nets import fill

        path, metadata = self.path, self.metadata
        preparation = metadata.for_images(path)
        unfitted = _score(metadata, score, path)
        if not isinstance(net, nn.Module) and not net and ":" in metadata.net:
            raise MacsError(
                f"{path} holds a network of your own, here {metadata.net}, and loads only with it: give "
                f"net=YourNet(...) in Python, --net {metadata.net} on the command line."
            )
        state, learnt, p_values = self._tensors(NET)
        network = net if isinstance(net, nn.Module) else _network(net or metadata.net, metadata, state, path)
        _fit(network, state, len(metadata.classes), path)
        _refuse_infinite(state, path, "weights that are not finite ({}); calibrate another network.")
        _refuse_infinite(learnt, path, "a score with numbers that are not finite ({}); fit and calibrate it again.")
        fill(network, state)
        if isinstance(network, nets.Net):
            network.preparation = preparation
        network.eval()
        size, classes = preparation.size, metadata.classes
        if (outputs := count_outputs(network, size)) != len(classes):
            raise MacsError(f"{path} names {len(classes)} classes, but its network has {outputs}; save it again.")

        def black() -> "Outputs":
            (outputs,) = outputs_of(network, [torch.zeros(1, size, size, 3, dtype=torch.uint8)], features=True)
            return outputs

        filled = _filled(unfitted, learnt, black, path, network)
        record, choice = metadata.calibration, metadata.choice
        fitted = (preparation, record, p_values, choice, metadata.temperature)
        return Detector(network, filled, classes, metadata.recipe, *fitted)

    def load_features(self, score: "Score | str | None" = None) -> "FeatureDetector":
        """Return the detector of rows; a user's own score must be given."""
        from macs.detector._feature_detector import FeatureDetector

        path, metadata = self.path, self.metadata
        columns = metadata.for_rows(path)
        unfitted = _score(metadata, score, path)
        head, learnt, p_values = self._tensors(HEAD)
        _refuse_infinite(learnt, path, "a score with numbers that are not finite ({}); fit and calibrate it again.")
        layer = (head["weight"], head["bias"]) if head.keys() == {"weight", "bias"} else None
        fits = layer is not None and layer[0].shape == (len(metadata.classes), columns.features) and not columns.logits
        if head and not fits:
            raise MacsError(f"{path} holds a last layer that does not fit its features and classes; calibrate again.")
        record, choice = metadata.calibration, metadata.choice
        detector = FeatureDetector(unfitted, layer, metadata.classes, columns, record, p_values, choice)
        detector.score = _filled(unfitted, learnt, detector.zeros, path)
        return detector

    def _tensors(self, model: str) -> "tuple[dict[str, Tensor], dict[str, Tensor], PValues]":
        """The tensors of the model, which have this prefix, those of the score, and the calibration confidences."""
        import safetensors.torch

        try:
            tensors: dict[str, Tensor] = safetensors.torch.load(self.content)
        except Exception:  # a forged list of tensors makes the reader raise errors of its own
            raise _damaged(self.path) from None
        p_values = _p_values(self.metadata, tensors.pop(CONFIDENCES, None), self.path)
        state, learnt = (
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            for prefix in (model, SCORE)
        )
        if len(state) + len(learnt) != len(tensors):
            raise MacsError(
                f"{self.path} holds tensors that are neither the network's nor the score's; calibrate again."
            )
        return state, learnt, p_values


def _p_values(metadata: DetectorMetadata, confidences: "Tensor | None", path: str | Path) -> PValues:
    """Return the calibration confidences; raise unless they are those of the metadata."""
    import torch

    ranked = metadata.calibration.ranked
    if (
        confidences is None
        or confidences.dtype != torch.float32
        or confidences.shape != (sum(ranked),)
        or not all(part.isfinite().all() and (part.diff() >= 0).all() for part in confidences.split(list(ranked)))
    ):
        raise MacsError(f"{path} holds calibration confidences that macs did not write; calibrate again.")
    return PValues(confidences.numpy(), np.array(ranked, np.int64))


def _score(metadata: DetectorMetadata, given: "Score | str | None", path: str | Path) -> "Score":
    """The score that the metadata name, not fitted yet; a user's own score is the given one."""
    from macs import scores

    if given is None and ":" in metadata.score:
        raise MacsError(
            f"{path} holds a score of your own, here {metadata.score}, and loads only with it: give "
            f"score=YourScore(...) in Python, --score {metadata.score} on the command line."
        )
    try:
        score = scores.get(metadata.score if given is None else given, **metadata.settings)
    except (TypeError, ValueError) as error:
        raise MacsError(f"Cannot make the score {metadata.score} of {path}: {error}") from None
    if scores.name_of(score) != metadata.score:
        raise MacsError(f"{path} was calibrated with the score {metadata.score}, not with {scores.name_of(score)}.")
    return score


def _filled(
    score: "Score",
    tensors: "dict[str, Tensor]",
    outputs: "Callable[[], Outputs]",
    path: str | Path,
    network: "nn.Module | None" = None,
) -> "Score":
    """A copy of the score with its tensors, tried on the outputs of a network: forged ones may have any shape."""
    from macs import scores

    if {name for name in tensors if name.rpartition(".")[2] != scores.NETWORK} != score.tensor_names:
        names = ", ".join(sorted(score.tensor_names)) or "none"
        raise MacsError(f"{path} does not fit {score.written}, whose tensors are {names}; calibrate again.")
    if not tensors:
        return score
    filled = replace(score)
    filled.load_state_dict(tensors)
    try:
        scores.answer(filled if network is None else scores.ready(filled, network), outputs())
    except MacsError:
        raise
    except (RuntimeError, IndexError, ValueError) as error:
        raise MacsError(
            f"{path} holds a score that does not fit its network: {first_line(error)}; calibrate again."
        ) from None
    return filled


def _network(name: str, metadata: DetectorMetadata, state: "dict[str, Tensor]", path: str | Path) -> "nn.Module":
    """A network by its name, built only after its weights are found to fit: a forged name could ask for a giant one."""
    import torch

    from macs import nets

    classes = len(metadata.classes)
    if ":" in name:
        return nets.build(name, classes)
    config = metadata.config if name == metadata.net else None
    depths = re.findall("[0-9]{1,9}", name) if "/" not in name else counts_in(config)
    if any(int(number) > len(state) for number in depths):
        raise MacsError(f"{path} does not fit {name} with {classes} classes: it has {len(state)} tensors.")
    build = partial(nets.build, name, classes, preparation=metadata.for_images(path), config=config)
    with suppress(nets.NoShapes), torch.device("meta"):  # shapes without memory
        _fit(build(), state, classes, path)
    return build()


def counts_in(config: Any) -> Iterator[int]:
    """The numbers of layers that a network's configuration asks for."""
    for key, value in config.items() if isinstance(config, dict) else ():
        counts = value if isinstance(value, list) else [value]
        if re.search("layer|depth|block|stage", str(key)):
            yield from (count for count in counts if type(count) is int)
        yield from counts_in(value)


def _fit(network: "nn.Module", state: "dict[str, Tensor]", classes: int, path: str | Path) -> None:
    """Refuse weights whose names, shapes or types are not exactly the network's."""
    from macs import nets
    from macs.nets import misfit

    expected = network.state_dict()
    wrong = misfit(state, expected, classes) or next(
        (
            f"its {name} is {str(tensor.dtype).removeprefix('torch.')} instead of "
            f"{str(expected[name].dtype).removeprefix('torch.')}"
            for name, tensor in state.items()
            if tensor.dtype != expected[name].dtype
        ),
        "",
    )
    if wrong:
        raise MacsError(f"{path} does not fit {nets.name_of(network)} with {classes} classes: {wrong}.")


def _refuse_infinite(tensors: "dict[str, Tensor]", path: str | Path, sentence: str) -> None:
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise MacsError(f"{path} holds {sentence.format(name)}")


def read(path: str | Path) -> SavedDetector:
    """Read a detector file once; raise if it is damaged or was changed since it was written."""
    path = input_file(local_file(path, [PYTORCH]), "detector", "make one with: macs calibrate")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header, start = read_header(file)
            values = json.loads(label_text(header) or "{}")
            header.pop("__metadata__", None)
            whole = size == start + max(entry["data_offsets"][1] for entry in header.values())
            file.seek(0)
            content = file.read() if whole else b""
    except OSError as error:
        raise MacsError(f"Cannot read {path}: {reason(error)}.") from None
    except Exception:  # a damaged header can raise anything
        raise _damaged(path) from None
    recognise(values, path)
    if not whole:
        raise MacsError(f"{path} is damaged: it was cut short or added to; copy it again.")
    recorded = values.pop("sha256", None)
    if recorded != checksum(values, header, memoryview(content)[start:]):
        raise MacsError(f"{path} was changed after it was saved: its checksum does not match; copy it again.")
    log.info("%s is a detector, %d bytes, checksum %s", path.absolute(), size, recorded)
    return SavedDetector(path, DetectorMetadata.from_json(values, path), content)


def _damaged(path: str | Path) -> MacsError:
    return MacsError(f"{path} is damaged or not a detector; copy it again, or make one with: macs calibrate.")


def detector_path(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """A path to save a detector to, checked before the work."""
    if Path(path).suffix != ".safetensors":
        raise MacsError(f"Cannot save a detector as {path}: the name must end in .safetensors.")
    return output_file(path, inputs)


def onnx_path(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """A path to export to, checked before the work, as are the packages that exporting needs."""
    if missing := [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]:
        raise MacsError(f"Exporting needs {', '.join(missing)}: pip install 'macs-ood[onnx]'.")
    if Path(path).suffix != ".onnx":
        raise MacsError(f"Cannot export to {path}: the name must end in .onnx.")
    return output_file(path, inputs)


def allowed_drop(points: float) -> float:
    """The points that 8 bits may cost, or an error if it is no such number: NaN would allow everything."""
    return Span(0, 100).hold("The points that 8 bits may cost", points)


def checksum(metadata: dict[str, Any], header: dict[str, Any], tensors: bytes | memoryview) -> str:
    """SHA-256 of the metadata without their checksum, of the tensors' names, types and shapes, and of their bytes."""
    digest = hashlib.sha256(json.dumps([metadata, header], sort_keys=True).encode())
    digest.update(tensors)
    return digest.hexdigest()


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and the bytes of its tensors."""
    header, start = read_header(io.BytesIO(content))
    return header, content[start:]
