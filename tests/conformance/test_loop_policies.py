"""Policies of model requests: a broken answer is continued, a begun call is not repeated, a silent model has failed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.policies import IdlePolicy, RecoveryPolicy
from greenroom.testing import ScriptedModel, call, delay, fail, text, think

from ..support.scenes import Life, after, cancel, restart

CUT = fail("interrupted", "the connection broke")


@attrs.frozen
class Form:
    """An output type."""

    n: int


def modes(life: Life) -> list[str]:
    """How each failed try is followed."""
    return [payload.get("mode", "restart") for payload in life.payloads("inference.retried")]


def shown(life: Life) -> dict[str, str]:
    """Message -> the text that its deltas show; the indexes have no hole."""
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for payload in life.payloads("message.delta"):
        name = payload["messageId"]
        assert payload["index"] == numbers.get(name, 0)
        numbers[name] = payload["index"] + 1
        found[name] = found.get(name, "") + payload["text"]
    return found


def added(life: Life, number: int) -> list[tuple[str, str]]:
    """What a request has beyond the step's messages."""
    known = {message.id for message in life.requests[0].messages}
    return [(one.role, one.content) for one in life.requests[number].messages if one.id not in known]


# --- continuing ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-1", "PO-3", "PO-7")
async def test_a_text_that_broke_is_continued_under_its_message_id(play, autojump_clock):
    life = await play([text("Once upon "), CUT], [text("a "), CUT], "time.")
    assert (life.outcome.output, life.history[-1]) == ("Once upon a time.", "assistant: Once upon a time.")
    (name,) = {payload["messageId"] for payload in life.payloads("inference.started")}
    assert shown(life)[name] in ("Once upon a ", "Once upon a time.")
    (completed,) = [one for one in life.payloads("message.completed") if one["messageId"] == name]
    assert completed["text"] == "Once upon a time."
    assert (modes(life), life.types.count("message.discarded")) == (["continue", "continue"], 0)
    assert [payload["code"] for payload in life.payloads("inference.retried")] == ["interrupted"] * 2


@pytest.mark.rule("PO-7")
async def test_the_request_has_the_text_so_far_and_asks_to_continue_it(play, autojump_clock):
    life = await play([text("Once upon "), CUT], [text("a "), CUT], "time.")
    first, second, third = life.requests
    assert (first.prefix, second.prefix, third.prefix) == ("", "Once upon ", "Once upon a ")
    assert [request.attempt for request in life.requests] == [1, 2, 3]
    (role, content), (last, words) = added(life, 2)
    assert (role, content, last) == ("assistant", "Once upon a ", "user")
    assert words.startswith("Your answer was cut off. Continue exactly where the text above ends")
    assert life.history == ["user: hi", "assistant: Once upon a time."]


@pytest.mark.rule("PO-4")
async def test_a_retry_has_the_same_messages_tools_and_settings(play, autojump_clock):
    class Notes(gr.Plugin):
        async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
            asked.append(ctx.step)
            return gr.Mutation().add_message("Be brief.").exclude_tools("look").override(temperature=0)

    asked: list[int] = []
    life = await play([text("so "), CUT], fail("overloaded"), "it is", plugins=[Notes()])
    first, second, third = life.requests
    assert second.messages[: len(first.messages)] == third.messages[: len(first.messages)] == first.messages
    assert first.tools == second.tools == third.tools
    assert dict(first.settings) == dict(third.settings) == {"temperature": 0}
    assert (asked, life.outcome.output) == ([1], "so it is")


@pytest.mark.rule("PO-5")
async def test_every_request_counts(play, autojump_clock):
    used = gr.Usage(requests=1, input=3, output=2)
    broken = [text("a"), fail("interrupted", usage=used)]
    life = await play(broken, broken, [text("b", usage=used)])
    assert life.outcome.usage == gr.Usage(requests=3, input=9, output=6) == life.view.usage


@pytest.mark.rule("PO-6")
async def test_an_answer_of_which_nothing_was_shown_begins_anew(play, autojump_clock):
    life = await play([delay(1), CUT], [text(" \n"), CUT], "done")
    assert (modes(life), life.outcome.output) == (["restart", "restart"], "done")
    assert len({payload["messageId"] for payload in life.payloads("inference.started")}) == 3
    assert [request.prefix for request in life.requests] == ["", "", ""]
    assert life.requests[2].messages == life.requests[0].messages


@pytest.mark.rule("PO-6")
async def test_an_answer_with_a_form_begins_anew_and_what_was_shown_is_discarded(play, autojump_clock):
    life = await play([text('{"n"'), delay(1), CUT], '{"n": 1}', output_type=Form)
    assert (modes(life), life.outcome.output) == (["restart"], Form(1))
    (discarded,) = life.payloads("message.discarded")
    assert discarded["messageId"] == life.payloads("inference.started")[0]["messageId"]
    assert life.requests[1].messages == life.requests[0].messages


@pytest.mark.rule("PO-8")
@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_step_continues_a_broken_text_so_many_times_and_then_asks_again(play, autojump_clock, times):
    script = [[text("Well. "), delay(1), CUT]] * 3
    life = await play(*script, "end", plugins=[gr.Recovery(times), gr.Retry(4)])
    assert modes(life) == ["continue"] * times + ["restart"] * (3 - times)
    assert life.outcome.output == "end"
    assert life.types.count("message.discarded") == 3 - times


@pytest.mark.rule("PO-8")
async def test_a_continued_try_is_a_try_of_retry(play, autojump_clock):
    life = await play(*[[text("Well. "), delay(1), CUT]] * 2, plugins=[gr.Recovery(9), gr.Retry(2)])
    assert (life.outcome.code, len(life.requests)) == ("model_error", 2)
    assert life.types.count("message.discarded") == 1
    assert life.history == ["user: hi"]


async def test_each_step_may_continue_as_often(play, autojump_clock):
    life = await play([text("a"), CUT], call("look", id="A"), [text("b"), CUT], "c", plugins=[gr.Recovery(1)])
    assert (modes(life), life.outcome.output) == (["continue"] * 2, "bc")
    assert life.history[1:3] == ["assistant: a (A)", "A: saw A"]


async def test_of_a_continued_answer_with_several_texts_the_last_one_is_final(play, autojump_clock):
    life = await play([text("first "), CUT], [text("rest. "), text("final")])
    assert (life.outcome.output, life.history[-1]) == ("final", "assistant: first rest. final")


async def test_an_answer_that_has_nothing_to_add_is_the_text_so_far(play, autojump_clock):
    life = await play([text("all of it"), CUT], [])
    assert (life.outcome.output, life.history[-1]) == ("all of it", "assistant: all of it")


async def test_reasoning_of_a_broken_stream_stays_with_the_continued_message(play, autojump_clock):
    life = await play([think("hm"), text("a"), delay(1), CUT], [think("so"), text("b")])
    assert [payload["index"] for payload in life.payloads("reasoning.delta")] == [0, 1]
    assert (life.outcome.output, life.types.count("message.discarded")) == ("ab", 0)


# --- calls that had begun --------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-9")
async def test_a_call_that_had_begun_is_dropped_and_named(play, autojump_clock):
    life = await play([text("Looking. "), call("look", id="A"), CUT], [text("Now."), call("look", id="B")], "done")
    assert (life.outcome.output, life.effects, list(life.calls)) == ("done", ["B"], ["B"])
    assert life.requests[1].cut_calls == ("look",)
    assert "It had begun to call: look. None of these calls ran" in added(life, 1)[-1][1]
    assert life.history[1] == "assistant: Looking. Now. (B)"


@pytest.mark.rule("PO-9")
@pytest.mark.parametrize("times", [0, 2])
async def test_a_stream_that_has_shown_a_call_is_not_asked_for_again_with_the_same_messages(
    play, autojump_clock, times
):
    life = await play(
        [call("spend", id="A"), call("look", id="B"), CUT], fail("overloaded"), "done", plugins=[gr.Recovery(times)]
    )
    assert (life.outcome.output, life.effects, life.calls) == ("done", [], {})
    for number in (1, 2):
        ((role, words),) = added(life, number)
        assert (role, "It had begun to call: spend, look." in words) == ("user", True)
        assert (life.requests[number].prefix, life.requests[number].cut_calls) == ("", ("spend", "look"))
    assert modes(life) == ["restart", "restart"]
    assert life.history == ["user: hi", "assistant: done"]


# --- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-10")
async def test_a_process_that_ends_in_the_middle_begins_the_answer_anew(play, autojump_clock):
    life = await play([text("a "), CUT], [text("b "), delay(20), "c"], do=[after(10, restart)])
    assert (modes(life), life.outcome.output) == (["continue", "restart"], "c")
    assert life.types.count("message.discarded") == 1
    assert life.history == ["user: hi", "assistant: b c"]
    assert life.view.usage.requests == 3


@pytest.mark.rule("PO-10")
async def test_a_process_that_ends_in_the_wait_begins_the_answer_anew_after_the_rest_of_it(play, autojump_clock):
    waiting = fail("rate_limited", retry_after=50)
    life = await play([text("a "), call("look", id="A"), waiting], "b", do=[after(10, restart)])
    assert (modes(life), life.outcome.output, life.seconds("completed")) == (["continue", "restart"], "b", 50.0)
    assert added(life, 1)[-1][1].startswith("Your last answer was cut off. Answer again. It had begun to call: look.")
    assert life.view.usage.requests == 2


async def test_a_cancel_in_the_middle_of_a_continued_answer_cuts_it(play, autojump_clock):
    life = await play([text("a "), CUT], [text("b "), delay(20), "c"], do=[after(10, cancel())])
    assert isinstance(life.outcome, gr.Cancelled)
    assert (life.types.count("message.discarded"), life.history) == (0, ["user: hi", "assistant: a b"])


@pytest.mark.rule("PO-11")
async def test_a_secret_that_a_break_cuts_in_two_is_masked(play, autojump_clock):
    secret = "sk-proj-" + "a1B2c3D4" * 6
    life = await play([text(f"it is {secret[:20]}"), delay(1), CUT], [delay(1), f"{secret[20:]} ok"])
    assert life.outcome.output == f"it is {secret} ok"
    everything = b"".join(life.frames).decode()
    assert secret[8:20] not in everything
    assert secret[20:] not in everything
    assert modes(life) == ["continue"]


# --- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-1", "PO-12")
async def test_a_model_that_sends_nothing_has_timed_out(play, autojump_clock):
    life = await play([delay(130), "late"], [text("a"), delay(61), "late"], "b", plugins=[gr.Retry(first=0)])
    assert (life.outcome.output, modes(life)) == ("ab", ["restart", "continue"])
    details = [payload["detail"] for payload in life.payloads("inference.retried")]
    assert details == ["timeout: scripted was silent for 120 s", "timeout: scripted was silent for 60 s"]
    assert 180.0 <= life.seconds("completed") <= 181.0


@pytest.mark.rule("PO-12")
async def test_a_model_that_sends_now_and_then_is_not_silent(play, autojump_clock):
    slow = [part for _ in range(20) for part in (delay(9.5), "x")]
    life = await play([delay(19), "x", *slow], plugins=[gr.IdleTimeout(10, first=20)])
    assert (life.outcome.output, modes(life)) == ("x", [])
    assert life.seconds("completed") == 209.0


@pytest.mark.rule("PO-12")
async def test_without_limits_a_model_may_be_silent_for_ever(play, autojump_clock):
    life = await play([delay(10_000), "a", delay(10_000), "b"], plugins=[gr.IdleTimeout(None, first=None)])
    assert (life.outcome.output, modes(life)) == ("b", [])


class Slow(gr.Model):
    """Answers at once, and closes slowly; or its stream opens slowly."""

    name = "slow"

    def __init__(self, opening: float = 0.0, closing: float = 0.0) -> None:
        self.opening, self.closing, self.closed = opening, closing, 0

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        try:
            await trio.sleep(0 if request.model_attempts else self.opening)
            yield self.answer()
            await trio.sleep(self.closing)
        finally:
            self.closed += 1

    async def answer(self) -> AsyncIterator[gr.ModelEvent]:
        await trio.lowlevel.checkpoint()
        yield gr.ModelResponse(text=("done",))


@pytest.mark.rule("PO-12", "PO-13")
async def test_opening_a_stream_counts_and_closing_it_loses_no_answer(autojump_clock):
    model = Slow(opening=500, closing=500)
    outcome = await gr.run(gr.Agent("a", model=model), "hi")
    assert (outcome.output, outcome.usage.requests, model.closed) == ("done", 2, 2)
    assert trio.current_time() >= 240.0


@pytest.mark.rule("PO-13")
async def test_a_slow_store_is_no_silence_of_the_model(autojump_clock):
    class Stuck(gr.MemoryStore):
        def submit(self, claim: Any, commit: Any, frames: Any, deliver: Any) -> None:
            late.append(partial(super().submit, claim, commit, frames, deliver))

    late: list[Any] = []

    async def write() -> None:
        while True:
            await trio.sleep(100)
            for one in late[:]:
                late.remove(one)
                one()

    helper = gr.Agent("helper", model=ScriptedModel([[text("x" * 400_000)]], chunk=40_000), plugins=[gr.IdleTimeout(5)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        async with gr.open_runtime(Stuck(), agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi")
            outcome = await run.result()
            assert isinstance(outcome, gr.Completed)
            assert outcome.usage.requests == 1
        nursery.cancel_scope.cancel()


# --- the plugins -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-1", "PO-2")
def test_an_agent_has_one_policy_of_each_kind():
    plain = gr.Agent("a").spec
    assert gr.Recovery().policy == RecoveryPolicy(times=2) == plain.policies.recovery
    assert gr.IdleTimeout().policy == IdlePolicy(idle=60.0, first=120.0) == plain.policies.idle
    same = gr.Agent("a", plugins=[gr.Recovery(), gr.IdleTimeout()]).spec
    assert same.digest == plain.digest
    assert gr.Agent("a", plugins=[gr.Recovery(0)]).spec.digest != plain.digest
    with pytest.raises(gr.AgentDefinitionError, match="two plugins are a Recovery"):
        gr.Agent("a", plugins=[gr.Recovery(), type("Mine", (gr.Recovery,), {"name": "mine"})()])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gr.Recovery(-1), r"Recovery\(times=-1\): give a whole number, 0 or more"),
        (lambda: gr.Recovery(True), r"Recovery\(times=True\)"),
        (lambda: gr.IdleTimeout(0), r"IdleTimeout\(idle=0\): give a number from 0.001"),
        (lambda: gr.IdleTimeout(first=float("nan")), r"IdleTimeout\(first=nan\)"),
        (lambda: gr.IdleTimeout("5"), r"IdleTimeout\(idle='5'\)"),
    ],
)
def test_a_number_that_is_invalid_is_named(make, words):
    with pytest.raises(gr.AgentDefinitionError, match=words):
        make()
