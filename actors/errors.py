"""The error tree. The type tells whose fault the error is; the message names the value and says what to give.

    GreenroomError
    ├── UsageError (also ValueError)   an argument is invalid
    │   ├── UnknownRun                 no run has this id
    │   ├── UnknownAgent               no agent of this runtime has this key
    │   ├── RunExists                  a run with other content has the run id
    │   │   └── RunPruned              a pruned run had the run id
    │   ├── ThreadBusy                 on_busy="refuse" and the thread has an active run
    │   ├── ThreadForbidden            the thread belongs to a principal whose runs the caller may not see
    │   ├── WorkspaceRefused           no run may begin in this workspace, or no live process has it
    │   ├── AgentLoadError             a file or object that should hold an agent does not
    │   ├── ToolDefinitionError        a function cannot be a tool as it is written
    │   ├── UnknownArtifact            a run has no artifact with this id, or no bytes of it
    │   ├── InvalidAttachment          an image or a file is invalid or too large
    │   ├── StateError                 a state key is invalid, or a value does not have its type
    │   └── AgentDefinitionError       an agent's parts do not fit together
    ├── ToolError                      raised by a tool: the model reads its text
    ├── PreparationError               raised by a preparation: the run cannot work, and fails with its code
    ├── ModelError                     a model request failed; `kind` classifies the failure
    ├── StoreError                     the store failed
    │   ├── StoreOpenError             the store cannot be opened: locked, damaged, newer, no permission
    │   ├── StoreUnavailable           the store does not answer now; the same call may work later
    │   ├── StoreDown                  the store has failed for good in this process
    │   ├── LeaseLost                  the claim is not the newest; another owner has the run
    │   └── LogReplaced                the logs are not the ones that were followed
    ├── OutcomeError                   the outcome has no output (`outcome.output`)
    │   ├── RunFailedError             the run has failed
    │   ├── RunCancelledError          the run was cancelled
    │   └── RunWaitingError            the run waits for decisions
    ├── RunDegradedError               the run is not worked on here: its agent or deps are missing
    ├── RuntimeClosed                  the runtime is closing or closed
    └── RuntimeFailed                  the runtime cannot continue; raised from its cause

Outcomes of runs (failed, cancelled) and rejected decisions are values, not exceptions. OutcomeError and its kinds are
defined with the outcomes, in `contract/outcomes.py`.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, get_args

from greenroom.supervision.fields import did_you_mean
from greenroom.supervision.public import restored

from .contract.failures import FAILURES
from .contract.messages import Usage

ModelErrorKind = Literal[
    "rate_limited",
    "quota_exceeded",
    "overloaded",
    "timeout",
    "interrupted",
    "context_overflow",
    "invalid_request",
    "unauthorized",
    "model_not_found",
    "content_filtered",
    "provider",
]
MAY_PASS: Final = frozenset({"rate_limited", "overloaded", "timeout", "interrupted", "provider"})
"""The kinds of model failures for which a retry may work."""
MODEL_ERROR_KINDS: Final[tuple[str, ...]] = get_args(ModelErrorKind)


class GreenroomError(Exception):
    """Base of all errors that Greenroom raises on purpose. Instances survive pickling with all attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args, vars(self))


class UsageError(GreenroomError, ValueError):
    """An argument is invalid."""


class UnknownRun(UsageError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run has the id {run_id!r}; list the known ones with runtime.runs()")
        self.run_id = run_id


class UnknownAgent(UsageError):
    """No agent of this runtime has this key."""


class RunExists(UsageError):
    """A run with other content has the run id."""


class RunPruned(RunExists):
    """A pruned run had this id. A run id is used once, so that a repeated start acts once.

    Attributes:
        same: the content is known to be the same.
    """

    def __init__(self, message: str, *, same: bool = False) -> None:
        super().__init__(message)
        self.same = same


class ThreadBusy(UsageError):
    """The thread has an active run and the caller refused to queue.

    Attributes:
        active: the run that works on the thread; "" if unknown.
    """

    def __init__(self, message: str, *, active: str = "") -> None:
        super().__init__(message)
        self.active = active


class ThreadForbidden(UsageError):
    """The thread belongs to a principal whose runs the caller may not see."""


class WorkspaceRefused(UsageError):
    """No run may begin in this workspace; nothing was started.

    Attributes:
        code: "workspace_outside_allowlist": it is not allowed; "target_offline": no live process has it.
        names: the workspaces that live processes have.
    """

    def __init__(
        self, code: Literal["workspace_outside_allowlist", "target_offline"], message: str, *names: str
    ) -> None:
        super().__init__(message)
        self.code = code
        self.names = names


class UnknownArtifact(UsageError):
    """A run has no artifact with this id, or the store has no bytes of it."""


class UnknownThread(UsageError):
    """No thread has this id, or the caller may not read it."""

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"no thread has the id {thread_id!r:.200}; list the known ones with threads()")
        self.thread_id = thread_id


class UnknownPart(UsageError):
    """A message or a run has no such image or file, or the store has no bytes of it."""


class InvalidAttachment(UsageError):
    """An image or a file is invalid: its bytes, media type, name or address, or it is too large."""


class AgentLoadError(UsageError):
    """A file or object that should hold an agent does not."""


class ToolDefinitionError(UsageError):
    """A function cannot be a tool as it is written."""


class StateError(UsageError):
    """A state key is invalid, or a value does not have its type."""


class AgentDefinitionError(UsageError):
    """An agent's parts do not fit together."""


class ToolError(GreenroomError):
    """Raise it in a tool: the model reads its text, and nothing else.

    Attributes:
        run_code: The code of the call's failure, and of the run's if the tool's failures end the run
            (`on_error="raise"`): a key of the failure catalogue; None: tool_error.

    Raises:
        UsageError: the code is unknown.
    """

    run_code: str | None = None  # also of a subclass that does not call this

    def __init__(self, *args: object, run_code: str | None = None) -> None:
        super().__init__(*args)
        if run_code is not None and run_code not in FAILURES:
            hint = did_you_mean(run_code, FAILURES)
            raise UsageError(f"ToolError(run_code={run_code!r:.100}): {hint}the codes are {', '.join(FAILURES)}")
        self.run_code = run_code


class PreparationError(GreenroomError):
    """Raise it in `Surroundings.prepare` or in the `prepare` of a tool: the run fails before its first step.

    The message is for people, redacted where it is shown: what is missing, and what to do about it.

    Attributes:
        code: a code of `FAILURES`, such as runtime_unavailable or workspace_outside_allowlist.
        reason: one word, such as "missing" or "incompatible", with which the shown message begins; "" if the code says
            all.

    Raises:
        UsageError: the code is not in the catalogue, or the reason is not a word.
    """

    def __init__(self, code: str, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        if code not in FAILURES:
            raise UsageError(f"PreparationError({code!r:.100}): {did_you_mean(code, FAILURES)}give a code of FAILURES")
        if not isinstance(reason, str) or (reason and not reason.isidentifier()):
            raise UsageError(f"PreparationError(reason={reason!r:.100}): give one word, such as 'missing', or ''")
        self.code, self.reason = code, reason


class ModelError(GreenroomError):
    """A model request failed. Raise it in your own model; the run retries if the kind may pass.

    | kind | meaning | retried |
    |---|---|---|
    | rate_limited | too many requests or tokens in a period | yes |
    | quota_exceeded | the account has no budget left | no |
    | overloaded | the provider has no capacity now | yes |
    | timeout | no answer in time | yes |
    | interrupted | the stream broke before its end | yes |
    | context_overflow | the request is longer than the model accepts | no |
    | invalid_request | the provider refuses the request as it is | no |
    | unauthorized | the key is missing, invalid, or lacks permission | no |
    | model_not_found | the provider has no such model | no |
    | content_filtered | a filter of the provider stopped the request or the answer | no |
    | provider | any other failure, such as an internal error | yes |

    Attributes:
        kind: the class of the failure.
        retry_after: seconds that the provider asks to wait before the next request (its Retry-After); None: not given.
            A moment in the past, a negative number, is 0.
        usage: tokens of the failed request, as far as known; `requests` counts as 1 if it is 0.
        retryable: a retry may work.

    Raises:
        UsageError: the kind is unknown, or retry_after or usage is invalid.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind = "provider",
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        if kind not in MODEL_ERROR_KINDS:
            hint = did_you_mean(kind, MODEL_ERROR_KINDS)
            raise UsageError(f"ModelError(kind={kind!r}): {hint}the kinds are {', '.join(MODEL_ERROR_KINDS)}")
        if usage is not None and not isinstance(usage, Usage):
            raise UsageError(f"ModelError(usage={usage!r:.80}): give a Usage, or None")
        self.kind = kind
        self.retry_after = _seconds(retry_after)
        self.usage = usage

    @property
    def retryable(self) -> bool:
        """True if a retry may work."""
        return self.kind in MAY_PASS


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:  # noqa: PLR0124 - NaN
        raise UsageError(f"ModelError(retry_after={value!r:.80}): give seconds as a number, or None")
    try:
        return max(0.0, float(value))
    except OverflowError:
        return math.inf


class StoreError(GreenroomError):
    """The store failed."""


class StoreOpenError(StoreError):
    """The store cannot be opened: locked by another process, damaged, of a newer release, or not permitted."""


class StoreUnavailable(StoreError):
    """The store does not answer now; the same call may work later."""


class NewerRelease(StoreUnavailable):
    """A newer release has written a row, which this one cannot read; the processes of that release can."""


class StoreDown(StoreError):
    """The store has failed for good in this process; for unacknowledged writes it is unknown whether they were made."""


class LeaseLost(StoreError):
    """The claim is not the newest; nothing was written."""


class LogReplaced(StoreError):
    """The logs of a shared store have another identity than when the follower began, such as after a failover.

    Sequences that were returned before mean nothing now: read the run again, and follow from the sequence of its view.
    """


class RunDegradedError(GreenroomError):
    """The run is not worked on in this process: its agent or deps are missing, or its owner crashed. It is unchanged.

    Attributes:
        run_id: the run.
        reason: deps_missing, agent_unknown, target_offline (the place of its workspace is not here), state_mismatch (a
            stored state key differs from the agent's declaration), or gave_up (the owner crashed again and again). In a
            store that several processes share, also dead_letter (its owners' processes ended again and again) and
            newer_schema (a newer release has written the run); and the others only if no live process has both the
            agent and the place.
        detail: a sentence.
    """

    def __init__(self, run_id: str, reason: str, detail: str) -> None:
        way = "" if reason == "target_offline" else "; continue it with runtime.resume(...)"
        super().__init__(f"run {run_id} is degraded ({reason}): {detail}{way}")
        self.run_id, self.reason, self.detail = run_id, reason, detail


class RuntimeClosed(GreenroomError):
    """The runtime is closing or closed; open it again to continue."""


class RuntimeFailed(GreenroomError):
    """The runtime cannot continue; `__cause__` is the reason. All its runs can be resumed at the next start."""
