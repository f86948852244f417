"""The page, read back by a parser: its numbers, its images, and what hostile names must not do to it."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import macs
from macs import report
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.inference import outputs_of
from macs.metrics import shown
from macs.report.page import percent, short
from tiny import noise, stripes
from written import Written

pytestmark = pytest.mark.filterwarnings("ignore:The network names", "ignore:The OOD set")

VOID = {"meta", "wbr", "link", "img", "input", "br"}


class Element:
    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return re.sub(r"\s+", " ", "".join(parts)).strip()

    def all(self, tag: str = "", **attributes: str) -> list["Element"]:
        """Every element below with that tag and those attributes; `class_` is one of its classes."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                same = all(
                    value in child.attributes.get(key.rstrip("_"), "").split() for key, value in attributes.items()
                )
                found += ([child] if same and tag in ("", child.tag) else []) + child.all(tag, **attributes)
        return found


class Page(HTMLParser):
    """A tree of the page; unclosed or crossing tags are errors."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]
        self.feed(html)
        self.close()
        assert self.open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        assert len(element.attributes) == len(attrs)
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


@pytest.fixture(scope="module")
def page(written: Written) -> Element:
    return Page(written.html).root


def rows(page: Element, id: str) -> list[list[str]]:
    (table,) = page.all("table", id=id)
    return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in table.all("tr")[1:]]


def test_both_protocols_hold_the_numbers_of_the_evaluation(written: Written, page: Element) -> None:
    numbers = macs.evaluate(written.net, written.test, written.ood, precision="float32", progress=False).as_dict()
    columns = [metric.name for metric in shown()]
    full, draws = rows(page, "full"), rows(page, "draws")
    for (name, result), cells, drawn in zip(numbers["ood"].items(), full, draws, strict=False):
        assert cells == [name, str(result["images"]), *(f"{100 * result['full'][metric]:.2f}" for metric in columns)]
        for metric, cell in zip(columns, drawn[2:], strict=True):
            values = 100 * np.array([draw[metric] for draw in result["draws"]])
            assert cell == f"{values.mean():.2f} ± {values.std(ddof=1) / np.sqrt(10):.2f}"
    assert full[-1] == ["mean", "", *(f"{100 * numbers['mean']['full'][metric]:.2f}" for metric in columns)]
    assert [row[1] for row in draws] == ["30", "30", "30", ""]  # a fifth of 150
    assert len(full) == len(draws) == 4


def test_the_tiles_and_the_download_hold_the_same_numbers(written: Written, page: Element) -> None:
    evaluation = written.evaluation
    tiles = [tile.all("b")[0].text for tile in page.all(class_="tiles")[0].all("li")]
    means = (evaluation.accuracy, *(evaluation.mean(metric) for metric in ("auroc", "fpr95_id", "fpr95")))
    assert tiles == [percent(value) for value in means]
    (link,) = page.all("a", download="evaluation.json")
    assert json.loads(base64.b64decode(link.attributes["href"].split(",", 1)[1])) == evaluation.as_dict()


def test_both_conventions_are_named(page: Element) -> None:
    text = page.text
    for words in (
        "OOD as positive",
        "ID as positive",
        "95% of OOD images are caught",
        "95% of ID images are kept",
    ):
        assert words in text


def test_the_slider_starts_where_95_percent_of_the_known_images_are_kept(written: Written, page: Element) -> None:
    steps = json.loads(page.all("script", id="steps")[0].text)
    (slider,) = page.all("input", id="slider")
    start = int(slider.attributes["value"])
    threshold = steps["values"][start]
    assert page.all("output", id="value")[0].text == f"{threshold:.15g}"
    known = written.confidences(written.test)
    assert (known >= threshold).mean() >= 0.95
    assert (known >= steps["values"][start + 1]).mean() < 0.95
    shown = [row.all(class_="share")[0].text for row in page.all("tr", class_="bar")]
    caught = [(written.confidences(images) < threshold).mean() for images in written.ood.values()]
    assert shown == [percent(share) for share in ((known >= threshold).mean(), *caught)]
    for images, kept in zip((written.test, *written.ood.values()), steps["kept"], strict=True):
        confidences = written.confidences(images).tolist()
        assert kept == [sum(value >= each for value in confidences) for each in steps["values"]]


def test_the_pictures_are_the_most_and_the_least_confident_images(written: Written, page: Element) -> None:
    grids = page.all(class_="pictures")
    assert len(grids) == 1 + len(written.ood)
    for sign, images, grid in zip((1, -1, -1, -1), (written.test, *written.ood.values()), grids, strict=True):
        confidences = written.confidences(images)
        order = sorted(range(len(images)), key=lambda i: (sign * confidences[i], i))
        assert len(grid.all("img")) == 8
        for i, figure in zip(order, grid.all("figure"), strict=False):
            kind, content = figure.all("img")[0].attributes["src"].split(",", 1)
            assert kind == "data:image/png;base64"
            np.testing.assert_array_equal(Image.open(BytesIO(base64.b64decode(content))), images.pixels[:][i])
            assert float(figure.attributes["data-confidence"]) == confidences[i]
            assert short(float(confidences[i])) in figure.text
            if images.labels is not None:
                assert images.classes[images.labels[i]] in figure.all("img")[0].attributes["alt"]


def test_wrong_answers_to_known_images_are_marked(written: Written, page: Element) -> None:
    predictions = macs.scores.ask(written.net, written.test, "msp", "float32").index
    order = np.argsort(written.confidences(written.test), kind="stable")
    for i, figure in zip(order, page.all(class_="pictures")[0].all("figure"), strict=False):
        assert ("✓" in figure.text) == (predictions[i] == written.test.labels[i])


def test_hostile_names_are_shown_and_do_nothing(written: Written, page: Element) -> None:
    names = (written.test.name, *written.test.classes, *written.ood)
    for name in names:
        assert re.sub(r"\s+", " ", name) in page.text
    assert len(page.all("script")) == 2
    assert not [element for element in page.all() if any(key.startswith("on") for key in element.attributes)]
    assert {image.attributes["src"][:22] for image in page.all("img")} == {"data:image/png;base64,"}
    assert "<i onclick=x>?.png" in page.all(class_="pictures")[2].all("img")[0].attributes["alt"]


def test_the_page_is_complete_and_may_load_nothing(page: Element) -> None:
    for element in page.all():
        for key in ("src", "href"):
            assert element.attributes.get(key, "#").startswith(("#", "data:"))
    assert "url(" not in page.all("style")[0].text and "@import" not in page.all("style")[0].text
    policy = next(meta.attributes["content"] for meta in page.all("meta") if "http-equiv" in meta.attributes)
    script = next(child for child in page.all("script")[1].children if isinstance(child, str))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy


def test_everything_that_is_drawn_has_words(page: Element) -> None:
    for element in page.all():
        if element.attributes.get("role") == "img":
            assert len(element.attributes["aria-label"]) > 20
        if element.tag == "img":
            assert "taken for" in element.attributes["alt"]
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link.attributes["href"].startswith("data:") or link.attributes["href"][1:] in ids


def test_the_training_is_shown(written: Written, page: Element) -> None:
    epochs = [json.loads(line) for line in (written.run / "metrics.jsonl").read_text().splitlines()]
    (training,) = page.all("section", id="training")
    loss = training.all("svg", role="img")[0].attributes["aria-label"]
    assert f"from {epochs[0]['loss']:.3g} to {epochs[-1]['loss']:.3g}" in loss
    assert len(training.all("figure")) == 4 and "margin 0.3" in training.text
    assert training.all("pre")[0].text == " ".join((written.run / "recipe.toml").read_text().split())


def test_the_same_findings_give_the_same_bytes(written: Written, tmp_path: Path) -> None:
    again = tmp_path / "again.html"
    options: Any = {"run": written.run, "precision": "float32", "progress": False}
    report.write(again, written.net, written.test, written.ood, **options)
    assert again.read_bytes() == written.path.read_bytes()


class Brightness(nn.Module):
    """Logits from the mean brightness; wide images need no training."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, classes))

    def forward(self, pixels: Tensor) -> Tensor:
        return 50 * pixels.mean(dim=(1, 2, 3), keepdim=True)[:, 0, 0] * self.weight


def test_without_a_run_there_is_no_training_and_large_images_stay_below_two_megabytes(tmp_path: Path) -> None:
    ood = {f"set {number}": noise(12, number, size=160) for number in range(11)}
    report.write(tmp_path / "page.html", Brightness(), stripes(30, 0, size=160), ood, progress=False)
    page = Page((tmp_path / "page.html").read_text()).root
    assert not page.all("section", id="training")
    assert len(page.all("img")) == 96 and (tmp_path / "page.html").stat().st_size < 2_000_000
    assert Image.open(BytesIO(base64.b64decode(page.all("img")[9].attributes["src"][22:]))).size == (64, 64)


@pytest.mark.parametrize("score", ["energy", "knn"])
def test_scores_beyond_probabilities(written: Written, tmp_path: Path, score: str) -> None:
    train = stripes(60, seed=9)
    ood = {"noise": noise(20, seed=8)}
    test = stripes(40, seed=7)
    report.write(tmp_path / "page.html", written.net, test, ood, score=score, train=train, progress=False)
    assert f"the score {score}" in Page((tmp_path / "page.html").read_text()).root.text


def test_the_nearest_training_images_are_those_of_the_smallest_angle(written: Written, tmp_path: Path) -> None:
    """Among the training images is each known one again; the others are found by the cosine that NumPy computes."""
    train, ood = stripes(90, seed=9), {"noise": noise(20, seed=8)}
    test = replace(train.subset(np.arange(40)), name="again")
    report.write(tmp_path / "page.html", written.net, test, ood, score="msp+knn", train=train, progress=False)
    (section,) = Page((tmp_path / "page.html").read_text()).root.all("section", id="nearest")
    groups = section.all("div", class_="comparison")
    assert len(groups) == 8
    for group in groups[:4]:
        assert group.all("li")[0].text.endswith("1.00")
    features = {
        name: torch.cat([out.features for out in outputs_of(written.net, images, features=True)]).numpy()
        for name, images in (("train", train), ("noise", ood["noise"]))
    }
    unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in features.items()}
    for group in groups[4:]:
        position = int(re.findall(r"\[(\d+)\]", group.all("img")[0].attributes["alt"])[0])
        nearest = np.argsort(-(unit["train"] @ unit["noise"][position]))[:3]
        shown = [each.attributes["title"] for each in group.all("li")]
        assert shown == [train.name_of(int(i)) for i in nearest]
        assert [each.all("span")[0].text for each in group.all("li")] == [
            train.classes[train.labels[i]] for i in nearest
        ]


def test_a_score_of_the_logits_compares_nothing(page: Element) -> None:
    assert not page.all("section", id="nearest")


def test_one_image_a_set_and_equal_confidences(tmp_path: Path) -> None:
    black = ImageSet.from_array(np.zeros((1, 8, 8, 3), np.uint8), [0], ["dark", "light"])
    report.write(tmp_path / "page.html", Brightness(2), black, {"same": black}, progress=False)
    assert Page((tmp_path / "page.html").read_text()).root.all("table", id="full")


def test_what_cannot_be_reported_is_refused_and_nothing_is_written(written: Written, tmp_path: Path) -> None:
    target, test, ood = tmp_path / "page.html", stripes(20, 0), {"noise": noise(20, 1)}

    def refused(words: str, test: ImageSet = test, ood: dict[str, ImageSet] = ood, **options: Any) -> None:
        with pytest.raises(MacsError, match=words):
            report.write(target, written.net, test, ood, progress=False, **options)

    refused("no labels", test=noise(20, 1))
    refused("no OOD set", ood={})
    refused("did you mean 'msp'", score="mps")
    refused("fitted to ID training images", score="knn")
    refused("no recipe at", run=tmp_path)
    (tmp_path / "recipe.toml").write_text((written.run / "recipe.toml").read_text())
    refused("metrics.jsonl", run=tmp_path)
    whole = (written.run / "metrics.jsonl").read_text().splitlines()[0]
    worded, endless = ({**json.loads(whole), "loss": value} for value in ("0.5", math.nan))
    for broken in ('{"epoch": 1', '{"epoch": 1}', "7", json.dumps(worded), json.dumps(endless), "\xff"):
        (tmp_path / "metrics.jsonl").write_text(broken)
        refused("metrics.jsonl", run=tmp_path)
    assert not target.exists()


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.0004, "<0.1%"),
        (0.99951, ">99.9%"),
        (0.5, "50.0%"),
        (0.9994, "99.9%"),
        (0.0006, "0.1%"),
        (0.1225, "12.3%"),
    ],
)
def test_what_is_not_nothing_or_all_does_not_read_so(share: float, words: str) -> None:
    assert percent(share) == words


def test_a_confidence_just_below_one_does_not_read_as_one() -> None:
    values = {1.0: "1", 0.99999994: "0.9999999", 0.999981: "0.99998", 0.25: "0.25", 12.3456: "12.35"}
    assert [short(value) for value in values] == list(values.values())


def test_a_prediction_beyond_the_class_names_has_a_number(tmp_path: Path) -> None:
    test = replace(stripes(20, 0), classes=("a", "b", "c"))
    report.write(tmp_path / "page.html", Brightness(5), test, {"noise": noise(5, 1)}, progress=False)
    assert "class 4" in (tmp_path / "page.html").read_text()


def test_the_page_says_how_often_the_most_confident_are_right(written: Written, tmp_path: Path) -> None:
    """The curve goes through the error rates counted here, and the probabilities are those of the network."""
    page = Page(written.path.read_text(encoding="utf-8")).root
    (figure,) = page.all(id="selective")
    logits = answers_of(written.net, written.test)
    confidences, right = logits.softmax(dim=1).amax(dim=1).numpy(), logits.argmax(dim=1).numpy() == written.test.labels
    risks = np.array([risk_of_the_first(k, confidences, right) for k in range(1, len(right) + 1)])
    described = figure.all("svg")[0].attributes["aria-label"]
    assert f"AURC, is {100 * risks.mean():.2f}%" in described
    terms = dict(zip((e.text for e in page.all("dt")), (e.text for e in page.all("dd")), strict=True))
    assert terms["50% answered"].startswith(percent(1 - risks[math.ceil(0.5 * len(right)) - 1], 2))
    ece = macs.metrics.expected_calibration_error(right, confidences)
    assert f"by {percent(ece, 2)} (expected calibration error, ECE)" in terms["Class probabilities"]
    assert "temperature" not in terms["Class probabilities"]  # no held-out images

    report.write(
        tmp_path / "scaled.html",
        written.net,
        written.test,
        written.ood,
        held_out=stripes(60, seed=9),
        precision="float32",
        progress=False,
    )
    text = Page((tmp_path / "scaled.html").read_text(encoding="utf-8")).root.text
    held_out = answers_of(written.net, stripes(60, seed=9))
    known = (held_out.argmax(dim=1).numpy() == stripes(60, seed=9).labels).all()
    assert ("The temperature changes no verdict" in text) == (not known)


def risk_of_the_first(count: int, confidences: np.ndarray, right: np.ndarray) -> float:
    """The error rate of the most confident; of images that tie for the last places, the share that fits counts."""
    last = np.sort(confidences)[-count]
    above, ties = confidences > last, confidences == last
    return float((~right[above]).sum() + (count - above.sum()) * (~right[ties]).mean()) / count


@torch.no_grad()
def answers_of(net: nn.Module, images: ImageSet) -> Tensor:
    logits: Tensor = net.eval()(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2).float() / 255)
    return logits
