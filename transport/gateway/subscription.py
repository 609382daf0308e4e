"""One run that one connection follows: reads the data of its turns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import greenroom as gr

from ..protocol.framing import text_frames
from ..protocol.ws_actions import CheckEnd, FetchEvents, RunSource, WriterAction
from ..protocol.ws_output import SessionOutput


def as_text_frames(events: gr.EventSlice) -> bytes:
    """Encode a slice as WebSocket frames."""
    return text_frames(events.frames)


class Subscription:
    """A follower on a connection.

    Attributes:
        source: The source in the connection's session.
        follower: The position in the run's log.
    """

    def __init__(self, source: RunSource, follower: gr.Follower, stack: ExitStack) -> None:
        self.source = source
        self.follower = follower
        self._stack = stack

    def __repr__(self) -> str:
        return f"<Subscription to {self.follower.run_id} after {self.follower.after}>"

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.follower.run_id

    def drop(self) -> None:
        """Release the run's event buffer; repeated calls have no effect."""
        self._stack.close()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the subscription is dropped."""
        self._stack.callback(callback)

    async def look(self, action: FetchEvents | CheckEnd, output: SessionOutput) -> WriterAction | None:
        """Perform an action of the session and report the result.

        Raises:
            RuntimeClosed: The runtime is closing.
            StoreDown: Its store has failed permanently.
        """
        source, follower = self.source, self.follower
        try:
            if isinstance(action, FetchEvents):
                events = await follower.fetch()
                if events is not None:
                    return output.events_read(source, events.first, events.last, events.encoded(as_text_frames))
                reply = output.nothing_read(source)
                if not isinstance(reply, CheckEnd):
                    return reply
            if await follower.finished():
                return output.run_ended(source, "done")
        except gr.StoreUnavailable:
            return output.fetch_failed(source)
        except gr.RunDegradedError as error:
            return output.run_ended(source, "degraded", code=error.reason, detail=error.detail)
        except gr.UnknownRun as error:
            return output.run_ended(source, "gone", detail=str(error))
        return output.nothing_yet(source, behind=follower.behind())
