"""Bytes on disk -> ImageSet: uint8 pixels, labels, class names. A FeatureSet holds rows of features instead."""

from macs.data.batches import set_workers
from macs.data.featureset import FeatureSet
from macs.data.imageset import ImageSet
from macs.data.loading import available, catalog_rows, load
from macs.data.loading import data_root as root
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec

__all__ = [
    "DataSpec",
    "FeatureSet",
    "ImageSet",
    "Preparation",
    "available",
    "catalog_rows",
    "load",
    "root",
    "set_workers",
]
