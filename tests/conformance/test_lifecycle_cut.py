"""Rules of an answer that the end of its run cuts: its text stays, marked, in the thread; its request counts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import greenroom as gr
from greenroom.actors.contract.excerpt import LARGE
from greenroom.actors.run.model_request import CUT_NOTE
from greenroom.testing import ScriptedModel, call, delay, fail, text, think

from ..support.scenes import Down, after, another, cancel, pause

TALE = [think("A tale. "), text("Once upon a time "), delay(100), text("it ended well."), call("look", id="C")]
CUT = "assistant: Once upon a time"


def request_of(life: Any, key: str = "next") -> list[str]:
    """What the model of another run of the thread was sent first."""
    return [f"{message.role}: {message.content}" for message in life.scene.crew[key].model.requests[0].messages]


@pytest.mark.rule("L-108")
async def test_the_text_of_an_answer_that_a_cancel_cuts_stays_in_the_thread(play, autojump_clock):
    life = await play(TALE, do=[after(5, cancel())])
    (completed,) = life.payloads("message.completed")
    assert (completed["text"], completed["cut"]) == ("Once upon a time ", True)
    assert life.types.count("message.discarded") == 0
    assert life.history == ["user: hi", CUT]
    assert life.effects == []


class Reporting(ScriptedModel):
    """Reports tokens as soon as its answer begins, as some providers do."""

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        async def reported(events: AsyncIterator[gr.ModelEvent]) -> AsyncIterator[gr.ModelEvent]:
            yield gr.UsageReport(gr.Usage(input=7))
            async for event in events:
                yield event
                yield gr.UsageReport(gr.Usage(input=7, output=1))

        async with super().stream(request) as events:
            yield reported(events)


ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "a deadline": ({"start": {"deadline": 5.0}}, "failed"),
    "a cancel": ({"do": [after(5, cancel(reason="enough"))]}, "cancelled"),
}


@pytest.mark.rule("L-108")
@pytest.mark.parametrize(("options", "stage"), ENDS.values(), ids=list(ENDS))
async def test_whatever_ends_the_run_the_text_stays(play, autojump_clock, options, stage):
    life = await play(TALE, **options)
    assert (life.record.row.stage, life.history) == (stage, ["user: hi", CUT])


@pytest.mark.rule("L-108")
async def test_the_beginning_that_a_broken_stream_left_is_part_of_the_cut_answer(play, autojump_clock):
    broken = [text("Once "), fail("overloaded", retry_after=20)]
    life = await play(broken, "upon a time", do=[after(5, cancel())])
    assert (life.history, life.view.usage.requests) == (["user: hi", "assistant: Once"], 1)
    assert life.view.usage.incomplete is msgspec.UNSET  # the request of the rest was not made yet


@pytest.mark.rule("L-108")
async def test_so_is_what_another_request_had_added_to_it(play, autojump_clock):
    life = await play(
        [text("Once "), fail("overloaded", retry_after=1)],
        [text("upon "), delay(100), "a time"],
        do=[after(5, cancel())],
    )
    assert (life.history, life.view.usage.requests) == (["user: hi", "assistant: Once upon"], 2)


@pytest.mark.rule("L-108")
async def test_a_text_too_large_for_one_event_is_whole_in_its_deltas(play, autojump_clock):
    large = "word " * (LARGE // 4)
    life = await play([text(large), delay(100), "more"], do=[after(5, cancel())])
    (completed,) = life.payloads("message.completed")
    assert (completed["cut"], completed["large"]) == (True, True)
    assert "".join(delta["text"] for delta in life.payloads("message.delta")) == large
    assert life.history == ["user: hi", f"assistant: {large.strip()}"]


@pytest.mark.rule("L-109")
async def test_the_next_request_of_the_thread_says_that_the_answer_was_cut(play, autojump_clock):
    life = await play(TALE, do=[after(5, cancel()), another("As I said."), pause(5)])
    sent = life.scene.crew["next"].model.requests[0].messages
    assert [(message.cut, message.calls, message.items) for message in sent[:2]] == [(False, (), ()), (True, (), ())]
    assert request_of(life) == ["user: hi", f"{CUT} ", f"user: {CUT_NOTE}", "user: next?"]


@pytest.mark.rule("L-110")
async def test_the_request_counts_though_its_tokens_are_unknown(play, autojump_clock):
    life = await play(TALE, do=[after(5, cancel())])
    known = gr.Usage(requests=1, incomplete=1)
    assert life.view.usage == known
    (cut,) = life.payloads("inference.cut")
    assert cut["usage"] == msgspec.to_builtins(known)


@pytest.mark.rule("L-110")
async def test_tokens_count_as_far_as_the_provider_had_reported_them(play, autojump_clock):
    life = await play(model=Reporting([TALE]), do=[after(5, cancel())])
    assert life.view.usage == gr.Usage(requests=1, input=7, output=1, incomplete=1)


@pytest.mark.rule("L-110")
async def test_a_request_that_was_not_made_yet_counts_for_nothing(play, autojump_clock):
    life = await play([fail("overloaded", retry_after=20)], "late", do=[after(5, cancel())])
    assert (life.view.usage, life.types.count("inference.cut")) == (gr.Usage(requests=1), 0)


@pytest.mark.rule("L-111")
@pytest.mark.parametrize("script", [[text(" \n"), delay(100)], [think("So. "), delay(100)], [call("look"), delay(100)]])
async def test_an_answer_without_a_text_leaves_nothing(play, autojump_clock, script):
    life = await play(script, do=[after(5, cancel())])
    assert (life.history, life.view.usage) == (["user: hi"], gr.Usage(requests=1, incomplete=1))
    shown = life.types.count("message.delta") + life.types.count("reasoning.delta")
    assert life.types.count("message.discarded") == shown


@gr.output_guardrail
async def judge(ctx: gr.PhaseContext[Any], output: str) -> gr.Trip | None:
    raise AssertionError("the run ends before its output")


@pytest.mark.rule("L-111")
async def test_a_text_that_guardrails_had_to_judge_is_discarded(play, autojump_clock):
    life = await play(TALE, do=[after(5, cancel())], output_guardrails=[judge])
    assert (life.history, life.types.count("message.discarded")) == (["user: hi"], 1)
    assert life.view.usage == gr.Usage(requests=1, incomplete=1)


@pytest.mark.rule("L-76", "L-111")
async def test_the_text_of_a_process_that_ended_is_discarded_and_what_follows_it_stays(play, autojump_clock):
    life = await play(TALE, do=[after(5, Down(1)), after(5, cancel())])
    assert [payload["reason"] for payload in life.payloads("message.discarded")] == ["the inference is repeated"]
    assert (life.history, life.view.usage.requests) == (["user: hi", CUT], 2)


async def test_answers_of_earlier_steps_are_as_they_were(play, autojump_clock):
    script = [text("I look."), call("look", id="Q")], [text("Seen. "), delay(100)]
    life = await play(*script, do=[after(50, cancel())])
    assert life.history == ["user: hi", "assistant: I look. (Q)", "Q: saw Q", "assistant: Seen."]
    assert [payload.get("cut", False) for payload in life.payloads("message.completed")] == [False, True]


@pytest.mark.rule("L-110", "L-111")
async def test_a_request_of_another_process_counts_and_its_text_is_discarded(tmp_path):
    """No process that has the agent lives, so the run ends without another request."""
    teller = gr.Agent("teller", model=ScriptedModel([TALE]), tools=[])
    async with gr.open_runtime(tmp_path / "runs.db", agents=[teller], drain=0) as runtime:
        run = await runtime.start(teller, "hi", run_id="r")
        async with run.events() as events:
            async for event in events:
                if event.type == "run.message.delta":
                    break
    async with gr.open_runtime(tmp_path / "runs.db") as runtime:
        run = await runtime.get("r")
        await run.cancel()
        assert isinstance(await run.wait(), gr.Cancelled)
        view = await run.view()
        assert [message.content for message in view.messages] == ["hi"]
        assert view.usage == gr.Usage(requests=1, incomplete=1)
        assert (await runtime.replay("r", teller)).equal
