"""Stand-ins for what was written to state.

A value is in the rows only, and only the newest one; events name the keys, the writer and the revision. That is all
that the machine says of a write, so a stand-in without values leads to the same events: a batch that touches the same
keys, on the base on which it was merged, or on one so old that it clashes as it did. No reducer of the agent is called:
the update of a stand-in says how it failed, and that the reducer was known when it did is told by that conflict.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from ..contract.envelope import Event
from ..contract.rows import CallRow
from ..contract.state import Batch, Keys, Write
from ..engine.state import RunState
from ..engine.writes import conflict_note
from ..state.snapshot import Clash
from .index import FAILED, key_of
from .record import Record


class Written(NamedTuple):
    """What a writer wrote. `note`: what was added to its result. `again`: it ran again instead."""

    batch: Batch | None = None
    note: str = ""
    again: bool = False

    def without_note(self, shown: str) -> str:
        """What the body's result was before anything was added to it."""
        return shown.removesuffix(f"\n{self.note}") if self.note else shown


NOTHING: Final = Written()
NO_KEYS: Final[Keys] = {}


def written_by_call(record: Record, call: CallRow, position: int) -> Written:
    """What the present attempt of a call wrote that is at work at this position."""
    following = record.index.starts.get(call.call_id, ())
    end = next((start for start in following if start >= position), len(record.events))
    for found in record.index.writes.get(call.call_id, ()):
        if position <= found < end:
            return written(record.events[found])
    row = record.calls.get(call.call_id)
    waits = row is not None and row.attempts == call.attempts
    return Written(batch=row.batch) if row is not None and waits else NOTHING


def written(event: Event) -> Written:
    """A stand-in for the batch that a run.state.changed or run.state.conflict tells of."""
    payload: Any = event.payload
    if event.type == "run.state.changed":
        revision, names = payload.get("revision"), payload.get("keys")
        base = revision - 1 if isinstance(revision, int) else 0
        keys = tuple(key_of(name) for name in names) if isinstance(names, list) else ()
        return Written(Batch(base=base, writes=tuple(Write(name=key.name, scope=key.scope) for key in keys)))
    key, detail = key_of(payload.get("key")), str(payload.get("detail"))
    note = conflict_note(Clash(key, "", detail))
    failure = detail.removeprefix(FAILED.format(key=str(key)))
    write = Write(name=key.name, scope=key.scope, op="update" if "reducer" in detail else "set", value=failure)
    return Written(Batch(base=0, writes=(write,)), note, payload.get("retried") is True)


def reducers_at(record: Record, position: int) -> Keys:
    """The reducers that the owner knows at a place of the log, as far as that matters: the next conflicts tell."""
    reducers = record.index.reducers
    following = bisect_left(reducers, position, key=lambda known: known[0])
    return reducers[following][1] if following < len(reducers) else NO_KEYS


def restored(state: RunState) -> RunState:
    """The state as its next owner has it: who wrote a key is not stored."""
    snapshot = state.snapshot
    cells = {key: cell._replace(by="") for key, cell in snapshot.cells.items()}
    anonymous = attrs.evolve(snapshot, cells=type(snapshot.cells)(cells))
    return msgspec.structs.replace(state, snapshot=anonymous)
