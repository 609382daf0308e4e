"""Stories that explain a log up to a place, what is seen of none of them, and where one ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from ..contract.envelope import Event
from ..contract.lifecycle import STATUS, RunStatus
from ..contract.phases import CallAt, Cursor
from ..contract.rows import CallRow
from ..engine.inputs import Activate, Input, TaskStopped
from ..engine.state import RunState, milliseconds
from .record import Record
from .report import Difference, Unreplayable
from .tasks import stopped_here, stopping
from .writes import restored


class Story(NamedTuple):
    """A state that explains the log up to a place. `bare`: its owner has no agent. `slack`: see `slack`."""

    state: RunState
    bare: bool = False
    slack: int = 0


class Fault(NamedTuple):
    """Where a story ended: how far it got, whether the type was right there, and what is to be said."""

    reached: int
    right_type: bool
    found: Difference | Unreplayable

    def rank(self) -> tuple[int, bool, bool]:
        """The greater one is nearer to what happened; of equal ones the first."""
        return self.reached, self.right_type, isinstance(self.found, Unreplayable)


class Place:
    """The stories that explain the log up to a place. Equal ones are one.

    Attributes:
        waiting: those that have not been followed yet, the likeliest first.
    """

    def __init__(self) -> None:
        self.waiting: deque[Story] = deque()
        self._known: dict[object, list[Story]] = {}

    def add(self, stories: Iterable[Story], *, first: bool = False) -> None:
        """Those that are new, behind the others or before them."""
        new = [story for story in stories if self._is_new(story)]
        if first:
            self.waiting.extendleft(reversed(new))
        else:
            self.waiting.extend(new)

    def _is_new(self, story: Story) -> bool:
        alike = self._known.setdefault(_mark(story), [])
        if any(known.state == story.state for known in alike):
            return False
        alike.append(story)
        return True


NOWHERE: Final = Place()
"""A place that no story has reached."""


def _mark(story: Story) -> object:
    """What tells most of the stories of one place apart, and is cheap to compare."""
    row, calls = story.state.row, story.state.calls.values()
    at = tuple((call.at, call.attempts, call.verdict_at, call.provisional) for call in calls)
    return story.bare, row.cursor, story.state.phase_open, row.inbox, at


def before(record: Record, state: RunState, message: Input, position: int) -> RunState:
    """The state that an input meets, if that is another one than its last event has left."""
    match message:
        case Activate():
            state = msgspec.structs.replace(state, phase_open=False)  # nobody has been asked by this owner
            state = restored(state) if record.index.forgotten else state
            ending = stopped_here(record, state, position)
            return stopping(state, ending) if ending else state
        case TaskStopped():
            return stopping(state, (message.task_id,))
        case _:
            return state


# --- time without an owner -------------------------------------------------------------------------------------------

_UNSEEN = (CallAt.GATING, CallAt.BEFORE, CallAt.AFTER, CallAt.MERGING)


def slack(record: Record, state: RunState, position: int) -> int:
    """Milliseconds of active time that may have gone by here without an owner, unseen by the log.

    An owner who takes a run up counts active time from then on. Mostly that says itself in an event; not while
    hooks or a gate are asked, nor on the way out. And what is written without an event (a cancel of a task) says when
    the last owner was there, and is not seen.
    """
    row = state.row
    if STATUS[row.stage] is not RunStatus.RUNNING:
        return 0
    asked = state.phase_open or any(call.at in _UNSEEN for call in _calls(state))
    stops = record.index.stops
    cancels = bool(stops) and any(task.task_id in stops for task in row.tasks)
    return gap(record, position) if row.cursor is Cursor.STOPPING or asked or cancels else 0


def gap(record: Record, position: int) -> int:
    """Milliseconds between an event and the one before it."""
    events = record.events
    return milliseconds(events[position - 1].timestamp, events[position].timestamp)


def _calls(state: RunState) -> Iterable[CallRow]:
    return state.calls.values() if state.row.cursor is Cursor.TOOLS else ()


def explained_by(difference: Difference, slack: int) -> bool:
    """Whether what may have gone by without an owner explains it: as active time, or as a limit of active time."""
    if difference.recorded is None or difference.replayed is None:
        return False
    if "timeout" in (difference.recorded.payload.get("code"), difference.replayed.payload.get("code")):
        return True
    if difference.path != "active_seconds":
        return False
    recorded, replayed = (event.payload["active_seconds"] for event in (difference.recorded, difference.replayed))
    lost = round((replayed - recorded) * 1000) if isinstance(recorded, int | float) else -1
    return 0 < lost <= slack


def stopped_by_time(record: Record, state: RunState, recorded: Event | None) -> bool:
    """Whether a limit of active time has ended the run in the story and not in the record, or the other way round.

    Either shows first in another event: of a decision that the end makes useless, of the step that does not come.
    """
    termination, last = state.row.termination, record.events[-1]
    in_story = termination is not None and termination.code == "timeout"
    if record.end()[0] != "timeout":
        return in_story
    return not in_story and (recorded is None or recorded.timestamp == last.timestamp)


def time_unknown(difference: Difference) -> Unreplayable:
    """The record does not tell for how long the run had no owner."""
    text = (
        f"event {difference.sequence}: the run seems to have been without an owner for a while, and was taken up at a "
        f"moment that left no event; so its active time is not known ({difference.text})"
    )
    return Unreplayable(sequence=difference.sequence, missing="time", text=text)
