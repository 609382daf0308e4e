"""Effects: the closed set of actions that the machine asks of its owner.

Theory of operation. The owner performs the effects of a transition in order. An effect with `durable` waits for the
receipt of the commit that it came with; the others are performed immediately. An effect whose docstring names an answer
is answered at most once, by that input; after a restart it is not answered, and the machine asks again in recovery.
Effects are msgspec structs, because these are cheap to create. Those that hold data only are not tracked by the garbage
collector (`gc=False`): data is in no reference cycle. An exception may be in one.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs
import msgspec

from ..contract.codec import failure_text
from ..contract.decisions import Decision, Ticket
from ..contract.inference import RequestChanges
from ..contract.phases import Phase
from ..contract.plain import JSONObject, JSONValue
from ..contract.spec import OfferedTool
from ..state.snapshot import EMPTY, StateSnapshot


class RunPhase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Run the hooks of a phase on a snapshot of the state. Answer: `PhaseDone`."""

    phase: Phase
    step: int
    state: StateSnapshot = EMPTY
    call_id: str | None = None
    durable: bool = False


class Prepare(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Prepare the run's surroundings and tools. Answer: `Prepared`.

    Durable, because a preparation may leave traces in the world, such as a folder.
    """

    durable: bool = True


class CallModel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Make a model request. Answers: any number of `ModelStreamed`, then `ModelAnswered` or `ModelFailed`.

    Attributes:
        message_id: id of the message to be written.
        step: the step, from 1.
        attempt: The attempt of this step's request, from 1.
        model_attempts: answers and errors of the model of this agent in the run so far.
        changes: what hooks changed about the request.
        delay: seconds to wait first.
        prefix: the text that the answer continues.
        cut_calls: names of the tools whose calls did not run, because the answer that began them broke.
        model: 0: the step's own model; else the number of a fallback, from 1.
        tool_choice: "auto", "required", "none", or the name of a tool.
    """

    message_id: str
    step: int
    attempt: int
    model_attempts: int
    changes: RequestChanges | None = None
    delay: float = 0.0
    prefix: str = ""
    cut_calls: tuple[str, ...] = ()
    model: int = 0
    tool_choice: str = "auto"
    durable: bool = False


class AskGuards(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Ask guardrails of the agent, all concurrently. Answer: `GuardsDone`.

    Attributes:
        kind: input or output.
        step: the step.
        names: The names of the guardrails.
        messages: ids of the messages whose texts input guardrails judge.
        output: the output (JSON) that output guardrails judge.
        state: the snapshot that they read.
    """

    kind: Literal["input", "output"]
    step: int
    names: tuple[str, ...]
    messages: tuple[str, ...] = ()
    output: JSONValue = None
    state: StateSnapshot = EMPTY
    durable: bool = False


class StartCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Run a body: in the call's actor if it has one, else in a new actor.

    Answers: any number of `CallProgressed` and `CallPrinted`, then `CallSuspended`, `CallReturned`, `CallRaised` or
    `ResultRefused`. Durable unless the tool may be replayed: `run.tool.started` must be stored before the world sees an
    effect. Also durable after a suspension, so that it follows the call's `ParkCall`. `state` is the snapshot that the
    body reads.

    `memo`: what an earlier attempt has kept.

    With a `child_run` the work is that run's: start it if it does not exist, and report it as it is seen. Answers: any
    number of `ChildSeen`, the last with an outcome, or `CallRaised`. Always durable. `known_tickets`: The child's
    tickets that this run has mirrors of, which are reported also when they are closed.

    `offered`: the tool of a toolset, as the call's row has it. `waited`: people were asked about the call, so the tool
    may be another one by now.
    """

    call_id: str
    attempt: int
    tool: str
    arguments: JSONObject
    decision: Decision | None = None
    state: StateSnapshot = EMPTY
    child_run: str | None = None
    known_tickets: tuple[str, ...] = ()
    memo: JSONValue = None
    offered: OfferedTool | None = None
    waited: bool = False
    durable: bool = True


class ForwardDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Post a decision about a mirror to the child run, under the same decision id, until the child run has answered.

    Answer: `ChildSeen` with the refusal, if the child run rejects the decision.
    """

    call_id: str
    child_run: str
    decision: Decision
    durable: bool = True


class CancelChild(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cancel a child run. Answer: `ChildSeen` with its outcome, also when the call's actor does not watch any more."""

    call_id: str
    child_run: str
    tool: str
    reason: str
    by: str | None = None
    durable: bool = False


class ParkCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Give a suspended call an actor that holds the ticket, if the call has none."""

    call_id: str
    ticket: Ticket
    durable: bool = True


class StartTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Run the body of a background task. Durable unless the tool may be replayed.

    Answers: those of `StartCall`, with the task's id as call id. `agent`: key of the agent whose tool it is; None: the
    run's first agent.
    """

    task_id: str
    call_id: str
    attempt: int
    tool: str
    arguments: JSONObject
    agent: str | None = None
    state: StateSnapshot = EMPTY
    durable: bool = True


class CancelTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cancel the body of a background task. Answers: its result if it ends with one, then `TaskStopped`."""

    task_id: str
    attempt: int
    durable: bool = False


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True):
    """Answer request number `ask` of a body: a value, or why the request is refused."""

    ask: int
    value: Any = None
    fault: str | None = None
    durable: bool = True


class ReleaseCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """End the actor of a call that ended without its body, if it has one.

    Durable only to follow the call's `ParkCall`.
    """

    call_id: str
    durable: bool = True


@attrs.frozen
class ComparableError:
    """An exception as a value: two exceptions of equal text are equal, so that transitions can be compared."""

    error: BaseException = attrs.field(eq=failure_text)


class ReportFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Log a failure of user code that the machine itself called (a denial text, a reducer).

    There is no answer; the event that reports the failure is in the same transition.
    """

    what: str
    raised: ComparableError
    code: str
    error_id: str | None = None
    call_id: str | None = None
    durable: bool = False


class CancelWork(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Cancel everything that the run has started. Answer: `WorkStopped`."""

    reason: str
    durable: bool = False


class FinishRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """End the owner: the run's terminal event is in this commit."""

    durable: bool = True


Effect = (
    RunPhase
    | Prepare
    | AskGuards
    | CallModel
    | StartCall
    | ForwardDecision
    | CancelChild
    | ParkCall
    | ReleaseCall
    | StartTask
    | CancelTask
    | AnswerBody
    | ReportFailure
    | CancelWork
    | FinishRun
)
