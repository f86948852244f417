"""Places365: the validation images, in one folder as they are distributed, or in one folder per scene."""

from macs.data.catalog import Remote, Source, Split, dataset
from macs.data.imageset import ImageSet

FOLDERS = ("places365/val_256", "places365/test_subset", "places365/test_samples", "places365", "val_256")
ARCHIVE = Remote(
    "http://data.csail.mit.edu/places/places365/val_256.tar",
    into="places365",
    md5="e27b17d8d44f4af9a78502beb927f808",
    size=525_158_400,
)


@dataset(
    "places365",
    title="Places365, validation images",
    role="ood",
    splits={"test": Split(36_500, tuple((folder,) for folder in FOLDERS), ARCHIVE)},
    home="http://places2.csail.mit.edu/download.html",
    licence="non-commercial research and education",
    citation="Zhou et al.: Places: A 10 Million Image Database for Scene Recognition, TPAMI 2017",
)
def places365(source: Source) -> ImageSet:
    return source.folder()
