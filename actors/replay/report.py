"""What a replay found: values, and the first place where two events differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from ..contract.envelope import Event, timestamp
from ..contract.plain import JSONValue

Missing = Literal["record", "bytes"]
_SHOWN: Final = 200
"""Characters of a value that a sentence for people shows."""


@attrs.frozen(kw_only=True)
class Difference:
    """The first event that does not come again as it is stored.

    Attributes:
        sequence: where, counted from 1.
        recorded: what the store has; None if its log ends before.
        replayed: what the machine says; None if it says nothing there.
        path: where in the payload, such as `arguments.items[0]`; or `type`, `timestamp` and the like; or `bytes`.
        text: a sentence for people.
        input: the newest entry of the record before it, as one line: its number, its time and what it was.
    """

    sequence: int
    recorded: Event | None
    replayed: Event | None
    path: str
    text: str
    input: str


@attrs.frozen(kw_only=True)
class Unreplayable:
    """Why a replay could not go on.

    Attributes:
        sequence: the first event that can not be compared.
        missing: what is not there.
            record: of what the run took: an older release wrote it, or a runtime with `record=False`.
            bytes: of the stored event, which can not be read.
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
        equal: every stored event came again, byte for byte, and no other.
        events: how many did, from the first one.
        difference: the first that did not; None if equal or unreplayable.
        unreplayable: why the replay could not go on; None otherwise.
    """

    run_id: str
    equal: bool
    events: int
    difference: Difference | None = None
    unreplayable: Unreplayable | None = None


def compared(sequence: int, recorded: Event | None, replayed: Event | None, line: str) -> Difference:
    """How two events of one place in the log differ, whose bytes do. `line`: the input before."""
    path, text = _first_difference(recorded, replayed)
    text = f"event {sequence}: {text}"
    return Difference(sequence=sequence, recorded=recorded, replayed=replayed, path=path, text=text, input=line)


def _first_difference(recorded: Event | None, replayed: Event | None) -> tuple[str, str]:
    if recorded is None or replayed is None:
        if recorded is not None:
            return "type", f"{recorded.type} is recorded, and nothing in the replay leads to it"
        name = "nothing" if replayed is None else replayed.type
        return "type", f"the log ends here, in the middle of what one input came to: {name} should follow"
    if recorded.type != replayed.type:
        return "type", f"recorded {recorded.type}, replayed {replayed.type}"
    found = first_path(recorded.payload, replayed.payload) or first_path(_head(recorded), _head(replayed))
    if found is None:
        return "bytes", f"{recorded.type} is recorded in other bytes than it is replayed, which say the same"
    path, before, after = found
    return path, f"{recorded.type}: {path} is recorded as {_shown(before)}, and replayed as {_shown(after)}"


def _head(event: Event) -> dict[str, JSONValue]:
    names = ("id", "sequence", "version", "run_id", "session_id", "agent_id")
    return {"timestamp": timestamp(event.timestamp), **{name: getattr(event, name) for name in names}}


ABSENT: Final = object()
"""In place of a value that one side does not have."""


def first_path(recorded: Any, replayed: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where two JSON values first differ, in the order of the recorded one, and the two values there."""
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        names = (*recorded, *(name for name in replayed if name not in recorded))
        pairs = [(f"{path}.{name}" if path else str(name), name) for name in names]
        sides = ((inner, recorded.get(name, ABSENT), replayed.get(name, ABSENT)) for inner, name in pairs)
    elif _is_list(recorded) and _is_list(replayed):
        longest = range(max(len(recorded), len(replayed)))
        sides = ((f"{path}[{index}]", _item(recorded, index), _item(replayed, index)) for index in longest)
    else:
        same = type(recorded) is type(replayed) and recorded == replayed
        return None if same else (path, recorded, replayed)
    return next(filter(None, (first_path(before, after, inner) for inner, before, after in sides)), None)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _item(values: Sequence[object], index: int) -> Any:
    return values[index] if index < len(values) else ABSENT


def _shown(value: object) -> str:
    text = "nothing" if value is ABSENT else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
