"""Every public method with every wrong value: an error of Greenroom or a rejection, and the run behind it works on.

A value of a wrong type must not reach a row, an index of the store or the machine: there it would be an error of
another module, or crash the run's owner after each restart again.
"""

import inspect
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from typing import Any, get_type_hints

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.decisions import Command
from greenroom.actors.contract.run_lists import RunFilters
from greenroom.actors.runtime.runtime import StartOptions
from greenroom.testing import call

from ..support.runs import agent, home

WRONG: list[Any] = [
    None,
    -1,
    10**30,
    True,
    math.nan,
    b"bytes",
    bytearray(b"x"),
    "",
    "\ud800",
    "\x00",
    [],
    ["a"],
    {},
    {1: {2}},
    object(),
    object,
    lambda: 1,
    datetime(2031, 1, 1),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    timedelta(1),
    type("Text", (str,), {})("sub"),
]
IDS = [f"{number}-{type(value).__name__}" for number, value in enumerate(WRONG)]


@gr.tool(needs_approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@attrs.define
class Place:
    """A runtime with a run that waits."""

    runtime: gr.Runtime
    payer: gr.Agent[Any]
    run: gr.Run[Any]
    ticket: gr.Ticket

    def decision(self, **changes: Any) -> gr.Decision:
        return gr.Decision(**{"target": self.ticket.ticket_id, "action": "approve", **changes})

    def command(self, **changes: Any) -> Command:
        return Command(**{"command_id": "c", "kind": "cancel", **changes})


Method = Callable[[Place, Any], Any]


def given(name: str, method: Callable[[Place, dict[str, Any]], Any]) -> Method:
    """A method with one keyword."""
    return lambda place, value: method(place, {name: value})


STARTS = {name: given(name, lambda p, o: p.runtime.start(p.payer, "hi", **o)) for name in StartOptions.__annotations__}
QUERIES = [*get_type_hints(RunFilters)]
FIELDS = [field.name for field in attrs.fields(gr.Decision)]
COMMAND = [field.name for field in attrs.fields(Command)]
METHODS: dict[str, Method] = {
    "start agent": lambda p, v: p.runtime.start(v, "hi"),
    "start text": lambda p, v: p.runtime.start(p.payer, v),
    **{f"start {name}": start for name, start in STARTS.items() if name not in ("deps", "may_join")},
    "get": lambda p, v: p.runtime.get(v),
    "resume": lambda p, v: p.runtime.resume(v),
    "fork": lambda p, v: p.runtime.fork(v, step=0),
    **{
        f"fork {name}": given(name, lambda p, o: p.runtime.fork(p.run.id, **{"step": 0, **o}))
        for name in ("step", "new_run_id", "by")
    },
    "replay": lambda p, v: p.runtime.replay(v),
    "replay agent": lambda p, v: p.runtime.replay(p.run.id, v),
    **{f"runs {name}": given(name, lambda p, o: p.runtime.runs(**o)) for name in QUERIES},
    "page": lambda p, v: p.runtime.reader.page(v),
    **{f"page {name}": given(name, lambda p, o: p.runtime.reader.page(gr.RunQuery(**o))) for name in QUERIES},
    "summaries": lambda p, v: p.runtime.reader.summaries(v),
    "summaries of": lambda p, v: p.runtime.reader.summaries([v]),
    "info": lambda p, v: p.runtime.reader.info(v),
    "outline": lambda p, v: p.runtime.reader.outline(v),
    "record": lambda p, v: p.runtime.reader.record(v),
    "ticket": lambda p, v: p.runtime.reader.ticket(v, "t"),
    "ticket target": lambda p, v: p.runtime.reader.ticket(p.run.id, v),
    "view": lambda p, v: p.runtime.reader.view(v),
    "outcome": lambda p, v: p.runtime.reader.outcome(v, final=False),
    "page of events": lambda p, v: p.runtime.reader.events(v),
    **{
        f"page of events {name}": given(name, lambda p, o: p.runtime.reader.events(p.run.id, **o))
        for name in ("after", "limit", "max_bytes")
    },
    "follow": lambda p, v: p.runtime.reader.follow(v, until="rest"),
    "follow after": lambda p, v: p.runtime.reader.follow(p.run.id, after=v, until="rest"),
    "events after": lambda p, v: p.run.events(after=v, until="rest"),
    "events until": lambda p, v: p.run.events(until=v),
    "decide_all": lambda p, v: p.run.decide_all(v),
    "decide target": lambda p, v: p.run.decide(v, "approve"),
    "decide action": lambda p, v: p.run.decide("nothing", v),
    "commands.decide": lambda p, v: p.runtime.commands.decide(p.run.id, v),
    "commands.decide id": lambda p, v: p.runtime.commands.decide(v, p.decision()),
    "commands.cancel id": lambda p, v: p.runtime.commands.cancel(v),
    "commands.post": lambda p, v: p.runtime.commands.post(p.run.id, v),
    "send": lambda p, v: p.run.send(v),
    "cancel mode": lambda p, v: p.run.cancel(mode=v),
}
CHANGING: dict[str, Method] = {
    **{f"decision {name}": given(name, lambda p, o: p.run.decide(p.decision(**o))) for name in FIELDS},
    **{
        f"command {name}": given(name, lambda p, o: p.runtime.commands.post(p.run.id, p.command(**o)))
        for name in COMMAND
    },
    **{f"send {name}": given(name, lambda p, o: p.run.send("hi", **o)) for name in ("by", "command_id")},
    **{f"pause {name}": given(name, lambda p, o: p.run.pause(**o)) for name in ("reason", "by", "command_id")},
    "deny text": lambda p, v: p.run.decide(p.ticket.deny(text=v)),
    "deny reason": lambda p, v: p.run.decide(p.ticket.deny(v)),
}
"""The methods that may change the run: each value meets a run of its own."""


async def tried(method: Method, place: Place, value: object) -> None:
    """Call a method; Greenroom's own errors are fine."""
    with trio.fail_after(60):
        try:
            found = method(place, value)
            if inspect.isawaitable(found):
                found = await found
            if hasattr(found, "__aenter__"):
                async with found as events:
                    assert [event async for event in events]
            elif hasattr(found, "__enter__"):
                with found as slices:
                    assert [piece async for piece in slices]
        except gr.GreenroomError:
            pass


async def placed(runtime: gr.Runtime, payer: gr.Agent[Any]) -> Place:
    run = await runtime.start(payer, "hi")
    outcome = await run.wait()
    return Place(runtime, payer, run, outcome.tickets[0])


@pytest.mark.parametrize("value", WRONG, ids=IDS)
async def test_a_wrong_value_is_refused_by_every_method_and_harms_no_run(shelf, autojump_clock, caplog, value):
    payer = agent([call("pay", n=1)], "done", tools=[pay])
    async with home(shelf, agents=[payer]) as runtime:
        place = await placed(runtime, payer)
        for method in METHODS.values():
            await tried(method, place, value)
        assert (await place.run.decide(place.ticket.approve())).ok
        assert (await place.run.result()).output == "done"
        for method in CHANGING.values():
            place = await placed(runtime, payer)
            await tried(method, place, value)
            with trio.fail_after(60):
                await place.run.wait()
                await place.run.view()
            await place.run.cancel()
            assert (await place.run.result()).outcome_unknown == ()
    assert not [record for record in caplog.records if "crashed" in record.message]
    async with home(shelf, agents=[payer]) as runtime:
        page = await runtime.runs(limit=1000)
        assert not page.unreadable
        for line in page.runs:
            assert (await runtime.reader.view(line.info.run_id)).last_sequence


async def test_a_function_that_may_not_be_called_is_no_may_join(shelf, autojump_clock):
    payer = agent("done")
    async with home(shelf, agents=[payer]) as runtime:
        with pytest.raises(gr.UsageError, match="may_join=True: give a function"):
            await runtime.start(payer, "hi", thread_id="t", may_join=True)


@pytest.mark.parametrize("moment", ["yesterday", datetime(2031, 1, 1), 5], ids=repr)
async def test_a_decision_with_an_invalid_time_is_a_usage_error_and_can_be_repeated(shelf, autojump_clock, moment):
    payer = agent([call("pay", n=1)], "done", tools=[pay])
    async with home(shelf, agents=[payer]) as runtime:
        place = await placed(runtime, payer)
        with pytest.raises(gr.UsageError, match=r"decided_at=.*give a datetime with a timezone"):
            await place.run.decide(place.decision(decided_at=moment))
        assert (await place.run.decide(place.decision())).ok
        assert (await place.run.result()).output == "done"


async def test_a_text_in_place_of_texts_is_a_fault_of_the_model_and_not_one_text_per_character(shelf, autojump_clock):
    careless = gr.Agent("careless", model=Streaming(gr.ModelResponse(text="Hello")))  # type: ignore[arg-type]
    async with home(shelf, agents=[careless]) as runtime:
        outcome = await (await runtime.start(careless, "hi")).result()
        assert isinstance(outcome, gr.Failed)
        assert "text is str; give a tuple of texts" in outcome.message


class Streaming(gr.Model):
    """Streams what it was made with, and answers."""

    name = "streaming"

    def __init__(self, *events: Any) -> None:
        self._events = events

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        yield self._answer()

    async def _answer(self) -> AsyncIterator[gr.ModelEvent]:
        for event in self._events:
            yield event
        yield gr.ModelResponse(text=("done",))


@pytest.mark.parametrize("text", [None, 5, b"x", [], ["a"], {}], ids=repr)
@pytest.mark.parametrize("delta", [gr.TextDelta, gr.ReasoningDelta])
async def test_a_delta_without_a_text_is_a_bug_of_the_model_and_no_crash(shelf, autojump_clock, caplog, delta, text):
    helper = gr.Agent("helper", model=Streaming(delta(text)))
    async with home(shelf, agents=[helper]) as runtime:
        outcome = await (await runtime.start(helper, "hi")).result()
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, "a text is" in outcome.message) == ("model_bug", True)
    assert not [line for line in caplog.records if "crashed" in line.message]
