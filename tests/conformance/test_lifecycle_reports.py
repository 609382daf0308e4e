"""Rules of the reports of a body: messages, notes, the memo, usage, the code of a failure, and the notes of gates."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.run.body_reports import MEMO_LIMIT, MOST_MODELS, NOTE_LIMIT
from greenroom.testing import ScriptedModel, call

from ..support.scene_plugins import scripted
from ..support.scene_tools import FAR, TOOLS, Context
from ..support.scenes import RUN, Down, Life, after, approve, cancel, decide, deny, restart

pytestmark = pytest.mark.pace(5)
DOWN = Down(FAR)
SAID = ("message.delta", "message.completed", "message.discarded")


def telling(*says: str, tool: str = "narrator", **arguments: Any) -> Any:
    """The call `C` lets a program work that says these texts."""
    return call(tool, says=list(says), id="C", **arguments)


def said(life: Life) -> list[tuple[str, str]]:
    """What the bodies have said to the end: (completed or discarded, text)."""
    events = [event for event in life.events if event.type.removeprefix("run.") in SAID[1:]]
    spoken = [event for event in events if event.payload.get("callId")]
    return [(event.type.rpartition(".")[2], event.payload.get("text", "")) for event in spoken]


def streamed(life: Life, call_id: str = "C") -> dict[str, str]:
    """Message id -> the text of its deltas."""
    texts: dict[str, str] = {}
    for payload in life.payloads("message.delta"):
        if payload.get("callId") == call_id:
            texts[payload["messageId"]] = texts.get(payload["messageId"], "") + payload["text"]
    return texts


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-123", "L-124")
async def test_what_a_program_says_is_events_and_the_thread_gets_the_result(play, autojump_clock):
    life = await play([telling("I look.", "I write.")], "done")
    assert said(life) == [("completed", "I look."), ("completed", "I write.")]
    assert set(streamed(life).values()) <= {"I look.", "I write."}
    assert {payload["callId"] for payload in life.payloads("reasoning.delta")} == {"C"}
    assert life.history == ["user: hi", "assistant: (C)", "C: found None", "assistant: done"]


@pytest.mark.rule("L-125")
async def test_a_message_that_the_end_of_its_body_leaves_incomplete_is_discarded(play, autojump_clock):
    life = await play([telling("I look.", "I wr...")], "done")
    assert said(life) == [("completed", "I look."), ("discarded", "")]
    (discarded,) = life.payloads("message.discarded")
    assert "I wr..." in streamed(life)[discarded["messageId"]]


@pytest.mark.rule("L-125")
@pytest.mark.parametrize("end", [cancel(by="ada"), restart])
async def test_a_cancel_and_a_crash_discard_it_too(play, autojump_clock, end):
    life = await play([telling("I wr...")], do=[after(4, end)])
    assert said(life) == [("discarded", "")]


@pytest.mark.rule("L-123")
async def test_a_secret_that_a_program_says_piece_by_piece_is_hidden(play, autojump_clock):
    secret = "sk-ant-api03-" + "a" * 40
    life = await play([telling(f"The key is {secret} indeed.")], "done")
    assert secret not in str([event.payload for event in life.events if event.type != "run.tool.call"])
    assert [text for _, text in said(life)] == ["The key is [redacted] indeed."]


@pytest.mark.rule("L-123")
async def test_a_large_message_is_an_excerpt_and_its_deltas_are_whole(play, autojump_clock):
    @gr.tool
    async def recites(ctx: Context) -> str:
        await ctx.reports.complete("x" * 600_000)
        return "so"

    life = await play([call("recites", id="C")], "done", tools=[recites])
    (message,) = [payload for payload in life.payloads("message.completed") if payload.get("callId")]
    assert message["large"]
    assert list(streamed(life).values()) == ["x" * 600_000]


# --- notes -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-126")
async def test_a_note_is_durable_when_the_body_goes_on(play, autojump_clock):
    life = await play([telling("I look.")], do=[after(6, DOWN)])
    (plan,) = life.payloads("plan.changed")
    assert plan == {"callId": "C", "entries": [{"text": "I look.", "status": "done"}]}


@pytest.mark.rule("L-126")
@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("run.completed", {}, "there is no such event"),
        ("run.plan.changed", {}, "missing required field `entries`"),
        ("run.plan.changed", {"entries": 1}, "Expected `array`"),
        ("run.plan.changed", {"entries": [], "call_id": "D"}, "'call_id' is no field of it"),
        ("run.degraded", {"reason": "x" * NOTE_LIMIT}, f"at most {NOTE_LIMIT:,}"),
    ],
)
async def test_another_event_or_another_form_is_refused_and_writes_nothing(play, autojump_clock, kind, fields, text):
    @gr.tool
    async def notes(ctx: Context) -> str:
        await ctx.reports.note(kind, **fields)
        return "never"

    life = await play([call("notes", id="C")], "done", tools=[notes])
    assert text in life.tool_texts["C"]
    assert life.payloads("plan.changed", "degraded") == []


# --- the memo --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-127")
async def test_a_body_that_runs_again_after_a_crash_finds_its_memo(play, autojump_clock):
    life = await play([telling("I look.", tool="herald")], "done", do=[after(6, DOWN)])
    assert life.tool_texts == {"C": "found {'attempt': 1, 'said': 1}"}


@pytest.mark.rule("L-127")
async def test_a_body_that_a_person_lets_run_again_finds_its_memo(play, autojump_clock):
    life = await play([telling("I look.")], "done", do=[after(6, DOWN), decide("r.t1")])
    assert life.tool_texts == {"C": "found {'attempt': 1, 'said': 1}"}


@pytest.mark.rule("L-127")
async def test_a_body_finds_its_memo_with_the_answer_to_its_question(play, autojump_clock):
    @gr.tool
    async def translate(ctx: Context) -> str:
        if ctx.memo is None:
            await ctx.save({"job": 7})
            raise gr.Suspend(message="Which language?")
        assert ctx.decision is not None
        return f"job {ctx.memo['job']} in {ctx.decision.result}"

    life = await play([call("translate", id="C")], "done", do=[approve("C", "Dutch")], tools=[translate])
    assert life.tool_texts == {"C": "job 7 in Dutch"}


@pytest.mark.rule("L-127")
async def test_no_event_has_the_memo(play, autojump_clock):
    @gr.tool
    async def keeps(ctx: Context) -> str:
        await ctx.save({"token": "hush-hush"})
        await ctx.save(None)
        await ctx.save({"token": "hush-hush"})
        return "kept"

    life = await play([call("keeps", id="C")], "done", tools=[keeps])
    assert "hush" not in str([event.payload for event in life.events])
    kept = [call.memo for commit in play.shelf.log for call in commit.calls if call.call_id == "C"]
    assert kept[-1] == {"token": "hush-hush"}


@pytest.mark.rule("L-128")
@pytest.mark.parametrize(
    ("memo", "text"),
    [
        ("x" * (MEMO_LIMIT - 1), f"the memo has {MEMO_LIMIT + 1:,} bytes or more, and at most {MEMO_LIMIT:,} are kept"),
        ([0] * 10_000_000, f"the memo has 10,000,000 bytes or more, and at most {MEMO_LIMIT:,} are kept"),
        (object(), "give plain JSON data"),
    ],
)
async def test_a_memo_that_cannot_be_kept_leaves_the_one_before(play, autojump_clock, memo, text):
    @gr.tool
    async def keeps(ctx: Context) -> str:
        if ctx.memo is not None:
            return str(ctx.memo)
        await ctx.save("x" * (MEMO_LIMIT - 2))
        await ctx.save([1])
        try:
            await ctx.save(memo)
        except gr.ToolError as error:
            raise gr.Suspend(message=str(error)) from error
        return "never"

    life = await play([call("keeps", id="C")], "done", do=[approve("C")], tools=[keeps])
    (asked,) = life.payloads("approval.requested")
    assert text in asked["message"]
    assert life.tool_texts == {"C": "[1]"}


@pytest.mark.rule("L-127", "L-129")
async def test_a_sync_tool_keeps_a_memo_and_counts_usage():
    @gr.tool
    def keeps(ctx: gr.SyncToolContext) -> str:
        """Keeps a memo from a thread."""
        if ctx.memo is not None:
            return str(ctx.memo)
        ctx.save({"job": 7})
        ctx.spend(gr.Usage(requests=1, input=5))
        raise gr.Suspend(message="again?")

    model = ScriptedModel([call("keeps", id="C"), "done"])
    async with gr.open_runtime(agents=[gr.Agent("a", tools=[keeps], model=model)]) as runtime:
        run = await runtime.start("a", "hi", run_id=RUN)
        with trio.fail_after(10):
            waiting = await run.wait()
            assert isinstance(waiting, gr.Waiting)
            await run.decide(waiting.tickets[0].approve())
            outcome = await run.result()
        assert (await run.view()).messages[2].content == "{'job': 7}"
        assert outcome.usage.requests == 3


# --- usage and the code of a failure ---------------------------------------------------------------------------------


@pytest.mark.rule("L-129")
@pytest.mark.parametrize("end", ["returns", "fails"])
async def test_what_a_body_has_used_is_the_runs(play, autojump_clock, end):
    tool, fails = ("envoy", "target_offline") if end == "fails" else ("narrator", "")
    plain = await play([telling(tool=tool)], "done")
    life = await play([telling(tool=tool, used=100, fails=fails)], "done", start={"run_id": "s", "thread_id": "u"})
    (spent,) = life.payloads("usage.spent")
    assert (spent["by"], spent["callId"], spent["usage"]["input"]) == (tool, "C", 100)
    steps = 1 if end == "fails" else 0
    assert life.end["usage"]["requests"] == plain.end["usage"]["requests"] + 1 - steps


@pytest.mark.rule("L-129")
async def test_what_a_body_has_used_counts_in_the_budget(play, autojump_clock):
    life = await play([telling(used=100)], "done", plugins=[gr.Budget(input=99)])
    assert life.end["code"] == "budget_exhausted"


@pytest.mark.rule("L-129")
async def test_a_body_counts_a_bounded_number_of_models_apart(play, autojump_clock):
    @gr.tool
    async def spends(ctx: Context) -> str:
        for number in range(MOST_MODELS + 1):
            ctx.spend(gr.Usage(input=1), f"m{number}")
        return "never"

    life = await play([call("spends", id="C")], "done", tools=[spends])
    assert f"at most {MOST_MODELS} models" in life.tool_texts["C"]
    assert len(life.payloads("usage.spent")) == MOST_MODELS


@pytest.mark.rule("L-140")
@pytest.mark.parametrize(("fails", "code"), [("target_offline", "target_offline"), ("", None)])
async def test_a_failure_that_ends_the_run_names_its_code(play, autojump_clock, fails, code):
    life = await play([telling(tool="envoy", fails=fails)], "done")
    assert life.end.get("code") == code
    assert life.codes["C"] == code
    assert {payload.get("errorId") for payload in life.payloads("tool.result")} == {None if code is None else "r/C#1"}


@pytest.mark.rule("L-140")
async def test_a_code_that_no_failure_has_is_the_tools_own_fault(play, autojump_clock):
    life = await play([telling(tool="envoy", fails="nonsense")], "done")
    assert life.end["code"] == "tool_error"
    assert "run_code='nonsense'" in life.end["message"]


@pytest.mark.rule("L-140")
async def test_a_tool_whose_failures_go_to_the_model_ends_no_run(play, autojump_clock):
    life = await play([telling(fails="target_offline")], "done")
    assert (life.codes["C"], life.end["termination"]) == ("target_offline", "natural_end")


# --- bodies that do not report ---------------------------------------------------------------------------------------


@pytest.mark.rule("L-141")
@pytest.mark.parametrize("report", ["say", "complete", "note", "save"])
async def test_a_background_task_reports_its_usage_only(play, autojump_clock, report):
    @gr.tool(background=True)
    async def task(ctx: Context) -> str:
        ctx.spend(gr.Usage(requests=1))
        match report:
            case "say":
                await ctx.reports.say("hm")
            case "complete":
                await ctx.reports.complete("hm")
            case "note":
                await ctx.reports.note("run.degraded", reason="hm")
            case _:
                await ctx.save(1)
        return "never"

    life = await play([call("task", id="C")], "I wait", "done", tools=[task])
    (finished,) = life.payloads("task.finished")
    assert "A background task reports" in str(finished["result"])
    assert [payload["callId"] for payload in life.payloads("usage.spent")] == ["C"]


@pytest.mark.rule("L-141")
async def test_a_body_that_was_given_up_reports_nothing_more(play, autojump_clock):
    @gr.tool(timeout=5.0, grace=1.0)
    async def hides(ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
            try:
                await ctx.reports.complete("late")
            except gr.ToolError as error:
                ctx.deps.decided["late"] = str(error)
        return "never"

    life = await play([call("hides", id="C")], [call("look", seconds=100.0, id="L")], "done", tools=[*TOOLS, hides])
    assert said(life) == []
    assert "does not wait for this call" in life.scene.outside.decided["late"]


# --- notes of gates --------------------------------------------------------------------------------------------------


def gated(*verdicts: Any) -> dict[str, Any]:
    """Plugins whose gates give these verdicts."""

    def always(verdict: Any) -> Any:
        return lambda ctx: verdict(ctx) if callable(verdict) else verdict

    return {"plugins": [scripted(f"p{n}", tool_gate=always(one)) for n, one in enumerate(verdicts)]}


def allowed(life: Life) -> list[tuple[str, str]]:
    return [(payload["plugin"], payload["note"]) for payload in life.payloads("gate.allowed")]


@pytest.mark.rule("P-50")
async def test_gates_say_why_a_call_passes(play, autojump_clock):
    life = await play([call("look", id="A")], "done", **gated(gr.Allow(note="rule 7"), None, gr.Allow(note="yes")))
    assert allowed(life) == [("p0", "rule 7"), ("p2", "yes")]
    types = [event.type for event in life.events]
    assert types.index("run.gate.allowed") < types.index("run.tool.started")


@pytest.mark.rule("P-50")
async def test_a_call_that_does_not_pass_has_no_such_note(play, autojump_clock):
    life = await play([call("look", id="A")], "done", **gated(gr.Allow(note="rule 7"), gr.Deny("no")))
    assert allowed(life) == []


@pytest.mark.rule("P-50")
@pytest.mark.parametrize("act", [approve("A"), deny("A")])
async def test_a_call_that_a_person_lets_pass_has_the_note_of_the_second_look(play, autojump_clock, act):
    asks = lambda ctx: gr.Suspend(message="may it?") if ctx.decision is None else gr.Allow(note="a person has")  # noqa: E731
    life = await play([call("look", id="A")], "done", do=[act], **gated(asks))
    assert allowed(life) == ([("p0", "a person has")] if life.effects else [])


@pytest.mark.rule("P-50")
async def test_a_long_note_is_shortened_and_a_note_of_another_type_fails_the_run(play, autojump_clock):
    life = await play([call("look", id="A")], "done", **gated(gr.Allow(note="x" * 5_000)))
    assert [len(note) for _, note in allowed(life)] == [1_000]
    broken: Any = gr.Allow(note=7)  # type: ignore[arg-type]
    life = await play([call("look", id="A")], "done", start={"run_id": "s", "thread_id": "u"}, **gated(broken))
    assert life.end["code"] == "plugin_error"
