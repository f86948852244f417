"""Datasets in miniature, fetched from a server on this machine into a data root, whole or not at all."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from archives import contents, special, tar, zipped
from faulty_server import Site, serving
from macs import data
from macs.__main__ import main
from macs.core.errors import MacsError
from macs.data import transfer
from macs.data.catalog import catalog
from macs.data.download import Got, check, get
from official import images, write_svhn
from published import IMAGES, expect, publish
from repository import ROOT

DOCUMENT = ROOT / "docs" / "data.md"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    with serving(Site()) as site:
        yield site


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


class Offer(Protocol):
    def __call__(self, name: str, *, home: bool = True) -> dict[str, bytes]: ...


@pytest.fixture
def offer(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Put a dataset on the server, and tell the catalogue of it; returns its files."""

    def put(name: str, *, home: bool = True) -> dict[str, bytes]:
        folder = tmp_path / f"made-{name}"
        folder.mkdir()
        files = publish(name, folder)
        site.files |= {f"/{file}": content for file, content in files.items()}
        expect(monkeypatch, name, files, site.url if home else "")
        return files

    return put


def found(got: Got) -> dict[str, int]:
    assert all(each.status == "complete" for each in got.splits)
    return {each.split: each.images for each in got.splits}


def refused(name: str, root: Path, *words: str, **options: Any) -> str:
    with pytest.raises(MacsError) as caught:
        get(name, root, **options)
    sentence = str(caught.value)
    assert all(word in sentence for word in words), sentence
    assert sentence.endswith(".") and ". " not in sentence and "\n" not in sentence
    return sentence


PLACES = [(name, place) for name in IMAGES for place in ("home", "http", "file")]
PLACES.remove(("imagenet32", "home"))  # which gives it only to people who register


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_every_dataset_is_fetched_verified_unpacked_and_read(
    name: str, place: str, offer: Offer, site: Site, root: Path, tmp_path: Path
) -> None:
    files = offer(name, home=place == "home")
    if place == "file":
        site.files.clear()
        mirror = tmp_path / "my mirror"
        mirror.mkdir()
        for file, content in files.items():
            (mirror / file).write_bytes(content)
    url = {"http": site.url, "file": (tmp_path / "my mirror").as_uri()}.get(place)

    got = get(name, root, url)
    assert sorted(got.fetched) == sorted(files) and found(got) == IMAGES[name] and got.kept == ()
    for split, count in IMAGES[name].items():
        assert len(data.load(name, split, root=root)) == count
    assert {each.status for each in check([name], root)} == {"complete"}
    assert not [path for path in contents(root) if path.startswith(".")]  # nothing of the download is left
    if place == "file":
        assert contents(tmp_path / "my mirror") == files  # a mirror is only read

    requests = len(site.asked)
    again = get(name, root, url)
    assert again.fetched == () and again.splits == got.splits and len(site.asked) == requests


def test_the_archive_of_imagenet32_may_hold_a_folder(offer: Offer, site: Site, root: Path) -> None:
    files = offer("imagenet32", home=False)
    for file, content in files.items():
        inner = site.files[f"/{file}"] = zipped_again(content, folder=file.removesuffix(".zip"))
        assert inner != content
    assert found(get("imagenet32", root, site.url)) == IMAGES["imagenet32"]


def zipped_again(archive: bytes, folder: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return zipped({f"{folder}/{name}": opened.read(name) for name in opened.namelist()})


def test_only_the_split_that_is_missing_is_fetched(offer: Offer, site: Site, root: Path) -> None:
    files = offer("svhn")
    (root / "SVHN").mkdir(parents=True)
    (root / "SVHN" / "test_32x32.mat").write_bytes(files["test_32x32.mat"])
    got = get("svhn", root)
    assert got.fetched == ("train_32x32.mat",) and found(got) == IMAGES["svhn"] and len(site.asked) == 1


def test_a_folder_that_lacks_files_is_filled_and_the_others_stay_untouched(
    offer: Offer, site: Site, root: Path
) -> None:
    offer("cifar10")
    get("cifar10", root)
    batches = root / "cifar-10-batches-py"
    (batches / "data_batch_3").unlink()
    (batches / "notes.txt").write_text("mine")
    before = {path: path.stat() for path in batches.iterdir()}
    assert found(get("cifar10", root)) == IMAGES["cifar10"]
    assert all(path.stat() == stat for path, stat in before.items()) and (batches / "data_batch_3").exists()


def test_a_partial_folder_of_images_is_filled(offer: Offer, root: Path) -> None:
    offer("textures")
    get("textures", root)
    (root / "dtd" / "images" / "woven" / "woven_1.jpg").unlink()
    assert check(["textures"], root)[0].status == "partial"
    assert found(get("textures", root)) == {"test": 2}


def test_a_smaller_file_of_the_same_name_is_never_replaced(offer: Offer, site: Site, root: Path) -> None:
    offer("svhn")
    mine = root / "svhn" / "test_32x32.mat"
    write_svhn(mine, images(1), [3])
    before = mine.read_bytes()
    got = get("svhn", root)
    assert got.fetched == ("train_32x32.mat",) and mine.read_bytes() == before
    assert len(got.kept) == 1 and "holds 1 of the 3 test images of svhn; move it away" in got.kept[0]
    requests = len(site.asked)
    refused("svhn", root, str(mine), "move it away to get the whole file")
    assert len(site.asked) == requests and mine.read_bytes() == before


def test_a_broken_file_is_named_and_never_replaced(offer: Offer, site: Site, root: Path) -> None:
    offer("cifar10")
    get("cifar10", root)
    batch = root / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(b"broken")
    refused("cifar10", root, str(batch), "move this one away first")
    assert batch.read_bytes() == b"broken" and len(site.asked) == 1
    batch.unlink()
    assert found(get("cifar10", root)) == IMAGES["cifar10"]


@pytest.mark.parametrize("name", ["cifar10", "svhn", "300k"])
def test_wrong_bytes_are_told_and_thrown_away(name: str, offer: Offer, site: Site, root: Path) -> None:
    files = offer(name)
    remote = catalog[name].splits["train"].remote
    good = files[remote.name]
    site.files[f"/{remote.name}"] = good[:-1] + bytes([good[-1] ^ 1])
    refused(name, root, f"{site.url}/{remote.name}", "MD5", remote.md5, "--mirror")
    assert contents(root) == {}
    site.files[f"/{remote.name}"] = good
    assert found(get(name, root)) == IMAGES[name]


def test_a_mirror_with_wrong_bytes_is_told_and_left_alone(offer: Offer, root: Path, tmp_path: Path) -> None:
    offer("cifar10")
    wrong = tmp_path / "mirror" / "cifar-10-python.tar.gz"
    wrong.parent.mkdir()
    wrong.write_bytes(b"wrong")
    refused("cifar10", root, str(wrong), "5 bytes", mirror=wrong.parent.as_uri())
    assert wrong.read_bytes() == b"wrong" and not root.exists()


def test_a_download_that_broke_off_goes_on_in_a_later_run(offer: Offer, site: Site, root: Path) -> None:
    files = offer("cifar10")
    site.faults = ["drop 1000", *[503] * transfer.ATTEMPTS]
    refused("cifar10", root, "503", "1,000 bytes that arrived are kept")
    assert not [path for path in contents(root) if not path.startswith(".")]  # nothing half-written under its name
    assert found(get("cifar10", root)) == IMAGES["cifar10"]
    assert site.asked[-1]["Range"] == "bytes=1000-" and site.sent == len(*files.values())


def test_a_damaged_archive_without_a_checksum_is_fetched_anew(offer: Offer, site: Site, root: Path) -> None:
    files = offer("imagenet32", home=False)
    site.files["/Imagenet32_train.zip"] = files["Imagenet32_train.zip"][:-50]
    refused("imagenet32", root, "Imagenet32_train.zip is damaged", mirror=site.url)
    assert contents(root) == {}
    site.files["/Imagenet32_train.zip"] = files["Imagenet32_train.zip"]
    assert found(get("imagenet32", root, site.url)) == IMAGES["imagenet32"]


EVIL = {"above": tar({"../evil": b"x"}), "link": tar({}, "gz", special("evil", b"2", "/etc"))}


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL)
def test_an_evil_archive_writes_nothing(
    evil: bytes, offer: Offer, site: Site, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("cifar10")
    expect(monkeypatch, "cifar10", {"cifar-10-python.tar.gz": evil}, site.url)  # as if its checksum were right
    site.files["/cifar-10-python.tar.gz"] = evil
    refused("cifar10", root, "evil", "is not unpacked")
    assert contents(root) == {} and not (root.parent / "evil").exists()


def test_a_missing_file_and_a_missing_network_are_told_apart(
    offer: Offer, site: Site, root: Path, tmp_path: Path
) -> None:
    offer("cifar10")
    site.files.clear()
    refused("cifar10", root, f"{site.url}/cifar-10-python.tar.gz answers 404")
    refused("cifar10", root, "http://127.0.0.1:1/cifar-10-python.tar.gz (no connection)", mirror="http://127.0.0.1:1/")
    refused("cifar10", root, f"no file at {tmp_path}/cifar-10-python.tar.gz", mirror=tmp_path.as_uri())
    assert not root.exists()


@pytest.mark.parametrize("mirror", ["http://[", "http://host:x", "http://host:99999", "http://host/\0", "file:///a\nb"])
def test_a_mirror_that_no_request_can_be_sent_to_is_refused(mirror: str, root: Path) -> None:
    refused("cifar10", root, repr(mirror), mirror=mirror)


@pytest.mark.parametrize(
    "mirror", ["", "data", "/data", "ftp://host/data", "http:/host", "https://", "file://host/x", "file:"]
)
def test_a_mirror_is_a_url(mirror: str, root: Path) -> None:
    refused("cifar10", root, repr(mirror), "https://host/data or file:///data", mirror=mirror)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, a disk on which nothing has room")
def test_a_full_disk_is_told(offer: Offer, root: Path) -> None:
    offer("cifar10")
    root.mkdir()
    (root / ".cifar-10-python.tar.gz.part").symlink_to("/dev/full")
    refused("cifar10", root, str(root), "No space left on device", "run the command again")


def test_a_disk_that_fills_while_unpacking_keeps_the_download(
    offer: Offer, site: Site, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = offer("cifar10")

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfileobj", full)
        refused("cifar10", root, "No space left on device", "bytes that have arrived are kept")
    assert set(contents(root)) == {".cifar-10-python.tar.gz.part", ".cifar-10-python.tar.gz.part.tag"}
    assert found(get("cifar10", root)) == IMAGES["cifar10"]
    assert site.sent == len(*files.values())


def test_a_root_that_cannot_be_written_is_told(offer: Offer, tmp_path: Path) -> None:
    offer("svhn")
    (tmp_path / "file").write_text("")
    refused("svhn", tmp_path / "file" / "root", str(tmp_path / "file"), "--data")


def test_where_people_must_register_the_steps_are_told(site: Site, root: Path) -> None:
    with pytest.raises(MacsError) as caught:
        get("imagenet32", root)
    steps = str(caught.value)
    entry = catalog["imagenet32"]
    assert entry.home in steps and str(root / "imagenet32") in steps and "--mirror file://" in steps
    assert all(split.remote.name in steps for split in entry.splits.values())
    assert not root.exists()


def test_what_comes_with_a_package_needs_no_download(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get("digits", root).fetched == ()
    monkeypatch.setattr("macs.data.catalog.find_spec", lambda package: None)
    refused("digits", root, "pip install 'macs-ood[demo]'")


def test_a_dataset_of_ones_own_without_a_link_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = catalog["isun"]
    bare = {"test": replace(entry.splits["test"], remote=None)}
    monkeypatch.setitem(catalog._entries, "isun", replace(entry, splits=bare))
    refused("isun", root, "no link to the test split of isun", entry.home)


def test_what_is_missing_says_how_to_get_it(root: Path) -> None:
    for name in IMAGES:
        with pytest.raises(MacsError, match=rf"get it by `macs data get {name}` or from http"):
            data.load(name, next(iter(IMAGES[name])), root=root)


@pytest.mark.parametrize("name", IMAGES)
def test_every_published_file_has_a_name_a_place_and_plausible_numbers(name: str) -> None:
    for split in catalog[name].splits.values():
        remote = split.remote
        assert re.fullmatch(r"https?://[^/]+/.+", remote.url) and re.fullmatch(r"[\w.-]+", remote.name)
        assert re.fullmatch(r"[0-9a-f]{32}|", remote.md5) and (remote.md5 or catalog[name].by_hand)
        assert remote.size == 0 or remote.size > 10_000_000
        assert remote.archive == (not remote.name.endswith((".mat", ".npy")))


@pytest.mark.parametrize("name", IMAGES)
def test_the_document_agrees_with_the_catalogue(name: str) -> None:
    text = " ".join(DOCUMENT.read_text().split())
    entry = catalog[name]
    assert all(f"{split.images:,}" in text for split in entry.splits.values())
    for remote in {split.remote for split in entry.splits.values()}:
        assert remote.name in text and remote.md5 in text and (not remote.size or f"{remote.size:,}" in text)
    assert entry.home in text and entry.licence in text and entry.citation in text


def run(*arguments: object) -> object:
    sys.argv = ["macs", "data", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0


def test_the_command_fetches_several_and_goes_on_after_a_failure(
    offer: Offer, site: Site, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("svhn", "cifar10", "isun"):
        offer(name)
    del site.files["/cifar-10-python.tar.gz"]
    assert run("get", "svhn", "cifar10", "isun", "--data", root, "--json") == 2
    captured = capsys.readouterr()
    value = json.loads(captured.out)["datasets"]
    assert [each["name"] for each in value] == ["svhn", "isun"]
    assert value[0]["fetched"] == ["train_32x32.mat", "test_32x32.mat"]
    assert [(each["split"], each["images"], each["status"]) for each in value[0]["splits"]] == [
        ("train", 2, "complete"),
        ("test", 3, "complete"),
    ]
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("error: ") and "404" in line

    assert run("get", "svhn", "--data", root) == 0
    assert capsys.readouterr().out == "svhn is there already; images: train 2, test 3\n"


def test_the_command_takes_a_mirror_and_tells_what_it_kept(
    offer: Offer, site: Site, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer("svhn", home=False)
    write_svhn(root / "svhn" / "test_32x32.mat", images(1), [3])
    assert run("get", "svhn", "--data", root, "--mirror", site.url) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "svhn fetched train_32x32.mat; images: train 2, test 1 of 3" and "move it away" in second


def test_a_misspelt_name_stops_the_command_before_anything_is_fetched(
    offer: Offer, site: Site, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offer("svhn")
    assert run("get", "svhn", "cifar11", "--data", root) == 2
    assert "did you mean 'cifar10'" in capsys.readouterr().err and site.asked == []
    assert run("get") == 2


def test_the_command_prints_the_steps_for_a_registration(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get", "imagenet32", "--data", root) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Imagenet32_val.zip" in captured.err and "Register at https://" in captured.err


def test_ctrl_c_says_that_the_same_command_goes_on(
    offer: Offer, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("svhn")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "write", interrupted)
    assert run("get", "svhn", "--data", root) == 130
    assert "same command" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["get", "imagenet32"], ["get", "--help"], ["check", "cifar10"]])
def test_torch_is_not_imported(arguments: list[str], root: Path) -> None:
    code = f"""
import subprocess
import sys
sys.argv = {["macs", "data", *arguments, "--data", str(root)]!r}
from macs.__main__ import main
try:
    main()
except SystemExit:
    pass
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
