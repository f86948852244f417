"""pytorch-ood's metrics and MSP detector beside ours. Runs in an environment of its own: `make bench-peers`."""

import sys

import numpy as np
import torch

from bench import interleaved, report, seconds, standing
from cpu_torchvision import make_importable
from macs.data.batches import BATCH
from macs.metrics import ood_metrics
from released import without_our_layers
from scoring import answer_rates, network, normalised, ours


def metrics() -> None:
    from pytorch_ood.metrics import OODMetrics

    random = np.random.default_rng(0)
    n = 1_000_000
    conf_in, conf_out = (random.beta(a, b, n).astype(np.float32) for a, b in ((8, 2), (4, 4)))
    outlier_scores = torch.from_numpy(-np.r_[conf_in, conf_out])
    labels = torch.from_numpy(np.r_[np.ones(n), -np.ones(n)]).long()

    def theirs() -> None:
        collected = OODMetrics()
        collected.update(outlier_scores, labels)
        collected.compute()

    cases = {
        "pytorch-ood": lambda: seconds(theirs),
        "ours": lambda: seconds(lambda: ood_metrics(conf_in, conf_out)),
    }
    found = interleaved(cases, 3)
    ratio = found["pytorch-ood"].median / found["ours"].median
    report("peer-metrics", f"Metrics of {n:,} + {n:,} confidences", found, "s", {"pytorch-ood / ours": ratio})


@torch.no_grad()
def theirs(net: torch.nn.Module, pixels: torch.Tensor) -> None:
    from pytorch_ood.detector import MaxSoftmax

    detector = MaxSoftmax(net)
    for batch in pixels.split(BATCH):
        detector(normalised(batch))


def scoring() -> None:
    cases = {
        "pytorch-ood's MaxSoftmax": standing(__file__, "theirs"),
        "ours": standing(__file__, "ours"),
    }
    found = interleaved(cases, 9)
    ratio = found["ours"].median / found["pytorch-ood's MaxSoftmax"].median
    report("peer-scoring", "Scoring with WRN-40-2", found, "images/s", {"ours / pytorch-ood": ratio})


if __name__ == "__main__":
    make_importable()
    if sys.argv[1:] == ["theirs"]:
        answer_rates(theirs, without_our_layers(network()))
    elif sys.argv[1:] == ["ours"]:
        answer_rates(ours, network())
    else:
        metrics()
        scoring()
