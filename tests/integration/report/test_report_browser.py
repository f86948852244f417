"""The page in a real Chromium: the slider by keys and mouse, on a desk and on a phone, by day and by night."""

from collections.abc import Iterator

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from chromium import NEEDED, complaints, started, visit
from macs.report.page import percent
from written import Written

pytestmark = NEEDED

# Colour, background and words of every element that holds text of its own and can be seen.
TEXTS = """
const seen = [];
const rgba = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own.length || !element.checkVisibility() || element.closest(".hidden, script, .skip")) continue;
  let behind = element;
  while (behind && (rgba(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  seen.push([rgba(getComputedStyle(element).color), rgba(getComputedStyle(behind || document.body).backgroundColor),
             own[0].textContent.trim()]);
}
return seen;
"""
# Elements that stick out of the window or of a caption, but for what lies in a box that scrolls by itself.
STICKING_OUT = """
return [...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect();
  const meant = element.closest(".scroll, .hidden, .skip, svg");
  const out = box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5);
  const cut = element.closest("figcaption") && element.scrollWidth > element.clientWidth && element.clientWidth > 0;
  return !meant && element.checkVisibility() && (out || cut);
}).map((element) => element.outerHTML.slice(0, 120));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = started(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


def shown_by(browser: webdriver.Chrome) -> tuple[float, list[str]]:
    """The threshold and the shares that the page shows."""
    shares = [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".bar .share")]
    return float(browser.find_element(By.ID, "value").text), shares


def expected(written: Written, threshold: float) -> list[str]:
    """The shares of a threshold, counted image by image."""
    known, *unknown = (written.confidences(images).tolist() for images in (written.test, *written.ood.values()))
    kept = sum(value >= threshold for value in known) / len(known)
    return [percent(kept), *(percent(sum(v < threshold for v in values) / len(values)) for values in unknown)]


def test_keys_move_the_threshold_and_every_number_follows(browser: webdriver.Chrome, written: Written) -> None:
    visit(browser, written.path.as_uri())
    slider = browser.find_element(By.ID, "slider")
    seen = [shown_by(browser)]
    for keys in ([Keys.ARROW_RIGHT] * 5, [Keys.HOME], [Keys.PAGE_UP] * 3, [Keys.PAGE_UP] * 2, [Keys.END]):
        slider.send_keys(*keys)
        seen.append(shown_by(browser))
    for threshold, shares in seen:
        assert shares == expected(written, threshold)
    thresholds = [threshold for threshold, _ in seen]
    assert thresholds[0] < thresholds[1] and thresholds[2] < thresholds[3] < thresholds[4] < thresholds[5]
    assert seen[2][1] == ["100%", "0%", "0%", "0%"]
    assert len({tuple(shares) for _, shares in seen}) >= 4
    spoken = slider.get_attribute("aria-valuetext")
    assert float(spoken.split(":")[0]) == thresholds[-1] and f"noise {seen[-1][1][1]} caught" in spoken
    assert complaints(browser) == []


def test_the_mouse_moves_the_threshold_and_the_marks_in_the_plots(browser: webdriver.Chrome, written: Written) -> None:
    visit(browser, written.path.as_uri())
    slider = browser.find_element(By.ID, "slider")
    steps = int(slider.get_attribute("max"))
    for part in (0.2, 0.7):
        ActionChains(browser).move_to_element_with_offset(
            slider, int((part - 0.5) * slider.size["width"]), 0
        ).click().perform()
        assert int(slider.get_attribute("value")) == pytest.approx(part * steps, abs=0.02 * steps)
        threshold, shares = shown_by(browser)
        assert shares == expected(written, threshold)
        thumb = slider.rect["x"] + 12 + int(slider.get_attribute("value")) / steps * (slider.rect["width"] - 24)
        marker = browser.find_element(By.CSS_SELECTOR, ".control .marker").rect
        assert marker["x"] + marker["width"] / 2 == pytest.approx(thumb, abs=1.5)
    kept = np.mean(written.confidences(written.test) >= threshold)
    caught = np.mean(written.confidences(written.ood["noise"]) < threshold)
    dot = browser.find_element(By.CSS_SELECTOR, "[data-dot='1']").get_attribute("d")
    x, y = (float(number) for number in dot[1:-2].split())
    assert (x, y) == pytest.approx((1000 * (1 - kept), 1000 * (1 - caught)))
    assert complaints(browser) == []


def test_a_button_goes_to_its_threshold_and_the_pictures_say_what_happens_to_them(
    browser: webdriver.Chrome, written: Written
) -> None:
    visit(browser, written.path.as_uri())
    for words, least in (("keep 99%", 0.99), ("keep 90%", 0.9)):
        browser.find_element(By.XPATH, f"//button[contains(., '{words}')]").click()
        threshold, shares = shown_by(browser)
        assert shares == expected(written, threshold)
        assert np.mean(written.confidences(written.test) >= threshold) >= least
        for picture in browser.find_elements(By.CSS_SELECTOR, ".picture"):
            keeps = float(picture.get_attribute("data-confidence")) >= threshold
            assert picture.find_element(By.CSS_SELECTOR, ".state").text == ("kept" if keeps else "flagged")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 375, 320])
def test_nothing_sticks_out_and_every_word_can_be_read(
    browser: webdriver.Chrome, written: Written, width: int, colours: str
) -> None:
    visit(browser, written.path.as_uri(), width, colours)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(STICKING_OUT) == []
    for ink, paper, words in browser.execute_script(TEXTS):
        assert contrast(ink, paper) >= 4.5, words
    dark = luminance(browser.execute_script(TEXTS)[0][1]) < 0.1
    assert dark == (colours == "dark")
    assert complaints(browser) == []


def test_hostile_names_run_nothing_and_nothing_is_loaded(browser: webdriver.Chrome, written: Written) -> None:
    visit(browser, written.path.as_uri())
    assert browser.execute_script("return window.pwned") is None
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    for name in written.test.classes:
        assert name in browser.find_element(By.ID, "summary").text


def luminance(colour: list[float]) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = np.array(colour[:3]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: list[float], other: list[float]) -> float:
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)
