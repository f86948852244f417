"""Pushing a detector to a hub on this machine and loading it from there, with right and with wrong answers."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import constants
from torch import nn

from command import refused, run
from hub_server import Answer, Hub, hub_server
from macs import MacsError, Runtime
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.hub import local_file
from macs.detector.publishing import write_folder
from tiny import STRIPES, noise, save, stripes

FILES = {"detector.safetensors", "detector.onnx", "config.json", "README.md"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, which huggingface_hub takes for the real one, and an empty cache."""
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(time, "sleep", lambda _: None)  # between attempts
        yield server


@pytest.fixture(scope="module")
def published(detector: Detector, exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a published detector, for all tests that only read it."""
    folder = tmp_path_factory.mktemp("published")
    detector.save(folder / "d.safetensors")
    write_folder([folder / "d.safetensors", exported], folder / "stripes", "org/stripes")
    return folder / "stripes"


@pytest.fixture
def pushed(hub: Hub, published: Path) -> str:
    """The address of that detector on the hub."""
    hub.commit("org/stripes", {path.name: path.read_bytes() for path in published.iterdir()})
    return "hf://org/stripes"


def cached(folder: Path) -> list[str]:
    """The files in the cache, without locks, references and the hub's own notes."""
    files = (path for path in (folder / "cache").rglob("*") if path.is_file())
    return sorted(path.name for path in files if "snapshots" in path.parts or "blobs" in path.parts)


def test_a_pushed_detector_gives_the_same_verdicts_with_torch_and_with_onnx(
    hub: Hub, detector: Detector, known_test: ImageSet
) -> None:
    detector.push_to_hub("org/stripes", onnx=True)
    commit = hub.heads["org/stripes"]["main"]
    assert set(hub.commits["org/stripes"][commit]) - {".gitattributes"} == FILES
    expected = detector.predict(known_test)
    loaded, exported = Detector.from_pretrained("org/stripes"), Runtime("hf://org/stripes")
    for verdicts in (loaded.predict(known_test), exported.predict(known_test)):
        np.testing.assert_array_equal(verdicts.is_ood, expected.is_ood)
        np.testing.assert_array_equal(verdicts.index, expected.index)
        np.testing.assert_allclose(verdicts.confidence, expected.confidence, atol=1e-5)


def test_the_card_says_what_was_measured_and_whose_licence_it_is(
    hub: Hub, detector: Detector, known_test: ImageSet
) -> None:
    evaluation = detector.evaluate(known_test, {"a/b/noise": noise(50, 7)}, progress=False)
    done = detector.push_to_hub("org/stripes", evaluation=evaluation, license="apache-2.0")
    card = hub.commits["org/stripes"][done.commit]["README.md"].decode()
    _, front, text = card.split("---\n", 2)
    values = yaml.safe_load(front)
    assert values["license"] == "apache-2.0" and values["pipeline_tag"] == "image-classification"
    (result,) = values["model-index"][0]["results"]
    measured = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert measured["auroc"] == pytest.approx(evaluation.sets[0].full.auroc)
    assert result["dataset"]["name"] == "stripes against noise"
    assert f"{100 * evaluation.sets[0].full.auroc:.2f}" in text and "a/b" not in text
    assert "at least 0.9" in text and "100 known images" in text


@pytest.mark.parametrize(
    ("license", "fields"),
    [
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("dinov3-license", {"license": "other", "license_name": "dinov3-license"}),
        ("All rights: ours", {"license": "other", "license_name": "all-rights-ours"}),
    ],
)
def test_a_licence_is_named_as_the_hub_takes_it(
    hub: Hub, detector: Detector, license: str, fields: dict[str, str]
) -> None:
    done = detector.push_to_hub("org/stripes", license=license)
    card = hub.commits["org/stripes"][done.commit]["README.md"].decode()
    front = yaml.safe_load(card.split("---\n")[1])
    assert {name: value for name, value in front.items() if name.startswith("license")} == fields
    assert f"| licence of the weights | {license} |" in card


def test_a_readme_is_never_overwritten(hub: Hub, detector: Detector) -> None:
    hub.commit("org/stripes", {"README.md": b"mine"})
    done = detector.push_to_hub("org/stripes")
    assert done.card_kept and "README.md" not in done.files
    assert hub.commits["org/stripes"][done.commit]["README.md"] == b"mine"


def test_a_commit_pins_a_version(hub: Hub, detector: Detector, trained: nn.Module, validation: ImageSet) -> None:
    first = detector.push_to_hub("org/stripes")
    second = Detector(trained, "energy").calibrate(validation, keep=0.8).push_to_hub("org/stripes")
    assert Detector.load("hf://org/stripes").calibrated.keep == 0.8
    assert Detector.load(first.address).calibrated.keep == 0.9
    assert Detector.from_pretrained("org/stripes", revision=first.commit).calibrated.keep == 0.9
    assert second.commit != first.commit


def test_a_branch_has_its_own_version(hub: Hub, detector: Detector) -> None:
    detector.push_to_hub("org/stripes", revision="next")
    assert Detector.load("hf://org/stripes@next").calibrated.keep == 0.9
    with pytest.raises(MacsError, match="holds no detector: it has no config.json"):
        Detector.load("hf://org/stripes")


def test_a_pinned_version_is_loaded_without_asking(hub: Hub, pushed: str) -> None:
    address = f"{pushed}@{hub.heads['org/stripes']['main']}"
    first = local_file(address)
    hub.asked.clear()
    assert local_file(address) == first
    assert hub.asked == []


def test_offline_only_the_cache_is_used(hub: Hub, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MacsError, match="not in the cache"):
        Detector.load(pushed)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    Detector.load(pushed)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.asked.clear()
    assert Detector.load(pushed).calibrated.keep == 0.9
    assert hub.asked == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_is_down_or_busy_leaves_the_cache(
    hub: Hub, pushed: str, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    Detector.load(pushed)
    hub.fault = answering(status)
    assert Detector.load(pushed).calibrated.keep == 0.9
    assert "taken from the cache" in capsys.readouterr().err.replace("\n", " ")


def drop_half(name: str, content: bytes) -> Answer | None:
    return Answer(body=content[: len(content) // 2], announced=len(content)) if name != "config.json" else None


def other_bytes(name: str, content: bytes) -> Answer | None:
    return Answer(body=bytes(len(content)), announced=len(content)) if name != "config.json" else None


def endless(name: str, content: bytes) -> Answer | None:
    return Answer(body=content + bytes(50_000_000)) if name != "config.json" else None


def announced_too_large(name: str, content: bytes) -> Answer | None:
    return Answer(of_head=10**12) if name != "config.json" else None


def huge_config(name: str, content: bytes) -> Answer | None:
    return Answer(of_head=10**9) if name == "config.json" else None


def wrong_config(name: str, content: bytes) -> Answer | None:
    return Answer(body=b"[" * len(content), announced=len(content)) if name == "config.json" else None


def answering(status: int) -> Callable[[str, bytes], Answer]:
    return lambda name, content: Answer(status)


def redirecting(to: str) -> Callable[[str, bytes], Answer | None]:
    """To itself, to nothing, or to a file of this machine, which must not be read."""
    return lambda name, content: None if name == "config.json" else Answer(302, location=to)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (drop_half, "Cannot get hf://org/stripes"),
        (other_bytes, "the SHA-256 differs"),
        (endless, "more than the .* bytes that it announced"),
        (announced_too_large, "has 1,000,000,000,000 bytes on the hub"),
        (huge_config, "may have at most 1,048,576"),
        (wrong_config, "holds no detector"),
        (answering(301), "names no commit and hash"),
        (answering(400), "answers 400"),
        (answering(401), "does not let you"),
        (answering(403), "does not let you"),
        (answering(404), "answers 404"),
        (answering(429), "answers 429"),
        (answering(500), "answers 500"),
        (redirecting(""), "redirects"),
        (redirecting("/nowhere"), "no repository"),
        (redirecting("file:///etc/passwd"), "names no commit and hash"),
    ],
)
@pytest.mark.parametrize("suffix", ["", "/detector.onnx"])
def test_a_wrong_answer_is_one_sentence_and_leaves_no_wrong_file(
    hub: Hub,
    pushed: str,
    detector: Detector,
    tmp_path: Path,
    fault: Callable[[str, bytes], Answer | None],
    words: str,
    suffix: str,
) -> None:
    hub.fault = fault
    with pytest.raises(MacsError, match=words) as error:
        local_file(pushed + suffix)
    assert "\n" not in str(error.value)
    assert set(cached(tmp_path)) <= {"config.json", *(name for name in cached(tmp_path) if len(name) == 40)}
    hub.fault = lambda name, content: None
    assert local_file(pushed + suffix).is_file()  # and the next attempt works


@pytest.mark.parametrize("name", ["../../../../../outside", "/outside", "..", ""])
@pytest.mark.parametrize("header", ["ETag", "X-Repo-Commit"])
def test_no_answer_leads_out_of_the_cache(
    hub: Hub, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, name: str
) -> None:
    send, wrong = BaseHTTPRequestHandler.send_header, f'"{name}"' if header == "ETag" else name
    monkeypatch.setattr(
        BaseHTTPRequestHandler,
        "send_header",
        lambda self, key, value: send(self, key, wrong if key == header else value),
    )
    before = sorted(tmp_path.parent.rglob("*"))
    with pytest.raises(MacsError, match="names no commit and hash"):
        local_file(pushed)
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_what_a_link_in_the_cache_leads_to_is_never_deleted(hub: Hub, pushed: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.safetensors"
    mine.write_text("mine")
    file = local_file(pushed)
    file.unlink()
    file.symlink_to(mine)
    with pytest.raises(MacsError, match="but its record says"):
        local_file(pushed)
    assert mine.read_text() == "mine" and not file.is_symlink()
    assert Detector.load(pushed).calibrated.keep == 0.9


def test_an_interrupted_download_is_resumed(hub: Hub, pushed: str) -> None:
    attempts = iter([True])

    def once(name: str, content: bytes) -> Answer | None:
        broken = name == "detector.safetensors" and hub.asked[-1].startswith("GET") and next(attempts, False)
        return Answer(body=content[:1000], announced=len(content)) if broken else None

    hub.fault = once
    assert Detector.load(pushed).calibrated.keep == 0.9
    assert next(attempts, None) is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://org/none", "no repository org/none"),
        ("hf://org/stripes@none", "no revision none"),
        ("hf://org/stripes/model.bin", "a detector is in detector.safetensors or detector.onnx"),
        ("hf://stripes", "write hf://org/name"),
        ("hf://org/../x", "no address of the hub|names the file"),
        ("hf://o rg/na me", "no address of the hub"),
    ],
)
def test_a_wrong_address_is_one_sentence(hub: Hub, pushed: str, address: str, words: str) -> None:
    with pytest.raises(MacsError, match=words):
        local_file(address)


def test_a_repository_of_something_else_is_refused(hub: Hub) -> None:
    hub.commit("org/bert", {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x"})
    with pytest.raises(MacsError, match="hf://org/bert holds no detector"):
        Detector.load("hf://org/bert")


def test_a_detector_without_onnx_says_so(hub: Hub, detector: Detector) -> None:
    detector.push_to_hub("org/stripes")
    with pytest.raises(MacsError, match="has no detector.onnx, only detector.safetensors"):
        Runtime("hf://org/stripes")


def test_a_folder_is_as_good_as_the_hub(
    published: Path, detector: Detector, tmp_path: Path, known_test: ImageSet
) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "published"))
    (folder / "README.md").write_text("mine")
    detector.save_pretrained(folder)
    assert set(json.loads((folder / "config.json").read_text())["files"]) == {"detector.safetensors"}
    shutil.copyfile(published / "config.json", folder / "config.json")
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "README.md").read_text() == "mine"
    expected = detector.predict(known_test).is_ood
    np.testing.assert_array_equal(Detector.from_pretrained(folder).predict(known_test).is_ood, expected)
    np.testing.assert_array_equal(Runtime(folder).predict(known_test).is_ood, expected)
    shutil.copyfile(folder / "detector.onnx", folder / "detector.safetensors")
    with pytest.raises(MacsError, match="but its record says"):
        Detector.from_pretrained(folder)
    assert (folder / "detector.safetensors").exists()


def test_every_command_takes_an_address_and_push_publishes(
    hub: Hub,
    detector: Detector,
    exported: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    detector.save(tmp_path / "d.safetensors")
    known, unknown = save(stripes(30, 3), tmp_path / "known"), save(noise(10, 4), tmp_path / "unknown")
    pictures = sorted(path.relative_to(tmp_path) for path in known.rglob("*.png"))
    (tmp_path / "known.txt").write_text("\n".join(f"{path} {STRIPES.index(path.parts[1])}" for path in pictures))
    (tmp_path / "classes.txt").write_text("\n".join(STRIPES))
    sets = ["--id", "known.txt", "--ood", "unknown"]
    run("evaluate", "--detector", "d.safetensors", *sets, "--json")
    (tmp_path / "evaluation.json").write_text(capsys.readouterr().out)
    run("push", "d.safetensors", "org/stripes", "--evaluation", "evaluation.json")
    assert "hf://org/stripes@" in capsys.readouterr().out
    address = ["--detector", "hf://org/stripes"]
    run("predict", str(unknown), *address, "--format", "csv")
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 11
    run("push", exported, "org/exported", "--license", "mit")
    capsys.readouterr()
    run("predict", str(unknown), "--detector", "hf://org/exported/detector.onnx", "--format", "csv")
    assert [row.split(",")[6] for row in capsys.readouterr().out.splitlines()] == [row.split(",")[6] for row in rows]
    run("evaluate", *address, *sets)
    run("report", *address, *sets)
    assert (tmp_path / "report.html").is_file()
    capsys.readouterr()
    run("inspect", "hf://org/stripes", "--json")
    assert json.loads(capsys.readouterr().out)["calibration"]["keep"] == 0.9
    assert "/snapshots/" in str(local_file("hf://org/stripes"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["d.safetensors", "name"], "write org/name"),
        (["d.safetensors", "org/stripes", "--evaluation", "d.safetensors"], "evaluation|not what"),
        (["missing.safetensors", "org/stripes"], "missing.safetensors"),
    ],
)
def test_a_wrong_push_writes_nothing(
    hub: Hub,
    detector: Detector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    detector.save(tmp_path / "d.safetensors")
    told = refused(capsys, "push", *arguments)
    assert any(word in told for word in words.split("|"))
    assert hub.commits == {}


def test_without_torch_the_onnx_file_is_taken(hub: Hub, pushed: str, tmp_path: Path, known_test: ImageSet) -> None:
    """In a process of its own, in which torch cannot be imported, and which finds the hub by HF_ENDPOINT."""
    save(known_test, tmp_path / "images")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "sys.argv = ['macs', 'predict', 'images', '--detector', 'hf://org/stripes', '--format', 'csv']\n"
        "from macs.__main__ import main; main()"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(known_test)
    assert any(path.name == "detector.onnx" for path in (tmp_path / "home").rglob("*"))
    assert not any(path.name == "detector.safetensors" for path in (tmp_path / "home").rglob("*"))
