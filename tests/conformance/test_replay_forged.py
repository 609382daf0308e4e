"""One changed event is found and named: each field of each type of event, in a log that programs have written.

The programs (`support/programs.py`) meet every type of event. Of each field of a type one event is forged: the field
has another value, or has one where it had none. Once per type that is done in a copy of a file.
"""

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from trio.testing import MockClock

import greenroom as gr
from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.spec import AgentSpec
from greenroom.actors.replay.comparison import Replay, StoredRun
from greenroom.actors.runtime.replay_run import replay_of

from ..support import runs
from ..support.killing import Death
from ..support.programs import PROGRAMS
from ..support.recording_stores import WatchedShelf
from ..support.scenes import Play

ENVELOPE = {
    "id": "id", "sequence": "sequence", "version": "version", "runId": "run_id", "sessionId": "session_id",
    "agentId": "agent_id", "timestamp": "timestamp", "excerpted": "excerpted[0]",
}  # fmt: skip
"""Field -> its name in a report."""

FORGE = "UPDATE events SET frame = ? WHERE seq = ? AND run = (SELECT number FROM runs WHERE run_id = ?)"

pytestmark = pytest.mark.slow


@attrs.frozen(kw_only=True)
class Written:
    """A run that a program has written, and what it is folded with."""

    program: str
    stored: StoredRun
    agent: gr.Agent[Any]
    known: Mapping[str, gr.Agent[Any]]
    spec: AgentSpec
    redactor: Redactor

    def report(self, position: int, frame: bytes) -> gr.ReplayReport:
        """The replay of the run with another event at a position, from 0."""
        frames = [*self.stored.frames]
        frames[position] = frame
        replay = Replay(attrs.evolve(self.stored, frames=frames), self.spec, self.redactor)
        for _ in replay.steps():
            pass
        return replay.report()


@attrs.define(eq=False)
class Gathering(Death):
    """Keeps the runs instead of replaying them."""

    program: str = ""
    written: dict[str, Written] = attrs.field(factory=dict)

    async def judge(self, runtime: gr.Runtime, run_id: str) -> None:
        """Keep one run, if it replays equal."""
        try:
            equal = (await runtime.replay(run_id)).equal
        except gr.UnknownAgent:
            return
        if equal:
            redactor = runtime._parts.services.redactor
            outline = await runtime.store.outline(run_id)
            assert outline is not None
            known = runtime.agents
            made = known[outline.info.agent]
            replay = await replay_of(runtime.store, run_id, made, redactor, own=True, known=known)
            self.written[run_id] = Written(
                program=self.program,
                stored=replay._run,
                agent=made,
                known=known,
                spec=replay._fold._spec,
                redactor=redactor,
            )


def gathered(name: str, kind: str, folder: Path, monkeypatch: Any) -> dict[str, Written]:
    """The runs of a program."""
    mode, program = PROGRAMS[name]
    gathering = Gathering(judging=True, program=name)
    monkeypatch.setattr(runs, "opener", gathering.open)
    folder.mkdir(exist_ok=True)
    trio.run(program, Play(WatchedShelf(kind, folder), mode), clock=MockClock(autojump_threshold=0))
    return gathering.written


def forgeries(event: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(field of the envelope or payload, path in a report, the event with another value there)."""
    for field, path in ENVELOPE.items():
        yield field, path, {**event, field: other(event.get(field), field)}
    payload = event["payload"]
    for field in wire_fields(event["type"]):
        for path, value in changed(payload.get(field), field):
            yield f"payload.{field}", path, {**event, "payload": {**payload, field: value}}


def wire_fields(type_: str) -> Sequence[str]:
    return [field.encode_name for field in msgspec.structs.fields(CATALOGUE[type_])]


def changed(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A value with each of its parts changed, and where."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            for place, new in changed(inner, f"{path}.{name}"):
                yield place, {**value, name: new}
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            for place, new in changed(inner, f"{path}[{number}]"):
                yield place, [*value[:number], new, *value[number + 1 :]]
    else:
        yield path, other(value, path)


def other(value: Any, field: str) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str() if field == "timestamp":
            return "2000-01-01T00:00:00.000Z"
        case str():
            return f"{value[: len(value) // 2]}~{value[len(value) // 2 :]}"
        case _:
            return ["x"]


def encoded(event: Any) -> bytes:
    return msgspec.json.encode(event)


@pytest.mark.no_cover
def test_each_field_of_each_event_is_compared(tmp_path: Path, monkeypatch: Any) -> None:
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    places: dict[tuple[str, str], tuple[Written, int]] = {}
    for number, name in enumerate(PROGRAMS):
        for run in gathered(name, "memory", tmp_path / str(number), monkeypatch).values():
            for position, frame in enumerate(run.stored.frames):
                event = msgspec.json.decode(frame)
                assert encoded(event) == frame
                for field in ("", *(f"payload.{field}" for field in event["payload"])):
                    places.setdefault((event["type"], field), (run, position))
    wrong, tried = [], 0
    for type_ in CATALOGUE:
        for field in (*ENVELOPE, *(f"payload.{field}" for field in wire_fields(type_))):
            run, position = places.get((type_, field)) or places[type_, ""]
            found = list(broken_forgeries(run, position, field))
            tried += len(found)
            wrong += filter(None, found)
    assert not wrong, "\n".join(wrong[:5])
    assert tried > 500


def broken_forgeries(run: Written, position: int, wanted: str) -> Iterator[str]:
    """For each forgery of a field a sentence, empty if the forgery is found and named."""
    event = msgspec.json.decode(run.stored.frames[position])
    for field, path, forged in forgeries(event):
        if field == wanted:
            report = run.report(position, encoded(forged))
            found = report.difference
            beginning = f"event {position + 1}: {event['type']}: {path} is recorded as "
            named = found is not None and (found.sequence, found.path) == (position + 1, path)
            fine = named and found is not None and found.text.startswith(beginning)
            yield "" if fine else f"{run.program}: {event['type']} {path}: {found or report}"


def test_an_event_in_a_copy_of_a_file_is_compared(tmp_path: Path, monkeypatch: Any) -> None:
    """One field of each type, and the type itself."""
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    left = set(CATALOGUE)
    for number, name in enumerate(PROGRAMS):
        if not left:
            break
        folder = tmp_path / str(number)
        for run_id, run in gathered(name, "sqlite", folder, monkeypatch).items():
            for position, frame in enumerate(run.stored.frames):
                event = json.loads(frame)
                if event["type"] not in left:
                    continue
                left.remove(event["type"])
                *_, (_, path, forged) = forgeries(event)
                for new, place in ((forged, path), ({**event, "type": "run.other"}, "type")):
                    copy = tmp_path / "copy.db"
                    shutil.copyfile(folder / "runs.db", copy)
                    with closing(sqlite3.connect(copy, isolation_level=None)) as file:
                        values = encoded(new), position + 1, run_id
                        assert file.execute(FORGE, values).rowcount == 1
                    found = trio.run(replayed, copy, run_id, run).difference
                    assert found is not None
                    assert (found.sequence, found.path) == (position + 1, place)
    assert not left


async def replayed(file: Path, run_id: str, run: Written) -> gr.ReplayReport:
    async with gr.open_runtime(gr.SQLiteStore(file, writer="inline"), secrets=["swordfish"]) as runtime:
        replay = await replay_of(runtime.store, run_id, run.agent, run.redactor, own=True, known=run.known)
        for _ in replay.steps():
            pass
        return replay.report()
