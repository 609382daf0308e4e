"""Values from columns of rows, the same for every database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ...contract import codec
from ...contract.codec import SchemaError
from ...contract.decisions import Command, InboxItem
from ...contract.lifecycle import Stage
from ...contract.rows import QueuePlace, RunInfo, RunOutline, RunRow, ThreadInfo
from ...contract.state import StateWrite
from ._timestamps import moment

T = TypeVar("T")


def readable(cls: type[T], blob: bytes) -> T | None:
    """Return a row; None if it is unreadable."""
    try:
        return codec.load(cls, blob)
    except SchemaError:
        return None


def check_stage(row: RunRow, run_id: str, stage: str) -> None:
    """Compare a run's row with the column of its stage.

    A waiter would wait for ever if they differed: the owner follows the column, and the reader the row.

    Raises:
        SchemaError: they differ.
    """
    if row.stage != stage:
        raise SchemaError(f"RunRow: run {run_id} is {row.stage.value} in its row, and {stage} in the column beside it")


def outline_of(run_id: str, columns: Sequence[Any]) -> RunOutline:
    """Return the outline of a run, also if its info or row is unreadable.

    Args:
        run_id: the run.
        columns: agent, stage, step, last_seq, posted, consumed, held, created_at, info, row, thread_id, the run that
            works on the thread while this run is held; then, of a run that waits in a queue, whether it does, and the
            queue, ready_at, and the queue's paused and max_running.
    """
    agent, stage, step, last, posted, consumed, held, created, info, row, thread_id, behind, *place = columns
    waits, queue, ready_at, paused, most = place
    facts = RunInfo(
        run_id=run_id,
        thread_id=thread_id,
        agent=agent,
        agent_digest="",
        created_at=moment(created),
        execution="sequential",
        by="",
    )
    own = readable(RunRow, row)
    return RunOutline(
        info=readable(RunInfo, info) or facts,
        stage=Stage(stage),
        step=step,
        last_sequence=last,
        posted=posted,
        consumed=consumed,
        held=bool(held),
        behind=behind,
        row=own if own is not None and own.stage == stage else None,
        queue=QueuePlace(name=queue, ready_at=moment(ready_at), paused=bool(paused), max_running=most)
        if waits
        else None,
    )


def thread_of(thread_id: str, owner: str, created: int, runs: int, infos: Iterable[bytes]) -> ThreadInfo:
    """Return the facts of a thread; `infos` are of its members, in order."""
    members = tuple(codec.load(RunInfo, info) for info in infos)
    return ThreadInfo(thread_id=thread_id, owner=owner, created_at=moment(created), runs=runs, members=members)


def items_of(rows: Iterable[tuple[int, bytes]]) -> tuple[InboxItem, ...]:
    """Return the inbox items of (position, body)."""
    return tuple(InboxItem(position=position, command=codec.load(Command, body)) for position, body in rows)


def writes_of(rows: Iterable[tuple[int, int | None, str, int, bytes]], run: int) -> tuple[StateWrite, ...]:
    """Return the state keys of (writing run, thread, key, revision, value), as the run reads them.

    Values that other runs wrote have revision 0.
    """
    return tuple(
        StateWrite(
            key=key,
            scope="run" if thread is None else "thread",
            value=codec.load(Any, value),
            revision=revision if writer == run else 0,
        )
        for writer, thread, key, revision, value in rows
    )


def facts_of(info: RunInfo) -> str:
    """Return the facts on which visibility depends: members of a thread with equal facts count as one."""
    return codec.dump([info.by, info.agent, info.session_id, info.workspace]).decode()
