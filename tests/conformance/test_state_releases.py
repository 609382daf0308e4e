"""A release declares a state key otherwise than it is stored: the run stays as it is, and the error names the key."""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.state.declared_keys import invalid_state
from greenroom.actors.state.snapshot import StateSnapshot
from greenroom.testing import call, delay

from ..support.runs import agent, home

THREAD = gr.StateKey("notes", list[str], default=[], scope="thread")
RUN = gr.StateKey("notes", list[str], default=[], scope="run")
OTHER = gr.StateKey("notes", dict[str, int], default={}, scope="thread")


def noted(key: gr.StateKey[Any], declared: bool = True, *, ask: bool = False) -> gr.Agent[Any]:
    """An agent of one release: its tool writes the key, or reads it once something is stored."""

    @gr.tool
    async def note(ctx: gr.ToolContext[Any], text: str) -> list[str]:
        ctx.state.set(key, [*ctx.state[key], text])
        return [*ctx.state[key]]

    @gr.tool(needs_approval=True)
    async def pause() -> str:
        return "go on"

    steps = [call("note", {"text": "first"}, id="n1"), *([call("pause", id="p1")] if ask else []), "done"]
    return agent(*steps, tools=[note, pause], state=[key] if declared else [])


CHANGED = {"scope": (THREAD, RUN, "'notes' is stored with scope 'thread' and declared with scope 'run'")}
CHANGED["type"] = (THREAD, OTHER, "state key 'notes' holds a value that is no")


@pytest.mark.rule("S-11")
@pytest.mark.parametrize("what", CHANGED)
async def test_a_run_on_a_thread_whose_key_has_changed_is_refused(shelf, autojump_clock, what):
    """It read the default, and wrote a value of its own beside the one that was there."""
    before, after, words = CHANGED[what]
    async with home(shelf, agents=[noted(before)]) as runtime:
        await (await runtime.start("helper", "hi", thread_id="t")).result()
    async with home(shelf, agents=[noted(after)]) as runtime:
        run = await runtime.start("helper", "hi", run_id="r2", thread_id="t")
        with pytest.raises(gr.RunDegradedError, match="state_mismatch") as caught:
            await run.result()
        assert words in caught.value.detail
        assert "another name" in caught.value.detail
        assert (await run.view()).degraded == "state_mismatch"
    async with home(shelf, agents=[noted(before)]) as runtime:
        run = await runtime.get("r2")
        assert (await run.result()).output == "done"
        assert (await run.view()).state == {"notes": ["first", "first"]}


@pytest.mark.rule("S-12")
@pytest.mark.parametrize(("before", "after"), [(RUN, THREAD), (THREAD, RUN)], ids=["run", "thread"])
async def test_a_run_that_waits_over_a_release_is_refused_and_continues_with_the_old_one(
    shelf, autojump_clock, before, after
):
    async with home(shelf, agents=[noted(before, ask=True)]) as runtime:
        run = await runtime.start("helper", "hi", run_id="r1", thread_id="t")
        (ticket,) = (await run.wait()).tickets
    async with home(shelf, agents=[noted(after, ask=True)]) as runtime:
        run = await runtime.get("r1")
        assert (await run.decide(ticket.approve())).ok, "the decision is kept"
        with pytest.raises(gr.RunDegradedError, match="state_mismatch"):
            await run.result()
    async with home(shelf, agents=[noted(before, ask=True)]) as runtime:
        run = await runtime.get("r1")
        assert (await run.result()).output == "done"
        assert (await run.view()).state == {"notes": ["first"]}


async def test_a_run_that_waited_for_its_thread_is_refused_when_it_gets_it(shelf, autojump_clock):
    first = noted(THREAD)
    slow = attrs.evolve(agent([delay(10), call("note", {"text": "x"})], "done", key="slow"), tools=first.tools)
    slow = attrs.evolve(slow, state=first.state)
    async with home(shelf, agents=[slow, noted(RUN)]) as runtime:
        await runtime.start("slow", "hi", thread_id="t")
        run = await runtime.start("helper", "hi", thread_id="t")
        with trio.fail_after(60), pytest.raises(gr.RunDegradedError, match="state_mismatch"):
            await run.result()
        assert (await run.cancel()).ok
        assert isinstance(await run.result(), gr.Cancelled)


@pytest.mark.rule("S-13")
async def test_a_key_that_is_not_declared_is_refused_when_it_is_read(shelf, autojump_clock):
    async with home(shelf, agents=[noted(THREAD, declared=False)]) as runtime:
        await (await runtime.start("helper", "hi", thread_id="t")).result()
    async with home(shelf, agents=[noted(RUN, declared=False)]) as runtime:
        run = await runtime.start("helper", "hi", thread_id="t")
        await run.result()
        reported = (await run.view()).messages[-2]
        assert "is stored with scope 'thread' and read with scope 'run'" in str(reported)


@pytest.mark.rule("S-14")
def test_a_merge_may_change_between_releases():
    stored = StateSnapshot.restored(0, [StateWrite(key="notes", scope="thread", value=["a"])])
    merged = gr.StateKey(
        "notes", list[str], default=[], scope="thread", merge=gr.commutative(lambda old, new: old + new)
    )
    assert invalid_state([merged], stored) is None


def test_keys_of_both_scopes_and_keys_that_are_not_stored_fit():
    """Keys of both scopes that share a name, keys that are not persistent, and what no key is declared for."""
    both = StateSnapshot.restored(0, [StateWrite(key="notes", scope="thread", value=["a"])])
    assert invalid_state([THREAD, RUN], both) is None
    assert invalid_state([THREAD], both) is None
    assert invalid_state([], both) is None
    assert invalid_state([gr.StateKey("notes", int, default=0, persistent=False)], both) is None
    assert invalid_state([RUN], StateSnapshot()) is None
    assert "scope 'thread'" in (invalid_state([RUN], both) or "")
