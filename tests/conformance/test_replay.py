"""`Runtime.replay`: a stored run is run again from its record, and the first event that is another one is named.

That every scene of the lifecycle replays equal is checked where scenes are played (`support/scenes.py`). Here is what
else a replay keeps: it touches nothing, and finds what is changed, in the agent or in the store.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.abc import Model
from greenroom.actors.contract.messages import ModelRequest
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import KINDS, Shelf, agent, events_of, home
from ..support.scene_tools import TOOLS
from ..support.scenes import Play, after, another, approve, cancel, decide, deny, pause, restart

MIXED = [call("look", id="A"), call("pay", id="B", cents=7), call("note", id="C")]


class Untouched(Model):
    """A model that no test may ask."""

    name = "scripted"

    def stream(self, request: ModelRequest) -> Any:
        raise AssertionError(f"the model was asked: {request}")


def dead(tool: Any) -> Any:
    """A tool that is the same for the engine, and whose body and predicate no test may call."""

    async def body(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{tool.name} was called")

    predicate = tool.needs_approval if isinstance(tool.needs_approval, bool) else body
    return attrs.evolve(tool, function=body, needs_approval=predicate)


# --- what a replay leaves alone ---------------------------------------------------------------------------------------


@pytest.mark.rule("L-96")
async def test_a_replay_asks_no_person_and_writes_nothing(play: Play, autojump_clock: Any) -> None:
    """The same agent with a model, bodies and predicates that may not be called: every event comes again."""
    life = await play([*MIXED, call("spend", id="S", cents=500)], "done", do=[approve("B"), approve("S")])
    async with home(play.shelf.open()) as runtime:
        before, frames = runtime.store.statistics(), await runtime.store.events("r", limit=1000)
        record = await runtime.store.load("r", calls="all")
        lifeless = gr.Agent("lifeless", model=Untouched(), tools=[dead(tool) for tool in TOOLS])
        report = await runtime.replay("r", lifeless)
        assert report == gr.ReplayReport(run_id="r", equal=True, events=len(life.events))
        assert runtime.store.statistics() == before
        assert await runtime.store.events("r", limit=1000) == frames
        assert await runtime.store.load("r", calls="all") == record
    assert life.effects.count("A") == 1


async def test_a_replay_that_is_cancelled_anywhere_leaves_nothing_behind(play: Play, autojump_clock: Any) -> None:
    """After any number of its checkpoints: the store is as it was, and the next replay is complete."""
    await play(*([call("look", id=f"{step}{one}") for one in "ABCDEF"] for step in range(9)), "done")
    async with home(play.shelf.open()) as runtime:
        before, cancelled = runtime.store.statistics(), 0
        tasks = trio.lowlevel.current_statistics().tasks_living
        while True:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_after, cancelled, scope)
                    await runtime.replay("r", gr.Agent("again", model=Untouched(), tools=TOOLS))
                    nursery.cancel_scope.cancel()
            if not scope.cancelled_caught:
                break
            cancelled += 1
            assert runtime.store.statistics() == before
            assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert cancelled > 5
        assert (await runtime.replay("r", gr.Agent("again", model=Untouched(), tools=TOOLS))).equal


async def cancel_after(checkpoints: int, scope: trio.CancelScope) -> None:
    """Let others work so many times first."""
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_a_run_that_works_or_waits_is_compared_as_far_as_it_is(play: Play, autojump_clock: Any) -> None:
    """In the middle of a model's answer, of bodies, and while people are asked."""
    reports = []

    async def look(scene: Any) -> None:
        reports.append(await scene.runtime.replay(scene.run.id))

    script = [["a", delay(5), "b", *MIXED], "done"]
    life = await play(*script, do=[after(3, look), after(4, look), look, approve("B"), after(2, look)])
    assert all(report.equal for report in reports), reports
    counts = [report.events for report in reports]
    assert counts == sorted(counts)
    assert counts[-1] < len(life.events)


async def test_without_the_agent_a_record_is_replayed_with_one_that_is_given(watched: Any, autojump_clock: Any) -> None:
    helper = agent([call("look", id="A")], "done", tools=[TOOLS[0]])
    async with home(watched.open(), deps=lambda _: None, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
    async with home(watched.open()) as runtime:
        with pytest.raises(gr.UnknownAgent, match="helper"):
            await runtime.replay("r")
        assert (await runtime.replay("r", helper)).equal
        with pytest.raises(gr.UnknownRun):
            await runtime.replay("nobody", helper)
        with pytest.raises(gr.UsageError, match="give an Agent"):
            await runtime.replay("r", "helper")  # type: ignore[arg-type]
    with pytest.raises(gr.RuntimeClosed):
        await runtime.replay("r", helper)


async def test_forks_and_runs_that_waited_for_their_thread_are_replayed(play: Play, autojump_clock: Any) -> None:
    """With the history that they began with, also a second run of a thread and a fork of a fork."""
    life = await play(
        [call("look", id="A")], "done", behind=20.0, do=[after(1, another("me too")), pause(60.0)], start={"by": "ada"}
    )
    crew = [life.scene.agent, *life.scene.crew.values(), agent(key="front")]
    async with home(play.shelf.open(), agents=crew, deps=life.scene.outside) as runtime:
        first = await runtime.fork("r", step=1, new_run_id="f1")
        await first.wait()
        second = await runtime.fork("f1", step=0, new_run_id="f2")
        await second.wait()
        for name in ("r", "next", "front", "f1", "f2"):
            report = await runtime.replay(name)
            assert report.equal, report
        other = gr.Agent("other", tools=TOOLS, execution="parallel_streaming")
        kept = (await runtime.replay("f2", other)).equal
        assert kept, "the mode was chosen for the run that it was forked from"


async def test_a_fork_that_was_informed_of_its_parents_tasks_is_replayed(watched: Any, autojump_clock: Any) -> None:
    """And a fork of that, too."""

    @gr.tool(background=True)
    async def fetch(ctx: gr.ToolContext[Any]) -> str:
        await trio.sleep(30)
        return "fetched"

    def says(request: ModelRequest) -> Any:
        return "done" if any(message.role == "tool" for message in request.messages) else call("fetch", id="F")

    helper = gr.Agent("helper", model=FunctionModel(says), tools=[fetch])
    async with home(watched.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await trio.sleep(5)
        for parent, step, name in (("r", 1, "f1"), ("f1", 0, "f2")):
            fork = await runtime.fork(parent, step=step, new_run_id=name)
            assert any("F.task1" in message.content for message in (await fork.view()).messages)
            await fork.result()
            assert (await events_of(fork))[0].payload["input"] == "hi", "that is what was asked, not what it is told"
        await run.result()
        for name in ("r", "f1", "f2"):
            report = await runtime.replay(name)
            assert report.equal, report


async def test_secrets_stay_hidden_and_make_no_difference(watched: Any, autojump_clock: Any) -> None:
    """What is compared has passed the redactor on both sides."""

    @gr.tool
    async def fetch(ctx: gr.ToolContext[Any], password: str) -> dict[str, str]:
        return {"token": password, "text": f"with {password}"}

    helper = agent(["swordfish it is", call("fetch", id="A", password="swordfish")], "done", tools=[fetch])
    async with home(watched.open(), agents=[helper], secrets=["swordfish"]) as runtime:
        await (await runtime.start(helper, "use swordfish", run_id="r")).wait()
        assert (await runtime.replay("r")).equal
        report = await runtime.replay("r", agent(tools=[]))
        assert report.difference is not None
        assert "swordfish" not in repr(report)


# --- another agent ----------------------------------------------------------------------------------------------------


@gr.tool
async def plain(ctx: gr.ToolContext[Any], n: int = 1) -> str:
    """Free."""
    return "ok"


async def _narrow(ctx: gr.ToolContext[Any], n: str) -> str:
    return "ok"


OTHERS: Mapping[str, tuple[Callable[[], gr.Agent[Any]], str, str, Any, Any]] = {
    "a schema that refuses the arguments": (
        lambda: agent(tools=[gr.tool(_narrow, name="plain")]),
        *("run.tool.started", "type", "run.tool.started", "run.tool.result"),
    ),
    "the tool is gone": (
        lambda: agent(tools=[]),
        *("run.tool.started", "type", "run.tool.started", "run.tool.result"),
    ),
    "an approval is needed": (
        lambda: agent(tools=[attrs.evolve(plain, needs_approval=True)]),
        *("run.tool.started", "type", "run.tool.started", "run.tool.suspended"),
    ),
    "another effect": (
        lambda: agent(tools=[attrs.evolve(plain, effect="write")]),
        *("run.tool.call", "effect", "read", "write"),
    ),
    "an earlier stop": (
        lambda: agent(tools=[plain], stop=[gr.stop.MaxRounds(1)]),
        *("run.step.started", "type", "run.step.started", "run.completed"),
    ),
    "the first tool ends it": (
        lambda: agent(tools=[plain], tool_use="stop_on_first_tool"),
        *("run.step.started", "type", "run.step.started", "run.completed"),
    ),
    "all calls at once": (
        lambda: agent(tools=[plain], execution="parallel_streaming"),
        *("run.tool.result", "type", "run.tool.result", "run.tool.started"),
    ),
    "another output": (
        lambda: agent(tools=[plain], output_type=int),
        *("run.completed", "type", "run.completed", "run.step.started"),
    ),
}


@pytest.mark.rule("L-97")
@pytest.mark.parametrize("what", OTHERS)
async def test_the_first_difference_of_another_agent_is_named(watched: Any, autojump_clock: Any, what: str) -> None:
    """The event, the place in it, and both sides of it."""
    make, type_, path, recorded, replayed = OTHERS[what]
    helper = agent([call("plain", id="A"), call("plain", id="B")], "done", tools=[plain])
    async with home(watched.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        report = await runtime.replay("r", make())
        found = report.difference
        assert found is not None
        assert found.recorded is not None
        assert found.replayed is not None
        assert (found.recorded.type, found.path) == (type_, path)
        assert found.sequence == found.recorded.sequence == found.replayed.sequence == report.events + 1
        sides = (found.recorded, found.replayed)
        shown = tuple(side.type if path == "type" else side.payload[path] for side in sides)
        assert shown == (recorded, replayed)
        assert found.text.startswith(f"event {found.sequence}: ")


async def test_an_approval_that_is_not_needed_any_more_is_a_difference(play: Play, autojump_clock: Any) -> None:
    life = await play([call("sign", id="B")], "done", do=[approve("B")])
    async with home(play.shelf.open()) as runtime:
        free = [attrs.evolve(tool, needs_approval=False) if tool.name == "sign" else tool for tool in TOOLS]
        found = (await runtime.replay("r", gr.Agent("free", tools=free))).difference
        assert found is not None
        assert found.recorded is not None
        assert (found.recorded.type, found.recorded.payload["callId"]) == ("run.tool.suspended", "B")
        assert found.replayed is not None
        assert found.replayed.type == "run.tool.started"
    assert life.calls["B"] == "new suspended resuming running succeeded"


async def test_a_mode_that_the_start_was_given_stays(watched: Any, autojump_clock: Any) -> None:
    """Another agent brings its own mode, unless a person chose one for this run."""
    two = [call("plain", id="A"), call("plain", id="B")]
    helper = agent(two, "done", tools=[plain])
    async with home(watched.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="own")).wait()
        await (await runtime.start(helper, "hi", run_id="given", execution="sequential", by="ada")).wait()
        other = agent(tools=[plain], execution="parallel_streaming")
        assert not (await runtime.replay("own", other)).equal
        assert (await runtime.replay("given", other)).equal


# --- a damaged store --------------------------------------------------------------------------------------------------


def overwrite(shelf: Shelf, store: gr.Store, sequence: int, frame: bytes) -> None:
    """Put other bytes in the place of an event."""
    if shelf.kind == "memory":
        store._ledger.runs["r"].frames[sequence - 1] = frame  # type: ignore[attr-defined]
        return
    with sqlite3.connect(shelf.path) as connection:
        connection.execute("UPDATE events SET frame = ? WHERE seq = ?", (frame, sequence))
    connection.close()


def edited(frame: bytes, path: str, value: Any) -> bytes:
    event = json.loads(frame)
    *folders, last = path.split(".")
    inner = event
    for name in folders:
        inner = inner[name]
    inner[last] = value
    return json.dumps(event, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("type_", "where", "value", "path"),
    [
        ("run.created", "payload.input", "something else", "input"),
        ("run.tool.call", "payload.arguments.n", 8, "arguments.n"),
        ("run.tool.result", "payload.result", "oh", "result"),
        ("run.message.completed", "payload.text", "undone", "text"),
        ("run.step.finished", "payload.usage.output", 999, "usage.output"),
        ("run.completed", "payload.activeSeconds", 99.0, "activeSeconds"),
        ("run.completed", "timestamp", "2000-01-01T00:00:00.000Z", "timestamp"),
        ("run.started", "type", "run.resumed", "type"),
        ("run.step.started", "agentId", "mallory", "agent_id"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_edited_event_is_found(
    kind: str, folder: Any, autojump_clock: Any, type_: str, where: str, value: Any, path: str
) -> None:
    """At its sequence, and where in it."""
    shelf = Shelf(kind, folder)
    helper = agent([call("plain", id="A", n=7)], "done", tools=[plain])
    async with home(shelf.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        frames = list(await runtime.store.events("r", limit=1000))
        position = [json.loads(frame)["type"] for frame in frames].index(type_)
        overwrite(shelf, runtime.store, position + 1, edited(frames[position], where, value))
        found = (await runtime.replay("r")).difference
        assert found is not None
        assert (found.sequence, found.path) == (position + 1, path)


@pytest.mark.parametrize("kind", KINDS)
async def test_bytes_that_are_no_event_are_said_to_be_none(kind: str, folder: Any, autojump_clock: Any) -> None:
    """Everything before them is compared."""
    shelf = Shelf(kind, folder)
    helper = agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        overwrite(shelf, runtime.store, 7, b"{")
        report = await runtime.replay("r")
        assert (report.equal, report.events, report.difference) == (False, 6, None)
        assert report.unreplayable is not None
        assert (report.unreplayable.missing, report.unreplayable.sequence) == ("bytes", 7)


FORGED = [0.1, 0.4, 0.7, 1.0]


@gr.tool
async def slow(ctx: gr.ToolContext[Any]) -> str:
    """Tells how far it is."""
    for fraction in (0.25, 0.5, 0.75, 0.9):
        await ctx.progress(fraction)
        await trio.sleep(1)
    return "there"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", range(4))
async def test_a_forged_progress_event_is_found(kind: str, folder: Any, autojump_clock: Any, which: int) -> None:
    """What is said in an event alone is in the record, too. The input that came before it is named."""
    shelf, helper = Shelf(kind, folder), agent([call("slow", id="A")], "done", tools=[slow])
    async with home(shelf.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        frames = list(await runtime.store.events("r", limit=1000))
        report = [n for n, frame in enumerate(frames, 1) if json.loads(frame)["type"] == "run.tool.progress"]
        assert len(report) == len(FORGED)
        overwrite(
            shelf, runtime.store, report[which], edited(frames[report[which] - 1], "payload.fraction", FORGED[which])
        )
        found = (await runtime.replay("r")).difference
        assert found is not None
        assert (found.sequence, found.path) == (report[which], "fraction")
        assert "CallProgressed(call_id='A', attempt=1, fraction=" in found.input


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_and_messages_that_are_gone_change_no_replay(kind: str, folder: Any, autojump_clock: Any) -> None:
    """The record has all that the machine took, but for commands, which the inbox keeps."""
    shelf, helper = Shelf(kind, folder), agent([call("plain", id="A")], "done", tools=[plain])
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.wait()
        store: Any = runtime.store
        if kind == "memory":
            store._ledger.threads[run.thread_id].messages.clear()
        else:
            with sqlite3.connect(shelf.path) as connection:
                connection.execute("DELETE FROM messages")
            connection.close()
        assert (await runtime.replay("r")).equal


# --- runs that were not recorded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recorded", [(False, False), (False, True), (True, False)])
async def test_a_run_that_was_not_recorded_says_so(
    kind: str, folder: Any, autojump_clock: Any, recorded: tuple[bool, bool]
) -> None:
    """From its creation, or from where a runtime continued with it that keeps no record. The run itself is the same."""
    shelf, helper = Shelf(kind, folder), agent([call("sign", id="A")], "done", tools=TOOLS)
    given: dict[str, Any] = {"agents": [helper], "deps": lambda _: None}
    first, second = recorded
    async with home(shelf.open(), record=first, **given) as runtime:
        waiting = await (await runtime.start(helper, "hi", run_id="r")).wait()
        assert isinstance(waiting, gr.Waiting)
        began = await runtime.replay("r")
        assert began.equal == first
    async with home(shelf.open(), record=second, **given) as runtime:
        run = await runtime.get("r")
        await run.decide(waiting.tickets[0].approve())
        assert isinstance(await run.wait(), gr.Completed)
        report = await runtime.replay("r")
        assert (report.equal, report.difference) == (False, None)
        assert report.unreplayable is not None
        assert report.unreplayable.missing == "record"
        assert report.unreplayable.sequence == report.events + 1
        assert report.events == (began.events if first else 0)
        assert "record=False" in report.unreplayable.text


async def test_what_a_file_of_an_older_release_has_is_said_to_be_unrecorded(folder: Any, autojump_clock: Any) -> None:
    """Its runs have no record at all."""
    shelf, helper = Shelf("sqlite", folder), agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
    with sqlite3.connect(shelf.path) as connection:
        connection.execute("DELETE FROM record")
    connection.close()
    async with home(shelf.open(), agents=[helper]) as runtime:
        report = await runtime.replay("r")
        assert report.unreplayable is not None
        assert (report.unreplayable.missing, report.unreplayable.sequence, report.events) == ("record", 1, 0)
        assert "older release" in report.unreplayable.text


@pytest.mark.parametrize("kind", KINDS)
async def test_the_record_is_private_and_goes_with_its_run(kind: str, folder: Any, autojump_clock: Any) -> None:
    """No event has anything of it; a prune deletes it."""
    shelf, helper = Shelf(kind, folder), agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.wait()
        assert len(await runtime.store.record("r")) == 3
        assert not any(b"ModelAnswered" in frame for frame in await runtime.store.events("r"))
        await runtime.store.prune(runtime.clock.now() + timedelta(days=1))
        assert await runtime.store.record("r") == ()
    if kind == "sqlite":
        with sqlite3.connect(shelf.path) as connection:
            assert connection.execute("SELECT count(*) FROM record").fetchone() == (0,)
        connection.close()


# --- lives that the scenes do not have --------------------------------------------------------------------------------


async def test_a_long_answer_in_many_pieces_lets_others_work(watched: Any, autojump_clock: Any) -> None:
    """A replay is one task among others, however long the log is."""
    helper = agent([piece for number in range(300) for piece in (f"{number} ", delay(1))])
    async with home(watched.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            report = await runtime.replay("r")
            nursery.cancel_scope.cancel()
        assert report.equal
        assert report.events > 250
        assert turns >= report.events // 100


async def test_denials_cancels_and_restarts_in_one_life(play: Play, autojump_clock: Any) -> None:
    life = await play(
        [call("sign", id="A"), call("ask", id="B", times=2, mode="pass_decision_to_tool"), call("look", id="C")],
        do=[deny("A", "no"), after(1, restart), decide("B", "resume", result={"said": "x"}), after(1, cancel())],
    )
    assert (await _replayed(play, life)).equal


async def _replayed(play: Play, life: Any) -> gr.ReplayReport:
    async with home(play.shelf.open()) as runtime:
        return await runtime.replay("r", life.scene.agent)
