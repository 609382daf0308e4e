"""Where in a log the events stand that tell of what is stored nowhere else: found once, when a record is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import attrs

from ..contract.envelope import Event
from ..contract.phases import CallAt
from ..contract.rows import CallRow
from ..contract.state import KeyId, Keys, KeySpec
from ..engine.tasks import STOPPED

FAILED: Final = "the reducer of state key {key!r} failed: "
"""How a conflict begins of a reducer that has failed."""


@attrs.frozen(kw_only=True)
class Index:
    """Positions in a log, from 0.

    Attributes:
        writes: writer -> its run.state.changed and run.state.conflict.
        starts: call -> its run.tool.started. results: call -> its run.tool.result.
        stops: task -> its run.task.finished, if somebody cancelled it.
        merging: calls whose newest or an earlier attempt had not ended before what it wrote was merged.
        steps: every run.step.started.
        forgotten: a conflict does not know any more who wrote the key.
        reducers: of each conflict, the keys whose next conflict from there on is of a reducer that has failed.
        unoffered: of calls whose tool a hook had taken away.
    """

    writes: Mapping[str, tuple[int, ...]]
    starts: Mapping[str, tuple[int, ...]]
    results: Mapping[str, int]
    stops: Mapping[str, int]
    merging: frozenset[str]
    steps: tuple[int, ...]
    forgotten: bool
    reducers: tuple[tuple[int, Keys], ...]
    unoffered: tuple[int, ...]


def make_index(events: Sequence[Event], calls: Iterable[CallRow]) -> Index:
    """Read a log once; and the rows of its calls."""
    writes: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, list[int]] = defaultdict(list)
    results: dict[str, int] = {}
    stops: dict[str, int] = {}
    merging = {call.call_id for call in calls if call.at is CallAt.MERGING}
    forgotten, unoffered, steps, conflicts = False, [], [], []
    for position, event in enumerate(events):
        payload: Any = event.payload
        match event.type:
            case "run.state.changed" | "run.state.conflict":
                writer = writer_of(event)
                writes[writer].append(position)
                if writer not in results:
                    merging.add(writer)
                if event.type == "run.state.conflict":
                    conflicts.append(position)
                    forgotten = forgotten or payload.get("other") is None
            case "run.step.started":
                steps.append(position)
            case "run.tool.started":
                starts[str(payload.get("call_id"))].append(position)
            case "run.tool.result":
                results[str(payload.get("call_id"))] = position
                if payload.get("code") == "unknown_tool":
                    unoffered.append(position)
            case "run.task.finished" if str(payload.get("result")).startswith(STOPPED):
                stops[str(payload.get("task_id"))] = position
            case _:
                pass
    return Index(
        writes={name: tuple(found) for name, found in writes.items()},
        starts={name: tuple(found) for name, found in starts.items()},
        results=results,
        stops=stops,
        merging=frozenset(merging),
        steps=tuple(steps),
        forgotten=forgotten,
        reducers=tuple(_reducers(events, conflicts))[::-1],
        unoffered=tuple(unoffered),
    )


def _reducers(events: Sequence[Event], conflicts: Sequence[int]) -> Iterator[tuple[int, Keys]]:
    """From the last conflict to the first."""
    known: dict[KeyId, KeySpec] = {}
    for position in reversed(conflicts):
        payload: Any = events[position].payload
        key = key_of(payload.get("key"))
        known = {other: spec for other, spec in known.items() if other != key}
        if str(payload.get("detail")).startswith(FAILED.format(key=str(key))):
            known[key] = KeySpec(key=key, reduce=_fail)
        yield position, known


def _fail(_: Any, update: Any) -> NoReturn:
    """A reducer that fails as its update says another one did."""
    name, _, text = str(update).partition(": ")
    raise type(name, (Exception,), {})(text)


def key_of(name: Any) -> KeyId:
    """A key, by what an event calls it."""
    text = str(name)
    thread = text.removeprefix("thread:")
    return KeyId("run", text) if thread == text else KeyId("thread", thread)


def writer_of(event: Event) -> str:
    """Who wrote to state, or wanted to: a call, a task or the hooks of a phase."""
    return str(event.payload.get("by" if event.type == "run.state.changed" else "writer"))
