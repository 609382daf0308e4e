"""Scenes of docs/loop.md: tools that come and go, and which tool the model must call."""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, fail, malformed, text

from ..support.scene_plugins import gate, scripted
from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Life, after, approve, restart, send

C = call("look", id="C")
S = call("seat", id="S")


def seat(is_enabled: Any, **options: Any) -> gr.Tool[..., str]:
    """A tool that may be disabled."""

    @gr.tool(is_enabled=is_enabled, **options)
    async def seat(ctx: Context) -> str:
        """Take a seat."""
        await ctx.deps.work(ctx)
        return f"seat of {ctx.call_id}"

    return seat


@attrs.define
class Switch:
    """Enables a tool for as many questions as it has answers; keeps who asked."""

    answers: list[Any]
    asked: list[tuple[str, int]] = attrs.field(factory=list)

    async def __call__(self, ctx: gr.PhaseContext) -> bool:
        """Answer; the last answer counts for ever."""
        self.asked.append((ctx.phase.value, ctx.step))
        await trio.sleep(1)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer == "late":
            await trio.sleep(1000)
        return answer


def offered(life: Life) -> list[bool]:
    """Whether each request offered the seat."""
    return ["seat" in [tool.name for tool in request.tools] for request in life.requests]


# --- offered or not --------------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-15")
@pytest.mark.parametrize("kind", [bool, "sync", "async"])
@pytest.mark.parametrize("enabled", [True, False])
async def test_a_tool_is_offered_if_it_is_enabled(play, autojump_clock, kind, enabled):
    rule = {bool: enabled, "sync": lambda ctx: enabled, "async": Switch([enabled])}[kind]
    life = await play(C, "done", tools=[*TOOLS, seat(rule)])
    assert offered(life) == [enabled, enabled]
    assert [len(request.tools) for request in life.requests] == [len(TOOLS) + enabled] * 2


@pytest.mark.rule("LO-15")
async def test_each_step_asks_anew_with_its_own_context(play, autojump_clock):
    def from_step_two(ctx: gr.PhaseContext) -> bool:
        return ctx.step == 2 and ctx.deps.effects == ["C"] and ctx.messages[2].role == "tool"

    life = await play(C, S, "done", tools=[*TOOLS, seat(from_step_two)])
    assert offered(life) == [False, True, False]
    assert life.tool_texts["S"] == "seat of S"


@pytest.mark.rule("LO-15")
async def test_a_call_of_a_tool_that_was_not_offered_is_a_call_of_an_unknown_one(play, autojump_clock):
    life = await play([S, C], "done", tools=[*TOOLS, seat(False)])
    assert (life.codes, life.effects) == ({"S": "unknown_tool", "C": None}, ["C"])


@pytest.mark.rule("LO-15")
async def test_a_retry_offers_what_its_step_has_found(play, autojump_clock):
    switch = Switch([True, False])
    life = await play(fail("overloaded"), "done", tools=[*TOOLS, seat(switch)])
    assert (offered(life), switch.asked) == ([True, True], [("before_inference", 1)])


@pytest.mark.rule("LO-15")
async def test_it_joins_what_hooks_exclude(play, autojump_clock):
    plugin = scripted("narrow", before_inference=lambda ctx: gr.Mutation().exclude_tools("look"))
    life = await play("done", tools=[*TOOLS, seat(False)], plugins=[plugin])
    assert {tool.name for tool in life.requests[0].tools} == {tool.name for tool in TOOLS} - {"look"}


@pytest.mark.rule("LO-15")
async def test_after_a_crash_the_step_asks_again(play, autojump_clock):
    switch = Switch([False])
    life = await play("done", tools=[*TOOLS, seat(switch)], do=[after(0.5, restart)])
    assert switch.asked == [("before_inference", 1)] * 2
    assert offered(life) == [False]


FAULTS = {
    "raises": (RuntimeError("no idea"), "RuntimeError: no idea"),
    "late": ("late", "within 30 s"),
    "no bool": (1, "neither True nor False"),
}


@pytest.mark.rule("LO-16")
@pytest.mark.parametrize(("answer", "why"), FAULTS.values(), ids=list(FAULTS))
async def test_a_predicate_that_fails_does_not_offer_its_tool_and_is_reported(play, autojump_clock, answer, why):
    life = await play(C, "done", tools=[*TOOLS, seat(Switch([answer]))])
    assert (offered(life), life.outcome.output) == ([False, False], "done")
    reports = life.payloads("degraded")
    assert [payload["reason"] for payload in reports] == ["is_enabled_failed"] * 2
    assert all("'seat'" in payload["detail"] and why in payload["detail"] for payload in reports)


@pytest.mark.rule("LO-16")
async def test_a_predicate_that_ignores_the_end_of_its_time_does_not_hold_the_run(play, autojump_clock):
    async def stubborn(ctx: gr.PhaseContext) -> bool:
        with trio.CancelScope(shield=True):
            await trio.sleep(200)
        return True

    life = await play("done", tools=[*TOOLS, seat(stubborn)])
    assert (offered(life), life.outcome.output) == ([False], "done")
    assert life.seconds("completed") < 60


# --- disabled late ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-17")
async def test_a_tool_that_is_disabled_meanwhile_stops_the_calls_beside_it(play, autojump_clock):
    switch = Switch([True, False])
    step = [call("pay", id="A"), C, S, call("fails", id="F"), call("nothing", id="U")]
    life = await play(step, "another way", tools=[*TOOLS, seat(switch)])
    assert life.codes == {
        "S": "tool_disabled",
        "A": "turn_stopped",
        "C": "turn_stopped",
        "F": "turn_stopped",
        "U": "turn_stopped",
    }
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn")}
    assert (life.effects, life.outcome.output, len(life.requests)) == ([], "another way", 2)
    assert "'seat' is not available any more" in life.tool_texts["S"]
    assert all("'seat'" in life.tool_texts[name] and "did not run" in life.tool_texts[name] for name in "ACF")
    assert switch.asked == [("before_inference", 1), ("tool_gate", 1), ("before_inference", 2)]


@pytest.mark.rule("LO-17")
async def test_a_predicate_that_fails_at_the_gate_disables_the_call(play, autojump_clock):
    life = await play([S, C], "done", tools=[*TOOLS, seat(Switch([True, RuntimeError("gone"), True]))])
    assert life.codes == {"S": "tool_disabled", "C": "turn_stopped"}
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["is_enabled_failed"]


@pytest.mark.rule("LO-17")
async def test_it_is_asked_before_every_other_gate(play, autojump_clock):
    asked: list[str] = []
    watch = gate("watch", lambda ctx: asked.append(ctx.call_id))
    tool = seat(Switch([True, False]), needs_approval=lambda ctx, arguments: bool(asked.append("predicate")))
    life = await play(S, "done", tools=[*TOOLS, tool], plugins=[watch])
    assert (asked, life.codes, life.tickets) == ([], {"S": "tool_disabled"}, {})


@pytest.mark.rule("LO-17")
async def test_after_an_approval_it_is_asked_again(play, autojump_clock):
    tool = seat(Switch([True, True, False]), needs_approval=True)
    life = await play([S, C], "done", tools=[*TOOLS, tool], do=[approve("S")])
    assert life.calls == {"S": "new suspended resuming failed", "C": "new running succeeded"}
    assert (life.codes["S"], life.effects) == ("tool_disabled", ["C"])


@pytest.mark.rule("LO-17")
async def test_it_is_not_asked_about_a_body_that_has_begun(play, autojump_clock):
    switch = Switch([True, True, False])

    @gr.tool(is_enabled=switch)
    async def desk(ctx: Context) -> str:
        if ctx.decision is None:
            raise gr.Suspend(message="which one?")
        return f"desk {ctx.decision.result}"

    life = await play(call("desk", id="D"), "done", tools=[*TOOLS, desk], do=[restart, approve("D", 7)])
    assert life.tool_texts["D"] == "desk 7"
    assert [phase for phase, _ in switch.asked] == ["before_inference", "tool_gate", "before_inference"]


@pytest.mark.rule("LO-17")
async def test_a_step_whose_tool_stays_enabled_runs_as_ever(play, autojump_clock):
    life = await play([S, C], "done", tools=[*TOOLS, seat(Switch([True]))])
    assert (life.codes, sorted(life.effects)) == ({"S": None, "C": None}, ["C", "S"])


# --- the choice ------------------------------------------------------------------------------------------------------


def choices(life: Life) -> list[str]:
    """What each request demanded."""
    return [request.tool_choice for request in life.requests]


@pytest.mark.rule("LO-18", "LO-19")
@pytest.mark.parametrize("choice", ["auto", "required", "none", "look"])
@pytest.mark.parametrize("reset", [True, False])
async def test_a_choice_counts_until_a_tool_was_used(play, autojump_clock, choice, reset):
    life = await play(C, "done", tool_choice=choice, reset_tool_choice=reset)
    assert choices(life) == [choice, choice if choice == "none" or not reset else "auto"]


@pytest.mark.rule("LO-19")
@pytest.mark.parametrize(
    "first", [call("nothing", id="X"), malformed("look", "{", id="X"), call("look", far=1, id="X")]
)
async def test_a_call_that_could_not_run_is_no_use(play, autojump_clock, first):
    assert choices(await play(first, C, "done", tool_choice="required")) == ["required", "required", "auto"]


@pytest.mark.rule("LO-19")
@pytest.mark.parametrize("one", [call("fails", id="X"), call("pay", id="X")])
async def test_a_use_counts_whatever_came_of_it_and_after_a_restart(play, autojump_clock, one):
    do = [approve("X"), restart] if one.tool == "pay" else [after(20, restart)]
    life = await play(one, [delay(30), C], "done", tool_choice="required", do=do)
    assert set(choices(life)[1:]) == {"auto"}


@pytest.mark.rule("LO-19")
async def test_a_message_begins_no_new_count_and_a_new_run_does(play, autojump_clock):
    life = await play(C, [delay(5), text("first")], "second", tool_choice="required", do=[after(12, send("more"))])
    assert choices(life) == ["required", "auto", "auto"]
    agent = life.scene.agent
    again = await play(C, "done", tool_choice="required", start={"run_id": "r2"})
    assert choices(again)[0] == "required"
    assert agent.tool_choice == "required"


@pytest.mark.rule("LO-18")
async def test_a_retry_demands_the_same(play, autojump_clock):
    assert choices(await play(fail("overloaded"), C, "done", tool_choice="look")) == ["look", "look", "auto"]


@pytest.mark.rule("LO-20")
@pytest.mark.parametrize("choice", ["seat", "required"])
async def test_a_choice_that_the_step_does_not_offer_is_auto(play, autojump_clock, choice):
    life = await play("done", tools=[seat(False)], tool_choice=choice)
    assert choices(life) == ["auto"]


# --- the output of tools ---------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-21", "LO-23")
async def test_a_function_gets_the_results_in_the_models_order_once_per_step(play, autojump_clock):
    seen: list[list[tuple[str, Any]]] = []

    def choose(results: tuple[gr.CallFacts, ...]) -> gr.FinalOutput | None:
        seen.append([(facts.call_id, facts.result) for facts in results])
        return gr.FinalOutput({"all": [facts.result for facts in results]}) if len(results) > 1 else None

    first = [C, call("fails", id="F")]
    second = [call("look", id="slow", seconds=50), call("pay", id="A"), call("look", id="quick", seconds=1)]
    life = await play(first, second, tool_use=choose, do=[approve("A")])
    once = [[("C", "saw C")], [("slow", "saw slow"), ("A", "paid 1"), ("quick", "saw quick")]]
    assert seen == once * 2, "once in the run, and once in its replay"
    assert life.outcome.output == {"all": ["saw slow", "paid 1", "saw quick"]}
    assert life.outcome.termination.kind.value == "natural_end"


@pytest.mark.rule("LO-21")
async def test_a_function_that_finds_no_answer_lets_the_model_go_on(play, autojump_clock):
    life = await play(C, call("fails", id="F"), "done", tool_use=lambda results: None)
    assert (life.outcome.output, len(life.requests)) == ("done", 3)


@pytest.mark.rule("LO-21")
async def test_changing_a_result_in_the_function_changes_no_call(play, autojump_clock):
    @gr.tool
    async def numbers() -> list[int]:
        return [1, 2]

    def choose(results: tuple[gr.CallFacts, ...]) -> None:
        results[0].result.append(3)

    life = await play(call("numbers", id="N"), "done", tools=[numbers], tool_use=choose)
    assert life.tool_texts["N"] == "[1,2]"


@gr.tool_input_guardrail
def only_here(ctx: gr.GateContext[Any], arguments: Any) -> gr.Reject:
    return gr.Reject("not from here")


@pytest.mark.rule("LO-21", "LO-23")
@pytest.mark.parametrize("as_function", [False, True])
async def test_a_rejected_call_is_a_result(play, autojump_clock, as_function):
    @gr.tool(input_guardrails=[only_here])
    async def travel() -> str:
        return "there"

    def first(results: tuple[gr.CallFacts, ...]) -> gr.FinalOutput:
        return gr.FinalOutput(results[0].text)

    use = first if as_function else "stop_on_first_tool"
    life = await play([call("fails", id="F"), call("travel", id="T"), C], tools=[*TOOLS, travel], tool_use=use)
    assert (life.outcome.output, life.codes["T"]) == ("not from here", "guardrail_rejected")


def _raises(results: Any) -> None:
    raise LookupError("which one?")


WRONG = {
    "raises": (_raises, "LookupError: which one?"),
    "a bare value": (lambda results: results[0].result, "it returned str; return gr.FinalOutput(value) or None"),
    "no data": (lambda results: gr.FinalOutput(object()), "no form in JSON"),
}


@pytest.mark.rule("LO-22")
@pytest.mark.parametrize(("choose", "why"), WRONG.values(), ids=list(WRONG))
async def test_a_function_that_fails_fails_the_run(play, autojump_clock, choose, why):
    life = await play([C, call("note", id="N")], "never", tool_use=choose)
    assert life.outcome.code == "plugin_error"
    assert life.outcome.message.startswith("Agent(tool_use=...): ")
    assert why in life.outcome.message
    assert list(life.tool_texts) == ["C", "N"]
    assert life.end["errorId"]


@pytest.mark.rule("LO-23")
@pytest.mark.parametrize("use", ["stop_on_first_tool", gr.stop_at_tools("look", "note")])
async def test_the_first_result_in_the_models_order_is_the_output(play, autojump_clock, use):
    step = [call("fails", id="F"), call("look", id="slow", seconds=50), call("note", id="quick", seconds=1)]
    assert (await play(step, tool_use=use)).outcome.output == "saw slow"


# --- time limits -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("LO-24")
@pytest.mark.parametrize("on_timeout", [None, "return", "raise"])
@pytest.mark.parametrize("on_error", ["return", "raise"])
async def test_a_time_limit_is_a_failure_unless_the_tool_says_otherwise(play, autojump_clock, on_error, on_timeout):
    @gr.tool(timeout=2.5, on_error=on_error, on_timeout=on_timeout)
    async def waits() -> None:
        await trio.sleep_forever()

    life = await play(call("waits", id="W"), "done", tools=[waits])
    assert life.codes["W"] == "tool_timeout"
    assert "timed out after 2.5 s" in life.tool_texts["W"]
    ends = (on_timeout or on_error) == "raise"
    assert isinstance(life.outcome, gr.Failed if ends else gr.Completed)
    assert not ends or life.outcome.code == "tool_error"


# --- tools from a schema ---------------------------------------------------------------------------------------------

FORM = {
    "type": "object",
    "properties": {"n": {"$ref": "#/$defs/small"}, "tags": {"type": "array", "default": []}},
    "required": ["n"],
    "$defs": {"small": {"type": "integer", "maximum": 9}},
}


@pytest.mark.rule("LO-25")
async def test_a_tool_from_a_schema_gets_its_arguments_whole(play, autojump_clock):
    async def body(ctx: Context, arguments: dict[str, Any]) -> str:
        arguments["n"] += 1
        return f"{ctx.call_id} {arguments}"

    tool = gr.Tool.from_schema(body, name="count", schema=FORM, needs_approval=True)
    life = await play(call("count", n=7, id="N"), "done", tools=[tool], do=[restart, approve("N")])
    assert life.tool_texts["N"] == "N {'n': 8}"
    assert life.requests[0].tools[0].schema == FORM
    assert life.record.calls[0].arguments == {"n": 7}


@pytest.mark.rule("LO-25", "LO-8")
@pytest.mark.parametrize(
    ("arguments", "path"), [({"n": 70}, "$.n"), ({}, "'n' is a required"), ({"n": 1, "tags": 1}, "$.tags")]
)
async def test_arguments_that_do_not_satisfy_the_schema_fail_the_call(play, autojump_clock, arguments, path):
    ran: list[Any] = []

    async def body(ctx: Context, arguments: dict[str, Any]) -> None:
        ran.append(arguments)

    tool = gr.Tool.from_schema(
        body, name="count", schema=FORM, needs_approval=lambda ctx, given: bool(ran.append(given))
    )
    life = await play(call("count", arguments, id="N"), "done", tools=[tool])
    assert (life.codes["N"], ran) == ("invalid_arguments", [])
    assert path in life.tool_texts["N"]


@pytest.mark.rule("LO-25")
async def test_an_edit_of_a_reviewer_must_satisfy_the_schema(play, autojump_clock):
    async def body(ctx: Context, arguments: dict[str, Any]) -> int:
        return arguments["n"]

    tool = gr.Tool.from_schema(body, name="count", schema=FORM, needs_approval=True)
    do = [approve("N", edited_arguments={"n": 70}), approve("N", edited_arguments={"n": 9})]
    life = await play(call("count", n=7, id="N"), "done", tools=[tool], do=do)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert life.tool_texts["N"].endswith("9")
