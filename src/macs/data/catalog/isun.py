"""iSUN: scenes of the SUN database, reduced to 32 x 32 by the authors of ODIN."""

from macs.data.catalog import Remote, Source, Split, dataset
from macs.data.imageset import ImageSet

ARCHIVE = Remote(
    "https://www.dropbox.com/s/ssz7qxfqae0cca5/iSUN.tar.gz?dl=1",
    md5="be77b0f2c26fda898afac5f99645ee70",  # as in detectors
)


@dataset(
    "isun",
    title="iSUN",
    role="ood",
    splits={"test": Split(8_925, (("iSUN/iSUN_patches",), ("iSUN",), ("isun",)), ARCHIVE)},
    home="https://github.com/facebookresearch/odin",
    licence="none stated",
    citation="Xu et al.: TurkerGaze: Crowdsourcing Saliency with Webcam based Eye Tracking, 2015",
)
def isun(source: Source) -> ImageSet:
    return source.folder(labelled=False)
