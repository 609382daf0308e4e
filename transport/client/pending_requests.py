"""Requests without an answer yet: each is sent once per connection until the answer arrives.

Delivery to the gateway is at least once; the request's id makes its effect at most once. Pure; `waiting.py` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

import attrs

from greenroom.actors.errors import GreenroomError, UsageError

from ..protocol.down import Ack, Error


@attrs.define(eq=False)
class PendingAnswer:
    """One request.

    Attributes:
        text: The encoded frame.
        wakes: Called when there is a result: one for each task that waits.
        sent: True if the request was sent on the present connection.
        result: Returns the answer or raises the final error; None while neither exists.
    """

    id: str
    text: str
    wakes: list[Callable[[], None]] = attrs.field(factory=list)
    sent: bool = False
    result: Callable[[], Ack | Error] | None = None

    def __repr__(self) -> str:
        return f"<PendingAnswer {self.id}: {'answered' if self.result else 'sent' if self.sent else 'waiting'}>"

    def finish(self, result: Callable[[], Ack | Error]) -> None:
        """Set the result, and wake the tasks that wait."""
        self.result = result
        for wake in self.wakes:
            wake()


@attrs.define(eq=False)
class PendingAnswers:
    """The requests of one client. Their number is bounded by the number of waiting tasks."""

    _poke: Callable[[], None]
    _open: dict[str, PendingAnswer] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        return f"<PendingAnswers: {len(self._open)} open>"

    def open(self, id_: str, text: str, wake: Callable[[], None]) -> PendingAnswer:
        """Return the request with this id, a new one or one that another task waits for.

        Raises:
            UsageError: A request with this id and another content is pending.
        """
        call = self._open.setdefault(id_, PendingAnswer(id_, text))
        if call.text != text:
            raise UsageError(f"another request with the id {id_!r} waits for its answer; every request has its own id")
        call.wakes.append(wake)
        self._poke()
        return call

    def leave(self, call: PendingAnswer, wake: Callable[[], None]) -> None:
        """Note that a task waits no longer. A request without waiting tasks is dropped."""
        call.wakes.remove(wake)
        # after the answer, the id may belong to a new request already
        if not call.wakes and self._open.get(call.id) is call:
            del self._open[call.id]

    def frame(self) -> str | None:
        """Return the next request to send, oldest first, and mark the request as sent."""
        for call in self._open.values():
            if not call.sent:
                call.sent = True
                return call.text
        return None

    def answered(self, frame: Ack | Error) -> None:
        """Handle an answer. The error "closing" is not an answer: the request is sent again on the next connection."""
        call = self._open.get(frame.id or "")
        if call is None or (isinstance(frame, Error) and frame.code == "closing"):
            return
        del self._open[call.id]
        call.finish(lambda: frame)

    def disconnected(self) -> None:
        """Mark all requests as unsent, because sent ones may be lost; the next connection sends them again."""
        for call in self._open.values():
            call.sent = False

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """Fail all requests: the connection was given up."""
        calls, self._open = list(self._open.values()), {}
        for call in calls:
            call.finish(partial(_no_answer, error))


def _no_answer(error: Callable[[], GreenroomError]) -> NoReturn:
    raise error()
