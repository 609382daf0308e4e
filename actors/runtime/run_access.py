"""`RunAccess`: runs as programs see them, here or behind a gateway. `Runtime` and `Client` satisfy this protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, Protocol, Unpack

from ..abc import Pruned
from ..agents.attachments import File, Image
from ..contract.decisions import CommandResult, Decision
from ..contract.envelope import Event
from ..contract.lifecycle import RunStatus, Stage
from ..contract.run_lists import RunCounts, RunFilters
from ..contract.threads.messages import ThreadMessages
from ..permission.remembered import Always, RememberedRule
from ..processes import QueueInfo
from ..run.view import RunView


class ListLine(Protocol):
    """One line of a list of runs."""

    @property
    def run_id(self) -> str:
        """The run's id."""

    @property
    def agent(self) -> str:
        """The key of the run's agent."""

    @property
    def title(self) -> str:
        """One line that describes the run."""

    @property
    def status(self) -> RunStatus:
        """The run's status."""

    @property
    def stage(self) -> Stage:
        """The run's stage."""

    @property
    def asked_count(self) -> int:
        """Number of open tickets."""


class ListPage(Protocol):
    """A page of a list of runs; `cursor` leads to the next one."""

    @property
    def runs(self) -> Sequence[ListLine]:
        """The lines, in the order of the query."""

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page; None on the last page."""

    @property
    def counts(self) -> RunCounts | None:
        """Number of runs that are not done, if the filters ask for it."""


class ListedConversation(Protocol):
    """One line of a list of threads."""

    @property
    def thread_id(self) -> str:
        """The thread's id."""

    @property
    def title(self) -> str:
        """The title of the thread's oldest remaining run."""

    @property
    def runs(self) -> int:
        """Number of runs that were started in the thread."""

    @property
    def run(self) -> ListLine:
        """The run that the thread is at."""


class ConversationPage(Protocol):
    """A page of a list of threads; `cursor` leads to the next one."""

    @property
    def threads(self) -> Sequence[ListedConversation]:
        """The lines, the thread with the newest run first."""

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page; None on the last page."""


class RunAddress(Protocol):
    """A run that was forked."""

    @property
    def id(self) -> str:
        """The run's id."""

    @property
    def thread_id(self) -> str:
        """The thread of the run."""


class RunAccess(Protocol):
    """Reads of runs, and commands to runs, by id: of a `Runtime` in this process, or of a `Client` of a gateway.

    A program that is written against this class does not know where its runs are. Errors and guarantees are those of
    the methods with the same names; a client also raises its ConnectError.
    """

    @property
    def principal(self) -> str:
        """The name under which commands act."""

    async def runs(self, **filters: Unpack[RunFilters]) -> ListPage:
        """Return a page of runs."""

    async def threads(self, *, by: str | None = None, limit: int = 50, cursor: str | None = None) -> ConversationPage:
        """Return a page of threads, the one with the newest run first."""

    async def messages(
        self, thread_id: str, *, before: int | None = None, after: int | None = None, limit: int = 100
    ) -> ThreadMessages:
        """Return a page of a thread's messages, the newest ones without a position."""

    async def view(self, run_id: str) -> RunView:
        """Return one consistent snapshot of a run; at a client without messages and state."""

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact of a run."""

    def follow(self, run_id: str, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow a run's events from sequence `after + 1` to its end."""

    async def decide(self, run_id: str, decision: Decision, /, *, remember: Always | None = None) -> CommandResult:
        """Decide a ticket or a call; `remember`: a person's "always" beside an approval."""

    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask a run to end."""

    async def pause(self, run_id: str, *, reason: str | None = None, command_id: str | None = None) -> CommandResult:
        """Hold a run before its next step; a decision about its ticket continues the run."""

    async def send(
        self, run_id: str, text: str, *, attachments: Sequence[Image | File] = (), command_id: str | None = None
    ) -> CommandResult:
        """Give a run more input."""

    async def fork(self, run_id: str, *, step: int, new_run_id: str | None = None) -> RunAddress:
        """Start a run that begins where another run was at the end of a step."""

    async def revive_run(self, run_id: str) -> bool:
        """Let a dead letter be claimed again; False for any other run."""

    async def rules(self, run_id: str | None = None) -> Sequence[RememberedRule]:
        """Return the remembered rules, revoked ones included, the newest first; with a run, those that hold for it."""

    async def revoke_rule(self, rule_id: str) -> RememberedRule | None:
        """Revoke a remembered rule; None if no rule has this id."""

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues, by name."""

    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        """Limit a queue, or pause it."""

    async def prune(self, before: datetime) -> Pruned:
        """Delete the runs that ended before a time."""
