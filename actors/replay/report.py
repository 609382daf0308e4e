"""What a replay found: values, and the search for the first place where two events differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from ..contract.envelope import Event, timestamp

Missing = Literal["message", "call", "ticket", "time", "bytes", "ambiguous"]
_SHOWN: Final = 200
"""Characters of a value that a sentence for people shows."""


@attrs.frozen(kw_only=True)
class Difference:
    """The first event that does not come again as it is recorded.

    Attributes:
        sequence: where, counted from 1.
        recorded: what the store has; None if its log ends before.
        replayed: what the machine says; None if it says nothing there.
        path: where in the payload, such as `arguments.items[0]`; or `type`, or `timestamp` and the like.
        text: a sentence for people.
    """

    sequence: int
    recorded: Event | None
    replayed: Event | None
    path: str
    text: str


@attrs.frozen(kw_only=True)
class Unreplayable:
    """What the replay would need, and the store does not have. Nothing is guessed.

    Attributes:
        sequence: the event that it was needed for.
        missing: what.
            message: the model's answer is not in the thread.
            call, ticket: the row is not there, or is not what the event says.
            time: an owner was lost and the next one came at a moment that left no event.
            bytes: the stored event can not be read.
            ambiguous: too many orders of what left no event would explain the record.
        text: a sentence for people.
    """

    sequence: int
    missing: Missing
    text: str


@attrs.frozen(kw_only=True)
class ReplayReport:
    """What a replay came to.

    Attributes:
        run_id: of the run.
        equal: every recorded event came again, byte for byte in what it says.
        events: how many did, from the first one.
        difference: the first that did not; None if equal or unreplayable.
        unreplayable: why the replay could not go on; None otherwise.
    """

    run_id: str
    equal: bool
    events: int
    difference: Difference | None = None
    unreplayable: Unreplayable | None = None


def compared(sequence: int, recorded: Event | None, replayed: Event | None) -> Difference | None:
    """The difference of two events of one place in the log; None if there is none."""
    if recorded is None or replayed is None:
        return _one_sided(sequence, recorded, replayed)
    if recorded.type != replayed.type:
        text = f"recorded {recorded.type}, replayed {replayed.type}"
        return _difference(sequence, recorded, replayed, "type", text)
    found = first_path(recorded.payload, replayed.payload)
    if found is not None:
        path, before, after = found
        text = f"{recorded.type}: {path} is recorded as {_shown(before)}, and replayed as {_shown(after)}"
        return _difference(sequence, recorded, replayed, path, text)
    for name in ("timestamp", "id", "sequence", "version", "run_id", "session_id", "agent_id"):
        before, after = getattr(recorded, name), getattr(replayed, name)
        if before != after:
            if name == "timestamp":
                before, after = timestamp(before), timestamp(after)
            text = f"{recorded.type}: its {name} is recorded as {_shown(before)}, and replayed as {_shown(after)}"
            return _difference(sequence, recorded, replayed, name, text)
    return None


def _one_sided(sequence: int, recorded: Event | None, replayed: Event | None) -> Difference | None:
    if recorded is not None:
        text = f"{recorded.type} is recorded, and nothing in the replay leads to it"
    elif replayed is not None:
        text = f"the record ends here, in the middle of what one input came to: {replayed.type} should follow"
    else:
        return None
    return _difference(sequence, recorded, replayed, "type", text)


def _difference(sequence: int, recorded: Event | None, replayed: Event | None, path: str, text: str) -> Difference:
    return Difference(
        sequence=sequence, recorded=recorded, replayed=replayed, path=path, text=f"event {sequence}: {text}"
    )


ABSENT: Final = object()
"""In place of a value that one side does not have."""


def first_path(recorded: Any, replayed: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where two JSON values first differ, in the order of the recorded one, and the two values there."""
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for key in (*recorded, *(key for key in replayed if key not in recorded)):
            inner = f"{path}.{key}" if path else str(key)
            found = first_path(recorded.get(key, ABSENT), replayed.get(key, ABSENT), inner)
            if found is not None:
                return found
        return None
    if _is_list(recorded) and _is_list(replayed):
        for index in range(max(len(recorded), len(replayed))):
            found = first_path(_item(recorded, index), _item(replayed, index), f"{path}[{index}]")
            if found is not None:
                return found
        return None
    same = type(recorded) is type(replayed) and recorded == replayed
    return None if same else (path, recorded, replayed)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
