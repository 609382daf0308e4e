"""`greenroom backup`: the copy of a database, and what is refused."""

import json
import stat
from pathlib import Path

import pytest

from .cli_kit import Inside

pytestmark = pytest.mark.slow

AGENT = """
import greenroom as gr
from greenroom.testing import ScriptedModel
helper = gr.Agent("helper", model=ScriptedModel(["done"]))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.delenv("GREENROOM_STORE", raising=False)
    (tmp_path / "agent.py").write_text(AGENT)
    return Inside(tmp_path, tmp_path / "state", monkeypatch)


def test_a_copy_has_the_runs_is_private_and_is_a_database_like_any(inside: Inside, tmp_path: Path) -> None:
    assert inside("run", "agent.py", "hi", "--run-id", "r1", "--db", "runs.db").returncode == 0
    done = inside("backup", "copy.db", "--db", "runs.db", "--json")
    copy = tmp_path / "copy.db"
    assert json.loads(done.stdout) == {"database": "runs.db", "copy": "copy.db", "bytes": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    (tmp_path / "runs.db").unlink()
    assert inside("run", "agent.py", "hi", "--run-id", "r2", "--db", "copy.db").returncode == 0
    names = [json.loads(line)["runId"] for line in inside("runs", "--db", "copy.db", "--json").stdout.splitlines()]
    assert names == ["r2", "r1"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["copy.db", "--db", "nothing.db"], 5, "does not exist"),
        (["agent.py", "--db", "runs.db"], 5, "agent.py: File exists; name a new file"),
        (["no/copy.db", "--db", "runs.db"], 5, "no/copy.db: No such file or directory; name a new file"),
        (["copy.db", "--store", "postgresql://h/d"], 2, "is a shared store: copy it with pg_dump"),
    ],
)
def test_what_cannot_be_copied_is_named(inside: Inside, tmp_path: Path, words: list[str], code: int, said: str) -> None:
    assert inside("run", "agent.py", "hi", "--db", "runs.db").returncode == 0
    done = inside("backup", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "copy.db").exists()
    assert (tmp_path / "agent.py").read_text() == AGENT
