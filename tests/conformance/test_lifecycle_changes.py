"""Rules of a release that changes a tool: an approval is for the tool as it was, so people are asked again."""

import linecache
from typing import Any

import pytest
from msgspec.structs import replace

import greenroom as gr
from greenroom.testing import call

from ..support.runs import LIVE, SERVED
from ..support.scene_tools import TOOLS
from ..support.scenes import Act, Scene, after, approve, decide, deny, pause, restart

B = call("fire", target="a", id="B")
OLD = """
async def fire(ctx, target: str) -> str:
    \"\"\"Fire at a target.\"\"\"
    await ctx.deps.work(ctx)
    return f"old: {target}"
"""
ASKS = """
import greenroom as gr
async def fire(ctx, target: str) -> str:
    if ctx.decision is None:
        raise gr.Suspend(message="where?")
    return f"{ctx.decision.result}!"
"""
NEW = OLD.replace("old:", "new:")
FORGING = ("test_a_call_of_an_older_release_whose_definition_is_not_known_continues",)
"""Scenes that write rows of which the record does not know."""


def made(source: str, **options: Any) -> Any:
    """A tool of this source, as if a file held it."""
    name = f"<release {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)  # noqa: S102 - the source is above
    return gr.tool(space["fire"], **{"needs_approval": True, "effect": "write", **options})


def release(tool: Any, **options: Any) -> Act:
    """From the next process on the agent has this tool in place of its old one."""

    async def act(scene: Scene) -> None:
        tools = [*TOOLS, tool]
        model = scene.agent.model
        scene.agent = gr.Agent("helper", model=model, **{"tools": tools, **options})

    return act


async def played(play: Any, do: Any, *, first: Any = None, step: Any = (B,), **options: Any) -> Any:
    """A scene whose agent begins with the old tool."""
    tools = [*TOOLS, made(OLD) if first is None else first]
    return await play(list(step), "done", do=do, tools=tools, **options)


NEXT: dict[str, Any] = {
    "the code": made(NEW),
    "a parameter": made(OLD.replace("target: str", "target: str, hard: bool = False")),
    "the description": made(OLD, description="Fire at will."),
    "the effect": made(OLD, effect="publish"),
    "what a crash means": made(OLD, replay="safe"),
}


@pytest.mark.rule("A-11")
@pytest.mark.parametrize("what", NEXT)
async def test_who_had_been_asked_is_asked_again_with_a_new_ticket(play, autojump_clock, what):
    """The old ticket is withdrawn, and an approval of it is not one of the new action."""
    old: list[gr.Ticket] = []

    async def keep(scene: Scene) -> None:
        old.append(await scene.ticket("B"))

    async def too_late(scene: Scene) -> None:
        scene.note(await scene.run.decide(old[0].approve(by="ada")))

    life = await played(play, [keep, release(NEXT[what]), restart, too_late, approve("B")])
    assert life.replies == ["rejected fingerprint_mismatch", "accepted"]
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn"), "r.t2": ("tool_permission", "approved")}
    (reason,) = [payload["reason"] for payload in life.payloads("approval.resolved") if payload["ticketId"] == "r.t1"]
    assert reason == "the tool's definition has changed; the question is asked again"
    assert life.tool_texts["B"] == ("new: a" if what == "the code" else "old: a")
    assert [payload["reason"] for payload in life.payloads("degraded")][-1] == "tool_changed"
    first, second = life.record.tickets
    assert (second.replaces, second.fingerprint == first.fingerprint) == ("r.t1", False)


async def test_the_same_tool_is_not_asked_about_again(play, autojump_clock):
    """Another object of the same text, as each process has one."""
    life = await played(play, [release(made(OLD)), restart, approve("B")])
    assert (life.replies, list(life.tickets)) == (["accepted"], ["r.t1"])
    assert life.tool_texts["B"] == "old: a"
    assert "degraded" not in life.types


async def test_a_decision_that_comes_before_anyone_has_looked_is_refused_too(play, autojump_clock):
    """No command has woken the run since the release: the judge knows the present tools."""
    do = [release(made(NEW)), restart, after(5, decide("r.t1")), approve("B")]
    life = await played(play, do)
    assert life.replies == ["rejected fingerprint_mismatch", "accepted"]
    assert life.tool_texts["B"] == "new: a"


@pytest.mark.rule("A-13")
async def test_a_denial_is_for_whatever_the_tool_would_do(play, autojump_clock):
    do = [release(made(NEW)), restart, after(5, decide("r.t1", "cancel", reason="no"))]
    life = await played(play, do)
    assert (life.replies[0], life.effects) == ("accepted", [])


@pytest.mark.rule("A-12")
@pytest.mark.parametrize("mode", ["parallel_batch_approval"])
async def test_an_approval_that_has_not_acted_is_asked_for_again(play, autojump_clock):
    """It waited for the other decision of its batch when the release came; a denial of it is kept."""
    step = [B, call("fire", target="b", id="D"), call("sign", id="S")]
    do = [approve("B"), deny("D", "no"), release(made(NEW)), restart, approve("S"), approve("B")]
    life = await played(play, do, step=step)
    assert life.calls["B"] == "new suspended resuming running succeeded"
    assert (life.tool_texts["B"], life.tool_texts["D"]) == ("new: a", "The reviewer denied this call: no")


async def test_an_approved_call_that_waits_for_its_turn_is_asked_about_again(play, autojump_clock):
    first = made(OLD, concurrency="exclusive")
    do = [after(1, decide("B")), after(1, release(made(NEW, concurrency="exclusive"))), after(0, restart)]
    step = [call("look", seconds=100, id="L"), B]
    life = await played(play, [*do, approve("B")], first=first, step=step)
    assert life.tool_texts == {"L": "saw L", "B": "new: a"}
    assert [how for _, how in life.tickets.values()] == ["approved", "approved"]


async def test_an_approved_body_that_may_be_repeated_waits_for_a_new_approval(play, autojump_clock):
    """The process ended in the body: the approval was for the tool as it was."""
    first, second = made(OLD, replay="safe"), made(NEW, replay="safe")
    do = [approve("B"), after(2, release(second)), after(0, restart), pause(100), approve("B")]
    life = await played(play, do, first=first)
    assert (life.tool_texts["B"], life.effects) == ("new: a", ["B"])
    assert [how for _, how in life.tickets.values()] == ["approved", "approved"]


@pytest.mark.parametrize("mode", ["sequential"])
async def test_a_call_that_needed_no_approval_is_looked_at_again(play, autojump_clock):
    """It stood behind another one; the release says that people have to be asked."""
    step = [call("ask", id="Q"), B]
    do = [release(made(NEW)), restart, approve("Q", "x"), approve("B")]
    life = await played(play, do, first=made(OLD, needs_approval=False), step=step)
    assert life.tool_texts["B"] == "new: a"
    assert [reason for reason, _ in life.tickets.values()].count("tool_permission") == 1


@pytest.mark.rule("A-15")
async def test_a_call_of_an_older_release_whose_definition_is_not_known_continues(play, autojump_clock):
    """Rows that were written before there were marks: their tickets stay as they are."""

    async def forget(scene: Scene) -> None:
        await forge(scene)

    life = await played(play, [forget, release(made(NEW)), restart, approve("B")])
    assert (life.replies, list(life.tickets)) == (["accepted"], ["r.t1"])


async def forge(scene: Scene) -> None:
    """Write the call as a release without marks would have."""
    scene.forged = True
    shelf = scene.play.shelf
    record = await scene.runtime.store.load("r")
    assert record is not None
    (row,) = record.calls
    older = replace(row, definition="")
    if shelf.kind == "sqlite":
        import sqlite3
        from contextlib import closing

        from greenroom.actors.contract import codec

        with closing(sqlite3.connect(shelf.path)) as file, file:
            file.execute("UPDATE calls SET body = ? WHERE call_id = 'B'", (codec.dump(older),))
    elif shelf.kind in (SERVED, LIVE):
        from contextlib import closing

        from greenroom.actors.contract import codec
        from greenroom.actors.stores._pg_connect import Link
        from greenroom.actors.stores._pg_target import PgTarget

        with closing(Link(PgTarget.parse(shelf.url), "forges")) as link:
            link.execute("UPDATE {s}.calls SET body = %s WHERE call_id = 'B'", (codec.dump(older),))
    else:
        scene.runtime.store._ledger.runs["r"].calls["B"] = older  # type: ignore[attr-defined]


async def test_a_question_of_a_body_is_asked_again_too(play, autojump_clock):
    """The code that continues with the answer is another one."""
    do = [release(made(ASKS, needs_approval=False)), restart, after(5, decide("r.t1", result="x"))]
    first = made(ASKS.replace("}!", "}?"), needs_approval=False)
    life = await played(play, [*do, approve("B", "here")], first=first)
    assert life.replies == ["rejected fingerprint_mismatch", "accepted"]
    assert life.tool_texts["B"] == "here!"
