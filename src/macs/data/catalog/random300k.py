"""300K Random Images: what is left of 80 Million Tiny Images after removing CIFAR classes and offensive content."""

from macs.data.catalog import Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import read_npy


@dataset(
    "300k",
    title="300K Random Images",
    role="outliers",
    splits={"train": Split(300_000, under(". 300K_random_images 300k", "300K_random_images.npy"))},
    home="https://github.com/hendrycks/outlier-exposure",
    licence="none stated",
    citation="Hendrycks, Mazeika, Dietterich: Deep Anomaly Detection with Outlier Exposure, ICLR 2019",
)
def random300k(source: Source) -> ImageSet:
    return ImageSet("300k", read_npy(source.files[0]))
