"""`Handoff`: a tool with which the model of one agent hands the run over to another. Made by `handoff`.

Theory of operation. The engine and the runtime treat a call of a handoff like any other call, except that its turn
comes after all other calls of the step, and that the next step belongs to the other agent. Here is only the definition:
the name for the model, the input that the model gives, the callback, and the filter of what the next agent reads.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, cast, overload

import attrs
from typing_extensions import override

from ..contract.ids import AGENT_KEYS, is_agent_key
from ..contract.messages import Message
from ..contract.plain import exact
from ..contract.spec import HANDOFF, AgentSpec, ToolSpec
from ..errors import AgentDefinitionError, ToolDefinitionError
from ..tools.agent_tool import ChildAgent, object_arguments
from ..tools.context import SyncToolContext, ToolContext
from ..tools.definition import Enabled, Predicate, Tool, tool
from ..tools.named_deps import named_deps

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Never)  # a key alone leads to no other output type: a start checks that
    T_co = TypeVar("T_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

Given = TypeVar("Given")
Filter = Callable[[tuple[Message, ...]], Iterable[Message] | Awaitable[Iterable[Message]]]
"""(the thread up to the message with the handoff's call) -> what the next agent reads instead; sync or async."""
_NAME_LIMIT: Final = 64


@attrs.frozen(eq=False, kw_only=True)
class Handoff(Tool[..., Any], Generic[T_co]):
    """A handoff to an agent; see `handoff`. It is a `Tool` for the model, and goes into `Agent(handoffs=[...])`.

    `Handoff[T]` names the output type of the other agent, for type checkers; of an agent that is named by key T is
    `output_type`, or Never.

    Attributes:
        agent: the other agent, or its key.
        output_type: The output type that is named beside a key; None: none.
        on_handoff: the callback; None: none.
        input_filter: makes what the next agent reads; None: the thread.
        takes_input: the callback gets the input as its second argument.
    """

    agent: ChildAgent[T_co] | str
    output_type: object = None
    on_handoff: Callable[..., object] | None = None
    input_filter: Filter | None = None
    takes_input: bool = False

    def __repr__(self) -> str:
        return f"<Handoff {self.name!r} to {self.key!r}>"

    @property
    def key(self) -> str:
        """Key of the other agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.key

    @property
    @override
    def spec(self) -> ToolSpec:
        bodiless = self.on_handoff is None and self.input_filter is None
        return attrs.evolve(super().spec, handoff=self.key, bodiless=bodiless, output=False)

    @override
    def call(self, ctx: ToolContext | SyncToolContext, keywords: Mapping[str, Any]) -> Any:
        """Call the callback; returns the coroutine of an async one."""
        if self.on_handoff is None:
            return _no_callback()
        return self.on_handoff(ctx, keywords["input"]) if self.takes_input else self.on_handoff(ctx)


async def _no_callback() -> None:
    """Do nothing, in place of a callback."""


@overload
def handoff(
    agent: ChildAgent[T] | str,
    *,
    output_type: type[T] | None = None,
    tool_name: str | None = None,
    tool_description: str | None = None,
    on_handoff: Callable[[Any], object] | None = None,
    input_type: None = None,
    input_filter: Filter | None = None,
    is_enabled: bool | Enabled = True,
    needs_approval: bool | Predicate = False,
    on_error: Literal["return", "raise"] = "return",
) -> Handoff[T]: ...
@overload
def handoff(
    agent: ChildAgent[T] | str,
    *,
    output_type: type[T] | None = None,
    tool_name: str | None = None,
    tool_description: str | None = None,
    on_handoff: Callable[[Any, Given], object],
    input_type: type[Given],
    input_filter: Filter | None = None,
    is_enabled: bool | Enabled = True,
    needs_approval: bool | Predicate = False,
    on_error: Literal["return", "raise"] = "return",
) -> Handoff[T]: ...
def handoff(
    agent: ChildAgent | str,
    *,
    output_type: object = None,
    tool_name: str | None = None,
    tool_description: str | None = None,
    on_handoff: Callable[..., object] | None = None,
    input_type: type[Any] | None = None,
    input_filter: Filter | None = None,
    is_enabled: bool | Enabled = True,
    needs_approval: bool | Predicate = False,
    on_error: Literal["return", "raise"] = "return",
) -> Handoff:
    """Return a handoff for `Agent(handoffs=[...])`: the model's call of it gives the next step to another agent.

    The model is offered a tool. A call of it has gates, approvals, a row and events like every call, and starts when
    all other calls of its step have settled; of several handoffs in one answer the first that was not refused is
    carried out. See docs/handoffs.md.

    Args:
        agent: the other agent, or its key, which the runtime must know when a run is started.
        output_type: for a key: the output type of that agent, and of agents to which it hands over; object for any. It
            joins the output type of the agent that has the handoff. A start refuses agents whose runs may end with
            another type than their own says.
        tool_name: for the model; default: `transfer_to_` and the agent's key, with _ for characters that a tool's name
            may not have.
        tool_description: for the model; default: a sentence with the key, and the agent's description.
        on_handoff: called before the run is handed over, as (ctx) or, with `input_type`, as (ctx, input); sync (in a
            worker thread, with a `SyncToolContext`) or async (with a `ToolContext`). Its result is ignored, its writes
            to state are kept. If it raises, the call has failed and nothing is handed over. It is not called again
            after a crash in it: a person is asked (outcome_unknown). A handoff without callback is replay-safe.
        input_type: a class (attrs, dataclasses, msgspec, pydantic, TypedDict) for what the model gives with the call.
        input_filter: called once, after the callback, with the thread up to the message with the call; returns what the
            next agent reads instead. The thread itself stays. Sync (in the event loop, must be quick) or async. If it
            raises or returns anything but messages, the call has failed.
        is_enabled: as of `tool`.
        needs_approval: as of `tool`.
        on_error: "return" (default) answers the model with a failure of callback or filter; "raise" ends the run.

    Raises:
        AgentDefinitionError: an argument is invalid; names the fault and says what to give.
    """
    key = agent if isinstance(agent, str) else getattr(agent, "key", None)
    if not isinstance(key, str) or not (isinstance(agent, str) or isinstance(getattr(agent, "spec", None), AgentSpec)):
        raise AgentDefinitionError(f"handoff({agent!r:.200}): give an Agent, or the key of one")
    if not is_agent_key(key):
        raise AgentDefinitionError(f"handoff({key!r:.200}): no agent has such a key: {AGENT_KEYS}")
    where = f"handoff to {key!r}"
    for option, value, count in (
        ("on_handoff", on_handoff, 1 + (input_type is not None)),
        ("input_filter", input_filter, 1),
    ):
        if value is not None and not _takes(value, count):
            form = {"on_handoff": ("(ctx)", "(ctx, input)")[count - 1], "input_filter": "(messages) -> messages"}[
                option
            ]
            raise AgentDefinitionError(f"{where}: {option}={value!r:.200}: give a function, {form}, or None")
    _check_types(where, agent, output_type, input_type, on_handoff)
    name = f"transfer_to_{re.sub(r'[^a-zA-Z0-9_-]', '_', key)}" if tool_name is None else tool_name
    if isinstance(name, str) and len(name) > _NAME_LIMIT:
        way = f"has more than {_NAME_LIMIT} characters; give a shorter one as tool_name="
        raise AgentDefinitionError(f"{where}: the tool name {name!r:.100} {way}")
    description = _described(agent, key) if tool_description is None else tool_description
    try:
        plain = tool(
            _stand_in,
            name=name,
            description=description,
            needs_approval=needs_approval,
            is_enabled=is_enabled,
            on_error=on_error,
            replay="safe" if on_handoff is None else "unsafe",
        )
        fields: dict[str, Any] = {str(field.alias): getattr(plain, field.name) for field in attrs.fields(Tool)}
        if input_type is not None:
            fields["arguments"] = object_arguments(plain.name, "input_type", input_type)
    except ToolDefinitionError as error:
        raise AgentDefinitionError(f"{where}: {error}") from error
    if on_handoff is not None:
        fields["function"], fields["deps_type"] = on_handoff, named_deps(on_handoff, sys._getframe(1).f_locals)
        fields["is_async"] = any(map(inspect.iscoroutinefunction, (on_handoff, inspect.unwrap(on_handoff))))
    return Handoff(
        **{**fields, "effect": HANDOFF},
        agent=exact(agent) if isinstance(agent, str) else agent,
        output_type=output_type,
        on_handoff=on_handoff,
        input_filter=input_filter,
        takes_input=input_type is not None,
    )


def _described(agent: ChildAgent | str, key: str) -> str:
    about = "" if isinstance(agent, str) else agent.description
    return " ".join(filter(None, (f"Hand the conversation over to the agent {key!r}.", about)))


def _check_types(where: str, agent: object, output_type: object, input_type: object, on_handoff: object) -> None:
    if output_type is not None and not isinstance(agent, str):
        raise AgentDefinitionError(f"{where}: output_type= is for a key; an agent has its own; omit the option")
    if input_type is not None and on_handoff is None:
        raise AgentDefinitionError(f"{where}: input_type= is for a callback; give on_handoff=, (ctx, input)")


async def _stand_in() -> None:
    """Stand for the callback where a tool has its body."""


def _takes(function: object, count: int) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: accepted
        pass
    return True


def handoff_of(value: Any) -> Handoff:
    """Return the handoff that an item of `Agent(handoffs=[...])` means; an invalid item is returned unchanged.

    Raises:
        AgentDefinitionError: the name made from the key is no name of a tool.
    """
    if isinstance(value, str) or isinstance(getattr(value, "spec", None), AgentSpec):
        return handoff(value)
    return cast("Handoff", value)  # the check of the agent names any other value


def fault_of(handoffs: object, names: set[str]) -> str | None:
    """Return what is wrong with the handoffs of an agent; None if nothing is.

    Args:
        handoffs: as the agent has them.
        names: The names of the tools; those of the handoffs are added.
    """
    if not isinstance(handoffs, tuple) or not all(isinstance(handoff, Handoff) for handoff in handoffs):
        return f"handoffs={handoffs!r:.200}: give a list of agents, keys, or gr.handoff(...)"
    for handoff in handoffs:
        if handoff.name in names:
            way = "give another name: gr.handoff(..., tool_name=...)"
            return f"the handoff to {handoff.key!r} and another tool are named {handoff.name!r}; {way}"
        names.add(handoff.name)
    return None
