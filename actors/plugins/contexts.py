"""The contexts of hooks. Frozen: a hook requests changes with a `Mutation`, or returns a verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

import attrs

from ..abc import Model
from ..contract.decisions import Decision
from ..contract.facts import CallFacts
from ..contract.lifecycle import Termination
from ..contract.messages import Message, ModelResponse, Usage
from ..contract.phases import Phase
from ..contract.plain import JSONObject
from ..errors import ModelError
from ..state.access import State, check_state
from ..stored_values import StoredValue

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps_co = TypeVar("Deps_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    Deps_co = TypeVar("Deps_co", covariant=True)


async def _no_model(_: Model | str | None, __: tuple[Message, ...]) -> ModelResponse:
    raise ModelError("this context asks no model; give it answer_request=", kind="model_not_found")


def _nothing() -> tuple[Message, ...]:
    return ()


async def _no_values(_: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
    return ()


@attrs.frozen(kw_only=True)
class PhaseContext(Generic[Deps_co]):
    """The argument of a hook. Everything is as of the beginning of the phase.

    Attributes:
        phase: the phase.
        run_id, thread_id, agent, by, step: the place: `agent` is its key, `by` the principal that started the run.
        deps: the dependencies of the run.
        state: the state keys, read only; in a test, a `gr.WritableState` with values.
        workspace: what the run works in, such as a `gr.ext.Worktree`; None for a run without a workspace.
        usage: The usage of the run so far: model requests, tokens (input, output, cached, reasoning).
        text: the newest answer of the model, if any (from after_inference on, the answer of this step).
        calls: The calls of this step, in the model's order; made when it is read.
        call: in before_tool_execute and after_tool_execute: the call.
        termination: in run_end: why the run ends.
        read_messages: set by the runtime; in a test, a function without arguments that returns the messages.
        answer_request: set by the runtime; in a test, an async function (model, messages) -> ModelResponse.
        read_values: set by the runtime; in a test, `values` of a `ValueStore`.
    """

    phase: Phase
    run_id: str = ""
    thread_id: str = ""
    agent: str = ""
    by: str = ""
    step: int = 0
    deps: Deps_co = attrs.field(default=None)
    state: State = attrs.field(factory=State, validator=check_state)
    workspace: Any = attrs.field(default=None)
    usage: Usage = attrs.field(factory=Usage)
    text: str | None = None
    _calls: tuple[CallFacts, ...] | Callable[[], tuple[CallFacts, ...]] = attrs.field(default=(), repr=False)
    call: CallFacts | None = None
    termination: Termination | None = None
    read_messages: Callable[[], tuple[Message, ...]] = attrs.field(default=_nothing, repr=False, eq=False)
    answer_request: Callable[[Model | str | None, tuple[Message, ...]], Awaitable[ModelResponse]] = attrs.field(
        default=_no_model, repr=False, eq=False
    )
    read_values: Callable[..., Awaitable[Sequence[StoredValue]]] = attrs.field(default=_no_values, repr=False, eq=False)

    @property
    def calls(self) -> tuple[CallFacts, ...]:
        """The calls of this step, in the model's order. Each read makes them: a step may have thousands."""
        return self._calls() if callable(self._calls) else self._calls

    async def ask_model(self, *messages: Message, model: Model | str | None = None) -> ModelResponse:
        """Ask a model in a hook, outside of the run's own requests.

        Nothing of it is shown, joins the thread or is retried. Count its usage with `Mutation().spend(response.usage)`.
        The time limit of the plugin bounds it. Cancellation: closes the request.

        Args:
            *messages: what the model reads.
            model: a Model or "provider:name"; None: the agent's own.

        Raises:
            ModelError: the request failed.
            AgentDefinitionError: no provider makes a model of this name.
        """
        return await self.answer_request(model, messages)

    async def stored_values(self, space: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
        """Return a page of the values that the store keeps beside the runs; see `ValueStore.values`.

        Empty for a store that keeps none. Waits while the store is unavailable. The time limit of the plugin bounds it.

        Raises:
            UsageError: an argument is invalid.
        """
        return await self.read_values(space, after=after, limit=limit)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The thread so far, including the answer of this step once there is one."""
        return self.read_messages()


@attrs.frozen(kw_only=True)
class GateContext(PhaseContext[Deps_co]):
    """The argument of a gate: a `PhaseContext` with the call that is to run."""

    call: CallFacts = attrs.field()

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self.call.call_id

    @property
    def tool(self) -> str:
        """The name of the call's tool."""
        return self.call.tool

    @property
    def arguments(self) -> JSONObject:
        """The call's arguments."""
        return self.call.arguments

    @property
    def decision(self) -> Decision | None:
        """The decision that resumed the call, after which the gate is asked again; None before the first one."""
        return self.call.decision
