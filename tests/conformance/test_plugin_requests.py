"""Rules of request changes: what before_inference puts in, takes out and overrides, for one step and no longer."""

from itertools import count
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.open_models import OpenModels
from greenroom.testing import call, delay, fail

from ..support.scene_plugins import Scripted, diary, gate, scripted
from ..support.scenes import Down, Life, after, approve, decide, deny, restart, send

B, C = call("sign", id="B"), call("look", id="C")


def asking(mutation: gr.Mutation, *, step: int = 1, name: str = "x") -> Scripted:
    """A plugin that asks for this in one step."""
    return scripted(name, before_inference=lambda ctx: mutation if ctx.step == step else None)


def sent(life: Life, number: int = 0) -> list[str]:
    """What the model was sent: role and content of each message."""
    return [f"{message.role}: {message.content}" for message in life.requests[number].messages]


def offered(life: Life, number: int = 0) -> set[str]:
    """The tools that the model was offered."""
    return {tool.name for tool in life.requests[number].tools}


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-19")
async def test_each_placement_is_where_its_name_says(play, autojump_clock):
    made = gr.Mutation()
    for placement in ("suffix", "conversation", "session", "system"):
        made = made.add_message(placement, placement=placement)  # type: ignore[arg-type]
    life = await play([C], "done", ask="first", plugins=[asking(made)], instructions="Be good.")
    assert sent(life) == [
        "system: Be good.",
        "system: system",
        "system: session",
        "system: conversation",
        "user: first",
        "system: suffix",
    ]


async def test_conversation_is_before_the_newest_message_of_the_user(play, autojump_clock):
    """Behind it may stand calls and their results, which nothing may tear apart."""
    made = gr.Mutation().add_message("here", placement="conversation", role="user").add_message("last")
    life = await play([B], [C], "done", do=[send("and now"), approve("B")], plugins=[asking(made, step=3)])
    roles = [line.split(":")[0] if "here" not in line and "last" not in line else line for line in sent(life, 2)]
    assert roles == ["user", "assistant", "tool", "user: here", "user", "assistant", "tool", "system: last"]


@pytest.mark.rule("P-19")
async def test_within_a_placement_the_lower_priority_comes_first_and_equals_in_the_plugins_order(play, autojump_clock):
    one = gr.Mutation().add_message("a1", priority=1).add_message("a0").add_message("a9", priority=9)
    two = gr.Mutation().add_message("b-1", priority=-1).add_message("b1", priority=1)
    life = await play("done", plugins=[asking(one, name="a"), asking(two, name="b")])
    assert sent(life) == ["user: hi", *(f"system: {name}" for name in ("b-1", "a0", "a1", "b1", "a9"))]


@pytest.mark.rule("P-18")
async def test_what_is_put_into_a_request_is_in_no_history(play, autojump_clock):
    life = await play([C], "done", plugins=[asking(gr.Mutation().add_message("psst", role="user"))])
    assert life.history == ["user: hi", "assistant: (C)", "C: saw C", "assistant: done"]
    assert "user: psst" in sent(life, 0)
    assert not any("psst" in line for line in sent(life, 1))


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-20")
async def test_what_is_included_is_all_that_is_offered_and_of_several_hooks_together(play, autojump_clock):
    plugins = [
        asking(gr.Mutation().include_tools("look"), name="a"),
        asking(gr.Mutation().include_tools("pay"), name="b"),
    ]
    life = await play([C], "done", plugins=plugins)
    assert offered(life) == {"look", "pay"}
    assert len(offered(life, 1)) > 2


@pytest.mark.rule("P-20")
async def test_excluded_tools_are_not_offered_whichever_hook_includes_them(play, autojump_clock):
    plugins = [
        asking(gr.Mutation().exclude_tools("pay"), name="a"),
        asking(gr.Mutation().include_tools("look", "pay"), name="b"),
    ]
    assert offered(await play("done", plugins=plugins)) == {"look"}


async def test_nothing_is_offered_if_nothing_is_included(play, autojump_clock):
    assert offered(await play("done", plugins=[asking(gr.Mutation().include_tools())])) == set()


@pytest.mark.rule("P-21")
@pytest.mark.parametrize("made", [gr.Mutation().exclude_tools("look"), gr.Mutation().include_tools("pay")])
async def test_a_tool_that_was_not_offered_is_refused_and_the_run_continues(play, autojump_clock, made):
    asked: list[str] = []
    gates = gate("g", lambda ctx: asked.append(ctx.call_id))
    life = await play([C], [call("look", id="D")], "done", plugins=[asking(made), gates])
    assert (life.codes["C"], life.tool_texts["C"]) == ("unknown_tool", "The tool 'look' is not available in this step.")
    assert (life.calls["C"], life.calls["D"]) == ("new failed", "new running succeeded")
    assert (asked, life.effects) == (["D"], ["D"])


async def test_a_call_that_was_offered_runs_after_a_decision_and_a_restart(play, autojump_clock):
    """The changes are of its step, however long that takes."""
    life = await play([B, C], "done", do=[restart, approve("B")], plugins=[asking(gr.Mutation().include_tools("sign"))])
    assert life.effects == ["B"]
    assert life.codes["C"] == "unknown_tool"


# --- settings and model ----------------------------------------------------------------------------------------------


@pytest.mark.rule("P-22")
async def test_overrides_go_over_the_agent_s_settings_field_by_field(play, autojump_clock):
    plugins = [
        asking(gr.Mutation().override(temperature=0, top_p=1), name="a"),
        asking(gr.Mutation().override(temperature=2).override(seed=7), name="b"),
    ]
    life = await play([C], "done", plugins=plugins, settings={"temperature": 1, "max_tokens": 9})
    assert dict(life.requests[0].settings) == {"temperature": 2, "top_p": 1, "seed": 7, "max_tokens": 9}
    assert dict(life.requests[1].settings) == {"temperature": 1, "max_tokens": 9}


async def test_another_model_that_is_not_there_is_the_plugin_s_failure(play, autojump_clock):
    life = await play("done", plugins=[asking(gr.Mutation().override(model="nobody:x1"))])
    assert life.end["code"] == "plugin_error"
    assert "plugin 'x' in before_inference: no provider is installed for model 'nobody:x1'" in life.end["message"]


async def test_another_model_that_is_gone_when_it_is_asked_is_a_failure_of_the_model(play, autojump_clock, monkeypatch):
    """Its provider was there when the hook named it: the row continues to name it after a restart without it."""
    named, times = OpenModels.named, count()
    monkeypatch.setattr(OpenModels, "named", lambda self, name: None if next(times) == 0 else named(self, name))
    life = await play("done", plugins=[asking(gr.Mutation().override(model="nobody:x1"))])
    assert life.end["code"] == "model_error"
    assert "no provider is installed for model 'nobody:x1'" in life.end["message"]


# --- for this step only, and for all of it ---------------------------------------------------------------------------

CHANGES = gr.Mutation().add_message("Be brief.").exclude_tools("pay").override(temperature=0)


def changed(life: Life) -> list[bool]:
    """Per request: whether it has all of the changes; one that has some of them is a fault."""
    found = []
    for number, request in enumerate(life.requests):
        signs = {"system: Be brief." in sent(life, number), "pay" not in offered(life, number), bool(request.settings)}
        assert len(signs) == 1, sent(life, number)
        found.append(signs.pop())
    return found


@pytest.mark.rule("P-24")
async def test_changes_are_for_one_step(play, autojump_clock):
    life = await play([C], [C], "done", plugins=[asking(CHANGES, step=2)])
    assert changed(life) == [False, True, False]


@pytest.mark.rule("P-23")
async def test_a_model_that_is_asked_again_gets_the_same_changes(play, autojump_clock):
    life = await play(fail("overloaded"), [C], "done", plugins=[asking(CHANGES)])
    assert changed(life) == [True, True, False]


@pytest.mark.rule("P-23")
@pytest.mark.parametrize("away", [0.0, 1000.0])
async def test_a_process_that_dies_before_the_answer_loses_no_change_and_asks_no_hook_again(play, autojump_clock, away):
    book = diary("before_inference", before_inference=lambda ctx: CHANGES if ctx.step == 1 else None)
    life = await play([delay(10), C], "done", do=[after(5, Down(away))], plugins=[book])
    assert changed(life) == [True, True, False]
    assert book.count("before_inference") == 2


async def test_changes_end_with_their_step_also_if_the_plugin_is_not_there_any_more(play, autojump_clock):
    async def without(scene: Any) -> None:
        scene.agent = play.agent([B], "done")

    life = await play([B], "done", do=[without, restart, approve("B")], plugins=[asking(CHANGES)])
    assert changed(life) == [False]
    assert life.outcome.output == "done"


async def test_an_answer_of_the_wrong_form_is_asked_for_in_a_step_of_its_own(play, autojump_clock):
    life = await play("one", "1", output_type=int, plugins=[asking(CHANGES)])
    assert changed(life) == [True, False]


# --- calls -----------------------------------------------------------------------------------------------------------


def after_answer(mutation: gr.Mutation) -> Scripted:
    """A plugin that asks for this about the calls of the first step."""
    return scripted("x", after_inference=lambda ctx: mutation if ctx.step == 1 else None)


@pytest.mark.rule("P-25")
async def test_an_edited_call_runs_with_the_new_arguments_and_the_model_reads_why(play, autojump_clock):
    life = await play([C], "done", plugins=[after_answer(gr.Mutation().edit_call("C", {"at": "there"}))])
    assert life.tool_texts["C"] == "(The arguments were changed to {'at': 'there'} before the call ran.)\nsaw there"
    assert life.scene.outside.started == [("C", 1, {"at": "there"})]
    assert dict(life.view.messages[1].calls[0].arguments) == {}
    (edited,) = life.payloads("tool.edited")
    assert (edited["callId"], dict(edited["arguments"]), edited["by"]) == ("C", {"at": "there"}, "x")


@pytest.mark.rule("P-25")
async def test_an_edited_call_is_gated_and_approved_as_it_will_run(play, autojump_clock):
    seen: list[Any] = []
    plugins = [
        after_answer(gr.Mutation().edit_call("B", {"cents": 5})),
        gate("g", lambda ctx: seen.append(dict(ctx.arguments))),
    ]
    life = await play([B], "done", do=[restart, approve("B")], plugins=plugins)
    assert seen == [{"cents": 5}, {"cents": 5}]
    assert life.scene.outside.started == [("B", 1, {"cents": 5})]
    (asked,) = life.payloads("approval.requested")
    assert dict(asked["arguments"]) == {"cents": 5}


async def test_an_edited_call_that_did_not_run_does_not_say_that_it_did(play, autojump_clock):
    edit = scripted("x", after_inference=lambda ctx: gr.Mutation().edit_call("B", {"cents": 5}) if ctx.calls else None)
    life = await play([call("sign", id="B")], "done", do=[deny("B")], plugins=[edit])
    assert life.tool_texts["B"] == "(The arguments were changed to {'cents': 5}.)\nThe reviewer denied this call."


@pytest.mark.parametrize("action", ["resume", "cancel"])
async def test_a_decision_that_came_before_an_edit_is_not_about_the_edited_call(play, autojump_clock, action):
    """An early decision is bound to what the call was at that moment; the ticket stays open and an event says why."""

    async def edits(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(5)
        return gr.Mutation().edit_call("A", {"cents": 1000})

    plugin = scripted("edits", after_inference=lambda ctx: edits(ctx) if ctx.calls else None)
    life = await play([call("pay", id="A")], "done", plugins=[plugin], do=[after(2, decide("A", action))])
    assert (life.replies, life.effects) == (["accepted early"], [])
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["fingerprint_mismatch"]
    assert life.tickets == {"r.t1": ("tool_permission", "open")}


async def test_edited_arguments_that_do_not_fit_fail_the_call_as_the_model_s_would(play, autojump_clock):
    life = await play([C], "done", plugins=[after_answer(gr.Mutation().edit_call("C", {"seconds": "x"}))])
    assert (life.codes["C"], life.effects) == ("invalid_arguments", [])


async def test_dropped_and_edited_calls_keep_the_history_valid(play, autojump_clock):
    step = [call("look", id=name) for name in "WXYZ"]
    made = gr.Mutation().drop_call("W").edit_call("X", {"at": "x"}).drop_call("Z", "Not Z.")
    life = await play(step, "done", plugins=[after_answer(made)])
    assert set(life.effects) == {"X", "Y"}
    assert list(life.tool_texts) == ["W", "X", "Y", "Z"]
    assert (life.tool_texts["W"], life.tool_texts["Z"]) == ("This call was dropped before it ran.", "Not Z.")
    assert life.codes["W"] == life.codes["Z"] == "dropped"


async def test_what_was_edited_stays_so_through_a_restart(play, autojump_clock):
    plugins = [after_answer(gr.Mutation().edit_call("C", {"at": "x"}).drop_call("B"))]
    life = await play([B, C], "done", do=[after(2, restart)], plugins=plugins)
    assert (life.calls["B"], life.effects) == ("new cancelled", ["C"])
    assert "saw x" in life.tool_texts["C"]
