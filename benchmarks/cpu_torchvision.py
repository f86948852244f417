"""torchvision, which pytorch-ood imports, beside a CPU build of torch: it wants two operators that are not there."""

from torch import library

operators = library.Library("torchvision", "DEF")  # what it defines is gone with it, so it stays


def make_importable() -> None:
    """Call this before pytorch-ood is imported."""
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
