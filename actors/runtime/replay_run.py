"""Replay a stored run: read its record and log, and drive the fold. Writes nothing.

Theory of operation. The run may work while it is read, so the record is read before the log and once more after it, and
commits beyond the log are left out. `Replay` folds the entries without I/O; the driver inserts a checkpoint every
`BREATH` entries, so that a long replay does not block the runtime's other tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio
from msgspec.structs import replace

from ..abc import Store
from ..agents.agent import Agent
from ..agents.graph import finder, graph_of, joined_spec
from ..contract.recording import RecordDelta
from ..contract.secrets.redaction import Redactor
from ..engine.recording import CreatedEntry
from ..errors import UnknownRun
from ..replay.comparison import Replay, StoredRun
from ..replay.report import ReplayReport
from .start_request import mode_given

PAGE: Final = 1000
"""Events, or commits, of one page; other tasks may run between two pages."""
BREATH: Final = 32
"""Entries folded between two checkpoints."""


async def replay_of(
    store: Store,
    run_id: str,
    agent: Agent[object],
    redactor: Redactor,
    *,
    own: bool,
    known: Mapping[str, Agent[object]] | None = None,
) -> Replay:
    """Return the replay of a stored run with an agent.

    With `own` the replay has the run's mode of execution. Another agent brings its own mode, unless `start` was given
    one; a fork keeps its mode. `known`: agents by key, for handoffs that name a key.

    Raises:
        UnknownAgent: no agent has the key that a handoff names.
        UnknownRun: no run has this id.
        StoreError: the stored data is damaged.
    """
    # the run may work meanwhile: a commit of `early` has its events in the log that is read after it, and an event of
    # that log has its commit in `late`
    early = await _record(store, run_id, 0)
    frames: list[bytes] = []
    while page := await store.events(run_id, after=len(frames), limit=PAGE):
        frames += page
    late = await _record(store, run_id, len(early))
    rows = await store.load(run_id, calls="all")
    if rows is None:
        raise UnknownRun(run_id)
    info = rows.info
    record = (*early, *(delta for delta in late if delta.last <= len(frames)))
    entries = record[0].taken if record else ()
    birth = entries[0].entry if entries else None
    waits = birth.row.pending_input if isinstance(birth, CreatedEntry) else ()
    if (
        not own
        and info.forked_from is None
        and not mode_given(info, waits[0].content if waits else "", waits[0].parts if waits else ())
    ):
        info = replace(info, execution=agent.execution)
    definitions = {call.call_id: call.definition for call in rows.calls}
    run = StoredRun(info=info, definitions=definitions, frames=frames, record=record)
    spec = joined_spec(graph_of(agent, finder(known or {}))) if agent.handoffs else agent.spec
    return Replay(run, spec, redactor)


async def played(replay: Replay) -> ReplayReport:
    """Drive a replay to its end and return its report."""
    for number, entry in enumerate(replay.steps(), 1):
        if number % BREATH == 0 or entry is None:
            await trio.lowlevel.checkpoint()
    return replay.report()


async def _record(store: Store, run_id: str, after: int) -> Sequence[RecordDelta]:
    deltas: list[RecordDelta] = []
    while True:
        page = await store.record(run_id, after=after + len(deltas), limit=PAGE)
        deltas += page
        if len(page) < PAGE:
            return deltas
