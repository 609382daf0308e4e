"""Rules of asking a model: how often, how long a run waits before it asks again, what counts, what comes back to it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.policies import RetryPolicy
from greenroom.testing import ScriptedModel, call, delay, fail, finish, malformed, refuse, text

from ..support.scene_tools import FAR
from ..support.scenes import Down, Life, after, cancel, restart

ONE = gr.Usage(requests=1)


class Raw(gr.Model):
    """Answers with what it was given, then with what the tool has said."""

    def __init__(self, first: gr.ModelResponse) -> None:
        self.first = first

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[gr.ModelEvent]]:
        async with aclosing(self.answer(request)) as events:
            yield events

    async def answer(self, request: gr.ModelRequest) -> AsyncGenerator[gr.ModelEvent, None]:
        await trio.lowlevel.checkpoint()
        yield gr.ModelResponse(text=(request.messages[-1].content,)) if request.model_attempts else self.first


def waits(life: Life) -> list[float]:
    """Milliseconds before each further try, as the log tells."""
    return [life.about(payload.get("delayMs", 0), 1000) for payload in life.payloads("inference.retried")]


# --- how often, how long ---------------------------------------------------------------------------------------------


@pytest.mark.rule("L-55")
async def test_a_run_asks_as_often_as_its_policy_says(play, autojump_clock):
    life = await play(*[fail("rate_limited")] * 5, "at last", plugins=[gr.Retry(attempts=6, first=0.0)])
    assert (life.outcome.output, len(life.requests)) == ("at last", 6)


async def test_one_try_is_no_retry(play, autojump_clock):
    life = await play(fail("overloaded"), plugins=[gr.Retry(attempts=1)])
    assert (life.outcome.code, len(life.requests)) == ("model_error", 1)
    assert life.payloads("inference.retried") == []


@pytest.mark.rule("L-56")
async def test_the_back_off_grows_by_its_factor_up_to_the_longest_wait(play, autojump_clock):
    policy = gr.Retry(attempts=5, first=1.0, factor=10.0, longest=60.0)
    life = await play(*[fail("overloaded")] * 4, "done", plugins=[policy])
    for wait, (least, most) in zip(waits(life), [(0.5, 1.5), (5, 15), (50, 60), (60, 60)], strict=True):
        assert least * 1000 <= wait <= most * 1000
    assert life.outcome.output == "done"


@pytest.mark.parametrize("seconds", [20.0, 59.9, 60.0])
async def test_a_run_waits_as_long_as_the_provider_asks_it_to_and_never_less(play, autojump_clock, seconds):
    life = await play(*[fail("rate_limited", retry_after=seconds)] * 2, "done")
    assert waits(life) == [seconds * 1000] * 2
    assert life.outcome.output == "done"
    assert abs(life.seconds("completed") - 2 * seconds) <= max(0.05, life.slack)


@pytest.mark.rule("L-56")
async def test_of_the_back_off_and_what_the_provider_asks_for_the_longer_counts(play, autojump_clock):
    life = await play(fail("rate_limited", retry_after=0.001), "done")
    assert 250 <= waits(life)[0] <= 750


@pytest.mark.rule("L-56")
async def test_a_wait_beyond_the_cap_ends_the_tries_and_says_so(play, autojump_clock):
    life = await play(fail("rate_limited", "slow down", retry_after=61))
    assert (life.outcome.code, len(life.requests)) == ("model_error", 1)
    assert life.outcome.message == "rate_limited: slow down (asked to wait 61 s, more than retry_after_cap=60)"


@pytest.mark.pace(250)
async def test_a_patient_agent_waits_for_an_hour(play, autojump_clock):
    life = await play(fail("rate_limited", retry_after=3600), "done", plugins=[gr.Retry(retry_after_cap=3600)])
    assert (life.outcome.output, life.seconds("completed")) == ("done", 3600.0)


async def test_a_quota_that_is_used_up_is_not_asked_for_again(play, autojump_clock):
    life = await play(fail("quota_exceeded", "add money"))
    assert (life.outcome.code, life.outcome.message) == ("model_error", "quota_exceeded: add money")
    assert len(life.requests) == 1


async def test_a_rate_limit_of_a_minute_does_not_end_a_run(play, autojump_clock):
    """Three tries within two seconds once did."""
    life = await play(fail("rate_limited", retry_after=30), fail("rate_limited", retry_after=30), "done")
    assert life.outcome.output == "done"


# --- what a wait is --------------------------------------------------------------------------------------------------

LONG = [fail("rate_limited", retry_after=50), "done"]


@pytest.mark.rule("L-57")
async def test_a_cancel_ends_a_wait_at_once(play, autojump_clock):
    life = await play(*LONG, do=[after(5, cancel())])
    assert isinstance(life.outcome, gr.Cancelled)
    assert life.seconds("cancelled") == 5.0
    assert len(life.requests) == 1


async def test_the_deadline_ends_a_wait_at_once(play, autojump_clock):
    life = await play(*LONG, start={"deadline": 10.0})
    assert (life.outcome.code, life.seconds("failed")) == ("run_timeout", 10.0)


@pytest.mark.rule("L-57")
@pytest.mark.parametrize("down", [0.0, 20.0])
async def test_a_wait_outlives_the_process_and_is_not_begun_anew(play, autojump_clock, down):
    life = await play(*LONG, do=[after(5, Down(down))])
    assert waits(life) == [50_000, 45_000 - 1000 * down]
    assert [payload["code"] for payload in life.payloads("inference.retried")] == ["rate_limited", "interrupted"]
    assert life.seconds("completed") == 50.0
    assert life.view.usage.requests == 2  # while it waited, no request was made


async def test_a_wait_that_is_over_when_a_process_takes_the_run_up_is_not_waited_for(play, autojump_clock):
    life = await play(*LONG, do=[after(5, Down(FAR))])
    assert life.seconds("completed") == 5.0 + FAR
    assert life.outcome.output == "done"


@pytest.mark.pace(3)
async def test_interruptions_of_a_wait_are_no_failures(play, autojump_clock):
    script = [*[fail("rate_limited", retry_after=10)] * 2, "done"]
    life = await play(*script, do=[after(1, restart)] * 6)
    assert (life.outcome.output, life.view.usage.requests) == ("done", 3)


async def test_a_runtime_that_closes_does_not_wait_for_a_wait(autojump_clock):
    helper = gr.Agent("helper", model=ScriptedModel(LONG))
    async with gr.open_runtime(gr.MemoryStore(), agents=[helper]) as runtime:
        await runtime.start(helper, "hi")
        await trio.sleep(1)
        began = trio.current_time()
    assert trio.current_time() - began < 1  # not the five seconds of a drain


# --- what counts -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-60")
async def test_requests_that_failed_count_with_what_is_known_of_their_tokens(play, autojump_clock):
    half = gr.Usage(input=100, output=7)
    last = gr.Usage(requests=1, input=10, output=5)
    script = [fail("interrupted", usage=half), fail("overloaded"), text("done", usage=last)]
    life = await play(script[0], script[1], [script[2]])
    assert life.outcome.usage == gr.Usage(requests=3, input=110, output=12) == gr.Usage(**life.end["usage"])
    reported = [gr.Usage(**payload["usage"]) for payload in life.payloads("inference.retried")]
    assert reported == [half + ONE, ONE]


async def test_a_request_that_a_process_left_behind_counts(play, autojump_clock):
    life = await play([delay(10), "done"], do=[after(5, restart)])
    assert life.outcome.usage.requests == 2


async def test_a_failure_that_ends_the_run_counts(play, autojump_clock):
    used = gr.Usage(requests=1, input=9)
    life = await play(fail("context_overflow", usage=used))
    assert gr.Usage(**life.end["usage"]) == used == life.view.usage


async def test_the_time_of_an_answer_leaves_the_wait_before_it_out(play, autojump_clock):
    life = await play(fail("rate_limited", retry_after=40), [delay(2), "done"])
    (completed,) = life.payloads("inference.completed")
    assert life.about(completed["durationMs"], 1000) == 2000


# --- why an answer ended ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("done", "stop"),
        ([], "stop"),
        (["cut", finish("length")], "length"),
        ([finish("content_filter"), "half"], "content_filter"),
        (["x", finish("other")], "other"),
    ],
)
async def test_why_the_model_ended_its_answer_is_reported(play, autojump_clock, step, reason):
    life = await play(step)
    (completed,) = life.payloads("inference.completed")
    assert completed["finish"] == life.outcome.finish == life.end["finish"] == reason


async def test_of_several_answers_each_says_why_it_ended_and_the_outcome_says_it_of_the_last(play, autojump_clock):
    life = await play([call("look", id="A")], ["cut", finish("length")])
    assert [payload["finish"] for payload in life.payloads("inference.completed")] == ["tool_calls", "length"]
    assert life.outcome.finish == "length"


async def test_a_refusal_says_that_it_is_one(play, autojump_clock):
    life = await play(refuse("no"))
    (completed,) = life.payloads("inference.completed")
    assert completed["finish"] == "refusal"


# --- arguments that are none -----------------------------------------------------------------------------------------

BAD = {
    '{"at": "x"': "the arguments are not JSON: ",
    "[1]": "the arguments are an array, not a JSON object",
    '"x"': "the arguments are a string, not a JSON object",
    "NaN": "the arguments are not JSON: ",
}


@pytest.mark.parametrize("written", BAD)
async def test_arguments_that_are_no_object_go_back_to_the_model_and_the_run_continues(play, autojump_clock, written):
    life = await play([malformed("look", written, id="A"), call("look", id="B")], "done")
    assert life.outcome.output == "done"
    assert life.tool_texts["A"].startswith(f"Invalid arguments: {BAD[written]}")
    assert life.scene.outside.effects == ["B"]
    codes = {payload["callId"]: payload.get("code") for payload in life.payloads("tool.result")}
    assert codes == {"A": "invalid_arguments", "B": None}


@pytest.mark.parametrize("tool", ["pay", "spend"])
async def test_no_person_is_asked_to_approve_arguments_that_are_none(play, autojump_clock, tool):
    life = await play([malformed(tool, "{", id="A")], "done")
    assert life.outcome.output == "done"
    assert life.payloads("approval.requested") == []


async def test_a_hook_may_mend_arguments(play, autojump_clock):
    class Mends(gr.Plugin):
        async def after_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
            return gr.Mutation().edit_call("A", {"at": "home"}) if ctx.step == 1 else None

    life = await play([malformed("look", "{", id="A")], "done", plugins=[Mends()])
    assert "saw home" in life.tool_texts["A"]


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("", "saw A"),
        (" \n", "saw A"),
        ("null", "saw A"),
        (None, "saw A"),
        (b'{"at":"x"}', "saw x"),
        ('{"at":"x"}', "saw x"),
        ("{", "Invalid arguments: the arguments are not JSON"),
        (7, "Invalid arguments: the arguments are a number, not a JSON object"),
        ({"at": object()}, "Invalid arguments: the arguments cannot be used"),
        ("[" * 100_000, "Invalid arguments: the arguments are not JSON"),
        ('{"a":' * 65 + "1" + "}" * 65, "Invalid arguments: the arguments cannot be used"),
    ],
)
async def test_a_models_code_may_hand_over_what_the_provider_sent(autojump_clock, given, output):
    @gr.tool
    async def look(at: str = "A") -> str:
        return f"saw {at}"

    raw = gr.ModelResponse(calls=(gr.CallRequest(call_id="A", tool="look", arguments=given),))
    outcome = await gr.run(gr.Agent("raw", model=Raw(raw), tools=[look]), "hi")
    assert outcome.output.startswith(output)


def test_what_a_provider_sends_is_read_as_a_call():
    read = gr.CallRequest.from_json("add", '{"a": 1}', call_id="c1")
    assert (read.tool, read.call_id, dict(read.arguments), read.fault) == ("add", "c1", {"a": 1}, None)
    assert dict(gr.CallRequest.from_json("add", "").arguments) == {}
    bad = gr.CallRequest.from_json("add", b"\xff")
    assert (dict(bad.arguments), bad.fault is None) == ({}, False)


# --- the plugin ------------------------------------------------------------------------------------------------------


def test_an_agent_has_one_retry_and_without_one_the_defaults():
    assert gr.Retry().policy == RetryPolicy() == gr.Agent("a").spec.policies.retry
    given = gr.Agent("a", plugins=[gr.Retry(attempts=5, first=1)])
    assert given.spec.policies.retry == RetryPolicy(attempts=5, first=1.0)
    with pytest.raises(gr.AgentDefinitionError, match="two plugins are a Retry; keep one of them"):
        gr.Agent("a", plugins=[gr.Retry(), type("Mine", (gr.Retry,), {"name": "mine"})(attempts=2)])
    with pytest.raises(gr.AgentDefinitionError, match="Retry"):
        gr.Agent("a", plugins=[gr.Retry(), gr.Retry()])


def test_an_agent_keeps_its_digest_unless_its_policy_differs_from_the_defaults():
    """Runs of before continue without run.degraded."""
    plain = gr.Agent("a").spec.digest
    assert gr.Agent("a", plugins=[gr.Retry()]).spec.digest == plain
    other = gr.Agent("a", plugins=[gr.Retry(attempts=4)]).spec.digest
    assert other not in (plain, gr.Agent("a", plugins=[gr.Retry(attempts=5)]).spec.digest)
    assert gr.Agent("a", plugins=[gr.Retry(attempts=4, first=0.5)]).spec.digest == other
    assert content_digest({"a": 1}) != plain


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 2.5},
        {"first": -1},
        {"first": "1"},
        {"factor": 0.5},
        {"longest": float("nan")},
        {"retry_after_cap": float("inf")},
    ],
    ids=str,
)
def test_a_number_that_cannot_be_is_named_with_its_range(options):
    with pytest.raises(gr.AgentDefinitionError, match=rf"Retry\({next(iter(options))}=.*give a (whole )?number"):
        gr.Retry(**options)


def test_a_back_off_cannot_overflow():
    assert RetryPolicy(attempts=10**9, longest=30).backoff(10**8, 1.5) == 30


# --- the error -------------------------------------------------------------------------------------------------------


def test_a_model_error_says_what_is_wrong_with_itself():
    with pytest.raises(gr.UsageError, match="did you mean 'rate_limited'"):
        gr.ModelError("x", kind="rate_limit")  # type: ignore[arg-type]
    for wrong in ("12", True, float("nan")):
        with pytest.raises(gr.UsageError, match=r"retry_after=.*give seconds as a number"):
            gr.ModelError("x", retry_after=wrong)  # type: ignore[arg-type]
    with pytest.raises(gr.UsageError, match="give a Usage"):
        gr.ModelError("x", usage={"input": 1})  # type: ignore[arg-type]
    assert gr.ModelError("x", retry_after=-3).retry_after == 0.0
    assert gr.ModelError("x", retry_after=10**400).retry_after == float("inf")


@pytest.mark.parametrize(
    "usage", [gr.Usage(input=-1), gr.Usage(output=1.5), gr.Usage(input=None), gr.Usage(cached=2**53), "none"], ids=str
)
async def test_a_usage_that_cannot_be_added_up_fails_the_run_and_not_its_owner(autojump_clock, usage):
    outcome = await gr.run(gr.Agent("odd", model=Raw(gr.ModelResponse(text=("hi",), usage=usage))), "hi")
    assert (outcome.code, "usage" in outcome.message) == ("model_error", True)


async def test_a_finish_that_is_none_of_ours_is_named_with_those_that_are(autojump_clock):
    reason: Any = "end_turn"
    outcome = await gr.run(gr.Agent("odd", model=Raw(gr.ModelResponse(text=("hi",), finish=reason))), "hi")
    assert (outcome.code, "end_turn" in outcome.message) == ("model_error", True)
    assert "stop, tool_calls, length, content_filter, refusal, other" in outcome.message
