"""The page that compares detectors, against counts made in another way; and the command that writes it."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from command import refused, run
from macs import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.report.comparison import Subject, disagreements, rows, subject_of_detector, write_comparison
from tiny import STRIPES, noise, save, stripes


@pytest.fixture(scope="module")
def detectors(trained: nn.Module, validation: ImageSet) -> dict[str, Detector]:
    return {
        "first": Detector(trained, "msp").calibrate(validation, keep=0.9),
        "second": Detector(trained, "energy").calibrate(validation, keep=0.7),
    }


@pytest.fixture(scope="module")
def subjects(detectors: dict[str, Detector], known_test: ImageSet) -> list[Subject]:
    sets = {"noise": noise(40, 6)}
    return [
        subject_of_detector(name, "wrn-10-1", detector, known_test, sets, progress=False)
        for name, detector in detectors.items()
    ]


def test_disagreements_are_the_images_that_one_verdict_gets_right_and_the_other_wrong(
    subjects: list[Subject], detectors: dict[str, Detector], known_test: ImageSet
) -> None:
    for index, images in enumerate((known_test, noise(40, 6))):
        first, second = (detector.predict(images).is_ood == (index == 1) for detector in detectors.values())
        found = disagreements(subjects[0], subjects[1], index)
        assert found.counts == (int((first & ~second).sum()), int((second & ~first).sum()))
        assert len(found.first) == min(8, found.counts[0]) and len(found.second) == min(8, found.counts[1])
        shown = {int(it.picture.name) for it in found.first if it.picture.name.isdecimal()}
        assert shown <= set(np.flatnonzero(first & ~second).tolist())
    assert sum(sum(disagreements(subjects[0], subjects[1], index).counts) for index in (0, 1)) > 0


def test_the_table_has_the_numbers_of_both_evaluations(subjects: list[Subject]) -> None:
    found = {row.name: row for row in rows(subjects)}
    areas = [subject.evaluation.sets[0].full.auroc for subject in subjects]
    assert found["AUROC"].values == areas and found["AUROC"].best == [area == max(areas) for area in areas]
    assert found["stripes kept by the threshold"].values[1] == pytest.approx(float(subjects[1].kept[0].mean()))


def test_the_page_is_complete_and_escapes_names(subjects: list[Subject], tmp_path: Path) -> None:
    hostile = Subject("<script>x", *(getattr(subjects[1], name) for name in list(Subject.__annotations__)[1:]))
    write_comparison(tmp_path / "page.html", [subjects[0], hostile])
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "&lt;script&gt;x" in page
    assert page.count("<img") == sum(
        len(found.first) + len(found.second)
        for found in (disagreements(subjects[0], subjects[1], index) for index in (0, 1))
    )
    assert "http://" not in page and "https://" not in page


def test_what_cannot_be_compared_is_refused(subjects: list[Subject], detectors: dict[str, Detector]) -> None:
    fewer = subject_of_detector("third", "wrn-10-1", detectors["first"], stripes(50, 2), {"noise": noise(40, 6)}, False)
    with pytest.raises(MacsError, match="measured on different images of stripes"):
        write_comparison("page.html", [subjects[0], fewer])
    with pytest.raises(MacsError, match="at least two"):
        write_comparison("page.html", subjects[:1])


def test_the_command_compares_detector_files(
    detectors: dict[str, Detector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, detector in detectors.items():
        detector.save(f"{name}.safetensors")
    pictures = sorted(path.relative_to(tmp_path) for path in save(stripes(30, 3), tmp_path / "known").rglob("*.png"))
    Path("known.txt").write_text("\n".join(f"{path} {STRIPES.index(path.parts[1])}" for path in pictures))
    Path("classes.txt").write_text("\n".join(STRIPES))
    save(noise(10, 4), tmp_path / "unknown")
    sets = ("--id", "known.txt", "--ood", "unknown")
    run("report", "first.safetensors", "second.safetensors", *sets)
    assert "comparison.html" in capsys.readouterr().out and Path("comparison.html").is_file()
    run("report", "first.safetensors", *sets)
    assert Path("report.html").is_file()
    capsys.readouterr()
    assert "named twice" in refused(capsys, "report", "first.safetensors", "first.safetensors", *sets)
    assert "leave --card out" in refused(
        capsys, "report", "first.safetensors", "second.safetensors", *sets, "--card", "card.md"
    )
