"""Describable Textures: all 47 classes, since the OOD benchmarks use every image of its three official splits."""

from macs.data.catalog import Remote, Source, Split, dataset
from macs.data.imageset import ImageSet

FOLDERS = ("dtd/images", "dtd/dtd/images", "textures/images", "textures")
ARCHIVE = Remote(
    "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
    md5="fff73e5086ae6bdbea199a49dfb8a4c1",
    size=625_239_812,
)


@dataset(
    "textures",
    title="Describable Textures (DTD)",
    role="ood",
    splits={"test": Split(5_640, tuple((folder,) for folder in FOLDERS), ARCHIVE)},
    home="https://www.robots.ox.ac.uk/~vgg/data/dtd/",
    licence="research purposes only",
    citation="Cimpoi et al.: Describing Textures in the Wild, CVPR 2014",
)
def textures(source: Source) -> ImageSet:
    return source.folder()
