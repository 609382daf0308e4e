"""What the machine asks its owner to do: the closed set of effects.

An effect with `durable` waits for the receipt of the commit that it came with; the others do not. Each effect that
has an answer is answered at most once. They are msgspec structs because those are cheap to make.
"""

from __future__ import annotations

from typing import Any

import attrs
import msgspec

from ..contract.codec import failure_text
from ..contract.decisions import Decision, Ticket
from ..contract.phases import Phase
from ..contract.plain import JSONObject
from ..contract.rows import RequestChanges
from ..state.snapshot import EMPTY, StateSnapshot


class RunPhase(msgspec.Struct, frozen=True, kw_only=True):
    """Run the hooks of a phase on a snapshot of the state. Answer: `PhaseDone`."""

    phase: Phase
    step: int
    state: StateSnapshot = EMPTY
    call_id: str | None = None
    durable: bool = False


class CallModel(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the model. Answers: `ModelStreamed`*, then `ModelAnswered` or `ModelFailed`.

    Attributes:
        delay: seconds to wait first.
        answers: answers and errors that the run has got so far.
        changes: what hooks changed about the request.
    """

    message_id: str
    step: int
    attempt: int
    answers: int
    changes: RequestChanges | None = None
    delay: float = 0.0
    durable: bool = False


class StartCall(msgspec.Struct, frozen=True, kw_only=True):
    """Run a body: in the call's actor if there is one, else in a new one.

    Answers: `CallProgressed`*, `CallPrinted`*, then `CallSuspended`, `CallReturned` or `CallRaised`. Durable unless
    the tool may be replayed: its `started` must be in the store before the world sees an effect. Durable too after a
    suspension, so that it comes after the call's `ParkCall`. `state` is what the body reads.
    """

    call_id: str
    attempt: int
    tool: str
    arguments: JSONObject
    decision: Decision | None = None
    state: StateSnapshot = EMPTY
    durable: bool = True


class ParkCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call waits for a decision: give it an actor that holds the ticket, if it has none."""

    call_id: str
    ticket: Ticket
    durable: bool = True


class StartTask(msgspec.Struct, frozen=True, kw_only=True):
    """Run the body of a background task. Durable unless the tool may be replayed.

    Answers: those of `StartCall`, with the task's id in the place of the call's.
    """

    task_id: str
    call_id: str
    attempt: int
    tool: str
    arguments: JSONObject
    state: StateSnapshot = EMPTY
    durable: bool = True


class CancelTask(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the body of a background task. Answer: its result if it ends with one, then `TaskStopped`."""

    task_id: str
    attempt: int
    durable: bool = False


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to question number `ask` of a body: a value, or why there is none."""

    ask: int
    value: Any = None
    fault: str | None = None
    durable: bool = True


class ReleaseCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call has ended without its body: end its actor, if there is one.

    Durable only so that it comes after the call's `ParkCall`.
    """

    call_id: str
    durable: bool = True


@attrs.frozen
class Raised:
    """An exception as a value: the same step twice gives two exceptions that say the same."""

    error: BaseException = attrs.field(eq=failure_text)


class ReportFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Log a failure of the user's code that the machine itself has called (a denial text, a reducer).

    The machine goes on without an answer; the event that tells of the failure is in the same step.
    """

    what: str
    raised: Raised
    code: str
    error_id: str | None = None
    call_id: str | None = None
    durable: bool = False


class CancelWork(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel everything that the run has started. Answer: `WorkStopped`."""

    reason: str
    durable: bool = False


class FinishRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over; its terminal event is in this commit."""

    durable: bool = True


Effect = (
    RunPhase
    | CallModel
    | StartCall
    | ParkCall
    | ReleaseCall
    | StartTask
    | CancelTask
    | AnswerBody
    | ReportFailure
    | CancelWork
    | FinishRun
)
