"""Models through the whole stack: what they are sent, what their errors do, how runs end, and what stops them."""

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, ScriptedModel, call, fail, text

from ..support.runs import Shelf, agent, events_of, home, payloads
from ..support.stray_cancels import ctrl_c


@gr.tool
async def add(a: int, b: int) -> int:
    return a + b


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
