"""Policies of models: the next model after one has failed, and models that are left alone for a while."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.policies import BreakerPolicy, FallbackPolicy
from greenroom.actors.services.breakers import Circuit
from greenroom.testing import FunctionModel, ScriptedModel, call, delay, fail, text

from ..support.scenes import Life, after, restart

CUT = fail("interrupted", "the connection broke")


class Named(FunctionModel):
    """A model that gives its steps in order, whatever the run has received from others; then the last one again."""

    def __init__(self, name: str, *steps: Any) -> None:
        self.name, self.steps, self.given = name, steps, 0
        super().__init__(self.following)

    def following(self, request: gr.ModelRequest) -> Any:
        assert request.model == self.name
        self.given += 1
        return self.steps[min(self.given, len(self.steps)) - 1]


def asked(life: Life) -> list[str]:
    """The model of each request; "" is the agent's own."""
    return [payload.get("model", "") for payload in life.payloads("inference.started")]


# --- the next model --------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-14")
async def test_the_next_model_is_asked_when_the_tries_of_one_are_used_up(play, autojump_clock):
    second, third = Named("second", fail("timeout")), Named("third", "at last")
    life = await play(*[fail("overloaded")] * 3, plugins=[gr.Fallback(second, third)])
    assert (life.outcome.output, asked(life)) == ("at last", ["", "", "", *["second"] * 3, "third"])
    retried = life.payloads("inference.retried")
    assert [payload.get("model") for payload in retried] == [None, None, "second", None, None, "third"]
    assert [bool(payload.get("delayMs")) for payload in retried] == [True, True, False, True, True, False]
    assert [request.attempt for request in third.requests] == [7]
    assert life.view.usage.requests == 7


@pytest.mark.rule("PO-14")
async def test_when_no_model_is_left_the_run_fails_with_the_last_failure(play, autojump_clock):
    second = Named("second", fail("provider", "broken, too"))
    life = await play(fail("overloaded"), plugins=[gr.Fallback(second), gr.Retry(1)])
    assert (life.outcome.code, life.outcome.message) == ("model_error", "provider: broken, too")
    assert second.received == 1


@pytest.mark.rule("PO-15")
@pytest.mark.parametrize("kind", ["unauthorized", "model_not_found", "quota_exceeded"])
async def test_a_failure_of_the_model_that_will_not_pass_asks_the_next_one_at_once(play, autojump_clock, kind):
    life = await play(fail(kind), plugins=[gr.Fallback(Named("second", "here"))])
    assert (life.outcome.output, asked(life), life.seconds("completed")) == ("here", ["", "second"], 0.0)


@pytest.mark.rule("PO-15")
async def test_a_wait_beyond_the_cap_asks_the_next_model_at_once(play, autojump_clock):
    life = await play(fail("rate_limited", retry_after=3600), plugins=[gr.Fallback(Named("second", "here"))])
    assert (life.outcome.output, asked(life), life.seconds("completed")) == ("here", ["", "second"], 0.0)


@pytest.mark.rule("PO-15")
@pytest.mark.parametrize("kind", ["invalid_request", "context_overflow", "content_filtered"])
async def test_a_failure_of_the_request_asks_no_other_model(play, autojump_clock, kind):
    second = Named("second", "here")
    life = await play(fail(kind), plugins=[gr.Fallback(second)])
    assert (life.outcome.code, second.received) == ("model_error", 0)


@pytest.mark.rule("PO-15")
async def test_on_names_the_kinds_after_which_the_next_model_is_asked(play, autojump_clock):
    plugins = [gr.Fallback(Named("second", "here"), on=["context_overflow"]), gr.Retry(1)]
    life = await play(fail("context_overflow"), plugins=plugins)
    assert life.outcome.output == "here"
    life = await play(fail("overloaded"), plugins=plugins, start={"run_id": "other", "thread_id": "other"})
    assert life.outcome.code == "model_error"


@pytest.mark.rule("PO-15")
async def test_a_bug_of_a_model_asks_no_other_one(autojump_clock):
    def broken(_: gr.ModelRequest) -> str:
        raise ZeroDivisionError("a bug")

    agent = gr.Agent("a", model=FunctionModel(broken), plugins=[gr.Fallback(Named("second", "here"))])
    async with gr.open_runtime(agents=[agent]) as runtime:
        outcome = await (await runtime.start(agent, "hi")).result()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "model_bug"


@pytest.mark.rule("PO-14")
async def test_each_step_begins_with_the_agents_own_model(play, autojump_clock):
    second = Named("second", call("look", id="A"))
    life = await play(fail("unauthorized"), "fine now", "fine now", plugins=[gr.Fallback(second)])
    assert (asked(life), life.outcome.output) == (["", "second", ""], "fine now")


@pytest.mark.rule("PO-16")
async def test_the_next_model_continues_a_text(play, autojump_clock):
    second = Named("second", "a time.")
    life = await play([text("Once upon "), CUT], plugins=[gr.Retry(1), gr.Fallback(second)])
    assert (life.outcome.output, life.history[-1]) == ("Once upon a time.", "assistant: Once upon a time.")
    assert len({payload["messageId"] for payload in life.payloads("inference.started")}) == 1
    assert second.requests[0].prefix == "Once upon "


async def test_a_process_that_ends_asks_the_same_model_again(play, autojump_clock):
    second = Named("second", [delay(20), "here"])
    life = await play(fail("unauthorized"), plugins=[gr.Fallback(second)], do=[after(10, restart)])
    assert (life.outcome.output, asked(life)) == ("here", ["", "second", "second"])


# --- the circuit -----------------------------------------------------------------------------------------------------

BREAKER = gr.CircuitBreaker(2, within=60, open_for=40)


@pytest.mark.rule("PO-17")
async def test_a_model_that_keeps_failing_is_left_alone_and_then_tried(play, autojump_clock):
    life = await play(*[fail("overloaded")] * 2, "done", plugins=[BREAKER, gr.Retry(attempts=4, first=1)])
    assert (life.outcome.output, len(life.requests), life.view.usage.requests) == ("done", 3, 3)
    *_, third = life.payloads("inference.retried")
    assert "usage" not in third
    assert third["detail"].startswith("overloaded: scripted has failed too often and is not asked for ")
    assert 40.0 <= life.seconds("completed") <= 44.0


@pytest.mark.rule("PO-18")
async def test_while_a_circuit_is_open_the_next_model_is_asked_at_once(play, autojump_clock):
    first, second = Named("first", fail("overloaded")), Named("second", "here")
    agents = [gr.Agent(key, model=first, plugins=[BREAKER, gr.Fallback(second), gr.Retry(2, first=0)]) for key in "abc"]
    async with gr.open_runtime(agents=agents) as runtime:
        began = trio.current_time()
        for agent in agents:
            assert (await (await runtime.start(agent, "hi")).result()).output == "here"
        assert (first.received, second.received, trio.current_time() - began < 1) == (2, 3, True)
        await trio.sleep(41)
        assert (await (await runtime.start(agents[0], "hi")).result()).output == "here"
        assert first.received == 3  # the trial, which failed


@pytest.mark.rule("PO-17")
async def test_a_refusal_counts_for_no_stop_condition_and_for_no_script(play, autojump_clock):
    plugins = [gr.CircuitBreaker(1, open_for=20), gr.Retry(3, first=0)]
    life = await play(fail("overloaded"), "done", plugins=plugins, stop=[gr.stop.ConsecutiveErrors(2)])
    assert (life.outcome.output, life.record.row.counters.model_attempts) == ("done", 2)


async def test_agents_without_a_breaker_are_not_stopped_by_the_circuit_of_others(autojump_clock):
    model = Named("first", *[fail("overloaded")] * 2, "done")
    careful = gr.Agent("careful", model=model, plugins=[BREAKER, gr.Retry(2, first=0)])
    other = gr.Agent("other", model=model)
    async with gr.open_runtime(agents=[careful, other]) as runtime:
        failed = await (await runtime.start(careful, "hi")).result()
        assert isinstance(failed, gr.Failed)
        assert (await (await runtime.start(other, "hi")).result()).output == "done"


async def test_a_trial_that_is_cancelled_leaves_the_next_request_the_trial(autojump_clock):
    model = Named("first", fail("overloaded"), [delay(50), "late"], "done")
    agent = gr.Agent("a", model=model, plugins=[gr.CircuitBreaker(1, open_for=10), gr.Retry(1)])
    async with gr.open_runtime(agents=[agent]) as runtime:
        await (await runtime.start(agent, "hi")).result()
        await trio.sleep(11)
        trial = await runtime.start(agent, "hi")
        await trio.sleep(1)
        await trial.cancel()
        await trial.result()
        outcome = await (await runtime.start(agent, "hi")).result()
    assert isinstance(outcome, gr.Completed)
    assert (outcome.output, model.received) == ("done", 3)


async def test_a_silent_model_opens_its_circuit(autojump_clock):
    model = Named("first", [delay(50), "late"])
    plugins = [gr.CircuitBreaker(1, open_for=100), gr.Retry(1), gr.IdleTimeout(first=10)]
    agent = gr.Agent("a", model=model, plugins=plugins)
    async with gr.open_runtime(agents=[agent]) as runtime:
        for _ in range(2):
            await (await runtime.start(agent, "hi")).result()
    assert model.received == 1


@pytest.mark.rule("PO-17")
def test_a_circuit_in_all_its_states():
    policy, circuit = BreakerPolicy(failures=2, within=10, open_for=5), Circuit()
    ask = partial(circuit.refusal, policy)
    circuit.failed(policy, 0)
    circuit.failed(policy, 11)  # the first one is forgotten
    assert ask(11) is None
    circuit.failed(policy, 12)
    assert (ask(12), ask(16)) == (5, 1)
    assert (ask(17), ask(17)) == (None, 1)  # one trial at a time
    circuit.failed(policy, 18)
    assert ask(18) == 5
    assert ask(23) is None
    circuit.succeeded()
    assert (ask(23), ask(23)) == (None, None)
    circuit.failed(policy, 24)
    assert ask(24) is None


# --- the plugins -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-2")
def test_the_models_of_a_fallback_are_part_of_the_spec():
    second = ScriptedModel(["x"])
    spec = gr.Agent("a", plugins=[gr.Fallback(second, "openai:small")]).spec
    assert spec.policies.fallback == FallbackPolicy(models=("scripted", "openai:small"), on=gr.Fallback("x").policy.on)
    assert spec.digest != gr.Agent("a").spec.digest != gr.Agent("a", plugins=[gr.CircuitBreaker()]).spec.digest
    assert gr.CircuitBreaker().policy == BreakerPolicy()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gr.Fallback, r"Fallback\(\) needs a model"),
        (lambda: gr.Fallback(7), r'Fallback\(7\): give Model objects or "provider:name"'),
        (lambda: gr.Fallback("x:y", on=["overload"]), "did you mean 'overloaded'"),
        (lambda: gr.CircuitBreaker(0), r"CircuitBreaker\(failures=0\): give a whole number, 1 or more"),
        (lambda: gr.CircuitBreaker(within=-1), r"CircuitBreaker\(within=-1\): give a number"),
    ],
)
def test_what_is_invalid_is_named(make: Callable[[], Any], words: str):
    with pytest.raises(gr.AgentDefinitionError, match=words):
        make()


@pytest.mark.rule("PO-14")
async def test_a_fallback_that_cannot_be_asked_is_found_at_the_start(autojump_clock):
    agent = gr.Agent("a", model=ScriptedModel(["x"]), plugins=[gr.Fallback("nowhere:x")])
    async with gr.open_runtime(agents=[agent]) as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="nowhere"):
            await runtime.start(agent, "hi")
