"""The models that tests are made with."""

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.abc import CallDelta, ReasoningDelta, TextDelta
from greenroom.actors.contract.messages import Message, ModelRequest, ModelResponse, Usage
from greenroom.actors.errors import ModelError
from greenroom.actors.testing import (
    FunctionModel,
    ScriptedModel,
    call,
    delay,
    fail,
    finish,
    malformed,
    refuse,
    text,
    think,
)
from greenroom.actors.testing.models import KEEP, RUNS

from ...support.cases import case


def ask(answers=0, run="r", agent="a", messages=()):
    return ModelRequest(agent=agent, messages=tuple(messages), run_id=run, model_attempts=answers)


async def stream(model, request):
    async with model.stream(request) as events:
        return [event async for event in events]


async def answer(model, request):
    return (await stream(model, request))[-1]


async def test_a_text_step_streams_one_delta_and_ends_in_a_response():
    model = ScriptedModel(["hello there"])
    delta, response = await stream(model, ask())
    assert delta == TextDelta("hello there")
    assert response == ModelResponse(
        text=("hello there",), usage=Usage(requests=1, input=0, output=2), model="scripted"
    )


async def test_texts_can_be_split_into_deltas():
    model = ScriptedModel([[think("abc"), "hello"]], chunk=2)
    *deltas, response = await stream(model, ask())
    assert deltas == [ReasoningDelta("ab"), ReasoningDelta("c"), TextDelta("he"), TextDelta("ll"), TextDelta("o")]
    assert response.text == ("hello",)


async def test_a_step_of_several_parts_keeps_their_order_and_calls_come_with_the_response():
    model = ScriptedModel([[text("checking"), call("add", a=1, b=2, id="c2"), "more", call("add", a=3)]])
    *deltas, response = await stream(model, ask())
    assert deltas == [
        TextDelta("checking"),
        CallDelta(1, "add"),
        TextDelta("more"),
        CallDelta(3, "add"),
    ]
    assert response.text == ("checking", "more")
    assert [(one.tool, one.call_id, one.provider_id) for one in response.calls] == [
        ("add", "c2", "c2"),
        ("add", "", ""),
    ]
    assert response.calls[0].arguments == {"a": 1, "b": 2}


async def test_arguments_with_any_name_can_be_given_as_a_mapping():
    response = await answer(ScriptedModel([call("find", {"id": 7, "tool": "x"}, id="c1")]), ask())
    assert response.calls[0].call_id == "c1"
    assert response.calls[0].arguments == {"id": 7, "tool": "x"}


async def test_an_empty_step_answers_nothing_at_all():
    (response,) = await stream(ScriptedModel([[]]), ask())
    assert (response.text, response.calls) == ((), ())


async def test_a_scripted_failure_is_raised_after_the_parts_before_it():
    model = ScriptedModel([["half", fail("interrupted", "cut off")], fail("overloaded")])
    async with model.stream(ask()) as events:
        assert await anext(events) == TextDelta("half")
        with pytest.raises(ModelError, match="cut off") as caught:
            await anext(events)
    assert (caught.value.kind, caught.value.retryable) == ("interrupted", True)
    with pytest.raises(ModelError, match="scripted overloaded"):
        await stream(model, ask(1))
    model.assert_complete()


async def test_a_refusal_is_no_text():
    response = await answer(ScriptedModel([refuse("I cannot.")]), ask())
    assert (response.refusal, response.text) == ("I cannot.", ())


async def test_a_delay_passes_on_the_virtual_clock(autojump_clock: MockClock):
    start = trio.current_time()
    await stream(ScriptedModel([[delay(3600), "late"]]), ask())
    assert trio.current_time() - start == pytest.approx(3600)


async def test_each_run_and_each_restart_reads_the_step_that_its_request_names():
    model = ScriptedModel(["one", "two", "three"])

    async def one_run(name):
        for number, expected in enumerate(["one", "two", "three"]):
            for _ in range(2):  # the second time is a restart that asks again
                assert (await answer(model, ask(number, run=name))).text == (expected,)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one_run, "r1")
        nursery.start_soon(one_run, "r2")
    model.assert_complete()


async def test_every_delta_is_a_checkpoint():
    model = ScriptedModel(["a"], chunk=1)
    with trio.CancelScope() as scope:
        async with model.stream(ask()) as events:
            scope.cancel()
            async for _ in events:
                pytest.fail("nothing is streamed into a cancelled scope")
    assert scope.cancelled_caught
    assert len(model.requests) == 1
    assert model.remaining("r") == 1


async def test_usage_is_counted_in_words_unless_it_is_stated():
    history = [
        Message(id="1", role="system", content="be kind"),
        Message(id="2", role="user", content="hello you there"),
    ]
    step = [think("well well"), "three little words", call("add", a=1)]
    assert (await answer(ScriptedModel([step]), ask(messages=history))).usage == Usage(
        requests=1, input=5, output=6, reasoning=2
    )
    stated = ScriptedModel([text("x", usage=Usage(input=100, output=7)), text("y", Usage(requests=2))])
    assert (await answer(stated, ask())).usage == Usage(requests=1, input=100, output=7)
    assert (await answer(stated, ask(1))).usage == Usage(requests=2)


async def test_the_end_of_the_script_is_an_error_that_names_run_and_answer():
    model = ScriptedModel(["one"])
    with pytest.raises(ModelError, match=r"no more answers than 1, but run 'r7'.*number 2") as caught:
        await stream(model, ask(1, run="r7"))
    assert (caught.value.kind, caught.value.retryable) == ("invalid_request", False)


async def test_requests_are_recorded_in_order():
    model = ScriptedModel(["one", "two"])
    await stream(model, ask(0))
    await stream(model, ask(1))
    assert model.requests == (ask(0), ask(1))
    assert repr(model) == "<ScriptedModel, 2 requests>"


async def test_assert_complete_names_the_run_and_its_unplayed_steps():
    model = ScriptedModel(["one", call("add", a=1)])
    with pytest.raises(AssertionError, match="the model was never asked"):
        model.assert_complete()
    await stream(model, ask(0, run="r1"))
    await stream(model, ask(1, run="r1"))
    model.assert_complete()
    await stream(model, ask(0, run="r2"))
    assert (model.remaining("r1"), model.remaining("r2"), model.remaining("r3")) == (0, 1, 2)
    with pytest.raises(AssertionError) as caught:
        model.assert_complete()
    assert "'r2'" in str(caught.value)
    assert "step 1 was not played: Call(tool='add'" in str(caught.value)
    assert "'r1'" not in str(caught.value)


def test_an_empty_script_is_complete():
    ScriptedModel([]).assert_complete()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (None, "None is not a step"),
        (3, "3 is not a step; write call"),
        ([text("a"), None], "None is not a step"),
        ([["nested"]], "is not a step"),
        (b"bytes", "is not a step"),
        (text(3), "the text is a str"),  # type: ignore[arg-type]
        (call("add", a=object()), "plain JSON data"),
        (call(print), "name as a str"),  # type: ignore[arg-type]
        ([fail("overloaded"), "never"], "cannot be reached"),
        ([refuse("no"), "yes"], "a refusal must be the only part"),
    ],
    ids=case,
)
def test_a_wrong_step_is_refused_when_the_script_is_written(step, words):
    with pytest.raises(ValueError, match="step 1") as caught:
        ScriptedModel(["fine", step])
    assert words in str(caught.value)


def test_other_mistakes_are_refused_at_once_too():
    with pytest.raises(ValueError, match="rate_limited"):
        fail("tired")
    for seconds in (-1, "1", float("inf")):
        with pytest.raises(ValueError, match="0 or more"):
            delay(seconds)
    for chunk in (0, "1", True):
        with pytest.raises(ValueError, match="1 or more"):
            ScriptedModel([], chunk=chunk)
    with pytest.raises(ValueError, match="a list of steps"):
        ScriptedModel("done")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_function_model_asks_its_function(asynchronous):
    def fn(request):
        return [f"step {request.model_attempts}", call("add", a=request.model_attempts)]

    async def afn(request):
        await trio.lowlevel.checkpoint()
        return fn(request)

    model = FunctionModel(afn if asynchronous else fn)
    response = await answer(model, ask(3))
    assert (response.text, response.model) == (("step 3",), "function")
    assert response.calls[0].arguments == {"a": 3}
    assert model.requests == (ask(3),)


async def test_a_function_model_can_fail_on_purpose_and_by_mistake():
    with pytest.raises(ModelError, match="scripted timeout"):
        await stream(FunctionModel(lambda request: fail("timeout")), ask())

    def broken(request): ...

    with pytest.raises(ValueError, match=r"answer of 'broken'.*None is not a step"):
        await stream(FunctionModel(broken), ask())


# --- what they keep --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda **o: ScriptedModel(["a"], **o), lambda **o: FunctionModel(lambda _: "a", **o)])
async def test_the_newest_requests_are_kept_and_all_are_counted(make):
    model, endless, blind = make(keep=3), make(keep=None), make(keep=0)
    for number in range(5):
        for one in (model, endless, blind):
            await stream(one, ask(run=f"r{number}"))
    assert [request.run_id for request in model.requests] == ["r2", "r3", "r4"]
    assert (len(endless.requests), blind.requests) == (5, ())
    assert (model.received, endless.received, blind.received) == (5, 5, 5)
    assert "5 requests" in repr(model)
    for keep in (-1, True, "3"):
        with pytest.raises(ValueError, match="0 or more, or None for all"):
            make(keep=keep)


@pytest.mark.slow
async def test_a_test_model_does_not_grow_for_ever():
    """Neither by its requests nor by the runs that it knows."""
    model = ScriptedModel(["a"])
    for number in range(RUNS + 50):
        await stream(model, ask(run=f"r{number}"))
    assert len(model.requests) == KEEP == 1_000
    assert len(model._finished_runs) == RUNS
    assert not model._playing
    model.assert_complete()


async def test_runs_whose_requests_are_forgotten_count_for_a_complete_script():
    model = ScriptedModel(["a", "b"], keep=1)
    await stream(model, ask(0, run="early"))
    for number in range(5):
        await stream(model, ask(0, run=f"r{number}"))
        await stream(model, ask(1, run=f"r{number}"))
    with pytest.raises(AssertionError, match="run 'early', agent 'a': step 1 was not played"):
        model.assert_complete()
    await stream(model, ask(1, run="early"))
    model.assert_complete()
    assert (model.remaining("early"), model.remaining("r0"), model.remaining("new")) == (0, 0, 2)


@pytest.mark.slow
async def test_a_script_that_too_many_runs_play_at_once_is_not_called_complete():
    model = ScriptedModel(["a", "b"], keep=0)
    for number in range(RUNS + 1):
        await stream(model, ask(0, run=f"r{number}"))
    for number in range(1, RUNS + 1):
        await stream(model, ask(1, run=f"r{number}"))
    with pytest.raises(AssertionError, match="more than 10,000 runs were playing it at once; 1 of them were forgotten"):
        model.assert_complete()


# --- the parts of an answer ------------------------------------------------------------------------------------------


async def test_an_error_carries_what_the_provider_said_and_what_it_has_cost():
    model = ScriptedModel([fail("rate_limited", retry_after=7, usage=Usage(input=3))])
    with pytest.raises(ModelError) as caught:
        await stream(model, ask())
    assert (caught.value.retry_after, caught.value.usage) == (7.0, Usage(input=3))
    with pytest.raises(ValueError, match="retry_after"):
        fail("rate_limited", retry_after="7")  # type: ignore[arg-type]


async def test_an_answer_says_why_it_ended_if_the_script_does():
    model = ScriptedModel([["cut", finish("length")], "whole"])
    assert [(await answer(model, ask(number))).finish for number in (0, 1)] == ["length", None]
    with pytest.raises(ValueError, match="the reasons are stop, tool_calls"):
        finish("tired")  # type: ignore[arg-type]


async def test_a_call_may_have_arguments_that_are_none():
    (one,) = (await answer(ScriptedModel([malformed("add", "[1", id="c1")]), ask())).calls
    assert (one.call_id, one.arguments, one.fault is None) == ("c1", {}, False)
    with pytest.raises(ValueError, match="these are sound arguments"):
        malformed("add", '{"a": 1}')
