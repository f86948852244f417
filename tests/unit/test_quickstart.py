"""The plan of the quickstart: which commands it decides on, and what it says of folders that are too small."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from macs import MacsError
from macs.quickstart import Plan, plan

START: dict[str, Any] = {"net": "wrn-10-1", "checkpoint": "weights.safetensors"}


def folder_of(root: Path, **classes: int) -> Path:
    """A folder with so many (empty) photographs per class: a plan counts them and reads none."""
    for name, number in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(number):
            (root / name / f"{i}.jpg").touch()
    return root


def words(plan: Plan, command: str) -> list[str]:
    (found,) = (list(each.words) for each in plan.commands if each.words[0] == command)
    return found


def test_500_photographs_are_trained_calibrated_checked_and_measured(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", daisy=250, rose=250)
    steps = plan(folder, unknown=["other"], keep=0.9, out="here", **START)
    assert [command.words[0] for command in steps.commands] == ["finetune", "calibrate", "report"]
    train, calibrate, report = (list(command.words) for command in steps.commands)
    assert train[train.index("--method") + 1] == "msp" and "backbone" in train
    assert calibrate[1] == train[train.index("--run") + 1]
    assert calibrate[calibrate.index("--score") + 1] == "gen+knn" and calibrate[calibrate.index("--keep") + 1] == "0.9"
    assert calibrate[calibrate.index("--check") + 1] == "0.2"
    assert report[report.index("--detector") + 1] == calibrate[calibrate.index("--out") + 1]
    assert report[report.index("--ood") + 1] == "other"
    assert "350 photographs to train on, 100 to calibrate on, 50 to test on" in steps.remarks[0]


def test_outliers_are_trained_with_and_many_photographs_let_macs_choose(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", daisy=1300, rose=1300)
    steps = plan(folder, outliers="other", **START)
    train = words(steps, "finetune")
    assert train[train.index("--method") + 1] == "auto" and train[train.index("--outliers") + 1] == "other"
    calibrate = words(steps, "calibrate")
    assert calibrate[calibrate.index("--score") + 1] == "auto"


@pytest.mark.parametrize(("each", "score", "k"), [(100, "gen+knn", None), (40, "gen+knn", "28"), (12, "knn", "8")])
def test_with_few_photographs_per_class_knn_takes_as_many_neighbours_as_a_class_has(
    tmp_path: Path, each: int, score: str, k: str | None
) -> None:
    steps = plan(folder_of(tmp_path / "photos", **{f"c{i}": each for i in range(15)}), keep=0.9, **START)
    calibrate = words(steps, "calibrate")
    assert calibrate[calibrate.index("--score") + 1] == score
    assert (calibrate[calibrate.index("--score.k") + 1] if "--score.k" in calibrate else None) == k


def test_a_divided_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    for split, number in (("train", 60), ("val", 15), ("test", 20)):
        folder_of(tmp_path / split, a=number, b=number)
    steps = plan(tmp_path, unknown=["other"], **START)
    assert "120 photographs to train on, 30 to calibrate on, 40 to test on" in steps.remarks[0]
    calibrate = words(steps, "calibrate")
    assert calibrate[calibrate.index("--score") + 1] == "knn"  # a quarter of 30 is too few to choose on
    assert "--check" not in calibrate


def test_200_classes_get_a_word_of_caution(tmp_path: Path) -> None:
    steps = plan(folder_of(tmp_path / "photos", **{f"c{i}": 3 for i in range(200)}), **START)
    assert "200 classes" in steps.remarks[0]
    assert any("The smallest class has 2 photographs" in remark for remark in steps.remarks)


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ({}, "holds no photographs"),
        ({"daisy": 500}, "holds one class, daisy, but a classifier tells at least two apart"),
        ({"daisy": 3, "rose": 2}, "holds 5 photographs, which is too few: .* until there are 95"),
        ({"daisy": 300, "rose": 0}, "rose holds no photographs"),
    ],
)
def test_a_folder_that_lacks_something_is_one_sentence(tmp_path: Path, classes: dict[str, int], sentence: str) -> None:
    folder = folder_of(tmp_path / "photos", **classes)
    folder.mkdir(exist_ok=True)
    with pytest.raises(MacsError, match=sentence) as error:
        plan(folder, **START)
    assert "\n" not in str(error.value)


def test_photographs_without_class_folders_are_explained(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "1.png")
    with pytest.raises(MacsError, match="holds photographs but no folders; put the photographs of each class"):
        plan(tmp_path, **START)


def test_without_weights_it_says_how_to_get_some(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", daisy=250, rose=250)
    with pytest.raises(MacsError, match="no published weights; name a file with --checkpoint"):
        plan(folder, net="wrn-40-2")


def test_an_interrupted_quickstart_continues_and_a_finished_one_stays(tmp_path: Path) -> None:
    folder, out = folder_of(tmp_path / "photos", daisy=250, rose=250), tmp_path / "out"
    asked: dict[str, Any] = {"unknown": ["other"], "out": out, **START}
    assert "--resume" not in words(plan(folder, **asked), "finetune")
    for name in ("run/recipe.toml", "detector.safetensors"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).touch()
        assert "--resume" in words(plan(folder, **asked), "finetune")
    (out / "report.html").touch()
    with pytest.raises(MacsError, match="results of an earlier quickstart, which are never overwritten"):
        plan(folder, **asked)
