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
    "AUROC of OpenOOD v1.5's leaderboard, in its order, not computed here: means over three ResNet-18 of its own (for "
    "ImageNet, torchvision's ResNet-50). The first rows score a classifier trained with cross-entropy, with settings "
    "tuned on OOD validation images; LogitNorm, OE, MCD, UDG and MixOE are trained by that method, the last four with "
    "outliers."
)
# From results/*.csv of its repository at commit 03db2d8: near and far for each benchmark; - where there is no row.
PUBLISHED = """
            cifar10        cifar100       imagenet200    imagenet
OpenMax     87.62 89.62    76.41 79.48    80.27 90.20    74.77 89.26
MSP         88.03 90.73    80.27 77.76    83.34 90.13    76.02 85.23
TempScale   88.09 90.97    80.90 78.74    83.69 90.82    77.14 87.56
ODIN        82.87 87.96    79.90 79.28    80.27 91.71    74.75 89.47
MDS         84.20 89.72    58.69 69.39    61.93 74.72    55.44 74.25
RMDS        89.80 92.20    80.15 82.92    82.57 88.06    76.99 86.38
EBO         87.58 91.21    80.91 79.77    82.50 90.86    75.89 89.47
GradNorm    54.90 57.55    70.13 69.14    72.75 84.26    72.96 90.25
ReAct       87.11 90.42    80.77 80.39    81.87 92.31    77.38 93.67
MLS         87.52 91.10    81.05 79.67    82.90 91.11    76.46 89.57
KLM         79.19 82.68    76.56 76.24    80.76 88.53    76.64 87.60
VIM         88.68 93.48    74.98 81.70    78.68 91.26    72.08 92.68
KNN         90.64 92.96    80.18 82.40    81.57 93.16    71.10 90.18
DICE        78.34 84.23    79.38 80.01    81.78 90.80    73.07 90.95
ASH         75.27 78.49    78.20 80.58    82.38 93.90    78.17 95.74
SHE         81.54 85.32    78.95 76.92    80.18 89.81    73.78 90.92
GEN         88.20 91.35    81.31 79.68    83.68 91.36    76.85 89.76
LogitNorm   92.33 96.74    78.47 81.53    82.66 93.04    74.62 91.54
OE          94.82 96.00    88.30 81.41    84.84 89.02    -     -
MCD         91.03 91.00    77.07 74.72    83.62 88.94    -     -
UDG         89.91 94.06    78.02 79.59    74.30 82.09    -     -
MixOE       88.73 91.93    80.95 76.40    82.62 88.27    -     -
SCALE       82.55 86.39    80.99 81.42    84.84 93.98    81.36 96.53
NAC         90.93 94.60    75.90 86.98    78.52 91.02    74.43 95.29
fDBD        90.42 93.16    81.26 79.85    84.27 93.45    76.63 92.77
CombOOD     91.13 94.65    78.77 85.87    95.74 92.57    95.22 90.24
WeiPer+KLD  90.54 93.12    81.37 79.01    -     -        80.05 95.54
AdaSCALE-A  83.92 88.00    81.04 81.84    85.52 94.43    84.42 97.27
AdaSCALE-L  74.99 79.02    80.54 83.38    85.73 94.86    84.27 97.28
NCI         88.86 91.27    81.03 81.32    83.50 93.71    78.69 95.53
"""
# Our scores that the leaderboard calls otherwise; its ASH is ASH-B.
POSTPROCESSORS = {
    **{"energy": "EBO", "maxlogit": "MLS", "mahalanobis": "MDS", "relative-mahalanobis": "RMDS", "ash-b": "ASH"},
    **{"ash": "ASH-S", "normalised-mahalanobis": "MDS++", "normalised-relative-mahalanobis": "RMDS++"},
}


def published(id: str) -> dict[str, dict[str, float]]:
    """Return the published AUROC of each method for near and far sets, in the leaderboard's order."""
    heading, *rows = PUBLISHED.strip().splitlines()
    place = 1 + 2 * heading.split().index(id)
    found = {cells[0]: cells[place : place + 2] for cells in map(str.split, rows)}
    return {
        method: {"near": float(near), "far": float(far)} for method, (near, far) in found.items() if "-" not in near
    }


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
        published=published(id),
        names=POSTPROCESSORS,
        origin=LEADERBOARD,
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
)

openood(
    "imagenet",
    1000,
    LARGE,
    validation="openimage_o",
    normalisation="imagenet",
    preparation=Preparation(224, 256),
    official={},
)
