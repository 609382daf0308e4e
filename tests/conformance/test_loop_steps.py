"""Scenes of docs/loop.md: what one step comes to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.messages import CallRequest
from greenroom.testing import call, delay, fail, malformed, refuse, text

from ..support.scene_plugins import gate, scripted
from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Life, after, approve, restart

A, C = call("pay", id="A"), call("look", id="C")
SEVERAL = [[C, call("note", id="N")], "done"]


def request_order(life: Life) -> list[str]:
    """Which calls the model reads of, in the order of its request."""
    return [message.call_id or "" for message in life.requests[-1].messages if message.role == "tool"]


# --- what follows ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-1")
async def test_a_run_waits_once_everything_that_may_run_has_run(play, autojump_clock):
    life = await play([A, C, call("sign", id="B")], "done")
    assert life.path == "running waiting"
    assert life.calls == {"A": "new suspended", "C": "new running succeeded", "B": "new suspended"}
    (rest,) = life.payloads("waiting")
    assert list(rest["tickets"]) == ["r.t1", "r.t2"]


@pytest.mark.rule("LO-1", "LO-3")
async def test_after_the_decision_the_step_comes_to_what_its_calls_say(play, autojump_clock):
    life = await play([A, C], "done", do=[restart, approve("A")])
    assert (life.outcome.output, len(life.requests)) == ("done", 2)
    assert request_order(life) == ["A", "C"]


@pytest.mark.rule("LO-2")
@pytest.mark.parametrize("use", ["stop_on_first_tool", gr.stop_at_tools("note")])
async def test_a_result_is_the_output_and_no_other_request_is_made(play, autojump_clock, use):
    life = await play(*SEVERAL, tool_use=use)
    assert life.outcome.output == ("saw C" if use == "stop_on_first_tool" else "noted N")
    assert (len(life.requests), life.outcome.termination.kind.value) == (1, "natural_end")


@pytest.mark.rule("LO-2", "LO-1")
async def test_a_result_is_no_output_while_another_call_waits(play, autojump_clock):
    life = await play([C, A], do=[approve("A")], tool_use="stop_on_first_tool")
    assert life.path == "running waiting applying running completed"
    assert life.outcome.output == "saw C"


@pytest.mark.rule("LO-3")
@pytest.mark.parametrize("one", [C, call("fails", id="C"), call("nothing", id="C"), malformed("look", "{", id="C")])
async def test_any_call_is_followed_by_another_step_whatever_it_came_to(play, autojump_clock, one):
    life = await play(one, "done")
    assert (len(life.requests), life.outcome.output) == (2, "done")


@pytest.mark.rule("LO-4")
@pytest.mark.parametrize("after_tool", [False, True])
async def test_an_empty_answer_ends_the_run_also_after_a_tool(play, autojump_clock, after_tool):
    life = await play(*([C] if after_tool else []), [], "never asked for")
    assert (life.outcome.output, len(life.requests)) == ("", 1 + after_tool)
    assert life.history[-1] == "assistant:"


@pytest.mark.rule("LO-4", "LO-5")
async def test_the_last_of_several_texts_is_the_output_and_all_are_one_message(play, autojump_clock):
    life = await play([text("first, "), text("second")])
    assert life.outcome.output == "second"
    assert life.history == ["user: hi", "assistant: first, second"]
    assert [payload["text"] for payload in life.payloads("message.completed")] == ["first, second"]


@pytest.mark.rule("LO-5")
@pytest.mark.parametrize("one", [C, call("fails", id="C"), A])
async def test_text_beside_a_call_is_never_the_answer(play, autojump_clock, one):
    """Not even if the text has the demanded form."""
    life = await play(
        [text("1"), one, text("2")], "3", output_type=int, do=[approve("A")] if one is A else [], output_retries=0
    )
    assert life.outcome.output == 3
    assert life.history[1].startswith("assistant: 12 (")


# --- calls of one answer ---------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-6")
async def test_one_id_with_one_payload_is_one_call(play, autojump_clock):
    life = await play([C, call("note", id="N"), C], "done")
    assert (list(life.calls), life.effects.count("C")) == (["C", "N"], 1)


@pytest.mark.rule("LO-6")
@pytest.mark.parametrize(
    "other", [call("look", at="b", id="C"), call("note", id="C"), malformed("look", "{", id="C")], ids=str
)
async def test_one_id_with_two_payloads_fails_the_run_before_anything_ran(play, autojump_clock, other):
    life = await play([text("both"), C, call("write", id="W"), other], "done")
    assert (life.outcome.code, life.calls, life.effects) == ("model_behavior_error", {}, [])
    assert "'C'" in life.outcome.message
    assert life.history == ["user: hi"]


@pytest.mark.rule("LO-7")
async def test_an_id_of_an_earlier_answer_is_another_call(play, autojump_clock):
    life = await play(C, call("look", at="b", id="C"), C, "done")
    assert life.tool_texts == {"C": "saw C", "C#2": "saw b", "C#3": "saw C#3"}


def _seen(seen: list[Any]) -> Any:
    @gr.tool(needs_approval=lambda _, arguments: bool(seen.append(arguments["cents"])))
    async def spend(ctx: Context, cents: int = 1) -> str:
        """Spend money."""
        return f"spent {cents}"

    return spend


@pytest.mark.rule("LO-8")
async def test_predicates_and_gates_see_valid_arguments_only(play, autojump_clock):
    seen: list[Any] = []
    watch = gate("watch", lambda ctx: seen.append(ctx.call.arguments["cents"]))
    calls = [
        call("spend", cents="many", id="X"),
        malformed("spend", "[1]", id="Y"),
        call("spend", cents=7, id="Z"),
        call("spend", euros=7, id="U"),
    ]
    life = await play(calls, "done", tools=[_seen(seen)], plugins=[watch])
    assert seen == [7, 7]
    assert life.codes == {"X": "invalid_arguments", "Y": "invalid_arguments", "Z": None, "U": "invalid_arguments"}


@pytest.mark.rule("LO-9")
@pytest.mark.parametrize(
    ("given", "why"),
    [('{"at": ', "not JSON"), ("[1]", "an array"), ('"x"', "a string"), ("7", "a number"), ("true", "a boolean")],
)
async def test_arguments_that_are_no_object_fail_the_call_and_the_model_reads_why(play, autojump_clock, given, why):
    life = await play([malformed("look", given, id="X"), C], "done")
    assert (life.codes["X"], life.codes["C"], life.effects) == ("invalid_arguments", None, ["C"])
    assert why in life.tool_texts["X"]


@pytest.mark.rule("LO-9")
@pytest.mark.parametrize("given", [None, "", "  ", "null", b"null"])
def test_no_arguments_are_an_empty_object(given: Any) -> None:
    made = CallRequest.from_json("look", given, call_id="C")
    assert (made.arguments, made.fault) == ({}, None)


@pytest.mark.rule("LO-10")
async def test_calls_of_an_answer_that_broke_never_run(play, autojump_clock):
    life = await play([text("I will pay"), call("write", id="W"), delay(1), fail("overloaded")], " nothing.")
    assert (life.calls, life.effects, life.outcome.output) == ({}, [], "I will pay nothing.")


@pytest.mark.rule("LO-10")
async def test_calls_of_an_answer_that_a_crash_cut_never_run(play, autojump_clock):
    life = await play([call("write", id="W"), delay(10)], "done", do=[after(5, restart)])
    assert life.effects == ["W"], "the answer was given anew, whole, and its call ran once"
    assert len(life.payloads("tool.call")) == 1


# --- failures --------------------------------------------------------------------------------------------------------

PARALLEL = ["parallel_batch_approval", "parallel_streaming"]


@gr.tool(on_error="raise", grace=20.0)
async def cracks(ctx: Context, fails_after: float = 10.0, cleans_for: float = 0.0) -> str:
    """Fails after a while, or in its clean-up."""
    try:
        await trio.sleep(fails_after)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(cleans_for)
        ctx.deps.effects.append(f"{ctx.call_id} cleaned up")
        raise RuntimeError(f"{ctx.call_id} is broken")


@pytest.mark.rule("LO-11")
@pytest.mark.parametrize("mode", PARALLEL)
async def test_of_several_failures_the_first_in_the_models_order_is_reported(play, autojump_clock):
    """The second fails first; the first fails while it is cancelled, and both have ended before the run has."""
    calls = [
        call("cracks", id="first", fails_after=100, cleans_for=3),
        call("cracks", id="second", fails_after=5),
        call("look", id="third", seconds=50),
    ]
    life = await play(calls, "never", tools=[*TOOLS, cracks])
    assert (life.outcome.code, life.outcome.message) == ("tool_error", "cracks: RuntimeError: first is broken")
    assert life.calls == {
        "first": "new running failed",
        "second": "new running failed",
        "third": "new running cancelled",
    }
    assert life.effects == ["second cleaned up", "first cleaned up"]
    assert life.seconds("failed") == 8
    failed = next(payload for payload in life.payloads("tool.result") if payload["callId"] == "first")
    assert life.end["errorId"] == failed["errorId"]


@pytest.mark.rule("LO-11")
async def test_the_message_of_a_failure_names_the_tool(play, autojump_clock):
    life = await play([C, call("breaks", id="X"), call("note", id="N")], "never")
    assert (life.outcome.code, life.outcome.message) == ("tool_error", "breaks: RuntimeError: beyond repair")
    assert life.calls["N"] in ("new cancelled", "new running cancelled", "new running succeeded")


@pytest.mark.rule("LO-12")
async def test_a_refusal_alone_fails_the_run_at_once(play, autojump_clock):
    life = await play(refuse("I will not"), "never asked for")
    assert (life.outcome.code, life.outcome.message, len(life.requests)) == ("model_refusal", "I will not", 1)


class Says(gr.Model):
    """Streams a text and answers, the same whenever it is asked before a tool has answered; then it is done."""

    name = "says"

    def __init__(self, streamed: str, **answer: Any) -> None:
        self.streamed, self.answer = streamed, gr.ModelResponse(**answer)
        self.requests: list[gr.ModelRequest] = []

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        """Answer."""
        self.requests.append(request)

        async def events() -> AsyncIterator[gr.ModelEvent]:
            if request.messages[-1].role == "tool":
                yield gr.ModelResponse(text=("done",))
            else:
                yield gr.TextDelta(self.streamed)
                await trio.sleep(1)
                yield self.answer

        yield events()


@pytest.mark.rule("LO-13")
@pytest.mark.parametrize("with_call", [False, True])
async def test_what_comes_beside_a_refusal_wins(play, autojump_clock, with_call):
    calls = (CallRequest(call_id="C", tool="look", arguments={}),) if with_call else ()
    life = await play(model=Says("but this", text=("but this",), calls=calls, refusal="I will not"))
    assert life.outcome.output == ("done" if with_call else "but this")


@pytest.mark.rule("LO-13")
async def test_a_text_that_its_provider_takes_back_is_not_used(play, autojump_clock):
    """A provider says so with a refusal that has no text beside it; what was streamed is discarded."""
    life = await play(model=Says("How to", refusal="not that", finish="refusal"))
    assert (life.outcome.code, life.outcome.message) == ("model_refusal", "not that")
    assert len(life.payloads("message.discarded")) == len(life.payloads("message.delta")) == 1
    assert life.history == ["user: hi"]


# --- messages --------------------------------------------------------------------------------------------------------

ANSWERS = {
    "a text": ["said"],
    "an empty answer": [[]],
    "a text beside a call": [[text("said"), C], "done"],
    "a text beside a call that waits": [[text("said"), A]],
    "a call alone": [C, "done"],
    "a broken text": [[text("sa"), delay(1), fail("overloaded")], "said"],
    "a broken text for good": [[text("sa"), fail("unauthorized")]],
    "a refusal": [refuse("no")],
    "a text whose calls are unusable": [[text("said"), C, call("note", id="C")]],
    "a wrong form": ["one", "1"],
    "a failing tool": [[text("said"), call("breaks", id="X")]],
}


@pytest.mark.rule("LO-14")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
@pytest.mark.parametrize("stop", [False, True], ids=["", "hook fails"])
async def test_a_message_that_showed_a_delta_ends_once_and_what_is_complete_stays(play, autojump_clock, answer, stop):
    def trip(_: Any) -> None:
        raise RuntimeError("no further")

    plugins = [scripted("stops", after_inference=trip)] if stop else []
    life = await play(*answer, plugins=plugins, output_type=int if answer is ANSWERS["a wrong form"] else str)
    shown = {payload["messageId"] for payload in life.payloads("message.delta")}
    ended = [payload["messageId"] for payload in life.payloads("message.completed", "message.discarded")]
    completed = {payload["messageId"]: payload["text"] for payload in life.payloads("message.completed")}
    assert len(ended) == len(set(ended))
    assert shown <= set(ended)
    thread = {message.id: message.content for message in life.view.messages if message.role == "assistant"}
    assert completed == {name: content for name, content in thread.items() if content or name in completed}
