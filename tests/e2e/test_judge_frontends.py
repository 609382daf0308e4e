"""The front ends of docs/frontends.md, run as they stand there: React in a DOM, AG-UI, an EventSource and a WebSocket.

A block is the file that its first line names. The gateway is the page's, too, in a process of its own. The page comes
from another origin: the DOM's fetch sends an Origin, and asks for leave before what a browser would ask for.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.frontend_pages import (
    LEA,
    PATIENCE,
    Gateway,
    files_of,
    page_files,
    page_of,
    running,
    served,
    team_served,
)
from ..support.judges import need_node_modules, need_program

pytestmark = [pytest.mark.slow, pytest.mark.judge]

ORIGIN = "http://localhost:5173"


# --- the page's files, its gateways, and windows ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the blocks, and the npm packages."""
    return page_files(root, tmp_path_factory.mktemp("frontends"), "frontends")


@pytest.fixture(scope="module")
def gateway(root: Path, folder: Path) -> Iterator[Gateway]:
    """As the command of the page serves it."""
    with served(root, folder) as found:
        yield found


@pytest.fixture(scope="module")
def team(folder: Path) -> Iterator[Gateway]:
    """The program of the page with a principal for each person."""
    with team_served(folder) as found:
        yield found


class Screen:
    """A person at a browser: types, clicks, and sees."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.now: dict[str, Any] = {}

    def do(self, order: str, window: str = "one", **fields: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": order, "window": window, **fields}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the page has gone"
        self.now = json.loads(line)
        assert "failed" not in self.now, self.now
        return self.now

    def open(self, gateway: Gateway, agent: str, chat: str, window: str = "one", token: str = "") -> None:
        given = {"gateway": gateway.url, "agent": agent, "token": token or gateway.token, "id": chat}
        self.do("open", window, chat=given)

    def send(self, text: str, window: str = "one") -> None:
        self.do("type", window, label="Message", text=text)
        self.click("Send", window)

    def click(self, button: str, window: str = "one") -> None:
        self.do("click", window, button=button)

    def see(self, text: str, window: str = "one") -> str:
        seen: str = self.do("see", window, text=text)["text"]
        return seen

    @property
    def statuses(self) -> list[int]:
        """Of all POSTs so far."""
        return [status for method, _, status in self.now["requests"] if method == "POST"]


@pytest.fixture
def screen(folder: Path) -> Iterator[Screen]:
    """Its own DOM and storage."""
    script = str(need_node_modules("frontends") / "page.mjs")
    with running([need_program("node"), script, str(folder), f"{ORIGIN}/"], folder) as process:
        yield Screen(process)


def converse(folder: Path, gateway: Gateway, name: str) -> dict[str, Any]:
    """What a conversation of blocks.mjs came to."""
    script = str(need_node_modules("frontends") / "blocks.mjs")
    given = json.dumps({"gateway": gateway.url, "token": gateway.token})
    command = [need_program("node"), script, str(folder), f"{ORIGIN}/", name, given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


# --- useChat ---------------------------------------------------------------------------------------------------------


def test_a_refund_is_approved_and_the_last_words_are_seen(screen, gateway):
    screen.open(gateway, "desk", "approved")
    screen.send("Refund order 7, please.")
    seen = screen.see("Approve")
    assert "refund: This call needs an approval." in seen
    assert '"cents": 1200' in seen
    assert "Send" not in screen.now["buttons"]
    screen.click("Approve")
    seen = screen.see("The refund is settled.")
    assert 'refund: "paid 1200 cents for order 7"' in seen
    assert (screen.statuses, screen.now["errors"]) == ([200, 200], [])


def test_a_chat_continues_after_a_denial_with_a_reason_and_sends_two_messages_at_most(screen, gateway):
    screen.open(gateway, "desk", "denied")
    screen.send("Refund order 7, please.")
    screen.do("type", label="Reason", text="paid already")
    screen.click("Deny")
    assert "refund was denied: paid already" in screen.see("The refund is settled.")
    screen.send("Then once more.")
    screen.click("Approve")
    screen.see("paid 1200 cents")
    screen.do("rest")
    assert [run["status"] for run in gateway.runs("denied")] == ["done", "done"]
    assert screen.now["sent"] == [1, 2, 2, 2]
    assert (screen.statuses, screen.now["errors"]) == ([200] * 4, [])


def test_a_question_of_a_tool_is_answered_after_a_reload(screen, gateway):
    screen.open(gateway, "courier", "asked")
    screen.send("Send it.")
    screen.see("ask_city")
    screen.do("reload")
    screen.do("type", label="Answer", text="Oslo")  # maybe before the stream has come that replaces the message
    screen.do("rest")
    screen.click("Answer")
    seen = screen.see("The parcel is on its way.")
    assert seen.count("I need an address.") == 1
    assert 'ask_city: "Oslo"' in seen
    assert (screen.statuses, screen.now["errors"]) == ([200, 200], [])


def test_a_paused_run_continues_from_the_page(screen, gateway):
    screen.open(gateway, "desk", "paused")
    screen.send("Refund order 7, please.")
    screen.see("Approve")
    (run,) = gateway.runs("paused")
    assert gateway.ask("POST", f"/v1/runs/{run['run']}/commands", {"type": "pause", "reason": "wait"})[0] == 202
    screen.click("Approve")
    screen.see("End it")
    screen.click("Go on")
    screen.see("The refund is settled.")
    assert (screen.statuses, screen.now["errors"]) == ([200, 200, 202], [])


def test_a_reload_keeps_the_run_and_a_second_window_is_reported_that_it_waits(screen, gateway):
    for window in ("one", "two"):
        screen.open(gateway, "writer", "story", window)
    screen.send("A story.")
    screen.see("Once upon a time")
    screen.do("reload")
    screen.see("Once upon a time")
    screen.send("Another one.", "two")
    seen = screen.see("waits until", "two")
    second, first = gateway.runs("story")
    assert f"waits until {first['run']}" in seen
    assert first["status"] == "running"
    screen.click("Stop")
    seen = screen.see("The run has ended: cancelled")
    assert "Once upon a time  (cut off)" in seen
    screen.do("reload")
    assert "Once upon a time  (cut off)" in screen.see("The run has ended: cancelled")
    screen.see("Once upon a time", "two")
    screen.click("Stop", "two")
    screen.see("The run has ended: cancelled", "two")
    assert {run["status"] for run in gateway.runs("story")} == {"done"}
    assert second["run"] != first["run"]
    assert screen.now["errors"] == []


def test_what_happened_while_the_page_was_away_is_there_when_it_is_back(screen, gateway):
    screen.open(gateway, "desk", "away")
    screen.send("Refund order 7, please.")
    screen.see("Approve")
    screen.do("close")
    (run,) = gateway.runs("away")
    target = run["asked"][0]["ticketId"]
    command = {"type": "decide", "target": target, "action": "resume"}
    assert gateway.ask("POST", f"/v1/runs/{run['run']}/commands", command)[0] == 202
    while gateway.runs("away")[0]["status"] != "done":
        pass
    screen.open(gateway, "desk", "away")
    seen = screen.see("The refund is settled.")
    assert seen.count("I pay it back.") == 1
    assert screen.now["errors"] == []


# --- AG-UI, an EventSource, a WebSocket ------------------------------------------------------------------------------


def test_the_ag_ui_conversation_approves_denies_leaves_comes_back_and_cancels(folder, gateway):
    report = converse(folder, gateway, "conversation")
    approved = report["approved"]
    assert (approved["ends"], approved["tools"]) == (["success"], ["paid 1200 cents for order 7"])
    assert approved["text"] == "I pay it back. The refund is settled."
    assert approved["asked"][0]["metadata"]["greenroom"]["arguments"] == {"order": "7", "cents": 1200}
    assert report["denied"] == {"end": "success", "tools": ["The reviewer denied this call: paid already"]}
    wrong = report["wrong"]
    assert wrong["end"].startswith("bad_message: "), wrong
    assert "payload.yes is not known here" in wrong["end"]
    assert (wrong["asked"], wrong["then"], wrong["errors"]) == (2, "success", [])
    assert report["left"] == {"end": "aborted", "status": "running"}
    assert report["cancelled"] == {
        "end": "cancelled",
        "text": "Once upon a time ",
        "sameRun": True,
        "status": "done",
    }
    assert report["queued"] == {"ends": ["cancelled", "cancelled"], "notices": [True]}


@pytest.mark.parametrize("name", ["runs", "socket"])
def test_runs_are_followed_approved_denied_and_cancelled(folder, gateway, name):
    report = converse(folder, gateway, name)
    for how, end in (("approve", "run.completed"), ("deny", "run.completed"), ("cancel", "run.cancelled")):
        events = report[how]
        assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["type"] == end
    approved, denied = (result_of(report[how]) for how in ("approve", "deny"))
    assert (approved["status"], approved["result"]) == ("succeeded", "paid 1200 cents for order 7")
    assert "paid already" in denied["result"]
    if name == "runs":
        assert report["refused"]["code"] == "unknown_agent"
    else:
        assert (report["reset"], report["stranger"]) == ([True, True], {"code": 4401})
        assert report["sockets"] > 5


def test_a_second_device_shows_a_conversation_and_what_goes_on_in_it(folder, gateway):
    report = converse(folder, gateway, "history")
    assert report.pop("refused")["code"] == "unknown_thread"
    assert report == {
        "listed": "done",
        "image": ["blob:here", ["image/png", 16]],
        "same": True,
        "told": ["Refund order 7", "I pay it back. ", "The refund is settled."],
        "whole": ["Refund order 7", "I pay it back. ", "The refund is settled."],
        "older": True,
    }


def result_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [event["payload"] for event in events if event["type"] == "run.tool.result"]
    return found


# --- who may ---------------------------------------------------------------------------------------------------------


def test_a_reviewer_decides_and_may_not_begin_and_a_page_that_goes_cancels(screen, team):
    screen.open(team, "desk", "of-ann")
    screen.send("Refund order 7, please.")
    screen.see("Approve")
    lea = Gateway(team.port, LEA)
    (run,) = lea.runs("of-ann")
    assert run["by"] == "ann"
    screen.open(team, "desk", "of-lea", "lea", LEA)
    screen.send("Refund order 8, please.", "lea")
    assert "lea has no scope 'start'" in screen.see("scope", "lea")
    command = {"type": "decide", "target": run["asked"][0]["ticketId"], "action": "resume"}
    assert lea.ask("POST", f"/v1/runs/{run['run']}/commands", command)[0] == 202
    screen.open(team, "writer", "left", "story")
    screen.send("A story.", "story")
    screen.see("Once upon a time", "story")
    screen.do("close", "story")
    while team.runs("left")[0]["status"] != "done":
        pass
    assert team.runs("left")[0]["termination"]["kind"] == "cancelled"


def test_a_page_of_another_origin_gets_nothing(gateway):
    status, reported = gateway.ask("GET", "/v1/runs", origin="http://localhost:5174")
    assert (status, reported["error"]["code"]) == (403, "forbidden_origin")


NAME = re.compile(r"`([A-Za-z_$][\w$]*(?:\.[\w$]+)*)(?:\(.*?\))?`")
"""A name in the text of the page: of a function, a class, a field, or a part of the protocol."""


def test_every_name_in_the_text_of_the_page_is_in_its_code_or_in_what_the_code_uses(root):
    """A name that only our own classes have is none of a front end."""
    page = page_of(root)
    code = "\n".join(files_of(page)[0].values())
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    names = {part for name in NAME.findall(prose) for part in name.split(".")}
    assert {"Conversation", "onRefused", "sendAutomaticallyWhen", "pendingInterrupts"} & names
    known = [
        code,
        *(text.read_text(encoding="utf-8") for text in (root / "docs").glob("*.md") if text.name != "frontends.md"),
    ]
    used = need_node_modules("frontends") / "node_modules"
    for package in ("ai", "@ai-sdk/react", "@ag-ui/client", "@ag-ui/core", "eventsource"):
        known += [text.read_text(encoding="utf-8") for text in (used / package / "dist").glob("*.d.ts")]
    words = set(re.findall(r"[\w$]+", "\n".join(known)))
    assert sorted(names - words) == []


def test_every_block_of_the_page_has_a_name_or_is_a_command() -> None:
    assert files_of("```js\n// a.js\nx\n```\n```console\n$ do it\n```\n") == ({"a.js": "// a.js\nx\n"}, ["do it"])
    with pytest.raises(AssertionError, match="without the name"):
        files_of("```js\nx\n```\n")
