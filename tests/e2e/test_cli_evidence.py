"""`greenroom evidence`: the account of a run, and a file against which every change of the log is found."""

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

@gr.tool(effect="write", needs_approval=True)
async def pay(sum: int) -> str:
    return f"paid {sum}"

@gr.tool(effect="read")
async def look(text: str) -> str:
    return f"saw {text}"

expert = gr.Agent("expert", tools=[look], model=ScriptedModel([call("look", text="x", id="L"), "looked"]))
ask = expert.as_tool(name="ask", description="Asks the expert.")
boss = gr.Agent("boss", tools=[pay, ask], model=ScriptedModel([
    [call("pay", sum=1, id="P"), call("ask", input="look", id="Q")], "done"]))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A database with a run that asked, and a child run."""
    (tmp_path / "agents.py").write_text(AGENTS)
    inside = Inside(tmp_path, tmp_path / "state", monkeypatch)
    assert inside("run", "agents.py:boss", "go", "--db", "a.db", "--run-id", "run-1", "--yes").returncode == 0
    return inside


def evidence(inside: Inside, *options: str) -> Any:
    return inside("evidence", "run", "--db", "a.db", *options)


def change(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "a.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_the_account_names_who_let_each_call_pass(inside: Inside) -> None:
    done = evidence(inside)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0].startswith("run-1: boss, started by ")
    (asked,) = [line for line in lines if line.startswith("asked at ")]
    assert "(tool_permission): approved by " in asked
    assert "ran without a question" in lines
    assert any("look [read]" in line for line in lines)  # of the child run
    account = json.loads(evidence(inside, "--json").stdout)
    (pay,) = [call for call in account["calls"] if call["tool"] == "pay"]
    assert (pay["status"], pay["tickets"][0]["resolution"]) == ("succeeded", "approved")
    assert account["children"][0]["calls"][0]["tool"] == "look"


# the rows of run-1 have the number 1, those of its child run 2
CHANGES: dict[str, tuple[list[str], str]] = {
    "untouched": ([], "every event is as it was when the file was made"),
    "changed": (
        ["UPDATE events SET frame = CAST(replace(frame, 'boss', 'b0ss') AS BLOB) WHERE run = 1 AND seq = 1"],
        "event 1 of run run-1 was changed",
    ),
    "dropped": (["DELETE FROM events WHERE run = 1 AND seq = 4"], "event 4 of run run-1 was dropped"),
    "three dropped": (["DELETE FROM events WHERE run = 1 AND seq IN (4, 5, 9)"], "event 4 of run run-1 was dropped"),
    "moved": (
        [
            "UPDATE events SET seq = -seq WHERE run = 1 AND seq IN (5, 6)",
            "UPDATE events SET seq = 11 + seq WHERE seq < 0",
        ],
        "event 5 of run run-1 was moved",
    ),
    "added": (
        ["INSERT INTO events SELECT 1, 1000, CAST(replace(frame, 'r', 's') AS BLOB) FROM events WHERE run + seq = 2"],
        "of run run-1 was added",
    ),
    "of a child run": (["DELETE FROM events WHERE run = 2 AND seq = 3"], "event 3 of run child_"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_of_the_log_is_named(inside: Inside, tmp_path: Path, name: str) -> None:
    statements, sentence = CHANGES[name]
    assert evidence(inside, "--export", "e").returncode == 0
    change(tmp_path, *statements)
    done = evidence(inside, "--check", "e")
    assert done.returncode == (1 if statements else 0), done.stdout + done.stderr
    assert sentence in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--check", "missing"], "--check missing: No such file"),
        (["--check", "agents.py"], "no evidence file"),
        (["--check", "cut"], "the file is cut"),
        (["--export", "missing/e"], "--export missing/e: No such file"),
        (["--export", "e", "--check", "e"], "two commands"),
    ],
)
def test_a_file_that_is_none_is_one_sentence_and_2(inside: Inside, tmp_path: Path, options, sentence) -> None:
    assert evidence(inside, "--export", "whole").returncode == 0
    (tmp_path / "cut").write_bytes(b"".join((tmp_path / "whole").read_bytes().splitlines(keepends=True)[:5]))
    done = evidence(inside, *options)
    assert (done.returncode, sentence in one_line(done.stderr)) == (2, True), done.stderr
    assert sorted(path.name for path in tmp_path.glob("*e*") if path.is_file()) == ["agents.py", "whole"]
