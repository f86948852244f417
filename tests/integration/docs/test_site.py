"""The site as a reader gets it: built strictly, with every command, option and public name; and in a browser."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import axe_core_python
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import macs
import macs.cli
from chromium import NEEDED, complaints, started, visit
from macs.cli._app import app
from repository import ROOT

pytestmark = pytest.mark.docs

AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

# Public modules that a user gets by importing them by name, beside those in macs.__all__.
BY_NAME = ("macs.detector", "macs.experiments.margins", "macs.inference", "macs.sklearn")


class Page(HTMLParser):
    """The ids of a page, the files that it loads, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values.get("id") or ""}
        source = (
            values.get("src") if tag in ("script", "img", "iframe") else values.get("href") if tag == "link" else None
        )
        self.loads += [source] if source else []

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def leaves(name: str) -> list[tuple[str, list[str]]]:
    """A command, or its subcommands, each with the names of its options."""
    node = app[name]
    if node.default_command:
        return [(f"macs {name}", [argument.names[0] for argument in node.assemble_argument_collection()])]
    return [
        (f"macs {name} {each}", [argument.names[0] for argument in node[each].assemble_argument_collection()])
        for each in node
        if not each.startswith("-")
    ]


def test_every_command_has_a_page_with_every_option(site: Path) -> None:
    commands = [name for name in app if not name.startswith("-")]
    assert len(commands) == len(list((site / "commands").glob("*.html")))
    for command in commands:
        page = Page(site / "commands" / f"{command}.html")
        assert "mkdocs" not in page.text
        for usage, options in leaves(command):
            assert usage in page.text
            for option in options:
                assert option == "*" or re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", page.text), (
                    usage,
                    option,
                )


def public_modules() -> list[ModuleType]:
    inside = [getattr(macs, name) for name in macs.__all__]
    return [macs, *(each for each in inside if isinstance(each, ModuleType)), *map(importlib.import_module, BY_NAME)]


def public_names(module: ModuleType) -> set[str]:
    """Those in `__all__`, else all that the module's own file defines at its top without an underscore."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    source = Path(module.__file__ or "").read_text(encoding="utf-8")
    return set(re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", source, flags=re.MULTILINE))


def test_every_public_name_has_an_entry(site: Path) -> None:
    counted = 0
    for module in public_modules():
        ids = Page(site / "python" / f"{module.__name__}.html").ids
        missing = {name for name in public_names(module) if f"{module.__name__}.{name}" not in ids}
        assert not missing, f"{module.__name__} has no entry for {missing}"
        counted += len(public_names(module))
    assert counted > 140


@pytest.mark.parametrize("kind", [macs.Detector, macs.FeatureDetector, macs.Runtime, macs.FeatureRuntime])
def test_a_class_is_shown_with_the_methods_that_it_inherits(site: Path, kind: type) -> None:
    ids = Page(site / "python" / "macs.html").ids
    inherited = {name for each in kind.__mro__ for name in vars(each) if each is not object and name[0] != "_"}
    methods = {name for name in inherited if callable(getattr(kind, name)) and getattr(kind, name).__doc__}
    assert {"predict", "evaluate"} <= methods
    assert not {name for name in methods if f"{kind.__module__}.{kind.__qualname__}.{name}" not in ids}


def test_every_module_page_is_that_of_a_public_module(site: Path) -> None:
    assert {path.stem for path in (site / "python").glob("*.html")} == {module.__name__ for module in public_modules()}


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        if "repository" not in path.parts:
            assert not [each for each in Page(path).loads if re.match("(https?:)?//", each)], path


def test_what_belongs_to_an_item_of_a_list_stays_in_it(site: Path) -> None:
    text = (site / "detector.html").read_text(encoding="utf-8")
    before, table = text.split("share kept, 95% interval", 1)
    items = before[before.index('id="the-threshold"') :]
    assert items.count("<li>") == items.count("</li>") + 1, "the table is outside of its item"
    assert "</li>" in table[: table.index("<h3")]


def test_files_that_pages_link_to_are_copied(site: Path) -> None:
    for name in ("examples/your_loop.py", "deploy/kubernetes.yaml"):
        assert (site / "repository" / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    driver = started(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


class TestInAFolder:
    """The pages in a real Chromium, opened as files, without a server."""

    pytestmark = NEEDED

    @pytest.mark.parametrize("width", [390, 1280])
    def test_the_search_finds_a_page(self, browser: webdriver.Chrome, site: Path, width: int) -> None:
        visit(browser, (site / "python" / "macs.losses.html").as_uri(), width)
        browser.execute_script("document.querySelector('#__search').click()")
        WebDriverWait(browser, 60).until(lambda _: browser.find_element(By.CSS_SELECTOR, "[name=query]").is_displayed())
        browser.find_element(By.CSS_SELECTOR, "[name=query]").send_keys("conformal")
        found = WebDriverWait(browser, 60).until(
            lambda _: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        )
        addresses = {each.get_attribute("href").partition("?")[0] for each in found}
        assert (site / "promises.html").as_uri() in addresses or (site / "detector.html").as_uri() in addresses
        assert complaints(browser) == []

    @pytest.mark.parametrize(
        "page", ["index.html", "detector.html", "python/macs.losses.html", "commands/predict.html"]
    )
    def test_a_page_is_as_wide_as_a_phone_and_as_dark_as_the_night(
        self, browser: webdriver.Chrome, site: Path, page: str
    ) -> None:
        brightness = []
        for colours in ("light", "dark"):
            visit(browser, (site / page).as_uri(), 390, colours)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
            colour = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
            brightness.append(sum(map(int, re.findall(r"\d+", colour)[:3])))
        assert brightness[0] > 700 and brightness[1] < 200

    @pytest.mark.parametrize("width", [390, 1280])
    @pytest.mark.parametrize("page", ["index.html", "compared.html", "detector.html", "python/macs.losses.html"])
    def test_axe_finds_nothing_serious(self, browser: webdriver.Chrome, site: Path, page: str, width: int) -> None:
        for colours in ("light", "dark"):
            visit(browser, (site / page).as_uri(), width, colours)
            browser.execute_script(AXE)
            found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
            assert found["passes"]
            serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
            assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []
