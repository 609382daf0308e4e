"""`greenroom diff` and `greenroom apply`: a proposal of a run of another process, seen and applied from the shell."""

import json
from pathlib import Path

import pytest

from .cli_kit import Cli, Inside, one_line
from .serving_kit import serving

pytestmark = pytest.mark.slow

AGENTS = """
import json

import greenroom as gr
from greenroom.testing import ScriptedModel, call

OLD = "diff --git a/old.md b/old.md\\n--- a/old.md\\n+++ b/old.md\\n@@ -1 +1 @@\\n-a\\n+b\\n"
NEW = "diff --git a/a.md b/a.md\\n--- a/a.md\\n+++ b/a.md\\n@@ -1,2 +1,2 @@\\n same\\n-one\\n+\\x1b[2Jtwo\\n"


@gr.tool(replay="safe")
async def propose(ctx: gr.ToolContext) -> str:
    await ctx.artifact("p1.diff", OLD, kind="diff")
    await ctx.artifact("p2.diff", NEW, kind="diff")
    return "proposal p2"


@gr.tool(needs_approval=True, effect="patch")
async def apply_changes(proposal: str, summary: str, paths: list[str] | None = None) -> str:
    return f"applied {proposal}: {json.dumps(paths)}"


make, apply = call("propose", id="c1"), call("apply_changes", proposal="p2", summary="words", id="c2")
both = [apply, call("apply_changes", proposal="p", summary="")]
coder = gr.Agent("coder", tools=[propose, apply_changes], model=ScriptedModel([make, apply, "done"]))
twice = gr.Agent("twice", tools=[apply_changes], model=ScriptedModel([both, "done"]))
quiet = gr.Agent("quiet", model=ScriptedModel(["done"]))
"""
DIFFERENCE = r"""diff --git a/a.md b/a.md
--- a/a.md
+++ b/a.md
@@ -1,2 +1,2 @@
 same
-one
+\x1b[2Jtwo
"""
DB = ("--db", "r.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "agents.py").write_text(AGENTS)
    return folder


@pytest.fixture
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(folder, tmp_path / "state", monkeypatch)


def started(inside: Inside, agent: str, run_id: str = "r", code: int = 3) -> None:
    """Start a run, which waits for the decision about its proposal."""
    done = inside("run", f"agents.py:{agent}", "go", "--run-id", run_id, "--no-approve", *DB)
    assert done.returncode == code, done.stdout + done.stderr


def applied(inside: Inside) -> str:
    """Continue the run to its end; returns what apply_changes said."""
    assert inside("run", "agents.py:coder", "--resume", "r", *DB).returncode == 0
    events = json.loads(inside("show", "r", "--json", "--events", *DB).stdout)["events"]
    return str([event["payload"]["result"] for event in events if event["type"] == "run.tool.result"][-1])


def test_the_difference_that_waits_is_shown_and_applied(inside: Inside) -> None:
    started(inside, "coder")
    shown = inside("diff", "r", *DB)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"{DIFFERENCE}apply it:   greenroom apply r --db r.db\n"
    done = inside("apply", "r", "--yes", "--reason", "good", *DB)
    assert done.returncode == 0
    assert "+\\x1b[2Jtwo" in done.stdout
    assert "approved apply_changes" in done.stdout
    assert applied(inside) == "applied p2: null"
    again = inside("apply", "r", *DB)
    assert (again.returncode, one_line(again.stderr)) == (
        2,
        "no proposal of run r waits for a decision (it is completed)",
    )
    assert inside("diff", "r", *DB).stdout == DIFFERENCE


def test_a_difference_is_one_object_for_programs(inside: Inside) -> None:
    started(inside, "coder")
    facts = json.loads(inside("diff", "r", "--json", *DB).stdout)
    assert (facts["runId"], facts["proposal"], facts["state"]) == ("r", "p2", "waiting")
    assert facts["text"] == DIFFERENCE.replace(r"\x1b", "\x1b")


def test_what_is_not_there_is_said_in_one_line(inside: Inside) -> None:
    started(inside, "quiet", code=0)
    assert one_line(inside("diff", "r", *DB).stderr) == "run r has published no difference (it is completed)"
    started(inside, "twice", "two")
    assert "2 proposals of run two wait: two.t1, two.t2" in one_line(inside("apply", "two", *DB).stderr)
    assert one_line(inside("diff", "two", *DB).stderr) == "run two has published no difference (it is needs_approval)"


def test_some_files_of_a_proposal_are_applied_by_a_server(folder: Path, tmp_path: Path, inside: Inside) -> None:
    with serving(Cli(folder, tmp_path / "state"), "agents.py", *DB) as server:
        server.starts("coder", "r")
        assert inside("diff", "r", *DB).stdout.startswith(DIFFERENCE)
        wrong = inside("apply", "r", "a.md", "b.md", *DB)
        assert one_line(wrong.stderr) == "the proposal changes no file 'b.md'; it changes a.md"
        answer = json.loads(inside("apply", "r", "a.md", "--json", *DB).stdout)
        assert (answer["status"], answer["tool"]) == ("accepted", "apply_changes")
        followed = inside("follow", "r", "--json", *DB)
        results = [
            event["payload"]["result"]
            for event in map(json.loads, followed.stdout.splitlines()[:-1])
            if event["type"] == "run.tool.result"
        ]
        assert (followed.returncode, results[-1]) == (0, 'applied p2: ["a.md"]')
