"""Every door to user code x everything that such code may raise: the run that it belongs to pays, and no one else.

Beside the run whose code misbehaves another one works in the same runtime; it has to come to its end, and the runtime
has to be able to start a third. What the run itself comes to names the door.
"""

import itertools
import operator
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.abc import TextDelta
from greenroom.actors.contract.messages import ModelResponse
from greenroom.testing import ScriptedModel, call

from ..support.runs import agent, events_of, home
from ..support.scene_plugins import scripted
from ..support.stray_cancels import ESCAPES, foreign_cancellation, to_its_end

pytestmark = pytest.mark.slow

RAISED: dict[str, Callable[[], BaseException]] = {
    **{kind.__name__: kind for kind in ESCAPES},
    "ValueError": lambda: ValueError("no \udc80 idea"),
    "group": lambda: BaseExceptionGroup("two", [KeyboardInterrupt(), ValueError("beside it")]),
    "nested group": lambda: BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [SystemExit(3)])]),
    "argparse": lambda: SystemExit(2),
    "a broken trio, it says": lambda: trio.TrioInternalError("made by hand"),
}
"""What user code raises; a stray `trio.Cancelled` is added where there is a task to take it from."""


class Boom:
    """Raises, wherever it is put; `error` is set by the test."""

    error: BaseException = ValueError()

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise self.error


boom = Boom()


@attrs.frozen
class Picky:
    """A type of a tool's argument, or of an answer, that checks itself."""

    x: int = attrs.field(validator=boom)


@attrs.frozen
class Made:
    """A type with a default that is made when it is needed."""

    x: int = attrs.field(factory=boom)


class Hostile:
    """A value whose own methods raise."""

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = boom  # type: ignore[assignment]


class HostileDict(dict[str, Any]):
    items = __iter__ = keys = boom


class HostileError(Exception):
    __str__ = __repr__ = boom


class HostileToolError(gr.ToolError):
    __str__ = boom


class HostileModelError(gr.ModelError):
    __str__ = boom

    @property
    def retryable(self) -> bool:
        raise boom.error


# --- doors -----------------------------------------------------------------------------------------------------------


@gr.tool
async def in_a_task() -> str:
    raise boom.error


@gr.tool
async def in_a_nursery() -> str:
    async def inner() -> None:
        raise boom.error

    async with trio.open_nursery() as nursery:
        nursery.start_soon(inner)
        nursery.start_soon(trio.sleep, 5)
    return ""


@gr.tool
async def with_a_thread() -> str:
    await trio.to_thread.run_sync(boom)
    return ""


@gr.tool
def in_a_thread() -> str:
    raise boom.error


@gr.tool(background=True)
async def task() -> str:
    raise boom.error


@gr.tool(background=True)
def thread_task() -> str:
    raise boom.error


@gr.tool
async def picky(value: Picky) -> str:
    return ""


@gr.tool
async def made(value: Made) -> str:
    return ""


@gr.tool
async def hostile_result() -> Any:
    return HostileDict(a=1)


@gr.tool
async def hostile_value() -> Any:
    return [Hostile()]


@gr.tool
async def hostile_error() -> str:
    raise HostileError


@gr.tool
async def hostile_tool_error() -> str:
    raise HostileToolError("x")


@gr.tool
async def hostile_wish() -> str:
    raise gr.Suspend(parameters=HostileDict(a=1), reviewers=Hostile())  # type: ignore[arg-type]


@gr.tool(needs_approval=boom)
async def judged() -> str:
    return ""


async def _boom(ctx: Any, arguments: Any) -> bool:
    raise boom.error


@gr.tool(needs_approval=_boom)
async def judged_in_a_task() -> str:
    return ""


@gr.tool(needs_approval=True)
async def signed() -> str:
    return ""


SUM = gr.StateKey("sum", int, default=0, merge=gr.commutative(operator.add))
BAD = gr.StateKey("bad", int, default=0, merge=gr.commutative(boom))


@gr.tool
async def reduces(ctx: gr.ToolContext) -> str:
    ctx.state.update(BAD, 1)
    return ""


TOOLS: dict[str, tuple[gr.Tool[..., Any], dict[str, Any], str]] = {
    "a tool": (in_a_task, {}, "tool_error"),
    "a task of a tool": (in_a_nursery, {}, "tool_error"),
    "a thread of a tool": (with_a_thread, {}, "tool_error"),
    "a sync tool": (in_a_thread, {}, "tool_error"),
    "a background tool": (task, {}, "tool_error"),
    "a sync background tool": (thread_task, {}, "tool_error"),
    "a validator of an argument": (picky, {"value": {"x": 1}}, "invalid_arguments"),
    "a default of an argument": (made, {"value": {}}, "invalid_arguments"),
    "the __str__ of an exception": (hostile_error, {}, "tool_error"),
    "the __str__ of a ToolError": (hostile_tool_error, {}, "tool_error"),
    "the values of a Suspend": (hostile_wish, {}, "tool_error"),
    "a reducer in a tool": (reduces, {}, "tool_error"),
}
HOOKS = [phase.value for phase in gr.Phase]


async def _raise(ctx: Any) -> Any:
    raise boom.error


def _answers(value: Any) -> Any:
    return lambda ctx: value


PLUGINS: dict[str, tuple[gr.Plugin, str]] = {
    **{phase: (scripted("x", **{phase: _raise}), f"plugin 'x' in {phase}") for phase in HOOKS if phase != "run_end"},
    "what a hook returns": (scripted("x", step_start=_answers(Hostile())), "plugin 'x' in step_start"),
    "what a gate returns": (scripted("x", tool_gate=_answers(Hostile())), "plugin 'x' in tool_gate"),
    "a reducer of a hook": (
        scripted("x", step_start=lambda ctx: gr.Mutation().update(BAD, 1)),
        "plugin 'x' in step_start",
    ),
}


class Broken(gr.Model):
    """A model that raises at one of its three moments."""

    name = "broken"

    def __init__(self, at: str) -> None:
        self._at = at

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        if self._at == "opening":
            raise boom.error
        if self._at == "modelerror":
            raise HostileModelError("x")
        yield self._events()
        if self._at == "closing":
            raise boom.error

    async def _events(self) -> AsyncIterator[Any]:
        yield TextDelta(text="a")
        if self._at == "iterating":
            raise boom.error
        if self._at == "between":
            yield Hostile()
        yield ModelResponse(text=("a",))


# --- the table -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_runs(bad: gr.Agent[Any], **options: Any) -> AsyncIterator[gr.Run[Any]]:
    """The run of an agent, in a runtime in which another one works, and in which a third can be started afterwards."""

    @gr.tool
    async def patient() -> str:
        await harmed.wait()
        return "patient"

    harmed = trio.Event()
    other = agent(call("patient"), "fine", tools=[patient], key="other")
    async with home(None, agents=[bad, other], **options) as runtime:
        beside = await runtime.start(other, "hi")
        yield await runtime.start(bad, "hi")
        harmed.set()
        assert (await beside.result()).output == "fine"
        assert (await (await runtime.start(other, "again")).result()).output == "fine"


async def each_error(play: Callable[[], Any], *leave_out: str) -> None:
    """Play the scene with everything that can be raised; one that is cancelled has not passed."""
    for raised in (*RAISED, "stray"):
        if raised in leave_out:
            continue
        boom.error = await foreign_cancellation() if raised == "stray" else RAISED[raised]()
        try:
            await to_its_end(play)
        except BaseException as error:
            error.add_note(f"raised: {raised}")
            raise


@pytest.mark.parametrize("door", TOOLS)
async def test_of_a_call(door):
    """In real time, for threads."""
    tool, arguments, code = TOOLS[door]

    async def scene() -> None:
        bad = agent(call(tool.name, arguments, id="c1"), "done", "done", tools=[tool], state=[BAD])
        async with two_runs(bad) as run:
            assert (await run.result()).output == "done"
            events = await events_of(run)
            ended = [event.payload for event in events if event.type in ("run.tool.result", "run.task.finished")]
            (result,) = [one for one in ended if one.get("code")]
            assert (result["tool"], result["code"]) == (tool.name, code)

    taken = ("stray",) if door == "a task of a tool" else ()  # the tool's own nursery takes that for its own
    await each_error(scene, *taken)


@pytest.mark.parametrize("door", ["hostile_result", "hostile_value"])
async def test_of_a_result(autojump_clock, door):
    """The effect has happened: the call has succeeded, whatever its value does."""
    tool = {"hostile_result": hostile_result, "hostile_value": hostile_value}[door]

    async def scene() -> None:
        async with two_runs(agent(call(tool.name), "done", tools=[tool])) as run:
            assert (await run.result()).output == "done"
            (result,) = [e.payload for e in await events_of(run) if e.type == "run.tool.result"]
            assert result["status"] == "succeeded"

    await each_error(scene)


@pytest.mark.parametrize("tool", [judged, judged_in_a_task])
async def test_of_a_predicate(autojump_clock, tool):
    async def scene() -> None:
        async with two_runs(agent(call(tool.name), "done", tools=[tool])) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Waiting)
            await run.cancel()

    await each_error(scene)


@pytest.mark.parametrize("door", PLUGINS)
async def test_of_a_hook(autojump_clock, door):
    plugin, named = PLUGINS[door]

    async def scene() -> None:
        async with two_runs(agent(call("fine"), "done", tools=[fine], plugins=[plugin])) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert outcome.code == "plugin_error"
            assert outcome.message.startswith(named)

    await each_error(scene)


GUARDRAILS: dict[str, Callable[[], Any]] = {
    "what it raises": boom,
    "what it returns": Hostile,
    "the info of a trip": lambda: gr.Trip(HostileDict(a=1)),
    "the text of a reject": lambda: gr.Reject(Hostile()),  # type: ignore[arg-type]
}


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("door", GUARDRAILS)
@pytest.mark.parametrize("kind", ["tool_input", "tool_output"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_of_a_guardrail(autojump_clock, door, kind, is_async):
    async def judges(ctx: Any, value: Any) -> Any:
        return GUARDRAILS[door]()

    def judge(ctx: Any, value: Any) -> Any:
        return GUARDRAILS[door]()

    made = getattr(gr, f"{kind}_guardrail")(name="g")(judges if is_async else judge)

    async def body() -> str:
        return "b"

    tool = gr.tool(body, **{f"{kind.removeprefix('tool_')}_guardrails": [made]})

    async def scene() -> None:
        async with two_runs(agent(call("body"), "done", tools=[tool])) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert (outcome.code, outcome.message[:14]) == ("plugin_error", "guardrail g (t")

    await each_error(scene)


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("door", [door for door in GUARDRAILS if door != "the text of a reject"])
@pytest.mark.parametrize("kind", ["input", "blocking", "output"])
async def test_of_a_guardrail_of_an_agent(autojump_clock, door, kind):
    async def judges(ctx: Any, value: Any) -> Any:
        return GUARDRAILS[door]()

    before = gr.input_guardrail(name="g", blocking=kind == "blocking")(judges)
    guards: dict[str, Any] = {"output_guardrails": [gr.output_guardrail(name="g")(judges)]}
    guards = guards if kind == "output" else {"input_guardrails": [before]}

    async def scene() -> None:
        async with two_runs(agent("done", **guards)) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert (outcome.code, outcome.message[:13]) == ("plugin_error", "guardrail g (")

    await each_error(scene)


ANSWERS: dict[str, Callable[[], Any]] = {"what it raises": boom, "what it returns": Hostile}


def _sync_and_async(function: Callable[[], Any], *, is_async: bool) -> Callable[..., Any]:
    async def asked(*_: Any) -> Any:
        return function()

    return asked if is_async else lambda *_: function()


@pytest.mark.rule("OU-3")
@pytest.mark.parametrize("door", ANSWERS)
@pytest.mark.parametrize("is_async", [False, True])
async def test_of_instructions(autojump_clock, door, is_async):
    async def scene() -> None:
        function = _sync_and_async(ANSWERS[door], is_async=is_async)
        async with two_runs(agent("done", instructions=function)) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert (outcome.code, outcome.message[:14]) == ("plugin_error", "instructions: ")

    await each_error(scene)


@pytest.mark.parametrize("door", ANSWERS)
@pytest.mark.parametrize("is_async", [False, True])
async def test_of_is_enabled(autojump_clock, door, is_async):
    """The tool of a predicate that fails is not offered, which is reported."""

    async def scene() -> None:
        function = _sync_and_async(ANSWERS[door], is_async=is_async)
        tools = [fine, gr.tool(name="hidden", is_enabled=function)(fine.function)]
        model = ScriptedModel([call("fine"), "done"])
        async with two_runs(gr.Agent("bad", tools=tools, model=model)) as run:
            assert (await run.result()).output == "done"
            assert [[tool.name for tool in request.tools] for request in model.requests] == [["fine"], ["fine"]]
            assert "run.degraded" in [event.type for event in await events_of(run)]

    await each_error(scene)


USES: dict[str, Callable[[], Any]] = {
    **ANSWERS,
    "its output": lambda: gr.FinalOutput(Hostile()),
    "the keys of its output": lambda: gr.FinalOutput(HostileDict(a=1)),
}


@pytest.mark.parametrize("door", USES)
async def test_of_tool_use(autojump_clock, door):
    async def scene() -> None:
        use = _sync_and_async(USES[door], is_async=False)
        async with two_runs(agent(call("fine"), "done", tools=[fine], tool_use=use)) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert (outcome.code, outcome.message[:20]) == ("plugin_error", "Agent(tool_use=...):")

    await each_error(scene)


@attrs.frozen
class Question:
    x: int = 0


@pytest.mark.rule("CR-1")
@pytest.mark.parametrize("door", ANSWERS)
@pytest.mark.parametrize("moment", ["build_input", "extract"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_of_an_agent_as_a_tool(autojump_clock, door, moment, is_async):
    async def scene() -> None:
        options: dict[str, Any] = {"parameters": Question, "build_input": lambda question: "q", "extract": lambda c: 1}
        options[moment] = _sync_and_async(ANSWERS[door], is_async=is_async)
        child = gr.Agent("child", model=ScriptedModel(["answer"]))
        bad = agent(call("child", {"x": 1}), "done", tools=[child.as_tool(**options)])
        async with two_runs(bad) as run:
            assert (await run.result()).output == "done"
            (result,) = [event.payload for event in await events_of(run) if event.type == "run.tool.result"]
            failed = (moment, door) != ("extract", "what it returns")  # a value that cannot be shown is a result
            assert (result["status"], result.get("code")) == (
                ("failed", "tool_error") if failed else ("succeeded", None)
            )

    await each_error(scene)


HANDOFFS: dict[str, Callable[[], dict[str, Any]]] = {
    "a callback": lambda: {"on_handoff": _sync_and_async(boom, is_async=False)},
    "an async callback": lambda: {"on_handoff": _sync_and_async(boom, is_async=True)},
    "a filter": lambda: {"input_filter": _sync_and_async(boom, is_async=False)},
    "an async filter": lambda: {"input_filter": _sync_and_async(boom, is_async=True)},
    "what a filter returns": lambda: {"input_filter": lambda messages: Hostile()},
    "the messages of a filter": lambda: {"input_filter": lambda messages: [Hostile()]},
    "the fields of a message": lambda: {
        "input_filter": lambda messages: [gr.Message(id=Hostile(), role="user", content="x")]  # type: ignore[arg-type]
    },
    "the content of a message": lambda: {
        "input_filter": lambda messages: [gr.Message(id="m", role="user", content=Hostile())]  # type: ignore[arg-type]
    },
    "an endless iterator": lambda: {"input_filter": lambda messages: itertools.repeat(messages[0])},
    "the iterator of a filter": lambda: {"input_filter": lambda messages: map(boom, messages)},
}


@pytest.mark.rule("HA-8", "HA-14")
@pytest.mark.parametrize("door", HANDOFFS)
async def test_of_a_handoff(door):
    """In real time, for the thread of a sync callback. Nothing is handed over."""

    async def scene() -> None:
        desk = gr.Agent("desk", model=ScriptedModel(["never"]))
        handoffs = [gr.handoff(desk, **HANDOFFS[door]())]
        async with two_runs(agent(call("transfer_to_desk"), "done", handoffs=handoffs)) as run:
            assert (await run.result()).output == "done"
            (result,) = [event.payload for event in await events_of(run) if event.type == "run.tool.result"]
            assert (result["status"], result["code"]) == ("failed", "tool_error")
            assert (await run.view()).active_agent == "helper"

    await each_error(scene)


@pytest.mark.rule("HA-3")
async def test_of_the_predicates_of_a_handoff(autojump_clock):
    """A handoff whose is_enabled fails is not offered; one whose needs_approval fails needs one."""

    async def scene() -> None:
        desk = gr.Agent("desk", model=ScriptedModel(["desk"] * 2))
        handoffs = [gr.handoff(desk, tool_name="hidden", is_enabled=boom), gr.handoff(desk, needs_approval=boom)]
        bad = agent(call("transfer_to_desk", id="c1"), handoffs=handoffs)
        async with two_runs(bad) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Waiting)
            assert [tool.name for tool in bad.model.requests[0].tools] == ["transfer_to_desk"]  # type: ignore[union-attr]
            await run.decide("c1", "approve")
            assert (await run.result()).output == "desk"

    await each_error(scene)


@pytest.mark.parametrize("door", ANSWERS)
async def test_of_the_count_of_a_window(autojump_clock, door):
    async def scene() -> None:
        window = gr.ContextWindow(tokens=100, count=_sync_and_async(ANSWERS[door], is_async=False))
        async with two_runs(agent("done", plugins=[window])) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert outcome.code == "plugin_error"

    await each_error(scene)


@pytest.mark.rule("PO-27")
@pytest.mark.parametrize("door", ANSWERS)
async def test_of_the_count_of_a_compaction(autojump_clock, door):
    async def scene() -> None:
        compaction = gr.Compaction(above=1, keep=1, count=_sync_and_async(ANSWERS[door], is_async=False))
        async with two_runs(agent("done", plugins=[compaction])) as run:
            assert (await run.result()).output == "done"
            (reported,) = [e.payload for e in await events_of(run) if e.type == "run.degraded"]
            assert reported["detail"].startswith("plugin 'Compaction' in before_inference")

    await each_error(scene)


@pytest.mark.rule("P-44")
async def test_of_the_hook_of_run_end(autojump_clock):
    async def scene() -> None:
        async with two_runs(agent("done", plugins=[scripted("x", run_end=_raise)])) as run:
            assert (await run.result()).output == "done"
            (reported,) = [e.payload for e in await events_of(run) if e.type == "run.degraded"]
            assert reported["detail"].startswith("plugin 'x' in run_end")

    await each_error(scene)


@pytest.mark.parametrize("moment", ["opening", "iterating", "closing", "modelerror", "between"])
async def test_of_a_model(autojump_clock, moment):
    async def scene() -> None:
        async with two_runs(gr.Agent("bad", model=Broken(moment))) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert outcome.code in ("model_error", "model_bug")

    await each_error(scene)


@pytest.mark.parametrize("is_async", [False, True])
async def test_of_a_provider_of_deps(autojump_clock, is_async):
    """What it cannot give now it may give in a while: the run waits for that."""
    asked: list[str] = []

    def sync_provider(info: gr.RunInfo) -> str:
        asked.append(info.run_id)
        if info.agent == "bad" and len(asked) < 5:
            raise boom.error
        return "deps"

    async def async_provider(info: gr.RunInfo) -> str:
        return sync_provider(info)

    async def scene() -> None:
        asked.clear()
        async with two_runs(agent("done", key="bad"), deps=async_provider if is_async else sync_provider) as run:
            with pytest.raises(gr.RunDegradedError, match="the provider failed, and is asked again"):
                await run.result()
            await trio.sleep(200)
            assert (await run.result()).output == "done"

    await each_error(scene)


async def test_of_a_denial(autojump_clock):
    async def scene() -> None:
        async with two_runs(agent(call("signed", id="c1"), "done", tools=[signed], denial=lambda t, d: boom())) as run:
            await run.wait()
            await run.decide("c1", "cancel")
            assert (await run.result()).output == "done"
            (reported,) = [e.payload for e in await events_of(run) if e.type == "run.degraded"]
            assert reported["reason"] == "denial_failed"

    await each_error(scene)


async def test_of_an_output_type(autojump_clock):
    async def scene() -> None:
        bad = gr.Agent("bad", model=ScriptedModel(['{"x": 1}', '{"x": 2}']), output_type=Picky)
        async with two_runs(bad) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Failed)
            assert outcome.code == "model_behavior_error"

    await each_error(scene)


@gr.tool
async def fine() -> str:
    return "fine"


class False_(KeyboardInterrupt):  # noqa: N801 - an interrupt, that is what makes it dangerous
    """Has methods of its own for all that Python asks of an exception in passing."""

    __bool__ = __len__ = __str__ = __repr__ = __eq__ = __hash__ = lambda *_: sys.exit(3)  # type: ignore[assignment]


def chained(first: BaseException, then: BaseException) -> BaseException:
    then.__cause__ = first
    return then


@pytest.mark.parametrize(
    "made",
    [
        False_,
        lambda: chained(False_(), KeyboardInterrupt()),
        lambda: chained(False_(), ValueError("beside it")),
        lambda: BaseExceptionGroup("g", [chained(False_(), KeyboardInterrupt()), False_()]),
    ],
)
@pytest.mark.parametrize("door", ["a tool", "a hook", "a model"])
async def test_of_the_methods_of_an_exception_and_of_its_cause(autojump_clock, caplog, door, made):
    """An exception may be false, or raise when its truth is asked for; so may one that is only a cause."""

    async def scene() -> None:
        plugins = [scripted("x", step_start=_raise)] if door == "a hook" else []
        bad = agent(call("in_a_task", id="c1"), "done", key="bad", tools=[in_a_task], plugins=plugins)
        if door == "a model":
            bad = gr.Agent("bad", model=Broken("iterating"))
        async with two_runs(bad) as run:
            outcome = await run.wait()
            assert isinstance(outcome, gr.Completed if door == "a tool" else gr.Failed)
        assert "Traceback (most recent call last)" in caplog.text

    boom.error = made()
    await to_its_end(scene)
