"""What `macs doctor` finds, compared with what the package's own metadata, torch and the catalogue say."""

import importlib.metadata
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from command import refused, run
from macs import doctor
from macs.core.devices import use_bf16
from macs.doctor import EXTRAS, CachedOutputs, DataOnDisk, Extra, Torch, examine_extra
from repository import ROOT

FOR_DEVELOPERS = ("dev", "docs")  # which a user has no reason to install


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> doctor.Diagnosis:
    return doctor.examine(tmp_path_factory.mktemp("data"))


def test_the_extras_are_those_of_the_package_with_all_they_need() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        names: set[str] = set()
        for need in declared[extra]:
            own = re.match(r"macs-ood\[(.+)\]", need)
            names |= set().union(*map(packages, own[1].split(","))) if own else {re.split(r"[>\[;]", need)[0]}
        return names

    assert set(EXTRAS) == set(declared) - set(FOR_DEVELOPERS)
    assert {name: set(extra.modules) for name, extra in EXTRAS.items()} == {name: packages(name) for name in EXTRAS}


def test_versions_are_those_of_the_installed_packages(found: doctor.Diagnosis) -> None:
    assert isinstance(found.torch, Torch) and found.torch.version == torch.__version__
    for extra in found.extras:
        for package, version in extra.versions.items():
            assert version == importlib.metadata.version(package)


def test_the_precision_is_the_one_that_training_takes(found: doctor.Diagnosis) -> None:
    assert isinstance(found.torch, Torch)
    assert (found.torch.precision == "bf16") == use_bf16("auto", torch.device(found.torch.device))


def test_a_missing_and_a_broken_package_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "does_not_load.py").write_text("raise RuntimeError('no such operator')")
    monkeypatch.syspath_prepend(tmp_path)
    extra = Extra("nothing", {"numpy": "numpy", "no-such-package": "none", "pillow": "does_not_load"})
    state = examine_extra("odd", extra)
    assert list(state.versions) == ["numpy", "pillow"] and state.missing == ["no-such-package"]
    assert state.broken == {"pillow": "RuntimeError: no such operator"}

    monkeypatch.setattr(doctor, "EXTRAS", {"odd": extra})
    run("doctor", "--data", tmp_path)
    text = capsys.readouterr().out
    assert "pillow cannot be imported (RuntimeError: no such operator)" in text
    assert "For nothing: pip install 'macs-ood[odd]'" in text


def test_the_way_to_a_torchvision_that_fits_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unfit.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "EXTRAS", {"timm": Extra("networks", {"numpy": "unfit", "pillow": "unfit"})})
    run("doctor", "--data", tmp_path)
    text = " ".join(capsys.readouterr().out.split())
    assert "numpy and pillow cannot be imported, because the installed torchvision does not fit torch" in text
    assert f"pip uninstall -y torchvision && pip install torch=={torch.__version__.partition('+')[0]}" in text


def test_a_data_root_that_is_none_is_a_mistake_only_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert "not a folder" in refused(capsys, "doctor", "--data", tmp_path / "file")
    monkeypatch.setenv("MACS_DATA", str(tmp_path / "file"))
    sentence = doctor.examine_data(None)
    assert isinstance(sentence, str) and "not a folder" in sentence


def test_only_what_is_on_disk_is_listed_as_such(tmp_path: Path, found: doctor.Diagnosis) -> None:
    assert isinstance(found.data, DataOnDisk) and "svhn" in found.data.missing and "svhn" not in found.data.found
    (tmp_path / "test_32x32.mat").touch()
    after = doctor.examine_data(tmp_path)
    assert isinstance(after, DataOnDisk) and after.found["svhn"] == ["test"] and after.root == str(tmp_path)


def test_the_cache_and_its_size_are_named(
    found: doctor.Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MACS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "one").write_bytes(bytes(3_000_000))
    cache = doctor.examine_cache()
    assert cache == CachedOutputs(str(tmp_path / "cache"), 3_000_000, 2_000_000_000)
    monkeypatch.setattr(doctor, "examine", lambda data: replace(found, cache=cache))
    run("doctor")
    assert f"Cached outputs of networks in {tmp_path / 'cache'}: 3 of at most 2,000 MB" in capsys.readouterr().out


def test_json_has_the_same(
    found: doctor.Diagnosis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda data: found)
    run("doctor", "--json")
    value = json.loads(capsys.readouterr().out)
    assert isinstance(found.torch, Torch) and value["torch"]["device"] == found.torch.device
    assert {extra["name"] for extra in value["extras"]} == set(EXTRAS)
    assert all("macs-ood[" in extra["install"] for extra in value["extras"])
