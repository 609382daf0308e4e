"""What a run came to: values, not exceptions."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

from .decisions import Ticket
from .lifecycle import Termination, TerminationKind
from .messages import FinishReason, Usage

T_co = TypeVar("T_co", covariant=True)


@attrs.frozen(kw_only=True)
class Completed(Generic[T_co]):
    """The run ended well.

    Attributes:
        output: has the agent's output type.
        usage: of all requests of the run. termination: why it ended.
        outcome_unknown: ids of the calls and tasks that the end cut, and whose effect may or may not have happened.
        finish: why the model ended its last answer. "length" and "content_filter" say that the answer was cut; None if
            no model was asked, or an older release has run it.
    """

    output: T_co
    usage: Usage
    termination: Termination
    outcome_unknown: tuple[str, ...] = ()
    finish: FinishReason | None = None


@attrs.frozen(kw_only=True)
class Stopped(Completed[T_co]):
    """A stop condition ended the run. A Completed whose output may be missing (None).

    Attributes:
        code: the condition, such as "max_rounds".
        detail: what it met.
    """

    code: str
    detail: str | None = None


@attrs.frozen(kw_only=True)
class Waiting:
    """The run is at rest and waits for decisions about these tickets."""

    tickets: tuple[Ticket, ...]

    @property
    def termination(self) -> Termination:
        """Why the run left its loop for now: suspended. The detail names the tickets' reasons, each once."""
        reasons = dict.fromkeys(ticket.reason for ticket in self.tickets)
        return Termination(kind=TerminationKind.SUSPENDED, detail=", ".join(reasons) or None)


@attrs.frozen(kw_only=True)
class Failed:
    """The run failed. `code` is one of the failure catalogue, `message` is safe to show.

    `outcome_unknown`: ids of the calls and tasks that the end cut, and whose effect may or may not have happened.
    """

    code: str
    message: str
    termination: Termination
    outcome_unknown: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Cancelled:
    """The run was cancelled. `code` is set when a policy did it, such as approval_rejected.

    `outcome_unknown`: ids of the calls and tasks that the end cut, and whose effect may or may not have happened.
    """

    reason: str | None
    by: str | None
    code: str | None = None
    outcome_unknown: tuple[str, ...] = ()
