"""`greenroom run`: anybody's agent, every kind of wrong input, and the questions a run can ask."""

import fcntl
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .cli_kit import Cli, Inside, one_line

pytestmark = pytest.mark.slow

SUPPORT = """
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid back {cents} of {order}"

agent = gr.Agent("support", tools=[refund], model=ScriptedModel([call("refund", order="7", cents=500), "done"]))
"""

BILLING = """
import os, signal
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(effect="write")
async def charge(ctx: gr.ToolContext, cents: int) -> str:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"charged {cents} in attempt {ctx.attempt}"

agent = gr.Agent("billing", tools=[charge], model=ScriptedModel([call("charge", cents=5), "done"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "support.py").write_text(SUPPORT)
    (folder / "billing.py").write_text(BILLING)
    return folder


@pytest.fixture
def cli(folder: Path, tmp_path: Path) -> Cli:
    return Cli(folder, tmp_path / "state")


@pytest.fixture
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(folder, tmp_path / "state", monkeypatch)


def agent_with(model: str, *lines: str) -> str:
    """An agent file with a model."""
    head = "import greenroom as gr\nfrom greenroom.testing import *\n"
    return "\n".join([head, *lines, f"agent = gr.Agent('one', model={model})\n"])


# --- the ways a run ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["support.py:agent", "support.py", "support:agent", "support"])
def test_an_agent_is_found_by_file_or_module_with_or_without_its_name(inside: Inside, target: str) -> None:
    done = inside("run", target, "refund", "--yes")
    assert done.returncode == 0, done.stderr
    assert "paid back 500 of 7" in done.stdout


def test_a_module_beside_the_agents_file_is_found(inside: Inside, folder: Path) -> None:
    (folder / "wording_of_this_test.py").write_text("ANSWER = 'from beside'\n")
    (folder / "importing.py").write_text(
        agent_with("ScriptedModel([ANSWER])", "from wording_of_this_test import ANSWER")
    )
    inside.folder = folder.parent
    done = inside("run", "here/importing.py", "hi")
    assert done.returncode == 0, done.stderr
    assert "from beside" in done.stdout


@pytest.mark.parametrize("options", [[], ["--no-approve"]])
def test_with_nobody_to_ask_the_run_waits(inside: Inside, options: list[str]) -> None:
    waiting = inside("run", "support.py", "refund", *options)
    assert waiting.returncode == 3
    assert "kept in memory only" in waiting.stdout
    waiting = inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1", *options)
    assert waiting.returncode == 3
    assert "resume with: greenroom run support.py --db s.db --resume r1" in waiting.stdout
    done = inside("run", "support.py", "--db", "s.db", "--resume", "r1", "--yes")
    assert done.returncode == 0


def test_the_beginning_of_an_id_is_enough_to_resume(inside: Inside) -> None:
    for run_id in ("order-7", "order-8"):
        assert inside("run", "support.py", "refund", "--db", "s.db", "--run-id", run_id).returncode == 3
    several = inside("run", "support.py", "--db", "s.db", "--resume", "ord", "--yes")
    assert several.returncode == 2
    assert "2 runs begin with 'ord', such as order-8 and order-7; write more of it" in one_line(several.stderr)
    assert inside("run", "support.py", "text", "--db", "s.db", "--run-id", "unique").returncode == 3
    waiting = inside("run", "support.py", "--db", "s.db", "--resume", "uni")
    assert "resume with: greenroom run support.py --db s.db --resume unique\n" in waiting.stdout
    assert inside("run", "support.py", "--db", "s.db", "--resume", "uni", "--yes").returncode == 0


def test_the_same_run_id_and_text_is_the_same_run(inside: Inside) -> None:
    first = inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1")
    again = inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1", "--yes")
    assert (first.returncode, again.returncode) == (3, 0)
    listed = inside("runs", "--db", "s.db", "--json")
    assert [json.loads(line)["runId"] for line in listed.stdout.splitlines()] == ["r1"]


def test_other_runs_of_a_database_are_left_alone(inside: Inside) -> None:
    """A command is about one run: it does not go on with what else is unfinished there, it says so."""
    inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1")
    inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r2")
    before = inside("show", "r1", "--db", "s.db", "--json", "--events").stdout
    other = inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r3", "--yes")
    assert "2 earlier runs not finished; the newest continues with: greenroom run support.py" in other.stdout
    assert inside("show", "r1", "--db", "s.db", "--json", "--events").stdout == before


def test_a_failed_run_is_code_one_with_its_recovery(inside: Inside, folder: Path) -> None:
    (folder / "bad.py").write_text(agent_with("ScriptedModel([fail('unauthorized', 'no key')])"))
    done = inside("run", "bad.py", "hi")
    assert done.returncode == 1
    assert "Failed (model_error): " in done.stdout
    assert "no key" in done.stdout
    report = json.loads(inside("run", "bad.py", "hi", "--json").stdout.splitlines()[-1])
    assert (report["status"], report["exit"], report["code"]) == ("failed", 1, "model_error")


def test_a_run_that_a_policy_cancels_is_code_four(cli: Cli, folder: Path) -> None:
    (folder / "strict.py").write_text(SUPPORT.replace("tools=[refund]", "tools=[refund], on_deny='cancel_run'"))
    with cli.terminal("run", "strict.py", "refund") as terminal:
        terminal.sees("May refund run?")
        terminal.sees("order: 7")
        terminal.sees("cents: 500")
        terminal.sees("leave it waiting ? ")
        terminal.types("no\n")
        terminal.sees("Why not?")
        terminal.types("\n")
        terminal.sees("Cancelled")
        assert terminal.ends() == 4


def test_json_is_events_then_the_outcome_and_what_tools_print_goes_elsewhere(inside: Inside, folder: Path) -> None:
    loud = SUPPORT.replace("    return f", "    print('LOUD')\n    return f") + "\nprint('IMPORTED')\n"
    (folder / "loud.py").write_text(loud)
    done = inside("run", "loud.py", "refund", "--json", "--yes", "--db", "s.db")
    *events, outcome = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "run.completed"
    assert (outcome["status"], outcome["output"], outcome["exit"]) == ("completed", "done", 0)
    assert done.stderr == "IMPORTED\nLOUD\n"


def test_json_names_the_tickets_that_wait(inside: Inside) -> None:
    done = inside("run", "support.py", "refund", "--json", "--db", "s.db", "--run-id", "r1")
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, outcome["status"], outcome["exit"]) == (3, "waiting", 3)
    assert outcome["tickets"][0]["arguments"] == {"order": "7", "cents": 500}
    assert outcome["resume"] == "greenroom run support.py --db s.db --resume r1"


# --- a crash in the middle of an effect ------------------------------------------------------------------------------


@pytest.fixture
def crashed(cli: Cli) -> Cli:
    """A process that was killed in the middle of a write."""
    assert cli("run", "billing.py", "go", "--db", "b.db", "--run-id", "r1").returncode == -signal.SIGKILL
    return cli


def test_yes_does_not_let_a_held_run_go_on(inside: Inside, folder: Path) -> None:
    (folder / "support.py").write_text(SUPPORT)
    assert inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1").returncode == 3
    assert inside("pause", "r1", "--reason", "lunch", "--db", "s.db").returncode == 0
    done = inside("run", "support.py", "--db", "s.db", "--resume", "r1", "--yes")
    assert (done.returncode, "the run" in done.stdout) == (3, True)
    assert inside("approve", "r1", "t2", "--db", "s.db").returncode == 0
    assert inside("run", "support.py", "--db", "s.db", "--resume", "r1", "--yes").returncode == 0


def test_yes_does_not_answer_whether_an_effect_has_happened(crashed: Cli, inside: Inside) -> None:
    done = inside("run", "billing.py", "--db", "b.db", "--resume", "r1", "--yes")
    assert done.returncode == 3
    assert "it is unknown whether it took effect" in done.stdout
    assert "--yes approves calls" in done.stdout


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        (["r"], "charged 5 in attempt 2"),
        (["u", '"charged once"'], "charged once"),
        (["c", "find out first"], "find out first"),
    ],
)
def test_the_three_ways_out_of_an_unknown_outcome(crashed: Cli, keys: list[str], result: str) -> None:
    with crashed.terminal("run", "billing.py", "--db", "b.db", "--resume", "r1") as terminal:
        terminal.sees("Did charge take effect?")
        terminal.sees("r run it again · u use a result · c cancel the call")
        terminal.sees("? ")
        for key in keys:
            terminal.types(f"{key}\n")
            terminal.sees(f"{key}\r\n")
        terminal.sees(result)
        assert terminal.ends() == 0


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "target", "words"),
    [
        (None, "nowhere.py:agent", "there is no file nowhere.py"),
        (None, "../here", "../here is a folder"),
        (None, "no_such_module:agent", "No module named 'no_such_module'"),
        (None, "a..b", "'a..b' names no agent"),
        (None, "", "'' names no agent"),
        ("def (:\n", "x.py", "SyntaxError: invalid syntax (x.py, line 1)"),
        ("import sys\n\n1 / 0\n", "x.py", "ZeroDivisionError: division by zero (x.py, line 3)"),
        ("import sys\nsys.exit(7)\n", "x.py", "it exits (SystemExit: 7)"),
        ("import json\n", "x.py", "it has no agent"),
        (SUPPORT, "x.py:nobody", "x.py has no 'nobody'; its agents are: agent"),
        (SUPPORT, "x.py:refund", "x.py:refund is of type Tool, not an agent; its agents are: agent"),
        (SUPPORT + "\nother = gr.Agent('other')\n", "x.py", "its agents are: agent, other; name one, as in x.py:agent"),
        ("import greenroom as gr\na = gr.Agent('has no model')\n", "x.py", "agent key 'has no model'"),
        ("import greenroom as gr\na = gr.Agent('bare')\n", "x.py", "agent 'bare' has no model"),
        (
            "import greenroom as gr\na = gr.Agent('far', model='elsewhere:gpt-5-mini')\n",
            "x.py",
            "no provider is installed",
        ),
    ],
)
def test_an_agent_that_can_not_be_had_is_one_line_and_code_two(
    inside: Inside, folder: Path, content: str | None, target: str, words: str
) -> None:
    if content is not None:
        (folder / "x.py").write_text(content)
    done = inside("run", target, "hi")
    assert done.returncode == 2
    assert words in one_line(done.stderr)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: AGENT"),
        (["support.py"], "nothing to ask the agent"),
        (["support.py", " "], "nothing to ask the agent"),
        (["support.py", "--resume", "r1"], "needs the database that the run is in: add --db FILE"),
        (["support.py", "text", "--db", "s.db", "--resume", "r1"], "omit TEXT"),
        (["support.py", "--run-id", "x", "--db", "s.db", "--resume", "r1"], "omit --run-id"),
        (
            ["support.py", "--db", "s.db", "--resume", "r9"],
            "no run has the id 'r9'; list the known ones with `greenroom runs --db s.db`",
        ),
        (["billing.py", "--db", "s.db", "--resume", "r1"], "run r1 is one of agent 'support', not of 'billing'"),
        (["support.py", "other", "--db", "s.db", "--run-id", "r1"], "run 'r1' exists with another content"),
        (["support.py", "text", "--run-id", "a/b"], "run_id='a/b'"),
        (["support.py", "text", "--wrong"], "unrecognized arguments: --wrong"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(inside: Inside, arguments: list[str], words: str) -> None:
    assert inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1").returncode == 3
    done = inside("run", *arguments)
    assert done.returncode == 2
    assert words in one_line(done.stderr)


def test_debug_shows_where_an_error_comes_from(inside: Inside, folder: Path) -> None:
    (folder / "x.py").write_text("1 / 0\n")
    done = inside("run", "x.py", "hi", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


# --- databases that cannot be used ----------------------------------------------------------------------------------


def not_a_database(path: Path) -> None:
    path.write_text("not a database " * 100)


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (not_a_database, "is not a database of Greenroom"),
        (of_another_program, "is a database of another program"),
        (newer, "has schema version 99, newer than this release knows"),
        (cut_off, "is cut off"),
    ],
)
def test_a_spoilt_database_is_one_line_and_code_five(
    inside: Inside, folder: Path, spoil: Callable[[Path], Any], words: str
) -> None:
    path = folder / "s.db"
    if spoil in (newer, cut_off):
        assert inside("run", "support.py", "refund", "--db", "s.db").returncode == 3
    spoil(path)
    for command in (["run", "support.py", "refund"], ["runs"], ["show", "r1"], ["demo", "--resume"]):
        done = inside(*command, "--db", "s.db")
        assert done.returncode == 5, command
        assert words in one_line(done.stderr)


@pytest.mark.parametrize(
    ("place", "words"),
    [("nowhere/s.db", "/nowhere does not exist"), ("/proc/s.db", "/proc/s.db"), (".", "is a folder")],
)
def test_a_place_where_no_database_can_be_is_one_line_and_code_five(inside: Inside, place: str, words: str) -> None:
    for command in (["run", "support.py", "refund"], ["demo", "--yes"]):
        done = inside(*command, "--db", place)
        assert done.returncode == 5
        assert words in one_line(done.stderr)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_can_not_be_written_is_one_line_and_code_five(inside: Inside, folder: Path) -> None:
    folder.chmod(0o500)
    done = inside("run", "support.py", "refund", "--db", "s.db")
    folder.chmod(0o700)
    assert done.returncode == 5
    assert "Permission denied" in one_line(done.stderr)


def test_a_database_that_another_process_has_open_can_be_looked_at_only(inside: Inside, folder: Path) -> None:
    inside("run", "support.py", "refund", "--db", "s.db", "--run-id", "r1")
    with (folder / "s.db.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["support.py", "refund"], ["support.py", "--resume", "r1"]):
            done = inside("run", *command, "--db", "s.db")
            assert done.returncode == 5
            assert "s.db is open in another process" in one_line(done.stderr)
            assert "greenroom runs --db s.db" in done.stderr
        assert inside("runs", "--db", "s.db").returncode == 0
        assert inside("show", "r1", "--db", "s.db").returncode == 0


# --- pipes -----------------------------------------------------------------------------------------------------------


def test_a_reader_that_has_enough_is_no_error(cli: Cli) -> None:
    with cli.started("run", "support.py", "refund", "--json", "--yes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait() == 141
    assert err == ""
