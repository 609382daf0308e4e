"""Where in a log the events stand that tell of what is stored nowhere else: found once, when a record is made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..contract.envelope import Event
from ..contract.phases import CallAt
from ..contract.rows import CallRow

STOPPED: Final = "It was cancelled."
"""What the event of a task says that somebody has cancelled (and not the end of its run)."""


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
        unoffered: of calls whose tool a hook had taken away.
    """

    writes: Mapping[str, tuple[int, ...]]
    starts: Mapping[str, tuple[int, ...]]
    results: Mapping[str, int]
    stops: Mapping[str, int]
    merging: frozenset[str]
    steps: tuple[int, ...]
    forgotten: bool
    unoffered: tuple[int, ...]


def make_index(events: Sequence[Event], calls: Iterable[CallRow]) -> Index:
    """Read a log once; and the rows of its calls."""
    writes: dict[str, list[int]] = defaultdict(list)
    starts: dict[str, list[int]] = defaultdict(list)
    results: dict[str, int] = {}
    stops: dict[str, int] = {}
    merging = {call.call_id for call in calls if call.at is CallAt.MERGING}
    forgotten, unoffered, steps = False, [], []
    for position, event in enumerate(events):
        payload: Any = event.payload
        match event.type:
            case "run.state.changed" | "run.state.conflict":
                writer = writer_of(event)
                writes[writer].append(position)
                if writer not in results:
                    merging.add(writer)
                forgotten = forgotten or (event.type == "run.state.conflict" and payload.get("other") is None)
            case "run.step.started":
                steps.append(position)
            case "run.tool.started":
                starts[str(payload.get("call_id"))].append(position)
            case "run.tool.result":
                results[str(payload.get("call_id"))] = position
                if payload.get("code") == "unknown_tool":
                    unoffered.append(position)
            case "run.task.finished" if payload.get("result") == STOPPED:
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
        unoffered=tuple(unoffered),
    )


def writer_of(event: Event) -> str:
    """Who wrote to state, or wanted to: a call, a task or the hooks of a phase."""
    return str(event.payload.get("by" if event.type == "run.state.changed" else "writer"))
