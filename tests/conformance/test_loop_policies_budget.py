"""Policies of use: what a run may spend, and answers that their token limit has cut."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.contract.policies import BudgetPolicy, TruncationPolicy
from greenroom.testing import FunctionModel, ScriptedModel, call, delay, fail, finish, text

from ..support.scenes import Life, after, restart

CUT = finish("length")


@attrs.frozen
class Form:
    """An output type."""

    n: int


def ended(life: Life) -> tuple[str, str]:
    """Code and message of a failed run."""
    return life.outcome.code, life.outcome.message


# --- requests and tokens ---------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-21")
async def test_a_run_makes_so_many_requests_and_no_more(play, autojump_clock):
    script = [call("look", id="A"), call("look", id="B"), "done"]
    life = await play(*script, plugins=[gr.Budget(requests=2)])
    assert ended(life) == ("budget_exhausted", "requests: 2 of 2 are used")
    assert (len(life.requests), life.effects) == (2, ["A", "B"])
    life = await play(*script, plugins=[gr.Budget(requests=3)], start={"run_id": "x", "thread_id": "x"})
    assert life.outcome.output == "done"


@pytest.mark.rule("PO-21")
async def test_retries_fallbacks_and_answers_that_are_asked_for_again_are_requests(play, autojump_clock):
    budget = gr.Budget(requests=2)
    life = await play(*[fail("overloaded")] * 3, plugins=[budget])
    assert (ended(life)[0], len(life.requests)) == ("budget_exhausted", 2)
    other = gr.Fallback(FunctionModel(lambda _: fail("unauthorized")), FunctionModel(lambda _: "here"))
    life = await play(fail("unauthorized"), plugins=[budget, other], start={"run_id": "x", "thread_id": "x"})
    assert (ended(life)[0], life.view.usage.requests) == ("budget_exhausted", 2)
    life = await play(
        *["no form"] * 3,
        plugins=[budget],
        output_type=Form,
        output_retries=5,
        start={"run_id": "y", "thread_id": "y"},
    )
    assert (ended(life)[0], len(life.requests)) == ("budget_exhausted", 2)


@pytest.mark.rule("PO-21")
async def test_a_shown_text_that_may_not_be_continued_is_discarded(play, autojump_clock):
    broken = [text("Once upon "), delay(1), fail("interrupted")]
    life = await play(broken, plugins=[gr.Budget(requests=1)])
    assert (ended(life)[0], life.types.count("message.discarded")) == ("budget_exhausted", 1)
    assert life.history == ["user: hi"]


@pytest.mark.rule("PO-21")
@pytest.mark.parametrize(
    ("limit", "words"), [("input", "input: 30 of 30"), ("output", "output: 4 of 4"), ("total", "total: 34 of 34")]
)
async def test_tokens_are_limited_and_an_answer_that_has_come_is_kept(play, autojump_clock, limit, words):
    used = gr.Usage(requests=1, input=30, output=4)
    most = {"input": 30, "output": 4, "total": 34}[limit]
    life = await play([text("look", usage=used), call("look", id="A")], plugins=[gr.Budget(**{limit: most})])
    assert ended(life) == ("budget_exhausted", f"{words} are used")
    assert life.effects == ["A"]
    start = {"run_id": "x", "thread_id": "x"}
    life = await play([text("all", usage=used)], plugins=[gr.Budget(**{limit: 1})], start=start)
    assert life.outcome.output == "all"


@pytest.mark.rule("PO-21")
async def test_a_restart_continues_to_count_and_a_budget_that_is_used_up_ends_the_run(play, autojump_clock):
    life = await play([text("Once "), delay(20), "more"], plugins=[gr.Budget(requests=1)], do=[after(10, restart)])
    assert (ended(life)[0], life.view.usage.requests) == ("budget_exhausted", 1)
    assert life.types.count("message.discarded") == 1


async def test_a_budget_of_nothing_makes_no_request(play, autojump_clock):
    life = await play("never", plugins=[gr.Budget(requests=0)])
    assert (ended(life)[0], len(life.requests)) == ("budget_exhausted", 0)


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-22")
async def test_so_many_bodies_of_tools_begin(play, autojump_clock):
    script = [call("look", id="A"), [call("look", id="B"), call("look", id="C")], "done"]
    life = await play(*script, plugins=[gr.Budget(tool_calls=2)])
    assert ended(life) == ("budget_exhausted", "tool_calls: 2 of 2 are used")
    assert life.scene.outside.attempts("C") == 0
    life = await play(*script, plugins=[gr.Budget(tool_calls=3)], start={"run_id": "x", "thread_id": "x"})
    assert (life.outcome.output, sorted(life.effects[-3:])) == ("done", ["A", "B", "C"])  # B and C run at once


@pytest.mark.rule("PO-22")
async def test_a_budget_of_no_bodies_lets_the_model_answer(play, autojump_clock):
    life = await play("done", plugins=[gr.Budget(tool_calls=0)])
    assert life.outcome.output == "done"


# --- cost ------------------------------------------------------------------------------------------------------------

USED = gr.Usage(requests=1, input=1_000_000, output=100_000, cached=400_000)


def test_a_price_is_per_million_tokens():
    assert gr.Price(1.0, 10.0).of(USED) == 2.0
    assert gr.Price(1.0, 10.0, cached=0.5).of(USED) == pytest.approx(1.8)
    storing = gr.Usage(requests=1, input=1_000_000, cached=400_000, stored=400_000)
    assert gr.Price(1.0, 10.0).of(storing) == 1.0
    assert gr.Price(1.0, 10.0, cached=0.5, stored=1.25).of(storing) == pytest.approx(0.2 + 0.2 + 0.5)


@pytest.mark.rule("PO-23")
@pytest.mark.parametrize(("cost", "requests"), [(1.0, 1), (2.0, 2), (3.6, 3)])
async def test_cost_is_limited_by_prices(play, autojump_clock, cost, requests):
    script = [[text("x", usage=USED), call("look", id=name)] for name in "ABCD"]
    prices = {"scripted": gr.Price(1.0, 10.0, cached=0.0)}
    life = await play(*script, plugins=[gr.Budget(cost=cost, prices=prices)])
    assert (ended(life)[0], len(life.requests)) == ("budget_exhausted", requests)
    assert life.record.row.counters.cost == pytest.approx(1.6 * requests)


@pytest.mark.rule("PO-23")
def test_the_models_of_an_agent_need_a_price():
    budget = gr.Budget(cost=1.0, prices={"scripted": gr.Price(1, 2)})
    model = ScriptedModel(["x"])
    assert gr.Agent("a", model=model, plugins=[budget]).spec.policies.budget is budget.policy
    with pytest.raises(gr.AgentDefinitionError, match=r"Budget\(cost=1\) needs prices=\{'openai:small'"):
        gr.Agent("a", model=model, plugins=[budget, gr.Fallback("openai:small")])


@pytest.mark.rule("PO-23")
async def test_a_model_that_a_hook_chooses_is_not_asked_without_a_price(autojump_clock):
    class Chooses(gr.Plugin):
        async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
            return gr.Mutation().override(model="local:big")

    budget = gr.Budget(cost=1.0, prices={"scripted": gr.Price(1, 2)})
    agent = gr.Agent("a", model=ScriptedModel(["x"]), plugins=[budget, Chooses()])
    async with gr.open_runtime(agents=[agent], providers={"local": lambda _: ScriptedModel(["y"])}) as runtime:
        outcome = await (await runtime.start(agent, "hi")).result()
    assert isinstance(outcome, gr.Failed)
    assert outcome.message == "the cost is limited to 1, and the model 'local:big' has no price"


# --- answers that are cut off ----------------------------------------------------------------------------------------


@pytest.mark.rule("PO-19")
async def test_a_truncated_answer_is_continued_so_often(play, autojump_clock):
    parts = [[text("Once "), CUT], [text("upon "), CUT], [text("a "), CUT]]
    life = await play(*parts, "time.", plugins=[gr.ContinueTruncated(3)])
    assert (life.outcome.output, life.outcome.finish) == ("Once upon a time.", "stop")
    assert [request.prefix for request in life.requests] == ["", "Once ", "Once upon ", "Once upon a "]
    assert [payload["finish"] for payload in life.payloads("inference.completed")] == ["length"] * 3 + ["stop"]
    assert len({payload["messageId"] for payload in life.payloads("inference.started")}) == 1
    assert life.history == ["user: hi", "assistant: Once upon a time."]
    assert (life.types.count("inference.retried"), life.seconds("completed")) == (0, 0.0)
    again = await play(*parts, plugins=[gr.ContinueTruncated()], start={"run_id": "x", "thread_id": "x"})
    assert (again.outcome.output, again.outcome.finish) == ("Once upon a ", "length")


@pytest.mark.rule("PO-19")
async def test_without_the_policy_a_truncated_text_is_the_answer(play, autojump_clock):
    life = await play([text("Once "), CUT])
    assert (life.outcome.output, life.outcome.finish, len(life.requests)) == ("Once ", "length", 1)


@pytest.mark.rule("PO-19")
async def test_a_truncated_answer_may_break_and_go_on_with_a_call(play, autojump_clock):
    parts = [[text("I look"), CUT], [text(" around"), fail("interrupted")], [text("."), call("look", id="A")], "done"]
    life = await play(*parts, plugins=[gr.ContinueTruncated()])
    assert (life.outcome.output, life.history[1]) == ("done", "assistant: I look around. (A)")


@pytest.mark.rule("PO-20")
async def test_an_answer_with_calls_or_with_a_form_is_not_continued(play, autojump_clock):
    life = await play([call("look", id="A"), CUT], "done", plugins=[gr.ContinueTruncated()])
    assert (life.outcome.output, life.effects) == ("done", ["A"])
    life = await play(
        [text('{"n": '), CUT],
        '{"n": 1}',
        output_type=Form,
        plugins=[gr.ContinueTruncated()],
        start={"run_id": "x", "thread_id": "x"},
    )
    assert (life.outcome.output, life.requests[1].prefix) == (Form(1), "")


@pytest.mark.rule("PO-11", "PO-19")
async def test_a_secret_that_a_token_limit_cuts_in_two_is_masked(play, autojump_clock):
    secret = "sk-proj-" + "a1B2c3D4" * 6
    parts = [[text(f"it is {secret[:20]}"), CUT], [delay(1), f"{secret[20:]} ok"]]
    life = await play(*parts, plugins=[gr.ContinueTruncated()])
    assert life.outcome.output == f"it is {secret} ok"
    everything = b"".join(life.frames).decode()
    assert secret[8:20] not in everything
    assert secret[20:] not in everything


@pytest.mark.rule("PO-21")
async def test_the_rest_of_a_truncated_answer_is_a_request(play, autojump_clock):
    plugins = [gr.ContinueTruncated(), gr.Budget(requests=1)]
    life = await play([text("Once upon "), delay(1), CUT], plugins=plugins)
    assert (ended(life)[0], life.history) == ("budget_exhausted", ["user: hi"])


# --- the plugins -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-2")
def test_budgets_and_truncation_are_part_of_the_spec():
    spec = gr.Agent("a", plugins=[gr.Budget(requests=3), gr.ContinueTruncated()]).spec
    assert spec.policies.budget == BudgetPolicy(requests=3)
    assert spec.policies.truncation == TruncationPolicy(times=2)
    assert (
        len({spec.digest, gr.Agent("a").spec.digest, gr.Agent("a", plugins=[gr.Budget(requests=4)]).spec.digest}) == 3
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gr.Budget, r"Budget\(\) limits nothing"),
        (lambda: gr.Budget(requests=-1), r"Budget\(requests=-1\): give a whole number, 0 or more"),
        (lambda: gr.Budget(total=1.5), r"Budget\(total=1.5\)"),
        (lambda: gr.Budget(cost=1.0), r"Budget\(cost=...\) needs prices"),
        (lambda: gr.Budget(cost=-1.0, prices={"x": gr.Price(1, 2)}), r"Budget\(cost=-1.0\)"),
        (lambda: gr.Budget(requests=1, prices={"x": (1, 2)}), "give the name of a model, .* and a gr.Price"),
        (lambda: gr.Budget(requests=1, prices={"x": gr.Price("1", 2)}), r"Price\(input='1'\)"),
        (lambda: gr.ContinueTruncated(0), r"ContinueTruncated\(times=0\): give a whole number, 1 or more"),
    ],
)
def test_what_is_invalid_is_named(make: Callable[[], Any], words: str):
    with pytest.raises(gr.AgentDefinitionError, match=words):
        make()
