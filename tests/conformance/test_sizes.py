"""A value that is too large ends where it comes in, with its size, and disturbs nothing else, on every store alike."""

import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.codec import PIECE
from greenroom.actors.contract.sizes import ANSWER_LIMIT, COMMIT_LIMIT, STEP_LIMIT, VALUE_LIMIT
from greenroom.actors.run.results import stored
from greenroom.testing import call, delay

from ..support.runs import agent, events_of, home, payloads

HUGE = "x" * (VALUE_LIMIT + 1)
LIMIT = f"at most {VALUE_LIMIT:,} are stored"
KEY = gr.StateKey("notes", str, default="")
MANY = [gr.StateKey(f"note{number}", str, default="") for number in range(5)]
LIST = gr.StateKey("list", list[str], default=[], merge=gr.commutative(operator.add))


class Answering(gr.Model):
    """A model with one answer, of any size."""

    name = "answering"

    def __init__(self, answer: gr.ModelResponse) -> None:
        self.answer = answer

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelResponse]]:
        async def events() -> AsyncIterator[gr.ModelResponse]:
            yield self.answer

        yield events()


RESULTS: dict[str, Any] = {
    "text": lambda: HUGE,
    "other letters": lambda: "é" * VALUE_LIMIT,
    "escapes": lambda: "\x01" * (VALUE_LIMIT // 6 + 1),
    "bytes": lambda: bytes(VALUE_LIMIT + 1),
    "texts": lambda: ["y" * 1_000_000] * 5,
    "keys": lambda: {f"{number:>0100000}": 1 for number in range(45)},
    "a number": lambda: 1 << (8 * VALUE_LIMIT),
    "objects": lambda: [{"id": number, "name": "n" * 40} for number in range(150_000)],
    "deep": lambda: {"a": [{"b": HUGE}]},
}


def tool_returning(value: Any, ran: list[int], **options: Any) -> Any:
    @gr.tool(**options)
    async def fetch() -> Any:
        """Fetch."""
        ran.append(1)
        return value()

    return fetch


@pytest.mark.rule("L-104")
@pytest.mark.parametrize("name", list(RESULTS))
async def test_a_result_that_is_too_large_fails_its_call_which_says_that_it_ran(shelf, autojump_clock, name):
    ran: list[int] = []
    async with home(shelf) as runtime:
        fetch = tool_returning(RESULTS[name], ran, effect="pay")
        run = await runtime.start(agent(call("fetch"), "done", tools=[fetch]), "hi")
        assert (await run.result()).output == "done"
        (result,) = payloads(await events_of(run), "tool.result")
    assert ran == [1], "the effect is not repeated"
    assert result["status"] == "failed"
    assert result["code"] == "tool_error"
    assert result["result"].startswith("The tool 'fetch' ran, and its result cannot be kept: it has ")
    assert LIMIT in result["result"]


async def test_a_thread_that_returns_too_much_says_so_too():
    @gr.tool
    def fetch() -> str:
        return HUGE

    async with gr.open_runtime() as runtime:
        run = await runtime.start(agent(call("fetch"), "done", tools=[fetch]), "hi")
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
    assert LIMIT in result["result"]


async def test_a_result_just_within_the_limit_is_kept_whole(shelf, autojump_clock):
    async with home(shelf) as runtime:
        fetch = tool_returning(lambda: "x" * (VALUE_LIMIT - 2), [])
        run = await runtime.start(agent(call("fetch", id="c1"), "done", tools=[fetch]), "hi")
        assert (await run.result()).output == "done"
        record = await runtime.store.load(run.id, calls="all")
    assert record is not None
    assert len(record.calls[0].result) == VALUE_LIMIT - 2


async def test_results_that_are_too_large_together_fail_one_by_one(shelf, autojump_clock):
    """The end of a step writes what its calls have shown, and a new owner loads its results, together."""
    many = 9
    async with home(shelf) as runtime:
        fetch = tool_returning(lambda: "x" * (VALUE_LIMIT - 2), [])
        asked = [call("fetch", id=f"c{number}") for number in range(many)]
        run = await runtime.start(agent(asked, call("fetch", id="last"), "done", tools=[fetch]), "hi")
        assert (await run.result()).output == "done"
        results = payloads(await events_of(run), "tool.result")
    assert [result["status"] for result in results] == [*["succeeded"] * 8, "failed", "succeeded"]
    assert f"at most {STEP_LIMIT:,} are stored" in results[8]["result"]


async def test_what_a_body_writes_to_state_has_a_limit(shelf, autojump_clock):
    @gr.tool
    async def note(ctx: gr.ToolContext) -> str:
        ctx.state.set(KEY, HUGE)
        return "noted"

    @gr.tool
    async def grow(ctx: gr.ToolContext) -> str:
        for _ in range(9):
            ctx.state.update(LIST, ["x" * 1_000_000])
        return "grown"

    @gr.tool
    async def note_all(ctx: gr.ToolContext) -> str:
        for key in MANY:
            ctx.state.set(key, "x" * 1_000_000)
        return "noted"

    async with home(shelf) as runtime:
        steps = [call("note"), call("grow"), call("note_all"), "done"]
        helper = agent(*steps, tools=[note, grow, note_all], state=[KEY, LIST, *MANY])
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == "done"
        results = payloads(await events_of(run), "tool.result")
    assert [result["status"] for result in results] == ["failed"] * 3
    assert all(LIMIT in result["result"] for result in results)


async def test_the_text_of_a_failure_is_cut_not_lost(shelf, autojump_clock):
    @gr.tool
    async def refuse() -> str:
        raise gr.ToolError(HUGE)

    @gr.tool
    async def break_down() -> str:
        raise RuntimeError("é" * VALUE_LIMIT)

    async with home(shelf) as runtime:
        helper = agent(call("refuse"), call("break_down"), "done", tools=[refuse, break_down])
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == "done"
        record = await runtime.store.load(run.id, calls="all")
    assert record is not None
    said, broke = (row.shown or "" for row in record.calls)
    assert f"of {len(HUGE)} characters left out" in said
    assert broke.startswith("RuntimeError: é")
    assert len(said) + len(broke) < 20_000


@pytest.mark.rule("L-105")
async def test_what_people_hand_in_is_refused_with_its_size(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def pay(cents: int, note: str = "") -> str:
        return "paid"

    async with home(shelf) as runtime:
        payer = agent(call("pay", cents=1), "done", tools=[pay])
        for text, options in ((HUGE, {}), ("hi", {"title": HUGE}), ("hi", {"workspace": HUGE})):
            with pytest.raises(gr.UsageError, match=LIMIT):
                await runtime.start(payer, text, **options)
        run = await runtime.start(payer, "hi")
        (ticket,) = (await run.wait()).tickets
        with pytest.raises(gr.UsageError, match=LIMIT):
            await run.send(HUGE)
        with pytest.raises(gr.UsageError, match=LIMIT):
            await run.cancel(reason=HUGE)
        with pytest.raises(gr.UsageError, match=LIMIT):
            await run.decide(ticket.deny(reason=HUGE))
        edited = await run.decide(ticket.approve(edited_arguments={"cents": 1, "note": HUGE}))
        assert (edited.status, edited.code) == ("rejected", "invalid_arguments")
        assert LIMIT in (edited.detail or "")
        assert (await run.decide(ticket.approve())).ok
        assert (await run.result()).output == "done"


async def test_what_a_body_asks_for_is_refused_with_its_size(shelf, autojump_clock):
    said: list[str] = []

    @gr.tool(background=True)
    async def later(note: str) -> str:
        return note

    @gr.tool
    async def ask(ctx: gr.ToolContext) -> str:
        await ctx.progress(0.5, HUGE)
        try:
            await ctx.spawn("later", note=HUGE)
        except gr.ToolError as error:
            said.append(str(error))
        raise gr.Suspend(action="ask", message=HUGE)

    async with home(shelf) as runtime:
        run = await runtime.start(agent(call("ask"), "done", tools=[ask, later]), "hi")
        assert (await run.result()).output == "done"
        (result,) = payloads(await events_of(run), "tool.result")
    assert LIMIT in said[0]
    assert "asked for a decision that cannot be stored" in result["result"]
    assert LIMIT in result["result"]


@pytest.mark.parametrize("what", ["text", "texts", "arguments", "items"])
async def test_an_answer_that_is_too_large_fails_its_request(shelf, autojump_clock, what):
    large = "x" * (ANSWER_LIMIT + 1)
    answers = {
        "text": gr.ModelResponse(text=(large,)),
        "texts": gr.ModelResponse(text=(large[: len(large) // 2],) * 3),
        "arguments": gr.ModelResponse(calls=(gr.CallRequest(call_id="c", tool="t", arguments={"a": large}),)),
        "items": gr.ModelResponse(text=("hi",), items=({"signature": large},), provider="p"),
    }

    async with home(shelf) as runtime:
        run = await runtime.start(gr.Agent("a", model=Answering(answers[what])), "hi")
        outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)
    assert f"at most {ANSWER_LIMIT:,} are stored" in outcome.message


async def test_the_loop_turns_while_a_large_result_is_converted():
    """Once for each piece, also if the rows are deep inside; a cancel waits, because the effect has happened."""
    turns, rows = 0, [{"id": number, "name": "n"} for number in range(50_000)]

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn)
        for value in (rows, {"found": {"rows": rows}}):
            before = turns
            with trio.CancelScope() as scope:
                scope.cancel()
                data, _, why = await stored(value)
            assert data == value
            assert why is None
            assert turns - before >= 3 * len(rows) // PIECE - 1
        before = turns
        assert (await stored(rows[:5]))[0] == rows[:5]
        assert turns == before, "a usual result takes no checkpoint"
        nursery.cancel_scope.cancel()


async def test_what_the_program_around_a_tool_hands_in_is_refused_with_its_size(shelf, autojump_clock):
    """A gate's result, a hook's request, the report of a guardrail: each has failed as if it were wrong otherwise."""

    class Gate(gr.Plugin):
        async def tool_gate(self, ctx: gr.GateContext) -> Any:
            return gr.SetResult(HUGE)

    class Hook(gr.Plugin):
        async def before_inference(self, ctx: gr.PhaseContext) -> Any:
            return gr.Mutation().override(stop=HUGE)

    @gr.input_guardrail
    def watch(ctx: gr.PhaseContext, said: str) -> Any:
        return gr.Trip(HUGE)

    for options in ({"plugins": [Gate()]}, {"plugins": [Hook()]}, {"input_guardrails": [watch]}):
        ran: list[int] = []
        async with home(shelf) as runtime:
            fetch = tool_returning(lambda: "small", ran)
            run = await runtime.start(agent(call("fetch"), "done", tools=[fetch], key="a", **options), "hi")
            outcome = await run.wait()
            said = f"{outcome} {[event.payload for event in await events_of(run, until='rest')]}"
        assert LIMIT in said, options
        assert len(said) < 50_000


async def test_the_answer_of_a_child_run_that_is_too_large_fails_the_parents_call(shelf, autojump_clock):
    async with home(shelf) as runtime:
        child = agent(HUGE, key="child")
        parent = agent(call("child", input="hi"), "done", tools=[child.as_tool()], key="parent")
        run = await runtime.start(parent, "hi")
        assert (await run.result()).output == "done"
        (result,) = payloads(await events_of(run), "tool.result")
    assert result["status"] == "failed"
    assert LIMIT in result["result"]


@pytest.mark.slow
@pytest.mark.no_cover
async def test_a_gigabyte_of_result_disturbs_nothing(shelf, autojump_clock):
    """More than libpq sends, more than SQLite stores: it is measured by its length, and never copied."""
    async with home(shelf) as runtime:
        fetch = tool_returning(lambda: "x" * 1_100_000_000, [])
        run = await runtime.start(agent(call("fetch"), "done", tools=[fetch]), "hi")
        other = await runtime.start(agent("done", key="other"), "hi")
        assert (await run.result()).output == "done"
        assert (await other.result()).output == "done"
        (result,) = payloads(await events_of(run), "tool.result")
    assert "it has 1,100,000,000 bytes or more" in result["result"]


@pytest.mark.slow
@pytest.mark.rule("L-106")
async def test_a_commit_that_is_too_large_ends_its_run_alone(shelf, autojump_clock):
    """Each task's arguments are within the limit; the run's row, which holds them all, cannot be written with 17."""

    @gr.tool(background=True, effect="pay")
    async def later(note: str) -> str:
        await trio.sleep_forever()
        return ""

    @gr.tool(effect="pay")
    async def fill(ctx: gr.ToolContext) -> str:
        for number in range(17):
            await ctx.spawn("later", note=chr(97 + number) * (VALUE_LIMIT - 100))
        return "filled"

    async with home(shelf) as runtime:
        other = await runtime.start(agent([delay(50), "done"], key="other"), "hi")
        run = await runtime.start(agent(call("fill"), "done", tools=[fill, later], max_tasks=20), "hi")
        outcome = await run.wait()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "internal_error"
        assert f"at most {COMMIT_LIMIT:,} are written together" in outcome.message
        events = await events_of(run)
        assert [event.type for event in events if event.type == "run.failed"] == ["run.failed"]
        assert (await other.result()).output == "done"
