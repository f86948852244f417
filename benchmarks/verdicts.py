"""Every score that a detector can hold: what `macs.Runtime` says of real images beside what PyTorch says.

python benchmarks/verdicts.py DATA CHECKPOINT     a WRN-40-2 for CIFAR-10; about a quarter of an hour on one core

Each detector is fitted, calibrated, saved, loaded again and exported, and both judge 2,000 images of five sets.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from macs import data, nets
from macs.data import ImageSet
from macs.detector import Detector, Verdicts
from macs.detector.runtime import Runtime
from macs.detector.score_selection import candidate_names
from macs.scores import get, know

OOD = ("svhn", "textures", "places365", "cifar100")
OOD_IMAGES, FIT_IMAGES = 250, 2000
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


def main(root: Path, checkpoint: Path) -> None:
    net = nets.load(checkpoint, "wrn-40-2", classes=10)
    test = data.load("cifar10", "test", root=root)
    order = np.random.default_rng(0).permutation(len(test))
    calibration, held_out, known = order[:500], order[1500:2000], order[2000:3000]
    unknown = [data.load(name, "test", root=root) for name in OOD]
    random = np.random.default_rng(1)
    pixels = [images.pixels[np.sort(random.permutation(len(images))[:OOD_IMAGES])] for images in unknown]
    mixed = ImageSet.from_array(np.concatenate([test.subset(known).pixels[:], *pixels]), name="mixed")
    fitting = know(
        net, data.load("cifar10", "train", root=root), test.subset(held_out), limit=FIT_IMAGES, precision="float32"
    )
    with tempfile.TemporaryDirectory() as folder:
        file, exported = Path(folder) / "detector.safetensors", Path(folder) / "detector.onnx"
        for name in candidate_names():
            score = get(name)
            fitted = Detector(net, score if score.fitted else score.fit(fitting)).calibrate(test.subset(calibration))
            fitted.save(file)
            loaded = Detector.load(file)
            loaded.export(exported)
            print(compared(name, loaded, loaded.predict(mixed), Runtime(exported).predict(mixed)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
