"""Models through the whole stack: what they are sent, what their errors do, how runs end, and what stops them."""

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, ScriptedModel, call, delay, fail, refuse, text

from ..support.runs import Shelf, agent, events_of, home, payloads
from ..support.stray_cancels import ctrl_c


@gr.tool
async def add(a: int, b: int) -> int:
    return a + b


@gr.tool
async def wrong() -> str:
    raise gr.ToolError("no luck")


async def outcome_of(shelf: Shelf, helper: gr.Agent, text_in: str = "hi"):
    async with home(shelf, agents=[helper]) as runtime:
        return await (await runtime.start(helper, text_in)).result()


# --- requests --------------------------------------------------------------------------------------------------------


async def test_the_facades_own_example_of_a_script_plays_through(shelf, autojump_clock):
    model = ScriptedModel(
        [
            call("refund", order="7", cents=500, id="c1"),
            [text("checking"), call("add", a=1, b=2, id="c2"), call("add", a=3, b=4, id="c3")],
            fail("overloaded"),
            "done",
        ]
    )

    @gr.tool(needs_approval=True)
    async def refund(ctx: gr.ToolContext, order: str, cents: int) -> str:
        return f"refunded {cents}"

    helper = gr.Agent("support", instructions="be kind", tools=[add, refund], model=model)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "refund order 7")
        waiting = await run.wait()
        await run.decide(waiting.tickets[0].approve())
        assert (await run.result()).output == "done"
    model.assert_complete()
    assert len(model.requests) == 4
    first = model.requests[0]
    assert (first.agent, [info.name for info in first.tools]) == ("support", ["add", "refund"])
    assert [(message.role, message.content) for message in first.messages] == [
        ("system", "be kind"),
        ("user", "refund order 7"),
    ]
    assert [message.content for message in model.requests[3].messages if message.role == "tool"] == [
        "refunded 500",
        "3",
        "7",
    ]


async def test_requests_and_messages_are_frozen(shelf, autojump_clock):
    helper = agent("done", settings={"temperature": 0})
    await outcome_of(shelf, helper)
    request = helper.model.requests[0]
    assert request.settings == {"temperature": 0}
    with pytest.raises(AttributeError, match="immutable"):
        request.agent = "other"
    with pytest.raises(AttributeError, match="immutable"):
        request.messages[0].content = "other"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_model_sees_the_real_results(shelf, autojump_clock, kind):
    def answer(request: gr.ModelRequest):
        last = request.messages[-1]
        return call("add", a=20, b=22) if last.role == "user" else f"it is {last.content}"

    async def later(request: gr.ModelRequest):
        await trio.sleep(1)
        return answer(request)

    model = FunctionModel(answer if kind == "sync" else later)
    assert (await outcome_of(shelf, gr.Agent("helper", model=model, tools=[add]))).output == "it is 42"


async def test_calls_without_an_id_and_with_a_repeated_one_get_unique_ids(shelf, autojump_clock):
    helper = agent(
        [call("add", a=1, b=1), call("add", a=2, b=2)],
        call("add", a=3, b=3, id="x"),
        call("add", a=4, b=4, id="x"),
        "done",
        tools=[add],
    )
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        view = await run.view()
    assert len(view.calls) == 4
    assert "x" in view.calls
    assert "x#2" in view.calls
    ids = [message.call_id for message in view.messages if message.role == "tool"]
    asked = [request.call_id for message in view.messages for request in message.calls]
    assert ids == asked


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "timeout", "interrupted", "provider"])
async def test_an_error_that_may_pass_is_retried_with_growing_pauses_in_virtual_time(shelf, autojump_clock, kind):
    helper = agent(fail(kind), fail(kind), "third time lucky")
    async with home(shelf, agents=[helper]) as runtime:
        began = trio.current_time()
        run = await runtime.start(helper, "hi")
        assert (await run.result()).output == "third time lucky"
        spent = trio.current_time() - began
        events = await events_of(run)
    assert 0.75 <= spent < 2.3  # 0.5 s and 1 s, each between half and one and a half
    assert [payload["code"] for payload in payloads(events, "inference.retried")] == [kind, kind]
    assert [payload["attempt"] for payload in payloads(events, "inference.started")] == [1, 2, 3]


async def test_an_error_that_stays_fails_the_run_as_model_error(shelf, autojump_clock):
    helper = agent(*[fail("overloaded", "too many people") for _ in range(3)])
    outcome = await outcome_of(shelf, helper)
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, outcome.termination.kind) == ("model_error", "error")
    assert "overloaded" in outcome.message
    assert "too many people" in outcome.message
    assert len(helper.model.requests) == 3


@pytest.mark.parametrize(
    "kind", ["unauthorized", "invalid_request", "context_overflow", "model_not_found", "content_filtered"]
)
async def test_an_error_that_will_not_pass_fails_the_run_at_once(shelf, autojump_clock, kind):
    helper = agent(fail(kind))
    outcome = await outcome_of(shelf, helper)
    assert (outcome.code, len(helper.model.requests)) == ("model_error", 1)
    assert kind in outcome.message


async def test_a_model_whose_code_crashes_fails_its_run_and_no_other(shelf, autojump_clock):
    def broken(request):
        raise ZeroDivisionError("a bug in the model")

    bad, good = gr.Agent("bad", model=FunctionModel(broken)), agent("fine", key="good")
    async with home(shelf, agents=[bad, good]) as runtime:
        failed = await (await runtime.start(bad, "hi")).result()
        assert (await (await runtime.start(good, "hi")).result()).output == "fine"
    assert failed.code == "model_bug"
    assert "ZeroDivisionError: a bug in the model" in failed.message


async def test_a_refusal_ends_the_run_as_model_refusal(shelf, autojump_clock):
    outcome = await outcome_of(shelf, agent(refuse("I will not")))
    assert (outcome.code, outcome.message) == ("model_refusal", "I will not")


async def test_two_different_calls_under_one_id_are_a_model_behavior_error_before_any_effect(shelf, autojump_clock):
    ran = []

    @gr.tool
    async def act(n: int) -> int:
        ran.append(n)
        return n

    outcome = await outcome_of(shelf, agent([call("act", n=1, id="x"), call("act", n=2, id="x")], tools=[act]))
    assert (outcome.code, ran) == ("model_behavior_error", [])


async def test_an_empty_answer_is_the_output_and_not_another_round(shelf, autojump_clock):
    helper = agent([])
    outcome = await outcome_of(shelf, helper)
    assert (outcome.output, len(helper.model.requests)) == ("", 1)


async def test_a_script_that_is_too_short_says_so(shelf, autojump_clock):
    outcome = await outcome_of(shelf, agent(call("add", a=1, b=2, id="c1"), tools=[add]))
    assert outcome.code == "model_error"
    assert "the script has no more answers than 1, but run" in outcome.message
    assert "asks for number 2; add it to the script" in outcome.message


async def test_usage_is_summed_over_all_requests(shelf, autojump_clock):
    usage = gr.Usage(requests=1, input=10, output=5, cached=2, reasoning=1)
    helper = agent([text("a", usage=usage), call("add", a=1, b=2, id="c1")], text("b", usage=usage), tools=[add])
    outcome = await outcome_of(shelf, helper)
    assert outcome.usage == gr.Usage(requests=2, input=20, output=10, cached=4, reasoning=2)


# --- stop conditions -------------------------------------------------------------------------------------------------


def adding(count: int) -> list:
    return [call("add", a=n, b=n, id=f"c{n}") for n in range(count)]


@pytest.mark.parametrize(
    ("steps", "condition", "code"),
    [
        (adding(9), gr.stop.MaxRounds(3), "max_rounds"),
        (adding(9), gr.stop.TokenBudget(5), "token_budget"),
        (adding(9), gr.stop.StopOnTool("add"), "stop_on_tool"),
        ([call("wrong", id=f"c{n}") for n in range(9)], gr.stop.ConsecutiveErrors(2), "consecutive_errors"),
        ([call("add", a=1, b=1) for _ in range(9)], gr.stop.LoopDetection(3), "loop_detection"),
        ([[text("all CLEAR now"), call("add", a=1, b=1)]] * 9, gr.stop.ContentMatch("CLEAR"), "content_match"),
        ([[delay(20), call("add", a=n, b=1)] for n in range(9)], gr.stop.Timeout(50), "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_stop_condition_ends_the_run_as_stopped(shelf, autojump_clock, steps, condition, code):
    helper = agent(*steps, tools=[add, wrong], stop=[condition])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        outcome = await run.result()
        view = await run.view()
        (completed,) = payloads(await events_of(run), "completed")
    assert isinstance(outcome, gr.Stopped)
    assert (outcome.code, outcome.termination.kind, view.stage) == (code, "stopped", "completed")
    assert outcome.detail
    assert (completed["termination"], completed["code"]) == ("stopped", code)
    assert len(helper.model.requests) < 9


async def test_sixteen_rounds_are_the_default(shelf, autojump_clock):
    helper = agent(*adding(20), tools=[add])
    outcome = await outcome_of(shelf, helper)
    assert (outcome.code, len(helper.model.requests)) == ("max_rounds", 16)


async def test_an_answer_that_was_just_given_is_not_thrown_away(shelf, autojump_clock):
    outcome = await outcome_of(
        shelf, agent(call("add", a=1, b=2, id="c1"), "three", tools=[add], stop=[gr.stop.MaxRounds(2)])
    )
    assert not isinstance(outcome, gr.Stopped)
    assert outcome.output == "three"


async def test_counters_survive_a_restart(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def ask() -> str:
        return "ok"

    helper = agent(*[call("ask", id=f"c{n}") for n in range(9)], tools=[ask], stop=[gr.stop.MaxRounds(3)])
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).wait()
    for n in range(3):
        async with home(shelf, agents=[helper]) as runtime:
            run = await runtime.get("r1")
            await run.decide(f"c{n}", "resume")
            outcome = await run.wait()
    assert isinstance(outcome, gr.Stopped)
    assert outcome.code == "max_rounds"


# --- the form of an answer -------------------------------------------------------------------------------------------


@attrs.frozen
class Order:
    number: int
    items: list[str]


async def test_the_form_of_an_answer_is_asked_for_in_every_request(shelf, autojump_clock):
    """A model that is not shown the schema can only guess it."""
    good = '{"number": 7, "items": ["pen"]}'
    helper = agent(
        call("add", a=1, b=2),
        '{"number": 7, "items": "pen"}',
        good,
        instructions="be kind",
        tools=[add],
        output_type=Order,
    )
    assert (await outcome_of(shelf, helper)).output == Order(7, ["pen"])
    assert len(helper.model.requests) == 3
    for request in helper.model.requests:
        assert request.output_schema == helper.output_schema
        system = request.messages[0]
        assert system.role == "system"
        assert system.content.startswith("be kind\n\n")
        assert "JSON Schema" in system.content
        assert '"items":{"type":"array"' in system.content
        assert [message.role for message in request.messages].count("system") == 1


async def test_the_form_is_asked_for_without_instructions_too_and_not_where_text_is_wanted(shelf, autojump_clock):
    helper = agent("3", output_type=int)
    assert (await outcome_of(shelf, helper)).output == 3
    assert '{"type":"integer"}' in helper.model.requests[0].messages[0].content
    plain = agent("3", key="plain", instructions="be kind")
    await outcome_of(shelf, plain)
    assert plain.model.requests[0].messages[0].content == "be kind"
    assert plain.model.requests[0].output_schema is None


async def test_a_model_that_asks_for_the_form_itself_finds_the_schema_in_the_request_alone(shelf, autojump_clock):
    class Native(ScriptedModel):
        structured = "native"

    helper = gr.Agent("helper", instructions="be kind", model=Native(["3"]), output_type=int)
    await outcome_of(shelf, helper)
    (request,) = helper.model.requests
    assert (request.messages[0].content, request.output_schema) == ("be kind", {"type": "integer"})


@pytest.mark.parametrize(
    ("answer", "what", "where"),
    [
        ('{"number": 7, "items": ["pen", 3]}', "Expected `str`, got `int`", "`$.items[1]`"),
        ('{"number": 7}', "missing required field `items`", "`$`"),
        ("seven", "JSON is malformed", "`$`"),
    ],
)
async def test_an_answer_of_another_form_is_shown_what_is_wrong_and_where(shelf, autojump_clock, answer, what, where):
    helper = agent(answer, '{"number": 7, "items": []}', output_type=Order)
    assert (await outcome_of(shelf, helper)).output == Order(7, [])
    reported = helper.model.requests[1].messages[-1]
    assert reported.role == "user"
    assert what in reported.content
    assert f"at {where}" in reported.content


def test_a_real_ctrl_c_inside_a_model_s_error_ends_the_program():
    """The error of a model may be a class of the user's, and its fields code; an interrupt there is no answer."""

    class Interrupted(gr.ModelError):
        @property
        def retryable(self):
            ctrl_c()
            return True

    def says(request):
        raise Interrupted("x")

    async def main():
        helper = gr.Agent("helper", model=FunctionModel(says))
        async with home(agents=[helper]) as runtime:
            await (await runtime.start(helper, "hi")).wait()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
