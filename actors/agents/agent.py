"""`Agent`: what a run executes, as a frozen value. Every invalid part is reported when the agent is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Unpack, cast, overload

import attrs

from greenroom.supervision.fields import did_you_mean

from ..abc import Model
from ..contract.decisions import Decision, Ticket
from ..contract.ids import AGENT_KEYS, content_digest, is_agent_key
from ..contract.messages import ToolInfo
from ..contract.outcomes import Completed
from ..contract.phases import Phase
from ..contract.plain import JSONObject, JSONValue, exact
from ..contract.policies import Policies
from ..contract.spec import MODES, AgentSpec, Execution, ExecutionMode, execution_data
from ..contract.state import Keys
from ..contract.stop import MaxRounds, StopCondition
from ..errors import AgentDefinitionError, StateError
from ..models.answers import Output, read_output_type
from ..options import checks_fields
from ..plugins.guardrails import InputGuardrail, OutputGuardrail, check_guardrails
from ..plugins.plugin import Plugin, check_plugins, hooked, name_of
from ..plugins.policies import PolicyPlugin, essence, gathered
from ..state.access import declared
from ..state.keys import StateKey
from ..tools.agent_tool import AgentTool, AgentToolOptions, ChildAgent, agent_tool, tool_essence
from ..tools.background import built_in
from ..tools.definition import Tool
from ..tools.marks import definition_mark
from ..tools.toolset import Toolset
from .checks import (
    check_choice,
    check_denial,
    check_needed_plugins,
    check_settings,
    check_stop,
    check_text,
    check_tools,
    check_toolsets,
    check_use,
    instructs,
    tool_name,
)
from .deps import misfit
from .handoff import Handoff, handoff_of
from .options import AgentOptions, Deps, HandoffOptions, Instructs, SingleOptions, ToolUse

if TYPE_CHECKING:
    from typing_extensions import TypeForm, TypeVar

    T_co = TypeVar("T_co", default=str, covariant=True)
    U = TypeVar("U", default=object)  # mypy infers no type of a list of agents and keys
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

T = TypeVar("T")
V = TypeVar("V")
A = TypeVar("A")
D = TypeVar("D")

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "execution": tuple(MODES),
    "on_deny": ("continue", "cancel_run"),
    "on_new_input": ("queue", "supersede"),
    "on_unknown_tool": ("return", "raise"),
}
_TASKS: Final = 16
"""Default for the background tasks of one run."""
_GRACE: Final = 5.0
"""Default grace of a tool, in seconds."""
_SLACK: Final = 5.0
"""Seconds by which the grace of an agent's tool exceeds the graces inside of its runs, so that these end first."""


def stop_at_tools(*names: str) -> frozenset[str]:
    """Return a value for `Agent(tool_use=...)`: a result of one of these tools is the run's output.

    Raises:
        AgentDefinitionError: no name is given.
    """
    if not names:
        raise AgentDefinitionError(
            "stop_at_tools() needs the name of a tool; for any tool use tool_use='stop_on_first_tool'"
        )
    return frozenset(names)


def _tools(value: Iterable[Tool[..., object]]) -> tuple[Tool[..., object], ...]:
    return _listed(value)


def _conditions(value: Iterable[StopCondition]) -> tuple[StopCondition, ...]:
    return _listed(value)


def _plugins(value: Iterable[Plugin]) -> tuple[Plugin, ...]:
    return _listed(value)


def _keys(value: Iterable[StateKey[Any]]) -> tuple[StateKey[Any], ...]:
    return _listed(value)


def _input_guardrails(value: Iterable[InputGuardrail[Any, Any]]) -> tuple[InputGuardrail[Any, Any], ...]:
    return _listed(value)


def _output_guardrails(
    value: Iterable[OutputGuardrail[Any, Any, Any]],
) -> tuple[OutputGuardrail[Any, Any, Any], ...]:
    return _listed(value)


def _handoffs(value: Iterable[Agent[Any] | str | Handoff]) -> tuple[Handoff, ...]:
    items: Any = _listed(value)
    return tuple(map(handoff_of, items)) if isinstance(items, tuple) else items


def _toolsets(value: Iterable[Toolset]) -> tuple[Toolset, ...]:
    return _listed(value)


def _listed(value: Iterable[V]) -> tuple[V, ...]:
    """Return a tuple of an iterable; any other value unchanged, so that the check can name it."""
    items: Any = value
    return tuple(items) if isinstance(items, Iterable) and not isinstance(items, str | Mapping) else cast("Any", items)


def _copied(value: JSONObject) -> JSONObject:
    return dict(value) if isinstance(value, Mapping) else value


@checks_fields(AgentDefinitionError)
@attrs.frozen(eq=False, init=False)  # `checks_fields` installs the constructor; type checkers read the one below
class Agent(Generic[T_co, Deps]):
    """A model, its instructions and its tools, under a key that is unique in a runtime.

    Attributes:
        key: names the agent; stored with each of its runs.
        instructions: the system text, or a function of a `PhaseContext`, sync or async, that returns the text: called
            in each step, after the before_inference hooks. Its text is stored with the step, at most 256 KiB: retries
            and restarts send the same text. If the function raises, takes 30 s or returns no str, the run fails
            (plugin_error). A sync function runs in the event loop and must be quick.
        tools: functions decorated with `tool`.
        model: a Model, or "provider:name"; None if the agent is never started itself.
        execution: how the calls of one step run: sequential, parallel_batch_approval, parallel_streaming, or an
            `ExecutionMode(...)` of your own.
        stop: stop conditions; the first in list order wins. Without a MaxRounds, `MaxRounds(16)` is added at the end;
            `MaxRounds(None)` means no limit.
        output_type: the type of the final answer, or a JSON Schema (a dict); for anything but str the model is asked
            for JSON, which is checked. With a schema, the output is plain JSON data.
        output_retries: how often an answer of the wrong form is asked for again.
        tool_choice: "auto" (default) lets the model choose, "required" demands a call, "none" forbids calls, the name
            of a tool demands a call of that tool.
        reset_tool_choice: once the agent has used a tool in a run, "auto" applies ("none" stays); False keeps the
            choice.
        tool_use: "run_model_again" after tools, "stop_on_first_tool", `stop_at_tools(...)`, or a function of the calls
            of a step that succeeded or were rejected by a guardrail (a tuple of `CallFacts`, in the model's order)
            that returns `FinalOutput(value)` or None. The function is called once per step with calls, when all have
            ended and none waits; it must be pure. If it raises, the run fails (plugin_error).
        on_deny: the effect of a denied approval: "continue" lets the model read the denial, "cancel_run" ends the run
            unless the denial has a text for the model.
        denial: (ticket, decision) -> the model's text about a denied call, where the decision has none; a pure
            function. If it fails or returns no str, an event reports that and a default text is used.
        on_new_input: the effect of new input on approvals that are open, or requested before the input is read: "queue"
            keeps them, "supersede" withdraws them.
        on_unknown_tool: "return" answers the model with an error, "raise" fails the run.
        settings: for the model (temperature and so on), plain JSON data.
        max_bodies: bodies that may execute concurrently in one run.
        max_tasks: background tasks that may be alive together in one run; a further task is refused.
        description: for people and for other agents.
        plugins: code that runs in the phases of a run; the order decides between equals.
        state: the state keys that tools use, in addition to those of plugins. Commutative keys must be declared, so
            that they can be merged after a crash.
        input_guardrails: judge the input of a run and each text sent to it, beside the model request or before it.
        output_guardrails: judge each final answer, in the output type, before the run completes.
        deps_type: the class of the dependencies (`start(..., deps=)`), for type checkers, and to refuse a tool,
            guardrail, hook or function whose context names others, as `ToolContext[Deps]` does. The value is not
            checked.
        toolsets: sources of tools that are known at run time only (`Toolset`); asked in each step.
        handoffs: agents, keys of agents, or `gr.handoff(...)`: the agents to which the model can hand the run over.
        spec: the agent as the engine sees it, with a digest of everything that can change a run.
        tool_infos: the tools as the model sees them.
        asks_each_step: a step asks for its instructions, which tools are enabled, or the toolsets, before its model
            request.
        output_schema: JSON Schema of the final answer; None for plain text.
        output_words: The system text about the form of the final answer; empty for plain text.

    Raises:
        AgentDefinitionError: a part is invalid or parts do not fit together; names the part and says what to give.
    """

    key: str
    instructions: str | Instructs[Deps] = attrs.field(default="", kw_only=True)
    tools: tuple[Tool[..., object], ...] = attrs.field(default=(), converter=_tools, kw_only=True)
    model: Model | str | None = attrs.field(default=None, kw_only=True)
    execution: Execution = attrs.field(default="sequential", kw_only=True)
    stop: tuple[StopCondition, ...] = attrs.field(default=(), converter=_conditions, kw_only=True)
    output_type: type[T_co] | JSONObject = attrs.field(default=cast("Any", str), kw_only=True)
    output_retries: int = attrs.field(default=1, kw_only=True)
    tool_choice: str = attrs.field(default="auto", kw_only=True)
    reset_tool_choice: bool = attrs.field(default=True, kw_only=True)
    tool_use: ToolUse = attrs.field(default="run_model_again", kw_only=True)
    on_deny: Literal["continue", "cancel_run"] = attrs.field(default="continue", kw_only=True)
    denial: Callable[[Ticket, Decision], str] | None = attrs.field(default=None, kw_only=True)
    on_new_input: Literal["queue", "supersede"] = attrs.field(default="queue", kw_only=True)
    on_unknown_tool: Literal["return", "raise"] = attrs.field(default="return", kw_only=True)
    settings: JSONObject = attrs.field(factory=dict, converter=_copied, kw_only=True)
    max_bodies: int = attrs.field(default=16, kw_only=True)
    max_tasks: int = attrs.field(default=_TASKS, kw_only=True)
    description: str = attrs.field(default="", kw_only=True)
    plugins: tuple[Plugin, ...] = attrs.field(default=(), converter=_plugins, kw_only=True)
    state: tuple[StateKey[Any], ...] = attrs.field(default=(), converter=_keys, kw_only=True)
    input_guardrails: tuple[InputGuardrail[Any, Any], ...] = attrs.field(
        default=(), converter=_input_guardrails, kw_only=True
    )
    output_guardrails: tuple[OutputGuardrail[Any, Any, Any], ...] = attrs.field(
        default=(), converter=_output_guardrails, kw_only=True
    )
    deps_type: type[Deps] | None = attrs.field(default=None, kw_only=True)
    handoffs: tuple[Handoff, ...] = attrs.field(default=(), converter=_handoffs, kw_only=True)
    toolsets: tuple[Toolset, ...] = attrs.field(default=(), converter=_toolsets, kw_only=True)
    spec: AgentSpec = attrs.field(init=False, repr=False)
    tool_infos: tuple[ToolInfo, ...] = attrs.field(init=False, repr=False)
    asks_each_step: bool = attrs.field(init=False, repr=False)
    output_schema: JSONObject | None = attrs.field(init=False, repr=False)
    output_words: str = attrs.field(init=False, repr=False)
    _tools_by_name: Mapping[str, Tool[..., object]] = attrs.field(init=False, repr=False)
    _output: Output[T_co] = attrs.field(init=False, repr=False)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, key: str, *, deps_type: type[Deps] | None = None, **options: Unpack[AgentOptions[str, Deps]]
        ) -> None: ...
        @overload
        def __init__(
            self,
            key: str,
            *,
            output_type: TypeForm[T_co],
            deps_type: type[Deps] | None = None,
            **options: Unpack[AgentOptions[T_co, Deps]],
        ) -> None: ...
        # With handoffs, another agent may end the run. A key alone adds no output type; a start checks that.
        @overload
        def __init__(self: Agent[str | U], key: str, **options: Unpack[HandoffOptions[str, Any, U]]) -> None: ...
        @overload
        def __init__(
            self: Agent[str | U, D], key: str, *, deps_type: type[D], **options: Unpack[HandoffOptions[str, D, U]]
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[T | U], key: str, *, output_type: TypeForm[T], **options: Unpack[HandoffOptions[T, Any, U]]
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[T | U, D],
            key: str,
            *,
            output_type: TypeForm[T],
            deps_type: type[D],
            **options: Unpack[HandoffOptions[T, D, U]],
        ) -> None: ...
        # With a JSON Schema, the output is plain data.
        @overload
        def __init__(
            self: Agent[JSONValue],
            key: str,
            *,
            output_type: JSONObject,
            handoffs: Iterable[ChildAgent | Handoff | str] = (),
            **options: Unpack[SingleOptions[JSONValue]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[JSONValue, D],
            key: str,
            *,
            output_type: JSONObject,
            deps_type: type[D],
            handoffs: Iterable[ChildAgent | Handoff | str] = (),
            **options: Unpack[SingleOptions[JSONValue, D]],
        ) -> None: ...
        def __init__(self, key: str, **options: object) -> None: ...

    else:

        def __class_getitem__(cls, parameters: object) -> object:
            """Return the class for `Agent[T]`, as for `Agent[T, Any]`, and for `Agent[T, Deps]`."""
            types = parameters if isinstance(parameters, tuple) else (parameters,)
            return super().__class_getitem__((*types, Any) if len(types) == 1 else types)

    def __attrs_post_init__(self) -> None:
        _check_parts(self)
        _check_guardrails(self)
        check_plugins(f"agent {self.key!r}", self.plugins)
        check_needed_plugins(f"agent {self.key!r}", self.tools, [*map(name_of, self.plugins)])
        _check_deps(self)
        policies = gathered(f"agent {self.key!r}", self.plugins)
        check_prices(self, policies)
        stop = self.stop
        if not any(isinstance(condition, MaxRounds) for condition in stop):
            stop = (*stop, MaxRounds())
        put = object.__setattr__  # attrs' own way to complete a frozen value
        for name in ("key", "instructions", "description", "tool_choice", *_CHOICES):
            value = getattr(self, name)
            put(self, name, exact(value) if isinstance(value, str) else value)
        put(self, "stop", stop)
        put(self, "_output", read_output_type(self.key, self.output_type))
        if isinstance(self.output_type, Mapping):
            put(self, "output_type", self._output.schema)  # a copy
        put(self, "output_schema", self._output.schema)
        put(self, "output_words", self._output.words)
        put(self, "_tools_by_name", {tool.name: tool for tool in (*self.tools, *self.handoffs, *self.builtin)})
        put(self, "tool_infos", tuple(tool.info for tool in self._tools_by_name.values()))
        put(self, "asks_each_step", bool(self.conditional or self.toolsets or not isinstance(self.instructions, str)))
        put(self, "spec", _spec(self, policies))

    def __repr__(self) -> str:
        return f"<Agent {self.key!r}: {len(self.tools)} tools>"

    def parse_output(self, value: object) -> T_co:
        """Return the output of a finished run in the agent's output type, from the stored JSON value.

        Raises:
            SchemaError: the value does not have the form.
        """
        return self._output.parse(value)

    @property
    def declared_state(self) -> tuple[StateKey[Any], ...]:
        """The state keys that the agent and its plugins declare."""
        return (*self.state, *(key for plugin in self.plugins for key in plugin.state))

    @property
    def conditional(self) -> tuple[Tool[..., object], ...]:
        """The tools that may be disabled: their `is_enabled` is asked in each step."""
        return tuple(tool for tool in (*self.tools, *self.handoffs) if tool.is_enabled is not True)

    @property
    def builtin(self) -> tuple[Tool[..., object], ...]:
        """Tools offered beside the agent's own: list_tasks and cancel_task, if the agent has background tools."""
        return built_in(self.tools)

    @property
    def children(self) -> tuple[Agent[Any], ...]:
        """The agents whose runs this agent's tools start, in the order of the tools."""
        return tuple(cast("Agent[Any]", tool.agent) for tool in self.tools if isinstance(tool, AgentTool))

    @property
    def reached(self) -> tuple[Agent[Any], ...]:
        """The agents whose runs this agent's tools start, in the order of the tools, then those of its handoffs.

        Handoffs that name a key only are left out.
        """
        if not self.handoffs:
            return self.children
        handoffs = (handoff.agent for handoff in self.handoffs if not isinstance(handoff.agent, str))
        return (*self.children, *(cast("Agent[Any]", agent) for agent in handoffs))

    @overload
    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        build_input: Callable[[str], str | Awaitable[str]] | None = None,
        extract: Callable[[Completed[T_co]], object] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> Tool[..., JSONValue]: ...
    @overload
    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: type[A],
        build_input: Callable[[A], str | Awaitable[str]],
        extract: Callable[[Completed[T_co]], object] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> Tool[..., JSONValue]: ...
    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: type | None = None,
        build_input: Callable[[Any], str | Awaitable[str]] | None = None,
        extract: Callable[[Completed[T_co]], object] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> Tool[..., JSONValue]:
        """Return this agent as a tool for other agents: each call starts a child run of this agent.

        The child run has its own thread, and the deps, principal, session, workspace and deadline of its parent
        run. Its output is the call's result. While the child run waits for decisions, the call is suspended, and the
        parent run shows each of its tickets as a separate ticket. See docs/child-runs.md.

        Args:
            name: The name of the tool; by default the agent's key, with _ for characters that no tool's name may have.
            description: for the model; default: the agent's description.
            parameters: a class (attrs, dataclasses, msgspec, pydantic, TypedDict) for the arguments; default: one
                argument, `input`, a str, which is the input of the child run.
            build_input: (object of that class, or the str) -> the input of the child run; sync or async. Called once,
                before the child run is started.
            extract: (Completed) -> the call's result, sync or async; default: the output.
            options: The options of `tool`, except replay, on_conflict, output_guardrails and background. `timeout` is
                the number of seconds in which the child run does not wait for decisions; then it is cancelled.
                `grace` bounds the wait for the end of a cancelled child run; default: the time that the agent's own
                clean-up may take.

        Raises:
            ToolDefinitionError: an option is invalid; names the fault and says what to give.
        """
        tool_options: dict[str, Any] = {"grace": _unwinding(self), **options}
        return agent_tool(
            self,
            name=name,
            description=description,
            parameters=parameters,
            build_input=build_input,
            extract=extract,
            options=tool_options,
        )

    def tool(self, name: str) -> Tool[..., object] | None:
        """Return the tool with this name, or None. It is no decorator: AgentDefinitionError for a function."""
        return self._tools_by_name.get(tool_name(f"agent {self.key!r}", name))


def _unwinding(agent: Agent[Any]) -> float:
    """Return the seconds that a cancelled run of the agent may need to end: its longest grace, its run_end hooks."""
    graces = (tool.grace for tool in agent.tools)
    hooks = (plugin.timeout or 0.0 for plugin in agent.plugins if Phase.RUN_END in hooked([plugin]))
    return max(graces, default=_GRACE) + _SLACK + max(hooks, default=0.0)


def _fault(agent: Agent[object], what: str) -> AgentDefinitionError:
    return AgentDefinitionError(f"agent {agent.key!r}: {what}")


def _check_parts(agent: Agent[object]) -> None:
    key = agent.key
    if not is_agent_key(key):
        raise AgentDefinitionError(f"agent key {key!r:.200}: {AGENT_KEYS}")
    where = f"agent {key!r}"
    if not instructs(agent.instructions):
        check_text(where, "instructions", agent.instructions, "give a str, or a function (ctx) -> str")
    check_text(where, "description", agent.description, "give a str")
    if not isinstance(agent.model, Model | str | None):
        raise _fault(agent, f'model={agent.model!r}: give a Model object, a "provider:name", or None')
    for name, choices in _CHOICES.items():
        if getattr(agent, name) not in choices and not isinstance(getattr(agent, name), ExecutionMode):
            near = did_you_mean(getattr(agent, name), choices)
            raise _fault(agent, f"{name}={getattr(agent, name)!r}: {near}use one of {', '.join(map(repr, choices))}")
    for name, least in (("output_retries", 0), ("max_bodies", 1), ("max_tasks", 1)):
        value = getattr(agent, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _fault(agent, f"{name}={value!r}: give a whole number, {least} or more")
    check_denial(where, agent.denial)
    check_settings(where, agent.settings)
    check_tools(where, agent.tools, agent.handoffs)
    check_toolsets(where, agent.toolsets)
    offers = bool(agent.toolsets)
    check_use(where, agent.tool_use, agent.tools, offers=offers)
    callable_tools = (*agent.tools, *agent.handoffs)
    check_choice(where, agent.tool_choice, agent.reset_tool_choice, callable_tools, offers=offers)
    check_stop(where, agent.stop, agent.tools, offers=offers)


def check_prices(agent: Agent[object], policies: Policies) -> None:
    """Check that a budget with a cost has a price for each model of the agent.

    Raises:
        AgentDefinitionError: a model has none.
    """
    budget, fallback = policies.budget, policies.fallback
    if budget is None or budget.cost is None:
        return
    for name in (_model_name(agent), *(() if fallback is None else fallback.models)):
        if name and budget.price(name) is None:
            raise _fault(agent, f"Budget(cost={budget.cost:g}) needs prices={{{name!r}: gr.Price(input, output)}}")


def _check_guardrails(agent: Agent[object]) -> None:
    for option, kind in (("input_guardrails", InputGuardrail), ("output_guardrails", OutputGuardrail)):
        guardrails = getattr(agent, option)
        wrong = check_guardrails(guardrails, kind)
        if wrong is not None:
            raise _fault(agent, f"{option}={guardrails!r}: {wrong}")


def _check_deps(agent: Agent[object]) -> None:
    if agent.deps_type is None:
        return
    guardrails = (*agent.input_guardrails, *agent.output_guardrails)
    wrong = misfit(agent.deps_type, agent.instructions, (*agent.tools, *agent.handoffs), agent.plugins, guardrails)
    if wrong is not None:
        name = getattr(agent.deps_type, "__qualname__", repr(agent.deps_type))
        raise _fault(agent, f"deps_type={name}: {wrong}")


def _spec(agent: Agent[object], policies: Policies) -> AgentSpec:
    return AgentSpec(
        key=agent.key,
        digest=content_digest(_essence(agent, policies)),
        tools={
            **{
                tool.name: attrs.evolve(tool.spec, definition=definition_mark(tool))
                for tool in (*agent.tools, *agent.handoffs)
            },
            **{tool.name: attrs.evolve(tool.spec, output=False) for tool in agent.builtin},
        },
        execution=agent.execution,
        stop=agent.stop,
        tool_use=agent.tool_use,
        on_deny=agent.on_deny,
        denial=agent.denial,
        on_new_input=agent.on_new_input,
        on_unknown_tool=agent.on_unknown_tool,
        output_retries=agent.output_retries,
        check_output=agent._output.check,
        max_bodies=agent.max_bodies,
        hooked=hooked(agent.plugins) | ({Phase.BEFORE_INFERENCE} if agent.asks_each_step else set()),
        tool_choice=agent.tool_choice,
        reset_tool_choice=agent.reset_tool_choice,
        keys=_declared(agent),
        max_tasks=agent.max_tasks,
        policies=policies,
        model=_model_name(agent),
        structured=agent.output_schema is not None,
        instructed=not isinstance(agent.instructions, str),
        input_guardrails=tuple(one.name for one in agent.input_guardrails if not one.blocking),
        blocking_guardrails=tuple(one.name for one in agent.input_guardrails if one.blocking),
        output_guardrails=tuple(one.name for one in agent.output_guardrails),
        handoffs=bool(agent.handoffs),
    )


def _model_name(agent: Agent[object]) -> str:
    return agent.model.name if isinstance(agent.model, Model) else agent.model or ""


def _declared(agent: Agent[object]) -> Keys:
    if not isinstance(agent.state, tuple):
        raise _fault(agent, f"state={agent.state!r}: give a list of state keys")
    keys = agent.declared_state
    try:
        return declared(keys, f"agent {agent.key!r}")
    except StateError as error:
        raise AgentDefinitionError(str(error)) from error


def _essence(agent: Agent[object], policies: Policies) -> Any:
    """Return everything that can change a run, as plain data. Equal data means equal behaviour, code aside."""
    use = agent.tool_use
    more = [[name_of(plugin), sorted(hooked([plugin]))] for plugin in agent.plugins if not _is_data(plugin)]
    policy_essence = essence(policies)
    guards = [[one.name, one.blocking] for one in agent.input_guardrails], [one.name for one in agent.output_guardrails]
    return (
        ({"plugins": more} if more else {})
        | ({"policies": policy_essence} if policy_essence else {})
        | ({} if agent.tool_choice == "auto" else {"tool_choice": [agent.tool_choice, agent.reset_tool_choice]})
        | ({"guardrails": guards} if any(guards) else {})
        | ({"toolsets": [toolset.name for toolset in agent.toolsets]} if agent.toolsets else {})
        | (
            {"handoffs": [[one.key, *tool_essence(one), one.input_filter is not None] for one in agent.handoffs]}
            if agent.handoffs
            else {}
        )
        | {
            "key": agent.key,
            "instructions": agent.instructions if isinstance(agent.instructions, str) else ["function"],
            "model": _model_name(agent) or None,
            "settings": agent.settings,
            "tools": [tool_essence(tool) for tool in agent.tools],
            "stop": [[type(condition).__name__, attrs.asdict(condition)] for condition in agent.stop],
            "output": agent.output_schema,
            "tool_use": sorted(use) if isinstance(use, frozenset) else "function" if callable(use) else use,
            "options": [execution_data(agent.execution), agent.on_deny, agent.on_new_input, agent.on_unknown_tool],
            "limits": [
                agent.output_retries,
                agent.max_bodies,
                *([] if agent.max_tasks == _TASKS else [agent.max_tasks]),
            ],
        }
    )


def _is_data(plugin: Plugin) -> bool:
    """Return True if only the plugin's policy matters."""
    return isinstance(plugin, PolicyPlugin) and not hooked([plugin])
