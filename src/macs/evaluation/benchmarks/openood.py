"""OpenOOD v1.5 (Zhang et al., 2023): its image lists, its near and far groups, its metrics and its leaderboard.

Its data folder, made by its own scripts/download/download.py, is used as it is:

    benchmark_imglist/cifar10/test_svhn.txt        lines of `path label`, with the label -1 for OOD
    images_classic/svhn/test/1.jpg                 the pictures; the large ones are in images_largescale

Its conventions: OOD is positive, FPR95 is at the first threshold with a recall of at least 95%, AUPR is by the
trapezoidal rule, and near and far are unweighted means over sets. Its preparation is ours, pixel by pixel: RGB, the
shorter side resized (bilinear), the centre cropped. Unlike its code, ours turns pictures upright by their EXIF
orientation, lays transparent pixels over white, and refuses truncated files.
"""

from collections.abc import Mapping

from macs.data.preparation import NORMALISATIONS, Preparation
from macs.evaluation.benchmarks import Benchmark, register

FAR_SMALL = ("mnist", "svhn", "texture", "places365")
LARGE = {"near": ("ssb_hard", "ninco"), "far": ("inaturalist", "textures", "openimage_o")}
SMALL_COUNTS = {"test_mnist": 70_000, "test_svhn": 26_032, "test_texture": 5_640}
LEADERBOARD = (
    "AUROC of OpenOOD v1.5's leaderboard for its own ResNet-18, not computed here. MSP, KNN and GEN score a classifier "
    "trained with cross-entropy; the other rows are trained by that method, OE and MixOE with OpenOOD's own outliers."
)


def openood(
    id: str,
    classes: int,
    groups: Mapping[str, tuple[str, ...]],
    *,
    validation: str,
    outliers: str = "",
    normalisation: str,
    preparation: Preparation,
    official: Mapping[str, int],
    published: Mapping[str, tuple[float, float]],
) -> Benchmark:
    benchmark = Benchmark(
        name=f"openood-{id}",
        id=id,
        classes=classes,
        groups=groups,
        validation=validation,
        outliers=outliers,
        normalisation=normalisation,
        preparation=preparation.normalised(NORMALISATIONS[normalisation]),
        lists=f"benchmark_imglist/{id}",
        pictures=("images_classic", "images_largescale"),
        metrics=("fpr95", "auroc", "aupr_trapezoid_id", "aupr_trapezoid"),
        official=official,
        published={method: {"near": near, "far": far} for method, (near, far) in published.items()},
        origin=LEADERBOARD if published else "",
    )
    return register(benchmark)


openood(
    "cifar10",
    10,
    {"near": ("cifar100", "tin"), "far": FAR_SMALL},
    validation="tin",
    outliers="tin597",
    normalisation="openood-cifar10",
    preparation=Preparation(32),
    official={
        **SMALL_COUNTS,
        **{"test_cifar10": 9_000, "val_cifar10": 1_000, "train_tin597": 29_850},
        **{"test_cifar100": 9_000, "test_tin": 7_793, "test_places365": 35_195},
    },
    published={
        "MSP": (88.03, 90.73),
        "KNN": (90.64, 92.96),
        "GEN": (88.20, 91.35),
        "OE": (94.82, 96.00),
        "MixOE": (88.73, 91.93),
        "LogitNorm": (92.33, 96.74),
    },
)

openood(
    "cifar100",
    100,
    {"near": ("cifar10", "tin"), "far": FAR_SMALL},
    validation="tin",
    outliers="tin597",
    normalisation="openood-cifar100",
    preparation=Preparation(32),
    official={
        **SMALL_COUNTS,
        **{"test_cifar100": 9_000, "val_cifar100": 1_000, "train_tin597": 29_850},
        **{"test_cifar10": 10_000, "test_tin": 6_526, "test_places365": 33_773},
    },
    published={
        "MSP": (80.27, 77.76),
        "KNN": (80.18, 82.40),
        "GEN": (81.31, 79.68),
        "OE": (88.30, 81.41),
        "MixOE": (80.95, 76.40),
        "LogitNorm": (78.47, 81.53),
    },
)

openood(
    "imagenet200",
    200,
    LARGE,
    validation="openimage_o",
    outliers="imagenet800",
    normalisation="imagenet",
    preparation=Preparation(224, 256),
    official={},
    published={"MSP": (83.34, 90.13), "OE": (84.84, 89.02)},
)

openood(
    "imagenet",
    1000,
    LARGE,
    validation="openimage_o",
    normalisation="imagenet",
    preparation=Preparation(224, 256),
    official={},
    published={},
)
