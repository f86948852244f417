"""RowDetector: the part of a feature detector that does not depend on whether PyTorch or ONNX Runtime computes it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import user_path
from macs.data.image_files import printable_name
from macs.detector.base import BaseDetector, check_promise
from macs.detector.row_files import tables_in
from macs.detector.rows import Columns, Rows, by_name
from macs.evaluation.protocol import Protocol
from macs.evaluation.results import Evaluation, measure
from macs.metrics import FprRule
from macs.predictions import NO_CLASS, Predictions, Verdict, Verdicts


class RowDetector(BaseDetector):
    """Verdicts on rows of logits, probabilities or features; a subclass defines `answer`, the computation."""

    columns: Columns | None  # the arrays that it takes, once it is fitted or calibrated

    def answer(self, features: NDArray[np.float32] | None, logits: NDArray[np.float32] | None) -> Predictions:
        """Predictions for a batch of finite rows."""
        raise NotImplementedError(f"{type(self).__name__} does not define `answer`")

    @property
    def accepted(self) -> Columns:
        """The arrays that it takes; an error if it has seen none yet."""
        if self.columns is None:
            raise MacsError("This detector has seen no rows yet; call .fit(...) or .calibrate(...) first.")
        return self.columns

    def predict(
        self,
        features: Any = None,
        *,
        logits: Any = None,
        probabilities: Any = None,
        threshold: float | None = None,
        fdr: float | None = None,
    ) -> Verdicts:
        """Judge rows: predicted class, confidence, p-value and verdict for each.

        Parameters
        ----------
        features, logits, probabilities
            The arrays that the detector was calibrated on, N x D and N x K: numpy arrays, torch tensors or pandas
            frames; or, in place of `features`, a mapping of these names to arrays.
        threshold
            A threshold in place of the calibrated one.
        fdr
            Decide by p-values instead: of the rows called OOD, the expected share that are in truth ID is at most
            `fdr`.

        Returns
        -------
        Verdicts
            One verdict per row, in order. A row with a number that is not finite has a reason in `reasons`, and counts
            as OOD.

        Examples
        --------
        >>> import macs, numpy as np
        >>> logits = np.random.default_rng(0).normal(size=(300, 5))
        >>> detector = macs.FeatureDetector("msp").calibrate(logits=logits)
        >>> detector.predict(logits=[[0, 0, 0, 0, 9], [0, 0, 0, 0, 0]]).is_ood.tolist()
        [False, True]
        """
        tau = self.thresholds(threshold)
        check_promise(self.calibrated, threshold, fdr)
        rows = Rows.of(features, logits=logits, probabilities=probabilities, classes=self.classes, labelled=False)
        return self.decided(self.judge(*self._placed(rows, tau)), fdr)

    def _judge_files(
        self, paths: str | Path | Iterable[str | Path], thresholds: NDArray[np.float32]
    ) -> Iterator[Verdict]:
        for path in [paths] if isinstance(paths, str | Path) else paths:
            first, name = 0, printable_name(user_path(path))
            try:
                for part in tables_in(path, self.accepted):
                    verdicts = self.judge(*self._placed(part, thresholds))
                    yield from verdicts.rows(f"{name}[{first + place}]" for place in range(len(part)))
                    first += len(part)
            except MacsError as error:
                yield Verdict(name, reason=str(error))

    def evaluate(
        self,
        test: Any,
        ood: Mapping[str, Any],
        *,
        trials: int = 10,
        share: float = 0.2,
        seed: int = 0,
        fpr_rule: FprRule = "first",
    ) -> Evaluation:
        """Measure how well the confidences tell ID from OOD test rows, as `macs.evaluate` does for a network.

        Parameters
        ----------
        test
            ID test rows with labels, as a mapping of `features`, `logits` and `labels` to arrays.
        ood
            Sets of unknown rows, by name, likewise, without labels.
        trials, share, seed, fpr_rule
            As in `macs.evaluate`.

        Returns
        -------
        Evaluation
            The accuracy, and the metrics of each OOD set; printed, it is a table.

        Examples
        --------
        >>> import macs, numpy as np
        >>> random = np.random.default_rng(0)
        >>> detector = macs.FeatureDetector("maxlogit").calibrate(logits=random.normal(size=(300, 5)))
        >>> logits = random.normal(size=(300, 5))
        >>> known = {"logits": logits, "labels": logits.argmax(1)}
        >>> detector.evaluate(known, {"shifted": {"logits": logits[:200] - 3}}).sets[0].images
        200
        """
        protocol = Protocol(trials, share, seed, fpr_rule)
        record = self.calibrated
        sets = {
            name: Rows.of(rows, classes=self.classes, name=name).matched(self.accepted).usable("to measure")
            for name, rows in {"the ID test data": test, **by_name(ood, "OOD sets")}.items()
        }
        known, *unknown = (self.asked(rows)[0] for rows in sets.values())
        labels = next(iter(sets.values())).labels
        if labels is None or not self.classes:
            raise MacsError(
                "An evaluation contains the accuracy, for which the ID test data need logits and labels; without them, "
                "compare confidences with macs.metrics.ood_metrics."
            )
        correct = known.index == labels
        confidences = {name: answers.confidence for name, answers in zip(ood, unknown, strict=True)}
        return measure("the ID test data", correct, known.confidence, confidences, record.score, protocol)

    def _placed(self, rows: Rows, tau: NDArray[np.float32]) -> tuple[Predictions, NDArray[np.float32], dict[int, str]]:
        predictions, reasons = self.asked(rows.matched(self.accepted))
        return predictions, tau, reasons

    def asked(self, rows: Rows) -> tuple[Predictions, dict[int, str]]:
        """Return the predictions, NaN for rows that cannot be judged, and the reasons for these by their positions."""
        if not len(rows):
            raise MacsError(f"{rows.name}: there is no row; give one at least.")
        # Kept small arrays, one per batch, would lie between freed large ones and keep these from being used again.
        index = np.full(len(rows), NO_CLASS)
        confidence, p_value = (np.full(len(rows), np.nan, np.float32) for _ in range(2))
        reasons: dict[int, str] = {}
        for part in rows.slices():
            reasons |= part.reasons
            places, features, logits, _ = part.usable()
            if len(places):
                found = self.answer(features, logits)
                index[places], confidence[places], p_value[places] = found.index, found.confidence, found.p_value
        return Predictions(index, confidence, p_value), reasons
