"""A secret that the embedder names is in no event, no ticket view and no error text, wherever it came from.

Private rows keep it: a tool needs the key that it was given.
"""

from urllib.parse import quote

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, fail, text, think

from ..support.runs import agent, events_of, frames_of, home, payloads

SECRET = "canary-7f3a9"
MASK = "[redacted]"


async def assert_hidden(runtime: gr.Runtime, run: gr.Run, outcome: object) -> bytes:
    """The secret is in no byte that is public; returns the events' bytes."""
    frames = await frames_of(runtime, run.id)
    assert SECRET.encode() not in frames
    view = await run.view()
    assert SECRET not in repr(view.tickets)
    assert SECRET not in repr(view.termination)
    if not isinstance(outcome, gr.Completed):
        assert SECRET not in repr(outcome)
    return frames


async def test_a_secret_in_input_arguments_results_and_answer_is_in_no_event(shelf, autojump_clock):
    seen = []

    @gr.tool
    async def login(key: str, options: dict) -> dict:
        seen.append((key, options))
        return {"used": key, SECRET: [key]}

    helper = agent(
        [text(f"using {SECRET}"), call("login", key=SECRET, options={"nested": [SECRET]}, id="c1")],
        f"done with {SECRET}",
        tools=[login],
    )
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, f"my key is {SECRET}")
        outcome = await run.result()
        frames = await assert_hidden(runtime, run, outcome)
        view = await run.view()
        record = await runtime.store.load(run.id, calls="all")
    assert frames.count(MASK.encode()) >= 6
    assert outcome.output == f"done with {SECRET}"  # what the program itself asked for
    assert seen == [(SECRET, {"nested": [SECRET]})]
    assert SECRET in view.messages[0].content
    assert record.calls[0].arguments["key"] == SECRET
    assert record.calls[0].result["used"] == SECRET
    assert SECRET in helper.model.requests[1].messages[-1].content


async def test_a_secret_in_progress_and_output_is_in_no_event(shelf, autojump_clock):
    @gr.tool
    async def work(ctx: gr.ToolContext) -> str:
        await ctx.progress(0.5, f"with {SECRET}")
        await trio.sleep(1)
        await ctx.output(f"key={SECRET}\n")
        return "ok"

    helper = agent(call("work", id="c1"), "done", tools=[work])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        frames = await assert_hidden(runtime, run, await run.result())
    assert frames.count(MASK.encode()) == 2


@pytest.mark.parametrize("kind", [gr.ToolError, ValueError])
async def test_a_secret_in_a_tools_error_is_in_no_event_and_no_outcome(shelf, autojump_clock, kind):
    @gr.tool
    async def soft() -> str:
        raise kind(f"bad key {SECRET}")

    @gr.tool(on_error="raise")
    async def hard() -> str:
        raise kind(f"bad key {SECRET}")

    helper = agent(call("soft", id="c1"), call("hard", id="c2"), tools=[soft, hard])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.result()
        assert outcome.code == "tool_error"
        assert MASK in outcome.message
        await assert_hidden(runtime, run, outcome)


async def test_a_secret_in_a_models_error_is_in_no_event_and_no_outcome(shelf, autojump_clock):
    helper = agent(fail("overloaded", f"key {SECRET} is throttled"), fail("unauthorized", f"key {SECRET} is wrong"))
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.result()
        assert outcome.code == "model_error"
        await assert_hidden(runtime, run, outcome)


async def test_a_secret_in_a_ticket_is_in_no_event_and_no_view(shelf, autojump_clock):
    @gr.tool
    async def ask(ctx: gr.ToolContext, key: str) -> str:
        if ctx.decision is not None:
            return f"{key} {ctx.decision.result}"
        raise gr.Suspend(
            action=f"use {SECRET}",
            message=f"May I use {SECRET}?",
            parameters={"key": SECRET, SECRET: 1},
            expires_after=60,
            on_expiry=gr.SetResult({"default": SECRET}),
        )

    helper = agent(call("ask", key=SECRET, id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        waiting = await run.wait()
        await assert_hidden(runtime, run, waiting)
        (ticket,) = waiting.tickets
        assert ticket.arguments == {"key": MASK}
        assert (await run.decide(ticket.approve(SECRET, reason=f"because of {SECRET}"))).ok
        outcome = await run.result()
        await assert_hidden(runtime, run, outcome)
    assert helper.model.requests[1].messages[-1].content == f"{SECRET} {SECRET}"


async def test_a_secret_in_a_response_schema_is_in_no_event(shelf, autojump_clock):
    @gr.tool
    async def ask() -> str:
        raise gr.Suspend(response_schema={"enum": [SECRET, "other"]})

    helper = agent(call("ask", id="c1"), tools=[ask])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        await assert_hidden(runtime, run, await run.wait())


async def test_a_secret_in_what_people_say_is_in_no_event(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def act(key: str) -> str:
        return key

    helper = agent([delay(10), call("act", key="k", id="c1")], "done", tools=[act])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        await trio.sleep(1)
        await run.send(f"take {SECRET}")
        await run.wait()
        await run.decide("c1", "resume", edited_arguments={"key": SECRET}, reason=SECRET)
        await run.result()
        await assert_hidden(runtime, run, gr.Waiting(tickets=()))
        other = await runtime.start(agent([delay(10), "x"], key="other"), "hi")
        await trio.sleep(1)
        await other.cancel(reason=f"{SECRET} leaked")
        outcome = await other.result()
        assert isinstance(outcome, gr.Cancelled)
        await assert_hidden(runtime, other, outcome)


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
@pytest.mark.parametrize("make", [text, think], ids=["text", "reasoning"])
async def test_a_secret_that_is_cut_into_deltas_is_not_shown_piece_by_piece(shelf, autojump_clock, chunk, make):
    words = f"The key is {SECRET}, keep canary birds away; not-canary-7f3a8 either. {SECRET}"
    helper = gr.Agent("helper", model=ScriptedModel([[make(words), "end"]], chunk=chunk))
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        events = await events_of(run)
    deltas = payloads(events, "message.delta" if make is text else "reasoning.delta")
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
    streamed = "".join(delta["text"] for delta in deltas)
    assert SECRET not in streamed
    expected = words.replace(SECRET, MASK)
    assert expected.startswith(streamed.removesuffix("end"))
    if make is think:
        assert streamed == expected


async def test_a_secret_that_a_tool_prints_in_pieces_is_not_shown_piece_by_piece(shelf, autojump_clock):
    @gr.tool
    async def work(ctx: gr.ToolContext) -> str:
        for letter in f"a {SECRET} b {SECRET[:-1]}":
            await ctx.output(letter)
            await trio.sleep(1)
        return "ok"

    helper = agent(call("work", id="c1"), "done", tools=[work])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        output = payloads(await events_of(run), "tool.output.delta")
    assert "".join(entry["text"] for entry in output) == f"a {MASK} b {MASK}", "also what ends short of a secret"
    assert [entry["index"] for entry in output] == list(range(len(output)))


async def test_a_secret_of_known_shape_needs_no_name(shelf, autojump_clock):
    key = "sk-" + "a1B2" * 8
    helper = gr.Agent("helper", model=ScriptedModel([f"the key is {key}"], chunk=4))
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, f"use {key}")
        await run.result()
        events = await events_of(run)
        assert key.encode() not in await frames_of(runtime, run.id)
    assert key not in "".join(delta["text"] for delta in payloads(events, "message.delta"))


async def test_a_secret_in_a_large_result_is_hidden_in_what_is_shown_of_it(shelf, autojump_clock):
    @gr.tool
    async def dump() -> str:
        return SECRET + "x" * 400_000 + SECRET

    helper = agent(call("dump", id="c1"), "done", tools=[dump])
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        await assert_hidden(runtime, run, await run.result())


async def test_a_secret_in_a_crash_of_the_owner_is_in_no_event_and_no_log(shelf, autojump_clock, caplog):
    def broken(_):
        raise KeyError(f"a bug near {SECRET}")

    helper = agent("done")
    object.__setattr__(helper, "spec", attrs.evolve(helper.spec, check_output=broken))
    async with home(shelf, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.result()
        assert outcome.code == "internal_error"
        await assert_hidden(runtime, run, outcome)
    assert SECRET not in caplog.text


async def test_a_secret_that_is_too_short_is_refused_at_once():
    with pytest.raises(ValueError, match="6"):
        async with gr.open_runtime(secrets=["abc"]):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("password", [SECRET, "x"], ids=["long", "too short to be searched for"])
async def test_the_password_of_a_store_is_a_secret_by_itself(postgres_url: str, password: str):
    url = postgres_url.replace("greenroom@", f"greenroom:{password}@")
    other = f"{SECRET[::-1]}-of-listen"
    listen = postgres_url.replace("greenroom@", f"greenroom:{other}@")

    @gr.tool(replay="safe")
    async def environment() -> str:
        """As a program that prints its settings, not in a form that tells what they are."""
        return f"connected to 127.0.0.1 with {password} and {other}"

    helper = agent(call("environment", id="c1"), "done", tools=[environment])
    place = f"{url}&listen={quote(listen, safe='')}"
    async with gr.open_runtime(place, agents=[helper], secrets=["another-secret"]) as runtime:
        assert SECRET not in repr(runtime.store)
        run = await runtime.start(helper, "hi")
        assert isinstance(await run.result(), gr.Completed)
        frames = await frames_of(runtime, run.id)
    assert SECRET.encode() not in frames
    assert other.encode() not in frames
    assert b"connected to 127.0.0.1 with" in frames
