"""Exported detectors, images, and what PyTorch says of them, for without_torch.py to compare with.

Run by `make test-runtime` with the environment that has everything: python exported_files.py FOLDER
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import macs
from macs.detector import Detector
from macs.predictions import Predictions, Verdict
from macs.training.recipe import PRETRAINING
from tiny import noise, stripes


def detectors() -> dict[str, Detector]:
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=3)
    validation = stripes(300, seed=5)
    recipe = replace(PRETRAINING, epochs=3, batch_in=32, precision="float32")
    macs.pretrain(net, stripes(300, seed=1), recipe=recipe, progress=False)
    return {
        "one": Detector(net, "msp").calibrate(validation, keep=0.9),
        "each": Detector(net, "energy").calibrate(validation, keep=0.8, per_class=True),
    }


def write_images(folder: Path) -> None:
    """Test images in class folders, of another size than the network's, and noise."""
    images = stripes(90, seed=9, size=24)
    for index, (pixels, label) in enumerate(zip(images.pixels[:], images.labels, strict=True)):
        path = folder / "test" / str(label) / f"{index:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    np.save(folder / "noise.npy", noise(40, seed=3).pixels[:])


def p_range(detector: Detector, row: Verdict) -> list[float]:
    """The p-values that rounding of the confidence may give: some calibration confidences are nearly the same."""
    rounding = 1e-4 * max(1.0, abs(row.confidence))
    confidences = np.array([row.confidence - rounding, row.confidence + rounding], np.float32)
    return detector.p_values(Predictions(np.full(2, row.index), confidences)).tolist()


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    write_images(folder)
    test = macs.data.load(folder / "test", size=16)
    ood = {"noise.npy": macs.data.load(folder / "noise.npy", size=16)}
    expected = {}
    for name, detector in detectors().items():
        detector.save(folder / f"{name}.safetensors")
        detector.export(folder / f"{name}.onnx")
        rows = detector.predict_files([folder / "test", folder / "noise.npy"], fdr=0.1)
        evaluation = detector.evaluate(test, ood, progress=False).as_dict()
        expected[name] = {
            "rows": [asdict(row) | {"path": Path(row.path).name, "p_range": p_range(detector, row)} for row in rows],
            "evaluation": {key: evaluation[key] for key in ("ood", "mean")},
            "calibration": detector.calibrated.as_dict(),
        }
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
