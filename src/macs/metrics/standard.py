"""The metrics of the field, in the order of our tables.

They come in both conventions, since published numbers use both. Without `_id` in its name, a metric takes OOD as the
positive class, as the paper does: images are flagged from the lowest confidence up. With `_id`, it takes ID as the
positive class: images are accepted from the highest confidence down.
"""

from macs.metrics import Ranked, metric


@metric(
    "auroc",
    title="AUROC",
    better="higher",
    shown=True,
    convention="probability that an ID image has a higher confidence than an OOD image; the same whichever class is "
    "positive",
)
def auroc(ranked: Ranked) -> float:
    """A tie counts as one half."""
    return ranked.areas.auroc


@metric(
    "aupr",
    title="AUPR",
    better="higher",
    shown=True,
    convention="average precision with OOD as positive, as in the paper",
)
def aupr(ranked: Ranked) -> float:
    """Mean over OOD images of the precision at the threshold that flags the image; no interpolation.

    Equal to scikit-learn's `average_precision_score`. It depends on the ratio of ID to OOD images: its chance level is
    the share of positives.
    """
    return ranked.areas.average_precision


@metric(
    "fpr95",
    title="FPR95",
    label="ID lost at 95% of OOD caught",
    better="lower",
    shown=True,
    convention="share of ID images flagged when 95% of OOD images are caught "
    "(OOD as positive: paper, OpenOOD 1.5, pytorch-ood)",
)
def fpr95(ranked: Ranked) -> float:
    return ranked.fpr(95)


@metric(
    "aupr_id",
    title="AUPR-ID",
    better="higher",
    shown=True,
    convention="average precision with ID as positive, as in energy_ood and DivOE",
)
def aupr_id(ranked: Ranked) -> float:
    return ranked.swapped.areas.average_precision


@metric(
    "fpr95_id",
    title="FPR95-ID",
    label="OOD passed at 95% of ID kept",
    better="lower",
    shown=True,
    convention="share of OOD images accepted when 95% of ID images are kept (ID as positive: energy_ood, DivOE)",
)
def fpr95_id(ranked: Ranked) -> float:
    return ranked.swapped.fpr(95)


@metric(
    "aupr_trapezoid",
    title="AUPR-OUT",
    better="higher",
    convention="AUPR by the trapezoidal rule with OOD as positive: the AUPR-OUT of OpenOOD and pytorch-ood",
)
def aupr_trapezoid(ranked: Ranked) -> float:
    """Equal to scikit-learn's `auc(recall, precision)` of its `precision_recall_curve`.

    Between two thresholds it assumes precisions that no threshold reaches; where confidences seldom tie, it differs
    little from average precision.
    """
    return ranked.areas.trapezoid


@metric(
    "aupr_trapezoid_id",
    title="AUPR-IN",
    better="higher",
    convention="AUPR by the trapezoidal rule with ID as positive: the AUPR-IN of OpenOOD and pytorch-ood",
)
def aupr_trapezoid_id(ranked: Ranked) -> float:
    return ranked.swapped.areas.trapezoid
