"""Import this before torchvision.

The only torchvision for our torch is built for CUDA; beside a CPU build of torch it does not load its own operators,
and then fails when it registers something for these two. No test calls them.
"""

import torch

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # what it defines is gone with it, so it stays
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
