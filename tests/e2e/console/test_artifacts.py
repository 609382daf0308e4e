"""Artifacts, differences and proposals in the console: what is shown, what is only saved, and what never runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Console, Server, expect
from .fake_gateway import FakeGateway
from .test_looks import CONTRAST

pytestmark = [pytest.mark.slow, pytest.mark.judge]

DIFFERENCE = Path(__file__).with_name("change.diff").read_text()
FILES = [
    {"path": "src/basket.py", "change": "modified", "added": 4, "removed": 3},
    {"path": "docs/handbook.md", "change": "renamed", "fromPath": "docs/guide.md", "added": 1, "removed": 1},
    {"path": "logo.png", "change": "modified", "added": 0, "removed": 0, "binary": True},
]
PROPOSAL = "0f" * 16
READY: dict[str, Any] = {
    "proposal": PROPOSAL,
    "base": "b" * 40,
    "target": "t" * 40,
    "files": FILES,
    "summary": "3 files: +5 -4",
    "leftOut": [{"path": ".env", "reason": "withheld"}],
    "artifact": "r.a5",
}
TICKET: dict[str, Any] = {
    "ticketId": "r.t1",
    "callId": "c1",
    "tool": "apply_changes",
    "arguments": {"proposal": PROPOSAL, "summary": "Count the lines."},
    "fingerprint": "f" * 64,
    "reason": "tool_permission",
    "resumeMode": "replay_tool_call",
}
CALL = {"callId": "c1", "tool": "apply_changes", "status": "new", "arguments": {}, "effect": "patch", "step": 1}
DIFF: dict[str, Any] = {
    "artifactId": "r.a5",
    "callId": "c1",
    "name": "change.diff",
    "kind": "diff",
    "mediaType": "text/x-diff",
    "size": len(DIFFERENCE),
    "sha256": "5" * 64,
}


def look(console: Console, name: str) -> Any:
    """Open an artifact from the timeline; returns its dialog."""
    console.page.locator(".timeline .artifact-open", has_text=name).first.click()
    return console.page.get_by_role("dialog")


def test_each_artifact_is_shown_as_what_it_is_and_nothing_of_it_runs(console: Console, server: Server):
    console.start("publisher")
    console.stage("completed")
    page = console.page
    expect(page.locator(".artifacts h2")).to_have_text("Artifacts (7)")
    expect(page.locator(".row-artifact").first).to_contain_text("publish published")
    dialog = look(console, "notes.md")
    expect(dialog.locator(".block-body")).to_contain_text("password=[redacted]")
    expect(dialog.locator(".artifact-metadata")).to_contain_text("Ada")
    page.keyboard.press("Escape")
    dialog = look(console, "shot.png")
    picture = dialog.get_by_role("img", name="shot.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("async (one) => { await one.decode(); return [one.naturalWidth, one.naturalHeight]; }") == [
        *(96, 48)
    ]
    page.keyboard.press("Escape")
    dialog = look(console, "page.svg")
    expect(dialog.locator(".block-body")).to_contain_text("<svg xmlns")
    assert dialog.locator("img, svg:not(.icon), iframe, object").count() == 0
    page.keyboard.press("Escape")
    expect(look(console, "build.zip")).to_contain_text("does not show bytes of this type")
    page.keyboard.press("Escape")
    dialog = look(console, "faces.png")
    expect(dialog).to_contain_text("privacy review has blocked it")
    expect(dialog.get_by_role("button", name="Save")).to_be_hidden()
    page.keyboard.press("Escape")
    dialog = look(console, "the guide")
    expect(dialog).to_contain_text("http://127.0.0.1:3000/guide")
    expect(dialog).to_contain_text("Nothing of it is stored")
    assert dialog.locator("a").count() == 0
    assert page.evaluate("window.hacked === undefined")
    assert not [
        url for url in console.urls if not url.startswith((server.url, server.url.replace("http", "ws"), "blob:"))
    ]


def test_an_artifact_is_saved_as_it_is(console: Console):
    console.start("publisher")
    console.stage("completed")
    dialog = look(console, "build.zip")
    with console.page.expect_download() as download:
        dialog.get_by_role("button", name="Save").click()
    assert download.value.suggested_filename == "build.zip"
    assert Path(download.value.path()).read_bytes() == b"PK\x03\x04\0"


def test_a_difference_is_drawn_by_file_with_what_is_added_and_removed(console: Console):
    console.start("publisher")
    console.stage("completed")
    dialog = look(console, "change.diff")
    files = dialog.locator(".diff-file > summary")
    expect(files).to_have_count(6)
    assert [text.replace("\n", " ").replace("\u2212", "-") for text in files.all_inner_texts()] == [
        "src/basket.py +4 -3",
        "docs/guide.md → docs/handbook.md moved +1 -1",
        "naïve.txt new mode 100644 +2 -0",
        "old.cfg deleted +0 -1",
        "run.sh mode 100755 +0 -0",
        "logo.png binary",
    ]
    first = dialog.locator(".diff-file").first
    assert first.locator(".diff-line.is-added .diff-text").all_inner_texts()[0] == (
        "def total(lines: list[Line]) -> int:"
    )
    assert first.locator(".diff-line").nth(2).locator(".diff-no").all_inner_texts() == ["3", ""]
    expect(dialog.locator(".diff-file").nth(2)).to_contain_text("--- a line that looks like a head"[1:])
    console.no_sideways_scroll()


def proposing(console: Console, *, body: str = DIFFERENCE, status: int = 200) -> FakeGateway:
    """A run that asks whether a proposal is applied."""
    answer = {"status": status, "body": body, "headers": {"content-type": "text/x-diff"}}
    console.page.route(re.compile("/artifacts/"), lambda route: route.fulfill(**answer))
    gateway = FakeGateway(console).open()
    gateway.more = lambda frame: (
        [{"type": "gw.ack", "id": frame["id"], "run": "r", "status": "accepted"}] if frame["type"] == "decide" else []
    )
    kinds = [
        *(("run.artifact.ready", DIFF), ("run.diff.ready", READY)),
        *(("run.tool.call", CALL), ("run.approval.requested", TICKET)),
    ]
    gateway.show("r", kinds)
    return gateway


def decided(gateway: FakeGateway) -> dict[str, Any]:
    """The decision that the page has sent."""
    gateway.console.until("document.querySelector('.card.is-settled') !== null")
    (frame,) = [frame for frame in gateway.sent if frame["type"] == "decide"]
    return {name: frame[name] for name in ("action", "result", "editedArguments", "fingerprint") if name in frame}


def test_the_card_of_an_apply_shows_the_whole_difference_before_it_is_applied(console: Console):
    gateway = proposing(console)
    card = console.page.locator(".card")
    expect(card.locator(".card-title")).to_have_text("Apply these changes to the folder?")
    expect(card.locator(".proposal-files li")).to_have_count(3)
    expect(card).to_contain_text("Left out: .env (withheld)")
    expect(card.locator(".diff-file")).to_have_count(6)
    card.get_by_role("button", name="Apply", exact=True).click()
    assert decided(gateway) == {"action": "resume", "fingerprint": TICKET["fingerprint"]}


def test_some_files_of_a_proposal_are_applied(console: Console):
    gateway = proposing(console)
    card = console.page.locator(".card")
    expect(card.locator(".diff-file")).to_have_count(6)
    card.get_by_role("button", name="Some files").click()
    card.get_by_label("logo.png").uncheck()
    card.get_by_role("button", name="Apply these files").click()
    paths = ["src/basket.py", "docs/handbook.md"]
    assert decided(gateway) == {
        "action": "resume",
        "editedArguments": {**TICKET["arguments"], "paths": paths},
        "fingerprint": TICKET["fingerprint"],
    }


def test_a_proposal_is_sent_back_with_what_to_change(console: Console):
    gateway = proposing(console)
    card = console.page.locator(".card")
    card.get_by_role("button", name="Ask for changes").click()
    card.get_by_label("What should be different?").fill("Keep the guide where it is.")
    card.get_by_role("button", name="Send").click()
    assert decided(gateway)["result"] == "Keep the guide where it is."


def test_a_difference_that_is_cut_off_is_opened_before_it_is_applied(console: Console):
    long = "".join(f"+line {n}\n" for n in range(1_500))
    gateway = proposing(console, body=f"--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,1500 @@\n{long}")
    card = console.page.locator(".card")
    expect(card.locator(".diff-file")).to_have_count(1)
    card.get_by_role("button", name="Apply", exact=True).click()
    expect(card).to_contain_text("Everything is shown now")
    expect(card.locator(".diff-line")).to_have_count(1_500)
    assert not [frame for frame in gateway.sent if frame["type"] == "decide"]
    card.get_by_role("button", name="Apply", exact=True).click()
    assert decided(gateway)["action"] == "resume"


def test_a_difference_that_cannot_be_read_is_said_so(console: Console):
    proposing(console, body='{"error": {"code": "unknown_artifact", "message": "gone"}}', status=404)
    expect(console.page.locator(".card")).to_contain_text("Look at it elsewhere before you apply it")
    console.said.clear()  # Chromium itself reports the 404


def test_a_proposal_says_what_became_of_it(console: Console):
    gateway = proposing(console)
    chip = console.page.locator(".row-proposal .chip")
    expect(chip).to_have_text("Ready")
    moved = {"proposal": PROPOSAL, "files": ["src/basket.py"], "status": "conflicted", "conflicts": ["src/basket.py"]}
    gateway.tell("r", "run.patch.conflicted", moved)
    expect(chip).to_have_text("Conflict")
    expect(console.page.locator(".row-note").last).to_contain_text("src/basket.py")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_phone_shows_the_difference_in_both_themes_and_languages(consoles, theme: str, locale: str):
    console = consoles(color_scheme=theme, locale=locale)
    proposing(console)
    assert console.page.evaluate(CONTRAST)["faint"] == []
    console.page.set_viewport_size({"width": 360, "height": 740})
    expect(console.page.locator(".card .diff-file")).to_have_count(6)
    console.no_sideways_scroll()
    console.page.locator(".timeline .artifact-open").first.click()
    expect(console.page.get_by_role("dialog").locator(".diff-file")).to_have_count(6)
    console.no_sideways_scroll()
    assert console.page.evaluate(CONTRAST)["faint"] == []


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Path]]:
    """A gateway with a run that proposes changes of a real folder."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "prices.txt").write_text("tea 3\ncake 4\nbread 5\njam 6\n")
    monkeypatch.setenv("CONSOLE_SHOP", str(folder))
    server = Server(tmp_path)
    try:
        yield server.start(), folder
    finally:
        server.kill()


def test_a_real_proposal_is_read_and_a_part_of_it_applied(consoles, shop: tuple[Server, Path]):
    server, folder = shop
    console = consoles(server).open("in-the-shop")
    console.stage("needs_approval")
    card = console.page.locator(".card")
    expect(card.locator(".diff-file")).to_have_count(2)
    expect(card.locator(".diff-line.is-added .diff-text").first).to_have_text("# New")
    expect(card.locator(".diff-line.is-removed .diff-text")).to_have_text("tea 3")
    assert (folder / "prices.txt").read_text().startswith("tea 3")
    card.get_by_role("button", name="Some files").click()
    card.get_by_label("notes/new.md").uncheck()
    card.get_by_role("button", name="Apply these files").click()
    console.stage("completed")
    expect(console.page.locator(".row-proposal .chip")).to_have_text("Applied in part")
    assert ((folder / "prices.txt").read_text()[:5], (folder / "notes").exists()) == ("tea 2", False)


def test_a_real_proposal_is_sent_back_and_comes_again_with_the_change(consoles, shop: tuple[Server, Path]):
    server, folder = shop
    console = consoles(server).open("in-the-shop")
    console.stage("needs_approval")
    card = console.page.locator(".card:not(.is-settled)")
    card.get_by_role("button", name="Ask for changes").click()
    card.get_by_label("What should be different?").fill("Call it tea.md.")
    card.get_by_role("button", name="Send").click()
    expect(console.page.locator(".row-proposal")).to_have_count(2)
    expect(card.locator(".diff-file")).to_have_count(3)
    card.get_by_role("button", name="Apply", exact=True).click()
    console.stage("completed")
    assert sorted(one.name for one in (folder / "notes").iterdir()) == ["new.md", "tea.md"]


def test_the_evidence_of_a_run_says_who_allowed_what(console: Console):
    console.start("support")
    page = console.page
    page.get_by_role("button", name="Approve refund").click()
    console.stage("completed")
    page.get_by_role("button", name="Evidence").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".evidence-part").nth(0)).to_contain_text("It ran without a question.")
    expect(dialog.locator(".evidence-part").nth(1)).to_contain_text("Approval: Approved by operator")
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save").click()
    assert '"ticketId"' in Path(download.value.path()).read_text()


def test_on_a_phone_the_list_of_artifacts_leaves_room_for_the_run(consoles):
    console = consoles(viewport={"width": 390, "height": 844})
    console.start("publisher")
    console.stage("completed")
    page = console.page
    expect(page.locator(".artifact-list")).to_be_hidden()
    page.locator(".artifacts summary").click()
    expect(page.locator(".artifact-list li")).to_have_count(7)
    assert page.locator(".page-side").evaluate("one => one.clientHeight < innerHeight / 2")
    console.no_sideways_scroll()
