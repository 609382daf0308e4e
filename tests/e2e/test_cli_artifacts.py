"""`greenroom artifacts`: the list of what a run has published, and the bytes of one as a new file."""

import json
from pathlib import Path

import pytest

from .cli_kit import Inside, one_line

pytestmark = pytest.mark.slow

AGENTS = """
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool
async def write(ctx: gr.ToolContext) -> str:
    for text in ("first", "second"):
        await ctx.artifact("report.md", f"# {text}\\\\n", author="Ada")
    await ctx.artifact("password=hunter22", b"\\\\0\\\\1", media_type="application/octet-stream")
    return "written"

writer = gr.Agent("writer", tools=[write], model=ScriptedModel([call("write"), "done"]))
"""

QUIET = """
import greenroom as gr
from greenroom.testing import ScriptedModel

a = gr.Agent("a", model=ScriptedModel(["x"]))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A database with a run that has published."""
    (tmp_path / "agents.py").write_text(AGENTS.replace("\\\\", "\\"))
    inside = Inside(tmp_path, tmp_path / "state", monkeypatch)
    assert inside("run", "agents.py:writer", "go", "--db", "a.db", "--run-id", "run-1").returncode == 0
    return inside


def test_a_run_lists_its_artifacts_without_secrets(inside: Inside) -> None:
    done = inside("artifacts", "run", "--db", "a.db")
    lines = [line.partition("  ")[2] for line in done.stdout.splitlines()]
    assert (done.returncode, lines) == (
        0,
        [
            "file report.md, text/markdown 8 bytes",
            "file report.md, text/markdown 9 bytes",
            "file password=[redacted], application/octet-stream 2 bytes",
        ],
    )
    facts = [json.loads(line) for line in inside("artifacts", "run", "--db", "a.db", "--json").stdout.splitlines()]
    assert [one["metadata"] for one in facts[:2]] == [{"author": "Ada"}] * 2
    shown = inside("show", "run", "--db", "a.db").stdout
    assert "published file report.md, text/markdown 8 bytes" in shown
    account = inside("evidence", "run", "--db", "a.db").stdout
    assert f"published file report.md, text/markdown 8 bytes, sha256 {facts[0]['sha256']}" in account


def test_the_newest_of_a_name_or_the_one_of_an_id_becomes_a_new_file(inside: Inside, tmp_path: Path) -> None:
    assert inside("artifacts", "run", "report.md", "--db", "a.db").returncode == 0
    assert (tmp_path / "report.md").read_text() == "# second\n"
    first = inside("artifacts", "run", "--db", "a.db").stdout.split()[0]
    assert inside("artifacts", "run", first, "--db", "a.db", "--output", "first.md").returncode == 0
    assert (tmp_path / "first.md").read_text() == "# first\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing.txt"], "run run-1 has no artifact 'nothing.txt'"),
        (["report.md", "--output", "agents.py"], "agents.py: File exists; choose another file with --output"),
        (["report.md", "--output", "no/such/folder"], "No such file or directory"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(inside: Inside, words: list[str], sentence: str) -> None:
    done = inside("artifacts", "run", *words, "--db", "a.db")
    assert done.returncode == 2
    assert sentence in one_line(done.stderr)


def test_a_run_without_artifacts_says_so(inside: Inside) -> None:
    (inside.folder / "quiet.py").write_text(QUIET)
    assert inside("run", "quiet.py:a", "go", "--db", "b.db", "--run-id", "q").returncode == 0
    assert inside("artifacts", "q", "--db", "b.db").stdout == "no artifacts\n"
