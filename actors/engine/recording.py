"""The record of a run: what is in it beside inputs, and how it is made.

Theory of operation. A run that is folded again begins with `CreatedEntry`, and takes each input at its recorded
time. Between inputs the owner of a run changes the state in few ways, and each has an entry of its own: an owner
takes the run up as the store has it (`TakeoverEntry`), the clocks move apart (`ClockJump`), a run that was given up
ends without the machine (`ForcedEndEntry`). A stretch that was not recorded has `RecordGap`.

Reducers are user code. Those that the agent declares run again in a replay. Others are known to the bodies that use
them only; so what they return is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from ..contract.codec import message_of
from ..contract.decisions import InboxItem
from ..contract.phases import RunPosition
from ..contract.recording import RecordEntry
from ..contract.rows import NewRun, RunRow
from ..contract.spec import AgentSpec
from ..contract.state import Keys, KeySpec, StateWrite
from ..state.snapshot import StateSnapshot
from .inputs import CallReturned, Input, PhaseDone
from .state import RunState, stored


class CreatedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The run was created with this row. `text`: the input that run.created shows; None: of the message that waits."""

    row: RunRow
    text: str | None = None


class TakeoverEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An owner took the run up as the store had it.

    Attributes:
        bare: without the agent, or its deps.
        state: the state keys, if other runs of the thread may have written some; None: those that the run has left.
    """

    bare: bool = False
    state: tuple[StateWrite, ...] | None = None


class ClockJump(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock went on by so many seconds more than the steady one: that was no activity (`state.shifted`)."""

    seconds: float


class ForcedEndEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The run was ended without its machine (`forced_end.py`).

    Attributes:
        why: for people. items: the unread commands. posted: position of the newest one.
        readable: the run's row could be read.
    """

    why: str
    items: tuple[InboxItem, ...] = ()
    posted: int = 0
    readable: bool = True


class RecordGap(msgspec.Struct, frozen=True, kw_only=True):
    """From here on nothing is recorded, until an owner takes the run up that records."""

    why: str = ""


_WRITERS: Final = (PhaseDone, CallReturned)
"""The inputs that may bring reducers. A tuple: an input is asked for its type, and a union would be made each time."""

Entry = Input | CreatedEntry | TakeoverEntry | ClockJump | ForcedEndEntry | RecordGap


def birth_of(new: NewRun) -> RecordEntry:
    """The entry with which the record of a new run begins."""
    shown = new.created.payload.input
    waits = bool(new.row.pending_input) and new.row.pending_input[0].content == shown
    return RecordEntry(new.info.created_at, CreatedEntry(row=new.row, text=None if waits else shown))


def takeover_of(state: RunState, *, bare: bool) -> TakeoverEntry:
    """The entry of an owner that begins with this state."""
    if state.row.cursor is not RunPosition.ADMISSION:
        return TakeoverEntry(bare=bare)
    return TakeoverEntry(bare=bare, state=writes_of(state.snapshot))


def writes_of(snapshot: StateSnapshot) -> tuple[StateWrite, ...]:
    """What a store has of a snapshot."""
    return tuple(
        StateWrite(key=key.name, scope=key.scope, value=cell.value, revision=cell.revision)
        for key, cell in sorted(snapshot.cells.items(), key=lambda item: item[0])
        if cell.persistent
    )


def restored(state: RunState) -> RunState:
    """The state as the next owner loads it: what is durable of it."""
    return RunState(
        info=state.info,
        row=state.row,
        calls={name: stored(call) for name, call in state.calls.items() if call.step == state.row.step},
        used=state.used,
        snapshot=StateSnapshot.restored(state.snapshot.revision, writes_of(state.snapshot)),
    )


class Recorder:
    """Gathers the entries of one owner of a run, until a commit carries them.

    A recorder that is off leaves one `RecordGap` in the first commit.
    """

    __slots__ = ("_carried", "_on", "_pending", "_reduced", "_watched")

    def __init__(self, state: RunState, now: datetime, *, bare: bool, on: bool) -> None:
        self._on = on
        self._pending = [RecordEntry(now, takeover_of(state, bare=bare) if on else RecordGap())]
        self._carried: tuple[RecordEntry, ...] = ()
        self._reduced: list[tuple[object, ...]] = []
        self._watched: dict[KeySpec, KeySpec] = {}

    def __repr__(self) -> str:
        return f"<Recorder {'on' if self._on else 'off'}: {len(self._pending)} entries wait>"

    def add(self, now: datetime, entry: msgspec.Struct) -> None:
        """The machine took an input, or its state was changed."""
        if self._on:
            self._pending.append(
                RecordEntry(now, entry, tuple(self._reduced)) if self._reduced else RecordEntry(now, entry)
            )
            self._reduced.clear()

    def carry(self) -> tuple[RecordEntry, ...]:
        """What the next commit carries."""
        self._carried = tuple(self._pending)
        self._pending.clear()
        return self._carried

    def undo(self) -> None:
        """The newest commit was refused, and the input that led to it is taken back."""
        self._pending[:] = self._carried[: -1 if self._on else None]

    def watched(self, message: Input, spec: AgentSpec) -> Input:
        """The input, with reducers whose results are noted where the agent does not declare them."""
        if not isinstance(message, _WRITERS) or not message.keys or not self._on:
            return message
        keys = with_reducers(message.keys, spec, self._noting)
        return message if keys is message.keys else msgspec.structs.replace(message, keys=keys)

    def _noting(self, known: KeySpec) -> KeySpec:
        found = self._watched.get(known)
        if found is None:
            found = self._watched[known] = attrs.evolve(known, reduce=_noted(known, self._reduced))
        return found


def _noted(known: KeySpec, results: list[tuple[object, ...]]) -> Callable[[Any, Any], Any]:
    reduce: Final = known.reduce

    def noting(value: object, update: object) -> Any:
        assert reduce is not None  # noqa: S101 - with_reducers has looked
        try:
            result = reduce(value, update)
        except BaseException as error:
            results.append((type(error).__name__, message_of(error)))
            raise
        results.append((result,))
        return result

    return noting


def with_reducers(keys: Keys, spec: AgentSpec, other: Callable[[KeySpec], KeySpec]) -> Keys:
    """The keys, with other reducers for those that the agent does not declare."""
    foreign = {key: other(known) for key, known in keys.items() if known.reduce is not None and key not in spec.keys}
    return {**keys, **foreign} if foreign else keys


def standing_in(results: Iterable[tuple[Any, ...]]) -> Callable[[KeySpec], KeySpec]:
    """Reducers that give back, one after the other, what is recorded.

    `results` is read as the reducers are called: it must be one iterator for all inputs of a fold.
    """
    following = iter(results)

    def reduce(_value: object, _update: object) -> Any:
        outcome = next(following)
        if len(outcome) == 1:
            return outcome[0]
        name, text = outcome
        raise type(name, (Exception,), {})("" if text == name else text)

    return lambda known: attrs.evolve(known, reduce=reduce)
