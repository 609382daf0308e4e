"""`AgentTool`: a tool whose work is a run of another agent. Made by `Agent.as_tool`.

Theory of operation. The engine and the runtime treat a call of such a tool like any other call, except that no body
runs: a child run of the agent does the work, and its output is the call's result. Here is only the definition: how the
model's arguments become the input of the child run (`build_input`), and its outcome the result (`extract`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypedDict, cast

import attrs
import msgspec
from typing_extensions import override

from greenroom.supervision.border import Raised, capture

from ..contract.codec import message_of
from ..contract.outcomes import Completed
from ..contract.plain import JSONObject, JSONValue
from ..contract.spec import AgentSpec, Concurrency, ToolSpec
from ..contract.user_types.choice import chosen_reader, rooted
from ..contract.user_types.constraints import TypeFault
from ..errors import ToolDefinitionError, UsageError
from ..plugins.guardrails import ToolInputGuardrail
from ..state.values import copied
from .arguments import Arguments, ArgumentsError
from .definition import Enabled, Predicate, Tool, tool
from .named_deps import ANY

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

_FIXED: Final[Mapping[str, str]] = {
    "replay": "a call finds its child run again after a restart",
    "on_conflict": "a child run has a state of its own",
    "output_guardrails": "no body returns a result; the function `extract` can judge it",
    "background": "a background task cannot wait for decisions; the child run is a run of its own already",
    "prepare": "the child run prepares itself, with the tools of its agent",
    "loop": "no body runs; the tools of the agent have loops of their own",
}
"""Options of a tool that an agent's tool does not have, and why."""
_NAME_LIMIT: Final = 64


class AgentToolOptions(TypedDict, total=False):
    """The options of `Agent.as_tool` that are those of `tool`, documented there."""

    needs_approval: bool | Predicate
    effect: str
    concurrency: Concurrency
    timeout: float | None
    on_error: Literal["return", "raise"]
    on_timeout: Literal["return", "raise"] | None
    grace: float
    is_enabled: bool | Enabled
    input_guardrails: Sequence[ToolInputGuardrail[Any, Any]]


class ChildAgent(Protocol[T_co]):
    """An agent, as its tool sees it."""

    @property
    def key(self) -> str:
        """Names the agent."""

    @property
    def description(self) -> str:
        """For people and for other agents."""

    @property
    def deps_type(self) -> object:
        """The class of its dependencies, which are those of the parent run; None if the agent names none."""

    @property
    def output_type(self) -> object:
        """The type of its final answer, or a JSON Schema."""

    @property
    def spec(self) -> AgentSpec:
        """The agent as the engine sees it."""

    def parse_output(self, value: object) -> T_co:
        """Return the output of a finished run in the agent's output type."""


@attrs.frozen(eq=False, kw_only=True)
class AgentTool(Tool[..., Any]):
    """An agent as a tool: a call starts a child run of the agent.

    Attributes:
        agent: does the work.
        build_input: arguments, converted to the parameters' type -> the input of the child run.
        extract: outcome of the child run -> the call's result; None: its output.
    """

    agent: ChildAgent
    build_input: Callable[[Any], object]
    extract: Callable[[Completed[Any]], object] | None = None

    def __repr__(self) -> str:
        return f"<AgentTool {self.name!r} of {self.agent.key!r}>"

    @property
    @override
    def spec(self) -> ToolSpec:
        return attrs.evolve(super().spec, child_agent=self.agent.key)

    async def input_for(self, arguments: JSONObject) -> str:
        """Return the input of the child run; `build_input` may be async.

        Raises:
            ArgumentsError: the arguments do not fit; the message names the path.
            BaseException: raised by `build_input`.
        """
        text = self.build_input(self.convert(arguments)["input"])
        return cast("str", await text if inspect.isawaitable(text) else text)  # a start refuses other types

    async def result_of(self, outcome: Completed[object]) -> object:
        """Return the call's result; `extract` may be async.

        Raises:
            BaseException: raised by `extract`.
        """
        if self.extract is None:
            return outcome.output
        value = self.extract(outcome)
        return await value if inspect.isawaitable(value) else value


@attrs.frozen(eq=False, kw_only=True)
class _ObjectArguments(Arguments):
    """Arguments that are one object of a class of the author's, converted as the argument `input`."""

    _read: Callable[[Any], object]

    @override
    def _keywords(self, arguments: JSONObject) -> dict[str, JSONValue]:
        result = capture(self._read, copied(arguments))
        if isinstance(result, Raised):  # validation in user classes may raise anything
            raise ArgumentsError(f"Invalid arguments: {message_of(result.error)}.") from result.error
        return {"input": result.value}


def object_arguments(name: str, option: str, kind: Any) -> Arguments:
    """Return the arguments that a class describes: one object, converted as the argument `input`.

    Args:
        name: The name of the tool.
        option: the caller's name of the class.
        kind: the class.

    Raises:
        ToolDefinitionError: the class has no JSON form, or its form is not an object.
    """
    try:
        reader = chosen_reader(kind)
    except TypeFault as error:
        raise ToolDefinitionError(f"tool {name!r}, option {option}: {error}") from error
    schema = rooted(msgspec.json.schema(kind) if reader is None else reader.schema)
    if schema.get("type") != "object" or "properties" not in schema:
        way = "give a class of attrs, dataclasses, msgspec, pydantic or TypedDict"
        what = "its JSON form is not an object with named properties"
        raise ToolDefinitionError(f"tool {name!r}, option {option}={kind!r}: {what}; {way}")
    schema.pop("title", None)
    read = partial(msgspec.convert, type=kind) if reader is None else reader.read
    return _ObjectArguments(schema=schema, context=None, struct=msgspec.Struct, defaults={}, read=read)


async def _work(input: str) -> str:  # noqa: A002 - the name of the argument that models see
    """Stand for the child run where a tool has its body."""
    raise UsageError(f"an agent's tool works only inside a run; start a run of the agent with the input {input!r:.100}")


def _same(text: str) -> str:
    return text


def agent_tool(
    agent: ChildAgent,
    *,
    name: str | None,
    description: str | None,
    parameters: Any,
    build_input: Callable[[Any], object] | None,
    extract: Callable[[Completed[Any]], object] | None,
    options: Mapping[str, Any],
) -> AgentTool:
    """Return an agent as a tool; see `Agent.as_tool`.

    Raises:
        ToolDefinitionError: an option is invalid; names the fault and says what to give.
    """
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", agent.key)[:_NAME_LIMIT] if name is None else name
    for option, why in _FIXED.items():
        if option in options:
            raise ToolDefinitionError(f"tool {name!r}, option {option}: {why}; omit the option")
    for option, function in (("build_input", build_input), ("extract", extract)):
        if function is not None and not callable(function):
            raise ToolDefinitionError(f"tool {name!r}, option {option}={function!r:.100}: give a function, or None")
    if parameters is not None and build_input is None:
        way = "give build_input=, a function (parameters) -> str"
        raise ToolDefinitionError(f"tool {name!r}: parameters= needs to become the text that the agent reads; {way}")
    text = agent.description or f"Ask the agent {agent.key!r}."
    plain = tool(_work, name=name, description=text if description is None else description, replay="safe", **options)
    fields: dict[str, Any] = {str(field.alias): getattr(plain, field.name) for field in attrs.fields(Tool)}
    if parameters is not None:
        fields["arguments"] = object_arguments(plain.name, "parameters", parameters)
    fields["deps_type"] = ANY if agent.deps_type is None else agent.deps_type
    return AgentTool(**fields, agent=agent, build_input=build_input or _same, extract=extract)


def tool_essence(tool: Tool[..., object]) -> Any:
    """Return everything of a tool that can change a run, as plain data for its agent's digest; code aside."""
    options = [tool.gate, tool.replay, tool.effect, tool.concurrency, tool.on_error]
    options.append("raise" if tool.ends_on_timeout else "return")
    times = [float(tool.grace), None if tool.timeout is None else float(tool.timeout)]
    if tool.on_conflict != "keep":
        options.append(tool.on_conflict)
    essence = [tool.name, tool.description, tool.schema, options, times]
    if isinstance(tool, AgentTool):
        essence += ["agent", tool.agent.spec.digest]
    # added only if set, so that digests of other tools stay stable
    more = [["guardrail", one.kind, one.name] for one in (*tool.input_guardrails, *tool.output_guardrails)]
    conditional = [] if tool.is_enabled is True else ["is_enabled"]
    prepares = [] if tool.prepare is None else ["prepare"]
    loop = [] if tool.loop == "trio" else [tool.loop]
    return [*essence, *(["background"] if tool.background else []), *more, *conditional, *prepares, *loop]
