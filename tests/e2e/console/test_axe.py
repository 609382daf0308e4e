"""axe-core finds nothing wrong on any page of the console, light and dark, in both languages."""

from collections.abc import Callable

import pytest

from .axe import Axe, need_axe
from .conftest import Console, Server

pytestmark = [pytest.mark.slow, pytest.mark.judge]


@pytest.fixture(scope="module")
def axe() -> Axe:
    return Axe(need_axe())


Makes = Callable[..., Console]


@pytest.mark.parametrize(("theme", "locale"), [("light", "en-US"), ("dark", "zh-CN")])
def test_axe_finds_no_violation(axe: Axe, consoles: Makes, server: Server, theme: str, locale: str) -> None:
    console = consoles(color_scheme=theme, locale=locale)
    page = console.page
    found: dict[str, list[str]] = {}

    def look(what: str) -> None:
        if violations := axe.violations(page):
            found[what] = violations

    page.goto(server.url)
    page.locator("dialog.sign-in").wait_for()
    look("sign in")
    console.open()
    look("the start page")
    console.start("support")
    page.locator(".card").wait_for()
    look("a run that waits")
    page.locator("#start").click()
    page.locator("dialog[open]").wait_for()
    look("a new run")
    page.keyboard.press("Escape")
    page.locator("#help").click()
    page.locator("dialog[open]").wait_for()
    look("help")
    page.keyboard.press("Escape")
    console.start("publisher")
    console.stage("completed")
    look("a completed run")
    page.locator("#talk").evaluate("one => one.click()")
    page.locator(".talk-row").first.wait_for()
    look("a conversation")
    page.keyboard.press("Escape")
    assert found == {}
