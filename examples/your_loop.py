"""The losses and metrics of macs in a training loop of your own, here in plain PyTorch.

    python examples/your_loop.py        # needs pip install 'macs-ood[demo]' for its small images

Only `loss_of` and `Separation` use macs; everything else stands for the code that you already have. your_lightning.py
uses them in a LightningModule.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import macs
from macs.losses import confidence, macs_penalty, outlier_exposure
from macs.metrics import OODMetrics, ood_metrics


def loss_of(net: nn.Module, images: Tensor, labels: Tensor, outliers: Tensor, margin: float = 0.5) -> Tensor:
    """Cross-entropy on ID images, outlier exposure and the MaCS penalty, with the weights of the paper."""
    logits = net(torch.cat([images, outliers]))  # one pass, so that batch norm sees both kinds together
    logits_in, logits_out = logits.split([len(images), len(outliers)])
    penalty = macs_penalty(confidence(logits_in), confidence(logits_out), margin)
    return F.cross_entropy(logits_in, labels) + 0.5 * outlier_exposure(logits_out) + 0.5 * penalty


class Separation:
    """Collects confidences batch by batch, and measures at the end how well they tell ID from OOD images."""

    def __init__(self) -> None:
        self.known: list[Tensor] = []
        self.unknown: list[Tensor] = []

    def update(self, logits: Tensor, is_ood: Tensor) -> None:
        """Take a batch that may hold images of both kinds."""
        confidences = confidence(logits.detach()).cpu()
        self.known.append(confidences[~is_ood.cpu()])
        self.unknown.append(confidences[is_ood.cpu()])

    def compute(self) -> OODMetrics:
        """AUROC, AUPR and FPR95, the last two in both conventions: `.fpr95` takes OOD as positive, `.fpr95_id` ID."""
        return ood_metrics(torch.cat(self.known), torch.cat(self.unknown))


def train_one_epoch(
    net: nn.Module, known: Iterable[list[Tensor]], outliers: Iterable[list[Tensor]], optimiser: torch.optim.Optimizer
) -> float:
    """The mean loss of an epoch, which ends with the shorter of the two loaders."""
    net.train()
    losses = []
    for (images, labels), (others, *_) in zip(known, outliers, strict=False):
        loss = loss_of(net, images, labels, others)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def measured(net: nn.Module, known: Iterable[list[Tensor]], unknown: Iterable[list[Tensor]]) -> OODMetrics:
    net.eval()
    separation = Separation()
    for is_ood, loader in ((False, known), (True, unknown)):
        for images, *_ in loader:
            separation.update(net(images), torch.full((len(images),), is_ood))
    return separation.compute()


def loader_of(images: macs.ImageSet, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    """A loader of float images in [0, 1], and of labels if there are any; yours may come from anywhere."""
    pixels = torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255
    labels = [] if images.labels is None else [torch.from_numpy(images.labels)]
    return DataLoader(TensorDataset(pixels, *labels), batch_size=64, shuffle=shuffle)


def main(epochs: int = 5) -> tuple[nn.Module, OODMetrics]:
    """The trained network, and how well its confidence tells the digits 8 and 9 from those that it knows."""
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=8)  # any module that returns logits
    known = loader_of(macs.data.load("digits", "train"), shuffle=True)
    outliers = loader_of(macs.data.load("digits-outliers", "train"), shuffle=True)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for epoch in range(epochs):
        print(f"epoch {epoch}: loss {train_one_epoch(net, known, outliers, optimiser):.3f}")
    result = measured(net, loader_of(macs.data.load("digits", "test")), loader_of(macs.data.load("digits-8-9", "test")))
    print(
        f"AUROC {result.auroc:.3f}, FPR95 {result.fpr95:.3f} (OOD as positive), {result.fpr95_id:.3f} (ID as positive)"
    )
    return net, result


if __name__ == "__main__":
    main()
