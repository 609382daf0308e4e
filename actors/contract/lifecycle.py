"""The run's lifecycle as a table: ten stages for people, four statuses for programs.

Theory of operation. A run is created once, becomes ready (created, planned, accepted, preparing), works (running,
applying), may wait for people (needs_approval), and ends exactly once (completed, failed, cancelled). `STAGES` lists
the stages that may follow each stage; every other move is a bug and raises `IllegalTransition`. `status` is a total
function of the stage and stored nowhere. Every move is one lifecycle event in the commit that writes the run row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from .row_forms import Value


class IllegalTransition(RuntimeError):
    """A machine was asked for a move that its table does not have: a bug in Greenroom, never a user's mistake.

    Attributes:
        machine, source, target: the move.
        legal: the states that may follow `source`, by name.
    """

    def __init__(self, machine: str, source: str, target: str, legal: Iterable[str]) -> None:
        self.machine, self.source, self.target, self.legal = machine, source, target, tuple(sorted(legal))
        following = ", ".join(self.legal) or "nothing"
        super().__init__(f"{machine}: {source} -> {target} is not in the table; {source} is followed by {following}")


class Stage(StrEnum):
    """The stage of a run, for people and the audit."""

    CREATED = "created"
    PLANNED = "planned"
    ACCEPTED = "accepted"
    PREPARING = "preparing"
    RUNNING = "running"
    NEEDS_APPROVAL = "needs_approval"
    APPLYING = "applying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunStatus(StrEnum):
    """The status of a run, for programs: a projection of the stage."""

    CREATED = "created"
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"


PLANNED: Final[Stage] = Stage.PLANNED
NEEDS_APPROVAL: Final[Stage] = Stage.NEEDS_APPROVAL
COMPLETED: Final[Stage] = Stage.COMPLETED
WAITING: Final[RunStatus] = RunStatus.WAITING
DONE: Final[RunStatus] = RunStatus.DONE
"""The stages and statuses that every run is asked about, as constants: see `phases.ENDED`."""

_S = Stage

STAGES: Final[Mapping[Stage, frozenset[Stage]]] = {
    _S.CREATED: frozenset({_S.PLANNED, _S.FAILED, _S.CANCELLED}),
    _S.PLANNED: frozenset({_S.ACCEPTED, _S.FAILED, _S.CANCELLED}),
    _S.ACCEPTED: frozenset({_S.PREPARING, _S.FAILED, _S.CANCELLED}),
    _S.PREPARING: frozenset({_S.RUNNING, _S.FAILED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.NEEDS_APPROVAL, _S.APPLYING, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    _S.NEEDS_APPROVAL: frozenset({_S.RUNNING, _S.APPLYING, _S.FAILED, _S.CANCELLED}),
    _S.APPLYING: frozenset({_S.RUNNING, _S.NEEDS_APPROVAL, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""Stage -> the stages that may follow. An empty set is a terminal stage."""

STATUS: Final[Mapping[Stage, RunStatus]] = {
    _S.CREATED: RunStatus.CREATED,
    _S.PLANNED: RunStatus.CREATED,
    _S.ACCEPTED: RunStatus.CREATED,
    _S.PREPARING: RunStatus.CREATED,
    _S.RUNNING: RunStatus.RUNNING,
    _S.APPLYING: RunStatus.RUNNING,
    _S.NEEDS_APPROVAL: RunStatus.WAITING,
    _S.COMPLETED: RunStatus.DONE,
    _S.FAILED: RunStatus.DONE,
    _S.CANCELLED: RunStatus.DONE,
}

TERMINAL: Final = frozenset(stage for stage, following in STAGES.items() if not following)
"""The final stages."""

APPLYING_EFFECTS: Final = frozenset({"write", "patch", "shell", "publish", "deploy"})
"""Effect classes of tools that change the world outside the run; while such a body executes, the run is `applying`."""


class TerminationKind(StrEnum):
    """The kinds of reasons why a run ended."""

    NATURAL_END = "natural_end"
    BEHAVIOR_REQUESTED = "behavior_requested"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    SUSPENDED = "suspended"
    ERROR = "error"


TERMINATION_STAGE: Final[Mapping[TerminationKind, Stage]] = {
    TerminationKind.NATURAL_END: _S.COMPLETED,
    TerminationKind.BEHAVIOR_REQUESTED: _S.COMPLETED,
    TerminationKind.STOPPED: _S.COMPLETED,
    TerminationKind.CANCELLED: _S.CANCELLED,
    TerminationKind.BLOCKED: _S.FAILED,
    TerminationKind.SUSPENDED: _S.NEEDS_APPROVAL,
    TerminationKind.ERROR: _S.FAILED,
}
"""Only `suspended` maps to waiting; every other kind ends the run."""


class Termination(Value, frozen=True, kw_only=True):
    """Why a run ended.

    Attributes:
        kind: one of `TerminationKind`.
        code: for stopped the stop condition, for blocked and error a key of `FAILURES`, for cancelled an optional code
            such as approval_rejected.
        detail: a text for people; redacted where it is in an event.
        by: the principal that cancelled.
        error_id: for a failure of user code (tool, hook, model): the id of its log line.
        call_id: The call that failed, if its tool declares that a failure ends the run.
    """

    kind: TerminationKind
    code: str | None = None
    detail: str | None = None
    by: str | None = None
    error_id: str | None = None
    call_id: str | None = None
