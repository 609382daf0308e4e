"""Pages of a thread and the events behind them tell each part of a conversation once, wherever a reader comes in."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.runs import home

Told = list[tuple[list[str], dict[str, list[str]]]]
"""What each reader was told: by the page, and by the events of each run behind it."""


@gr.tool
async def look(what: str) -> str:
    """Look something up."""
    await trio.sleep(1)
    return f"it is {what}"


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def script(request: gr.ModelRequest) -> Any:
    """Two calls, one that waits for a person, an answer; and to what is sent meanwhile another answer."""
    results = [message for message in request.messages if message.role == "tool"]
    texts = [message.content for message in request.messages if message.role == "user"]
    newest = request.messages[-1]
    if not results:
        return [call("look", id="c1", what="a"), call("look", id="c2", what="b")]
    if len(results) == 2:
        return call("pay", id="c3", cents=5)
    return f"answer to {len(texts)} texts, the last: {newest.content}"


def told_by(frames: list[Any]) -> list[str]:
    """The parts of the conversation that events tell: inputs and answers by message id, results by call id."""
    parts = []
    for event in frames:
        payload = event.payload
        if event.type == "run.created" and payload.get("forkedFrom") is None:
            parts.append(f"{event.run_id}.m1")
        elif event.type in ("run.input.received", "run.message.completed"):
            parts.append(payload["messageId"])
        elif event.type == "run.tool.result":
            parts.append(payload["callId"])
    return parts


def parts_of(messages: Any) -> list[str]:
    return [message.call_id or message.id for message in messages if message.text or message.call_id]


async def followed(runtime: gr.Runtime, run_id: str, after: int) -> list[str]:
    async with runtime.follow(run_id, after=after) as events:
        return told_by([event async for event in events])


async def look_in(runtime: gr.Runtime, thread: str, told: Told, nursery: trio.Nursery) -> None:
    """Read the thread as a second device does: the page, and then each unfinished run from where the page says."""
    page = await runtime.messages(thread, limit=1000)
    rest: dict[str, list[str]] = {}
    told.append((parts_of(page.messages), rest))
    for run in page.runs:
        pending = {message.id for message in run.pending}

        async def follow(run_id: str = run.run_id, after: int = run.after, pending: set[str] = pending) -> None:
            parts = await followed(runtime, run_id, after)
            rest[run_id] = [*pending, *(part for part in parts if part not in pending)]

        nursery.start_soon(follow)


async def test_page_and_events_tell_everything_once_at_every_event(shelf, autojump_clock):
    """A reader comes in behind each event of a run with calls, a question and sent input; another run waits behind."""
    agent = gr.Agent("helper", model=FunctionModel(script), tools=[look, pay])
    told: Told = []
    async with home(shelf, agents=[agent]) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start("helper", "first", thread_id="t", run_id="r1")
        await runtime.start("helper", "second", thread_id="t", run_id="r2")
        async with run.events() as events:
            async for event in events:
                await look_in(runtime, "t", told, nursery)
                if event.type == "run.tool.started" and event.payload["callId"] == "c1":
                    await run.send("meanwhile")
                if event.type == "run.waiting":
                    await run.send("while it waits")
                    await look_in(runtime, "t", told, nursery)
                    await run.decide((await run.view()).tickets[0].approve())
        await (await runtime.get("r2")).result()
        await look_in(runtime, "t", told, nursery)
        final = parts_of((await runtime.messages("t", limit=1000)).messages)
    assert len(told) > 15
    assert len(final) == len(set(final))
    for seen, rest in told:
        parts = [*seen, *(part for parts in rest.values() for part in parts)]
        assert sorted(parts) == sorted(final)
        assert seen == final[: len(seen)]


async def test_a_page_names_the_newest_run_so_that_later_ones_are_known(shelf, autojump_clock):
    agent = gr.Agent("helper", model=FunctionModel(lambda request: "yes"))
    async with home(shelf, agents=[agent]) as runtime:
        await (await runtime.start("helper", "first", thread_id="t", run_id="r1")).result()
        page = await runtime.messages("t")
        await (await runtime.start("helper", "second", thread_id="t", run_id="r2")).result()
        later = []
        for line in (await runtime.runs(thread_id="t")).runs:
            if line.run_id == page.newest_run:
                break
            later.append(line.run_id)
        assert later == ["r2"]
        assert [message.text for message in (await runtime.messages("t", after=page.after)).messages] == [
            "second",
            "yes",
        ]


async def test_a_fork_has_its_history_and_follows_behind_it(shelf, autojump_clock):
    agent = gr.Agent("helper", model=FunctionModel(script), tools=[look, pay])
    async with home(shelf, agents=[agent]) as runtime:
        run = await runtime.start("helper", "first", thread_id="t", run_id="r1")
        await run.wait()
        fork = await runtime.fork("r1", step=1, new_run_id="f1")
        page = await runtime.messages(fork.thread_id)
        assert [message.run_id for message in page.messages] == ["r1"] * 4
        await fork.wait()
        told: Told = []
        async with trio.open_nursery() as nursery:
            await look_in(runtime, fork.thread_id, told, nursery)
            await fork.decide((await fork.view()).tickets[0].approve())
        final = parts_of((await runtime.messages(fork.thread_id)).messages)
        assert [*told[0][0], *told[0][1]["f1"]] == final


@pytest.mark.parametrize("size", [600_000, 1_100_000])
async def test_a_message_is_as_large_as_an_event_at_most(shelf, autojump_clock, size):
    agent = gr.Agent("helper", model=FunctionModel(lambda request: "yes"))
    async with home(shelf, agents=[agent]) as runtime:
        await (await runtime.start("helper", "x" * size, thread_id="t")).result()
        page = await runtime.messages("t", after=0)
        assert page.messages[0].excerpted == ("text",)
        assert len(page.messages[0].text) < 524_288
        assert "characters left out" in page.messages[0].text


async def test_many_calls_of_one_message_are_cut_to_what_fits(shelf, autojump_clock):
    def calls(request: gr.ModelRequest) -> Any:
        if any(message.role == "tool" for message in request.messages):
            return "done"
        return [call("look", id=f"c{n}", what="y" * 3000) for n in range(300)]

    quick = gr.Agent("helper", model=FunctionModel(calls), tools=[look])
    async with home(shelf, agents=[quick]) as runtime:
        await (await runtime.start("helper", "go", thread_id="t")).result()
        asked = (await runtime.messages("t", after=1, limit=1)).messages[0]
        assert asked.excerpted == ("calls",)
        assert 0 < len(asked.calls) <= 300


async def test_the_directory_of_a_run_is_masked_also_once_the_run_is_pruned(shelf, autojump_clock):
    agent = gr.Agent("helper", model=FunctionModel(lambda request: "it is in /srv/shops/one/a.txt"))
    async with home(shelf, agents=[agent]) as runtime:
        start = {"thread_id": "t", "workspace": "/srv/shops/one"}
        await (await runtime.start("helper", "first", run_id="r1", **start)).result()
        at = runtime.clock.now()
        await trio.sleep(60)
        await (await runtime.start("helper", "second", run_id="r2", thread_id="t")).result()
        expected = ["first", "it is in [workspace]/a.txt", "second", "it is in /srv/shops/one/a.txt"]
        assert [message.text for message in (await runtime.messages("t")).messages] == expected
        assert (await runtime.prune(at + (runtime.clock.now() - at) / 2)).runs == 1
        assert (await runtime.messages("t")).messages[1].text == expected[1]


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": True}, {"before": 0}, {"after": -1}, {"after": "1"}, {"before": 1, "after": 1}]
)
async def test_wrong_arguments_are_refused(options):
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError, match=next(iter(options))):
            await runtime.messages("t", **options)


async def test_an_unknown_thread_is_refused():
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UnknownThread, match="no thread has the id 't'"):
            await runtime.messages("t")
        assert (await runtime.threads()).threads == ()
        with pytest.raises(gr.UsageError, match="cursor"):
            await runtime.threads(cursor="x")
