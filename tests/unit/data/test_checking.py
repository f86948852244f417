"""What is on disk, counted by hand: whole, partial, broken or not there."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from archives import tar
from command import refused
from macs.__main__ import main
from macs.data.catalog import catalog
from macs.data.download import SplitCheck, check
from official import images, python2_pickle, write_png
from published import IMAGES, expect, publish


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Lay a dataset in miniature out in a data root as the readers expect it; returns the root."""
    root = tmp_path / "root"
    root.mkdir()

    def put(name: str) -> Path:
        folder = root / name if name in ("places365", "svhn") else root
        folder.mkdir(exist_ok=True)
        files = publish(name, folder)
        expect(monkeypatch, name, files)
        return root

    return put


def states(root: Path, name: str) -> dict[str, tuple[str, int]]:
    return {each.split: (each.status, each.images) for each in check([name], root)}


def only(found: list[SplitCheck]) -> SplitCheck:
    (one,) = found
    return one


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_whole_is_complete(place: Callable[[str], Path], name: str) -> None:
    assert states(place(name), name) == {split: ("complete", count) for split, count in IMAGES[name].items()}


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_not_there_is_missing(tmp_path: Path, name: str) -> None:
    assert states(tmp_path, name) == dict.fromkeys(IMAGES[name], ("missing", 0))


def test_against_the_official_number_a_miniature_is_partial(
    place: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    official = catalog["cifar10"]
    root = place("cifar10")
    monkeypatch.setitem(catalog._entries, "cifar10", official)
    found = check(["cifar10"], root)
    assert [(each.status, each.images, each.official) for each in found] == [
        ("partial", 20, 50_000),
        ("partial", 4, 10_000),
    ]


def test_a_batch_that_is_missing_is_named_and_the_others_are_counted(place: Callable[[str], Path]) -> None:
    root = place("cifar10")
    (root / "cifar-10-batches-py" / "data_batch_2").unlink()
    train, test = check(["cifar10"], root)
    assert (train.status, train.images, train.lacks) == ("partial", 16, ("cifar-10-batches-py/data_batch_2",))
    assert test.status == "complete"


def test_a_file_that_describes_the_images_is_missed_too(place: Callable[[str], Path]) -> None:
    root = place("cifar10")
    (root / "cifar-10-batches-py" / "batches.meta").unlink()
    for found in check(["cifar10"], root):
        assert (found.status, found.lacks) == ("missing", ("cifar-10-batches-py/batches.meta",))
    root = place("tiny-imagenet")
    (root / "tiny-imagenet-200" / "val" / "val_annotations.txt").unlink()
    _, val, _ = check(["tiny-imagenet"], root)
    assert (val.status, val.images, val.lacks) == ("partial", 2, ("tiny-imagenet-200/val/val_annotations.txt",))


def test_every_broken_batch_is_named(place: Callable[[str], Path]) -> None:
    root = place("cifar10")
    folder = root / "cifar-10-batches-py"
    (folder / "data_batch_2").write_bytes((folder / "data_batch_2").read_bytes()[:1000])
    (folder / "data_batch_5").write_bytes(python2_pickle({"labels": [1]}))
    train, test = check(["cifar10"], root)
    assert (train.status, train.images) == ("broken", 12) and test.status == "complete"
    assert [str(folder / f"data_batch_{i}") in why for i, why in zip((2, 5), train.broken, strict=True)] == [True, True]


def test_every_broken_picture_is_named(place: Callable[[str], Path]) -> None:
    root = place("places365")
    folder = root / "places365" / "val_256"
    first, second, third, _ = sorted(folder.iterdir())
    first.write_bytes(first.read_bytes()[:100])
    second.write_bytes(b"")
    third.write_bytes(tar({}))
    found = only(check(["places365"], root))
    assert (found.status, found.images, len(found.broken)) == ("broken", 1, 3)
    assert all(str(file) in why for file, why in zip((first, second, third), found.broken, strict=True))
    assert only(check(["places365"], root, thorough=False)).images == 4  # counted, not read


def test_many_pictures_are_all_read(tmp_path: Path) -> None:
    folder = tmp_path / "iSUN" / "iSUN_patches"
    for i in range(150):
        write_png(folder / f"{i}.png", images(1, i, size=8)[0])
    for i in (0, 31, 32, 149):
        (folder / f"{i}.png").write_bytes(b"broken")
    heard = []
    found = only(check(["isun"], tmp_path, lambda title: lambda done, total: heard.append((title, done, total))))
    assert found.images == 146 and len(found.broken) == 4
    assert heard[-1] == ("isun test", 150, 150) and heard == sorted(heard)


def test_a_table_that_does_not_fit_its_images_is_broken(place: Callable[[str], Path]) -> None:
    root = place("tiny-imagenet")
    (root / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\n")
    assert states(root, "tiny-imagenet") == {"train": ("complete", 3), "val": ("broken", 2), "test": ("complete", 1)}


def test_a_changed_pixel_is_found_by_the_checksum(place: Callable[[str], Path]) -> None:
    root = place("300k")
    file = root / "300K_random_images.npy"
    pixels = np.load(file)
    pixels[3, 5, 7, 1] ^= 1
    np.save(file, pixels)
    found = only(check(["300k"], root))
    assert found.status == "broken" and str(file) in found.broken[0] and "MD5" in found.broken[0]


def test_more_images_than_there_should_be_are_told(place: Callable[[str], Path]) -> None:
    root = place("lsun-c")
    write_png(root / "LSUN" / "mine.png", images(1)[0])
    assert states(root, "lsun-c") == {"test": ("larger", 3)}


def test_a_folder_without_images_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "dtd" / "images" / "banded").mkdir(parents=True)
    (tmp_path / "dtd" / "images" / "banded" / ".hidden.png").write_bytes(b"")
    assert states(tmp_path, "textures") == {"test": ("missing", 0)}


def test_what_comes_with_a_package_is_counted_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(tmp_path, "digits-faces") == {"test": ("complete", 100)}
    monkeypatch.setattr("macs.data.catalog.find_spec", lambda package: None)
    assert states(tmp_path, "digits-faces") == {"test": ("missing", 0)}


def run(*arguments: object) -> object:
    sys.argv = ["macs", "data", "check", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0


def test_the_command_exits_with_1_when_something_is_broken(
    place: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = place("svhn")
    assert run("svhn", "isun", "--data", root, "--json") == 0
    value = json.loads(capsys.readouterr().out)["splits"]
    assert [(each["name"], each["split"], each["status"], each["images"], each["official"]) for each in value] == [
        ("svhn", "train", "complete", 2, 2),
        ("svhn", "test", "complete", 3, 3),
        ("isun", "test", "missing", 0, 8_925),
    ]
    (root / "svhn" / "test_32x32.mat").write_bytes(b"[red]broken")
    assert run("svhn", "--data", root, "--json") == 1
    assert str(root / "svhn" / "test_32x32.mat") in json.loads(capsys.readouterr().out)["splits"][1]["broken"][0]


def test_the_table_names_what_is_wrong_and_not_a_thousand_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(9):
        write_png(tmp_path / "LSUN" / f"[red]{i}.png", images(1)[0])
        (tmp_path / "LSUN" / f"[red]{i}.png").write_bytes(b"broken")
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(b"")
    assert run("lsun-c", "cifar10", "svhn", "--data", tmp_path) == 1
    text = "".join(line.split("│")[-2].strip() if "│" in line else "" for line in capsys.readouterr().out.splitlines())
    assert [f"[red]{i}.png" in text for i in range(9)] == [True] * 5 + [False] * 4 and "... and 4 more" in text
    assert "lacks cifar-10-batches-py/data_batch_1, data_batch_2" in text


def test_an_unknown_name_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cifar11") == 2
    assert "did you mean 'cifar10'" in capsys.readouterr().err
    assert run("os:path") == 2
    assert "os:path is not a dataset" in capsys.readouterr().err


def test_what_may_not_be_read_is_broken_and_the_rest_is_checked(unprivileged: Path) -> None:
    for name in ("dtd/images/banded/1.png", "dtd/images/dotted/1.png"):
        write_png(unprivileged / name, images(1)[0])
    (unprivileged / "dtd" / "images" / "dotted").chmod(0)
    (unprivileged / "cifar-10-batches-py").mkdir(0)
    found = {(each.name, each.split): each for each in check(["textures", "cifar10", "isun"], unprivileged)}
    assert found["textures", "test"].images == 1 and found["isun", "test"].status == "missing"
    for key in (("textures", "test"), ("cifar10", "train"), ("cifar10", "test")):
        assert "Permission denied" in found[key].broken[0]


def test_a_link_that_leads_back_up_is_not_counted(tmp_path: Path) -> None:
    write_png(tmp_path / "dtd" / "images" / "banded" / "1.png", images(1)[0])
    (tmp_path / "dtd" / "images" / "banded" / "up").symlink_to(tmp_path / "dtd" / "images")
    assert only(check(["textures"], tmp_path)).images == 1


@pytest.mark.parametrize("command", [["list"], ["check"], ["get", "cifar10", "svhn"]])
@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("~nobody-of-that-name/x", "home folder"),
        ("x" * 5000, "too long"),
        ("{}/file", "is a file, not a folder"),
        ("{}/fifo", "is a FIFO, not a folder"),
        ("{}/loop", "symbolic links"),
    ],
)
def test_a_data_root_that_is_none_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    root: str,
    why: str,
) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    assert why in refused(capsys, "data", *command, "--data", root.format(tmp_path))
    monkeypatch.setenv("MACS_DATA", root.format(tmp_path))
    assert why in refused(capsys, "data", *command)


@pytest.mark.parametrize("command", ["get", "check"])
@pytest.mark.parametrize("name", ["", "\0", "..:x", ":x", "x" * 5000])
def test_a_name_of_no_dataset_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    refused(capsys, "data", command, name, "--data", tmp_path)


def test_a_data_root_that_may_not_be_read_is_one_sentence(
    unprivileged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unprivileged.chmod(0)
    for command in (["list"], ["check"], ["get", "cifar10"]):
        assert "Permission denied" in refused(capsys, "data", *command, "--data", unprivileged)
