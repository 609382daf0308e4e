"""`greenroom runs` and `greenroom show`, --version and --help, and the examples that the documents name."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.actors.contract.run_lists import LISTED, LISTED_OUTCOMES, ORDERS
from greenroom.transport.cli import commands

from .cli_kit import Inside, one_line

pytestmark = pytest.mark.slow

AGENTS = """
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(needs_approval=True, effect="write")
async def publish(text: str) -> str:
    return "published"

@gr.tool(effect="delegate")
async def coder(ctx: gr.ToolContext) -> str:
    answer = await ctx.call_nested("Bash", {"command": "make"}, effect="shell")
    return answer.text

class AskFirst(gr.Plugin):
    async def tool_gate(self, ctx):
        return gr.Suspend(message="May it?") if ctx.call.parent else None

coding = gr.Agent("coding", tools=[coder], model=ScriptedModel([call("coder"), "done"]), plugins=[AskFirst()])
support = gr.Agent("support", tools=[publish], model=ScriptedModel([call("publish", text="a\\nb\\x1b[2Jc"), "done"]))
brief = gr.Agent("brief", model=ScriptedModel(["hello there"]))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A database with a run that waits, one that is done, and one that was refused."""
    (tmp_path / "agents.py").write_text(AGENTS)
    inside = Inside(tmp_path, tmp_path / "state", monkeypatch)
    assert inside("run", "agents.py:support", "publish it", "--db", "a.db", "--run-id", "waits-1").returncode == 3
    assert inside("run", "agents.py:brief", "hi", "--db", "a.db", "--run-id", "done-1").returncode == 0
    assert inside("run", "agents.py:brief", "ho", "--db", "a.db", "--run-id", "done-2").returncode == 0
    return inside


def ids(inside: Inside, *options: str) -> list[str]:
    done = inside("runs", "--db", "a.db", "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["runId"] for line in done.stdout.splitlines()]


def test_runs_are_listed_newest_first_and_can_be_chosen(inside: Inside) -> None:
    assert ids(inside) == ["done-2", "done-1", "waits-1"]
    assert ids(inside, "--status", "waiting") == ["waits-1"]
    assert ids(inside, "--status", "completed") == ids(inside, "--stage", "completed") == ["done-2", "done-1"]
    assert ids(inside, "--status", "failed") == []
    assert ids(inside, "--agent", "brief", "--limit", "1") == ["done-2"]
    assert ids(inside, "--agent", "nobody") == []
    shown = inside("runs", "--db", "a.db", "--limit", "2").stdout.splitlines()
    assert shown[0].split() == ["run", "agent", "stage", "started", "title"]
    assert shown[1].split()[:3] == ["done-2", "brief", "completed"]
    cursor = shown[-1].removeprefix("more: the same with --cursor ")
    assert ids(inside, "--limit", "2", "--cursor", cursor) == ["waits-1"]
    assert ids(inside, "--text", "PUBLISH", "--since", "1h") == ["waits-1"]
    (_, line, asks) = inside("runs", "--db", "a.db", "--status", "waiting").stdout.splitlines()
    assert line.endswith("publish it")
    assert "asks for approval: publish" in asks
    assert inside("runs", "--db", "a.db", "--agent", "nobody").stdout == "no runs\n"


def test_show_tells_what_waits_exactly_and_how_to_go_on(inside: Inside) -> None:
    """The argument's control characters are spelled out: nothing can hide behind them."""
    shown = inside("show", "waits", "--db", "a.db").stdout
    assert "waits-1  support  needs_approval" in shown
    assert "asked: publish it" in shown
    assert "waits for a decision: publish (tool_permission, waits-1.t1)" in shown
    assert "  │ a\n  │ b\\x1b[2Jc\n" in shown
    assert "\x1b" not in shown
    assert "greenroom run FILE.py:AGENT --resume waits-1 --db a.db" in shown


def test_a_nested_call_that_asks_is_listed_and_shown_with_the_tool_that_makes_it(inside: Inside) -> None:
    assert inside("run", "agents.py:coding", "build it", "--db", "a.db", "--run-id", "nested-1").returncode == 3
    asks = inside("runs", "--db", "a.db", "--agent", "coding").stdout.splitlines()[2]
    assert "Bash · May it?" in asks
    assert asks.endswith("decide soon: a process waits")
    shown = inside("show", "nested-1", "--db", "a.db").stdout
    assert re.search(r"start +coder\n", shown)
    assert re.search(r"waits +coder > Bash .*make", shown)
    assert "waits for a decision: Bash (" in shown
    assert "decide soon: a process waits" in shown


def test_show_tells_the_output_of_a_run_that_is_done(inside: Inside) -> None:
    shown = inside("show", "done-1", "--db", "a.db").stdout
    assert "completed (natural_end)\nhello there\n" in shown


def test_show_lists_every_event(inside: Inside) -> None:
    report = json.loads(inside("show", "done-1", "--db", "a.db", "--json", "--events").stdout)
    lines = inside("show", "done-1", "--db", "a.db", "--events").stdout.splitlines()
    for event in report["events"]:
        assert any(line.split()[:1] == [str(event["sequence"])] and event["type"] in line for line in lines)
    assert report["lastSequence"] == len(report["events"])
    assert (report["status"], report["output"]) == ("done", "hello there")
    assert "events" not in json.loads(inside("show", "done-1", "--db", "a.db", "--json").stdout)


def test_the_parser_knows_the_statuses_stages_and_orders_of_a_list() -> None:
    assert (*commands.STATUSES, *commands.STAGES) == LISTED
    assert commands.ORDERS == ORDERS
    assert commands.OUTCOMES == LISTED_OUTCOMES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["show", "nobody", "--db", "a.db"],
            "no run has the id 'nobody'; list the known ones with `greenroom runs --db a.db`",
        ),
        (["show", "done", "--db", "a.db"], "2 runs begin with 'done', such as done-2 and done-1"),
        (["runs", "--db", "a.db", "--limit", "0"], "0 is not between 1 and 1000"),
        (["runs", "--db", "a.db", "--status", "odd"], "invalid choice: 'odd'"),
        (["runs", "--db", "a.db", "--statsu", "failed"], "unrecognized arguments: --statsu; did you mean --status?"),
        (["queues", "--nmae=limit", "refunds"], "unrecognized arguments: --nmae=limit"),
        (["runs", "--db", "a.db", "--since", "999999d"], "999999d is no time"),
        (["runs", "--db", "a.db", "--until", "9999-12-31T23:59:59-14:00"], "is no time: write 30m, 2h, 3d"),
        (["shwo"], "there is no command 'shwo'; did you mean show?"),
        ([], "name a command"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(inside: Inside, arguments: list[str], words: str) -> None:
    done = inside(*arguments)
    assert done.returncode == 2
    assert words in one_line(done.stderr)


def test_before_the_first_demo_there_is_nothing_to_look_at(inside: Inside) -> None:
    done = inside("runs")
    assert done.returncode == 5
    assert "does not exist" in one_line(done.stderr)


def test_version_says_the_version(inside: Inside) -> None:
    assert inside("--version").stdout == f"greenroom {gr.__version__}\n"


@pytest.mark.parametrize("command", ["", "run", "demo", "runs", "show"])
def test_help_has_an_example_and_all_exit_codes(inside: Inside, command: str) -> None:
    done = inside(*command.split(), "--help")
    assert done.returncode == 0
    assert f"  greenroom {command}" in done.stdout
    assert all(f"\n  {code:>3}  " in done.stdout for code in (0, 1, 2, 3, 4, 5, 130))


# --- examples --------------------------------------------------------------------------------------------------------


def test_the_examples_run_as_programs(root: Path, tmp_path: Path) -> None:
    for name, expected in (("hello.py", "It is 42."), ("approval.py", "paid back 4200 cents of order 7")):
        command = [sys.executable, "-W", "error", str(root / "examples" / name)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_the_examples_run_by_the_command_line(inside: Inside, root: Path) -> None:
    examples = root / "examples"
    assert "It is 42." in inside("run", examples / "hello.py", "hello").stdout
    asked = inside("run", examples / "approval.py", "refund 4200 cents of order 7")
    assert asked.returncode == 3
    small = inside("run", examples / "approval.py", "refund 300 cents of order 8")
    assert small.returncode == 0
    assert "paid back 300 cents of order 8" in small.stdout
    assert inside("run", examples / "approval.py", "refund 4200 cents of order 7", "--yes").returncode == 0
