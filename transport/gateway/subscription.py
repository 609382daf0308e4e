"""One run that one connection follows: what is to be written next, and when there is something."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import trio

import greenroom as gr

from ..protocol import down
from ..protocol.framing import text_frame, text_frames

RETRY: Final = 0.5
"""Seconds until a store that does not answer is asked again."""


def as_text_frames(found: gr.Slice) -> bytes:
    """A slice as WebSocket frames."""
    return text_frames(found.frames)


def framed(frame: down.Frame) -> bytes:
    """A gateway frame as a WebSocket frame."""
    return text_frame(down.encode(frame))


class Subscription:
    """A follower on a connection.

    Attributes:
        follower: the position in the run's log.
        live: what was there at the beginning has been sent, and the client has been told.
        queued: it stands in its connection's line of those that may have something.
        writing: it has its turn: the cursor moves, or what it has passed is being written; nobody else may write.
        over: nothing follows; the client has been told why.
        dropped: the client wants no more of it.
    """

    def __init__(self, follower: gr.Follower, stack: ExitStack) -> None:
        self.follower = follower
        self.live = self.queued = self.writing = self.over = self.dropped = False
        self._stack = stack

    def __repr__(self) -> str:
        return f"<Subscription to {self.follower.run_id} after {self.follower.after}>"

    @property
    def run(self) -> str:
        """Whose events."""
        return self.follower.run_id

    def drop(self) -> None:
        """The client wants no more of it."""
        self.dropped = True
        self._close()

    def _close(self) -> None:
        """Let go of the run's tail."""
        self.over = True
        self._stack.close()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call this when it is over."""
        self._stack.callback(callback)

    async def advance(self) -> bytes | None:
        """The next bytes to write; None if there is nothing now, or it is over.

        Raises:
            RuntimeClosed: the runtime closes. StoreDown: its store has failed for good.
        """
        try:
            found = await self.follower.fetch()
            if found is not None:
                return found.encoded(as_text_frames)
            if not self.live:
                self.live = True
                return framed(down.Live(run=self.run, sequence=self.follower.after))
            if await self.follower.finished():
                return self._end(down.Unsubscribed(run=self.run, reason="done"))
        except gr.StoreUnavailable:
            await trio.sleep(RETRY)
            return b""
        except gr.RunDegraded as error:
            why = down.Unsubscribed(run=self.run, reason="degraded", code=error.reason, detail=error.detail)
            return self._end(why)
        except gr.UnknownRun as error:
            return self._end(down.Unsubscribed(run=self.run, reason="gone", detail=str(error)))
        return b"" if self.follower.behind() else None

    def _end(self, frame: down.Unsubscribed) -> bytes | None:
        if self.over:
            return None
        self._close()
        return framed(frame)
