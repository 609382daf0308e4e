"""What type checkers must know of tools and agents; checked by test_typing.py, never run.

An `assert_type` fails when a type is another one; a `type: ignore` fails when the error that should be there is not.
"""

import operator
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, assert_type

import attrs

from greenroom.actors.agents.agent import Agent, stop_at_tools
from greenroom.actors.contract import stop
from greenroom.actors.contract.decisions import Block, Decision, Deny, SetResult, Suspend, Ticket
from greenroom.actors.contract.messages import Message, ModelRequest
from greenroom.actors.contract.outcomes import Failed, RunCancelledError, RunFailedError, RunWaitingError
from greenroom.actors.contract.tasks import TaskView
from greenroom.actors.plugins.contexts import GateContext, PhaseContext
from greenroom.actors.plugins.mutation import Mutation
from greenroom.actors.plugins.plugin import Plugin
from greenroom.actors.runtime.open_runtime import run
from greenroom.actors.runtime.runtime import Runtime
from greenroom.actors.state.access import State, WritableState
from greenroom.actors.state.keys import StateKey, commutative
from greenroom.actors.testing import FunctionModel, ScriptedModel, call, fail, text
from greenroom.actors.tools import SyncToolContext, Tool, ToolContext, tool


@attrs.frozen
class Deps:
    limit: int


@attrs.frozen
class Report:
    title: str


# --- a decorated function keeps its signature ------------------------------------------------------------------------


@tool
async def add(a: int, b: int = 2) -> int:
    return a + b


@tool(needs_approval=True, effect="publish", timeout=30.0)
async def refund(ctx: ToolContext[Deps], order: str, *, cents: int) -> str:
    assert_type(ctx.deps, Deps)
    await ctx.progress(0.5, "half")
    return f"{order} {min(cents, ctx.deps.limit)}"


@tool(replay="safe")
def read(ctx: SyncToolContext[Deps], path: str) -> bytes:
    ctx.progress(0.5)
    ctx.output(path)
    return path.encode()


@tool
async def without_deps(ctx: ToolContext, a: int) -> None:
    assert_type(ctx.deps, Any)


async def calls() -> None:
    assert_type(await add(1, b=2), int)
    assert_type(await refund(ToolContext(deps=Deps(1)), "7", cents=5), str)
    assert_type(read(SyncToolContext(deps=Deps(1)), "x"), bytes)
    await add("1")  # type: ignore[arg-type]
    await add(1, c=2)  # type: ignore[call-arg]
    await refund(ToolContext(deps=Deps(1)), "7")  # type: ignore[call-arg]
    await refund(ToolContext(deps="x"), "7", cents=5)  # type: ignore[arg-type]


@tool(background=True)
async def spawns(ctx: ToolContext[Deps]) -> str:
    assert_type(await ctx.spawn(refund, order="7", cents=5), str)
    assert_type(await ctx.spawn("refund", order="7"), str)
    assert_type(await ctx.cancel_task("a.task1"), bool)
    assert_type(await ctx.tasks(), tuple[TaskView, ...])
    assert_type(ctx.task_id, str | None)
    await ctx.spawn(7)  # type: ignore[arg-type]
    return (await ctx.tasks())[0].tool


@tool
def spawns_from_a_thread(ctx: SyncToolContext[Deps]) -> None:
    assert_type(ctx.spawn(refund, order="7", cents=5), str)
    assert_type(ctx.cancel_task("a.task1"), bool)
    assert_type(ctx.tasks(), tuple[TaskView, ...])


def mistakes(function: Callable[[int], int]) -> None:
    tool(replay="always")  # type: ignore[call-overload]
    tool(needs_aproval=True)  # type: ignore[call-overload]
    tool(function, timeout="soon")  # type: ignore[call-overload]
    tool(function, background="yes")  # type: ignore[call-overload]
    assert_type(tool(function, name="f"), Tool[[int], int])
    assert_type(tool(function)(3), int)


async def over_limit(ctx: ToolContext[Deps], arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["cents"] > ctx.deps.limit)


tool(refund.function, needs_approval=over_limit)
tool(refund.function, needs_approval=lambda ctx, arguments: arguments["cents"] > 100)


# --- hooks and state keys --------------------------------------------------------------------------------------------

counter = StateKey("counter", int, default=0, merge=commutative(operator.add))
names = StateKey("names", list[str], scope="thread")
report_key = StateKey("report", Report)


@tool
async def counting(ctx: ToolContext[Deps], title: str) -> int:
    assert_type(ctx.state[report_key], Report)
    ctx.state.set(report_key, Report(title))
    ctx.state.set(report_key, title)  # type: ignore[misc]
    return ctx.state[counter]


class Audit(Plugin):
    state = (counter, names)

    async def run_start(self, ctx: PhaseContext[Deps]) -> Mutation | None:
        assert_type(ctx.deps, Deps)
        assert_type(ctx.state[counter], int)
        assert_type(ctx.state[names], list[str])
        assert_type(ctx.messages, tuple[Message, ...])
        ctx.step = 3  # type: ignore[misc]
        return Mutation().set(names, ["a"]).update(counter, 1).end("enough")

    async def step_start(self, ctx: PhaseContext) -> None:
        assert_type(ctx.deps, Any)
        Mutation().set(names, "a")  # type: ignore[misc]
        Mutation().add_message("x", placement="end")  # type: ignore[arg-type]

    async def tool_gate(self, ctx: GateContext[Deps]) -> Block | Deny | Suspend | SetResult | None:
        assert_type(ctx.call.call_id, str)
        assert_type(ctx.decision, Decision | None)
        return Block("no") if ctx.tool == "refund" else None


class Wrong(Plugin):
    async def step_end(self, ctx: PhaseContext) -> str:  # type: ignore[override]
        return "x"

    def run_end(self, ctx: PhaseContext) -> None:  # type: ignore[override]
        return None


Agent("a", plugins=[Audit()], state=[counter, names])
Agent("a", plugins=[Audit])  # type: ignore[list-item]
Agent("a", state=["counter"])  # type: ignore[list-item]


# --- an agent knows the type of its output ---------------------------------------------------------------------------

plain = Agent("plain", tools=[add, refund, read], stop=[stop.MaxRounds(8)], tool_use=stop_at_tools("add"))
assert_type(plain, Agent[str])
assert_type(plain.parse_output("x"), str)
assert_type(Agent("a", output_type=Report), Agent[Report])
assert_type(Agent("a", output_type=Report).parse_output({"title": "x"}), Report)
assert_type(Agent("a", output_type=list[int]), Agent[list[int]])


def undecorated(a: int) -> int:
    return a


Agent("a", tools=[undecorated])  # type: ignore[list-item]
Agent("a", execution="parallel")  # type: ignore[call-overload]
Agent("a", stop=[3])  # type: ignore[list-item]
Agent("a", "instructions")  # type: ignore[call-overload]
Agent("a", model=3)  # type: ignore[call-overload]


# --- the output of an outcome: the other outcomes raise --------------------------------------------------------------


async def outputs(runtime: Runtime) -> None:
    reporter = Agent("reporter", output_type=Report)
    assert_type((await run(reporter, "x")).output, Report)
    assert_type((await run(plain, "x")).output, str)
    started = await runtime.start(reporter, "x")
    assert_type((await started.wait()).output, Report)
    assert_type((await started.result()).output.title, str)
    assert_type((await (await runtime.start("reporter", "x")).result()).output, Any)
    (await run(plain, "x")).output.close()  # type: ignore[attr-defined]
    try:
        assert_type((await started.wait()).output, Report)
    except RunFailedError as error:
        assert_type(error.outcome, Failed)
        assert_type(error.outcome.code, str)
    except RunWaitingError as error:
        assert_type(error.outcome.tickets, tuple[Ticket, ...])
    except RunCancelledError as error:
        assert_type(error.outcome.by, str | None)


# --- state keys ------------------------------------------------------------------------------------------------------

counter = StateKey("counter", int, default=0, merge=commutative(operator.add))
names = StateKey("names", list[str], default=[], scope="thread")
last = StateKey("last", int | None, default=None)
report = StateKey("report", dict[str, Report])
assert_type(counter, StateKey[int])
assert_type(names, StateKey[list[str]])
assert_type(last, StateKey[int | None])
assert_type(report, StateKey[dict[str, Report]])
Agent("a", state=[counter, names])
Agent("a", state=["counter"])  # type: ignore[list-item]
StateKey("k", int, scope="global")  # type: ignore[arg-type]
StateKey("k", int, merge="sum")  # type: ignore[arg-type]


@tool
async def count(ctx: ToolContext[Deps], by: int) -> int:
    assert_type(ctx.state, WritableState)
    assert_type(ctx.state[counter], int)
    assert_type(ctx.state[names], list[str])
    assert_type(ctx.state[last], int | None)
    assert_type(ctx.state[report], dict[str, Report])
    ctx.state.set(report, {**ctx.state[report], "x": Report("x")})
    ctx.state.set(names, [*ctx.state[names], "a"])
    ctx.state.set(last, None)
    ctx.state.update(counter, by)
    ctx.state.set(counter, "one")  # type: ignore[misc]
    ctx.state.set(names, [1])  # type: ignore[misc]
    return ctx.state[counter]


@tool
def count_in_thread(ctx: SyncToolContext) -> int:
    assert_type(ctx.state[counter], int)
    ctx.state.set(report, {"a": 1})  # type: ignore[misc]
    return ctx.state[counter]


def look(state: State) -> None:
    assert_type(state[counter], int)
    state.set(counter, 1)  # type: ignore[attr-defined]


class Counting(Plugin):
    async def step_start(self, ctx: PhaseContext[Any]) -> None:
        assert_type(ctx.state[counter], int)


# --- the test models -------------------------------------------------------------------------------------------------

script = ScriptedModel([call("add", a=1), [text("x"), "y", call("add", a=1)], fail("overloaded"), "done"])
assert_type(script.requests, tuple[ModelRequest, ...])
fail("tired")  # type: ignore[arg-type]
ScriptedModel([3])  # type: ignore[list-item]


async def asked(request: ModelRequest) -> str:
    return request.agent


FunctionModel(asked)
FunctionModel(lambda request: call("add", a=request.step))
Agent("a", model=script)

coroutine: Callable[[int, int], Coroutine[Any, Any, int]] = add
awaitable: Callable[[int], Awaitable[int]] = add
