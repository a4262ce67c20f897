"""An installed Chromium, driven through playwright, for tests that need a real browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without a sandbox of its own, for root has none; without what asks the network for something.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def browser_path() -> str | None:
    """Return where Chromium is, or None."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def what_is_missing() -> str:
    """Return what keeps a browser from being started, or ""."""
    if find_spec("playwright") is None:
        return "no playwright; it is in the dev extra"
    if browser_path() is None:
        return f"no Chromium: none of {', '.join(_NAMES)} is on PATH"
    return ""


@contextmanager
def chromium() -> Iterator["Browser"]:
    """Give a Chromium with a new, empty profile, and end it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()
