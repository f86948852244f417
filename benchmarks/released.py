"""The way the released scripts work, written anew from their description, as the baseline to measure against.

float32, N x C x H x W memory, each image transformed on its own through PIL in a DataLoader with workers, the pairs'
differences as an N x N matrix that is copied to a Python list at every step, and for ten draws ten passes of the
network over the test sets.
"""

import random
import time

import numpy as np
import torch
from PIL import Image, ImageOps
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, Subset

from macs.nets import ReluDropout
from macs.nets.wrn import WideBlock

MEAN = torch.tensor([125.3, 123.0, 113.9]).view(3, 1, 1) / 255
STD = torch.tensor([63.0, 62.1, 66.7]).view(3, 1, 1) / 255


class PilImages(Dataset[tuple[Tensor, int]]):
    """Images that are cropped, flipped and normalised one by one."""

    def __init__(self, pixels: np.ndarray, labels: np.ndarray | None = None, augment: bool = True) -> None:
        self.pixels, self.labels, self.augment = pixels, labels, augment

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.pixels[index])
        if self.augment:
            if random.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            left, top = random.randint(0, 8), random.randint(0, 8)
            image = ImageOps.expand(image, 4).crop((left, top, left + 32, top + 32))
        tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return (tensor - MEAN) / STD, 0 if self.labels is None else int(self.labels[index])


class PlainBlock(nn.Module):
    """A wide residual block as the public code of that network has it: one layer after another, then a new sum."""

    def __init__(self, block: WideBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        block = self.block
        active = torch.relu_(block.bn1(x))
        shortcut = x if block.convShortcut is None else block.convShortcut(active)
        return shortcut + block.conv2(block.relu_dropout(block.bn2(block.conv1(active))))


def without_our_layers(net: nn.Module) -> nn.Module:
    """The network as a plain script has it: torch's own layers, and no normalisation since the transforms do it."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, WideBlock):
                setattr(module, name, PlainBlock(child))
            elif isinstance(child, ReluDropout):
                setattr(module, name, nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(child.p)))
            elif isinstance(child, nn.Dropout):
                setattr(module, name, nn.Dropout(child.p))
    net.normalise = nn.Identity()
    return net.train(net.training)  # new layers are born in training


def train(net: nn.Module, known: PilImages, outliers: PilImages, steps: int, margin: float = 0.5) -> float:
    """Fine-tune by the MaCS objective; the seconds from the first step's end to the last's."""
    net.train()
    loaders = [DataLoader(each, 128, shuffle=True, num_workers=2, drop_last=True) for each in (known, outliers)]
    optimizer = torch.optim.SGD(net.parameters(), 0.001, momentum=0.9, nesterov=True, weight_decay=5e-4, foreach=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for step, ((images, labels), (others, _)) in enumerate(zip(*loaders, strict=False)):
        if step == 1:
            started = time.perf_counter()
        if step == steps + 1:
            break
        logits = net(torch.cat([images, others]))
        logits_in, logits_out = logits[:128], logits[128:]
        conf_in, conf_out = (z.softmax(1).max(1).values for z in (logits_in, logits_out))
        differences = conf_in.unsqueeze(1) - conf_out.unsqueeze(0)
        differences.tolist()
        gap = torch.relu(differences).square().mean()
        loss = cross_entropy(logits_in, labels) + 0.5 * (logits_out.logsumexp(1) - logits_out.mean(1)).mean()
        loss = loss + 0.5 * torch.clamp(margin - gap, min=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return time.perf_counter() - started


def evaluate(net: nn.Module, known: PilImages, ood: list[PilImages], draws: int = 10) -> list[list[float]]:
    """AUROC, AUPR and FPR95 of each set, with a pass of the network for every draw of a fifth of the images."""
    net.eval()
    results = []
    for _ in range(draws):
        count = len(known) // 5
        conf_in = confidences(net, Subset(known, random.sample(range(len(known)), count)))
        for images in ood:
            chosen = random.sample(range(len(images)), min(count, len(images)))
            conf_out = confidences(net, Subset(images, chosen))
            is_ood = np.r_[np.zeros(len(conf_in)), np.ones(len(conf_out))]
            unsure = -np.r_[conf_in, conf_out]
            fpr, recall, _ = roc_curve(is_ood, unsure)
            fpr95 = fpr[np.abs(recall - 0.95).argmin()]
            results.append([roc_auc_score(is_ood, unsure), average_precision_score(is_ood, unsure), fpr95])
    return results


@torch.no_grad()
def confidences(net: nn.Module, images: Dataset[tuple[Tensor, int]]) -> np.ndarray:
    batches = DataLoader(images, 200, num_workers=2)
    return np.concatenate([net(batch).softmax(1).max(1).values.numpy() for batch, _ in batches])
