"""Folders of images that are not what a classifier needs."""

import pytest

from harness import Case, Outcome, case, check
from options import TRAINING, WRITTEN

pytestmark = pytest.mark.hostile


def folder(**pictures: str) -> dict[str, str]:
    """A data folder: the pictures by their places in it, each a prepared file."""
    return {f"hurt/{place.replace('__', '/')}.png": content for place, content in pictures.items()}


TRAIN = [*f"pretrain {TRAINING}".replace("mine", "hurt").split(), "--run", "new"]
TWO = {"train__a__1": "good.png", "train__b__1": "good.png", "test__a__1": "good.png", "test__b__1": "good.png"}
CASES = [
    case(*TRAIN, files=files, changed=WRITTEN, name=f"trained on {name}")
    for name, files in {
        "nothing": {"hurt/readme.txt": b"x"},
        "one picture": folder(a="good.png"),
        "one class": folder(train__a__1="good.png", train__a__2="good.png"),
        "a stray picture beside the classes": folder(**TWO, train__stray="good.png"),
        "a test part alone": folder(test__a__1="good.png", test__b__1="good.png"),
        "hidden pictures alone": {"hurt/train/a/.1.png": "good.png", "hurt/train/.b/1.png": "good.png"},
        "empty pictures": {"hurt/a/1.png": b"", "hurt/b/1.png": b""},
        "a text called .png": {"hurt/a/1.png": "good.png", "hurt/b/1.png": b"text"},
        "an empty train folder": {"hurt/train/readme.txt": b"", "hurt/test/a/1.png": "good.png"},
        "arrays in class folders": {"hurt/a/1.npy": "outliers.npy", "hurt/b/1.npy": "outliers.npy"},
    }.items()
]
CASES += [
    case("calibrate", "run", "--keep", "0.5", "--out", "new.safetensors", "--images", "hurt", files=files,
         codes=(0, 2), warned=True, changed=WRITTEN, name=name)
    for name, files in {
        "classes renamed in val": {f"hurt/val/{name}/{i}.png": "good.png" for name in "abc" for i in range(9)},
        "classes missing in val": {f"hurt/val/{name}/{i}.png": "good.png" for name in ("plain",) for i in range(9)},
        "classes too many in val": {f"hurt/val/{name}/{i}.png": "good.png" for name in "abcd" for i in range(9)},
    }.items()
]  # fmt: skip
CASES += [
    case(*f"finetune {TRAINING} --outliers {outliers} --batch-out 16 --run new".split(), name=f"outliers {outliers}")
    for outliers in ("into-itself/nothing", "file.txt", "good.png", "fifo.npy", "locked.npy")
]
CASES += [
    case("evaluate", "run", "--ood", ood, name=f"--ood {ood}")
    for ood in ("file.txt", "good.png", "run", "nowhere", "cifar10", "cifar11", "own:Own")
]
# Known images taken for unknown ones: a result that a careful colleague would not let pass without a word.
CASES += [
    case(*f"finetune {TRAINING} --outliers {same} --batch-out 16 --run new".split(), codes=(0, 2), warned=True,
         changed=WRITTEN, name=f"outliers that are the ID set: {same}")
    for same in ("mine", "./mine", "mine/train")
]  # fmt: skip
CASES += [
    case("evaluate", "run", "--ood", same, codes=(0, 2), warned=True, name=f"OOD that is the ID set: {same}")
    for same in ("mine", "./mine", "mine/test")
]
CASES += [
    case("evaluate", "run", "--id", id, "--ood", "unknown", name=f"--id {id}")
    for id in ("unknown", "outliers.npy", "mine/nothing", "into-itself", "digits", "names")
]
CASES += [
    case("evaluate", "run", "--ood", "into-itself", codes=0, name="a folder with a link to itself"),
    case("predict", "into-itself", "--detector", "detector.safetensors", codes=0, name="predict: a link to itself"),
    case("predict", "names", "--detector", "detector.safetensors", codes=0, name="predict: odd names"),
    case("predict", "mine", "locked", "bad", "--detector", "detector.safetensors", codes=1, name="good and bad"),
    case("predict", "--detector", "detector.safetensors", "--out", "new.csv", "--", "-x.png", codes=1,
         changed="new.csv", name="predict: a name like an option"),
]  # fmt: skip


def test_images_of_the_wrong_kind_get_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
