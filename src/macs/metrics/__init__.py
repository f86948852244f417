"""From confidences to AUROC, AUPR and FPR95, under both conventions of the field.

A confidence is higher for ID, and a metric is a share between 0 and 1. Each metric is one record, made by a decorator:

    @metric("fpr99", title="FPR99", better="lower", convention="share of ID images flagged when 99% of OOD ...")
    def fpr99(ranked: Ranked) -> float:
        return ranked.fpr(99)

From then on it is among the results of `ood_metrics` and in the JSON output; tables have it if they are asked for it.
Ours are in macs.metrics.standard, each with its convention. Which of them to compare with whose numbers:

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

__all__ = [
    "FprRule",
    "Metric",
    "OODMetrics",
    "Ranked",
    "as_array",
    "available",
    "get",
    "mean_and_error",
    "metric",
    "ood_metrics",
    "shown",
]


@dataclass(frozen=True)
class Metric:
    """How a number is computed from ranked confidences, what it is called, and what it means."""

    name: str  # in Python and in JSON
    title: str  # in tables
    better: Literal["higher", "lower"]
    convention: str  # what it measures and which class is positive, for those who read it without us
    shown: bool  # whether tables have it unless they are asked for others
    compute: Callable[[Ranked], float]

    @property
    def heading(self) -> str:
        """The head of its column, with an arrow towards better values."""
        return f"{self.title} {'↑' if self.better == 'higher' else '↓'}"

    @property
    def __wrapped__(self) -> Callable[[Ranked], float]:
        """The function, as Python calls it; the registry knows by it where the metric comes from."""
        return self.compute

    def __call__(self, ranked: Ranked) -> float:
        try:
            return float(self.compute(ranked))
        except (Exception, SystemExit):
            with users_code(f"The metric {self.name} failed"):
                raise


_registry: Registry[Metric] = Registry("macs.metrics", "metric")


def metric(
    name: str, *, title: str, better: Literal["higher", "lower"], convention: str, shown: bool = False
) -> Callable[[Callable[[Ranked], float]], Metric]:
    """Make a metric of a function of ranked confidences."""
    if not name.isidentifier() or hasattr(OODMetrics, name):
        raise MacsError(f"A metric cannot be called {name!r}; it needs a name of letters, digits and _ like 'fpr99'.")

    def add(compute: Callable[[Ranked], float]) -> Metric:
        return _registry(name)(Metric(name, title, better, convention, shown, compute))

    return add


def available() -> list[Metric]:
    """Every metric, ours first."""
    return list(_registry.entries().values())


def get(name: str) -> Metric:
    """The metric of that name, or the one that module:name points at."""
    found = _registry[name]
    if not isinstance(found, Metric):
        raise MacsError(f"{name} is not a metric; decorate the function with macs.metrics.metric.")
    return found


def shown(names: Sequence[str] | None = None) -> list[Metric]:
    """The metrics that a table has: those of these names, else those that every table has."""
    return [get(name) for name in names] if names else [each for each in available() if each.shown]


class OODMetrics(Mapping[str, float]):
    """Every metric's value, as an attribute and as an item: `found.fpr95`, `found["fpr95"]`."""

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
        raise AttributeError("results do not change")

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __repr__(self) -> str:
        return f"OODMetrics({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def ood_metrics(conf_in: Any, conf_out: Any, fpr_rule: FprRule = "first") -> OODMetrics:
    """All metrics of the confidences of ID and OOD images: arrays, lists, or torch tensors of any type or device.

    Exact with ties. Each side is sorted once; time is O(n log n), memory a few arrays of n numbers.
    """
    ranked = Ranked.of(conf_in, conf_out, fpr_rule)
    return OODMetrics(**{each.name: each(ranked) for each in available()})


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error s / sqrt(n), with s of n - 1 degrees of freedom; one value alone has the error nan."""
    if len(values) == 0:
        raise MacsError("There are no values to take the mean of; run at least one trial.")
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), error
