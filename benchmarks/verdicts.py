"""Every score that a detector can hold: what `macs.Runtime` says of real images beside what PyTorch says.

python benchmarks/verdicts.py DATA CHECKPOINT [SCORE ...]    for CIFAR-10; about a minute per score on one core

Each detector is fitted, calibrated, saved, loaded again and exported, and all judge 2,000 images of five sets. The same
is exported in 8 bits, which is another network with another threshold, so that some of its answers differ. Where
OpenVINO is installed (pip install openvino), it runs the exported file as well.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from macs import data, nets
from macs.core.cache import keeping
from macs.data import ImageSet
from macs.data.batches import batches_of
from macs.detector import Detector, Verdicts
from macs.detector.runtime import OUTPUTS, Runtime
from macs.detector.score_selection import candidate_names
from macs.predictions import Predictions, joined
from macs.scores import get, know

OOD = ("svhn", "textures", "places365", "cifar100")
OOD_IMAGES, FIT_IMAGES, INT8_IMAGES = 250, 2000, 500
NEAR = 1e-4  # of a confidence, or of their spread where a confidence is near 0


def compared(name: str, detector: Detector, ours: Verdicts, theirs: Verdicts) -> str:
    """The differences in one line; those of confidences relative to their own size, and to their spread if larger."""
    differences = np.abs(ours.confidence - theirs.confidence)
    size = np.abs(ours.confidence)
    scale = np.maximum(size, ours.confidence.std())
    near = np.abs(ours.confidence - detector.thresholds()) <= NEAR * scale
    return (
        f"{name:<22} other labels {np.sum(ours.index != theirs.index)}, other verdicts "
        f"{np.sum(ours.is_ood != theirs.is_ood)} ({near.sum()} images near the threshold, {ours.is_ood.sum()} OOD); "
        f"confidences differ by {(differences / size).max():.1e} of their value, by more than {NEAR:g} for "
        f"{np.sum(differences > NEAR * size)}, and by {(differences / scale).max():.1e} of value or spread"
    )


def by_openvino(exported: Path, images: ImageSet) -> Verdicts:
    """What OpenVINO says when it runs the file; thresholds and p-values are those of the file."""
    import openvino

    network = openvino.Core().compile_model(exported, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    answers = [network({"images": batch}) for batch in batches_of(images)]
    predictions = joined([Predictions(*(each[name] for name in OUTPUTS[:3])) for each in answers])
    runtime = Runtime(exported)
    return runtime.judge(predictions, runtime.thresholds())


def differing(ours: Verdicts, theirs: Verdicts) -> str:
    return f"{np.sum(ours.index != theirs.index)} labels and {np.sum(ours.is_ood != theirs.is_ood)} verdicts"


def main(root: Path, checkpoint: Path, names: list[str]) -> None:
    net = nets.load(checkpoint, "wrn-40-2", classes=10)
    test = data.load("cifar10", "test", root=root)
    order = np.random.default_rng(0).permutation(len(test))
    calibration, held_out, known = order[:500], order[1500:2000], order[2000:3000]
    for_int8 = test.subset(order[3000 : 3000 + INT8_IMAGES])
    unknown = [data.load(name, "test", root=root) for name in OOD]
    random = np.random.default_rng(1)
    pixels = [images.pixels[np.sort(random.permutation(len(images))[:OOD_IMAGES])] for images in unknown]
    mixed = ImageSet.from_array(np.concatenate([test.subset(known).pixels[:], *pixels]), name="mixed")
    fitting = know(
        net, data.load("cifar10", "train", root=root), test.subset(held_out), limit=FIT_IMAGES, precision="float32"
    )
    with tempfile.TemporaryDirectory() as folder:
        file, exported, small = (Path(folder) / name for name in ("d.safetensors", "d.onnx", "int8.onnx"))
        for name in names or candidate_names():
            score = get(name)
            fitted = Detector(net, score if score.fitted else score.fit(fitting)).calibrate(test.subset(calibration))
            fitted.save(file)
            loaded = Detector.load(file)
            loaded.export(exported)
            loaded.export_int8(small, for_int8, max_drop=100)
            before, ours = fitted.predict(mixed), loaded.predict(mixed)
            print(
                f"{compared(name, loaded, ours, Runtime(exported).predict(mixed))}; loaded again: other "
                f"{differing(before, ours)}; in 8 bits: other {differing(ours, Runtime(small).predict(mixed))}",
                flush=True,
            )
            if find_spec("openvino"):
                print(compared("  by OpenVINO", loaded, ours, by_openvino(exported, mixed)), flush=True)


if __name__ == "__main__":
    with keeping(True):
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
