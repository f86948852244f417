"""What most commands import: the server of calling.py imports it once, and runs nothing."""

import importlib

OTHERS = (
    "fitting_torchvision",
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
