"""User code raises anything, anywhere, at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import trio
from tests.conformance import test_user_code as table
from tests.support.runs import agent, events_of
from tests.support.stray_cancels import ESCAPES

import greenroom as gr
from greenroom.testing import call

from .core import Dice, must, real, virtual

# The run that it belongs to comes to an end or to a question, its log stays readable, and its neighbours work.

KINDS: Final = (*ESCAPES, BaseException, Exception, StopIteration, StopAsyncIteration, MemoryError, RecursionError)
MORE_KINDS: Final = (OSError, AssertionError, ImportError, trio.TooSlowError, trio.ClosedResourceError, gr.ToolError)
HOSTILE: Final = ("__str__", "__repr__", "__eq__", "__hash__", "__bool__", "with_traceback", "add_note", "__reduce__")
GROUP_HOSTILE: Final = ("derive", "split", "subgroup")
TEXTS: Final = ("", "\udc80", "\0", "x" * 1_100_000, "password=swordfish-42", "\x1b[31m", "{}%s%d", "\u202e\n\r")


def refuses(*_: object, **__: object) -> Any:
    """A method that makes things worse."""
    raise KeyboardInterrupt


def strange(dice: Dice, depth: int = 0, *, tame: bool = False) -> BaseException:
    """An exception of a class that nothing has seen before; a tame one has no methods that raise."""
    if depth < 3 and dice.random() < 0.25:
        inside = [strange(dice, depth + 1, tame=tame) for _ in range(dice.randint(1, 3))]
        methods = dict.fromkeys(dice.sample(GROUP_HOSTILE, 0 if tame else dice.randint(0, 1)), refuses)
        return type("Grouped", (BaseExceptionGroup,), methods)(dice.choice(TEXTS[:2]), inside)
    methods = dict.fromkeys(dice.sample(HOSTILE, 0 if tame else dice.choice((0, 0, 1, 3))), refuses)
    kind = type("Strange", (dice.choice((*KINDS, *MORE_KINDS)),), methods)
    error: BaseException = kind(*dice.choices((*TEXTS, None, object(), b"\xff", float("nan")), k=dice.randint(0, 2)))
    if dice.random() < 0.3:
        error.__cause__ = strange(dice, depth + 1) if depth < 3 else error
    if dice.random() < 0.2:
        error.__context__ = error.__cause__
    if dice.random() < 0.2:
        error.__notes__ = dice.choice(([1, None], "no list", ["\udc80"]))
    return error


@gr.tool
async def sour() -> str:
    """Raise when cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        raise table.boom.error


@gr.tool(timeout=1.0)
async def late() -> str:
    """Raise when time is up."""
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise table.boom.error from None  # noqa: ASYNC104 - the border has raised what passes
    return ""


class Sour(gr.Model):
    """A model that raises when its stream is cancelled."""

    name = "sour"

    @contextlib.asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """Stream one delta, then wait."""
        try:
            yield self._events()
        finally:
            raise table.boom.error

    async def _events(self) -> AsyncIterator[Any]:
        yield gr.TextDelta(text="a")
        await trio.sleep_forever()


def behind_a_door(dice: Dice) -> tuple[gr.Agent[Any], bool]:
    """An agent whose code raises behind some door, and whether a thread may be behind it."""
    sort = dice.choice(("tool", "plugin", "model", "predicate", "sour", "both"))
    if sort == "model":
        moment = dice.choice(("opening", "iterating", "closing", "modelerror", "between"))
        return gr.Agent("bad", model=dice.choice((Sour(), table.Broken(moment)))), False
    arguments = {tool.name: values for tool, values, _ in table.TOOLS.values()}
    tools = {
        "predicate": [table.judged, table.judged_in_a_task],
        "sour": [sour, late],
        "plugin": [table.fine],
    }.get(sort, [tool for tool, _, _ in table.TOOLS.values()])
    tool_sample = dice.sample(tools, min(len(tools), dice.randint(1, 3)))
    calls = [call(one.name, arguments.get(one.name, {}), id=f"c{at}") for at, one in enumerate(tool_sample)]
    bad = agent(
        calls,
        *["done"] * 5,
        key="bad",
        tools=tool_sample,
        state=[table.BAD],
        plugins=[dice.choice(list(table.PLUGINS.values()))[0]] if sort in ("plugin", "both") else [],
        execution=dice.choice(("sequential", "parallel_batch_approval", "parallel_streaming")),
    )
    return bad, any(one.name in arguments for one in tool_sample)


async def through_a_door(bad: gr.Agent[Any], dice: Dice) -> None:
    """One scene: the run is left alone, cancelled, paused, or spoken to."""
    async with table.two_runs(bad, passivate_after=dice.choice((0.0, 60.0))) as run:
        await trio.sleep(dice.choice((0, 0.01, 0.2)))
        match dice.choice(("leave", "cancel", "pause", "send")):
            case "cancel":
                await run.cancel()
            case "pause":
                await run.pause()
            case "send":
                await run.send("more")
        with trio.move_on_after(20):
            with contextlib.suppress(gr.RunDegradedError):
                await run.wait()
        await run.cancel()
        await run.result()
        events = await events_of(run)
        must([event.sequence for event in events] == list(range(1, len(events) + 1)), "the log has a gap")


def doors(dice: Dice) -> None:
    """User code raises anything, anywhere."""
    bad, has_thread = behind_a_door(dice)
    # An exception that leaves a task or a thread of a tool's own is trio's before it is ours: trio asks it for a repr
    # and for another traceback, and does not survive methods that raise.
    trios = not {table.in_a_nursery, table.with_a_thread}.isdisjoint(bad.tools)
    table.boom.error = strange(dice, tame=trios)
    (real if has_thread else virtual)(partial(through_a_door, bad, dice))
