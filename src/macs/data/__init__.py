"""Bytes on disk -> ImageSet: uint8 pixels, labels, class names."""

from macs.data.imageset import ImageSet
from macs.data.loading import available, catalog_rows, load
from macs.data.loading import data_root as root
from macs.data.prefetch import set_workers
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec

__all__ = ["DataSpec", "ImageSet", "Preparation", "available", "catalog_rows", "load", "root", "set_workers"]
