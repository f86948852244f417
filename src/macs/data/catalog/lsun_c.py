"""LSUN-C: random crops of LSUN's test scenes, cut by the authors of ODIN."""

from macs.data.catalog import Remote, Source, Split, dataset
from macs.data.imageset import ImageSet

ARCHIVE = Remote(
    "https://www.dropbox.com/s/fhtsw1m3qxlwj6h/LSUN.tar.gz?dl=1",
    md5="458a0a0ab8e5f1cb4516d7400568e460",  # as in pytorch-ood and detectors
)


@dataset(
    "lsun-c",
    title="LSUN (crop)",
    role="ood",
    splits={"test": Split(10_000, (("LSUN",), ("LSUN_C",), ("LSUN-C",), ("lsun-c",)), ARCHIVE)},
    home="https://github.com/facebookresearch/odin",
    licence="none stated",
    citation="Yu et al.: LSUN: Construction of a Large-scale Image Dataset, 2015; Liang, Li, Srikant: ODIN, ICLR 2018",
)
def lsun_c(source: Source) -> ImageSet:
    # The archive may hold its images in one folder, which is not a class.
    return source.folder(labelled=False)
