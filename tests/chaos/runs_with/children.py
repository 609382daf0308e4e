"""A run whose child run waits for an approval: one end, no orphan."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

import greenroom as gr
from greenroom.actors.contract.ids import child_run_id
from greenroom.testing import ScriptedModel, call

from ..stage import RUN, TERMINAL, World, broken_calls, broken_log, decode_event, look, refund
from .subject import Subject, beginning

CHILD = child_run_id(RUN, "K")
STAGES = tuple(name.removeprefix("run.") for name in TERMINAL)


def office(execution: Any) -> gr.Agent:
    """An agent whose tool is an agent with an approval."""
    inside = [[call("look", where="here", id="look"), call("refund", order="7", id="refund")], *["settled"] * 4]
    clerk = gr.Agent("clerk", tools=[refund, look], model=ScriptedModel(inside, chunk=4))
    model = ScriptedModel([call("clerk", input="Settle it.", id="K"), *["done"] * 6])
    return gr.Agent("office", tools=[clerk.as_tool()], model=model, execution=execution)


@attrs.define(eq=False)
class Office(World):
    """A world that knows how the child run has ended."""

    def child_stage(self) -> str | None:
        """The stage of the child run in the store; None if it was never started."""
        if isinstance(self.store, gr.MemoryStore):
            kept = self.store._ledger.runs.get(CHILD)
            return None if kept is None else kept.row.stage.value
        with closing(sqlite3.connect(self.store.path)) as connection, connection:
            found = connection.execute("SELECT stage FROM runs WHERE run_id = ?", (CHILD,)).fetchone()
        return None if found is None else str(found[0])


def world(_: None, folder: Path | None, execution: str, **options: Any) -> Office:
    return Office(folder=folder, execution=execution, make_agent=office, **options)


def check(_: None, world: Office) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from world.book.faults
    if world.ended is None:
        yield "the run never came to its end"
        return
    frames, record, history = world.ended
    events = [decode_event(frame) for frame in frames]
    yield from broken_log(events, frames, world.book.seen)
    yield from broken_calls(events, record, history)
    stage = world.child_stage()
    if stage is not None and stage not in STAGES:
        yield f"the run has ended, and its child run is {stage}"
    if sum(event.type == "run.child.finished" for event in events) > 1:
        yield "the child run ended twice"
    approved = sum(e.type == "run.approval.resolved" and e.payload["resolution"] == "approved" for e in events)
    times = world.book.bodies[f"{CHILD}/refund"]
    if times > approved:
        yield f"the refund ran {times} times with {approved} approvals"


CHILDREN = Subject(
    world,
    check,
    victims={
        "run": beginning(f"runtime/{RUN}"),
        "child run": beginning(f"runtime/{CHILD}"),
        "call": beginning("call:"),
    },
    plan=[("memory", "parallel_streaming"), ("sqlite", "parallel_streaming")],
    points=12,
)
