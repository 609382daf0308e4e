"""The models of greenroom.testing at work in a runtime: scripts, AutoModel, recorded answers, overrides."""

from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
import trio

import greenroom as gr
from greenroom.testing import (
    AutoModel,
    FunctionModel,
    ScriptedModel,
    UnsupportedSchema,
    call,
    delay,
    fail,
    recorded,
    text,
)

from ..support.runs import home


@attrs.frozen
class Order:
    number: Annotated[int, msgspec.Meta(ge=100, le=999)]
    lines: Annotated[list[Literal["tea", "milk"]], msgspec.Meta(min_length=1)]


class Shop:
    """Two tools that note the arguments of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

        @gr.tool
        async def buy(order: Order) -> str:
            self.calls.append(("buy", order))
            return "bought"

        @gr.tool
        async def find(word: str, limit: int = 5) -> str:
            self.calls.append(("find", word))
            return "found"

        self.tools = [buy, find]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def agent(model: Any, shop: Shop | None = None, key: str = "shop", **options: Any) -> gr.Agent[Any]:
    return gr.Agent(key, tools=[] if shop is None else shop.tools, model=model, **options)


async def outcome_of(model: Any, shop: Shop | None = None, **options: Any) -> gr.Completed[Any]:
    async with home() as runtime:
        outcome = await (await runtime.start(agent(model, shop, **options), "Go.")).wait()
    assert isinstance(outcome, gr.Completed), outcome
    return outcome


# --- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TK-1")
async def test_a_script_is_read_by_each_run_and_agent_for_itself(autojump_clock):
    model = ScriptedModel([delay(1), fail("overloaded"), "done"])
    async with home() as runtime:
        runs = [await runtime.start(agent(model, key=key), "Go.") for key in ("a", "b", "a")]
        outputs = [(await run.result()).output for run in runs]
        joined = await runtime.start("a", "Again.", thread_id=runs[0].thread_id)
        assert outputs == ["", "", ""]
        await joined.result()
    asked = [(request.agent, request.model_attempts) for request in model.requests]
    assert sorted(asked) == [("a", 0), ("a", 0), ("a", 0), ("b", 0)]
    model = ScriptedModel([fail("overloaded"), "done"])
    assert (await outcome_of(model)).output == "done"  # the error was the first of the script's answers


class Forgetful(gr.Plugin):
    """Hides all messages but the newest."""

    name = "forgetful"

    async def before_inference(self, ctx: gr.PhaseContext) -> gr.Mutation:
        return gr.Mutation().hide_messages(*[message.id for message in ctx.messages[:-1]])


@pytest.mark.rule("TK-1")
async def test_hidden_messages_do_not_move_the_position_in_the_script(autojump_clock):
    shop = Shop()
    model = ScriptedModel([call("find", word="a"), call("find", word="b"), "done"])
    assert (await outcome_of(model, shop, plugins=[Forgetful()])).output == "done"
    assert shop.calls == [("find", "a"), ("find", "b")]


@pytest.mark.rule("TK-2")
async def test_a_step_that_a_restart_interrupts_is_played_again(autojump_clock):
    store, model = gr.MemoryStore(), ScriptedModel([call("find", word="a"), [delay(10), text("done")]])
    shop = Shop()
    async with home(store, agents=[agent(model, shop)], drain=0) as runtime:
        await runtime.start("shop", "Go.", run_id="r")
        await trio.sleep(5)
    async with home(store, agents=[agent(model, shop)]) as runtime:
        assert (await (await runtime.get("r")).result()).output == "done"
    assert [request.model_attempts for request in model.requests] == [0, 1, 1]
    assert shop.names == ["find"]
    model.assert_complete()


# --- AutoModel -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TK-3", "TK-4")
async def test_each_tool_is_called_once_with_arguments_that_pass(autojump_clock):
    shop = Shop()
    outcome = await outcome_of(AutoModel(), shop)
    assert sorted(shop.names) == ["buy", "find"]
    order = dict(shop.calls)["buy"]
    assert 100 <= order.number <= 999
    assert order.lines
    assert outcome.output == "Done."
    again, other = Shop(), Shop()
    await outcome_of(AutoModel(), again)
    await outcome_of(AutoModel(seed=1), other)
    assert sorted(again.calls, key=str) == sorted(shop.calls, key=str) != sorted(other.calls, key=str)


@pytest.mark.rule("TK-3")
async def test_only_the_named_tools_are_called(autojump_clock):
    shop = Shop()
    await outcome_of(AutoModel(call_tools=["find", "no such tool"]), shop)
    assert shop.names == ["find"]
    await outcome_of(AutoModel(call_tools=[]), shop)
    await outcome_of(AutoModel(), shop, tool_choice="none")
    assert shop.names == ["find"]
    await outcome_of(AutoModel(), shop, tool_choice="buy")
    assert shop.names == ["find", "buy", "find"]


@pytest.mark.rule("TK-3")
async def test_hidden_messages_and_a_restart_make_no_second_call(autojump_clock):
    shop, store = Shop(), gr.MemoryStore()
    await outcome_of(AutoModel(), shop, plugins=[Forgetful()])
    assert len(shop.calls) == 2

    def slow() -> FunctionModel:
        auto = AutoModel()

        async def answer(request: gr.ModelRequest) -> Any:
            await trio.sleep(3)
            return await auto._step(request)

        return FunctionModel(answer)

    async with home(store, agents=[agent(slow(), shop)], drain=0) as runtime:
        await runtime.start("shop", "Go.", run_id="r")
        await trio.sleep(5)
    async with home(store, agents=[agent(slow(), shop)]) as runtime:
        await (await runtime.get("r")).result()
    assert len(shop.calls) == 4


@pytest.mark.rule("TK-3")
async def test_an_answer_that_a_crash_has_lost_is_given_again():
    """The model outlives the runtime, and has given an answer that no commit holds."""
    model, schema = AutoModel(), {"type": "object", "properties": {}}
    tools = (gr.ToolInfo(name="find", description="", schema=schema),)

    async def answered(attempts: int) -> list[str]:
        request = gr.ModelRequest(agent="a", messages=(), tools=tools, run_id="r", model_attempts=attempts)
        async with model.stream(request) as events:
            (response,) = [event async for event in events if isinstance(event, gr.ModelResponse)]
        return [made.tool for made in response.calls]

    assert await answered(0) == ["find"]
    assert await answered(0) == ["find"]
    assert await answered(1) == []


@pytest.mark.rule("TK-3")
async def test_a_second_run_of_the_thread_calls_the_tools_again(autojump_clock):
    shop, model = Shop(), AutoModel()
    async with home() as runtime:
        for _ in range(2):
            await (await runtime.start(agent(model, shop), "Go.", thread_id="t")).result()
    assert len(shop.calls) == 4


@pytest.mark.rule("TK-5")
@pytest.mark.parametrize(
    ("type_", "output"), [(str, "Yes."), (Order, None), (Order, {"number": 123, "lines": ["tea"]}), (int, 7)]
)
async def test_the_answer_has_the_form_of_the_output_type(autojump_clock, type_, output):
    outcome = await outcome_of(AutoModel(output=output), output_type=type_)
    assert isinstance(outcome.output, type_)
    if output is not None:
        assert outcome.output in (output, Order(123, ["tea"]))


@pytest.mark.rule("TK-5")
async def test_the_answer_fits_a_json_schema(autojump_clock):
    schema = {
        "type": "object",
        "properties": {"verdict": {"enum": ["yes", "no"]}, "why": {"type": "string", "pattern": "^[A-Z].+[.]$"}},
        "required": ["verdict", "why"],
        "additionalProperties": False,
    }
    outcome = await outcome_of(AutoModel(), output_type=schema)
    assert outcome.output["verdict"] in ("yes", "no")
    assert outcome.output["why"].endswith(".")
    assert outcome.usage.requests == 1  # the first answer was right


@pytest.mark.rule("TK-4")
async def test_a_tool_without_valid_arguments_ends_the_run_with_the_place(autojump_clock):
    def body(ctx, arguments):
        return "done"

    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^a$", "minLength": 3}},
        "required": ["a"],
    }
    tool = gr.Tool.from_schema(body, name="made", schema=schema)
    async with home() as runtime:
        outcome = await (await runtime.start(gr.Agent("a", tools=[tool], model=AutoModel()), "Go.")).wait()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "model_bug"
    assert UnsupportedSchema.__name__ in outcome.message
    assert "$.a" in outcome.message


@pytest.mark.parametrize(
    "wrong", [{"call_tools": "find"}, {"call_tools": [1]}, {"output": {1, object()}}, {"output": float("nan")}]
)
def test_wrong_arguments_of_auto_model_are_named(wrong):
    with pytest.raises(gr.UsageError, match=next(iter(wrong))):
        AutoModel(**wrong)


# --- recorded answers ------------------------------------------------------------------------------------------------


@pytest.mark.rule("TK-6")
async def test_a_recorded_model_answers_as_the_run_s_did(autojump_clock):
    shop = Shop()
    model = ScriptedModel([
        [text("One moment. "), call("find", word="tea", id="c7")],
        [text("It is "), fail("interrupted")],
        "done.",
    ])  # fmt: skip
    async with home() as runtime:
        first = await (await runtime.start(agent(model, shop), "Go.", run_id="r")).result()
        again = await recorded(runtime, "r")
    assert first.output == "It is done."
    assert again.answers == {"shop": 3}
    other = Shop()
    outcome = await outcome_of(again, other, key="another")
    assert outcome.output == first.output
    assert other.calls == shop.calls
    assert [request.prefix for request in again.requests] == [request.prefix for request in model.requests]


@pytest.mark.rule("TK-6")
async def test_a_recorded_model_has_no_answers_beyond_the_record(autojump_clock):
    async with home() as runtime:
        await (await runtime.start(agent(ScriptedModel(["done"])), "Go.", run_id="r")).result()
        model = await recorded(runtime, "r", after_step=1)
        outcome = await (await runtime.start(agent(model, key="b"), "Go.")).wait()
    assert model.answers == {"shop": 0}
    assert isinstance(outcome, gr.Failed)
    assert "the record of run 'r' has 0 answers" in outcome.message


@pytest.mark.rule("TK-7")
async def test_a_fork_reads_the_record_after_its_step(autojump_clock):
    shop = Shop()
    model = ScriptedModel([call("find", word="a"), call("find", word="b"), "done"])
    async with home() as runtime:
        await (await runtime.start(agent(model, shop), "Go.", run_id="r")).result()
        rest = await recorded(runtime, "r", after_step=1)
        with runtime.override(rest):
            fork = await runtime.fork("r", step=1)
            assert (await fork.result()).output == "done"
    assert shop.calls == [("find", "a"), ("find", "b"), ("find", "b")]


@pytest.mark.rule("TK-7")
async def test_a_bug_of_the_model_s_code_is_raised_again(autojump_clock):
    def broken(request: gr.ModelRequest) -> str:
        raise ZeroDivisionError("oh")

    async with home() as runtime:
        first = await (await runtime.start(agent(FunctionModel(broken)), "Go.", run_id="r")).wait()
        again = await (await runtime.start(agent(await recorded(runtime, "r"), key="b"), "Go.")).wait()
    assert isinstance(first, gr.Failed)
    assert isinstance(again, gr.Failed)
    assert "ZeroDivisionError" in again.message
    assert first.code == again.code


@pytest.mark.rule("TK-7")
async def test_a_run_without_a_whole_record_is_refused(autojump_clock):
    store, model = gr.MemoryStore(), ScriptedModel([call("find", word="a"), [delay(10), text("done")]])
    async with home(store, record=False) as runtime:
        await (await runtime.start(agent(ScriptedModel(["done"])), "Go.", run_id="bare")).result()
        with pytest.raises(gr.UsageError, match="bare has no whole record: it was not recorded"):
            await recorded(runtime, "bare")
        store._ledger.runs["bare"].record.clear()  # as an older release has left it
        with pytest.raises(gr.UsageError, match="bare has no record"):
            await recorded(runtime, "bare")
        with pytest.raises(gr.UnknownRun):
            await recorded(runtime, "none")
        with pytest.raises(gr.UsageError, match="after_step"):
            await recorded(runtime, "bare", after_step=-1)
    shop = Shop()
    async with home(store, agents=[agent(model, shop, key="b")], drain=0) as runtime:
        await runtime.start("b", "Go.", run_id="part")
        await trio.sleep(5)
    async with home(store, agents=[agent(model, shop, key="b")], record=False) as runtime:
        await (await runtime.get("part")).result()
        with pytest.raises(gr.UsageError, match="part has no whole record"):
            await recorded(runtime, "part")


# --- override --------------------------------------------------------------------------------------------------------


class Unreachable(gr.Model):
    """Stands for a real service: a test that asks it fails."""

    name = "service"

    def stream(self, request: gr.ModelRequest) -> Any:
        raise AssertionError("the real model was asked")


@pytest.mark.rule("TK-8")
async def test_all_requests_that_begin_in_the_block_ask_the_other_model(autojump_clock):
    class Asks(gr.Plugin):
        name = "asks"

        async def before_inference(self, ctx: gr.PhaseContext) -> gr.Mutation:
            answer = await ctx.ask_model(gr.Message(id="q", role="user", content="Well?"), model=Unreachable())
            return gr.Mutation().add_message(answer.text[0], placement="suffix")

    asked: list[gr.ModelRequest] = []

    def answer(request: gr.ModelRequest) -> Any:
        asked.append(request)
        return fail("unauthorized") if len(asked) == 2 else "other"

    plugins = [Asks(), gr.Fallback(Unreachable())]
    async with home(agents=[agent(Unreachable(), plugins=plugins)]) as runtime:
        with runtime.override(model=FunctionModel(answer)):
            outcome = await (await runtime.start("shop", "Go.")).result()
    assert outcome.output == "other"
    assert len(asked) == 3  # of the hook, of the step, of the fallback


@pytest.mark.rule("TK-8")
async def test_an_override_of_some_agents_leaves_the_others_and_the_innermost_block_counts(autojump_clock):
    a, b = agent(ScriptedModel(["own a"]), key="a"), agent(ScriptedModel(["own b"]), key="b")

    async def outputs(runtime: gr.Runtime) -> list[Any]:
        return [(await (await runtime.start(one, "Go.")).result()).output for one in (a, b)]

    async with home(agents=[a]) as runtime:
        with runtime.override(ScriptedModel(["all"])):
            with runtime.override(ScriptedModel(["only b"]), agents=["b"]):
                assert await outputs(runtime) == ["all", "only b"]
            with runtime.override(ScriptedModel(["only a"]), agents=[a]):
                assert await outputs(runtime) == ["only a", "all"]
        assert await outputs(runtime) == ["own a", "own b"]


@pytest.mark.rule("TK-9")
async def test_a_request_that_began_before_the_block_or_in_it_keeps_its_model(autojump_clock):
    own = ScriptedModel([[delay(10), call("find", word="own")], "-", "own"])
    other = ScriptedModel(["-", [delay(10), call("find", word="other")], "-"])
    shop = Shop()
    async with home() as runtime:
        run = await runtime.start(agent(own, shop), "Go.")
        await trio.sleep(5)
        with runtime.override(other):
            await trio.sleep(10)
        assert (await run.result()).output == "own"
    assert shop.calls == [("find", "own"), ("find", "other")]
    assert own.received == 1 + 1  # the first and the third


@pytest.mark.rule("TK-9")
async def test_two_runtimes_have_their_own_overrides(autojump_clock):
    async with home() as one, home() as two:
        with one.override(ScriptedModel(["other"])):
            runs = [await runtime.start(agent(ScriptedModel(["own"])), "Go.") for runtime in (one, two)]
            assert [(await run.result()).output for run in runs] == ["other", "own"]


@pytest.mark.rule("TK-9")
async def test_a_budget_counts_by_the_prices_of_the_agent_s_own_model(autojump_clock):
    shop = Shop()
    budget = gr.Budget(cost=0.5, prices={"openai:gpt-x": gr.Price(0.0, 1.0)})
    other = ScriptedModel([[text("", usage=gr.Usage(output=600_000)), call("find", word="a")], "never asked"])
    async with home(agents=[agent("openai:gpt-x", shop, plugins=[budget])]) as runtime:
        with runtime.override(other):
            outcome = await (await runtime.start("shop", "Go.")).wait()
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, other.received) == ("budget_exhausted", 1)


@pytest.mark.rule("TK-8")
async def test_an_agent_without_a_usable_model_starts_under_an_override(autojump_clock):
    async with home(agents=[agent(None, key="none"), agent("openai:gpt-x", key="named")]) as runtime:
        with pytest.raises(gr.AgentDefinitionError):
            await runtime.start("none", "Go.")
        with runtime.override(AutoModel()):
            for key in ("none", "named"):
                assert (await (await runtime.start(key, "Go.")).result()).output == "Done."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": 7}, "model=7"),
        ({"model": AutoModel(), "agents": "shop"}, "agents='shop'"),
        ({"model": AutoModel(), "agents": 7}, "agents=7"),
        ({"model": AutoModel(), "agents": [7]}, "has 7"),
        ({"model": "nothing:x"}, "nothing"),
    ],
    ids=str,
)
async def test_wrong_arguments_of_an_override_are_named(arguments, words):
    async with home() as runtime:
        with pytest.raises((gr.UsageError, gr.AgentDefinitionError), match=words), runtime.override(**arguments):
            pass


# --- several agents in one run ---------------------------------------------------------------------------------------


def office(front: Any, back: Any, shop: Shop, **options: Any) -> gr.Agent[Any]:
    """Two agents that can hand over to each other."""
    desk = agent(back, shop, key="back", handoffs=["front"], **options)
    return gr.Agent("front", model=front, handoffs=[desk])


@pytest.mark.rule("TK-1")
async def test_each_agent_of_a_run_reads_its_own_script_also_when_it_comes_back(autojump_clock):
    shop = Shop()
    front = ScriptedModel([fail("overloaded"), call("transfer_to_back"), "front again"])
    back = ScriptedModel([call("find", word="a"), call("transfer_to_front")])
    async with home() as runtime:
        outcome = await (await runtime.start(office(front, back, shop), "Go.")).result()
    assert outcome.output == "front again"
    asked = [(request.agent, request.model_attempts) for request in (*front.requests, *back.requests)]
    assert asked == [("front", 0), ("front", 1), ("front", 2), ("back", 0), ("back", 1)]
    front.assert_complete()
    back.assert_complete()


@pytest.mark.rule("TK-1")
async def test_agents_of_a_run_may_share_one_script(autojump_clock):
    """Both read it from its beginning."""

    def forget(messages: Any) -> Any:
        return messages[:1]  # a filter does not move the position

    script = ScriptedModel([call("transfer_to_back"), "done"])
    back = gr.Agent("back", model=script)
    front = gr.Agent("front", model=script, handoffs=[gr.handoff(back, input_filter=forget)])
    async with home() as runtime:
        outcome = await (await runtime.start(front, "Go.")).wait()
    assert [(request.agent, request.model_attempts) for request in script.requests][:2] == [("front", 0), ("back", 0)]
    assert isinstance(outcome, gr.Completed)


@pytest.mark.rule("TK-3")
async def test_auto_model_goes_through_the_agents_and_ends(autojump_clock):
    shop = Shop()
    async with home() as runtime:
        run = await runtime.start(office(AutoModel(), AutoModel(), shop), "Go.")
        assert (await run.result()).output == "Done."
        view = await run.view()
    assert sorted(shop.names) == ["buy", "find"]
    assert view.active_agent == "front"  # which has called its only handoff, and answers when the run comes back


@pytest.mark.rule("TK-6")
async def test_a_record_of_several_agents_serves_each_its_own_answers(autojump_clock):
    shop = Shop()
    front = ScriptedModel([call("transfer_to_back"), "front again"])
    back = ScriptedModel([call("find", word="a"), call("transfer_to_front")])
    async with home() as runtime:
        await (await runtime.start(office(front, back, shop), "Go.", run_id="r")).result()
        model = await recorded(runtime, "r")
        assert model.answers == {"front": 2, "back": 2}
        with runtime.override(model):
            again = await (await runtime.start("front", "Go.")).result()
    assert again.output == "front again"
    assert shop.calls == [("find", "a")] * 2


@pytest.mark.rule("TK-8")
async def test_an_override_names_the_active_agent(autojump_clock):
    shop = Shop()
    front, own = ScriptedModel([call("transfer_to_back")]), ScriptedModel(["own"])
    async with home() as runtime:
        with runtime.override(ScriptedModel(["other"]), agents=["back"]):
            outcome = await (await runtime.start(office(front, own, shop), "Go.")).result()
    assert (outcome.output, own.received) == ("other", 0)
