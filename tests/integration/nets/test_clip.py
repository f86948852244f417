"""A zero-shot CLIP, small and random, in a folder as the hub has it: from words to an ONNX file without text model."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import macs
from command import refused, run
from macs import nets
from macs.core.errors import MacsError
from macs.detector import Detector
from macs.detector.score_selection import candidate_names
from macs.nets import from_clip
from macs.nets.from_clip import ClipNet
from macs.scores import know
from small_clip import write_clip
from tiny import noise, stripes

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZE, WORDS = 32, ("red", "green light", "blue")
INDEX = {"index.noun": ["apple", "sea_horse", "zebra", "cloud"], "index.adj": ["loud", "smooth", "odd", "new"]}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip") / "hub"
    write_clip(folder, SIZE)
    (folder / "words").mkdir()
    for name, words in INDEX.items():
        lines = ["  1 A licence stands here.", *(f"{word} n 1 0 1 0 00000001" for word in words)]
        (folder / "words" / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def whole(hub: Path) -> Any:
    return transformers.CLIPModel.from_pretrained(hub).eval()


def by_the_whole_model(whole: Any, hub: Path, net: Any, pixels: np.ndarray, texts: list[str]) -> np.ndarray:
    """Cosines of images and texts by transformers' model of both."""
    tokens = transformers.AutoTokenizer.from_pretrained(hub)(texts, padding=True, return_tensors="pt")
    floats = net.normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    with torch.no_grad():
        said = whole(pixel_values=floats, **tokens)
    return (said.logits_per_image / whole.logit_scale.detach().exp()).numpy()


def test_the_logits_are_cosines_with_the_mean_of_the_prompts(hub: Path, whole: Any) -> None:
    prompts = ("a photo of a {}.", "a {}")
    net = nets.zero_shot(f"clip/{hub}", WORDS, prompts)
    assert isinstance(net, ClipNet) and net.preparation.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    pixels = noise(5, 0, SIZE).pixels[:]
    logits = net(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255).detach().numpy()
    one = by_the_whole_model(whole, hub, net, pixels, [p.format(word) for word in WORDS for p in prompts])
    vectors = torch.cat([*net.vectors_of([p.format(word) for word in WORDS for p in prompts])]).numpy()
    means = vectors.reshape(3, 2, -1).mean(axis=1)
    expected = one.reshape(5, 3, 2).mean(axis=2) / np.linalg.norm(means, axis=1)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_the_command_makes_a_detector_that_needs_the_hub_no_more(
    hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(hub, tmp_path / "hub")
    np.save(tmp_path / "known.npy", stripes(60, 1, SIZE).pixels[:])
    command = ["calibrate", "--net", f"clip/{copy}", "--images", tmp_path / "known.npy", "--classes", ", ".join(WORDS)]
    run(*command, "--out", tmp_path / "d.safetensors", "--json")
    assert json.loads(capsys.readouterr().out)["score"] == "mcm"  # by default
    shutil.rmtree(copy)
    run("export", tmp_path / "d.safetensors", tmp_path / "d.onnx", "--json")
    detector, exported = Detector.load(tmp_path / "d.safetensors"), macs.Runtime(tmp_path / "d.onnx")
    assert detector.classes == exported.classes == WORDS
    images = noise(20, 2, SIZE)
    ours, theirs = detector.predict(images), exported.predict(images)
    logits = detector.net(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255).detach()
    np.testing.assert_allclose(ours.confidence, logits.softmax(dim=1).amax(dim=1).numpy(), atol=1e-6)
    np.testing.assert_allclose(ours.confidence, theirs.confidence, atol=1e-5)
    np.testing.assert_array_equal(ours.index, theirs.index)


def test_evaluate_takes_the_names_of_the_classes_as_words(
    hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "unknown.npy", noise(30, 3, SIZE).pixels[:])
    command = ["evaluate", "--net", f"clip/{hub}", "--id", "digits", "--ood", tmp_path / "unknown.npy"]
    run(*command, "--score", "mcm", "msp", "energy", "--json")
    value = json.loads(capsys.readouterr().out)["scores"]
    (mcm,), (msp,) = (value[name]["ood"].values() for name in ("mcm", "msp"))
    assert mcm["full"] == msp["full"]  # at the temperature 1 they are the same


def test_neglabel_is_its_equation(hub: Path, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_clip, "TEXTS", 3)  # the 8 texts come in three parts
    quantile = torch.Tensor.quantile

    def limited(values: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        assert values.numel() <= 9, "quantile() input tensor is too large"  # as torch says beyond 16 million
        return quantile(values, *given, **named)

    monkeypatch.setattr(torch.Tensor, "quantile", limited)
    net = cast(ClipNet, nets.zero_shot(f"clip/{hub}", WORDS))
    score = macs.scores.get("neglabel", words=str(hub / "words"), share=0.5, groups=2)
    images = stripes(40, 4, SIZE)
    fitted = score.fit(know(net, images))
    texts = [f"the nice {word}" for word in ("apple", "sea horse", "zebra", "cloud")]
    texts += [f"This is a {word} photo" for word in INDEX["index.adj"]]
    vectors = torch.cat([*net.vectors_of(texts)]).numpy()
    nearness = np.quantile(vectors @ net.head.weight.detach().numpy().T, 0.95, axis=1)
    kept = np.random.default_rng(0).permutation(np.argsort(nearness)[:4])
    images = noise(6, 5, SIZE)
    known = by_the_whole_model(whole, hub, net, images.pixels[:], [f"a photo of a {word}." for word in WORDS])
    unknown = by_the_whole_model(whole, hub, net, images.pixels[:], [texts[i] for i in kept])
    known = np.exp(100 * known).sum(axis=1)
    shares = [known / (known + np.exp(100 * unknown[:, part]).sum(axis=1)) for part in ([0, 1], [2, 3])]
    found = macs.scores.ask(net, images, fitted, "float32").confidence
    np.testing.assert_allclose(found, np.mean(shares, axis=0), rtol=2e-3)

    detector = Detector(net, fitted, classes=WORDS).calibrate(stripes(60, 1, SIZE).pixels[:])
    detector.save(tmp_path / "d.safetensors")
    Detector.load(tmp_path / "d.safetensors").export(tmp_path / "d.onnx")
    theirs = macs.Runtime(tmp_path / "d.onnx").predict(images)
    np.testing.assert_allclose(theirs.confidence, found, atol=1e-4)


def test_what_cannot_be_is_refused(hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MacsError, match="no CLIP model; write it like clip/"):
        nets.zero_shot("wrn-10-1", WORDS)
    with pytest.raises(MacsError, match="at least two classes"):
        nets.zero_shot(f"clip/{hub}", ["cat"])
    with pytest.raises(MacsError, match="has {} once"):
        nets.zero_shot(f"clip/{hub}", WORDS, ["a photo"])
    with pytest.raises(MacsError, match="images of 32 pixels, not of 64"):
        nets.build(f"clip/{hub}", 3, preparation=macs.data.Preparation(64))
    with pytest.raises(MacsError, match="needs a zero-shot network"):
        macs.scores.get("neglabel").fit(know(nets.build("wrn-10-1", 4), stripes(20, 1, 16)))
    with pytest.raises(MacsError, match=r"install WordNet \(Debian: wordnet-base\)"):
        macs.scores.get("neglabel", words=str(tmp_path)).fit(
            know(nets.zero_shot(f"clip/{hub}", WORDS), stripes(9, 1, SIZE))
        )
    np.save(tmp_path / "known.npy", noise(30, 3, SIZE).pixels[:])
    command = [
        "calibrate",
        "--net",
        f"clip/{hub}",
        "--images",
        tmp_path / "known.npy",
        "--out",
        tmp_path / "d.safetensors",
    ]
    assert "at least two classes" in refused(capsys, *command, "--classes", "cat")


def test_the_scores_of_zero_shot_networks_are_not_for_others() -> None:
    assert macs.scores.available(zero_shot=True) == ["mcm", "neglabel"]
    assert not {"mcm", "neglabel"} & {*macs.scores.available(), *candidate_names()}
