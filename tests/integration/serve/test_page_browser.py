"""The service's page in a real Chromium, before a real `macs serve`: images in, verdicts out, and what moves them."""

import csv
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

import macs
from chromium import NEEDED, complaints, started, visit
from macs.predictions import Verdict
from macs.training import starting_net
from macs.training.recipe import Recipe
from running import serving
from tiny import noise, stripes

pytestmark = NEEDED

AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror='window.pwned = 1'>"
PER_REQUEST = 8

# An event as the browser makes it of files that a person pastes.
PASTE = """
const [name, bytes] = arguments;
const transfer = new DataTransfer();
transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
"""


@dataclass(frozen=True)
class Site:
    """A served detector, files to show it, and what the detector itself says of them."""

    detector: Path
    folder: Path
    expected: dict[str, Verdict]

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.is_file())


def photographs(folder: Path, known: int, unknown: int) -> None:
    for name, images in (("stripes", stripes(known, seed=2)), ("noise", noise(unknown, seed=5))):
        for index, pixels in enumerate(images.pixels[:]):
            Image.fromarray(pixels).save(folder / f"{name}-{index:03}.png")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    net = starting_net("wrn-10-1", classes=3)
    recipe = Recipe(margin=0.3, epochs=3, batch_in=32, batch_out=32, lr=0.05, precision="float32")
    macs.finetune(net, stripes(192, seed=1), noise(192, seed=3), recipe=recipe, progress=False)
    path = folder / "detector.onnx"
    macs.Detector(net).calibrate(stripes(200, seed=7), keep=0.9).export(path)
    images = folder / "images"
    images.mkdir()
    photographs(images, known=13, unknown=9)
    (images / f"{HOSTILE}.png").write_bytes((images / "noise-000.png").read_bytes())
    (images / "broken.png").write_bytes((images / "noise-000.png").read_bytes()[:100])
    rows = macs.Runtime(path).predict_files([images])
    return Site(path, images, {Path(row.path).name: row for row in rows})


@pytest.fixture(scope="module")
def address(site: Site) -> Iterator[str]:
    with serving(site.detector, "--max-images", PER_REQUEST) as service:
        yield service.url + "/"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = started(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def until(found: Callable[[], Any]) -> Any:
    for _ in range(600):
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen within 30 seconds")


def opened(browser: webdriver.Chrome, address: str, width: int = 1280, colours: str = "light") -> None:
    visit(browser, address, width, colours)
    until(lambda: browser.find_element(By.ID, "slider").is_enabled())


def choose(browser: webdriver.Chrome, files: list[Path]) -> None:
    browser.find_element(By.ID, "files").send_keys("\n".join(map(str, files)))


def answered(browser: webdriver.Chrome, count: int) -> list[dict[str, str]]:
    """The cards, once there are so many answers: what each says, by the classes of its parts."""
    words = f"{count} image{'s' if count > 1 else ''}:"
    until(lambda: browser.find_element(By.ID, "status").text.startswith(words))
    script = """
    const text = (card, selector) => card.querySelector(selector).innerText;
    return [...document.querySelectorAll(".result")].map((card) => ({
      name: text(card, ".name bdi"), verdict: text(card, ".verdict"), class: text(card, ".class bdi"),
      confidence: text(card, ".confidence"), p: text(card, ".p"),
    }));
    """
    return browser.execute_script(script)


def limits(card: dict[str, str]) -> tuple[float, float]:
    """Confidence and threshold, of which the sign between them tells the larger."""
    confidence, sign, threshold = re.fullmatch(r"confidence (\S+) ([≥<]) (\S+)", card["confidence"]).groups()
    assert sign == ("≥" if card["verdict"] == "KNOWN" else "<")
    return float(confidence), float(threshold)


def drop(browser: webdriver.Chrome, *paths: Path) -> None:
    """As a file manager does it, through the browser's own input."""
    place = browser.find_element(By.ID, "drop").rect
    data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
    where = {"x": place["x"] + place["width"] / 2, "y": place["y"] + 10, "data": data}
    for kind in ("dragEnter", "dragOver", "drop"):
        browser.execute_cdp_cmd("Input.dispatchDragEvent", {"type": kind, **where})


def test_dropped_images_get_the_verdicts_of_the_detector(browser: webdriver.Chrome, address: str, site: Site) -> None:
    opened(browser, address)
    drop(browser, *site.files)
    cards = answered(browser, len(site.files))
    assert [card["name"] for card in cards] == [path.name for path in site.files]
    for card in cards:
        row = site.expected[card["name"]]
        if row.reason:
            assert card["verdict"] == "NO ANSWER" and len(card["class"]) > 20
            continue
        assert card["verdict"] == ("UNKNOWN" if row.is_ood else "KNOWN")
        assert card["class"] == row.class_
        assert limits(card)[0] == pytest.approx(row.confidence, rel=1e-3)
        assert float(card["p"].removeprefix("p-value ")) == pytest.approx(row.p_value, rel=0.06)
    verdicts = [card["verdict"] for card in cards]
    assert verdicts.count("KNOWN") >= 5 and verdicts.count("UNKNOWN") >= 5 and verdicts.count("NO ANSWER") == 1
    tiles = [tile.text for tile in browser.find_elements(By.CSS_SELECTOR, "#filters b")]
    assert tiles == [str(len(cards)), *(str(verdicts.count(each)) for each in ("KNOWN", "UNKNOWN", "NO ANSWER"))]
    assert browser.execute_script("return window.pwned") is None
    assert complaints(browser) == []


def test_a_dropped_folder_is_searched_and_pictures_are_shown(
    browser: webdriver.Chrome, address: str, site: Site
) -> None:
    opened(browser, address)
    drop(browser, site.folder)
    cards = answered(browser, len(site.files))
    assert sorted(card["name"] for card in cards) == [path.name for path in site.files]
    sizes = "return [...document.querySelectorAll('.result img:not([hidden])')].map((image) => image.naturalWidth)"
    until(lambda: browser.execute_script(sizes) == [16] * (len(cards) - 1))  # all but the broken one


def test_a_pasted_image_gets_a_verdict(browser: webdriver.Chrome, address: str, site: Site) -> None:
    opened(browser, address)
    file = site.folder / "stripes-001.png"
    browser.execute_script(PASTE, file.name, list(file.read_bytes()))
    (card,) = answered(browser, 1)
    assert card["class"] == site.expected[file.name].name


def test_the_slider_judges_anew_and_says_what_it_keeps(browser: webdriver.Chrome, address: str, site: Site) -> None:
    opened(browser, address)
    choose(browser, site.files)
    count = len(site.files)
    first = answered(browser, count)
    slider = browser.find_element(By.ID, "slider")
    calibration = macs.Runtime(site.detector).p_values.confidences
    seen = set()
    for keys in ([Keys.HOME], [Keys.PAGE_UP] * 4, [Keys.PAGE_UP] * 4, [Keys.ARROW_LEFT] * 7, [Keys.END]):
        slider.send_keys(*keys)
        cards = [card for card in answered(browser, count) if card["confidence"]]
        thresholds = {limits(card)[1] for card in cards}
        (threshold,) = thresholds
        for card in cards:
            known = site.expected[card["name"]].confidence >= threshold
            assert card["verdict"] == ("KNOWN" if known else "UNKNOWN")
        kept = re.search(r"keeps about [<>]?(\d+)%", slider.get_attribute("aria-valuetext"))
        assert float(kept[1]) / 100 == pytest.approx(np.mean(calibration >= threshold), abs=0.035)
        assert f"keeps about {kept[0].split()[-1]}" in browser.find_element(By.ID, "kept").text
        line = browser.find_element(By.ID, "line").rect
        assert line["x"] + 1 == pytest.approx(slider.rect["x"] + 12 + threshold * (slider.rect["width"] - 24), abs=1.5)
        seen.add(tuple(card["verdict"] for card in cards))
    assert len(seen) >= 3
    browser.find_element(By.XPATH, "//button[text()='calibrated']").click()
    assert answered(browser, count) == first
    assert complaints(browser) == []


def test_the_histogram_counts_every_confidence(browser: webdriver.Chrome, address: str, site: Site) -> None:
    opened(browser, address)
    choose(browser, site.files)
    answered(browser, len(site.files))
    label = browser.find_element(By.ID, "plot").get_attribute("aria-label")
    values = [row.confidence for row in site.expected.values() if not row.reason]
    unknown = sum(row.is_ood for row in site.expected.values() if not row.reason)
    assert f"{len(values)} confidences" in label
    assert f"{len(values) - unknown} known, {unknown} unknown" in label
    heights = browser.execute_script(
        "return [...document.querySelectorAll('#bars .unknown')].map((bar) => [bar.style.left, bar.style.height])"
    )
    counts = np.bincount(np.minimum((40 * np.array(values)).astype(int), 39), minlength=40)
    found = {float(left[:-1]): (float(height[:-1]) / 100) ** 2 for left, height in heights}
    assert found == pytest.approx({2.5 * i: count / counts.max() for i, count in enumerate(counts) if count}, rel=1e-3)


def test_csv_holds_what_the_page_shows(browser: webdriver.Chrome, address: str, site: Site, tmp_path: Path) -> None:
    opened(browser, address)
    formula = tmp_path / '=1+1, or \x1b "2".png'
    formula.write_bytes((site.folder / "noise-001.png").read_bytes())
    choose(browser, [*site.files, formula])
    answered(browser, len(site.files) + 1)
    slider = browser.find_element(By.ID, "slider")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    cards = answered(browser, len(site.files) + 1)
    folder = tmp_path / "downloads"
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    browser.find_element(By.ID, "download").click()
    until((folder / "verdicts.csv").exists)
    with (folder / "verdicts.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(cards)
    for row, card in zip(rows, cards, strict=True):
        assert row["path"] == ('\'=1+1, or \\x1b "2".png' if card["name"].startswith("=") else card["name"])
        if card["verdict"] == "NO ANSWER":
            assert row["reason"] == card["class"] and row["is_ood"] == ""
            continue
        expected = site.expected.get(card["name"], site.expected["noise-001.png"])
        assert row["is_ood"] == ("true" if card["verdict"] == "UNKNOWN" else "false")
        assert (row["class"], int(row["index"])) == (expected.class_, expected.index)
        assert float(row["confidence"]) == pytest.approx(expected.confidence, abs=1e-6)
        assert float(row["p_value"]) == pytest.approx(expected.p_value, abs=1e-6)
        assert (float(row["confidence"]) < float(row["threshold"])) == (card["verdict"] == "UNKNOWN")


def test_more_images_than_a_request_may_hold_are_all_answered_in_order(
    browser: webdriver.Chrome, address: str, tmp_path: Path
) -> None:
    photographs(tmp_path, known=40, unknown=40)
    opened(browser, address)
    files = sorted(tmp_path.iterdir())
    choose(browser, files)
    cards = answered(browser, 80)
    assert [card["name"] for card in cards] == [path.name for path in files[:60]]
    requests = (
        "return performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('predict')).length"
    )
    assert browser.execute_script(requests) == 80 / PER_REQUEST
    browser.find_element(By.ID, "more").click()
    assert [card["name"] for card in answered(browser, 80)] == [path.name for path in files]
    assert not browser.find_element(By.ID, "more").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "[data-show=unknown]").click()
    assert {card["verdict"] for card in answered(browser, 80)} == {"UNKNOWN"}


@pytest.fixture
def locked(site: Site) -> Iterator[str]:
    with serving(site.detector, MACS_API_KEY="open sesame") as service:
        yield service.url + "/"


def test_a_service_with_a_key_asks_for_it(browser: webdriver.Chrome, locked: str, site: Site) -> None:
    visit(browser, locked)
    field = browser.find_element(By.ID, "key")
    until(field.is_displayed)
    field.send_keys("guess", Keys.ENTER)
    until(lambda: "not accepted" in browser.find_element(By.ID, "status").text)
    field.clear()
    field.send_keys("open sesame", Keys.ENTER)
    until(lambda: browser.find_element(By.ID, "slider").is_enabled())
    assert not field.is_displayed()
    choose(browser, site.files[:2])
    assert len(answered(browser, 2)) == 2
    assert all("401" in line for line in complaints(browser))


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_everybody_can_use_it_at_every_width_by_day_and_by_night(
    browser: webdriver.Chrome, address: str, site: Site, width: int, colours: str
) -> None:
    opened(browser, address, width, colours)
    choose(browser, site.files)
    answered(browser, len(site.files))
    browser.find_element(By.CSS_SELECTOR, "#reading summary").click()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    assert len(found["passes"]) > 20
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (int(re.search(r"\d+", paper)[0]) < 100) == (colours == "dark")
    assert complaints(browser) == []


def test_the_keyboard_reaches_everything_in_order(browser: webdriver.Chrome, address: str, site: Site) -> None:
    opened(browser, address)
    choose(browser, site.files[:3])
    answered(browser, 3)
    browser.execute_script("document.activeElement.blur()")
    reached = []
    for _ in range(16):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(browser.execute_script("return document.activeElement.id || document.activeElement.innerText"))
    wanted = ["files", "download", "clear", "slider", "calibrated"]
    assert [each for each in reached if each in wanted] == wanted
