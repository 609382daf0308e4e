"""The agent as the engine sees it: plain data and pure functions, no live objects.

The runtime makes an `AgentSpec` from an `Agent` once and uses it for all runs of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from ..errors import UsageError
from .converters import converter
from .decisions import Decision, Ticket
from .json_schema.faults import schema_fault
from .phases import Phase
from .plain import JSONObject, JSONValue
from .policies import DEFAULTS, Policies
from .row_forms import Value
from .state import Keys
from .stop import MaxRounds, StopCondition

ExecutionName = Literal["sequential", "parallel_batch_approval", "parallel_streaming"]
GateKind = Literal["never", "always", "ask"]
HANDOFF: Final = "handoff"
"""The effect class of handoffs, which no other tool has."""
Concurrency = Literal["shared", "ordered", "exclusive"]


@attrs.frozen(kw_only=True)
class ExecutionMode:
    """How the calls of one step run: a row of the table of modes, or a mode of your own for `execution=`.

    A run keeps the values of its mode, so restarts, forks and replays have the same mode. The defaults are those of
    "parallel_streaming".

    Attributes:
        bodies: bodies of one step that may execute concurrently (None: up to the run's cap, `Agent(max_bodies=)`).
        suspended_blocks: a call whose body has suspended keeps later calls from starting.
        batch: decisions take effect when all suspended calls of the step are decided; otherwise immediately.
        merges: when the state writes of a body are merged: "at_once", when the body returns, or "together", when
            nothing of the step executes any more, so that concurrent bodies read the same state.

    Raises:
        UsageError: a value is invalid; the message names it.
    """

    bodies: int | None = None
    suspended_blocks: bool = False
    batch: bool = False
    merges: Literal["at_once", "together"] = "together"

    def __attrs_post_init__(self) -> None:
        bodies: Any = self.bodies
        if bodies is not None and (not isinstance(bodies, int) or isinstance(bodies, bool) or bodies < 1):
            raise UsageError(f"ExecutionMode(bodies={bodies!r:.100}): give a whole number, 1 or more, or None")
        for name in ("suspended_blocks", "batch"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"ExecutionMode({name}={getattr(self, name)!r:.100}): use True or False")
        if self.merges not in ("at_once", "together"):
            raise UsageError(f"ExecutionMode(merges={self.merges!r:.100}): use 'at_once' or 'together'")


Execution = ExecutionName | ExecutionMode
"""A value of `execution=`: the name of a mode, or a mode that the program made."""

MODES: Final[Mapping[str, ExecutionMode]] = {
    "sequential": ExecutionMode(bodies=1, suspended_blocks=True, batch=False, merges="at_once"),
    "parallel_batch_approval": ExecutionMode(bodies=None, suspended_blocks=False, batch=True, merges="together"),
    "parallel_streaming": ExecutionMode(bodies=None, suspended_blocks=False, batch=False, merges="together"),
}
"""Name of an execution mode -> how the calls of one step run. The engine has no other place that knows a mode."""


def execution_data(execution: object) -> JSONValue:
    """Return `execution` as plain data, for digests."""
    return attrs.asdict(execution) if isinstance(execution, ExecutionMode) else execution


def _read_execution(value: object, _: object) -> Execution:
    kind: Any = ExecutionName if isinstance(value, str) else ExecutionMode
    execution: Execution = converter.structure(value, kind)
    return execution


converter.register_structure_hook(Execution, _read_execution)


@attrs.frozen(kw_only=True)
class ToolSpec:
    """A tool as the engine sees it.

    Attributes:
        name: unique in the agent.
        effect: effect class; an applying class moves the run to `applying` while the body executes.
        replay_safe: the body may run again after a crash without a question.
        gate: whether a person must approve: never, always, or ask (a predicate or plugin decides).
        concurrency: shared, ordered or exclusive.
        fatal: a failure of the body fails the run (on_error="raise").
        grace: seconds of clean-up after a cancel.
        on_conflict: for state writes that cannot be merged: "keep" the result and drop the writes, or "retry" the call.
        background: a call ends immediately, and its body runs as a task of the run.
        output: the result may be the output of the run (see `AgentSpec.tool_use`).
        guarded: the tool has input guardrails, which are asked before its other gates.
        conditional: whether the tool is offered is asked in each step, and again when a call passes its gates.
        child_agent: key of the agent whose run does the work of a call; None for every other tool.
        handoff: key of the agent to which a call hands the run over; None for every other tool.
        bodiless: a handoff without a callback: the call succeeds when its turn comes.
        prepares: the tool prepares itself before the first step of a run.
        definition: digest of the tool's definition; another digest is another action to approve. "" if unknown.
        check: arguments -> None, or the fault with its path (pure).
    """

    name: str
    effect: str = "read"
    replay_safe: bool = False
    gate: GateKind = "never"
    concurrency: Concurrency = "shared"
    fatal: bool = False
    grace: float = 5.0
    on_conflict: Literal["keep", "retry"] = "keep"
    background: bool = False
    output: bool = True
    guarded: bool = False
    conditional: bool = False
    child_agent: str | None = None
    handoff: str | None = None
    bodiless: bool = False
    prepares: bool = False
    definition: str = ""
    check: Callable[[JSONObject], str | None] = lambda _: None


class OfferedTool(Value, frozen=True, kw_only=True):
    """A tool of a toolset, as the answer of a model that called the tool brought it.

    A tool of a toolset is in no `AgentSpec`: toolsets are asked in each step. The row of the call keeps what the engine
    has to know of the tool, so recovery, replay and the judge of decisions need no toolset.

    Attributes:
        toolset: its name.
        schema: JSON Schema of the arguments.
        definition: digest of the tool's definition.
        description: as the model reads it; shown to people if the tool is another one when its body begins.

    The other attributes are those of `ToolSpec`.
    """

    name: str
    toolset: str
    schema: JSONObject
    definition: str
    description: str = ""
    effect: str = "read"
    replay_safe: bool = False
    gate: GateKind = "never"
    concurrency: Concurrency = "shared"
    fatal: bool = False
    grace: float = 5.0
    on_conflict: Literal["keep", "retry"] = "keep"
    guarded: bool = False

    @property
    def spec(self) -> ToolSpec:
        """The tool as the engine sees it."""
        return ToolSpec(
            name=self.name,
            effect=self.effect,
            replay_safe=self.replay_safe,
            gate=self.gate,
            concurrency=self.concurrency,
            fatal=self.fatal,
            grace=self.grace,
            on_conflict=self.on_conflict,
            guarded=self.guarded,
            definition=self.definition,
            check=self.check,
        )

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        fault = schema_fault(self.schema, arguments)
        return None if fault is None else f"Invalid arguments: {fault}."


@attrs.frozen(kw_only=True)
class AgentSpec:
    """An agent as the engine sees it.

    Attributes:
        key: the agent's unique name.
        digest: hash of everything in the spec that can change a run.
        tools: by name.
        execution: default execution mode.
        stop: stop conditions in order.
        hooked: phases with hooks; all others are skipped by a table lookup.
        keys: declared state keys; undeclared keys of a recovered run have no reducer.
        tool_use: run_model_again, stop_on_first_tool, the names of tools whose result ends the run as its output, or a
            pure function: (`CallFacts` of the results, in the model's order) -> `FinalOutput` or None.
        tool_choice: "auto", "required", "none", or the name of the tool that the model must call.
        reset_tool_choice: "auto" applies once the agent has used a tool in the run.
        on_deny: the effect of a denied approval on the run.
        denial: (ticket, decision) -> the model's text about a denied call whose decision has none (pure); None: a
            default.
        on_new_input: the effect of new input on a waiting run.
        on_unknown_tool: answer the model (return) or fail the run (raise).
        output_retries: how often a final answer of the wrong form is asked for again.
        check_output: final text -> (value, None) or (None, the fault) (pure).
        max_bodies: cap on executing bodies per run, tasks not counted.
        max_tasks: cap on background tasks per run.
        policies: The policies of model requests.
        model: names the agent's own model; "" if the agent has none.
        structured: the final answer has a form, so a broken answer is not continued.
        instructed: the agent's instructions are a function, which each step asks.
        input_guardrails: names of those asked beside the model request.
        blocking_guardrails: names of the input guardrails asked before it.
        output_guardrails: names.
        handoffs: the agent has handoffs.
        graph: key -> spec of each agent that a run of this agent may be handed over to, itself included, as `within`
            returns it; empty for an agent without handoffs.
        recorded: for a replay: call id -> recorded digest of its tool's definition; None: the tools' own.
    """

    key: str
    digest: str = ""
    tools: Mapping[str, ToolSpec] = attrs.field(factory=dict)
    execution: Execution = "sequential"
    stop: tuple[StopCondition, ...] = (MaxRounds(),)
    hooked: frozenset[Phase] = frozenset()
    keys: Keys = attrs.field(factory=dict)
    tool_use: Literal["run_model_again", "stop_on_first_tool"] | frozenset[str] | Callable[..., Any] = "run_model_again"
    tool_choice: str = "auto"
    reset_tool_choice: bool = True
    on_deny: Literal["continue", "cancel_run"] = "continue"
    denial: Callable[[Ticket, Decision], Any] | None = None
    on_new_input: Literal["queue", "supersede"] = "queue"
    on_unknown_tool: Literal["return", "raise"] = "return"
    output_retries: int = 1
    check_output: Callable[[str], tuple[Any, str | None]] = lambda text: (text, None)
    max_bodies: int = 16
    max_tasks: int = 16
    policies: Policies = DEFAULTS
    model: str = ""
    structured: bool = False
    instructed: bool = False
    input_guardrails: tuple[str, ...] = ()
    blocking_guardrails: tuple[str, ...] = ()
    output_guardrails: tuple[str, ...] = ()
    handoffs: bool = False
    graph: Mapping[str, AgentSpec] = attrs.field(factory=dict, repr=False)
    recorded: Mapping[str, str] | None = None

    @property
    def prepares(self) -> bool:
        """True if a tool of the agent, or of one that its runs may be handed over to, prepares itself."""
        specs = self.graph.values() if self.graph else (self,)
        return any(tool.prepares for spec in specs for tool in spec.tools.values())

    def definition(self, tool: str, call_id: str) -> str:
        """Return the digest of a tool's definition for a call; "" if unknown."""
        if self.recorded is not None:
            return self.recorded.get(call_id, "")
        spec = self.tools.get(tool)
        return "" if spec is None else spec.definition

    def offering(self, offered_tools: Mapping[str, ToolSpec]) -> AgentSpec:
        """Return the spec with tools of toolsets; a tool of the agent's own has precedence."""
        return attrs.evolve(self, tools={**offered_tools, **self.tools})

    def acting(self, key: str | None) -> AgentSpec:
        """Return the spec of the agent that acts in a run of this agent; None: this agent."""
        return self if key is None else self.graph.get(key, self)

    def within(self, first: AgentSpec, keys: Keys) -> AgentSpec:
        """Return the spec of this agent in a run that another agent began.

        Of the first agent are the hooks of run_start and run_end, stop conditions, budget, execution mode,
        on_new_input, max_tasks and input guardrails; all else is this agent's.

        Args:
            first: the agent with which the run was started.
            keys: the state keys of all agents of the graph; the agent's own win.
        """
        return attrs.evolve(
            self,
            execution=first.execution,
            stop=first.stop,
            hooked=(self.hooked - _OF_THE_RUN) | (first.hooked & _OF_THE_RUN),
            keys={**keys, **self.keys},
            on_new_input=first.on_new_input,
            max_tasks=first.max_tasks,
            policies=attrs.evolve(self.policies, budget=first.policies.budget),
            input_guardrails=first.input_guardrails,
            blocking_guardrails=first.blocking_guardrails,
        )

    def replaying(self, key: str, recorded: Mapping[str, str]) -> AgentSpec:
        """Return the spec for a replay of a run of the agent `key`. `recorded`: as the attribute."""
        graph = {name: attrs.evolve(other, recorded=recorded) for name, other in self.graph.items()}
        return attrs.evolve(self, key=key, recorded=recorded, graph=graph)


_OF_THE_RUN: Final = frozenset({Phase.RUN_START, Phase.RUN_END})
"""The phases whose hooks are those of a run's first agent."""
