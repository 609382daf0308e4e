"""The browser of the tests of pages, driven by Playwright."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .judges import need_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A browser for one file.

    While Playwright's API for plain functions is open, asyncio takes its loop for the running one of this thread. Tests
    of other files would see that loop: a second Playwright refuses to start, and code that asks for asyncio finds it.
    """
    program = need_program("chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=QUIET)
        yield browser
        browser.close()
