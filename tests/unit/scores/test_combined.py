"""Sums of scores: standardised by hand, fitted part by part, saved, loaded and exported as one score."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import Tensor

import macs
from clustered_features import BIAS, CLASSES, TEST, TRAIN, WEIGHT, activations, asked, known, logits_of
from macs import nets, scores
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.data import ImageSet
from macs.inference import Outputs, outputs_of
from macs.scores import Combined, Known, Score
from macs.scores.combined import held_out_of
from macs.scores.knn import KNN
from macs.scores.msp import MSP
from tiny import noise, stripes

HELD_OUT, _ = activations(50, seed=8)


@dataclass
class Leaning(Score):
    """A user's own, with a setting."""

    by: Annotated[float, Span(0, 10)] = 1

    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, 0] * self.by


class Constant(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return torch.ones(len(outputs))


def outputs(features: np.ndarray) -> Outputs:
    return Outputs(torch.tensor(logits_of(features)), torch.tensor(features))


def known_with_held_out(features: np.ndarray = HELD_OUT) -> Known:
    return replace(known(), held_out=outputs(features), network="ab" * 6)


@pytest.mark.parametrize("names", [("msp", "vim"), ("energy", "knn", "mahalanobis"), ("gen", "maxlogit")])
def test_the_mean_of_what_is_standardised_on_held_out_images(names: Any) -> None:
    total = scores.get("+".join(names)).fit(known_with_held_out())
    expected = np.zeros(len(TEST))
    for name in names:
        part = scores.get(name).fit(known())
        there = asked(part, HELD_OUT)
        expected += (asked(part) - np.mean(there)) / np.sqrt(np.mean((there - np.mean(there)) ** 2))
    assert asked(total) == pytest.approx(expected / len(names), rel=1e-9)
    assert int(total.images) == 50 and total.bound_to == "ab" * 6


def test_what_it_reads_and_needs_comes_from_its_parts() -> None:
    plain, rich = scores.get("msp+energy"), scores.get("msp+ash+knn")
    assert (plain.reads, rich.reads) == ("logits", "features")
    needs: Any = ("last layer", "training images", "held-out images")
    assert [plain.needs(each) for each in needs] == [False, False, True]
    assert [rich.needs(each) for each in needs] == [True, True, True]
    assert repr(rich) == "Combined([MSP(), ASH(), KNN()]) [unfitted]" and not rich.fitted
    assert repr(rich.fit(known_with_held_out())) == "Combined([MSP(), ASH(), KNN()])"
    assert not rich.fitted and not rich.state_dict()  # a fit is a copy
    assert not scores.get("msp+energy").fitted  # the parts are ready, and the sum is not
    assert scores.name_of(rich) == "msp+ash+knn" and "msp+ash+knn" not in scores.available()


def test_settings_go_to_the_parts_that_have_them() -> None:
    assert scores.get("energy+knn", k=3).settings == {"knn": {"k": 3, "bank": 0, "reduce": "random", "normalise": True}}
    both = scores.get("ash+scale", percentile=70)
    assert both.settings == {"ash": {"percentile": 70}, "scale": {"percentile": 70}}
    assert scores.get(both, ash={"percentile": 60}).settings == {"ash": {"percentile": 60}, "scale": {"percentile": 70}}
    assert scores.get("ash+scale", **both.settings).settings == both.settings
    found = scores.get_all(["msp", "energy+knn", "knn"], {"k": 7})
    assert [each.written for each in found.values()] == ["MSP()", "Combined([Energy(), KNN(k=7)])", "KNN(k=7)"]
    with pytest.raises(MacsError, match="no setting of energy.knn called 'kk' .did you mean 'k'"):
        scores.get("energy+knn", kk=3)
    with pytest.raises(MacsError, match="settings of knn in energy.knn must be a table, not 3"):
        scores.get("energy+knn", knn=3)
    with pytest.raises(MacsError, match="Among the settings of knn, k must be at least 1"):
        scores.get("energy+knn", k=0)
    with pytest.raises(MacsError, match=r"parts of Combined\(\[MSP\(\), KNN\(\)\]\).* cannot be changed"):
        scores.get("msp+knn").parts = ()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("msp+", "'msp.' names a sum with an empty part"),
        ("+", "names a sum with an empty part"),
        ("msp++vim", "names a sum with an empty part"),
        ("msp+msp", "msp occurs twice in msp.msp"),
        ("odin+msp", r"ODIN\(\) cannot be part of a sum, since it passes pixels"),
        ("msp+vimm", "There is no score called 'vimm' .did you mean 'vim'"),
        ("msp+auto", "There is no score called 'auto'"),
        ("macs.scores.combined:Combined", "takes two scores or more"),
    ],
)
def test_names_that_are_no_sums(name: Any, complaint: Any) -> None:
    with pytest.raises(MacsError, match=complaint):
        scores.get(name)
    with pytest.raises(MacsError, match="is a sum itself"):
        Combined([MSP(), scores.get("energy+knn")])


def test_fits_that_fail() -> None:
    few = known_with_held_out(HELD_OUT[:19])
    for each, count in ((known(), 0), (few, 19)):
        with pytest.raises(MacsError, match=f"To standardise msp.vim takes at least 20 .* there are {count};"):
            scores.get("msp+vim").fit(each)
    with pytest.raises(MacsError, match=r"Constant\(\) cannot be standardised for msp.*standard deviation 0; leave"):
        Combined([MSP(), Constant()]).fit(known_with_held_out())
    empty = replace(known_with_held_out(), features=known().features[:0], logits=known().logits[:0])
    with pytest.raises(MacsError, match="KNN is fitted to ID training images, but there are none"):
        scores.get("msp+knn").fit(empty)
    assert scores.get("msp+energy").fit(empty).fitted


def test_a_users_part_that_fails_is_named() -> Any:
    class Column(Leaning):
        def confidence(self, outputs: Outputs) -> Tensor:
            return outputs.logits[:, :1]

    class Failing(Leaning):
        def confidence(self, outputs: Outputs) -> Tensor:
            raise KeyError("gone")

    for kind, words in (
        (Column, r"Column gives \(50, 1\) for 50 images"),
        (Failing, "Failing failed: KeyError"),
    ):
        with pytest.raises(MacsError, match=words):
            Combined([MSP(), kind()]).fit(known_with_held_out())


def test_a_state_travels_and_so_does_a_users_part(tmp_path: Path) -> None:
    total = Combined([Leaning(by=2), KNN(k=3)]).fit(known_with_held_out())
    assert scores.name_of(total) == f"{__name__}:Leaning+knn"
    assert set(total.state_dict()) == {*total.tensor_names, "network", "part1.network"}
    other = scores.get(scores.name_of(total), **total.settings)
    other.load_state_dict(total.state_dict())
    assert other.fitted and other.written == "Combined([Leaning(by=2.0), KNN(k=3)])"
    for each in (other, copy.deepcopy(total)):
        assert (asked(each) == asked(total)).all()
    moved = copy.deepcopy(total).to("meta")
    assert {tensor.device.type for tensor in moved.buffers()} == {"meta"}
    assert moved.parts[1].vectors.device.type == "meta"
    shared = KNN(k=3).fit(known())
    assert not Combined([MSP(), shared]).parts[1].fitted and shared.fitted  # parts are copies


def test_images_that_are_held_out_are_not_fitted_to() -> None:
    divided = known().divided(60, seed=1)
    assert (len(divided), len(divided.held_out), len(divided.labels)) == (240, 60, 240)
    rows = {tuple(row) for part in (divided.features, divided.held_out.features) for row in part.tolist()}
    assert rows == {tuple(row) for row in TRAIN.tolist()}
    assert divided.logits.numpy() == pytest.approx(divided.features.numpy() @ WEIGHT.T + BIAS)
    assert torch.equal(divided.features, known().divided(60, seed=1).features)
    assert not torch.equal(divided.features, known().divided(60, seed=2).features)
    assert divided.logits.shape[1] == CLASSES


def test_evaluation_holds_out_what_it_is_given_or_training_images(known_test: Any, outliers: ImageSet) -> Any:
    torch.manual_seed(0)
    net = nets.build("wrn-10-1", classes=3)
    train, val = stripes(192, seed=1), stripes(80, seed=6)
    sets = {"noise": outliers}
    ours = macs.evaluation.evaluate_scores(
        net, known_test, sets, ["msp+vim", "vim"], train=train, held_out=lambda: val, precision="float32"
    )
    assert (ours.held_out, ours.held_out_images, ours.standardised) == ("stripes", 80, ["msp+vim"])
    assert (
        ours.train_images == 192
        and "Each sum is standardised on 80 images of stripes that its parts are not fitted to" in str(ours)
    )
    assert ours.as_dict()["standardised"]["images"] == 80

    def rows(images: macs.ImageSet) -> Outputs:
        (found,) = outputs_of(net, [torch.from_numpy(images.pixels[:])], features=True, precision="float32")
        return found

    parts = [scores.get(name).fit(scores.know(net, train, precision="float32")) for name in ("msp", "vim")]
    total = sum(
        (part.confidence(rows(noise(30, seed=4))) - (there := part.confidence(rows(val))).mean())
        / there.std(correction=0)
        for part in parts
    )
    fitted = scores.get("msp+vim").fit(scores.know(net, train, val, precision="float32"))
    found = scores.ask(net, noise(30, seed=4), fitted, "float32").confidence
    assert found == pytest.approx(np.asarray(total) / 2, rel=1e-3, abs=1e-4)

    without = macs.evaluation.evaluate_scores(net, known_test, sets, ["msp+vim", "knn"], train=train)
    assert (without.train_images, without.held_out_images) == (192, 48)  # a quarter, for the sum alone
    alone = macs.evaluate(net, known_test, sets, score="knn", train=train, progress=False)
    assert without["knn"].sets == alone.sets
    with pytest.raises(MacsError, match="never fitted to the test images stripes; give held-out ID images"):
        macs.evaluate(net, known_test, sets, score="msp+energy", held_out=known_test, progress=False)
    logits_only = macs.evaluate(net, known_test, sets, score="msp+energy", held_out=val, progress=False)
    assert logits_only.score == "msp+energy"
    with pytest.raises(MacsError, match="there are 0; give more"):
        macs.evaluate(net, known_test, sets, score="msp+energy", progress=False)


def test_a_quarter_of_the_images_is_held_out_and_at_most_a_thousand() -> None:
    assert [held_out_of(images) for images in (3, 83, 400, 3996)] == [0, 20, 100, 999]
    assert held_out_of(4000) == held_out_of(4004) == held_out_of(50_000) == 1000
