"""Street View House Numbers, format 2: cropped digits in MATLAB files."""

from macs.data.catalog import Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import read_svhn


@dataset(
    "svhn",
    title="Street View House Numbers, cropped digits",
    role="id",
    splits={
        "train": Split(73_257, under("svhn SVHN .", "train_32x32.mat")),
        "test": Split(26_032, under("svhn SVHN .", "test_32x32.mat")),
    },
    home="http://ufldl.stanford.edu/housenumbers/",
    licence="non-commercial use only",
    citation="Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
    mirror=False,
)
def svhn(source: Source) -> ImageSet:
    images, labels = read_svhn(source.files[0])
    return ImageSet("svhn", images, labels, tuple("0123456789"))
