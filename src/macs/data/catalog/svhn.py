"""Street View House Numbers, format 2: cropped digits in MATLAB files."""

from macs.data.catalog import Remote, Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import read_svhn

HOME = "http://ufldl.stanford.edu/housenumbers/"
TRAIN = Remote(f"{HOME}train_32x32.mat", "svhn", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794)
TEST = Remote(f"{HOME}test_32x32.mat", "svhn", "eb5a983be6a315427106f1b164d9cef3", 64_275_384)


@dataset(
    "svhn",
    title="Street View House Numbers, cropped digits",
    role="id",
    splits={
        "train": Split(73_257, under("svhn SVHN .", "train_32x32.mat"), TRAIN),
        "test": Split(26_032, under("svhn SVHN .", "test_32x32.mat"), TEST),
    },
    home=HOME,
    licence="non-commercial use only",
    citation="Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning, 2011",
    mirror=False,
)
def svhn(source: Source) -> ImageSet:
    images, labels = read_svhn(source.files[0])
    return ImageSet("svhn", images, labels, tuple("0123456789"))
