"""The address of an actor: tell it, watch it, learn how it ended. A ref outlives restarts and the actor itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import trio
from attrs import define, field

from .border import failure_of_call
from .errors import ActorExited
from .exits import Exit
from .mailbox import Mailbox
from .reply import Reply
from .reporting import report, traceback_text

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)

Monitor = Callable[["Ref[Any]", Exit], None]

logger = logging.getLogger("greenroom.supervision")


def call_watcher(watcher: Callable[..., None], *args: object) -> None:
    """Call foreign code in a step that has to be completed; what it raises is logged, for others wait to be told."""
    try:
        watcher(*args)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - the supervision boundary of a watcher's code
        failure = failure_of_call(error)
        what = "a watcher raised; it must not: it runs in the exit step of the actor that it watches"
        report(logger, logging.ERROR, what, traceback=traceback_text(failure))


@define(eq=False)
class Ref(Generic[M_contra]):
    """Address of one actor.

    Attributes:
        id: Unique among the live children of its supervisor.
        name: Unique in the registry, `<supervisor>/<id>` unless the spec says otherwise.
    """

    id: str
    name: str
    _mailbox: Mailbox[M_contra]
    _exit: Exit | None = field(init=False, default=None)
    _event: trio.Event | None = field(init=False, default=None)
    _monitors: dict[object, Monitor] | None = field(init=False, default=None)
    _releases: list[Callable[[], None]] | None = field(init=False, default=None)
    _replies: dict[Reply[object], None] | None = field(init=False, default=None)

    def __repr__(self) -> str:
        state = "live" if self._exit is None else repr(self._exit)
        return f"<Ref {self.name!r} {state}>"

    @property
    def exit(self) -> Exit | None:
        """How the actor ended; None while it lives, restarts included."""
        return self._exit

    @property
    def exited(self) -> trio.Event:
        """Set in the actor's last synchronous step, after registry, asks and supervisor have been told."""
        if self._event is None:
            self._event = trio.Event()
            if self._exit is not None:
                self._event.set()
        return self._event

    @property
    def depth(self) -> int:
        """Messages in its mailbox."""
        return len(self._mailbox)

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest unpopped message was told; 0.0 if there is none."""
        return self._mailbox.oldest_age

    def tell(self, message: M_contra) -> None:
        """Deliver `message`, now, without waiting; see `Mailbox.tell`.

        Raises:
            MailboxFull: The mailbox is full; nothing was delivered.
            ActorExited: The actor has ended for good; nothing was delivered.
        """
        self._mailbox.tell(message)

    def nudge(self) -> None:
        """Wake the actor without a message; never refused, a no-op when it has ended. See `Mailbox.nudge`."""
        self._mailbox.nudge()

    def monitor(self, callback: Monitor) -> Callable[[], None]:
        """Have `callback(ref, exit)` called once, synchronously, in the actor's last step; at once if it has ended.

        Restarts are not exits. A callback must not raise; what it raises is logged and nobody else is harmed.

        Returns:
            A function that takes the monitor back; harmless at any time and any number of times.
        """
        if self._exit is not None:
            call_watcher(callback, self, self._exit)
            return lambda: None
        if self._monitors is None:
            self._monitors = {}
        token = object()
        self._monitors[token] = callback

        def demonitor() -> None:
            if self._monitors is not None:
                self._monitors.pop(token, None)

        return demonitor

    def on_release(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called in the exit step before anybody is told: for names, limiter tokens.

        At once if it has ended.
        """
        if self._exit is not None:
            call_watcher(callback)
            return
        if self._releases is None:
            self._releases = []
        self._releases.append(callback)

    def undelivered(self) -> tuple[object, ...]:
        """The messages in its mailbox; after the exit: its dead letters."""
        return self._mailbox.undelivered()

    def hold_reply(self, reply: Reply[Any]) -> None:
        """Answer for `reply`: it is failed when the actor ends before it is resolved.

        Raises:
            ActorExited: The actor has ended already.
        """
        if self._exit is not None:
            raise ActorExited(self.name, self._exit)
        if self._replies is None:
            self._replies = {}
        self._replies[reply] = None

    def release_reply(self, reply: Reply[Any]) -> None:
        """Stop answering for `reply`; harmless if it is not held."""
        if self._replies is not None:
            self._replies.pop(reply, None)

    def conclude(self, exit_: Exit) -> int:
        """The kernel's own: publish the exit, in one synchronous step; returns the number of dead letters.

        Order: mailbox refuses, names are free, asks fail, event, monitors.
        """
        if self._exit is not None:
            raise RuntimeError(f"{self.name!r} has ended once already")
        self._exit = exit_
        dead_letters = self._mailbox.close(exit_)
        for release in self._releases or ():
            call_watcher(release)
        replies, self._replies = self._replies, None
        if replies:
            for reply in replies:
                reply.fail(ActorExited(self.name, exit_))
        if self._event is not None:
            self._event.set()
        monitors, self._monitors = self._monitors, None
        if monitors:
            for callback in list(monitors.values()):
                call_watcher(callback, self, exit_)
        return dead_letters


AnyRef: TypeAlias = Ref[Any]
"""A ref of an actor whose messages are not known here."""
