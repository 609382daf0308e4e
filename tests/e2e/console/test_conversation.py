"""The conversation of a thread in the console: pages, thumbnails, files, and what is said while it is open."""

import base64
from typing import Any

import pytest

from .conftest import Console, Server, expect
from .server import picture

pytestmark = [pytest.mark.slow, pytest.mark.judge]

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked = 1'><script>window.hacked = 1</script></svg>"


def sent(data: bytes, media_type: str, name: str | None = None) -> dict[str, Any]:
    return {"data": base64.b64encode(data).decode(), "mediaType": media_type, "name": name}


def told(server: Server, thread: str, *texts: str, attachments: tuple[dict[str, Any], ...] = ()) -> str:
    """Start runs in a thread, one behind the other; returns the last one."""
    run = ""
    for text in texts:
        order = {"agent": "echo", "text": text, "thread": thread, "attachments": list(attachments)}
        run = server.post("/v1/runs", **order)["run"]
    return run


def opened(console: Console) -> Any:
    console.page.locator("#talk").click()
    return console.page.get_by_role("dialog", name="Conversation")


def test_a_conversation_shows_all_runs_of_its_thread_and_goes_on_live(console: Console, server: Server):
    run = told(server, "talk-1", "first", "second")
    console.open(run)
    console.stage("completed")
    dialog = opened(console)
    expect(dialog.locator(".talk-row")).to_have_count(4)
    expect(dialog.locator(".talk-row").first).to_contain_text("first")
    expect(dialog.locator(".talk-row").nth(3)).to_contain_text("You said: second")
    expect(dialog.locator(".talk-run")).to_have_count(2)
    told(server, "talk-1", "third")
    expect(dialog.locator(".talk-row")).to_have_count(6)
    expect(dialog.locator(".talk-row").last).to_contain_text("You said: third")
    console.no_sideways_scroll()
    dialog.locator(".talk-run a").first.click()
    expect(dialog).to_have_count(0)
    expect(console.page.locator("#page .timeline")).to_contain_text("first")


def test_pictures_are_thumbnails_and_nothing_of_a_file_runs(console: Console, server: Server):
    files = (sent(picture(), "image/png"), sent(SVG, "image/svg+xml", "evil.svg"), sent(b"a,b", "text/csv", "t.csv"))
    run = told(server, "talk-2", "see", attachments=files)
    console.open(run)
    console.stage("completed")
    page = console.page
    inline = page.locator(".timeline .picture img")
    expect(inline).to_have_count(1)
    assert inline.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [96, 48]
    dialog = opened(console)
    expect(dialog.locator(".picture")).to_have_count(3)
    expect(dialog.locator(".picture img")).to_have_count(1)
    expect(dialog.locator(".picture").nth(1)).to_contain_text("image/svg+xml")
    dialog.locator(".picture").nth(1).click()
    shown = page.get_by_role("dialog", name="Artifact")
    expect(shown.locator(".block-body")).to_contain_text("<svg xmlns")
    assert page.evaluate("window.hacked === undefined")


def test_a_long_conversation_is_read_page_by_page(console: Console, server: Server):
    run = told(server, "talk-3", *(f"text {n}" for n in range(30)))
    console.open(run)
    console.stage("completed")
    dialog = opened(console)
    expect(dialog.locator(".talk-row")).to_have_count(50)
    dialog.get_by_role("button", name="Show earlier messages").click()
    expect(dialog.locator(".talk-row")).to_have_count(60)
    expect(dialog.locator(".talk-row").first).to_contain_text("text 0")
    expect(dialog.get_by_role("button", name="Show earlier messages")).to_be_hidden()


def test_a_phone_shows_a_conversation(console: Console, server: Server):
    console.open(told(server, "talk-4", "hello " * 200))
    console.stage("completed")
    console.page.set_viewport_size({"width": 360, "height": 640})
    console.page.evaluate("document.getElementById('talk').click()")
    dialog = console.page.get_by_role("dialog", name="Conversation")
    expect(dialog.locator(".talk-row")).to_have_count(2)
    assert dialog.evaluate("one => [one.scrollWidth <= one.clientWidth, one.getBoundingClientRect().right <= 360]") == [
        *(True, True)
    ]
