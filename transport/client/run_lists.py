"""`RunListIterator`: the changes of a list of runs as an async iterator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from ..protocol.up import Watch
from .list_buffer import ListChange, RunListBuffer
from .waiting import Loop, News


class RunListIterator(RunListBuffer, AsyncIterator[ListChange]):
    """The changes of a list of runs as an async iterator. For one task.

    The buffer of a slow reader has at most the newest line of each run; a reader that is very far behind restarts with
    a page. The list also restarts after a lost connection. Cancellation: a cancelled iteration loses nothing.
    """

    def __init__(self, loop: Loop, frame: Watch, poke: Callable[[], None]) -> None:
        self._loop, self._news = loop, News(loop)
        super().__init__(frame, poke, self._news.tell)

    @override
    async def __anext__(self) -> ListChange:
        """Return the next change; the first change is a page.

        Raises:
            UsageError, NotAllowed, RequestRefused, ConnectError: The reason why no more changes follow.
        """
        await self._loop.checkpoint()
        while (change := self.read()) is None:
            await self._news.wait()
        return change
