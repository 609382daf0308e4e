"""The options of `Agent`, as type checkers see them; their meaning is documented there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, Required, TypedDict

from ..abc import Model
from ..contract.decisions import Decision, Ticket
from ..contract.facts import CallFacts, FinalOutput
from ..contract.plain import JSONObject
from ..contract.spec import Execution
from ..contract.stop import StopCondition
from ..plugins.contexts import PhaseContext
from ..plugins.guardrails import InputGuardrail, OutputGuardrail
from ..plugins.plugin import Plugin
from ..state.keys import StateKey
from ..tools.agent_tool import ChildAgent
from ..tools.definition import Tool
from ..tools.toolset import Toolset
from .handoff import Handoff

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=str)
    Deps = TypeVar("Deps", default=Any)
    U = TypeVar("U", default=object)  # mypy infers no type of a list of agents and keys
else:
    from typing import TypeVar

    T = TypeVar("T")
    Deps = TypeVar("Deps")
    U = TypeVar("U")

Instructs = Callable[[PhaseContext[Deps]], str | Awaitable[str]]
"""(the context of a step's before_inference hooks) -> the system text of the step; sync or async."""
Chooses = Callable[[tuple[CallFacts, ...]], FinalOutput | None]
"""(the results of a step, in the model's order) -> the output of the run, or None; pure."""
ToolUse = Literal["run_model_again", "stop_on_first_tool"] | frozenset[str] | Chooses


class SingleOptions(TypedDict, Generic[T, Deps], total=False):
    """The keyword arguments of `Agent`, without `output_type`, `deps_type` and `handoffs`."""

    instructions: str | Instructs[Deps]
    tools: Iterable[Tool[..., object]]
    toolsets: Iterable[Toolset]
    model: Model | str | None
    execution: Execution
    stop: Iterable[StopCondition]
    output_retries: int
    tool_choice: str
    reset_tool_choice: bool
    tool_use: ToolUse
    on_deny: Literal["continue", "cancel_run"]
    denial: Callable[[Ticket, Decision], str] | None
    on_new_input: Literal["queue", "supersede"]
    on_unknown_tool: Literal["return", "raise"]
    settings: JSONObject
    max_bodies: int
    max_tasks: int
    description: str
    plugins: Iterable[Plugin]
    state: Iterable[StateKey[Any]]
    input_guardrails: Iterable[InputGuardrail[Deps, Any]]
    output_guardrails: Iterable[OutputGuardrail[Deps, T, Any]]


class AgentOptions(SingleOptions[T, Deps], Generic[T, Deps], total=False):
    """The keyword arguments of an `Agent` whose runs end with its own output type."""

    handoffs: Iterable[str]


class HandoffOptions(SingleOptions[T, Deps], Generic[T, Deps, U]):
    """The keyword arguments of an `Agent` with handoffs to agents with outputs of the type U."""

    handoffs: Required[Iterable[ChildAgent[U] | Handoff[U] | str]]
