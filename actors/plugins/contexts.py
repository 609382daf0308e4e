"""What hooks are told. Frozen: a hook asks for a change with a `Mutation`, or says a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, cast

import attrs

from ..contract.calls import CallStatus
from ..contract.decisions import Decision
from ..contract.lifecycle import Termination
from ..contract.messages import Message, Usage
from ..contract.phases import Phase
from ..contract.plain import JSONObject
from ..contract.rows import CallRow
from ..state.access import State, check_state
from ..state.values import copied, copied_decision

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


@attrs.frozen(kw_only=True)
class CallFacts:
    """A tool call as it stands. Arguments and result are a hook's own with each read: changing them changes no call.

    Attributes:
        call_id, tool, arguments, effect: what would run, with edited arguments if it has some.
        status: of the lifecycle. attempt: bodies started so far.
        decision: the newest decision about it, or None.
        result: of a succeeded call (JSON). text: what the model gets of an ended call. code: of a failure.
    """

    call_id: str
    tool: str
    _arguments: JSONObject
    effect: str = "read"
    status: CallStatus = CallStatus.NEW
    attempt: int = 0
    decision: Decision | None = None
    _result: Any = None
    text: str | None = None
    code: str | None = None

    @property
    def arguments(self) -> JSONObject:
        """What would run."""
        return cast("JSONObject", copied(self._arguments))

    @property
    def result(self) -> Any:
        """Of a succeeded call."""
        return copied(self._result)

    @classmethod
    def of(cls, row: CallRow) -> CallFacts:
        """The facts of a row."""
        return cls(
            call_id=row.call_id,
            tool=row.tool,
            arguments=row.arguments,
            effect=row.effect,
            status=row.status,
            attempt=row.attempts,
            decision=None if row.decision is None else copied_decision(row.decision),
            result=row.result,
            text=row.shown,
            code=row.code,
        )


def _nothing() -> tuple[Message, ...]:
    return ()


@attrs.frozen(kw_only=True)
class PhaseContext(Generic[Deps]):
    """What a hook is told. All of it is as it was when the phase began.

    Attributes:
        phase: which one. run_id, thread_id, agent (its key), by (the principal that started the run), step: where.
        deps: what the run was started with.
        state: the state keys, read only; in a test, a `gr.WritableState` that has been given its values.
        usage: of the run so far: requests of the model, tokens (input, output, cached, reasoning).
        text: the newest answer of the model, if any (the one of this step from after_inference on).
        calls: of this step, in the model's order.
        call: in before_tool_execute and after_tool_execute: which one.
        termination: in run_end: why the run ends.
        read_messages: set by the runtime; in a test, a function without arguments that gives the messages.
    """

    phase: Phase
    run_id: str = ""
    thread_id: str = ""
    agent: str = ""
    by: str = ""
    step: int = 0
    deps: Deps = attrs.field(default=None)
    state: State = attrs.field(factory=State, validator=check_state)
    usage: Usage = attrs.field(factory=Usage)
    text: str | None = None
    calls: tuple[CallFacts, ...] = ()
    call: CallFacts | None = None
    termination: Termination | None = None
    read_messages: Callable[[], tuple[Message, ...]] = attrs.field(default=_nothing, repr=False, eq=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The thread up to now, with the answer of this step as soon as there is one."""
        return self.read_messages()


@attrs.frozen(kw_only=True)
class GateContext(PhaseContext[Deps]):
    """What a gate is told: a `PhaseContext` whose call is the one that wants to run."""

    call: CallFacts = attrs.field()

    @property
    def call_id(self) -> str:
        """Of the call."""
        return self.call.call_id

    @property
    def tool(self) -> str:
        """Its tool's name."""
        return self.call.tool

    @property
    def arguments(self) -> JSONObject:
        """What it would run with."""
        return self.call.arguments

    @property
    def decision(self) -> Decision | None:
        """The decision that made the call go on: the gate is asked again after it. None before the first one."""
        return self.call.decision
