"""`EventIterator`: the events of a run as an async iterator with a cursor and a bounded buffer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from greenroom.actors.contract.envelope import Event

from .unread_events import OnReset, UnreadEvents
from .waiting import Loop, News


class EventIterator(UnreadEvents, AsyncIterator[Event]):
    """The events of one run, delivered exactly once and in order across any number of connections. For one task.

    Cancellation: a cancelled iteration loses no event; the next iteration returns the event that the cancelled one
    awaited.

    Attributes:
        run_id: The run.
        after: Sequence of the last event that the iteration returned; with `epoch`, the cursor to store.
        reset: The newest reset of the log, with on_reset="continue"; following events continue its snapshot.
    """

    def __init__(
        self, loop: Loop, run_id: str, *, after: int, epoch: str | None, on_reset: OnReset, poke: Callable[[], None]
    ) -> None:
        self._loop, self._news = loop, News(loop)
        super().__init__(run_id, after=after, epoch=epoch, on_reset=on_reset, poke=poke, wake=self._news.tell)

    @override
    async def __anext__(self) -> Event:
        """Return the next event.

        Raises:
            StopAsyncIteration: The last event was the terminal event.
            LogReset: The cursor is not of this log (on_reset="raise").
            RunDegraded, UnknownRun, RequestRefused, ConnectError: The reason why no more events follow.
        """
        # a checkpoint even if events are buffered: reading a long backlog must not starve other tasks
        await self._loop.checkpoint()
        while (event := self.read()) is None:
            await self._news.wait()
        return event
