"""State and processes that end: reported state is kept, each write counts once, and an impossible merge is reported."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.commits import Commit
from greenroom.testing import call

from ..support.recording_stores import WatchedShelf
from ..support.runs import agent, home
from ..support.scene_tools import Outside
from ..support.scenes import Scene, after, approve, pause, restart
from ..support.state_tools import BOOKS, KEYS, LAST, LEDGER, SCRATCH, TOTAL, later

parallel = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])


# --- what is kept ----------------------------------------------------------------------------------------------------


async def test_a_run_continues_with_its_state(play, autojump_clock):
    script = [call("keep", last="a", add=3, see="x", id="A")], [call("sign", id="S")], "done"
    life = await play(*script, **BOOKS, do=[restart, approve("S")])
    assert life.tool_texts["S"] == "a 3 x 0"
    assert life.view.state == {"last": "a", "seen": ["x"], "total": 3}


@pytest.mark.rule("S-6")
async def test_a_key_that_is_not_persistent_is_there_until_the_run_leaves_memory(play, autojump_clock):
    script = [call("scratch", add=2, id="A")], [call("scratch", add=1, id="B")], [call("sign", id="S")]
    kept: list[Any] = []

    async def look(scene: Scene) -> None:
        kept.append((await scene.run.view()).state)

    life = await play(*script, [call("scratch", add=5, id="C")], "done", **BOOKS, do=[look, restart, approve("S")])
    assert kept == [{}]
    assert (life.tool_texts["B"], life.tool_texts["S"], life.tool_texts["C"]) == ("3", "- 0 - 0", "5")
    assert all(write.key != "scratch" for commit in life.log for write in commit.state)


async def test_a_key_that_is_not_persistent_is_gone_when_a_waiting_run_leaves_memory(play, autojump_clock):
    script = [call("scratch", add=2, id="A")], [call("keep", add=1, id="K")], [call("sign", id="S")], "done"
    play.runtime = {"passivate_after": 60}
    life = await play(*script, **BOOKS, do=[pause(59), pause(0), approve("S")])
    assert life.tool_texts["S"] == "- 1 - 2"
    late = await play(*script, **BOOKS, start={"run_id": "late", "thread_id": "late"}, do=[pause(61), approve("S")])
    assert late.tool_texts["S"] == "- 1 - 0"


@parallel
@pytest.mark.parametrize("again", [False, True])
async def test_what_was_not_merged_of_a_key_that_is_not_persistent_ends_with_the_process(play, autojump_clock, again):
    @gr.tool(replay="safe", on_conflict="retry" if again else "keep")
    async def jot(ctx: gr.ToolContext, add: int, keep: int = 0) -> None:
        ctx.state.set(SCRATCH, add)
        if keep:
            ctx.state.update(TOTAL, keep)

    calls = [call("jot", add=2, keep=3, id="A"), call("jot", add=4, id="J"), call("keep", add=1, id="B")]
    agent: dict[str, Any] = {"tools": [jot, *LEDGER], "state": KEYS}
    life = await play(calls, [call("sign", id="S")], "done", **agent, do=[after(3, restart), approve("S")])
    assert (life.tool_texts["S"], life.view.state) == ("- 4 - 0", {"total": 4})
    written = [write for commit in life.log for row in commit.calls if row.batch for write in row.batch.writes]
    assert {write.name for write in written} == {"total"}


@parallel
async def test_what_a_call_wrote_that_had_ended_is_merged_by_the_next_process(play, autojump_clock):
    calls = [call("keep", add=1, see="a", seconds=1, id="A"), call("keep", add=1, see="b", id="B")]
    life = await play(calls, "done", **BOOKS, do=[after(3, restart)])
    assert life.scene.outside.attempts("A") == 1
    assert life.view.state == {"seen": ["a", "b"], "total": 2}


@parallel
async def test_a_clash_is_found_after_a_restart_too(play, autojump_clock):
    calls = [
        call("keep", last="a", seconds=1, id="A"),
        call("retry", last="b", seconds=2, id="B"),
        call("keep", last="c", seconds=2, id="C"),
        call("keep", add=1, id="D"),
    ]
    life = await play(calls, "done", **BOOKS, do=[after(4, restart)])
    found = [
        (payload["key"], payload["writer"], payload.get("retried", False))
        for payload in life.payloads("state.conflict")
    ]
    assert found == [("last", "B", True), ("last", "C", False)]
    assert life.view.state == {"last": "b", "total": 1}


@parallel
async def test_a_clash_with_what_was_stored_before_the_merge_is_found_after_a_restart(play, autojump_clock):
    """A has written and waits to be merged when a task writes its key; then the process ends."""
    calls = [
        call("keep", last="a", id="A"),
        call("keep", seconds=30, id="B"),
        call("later", last="t", seconds=15, id="T"),
    ]
    life = await play(calls, "done", "done", tools=[*LEDGER, later], state=KEYS, do=[after(20, restart)])
    (one,) = life.payloads("state.conflict")
    assert (one["key"], one["writer"], one.get("other")) == ("last", "A", None)
    assert (life.view.state, life.tool_texts["A"].startswith("- 0 -\n(state_conflict:")) == ({"last": "t"}, True)


# --- keys that the next process does not know ------------------------------------------------------------------------


@pytest.mark.rule("S-9")
@parallel
@pytest.mark.parametrize("declared", [True, False])
async def test_updates_of_an_undeclared_key_cannot_be_merged_by_the_next_process(play, autojump_clock, declared):
    calls = [
        call("keep", add=1, seconds=1, id="A"),
        call("keep", add=1, seconds=1, id="B"),
        call("once", id="C"),
    ]
    options = {"tools": LEDGER, "state": KEYS if declared else []}
    life = await play(calls, "done", **options, do=[after(3, restart), approve("C", "noted")])
    assert life.view.state == {"total": 2 if declared else 1}
    if not declared:
        (one,) = life.payloads("state.conflict")
        way = "state key 'total' was changed meanwhile by A, and its reducer is not known here; name the key in "
        assert one["detail"] == way + "Agent(state=[...])"
        assert one["detail"] in life.tool_texts["B"]


@pytest.mark.rule("S-9")
async def test_an_undeclared_key_serves_as_long_as_the_process_lives(play, autojump_clock):
    calls = [call("keep", add=1, id="A"), call("keep", add=1, id="B")]
    life = await play(calls, [call("keep", add=1, id="C")], "done", tools=LEDGER)
    assert (life.view.state, life.payloads("state.conflict")) == ({"total": 3}, [])


@pytest.mark.rule("S-37")
async def test_another_release_may_give_an_undeclared_key_another_type(play, autojump_clock):
    """Reading it is an error that says what is there and where; all other keys serve, and nothing is changed.

    A release that declares the key in `Agent(state=[...])` degrades the run instead: test_state_releases.
    """
    entries = gr.StateKey("entries", dict[str, list[int]])
    renamed = gr.StateKey("entries", dict[str, list[str]], default={})

    def tools(key: gr.StateKey[Any], value: Any) -> list[Any]:
        @gr.tool
        async def write(ctx: gr.ToolContext) -> None:
            ctx.state.set(key, value)

        @gr.tool
        async def show(ctx: gr.ToolContext) -> str:
            return str(ctx.state[key])

        return [write, show, *LEDGER]

    script = [call("write", id="W"), call("keep", add=1, id="K")], [call("sign", id="S")]
    script += [call("show", id="R"), call("keep", add=1, id="K2")], "done"

    async def next_release(scene: Scene) -> None:
        keys = [key for key in KEYS if key is not LAST]  # and one that it does not know at all
        scene.agent = play.agent(*script, tools=tools(renamed, {}), state=keys)

    life = await play(
        *script, tools=tools(entries, {"a": [1]}), state=[*KEYS, entries], do=[next_release, restart, approve("S")]
    )
    assert "state key 'entries' holds a value that is no dict[str, list[str]]" in life.tool_texts["R"]
    assert "expected str, not int 1 @ $['a'][0]" in life.tool_texts["R"]
    assert (life.codes["R"], life.tool_texts["K2"]) == ("tool_error", "- 1 -")
    assert life.view.state == {"entries": {"a": [1]}, "total": 2}


@pytest.mark.rule("S-36")
async def test_keys_that_a_release_does_not_know_are_kept_as_they_are(play, autojump_clock):
    script = [call("keep", last="a", see="x", title="t", add=1, id="A")], [call("sign", id="S")], "done"

    async def next_release(scene: Scene) -> None:
        @gr.tool
        async def sign() -> str:
            return "signed"

        scene.agent = play.agent(*script, tools=[sign])

    life = await play(*script, **BOOKS, do=[next_release, restart, approve("S"), restart])
    assert life.view.state == {"last": "a", "seen": ["x"], "title": "t", "total": 1}


# --- at every commit -------------------------------------------------------------------------------------------------


class Mortal(WatchedShelf):
    """A place of storage at which the process dies when so many commits are durable."""

    life: trio.CancelScope | None = None
    left = -1

    def open(self, **options: Any) -> gr.Store:
        """As a shelf's."""
        store: Any = super().open(**options)
        submit = store.submit

        def submitted(claim: Any, commit: Commit, frames: Any, deliver: Any) -> None:
            def settled(receipt: Any) -> None:
                self.left -= receipt.kind == "committed"
                if self.left == 0 and self.life is not None:
                    self.life.cancel()
                deliver(receipt)

            submit(claim, commit, frames, settled)

        if not hasattr(store, "mortal"):
            store.mortal, store.submit = True, submitted
        return store  # type: ignore[no-any-return]


SCRIPT: Any = (
    [
        call("once", add=1, see="a", seconds=4, id="A"),
        call("keep", add=1, see="b", seconds=2, id="B"),
        call("retry", last="c", add=1, see="c", seconds=6, id="C"),
        call("retry", last="d", add=1, see="d", seconds=1, id="D"),
    ],
    [call("hold", add=1, see="e", id="E"), call("once", add=1, see="f", id="F")],
    [call("keep", id="G")],
    "done",
)


def book_keeper() -> gr.Agent[Any]:
    return agent(*SCRIPT, key="r", **BOOKS)


async def to_the_end(shelf: Mortal, mode: Any, die_after: int) -> tuple[gr.RunView, int]:
    """Live once up to a death and then to the end; whatever is asked is run (again). And how many commits it took."""
    for left in (die_after, -1):
        shelf.left = left
        with trio.CancelScope() as shelf.life:
            options: Any = {"agents": [book_keeper()], "deps": Outside(), "drain": 0}
            async with home(shelf, **options) as runtime:
                run = await runtime.start(book_keeper(), "hi", run_id="r", thread_id="t", execution=mode)
                while isinstance(outcome := await run.wait(), gr.Waiting):
                    for ticket in outcome.tickets:
                        await run.decide(ticket.approve())
                return await run.view(), len(shelf.log)
    raise AssertionError("it died twice")


@pytest.mark.slow
async def test_whenever_a_process_ends_each_write_counts_once(watched, folder, mode, sampled, autojump_clock):
    """Those of tools that may run again, and of tools that must be asked for: no writes are lost or doubled."""
    shelf = Mortal(watched.kind, folder)
    _, commits = await to_the_end(shelf, mode, -1)
    assert commits > 10
    for number in sampled(range(1, commits), 12):
        (folder / str(number)).mkdir()
        view, _ = await to_the_end(Mortal(watched.kind, folder / str(number)), mode, number)
        assert view.state["total"] == 6, f"died after commit {number}"
        assert sorted(view.state["seen"]) == list("abcdef"), f"died after commit {number}"
        last = view.state["last"]
        assert last in ("c", "d"), f"died after commit {number}"  # who ran again came after the one that had ended
        assert view.messages[-2].content.split()[:2] == [last, "6"]
