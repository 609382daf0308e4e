"""The error tree. The type says whose fault it is; the message names the value and the way out.

    GreenroomError
    ├── UsageError (also ValueError)   a wrong argument, of whatever kind
    │   ├── UnknownRun                 no run has this id
    │   ├── UnknownAgent               no agent of this runtime has this key
    │   ├── RunExists                  the run id is taken by a run with other content
    │   │   └── RunPruned              the run id was that of a run that is pruned
    │   ├── ThreadBusy                 on_busy="refuse" and the thread has an active run
    │   ├── ThreadForbidden            the thread belongs to a principal whose runs the caller may not see
    │   ├── NotAnAgent                 a file or object that should hold an agent does not
    │   ├── ToolDefinitionError        a function can not be a tool as it stands
    │   ├── StateError                 a state key, or what is read from or written to it, is wrong
    │   └── AgentDefinitionError       an agent's parts do not fit together
    ├── ToolError                      raise it in a tool: the model is told its text, and nothing else
    ├── ModelError                     a model could not be called; `kind` is its class
    ├── StoreError                     the store can not do what it should
    │   ├── StoreOpenError             the store can not be opened: locked, damaged, newer, no permission
    │   ├── StoreUnavailable           it does not answer now; the same call may work later
    │   ├── StoreDown                  it has failed for good in this process
    │   └── LeaseLost                  the claim is not the newest; somebody else owns the run
    ├── OutcomeError                   an outcome without output was asked for it (`outcome.output`)
    │   ├── RunFailed                  the run has failed
    │   ├── RunCancelled               the run was cancelled
    │   └── RunWaiting                 the run waits for decisions
    ├── RunDegraded                    nobody works on the run here: its agent or deps are missing
    ├── RuntimeClosed                  the runtime is closing or closed
    └── RuntimeFailed                  the runtime can not go on; raised from its cause

Outcomes of runs (failed, cancelled) and wrong decisions are values, not exceptions. OutcomeError and its kinds stand
beside the outcomes, in `contract/outcomes.py`.
"""

from __future__ import annotations

import difflib
import math
from typing import Any, Final, Literal, get_args

from greenroom.supervision.public import restored

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
"""The kinds of a model's failure for which asking again may work."""
MODEL_ERROR_KINDS: Final[tuple[str, ...]] = get_args(ModelErrorKind)


class GreenroomError(Exception):
    """Every error that Greenroom raises on purpose. It can be pickled, and comes out of the pickle whole."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args, vars(self))


class UsageError(GreenroomError, ValueError):
    """The caller gave something that can not be."""


class UnknownRun(UsageError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run has the id {run_id!r}; list the known ones with runtime.runs()")
        self.run_id = run_id


class UnknownAgent(UsageError):
    """No agent of this runtime has this key."""


class RunExists(UsageError):
    """The run id is taken by a run with other content."""


class RunPruned(RunExists):
    """A run had this id, is done, and was pruned: a run id is used once, so that a start that is repeated acts once.

    Attributes:
        same: it is known that the same was asked for.
    """

    def __init__(self, message: str, *, same: bool = False) -> None:
        super().__init__(message)
        self.same = same


class ThreadBusy(UsageError):
    """The thread has an active run and the caller did not want to queue.

    Attributes:
        active: the run that works on the thread; "" if that is not known here.
    """

    def __init__(self, message: str, *, active: str = "") -> None:
        super().__init__(message)
        self.active = active


class ThreadForbidden(UsageError):
    """The thread belongs to a principal whose runs the caller may not see."""


class AgentLoadError(UsageError):
    """A file or object that should hold an agent does not."""


class ToolDefinitionError(UsageError):
    """A function can not be a tool as it stands."""


class StateError(UsageError):
    """A state key is wrong, or a value does not have its type."""


class AgentDefinitionError(UsageError):
    """An agent's parts do not fit together."""


class ToolError(GreenroomError):
    """Raise it in a tool: the model is told its text, and nothing else."""


class ModelError(GreenroomError):
    """A model could not be called. Raise it in a model of your own; a run asks again if the kind may pass.

    | kind | meaning | asked again |
    |---|---|---|
    | rate_limited | too many requests or tokens in a while | yes |
    | quota_exceeded | the account has nothing left to spend | no |
    | overloaded | the provider has no capacity now | yes |
    | timeout | no answer in time | yes |
    | interrupted | the stream broke before its end | yes |
    | context_overflow | the request is longer than the model takes | no |
    | invalid_request | the provider refuses the request as it is | no |
    | unauthorized | the key is missing, wrong, or may not do this | no |
    | model_not_found | the provider has no such model | no |
    | content_filtered | a filter of the provider stopped the request or the answer | no |
    | provider | everything else, such as an internal error | yes |

    Attributes:
        kind: the class of the failure.
        retry_after: seconds that the provider asks to wait before the next request (its Retry-After); None: it did not.
            A moment that has passed, a negative number, is 0.
        usage: tokens that the failed request has cost, as far as they are known; `requests` is 1 if it says 0.
        retryable: asking again may work.

    Raises:
        UsageError: the kind is not one of these, or a number or the usage is something else.
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
            near = difflib.get_close_matches(str(kind), MODEL_ERROR_KINDS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(f"ModelError(kind={kind!r}): {hint}the kinds are {', '.join(MODEL_ERROR_KINDS)}")
        if usage is not None and not isinstance(usage, Usage):
            raise UsageError(f"ModelError(usage={usage!r:.80}): give a Usage, or None")
        self.kind = kind
        self.retry_after = _seconds(retry_after)
        self.usage = usage

    @property
    def retryable(self) -> bool:
        """Asking again may work."""
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
    """The store can not do what it should."""


class StoreOpenError(StoreError):
    """The store can not be opened: locked by another process, damaged, of a newer release, or not permitted."""


class StoreUnavailable(StoreError):
    """The store does not answer now; the same call may work later."""


class StoreDown(StoreError):
    """The store has failed for good in this process; what was not acknowledged was not written, or is unknown."""


class LeaseLost(StoreError):
    """The claim is not the newest one; nothing was written."""


class RunDegradedError(GreenroomError):
    """Nobody works on the run in this process: its agent or deps are missing, or it crashes. It stays as it is.

    Attributes:
        run_id: which run.
        reason: deps_missing, agent_unknown, state_mismatch (a state key is stored otherwise than the agent declares
            it), or gave_up (its owner crashed again and again).
        detail: a sentence.
    """

    def __init__(self, run_id: str, reason: str, detail: str) -> None:
        super().__init__(f"run {run_id} is degraded ({reason}): {detail}; continue it with runtime.resume(...)")
        self.run_id, self.reason, self.detail = run_id, reason, detail


class RuntimeClosed(GreenroomError):
    """The runtime is closing or closed; open it again to go on."""


class RuntimeFailed(GreenroomError):
    """The runtime can not go on; `__cause__` says why. All its runs can be resumed at the next start."""
