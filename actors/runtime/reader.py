"""`RunReader`: reads of a runtime's runs by id. The reader writes nothing; commands are in `commands.py`.

Theory of operation. Every read goes to the store, and only what is durable is shown; the live actors are consulted only
to know whether a run has an owner here, and what its owner lacks. A method that waits takes a notice from the run's
signal first, reads second and waits last, so it misses no change (`change_signals.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, Literal

import attrs
import trio

from ..abc import StoreStatistics
from ..contract.artifacts import Artifact
from ..contract.calls import CallStatus
from ..contract.decisions import Ticket
from ..contract.lifecycle import DONE, RunStatus, Stage
from ..contract.messages import Message
from ..contract.rows import RunInfo, RunOutline, RunRecord
from ..contract.run_lists import Backlog, EndedRuns, RunPage, RunQuery
from ..contract.secrets.redaction import Redactor
from ..contract.state import LAST_AGENT, KeyId
from ..contract.ticket_lists import TicketPage, TicketQuery
from ..engine.lost_questions import lost_questions
from ..errors import (
    RunDegradedError,
    RuntimeClosed,
    StoreDown,
    StoreError,
    StoreUnavailable,
    ThreadForbidden,
    UnknownRun,
    UsageError,
)
from ..run.run_actor import RunActor
from ..run.view import RunView, outcome_steps, view_steps
from ..services.agents import Agents
from ..services.callbacks import StoreReports
from ..services.change_signals import RunSignal
from ..services.error_log import RUN
from ..services.follow import EventSource, Follower, follow
from ..services.sanitize import GREATEST, InvalidValue, check_range, run_id_of, target_of, text_of
from ..services.services import Services, retry_until_available
from ..services.stepping import in_steps
from ..state.values import shown
from .artifacts import read_artifact
from .listing import shown_page, shown_ticket_page_steps
from .run_registry import RunRegistry
from .thread_access import MayJoin, open_to
from .thread_reading import ThreadReading
from .wait_reasons import may_be_held, waiting_for

MOST_UNREADABLE: Final = 1_000
"""Unreadable runs that are known to be logged."""
_WORKING: Final = (RunStatus.CREATED, RunStatus.RUNNING)


@attrs.frozen(kw_only=True)
class RuntimeStatistics:
    """Current sizes of a runtime.

    Attributes:
        live: runs in memory.
        followed: runs whose events are followed.
        store: the store's own statistics.
    """

    live: int
    followed: int
    store: StoreStatistics


@attrs.define(eq=False, repr=False)
class RunReader:
    """Reads runs by id, for programs that show runs to others; `Run` offers the same for one run.

    The gateway is built on this class. Rows (`record`, `outline`, `ticket`, `info`) are private: they are as stored,
    and must pass the redactor before they are shown. Pages, views, outcomes and events are already redacted. Every
    method that reads raises UsageError for a run id that is not a str, RuntimeClosed once the runtime is closed,
    StoreUnavailable while the store does not answer, and StoreError if a row of the run is damaged.
    """

    _services: Services
    _registry: RunRegistry
    _agents: Agents
    _reports: StoreReports
    threads: ThreadReading = attrs.field(init=False)
    """Reads of threads: lists, messages, parts."""
    _source: EventSource = attrs.field(init=False)
    _unreadable: set[str] = attrs.field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self._source = EventSource(self._services.store, self._services.signals, self.degraded)
        self.threads = ThreadReading(self._services)

    def __repr__(self) -> str:
        return f"<RunReader of {self._services.store!r}>"

    # --- the runtime as a whole --------------------------------------------------------------------------------------

    @property
    def redactor(self) -> Redactor:
        """Masks secrets in shown values."""
        return self._services.redactor

    @property
    def outage(self) -> Exception | None:
        """Why the store is unavailable; None if it answers."""
        return self._reports.outage

    def crashed(self) -> Mapping[str, int]:
        """Return the parts of the runtime that have crashed within the last minute: name -> number of crashes."""
        return self._reports.crashes.counts()

    def statistics(self) -> RuntimeStatistics:
        """Return the runtime's current sizes."""
        return RuntimeStatistics(
            live=len(self._registry), followed=self._services.signals.followed, store=self._services.store.statistics()
        )

    def check_open(self) -> None:
        """Raise once reads are refused.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        self._services.signals.check_open()

    async def closed(self) -> None:
        """Wait until the runtime is closed and no run can be read or followed any more."""
        await trio.lowlevel.checkpoint()
        try:
            while True:
                await self._services.signals.runtime.change().wait()
        except RuntimeClosed:
            return

    def on_change(
        self, listener: Callable[[str, Sequence[bytes]], None], sweep_listener: Callable[[], None]
    ) -> Callable[[], None]:
        """Register callbacks for changed runs, for lists that are kept up to date.

        Returns a function that removes them.

        Both are called synchronously in the stretch that makes a change durable: they must be short and must not raise.

        Args:
            listener: Called with the id of a run that changed durably, and the events of the commit (empty: another
                fact about the run changed).
            sweep_listener: Called after runs were pruned.
        """
        signals = self._services.signals
        signals.listeners.add(listener)
        signals.sweep_listeners.add(sweep_listener)

        def end() -> None:
            signals.listeners.discard(listener)
            signals.sweep_listeners.discard(sweep_listener)

        return end

    def on_rename(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Register a callback for a new identity of the logs of a shared store; returns a function that removes it.

        The callback gets the new epoch, synchronously; it must be short and must not raise. Followers that began before
        raise LogReplaced; new ones may begin in the callback.
        """
        listeners = self._services.signals.rename_listeners
        listeners.add(listener)
        return lambda: listeners.discard(listener)

    # --- lists -------------------------------------------------------------------------------------------------------

    async def page(self, query: RunQuery, *, among: Sequence[str] | None = None) -> RunPage:
        """Return the page of runs for a query; see `Runtime.runs`. `among`: ids of the only runs that may be listed.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """
        if not isinstance(query, RunQuery):
            raise UsageError(f"page({query!r:.200}): give a RunQuery, or use runtime.runs(...)")
        with self._services.signals.looking():
            page = await self._services.store.runs(query, among=among, shown=self.redactor.text)
        return self._shown(page)

    async def throughput(self, since: datetime) -> Sequence[EndedRuns]:
        """Count the runs that have ended since a time with a zone, by hour and outcome; empty hours are left out."""
        with self._services.signals.looking():
            return await self._services.store.throughput(since)

    async def backlog(self) -> Backlog:
        """Count the runs that are not done, their threads and their open tickets; see `Store.backlog`."""
        with self._services.signals.looking():
            return await self._services.store.backlog()

    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        """Return the list lines of these runs, as `page` does; unknown ids are left out.

        Raises:
            UsageError: the argument is one text or no sequence, or an id is invalid.
        """
        if isinstance(run_ids, str) or not isinstance(run_ids, Sequence):
            raise UsageError(f"summaries({run_ids!r:.200}): give a list of run ids")
        run_ids = [*map(run_id_of, run_ids)]
        with self._services.signals.looking():
            page = await self._services.store.summaries(run_ids, counts=counts)
        return self._shown(page)

    async def tickets(self, query: TicketQuery) -> TicketPage:
        """Return the page of open tickets for a query, redacted, with the titles of their runs.

        Raises:
            UsageError: a value is invalid, or the cursor belongs to another query.
        """
        if not isinstance(query, TicketQuery):
            raise UsageError(f"tickets({query!r:.200}): give a TicketQuery")
        with self._services.signals.looking():
            page = await self._services.store.tickets(query)
        return await in_steps(shown_ticket_page_steps(page, self.redactor))

    def _shown(self, page: RunPage) -> RunPage:
        for run_id in page.unreadable:
            if run_id not in self._unreadable:  # logged once per run: lists are read often
                if len(self._unreadable) >= MOST_UNREADABLE:  # some of them may have been pruned
                    self._unreadable.clear()
                self._unreadable.add(run_id)
                text = f"the rows of run {run_id} cannot be read; lists leave it out"
                self._services.log.note(RUN, logging.WARNING, text)
        return shown_page(page, self.redactor)

    # --- rows --------------------------------------------------------------------------------------------------------

    async def info(self, run_id: str) -> RunInfo | None:
        """Return the constant facts of a run, from memory if the run has an owner here; None if no run has this id."""
        run_id = run_id_of(run_id)
        actor = self._registry.get(run_id)
        if actor is not None and actor.durable is not None:
            return actor.durable.info
        outline = await self.outline(run_id)
        return None if outline is None else outline.info

    async def outline(self, run_id: str) -> RunOutline | None:
        """Return a run without calls, tickets and commands; None if no run has this id. See `Store.outline`."""
        run_id = run_id_of(run_id)
        with self._services.signals.looking():
            return await self._services.store.outline(run_id)

    async def record(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        """Return one consistent snapshot of a run's rows; None if no run has this id. See `Store.load`."""
        run_id = run_id_of(run_id)
        with self._services.signals.looking():
            return await self._services.store.load(run_id, calls=calls)

    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        """Return a ticket by its id, or the newest ticket of a call by the call's id; None if neither exists."""
        run_id = run_id_of(run_id)
        try:
            target = target_of(target)
        except InvalidValue:
            target = ""  # no ticket's id
        with self._services.signals.looking():
            return await self._services.store.ticket(run_id, target)

    async def check_thread(
        self, info: RunInfo, by: str, may_join: MayJoin, *, copied: Sequence[Message] | None = None
    ) -> None:
        """Check that a principal may read the thread of a run up to the end of this run.

        For programs that pass on the words of others to a run: its model has read all of that. See `Runtime.start` for
        `may_join`. `copied`: only these messages count.

        Raises:
            ThreadForbidden: `may_join` refuses a run that wrote there.
        """
        store = self._services.store
        with self._services.signals.looking():
            thread = await store.thread(info.thread_id)
            up_to = info.run_id
            if thread is None or await open_to(store, thread, by, may_join, up_to=up_to, copied=copied):
                return
        raise ThreadForbidden(f"the thread of run {info.run_id!r} is not open to {by!r}: a run reads all of its thread")

    # --- events ------------------------------------------------------------------------------------------------------

    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        """Return a page of encoded events with sequence > `after`; see `Store.events`.

        Raises:
            UsageError: the run id is invalid, or a number is not a whole number in its range.
        """
        run_id = run_id_of(run_id)
        most = GREATEST if max_bytes is None else max_bytes
        for name, value, least in (("after", after, 0), ("limit", limit, 1), ("max_bytes", most, 1)):
            if type(value) is not int or not least <= value <= GREATEST:
                raise UsageError(f"events({name}={value!r:.100}): give a whole number, {least} or more")
        with self._services.signals.looking():
            return await self._services.store.events(run_id, after=after, limit=limit, max_bytes=max_bytes)

    def follow(
        self, run_id: str, *, after: int = 0, until: Literal["end", "rest"] = "end"
    ) -> AbstractContextManager[Follower]:
        """Follow a run in slices of encoded events. `Run.events`, the gateway and its pages are built on this method.

            with runtime.reader.follow(run_id, after=seen) as follower:
                async for found in follower:
                    write(b"".join(found.frames))

        The same guarantees as `Run.events`, for programs that pass the bytes on without decoding them.

        Raises:
            UsageError: `after` is negative, or `until` is unknown.
            RuntimeClosed: the runtime is closed.
            UnknownRun, RunDegradedError, RuntimeClosed, StoreError: from the iteration.
        """
        check_range("follow", after, until)
        return follow(self._source, run_id_of(run_id), after, until)

    # --- how a run is ------------------------------------------------------------------------------------------------

    async def view(self, run_id: str) -> RunView:
        """Return one consistent, durable snapshot; see `Run.view`.

        Raises:
            UnknownRun: no run has this id.
        """
        services = self._services
        record = await self._readable(run_id, calls="all")
        with services.signals.looking():
            thread = tuple(await services.store.messages(record.info.thread_id))
        done = record.row.status is DONE
        if record.at_rest and not done:
            self._asks_anew(record)  # a later view shows the new ticket
        reason = None if done else await self._lack_of_view(record)
        waits = None
        if not done:
            unowned = self._registry.get(record.info.run_id) is None and not record.at_rest
            outline = await self.outline(record.info.run_id) if unowned or may_be_held(record) else None
            waits = waiting_for(self._registry, record, outline, reason, services.clock.now())
        degraded_code = None if reason is None else reason[0]
        return await in_steps(view_steps(record, thread, services.redactor, degraded_code, waits))

    async def _lack_of_view(self, record: RunRecord) -> tuple[str, str] | None:
        return self.missing_requirement(record)

    async def part(self, run_id: str, sha256: str) -> bytes:
        """Return the bytes of an image or a file in the run's thread; see `Run.part`.

        Raises:
            UnknownRun: no run has this id.
            UsageError: the thread has no part with this digest.
        """
        if not isinstance(sha256, str):
            raise UsageError(f"sha256={shown(sha256)}: give the digest of a part, a str")
        digest = text_of(sha256) if sha256.isalnum() else ""  # no part's digest
        outline = await self.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        with self._services.signals.looking():
            bodies = await self._services.store.parts(outline.info.thread_id, (digest,))
        if not bodies:
            raise UsageError(f"the thread of run {run_id!r} has no image or file with the digest {sha256!r:.100}")
        body: bytes = bodies[digest]
        return body

    async def artifact(self, run_id: str, artifact_id: str) -> Artifact:
        """Return an artifact of a run, with its bytes and redacted facts; see `Run.artifact`.

        Raises:
            UnknownRun: no run has this id.
            UnknownArtifact: the run has no such artifact, or the store has no bytes of it.
        """
        if not isinstance(artifact_id, str):
            raise UsageError(f"artifact_id={shown(artifact_id)}: give the id of an artifact, a str")
        outline = await self.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        redactor = self.redactor.within(outline.info.workspace)
        with self._services.signals.looking():
            return await read_artifact(self._services.store, outline, text_of(artifact_id), redactor)

    async def outcome(self, run_id: str, *, final: bool) -> Any:
        """Wait for a run's outcome: until it is at rest, or (`final`) done; see `Run.wait` and `Run.result`.

        Raises:
            UnknownRun: no run has this id.
            RunDegradedError: the run is not worked on here.
            RuntimeClosed: the runtime closes first.
        """
        run_id = run_id_of(run_id)
        actor: RunActor | None = None
        signal: RunSignal | None = None
        while True:
            live = self._registry.get(run_id)
            actor = live or actor
            durable = None if actor is None else actor.durable
            if durable is not None and durable.row.status is DONE and not durable.row.stubborn:
                record = RunRecord(info=durable.info, row=durable.row)  # the receipt was seen, so no read is needed;
                await self._registry.tasks_ended(
                    run_id, record
                )  # this also holds if the runtime closed before this task ran
                return await self._outcome_of(record)
            signal = signal or self._services.signals.signal(run_id)
            notice = signal.rest()
            if (
                live is not None
                and durable is not None
                and (durable.row.status in _WORKING or durable.row.inbox < live.posted)
            ):
                await notice.wait()  # the owner is in this process, has work to do, and signals the next rest
                continue
            if final and live is not None and live.agent is not None and durable is not None:
                await notice.wait()  # the run rests, its owner is here: who waits for the end need not read the run
                continue
            stored_record = await self._looked(run_id, notice)
            if stored_record is None:
                continue
            record = stored_record
            done = record.row.status is DONE
            if done:
                await self._registry.tasks_ended(run_id, record)
            if record.at_rest and not done and self._asks_anew(record):
                await notice.wait()
                continue
            if done or (record.at_rest and not final):
                return await self._outcome_of(record)
            reason = await self._lack(record)
            if reason is not None and (final or not record.at_rest):
                raise RunDegradedError(run_id, *reason)
            await notice.wait()

    async def agent_of_thread(self, thread_id: str) -> str:
        """Return the key of the agent with which the newest completed run of a thread ended; pruned runs do not count.

        Raises:
            UsageError: the thread has no completed run.
        """
        store = self._services.store
        with self._services.signals.looking():
            thread = await store.thread(thread_id)
            for info in () if thread is None else reversed(thread.members):
                outline = await store.outline(info.run_id)
                if outline is None or outline.stage is not Stage.COMPLETED:
                    continue
                record = await store.load(info.run_id)
                state = () if record is None else record.state
                last = (write.value for write in state if KeyId(write.scope, write.key) == LAST_AGENT)
                return str(next(last, info.agent))
        text = f"thread {thread_id!r} has no completed run, so no agent of it is known; name the agent to start"
        raise UsageError(text)

    async def _outcome_of(self, record: RunRecord) -> Any:
        agent = self._agents.present(self._agents.get(record.info.agent), record.row.agent)
        return await in_steps(outcome_steps(record, agent, self.redactor))

    async def _looked(self, run_id: str, notice: trio.Event) -> RunRecord | None:
        """Return the run's record; None if it was unreadable while the run had an owner and has changed since."""
        try:
            return await retry_until_available(self._readable, run_id)
        except StoreDown:
            raise
        except StoreError as error:
            reason = self._registry.degraded(run_id)
            if reason is not None:
                raise RunDegradedError(run_id, *reason) from error
            if self._registry.get(run_id) is None:
                raise
        await notice.wait()
        return None

    async def _readable(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord:
        """Return the run's record. For a done run with an unreadable row elsewhere, its own row is enough.

        Raises:
            UnknownRun: no run has this id.
        """
        store, run_id = self._services.store, run_id_of(run_id)
        with self._services.signals.looking():
            try:
                record = await store.load(run_id, calls=calls)
            except StoreUnavailable:
                raise
            except StoreError:  # an unreadable row: for a done run its own row is enough
                outline = await store.outline(run_id)  # noqa: ASYNC120 - a read that is cancelled has nothing to report
                if outline is None or outline.row is None or outline.status is not DONE:
                    raise
                record = RunRecord(info=outline.info, row=outline.row)
        if record is None:
            raise UnknownRun(run_id)
        return record

    async def _lack(self, record: RunRecord) -> tuple[str, str] | None:
        """Return why no process works on a run that is not done (code, sentence), or None."""
        return self.degraded(record)

    def degraded(self, record: RunRecord) -> tuple[str, str] | None:
        """Return why a run that is not done is not worked on here (code, sentence), or None.

        The codes are deps_missing, agent_unknown, target_offline, state_mismatch and gave_up; in a shared store also
        dead_letter and newer_schema, and there another process may work on the run. None also while the owner examines
        new commands: some, such as a cancel, need no agent. For a waiting run that is not in memory the answer is
        `missing_requirement`.
        """
        reason = self._registry.degraded(record.info.run_id)
        is_owned = self._registry.get(record.info.run_id) is not None
        if reason is not None or is_owned or record.row.status is not RunStatus.WAITING:
            return reason
        return self.missing_requirement(record)

    def missing_requirement(self, record: RunRecord) -> tuple[str, str] | None:
        """Return the requirement of an unfinished run that is missing here, or None; the owner may not need it now.

        For a run whose owner has not asked yet, three facts are known: whether the agent is here, whether the place is,
        and whether there is a provider of deps. The provider is called when the run is woken.
        """
        info, actor = record.info, self._registry.get(record.info.run_id)
        requirement = self._registry.degraded(info.run_id) if actor is None else actor.degraded
        if requirement is not None or (actor is not None and actor.abandon is not None):
            return requirement
        has_agent = actor is not None and actor.agent is not None
        return self._agents.missing_requirement(
            info, has_agent=has_agent, has_deps=actor is not None and actor.has_deps
        )

    def _asks_anew(self, record: RunRecord) -> bool:
        """Return True if a release changed or removed the tool of a question: the run asks again, or continues.

        After a restart a waiting run is not in memory and has not noticed the change, so it gets an owner here.
        """
        name = record.info.run_id
        actor = self._registry.get(name)
        agent = (None if actor is None else actor.agent) or self._agents.get(record.info.agent)
        agent = self._agents.present(agent, record.row.agent)
        suspended_calls = [call for call in record.calls if call.status is CallStatus.SUSPENDED and call.definition]
        if agent is None or (
            all(agent.spec.definition(call.tool, call.call_id) in ("", call.definition) for call in suspended_calls)
            and not lost_questions(agent.spec, record.calls, ())
        ):
            return False
        self._registry.wake(name)
        return self._registry.get(name) is not None
