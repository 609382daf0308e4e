"""What a request has of a long thread: messages that hooks hide, a window on the newest ones, a summary of the rest."""

from collections.abc import Callable
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.plugins.compaction import SUMMARY
from greenroom.actors.plugins.history import closed, units
from greenroom.testing import FunctionModel, ScriptedModel, call, fail, text

from ..support.scenes import Life, after, restart


class Hides(gr.Plugin):
    """Hides messages from a step on; asks a model of its own."""

    def __init__(self, *ids: str, step: int = 2, spent: gr.Usage | None = None) -> None:
        self.ids, self.step, self.spent = ids, step, spent

    async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        change = gr.Mutation().hide_messages(*self.ids) if ctx.step >= self.step else gr.Mutation()
        return change if self.spent is None else change.spend(self.spent)


def sent(request: gr.ModelRequest) -> list[str]:
    """The contents of a request's messages, without the system text."""
    return [
        message.content or f"({len(message.calls)} calls)" for message in request.messages if message.id != "system"
    ]


def trimmed(life: Life) -> list[tuple[int, int, str]]:
    """(step, messages, plugin) of what was left out."""
    return [(one["step"], one["messages"], one["by"]) for one in life.payloads("context.trimmed")]


# --- hiding ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-24")
async def test_a_hidden_message_is_not_sent_and_stays_in_the_thread(play, autojump_clock):
    life = await play(call("look", id="A"), "done", plugins=[Hides("r.m1")])
    assert [sent(request) for request in life.requests] == [["hi"], ["(1 calls)", "saw A"]]
    assert life.history == ["user: hi", "assistant: (A)", "A: saw A", "assistant: done"]
    assert trimmed(life) == [(2, 1, "Hides")]


@pytest.mark.rule("PO-24")
@pytest.mark.parametrize("name", ["r.m2", "r.m3", "r.m4"])
async def test_calls_go_with_their_answers_and_the_other_way_round(play, autojump_clock, name):
    life = await play([call("look", id="A"), call("look", id="B")], "done", plugins=[Hides(name)])
    assert (sent(life.requests[1]), trimmed(life)) == (["hi"], [(2, 3, "Hides")])


@pytest.mark.rule("PO-24")
async def test_what_is_hidden_stays_hidden_in_retries_and_after_a_restart(play, autojump_clock):
    script = [call("look", id="A"), fail("rate_limited", retry_after=30), "done"]
    life = await play(*script, plugins=[Hides("r.m1")], do=[after(20, restart)])
    assert [sent(request) for request in life.requests[1:]] == [["(1 calls)", "saw A"]] * (len(life.requests) - 1)
    assert trimmed(life) == [(2, 1, "Hides")]


@pytest.mark.rule("PO-24")
async def test_a_message_that_is_not_in_the_thread_is_a_failure_of_the_hook(play, autojump_clock):
    life = await play("done", plugins=[Hides("nothing", step=1)])
    assert life.outcome.code == "plugin_error"
    assert "hides the message 'nothing', which is not in the thread" in life.outcome.message


def test_messages_of_a_history_are_grouped():
    calls = tuple(gr.CallRequest(call_id=name, tool="t", arguments={}) for name in "AB")
    history = (
        gr.Message(id="1", role="user", content="hi"),
        gr.Message(id="2", role="assistant", content="", calls=calls),
        *(gr.Message(id=f"3{name}", role="tool", content="x", call_id=name) for name in "AB"),
        gr.Message(id="4", role="assistant", content="done"),
    )
    assert [[one.id for one in unit] for unit in units(history)] == [["1"], ["2", "3A", "3B"], ["4"]]
    assert (closed(history, {"3B"}), closed(history, ())) == (("2", "3A", "3B"), ())


# --- models of hooks -------------------------------------------------------------------------------------------------


@pytest.mark.rule("PO-25")
async def test_what_a_hooks_own_model_uses_is_usage_of_the_run(play, autojump_clock):
    used = gr.Usage(requests=1, input=100, output=10)
    plugins = [Hides(step=99, spent=used), gr.Budget(requests=4)]
    life = await play(call("look", id="A"), call("look", id="B"), "done", plugins=plugins)
    assert [payload["by"] for payload in life.payloads("usage.spent")] == ["Hides"] * 3
    assert (life.outcome.code, life.view.usage.requests) == ("budget_exhausted", 5)
    assert life.view.usage.input >= 300


@pytest.mark.rule("PO-25")
async def test_a_hook_may_ask_a_model(autojump_clock):
    class Asks(gr.Plugin):
        async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
            said = gr.Message(id="q", role="user", content="which tone?")
            for model in (None, other, "local:x"):
                answer = await ctx.ask_model(said, model=model)
                heard.append(("".join(answer.text), answer.usage.requests))
            return gr.Mutation()

    heard: list[tuple[str, int]] = []
    other = FunctionModel(lambda request: f"other: {request.messages[0].content}")
    agent = gr.Agent("a", model=FunctionModel(lambda request: f"own: {request.messages[-1].content}"), plugins=[Asks()])
    async with gr.open_runtime(agents=[agent], providers={"local": lambda name: ScriptedModel([name])}) as runtime:
        outcome = await (await runtime.start(agent, "hi")).result()
    assert heard == [("own: which tone?", 1), ("other: which tone?", 1), ("x", 1)]
    assert (outcome.output, outcome.usage.requests) == ("own: hi", 1)


async def test_a_context_of_a_test_has_no_model():
    with pytest.raises(gr.ModelError, match="answer_request"):
        await gr.PhaseContext(phase=gr.Phase.STEP_START).ask_model()


# --- the window ------------------------------------------------------------------------------------------------------

LOOKS = [call("look", id=name) for name in "ABCD"]


@pytest.mark.rule("PO-26")
async def test_a_window_sends_the_newest_messages_and_the_users_newest(play, autojump_clock):
    life = await play(*LOOKS, "done", plugins=[gr.ContextWindow(messages=5)])
    assert [sent(request) for request in life.requests[2:]] == [
        ["hi", "(1 calls)", "saw A", "(1 calls)", "saw B"],
        ["hi", "(1 calls)", "saw B", "(1 calls)", "saw C"],
        ["hi", "(1 calls)", "saw C", "(1 calls)", "saw D"],
    ]
    assert trimmed(life) == [(4, 2, "ContextWindow"), (5, 4, "ContextWindow")]
    assert len(life.history) == 10


@pytest.mark.rule("PO-26")
@pytest.mark.parametrize(("tokens", "messages"), [(1, 3), (30, 5), (1000, 9)])
async def test_a_window_counts_tokens(play, autojump_clock, tokens, messages):
    def count(message: gr.Message) -> int:
        return 10 if message.role == "tool" else 0

    plugins = [gr.ContextWindow(tokens if tokens != 30 else 20, count=count)]
    life = await play(*LOOKS, "done", plugins=plugins)
    assert len(sent(life.requests[-1])) == messages


async def talk(*agents: gr.Agent) -> None:
    """One run of each agent after the other, in one thread."""
    async with gr.open_runtime(agents=agents) as runtime:
        for agent in agents:
            await (await runtime.start(agent, f"{agent.key}?", thread_id="t")).result()


@pytest.mark.rule("PO-26")
@pytest.mark.parametrize(
    ("most", "seen"), [(1, ["c?"]), (2, ["c?"]), (3, ["b?", "two", "c?"]), (4, ["b?", "two", "c?"])]
)
async def test_a_window_on_earlier_runs_begins_with_the_user(autojump_clock, most, seen):
    model = ScriptedModel(["three"])
    narrow = gr.Agent("c", model=model, plugins=[gr.ContextWindow(messages=most)])
    await talk(gr.Agent("a", model=ScriptedModel(["one"])), gr.Agent("b", model=ScriptedModel(["two"])), narrow)
    assert sent(model.requests[0]) == seen


# --- the summary -----------------------------------------------------------------------------------------------------


def summing_up(request: gr.ModelRequest) -> Any:
    """A model that sums up by naming the messages it has read."""
    return [text(f"<{request.messages[1].content}>", usage=gr.Usage(requests=1, input=7, output=3))]


def each(_: gr.Message) -> int:
    """A message is a token."""
    return 1


@pytest.mark.rule("PO-27")
async def test_older_messages_are_summed_up_once_they_are_too_many(play, autojump_clock):
    summer = FunctionModel(summing_up)
    plugins = [gr.Compaction(4, keep=2, model=summer, count=each)]
    life = await play(*LOOKS, "done", plugins=plugins)
    assert life.outcome.output == "done"
    head = "Summary of the conversation so far:\n"
    assert sent(life.requests[2])[1:] == ["(1 calls)", "saw B"]
    assert sent(life.requests[2])[0].startswith(f"{head}<user: hi\nassistant: ")
    assert sent(life.requests[3])[0] == sent(life.requests[2])[0]
    assert sent(life.requests[3])[1:] == ["(1 calls)", "saw B", "(1 calls)", "saw C"]
    assert sent(life.requests[4])[0].startswith(f"{head}<<user: hi")
    assert sent(life.requests[4])[1:] == ["(1 calls)", "saw D"]
    assert summer.received == 2
    assert [payload["usage"]["input"] for payload in life.payloads("usage.spent")] == [7, 7]
    assert trimmed(life) == [(3, 3, "Compaction"), (4, 3, "Compaction"), (5, 7, "Compaction")]
    assert len(life.history) == 10


@pytest.mark.rule("PO-27")
async def test_a_summary_is_kept_with_the_thread(autojump_clock):
    summer, models = FunctionModel(summing_up), [ScriptedModel(["x"]) for _ in "abcd"]
    plugins = [gr.Compaction(3, keep=2, model=summer, count=each)]
    await talk(*[gr.Agent(key, model=model, plugins=plugins) for key, model in zip("abcd", models, strict=True)])
    third, fourth = sent(models[2].requests[0]), sent(models[3].requests[0])
    assert third == ["Summary of the conversation so far:\n<user: a?\nassistant: x\nuser: b?>", "x", "c?"]
    assert (fourth[0].startswith("Summary of the conversation so far:\n<<user: a?"), fourth[1:]) == (True, ["x", "d?"])
    assert summer.received == 2


@pytest.mark.rule("PO-27")
async def test_a_summary_that_fails_is_reported_and_everything_is_sent(play, autojump_clock):
    plugins = [gr.Compaction(2, keep=1, model=ScriptedModel([fail("overloaded")]), count=each)]
    life = await play(*LOOKS[:2], "done", plugins=plugins)
    assert (life.outcome.output, len(sent(life.requests[-1]))) == ("done", 5)
    assert {payload["reason"] for payload in life.payloads("degraded")} == {"plugin_error"}


@pytest.mark.rule("PO-27")
async def test_the_agents_own_model_sums_up_by_default(autojump_clock):
    def own(request: gr.ModelRequest) -> Any:
        return "short" if "Sum up" in request.messages[0].content else request.messages[0].content

    agent = gr.Agent("a", model=FunctionModel(own), plugins=[gr.Compaction(1, keep=1, count=each)])
    async with gr.open_runtime(agents=[agent]) as runtime:
        for number in range(2):
            run = await runtime.start(agent, f"hi {number}", thread_id="t")
            outcome = await run.result()
    assert outcome.output == "Summary of the conversation so far:\nshort"


# --- the plugins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gr.ContextWindow, r"ContextWindow\(\) limits nothing"),
        (lambda: gr.ContextWindow(0), r"ContextWindow\(tokens=0\): give a whole number, 1 or more"),
        (lambda: gr.ContextWindow(messages=True), r"ContextWindow\(messages=True\)"),
        (lambda: gr.Compaction(0), r"Compaction\(above=0\)"),
        (lambda: gr.Compaction(9, keep=0), r"Compaction\(keep=0\)"),
        (lambda: gr.Compaction(9, model=7), r"Compaction\(model=7\)"),
        (lambda: gr.Mutation().spend(7), r"spend\(7\): give a gr.Usage"),
    ],
)
def test_what_is_invalid_is_named(make: Callable[[], Any], words: str):
    with pytest.raises(gr.UsageError, match=words):
        make()


def test_a_summary_is_a_key_of_the_thread():
    assert (SUMMARY.name, SUMMARY.scope) == ("greenroom.summary", "thread")
