"""The story of a run as lines, and the questions that it asks."""

import io
import json
import re
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.casing import camel
from greenroom.transport.terminal.approval_prompt import ask
from greenroom.transport.terminal.difference import difference_of
from greenroom.transport.terminal.difference_text import ProposedDifference, rows
from greenroom.transport.terminal.screen import HidingScreen, JsonScreen, Screen
from greenroom.transport.terminal.ticket_text import (
    PREVIEW,
    Change,
    FileChange,
    answerable_by_yes,
    barred,
    details,
    read_value,
)
from greenroom.transport.terminal.timeline import Line, Timeline

START = datetime(2026, 1, 1, tzinfo=UTC)


class Teller:
    """Makes events and tells them to a timeline."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self._sequence = 0

    def __call__(self, kind: str, /, at: float = 0.0, **payload: Any) -> tuple[Line, ...]:
        self._sequence += 1
        return self.timeline.tell(
            gr.Event(
                id=f"r-{self._sequence}",
                sequence=self._sequence,
                type=kind,
                version=2,
                run_id="r",
                session_id=None,
                agent_id="helper",
                timestamp=START + timedelta(seconds=at),
                payload={camel(name): value for name, value in payload.items()},
            )
        )


@pytest.fixture
def tell() -> Teller:
    return Teller()


def test_a_call_is_reported_with_its_tool_time_and_its_result(tell: Teller) -> None:
    tell("run.created")
    tell("run.message.completed", role="assistant", text="Let me see.")
    (says,) = tell("run.tool.call", 1.0, call_id="c", tool="look", arguments={"path": "."})
    assert (says.kind, says.who, says.what) == ("text", "helper", "Let me see.")
    (start,) = tell("run.tool.started", 1.0, call_id="c", attempt=1)
    assert (start.kind, start.at, start.who, start.what) == ("start", 1.0, "look", 'path="."')
    assert tell.timeline.now(START + timedelta(seconds=3)) == 'look path="." · 2.0 s'
    assert tell("run.tool.progress", call_id="c", fraction=0.5, text="half") == ()
    assert tell.timeline.now(START + timedelta(seconds=3)) == 'look path="." · 50% half · 2.0 s'
    assert tell("run.tool.output.delta", call_id="c", index=0, text="one\ntw")[0].what == "one"
    half, done = tell(
        "run.tool.result", 4.0, call_id="c", tool="look", status="succeeded", result="x", duration_ms=3000
    )
    assert half.what == "tw"
    assert (done.kind, done.outcome, done.seconds) == ("ok", "x", 3.0)
    assert tell.timeline.now(START) == ""


def test_a_background_task_is_reported_like_a_call_under_its_own_id(tell: Teller) -> None:
    (start,) = tell(
        "run.task.started", 1.0, task_id="c.task1", call_id="c", tool="crawl", arguments={"url": "x"}, attempt=1
    )
    assert (start.kind, start.who, start.what, start.outcome) == ("start", "crawl", 'url="x"', "in the background")
    assert tell("run.task.progress", task_id="c.task1", attempt=1, fraction=0.5) == ()
    assert tell.timeline.now(START + timedelta(seconds=3)) == 'crawl url="x" · 50% · 2.0 s'
    (line,) = tell("run.task.output.delta", task_id="c.task1", attempt=1, index=0, text="one\n")
    assert (line.kind, line.what) == ("output", "one")
    (end,) = tell(
        "run.task.finished",
        4.0,
        task_id="c.task1",
        call_id="c",
        tool="crawl",
        status="failed",
        result="boom",
        code="tool_error",
        attempts=1,
        duration_ms=3000,
    )
    assert (end.kind, end.who, end.outcome, end.seconds) == ("bad", "crawl", "tool_error: boom", 3.0)
    assert tell.timeline.now(START) == ""


def test_several_calls_at_once_are_one_status_line(tell: Teller) -> None:
    for name in ("a", "b", "c"):
        tell("run.tool.call", call_id=name, tool=name, arguments={})
        tell("run.tool.started", call_id=name, attempt=1)
    assert tell.timeline.now(START) == "a · 0 ms (and 2 other calls)"


def test_thinking_is_what_continues_between_calls(tell: Teller) -> None:
    tell("run.inference.started", 1.0, step=1)
    assert tell.timeline.now(START + timedelta(seconds=1.5)) == "helper thinks · 500 ms"
    (later,) = tell("run.inference.retried", 1.9, code="rate_limited", detail="slow down", delay_ms=12_000)
    assert "asks the model again in 12.0 s: slow down" in later.what
    (again,) = tell("run.inference.retried", 2.0, code="overloaded", detail="try later")
    assert again.what == "asks the model again: try later"
    (on,) = tell("run.inference.retried", 2.1, code="interrupted", detail="cut", mode="continue")
    assert on.what == "asks the model to continue: cut"
    (other,) = tell("run.inference.retried", 2.1, code="overloaded", detail="busy", model="second")
    assert other.what == "asks the model second: busy"
    tell("run.inference.completed")
    assert tell.timeline.now(START) == ""


def test_a_request_that_leaves_messages_out_says_how_many(tell: Teller) -> None:
    (line,) = tell("run.context.trimmed", 1.0, step=3, messages=12, by="ContextWindow")
    assert line.what == "12 older messages left out of the request (ContextWindow)"
    assert list(tell("run.usage.spent", 1.0, by="Compaction", usage={})) == []


def test_a_denied_call_is_reported_once(tell: Teller) -> None:
    tell("run.tool.call", call_id="c", tool="pay", arguments={})
    (waits,) = tell("run.approval.requested", ticket_id="t", call_id="c", tool="pay", arguments={}, reason="user_input")
    assert (waits.kind, waits.outcome) == ("wait", "waits for a decision")
    (no,) = tell("run.approval.resolved", ticket_id="t", call_id="c", resolution="denied", by="ann", reason="no\x1b!")
    assert (no.kind, no.who, no.outcome) == ("no", "pay", "denied by ann: no\\x1b!")
    assert tell("run.tool.result", call_id="c", tool="pay", status="cancelled", duration_ms=0) == ()


def test_a_call_is_reported_with_the_arguments_that_it_runs_with(tell: Teller) -> None:
    tell("run.tool.call", call_id="c", tool="pay", arguments={"cents": 900})
    assert tell("run.tool.resumed", call_id="c", ticket_id="t", mode="replay_tool_call") == ()
    assert tell("run.tool.started", call_id="c", attempt=1)[0].what == "cents=900"
    tell("run.tool.resumed", call_id="c", ticket_id="t", mode="replay_tool_call", arguments={"cents": 5})
    assert tell("run.tool.started", call_id="c", attempt=2)[0].what == "cents=5"
    (end,) = tell("run.tool.result", call_id="c", tool="pay", status="succeeded", result="x", duration_ms=1)
    assert end.what == "cents=5"


def test_a_plugin_that_changes_arguments_is_named(tell: Teller) -> None:
    tell("run.tool.call", call_id="c", tool="pay", arguments={"cents": 900})
    (note,) = tell("run.tool.edited", call_id="c", arguments={"cents": 7}, by="Policy")
    assert (note.kind, note.who, note.what) == ("note", "pay", "Policy changed its arguments: cents=7")
    assert tell("run.tool.started", call_id="c", attempt=1)[0].what == "cents=7"


def test_what_gates_and_state_disagree_about_is_noted(tell: Teller) -> None:
    tell("run.tool.call", call_id="c", tool="put", arguments={})
    (note,) = tell("run.gate.overruled", call_id="c", plugin="Cache", verdict="set_result", by="(approval)")
    assert (note.kind, note.who) == ("note", "put")
    assert note.what == "the verdict of Cache (set_result) gave way to that of (approval)"
    tell("run.tool.result", call_id="c", tool="put", status="succeeded", result="x", duration_ms=1)
    (note,) = tell("run.state.conflict", key="k", writer="c", other="b", detail="'k' was changed by b", retried=True)
    assert (note.who, note.what) == ("put", "what it wrote to state was dropped: 'k' was changed by b; it runs again")
    (note,) = tell("run.state.conflict", key="k", writer="step_start", other=None, detail="changed")
    assert (note.who, note.what) == ("step_start", "what it wrote to state was dropped: changed")
    assert tell("run.state.changed", revision=1, keys=["k"], by="c") == ()


def test_the_verdict_of_a_guardrail_is_noted(tell: Teller) -> None:
    tell("run.tool.call", call_id="c", tool="put", arguments={})
    more = {"guardrail": "clean", "step": 1}
    (note,) = tell("run.guardrail.tripped", kind="tool_input", verdict="reject", call_id="c", info="not this", **more)
    assert (note.kind, note.who, note.what) == ("note", "put", "the guardrail clean rejected the arguments: not this")
    (note,) = tell("run.guardrail.tripped", kind="tool_output", verdict="trip", call_id="c", info={"n": 1}, **more)
    assert note.what == 'the guardrail clean stopped the run for the result of this call: {"n": 1}'
    (note,) = tell("run.guardrail.tripped", kind="input", verdict="trip", **more)
    assert (note.who, note.what) == ("helper", "the guardrail clean stopped the run for its input")


def test_what_is_unusual_is_noted(tell: Teller) -> None:
    (note,) = tell("run.degraded", reason="agent_changed")
    assert note.what == "continues with less than it asked for: agent_changed"
    (note,) = tell("run.cleanup.overrun", call_id="c", tool="sleepy", grace_seconds=5.0)
    assert note.what == "did not end within its grace of 5.0 s; its late result is dropped"
    assert tell("run.some.later.type", anything=1) == ()


def test_a_line_of_plain_text_has_no_colours() -> None:
    out = io.StringIO()
    Screen(out).line(Line(at=1.2, kind="ok", who="look", what="a", outcome="b", seconds=0.02))
    assert out.getvalue() == "    1.2s  ok      look                20 ms  a → b\n"


def test_the_json_screen_says_nothing_for_people() -> None:
    out = io.StringIO()
    screen = JsonScreen(out)
    screen.row("hello")
    screen.line(Line(at=0, kind="ok", who="x"))
    screen.outcome({"at": START})
    assert json.loads(out.getvalue()) == {"at": "2026-01-01T00:00:00.000Z"}


# --- questions -------------------------------------------------------------------------------------------------------


def ticket(**changes: Any) -> gr.Ticket:
    values: dict[str, Any] = {
        "ticket_id": "r.t1",
        "run_id": "r",
        "call_id": "c",
        "tool": "write",
        "arguments": {"name": "a", "content": "x"},
        "fingerprint": "f",
        "reason": "tool_permission",
        "requested_at": START,
        **changes,
    }
    return gr.Ticket(**values)


class Typing:
    """A keyboard with a user who types these lines, then Ctrl-D."""

    def __init__(self, *lines: str) -> None:
        self.lines = deque(lines)

    def forget(self) -> None: ...

    async def line(self) -> str | None:
        return self.lines.popleft() if self.lines else None


async def answered(asked: gr.Ticket, *lines: str, change: Change | None = None) -> tuple[gr.Decision | None, str]:
    out = io.StringIO()
    keyboard: Any = Typing(*lines)
    answer = await ask(asked, keyboard=keyboard, screen=Screen(out), change=change)
    assert answer is None or answer.remember is None
    return None if answer is None else answer.decision, out.getvalue()


async def remembered(question: dict[str, Any], *lines: str) -> tuple[Any, str]:
    """What a person answers to the gate of `Permission`."""
    out = io.StringIO()
    keyboard: Any = Typing(*lines)
    asking = ticket(tool="shell", arguments={"command": "make"}, parameters={"permission": question})
    answer = await ask(asking, keyboard=keyboard, screen=Screen(out))
    assert answer is None or answer.remember is None or answer.decision == asking.approve()
    return answer and answer.remember, out.getvalue()


ASKED = {"effect": "shell", "command": "make", "remember": True}


@pytest.mark.parametrize(
    ("lines", "scope", "form"),
    [
        (("a", ""), "thread", "argv"),
        (("always", "Tool, run"), "run", "tool"),
        (("a", "workspace"), "workspace", "argv"),
        (("a", "wrkspace", "a", "call thread"), "thread", "call"),
    ],
)
async def test_always_approves_and_says_what_is_remembered(lines: tuple[str, ...], scope: str, form: str) -> None:
    answer, shown = await remembered(ASKED, *lines)
    assert answer == gr.ext.Always(scope=scope, form=form)
    assert "y yes · a always · e edit · n no" in shown
    assert "Remember call or tool or argv, for the run or thread or workspace (Enter: argv thread)? " in shown
    assert ("did you mean workspace? type one of: call" in shown) == ("wrkspace" in lines)


async def test_always_is_offered_only_for_what_may_be_remembered() -> None:
    for question in ({**ASKED, "remember": False}, {}, {"remember": 1}):
        answer, shown = await remembered(question, "a", "y")
        assert answer is None
        assert "always" not in shown
    answer, _ = await remembered({**ASKED, "command": ""}, "a", "")
    assert answer == gr.ext.Always(form="call")
    left, _ = await remembered(ASKED, "a")
    assert left is None


async def test_yes_and_no_decide_exactly_the_action_that_was_shown() -> None:
    decision, shown = await answered(ticket(), "YES")
    assert decision == ticket().approve()
    assert decision is not None
    assert decision.fingerprint == "f"
    assert "May write run?" in shown
    decision, _ = await answered(ticket(), "n", "not now")
    assert decision == ticket().deny("not now")
    decision, _ = await answered(ticket(), "n", "")
    assert decision == ticket().deny()


@pytest.mark.parametrize("word", ["approve", "resume", "Deny", "cancel"])
async def test_the_words_of_a_decision_are_answers(word: str) -> None:
    decision, _ = await answered(ticket(), word, "")
    assert decision == (ticket().approve() if word in ("approve", "resume") else ticket().deny())
    unknown, _ = await answered(ticket(reason="outcome_unknown"), word, "")
    assert unknown is not None
    assert unknown.action == ("resume" if word in ("approve", "resume") else "cancel")


async def test_a_word_that_is_nearly_one_is_no_answer() -> None:
    decision, shown = await answered(ticket(), "aprove", "q")
    assert decision is None
    assert "did you mean approve? type one of: y, e, n, v, q" in shown


@pytest.mark.parametrize("lines", [[], ["q"], ["", "hm", "q"], ["n"]])
async def test_leaving_decides_nothing(lines: list[str]) -> None:
    """Ctrl-D at the question leaves; at the reason it is a no without one."""
    decision, shown = await answered(ticket(), *lines)
    assert decision == (ticket().deny() if lines == ["n"] else None)
    assert shown.count("type one of: y, e, n, v, q") == (2 if len(lines) == 3 else 0)


async def test_an_unknown_outcome_has_three_ways_out() -> None:
    unknown = ticket(reason="outcome_unknown")
    assert (await answered(unknown, "r"))[0] == unknown.approve()
    assert (await answered(unknown, "y", "u", "", "u", '{"paid": 5}'))[0] == unknown.approve({"paid": 5})
    assert (await answered(unknown, "c", "it is paid"))[0] == unknown.deny("it is paid")
    assert not answerable_by_yes(unknown)


async def test_a_ticket_that_wants_a_value_asks_for_it() -> None:
    wants = ticket(
        reason="user_input",
        action="ask:colour",
        message="Which colour?",
        response_schema={"type": "string"},
        resume_mode="use_decision_as_tool_result",
    )
    decision, shown = await answered(wants, "a", "blue")
    assert decision == wants.approve("blue")
    assert "write asks for an answer: ask:colour\nWhich colour?\n" in shown
    assert '{"type": "string"}' in shown
    assert not answerable_by_yes(wants)
    assert answerable_by_yes(ticket(reason="user_input"))


HELD: dict[str, Any] = {"call_id": None, "tool": "", "arguments": {}, "reason": "manual_pause", "action": "run:resume"}


async def test_a_held_run_is_asked_about_as_a_run() -> None:
    held = ticket(**HELD, message="ada paused the run: lunch")
    decision, shown = await answered(held, "y")
    assert decision == held.approve()
    assert "The run is held. May it continue?\nada paused the run: lunch\n" in shown
    assert (await answered(held, "a", "The shop is open."))[0] == held.approve("The shop is open.")
    assert (await answered(held, "n", "enough"))[0] == held.deny("enough")
    assert answerable_by_yes(held)


async def test_a_run_that_waits_for_an_event_asks_for_what_the_event_brings() -> None:
    asks = ticket(**{**HELD, "reason": "external_event", "response_schema": {"type": "object"}, "action": "build:done"})
    decision, shown = await answered(asks, "a", '{"build": 7}')
    assert decision == asks.approve({"build": 7})
    assert "The run waits for an answer: build:done" in shown


@pytest.mark.parametrize(("typed", "value"), [("", None), ("null", None), ("3", 3), ('"3"', "3"), ("plain", "plain")])
def test_a_value_is_json_or_text(typed: str, value: object) -> None:
    assert read_value(typed) == value


async def test_long_content_is_cut_until_all_is_requested() -> None:
    long = ticket(arguments={"content": "\n".join(f"line {number}" for number in range(100))})
    _, shown = await answered(long, "q")
    assert f"line {PREVIEW - 1}\n" in shown
    assert f"line {PREVIEW}\n" not in shown
    assert "… 76 more lines; v shows all" in shown
    _, shown = await answered(long, "v", "q")
    assert "line 99\n" in shown


def test_a_change_of_a_file_is_shown_as_a_diff_and_whole_on_demand() -> None:
    before, after = "\n".join("abcdefgh"), "\n".join("abcdXfgh")
    change = FileChange(argument="content", path="/tmp/f", before=before, after=after)  # noqa: S108 - never opened
    rows = [text for text, _ in details(ticket(), change)]
    assert "  -e" in rows
    assert "  +X" in rows
    assert "   a" not in rows
    assert "   a" in [text for text, _ in details(ticket(), change, whole=True)]
    same = FileChange(argument="content", path="f", before=after, after=after)
    assert any("stays the same" in text for text, _ in details(ticket(), same))
    new = FileChange(argument="content", path="f", before=None, after="one\n\x1b[2J")
    assert [text for text, _ in details(ticket(), new)][-2:] == ["  + one", "  + \\x1b[2J"]


def test_who_may_not_decide_is_shown_who_may() -> None:
    mine = ticket(reviewers=("ann", "bob"), expires_at=datetime.now(UTC))
    assert (barred(mine, "ann"), barred(ticket(), "carl")) == ("", "")
    assert barred(mine, "carl") == "Only ann or bob may decide about write; you are carl."
    shown = "\n".join(text for text, _ in details(mine))
    assert "decided by ann or bob only" in shown
    assert "then it is denied" in shown


async def test_a_question_takes_edited_arguments() -> None:
    decision, shown = await answered(ticket(), "e", "nonsense", "e", "[]", "e", "", "e", '{"content": "y"}')
    assert decision is not None
    assert decision.edited_arguments == {"name": "a", "content": "y"}
    assert "that is no JSON" in shown
    assert "write a JSON object" in shown


# --- screens ---------------------------------------------------------------------------------------------------------


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def rich_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> tuple[Screen, Tty]:
    from greenroom.transport.terminal.rich_screen import RichScreen

    out = Tty()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "40")
    return RichScreen(), out


def plain_lines(out: Tty) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "").split("\n")


@pytest.mark.parametrize("columns", [48, 100, 200])
def test_lines_end_between_words_also_beside_a_word_that_is_longer_than_a_line(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    screen, out = rich_screen(monkeypatch, columns)
    link = "https://example.org/" + "x" * columns
    said = " ".join(f"word{number:03}" for number in range(60))
    reported = f"{said} {link} {said}"
    screen.row(f"  {reported}")
    screen.line(Line(kind="text", at=1.0, who="helper", what=reported))
    screen.prompt(f"{said} ? ")
    assert "? \x1b[0m" in out.getvalue(), "the answer comes behind a blank that is the question's own"
    lines = plain_lines(out)
    assert {word for line in lines for word in line.split() if word.startswith(("word", "http"))} == set(
        reported.split()
    )
    assert all(len(line) <= columns or link in line for line in lines)
    assert [line.strip() for line in lines if link in line] == [link, link]


@pytest.mark.parametrize("columns", [48, 100, 200])
def test_what_came_of_a_call_is_seen_beside_long_arguments(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    screen, out = rich_screen(monkeypatch, columns)
    screen.line(Line(kind="ok", at=1.0, who="refund", what="note=" + "n" * 300, outcome="paid back", seconds=0.1))
    assert "paid back" in out.getvalue()
    assert columns == 48 or len(plain_lines(out)[0]) <= columns


def test_lines_wait_while_a_long_answer_is_typed() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.prompt("Why not? ", long=True)
    screen.above(Line(kind="text", at=1.0, who="helper", what="first"))
    screen.above(Line(kind="text", at=1.0, who="helper", what="second"))
    assert out.getvalue() == "Why not? "
    screen.row("third")
    assert re.findall("first|second|third", out.getvalue()) == ["first", "second", "third"]
    screen.prompt("Why not? ", long=True)
    screen.above(Line(kind="text", at=1.0, who="helper", what="fourth"))
    screen.close()
    assert "fourth" in out.getvalue()


def test_a_screen_that_hides_texts_draws_lines_above_an_open_question() -> None:
    out = io.StringIO()
    screen = HidingScreen(Screen(out), lambda text: text.replace("hunter2", "[redacted]"))
    screen.prompt("y yes ? ")
    screen.above(Line(kind="text", at=1.0, who="helper", what="it is hunter2"))
    assert "it is [redacted]" in out.getvalue()
    assert out.getvalue().endswith("y yes ? ")


def test_a_screen_that_hides_texts_is_as_wide_as_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, _ = rich_screen(monkeypatch, 61)
    assert HidingScreen(screen, str).width == 61


def test_a_live_ticket_says_that_a_process_waits() -> None:
    rows = [text.strip() for text, _ in details(ticket(live=True))]
    assert "decide soon: a process waits" in rows
    assert "decide soon: a process waits" not in [text.strip() for text, _ in details(ticket())]


def test_what_a_program_says_and_notes_are_lines_of_its_call(tell: Teller) -> None:
    tell("run.created")
    tell("run.tool.call", call_id="c", tool="coder", arguments={}, status="new", effect="read", step=1)
    told = [
        *tell("run.gate.allowed", call_id="c", plugin="permission", note="rule 3"),
        *tell("run.tool.started", call_id="c", attempt=1, status="running"),
        *tell("run.message.completed", message_id="m", role="assistant", text="I look.\n", call_id="c"),
        *tell("run.plan.changed", call_id="c", entries=[{"text": "test", "status": "open"}]),
        *tell("run.file.read", call_id="c", path="a.txt", read_at="now"),
        *tell("runtime.timeout", runtime="acme", which="idle", seconds=300.0),
        *tell("runtime.unavailable", code="x", runtime="acme", reason="not logged in", hint="Log in."),
        *tell("schema.validation_failed", source="acme", line=7, rule="json", sample="{"),
    ]
    assert [f"{line.kind} {line.who}: {line.what or line.outcome}" for line in told] == [
        "start coder: permission: rule 3",
        "text coder: I look.",
        "note coder: plans: test (open)",
        "note coder: has read a.txt",
        "note acme: did not answer for 5 min 0 s (idle)",
        "note acme: is not available: not logged in Log in.",
        "note acme: broke the rule json in line 7: {",
    ]
    assert tell("run.tool.call", call_id="d", tool="look", arguments={}, status="new", effect="read", step=1) == ()


def test_a_nested_call_is_told_with_the_tool_that_makes_it(tell: Teller) -> None:
    tell("run.created")
    tell("run.tool.call", call_id="c", tool="coder", arguments={}, status="new", effect="read", step=1)
    nested = {"call_id": "c.1", "tool": "Bash", "parent_call_id": "c", "effect": "shell"}
    tell("run.tool.call", arguments={"command": "make"}, status="new", step=1, **nested)
    ticket = {"ticket_id": "t", "tool": "Bash", "fingerprint": "f", "resume_mode": "replay_tool_call", "live": True}
    asked = {"call_id": "c.1", "reason": "tool_permission", "arguments": {"command": "make"}}
    (line,) = tell("run.approval.requested", **ticket, **asked)
    assert (line.kind, line.who) == ("wait", "coder > Bash")
    (line,) = tell("run.tool.started", call_id="c.1", attempt=1, status="running")
    assert line.who == "coder > Bash"


# --- differences -----------------------------------------------------------------------------------------------------

DIFFERENCE = """\
diff --git a/old.md b/old.md
--- a/old.md
+++ b/old.md
@@ -1,3 +1,3 @@
 first
--- a line of dashes
+\x1b[2Ja new line
diff --git a/new.md b/new.md
new file mode 100644
--- /dev/null
+++ b/new.md
@@ -0,0 +1 @@
+new
\\ No newline at end of file
"""


def test_the_lines_of_a_difference_have_the_styles_of_what_they_do() -> None:
    styles = [style for _, style in rows(DIFFERENCE)]
    header, added = ["strong", "dim", "dim", "dim"], "added"
    assert styles == [*header, "", "removed", added, "strong", "dim", *header[1:], added, ""]
    assert [text for text, style in rows(DIFFERENCE) if style == added] == ["  +\\x1b[2Ja new line", "  +new"]


async def test_a_proposal_is_shown_with_its_difference_and_refused_with_a_text() -> None:
    proposal = ticket(tool="apply_changes", arguments={"proposal": "p1", "summary": "words"})
    change = ProposedDifference(proposal="p1", text=DIFFERENCE)
    decision, shown = await answered(proposal, "n call it newer.md", change=change)
    assert "diff --git a/new.md b/new.md" in shown
    assert "n TEXT says no, and the agent reads TEXT" in shown
    assert decision == proposal.deny("call it newer.md", text="call it newer.md")
    long = ProposedDifference(proposal="p1", text=DIFFERENCE * 10)
    assert "more lines; v shows all" in (await answered(proposal, "q", change=long))[1]
    assert (await answered(proposal, "v", "q", change=long))[1].count("+new\n") == 11


async def test_a_no_with_a_text_is_for_calls() -> None:
    assert (await answered(ticket(), "no  not today"))[0] == ticket().deny("not today", text="not today")
    assert (await answered(ticket(call_id=None, tool=""), "n not today", "q"))[0] is None
    assert (await answered(ticket(reason="outcome_unknown"), "n not today", "q"))[0] is None


class Published:
    """A run with artifacts."""

    def __init__(self, *artifacts: gr.Artifact, data: bytes | None) -> None:
        self.artifacts, self.data = artifacts, data
        self.asked: list[str] = []

    async def view(self, run_id: str) -> Any:
        self.asked.append(run_id)
        return self

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        if self.data is None:
            raise gr.UnknownArtifact("pruned")
        self.asked.append(artifact_id)
        return self.data


async def test_the_difference_of_a_ticket_is_the_artifact_with_the_name_of_its_proposal() -> None:
    texts = [gr.Artifact(kind="diff", name=f"{name}.diff", media_type="text/plain", artifact_id=name) for name in "pq"]
    other = gr.Artifact(kind="file", name="p.diff", media_type="text/plain", artifact_id="other")
    run = Published(*texts, other, data=b"a \xff")
    proposal = ticket(tool="apply_changes", arguments={"proposal": "p"}, child_run_id="child")
    assert await difference_of(run, proposal) == ProposedDifference(proposal="p", text="a \ufffd")
    assert run.asked == ["child", "p"]
    assert await difference_of(Published(*texts, data=None), proposal) is None
    assert await difference_of(Published(data=b"x"), proposal) is None
    assert await difference_of(run, ticket(tool="other", arguments={"proposal": "p"})) is None
    assert await difference_of(run, ticket(tool="apply_changes", arguments={"proposal": 7})) is None
