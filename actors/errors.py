"""The error tree. The type says whose fault it is; the message names the value and the way out.

    GreenroomError
    ├── UsageError (also ValueError)   the caller gave something that can not be
    │   ├── UnknownRun                 no run has this id
    │   ├── UnknownAgent               no agent of this runtime has this key
    │   ├── RunExists                  the run id is taken by a run with other content
    │   ├── ThreadBusy                 on_busy="refuse" and the thread has an active run
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
    ├── RunDegraded                    nobody works on the run here: its agent or deps are missing
    ├── RuntimeClosed                  the runtime is closing or closed
    └── RuntimeFailed                  the runtime can not go on; raised from its cause

Outcomes of runs (failed, cancelled) and wrong decisions are values, not exceptions.
"""

from __future__ import annotations

from typing import Literal

ModelErrorKind = Literal[
    "rate_limited",
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


class GreenroomError(Exception):
    """Every error that Greenroom raises on purpose."""


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


class ThreadBusy(UsageError):
    """The thread has an active run and the caller did not want to queue."""


class NotAnAgent(UsageError):
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
    """A model could not be called.

    Attributes:
        kind: the class of the failure, such as rate_limited or unauthorized.
        retryable: asking again may work.
    """

    def __init__(self, message: str, *, kind: ModelErrorKind = "provider") -> None:
        super().__init__(message)
        self.kind = kind

    @property
    def retryable(self) -> bool:
        """Asking again may work."""
        return self.kind in ("rate_limited", "overloaded", "timeout", "interrupted", "provider")


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


class RunDegraded(GreenroomError):
    """Nobody works on the run in this process: its agent or deps are missing, or it crashes. It stays as it is.

    Attributes:
        run_id: which run.
        reason: deps_missing, agent_unknown, or gave_up (its owner crashed again and again).
        detail: a sentence.
    """

    def __init__(self, run_id: str, reason: str, detail: str) -> None:
        super().__init__(f"run {run_id} is degraded ({reason}): {detail}; continue it with runtime.resume(...)")
        self.run_id, self.reason, self.detail = run_id, reason, detail


class RuntimeClosed(GreenroomError):
    """The runtime is closing or closed; open it again to go on."""


class RuntimeFailed(GreenroomError):
    """The runtime can not go on; `__cause__` says why. All its runs can be resumed at the next start."""
