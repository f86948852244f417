"""What an epoch shows, against the same numbers computed from all images at once."""

import numpy as np
import pytest
import torch

from macs.methods import Batch, Step
from macs.training.tally import Tally


def test_an_epoch_is_the_mean_over_its_images_and_the_loss_and_the_gap_over_its_steps() -> None:
    torch.manual_seed(0)
    tally, steps = Tally(4), []
    for size in (6, 2):
        batch = Batch(torch.rand(size, 3, 4, 4), torch.randint(3, (size,)), torch.rand(5, 3, 4, 4))
        step = Step(torch.rand(()), torch.randn(size, 3), torch.randn(5, 3))
        tally.add(step, batch, rate=0.1 / size)
        steps.append((batch, step))
    epoch = tally.summary()
    logits_in = np.concatenate([step.logits_in.numpy() for _, step in steps])
    logits_out = np.concatenate([step.logits_out.numpy() for _, step in steps])
    labels = np.concatenate([batch.labels.numpy() for batch, _ in steps])

    def confidences(logits: np.ndarray) -> np.ndarray:
        odds = np.exp(logits)
        return (odds / odds.sum(axis=1, keepdims=True)).max(axis=1)

    gaps = []
    for _, step in steps:
        pairs = confidences(step.logits_in.numpy())[:, None] - confidences(step.logits_out.numpy())
        gaps.append((np.maximum(pairs, 0) ** 2).mean())
    assert epoch.epoch == 5 and epoch.lr == pytest.approx(0.05)
    assert epoch.loss == pytest.approx(np.mean([float(step.loss) for _, step in steps]))
    assert epoch.accuracy == pytest.approx((logits_in.argmax(axis=1) == labels).mean())
    assert epoch.confidence_in == pytest.approx(confidences(logits_in).mean())
    assert epoch.confidence_out == pytest.approx(confidences(logits_out).mean())
    assert epoch.mcd == pytest.approx(np.mean(gaps))
    assert epoch.images_per_second * epoch.seconds == pytest.approx(8 + 10)
