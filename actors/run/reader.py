"""`RunReader`: all that can be seen of the runs of a runtime. It writes nothing; commands are in `commands.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

import attrs
import trio

from ..abc import RunPage, RunQuery, StoreStatistics
from ..contract.calls import CallStatus
from ..contract.decisions import Ticket
from ..contract.lifecycle import RunStatus
from ..contract.redaction import Redactor
from ..contract.rows import RunInfo, RunOutline, RunRecord
from ..errors import RunDegradedError, RuntimeClosed, StoreDown, StoreError, StoreUnavailable, UnknownRun, UsageError
from .agents import Agents
from .callbacks import StoreReports
from .change_signals import RunSignal
from .error_log import RUN
from .follow import EventSource, Follower, follow
from .listing import shown_page
from .run_actor import RunActor
from .run_registry import RunRegistry
from .services import Services, retry_until_available
from .view import RunView, make_outcome, make_view
from .wait_reasons import may_be_held, waiting_for

_WORKING: Final = (RunStatus.CREATED, RunStatus.RUNNING)


@attrs.frozen(kw_only=True)
class RuntimeStatistics:
    """What a runtime holds now.

    Attributes:
        live: runs that are in memory.
        followed: runs whose events are followed.
        store: of the store.
    """

    live: int
    followed: int
    store: StoreStatistics


@attrs.define(eq=False, repr=False)
class RunReader:
    """Reads runs by their ids, for programs that show them to others; `Run` has the same for one run.

    The gateway is made of it. What it returns may be private: rows (`record`, `outline`, `ticket`) are as they are
    stored, and have to pass the redactor before they are shown; pages, views, outcomes and events have passed it.
    Every method that reads raises RuntimeClosed once the runtime is closed, and StoreUnavailable while its store does
    not answer.
    """

    _services: Services
    _roster: RunRegistry
    _agents: Agents
    _reports: StoreReports
    _log: EventSource = attrs.field(init=False)
    _unreadable: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._log = EventSource(self._services.store, self._services.board, self.degraded)

    def __repr__(self) -> str:
        return f"<RunReader of {self._services.store!r}>"

    # --- the runtime as a whole --------------------------------------------------------------------------------------

    @property
    def redactor(self) -> Redactor:
        """Hides secrets in what is shown."""
        return self._services.redactor

    @property
    def outage(self) -> Exception | None:
        """Why the store does not answer now; None if it does."""
        return self._reports.outage

    def statistics(self) -> RuntimeStatistics:
        """What the runtime holds now."""
        return RuntimeStatistics(
            live=len(self._roster), followed=self._services.board.followed, store=self._services.store.statistics()
        )

    def check_open(self) -> None:
        """Raise once nothing can be read any more.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        self._services.board.check_open()

    async def closed(self) -> None:
        """Wait until the runtime is closed: nothing can be looked up or followed any more."""
        await trio.lowlevel.checkpoint()
        try:
            while True:
                await self._services.board.runtime.change().wait()
        except RuntimeClosed:
            return

    def on_change(
        self, changed: Callable[[str, Sequence[bytes]], None], pruned: Callable[[], None]
    ) -> Callable[[], None]:
        """Call back when runs change, for lists that are kept up to date; returns a function that ends it.

        Both are called synchronously, in the stretch that makes a change durable: they must be short and must not
        raise.

        Args:
            changed: gets the id of a run that has changed durably, and the events of the commit (none: something else
                about the run is new).
            pruned: is called after runs were deleted.
        """
        board = self._services.board
        board.listeners.add(changed)
        board.sweep_listeners.add(pruned)

        def end() -> None:
            board.listeners.discard(changed)
            board.sweep_listeners.discard(pruned)

        return end

    # --- lists -------------------------------------------------------------------------------------------------------

    async def page(self, query: RunQuery) -> RunPage:
        """A page of runs, by a query; see `Runtime.runs`.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """
        with self._services.board.looking():
            page = await self._services.store.runs(query)
        return self._shown(page)

    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        """The lines of these runs, as `page` shows them; an id that is not there is left out."""
        with self._services.board.looking():
            page = await self._services.store.summaries(run_ids, counts=counts)
        return self._shown(page)

    def _shown(self, page: RunPage) -> RunPage:
        for run_id in page.unreadable:
            if run_id not in self._unreadable:  # once: lists are read again and again
                self._unreadable.add(run_id)
                text = f"the rows of run {run_id} can not be read; lists leave it out"
                self._services.journal.note(RUN, logging.WARNING, text)
        return shown_page(page, self.redactor)

    # --- rows --------------------------------------------------------------------------------------------------------

    async def info(self, run_id: str) -> RunInfo | None:
        """The constant facts of a run, from memory if it has an owner here; None if there is no such run."""
        actor = self._roster.get(run_id)
        if actor is not None and actor.durable is not None:
            return actor.durable.info
        outline = await self.outline(run_id)
        return None if outline is None else outline.info

    async def outline(self, run_id: str) -> RunOutline | None:
        """A run without its calls, tickets and commands; None if there is no such run. See `Store.outline`."""
        with self._services.board.looking():
            return await self._services.store.outline(run_id)

    async def record(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        """One consistent snapshot of a run's rows; None if there is no such run. See `Store.load`."""
        with self._services.board.looking():
            return await self._services.store.load(run_id, calls=calls)

    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        """A ticket by its id, or the newest one of a call by the call's; None if there is neither."""
        with self._services.board.looking():
            return await self._services.store.ticket(run_id, target)

    # --- events ------------------------------------------------------------------------------------------------------

    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        """A page of encoded events with sequence > `after`; see `Store.events`."""
        with self._services.board.looking():
            return await self._services.store.events(run_id, after=after, limit=limit, max_bytes=max_bytes)

    def follow(
        self, run_id: str, *, after: int = 0, until: Literal["end", "rest"] = "end"
    ) -> AbstractContextManager[Follower]:
        """Follow a run in slices of encoded events: what `Run.events`, the gateway and the pages are made of.

            with runtime.reader.follow(run_id, after=seen) as follower:
                async for found in follower:
                    write(b"".join(found.frames))

        The same guarantees as `Run.events`; for whoever passes the bytes on, and does not look into them.

        Raises:
            UsageError: `after` is negative, or `until` is not known. RuntimeClosed: the runtime is closed.
            UnknownRun, RunDegraded, RuntimeClosed, StoreError: from the iteration.
        """
        if type(after) is not int or after < 0 or until not in ("end", "rest"):
            raise UsageError(f"follow(after={after!r}, until={until!r}): give after >= 0 and until 'end' or 'rest'")
        return follow(self._log, run_id, after, until)

    # --- how a run is ------------------------------------------------------------------------------------------------

    async def view(self, run_id: str) -> RunView:
        """One consistent, durable snapshot; see `Run.view`.

        Raises:
            UnknownRun: no such run.
        """
        services = self._services
        record = await self._readable(run_id, calls="all")
        with services.board.looking():
            thread = tuple(await services.store.messages(record.info.thread_id))
        done = record.row.status is RunStatus.DONE
        if record.at_rest and not done:
            self._asks_anew(record)  # the next view shows the new ticket
        reason = None if done else self.missing_requirement(record)
        outline = await self.outline(run_id) if may_be_held(record) else None
        waits = waiting_for(self._roster, record, outline, reason)
        degraded = None if reason is None else reason[0]
        return make_view(record, thread, services.redactor, degraded, waits)

    async def outcome(self, run_id: str, *, final: bool) -> Any:
        """What a run came to: once it is at rest, or (`final`) done; see `Run.wait` and `Run.result`.

        Raises:
            UnknownRun: no such run. RunDegraded: nobody works on it here. RuntimeClosed: the runtime closes first.
        """
        actor: RunActor | None = None
        signal: RunSignal | None = None
        while True:
            live = self._roster.get(run_id)
            actor = live or actor
            known = None if actor is None else actor.durable
            if known is not None and known.row.status is RunStatus.DONE and not known.row.stubborn:
                record = RunRecord(info=known.info, row=known.row)  # the receipt has been seen: no need to look again,
                await self._roster.gone(run_id, record)  # also if the runtime was closed before this task's turn
                return self._outcome_of(record)
            signal = signal or self._services.board.signal(run_id)
            notice = signal.rest()
            if known is not None and known.row.status in _WORKING and live is not None:
                await notice.wait()  # its owner is here: what comes next is told here
                continue
            looked = await self._looked(run_id, notice)
            if looked is None:
                continue
            record = looked
            done = record.row.status is RunStatus.DONE
            if done:
                await self._roster.gone(run_id, record)
            if record.at_rest and not done and self._asks_anew(record):
                await notice.wait()
                continue
            if done or (record.at_rest and not final):
                return self._outcome_of(record)
            reason = self.degraded(record)
            if reason is not None and (final or not record.at_rest):
                raise RunDegradedError(run_id, *reason)
            await notice.wait()

    def _outcome_of(self, record: RunRecord) -> Any:
        return make_outcome(record, self._agents.get(record.info.agent), self.redactor)

    async def _looked(self, run_id: str, notice: trio.Event) -> RunRecord | None:
        """The run's record; None if it could not be read while its owner was still at it, and that has changed."""
        try:
            return await retry_until_available(self._readable, run_id)
        except StoreDown:
            raise
        except StoreError as error:
            reason = self._roster.degraded(run_id)
            if reason is not None:
                raise RunDegradedError(run_id, *reason) from error
            if self._roster.get(run_id) is None:
                raise
        await notice.wait()
        return None

    async def _readable(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord:
        """The run's record; of a run that is done and has a row that can not be read, its own row.

        Raises:
            UnknownRun: no such run.
        """
        store = self._services.store
        with self._services.board.looking():
            try:
                record = await store.load(run_id, calls=calls)
            except StoreUnavailable:
                raise
            except StoreError:  # a row can not be read: of a run that is done its own row is enough
                outline = await store.outline(run_id)  # noqa: ASYNC120 - a read that is cancelled has nothing to report
                if outline is None or outline.row is None or outline.status is not RunStatus.DONE:
                    raise
                record = RunRecord(info=outline.info, row=outline.row)
        if record is None:
            raise UnknownRun(run_id)
        return record

    def degraded(self, record: RunRecord) -> tuple[str, str] | None:
        """Why nobody works on a run that is not done here, or None: (deps_missing, agent_unknown, ..., and the detail).

        None also while its owner looks what has come: it may be what needs no agent, such as a cancel. Of a run that
        waits and is not in memory see `lacking`.
        """
        reason = self._roster.degraded(record.info.run_id)
        owned = self._roster.get(record.info.run_id) is not None
        if reason is not None or owned or record.row.status is not RunStatus.WAITING:
            return reason
        return self.missing_requirement(record)

    def missing_requirement(self, record: RunRecord) -> tuple[str, str] | None:
        """What a run that is not done needs and does not have here, or None; its owner may be doing without just now.

        Of a run whose owner has not asked yet it is known whether its agent is here, and whether there is anybody who
        could have its deps; a provider is asked when the run is woken.
        """
        info, actor = record.info, self._roster.get(record.info.run_id)
        known = self._roster.degraded(info.run_id) if actor is None else actor.degraded
        if known is not None or (actor is not None and actor.abandon is not None):
            return known
        has_agent = actor is not None and actor.agent is not None
        return self._agents.missing_requirement(
            info, has_agent=has_agent, has_deps=actor is not None and actor.has_deps
        )

    def _asks_anew(self, record: RunRecord) -> bool:
        """True if a tool has changed since a person was asked about a call, and the run is about to ask again.

        A run that waits is not in memory after a restart, and so has not noticed: it gets an owner.
        """
        name = record.info.run_id
        actor = self._roster.get(name)
        agent = (None if actor is None else actor.agent) or self._agents.get(record.info.agent)
        asked = [call for call in record.calls if call.status is CallStatus.SUSPENDED and call.definition]
        if agent is None or all(
            agent.spec.definition(call.tool, call.call_id) in ("", call.definition) for call in asked
        ):
            return False
        self._roster.wake(name)
        return self._roster.get(name) is not None
