"""Inputs of the bodies of calls and tasks: what they say, and what they ask of the run."""

from __future__ import annotations

import msgspec

from ..contract.artifacts import Artifact
from ..contract.decisions import Suspend
from ..contract.guardrails import Tripped
from ..contract.messages import Usage
from ..contract.parts import Part
from ..contract.plain import JSONObject, JSONValue
from ..contract.spec import OfferedTool
from ..contract.state import Batch, Keys


class Spent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A hook, or the body of a call, asked a model. `by`: the plugin, or the tool."""

    by: str
    usage: Usage
    model: str = ""


class CallSuspended(msgspec.Struct, frozen=True, kw_only=True):
    """A body asks for a decision.

    Attributes:
        call_id, attempt: identify the body.
        suspend: The question.
        offered: the tool of a toolset is another one now: its body has not begun, and people are asked about this tool.
        usage: as in `CallReturned`.
    """

    call_id: str
    attempt: int
    suspend: Suspend
    usage: tuple[Spent, ...] = ()
    offered: OfferedTool | None = None


class CallReturned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body has returned: its result as JSON, and the text for the model.

    For a large result the row holds all of it; event and model get `shown` (head, tail and size). `batch` holds the
    body's state writes, `keys` the written keys, `parts` the images and files of the result, with their bytes.
    `inherited`, of a handoff with an input filter: the messages, as JSON, that the next agent reads instead of the
    thread. `usage`: what models have used for the body; it joins the run's.
    """

    call_id: str
    attempt: int
    result: JSONValue
    shown: str
    large: bool = False
    batch: Batch | None = None
    keys: Keys = msgspec.field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    inherited: tuple[JSONValue, ...] | None = None
    usage: tuple[Spent, ...] = ()


class CallRaised(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body has failed: the code, and the text for the model (never a traceback).

    `fatal`: the tool declares that its failures end the run. `run_code`: the run's failure code then; None: tool_error.
    `usage`: as in `CallReturned`.
    """

    call_id: str
    attempt: int
    code: str
    shown: str
    fatal: bool = False
    run_code: str | None = None
    usage: tuple[Spent, ...] = ()


class ResultRefused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body has returned, and an output guardrail of its tool did not let the result pass. The result is in no input.

    Attributes:
        tripped: the guardrail's report.
        failure: instead of it: the guardrail gave no verdict, and why.
        usage: as in `CallReturned`.
    """

    call_id: str
    attempt: int
    tripped: Tripped | None = None
    failure: str | None = None
    usage: tuple[Spent, ...] = ()


class CallProgressed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body reports its progress."""

    call_id: str
    attempt: int
    fraction: float
    text: str = ""


class CallPrinted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body streams output (coalesced); `index` counts from 0 per attempt."""

    call_id: str
    attempt: int
    index: int
    text: str


FromBody = CallSuspended | CallReturned | CallRaised | ResultRefused | CallProgressed | CallPrinted
"""The inputs of running bodies, but for their reports."""


class BodySpoke(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body says something: more text of a message (coalesced), or all of it.

    Attributes:
        call_id, attempt: the body.
        number: The number of the message among those of this attempt, from 1.
        text, reasoning: more streamed text; an empty string means no new text of that kind.
        index, reasoning_index: The number of such a delta among those of the message, from 0.
        whole: all of the message, which is complete now; None: it is not.
        ask: number of the request, for its answer; 0: the body awaits none.
    """

    call_id: str
    attempt: int
    number: int
    text: str = ""
    reasoning: str = ""
    index: int = 0
    reasoning_index: int = 0
    whole: str | None = None
    ask: int = 0


class BodyNoted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body notes an event of its own.

    Attributes:
        call_id, attempt: the body.
        type: a key of `NOTES`.
        payload: the fields of the event, as JSON, without the call's id.
        ask: number of the request, for its answer.
    """

    call_id: str
    attempt: int
    type: str
    payload: JSONObject
    ask: int = 0


class BodySaved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body keeps a memo (JSON) for the next attempt. `ask`: number of the request, for its answer."""

    call_id: str
    attempt: int
    memo: JSONValue
    ask: int = 0


BodyReport = BodySpoke | BodyNoted | BodySaved
"""The reports of running bodies."""


class SpawnAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body spawns a background task. The task's own inputs are `CallReturned` etc. with the task id as call id.

    Attributes:
        ask: number of the request, for its answer.
        spawner, attempt: the call or task whose body asks.
        tool, arguments: the task's tool and arguments.
        mark: digest of both.
        nth: The number among the spawns with this mark in this attempt, from 1.
    """

    ask: int
    spawner: str
    attempt: int
    tool: str
    arguments: JSONObject
    mark: str
    nth: int


class CancelAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body cancels a background task."""

    ask: int
    task_id: str


class TasksAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A body asks for the live background tasks."""

    ask: int


class NestedCalled(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a call makes a nested call.

    Attributes:
        ask: number of the request, for its answer.
        parent, attempt: the call whose body asks.
        tool, arguments, effect: what is to run.
        editable: a decision may change the arguments.
        seen: the work has begun already, without a question: nothing stops it.
        suspend: a question to people instead of work: the call is parked, and ends with the decision. `tool`,
            `arguments` and `effect` are those of the parent then.
    """

    ask: int
    parent: str
    attempt: int
    tool: str = ""
    arguments: JSONObject = msgspec.field(default_factory=dict)
    effect: str = "read"
    editable: bool = False
    seen: bool = False
    suspend: Suspend | None = None


class NestedDropped(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body does not await the answer to a nested call any more, and does no work for it.

    `ask`, `parent`: those of its `NestedCalled`.
    """

    ask: int
    parent: str


class NestedEnded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body has done the work of a nested call: its result as JSON, and the text about it.

    `code`: of a failure; None if the work has succeeded. `large`: as in `CallReturned`.
    """

    call_id: str
    result: JSONValue = None
    shown: str = ""
    code: str | None = None
    large: bool = False


class PublishAsked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body publishes an artifact.

    Attributes:
        ask: number of the request, for its answer.
        call_id, attempt: the call whose body asks.
        artifact: The artifact without an id; with its bytes, if the store is to keep them.
    """

    ask: int
    call_id: str
    attempt: int
    artifact: Artifact


class TaskStopped(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The body of a cancelled task has ended without a result, or has overrun its grace."""

    task_id: str
    attempt: int
