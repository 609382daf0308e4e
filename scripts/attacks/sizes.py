"""A value of any size, at any door, on any store: an error with its size, or stored; and nobody else notices."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
from tests.support.postgres import binaries, own_schema, running
from tests.support.runs import events_of, home

import greenroom as gr
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import FRAME_BYTES
from greenroom.actors.contract.excerpt import LARGE
from greenroom.actors.contract.sizes import ANSWER_LIMIT, STEP_LIMIT, VALUE_LIMIT
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import ScriptedModel, call

from .core import Dice, must, virtual

UNITS: Final = ("x", "é", "\x01", '"', "\U0001f600", "字", "a b\n")
"""One to six bytes each, in UTF-8 and in JSON."""
EDGES: Final = (1, 4_096, 65_536, LARGE, VALUE_LIMIT // 6, VALUE_LIMIT // 2, VALUE_LIMIT, ANSWER_LIMIT, 30_000_000)
NOTE: Final = gr.StateKey("note", str, default="")


def a_text(dice: Dice) -> str:
    """A text whose characters, bytes, or bytes as JSON are about as many as some limit."""
    unit = dice.choice(UNITS)
    each = dice.choice((1, len(unit.encode()), 6)) if len(unit) == 1 else len(unit)
    return unit * max(1, dice.choice(EDGES) // each + dice.choice((-2, -1, 0, 1, 2)))


def a_value(dice: Dice) -> Any:
    """A text, or the same in pieces, under keys, deep inside."""
    text = a_text(dice)
    match dice.randrange(6):
        case 0:
            step = max(1, len(text) // dice.choice((2, 50, 5_000)))
            return [text[at : at + step] for at in range(0, len(text), step)]
        case 1:
            return {"deep": [{"rows": [text]}]}
        case 2:
            return {text[:1_000_000]: 1, "other": text[1_000_000:]}
        case 3:
            return [{"id": number, "name": "n"} for number in range(min(len(text), 300_000))]
        case _:
            return text


@attrs.define
class Ran:
    """How often each body has begun."""

    value: Any
    text: str
    bodies: dict[str, int] = attrs.field(factory=dict)

    def note(self, name: str) -> None:
        """Count a body."""
        self.bodies[name] = self.bodies.get(name, 0) + 1


def ending(ran: Ran) -> list[Any]:
    """Tools that end with a value. None may run twice."""

    @gr.tool(effect="pay")
    async def give(n: int = 0) -> Any:
        """Return it."""
        ran.note(f"give{n}")
        return ran.value

    @gr.tool(effect="pay")
    async def fail_with() -> str:
        """Raise it."""
        ran.note("fail_with")
        raise gr.ToolError(ran.text)

    @gr.tool(effect="pay")
    async def crash_with() -> str:
        """Raise it as another program would."""
        ran.note("crash_with")
        raise RuntimeError(ran.text)

    @gr.tool(needs_approval=True, effect="pay")
    async def pay(note: str = "") -> str:
        """Pay."""
        ran.note("pay")
        return "paid"

    return [give, fail_with, crash_with, pay]


def asking(ran: Ran) -> list[Any]:
    """Tools that hand a value to the runtime while they run."""

    @gr.tool(effect="pay")
    async def keep(ctx: gr.ToolContext) -> str:
        """Write it to state."""
        ran.note("keep")
        ctx.state.set(NOTE, ran.text)
        return "kept"

    @gr.tool(effect="pay")
    async def tell(ctx: gr.ToolContext) -> str:
        """Stream it."""
        ran.note("tell")
        await ctx.progress(0.5, ran.text)
        await ctx.output(ran.text[:1_000_000])
        return "told"

    @gr.tool(effect="pay")
    async def ask(ctx: gr.ToolContext) -> str:
        """Ask a person with it."""
        ran.note("ask" if ctx.decision is None else "ask, decided")
        if ctx.decision is not None:
            return "answered"
        raise gr.Suspend(action="ask", message=ran.text, parameters={"value": ran.value})

    @gr.tool(background=True, effect="pay")
    async def later(ctx: gr.ToolContext, value: Any = None) -> Any:
        """Return it from the background."""
        ran.note(f"later {ctx.task_id}")
        return ran.value

    @gr.tool(effect="pay")
    async def spawn(ctx: gr.ToolContext) -> str:
        """Hand it to a task."""
        ran.note("spawn")
        return await ctx.spawn("later", value=ran.value)

    return [keep, tell, ask, later, spawn]


def script(dice: Dice, ran: Ran) -> list[Any]:
    """What the model says: some calls, or the text itself."""
    match dice.randrange(6):
        case 0:
            return [ran.text]
        case 1:
            return [call("pay", note=ran.text), "done"]
        case 2:
            return [[call("give", n=n) for n in range(dice.choice((2, 5, 12)))], "done"]
        case _:
            names = ("give", "fail_with", "crash_with", "keep", "tell", "ask", "later", "spawn", "pay")
            return [*map(call, dice.sample(names, dice.randint(1, 3))), "done", "done", "done"]


@contextlib.asynccontextmanager
async def opened(dice: Dice, folder: str) -> AsyncIterator[gr.Runtime]:
    """A runtime on one of the stores."""
    kind = dice.choice(("memory", "sqlite", *(("postgres",) if server() else ())))
    with contextlib.ExitStack() as stack:
        store: gr.Store = gr.MemoryStore()
        if kind == "sqlite":
            store = gr.SQLiteStore(Path(folder) / "runs.db", writer="inline")
        elif kind == "postgres":
            store = PostgresStore(stack.enter_context(own_schema(str(server()))), writer="inline")
        async with home(store) as runtime:
            yield runtime


@cache
def server() -> str | None:
    """The URL of a server that lives as long as this process; None if there are no programs for one."""
    if binaries() is None:
        return None
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running())


async def typed(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do what a caller does; a refusal is an error of ours, and says how large the value is."""
    try:
        return await work()
    except gr.GreenroomError as error:
        must(len(str(error)) < 20_000, f"a message of {len(str(error))} characters")
        return None


async def hand_in(dice: Dice, run: gr.Run[Any], ran: Ran) -> None:
    """Hand a value in from outside, at a door of the run."""
    tickets = outcome.tickets if isinstance(outcome := await run.wait(), gr.Waiting) else ()
    match dice.randrange(5):
        case 0:
            await typed(lambda: run.send(ran.text))
        case 1:
            await typed(lambda: run.cancel(reason=ran.text))
        case 2 if tickets:
            await typed(lambda: run.decide(tickets[0].deny(reason=ran.text)))
        case 3 if tickets:
            await typed(lambda: run.decide(tickets[0].approve(edited_arguments={"note": ran.text})))
        case _ if tickets:
            await typed(lambda: run.decide(tickets[0].approve(ran.value)))


async def ended(runtime: gr.Runtime, run: gr.Run[Any]) -> Any:
    """Decide what is asked until the run has ended; it has one end, and small events."""
    while isinstance(outcome := await run.wait(), gr.Waiting):
        for ticket in outcome.tickets:
            await run.decide(ticket.deny(reason="no"))
    events = await events_of(run)
    must(sum(one.type in TERMINAL_EVENTS for one in events) == 1, f"{run.id}: {[one.type for one in events][-5:]}")
    must([one.sequence for one in events] == list(range(1, len(events) + 1)), f"{run.id}: a gap")
    must(
        all(len(frame) <= FRAME_BYTES for frame in await runtime.store.events(run.id, limit=100_000)),
        f"{run.id}: an event is too large",
    )
    return outcome


async def given(runtime: gr.Runtime, run: gr.Run[Any], value: Any) -> None:
    """A result that is too large has failed its call, with its size and the limit; any other one is kept."""
    record = await runtime.store.load(run.id, calls="all")
    rows = () if record is None else [row for row in record.calls if row.tool == "give" and row.outcome is not None]
    size = len(msgspec.json.encode(value))
    for row in rows:
        if row.outcome == "succeeded":
            must(size <= VALUE_LIMIT, f"{run.id}: a result of {size} bytes is kept")
        elif row.outcome == "failed" and row.attempts:
            must(size > VALUE_LIMIT or size * len(rows) > STEP_LIMIT, f"{run.id}: a result of {size} bytes has failed")
            must("are stored" in (row.shown or ""), f"{run.id}: {row.shown}")


async def beside_others(dice: Dice, folder: str) -> None:
    """One scene: careless runs, and one beside them that has nothing to do with it."""
    ran = Ran(a_value(dice), a_text(dice))
    tools, calm = [*ending(ran), *asking(ran)], ending(Ran("small", "small"))
    async with opened(dice, folder) as runtime:
        other = gr.Agent("calm", model=ScriptedModel([*[call("give", n=n) for n in range(5)], "done"]), tools=calm)
        bystander = await runtime.start(other, "hi")
        careless = gr.Agent("careless", model=ScriptedModel(script(dice, ran)), tools=tools, state=[NOTE])
        text = dice.choice(("hi", "hi", ran.text))
        run = await typed(lambda: runtime.start(careless, text))
        if run is not None:
            await hand_in(dice, run, ran)
            await ended(runtime, run)
            await given(runtime, run, ran.value)
        done = await ended(runtime, bystander)
        must(isinstance(done, gr.Completed) and done.output == "done", f"the bystander: {done}")
        must(all(count == 1 for count in ran.bodies.values()), f"bodies ran again: {ran.bodies}")
        last = await runtime.start(gr.Agent("last", model=ScriptedModel(["done"])), "hi")
        must(isinstance(await ended(runtime, last), gr.Completed), "the store serves no more")


def sizes(dice: Dice) -> None:
    """Values about as large as the limits, at every door, beside a run that must not notice."""
    with tempfile.TemporaryDirectory() as folder:
        virtual(partial(beside_others, dice, folder))
