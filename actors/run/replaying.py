"""Replaying a stored run: loading it, and answering what the replay asks. Reads only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from ..abc import Store
from ..agent import Agent
from ..contract.envelope import timestamp
from ..contract.ids import content_digest
from ..contract.redaction import Redactor
from ..contract.rows import RunInfo, RunRecord
from ..contract.spec import ExecutionMode
from ..engine.inputs import PhaseDone
from ..engine.state import RunState
from ..errors import UnknownRun
from ..replay.machine import Asked, Replaying, replaying
from ..replay.record import Log, Record, make_record
from ..replay.report import ReplayReport

PAGE = 1000
"""Events that are read and decoded at once; between two pages others may work."""

PhaseAnswers = Callable[[Asked], Awaitable[tuple[PhaseDone, ...] | None]]
"""What hooks and gates say of a phase: each answer that they may have given; None: what the record tells.

The place for live hooks.
"""


async def answer_phase(asked: Asked) -> None:
    """What the record tells: no hook, no gate and no predicate is called."""


async def load_record(store: Store, run_id: str, redactor: Redactor) -> Record:
    """All that is stored of a run. The log is read first: what it tells of is in the rows that are read after it.

    Raises:
        UnknownRun: there is no such run.
    """
    log, read = Log(), 0
    while page := await store.events(run_id, after=read, limit=PAGE):
        log.read(page)
        read += len(page)
        if len(page) < PAGE:
            break
    rows = await store.load(run_id, calls="all")
    if rows is None:
        raise UnknownRun(run_id)
    thread = await store.messages(rows.info.thread_id)
    return make_record(rows, log, thread, await store.commands(run_id), redactor=redactor)


async def replay_run(
    record: Record, agent: Agent[Any], mode: ExecutionMode, answer: PhaseAnswers = answer_phase
) -> ReplayReport:
    """Re-run a record with an agent, in a mode of execution."""
    info = attrs.evolve(record.info, execution=mode)
    birth = RunState(info=info, row=record.birth.row)
    return await _drive(replaying(attrs.evolve(record, birth=birth), agent.spec), answer)


async def _drive(replay: Replaying, answer: PhaseAnswers) -> ReplayReport:
    reply: tuple[PhaseDone, ...] | None = None
    while True:
        try:
            asked = replay.send(reply)
        except StopIteration as ended:
            report: ReplayReport = ended.value
            return report
        if asked is None:
            await trio.lowlevel.checkpoint()
            reply = None
        else:
            reply = await answer(asked)


async def mode_for(store: Store, record: Record, agent: Agent[Any]) -> ExecutionMode:
    """The mode that the run would have with another agent: the one that `start` was given, else the agent's."""
    info, text = record.info, _input(record)
    while info.forked_from is not None:
        parent = await store.load(info.forked_from)
        if parent is None:
            return info.execution
        info, text = parent.info, await _text_of(store, parent)
    return info.execution if _chosen(info, text) else agent.execution


def _input(record: Record) -> str:
    first = record.messages.get(f"{record.info.run_id}.m1") or next(iter(record.birth.row.pending_input), None)
    return "" if first is None else first.content


async def _text_of(store: Store, record: RunRecord) -> str:
    thread = (*await store.messages(record.info.thread_id), *record.row.pending_input)
    return next((message.content for message in thread if message.id == f"{record.info.run_id}.m1"), "")


def _chosen(info: RunInfo, text: str) -> bool:
    """Whether `start` was given the mode: the digest of what it was asked for tells."""
    due = None if info.deadline is None else timestamp(info.deadline)
    return any(
        info.content
        == content_digest([info.agent, text, thread_id, info.session_id, by, info.workspace, due, info.execution])
        for thread_id in (None, info.thread_id)
        for by in (None, info.by)
    )
