"""What lines of Python in the cases may name: the package, tiny images, a network, a detector."""

import io
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import macs
from macs import Detector, ImageSet, Recipe, losses, metrics, nets
from macs.evaluation import Protocol
from macs.training.spec import TrainingOptions
from tiny import STRIPES, noise, stripes

__all__ = ["NET", "STRIPES", "Detector", "Image", "ImageSet", "Path", "Recipe", "images", "load_file", "losses", "macs"]
__all__ += ["metrics", "net", "nets", "noise", "np", "os", "pickle", "save_file", "stripes", "struct", "sys", "torch"]
__all__ += ["Protocol", "TrainingOptions", "io", "zipfile"]

NET = "wrn-10-1"


def images() -> ImageSet:
    return stripes(12, seed=1)


def net() -> torch.nn.Module:
    return nets.build(NET, classes=3)
