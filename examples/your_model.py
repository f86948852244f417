"""Your own network on your own images, from training to a verdict.

    python examples/your_model.py photos results

`photos` holds `known/train`, `known/val` and `known/test` with one folder per class in each, and `other` and
`unknown`, any images that belong to none of the classes. docs/your-model.md explains each step.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import macs
from macs.training.recipe import PRETRAINING

SIZE = 64  # every image is resized and cropped to SIZE x SIZE


class SmallNet(nn.Module):
    """Any module that takes N x 3 x H x W pixels in [0, 1] and returns N x classes logits will do."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.normalise = nn.BatchNorm2d(3, affine=False)  # inside the network, so that nobody has to remember it
        self.layers = nn.Sequential(self.block(3, 16), self.block(16, 32), self.block(32, 64))
        self.fc = nn.Linear(64, classes)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.layers(self.normalise(pixels)).mean(dim=(2, 3)))
        return logits


def main(photos: Path, results: Path, pretrain_epochs: int = 30, finetune_epochs: int = 10) -> macs.Detector:
    train, validation, test = (
        macs.ImageSet.from_folder(photos / "known" / split, size=SIZE) for split in ("train", "val", "test")
    )
    # Some unknown images, the outliers, teach the network to be unsure; others show whether it has learned to.
    outliers, unknown = (
        macs.ImageSet.from_folder(photos / name, size=SIZE, labelled=False) for name in ("other", "unknown")
    )

    torch.manual_seed(0)
    net = SmallNet(classes=len(train.classes))
    macs.pretrain(net, train, recipe=replace(PRETRAINING, epochs=pretrain_epochs, batch_in=32, lr=0.05))
    recipe = macs.Recipe(margin=0.5, epochs=finetune_epochs, batch_in=32, batch_out=32, lr=0.01)
    macs.finetune(net, train, outliers, method="macs", recipe=recipe)
    print(macs.evaluate(net, test, {"unknown": unknown}))

    detector = macs.Detector(net).calibrate(validation, keep=0.95, outliers={"unknown": unknown})
    print(detector.calibration)
    detector.save(results / "detector.safetensors")

    # A file never runs code, so your own network is given again when it is read.
    detector = macs.Detector.load(results / "detector.safetensors", net=SmallNet(classes=len(train.classes)))
    for row in detector.predict_files([photos / "known" / "test", photos / "unknown"]):
        verdict = "unknown" if row.is_ood else row.class_
        print(f"{row.path}: {row.reason or f'{verdict} ({row.confidence:.2f})'}")
    return detector


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
