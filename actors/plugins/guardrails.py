"""Guardrails: functions that judge input, output, and the arguments and results of tools.

A guardrail is made by one of four decorators, and given to an agent or a tool:

    @gr.input_guardrail
    async def on_topic(ctx: gr.PhaseContext, text: str) -> gr.Trip | None: ...

    gr.Agent("desk", input_guardrails=[on_topic])

Every fault is reported at the definition. Guardrails run at least once: again after a crash. An effect on the world
belongs in a tool.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

import attrs

from ..contract.decisions import Allow, Reject, Trip
from ..contract.guardrails import GuardrailKind
from ..contract.plain import JSONValue, exact
from ..errors import AgentDefinitionError
from .contexts import GateContext, PhaseContext

LIMIT: Final = 30.0
"""Seconds for a guardrail without a timeout, equal to the default of a plugin's hook."""
_LONGEST_NAME: Final = 128
"""Characters; the row of a run holds the names of guardrails that are asked."""
_LONGEST: Final = 86_400.0
"""Seconds; a longer timeout is a mistake."""

Tripping = Allow | Trip | None
"""The verdict of a guardrail of an agent."""
Rejecting = Allow | Trip | Reject | None
"""The verdict of a guardrail of a tool."""

D_contra = TypeVar("D_contra", contravariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
TripR_co = TypeVar("TripR_co", bound=Tripping | Awaitable[Tripping], covariant=True)
RejectR_co = TypeVar("RejectR_co", bound=Rejecting | Awaitable[Rejecting], covariant=True)


@attrs.frozen(eq=False, kw_only=True)
class Guardrail:
    """A function that judges; made by one of the four decorators.

    Attributes:
        kind: what it judges: input, output, tool_input or tool_output.
        name: unique among the guardrails of one kind of an agent or a tool; in events and failures.
        timeout: seconds for one judgement.
    """

    kind: ClassVar[GuardrailKind]
    function: Callable[..., Any]
    name: str
    timeout: float = LIMIT

    def __repr__(self) -> str:
        return f"<Guardrail {self.name!r} ({self.kind})>"

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, for `inspect.signature` and `help`."""
        return self.function


@attrs.frozen(eq=False, kw_only=True, repr=False)
class InputGuardrail(Guardrail, Generic[D_contra, TripR_co]):
    """Judges the input of a run, and each text that is sent to it. Made by `input_guardrail`.

    Attributes:
        blocking: asked before the first model request of the step, which waits; otherwise beside the request.
    """

    kind: ClassVar[GuardrailKind] = "input"
    blocking: bool = False

    def __call__(self, ctx: PhaseContext[D_contra], text: str, /) -> TripR_co:
        """Call the function itself."""
        answer: TripR_co = self.function(ctx, text)
        return answer


@attrs.frozen(eq=False, kw_only=True, repr=False)
class OutputGuardrail(Guardrail, Generic[D_contra, T_contra, TripR_co]):
    """Judges a final answer. Made by `output_guardrail`."""

    kind: ClassVar[GuardrailKind] = "output"

    def __call__(self, ctx: PhaseContext[D_contra], output: T_contra, /) -> TripR_co:
        """Call the function itself."""
        answer: TripR_co = self.function(ctx, output)
        return answer


@attrs.frozen(eq=False, kw_only=True, repr=False)
class ToolInputGuardrail(Guardrail, Generic[D_contra, RejectR_co]):
    """Judges the arguments of a call before every other gate. Made by `tool_input_guardrail`."""

    kind: ClassVar[GuardrailKind] = "tool_input"

    def __call__(self, ctx: GateContext[D_contra], arguments: Mapping[str, JSONValue], /) -> RejectR_co:
        """Call the function itself."""
        answer: RejectR_co = self.function(ctx, arguments)
        return answer


@attrs.frozen(eq=False, kw_only=True, repr=False)
class ToolOutputGuardrail(Guardrail, Generic[D_contra, RejectR_co]):
    """Judges the result of a body before it is stored. Made by `tool_output_guardrail`."""

    kind: ClassVar[GuardrailKind] = "tool_output"

    def __call__(self, ctx: PhaseContext[D_contra], result: Any, /) -> RejectR_co:
        """Call the function itself."""
        answer: RejectR_co = self.function(ctx, result)
        return answer


@overload
def input_guardrail(
    function: Callable[[PhaseContext[D_contra], str], TripR_co], /
) -> InputGuardrail[D_contra, TripR_co]: ...
@overload
def input_guardrail(
    *, name: str | None = None, blocking: bool = False, timeout: float = LIMIT
) -> Callable[[Callable[[PhaseContext[D_contra], str], TripR_co]], InputGuardrail[D_contra, TripR_co]]: ...
def input_guardrail(
    function: Any = None, /, *, name: str | None = None, blocking: bool = False, timeout: float = LIMIT
) -> Any:
    """Make a function `(ctx, text)` a guardrail of `Agent(input_guardrails=...)`.

    Args:
        function: sync or async; returns None or `Allow()`, or `Trip(info)`, which ends the run. A sync function runs in
            the event loop and must be quick.
        name: default: the function's.
        blocking: the model is not asked before the guardrail has passed; otherwise both run concurrently.
        timeout: seconds for one judgement.

    Raises:
        AgentDefinitionError: the function cannot be a guardrail, or an option is invalid; names it.
    """
    if not isinstance(blocking, bool):
        raise AgentDefinitionError(f"input_guardrail(blocking={blocking!r}): use True or False")
    return _decorated(InputGuardrail, function, name, timeout, blocking=blocking)


@overload
def output_guardrail(
    function: Callable[[PhaseContext[D_contra], T_contra], TripR_co], /
) -> OutputGuardrail[D_contra, T_contra, TripR_co]: ...
@overload
def output_guardrail(
    *, name: str | None = None, timeout: float = LIMIT
) -> Callable[
    [Callable[[PhaseContext[D_contra], T_contra], TripR_co]], OutputGuardrail[D_contra, T_contra, TripR_co]
]: ...
def output_guardrail(function: Any = None, /, *, name: str | None = None, timeout: float = LIMIT) -> Any:
    """Make a function `(ctx, output)` a guardrail of `Agent(output_guardrails=...)`.

    `output` is the final answer in the agent's output type. Arguments, verdicts and errors: see `input_guardrail`.
    """
    return _decorated(OutputGuardrail, function, name, timeout)


@overload
def tool_input_guardrail(
    function: Callable[[GateContext[D_contra], Mapping[str, JSONValue]], RejectR_co], /
) -> ToolInputGuardrail[D_contra, RejectR_co]: ...
@overload
def tool_input_guardrail(
    *, name: str | None = None, timeout: float = LIMIT
) -> Callable[
    [Callable[[GateContext[D_contra], Mapping[str, JSONValue]], RejectR_co]], ToolInputGuardrail[D_contra, RejectR_co]
]: ...
def tool_input_guardrail(function: Any = None, /, *, name: str | None = None, timeout: float = LIMIT) -> Any:
    """Make a function `(ctx, arguments)` a guardrail of `tool(input_guardrails=...)`.

    `arguments` are as the body gets them, defaults filled in. `Reject(text)` fails the call with the text for the
    model, `Trip(info)` ends the run. Other arguments and errors: see `input_guardrail`.
    """
    return _decorated(ToolInputGuardrail, function, name, timeout)


@overload
def tool_output_guardrail(
    function: Callable[[PhaseContext[D_contra], Any], RejectR_co], /
) -> ToolOutputGuardrail[D_contra, RejectR_co]: ...
@overload
def tool_output_guardrail(
    *, name: str | None = None, timeout: float = LIMIT
) -> Callable[[Callable[[PhaseContext[D_contra], Any], RejectR_co]], ToolOutputGuardrail[D_contra, RejectR_co]]: ...
def tool_output_guardrail(function: Any = None, /, *, name: str | None = None, timeout: float = LIMIT) -> Any:
    """Make a function `(ctx, result)` a guardrail of `tool(output_guardrails=...)`.

    `result` is the result of the body as JSON data, before it is stored. `Reject(text)` makes the text the result,
    `Trip(info)` ends the run. Other arguments and errors: see `input_guardrail`.
    """
    return _decorated(ToolOutputGuardrail, function, name, timeout)


def _decorated(cls: type[Guardrail], function: Any, name: object, timeout: object, **more: Any) -> Any:
    if function is None:
        return lambda body: _define(cls, body, name, timeout, more)
    return _define(cls, function, name, timeout, more)


def _define(cls: Any, function: Any, explicit: object, timeout: object, more: Mapping[str, Any]) -> Guardrail:
    decorator = f"{cls.kind}_guardrail"
    if isinstance(function, Guardrail):
        raise AgentDefinitionError(f"{function!r} is a guardrail already; decorate it once")
    if isinstance(function, str):
        raise AgentDefinitionError(f"{decorator}({function!r}): give the name as @{decorator}(name={function!r})")
    kinds = (inspect.isfunction, inspect.ismethod, lambda one: isinstance(one, functools.partial))
    if not any(is_kind(function) for is_kind in kinds):
        raise AgentDefinitionError(f"{decorator}: {function!r} is not a function; write one with def and decorate it")
    name = getattr(function, "__name__", None) if explicit is None else explicit
    if not isinstance(name, str) or not name.isprintable() or not name.strip() or name == "<lambda>":
        raise AgentDefinitionError(f"{decorator}: name={name!r:.200}: give a name of printable characters with name=")
    if len(name) > _LONGEST_NAME:
        way = f"give one of at most {_LONGEST_NAME} characters with name="
        raise AgentDefinitionError(f"{decorator}: name={name!r:.200} has {len(name):,} characters; {way}")
    where = f"guardrail {name!r} ({cls.kind})"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AgentDefinitionError(f"{where} is a generator function; return one verdict")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        way = "take the context and what is judged, as (ctx, text)"
        raise AgentDefinitionError(f"{where}: it must {way} ({error})") from error
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not (number and 0 < timeout <= _LONGEST):  # type: ignore[operator]  # a number by now; also false for NaN
        raise AgentDefinitionError(f"{where}: timeout={timeout!r}: give seconds, above 0 and at most {_LONGEST:,.0f}")
    made_one: Guardrail = cls(function=function, name=exact(name), timeout=float(timeout), **more)  # type: ignore[arg-type]
    return made_one


def check_guardrails(guardrails: object, kind: type[Guardrail]) -> str | None:
    """Return what is wrong with a list of guardrails for one place, or None."""
    decorator = f"@gr.{kind.kind}_guardrail"
    if not isinstance(guardrails, tuple):
        return f"give a list of functions decorated with {decorator}"
    names: set[str] = set()
    for guardrail in guardrails:
        if not isinstance(guardrail, kind):
            return f"{guardrail!r} is none; decorate a function with {decorator}"
        if guardrail.name in names:
            return f"two guardrails are named {guardrail.name!r}; give one another name="
        names.add(guardrail.name)
    return None


def shortest(guardrails: Iterable[Guardrail]) -> float:
    """Return the shortest time limit in seconds; infinity without guardrails."""
    return min((guardrail.timeout for guardrail in guardrails), default=math.inf)
