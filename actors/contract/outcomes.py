"""The outcomes of a run: values, not exceptions.

`match` tells the four apart. A caller that wants the output and nothing else writes `outcome.output`: a Completed has
one, each of the others raises its own error there. Each has `tickets`; only a Waiting has any.

    outcome = await gr.run(agent, "hi")
    print(outcome.output)                       # or RunFailed, RunCancelled, RunWaiting
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

import attrs

from ..errors import GreenroomError
from .decisions import Ticket
from .lifecycle import Termination, TerminationKind
from .messages import FinishReason, Usage

T_co = TypeVar("T_co", covariant=True)


class OutcomeError(GreenroomError):
    """The outcome has no `output`.

    Attributes:
        outcome: the run's outcome.
    """

    outcome: Waiting | Failed | Cancelled

    def __init__(self, outcome: Waiting | Failed | Cancelled) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class RunFailedError(OutcomeError):
    """The run failed and has no output."""

    outcome: Failed

    def __str__(self) -> str:
        return f"the run failed ({self.outcome.code}): {self.outcome.message}"


class RunCancelledError(OutcomeError):
    """The run was cancelled and has no output."""

    outcome: Cancelled

    def __str__(self) -> str:
        whom = "" if self.outcome.by is None else f" by {self.outcome.by}"
        why = self.outcome.reason or self.outcome.code
        return f"the run was cancelled{whom}" + ("" if why is None else f": {why}")


class RunWaitingError(OutcomeError):
    """The run waits for decisions and has no output yet. Decide `outcome.tickets`, then wait with `Run.result`."""

    outcome: Waiting

    def __str__(self) -> str:
        tickets = self.outcome.tickets
        names = ", ".join(dict.fromkeys(ticket.tool or ticket.reason for ticket in tickets)) or "background tasks"
        return (
            f"the run waits for people ({names}) and has no output yet; decide about its tickets, then await result()"
        )


@attrs.frozen(kw_only=True)
class Completed(Generic[T_co]):
    """The run completed.

    Attributes:
        output: has the agent's output type.
        usage: The usage of all requests of the run.
        termination: why it ended.
        outcome_unknown: ids of calls and tasks that the end cut off, and whose effect may or may not have happened.
        finish: why the model ended its last answer. "length" and "content_filter" mean that the answer was cut; None if
            no model was called, or an older release ran the run.
    """

    output: T_co
    usage: Usage
    termination: Termination
    outcome_unknown: tuple[str, ...] = ()
    finish: FinishReason | None = None

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """Return (): a run that has ended waits for nobody."""
        return ()


@attrs.frozen(kw_only=True)
class Stopped(Completed[T_co]):
    """A stop condition ended the run. A Completed whose output may be missing (None).

    Attributes:
        code: the condition, such as "max_rounds".
        detail: how the condition was met.
    """

    code: str
    detail: str | None = None


@attrs.frozen(kw_only=True)
class Waiting:
    """The run is at rest and waits for decisions about these tickets."""

    tickets: tuple[Ticket, ...]

    @property
    def output(self) -> NoReturn:
        """Raise: there is no output yet.

        Raises:
            RunWaitingError: always.
        """
        raise RunWaitingError(self)

    @property
    def termination(self) -> Termination:
        """Why the run is at rest: suspended. The detail names the tickets' reasons, each once."""
        reasons = dict.fromkeys(ticket.reason for ticket in self.tickets)
        return Termination(kind=TerminationKind.SUSPENDED, detail=", ".join(reasons) or None)


@attrs.frozen(kw_only=True)
class Failed:
    """The run failed. `code` is a key of the failure catalogue, `message` is safe to show.

    `outcome_unknown`: ids of calls and tasks that the end cut off, and whose effect may or may not have happened.
    """

    code: str
    message: str
    termination: Termination
    outcome_unknown: tuple[str, ...] = ()

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """Return (): a run that has ended waits for nobody."""
        return ()

    @property
    def output(self) -> NoReturn:
        """Raise: the run has failed.

        Raises:
            RunFailedError: always.
        """
        raise RunFailedError(self)


@attrs.frozen(kw_only=True)
class Cancelled:
    """The run was cancelled. `code` is set if a policy cancelled it, such as approval_rejected.

    `outcome_unknown`: ids of calls and tasks that the end cut off, and whose effect may or may not have happened.
    """

    reason: str | None
    by: str | None
    code: str | None = None
    outcome_unknown: tuple[str, ...] = ()

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """Return (): a run that has ended waits for nobody."""
        return ()

    @property
    def output(self) -> NoReturn:
        """Raise: the run was cancelled.

        Raises:
            RunCancelledError: always.
        """
        raise RunCancelledError(self)
