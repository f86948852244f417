"""What a notebook shows of a detector, its verdicts and its evaluation."""

from xml.etree import ElementTree

import numpy as np
from torch import nn

from macs.data import ImageSet
from macs.detector import Detector, FeatureDetector
from tiny import noise, stripes


def cells(page: str) -> list[list[str | None]]:
    tree = ElementTree.fromstring(f"<div>{page}</div>")
    return [[cell.text for cell in row] for body in tree.iter("tbody") for row in body]


def test_a_detector_shows_its_promise(detector: Detector, trained: nn.Module) -> None:
    facts = {row[0]: row[1] for row in cells(detector._repr_html_())}
    assert facts["threshold"] == f"{detector.calibrated.thresholds[0].value:.6g}"
    assert "at least 0.9" in str(facts["promise"]) and facts["calibrated on"] == "100 images of stripes"
    assert "calibrate" in str([row[1] for row in cells(Detector(trained)._repr_html_()) if row[0] == "threshold"])


def test_a_detector_of_rows_shows_its_promise() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    detector = FeatureDetector("knn").fit(rows[:100])
    assert ["threshold", "none yet: call .calibrate(rows)"] in cells(detector._repr_html_())
    facts = {row[0]: row[1] for row in cells(detector.calibrate(rows[100:], keep=0.9)._repr_html_())}
    assert facts["threshold"] == f"{detector.calibrated.thresholds[0].value:.6g}"
    assert "a new known row" in str(facts["promise"]) and str(facts["calibrated on"]).startswith("100 rows")


def test_verdicts_show_the_first_rows_and_count_all(detector: Detector) -> None:
    verdicts = detector.predict(noise(25, 4))
    page = verdicts._repr_html_()
    rows = cells(page)
    assert [row[-1] for row in rows] == ["unknown" if ood else "known" for ood in verdicts.is_ood[:10]]
    assert [row[1] for row in rows] == verdicts.class_[:10]
    assert f"25 images: {(~verdicts.is_ood).sum()} known, {verdicts.is_ood.sum()} unknown" in page


def test_an_evaluation_shows_every_set_and_the_mean(detector: Detector, known_test: ImageSet) -> None:
    result = detector.evaluate(known_test, {"noise": noise(30, 5), "<more>": noise(20, 6)}, trials=2, progress=False)
    rows = cells(result._repr_html_())
    assert [row[0] for row in rows] == ["noise", "<more>", "mean"]
    assert f"{100 * result.sets[0].full.auroc:.2f}" in rows[0] and f"{100 * result.mean('auroc'):.2f}" in rows[2]


def test_a_single_verdict_is_shown(detector: Detector) -> None:
    assert len(cells(detector.predict(stripes(1, 3))._repr_html_())) == 1
