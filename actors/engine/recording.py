"""The record of a run: its inputs, the entries between inputs, and the recorder.

Theory of operation. A replay is a fold: begin with `CreatedEntry`, apply each input at its recorded time, compare the
frames. Between inputs the owner changes the state in few ways, each with its own entry: an owner takes the run up
from the store (`TakeoverEntry`), the clocks move apart (`ClockJump`), a run that was given up ends without the machine
(`ForcedEndEntry`). An unrecorded stretch is a `RecordGap`. Entries wait in the recorder until a commit carries them, so
record and log can never disagree.

Reducers are user code. Reducers that the agent declares run again in a replay; of all others, which only the bodies
that use them know, the results are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import attrs
import msgspec

from ..contract.codec import message_of
from ..contract.commits import NewRun
from ..contract.decisions import InboxItem
from ..contract.parts import Part, light
from ..contract.phases import ADMISSION
from ..contract.recording import RecordEntry
from ..contract.rows import RunRow
from ..contract.spec import AgentSpec
from ..contract.state import Keys, KeySpec, StateWrite
from ..state.snapshot import StateSnapshot
from .body_inputs import CallReturned
from .inputs import Input, PhaseDone
from .state import RunState, stored
from .step_calls import StepCalls
from .tasks import newest_input


class CreatedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The run was created with this row.

    Attributes:
        row: The row of the new run.
        text: the input in `run.created`; None: the pending message, with its parts.
        parts: The parts of the input, beside `text`.
    """

    row: RunRow
    text: str | None = None
    parts: tuple[Part, ...] = ()

    @property
    def input(self) -> tuple[str, tuple[Part, ...]]:
        """The input in `run.created`: text and parts."""
        if self.text is not None:
            return self.text, self.parts
        return self.row.pending_input[0].content, self.row.pending_input[0].parts


class TakeoverEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An owner took the run up from the store.

    Attributes:
        bare: without the agent or its deps.
        state: the state keys, if other runs of the thread may have written some; None: as this run left them.
    """

    bare: bool = False
    state: tuple[StateWrite, ...] | None = None


class ClockJump(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock advanced by this many seconds more than trio's, which was not active time (`state.shifted`)."""

    seconds: float


class ForcedEndEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The run was ended without its machine (`forced_end.py`).

    Attributes:
        why: for people.
        items: the unread commands.
        posted: position of the newest command.
        readable: the run's row was readable.
    """

    why: str
    items: tuple[InboxItem, ...] = ()
    posted: int = 0
    readable: bool = True


class RecordGap(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is recorded from here on, until an owner that records takes the run up."""

    why: str = ""


Entry = Input | CreatedEntry | TakeoverEntry | ClockJump | ForcedEndEntry | RecordGap


def birth_of(new: NewRun) -> RecordEntry:
    """Return the first entry of a new run's record."""
    text, pending = new.created.payload.input, new.row.pending_input
    if pending and pending[0].content == text:
        return RecordEntry(new.info.created_at, CreatedEntry(row=new.row))
    parts = light(newest_input(new.messages)[1]) if new.messages else ()
    return RecordEntry(new.info.created_at, CreatedEntry(row=new.row, text=text, parts=parts))


def takeover_of(state: RunState, *, bare: bool) -> TakeoverEntry:
    """Return the entry of an owner that begins with this state."""
    if state.row.position is not ADMISSION:
        return TakeoverEntry(bare=bare)
    return TakeoverEntry(bare=bare, state=writes_of(state.snapshot))


def writes_of(snapshot: StateSnapshot) -> tuple[StateWrite, ...]:
    """Return the persistent part of a snapshot, as a store holds it."""
    return tuple(
        StateWrite(key=key.name, scope=key.scope, value=cell.value, revision=cell.revision)
        for key, cell in sorted(snapshot.cells.items(), key=lambda item: item[0])
        if cell.persistent
    )


def restored(state: RunState) -> RunState:
    """Return the state as the next owner loads it: its durable part."""
    return RunState(
        info=state.info,
        row=state.row,
        calls=StepCalls(stored(call) for call in state.calls.values() if call.step == state.row.step),
        call_ids=state.call_ids,
        snapshot=StateSnapshot.restored(state.snapshot.revision, writes_of(state.snapshot)),
    )


_NONE: Final[Mapping[KeySpec, KeySpec]] = MappingProxyType({})
"""Shared, because an empty dict for each run would cost 64 bytes while it waits."""


class Recorder:
    """Gathers the entries of one owner of a run until a commit carries them.

    A recorder that is off puts one `RecordGap` into the first commit.
    """

    __slots__ = ("_on", "_pending", "_results", "_watched_specs")

    def __init__(self, state: RunState, now: datetime, *, bare: bool, on: bool) -> None:
        self._on = on
        self._pending = [RecordEntry(now, takeover_of(state, bare=bare) if on else RecordGap())]
        self._results: list[tuple[object, ...]] = []
        self._watched_specs: Mapping[KeySpec, KeySpec] = _NONE

    def __repr__(self) -> str:
        return f"<Recorder {'on' if self._on else 'off'}: {len(self._pending)} entries wait>"

    def add(self, now: datetime, entry: msgspec.Struct) -> None:
        """Record an input, or another change of the state."""
        if self._on:
            self._pending.append(
                RecordEntry(now, entry, tuple(self._results)) if self._results else RecordEntry(now, entry)
            )
            self._results.clear()

    def carry(self) -> tuple[RecordEntry, ...]:
        """Return the entries for the next commit."""
        entries = tuple(self._pending)
        self._pending.clear()
        return entries

    def undo(self, entries: Sequence[RecordEntry]) -> None:
        """Take back the entries of the newest commit, which the store refused, but not the input that led to it."""
        self._pending[:] = entries[: -1 if self._on else None]

    def watched(self, message: Input, spec: AgentSpec) -> Input:
        """Return the input with reducers that record their results, where the agent does not declare them."""
        # of every input, so by type: isinstance with a struct that does not match costs three times as much
        own_keys = message.keys if type(message) is CallReturned or type(message) is PhaseDone else None
        if not own_keys or not self._on:
            return message
        keys = with_reducers(own_keys, spec, self._noting)
        return message if keys is own_keys else msgspec.structs.replace(message, keys=keys)

    def _noting(self, spec: KeySpec) -> KeySpec:
        watched_spec = self._watched_specs.get(spec)
        if watched_spec is None:
            reduce, results = spec.reduce, self._results

            def noting(value: object, update: object) -> Any:
                assert reduce is not None  # noqa: S101 - checked by with_reducers
                try:
                    result = reduce(value, update)
                except BaseException as error:  # a replay has to raise what the reducer raised here
                    results.append((type(error).__name__, message_of(error)))
                    raise
                results.append((result,))
                return result

            watched_spec = attrs.evolve(spec, reduce=noting)
            self._watched_specs = {**self._watched_specs, spec: watched_spec}
        return watched_spec


def with_reducers(keys: Keys, spec: AgentSpec, other: Callable[[KeySpec], KeySpec]) -> Keys:
    """Return the keys with replaced reducers for those that the agent does not declare."""
    foreign = {key: other(item) for key, item in keys.items() if item.reduce is not None and key not in spec.keys}
    return {**keys, **foreign} if foreign else keys


def standing_in(results: Iterable[tuple[Any, ...]]) -> Callable[[KeySpec], KeySpec]:
    """Return reducers that yield the recorded results one after the other.

    `results` is consumed as the reducers are called: pass one iterator for all inputs of a fold.
    """
    following = iter(results)

    def reduce(_value: object, _update: object) -> Any:
        outcome = next(following)
        if len(outcome) == 1:
            return outcome[0]
        name, text = outcome
        raise type(name, (Exception,), {})("" if text == name else text)

    return lambda spec: attrs.evolve(spec, reduce=reduce)
