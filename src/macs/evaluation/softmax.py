"""The softmax beside other scores: how honest class probabilities are, from the same pass over the images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.inference import outputs_of
from macs.metrics import Reliability, expected_calibration_error, fit_temperature
from macs.predictions import Predictions
from macs.scores import MOST, Score, Train
from macs.scores.mcm import MCM

PLAIN, SCALED = " softmax", " softmax with a temperature"  # no score has a name with a space


@dataclass(frozen=True)
class ScaledSoftmax:
    """The probability of the predicted class, without and with a temperature, if there is one."""

    temperature: float | None
    fitted_to: str = ""  # the images that the temperature is fitted to

    @property
    def scores(self) -> dict[str, Score]:
        """The scores to ask for beside others."""
        plain: dict[str, Score] = {PLAIN: MCM()}
        return plain if self.temperature is None else {**plain, SCALED: MCM(self.temperature)}

    def reliability(self, answers: Mapping[str, Predictions], test: ImageSet) -> Reliability | None:
        """Compute the ECE on the ID test images, from what these scores answered; None if one of them failed."""
        if not all(name in answers for name in self.scores):
            return None
        errors = [
            expected_calibration_error(answers[name].index == test.labels, answers[name].confidence)
            for name in self.scores
        ]
        return Reliability(errors[0], self.temperature, errors[1] if len(errors) > 1 else None, self.fitted_to)


def fit_softmax(
    net: nn.Module, test: ImageSet, held_out: Train, seed: int, precision: str, progress: bool
) -> ScaledSoftmax:
    """Find the temperature that fits labelled ID images which the network was not trained on, if there are some."""
    try:
        images = held_out() if callable(held_out) else held_out
    except MacsError:
        images = None  # as on a machine that has the test images alone
    if images is None or images.labels is None:
        return ScaledSoftmax(None)
    images = nets.prepared_for(net, images, like=test)
    images = images.split(MOST, seed)[0] if len(images) > MOST else images
    assert images.labels is not None
    parts = [outputs.logits.cpu() for outputs in outputs_of(net, images, precision=precision, progress=progress)]
    temperature = fit_temperature(torch.cat(parts).numpy(), images.labels)
    return ScaledSoftmax(temperature, "" if temperature is None else f"{len(images):,} images of {images.name}")
