"""300K Random Images: 80 Million Tiny Images without CIFAR classes and offensive content."""

from macs.data.catalog import Remote, Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import read_npy

FILE = Remote(
    "https://people.eecs.berkeley.edu/~hendrycks/300K_random_images.npy",
    md5="64ca64357de98351f28454274a112dc3",  # as in pytorch-ood
)


@dataset(
    "300k",
    title="300K Random Images",
    role="outliers",
    splits={"train": Split(300_000, under(". 300K_random_images 300k", "300K_random_images.npy"), FILE)},
    home="https://github.com/hendrycks/outlier-exposure",
    licence="none stated",
    citation="Hendrycks, Mazeika, Dietterich: Deep Anomaly Detection with Outlier Exposure, ICLR 2019",
)
def random300k(source: Source) -> ImageSet:
    return ImageSet("300k", read_npy(source.files[0]))
