"""axe-core finds nothing wrong on any page of the console, light and dark, in both languages."""

from collections.abc import Callable, Iterator

import pytest

from .axe import Axe, need_axe
from .conftest import Console, Server

pytestmark = [pytest.mark.slow, pytest.mark.judge]

Makes = Callable[..., Console]


@pytest.fixture(scope="module")
def axe() -> Axe:
    return Axe(need_axe())


def pages(console: Console) -> Iterator[str]:
    """Show each page and each dialog in turn; yields what is shown."""
    page = console.page
    page.goto(console.server.url)
    page.locator("dialog.sign-in").wait_for()
    yield "sign in"
    console.open()
    page.locator(".chart svg").wait_for()
    page.locator("#narrow").click()
    yield "the overview, with the filters"
    console.start("support")
    page.locator(".card").wait_for()
    yield "a run that waits"
    for control in ("start", "queues", "rules", "help", "pause", "cancel"):
        page.locator(f"#{control}").click()
        page.locator("dialog[open]").wait_for()
        yield f"the dialog {control}"
        page.keyboard.press("Escape")
        page.locator("dialog[open]").wait_for(state="detached")
    console.start("publisher")
    console.stage("completed")
    yield "a completed run"
    for control in ("fork", "evidence", "edit-again"):
        page.locator(f"#{control}").click()
        page.locator("dialog[open]").wait_for()
        yield f"the dialog {control}"
        page.keyboard.press("Escape")
        page.locator("dialog[open]").wait_for(state="detached")


@pytest.mark.parametrize(
    ("theme", "locale"), [("light", "en-US"), ("dark", "zh-CN"), ("dark", "en-US"), ("light", "zh-CN")]
)
def test_axe_finds_no_violation(axe: Axe, consoles: Makes, server: Server, theme: str, locale: str) -> None:
    console = consoles(color_scheme=theme, locale=locale)
    found = {shown: violations for shown in pages(console) if (violations := axe.violations(console.page))}
    assert found == {}


def test_axe_finds_no_violation_on_a_phone(axe: Axe, consoles: Makes, server: Server) -> None:
    console = consoles(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    found = {}
    console.page.goto(f"{server.url}/#token=operator-token-of-the-tests&overview")
    console.page.locator(".chart svg").wait_for()
    found["the overview"] = axe.violations(console.page)
    console.start("support")
    console.page.locator(".card").wait_for()
    found["a run"] = axe.violations(console.page)
    assert found == {"the overview": [], "a run": []}
