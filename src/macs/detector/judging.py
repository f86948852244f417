"""The base class of detectors: from predictions to verdicts, by thresholds or by p-values, with either runtime."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.detector.calibration import Calibration, images_to_resolve
from macs.detector.verdicts import Verdict, Verdicts, control_false_discoveries, highest_discovery
from macs.predictions import NO_CLASS, Predictions


class BaseDetector:
    """Classes and a calibration: all that it takes to make verdicts of predictions."""

    classes: tuple[str, ...]  # none if no class is predicted
    calibration: Calibration | None

    @property
    def calibrated(self) -> Calibration:
        """The calibration, or an error if there is none yet."""
        if self.calibration is None:
            raise MacsError("This detector has no threshold yet; call .calibrate(...) first.")
        return self.calibration

    def thresholds(self, override: float | None = None) -> NDArray[np.float32]:
        """The threshold as a single number, or one number per class; `override` replaces all of them."""
        values = self.calibrated.values
        if override is None:
            return values
        if not isinstance(override, Real) or not abs(override) <= float(np.finfo(np.float32).max):
            raise MacsError(f"The threshold must be a number, not {override}.")
        return np.full_like(values, override)

    def predict_files(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        threshold: float | None = None,
        fdr: float | None = None,
        on_row: Callable[[Verdict], Any] = lambda row: None,
    ) -> Iterator[Verdict]:
        """Judge what is in files; memory does not grow with their number. A file that cannot be read gives its reason.

        Files are those of images, folders, globs and .npy files of pixels; for a detector of rows, .npz, .npy, .parquet
        and .csv files of features or logits. Verdicts come as they are computed. With `fdr` they come at the end, since
        it judges all together; `on_row` is called with each as it is computed.
        """
        if not isinstance(paths, str | Path | Iterable):
            raise MacsError(f"predict_files takes a path or a list of paths, not a {type(paths).__name__}.")
        check_promise(self.calibrated, threshold, fdr)
        rows = told(self._judge_files(paths, self.thresholds(threshold)), on_row)
        return rows if fdr is None else control_false_discoveries(rows, fdr)

    def _judge_files(
        self, paths: str | Path | Iterable[str | Path], thresholds: NDArray[np.float32]
    ) -> Iterator[Verdict]:
        """Yield one verdict per image or row, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not define `_judge_files`")

    def judge(
        self, predictions: Predictions, thresholds: NDArray[np.float32], reasons: Mapping[int, str] | None = None
    ) -> Verdicts:
        """confidence >= tau is ID (MaCS paper, Eq. 2); in this form, a confidence that is NaN is OOD.

        `reasons` says why a row could not be judged, by its position.
        """
        index, confidence = predictions.index, predictions.confidence
        tau = thresholds[index] if thresholds.ndim else np.full(len(index), thresholds, np.float32)
        if thresholds.ndim:
            tau = np.where(index == NO_CLASS, np.float32(np.nan), tau)
        is_ood = ~(confidence >= tau)
        return Verdicts(
            index,
            confidence,
            predictions.p_value,
            is_ood=is_ood,
            classes=self.classes,
            threshold=tau,
            reasons=reasons or {},
        )

    def decided(self, verdicts: Verdicts, fdr: float | None) -> Verdicts:
        """The same verdicts, or those that p-values give at a false discovery rate."""
        if fdr is None:
            return verdicts
        judged = np.ones(len(verdicts), bool)
        judged[[*verdicts.reasons]] = False
        highest = highest_discovery(verdicts.p_value[judged], fdr)
        is_ood = (verdicts.p_value <= highest) | ~judged
        return replace(verdicts, is_ood=is_ood, threshold=np.full_like(verdicts.threshold, np.nan))


def told(rows: Iterable[Verdict], on_row: Callable[[Verdict], Any]) -> Iterator[Verdict]:
    """Yield verdicts, and call a function with each before."""
    for row in rows:
        on_row(row)
        yield row


def check_promise(record: Calibration, threshold: float | None, fdr: float | None) -> None:
    """Refuse a false discovery rate that this calibration cannot promise, or one together with a threshold."""
    if fdr is None:
        return
    Span(0, 1, open="both").hold("The false discovery rate", fdr)
    if threshold is not None:
        raise MacsError("A threshold and a false discovery rate are two ways to decide; give one of them.")
    if (fewest := min(record.ranked)) < (needed := images_to_resolve(Fraction(str(fdr)))):
        where = " predicted as each class" if record.per_class else ""
        raise MacsError(
            f"A false discovery rate of {fdr} takes at least {needed} calibration {record.unit}{where}, but there are "
            f"{fewest}, so that no p-value is below {1 / (fewest + 1):.2g}; calibrate on more, or allow more."
        )
