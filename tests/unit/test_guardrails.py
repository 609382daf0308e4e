"""The decorators of guardrails, and where guardrails are given: every fault is found at the definition."""

import functools
from typing import Any

import pytest

import greenroom as gr

DECORATORS = {kind: getattr(gr, f"{kind}_guardrail") for kind in ("input", "output", "tool_input", "tool_output")}
MADE = pytest.mark.parametrize("kind", DECORATORS)


def judge(ctx: Any, value: Any) -> gr.Trip | None:
    """Judges."""
    return gr.Trip(value) if value else None


async def judges(ctx: Any, value: Any) -> None:
    """Judges later."""


@MADE
def test_a_guardrail_has_the_name_of_its_function_and_thirty_seconds(kind: str) -> None:
    made = DECORATORS[kind](judge)
    assert (made.name, made.kind, made.timeout, repr(made)) == ("judge", kind, 30.0, f"<Guardrail 'judge' ({kind})>")
    assert made(None, 5) == gr.Trip(5)
    assert made.__wrapped__ is judge


@MADE
def test_name_and_timeout_can_be_given(kind: str) -> None:
    made = DECORATORS[kind](name="other", timeout=5)(judges)
    assert (made.name, made.timeout) == ("other", 5.0)


def _generator(ctx: Any, value: Any) -> Any:
    yield None


FAULTS: list[tuple[Any, dict[str, Any], str]] = [
    ("judge", {}, "give the name as @"),
    (print, {}, "is not a function; write one with def"),
    (lambda ctx, value: None, {}, "name='<lambda>': give a name"),
    (functools.partial(judge), {}, "name=None: give a name"),
    (judge, {"name": ""}, "name='': give a name"),
    (judge, {"name": "a\nb"}, "give a name of printable characters"),
    (judge, {"timeout": 0}, "timeout=0: give seconds, above 0 and at most 86,400"),
    (judge, {"timeout": True}, "timeout=True"),
    (judge, {"timeout": float("nan")}, "timeout=nan"),
    (judge, {"timeout": None}, "timeout=None"),
    (_generator, {}, "is a generator function; return one verdict"),
    (lambda ctx: None, {"name": "one"}, "it must take the context and what is judged"),
]


@MADE
@pytest.mark.parametrize(("function", "options", "fault"), FAULTS)
def test_a_fault_is_named_where_the_guardrail_is_made(kind: str, function: Any, options: Any, fault: str) -> None:
    with pytest.raises(gr.AgentDefinitionError) as raised:
        DECORATORS[kind](function, **options)
    assert fault in str(raised.value)


@MADE
def test_a_guardrail_is_decorated_once(kind: str) -> None:
    with pytest.raises(gr.AgentDefinitionError, match="is a guardrail already; decorate it once"):
        DECORATORS[kind](DECORATORS[kind](judge))


def body() -> None:
    """Does it."""


IN, OUT = gr.tool_input_guardrail(judge), gr.tool_output_guardrail(judge)


@pytest.mark.parametrize(
    ("option", "given", "fault"),
    [
        (
            "input_guardrails",
            [OUT],
            "<Guardrail 'judge' (tool_output)> is none; decorate a function with @gr.tool_input_",
        ),
        ("output_guardrails", [IN], "is none; decorate a function with @gr.tool_output_guardrail"),
        ("input_guardrails", [judge], "is none; decorate a function with @gr.tool_input_guardrail"),
        ("input_guardrails", IN, "give a list of functions decorated with @gr.tool_input_guardrail"),
        ("output_guardrails", "judge", "give a list of functions"),
        ("input_guardrails", [IN, IN], "two guardrails are named 'judge'; give one another name="),
    ],
)
def test_a_tool_takes_guardrails_of_its_kind(option: str, given: Any, fault: str) -> None:
    with pytest.raises(gr.ToolDefinitionError) as raised:
        gr.tool(body, **{option: given})
    assert f"tool 'body', option {option}=" in str(raised.value)
    assert fault in str(raised.value)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_an_input_guardrail_blocks_or_does_not(value: Any) -> None:
    assert gr.input_guardrail(judge).blocking is False
    assert gr.input_guardrail(blocking=True)(judge).blocking is True
    with pytest.raises(gr.AgentDefinitionError, match=r"blocking=.*: use True or False"):
        gr.input_guardrail(blocking=value)(judge)


INPUT, OUTPUT = gr.input_guardrail(judge), gr.output_guardrail(judge)


@pytest.mark.parametrize(
    ("option", "given", "fault"),
    [
        (
            "input_guardrails",
            [OUTPUT],
            "<Guardrail 'judge' (output)> is none; decorate a function with @gr.input_guard",
        ),
        ("output_guardrails", [OUT], "is none; decorate a function with @gr.output_guardrail"),
        ("input_guardrails", [judge], "is none; decorate a function with @gr.input_guardrail"),
        ("output_guardrails", OUTPUT, "give a list of functions decorated with @gr.output_guardrail"),
        ("input_guardrails", "judge", "give a list of functions"),
        ("input_guardrails", [INPUT, INPUT], "two guardrails are named 'judge'; give one another name="),
    ],
)
def test_an_agent_takes_guardrails_of_its_kinds(option: str, given: Any, fault: str) -> None:
    with pytest.raises(gr.AgentDefinitionError) as raised:
        gr.Agent("a", **{option: given})
    assert f"agent 'a': {option}=" in str(raised.value)
    assert fault in str(raised.value)


def test_the_guardrails_of_an_agent_are_part_of_its_digest() -> None:
    one = gr.Agent("a", input_guardrails=[INPUT], output_guardrails=[OUTPUT]).spec
    blocking = gr.Agent("a", input_guardrails=[gr.input_guardrail(blocking=True)(judge)], output_guardrails=[OUTPUT])
    assert len({gr.Agent("a").spec.digest, one.digest, blocking.spec.digest}) == 3
    assert (one.input_guardrails, one.blocking_guardrails, one.output_guardrails) == (("judge",), (), ("judge",))
    assert (blocking.spec.input_guardrails, blocking.spec.blocking_guardrails) == ((), ("judge",))


def test_guardrails_are_part_of_the_agent_s_digest_and_of_no_approved_action() -> None:
    """They are asked again after an approval, so an approval stays valid when a release adds one."""
    plain, guarded = gr.tool(body), gr.tool(body, input_guardrails=[IN], output_guardrails=[OUT])
    one, other = gr.Agent("a", tools=[plain]).spec, gr.Agent("a", tools=[guarded]).spec
    assert one.digest != other.digest
    assert one.tools["body"].definition == other.tools["body"].definition
    assert other.tools["body"].guarded


def test_verdicts_are_values() -> None:
    assert (gr.Trip(), gr.Trip({"a": 1}), gr.Reject("no")) == (gr.Trip(None), gr.Trip({"a": 1}), gr.Reject("no"))
    assert gr.Trip("a") != gr.Trip("b")
