"""The result of a replay: values, the first place where two events differ, and entries as redacted text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs
import msgspec

from ..contract.envelope import Event, timestamp
from ..contract.plain import JSONValue
from ..contract.recording import RecordEntry
from ..contract.secrets.redaction import Redactor

Missing = Literal["record", "bytes"]
_SHOWN: Final = 200
"""Most characters of a value in a sentence for people."""


@attrs.frozen(kw_only=True)
class Difference:
    """The first event that the replay does not reproduce.

    Attributes:
        sequence: The sequence of the event, from 1.
        recorded: the stored event; None if the log ends before.
        replayed: the event of the replay, or None.
        path: the place in the payload, such as `arguments.items[0]`; or `type`, `timestamp` etc.; or `bytes`.
        text: a sentence for people.
        input: the newest entry of the record before the event, as one line: its number, its time and its content.
    """

    sequence: int
    recorded: Event | None
    replayed: Event | None
    path: str
    text: str
    input: str


@attrs.frozen(kw_only=True)
class Unreplayable:
    """Why a replay cannot continue.

    Attributes:
        sequence: the first event that cannot be compared.
        missing: the missing data.
            record: inputs of the run: an older release wrote it, or a runtime with `record=False`.
            bytes: the stored event, which is unreadable.
        text: a sentence for people.
    """

    sequence: int
    missing: Missing
    text: str


@attrs.frozen(kw_only=True)
class ReplayReport:
    """The result of a replay.

    Attributes:
        run_id: The id of the run.
        equal: every stored event was reproduced, byte for byte, and no other.
        events: the number of reproduced events, from the first one.
        difference: the first event that was not reproduced; None if equal or unreplayable.
        unreplayable: why the replay could not continue; else None.
    """

    run_id: str
    equal: bool
    events: int
    difference: Difference | None = None
    unreplayable: Unreplayable | None = None


def compared(sequence: int, before: Event | None, after: Event | None, line: str) -> Difference:
    """Return the difference between two events at one place in the log. `line`: the input before them."""
    path, text = _first_difference(before, after)
    text = f"event {sequence}: {text}"
    return Difference(sequence=sequence, recorded=before, replayed=after, path=path, text=text, input=line)


def _first_difference(old: Event | None, new: Event | None) -> tuple[str, str]:
    if old is None or new is None:
        if old is not None:
            return "type", f"{old.type} is recorded, and nothing in the replay leads to it"
        name = "nothing" if new is None else new.type
        return "type", f"the log ends here, in the middle of what one input came to: {name} should follow"
    if old.type != new.type:
        return "type", f"recorded {old.type}, replayed {new.type}"
    differs_at = first_path(old.payload, new.payload) or first_path(_head(old), _head(new))
    if differs_at is None:
        return "bytes", f"{old.type} is recorded in other bytes than it is replayed, which say the same"
    path, before, after = differs_at
    return path, f"{old.type}: {path} is recorded as {_shown(before)}, and replayed as {_shown(after)}"


def _head(event: Event) -> dict[str, JSONValue]:
    names = ("id", "sequence", "version", "run_id", "session_id", "agent_id", "excerpted")
    return {"timestamp": timestamp(event.timestamp), **{name: getattr(event, name) for name in names}}


ABSENT: Final = object()
"""Replaces a value that one side does not have."""


def first_path(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return where two JSON values first differ, in the order of the recorded one, and the two values there."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after, place = old, new, "{}.{}" if path else "{}{}"
    elif _is_list(old) and _is_list(new):
        before, after, place = dict(enumerate(old)), dict(enumerate(new)), "{}[{}]"
    else:
        same = type(old) is type(new) and old == new
        return None if same else (path, old, new)
    names = {**before, **after}
    inner = (first_path(before.get(name, ABSENT), after.get(name, ABSENT), place.format(path, name)) for name in names)
    return next(filter(None, inner), None)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: object) -> str:
    text = "nothing" if value is ABSENT else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


SHOWN: Final = 300
"""Most characters of an entry's text."""


def shown(number: int, entry: RecordEntry, redactor: Redactor) -> str:
    """Return an entry as one line: its number, its time, and its content."""
    return f"input {number} at {timestamp(entry.at)}: {struct_text(entry.entry, redactor)}"


def struct_text(value: Any, redactor: Redactor) -> str:
    """Return a struct's name and the fields that differ from their default, redacted and cut."""
    values = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(type(value)))
    parts = ", ".join(f"{field.name}={item!r}" for field, item in values if item != field.default)
    text = redactor.text(f"{type(value).__name__}({parts})")
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
