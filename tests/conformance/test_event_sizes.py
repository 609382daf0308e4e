"""An event is bounded in bytes, whatever tools, models and people hand in; and so is what a reader of it holds."""

import json
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.envelope import FRAME_BYTES, PAYLOAD_BYTES, decode_event
from greenroom.actors.services.delta_buffers import PIECE
from greenroom.actors.services.follow import PAGE_BYTES as PAGE_BYTES_OF_A_FOLLOWER
from greenroom.testing import ScriptedModel, call, text
from greenroom.transport.gateway.run_routes import PAGE_BYTES

from ..support.gateway import gateway, http, talking
from ..support.runs import agent, events_of, home, payloads

MIB = 2**20
KEY = "sk-" + "a" * 45


@gr.tool
async def shout(ctx: gr.ToolContext, size: int) -> str:
    """Stream one chunk of `size` characters that JSON escapes."""
    await ctx.output("\x01" * size)
    await ctx.progress(0.5, "\x01" * size)
    return "done"


@gr.tool
def shout_from_thread(ctx: gr.SyncToolContext, size: int) -> str:
    """The same from a thread."""
    ctx.output("\x01" * size)
    return "done"


@gr.tool
async def take(content: str, parts: list[str]) -> int:
    """Take a large text and many small ones."""
    return len(content) + len(parts)


async def frames_of(runtime: gr.Runtime, run: gr.Run[Any]) -> list[bytes]:
    found: list[bytes] = []
    while page := await runtime.store.events(run.id, after=len(found)):
        found += page
    return found


async def played(shelf, steps, *, tools=()) -> list[gr.Event]:
    async with home(shelf) as runtime:
        run = await runtime.start(agent(*steps, tools=list(tools)), "hi")
        await run.result()
        frames = await frames_of(runtime, run)
        events = await events_of(run)
    assert max(map(len, frames)) <= FRAME_BYTES
    assert [decode_event(frame).sequence for frame in frames] == [event.sequence for event in events]
    return events


@pytest.mark.rule("L-107")
async def test_a_large_chunk_of_output_becomes_many_events_that_are_all_of_it(shelf, autojump_clock):
    size = 4 * PIECE + 7
    events = await played(shelf, [call("shout", size=size, id="c1"), "done"], tools=[shout])
    is_all_of_it(payloads(events, "tool.output.delta"), size)


async def test_a_large_chunk_of_a_thread_does_as_well():
    size = 4 * PIECE + 7
    async with gr.open_runtime() as runtime:
        run = await runtime.start(
            agent(call("shout_from_thread", size=size, id="c1"), "done", tools=[shout_from_thread]), "hi"
        )
        await run.result()
        is_all_of_it(payloads(await events_of(run), "tool.output.delta"), size)


def is_all_of_it(printed: list[Any], size: int) -> None:
    assert len(printed) >= 5
    assert "".join(payload["text"] for payload in printed) == "\x01" * size
    assert [payload["index"] for payload in printed] == list(range(len(printed)))


async def test_a_text_that_is_too_large_for_an_event_is_cut_and_named(shelf, autojump_clock):
    events = await played(shelf, [call("shout", size=200_000, id="c1"), "done"], tools=[shout])
    (progress,) = [event for event in events if event.type == "run.tool.progress"]
    assert progress.excerpted == ("text",)
    assert "characters left out" in progress.payload["text"]
    assert not any(event.excerpted for event in events if event is not progress)


async def test_large_arguments_keep_their_form(shelf, autojump_clock):
    content = "x" * (2 * MIB)
    steps = [call("take", content=content, parts=["a"], id="c1"), "done"]
    events = await played(shelf, steps, tools=[take])
    (asked,) = [event for event in events if event.type == "run.tool.call"]
    assert asked.excerpted == ("arguments",)
    assert asked.payload["arguments"]["parts"] == ["a"]
    assert len(asked.payload["arguments"]["content"]) < 20_000
    (result,) = payloads(events, "tool.result")
    assert result["result"] == len(content) + 1, "the body got all of it"


async def test_many_small_values_that_are_large_together_become_one_text(shelf, autojump_clock):
    steps = [call("take", content="", parts=["ab"] * 200_000, id="c1"), "done"]
    events = await played(shelf, steps, tools=[take])
    (asked,) = payloads(events, "tool.call")
    assert list(asked["arguments"]) == ["excerpt"]


async def test_a_large_input_is_kept_whole_for_the_model_and_cut_in_the_event(shelf, autojump_clock):
    words = "w" * MIB
    async with home(shelf) as runtime:
        helper = agent("done")
        run = await runtime.start(helper, words)
        await run.result()
        assert helper.model.requests[0].messages[-1].content == words
        (first, *_) = await events_of(run)
    assert first.type == "run.created"
    assert first.excerpted == ("input",)


@pytest.mark.parametrize("chunk", [None, 50_000], ids=["whole", "streamed"])
async def test_the_deltas_of_a_large_message_are_all_of_it(shelf, autojump_clock, chunk):
    """Also of a model that does not stream: a reader far away has no other way to all of the text."""
    words = "".join(chr(0x4E00 + n % 5000) for n in range(120_000))
    helper = gr.Agent("helper", model=ScriptedModel([text(words)], chunk=chunk))
    async with home(shelf) as runtime:
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == words
        assert max(map(len, await frames_of(runtime, run))) <= FRAME_BYTES
        events = await events_of(run)
    (whole,) = payloads(events, "message.completed")
    assert whole["large"]
    assert len(whole["text"].encode()) < PAYLOAD_BYTES // 10
    deltas = payloads(events, "message.delta")
    assert "".join(delta["text"] for delta in deltas) == words
    assert all(len(delta["text"]) <= PIECE for delta in deltas)


async def test_a_secret_at_the_border_of_two_pieces_is_in_none(shelf, autojump_clock):
    for before in range(PIECE - len(KEY) - 1, PIECE + 1, 6):
        words = "x" * before + " " + KEY + " " + "y" * (4 * PIECE)
        helper = gr.Agent("helper", model=ScriptedModel([text(words)]))
        async with home(shelf) as runtime:
            run = await runtime.start(helper, "hi", run_id=f"r{before}")
            await run.result()
            log = "".join(payload["text"] for payload in payloads(await events_of(run), "message.delta"))
        assert "aaaa" not in log
        assert log.count("x") >= before


async def test_a_payload_of_any_form_fits(shelf, autojump_clock):
    """A nested value whose texts and keys are long."""
    value = {("k" * 1000) + str(n): [{"deep": "v" * 5000}, n] for n in range(300)}
    steps = [call("take", content=json.dumps(value), parts=[json.dumps(value)], id="c1"), "done"]
    events = await played(shelf, steps, tools=[take])
    assert payloads(events, "tool.call")


# --- what readers hold -----------------------------------------------------------------------------------------------


@gr.tool
async def fill(ctx: gr.ToolContext, times: int) -> str:
    """Stream many chunks of 60 kB."""
    for number in range(times):
        await ctx.output(str(number % 10) * 60_000)
    return "done"


async def test_a_page_over_http_ends_by_its_bytes_and_pages_together_are_all_events():
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        run = await runtime.start(agent(call("fill", times=60, id="c1"), "done", tools=[fill]), "hi")
        await run.result()
        found: list[Any] = []
        done = False
        while not done:
            reply = await http(address, "GET", f"/v1/runs/{run.id}/events?after={len(found)}&limit=1000")
            assert reply.status == 200
            assert len(reply.body) <= PAGE_BYTES + FRAME_BYTES
            page = json.loads(reply.body)
            found += page["events"]
            done = page["done"] and page["next"] == page["head"]
        assert [event["sequence"] for event in found] == list(range(1, page["head"] + 1))
        assert len(found) > 60


async def test_a_follower_asks_the_store_for_bytes_and_not_for_numbers_of_events(autojump_clock):
    """However large its events are, a reader that comes late holds a page of 256 KiB, and one event."""
    sizes: list[int] = []

    class Weighed(gr.MemoryStore):
        async def events(self, run_id: str, **page: Any) -> Any:
            found = await super().events(run_id, **page)
            sizes.append(sum(map(len, found)))
            return found

    async with home(Weighed()) as runtime:
        run = await runtime.start(agent(call("fill", times=60, id="c1"), "done", tools=[fill]), "hi")
        await run.result()
        sizes.clear()
        await events_of(run)
    assert sum(sizes) > 60 * 60_000
    assert max(sizes) <= PAGE_BYTES_OF_A_FOLLOWER + FRAME_BYTES


async def test_the_welcome_names_the_largest_event():
    async with gr.open_runtime() as runtime, gateway(runtime) as address, talking(address) as talk:
        welcome = await talk.hear()
        assert welcome["limits"]["eventBytes"] == FRAME_BYTES
