"""What most commands import: the server of calling.py imports it once, and runs nothing."""

import importlib

import torch

# The only torchvision for our torch is built for CUDA; beside a CPU build of torch it wants these two operators.
TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    TORCHVISION.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

OTHERS = (
    "lightning_fabric",
    "matplotlib.pyplot",
    "onnxruntime",
    "onnxscript",
    "skimage.data",
    "sklearn.datasets",
    "timm",
)
OURS = ("macs.cli", "macs.detector", "macs.evaluation", "macs.training.loop")
for module in (*OTHERS, *OURS):
    importlib.import_module(module)
