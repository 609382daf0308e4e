"""What can happen to a run: the closed set of the machine's inputs.

Child messages name what they answer (message id, call id and attempt, phase and step); an answer to something that is
no longer asked is ignored.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ..contract.decisions import InboxItem, Suspend, Verdict
from ..contract.messages import ModelResponse, Usage
from ..contract.phases import Phase
from ..contract.plain import JSONObject, JSONValue
from ..contract.rows import RequestChanges
from ..contract.state import Batch, Keys, StateWrite

ONE_REQUEST: Final = Usage(requests=1)
"""What a request costs of which nothing else is known."""


class Activate(msgspec.Struct, frozen=True, kw_only=True):
    """The run has an owner (again). The first input of every incarnation.

    Attributes:
        admitted: the run may start working at once; else an `Admit` follows.
        agent_digest: of the spec that this owner has; another one than the run's is recorded and accepted.
    """

    admitted: bool = True
    agent_digest: str = ""


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """A slot is free and the thread is ours: start working.

    `state`: the state keys as the thread has them now; None if what the machine knows is right.
    """

    state: tuple[StateWrite, ...] | None = None


class Overruled(msgspec.Struct, frozen=True, kw_only=True):
    """A gate's verdict that gave way to the one of `by`."""

    plugin: str
    verdict: Literal["block", "deny", "suspend", "set_result"]
    by: str


class CallEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook of after_inference wants of one call: other arguments, or not to run it.

    Attributes:
        call_id: which one. by: the plugin.
        arguments: in place of the model's; None if the call is dropped.
        text: what the model is told of a dropped call.
    """

    call_id: str
    by: str
    arguments: JSONObject | None = None
    text: str = ""


class PhaseDone(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of a phase have answered.

    Attributes:
        phase, step, call_id: which one was asked for.
        revision: of the snapshot that they judged on.
        verdict: of tool_gate. overruled: verdicts that gave way to it.
        batch: what they wrote to state, together. keys: the keys in it.
        request: of before_inference: what changes about this step's request.
        edits: of after_inference: what changes about the calls.
        holds: of run_start, step_start and step_end: what the run is to wait for.
        end: a hook asked to end the run (behavior_requested), and why.
        failure: a hook failed: plugin and phase and what it raised.
        ignored: failures that their plugins have declared to be none.
        tripped: a guardrail stopped the run: its name and info.
        doubt: of tool_gate: the tool's own predicate has failed, and how; so a person is asked.
    """

    phase: Phase
    step: int
    call_id: str | None = None
    revision: int = 0
    verdict: Verdict | None = None
    overruled: tuple[Overruled, ...] = ()
    batch: Batch | None = None
    keys: Keys = msgspec.field(default_factory=dict)
    request: RequestChanges | None = None
    edits: tuple[CallEdit, ...] = ()
    holds: tuple[Suspend, ...] = ()
    end: str | None = None
    failure: str | None = None
    ignored: tuple[str, ...] = ()
    tripped: str | None = None
    doubt: str | None = None


class ModelStreamed(msgspec.Struct, frozen=True, kw_only=True):
    """More of the answer (coalesced). Empty strings are nothing new."""

    message_id: str
    text: str = ""
    reasoning: str = ""


class ModelAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """The model has answered."""

    message_id: str
    response: ModelResponse


BUG: Final = "bug"
"""Kind of a `ModelFailed`: the model's code has raised what is no ModelError. Asking again would not mend that."""


class ModelFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The model could not be asked, or its stream broke.

    Attributes:
        message_id: of the answer that does not come.
        kind, text: what failed; one of `ModelErrorKind`, or BUG. retryable: it may pass.
        retry_after: seconds that the provider asks to wait.
        usage: of the request; without requests if none was made.
        jitter: factor of the back-off, drawn by the owner.
    """

    message_id: str
    kind: str
    text: str
    retryable: bool = False
    retry_after: float | None = None
    usage: Usage = ONE_REQUEST
    jitter: float = 1.0


class CallSuspended(msgspec.Struct, frozen=True, kw_only=True):
    """A body wants a decision."""

    call_id: str
    attempt: int
    suspend: Suspend


class CallReturned(msgspec.Struct, frozen=True, kw_only=True):
    """A body has returned: its result as JSON, and the text that the model gets.

    A large result stands beside: the row holds all of it, event and model get `shown` (head, tail and size). `batch` is
    what it wrote to state, to the keys in `keys`.
    """

    call_id: str
    attempt: int
    result: JSONValue
    shown: str
    large: bool = False
    batch: Batch | None = None
    keys: Keys = msgspec.field(default_factory=dict)


class CallRaised(msgspec.Struct, frozen=True, kw_only=True):
    """A body has failed: the code and the text that the model gets (never a traceback).

    `fatal`: the tool declares that this failure ends the run.
    """

    call_id: str
    attempt: int
    code: str
    shown: str
    fatal: bool = False


class CallProgressed(msgspec.Struct, frozen=True, kw_only=True):
    """A body tells how far it is."""

    call_id: str
    attempt: int
    fraction: float
    text: str = ""


class CallPrinted(msgspec.Struct, frozen=True, kw_only=True):
    """A body streams output (coalesced); `index` counts from 0 per attempt."""

    call_id: str
    attempt: int
    index: int
    text: str


class SpawnAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body wants a background task. What tasks say comes as `CallReturned` and so on, with their id as call id.

    Attributes:
        ask: number of the question, for its answer.
        spawner, attempt: the call or task whose body asks.
        tool, arguments: what is to run. mark: of both.
        nth: of the spawns with this mark in this attempt, from 1.
    """

    ask: int
    spawner: str
    attempt: int
    tool: str
    arguments: JSONObject
    mark: str
    nth: int


class CancelAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body wants a background task to end."""

    ask: int
    task_id: str


class TasksAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body wants to know which background tasks live."""

    ask: int


class TaskStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a task that was cancelled has ended without a result, or goes on beyond its grace."""

    task_id: str
    attempt: int


class CommandArrived(msgspec.Struct, frozen=True, kw_only=True):
    """The next inbox item. An item that was consumed before is ignored."""

    item: InboxItem


class CancelUnowned(msgspec.Struct, frozen=True, kw_only=True):
    """A run that nobody can work on here (its agent or deps are missing) is cancelled; these items are its inbox."""

    items: tuple[InboxItem, ...]


class DeadlinePassed(msgspec.Struct, frozen=True, kw_only=True):
    """The run's deadline has come.

    `unowned`: the first input of an incarnation, in place of `Activate`, for the run has no agent or deps here.
    """

    unowned: bool = False


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """What did not end within its grace, and where it stands.

    `call_id` is the call's, or the name of another child of the run, such as `model:<message id>`.
    """

    call_id: str
    tool: str | None = None
    grace: float = 5.0
    stack: str = ""


class BodyOverran(msgspec.Struct, frozen=True, kw_only=True):
    """A body goes on without its call: told at once, and named by the terminal event if it still lives then."""

    item: Unfinished


class WorkStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the run had started has ended, but for what is named here."""

    stubborn: tuple[Unfinished, ...] = ()


class FailUnrecoverable(msgspec.Struct, frozen=True, kw_only=True):
    """The owner gave up: end the run as failed(internal_error) without asking any hook.

    The first input of an incarnation, in place of `Activate`. It is answered with `CancelWork`; the run ends with
    `WorkStopped`, after the commands that wait.
    """

    detail: str


Input = (
    Activate
    | Admit
    | PhaseDone
    | ModelStreamed
    | ModelAnswered
    | ModelFailed
    | CallSuspended
    | CallReturned
    | CallRaised
    | CallProgressed
    | CallPrinted
    | SpawnAsked
    | CancelAsked
    | TasksAsked
    | TaskStopped
    | CommandArrived
    | CancelUnowned
    | DeadlinePassed
    | BodyOverran
    | WorkStopped
    | FailUnrecoverable
)
