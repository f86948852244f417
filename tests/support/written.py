"""A report that was written, and what it was written from."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from macs.data import ImageSet
from macs.evaluation import Evaluation
from macs.scores import ask


@dataclass(frozen=True)
class Written:
    path: Path
    run: Path
    net: nn.Module
    test: ImageSet
    ood: dict[str, ImageSet]
    evaluation: Evaluation

    @property
    def html(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def confidences(self, images: ImageSet) -> np.ndarray:
        return ask(self.net, images, "msp", "float32").confidence
