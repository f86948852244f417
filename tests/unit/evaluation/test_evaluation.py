"""Evaluation: the table's numbers recomputed by scikit-learn from the network's own outputs."""

import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import macs
from command import refused, run
from macs import nets, scores
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.evaluation import Evaluation, evaluate_scores
from macs.inference import Outputs
from macs.scores.knn import KNN
from tiny import STRIPES, noise, save, stripes

pytestmark = pytest.mark.filterwarnings("ignore:The network is right on")  # few networks here know anything


class Brightness(nn.Module):
    """Logits from an image's mean brightness, so that the answers can be computed without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += len(pixels)
        bright = pixels.mean(dim=(1, 2, 3))
        return self.scale * torch.stack([bright, 1 - bright, torch.full_like(bright, 0.4)], dim=1)


@pytest.fixture
def table(known_test: ImageSet, outliers: ImageSet) -> Evaluation:
    return macs.evaluate(Brightness(), known_test, {"noise": outliers, "more": noise(50, seed=8)}, progress=False)


def by_hand(images: ImageSet) -> tuple[np.ndarray, np.ndarray]:
    bright = images.pixels[:].mean(axis=(1, 2, 3)) / 255
    logits = np.stack([bright, 1 - bright, np.full_like(bright, 0.4)], axis=1)
    return logits.argmax(1), (np.exp(logits) / np.exp(logits).sum(1, keepdims=True)).max(1)


def test_the_full_protocol_agrees_with_scikit_learn(
    table: Evaluation, known_test: ImageSet, outliers: ImageSet
) -> None:
    predictions, conf_in = by_hand(known_test)
    _, conf_out = by_hand(outliers)
    is_ood = np.r_[np.zeros(len(conf_in)), np.ones(len(conf_out))]
    unsure = -np.r_[conf_in, conf_out]
    assert table.accuracy == pytest.approx((predictions == known_test.labels).mean())
    assert table.sets[0].full.auroc == pytest.approx(roc_auc_score(is_ood, unsure), abs=1e-4)
    assert table.sets[0].full.aupr == pytest.approx(average_precision_score(is_ood, unsure), abs=1e-4)


def test_every_image_passes_through_the_network_once(known_test: ImageSet, outliers: ImageSet) -> None:
    net = Brightness()
    macs.evaluate(net, known_test, {"noise": outliers}, trials=10, progress=False)
    assert net.calls == len(known_test) + len(outliers)


def test_draws_scatter_around_the_full_result_and_follow_the_seed(known_test: ImageSet, outliers: ImageSet) -> None:
    full, again, other = (
        macs.evaluate(Brightness(), known_test, {"noise": outliers}, trials=200, seed=seed, progress=False)
        for seed in (0, 0, 1)
    )
    assert full == again != other
    draws = full.draw_means("auroc")
    assert np.mean(draws) == pytest.approx(full.mean("auroc"), abs=5 * np.std(draws) / np.sqrt(200))
    assert np.std(draws) > 0


def test_the_mean_row_is_the_mean_of_the_sets(table: Evaluation) -> None:
    assert table.mean("fpr95") == pytest.approx(np.mean([result.full.fpr95 for result in table.sets]))


def test_json_holds_every_draw_and_names_its_conventions(table: Evaluation) -> None:
    value = json.loads(json.dumps(table.as_dict()))
    assert len(value["ood"]["noise"]["draws"]) == 10
    assert value["ood"]["noise"]["images"] == 256 and value["id"]["images"] == 120
    assert "OOD as positive" in value["conventions"]["fpr95"]
    assert value["protocol"] == {"trials": 10, "share": 0.2, "seed": 0, "fpr_rule": "first"}


def test_the_printed_table_has_sizes_and_conventions(table: Evaluation) -> None:
    text = str(table)
    for words in ("120 ID images of stripes", "256", "OOD as positive", "10 draws of 24 ID images", "mean"):
        assert words in text
    assert f"{100 * table.sets[0].full.auroc:.2f}" in text


def test_loaders_and_tensors_are_measured_as_their_image_sets_are(known_test: ImageSet, outliers: ImageSet) -> None:
    net = Brightness()
    loader = DataLoader(TensorDataset(floats(known_test), torch.from_numpy(known_test.labels)), batch_size=7)
    expected = macs.evaluate(net, known_test, {"x": outliers}, progress=False)
    for unknown in (floats(outliers), outliers.pixels[:], DataLoader(TensorDataset(floats(outliers)), batch_size=9)):
        found = macs.evaluate(net, loader, {"x": unknown}, progress=False)
        assert (found.accuracy, found.sets) == (expected.accuracy, expected.sets)


def floats(images: ImageSet) -> torch.Tensor:
    return torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255


def test_the_network_keeps_its_mode(known_test: ImageSet, outliers: ImageSet) -> None:
    net = Brightness().train()
    macs.evaluate(net, known_test, {"noise": outliers}, progress=False)
    assert net.training


def test_what_cannot_be_evaluated_is_refused(known_test: ImageSet, outliers: ImageSet) -> None:
    net = Brightness()
    with pytest.raises(MacsError, match="no labels"):
        macs.evaluate(net, outliers, {"x": known_test}, progress=False)
    with pytest.raises(MacsError, match="no OOD set"):
        macs.evaluate(net, known_test, {}, progress=False)
    with pytest.raises(MacsError, match="no score called 'mps'.*did you mean 'msp'"):
        macs.evaluate(net, known_test, {"x": outliers}, score="mps", progress=False)
    with pytest.raises(MacsError, match="OOD sets must be a dict of ImageSets by name"):
        macs.evaluate(net, known_test, cast(Any, outliers), progress=False)
    with pytest.raises(MacsError, match="OOD sets called 'x' must be an ImageSet, not the path"):
        macs.evaluate(net, known_test, {"x": cast(Any, "photos")}, progress=False)
    with torch.no_grad():
        net.scale.fill_(float("nan"))
    with pytest.raises(MacsError, match="logits that are not numbers"):
        macs.evaluate(net, known_test, {"x": outliers}, progress=False)


def learner(seed: int = 0) -> nn.Sequential:
    """A small network of someone else's, with a batch norm and a dropout that evaluation has to switch off."""
    torch.manual_seed(seed)
    trunk = (nn.Conv2d(3, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    net = nn.Sequential(*trunk, nn.Dropout(0.5), nn.Linear(32, 3))
    net.get_buffer("1.running_mean").normal_(0, 0.2)
    return net


def grainy(count: int, seed: int) -> ImageSet:
    """Stripes with noise on them: plain ones would leave most features of a network unused."""
    images, grains = stripes(count, seed), noise(count, seed)
    return replace(images, pixels=images.pixels[:] // 2 + grains.pixels[:] // 4)


@pytest.fixture(scope="module")
def train() -> ImageSet:
    return grainy(200, seed=11)


@pytest.fixture
def sets(outliers: ImageSet) -> dict[str, ImageSet]:
    return {"noise": outliers, "more": noise(50, seed=8)}


def test_a_fitted_score_agrees_with_scikit_learn(train: ImageSet, known_test: ImageSet, outliers: ImageSet) -> None:
    net = learner()
    table = macs.evaluate(net, known_test, {"noise": outliers}, score=KNN(k=5), train=train, progress=False)

    def features(images: ImageSet) -> np.ndarray:
        pixels = torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            net.eval()
            return normalize(net[:5](pixels).numpy())

    neighbours = NearestNeighbors(n_neighbors=5).fit(features(train))
    distances = [neighbours.kneighbors(features(images))[0][:, -1] for images in (known_test, outliers)]
    is_ood = np.r_[np.zeros(len(known_test)), np.ones(len(outliers))]
    assert table.sets[0].full.auroc == pytest.approx(roc_auc_score(is_ood, np.concatenate(distances)), abs=1e-4)
    assert table.score == "KNN(k=5)"


def test_a_ranking_holds_what_each_score_alone_gives(
    train: ImageSet, known_test: ImageSet, sets: dict[str, ImageSet]
) -> None:
    ranking = evaluate_scores(learner(), known_test, sets, train=train, fit_images=100, progress=False)
    names = [each.score for each in ranking.evaluations]
    assert sorted(names) == scores.available() and not ranking.left_out
    aurocs = [each.mean("auroc") for each in ranking.evaluations]
    assert aurocs == sorted(aurocs, reverse=True) and aurocs[0] > aurocs[-1]
    for name in names:
        alone = macs.evaluate(learner(), known_test, sets, score=name, train=train, fit_images=100, progress=False)
        assert ranking[name] == alone
    assert (ranking.train, ranking.train_images) == ("stripes", 100)


def test_all_scores_share_one_pass(train: ImageSet, known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    net = learner()
    passed = []
    net.register_forward_pre_hook(lambda module, inputs: passed.append(len(inputs[0])))
    names = [name for name in scores.available() if scores.get(name).reads != "pixels"]
    evaluate_scores(net, known_test, sets, names, train=train, progress=False)
    looks = 4 * 8  # a few images twice each time that the last layer is looked for
    assert sum(passed) == len(train) + len(known_test) + sum(map(len, sets.values())) + looks


def test_odin_is_computed_in_evaluation_mode(known_test: ImageSet, outliers: ImageSet) -> None:
    net = learner().train()
    table = macs.evaluate(net, known_test, {"noise": outliers}, score="odin", progress=False)
    assert net.training
    net.eval()
    pixels = [torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2).float() / 255 for images in (known_test, outliers)]
    outputs = (Outputs(net(each), pixels=each, net=net) for each in pixels)
    conf_in, conf_out = (scores.get("odin").confidence(each).numpy() for each in outputs)
    assert table.sets[0].full.auroc == pytest.approx(macs.metrics.ood_metrics(conf_in, conf_out).auroc, abs=1e-4)


def test_without_training_images_a_ranking_says_what_it_leaves_out(
    known_test: ImageSet, sets: dict[str, ImageSet]
) -> None:
    ranking = evaluate_scores(learner(), known_test, sets, ["msp", "knn", "scale"], progress=False)
    assert {each.score for each in ranking.evaluations} == {"msp", "scale"}
    assert "knn is left out: KNN is fitted to ID training images, but there are none" in " ".join(str(ranking).split())
    with pytest.raises(MacsError, match="^KNN is fitted to ID training images, but there are none"):
        macs.evaluate(learner(), known_test, sets, score="knn", progress=False)


def test_a_score_that_fails_on_some_image_is_left_out(known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    class Broken(scores.Score):
        def confidence(self, outputs: Outputs) -> Tensor:
            largest = outputs.logits.amax(1)
            return torch.log(largest - largest.max()) * 0

    ranking = evaluate_scores(learner(), known_test, sets, ["msp", Broken()], progress=False)
    assert list(ranking.left_out) == ["Broken()"]
    with pytest.raises(MacsError, match="not a number"):
        macs.evaluate(learner(), known_test, sets, score=Broken(), progress=False)


def test_a_ranking_as_json_and_as_a_table(train: ImageSet, known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    ranking = evaluate_scores(learner(), known_test, sets, ["msp", "knn", "vim"], train=train, progress=False)
    value = json.loads(json.dumps(ranking.as_dict()))
    assert list(value["scores"]) == [each.score for each in ranking.evaluations]
    assert value["scores"]["knn"]["ood"]["noise"]["draws"][3] == dict(ranking["knn"].sets[0].draws[3])
    assert value["fitted"] == {"train": "stripes", "images": len(train), "scores": ["knn", "vim"]}
    lines = str(ranking).splitlines()
    rows = [line for line in lines if any(f" {each.score} " in line for each in ranking.evaluations) and "│" in line]
    best = ranking.evaluations[0]
    assert f" {best.score} " in rows[0] and f"{100 * best.mean('auroc'):.2f}" in rows[0]
    assert f"{100 * best.sets[1].full.auroc:.2f}" in rows[3]
    for words in (
        "120 ID images of stripes",
        "noise 256, more 50",
        "OOD as positive",
        "200 training images of stripes",
    ):
        assert words in str(ranking)


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """A checkpoint, and images in class folders with and without splits."""
    for name, count in (("mine/train", 90), ("mine/test", 20), ("undivided", 20)):
        save(grainy(count, seed=count), tmp_path / name)
    np.save(tmp_path / "unknown.npy", noise(25, seed=4).pixels[:])
    nets.save(nets.build("wrn-10-1", classes=3), tmp_path / "net.safetensors")
    return tmp_path


def test_the_command_ranks_scores(on_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = ["--net", "wrn-10-1", "--checkpoint", on_disk / "net.safetensors", "--ood", on_disk / "unknown.npy"]
    run("evaluate", *network, "--id", on_disk / "mine", "--score", "all", "--json")
    captured = capsys.readouterr()
    slow = ["adascale-a", "adascale-l", "odin"]
    available = [name for name in scores.available() if name != "joint-energy"]  # which is for several labels
    assert f"all leaves out {', '.join(slow)}, since a gradient per image takes long;" in captured.err
    value = json.loads(captured.out)
    assert sorted(value["scores"]) == [name for name in available if name not in slow]
    assert value["fitted"]["images"] == 90 and value["net"] == "wrn-10-1"

    run("evaluate", *network, "--id", on_disk / "mine", "--score", "msp", "knn", "--fit-images", 9)
    assert "Fitted to 9 training images" in capsys.readouterr().out

    run("evaluate", *network, "--id", on_disk / "undivided", "--score", "all", "--json")
    value = json.loads(capsys.readouterr().out)
    assert "not divided into train and test" in value["left_out"]["knn"] and "msp" in value["scores"]


def test_the_command_standardises_sums_on_the_val_split_where_there_is_one(
    on_disk: Any, capsys: pytest.CaptureFixture[str]
) -> Any:
    def told(*names: str) -> dict[str, Any]:
        run(*arguments(on_disk), "--score", *names, "--json")
        value: dict[str, Any] = json.loads(capsys.readouterr().out)
        return value

    value = told("all", "odin", "adascale-a", "adascale-l", "msp+vim")
    assert sorted(value["scores"]) == sorted({*scores.available(), "msp+vim"} - {"joint-energy"})
    assert value["fitted"]["images"] == 90
    expected = {"held_out": str(on_disk / "mine"), "images": 22, "scores": ["msp+vim"]}
    assert value["standardised"] == expected  # a quarter of the 90
    assert value["fitted_held_out"] == expected | {"scores": ["adascale-a", "adascale-l"]}
    shutil.copytree(on_disk / "mine" / "test", on_disk / "mine" / "val")
    assert told("msp", "msp+energy")["standardised"] == expected | {"images": 20, "scores": ["msp+energy"]}


def arguments(on_disk: Path, id: str = "mine", weights: str = "net.safetensors") -> list[object]:
    network = ["--net", "wrn-10-1", "--checkpoint", on_disk / weights]
    return ["evaluate", *network, "--ood", on_disk / "unknown.npy", "--id", on_disk / id]


def test_settings_of_scores_are_given_by_their_names(on_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def aurocs(*words: object) -> dict[str, float]:
        run(*arguments(on_disk), *words, "--json")
        told = json.loads(capsys.readouterr().out)["scores"]
        return {name: each["mean"]["full"]["auroc"] for name, each in told.items()}

    net, load = nets.load(on_disk / "net.safetensors", "wrn-10-1"), macs.data.load
    test, unknown = load(on_disk / "mine", "test"), {"unknown": load(on_disk / "unknown.npy")}
    train = load(on_disk / "mine", "train")
    expected = macs.evaluate(net, test, unknown, score=KNN(k=1), train=train, progress=False)
    assert aurocs("--score", "knn", "msp", "--score.k", 1)["knn"] == expected.mean("auroc")
    assert "no setting of msp called 'k'" in refused(capsys, *arguments(on_disk), "--score", "msp", "--score.k", 1)


def test_a_fitted_score_stays_as_it_is(train: ImageSet, known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    net = learner()
    fitted = KNN(k=5).fit(scores.know(net, train, precision="float32"))
    found = macs.evaluate(net, known_test, sets, score=fitted, precision="float32", progress=False)
    again = macs.evaluate(net, known_test, sets, score=KNN(k=5), train=train, precision="float32", progress=False)
    assert found.sets == again.sets and found.score == again.score == "KNN(k=5)"
    with pytest.raises(MacsError, match="fitted to another network"):
        macs.evaluate(learner(1), known_test, sets, score=fitted, progress=False)


def test_the_command_refuses_wrong_scores_in_one_sentence(on_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no labels" in refused(capsys, *arguments(on_disk, "unknown.npy"))
    for id, name, words in (("mine", "knnn", "did you mean 'knn'"), ("undivided", "knn", "not divided into train")):
        assert words in refused(capsys, *arguments(on_disk, id), "--score", name)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--fit-images", -1, "must be 0 (for all) or more, not -1"),
        ("--trials", 1, "at least 2 and at most 10,000, not 1"),
        ("--trials", 10**12, "at most 10,000"),
        ("--share", "nan", "share must be a number, not nan"),
        ("--share", 1.5, "above 0 and at most 1, not 1.5"),
        ("--seed", -1, "seed must be at least 0"),
        ("--size", -1, "size must be at least 1 and at most 1,024, not -1"),
        ("--size", 0, "size must be at least 1 and at most 1,024, not 0"),
    ],
)
def test_numbers_out_of_bounds_get_one_sentence_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: float | str, words: str
) -> None:
    nothing = ["evaluate", "--net", "wrn-10-1", "--checkpoint", tmp_path / "no.pt", "--id", tmp_path / "no"]
    assert words in refused(capsys, *nothing, "--ood", tmp_path / "no.npy", option, value)


def test_python_refuses_the_same_numbers(known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    for options in ({"trials": 1}, {"share": float("nan")}, {"seed": -1}, {"fit_images": -1}):
        with pytest.raises(MacsError, match="must"):
            macs.evaluate(learner(), known_test, sets, progress=False, **options)


OWN_SCORES = """
from dataclasses import dataclass, field
import torch
from macs.scores import Score

class Raises(Score):
    def confidence(self, outputs):
        raise ValueError("no such thing")

class Wide(Score):
    def confidence(self, outputs):
        return outputs.logits

class Listed(Score):
    def confidence(self, outputs):
        return outputs.logits.amax(1).tolist()

class NoNumber(Score):
    def confidence(self, outputs):
        return outputs.logits.amax(1) / 0 * 0

class Needy(Score):
    def __init__(self, k):
        self.k = k

@dataclass
class Unfit(Score):
    fitted_to = "last layer"
    mean: torch.Tensor = field(init=False)

    def learn(self, known):
        raise KeyError("mean")

class Half(Score):
    def confidence(self, outputs):
        return outputs.logits.amax(1).bfloat16().requires_grad_()
"""


def test_faults_of_a_score_of_the_users_own_get_one_sentence(
    on_disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (on_disk / "faulty_scores.py").write_text(OWN_SCORES)
    monkeypatch.syspath_prepend(on_disk)
    expected = {
        "Raises": "The score Raises failed: ValueError: no such thing.",
        "Wide": "The score Wide gives (20, 3) for 20 images; it must return a tensor with one confidence per image.",
        "Listed": "The score Listed gives list for 20 images",
        "NoNumber": "mine get a confidence that is not a number",
        "Needy": "The score Needy failed: TypeError",
        "Unfit": "The score Unfit failed: KeyError: 'mean'.",
    }
    for name, words in expected.items():
        assert words in refused(capsys, *arguments(on_disk), "--score", f"faulty_scores:{name}")
    names = ("msp", "faulty_scores:Raises", "faulty_scores:Unfit", "faulty_scores:Half")
    run(*arguments(on_disk), "--score", *names, "--json")
    value = json.loads(capsys.readouterr().out)
    assert set(value["scores"]) == {"msp", "faulty_scores:Half"}
    assert set(value["left_out"]) == {"faulty_scores:Raises", "faulty_scores:Unfit"}


def test_a_network_at_chance_level_is_pointed_out(known_test: ImageSet, outliers: ImageSet) -> None:
    class Knows(nn.Module):
        """The right answer, or one that is always the same."""

        def __init__(self, right: float) -> None:
            super().__init__()
            self.answers = torch.from_numpy(known_test.labels).clone()
            self.answers[round(right * len(known_test)) :] = 3

        def forward(self, pixels: Tensor) -> Tensor:
            return 4 * nn.functional.one_hot(self.answers[torch.arange(len(pixels)) % len(self.answers)], 4).float()

    with pytest.warns(MacsWarning, match="is right on 45.0% of stripes.*33.3%"):
        macs.evaluate(Knows(0.45), known_test, {"noise": outliers}, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        macs.evaluate(Knows(0.6), known_test, {"noise": outliers}, progress=False)


def test_sets_that_are_the_same_are_pointed_out(known_test: ImageSet, outliers: ImageSet) -> None:
    def told(ood: dict[str, ImageSet]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            macs.evaluate(Brightness(), known_test, ood, progress=False)
        return [str(each.message) for each in caught if str(each.message).startswith("The OOD set")]

    again = replace(outliers, pixels=outliers.pixels[:].copy())
    (twice,) = told({"noise": outliers, "again": again})
    assert "The OOD sets noise and again hold the same images" in twice
    (itself,) = told({"mine": replace(known_test, name="copy")})
    assert "The OOD set mine holds the ID test images of stripes" in itself
    assert not told({"noise": outliers, "other": noise(len(outliers), seed=77)})


def test_the_classes_must_be_those_of_the_network(on_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = nets.build("wrn-10-1", classes=3)
    right = sorted(STRIPES)  # as folders are read
    nets.save(net, on_disk / "right.safetensors", class_names=right)
    nets.save(net, on_disk / "wrong.safetensors", class_names=["cat", *right[1:]])
    nets.save(nets.build("wrn-10-1", classes=4), on_disk / "four.safetensors", class_names=[*right, "wild"])
    run(*arguments(on_disk, weights="right.safetensors"), "--json")
    capsys.readouterr()
    wrong = refused(capsys, *arguments(on_disk, weights="wrong.safetensors"))
    assert "has the classes horizontal, plain, vertical" in wrong and "trained for cat, plain, vertical" in wrong
    more = refused(capsys, *arguments(on_disk, weights="four.safetensors"))
    assert "trained for horizontal, plain, vertical, wild" in more


def test_names_with_markup_are_printed_as_they_are(known_test: ImageSet, outliers: ImageSet) -> None:
    ood = {"[/red]": outliers, "[bold]x": noise(40, seed=5)}
    test = replace(known_test, name="[/]mine")
    text = str(macs.evaluate(Brightness(), test, ood, progress=False))
    assert "[/red]" in text and "[bold]x" in text and "[/]mine" in text
    assert "[/red]" in str(evaluate_scores(Brightness(), test, ood, ["msp", "energy"], progress=False))


def test_a_score_may_be_given_as_its_class(train: ImageSet, known_test: ImageSet, sets: dict[str, ImageSet]) -> None:
    by_class = macs.evaluate(learner(), known_test, sets, score=cast(Any, KNN), train=train, progress=False)
    assert by_class.sets == macs.evaluate(learner(), known_test, sets, score="knn", train=train, progress=False).sets
    with pytest.raises(MacsError, match="not a score"):
        macs.evaluate(learner(), known_test, sets, score=cast(Any, 7), progress=False)


def test_json_has_the_trapezoidal_aupr_of_openood_and_pytorch_ood(
    table: Evaluation, known_test: ImageSet, outliers: ImageSet
) -> None:
    conf_in, conf_out = (by_hand(images)[1] for images in (known_test, outliers))
    is_ood, unsure = np.repeat([0, 1], [len(conf_in), len(conf_out)]), -np.r_[conf_in, conf_out].astype(np.float32)
    value = table.as_dict()
    for name, labels, values in (("aupr_trapezoid", is_ood, unsure), ("aupr_trapezoid_id", 1 - is_ood, -unsure)):
        precision, recall, _ = precision_recall_curve(labels, values)
        assert value["ood"]["noise"]["full"][name] == pytest.approx(auc(recall, precision), abs=1e-4)
        assert "OpenOOD" in value["conventions"][name]
        assert name in value["mean"]["full"] and name in value["mean"]["draws"]


OWN_METRIC = """
from macs.metrics import Ranked, metric

@metric("fpr80", title="FPR80", better="lower", convention="share of ID images flagged when 80% of OOD are caught")
def fpr80(ranked: Ranked) -> float:
    return ranked.fpr(80)

def bare(ranked: Ranked) -> float:
    return 0.0
"""


@pytest.fixture
def own_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with a metric of the user's own, which is forgotten again."""
    (tmp_path / "own_metric.py").write_text(OWN_METRIC)
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(macs.metrics._registry.entries())
    yield "own_metric:fpr80"
    macs.metrics._registry._entries = before
    sys.modules.pop("own_metric", None)


def test_a_metric_from_outside_is_in_tables_that_ask_for_it_and_in_json(
    on_disk: Path, own_metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*arguments(on_disk), "--metrics", "auroc", own_metric)
    text = capsys.readouterr().out
    assert "FPR80 ↓" in text and "FPR80: share of ID images flagged when 80% of OOD are caught." in text
    assert "OOD passed" not in text.split("The JSON output")[0]
    assert "The JSON output has AUPR, ID lost at 95% of OOD caught, AUPR-ID" in text
    run(*arguments(on_disk), "--score", "msp", "energy", "--metrics", own_metric)
    assert "FPR80" in capsys.readouterr().out
    run(*arguments(on_disk), "--metrics", own_metric, "--json")
    value = json.loads(capsys.readouterr().out)
    (found,) = value["ood"].values()
    assert set(found["full"]) == set(found["draws"][0]) == set(value["mean"]["draws"]) >= {"fpr80", "fpr95"}
    assert value["conventions"]["fpr80"] == "share of ID images flagged when 80% of OOD are caught"


def test_wrong_metrics_get_one_sentence_before_anything_is_read(
    own_metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = ["evaluate", "--net", "wrn-10-1", "--checkpoint", tmp_path / "no.pt", "--id", tmp_path / "no"]
    for name, words in (("auroch", "did you mean 'auroc'"), ("own_metric:bare", "is not a metric; decorate")):
        assert words in refused(capsys, *nothing, "--ood", "no.npy", "--metrics", name)
