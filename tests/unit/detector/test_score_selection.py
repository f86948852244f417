"""Choosing a score: the rule by hand, the unknown images by loops, the record in the file, errors in a sentence."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from torch import Tensor, nn

import macs
from command import refused, run
from forging import forged
from macs import scores
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet, synthetic_ood
from macs.data.synthetic_ood import shuffled, unknowns_for
from macs.detector import Detector
from macs.detector.score_selection import (
    ENOUGH,
    SUMS,
    Pair,
    best,
    candidate_names,
    cost,
    equivalent,
    mean_ranks,
    microseconds,
)
from macs.inference import Outputs
from macs.metrics import OODMetrics, ood_metrics
from macs.scores import Score
from tiny import STRIPES, noise, stripes


def test_shuffled_images_hold_the_same_blocks_in_another_order() -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 18, 18, 3), dtype=np.uint8)
    found = shuffled(pixels, np.random.default_rng(1))

    def blocks(image: np.ndarray) -> list[bytes]:
        return [image[i : i + 4, j : j + 4].tobytes() for i in range(0, 16, 4) for j in range(0, 16, 4)]

    orders = set()
    for before, after in zip(pixels, found, strict=True):
        assert sorted(blocks(before)) == sorted(blocks(after)) and blocks(before) != blocks(after)
        orders.add(tuple(blocks(before).index(block) for block in blocks(after)))
        assert np.array_equal(before[16:], after[16:]) and np.array_equal(before[:, 16:], after[:, 16:])
    assert len(orders) == 5


def test_the_kinds_of_unknown_images(validation: ImageSet) -> None:
    found, missing = unknowns_for(validation)
    assert list(found) == ["shuffled", "inverted", "noise", "photographs"] and not missing
    assert np.array_equal(
        found["inverted"].pixels[:].astype(int) + validation.pixels[:], np.full((100, 16, 16, 3), 255)
    )
    assert {(len(each), each.size) for name, each in found.items() if name != "photographs"} == {(100, 16)}
    assert found["photographs"].size == 16
    uniform, gaussian, blurred = (found["noise"].pixels[start::3].astype(float) for start in range(3))
    assert uniform.std() == pytest.approx(256 / np.sqrt(12), rel=0.02) and gaussian.std() < 66
    steps = [np.abs(np.diff(each, axis=1)).mean() for each in (uniform, gaussian, blurred)]
    assert steps[2] < steps[1] < steps[0] and (blurred.min(), blurred.max()) == (0, 255)
    again, _ = unknowns_for(validation)
    assert all(np.array_equal(again[name].pixels[:], each.pixels[:]) for name, each in found.items())


def test_ranks_by_hand() -> Any:
    def metrics(fpr95_id: float, auroc: float) -> OODMetrics:
        return OODMetrics(fpr95_id=fpr95_id, auroc=auroc)

    ranks = mean_ranks(
        {
            "a": {"noise": metrics(0.1, 0.9), "shuffled": metrics(0.0, 1.0)},
            "b": {"noise": metrics(0.1, 0.8), "shuffled": metrics(0.0, 1.0)},
            "c": {"noise": metrics(0.5, 0.99), "shuffled": metrics(0.2, 0.9)},
            "d": {"noise": metrics(0.05, 0.5), "shuffled": metrics(0.3, 0.9)},
        }
    )
    assert ranks == {"a": (2 + 1.5) / 2, "b": (3 + 1.5) / 2, "c": (4 + 3) / 2, "d": (1 + 4) / 2}
    assert best(ranks, {"a": 3, "b": 2, "c": 0, "d": 1}) == "b"  # c and d are more than half a rank behind
    assert best(ranks, {"a": 2, "b": 2, "c": 0, "d": 1}) == "a"


def pairs(images: int, worse: float, apart: float, seed: int = 0) -> tuple[Pair, list[Pair]]:
    """Confidences of a cheap and of a dear score for ID images and five kinds, the kinds `worse` closer for the cheap.

    On every second kind the cheap score is closer, on the others the dear one, by half as much; `apart` is the part of
    the confidences in which the two differ at random.
    """
    random = np.random.default_rng(seed)

    def pair(shift: float, more: float) -> Pair:
        same = random.normal(shift, 1, images)
        return same + random.normal(more, apart, images), same + random.normal(0, apart, images)

    return pair(2, 0), [pair(0, worse if kind % 2 == 0 else -worse / 2) for kind in range(5)]


def ranks_of(known: Pair, unknown: list[Pair]) -> dict[str, float]:
    names = ("cheap", "dear")
    return mean_ranks(
        {
            name: {str(kind): ood_metrics(known[i], pair[i]) for kind, pair in enumerate(unknown)}
            for i, name in enumerate(names)
        }
    )


COSTS = {"cheap": 1, "dear": 2}


def test_few_images_do_not_show_that_a_cheap_score_is_equivalent() -> None:
    known, unknown = pairs(28, worse=0.8, apart=0.05)
    ranks = ranks_of(known, unknown)
    assert ranks["dear"] < ranks["cheap"] <= ranks["dear"] + 0.5
    assert best(ranks, COSTS) == "cheap"  # half a rank alone
    assert best(ranks, COSTS, lambda *_: equivalent(known, unknown)) == "dear"


@pytest.mark.parametrize("seed", range(4))
def test_many_images_tell_an_equivalent_score_from_a_worse_one(seed: int) -> None:
    assert equivalent(*pairs(3000, worse=0.0, apart=0.03, seed=seed))
    assert not equivalent(*pairs(3000, worse=0.8, apart=0.1, seed=seed))
    known, unknown = pairs(150, worse=0.0, apart=0.8, seed=seed)
    assert not equivalent(known, unknown)  # equally good, but 150 images do not show it
    alike = (known[1], known[1]), [(pair[1], pair[1]) for pair in unknown]
    assert equivalent(*alike)
    fewer = tuple(part[: ENOUGH - 1] for part in alike[0]), alike[1]
    assert not equivalent(*fewer)  # type: ignore[arg-type]


def test_the_cheapest_equivalent_score_within_half_a_rank_is_chosen() -> None:
    ranks, costs = {"a": 2.0, "b": 2.5, "c": 2.4, "d": 2.6}, {"a": 9, "b": 1, "c": 5, "d": 0}
    assert best(ranks, costs, lambda name, other: other == "a") == "b"
    assert best(ranks, costs, lambda name, other: name == "c") == "c"
    assert best(ranks, costs, lambda name, other: False) == "a"


def test_logits_are_cheaper_than_features_and_these_than_a_bank(trained: Any, known: ImageSet) -> None:
    found = scores.know(trained, known)
    fitted = [scores.get(name).fit(found) for name in ("msp", "ash", "vim", "knn")]
    costs = [cost(score) for score in fitted]
    assert costs[0] < costs[1] < costs[2] < costs[3]
    assert set(candidate_names()) == {*scores.available(), *SUMS} - {"odin", "adascale-a", "adascale-l", "joint-energy"}


@pytest.fixture(scope="module")
def chosen(trained: Any, known: ImageSet, validation: ImageSet) -> Any:
    return Detector(trained).choose(known, validation, {"outliers": noise(60, seed=21)})


def test_the_record_agrees_with_each_score_alone(
    chosen: Any, trained: Any, known: ImageSet, validation: ImageSet
) -> None:
    record = chosen.choice
    assert record.unknown == {"outliers": 60, "shuffled": 100, "inverted": 100, "noise": 100, "photographs": 900}
    assert (record.images, record.score) == (100, scores.name_of(chosen.score))
    assert list(record.candidates) == sorted(record.candidates, key=lambda name: record.candidates[name].rank)
    known_images = scores.know(trained, known, validation, precision="float32")
    for name in ("msp", "vim", "energy+knn"):
        score = scores.get(name).fit(known_images)
        here = scores.ask(trained, validation, score, "float32").confidence
        there = scores.ask(trained, noise(60, seed=21), score, "float32").confidence
        above = (there[:, None] < here).mean() + (there[:, None] == here).mean() / 2
        assert record.candidates[name].auroc["outliers"] == pytest.approx(above)
        passing = (there >= np.sort(here)[len(here) - int(np.ceil(0.95 * len(here)))]).mean()
        assert record.candidates[name].fpr95_id["outliers"] == pytest.approx(passing)
    table = str(record).splitlines()
    assert len(table) == 4 + len(record.candidates) and record.score in table[0]
    assert table[-1] == f"{record.score} is cheaper than mahalanobis, and equivalent to it on these images."


def test_few_held_out_images_are_said_to_be_few(trained: Any, known: ImageSet, validation: ImageSet) -> None:
    with pytest.warns(MacsWarning, match="Only 28 held-out images decide on the score"):
        record = Detector(trained).choose(known, validation.subset(range(28))).choice
    assert record is not None
    ranks = [candidate.rank for candidate in record.candidates.values()]
    assert record.candidates[record.score].rank == ranks[0] and "on 28 images of" in str(record)


def test_the_record_travels_with_the_detector(chosen: Any, tmp_path: Path) -> None:
    detector = chosen.calibrate(stripes(120, seed=30))
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    assert loaded.choice == chosen.choice and repr(loaded.score) == repr(chosen.score)
    with safetensors.safe_open(tmp_path / "d.safetensors", "numpy") as file:
        label = json.loads(file.metadata()["macs"])
    assert label["choice"]["score"] == chosen.choice.score
    older = forged(tmp_path / "d.safetensors", tmp_path / "old.safetensors", without_keys=["choice"])
    assert Detector.load(older).choice is None
    wrong = forged(tmp_path / "d.safetensors", tmp_path / "wrong.safetensors", choice={"score": 3})
    with pytest.raises(MacsError, match="metadata that macs did not write: A Choice needs the setting data"):
        Detector.load(wrong)


def test_what_cannot_be_a_candidate_is_left_out_with_the_reason(
    trained: Any, validation: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*args: object, **more: object) -> None:
        raise MacsError("To read digits-outliers takes skimage.")

    monkeypatch.setattr(synthetic_ood, "load", absent)
    found = Detector(trained).choose(None, validation).choice
    assert {"knn", "vim", "energy+knn", "photographs"} <= set(found.left_out) and "ash" in found.candidates
    assert "takes skimage" in found.left_out["photographs"] and "photographs" not in found.unknown
    headless = nn.Sequential(nn.Conv2d(3, 3, 16), nn.Flatten())
    assert set(Detector(headless).choose(None, validation).choice.candidates) == {"energy", "gen", "maxlogit", "msp"}


def test_errors(trained: Any, known: ImageSet, validation: ImageSet) -> None:
    with pytest.raises(MacsError, match="To choose a score takes at least 20 held-out ID images, but there are 19"):
        Detector(trained).choose(known, validation.subset(range(19)))
    with pytest.raises(MacsError, match="stripes holds the training images; hold out others"):
        Detector(trained).choose(known, known)
    with pytest.raises(MacsError, match="noise is a kind of unknown images that macs makes itself"):
        Detector(trained).choose(known, validation, {"noise": noise(9, seed=1)})
    with pytest.raises(MacsError, match=r"has to be fitted to ID training images before .* call \.fit\(train\) first"):
        Detector(trained, "msp+vim").calibrate(validation)
    with pytest.raises(MacsError, match="Unknown images are for choosing a score, but this detector has KNN"):
        Detector(trained, "knn").fit(known, unknown={"noise": noise(9, seed=1)})


@dataclass(eq=False)
class Clock:
    """A clock on which nothing takes time but each look at it, and what moves it on."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("macs.detector.score_selection.time.perf_counter", clock)
    return clock


class Slow(Score):
    """As MSP, but 20 milliseconds for each batch."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def confidence(self, outputs: Outputs) -> Tensor:
        self.clock.now += 0.02
        return outputs.logits.softmax(1).amax(1)


def test_the_time_of_a_score_is_per_image(clock: Clock) -> None:
    outputs = Outputs(torch.zeros(50, 3))
    assert microseconds(Slow(clock), outputs) == pytest.approx(20_000 / 50 + 1 / 50)
    assert microseconds(scores.get("msp"), outputs) == pytest.approx(1 / 50)


def test_candidates_that_take_too_long_are_left_out(
    trained: Any, known: ImageSet, validation: ImageSet, clock: Clock
) -> None:
    given = {"msp": scores.get("msp"), "knn": scores.get("knn"), "slow": Slow(clock)}
    record = Detector(trained).choose(known, validation, candidates=given, max_cost=150).choice
    assert record is not None and "slow" not in record.candidates and "msp" in record.candidates
    assert re.fullmatch(r"it takes \d+\.\d microseconds per image, and 150 are allowed\.", record.left_out["slow"])
    everything = Detector(trained).choose(known, validation, candidates=given, max_cost=1e6).choice
    unlimited = Detector(trained).choose(known, validation, candidates=given).choice
    assert everything == unlimited and everything is not None and set(everything.candidates) == set(given)
    with pytest.raises(MacsError, match="No score takes at most 0.0001 microseconds per image beyond"):
        Detector(trained).choose(known, validation, candidates=given, max_cost=1e-4)
    for wrong in (0, -1, float("nan")):
        with pytest.raises(MacsError, match="microseconds that a score may take per image must be above 0"):
            Detector(trained).choose(known, validation, candidates=given, max_cost=wrong)


@pytest.fixture(scope="module")
def files(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A checkpoint and images as arrays."""
    folder = tmp_path_factory.mktemp("files")
    macs.nets.save(trained, folder / "net.safetensors", class_names=STRIPES)
    for name, images in {
        "train": stripes(150, seed=1),
        "val": stripes(160, seed=2),
        "few": stripes(79, seed=3),
    }.items():
        np.save(folder / f"{name}.npy", images.pixels[:])
    np.save(folder / "unknown.npy", noise(30, seed=4).pixels[:])
    return folder


def command(files: Any, score: str, *more: object, images: str = "val") -> list[object]:
    given = ["--checkpoint", files / "net.safetensors", "--net", "wrn-10-1", "--images", files / f"{images}.npy"]
    return ["calibrate", *given, "--size", 16, "--score", score, "--out", files / "d.safetensors", *more]


def test_the_command_line_holds_images_out_of_the_calibration(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(*command(files, "energy+knn", "--score.k", 3, "--fit-on", files / "train.npy", "--json"))
    told = json.loads(capsys.readouterr().out)
    assert (told["held_out"], told["images"], told["score"]) == (40, 120, "energy+knn") and told["choice"] is None
    held_out, rest = macs.data.load(files / "val.npy", size=16).split(40)
    loaded = Detector.load(files / "d.safetensors")
    by_hand = Detector(loaded.net, scores.get("energy+knn", k=3)).fit(
        macs.data.load(files / "train.npy", size=16), held_out
    )
    assert by_hand.calibrate(rest).calibrated.values == loaded.calibrated.values
    run(*command(files, "auto", "--fit-on", files / "train.npy", "--choose-on", files / "unknown.npy"))
    out = capsys.readouterr().out
    assert "Chosen: " in out and "40 images were held out for auto; they take no part in the calibration." in out
    chosen = Detector.load(files / "d.safetensors")
    assert chosen.choice.unknown[str(files / "unknown.npy")] == 30 and chosen.calibrated.images == 120
    run(*command(files, "auto", "--fit-on", files / "train.npy", "--max-cost", 100_000))
    assert not any("microseconds" in why for why in Detector.load(files / "d.safetensors").choice.left_out.values())
    run(*command(files, "auto"))  # without training images
    assert "Without knn: KNN is fitted to ID training images" in capsys.readouterr().out


@pytest.mark.parametrize("score", ["auto", "energy+knn", "knn", "energy"])
def test_python_and_the_command_line_give_the_same_detector(files: Any, score: str) -> None:
    options = ["--check", 0.2, "--per-class", "--outliers", files / "unknown.npy", "--keep", 0.8]
    fitted = [] if score == "energy" else ["--fit-on", files / "train.npy", "--fit-images", 90]
    kinds = ["--choose-on", files / "unknown.npy"] if score == "auto" else []
    run(*command(files, score, *options, *fitted, *kinds))
    commanded = (files / "d.safetensors").read_bytes()

    train, validation, unknown = (macs.data.load(files / f"{n}.npy", size=16) for n in ("train", "val", "unknown"))
    net = macs.nets.load(files / "net.safetensors")
    macs.nets.set_geometry(net, macs.data.Preparation(16))  # as --size does
    by_hand = Detector(net, score, classes=STRIPES)
    name = str(files / "unknown.npy")
    by_hand.fit(train, images=90, unknown={name: unknown} if score == "auto" else None)
    by_hand.calibrate(validation, 0.8, per_class=True, check=0.2, outliers={name: unknown})
    by_hand.save(files / "python.safetensors")
    assert (files / "python.safetensors").read_bytes() == commanded

    again = Detector.from_run(
        net="wrn-10-1",
        checkpoint=files / "net.safetensors",
        images=str(files / "val.npy"),
        size=16,
        score=score,
        keep=0.8,
        check=0.2,
        per_class=True,
        outliers=[name],
        fit_on=str(files / "train.npy") if fitted else None,
        fit_images=90,
        choose_on=[name] if kinds else (),
    )
    again.save(files / "python.safetensors")
    assert (files / "python.safetensors").read_bytes() == commanded


def test_another_fit_chooses_again(trained: Any, known: ImageSet, validation: ImageSet) -> None:
    detector = Detector(trained, "auto")
    assert repr(detector) == f"<Detector {macs.nets.name_of(trained)}, auto [unfitted], not calibrated>"
    with pytest.raises(MacsError, match="no threshold yet"):
        detector.predict(validation)
    detector.fit(known, validation)
    first = detector.choice
    assert first is not None and detector.score.fitted and detector.held_out == 100
    detector.fit(None)
    assert repr(detector.score) == "auto [unfitted]" and detector.choice is None
    with pytest.raises(MacsError, match="For auto, a quarter of the images is held out, so at least 80 are needed"):
        detector.calibrate(stripes(79, seed=3))
    detector.calibrate(stripes(120, seed=3))
    assert detector.choice is not None and "knn" in detector.choice.left_out and detector.calibrated.images == 90


def test_the_command_line_refuses(files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (command(files, "msp", "--choose-on", files / "unknown.npy"), "--choose-on is for --score auto"),
        (command(files, "msp", "--max-cost", 3), "--max-cost is for --score auto"),
        (command(files, "auto", "--max-cost", 0), "must be above 0"),
        (command(files, "auto", "--choose-on", "svhn"), "svhn has train, test but no val split"),
        (command(files, "msp+energy", images="few"), "at least 80 are needed"),
        (command(files, "msp+energy", "--fit-on", files / "train.npy"), "is not fitted to training images"),
        (command(files, "msp+vim"), "msp+vim is fitted to ID training images; name them with --fit-on"),
        (command(files, "msp+odin"), "cannot be part of a sum"),
        (command(files, "auto", "--score.q", "1"), "called 'q'"),
    ):
        assert words in refused(capsys, *arguments)
