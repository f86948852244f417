"""What lines of Python in the cases may name: the package, tiny images, a network, a detector."""

import json
import os
import pickle
import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import macs
from macs import Detector, ImageSet, Recipe, losses, metrics, nets
from tiny import STRIPES, noise, stripes

NET = "wrn-10-1"
PATH_CASES = ["", "\0", "x" * 5000, "nowhere", 5, None, b"x", ["x"]]


def images() -> ImageSet:
    return stripes(12, seed=1)


def net() -> torch.nn.Module:
    return nets.build(NET, classes=3)
