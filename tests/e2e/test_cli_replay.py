"""`greenroom replay`: the first event that does not come again is named, and the machine is walked input by input."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from .cli_kit import Inside, one_line

pytestmark = pytest.mark.slow

AGENTS = """
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(effect="write")
async def search(text: str) -> str:
    return f"found {text}"

@gr.tool(name="search", effect="write", needs_approval=True)
async def careful(text: str) -> str:
    raise AssertionError("a replay calls no tool")

support = gr.Agent("support", tools=[search], model=ScriptedModel([call("search", text="swordfish", id="A"), "done"]))
other = gr.Agent("other", tools=[careful], model=ScriptedModel(["unused"]))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A database with a run that is done."""
    (tmp_path / "agents.py").write_text(AGENTS)
    inside = Inside(tmp_path, tmp_path / "state", monkeypatch)
    assert inside("run", "agents.py:support", "look it up", "--db", "a.db", "--run-id", "run-1").returncode == 0
    return inside


def replayed(inside: Inside, *options: str) -> Any:
    return inside("replay", "run", "--db", "a.db", "--agent", "agents.py", *options)


def forge(database: Path, type_: str, **changes: Any) -> int:
    """Change the payload of the first event of a type; its sequence."""
    with sqlite3.connect(database) as connection:
        for sequence, frame in connection.execute("SELECT seq, frame FROM events ORDER BY seq").fetchall():
            event = json.loads(frame)
            if event["type"] == type_:
                event["payload"] |= changes
                frame = json.dumps(event, separators=(",", ":")).encode()  # noqa: PLW2901
                connection.execute("UPDATE events SET frame = ? WHERE seq = ?", (frame, sequence))
                break
    connection.close()
    return int(sequence)


def test_a_run_that_comes_again_as_it_is_stored_ends_with_0(inside: Inside) -> None:
    done = replayed(inside)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "run-1: 20 events, each of them as it is stored\n"
    report = json.loads(replayed(inside, "--json").stdout)
    assert (report["type"], report["runId"], report["result"], report["events"]) == ("replay", "run-1", "equal", 20)


def test_a_changed_event_is_named_with_the_input_before_it(inside: Inside) -> None:
    sequence = forge(inside.folder / "a.db", "run.tool.result", result="found nothing")
    done = replayed(inside)
    assert done.returncode == 1
    first, after, text = done.stdout.splitlines()
    assert first == f"run-1: {sequence - 1} events as stored, then:"
    assert "CallReturned(call_id='A', attempt=1, result='found swordfish'" in after
    assert f"event {sequence}: run.tool.result: result is recorded as 'found nothing'" in text
    report = json.loads(replayed(inside, "--json").stdout)
    assert (report["result"], report["difference"]["sequence"], report["difference"]["path"]) == (
        *("different", sequence),
        "result",
    )


def test_another_agent_is_tried_when_it_is_named(inside: Inside) -> None:
    done = inside("replay", "run-1", "--db", "a.db", "--agent", "agents.py:other")
    assert done.returncode == 1
    assert "recorded run.tool.started, replayed run.tool.suspended" in done.stdout


def test_step_shows_the_state_before_each_input_and_what_came_of_it(inside: Inside) -> None:
    lines = replayed(inside, "--step").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "CallReturned(" in line)
    assert lines[at - 1] == "  state   applying, tools, step 1, event 11, inbox 0; calls: A running at body"
    assert lines[at + 1].startswith("  effect  CallModel(message_id='run-1.m4', step=2")
    assert lines[at + 2].startswith('  event   12 run.tool.result {"callId": "A"')
    assert lines[-1] == "run-1: 20 events, each of them as it is stored"
    *steps, outcome = map(json.loads, replayed(inside, "--step", "--json").stdout.splitlines())
    assert [step["number"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [event["sequence"] for step in steps for event in step["events"]] == list(range(1, 21))
    assert outcome["result"] == "equal"


def test_secrets_are_hidden_in_what_is_shown(inside: Inside) -> None:
    """They were not hidden in the events, so these differ; and what is said of that hides them."""
    (inside.folder / "hidden").write_text("swordfish\n")
    done = replayed(inside, "--step", "--secrets-file", "hidden")
    assert done.returncode == 1
    assert "[redacted]" in done.stdout
    assert "swordfish" not in done.stdout


def test_a_run_that_was_not_recorded_says_so(inside: Inside) -> None:
    with sqlite3.connect(inside.folder / "a.db") as connection:
        connection.execute("DELETE FROM record")
    connection.close()
    done = replayed(inside)
    assert done.returncode == 1
    assert "event 1: nothing of it is recorded: an older release" in done.stdout
    assert json.loads(replayed(inside, "--json").stdout)["result"] == "unreplayable"


def test_without_its_agent_a_run_cannot_be_replayed(inside: Inside) -> None:
    (inside.folder / "none.py").write_text(AGENTS.replace('"support"', '"one"'))
    for run, agent, text in (
        ("run-1", (), "name it: --agent FILE.py"),
        ("run-1", ("--agent", "none.py"), "has no agent 'support'"),
        ("nobody", ("--agent", "agents.py"), "no run has the id"),
    ):
        done = inside("replay", run, "--db", "a.db", *agent)
        assert done.returncode == 2
        assert text in one_line(done.stderr)
