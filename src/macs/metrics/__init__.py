"""From confidences to AUROC, AUPR and FPR95, under both conventions of the field.

A confidence is higher for ID, and a metric is a share between 0 and 1. Each metric is one record, made by a decorator:

    @metric("fpr99", title="FPR99", better="lower", convention="share of ID images flagged when 99% of OOD ...")
    def fpr99(ranked: Ranked) -> float:
        return ranked.fpr(99)

`ood_metrics` and the JSON output then include it, and tables show it on request. The built-in metrics are in
macs.metrics.standard, each with its convention. Which of them to compare with whose numbers:

    the MaCS paper, OE              aupr and fpr95, by the rule `nearest`
    OpenOOD 1.5, pytorch-ood        fpr95 is their FPR95, aupr_trapezoid their AUPR with OOD as positive (AUPR-OUT) and
                                    aupr_trapezoid_id that with ID as positive (AUPR-IN); some OpenOOD versions swap
                                    the two names
    energy_ood, DivOE               aupr_id and fpr95_id, by the rule `nearest`
    MixOE                           its TNR95 is 1 - fpr95_id, by the rule `nearest`

AUPR depends on the ratio of ID to OOD images (its chance level is the share of positives); AUROC and FPR95 do not.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from macs.core.errors import MacsError
from macs.core.registry import Registry, users_code
from macs.metrics._ranked import FprRule, Ranked, as_array
from macs.metrics.reliability import Reliability, expected_calibration_error, fit_temperature
from macs.metrics.selective import RiskCoverage, risk_coverage

__all__ = [
    "FprRule",
    "Metric",
    "OODMetrics",
    "Ranked",
    "Reliability",
    "RiskCoverage",
    "as_array",
    "available",
    "deviation",
    "expected_calibration_error",
    "fit_temperature",
    "get",
    "mean_and_error",
    "metric",
    "ood_metrics",
    "risk_coverage",
    "shown",
]


@dataclass(frozen=True)
class Metric:
    """How a number is computed from ranked confidences, what it is called, and what it means."""

    name: str  # in Python and in JSON
    title: str  # as papers call it
    better: Literal["higher", "lower"]
    convention: str  # what it measures and which class is positive, in words
    shown: bool  # whether tables show it by default
    compute: Callable[[Ranked], float]
    label: str  # in our tables: a plainer name than the title, if there is one

    @property
    def arrow(self) -> str:
        """Up if higher is better, down if lower is."""
        return "↑" if self.better == "higher" else "↓"

    @property
    def heading(self) -> str:
        """The heading of its column beside the numbers of papers: the title and the arrow."""
        return f"{self.title} {self.arrow}"

    @property
    def sentence(self) -> str:
        """What it measures, with both of its names."""
        names = self.title if self.label == self.title else f"{self.label} ({self.title})"
        return f"{names}: {self.convention}."

    @property
    def __wrapped__(self) -> Callable[[Ranked], float]:
        """The decorated function, by Python's name for it; the registry uses it to find where the metric is defined."""
        return self.compute

    def __call__(self, ranked: Ranked) -> float:
        try:
            return float(self.compute(ranked))
        except (Exception, SystemExit):
            with users_code(f"The metric {self.name} failed"):
                raise


_registry: Registry[Metric] = Registry("macs.metrics", "metric")


def metric(
    name: str,
    *,
    title: str,
    better: Literal["higher", "lower"],
    convention: str,
    shown: bool = False,
    label: str | None = None,
) -> Callable[[Callable[[Ranked], float]], Metric]:
    """Register a function of ranked confidences as a metric."""
    if not name.isidentifier() or hasattr(OODMetrics, name):
        raise MacsError(f"A metric cannot be called {name!r}; it needs a name of letters, digits and _ like 'fpr99'.")

    def add(compute: Callable[[Ranked], float]) -> Metric:
        return _registry(name)(Metric(name, title, better, convention, shown, compute, label or title))

    return add


def available() -> list[Metric]:
    """All metrics, the built-in ones first."""
    return list(_registry.entries().values())


def get(name: str) -> Metric:
    """The metric of that name, or the one that module:name points at."""
    entry = _registry[name]
    if not isinstance(entry, Metric):
        raise MacsError(f"{name} is not a metric; decorate the function with macs.metrics.metric.")
    return entry


def shown(names: Sequence[str] | None = None) -> list[Metric]:
    """The metrics that a table shows: those of these names, else the default ones."""
    return [get(name) for name in names] if names else [entry for entry in available() if entry.shown]


class OODMetrics(Mapping[str, float]):
    """The value of every metric, as an attribute and as an item: `result.fpr95`, `result["fpr95"]`."""

    auroc: float
    aupr: float
    fpr95: float
    aupr_id: float
    fpr95_id: float
    aupr_trapezoid: float
    aupr_trapezoid_id: float

    def __init__(self, **values: float) -> None:
        vars(self).update(values)

    def __getitem__(self, name: str) -> float:
        value: float = vars(self)[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("results cannot be changed")

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __repr__(self) -> str:
        return f"OODMetrics({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def ood_metrics(conf_in: Any, conf_out: Any, fpr_rule: FprRule = "first") -> OODMetrics:
    """Compute all metrics from the confidences of ID and OOD images, exactly, also with ties.

    Each side is sorted once; time is O(n log n), memory a few arrays of n numbers.

    Parameters
    ----------
    conf_in, conf_out
        Confidences of ID and of OOD images, higher for ID: arrays, lists, or torch tensors of any type on any device.
    fpr_rule
        Which threshold FPR95 uses: "first" keeps at least 95%, "nearest" is the rule of the MaCS paper.

    Returns
    -------
    OODMetrics
        The value of every metric, as an attribute and as an item: .auroc, .aupr and .fpr95 take OOD as positive,
        .aupr_id and .fpr95_id take ID as positive.

    Examples
    --------
    >>> import macs
    >>> result = macs.metrics.ood_metrics([0.9, 0.8, 0.4], [0.5, 0.1])
    >>> round(result.auroc, 3)
    0.833
    """
    ranked = Ranked.of(conf_in, conf_out, fpr_rule)
    return OODMetrics(**{entry.name: entry(ranked) for entry in available()})


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error, which is the standard deviation divided by sqrt(n); nan for a single value."""
    if len(values) == 0:
        raise MacsError("There are no values to take the mean of; run at least one trial.")
    return float(np.mean(values)), deviation(values) / math.sqrt(len(values))


def deviation(values: Sequence[float]) -> float:
    """Standard deviation with n - 1 degrees of freedom; nan for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
