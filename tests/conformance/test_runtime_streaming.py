"""What followers see while a run works: streams, slow and late readers, backpressure, large and odd results."""

import json
import threading
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.abc import Model, TextDelta
from greenroom.actors.contract.excerpt import LARGE
from greenroom.actors.services.delta_buffers import BUFFER_LIMIT
from greenroom.testing import ScriptedModel, call, delay, text, think

from ..support.runs import Outages, agent, events_of, home, payloads, types


def chatty(*steps, chunk: int = 3, **options) -> gr.Agent:
    return gr.Agent("helper", model=ScriptedModel(list(steps), chunk=chunk), **options)


# --- messages --------------------------------------------------------------------------------------------------------


async def test_deltas_are_contiguous_and_together_the_text(shelf, autojump_clock):
    words = "Once upon a time there was a run."
    async with home(shelf) as runtime:
        run = await runtime.start(chatty(words), "hi")
        await run.result()
        events = await events_of(run)
    deltas = payloads(events, "message.delta")
    (whole,) = payloads(events, "message.completed")
    assert len(deltas) > 3
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
    assert {delta["messageId"] for delta in deltas} == {whole["messageId"]}
    assert whole["text"] == words
    assert words.startswith("".join(delta["text"] for delta in deltas))
    names = types(events)
    assert names.index("inference.started") < names.index("message.delta")
    assert max(i for i, name in enumerate(names) if name == "message.delta") < names.index("message.completed")


async def test_reasoning_is_streamed_beside_the_text_and_is_no_part_of_it(shelf, autojump_clock):
    async with home(shelf) as runtime:
        run = await runtime.start(chatty([think("hmm, let me see"), text("forty-two")]), "hi")
        assert (await run.result()).output == "forty-two"
        events = await events_of(run)
        messages = (await run.view()).messages
    reasoning = payloads(events, "reasoning.delta")
    assert "".join(delta["text"] for delta in reasoning) == "hmm, let me see"
    assert [delta["index"] for delta in reasoning] == list(range(len(reasoning)))
    assert "hmm" not in messages[-1].content


async def test_deltas_merge_while_a_commit_is_in_flight(tmp_path, autojump_clock):
    """While the store does not answer nothing is lost, and what came meanwhile is one delta."""
    outages = Outages()
    pieces = [part for n in range(10) for part in (text(f"{n},"), delay(1))]
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    async with home(store) as runtime:
        run = await runtime.start(chatty(pieces), "hi")
        await trio.sleep(2.5)
        outages.error = OSError("busy")
        await trio.sleep(5)
        outages.error = None
        await run.result()
        deltas = payloads(await events_of(run), "message.delta")
    assert len(deltas) < 8
    assert any(len(delta["text"]) > 4 for delta in deltas)
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
    assert "0,1,2,3,4,5,6,7,8,9,".startswith("".join(delta["text"] for delta in deltas))


# --- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_follower_that_never_reads_slows_no_run(shelf, autojump_clock):
    helper = chatty(["word " * 300, delay(1)])
    async with home(shelf) as runtime:
        run = await runtime.start(helper, "hi")
        async with run.events() as lazy:
            first = await anext(lazy)
            assert (await run.result()).output == "word " * 300
            assert trio.current_time() < 2
            rest = [event async for event in lazy]
        assert [first, *rest] == await events_of(run)


async def test_events_are_seen_only_when_they_are_durable(tmp_path, autojump_clock):
    outages = Outages()
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    async with home(store) as runtime:
        run = await runtime.start(chatty([delay(2), "words"]), "hi")
        await trio.sleep(1)
        outages.error = OSError("busy")
        await trio.sleep(5)
        before = (await run.view()).last_sequence
        with trio.move_on_after(1):
            async with run.events(after=before) as events:
                pytest.fail(f"not durable yet: {await anext(events)}")
        outages.error = None
        await run.result()


# --- backpressure ----------------------------------------------------------------------------------------------------


class OwnModel(Model):
    """A model of a user: what `answer` yields is its stream."""

    async def answer(self, request):
        raise NotImplementedError
        yield

    @asynccontextmanager
    async def stream(self, request):
        async with aclosing(self.answer(request)) as events:
            yield events


class Firehose(OwnModel):
    """Streams `total` characters in pieces and counts how far it is."""

    name = "firehose"

    def __init__(self, total: int, piece: int = 4096) -> None:
        self.total, self.piece, self.sent = total, piece, 0

    async def answer(self, request):
        while self.sent < self.total:
            yield TextDelta("o" * self.piece)
            self.sent += self.piece
        yield gr.ModelResponse(text=("o" * self.sent,))


@pytest.mark.slow
async def test_a_model_is_not_read_further_while_too_much_waits_for_the_store(tmp_path, autojump_clock):
    outages, model = Outages(), Firehose(10_000_000)
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    helper = gr.Agent("helper", model=model)
    async with home(store, drain=0) as runtime:
        run = await runtime.start(helper, "hi")
        outages.error = OSError("busy")
        await trio.sleep(10)
        assert model.sent <= 3 * BUFFER_LIMIT
        outages.error = None
        outcome = await run.result()
        deltas = payloads(await events_of(run), "message.delta")
    assert len(outcome.output) == model.sent
    assert max(len(delta["text"]) for delta in deltas) <= BUFFER_LIMIT + model.piece


@pytest.mark.slow
async def test_ten_megabytes_go_through_the_threaded_store_in_bounded_pieces(tmp_path):
    model = Firehose(10_000_000)
    with trio.fail_after(240):
        async with gr.open_runtime(tmp_path / "runs.db") as runtime:
            run = await runtime.start(gr.Agent("helper", model=model), "hi")
            outcome = await run.result()
            deltas = payloads(await events_of(run), "message.delta")
    assert len(outcome.output) == model.sent
    assert max(len(delta["text"]) for delta in deltas) <= BUFFER_LIMIT + model.piece
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))


async def test_the_output_of_a_tool_waits_for_the_store_too(tmp_path, autojump_clock):
    outages, sent = Outages(), []

    @gr.tool(replay="safe")
    async def flood(ctx: gr.ToolContext) -> str:
        outages.error = OSError("busy")
        for n in range(100):
            await ctx.output("y" * 10_000)
            sent.append(n)
        return "ok"

    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    helper = agent(call("flood", id="c1"), "done", tools=[flood])
    async with home(store) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(10)
        assert len(sent) < 20
        outages.error = None
        await trio.sleep(5)
        await run.result()
        output = payloads(await events_of(run), "tool.output.delta")
    assert sum(len(entry["text"]) for entry in output) == 1_000_000
    assert [entry["index"] for entry in output] == list(range(len(output)))


async def test_the_output_of_a_thread_comes_whole_and_in_order(tmp_path):
    @gr.tool
    def flood(ctx: gr.SyncToolContext) -> str:
        for n in range(300):
            ctx.output(f"{n} ")
            ctx.progress(n / 300, f"at {n}")
        return "ok"

    helper = agent(call("flood", id="c1"), "done", tools=[flood])
    with trio.fail_after(120):
        async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi")
            await run.result()
            events = await events_of(run)
    output, progress = payloads(events, "tool.output.delta"), payloads(events, "tool.progress")
    assert "".join(entry["text"] for entry in output) == "".join(f"{n} " for n in range(300))
    assert [entry["index"] for entry in output] == list(range(len(output)))
    fractions = [entry["fraction"] for entry in progress]
    assert fractions == sorted(fractions)
    assert progress[-1]["text"] == "at 299"


# --- results ---------------------------------------------------------------------------------------------------------


async def whole_result(runtime, run):
    record = await runtime.store.load(run.id, calls="all")
    return record.calls[0].result


@pytest.mark.parametrize("unit", ["z", "字"], ids=["ascii", "three bytes each"])
async def test_a_large_result_is_whole_in_the_row_and_cut_in_event_and_message(shelf, autojump_clock, unit):
    @gr.tool
    async def dump() -> str:
        return "begin" + unit * 300_000 + "end"

    helper = agent(call("dump", id="c1"), "done", tools=[dump])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        stored = await whole_result(runtime, run)
        (result,) = payloads(await events_of(run), "tool.result")
    content = helper.model.requests[1].messages[-1].content
    assert stored == "begin" + unit * 300_000 + "end"
    for shown in (result["result"], content):
        assert shown.startswith("begin")
        assert shown.endswith("end")
        assert "300008" in shown
        assert len(shown) < 20_000


async def test_a_result_is_large_by_its_bytes(shelf, autojump_clock):
    @gr.tool
    async def dump() -> str:
        return "字" * (LARGE // 3 + 1)

    helper = agent(call("dump", id="c1"), "done", tools=[dump])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
    assert len(result["result"]) < 20_000


async def test_a_large_structure_is_whole_in_the_row_too(shelf, autojump_clock):
    rows = [{"n": n, "text": "x" * 50} for n in range(10_000)]

    @gr.tool
    async def dump() -> list[dict]:
        return rows

    helper = agent(call("dump", id="c1"), "done", tools=[dump])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert await whole_result(runtime, run) == rows
        (result,) = payloads(await events_of(run), "tool.result")
    assert result["result"].startswith('[{"n":0')


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("not even a repr")


@attrs.frozen
class Order:
    number: int
    lines: tuple[str, ...] = ()


def endless() -> list:
    knot: list = []
    knot.append(knot)
    return knot


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (Order(7, ("x",)), {"number": 7, "lines": ["x"]}),
        (float("nan"), "nan"),
        (b"bytes", "bytes"),
        ("lone \udcff surrogate", "lone ? surrogate"),
        ({1: "one"}, {"1": "one"}),
        (2**80, str(2**80)),
        (Path("a/b"), "a/b"),
    ],
    ids=repr,
)
async def test_every_result_has_a_form_that_can_be_stored(shelf, autojump_clock, value, stored):
    @gr.tool
    async def make() -> object:
        return value

    helper = agent(call("make", id="c1"), "done", tools=[make])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == "done"
        assert await whole_result(runtime, run) == stored
        assert (await run.view()).calls == {"c1": "succeeded"}
    content = helper.model.requests[1].messages[-1].content
    assert (content if isinstance(stored, str) else json.loads(content)) == stored


@pytest.mark.parametrize("make_value", [Opaque, endless, threading.Lock, object], ids=lambda f: f.__name__)
async def test_a_result_that_cannot_be_shown_has_succeeded_all_the_same(shelf, autojump_clock, make_value):
    @gr.tool
    async def make() -> object:
        return make_value()

    helper = agent(call("make", id="c1"), "done", tools=[make])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == "done"
        assert (await run.view()).calls == {"c1": "succeeded"}
    assert "cannot be shown" in helper.model.requests[1].messages[-1].content


# --- odd text --------------------------------------------------------------------------------------------------------

ODD = "caf\udce9 \x00 \U0001f600"
"""What os.listdir gives for a file name in another encoding, a NUL, and a character beyond 16 bits."""


async def test_odd_text_from_tools_never_harms_the_run(shelf, autojump_clock):
    @gr.tool
    async def odd(ctx: gr.ToolContext, where: str) -> str:
        match where:
            case "output":
                await ctx.output(ODD)
            case "progress":
                await ctx.progress(0.5, ODD)
            case "ToolError":
                raise gr.ToolError(ODD)
            case "error":
                raise ValueError(ODD)
            case "suspend" if ctx.decision is None:
                raise gr.Suspend(message=ODD, action=ODD, parameters={"name": ODD, ODD: 1})
        return ODD

    places = ["result", "output", "progress", "ToolError", "error", "suspend"]
    helper = agent(*[call("odd", where=where, id=where) for where in places], "done", tools=[odd])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        assert (await run.decide("suspend", "resume")).ok
        assert (await run.result()).output == "done"
        view = await run.view()
    assert view.calls["error"] == "failed"
    assert view.calls["output"] == "succeeded"


@pytest.mark.parametrize(
    "wish",
    [
        gr.Suspend(parameters={"object": object()}),
        gr.Suspend(parameters={"nan": float("nan"), "when": {1, 2}}),
        gr.Suspend(parameters=["no", "mapping"]),
        gr.Suspend(message=42, action=None),
        gr.Suspend(on_expiry=gr.SetResult(object()), expires_after=5),
        gr.Suspend(response_schema={"enum": [object()]}),
        gr.Suspend(expires_after=1e300),
        gr.Suspend(reviewers="ada"),
    ],
    ids=["object", "nan and set", "list", "no text", "result", "schema", "too late", "reviewers"],
)
async def test_an_odd_suspension_never_harms_the_run(shelf, autojump_clock, wish):
    @gr.tool
    async def odd(ctx: gr.ToolContext) -> str:
        if ctx.decision is None:
            raise wish
        return "ok"

    helper = agent(call("odd", id="c1"), "done", tools=[odd])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.wait()
        if isinstance(outcome, gr.Waiting):
            await run.decide("c1", "cancel", by="ada")
            outcome = await run.result()
    assert isinstance(outcome, gr.Completed)
    assert outcome.output == "done"


class Odd(OwnModel):
    """Answers once with what it was made for, then with a text."""

    name = "odd"

    def __init__(self, response: gr.ModelResponse, *deltas: str) -> None:
        self.response, self.deltas = response, deltas

    async def answer(self, request):
        if request.model_attempts:
            yield gr.ModelResponse(text=("done",))
            return
        for piece in self.deltas:
            yield TextDelta(piece)
        yield self.response


@gr.tool
async def take(value: Any = None) -> str:
    return "taken"


@pytest.mark.parametrize(
    "response",
    [
        gr.ModelResponse(text=(ODD,), calls=(gr.CallRequest(call_id="c1", tool="take", arguments={"value": ODD}),)),
        gr.ModelResponse(calls=(gr.CallRequest(call_id=ODD, tool="take", arguments={"value": float("nan")}),)),
        gr.ModelResponse(calls=(gr.CallRequest(call_id="c1", tool="take", arguments={"value": object()}),)),
        gr.ModelResponse(calls=(gr.CallRequest(call_id="c1", tool=ODD, arguments={"value": 1}),)),
        gr.ModelResponse(calls=(gr.CallRequest(call_id="c1", tool="take", arguments=["no", "object"]),)),
        gr.ModelResponse(text=(ODD,), model=ODD),
    ],
    ids=["text", "call id and nan", "object", "tool name", "no object", "model name"],
)
async def test_an_odd_answer_of_a_model_never_breaks_the_owner(shelf, autojump_clock, response):
    helper = gr.Agent("helper", model=Odd(response, "a\ud800", "b"), tools=[take])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.result()
    code = getattr(outcome, "code", None)
    assert isinstance(outcome, gr.Completed) or code == "model_error", outcome
