"""Requests that wait for their answer: each is sent once per connection until it has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import attrs
import trio

from greenroom.actors.errors import GreenroomError, UsageError

from ..protocol.down import Ack, Error


@attrs.define(eq=False)
class PendingAnswer:
    """One request.

    Attributes:
        text: its frame. waiters: tasks that wait for the answer.
        sent: over this connection.
        result: returns the answer, or raises why there will be none; None as long as nobody knows.
    """

    id: str
    text: str
    waiters: int = 0
    sent: bool = False
    result: Callable[[], Ack | Error] | None = None
    done: trio.Event = attrs.field(factory=trio.Event)

    def __repr__(self) -> str:
        return f"<Call {self.id}: {'answered' if self.result else 'sent' if self.sent else 'waiting'}>"


@attrs.define(eq=False)
class PendingAnswers:
    """The requests of one client. As many as there are tasks that wait for one: that is their bound."""

    _poke: Callable[[], None]
    _open: dict[str, PendingAnswer] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        return f"<Calls: {len(self._open)} open>"

    async def ask(self, id_: str, text: str) -> Ack | Error:
        """Send a request, over as many connections as it takes, and return the answer.

        Cancelled, it may have been sent or not: ask again with the same id.

        Raises:
            UsageError: a request with this id and another content is waiting. GreenroomError: there will be no answer.
        """
        call = self._open.setdefault(id_, PendingAnswer(id_, text))
        if call.text != text:
            raise UsageError(f"another request with the id {id_!r} waits for its answer; every request has its own id")
        call.waiters += 1
        self._poke()
        try:
            while call.result is None:
                await call.done.wait()
        finally:
            call.waiters -= 1
            if not call.waiters and self._open.get(id_) is call:
                del self._open[id_]
        return call.result()

    def frame(self) -> str | None:
        """The next request that is to be sent, oldest first; it counts as sent now."""
        for call in self._open.values():
            if not call.sent:
                call.sent = True
                return call.text
        return None

    def answered(self, frame: Ack | Error) -> None:
        """The gateway has answered. A gateway that is closing has not: the next one is asked."""
        call = self._open.get(frame.id or "")
        if call is None or (isinstance(frame, Error) and frame.code == "closing"):
            return
        del self._open[call.id]
        call.result = lambda: frame
        call.done.set()

    def disconnected(self) -> None:
        """Whatever was sent may be lost: all of it is sent again over the next connection."""
        for call in self._open.values():
            call.sent = False

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """There will be no connection any more."""
        calls, self._open = list(self._open.values()), {}
        for call in calls:
            call.result = partial(_no_answer, error)
            call.done.set()


def _no_answer(error: Callable[[], GreenroomError]) -> NoReturn:
    raise error()
