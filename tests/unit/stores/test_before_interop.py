"""Runs without toolsets are what they were before there were toolsets: their digests, events and replays.

`runs_before_interop.db.gz` was written by the release before; the program beside it plays the same runs now.
"""

import contextlib
import gzip
import re
import sqlite3
from pathlib import Path

import pytest
from tests.data.runs_before_interop import AGENTS, write

import greenroom as gr

FILE = Path(__file__).parents[2] / "data" / "runs_before_interop.db.gz"
MEASURED = re.compile(
    rb'"(?:id|sequence|lastSequence|timestamp|durationMs|activeSeconds|delay\w*)":(?:"[^"]*"|[\d.]+),?'
)
"""What differs between two plays: pieces of texts may be put together in other ways, and a retry draws its delay."""
PIECES = (b"run.message.delta", b"run.reasoning.delta")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "runs.db"
    file.write_bytes(gzip.decompress(FILE.read_bytes()))
    return file


def events_of(path: Path) -> dict[str, list[bytes]]:
    """Run id -> the bytes of its events, without what is measured."""
    found = dict[str, list[bytes]]()
    with contextlib.closing(sqlite3.connect(path)) as file:
        query = "SELECT runs.run_id, events.* FROM events JOIN runs ON runs.number = events.run ORDER BY 2, 3"
        for run_id, *_, body in file.execute(query):
            if not any(b'"type":"%b"' % kind in body for kind in PIECES):
                found.setdefault(run_id, []).append(MEASURED.sub(b"", body))
    return found


def test_the_same_runs_have_the_same_events_byte_for_byte(path: Path, tmp_path: Path) -> None:
    write(tmp_path / "now.db")
    before, now = events_of(path), events_of(tmp_path / "now.db")
    assert sum(map(len, before.values())) > 250
    assert now.keys() == before.keys()
    for run_id, events in before.items():
        assert now[run_id] == events


async def test_agents_without_toolsets_have_the_digests_that_they_had(path: Path) -> None:
    async with gr.open_runtime(gr.SQLiteStore(path), agents=AGENTS) as runtime:
        for agent in AGENTS[:-1]:
            info = await runtime.reader.info(agent.key)
            assert info is not None
            assert info.agent_digest == agent.spec.digest


async def test_the_runs_of_before_replay(path: Path) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        runs = [line.info.run_id for line in (await runtime.runs(limit=100)).runs]
        assert len(runs) == len(AGENTS)
        for run_id in runs:
            report = await runtime.replay(run_id)
            assert report.equal, (run_id, report.difference)
