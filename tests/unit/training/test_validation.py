"""Validation after each epoch: the same numbers computed another way, and a training that it does not disturb."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from macs import methods
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.methods import Method
from macs.training.checks import Validation, validation_on
from macs.training.runs import Epoch
from short_training import small_net
from tiny import STRIPES, noise, stripes

OTHERS = noise(90, seed=8)
EPOCH = Epoch(1, 0.5, 0.5, 0.5, 0.5, 0.1, 0.01, 1.0, 9.0)


def logits_of(net: nn.Module, images: ImageSet) -> Tensor:
    with torch.no_grad():
        return net(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255)


@pytest.mark.parametrize(
    ("method", "confidence"),
    [("macs", lambda logits: logits.softmax(1).amax(1)), ("energy", lambda logits: logits.logsumexp(1))],
)
def test_accuracy_and_auroc_are_those_of_the_methods_own_score(
    method: str, confidence: Callable[[Tensor], Tensor], known_test: ImageSet
) -> None:
    net = small_net().eval()
    epoch = Validation(known_test, OTHERS).measured(EPOCH, net, methods.build(method), "float32")
    known, unknown = logits_of(net, known_test), logits_of(net, OTHERS)
    is_known = np.r_[np.ones(len(known)), np.zeros(len(unknown))]
    auroc = roc_auc_score(is_known, np.r_[confidence(known), confidence(unknown)])
    assert epoch.validation_auroc == pytest.approx(auroc, abs=1e-4)
    accuracy = (known.argmax(1).numpy() == known_test.labels).mean()
    assert epoch.validation_accuracy == pytest.approx(accuracy)
    assert replace(epoch, validation_accuracy=None, validation_auroc=None) == EPOCH
    alone = Validation(known_test).measured(EPOCH, net, methods.build(method), "float32")
    assert (alone.validation_accuracy, alone.validation_auroc) == (epoch.validation_accuracy, None)


@dataclass(frozen=True)
class Neighbours(Method):
    """A method of somebody who detects with a score that has to be fitted."""

    score: ClassVar[str] = "knn"


def test_images_that_cannot_be_validated_on_are_refused(known: ImageSet, known_test: ImageSet) -> None:
    method = methods.build("macs")
    plain = ImageSet.from_array(known_test.pixels[:], name="plain")
    cases: list[tuple[Any, Any, str]] = [
        (None, OTHERS, "give these as well"),
        ("val/", None, "validation images must be an ImageSet, not the path"),
        (known_test, "val/", "validation outliers must be an ImageSet, not the path"),
        (plain, None, "plain has no labels to validate with"),
        (known, None, "are the training images of stripes themselves"),
        (replace(known_test, classes=STRIPES[::-1]), None, "but the training images have horizontal, vertical, plain"),
        (stripes(20, seed=2, size=12), None, "stripes is 16 pixels wide and stripes 12"),
        (known_test, noise(20, seed=2, size=12), "stripes is 16 pixels wide and noise 12"),
    ]
    for images, others, words in cases:
        with pytest.raises(MacsError, match=words):
            validation_on(images, others, known, method)
    with pytest.raises(MacsError, match="detects with knn, which is fitted after the training"):
        validation_on(known_test, OTHERS, known, Neighbours())
    assert validation_on(known_test, None, known, Neighbours()) == Validation(known_test)
    assert validation_on(None, None, known, method) is None
