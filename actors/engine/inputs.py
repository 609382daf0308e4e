"""Inputs: the closed set of what can happen to a run.

Theory of operation. An input of a child names what it answers (message id; call id and attempt; phase and step). The
machine compares the name with its state and ignores an answer that it no longer waits for, so a restart, a cancel and a
late result need no coordination between children. As in `effects.py`, `gc=False` marks structs that hold data only.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ..contract.calls import CallStatus
from ..contract.decisions import InboxItem, Suspend, Ticket, Verdict
from ..contract.guardrails import Tripped
from ..contract.inference import RequestChanges
from ..contract.lifecycle import RunStatus, Stage
from ..contract.messages import ModelResponse, Usage
from ..contract.parts import Part
from ..contract.phases import Phase
from ..contract.plain import JSONObject, JSONValue
from ..contract.spec import OfferedTool
from ..contract.state import Batch, Keys, StateWrite
from .body_inputs import (
    BodyNoted,
    BodySaved,
    BodySpoke,
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelAsked,
    NestedCalled,
    NestedDropped,
    NestedEnded,
    PublishAsked,
    ResultRefused,
    SpawnAsked,
    Spent,
    TasksAsked,
    TaskStopped,
)

ONE_REQUEST: Final = Usage(requests=1)
"""Usage of a request about which nothing else is known."""


class Activate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The run has an owner (again). The first input of every incarnation.

    Attributes:
        admitted: the run may start working immediately; else an `Admit` follows.
        agent_digest: digest of this owner's spec; a digest other than the run's is recorded and accepted.
        withdrawn: ids of the calls whose questions are withdrawn (`lost_questions.py`).
    """

    admitted: bool = True
    agent_digest: str = ""
    withdrawn: tuple[str, ...] = ()


class Admit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The run has a slot and its thread: start working.

    `state`: the thread's state keys as they are now; None if the machine's are current.
    """

    state: tuple[StateWrite, ...] | None = None


class Prepared(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The run was prepared, or cannot be.

    Attributes:
        facts: about what was prepared, for `run.started`.
        doubts: (reason, sentence) of what is doubtful.
        code: The code of the failure that ends the run; None: the run can work.
        text: The failure, for people.
        runtime: The tool that could not be prepared, or "workspace".
        reason: One word about the failure; "" if the code says all.
        error_id: of a failure of user code: the id of its log line.
    """

    facts: JSONObject = msgspec.field(default_factory=dict)
    doubts: tuple[tuple[str, str], ...] = ()
    code: str | None = None
    text: str = ""
    runtime: str = ""
    reason: str = ""
    error_id: str | None = None


class Overruled(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's verdict that gave way to the verdict of plugin `by`."""

    plugin: str
    verdict: Literal["block", "deny", "suspend", "set_result"]
    by: str


class Allowed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The note of a gate of `plugin` that let a call pass."""

    plugin: str
    note: str


class CallEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's edit of one call in after_inference: other arguments, or drop the call.

    Attributes:
        call_id: the call.
        by: the plugin.
        arguments: replace the model's; None drops the call.
        text: the model receives this text for a dropped call.
    """

    call_id: str
    by: str
    arguments: JSONObject | None = None
    text: str = ""


class Trimmed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A hook left so many messages of the thread out of a request."""

    by: str
    messages: int


class ToolsetFault(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A toolset failed, or one of its tools has a name that is taken. Reported once per run and mark."""

    mark: str
    reason: Literal["toolset_unavailable", "tool_name_taken"]
    detail: str


class PhaseDone(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of a phase have answered.

    Attributes:
        phase, step, call_id: identify the `RunPhase` that is answered.
        revision: The revision of the snapshot that the hooks read.
        verdict: The verdict of tool_gate.
        overruled: verdicts that gave way to `verdict`.
        allowed: The notes of the gates that allow the call; they count if `verdict` allows it.
        batch: the hooks' state writes, merged.
        keys: the keys in `batch`.
        request: The changes of this step's request, from before_inference.
        edits: The changes of the calls, from after_inference.
        ticket_requests: The tickets that hold the run, from run_start, step_start and step_end.
        end: a hook asked to end the run (behavior_requested), with the reason.
        failure: a hook failed: plugin, phase and the failure.
        ignored: failures that their plugins declare as harmless.
        tripped: The input guardrail of the tool that did not allow the call; then no other gate was asked.
        trimmed: The before_inference hooks that left messages out.
        spent: what models of the hooks have used.
        doubt: The failure of the tool's own predicate at tool_gate; so a person is asked.
        disabled: True if tool_gate found the tool not enabled any more.
        enabled_faults: is_enabled predicates that failed, and how.
        toolset_faults: what the step has to do without, at before_inference.
        unavailable: A toolset without which the run cannot go on failed (runtime_unavailable), and how.
    """

    phase: Phase
    step: int
    call_id: str | None = None
    revision: int = 0
    verdict: Verdict | None = None
    overruled: tuple[Overruled, ...] = ()
    allowed: tuple[Allowed, ...] = ()
    batch: Batch | None = None
    keys: Keys = msgspec.field(default_factory=dict)
    request: RequestChanges | None = None
    edits: tuple[CallEdit, ...] = ()
    ticket_requests: tuple[Suspend, ...] = ()
    end: str | None = None
    failure: str | None = None
    ignored: tuple[str, ...] = ()
    tripped: Tripped | None = None
    doubt: str | None = None
    disabled: bool = False
    enabled_faults: tuple[str, ...] = ()
    trimmed: tuple[Trimmed, ...] = ()
    spent: tuple[Spent, ...] = ()
    toolset_faults: tuple[ToolsetFault, ...] = ()
    unavailable: str | None = None


class ModelStreamed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """More streamed text of the answer (coalesced). An empty string means no new text of that kind."""

    message_id: str
    text: str = ""
    reasoning: str = ""


class ModelAnswered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The model has answered.

    Attributes:
        offered: the tools of toolsets that the answer calls.
    """

    message_id: str
    response: ModelResponse
    offered: tuple[OfferedTool, ...] = ()


BUG: Final = "bug"
"""Kind of a `ModelFailed` whose cause is not a ModelError: a bug of the model's code, which a retry would not fix."""

UNAVAILABLE: Final = "unavailable"
"""Kind of a `ModelFailed` without a request: a toolset without which the run cannot go on is not available."""


class ModelFailed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The model request failed, or its stream broke.

    Attributes:
        message_id: The id of the missing answer.
        kind, text: the failure; `kind` is a `ModelErrorKind`, BUG or UNAVAILABLE.
        retryable: the failure may pass.
        retry_after: seconds that the provider asks to wait.
        usage: The usage of the request; without requests if none was made.
        jitter: factor of the back-off, drawn by the owner.
        received: the text of the answer that had arrived.
        cut_calls: names of the tools whose calls the answer had begun.
        refused: the model's circuit is open: no request was made.
    """

    message_id: str
    kind: str
    text: str
    retryable: bool = False
    retry_after: float | None = None
    usage: Usage = ONE_REQUEST
    jitter: float = 1.0
    received: str = ""
    cut_calls: tuple[str, ...] = ()
    refused: bool = False


class ModelCut(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The end of the run has stopped its model request. The owner reports it with `CancelWork`, before `WorkStopped`.

    Attributes:
        message_id: The id of the answer.
        text: all that had arrived of the answer to this request; None: unknown, because another process made it.
        rest: the end of the answer that no delta has shown, in pieces, if the message is too large for one event.
        usage: The usage of the request, as far as known; without requests if none was made.
    """

    message_id: str
    text: str | None = None
    rest: tuple[str, ...] = ()
    usage: Usage = Usage()


class GuardsDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The guardrails of an `AskGuards` have given their verdicts.

    Attributes:
        kind, step, names: identify the `AskGuards` that is answered.
        tripped: the first guardrail that did not allow; the others were cancelled.
        failure: instead of it: a guardrail gave no verdict, and why.
    """

    kind: Literal["input", "output"]
    step: int
    names: tuple[str, ...]
    tripped: Tripped | None = None
    failure: str | None = None


class ChildOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a child run ended, and what its call comes to.

    Attributes:
        stage: The stage of the child run; code: the code of its termination.
        status: The status of the call: succeeded, failed or cancelled.
        result: The result of the call, as JSON; `shown`, `large`: as in `CallReturned`.
        call_code: The code of a failed call.
        parts: images and files of the result, with their bytes.
        fatal: the tool declares that its failures end the run.
    """

    stage: Stage
    status: CallStatus
    shown: str
    code: str | None = None
    result: JSONValue = None
    large: bool = False
    call_code: str | None = None
    fatal: bool = False
    parts: tuple[Part, ...] = ()


class RefusedDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A forwarded decision that the child run rejected: its id, and the code and the sentence of the rejection."""

    decision_id: str
    code: str
    detail: str


class ChildSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A child run as it is now: a state, not a change. Seeing the same twice changes nothing.

    Attributes:
        call_id: the call that the child run works for.
        status: The status of the child run; waiting only if it has acted on all its commands.
        agent: key of its agent.
        tickets: its open tickets, and of those that this run mirrors also the closed ones.
        outcome: None before its end.
        usage: The usage of the whole child run.
        refused: a forwarded decision that the child run rejected.
    """

    call_id: str
    status: RunStatus
    agent: str
    tickets: tuple[Ticket, ...] = ()
    outcome: ChildOutcome | None = None
    usage: Usage = Usage()
    refused: RefusedDecision | None = None


class CommandArrived(msgspec.Struct, frozen=True, kw_only=True):
    """The next inbox item. An item that was consumed before is ignored."""

    item: InboxItem


class CancelUnowned(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel a run whose agent or deps are missing here; `items` is its inbox."""

    items: tuple[InboxItem, ...]


class DeadlinePassed(msgspec.Struct, frozen=True, kw_only=True):
    """The run's deadline has passed.

    `unowned`: the first input of an incarnation, instead of `Activate`, because the run has no agent or deps here.
    """

    unowned: bool = False


class Unfinished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body that did not end within its grace, and its stack.

    `call_id` is the call's id, or the key of another child of the run, such as `model:<message id>`.
    """

    call_id: str
    tool: str | None = None
    grace: float = 5.0
    stack: str = ""


class BodyOverran(msgspec.Struct, frozen=True, kw_only=True):
    """A body overran its grace and runs detached from its call.

    Reported immediately, and by the terminal event if still alive.
    """

    item: Unfinished


class WorkStopped(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All work of the run has ended, except the bodies named here."""

    stubborn: tuple[Unfinished, ...] = ()


class FailUnrecoverable(msgspec.Struct, frozen=True, kw_only=True):
    """The owner gave up: end the run as failed(internal_error) without running hooks.

    The first input of an incarnation, instead of `Activate`. The machine answers with `CancelWork`; the run ends with
    `WorkStopped`, after its unread commands.
    """

    detail: str


Input = (
    Activate
    | Admit
    | Prepared
    | PhaseDone
    | ModelStreamed
    | ModelAnswered
    | ModelFailed
    | ModelCut
    | CallSuspended
    | CallReturned
    | CallRaised
    | ResultRefused
    | GuardsDone
    | CallProgressed
    | CallPrinted
    | BodySpoke
    | BodyNoted
    | BodySaved
    | ChildSeen
    | SpawnAsked
    | CancelAsked
    | TasksAsked
    | PublishAsked
    | TaskStopped
    | NestedCalled
    | NestedDropped
    | NestedEnded
    | CommandArrived
    | CancelUnowned
    | DeadlinePassed
    | BodyOverran
    | WorkStopped
    | FailUnrecoverable
)
