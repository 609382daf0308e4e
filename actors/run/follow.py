"""`Follower`: a position in a run's log that moves. Everything that shows events is made of it.

It owns a cursor and nothing else: what it gives next is looked up from there, in the run's tail if that still has it,
in the store if not. So a slow reader holds nobody up and loses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import attrs
import trio

from ..abc import Store
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunRecord
from ..errors import RunDegradedError, UnknownRun
from .change_signals import ChangeSignals, RunSignal
from .event_buffer import EventBuffer, EventSlice
from .services import retry_until_available

PAGE: Final = 1000
"""Events read from the store at once by a follower, at most."""
PAGE_BYTES: Final = 262_144
"""Bytes after which a page ends: reading costs a thread's turn, so pages are longer than the tail's slices."""


@attrs.frozen(eq=False)
class EventSource:
    """Where followers read.

    Attributes:
        store: has all events.
        board: has the newest of them, and says when there are more.
        degraded: why nobody works on a run here, or None.
    """

    store: Store
    board: ChangeSignals
    degraded: Callable[[RunRecord], tuple[str, str] | None]


class Follower:
    """Gives a run's events in slices, each once, in order, only when they are durable. For one task.

    The iteration waits for a store that can not be read now; `fetch` and `finished` raise StoreUnavailable.

    Attributes:
        run_id: whose.
        after: sequence of the last event that has been given.
        ended: the terminal event has been given; nothing follows.
        signal: says when the run has changed.
        tail: where new events come in.
    """

    def __init__(
        self,
        log: EventSource,
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
        self._log = log
        self._until = until
        self._seen: RunRecord | None = None
        self._looked = False  # the store has been seen to end at `after`, since the tail is held
        self._known = False  # the run stood at `after` or later and was not done: its end will come as an event

    def __repr__(self) -> str:
        return f"<Follower of {self.run_id} after {self.after}>"

    def __aiter__(self) -> AsyncIterator[EventSlice]:
        return self

    async def __anext__(self) -> EventSlice:
        if self.peek() is not None:
            await trio.lowlevel.checkpoint()  # who reads on and on lets others run; who has waited did so already
        while not self.ended:
            found = self.ready()
            if found is not None:
                return found
            notice = self.signal.change()
            found = await retry_until_available(self.fetch)
            if found is not None:
                return found
            if await retry_until_available(self.finished):
                break
            if not self.behind():
                await notice.wait()
        raise StopAsyncIteration

    def ready(self) -> EventSlice | None:
        """The next slice, if memory has it; the cursor moves behind it. Never waits."""
        found = self.tail.slice(self.after)
        return None if found is None else self.given(found)

    def peek(self) -> EventSlice | None:
        """What `ready` would return; the cursor stays where it is."""
        return self.tail.slice(self.after)

    def behind(self) -> bool:
        """True if the next event may be in the store, and memory does not have it: `fetch` looks there."""
        if self.ended or self.tail.head == self.after:
            return False
        return self.tail.head > self.after or not self._looked

    async def fetch(self) -> EventSlice | None:
        """The next slice, from memory or from the store; None if nothing is there yet.

        Raises:
            StoreUnavailable, StoreDown, StoreError: the store can not be read.
            RuntimeClosed: the runtime is closed, and memory does not have the next event.
        """
        found = self.ready()
        if found is not None or not self.behind():
            return found
        board, after = self._log.board, self.after
        with board.looking():
            frames = await self._log.store.events(self.run_id, after=after, limit=PAGE, max_bytes=PAGE_BYTES)
        if not frames:
            self._looked, self._known = True, False
            return None
        return self.given(EventSlice(after + 1, frames))

    def given(self, found: EventSlice) -> EventSlice:
        """Move the cursor behind a slice that begins at it."""
        self.after = found.last
        self._looked = False
        self.ended = found.ends
        return found

    async def finished(self) -> bool:
        """True if nothing is to be waited for: the run is done (or at rest) and all its events have been given.

        Ask it after `fetch` has found nothing.

        Raises:
            UnknownRun: no such run. RunDegraded: nobody works on it here, and its end has not come.
            StoreUnavailable, StoreDown, StoreError: the store can not be read.
            RuntimeClosed: the runtime is closed, and the store had to be looked at.
        """
        if self.ended:
            return True
        if not self._known or self._until == "rest":
            with self._log.board.looking():
                record = await self._log.store.load(self.run_id)
            if record is None:
                raise UnknownRun(self.run_id)
            row, self._seen = record.row, record
            done = row.status is RunStatus.DONE
            self._known = not done and row.last_sequence >= self.after  # a cursor beyond it may not be given the end
            if row.last_sequence > self.after:
                self._looked = False  # it has gone on meanwhile: look again
                return False
            if done or (self._until == "rest" and record.at_rest):
                return True
        reason = None if self._seen is None else self._log.degraded(self._seen)
        if reason is not None and not self.behind():
            raise RunDegradedError(self.run_id, *reason)
        return False


@contextmanager
def follow(log: EventSource, run_id: str, after: int, until: Literal["end", "rest"]) -> Iterator[Follower]:
    """A follower, for the time of the block. See `RunReader.follow`."""
    with log.board.follow(run_id) as (signal, tail):
        yield Follower(log, signal, tail, run_id=run_id, after=after, until=until)
