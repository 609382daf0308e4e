"""Rules of the guardrails of tools: what their verdicts do to the call, to the run, and to what is stored."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.scene_plugins import gate
from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Down, after, approve, cancel, deny, restart

PARALLEL = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
OPEN = gr.StateKey("open", bool, default=False)
SECRET = "sesame-93-open"
WITHHELD = "The call ran, and its result is withheld:"


class Bell:
    """Notes who was asked about which call, over all processes of a scene."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def before(self, verdict: Any = None, name: str = "before", **options: Any) -> Any:
        """An input guardrail that says the verdict, or what a function of context and arguments returns."""

        async def judge(ctx: gr.GateContext[Any], arguments: Any) -> Any:
            self.asked.append(f"{name} {ctx.call_id}")
            await trio.sleep(1)
            return verdict(ctx, arguments) if isinstance(verdict, Callable) else verdict  # type: ignore[arg-type]

        return gr.tool_input_guardrail(name=name, **options)(judge)

    def behind(self, verdict: Any = None, name: str = "behind", seconds: float = 1.0, **options: Any) -> Any:
        """The same about the result."""

        async def judge(ctx: gr.PhaseContext[Any], result: Any) -> Any:
            assert ctx.call is not None
            self.asked.append(f"{name} {ctx.call.call_id}")
            await trio.sleep(seconds)
            return verdict(ctx, result) if isinstance(verdict, Callable) else verdict  # type: ignore[arg-type]

        return gr.tool_output_guardrail(name=name, **options)(judge)


@pytest.fixture
def bell() -> Bell:
    """A bell for one scene."""
    return Bell()


def opens(**options: Any) -> Any:
    """A tool that touches the world, writes to state, and returns a secret."""

    async def open_(ctx: Context, n: int = 7, seconds: float = 10.0) -> str:
        """Opens."""
        await ctx.deps.work(ctx, seconds, n=n)
        ctx.state.update(COUNT, 1)
        return f"{SECRET} {n}"

    return gr.tool(open_, name="open", **options)


def cast(**options: Any) -> dict[str, Any]:
    """Options of an agent that has the tool beside all others."""
    return {"tools": (*TOOLS, opens(**options)), "state": [COUNT, OPEN]}


def stored(life: Any) -> str:
    """Everything that the store has of a run, and its record, as one text."""
    taken = [entry for commit in life.log for entry in commit.taken]
    rows = [life.record.row, life.record.calls, life.record.state, taken, life.view.messages]
    return repr(rows) + b"".join(life.frames).decode()


CALL = call("open", id="O")


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("verdict", [None, gr.Allow()])
async def test_what_every_guardrail_allows_runs_as_if_there_were_none(play, autojump_clock, bell, verdict):
    guards = {"input_guardrails": [bell.before(verdict)], "output_guardrails": [bell.behind(verdict)]}
    life = await play([CALL], "done", **cast(**guards))
    assert (life.calls, life.tool_texts) == ({"O": "new running succeeded"}, {"O": f"{SECRET} 7"})
    assert (bell.asked, life.view.state["count"]) == (["before O", "behind O"], 1)
    assert not life.payloads("guardrail.tripped")


class Odd:
    """Is no verdict."""

    def __repr__(self) -> str:
        return "Odd()"


async def _late(*_: Any) -> None:
    await trio.sleep(31)


async def _raises(*_: Any) -> None:
    raise ValueError("torn")


async def _odd(*_: Any) -> Any:
    return Odd()


async def _unstorable(*_: Any) -> gr.Trip:
    return gr.Trip(object())


def _at_once(*_: Any) -> Any:
    return True


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "late": (_late, "it did not answer within 30 s"),
    "raises": (_raises, "ValueError: torn"),
    "odd": (_odd, "it returned Odd(); return gr.Trip, gr.Reject, gr.Allow or None"),
    "unstorable": (_unstorable, "its verdict cannot be stored"),
    "a bool": (_at_once, "it returned True; return gr.Trip, gr.Reject, gr.Allow or None"),
}


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_guardrail_of_arguments_without_a_verdict_has_not_passed(play, autojump_clock, fault):
    function, text = FAULTS[fault]
    life = await play([CALL], "done", **cast(input_guardrails=[gr.tool_input_guardrail(name="g")(function)]))
    assert (life.outcome.code, life.effects) == ("plugin_error", [])
    assert life.outcome.message.startswith(f"guardrail g (tool_input): {text}")
    assert life.calls == {"O": "new cancelled"}


@pytest.mark.rule("GU-1", "GU-10")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_guardrail_of_a_result_without_a_verdict_has_not_passed(play, autojump_clock, fault):
    function, text = FAULTS[fault]
    life = await play([CALL], "done", **cast(output_guardrails=[gr.tool_output_guardrail(name="g")(function)]))
    assert (life.outcome.code, life.effects) == ("plugin_error", ["O"])
    assert life.outcome.message.startswith(f"guardrail g (tool_output): {text}")
    assert (life.calls, life.codes) == ({"O": "new running failed"}, {"O": "plugin_error"})
    assert life.tool_texts["O"].startswith(WITHHELD)
    assert SECRET not in stored(life)
    assert life.payloads("tool.result")[0]["errorId"] == life.end["errorId"]


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("kind", ["input", "output"])
async def test_a_guardrail_that_ignores_the_end_of_its_time_is_given_up(play, autojump_clock, kind):
    async def deaf(*_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    made = getattr(gr, f"tool_{kind}_guardrail")(name="g", timeout=3)(deaf)
    life = await play([CALL], "done", **cast(**{f"{kind}_guardrails": [made]}))
    assert life.outcome.code == "plugin_error"
    assert "did not obey" in life.outcome.message
    assert life.end["stubborn"]
    assert len(life.payloads("cleanup.overrun")) == 1


# --- trips -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-2", "GU-7")
@pytest.mark.parametrize(
    ("info", "message"), [(None, "g"), ("too much", "g: too much"), ({"n": [1, None]}, 'g: {"n":[1,null]}')]
)
async def test_a_trip_about_arguments_ends_the_run_before_the_body(play, autojump_clock, bell, info, message):
    life = await play([CALL], "done", **cast(input_guardrails=[bell.before(gr.Trip(info), "g")]))
    assert (life.outcome.code, life.outcome.message) == ("guardrail_tripped", message)
    (event,) = life.payloads("guardrail.tripped")
    expected = {"kind": "tool_input", "guardrail": "g", "verdict": "trip", "step": 1, "callId": "O"}
    assert event == (expected if info is None else {**expected, "info": info})
    assert (life.calls, life.effects) == ({"O": "new cancelled"}, [])


@PARALLEL
@pytest.mark.rule("GU-2", "GU-7")
async def test_what_runs_beside_a_trip_has_cleaned_up_before_the_run_ends(play, autojump_clock, bell):
    """The sibling runs while the approved call is judged again, and takes two seconds to clean up."""

    def second(ctx: gr.GateContext[Any], _: Any) -> gr.Trip | None:
        return None if ctx.decision is None else gr.Trip("now I see")

    tools = cast(input_guardrails=[bell.before(second)], needs_approval=True)
    script = [call("tidy", seconds=2.0, id="T"), CALL]
    life = await play(script, "done", do=[after(5.0, approve("O"))], **tools)
    if life.outcome.code is None:
        pytest.fail("the run must not complete")
    assert life.outcome.code == "guardrail_tripped"
    assert life.calls["T"].endswith("running cancelled")
    tripped = life.seconds("guardrail.tripped")
    assert life.seconds("failed") == tripped + 2.0
    assert (life.end.get("stubborn", []), life.effects) == ([], [])


@pytest.mark.rule("GU-2", "GU-10")
async def test_a_trip_about_a_result_fails_the_call_and_the_run(play, autojump_clock, bell):
    life = await play([CALL], "done", **cast(output_guardrails=[bell.behind(gr.Trip({"found": 1}), "g")]))
    assert (life.outcome.code, life.outcome.message) == ("guardrail_tripped", 'g: {"found":1}')
    assert (life.calls, life.codes) == ({"O": "new running failed"}, {"O": "guardrail_tripped"})
    assert life.tool_texts == {"O": "The call ran, and its result is withheld: the guardrail g ended the run."}
    assert (life.effects, SECRET in stored(life), life.view.state.get("count")) == (["O"], False, None)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-6")
async def test_a_rejected_call_fails_and_the_model_reads_why(play, autojump_clock, bell):
    life = await play([CALL], "I see", **cast(input_guardrails=[bell.before(gr.Reject("Not now."))]))
    assert (life.calls, life.codes) == ({"O": "new failed"}, {"O": "guardrail_rejected"})
    assert (life.tool_texts, life.effects, life.outcome.output) == ({"O": "Not now."}, [], "I see")
    (event,) = life.payloads("guardrail.tripped")
    assert (event["kind"], event["verdict"], event["info"]) == ("tool_input", "reject", "Not now.")


@pytest.mark.rule("GU-4")
@pytest.mark.parametrize("stops", [gr.Reject("no"), gr.Trip("no")])
async def test_guardrails_are_asked_in_order_up_to_the_first_that_does_not_allow(play, autojump_clock, bell, stops):
    guards = [bell.before(None, "a"), bell.before(stops, "b"), bell.before(None, "c")]
    plugin = gate("plugin", lambda ctx: bell.asked.append(f"plugin {ctx.call_id}"))
    await play([CALL], "done", plugins=[plugin], **cast(input_guardrails=guards))
    assert bell.asked == ["a O", "b O"]


@pytest.mark.rule("GU-4")
async def test_other_gates_are_asked_after_all_guardrails_have_allowed(play, autojump_clock, bell):
    plugin = gate("plugin", lambda ctx: bell.asked.append(f"plugin {ctx.call_id}"))
    guards = [bell.before(None, "a"), bell.before(None, "b")]
    await play([CALL], "done", plugins=[plugin], **cast(input_guardrails=guards))
    assert bell.asked == ["a O", "b O", "plugin O"]


@pytest.mark.rule("GU-4")
@pytest.mark.parametrize("needs", [True, lambda ctx, arguments: True])
async def test_no_person_is_asked_about_a_rejected_call(play, autojump_clock, bell, needs):
    life = await play([CALL], "done", **cast(input_guardrails=[bell.before(gr.Reject("no"))], needs_approval=needs))
    assert (life.tickets, life.codes) == ({}, {"O": "guardrail_rejected"})


@pytest.mark.rule("GU-4")
async def test_guardrails_read_the_arguments_as_the_body_gets_them(play, autojump_clock):
    seen: list[Any] = []

    @gr.tool_input_guardrail
    def judge(ctx: gr.GateContext[Any], arguments: Any) -> None:
        seen.append(dict(arguments))

    await play([call("open", n="8", id="X"), call("open", n=3, id="O")], "done", **cast(input_guardrails=[judge]))
    assert seen == [{"n": 3, "seconds": 10.0}], "a call with invalid arguments asks none"


@pytest.mark.rule("GU-5")
async def test_guardrails_are_asked_again_after_the_approval(play, autojump_clock, bell):
    def look(ctx: gr.GateContext[Any], _: Any) -> gr.Reject | None:
        return None if ctx.decision is None else gr.Reject("changed my mind")

    tools = cast(input_guardrails=[bell.before(look)], needs_approval=True)
    life = await play([CALL], "done", do=[approve("O")], **tools)
    assert bell.asked == ["before O", "before O"]
    assert (life.calls, life.effects) == ({"O": "new suspended resuming failed"}, [])
    assert life.codes == {"O": "guardrail_rejected"}


@pytest.mark.rule("GU-5")
async def test_a_denied_call_asks_no_guardrail_again(play, autojump_clock, bell):
    tools = cast(input_guardrails=[bell.before()], needs_approval=True)
    life = await play([CALL], "done", do=[deny("O")], **tools)
    assert (bell.asked, life.codes) == (["before O"], {"O": "approval_rejected"})


@pytest.mark.rule("GU-5")
@pytest.mark.parametrize("mode", ["sequential"])
async def test_guardrails_are_asked_again_when_the_state_has_changed(play, autojump_clock, bell):
    """The first call writes to state; the second was allowed before that."""

    def look(ctx: gr.GateContext[Any], _: Any) -> gr.Reject | None:
        return gr.Reject("one is enough") if ctx.state[COUNT] else None

    script = [CALL, call("open", id="P")]
    life = await play(script, "done", **cast(input_guardrails=[bell.before(look)]))
    assert (life.codes, life.effects) == ({"O": None, "P": "guardrail_rejected"}, ["O"])
    assert bell.asked == ["before O", "before P", "before P"]


@pytest.mark.rule("GU-6")
@pytest.mark.parametrize("mode", ["sequential"])
async def test_a_reject_does_not_wait_for_earlier_calls(play, autojump_clock, bell):
    """A denial of a plugin would be provisional while the earlier call may run."""
    tools = cast(input_guardrails=[bell.before(gr.Reject("no"))])
    life = await play([call("look", id="L"), CALL], "done", **tools)
    assert life.types.index("tool.result") < life.types.index("tool.started")
    assert life.codes == {"O": "guardrail_rejected", "L": None}
    assert bell.asked == ["before O"]


@pytest.mark.rule("GU-3")
@pytest.mark.parametrize("verdict", [None, gr.Reject("no"), gr.Trip("no")])
async def test_a_guardrail_that_a_crash_cut_off_is_asked_again(play, autojump_clock, bell, verdict):
    life = await play([CALL], "done", do=[after(0.5, restart)], **cast(input_guardrails=[bell.before(verdict)]))
    assert bell.asked == ["before O", "before O"]
    assert len(life.payloads("guardrail.tripped")) == (verdict is not None)
    assert life.effects == (["O"] if verdict is None else [])


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-9")
async def test_the_text_of_a_reject_is_the_result_and_nothing_else_is_stored(play, autojump_clock, bell):
    life = await play([CALL], "done", **cast(output_guardrails=[bell.behind(gr.Reject("[hidden]"), "g")]))
    assert (life.calls, life.codes) == ({"O": "new running succeeded"}, {"O": None})
    (result,) = life.payloads("tool.result")
    assert (result["result"], life.tool_texts) == ("[hidden]", {"O": "[hidden]"})
    assert (life.effects, life.view.state.get("count"), SECRET in stored(life)) == (["O"], None, False)
    (event,) = life.payloads("guardrail.tripped")
    assert (event["kind"], event["verdict"], event["info"]) == ("tool_output", "reject", "[hidden]")


async def test_a_result_without_a_guardrail_is_stored(play, autojump_clock):
    """The search of the other tests finds what is there."""
    assert stored(await play([CALL], "done", **cast())).count(SECRET) > 3


@PARALLEL
@pytest.mark.rule("GU-8")
async def test_one_guardrail_judges_the_results_of_several_calls_at_once(play, autojump_clock, bell):
    """Each call has its own verdict, and a limit of time of its own."""
    calls = [call("open", id="A", n=1), call("open", id="B", n=2), call("open", id="C", seconds=11.0)]
    covers = bell.behind(lambda ctx, result: gr.Reject("no") if "2" in result else None, seconds=3.0)
    life = await play(calls, "done", **cast(output_guardrails=[covers]))
    assert life.tool_texts == {"A": f"{SECRET} 1", "B": "no", "C": f"{SECRET} 7"}


@pytest.mark.rule("GU-8")
@pytest.mark.parametrize("stops", [gr.Reject("no"), gr.Trip("no"), None])
async def test_results_are_judged_in_order_up_to_the_first_that_does_not_allow(play, autojump_clock, bell, stops):
    guards = [bell.behind(None, "a"), bell.behind(stops, "b"), bell.behind(None, "c")]
    await play([CALL], "done", **cast(output_guardrails=guards))
    assert bell.asked == ["a O", "b O", "c O"][: 2 if stops is not None else 3]


@pytest.mark.rule("GU-8")
async def test_a_guardrail_reads_the_call_the_state_and_the_result_as_data(play, autojump_clock):
    seen: list[Any] = []

    def judge(ctx: gr.PhaseContext[Any], result: Any) -> None:
        assert ctx.call is not None
        seen.append((ctx.call.tool, ctx.call.arguments, ctx.call.attempt, ctx.step, ctx.run_id, result))
        seen.append((ctx.agent, ctx.deps.effects, ctx.state[COUNT]))

    life = await play([CALL], "done", **cast(output_guardrails=[gr.tool_output_guardrail(judge)]))
    assert seen == [("open", {}, 1, 1, "r", f"{SECRET} 7"), ("helper", ["O"], 0)]
    assert life.outcome.output == "done"


@pytest.mark.rule("GU-8")
async def test_a_guardrail_that_changes_what_it_reads_changes_nothing(play, autojump_clock):
    @gr.tool_output_guardrail
    async def spoils(ctx: gr.PhaseContext[Any], result: Any) -> None:
        result["list"].append("spoilt")

    @gr.tool(output_guardrails=[spoils])
    async def lists() -> dict[str, Any]:
        """Lists."""
        return {"list": [1]}

    life = await play([call("lists", id="L")], "done", tools=[lists])
    assert life.payloads("tool.result")[0]["result"] == {"list": [1]}


@pytest.mark.rule("GU-8")
@pytest.mark.parametrize(("tool", "do"), [("fails", []), ("ask", [approve("C", result="x")])])
async def test_no_guardrail_judges_what_no_body_returned(play, autojump_clock, bell, tool, do):
    guard = bell.behind()

    @gr.tool(name="fails", output_guardrails=[guard])
    async def fails() -> str:
        """Fails."""
        raise gr.ToolError("no luck")

    @gr.tool(name="ask", output_guardrails=[guard])
    async def ask() -> str:
        """Asks for its result."""
        raise gr.Suspend(resume_mode="use_decision_as_tool_result")

    life = await play([call(tool, id="C")], "done", do=do, tools=[fails, ask])
    assert (bell.asked, life.outcome.output) == ([], "done")


@pytest.mark.rule("GU-8")
async def test_a_result_that_a_plugin_set_is_not_judged(play, autojump_clock, bell):
    plugins = [gate("cache", gr.SetResult("from the cache"))]
    life = await play([CALL], "done", plugins=plugins, **cast(output_guardrails=[bell.behind(gr.Trip())]))
    assert (bell.asked, life.tool_texts) == ([], {"O": "from the cache"})


@pytest.mark.rule("GU-3", "GU-8")
@pytest.mark.parametrize("replay", ["safe", "unsafe"])
async def test_a_crash_while_a_result_is_judged_asks_about_the_effect(play, autojump_clock, bell, replay):
    """The result is in no row: a replay-safe body runs again, for any other one a person says what happened."""
    tools = cast(output_guardrails=[bell.behind(seconds=5)], replay=replay)
    do: list[Any] = [after(12.0, Down())]
    if replay == "unsafe":
        do.append(approve("O", result="it opened"))
    life = await play([CALL], "done", do=do, **tools)
    assert life.outcome.output == "done"
    assert life.effects == (["O", "O"] if replay == "safe" else ["O"])
    assert bell.asked == (["behind O", "behind O"] if replay == "safe" else ["behind O"])


@pytest.mark.rule("GU-10")
async def test_a_cancel_while_a_result_is_judged_reports_the_effect(play, autojump_clock, bell):
    tools = cast(output_guardrails=[bell.behind(seconds=5)])
    life = await play([CALL], "done", do=[after(12.0, cancel())], **tools)
    assert life.path == "running cancelled"
    assert (life.calls, life.codes) == ({"O": "new running cancelled"}, {"O": "cancelled"})
    assert life.tool_texts["O"].startswith(WITHHELD)
    assert (life.effects, SECRET in stored(life)) == (["O"], False)


@pytest.mark.rule("GU-8")
async def test_a_sync_tool_is_judged_as_well(play, autojump_clock, bell):
    """In the task of its call, when its thread has ended."""

    @gr.tool(output_guardrails=[bell.behind(gr.Reject("[hidden]"))])
    async def quick() -> int:
        """Quick."""
        return 5

    life = await play([call("quick", id="Q")], "done", tools=[quick])
    assert (bell.asked, life.tool_texts) == (["behind Q"], {"Q": "[hidden]"})


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-11")
async def test_the_call_of_a_background_tool_is_judged_like_any_other(play, autojump_clock, bell):
    tools = cast(input_guardrails=[bell.before(gr.Reject("no"))], background=True)
    life = await play([CALL], "done", **tools)
    assert (life.codes, life.effects) == ({"O": "guardrail_rejected"}, [])
    assert not life.payloads("task.started")


@pytest.mark.rule("GU-11")
@pytest.mark.parametrize("verdict", [gr.Reject("[hidden]"), gr.Trip("bad"), "fault"])
async def test_the_result_of_a_task_is_judged(play, autojump_clock, bell, verdict):
    tools = cast(output_guardrails=[bell.behind(verdict)], background=True)
    life = await play([CALL], "waiting", "done", **tools)
    (finished,) = life.payloads("task.finished")
    ends = {"[hidden]": ("succeeded", None), "bad": ("failed", "guardrail_tripped"), "t": ("failed", "plugin_error")}
    key = verdict.text if isinstance(verdict, gr.Reject) else verdict.info if isinstance(verdict, gr.Trip) else "t"
    assert (finished["status"], finished.get("code")) == ends[key]
    assert SECRET not in stored(life)
    assert life.effects == ["O"]
    codes = {"[hidden]": None, "bad": "guardrail_tripped", "t": "plugin_error"}
    assert getattr(life.outcome, "code", None) == codes[key]


@pytest.mark.rule("GU-11")
async def test_a_tool_with_input_guardrails_cannot_be_spawned(play, autojump_clock, bell):
    guarded = opens(input_guardrails=[bell.before()])

    @gr.tool
    async def spawns(ctx: Context) -> str:
        """Spawns."""
        return await ctx.spawn("open", n=1)

    life = await play([call("spawns", id="S")], "done", tools=[guarded, spawns], state=[COUNT])
    assert "has input guardrails" in life.tool_texts["S"]
    assert (bell.asked, life.effects) == ([], [])
