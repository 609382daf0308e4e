"""Fold a record: apply the recorded inputs to the machine again.

Theory of operation. The state begins at the run's creation. Each entry of the record leads to the next state: an input
through `step`, at its recorded time; other changes of the state by the run's owner likewise (`engine/recording.py`).
The resulting events are encoded as they were when they were written. Nothing waits here, and no effect is performed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs
import msgspec

from ..contract.commits import EventDraft
from ..contract.envelope import EventEncoder
from ..contract.recording import RecordEntry
from ..contract.rows import RunInfo, RunOutline
from ..contract.secrets.redaction import Redactor
from ..contract.spec import AgentSpec
from ..contract.stepwise import Steps
from ..engine.body_inputs import CallReturned
from ..engine.effects import Effect
from ..engine.forced_end import forced_commit
from ..engine.initial_row import created
from ..engine.inputs import Input, PhaseDone
from ..engine.machine import step
from ..engine.recording import (
    ClockJump,
    CreatedEntry,
    ForcedEndEntry,
    RecordGap,
    TakeoverEntry,
    restored,
    standing_in,
    with_reducers,
)
from ..engine.state import RunState, shifted
from ..state.snapshot import StateSnapshot

NEVER: Final = "its record does not begin with its creation: an older release or a runtime with record=False began it"
CEASED: Final = "from here on a runtime with record=False worked on it"


class NoRecord(Exception):
    """The fold cannot continue: a stretch of the run was not recorded. The text has the reason."""


@attrs.frozen
class FoldedEntry:
    """The result of one entry of a record.

    Attributes:
        taken: the entry.
        before: the state before the entry; None for the first one.
        after: the state after the entry.
        events, effects: of the machine's transition.
        frames: the encoded events.
    """

    taken: RecordEntry
    before: RunState | None
    after: RunState
    events: tuple[EventDraft, ...]
    effects: tuple[Effect, ...]
    frames: tuple[bytes, ...]


class Fold:
    """Folds a run, entry by entry."""

    def __init__(self, info: RunInfo, spec: AgentSpec, definitions: Mapping[str, str], redactor: Redactor) -> None:
        """Begin before the run's creation.

        Args:
            info: The facts of the run.
            spec: The agent to fold with; its key and digest do not matter.
            definitions: call id -> recorded digest of its tool's definition.
            redactor: with the secrets that the runtime had when the events were written.
        """
        self._info, self._encoder = info, EventEncoder(info, redactor)
        self._agent = self._spec = spec.replaying(info.agent, definitions)
        self._state: RunState | None = None
        self._results: list[tuple[object, ...]] = []
        self._stand_in = standing_in(self._reductions())

    def __repr__(self) -> str:
        return f"<Fold of {self._info.run_id}>"

    def take(self, record_entry: RecordEntry) -> Steps[FoldedEntry]:
        """Apply the next entry, in steps: a large event is made in several.

        Raises:
            NoRecord: there is a gap before the entry.
        """
        before, entry = self._state, record_entry.entry
        events, effects = tuple[EventDraft, ...](), tuple[Effect, ...]()
        if isinstance(entry, CreatedEntry):
            after = RunState(info=self._info, row=entry.row)
            events = (created(self._info, *entry.input),)
        elif before is None or isinstance(entry, RecordGap):
            raise NoRecord((entry.why if isinstance(entry, RecordGap) else "") or (CEASED if before else NEVER))
        elif isinstance(entry, TakeoverEntry):
            after = self._taken_up(before, entry)
        elif isinstance(entry, ClockJump):
            after = shifted(before, entry.seconds)
        elif isinstance(entry, ForcedEndEntry):
            commands = [item.command for item in entry.items]
            commit = forced_commit(_outline(before, entry), commands, entry.why, record_entry.at)
            after, events = msgspec.structs.replace(before, row=commit.row), commit.events
        else:
            self._results[:] = record_entry.reduced
            done = step(self._spec, before, self._with_reducers(cast("Input", entry)), record_entry.at)
            after, effects = done.state, done.effects
            events = () if done.commit is None else done.commit.events
        self._state = after
        last = 0 if before is None else before.row.last_sequence
        frames = self._encoder.small_frames(last, record_entry.at, events)
        if frames is None:
            frames = yield from self._encoder.frame_steps(last, record_entry.at, events)
        return FoldedEntry(record_entry, before, after, events, effects, frames)

    def _taken_up(self, before: RunState, entry: TakeoverEntry) -> RunState:
        self._spec = AgentSpec(key=self._info.agent) if entry.bare else self._agent
        state = restored(before)
        if entry.state is None:
            return state
        return msgspec.structs.replace(state, snapshot=StateSnapshot.restored(state.row.revision, entry.state))

    def _with_reducers(self, message: Input) -> Input:
        if not isinstance(message, PhaseDone | CallReturned):
            return message
        return msgspec.structs.replace(message, keys=with_reducers(message.keys, self._spec, self._stand_in))

    def _reductions(self) -> Iterator[tuple[Any, ...]]:
        """Yield the recorded results of reducers for the present entry."""
        while True:
            yield (self._results.pop(0) if self._results else ("LookupError", "no result of this reducer is recorded"))


def _outline(state: RunState, entry: ForcedEndEntry) -> RunOutline:
    row, readable_row = state.row, state.row if entry.readable else None
    last = row.last_sequence
    return RunOutline(
        info=state.info, stage=row.stage, step=row.step, last_sequence=last, posted=entry.posted, row=readable_row
    )
