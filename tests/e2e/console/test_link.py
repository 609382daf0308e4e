"""The console's connection: nothing is lost, repeated or done twice, whatever happens to it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr

from .conftest import Console, Server, expect

pytestmark = [pytest.mark.slow, pytest.mark.judge]

ADDRESS = re.compile("/v1/ws$")


class Wire:
    """Stands between page and gateway: sees every frame, and may keep, repeat or replace it.

    `down` and `up` are asked for each frame, with how many of the kind there were before on this connection; they give
    the texts that go on.
    """

    def __init__(self, console: Console) -> None:
        self.down: Callable[[Any, str], list[str]] = lambda _, text: [text]
        self.up: Callable[[Any, str], list[str]] = lambda _, text: [text]
        self.sockets: list[Any] = []
        self.sent: list[dict[str, Any]] = []
        console.page.route_web_socket(ADDRESS, self._connect)

    def _connect(self, socket: Any) -> None:
        gateway = socket.connect_to_server()
        self.sockets.append(socket)

        def up(text: str) -> None:
            self.sent.append(json.loads(text))
            for one in self.up(socket, text):
                gateway.send(one)

        def down(text: str) -> None:
            for one in self.down(socket, text):
                socket.send(one)

        socket.on_message(up)
        gateway.on_message(down)

    def cut(self) -> None:
        """End the newest connection as a dead network does."""
        self.sockets[-1].close(code=1011, reason="cut by the test")

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.sent if frame["type"] == kind]


def kind_of(text: str) -> str:
    return str(json.loads(text)["type"])


def output(console: Console, attempt: int = 1) -> list[str]:
    """What is shown of the output of the only call's attempt, all of it."""
    blocks = console.page.locator(".row-call .block", has=console.page.locator(".block-name", has_text="Output"))
    block = blocks.nth(attempt - 1)
    more = block.locator(".block-more", has_text="Show all")
    if more.is_visible():
        more.click()
    return block.locator(".block-body").inner_text().splitlines()


LINES = [f"line {n}" for n in range(1, 41)]


def test_events_that_come_twice_are_applied_once_and_a_hole_is_filled(console: Console):
    wire = Wire(console)
    seen: list[int] = []

    def down(_: Any, text: str) -> list[str]:
        frame = json.loads(text)
        sequence = frame.get("sequence") if frame["type"].startswith("run.") else None
        if sequence is None or sequence in seen:
            return [text]
        seen.append(sequence)
        last = frame["type"] == "run.completed"  # no event would follow that shows the hole
        return [] if sequence % 10 == 0 and not last else [text, text]

    wire.down = down
    console.server.let_go(console.start("counter"))
    console.stage("completed")
    assert output(console) == LINES
    asked = [frame["after"] for frame in wire.kinds("subscribe")]
    assert asked[0] == 0
    assert len(asked) > 1  # of a page that is far behind all holes but the first are filled with the first
    assert all(after % 10 == 9 for after in asked[1:])


def test_the_last_event_may_be_lost_and_the_tick_tells(console: Console, server: Server):
    """No event follows that would show the hole; the tick's heads do."""
    wire = Wire(console)
    lost: list[str] = []

    def down(socket: Any, text: str) -> list[str]:
        if kind_of(text) == "run.waiting" and not lost:
            run = json.loads(text)["runId"]
            lost.append(text)
            return [json.dumps({"type": "gw.tick", "heads": {run: json.loads(text)["sequence"]}})]
        return [text]

    wire.down = down
    console.start("support")
    console.stage("needs_approval")
    assert len(wire.kinds("subscribe")) == 2


def test_a_cut_connection_goes_on_at_its_cursor(console: Console, server: Server):
    wire = Wire(console)
    run = console.start("counter")
    console.page.locator(".row-call .block-body", has_text="line ").wait_for()
    wire.cut()
    while len(wire.kinds("subscribe")) < 2:
        console.page.wait_for_timeout(20)
    server.let_go(run)
    console.stage("completed")
    assert output(console) == LINES
    first, second = wire.kinds("subscribe")
    assert first["after"] == 0
    assert second["after"] > 5
    assert isinstance(second["epoch"], str)
    expect(console.page.locator("#details .detail-events dd")).to_have_text(
        str(len(server.events(run))), use_inner_text=True
    )


def test_a_decision_without_its_acknowledgement_is_sent_again_and_acts_once(console: Console, server: Server):
    wire = Wire(console)
    acked: list[str] = []

    def down(_: Any, text: str) -> list[str]:
        if kind_of(text) == "gw.ack" and not acked:
            acked.append(text)
            wire.cut()
            return []
        return [text] if not acked or len(wire.sockets) > 1 else []

    wire.down = down
    run = console.start("support")
    console.page.get_by_role("button", name="Approve refund").click()
    console.stage("completed")
    console.page.locator(".row-call .block-body", has_text="paid back 4200").wait_for()
    first, *again = wire.kinds("decide")
    assert again
    assert all(frame == first for frame in again)
    assert len(server.payloads(run, "approval.resolved")) == 1
    assert len([payload for payload in server.payloads(run, "tool.result") if payload["tool"] == "refund"]) == 1


def test_a_decision_made_while_nobody_is_there_is_sent_when_somebody_is(console: Console, server: Server):
    wire = Wire(console)
    run = console.start("support")
    console.page.locator(".card").wait_for()
    away = [True]
    wire.up = lambda _, text: [] if away else [text]  # connections are made, and nothing is heard on them
    wire.cut()
    console.page.locator("#link:not([data-state=live])").wait_for()
    console.page.get_by_role("button", name="Approve refund").click()
    console.page.locator(".card-status", has_text="Not connected. The decision is sent when").wait_for()
    assert wire.kinds("decide") == []
    away.clear()
    wire.cut()
    console.stage("completed")
    assert len(wire.kinds("decide")) == 1
    assert server.payloads(run, "approval.resolved")[0]["resolution"] == "approved"


def test_what_the_gateway_can_not_take_yet_is_repeated_with_the_same_id(console: Console, server: Server):
    wire = Wire(console)

    def up(socket: Any, text: str) -> list[str]:
        frame = json.loads(text)
        if frame["type"] != "decide" or len(wire.kinds("decide")) > 1:
            return [text]
        busy = {"type": "gw.error", "code": "store_unavailable", "message": "later", "retry": True, "id": frame["id"]}
        socket.send(json.dumps(busy))
        return []

    wire.up = up
    run = console.start("support")
    console.page.get_by_role("button", name="Approve refund").click()
    console.stage("completed")
    assert len({frame["id"] for frame in wire.kinds("decide")}) == 1
    assert len(wire.kinds("decide")) == 2
    assert len(server.payloads(run, "approval.resolved")) == 1


def test_what_is_too_long_for_the_gateway_is_not_sent_and_said_so(console: Console):
    wire = Wire(console)
    console.start("support")
    console.page.get_by_role("button", name="Edit arguments").click()
    long = json.dumps({"order": "7", "cents": 1, "note": "x" * 70_000})
    console.page.get_by_label("Arguments as JSON").fill(long)
    console.page.get_by_role("button", name="Approve with these arguments").click()
    console.page.locator(".card-status", has_text="the gateway takes at most 65.5 kB in one message").wait_for()
    assert wire.kinds("decide") == []
    expect(console.page.get_by_label("Arguments as JSON")).to_be_editable()


def test_half_a_surrogate_pair_goes_as_a_replacement_character(console: Console, server: Server):
    """The gateway closed the connection for good, with all that the page follows: the text has no form in UTF-8."""
    wire = Wire(console)
    run = console.start("support")
    console.page.get_by_role("button", name="Edit arguments").click()
    console.page.get_by_label("Arguments as JSON").fill(r'{"order": "\ude42 7\ud83d \ud83d\ude42 \\ud83d", "cents": 1}')
    console.page.get_by_role("button", name="Approve with these arguments").click()
    console.stage("completed")
    (frame,) = wire.kinds("decide")
    assert frame["editedArguments"] == {"order": "\ufffd 7\ufffd \U0001f642 \\ud83d", "cents": 1}
    assert server.payloads(run, "approval.resolved")[0]["resolution"] == "approved"


def test_a_goodbye_says_when_to_come_back(console: Console):
    wire = Wire(console)
    console.open()
    bye = {"type": "gw.bye", "code": 1012, "name": "restart", "reason": "", "retryAfterMs": 60_000}
    wire.sockets[-1].send(json.dumps(bye))
    wire.sockets[-1].close(code=1012)
    console.page.locator("#link-text", has_text=re.compile(r"Reconnecting in \d\d s")).wait_for()
    console.page.wait_for_timeout(1000)
    assert len(wire.sockets) == 1  # and not earlier, as without a word it would have
    console.page.get_by_role("button", name="Now").click()
    console.page.locator("#link[data-state=live]").wait_for()
    assert len(wire.sockets) == 2


def test_a_refusal_for_good_is_told_and_not_repeated(console: Console):
    wire = Wire(console)
    console.open()
    wire.sockets[-1].close(code=4403, reason="not here")
    console.page.locator("#banner", has_text="The gateway closed with 4403 forbidden: not here").wait_for()
    expect(console.page.locator("#link-text")).to_have_text("Refused", use_inner_text=True)
    console.page.get_by_role("button", name="Try again").click()
    console.page.locator("#link[data-state=live]").wait_for()
    expect(console.page.locator("#banner")).to_be_hidden()


def test_a_connection_that_falls_silent_is_given_up(console: Console):
    console.page.clock.install()
    wire = Wire(console)
    console.open()
    wire.down = lambda _, text: []
    console.page.clock.fast_forward(30_000)
    console.page.wait_for_timeout(200)
    assert len(wire.sockets) == 1
    console.page.clock.fast_forward(20_000)
    console.page.locator("#link:not([data-state=live])").wait_for()
    wire.down = lambda _, text: [text]
    console.page.clock.fast_forward(1_000)
    console.page.locator("#link[data-state=live]").wait_for()
    assert len(wire.sockets) == 2


def test_a_killed_server_comes_back_and_the_timeline_goes_on(mortal: Server, consoles):
    """The same port and file: the run is taken up again, and so is the page, with every event exactly once."""
    console = consoles(mortal, outages=True)
    run = console.start("counter")
    console.page.locator(".row-call .block-body", has_text="line ").wait_for()
    mortal.kill()
    console.page.locator("#link[data-state=waiting]").wait_for()
    mortal.start()
    mortal.let_go(run)
    console.stage("completed")
    reported: dict[int, str] = {}
    for payload in mortal.payloads(run, "tool.output.delta"):
        reported[payload["attempt"]] = reported.get(payload["attempt"], "") + payload["text"]
    assert sorted(reported) == [1, 2]
    assert output(console, 1) == reported[1].splitlines()
    assert output(console, 2) == LINES
    expect(console.page.locator("#details .detail-events dd")).to_have_text(
        str(len(mortal.events(run))), use_inner_text=True
    )
    expect(console.page.locator(".row-end")).to_have_count(1)
    expect(console.page.locator(".row-input")).to_have_count(1)
    expect(console.page.locator(".row-call")).to_have_count(1)


@pytest.mark.parametrize("answer", ["use", "rerun", "drop"])
def test_a_call_whose_outcome_nobody_knows_is_asked_about(mortal: Server, consoles, answer: str):
    console = consoles(mortal, outages=True)
    run = console.start("sticker")
    page = console.page
    page.locator(".row-call .block-body", has_text="begun").wait_for()
    mortal.kill()
    mortal.start()
    card = page.locator(".card")
    card.get_by_role("heading", name="Did stick take effect?").wait_for()
    expect(card).to_contain_text("running it again may do it twice", use_inner_text=True)
    expect(card.get_by_role("button", name=re.compile("^Approve"))).to_have_count(0)
    if answer == "use":
        card.get_by_role("button", name="It took effect: enter the result").click()
        page.get_by_label("Result of the call").fill("null")
        card.get_by_role("button", name="Use this result").click()
        expect(console.page.locator(".card .fault")).to_contain_text("null means", use_inner_text=True)
        page.get_by_label("Result of the call").fill('"it did"')
        card.get_by_role("button", name="Use this result").click()
        console.stage("completed")
        assert mortal.payloads(run, "tool.result")[0]["result"] == "it did"
    elif answer == "rerun":
        card.get_by_role("button", name="Run it again").click()
        assert mortal.payloads(run, "approval.resolved") == []
        card.get_by_role("button", name="This may happen twice. Press again").click()
        page.locator(".block-name", has_text="Output of attempt 2").wait_for()
        assert [payload["attempt"] for payload in mortal.payloads(run, "tool.started")] == [1, 2]
    else:
        card.get_by_role("button", name="Cancel the call").click()
        page.get_by_label("Reason (").fill("It had not.")
        page.keyboard.press("Enter")
        console.stage("completed")
        assert mortal.payloads(run, "tool.result")[0]["status"] == "cancelled"


def test_another_log_is_read_from_its_start(mortal: Server, consoles):
    """A backup has a name of its own: what was read of the old log is forgotten, the cursor with it."""
    console = consoles(mortal, outages=True)
    run = console.start("support")
    console.page.locator(".card").wait_for()
    mortal.kill()
    mortal.database = trio.run(backup, mortal.database)
    mortal.start()
    console.page.locator("#notice", has_text="the run has been read again from its start").wait_for()
    console.stage("needs_approval")
    expect(console.page.locator(".row-input")).to_have_count(1)
    expect(console.page.locator("#details .detail-events dd")).to_have_text(
        str(len(mortal.events(run))), use_inner_text=True
    )
    console.page.get_by_role("button", name="Approve refund").click()
    console.stage("completed")


async def backup(path: Path) -> Path:
    copy = path.with_name("copy.db")
    async with gr.open_runtime(path) as runtime:
        await runtime.store.backup(copy)
    return copy


def test_a_server_that_stays_away_is_said_to_be_away(mortal: Server, consoles):
    console = consoles(mortal, outages=True)
    console.start("support")
    pause = console.page.get_by_role("button", name="Pause run")
    pause.wait_for()
    mortal.kill()
    pause.wait_for(state="hidden")
    console.page.locator("#banner", has_text="The gateway does not answer").wait_for()
    mortal.start()
    console.page.locator("#link[data-state=live]").wait_for()
    expect(console.page.locator("#banner")).to_be_hidden()
    pause.wait_for()


def test_a_run_that_nobody_can_work_on_goes_on_before_the_eyes_of_who_looks(
    consoles: Callable[..., Console], mortal: Server
):
    """Nobody clicks anything: the page looks again by itself."""
    console = consoles(mortal, outages=True)
    run = console.start("counter")
    console.page.locator(".row-call .block-body", has_text="line ").wait_for()
    mortal.kill()
    down = mortal.database.with_name("orders-are-down")
    down.touch()
    mortal.start()
    notice = console.page.locator("#notice", has_text="No process is working on this run: the provider failed")
    notice.wait_for()
    expect(console.page.locator("#notice")).to_contain_text("the orders do not answer", use_inner_text=True)
    down.unlink()
    mortal.let_go(run)
    console.stage("completed")
    expect(console.page.locator("#notice")).to_be_hidden()
    assert output(console, 2) == LINES


def test_the_notice_that_nobody_works_on_a_run_goes_when_somebody_does(
    consoles: Callable[..., Console], mortal: Server
):
    """Also if that makes no event: the run waits for a person."""
    console = consoles(mortal, outages=True)
    run = console.start("support")
    console.stage("needs_approval")
    down = mortal.database.with_name("orders-are-down")
    down.touch()
    mortal.kill()
    mortal.start()
    mortal.post(f"/v1/runs/{run}/commands", type="send", text="Are you there?")
    console.page.locator("#notice", has_text="No process is working").wait_for()
    down.unlink()
    console.page.locator("#notice", has_text="No process is working").wait_for(state="hidden")
    console.stage("needs_approval")
