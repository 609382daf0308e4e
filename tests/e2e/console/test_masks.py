"""Arguments in which something is hidden are edited: what a person reads, and what the tool gets."""

import re
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from .conftest import Console, Server, expect
from .server import HIDDEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.judge]


def card(page: "Page"):
    return page.locator(".card")


def digests(*values: str) -> list[str]:
    return [sha256(value.encode()).hexdigest()[:12] for value in values]


def test_a_mask_that_an_edit_leaves_keeps_its_value(console: Console, server: Server):
    """The warning is beside the editor, in both languages, and the tool gets what was behind the mask."""
    run = console.start("keeper")
    page = console.page
    card(page).get_by_role("button", name="Edit arguments").click()
    editor = page.get_by_label("Arguments as JSON")
    masked = '"password": "[redacted]",\n  "place": "the list is in [home]/lists/7.txt"'
    expect(editor).to_have_value(re.compile(re.escape(masked)))
    warning = card(page).locator(".card-edit .card-warn")
    for mask in ("[redacted]", "[home]", "[workspace]"):
        expect(warning).to_contain_text(mask, use_inner_text=True)
    expect(warning).to_contain_text("A value that you leave unchanged keeps the hidden text", use_inner_text=True)
    page.get_by_role("button", name="Switch to Chinese").click()
    expect(warning).to_contain_text("保持原样的值会保留其真实内容", use_inner_text=True)
    page.get_by_role("button", name="切换到英文").click()
    expect(editor).to_have_value(re.compile(re.escape(masked)))
    editor.fill(editor.input_value().replace("4200", "2100"))
    expect(card(page)).to_contain_text("Changed: cents", use_inner_text=True)
    card(page).get_by_role("button", name="Approve with these arguments").click()
    console.stage("completed")
    kept = digests(HIDDEN["password"], HIDDEN["place"])
    assert server.payloads(run, "tool.result")[-1]["result"] == [*kept, 2100]
    assert HIDDEN["password"] not in page.content()


def test_a_masked_value_that_an_edit_changes_is_what_was_written(console: Console, server: Server):
    run = console.start("keeper")
    page = console.page
    card(page).get_by_role("button", name="Edit arguments").click()
    editor = page.get_by_label("Arguments as JSON")
    editor.fill('{"password": "[redacted]", "place": "nowhere", "cents": 1}')
    card(page).get_by_role("button", name="Approve with these arguments").click()
    console.stage("completed")
    kept = digests(HIDDEN["password"], "nowhere")
    assert server.payloads(run, "tool.result")[-1]["result"] == [*kept, 1]


def test_arguments_without_a_mask_come_without_the_warning(console: Console):
    console.start("support")
    page = console.page
    card(page).get_by_role("button", name="Edit arguments").click()
    expect(page.get_by_label("Arguments as JSON")).to_be_focused()
    expect(card(page).locator(".card-edit .card-warn")).to_have_count(0)
