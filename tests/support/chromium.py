"""A real Chromium without a window: how tests of pages start it, at which width, and by day or by night."""

import shutil
from pathlib import Path

import pytest
from selenium import webdriver

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEEDED = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no chromium with its chromedriver on the PATH"),
]


def started(folder: Path) -> webdriver.Chrome:
    """A browser with a new profile in that folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(DRIVER))


def visit(browser: webdriver.Chrome, address: str, width: int = 1280, colours: str = "light") -> None:
    window = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", window)
    wishes = {"prefers-color-scheme": colours, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(address)


def complaints(browser: webdriver.Chrome) -> list[str]:
    """What the browser wrote to its console since it was last asked."""
    return [entry["message"] for entry in browser.get_log("browser")]
