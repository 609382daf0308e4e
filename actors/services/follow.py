"""`Follower`: a moving cursor in a run's log. Every display of events is built on this class.

Theory of operation. A follower owns a cursor and no queue. The next slice is looked up from the cursor: in the run's
`EventBuffer` if the events are still there, else in the store. Runs do not know that followers exist; a slow follower
delays no run, and falls back to pages of the store without losing an event. The end needs care: the log is complete if
the run is done and the cursor is at its last event, so `finished` reads the rows after `fetch` found nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import attrs
import trio

from ..abc import Store
from ..contract.codec import SchemaError
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunRecord
from ..errors import LogReplaced, NewerRelease, RunDegradedError, StoreError, UnknownRun
from .change_signals import ChangeSignals, RunSignal
from .event_buffer import EventBuffer, EventSlice
from .services import retry_until_available

PAGE: Final = 1000
"""Most events that a follower reads from the store in one page."""
PAGE_BYTES: Final = 262_144
"""Bytes after which a page ends. A read costs a thread switch, so pages are longer than slices from memory."""


@attrs.frozen(eq=False)
class EventSource:
    """The sources of followers.

    Attributes:
        store: all events.
        signals: the newest events of followed runs, and signals of new ones.
        why_degraded: returns why a run is not worked on here, or None.
        lack: returns why no process works on a run; None: the store is not shared, so `why_degraded` says all.
    """

    store: Store
    signals: ChangeSignals
    why_degraded: Callable[[RunRecord], tuple[str, str] | None]
    lack: Callable[[RunRecord], Awaitable[tuple[str, str] | None]] | None = None


class Follower:
    """Yields a run's events in slices, each event once, in order, and only when durable. For one task.

    The iteration waits while the store is unavailable; `fetch` and `finished` raise StoreUnavailable instead.

    Attributes:
        run_id: the followed run.
        after: sequence of the last yielded event.
        ended: the terminal event was yielded; no event follows.
        signal: reports changes of the run.
        tail: the buffer of new events.
    """

    def __init__(
        self,
        source: EventSource,
        signal: RunSignal,
        tail: EventBuffer,
        *,
        run_id: str,
        after: int,
        until: Literal["end", "rest"],
    ) -> None:
        self.run_id = run_id
        self.after = after
        self.ended = False
        self.signal = signal
        self.tail = tail
        self._source = source
        self._until = until
        self._record: RunRecord | None = None
        self._read_to_end = False  # the store's log ended at `after`, since the tail is held
        self._end_will_come = False  # the run was at `after` or later and not done: its end will come as an event

    def __repr__(self) -> str:
        return f"<Follower of {self.run_id} after {self.after}>"

    def __aiter__(self) -> AsyncIterator[EventSlice]:
        return self

    async def __anext__(self) -> EventSlice:
        if self.peek() is not None:
            await trio.lowlevel.checkpoint()  # a reader that never waits still lets other tasks run
        while not self.ended:
            events = self.ready()
            if events is not None:
                return events
            notice = self.signal.change()
            events = await retry_until_available(self.fetch)
            if events is not None:
                return events
            if await retry_until_available(self.finished):
                break
            if not self.behind():
                await notice.wait()
        raise StopAsyncIteration

    def ready(self) -> EventSlice | None:
        """Return the next slice if memory has it, and move the cursor behind it. Never waits."""
        events = self.tail.slice(self.after)
        return None if events is None else self.given(events)

    def peek(self) -> EventSlice | None:
        """Return the slice that `ready` would return, without moving the cursor."""
        return self.tail.slice(self.after)

    def behind(self) -> bool:
        """Return True if the store may have the next event and memory does not: call `fetch`."""
        if self.ended or self.tail.head == self.after:
            return False
        return self.tail.head > self.after or not self._read_to_end

    async def fetch(self) -> EventSlice | None:
        """Return the next slice, from memory or from the store; None before new events.

        Raises:
            StoreUnavailable, StoreDown, StoreError: the store cannot be read.
            LogReplaced: the logs have another identity since the follower began.
            RuntimeClosed: the runtime is closed, and memory does not have the next event.
        """
        events = self.ready()
        if events is not None or not self.behind():
            return events
        self._check_log()
        signals, after = self._source.signals, self.after
        with signals.looking():
            frames = await self._source.store.events(self.run_id, after=after, limit=PAGE, max_bytes=PAGE_BYTES)
        self._check_log()
        if not frames:
            self._read_to_end, self._end_will_come = True, False
            return None
        return self.given(EventSlice(after + 1, frames))

    def _check_log(self) -> None:
        if self.tail.replaced:
            raise LogReplaced(
                f"the log of run {self.run_id} was replaced, such as by a failover: read the run again, and follow "
                "from the sequence of its view"
            )

    def given(self, events: EventSlice) -> EventSlice:
        """Move the cursor behind a slice that begins at the cursor; returns the slice.

        Raises:
            StoreError: the last event of the slice is damaged.
        """
        try:
            ends = events.ends
        except SchemaError as error:
            raise StoreError(f"event {events.last} of run {self.run_id} cannot be read: {error}") from error
        self.after, self.ended, self._read_to_end = events.last, ends, False
        return events

    async def finished(self) -> bool:
        """Return True if there is nothing to wait for: the run is done (or at rest) and all its events were yielded.

        Call it after `fetch` returned None.

        Raises:
            UnknownRun: no run has this id.
            RunDegradedError: the run is not worked on here, and its end has not come.
            StoreUnavailable, StoreDown, StoreError: the store cannot be read.
            LogReplaced: the logs have another identity since the follower began.
            RuntimeClosed: the runtime is closed, and the store had to be read.
        """
        if self.ended:
            return True
        self._check_log()
        fresh = not self._end_will_come or self._until == "rest"
        if fresh:
            try:
                with self._source.signals.looking():
                    record = await self._source.store.load(self.run_id)
            except NewerRelease:  # its events can be read, and the last one says so
                if self._until == "rest":
                    raise
                self._end_will_come = True
                return False
            self._check_log()
            if record is None:
                raise UnknownRun(self.run_id)
            row, self._record = record.row, record
            done = row.status is RunStatus.DONE
            # a cursor beyond the last event may never see the end
            self._end_will_come = not done and row.last_sequence >= self.after
            if row.last_sequence > self.after:
                self._read_to_end = False  # the run has new events: fetch again
                return False
            if done or (self._until == "rest" and record.at_rest):
                return True
        reason = None if self._record is None else self._source.why_degraded(self._record)
        if self._source.lack is not None and self._record is not None and (fresh or reason is not None):
            with self._source.signals.looking():
                reason = await self._source.lack(self._record)
        if reason is not None and not self.behind():
            raise RunDegradedError(self.run_id, *reason)
        return False


@contextmanager
def follow(source: EventSource, run_id: str, after: int, until: Literal["end", "rest"]) -> Iterator[Follower]:
    """Yield a follower for the time of the block. See `RunReader.follow`."""
    with source.signals.follow(run_id) as (signal, tail):
        yield Follower(source, signal, tail, run_id=run_id, after=after, until=until)
