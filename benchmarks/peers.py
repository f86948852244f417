"""pytorch-ood's metrics and MSP detector beside ours. Runs in an environment of its own: `make bench-peers`."""

import numpy as np
import torch

from bench import interleaved, report, seconds

# torchvision, which pytorch-ood imports, wants two operators that a CPU build of torch does not have.
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from pytorch_ood.detector import MaxSoftmax  # noqa: E402  (after the operators are defined)
from pytorch_ood.metrics import OODMetrics  # noqa: E402

from macs import nets  # noqa: E402
from macs.inference import inference  # noqa: E402
from macs.metrics import ood_metrics  # noqa: E402


def main() -> None:
    random = np.random.default_rng(0)
    n = 1_000_000
    conf_in, conf_out = (random.beta(a, b, n).astype(np.float32) for a, b in ((8, 2), (4, 4)))
    outlier_scores = torch.from_numpy(-np.r_[conf_in, conf_out])
    labels = torch.from_numpy(np.r_[np.ones(n), -np.ones(n)]).long()

    def theirs() -> None:
        metrics = OODMetrics()
        metrics.update(outlier_scores, labels)
        metrics.compute()

    cases = {
        "pytorch-ood": lambda: seconds(theirs),
        "ours": lambda: seconds(lambda: ood_metrics(conf_in, conf_out)),
    }
    found = interleaved(cases, 3)
    ratio = found["pytorch-ood"].median / found["ours"].median
    report("peer-metrics", f"Metrics of {n:,} + {n:,} confidences", found, "s", {"pytorch-ood / ours": ratio})

    pixels = torch.from_numpy(random.integers(0, 256, (1024, 32, 32, 3), dtype=np.uint8))
    net = nets.build("wrn-40-2", classes=10).eval()
    detector = MaxSoftmax(net)

    @torch.no_grad()
    def their_scores() -> None:
        for batch in pixels.split(256):
            detector(batch.permute(0, 3, 1, 2).float() / 255)

    def our_scores() -> None:
        with inference(net) as run:
            for batch in pixels.split(256):
                run(batch).logits.softmax(1).amax(1)

    cases = {
        "pytorch-ood's MaxSoftmax": lambda: len(pixels) / seconds(their_scores),
        "ours": lambda: len(pixels) / seconds(our_scores),
    }
    found = interleaved(cases, 3)
    ratio = found["ours"].median / found["pytorch-ood's MaxSoftmax"].median
    report("peer-scoring", "Scoring with WRN-40-2", found, "images/s", {"ours / pytorch-ood": ratio})


if __name__ == "__main__":
    main()
