"""Plugins, state, background tasks and pauses in one run: what holds where they meet, through crashes and outages."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, Deliver
from greenroom.actors.contract.rows import RunRecord
from greenroom.testing import call

from ..support.promises import broken_history, broken_promises
from ..support.runs import Outages, agent, home
from ..support.scene_plugins import diary, slow
from ..support.scene_tools import TOOLS, Context, Outside
from ..support.state_tools import KEYS, LAST, LEDGER, TOTAL

SOON = 5_000.0
"""Virtual seconds within which every life here ends."""


@gr.tool(background=True, replay="safe")
async def counts(ctx: Context, add: int = 1, seconds: float = 10.0) -> str:
    """A task that writes state."""
    ctx.state.update(TOTAL, add)
    await trio.sleep(seconds)
    return "counted"


@gr.tool(replay="safe", on_conflict="retry")
async def boss(ctx: Context, last: str) -> str:
    """Spawns, writes, and runs again alone if another body wrote meanwhile."""
    ctx.state.set(LAST, last)
    name = await ctx.spawn(counts, add=10)
    await trio.sleep(1)
    return name


@gr.tool(replay="safe", on_conflict="retry", needs_approval=True)
async def signed(ctx: Context, last: str) -> str:
    """Approved once, and runs again alone if another body wrote meanwhile."""
    ctx.state.set(LAST, last)
    await trio.sleep(1)
    return "signed"


class Trips(gr.MemoryStore):
    """Memory that raises at one commit, once: the run's actor crashes there."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at, self.seen = at, 0

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """As the store's own."""
        self.seen += 1
        if self.seen == self._at:
            raise RuntimeError("the actor crashes here")
        super().submit(claim, commit, frames, deliver)


CALLS = [
    call("counts", id="N"),
    call("boss", last="b", id="B"),
    call("keep", last="k", id="K"),
    call("signed", last="s", id="S"),
    call("look", id="E"),
    call("look", id="D"),
]


def busy() -> gr.Agent[Any]:
    """An agent in whose run everything happens at once: hooks in each phase that write, edit, drop and hold."""

    def change(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        return gr.Mutation().edit_call("E", {"at": "x"}).drop_call("D") if len(ctx.calls) > 1 else None

    def hold(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        return gr.Mutation().hold(gr.Suspend(message="go on?")) if ctx.step == 2 else None

    plugin = diary(
        every=slow(1),
        step_start=hold,
        after_inference=change,
        after_tool_execute=lambda _: gr.Mutation().update(TOTAL, 1_000),
        step_end=lambda _: gr.Mutation().update(TOTAL, 100),
        run_end=lambda _: gr.Mutation().set(LAST, "end"),
    )
    tools = {tool.name: tool for tool in (*TOOLS, *LEDGER, counts, boss, signed)}
    script = [CALLS, [call("look", id="L")], *["done"] * 9]
    return agent(*script, key="busy", tools=list(tools.values()), state=KEYS, plugins=[plugin])


@attrs.frozen
class Lived:
    """What a busy run came to."""

    view: gr.RunView
    record: RunRecord
    frames: tuple[bytes, ...]

    def count(self, name: str) -> int:
        """Events of a type."""
        return sum(f'"type":"run.{name}"'.encode() in frame for frame in self.frames)

    def check(self) -> None:
        """Everything that was promised has happened once."""
        row, view = self.record.row, self.view
        assert (view.stage, view.state["last"]) == ("completed", "end")
        assert (row.tasks, row.run_tickets, row.pause, dict(row.early)) == ((), (), None, {})
        reported = [message for message in view.messages if message.kind == "task_finished"]
        assert len(reported) == self.count("task.finished") == 2
        hooked = sum(one.status in ("succeeded", "failed") for one in self.record.calls)
        assert view.state["total"] == 11 + 100 * self.count("step.finished") + 1_000 * hooked


async def lived(run: gr.Run[Any], store: gr.Store) -> Lived:
    """Approve whatever is asked until the run has ended."""
    with trio.fail_after(SOON):
        while isinstance(rest := await run.wait(), gr.Waiting):
            for ticket in rest.tickets:
                await run.decide(ticket.ticket_id, "resume", by="ada")
            await trio.sleep(0.3)
    frames = tuple(await store.events(run.id, limit=10_000))
    record = await store.load(run.id, calls="all")
    assert record is not None
    broken = [*broken_promises(frames, record, []), *broken_history(await store.messages(run.thread_id), "the thread")]
    assert not broken, broken
    return Lived(await run.view(), record, frames)


@pytest.mark.parametrize("at", range(2, 60))
async def test_the_actor_crashes_at_any_commit_and_everything_happens_once(mode, autojump_clock, at):
    store, one = Trips(at), busy()
    async with home(store, agents=[one], deps=Outside()) as runtime:
        run = await runtime.start(one, "hi", thread_id="t", execution=mode)
        await trio.sleep(4)
        await run.pause(by="ada")
        life = await lived(run, store)
    life.check()
    assert store.seen >= min(at, 40)


@pytest.mark.parametrize("at", [0.5, 4.5, 8.5, 14.5, 22.5])
@pytest.mark.parametrize("seconds", [3, 15])
async def test_the_store_does_not_answer_for_a_while(watched, mode, autojump_clock, at, seconds):
    outages, one = Outages(), busy()
    async with home(watched.open(faults=outages), agents=[one], deps=Outside()) as runtime:
        run = await runtime.start(one, "hi", thread_id="t", execution=mode)
        await trio.sleep(at)
        outages.error = OSError("the disk is full")
        await trio.sleep(seconds)
        outages.error = None
        (await lived(run, runtime.store)).check()


@pytest.mark.parametrize("at", [0.5, 4.5, 8.5, 14.5, 22.5])
@pytest.mark.parametrize("drain", [0, 2, 30])
async def test_the_process_ends_in_the_middle_of_it_all(watched, mode, autojump_clock, at, drain):
    one, world = busy(), Outside()
    async with home(watched, agents=[one], deps=world, drain=drain) as runtime:
        run = await runtime.start(one, "hi", run_id="r", thread_id="t", execution=mode)
        await trio.sleep(at)
    async with home(watched, agents=[one], deps=world) as runtime:
        run = await runtime.get("r")
        (await lived(run, runtime.store)).check()
