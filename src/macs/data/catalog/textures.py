"""Describable Textures: all 47 classes, since the OOD benchmarks use every image of its three official splits."""

from macs.data.catalog import Source, Split, dataset
from macs.data.imageset import ImageSet


@dataset(
    "textures",
    title="Describable Textures (DTD)",
    role="ood",
    splits={"test": Split(5_640, (("dtd/images",), ("dtd/dtd/images",), ("textures/images",), ("textures",)))},
    home="https://www.robots.ox.ac.uk/~vgg/data/dtd/",
    licence="research purposes only",
    citation="Cimpoi et al.: Describing Textures in the Wild, CVPR 2014",
)
def textures(source: Source) -> ImageSet:
    return ImageSet.from_folder(source.files[0], source.size, progress=source.progress)
