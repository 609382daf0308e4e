"""Rules of a release that changes a tool: an approval is for the tool as it was, so people are asked again."""

import linecache
from typing import Any

import pytest
from msgspec.structs import replace

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.child_scenes import CHILD, K, in_child
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
        from greenroom.actors.stores.postgres._connect import Link
        from greenroom.actors.stores.postgres._target import PgTarget

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


# --- a release that removes the tool ---------------------------------------------------------------------------------


def removal(**options: Any) -> Act:
    """From the next process on the agent has no tool of this name."""

    async def act(scene: Scene) -> None:
        scene.agent = gr.Agent("helper", model=scene.agent.model, **{"tools": TOOLS, **options})

    return act


@pytest.mark.rule("A-29")
@pytest.mark.parametrize("asks", ["a gate", "the body"])
async def test_an_approval_of_a_tool_that_is_gone_is_refused_and_the_question_withdrawn(play, autojump_clock, asks):
    first = made(OLD) if asks == "a gate" else made(ASKS, needs_approval=False)
    do = [removal(), restart, after(5, decide("r.t1")), after(20, decide("r.t1"))]
    life = await played(play, do, first=first)
    assert life.replies[0] == "rejected fingerprint_mismatch"
    assert life.replies[1] in ("rejected run_done", "rejected already_decided")
    assert "the tool fire is not there any more" in life.scene.details[0]
    (resolved,) = life.payloads("approval.resolved")
    assert (resolved["resolution"], resolved["reason"]) == (
        "withdrawn",
        "the tool is not there any more; no approval could act",
    )
    assert [payload["reason"] for payload in life.payloads("degraded")][-1] == "tool_changed"
    assert (life.calls["B"], life.codes["B"]) == ("new suspended cancelled", "unknown_tool") or asks == "the body"
    assert (life.view.stage, life.effects) == ("completed", [])
    assert life.tool_texts["B"] == "This call was withdrawn: the tool fire is not there any more."


@pytest.mark.rule("A-29")
@pytest.mark.parametrize("on_deny", ["continue", "cancel_run"])
@pytest.mark.parametrize("target", ["r.t1", "B"])
async def test_a_denial_needs_no_tool(play, autojump_clock, on_deny, target):
    do = [removal(on_deny=on_deny), restart, after(5, decide(target, "cancel", reason="no"))]
    life = await played(play, do)
    assert (life.replies, life.effects) == (["accepted"], [])
    assert life.tickets == {"r.t1": ("tool_permission", "denied")}
    assert life.view.stage == ("completed" if on_deny == "continue" else "cancelled")


@pytest.mark.rule("A-30")
async def test_a_result_needs_no_tool(play, autojump_clock):
    """The answer of a person is the call's result; no body runs."""
    first = made(ASKS.replace('message="where?"', 'resume_mode="use_decision_as_tool_result"'), needs_approval=False)
    life = await played(play, [removal(), restart, after(5, decide("r.t1", result="there"))], first=first)
    assert (life.replies, life.tool_texts["B"], life.view.stage) == (["accepted"], "there", "completed")


@pytest.mark.rule("A-30")
async def test_the_outcome_of_a_body_whose_tool_is_gone_can_be_given_and_not_tried_again(play, autojump_clock):
    do = [
        after(2, removal()),
        after(0, restart),
        after(20, decide("r.t1")),
        after(1, decide("r.t1", result="it took effect")),
    ]
    life = await played(play, do, first=made(OLD, needs_approval=False))
    assert life.replies == ["rejected fingerprint_mismatch", "accepted"]
    assert "give the result, or deny" in life.scene.details[0]
    assert (life.tool_texts["B"], life.view.stage) == ("it took effect", "completed")


@pytest.mark.rule("A-29")
@pytest.mark.parametrize("mode", ["parallel_batch_approval"])
async def test_the_decisions_of_a_batch_act_without_the_call_whose_tool_is_gone(play, autojump_clock):
    step = [B, call("sign", id="S"), call("sign", id="D")]
    do = [approve("S"), removal(), restart, after(5, decide("r.t1")), approve("D")]
    life = await played(play, do, step=step)
    assert (life.replies, sorted(life.effects)) == (
        ["accepted", "rejected fingerprint_mismatch", "accepted"],
        ["D", "S"],
    )
    assert life.codes["B"] == "unknown_tool"


@pytest.mark.rule("A-29")
async def test_a_tool_that_comes_back_before_its_run_has_an_owner_is_the_tool_that_was_shown(play, autojump_clock):
    do = [removal(), restart, after(5, release(made(OLD))), after(5, restart), approve("B")]  # a wait would be an owner
    life = await played(play, do)
    assert (life.replies, life.tool_texts["B"], list(life.tickets)) == (["accepted"], "old: a", ["r.t1"])


# --- a tool of a child run -------------------------------------------------------------------------------------------


def inside(*tools: Any, key: str = "expert") -> Any:
    """The agent of a child run, as a tool."""
    return gr.Agent(key, model=ScriptedModel([B, "fired"]), tools=[*TOOLS, *tools]).as_tool()


@pytest.mark.rule("A-29", "CR-31")
@pytest.mark.parametrize("what", ["the code", "a parameter", "gone"])
@pytest.mark.parametrize("to", ["mirror", "child"])
async def test_a_question_of_a_child_run_is_asked_again_or_withdrawn(play, autojump_clock, what, to):
    """Whichever of the two tickets is decided: it is refused, and the parent shows what becomes of the question."""
    tools = [] if what == "gone" else [NEXT[what]]
    decides = decide("r.t1") if to == "mirror" else in_child(f"{CHILD}.t1")
    do = [release(inside(*tools)), restart, after(5, decides)]
    do += [] if what == "gone" else [after(30, decide("r.t2"))]
    life = await play(K, "done", tools=[*TOOLS, inside(made(OLD))], do=do)
    assert life.replies[0] == "rejected fingerprint_mismatch"
    assert life.tickets["r.t1"] == ("child_approval", "withdrawn")
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "fired")
    assert life.effects == ([] if what == "gone" else ["B"])
    reasons = [payload.get("reason", "") for payload in life.payloads("approval.resolved")]
    assert "the tool" in reasons[0]


@pytest.mark.rule("A-29", "CR-31")
@pytest.mark.parametrize("what", ["the code", "gone"])
async def test_a_question_of_a_child_run_can_be_denied_whatever_its_tool_is(play, autojump_clock, what):
    tools = [] if what == "gone" else [NEXT[what]]
    do = [release(inside(*tools)), restart, after(5, decide("r.t1", "cancel", reason="no"))]
    life = await play(K, "done", tools=[*TOOLS, inside(made(OLD))], do=do)
    assert (life.replies, life.effects) == (["accepted"], [])
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "fired")
