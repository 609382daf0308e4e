"""The start page, and the filters of the list: in the address, saved, and searched further by themselves."""

from collections.abc import Callable

import pytest

from .conftest import PATIENCE, Console, Server, expect

pytestmark = [pytest.mark.slow, pytest.mark.judge]


@pytest.fixture
def place(mortal: Server) -> Server:
    """A gateway with one run that waits, one that was cancelled, and one that is done."""
    mortal.start_run("support", "My lamp is broken.")
    cancelled = mortal.start_run("shipper", "Send three parcels.")
    mortal.post(f"/v1/runs/{cancelled}/commands", type="cancel")
    mortal.start_run("echo", "Say the word zeppelin.")
    return mortal


def ended(console: Console) -> None:
    """Wait until the chart has counted both runs that ended."""
    expect(console.page.locator(".tile-ended .tile-figure")).to_have_text("2", timeout=PATIENCE)


def test_the_start_page_says_what_waits_what_failed_and_how_much_was_done(
    place: Server, consoles: Callable[..., Console]
) -> None:
    console = consoles(place).open()
    page = console.page
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.locator(".tile-waiting .tile-figure")).to_have_text("1")
    expect(page.locator(".overview-waiting a")).to_contain_text("My lamp is broken.")
    expect(page.locator(".overview-failed")).to_contain_text("Nothing has failed.")
    ended(console)
    expect(page.get_by_role("img", name="1 completed, 0 stopped, 0 failed, 1 cancelled")).to_be_visible()
    page.get_by_text("As a table").click()
    expect(page.locator(".chart-table tbody tr").first).to_be_visible()
    place.start_run("support", "Mine, too.")
    expect(page.locator(".tile-waiting .tile-figure")).to_have_text("2")
    page.locator(".overview-waiting a", has_text="Mine, too.").click()
    console.stage("needs_approval")
    expect(page.locator("#overview")).to_be_hidden()
    page.get_by_role("link", name="Overview").click()
    page.locator(".tile-ended").click()
    expect(page).to_have_url(f"{place.url}/#show=done&since=day")
    expect(page.locator("#runs a")).to_have_count(2)


def test_a_link_reproduces_a_list_and_a_saved_filter_comes_back(
    place: Server, consoles: Callable[..., Console]
) -> None:
    console = consoles(place)
    page = console.page
    page.goto(f"{place.url}/#token=operator-token-of-the-tests&show=completed&text=zeppelin&agent=echo")
    expect(page.locator("#runs a")).to_have_count(1)
    expect(page.get_by_role("button", name="Completed")).to_have_attribute("aria-pressed", "true")
    page.locator("#runs a").click()
    console.stage("completed")
    assert page.url.endswith("&show=completed&text=zeppelin&agent=echo")  # the list stays beside the run
    page.get_by_role("button", name="More filters").click()
    page.get_by_label("Save these filters as").fill("Airships")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator("#runs a")).to_have_count(3)
    page.reload()
    page.get_by_role("button", name="Airships", exact=True).click()
    expect(page.locator("#runs a")).to_have_count(1)
    assert page.url.endswith("&show=completed&text=zeppelin&agent=echo")
    page.get_by_role("button", name="Remove the saved filter").click()
    expect(page.locator("#saved")).to_be_hidden()


def test_runs_are_found_by_their_tool_their_outcome_and_what_they_said(
    place: Server, consoles: Callable[..., Console]
) -> None:
    console = consoles(place).open()
    page = console.page
    page.get_by_role("button", name="More filters").click()
    page.locator("#narrowing").get_by_label("Tool", exact=True).fill("ship")
    expect(page.locator("#runs a")).to_have_count(1)
    expect(page.locator("#runs a")).to_contain_text("Cancelled")
    page.get_by_role("button", name="Failed", exact=True).click()
    expect(page.locator("#runs-note")).to_contain_text("No run matches.")
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_role("searchbox").fill("YOU SAID")  # the output of one
    expect(page.locator("#runs a")).to_have_count(1)
    expect(page.locator("#runs a")).to_contain_text("zeppelin")


def test_on_a_phone_the_start_page_is_a_page(place: Server, consoles: Callable[..., Console]) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    console = consoles(place, **phone).open()
    page = console.page
    expect(page.locator("#overview")).to_be_hidden()
    page.get_by_role("link", name="Overview").click()
    ended(console)
    console.no_sideways_scroll()
    page.locator(".tile-waiting").click()
    expect(page.locator("#runs a")).to_have_count(1)
    page.go_back()
    expect(page.locator("#overview")).to_be_visible()
