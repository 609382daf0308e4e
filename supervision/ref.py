"""The address of an actor: send messages, monitor the actor, read its exit. A ref outlives restarts and the actor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import trio
from attrs import define, field

from .border import Raised, capture
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
    """Call foreign code in a step that must be completed, and log its exception: other watchers are still waiting."""
    result = capture(watcher, *args)
    if isinstance(result, Raised):
        what = "a watcher raised; it must not: it runs in the exit step of the actor that it watches"
        report(logger, logging.ERROR, what, traceback=traceback_text(result.error))


@define(eq=False)
class Ref(Generic[M_contra]):
    """The address of one actor.

    Attributes:
        id: Unique among the live children of the supervisor.
        name: Unique in the registry; `<supervisor>/<id>` unless the spec has another name.
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
        """The actor's final exit; None while the actor is alive, restarts included."""
        return self._exit

    @property
    def exited(self) -> trio.Event:
        """Set in the actor's exit step, after names are freed and asks have failed, and before monitors run."""
        if self._event is None:
            self._event = trio.Event()
            if self._exit is not None:
                self._event.set()
        return self._event

    @property
    def depth(self) -> int:
        """Number of messages in the mailbox."""
        return len(self._mailbox)

    @property
    def oldest_age(self) -> float:
        """Seconds since the delivery of the oldest unpopped message; 0.0 if the mailbox is empty."""
        return self._mailbox.oldest_age

    def tell(self, message: M_contra) -> None:
        """Deliver `message` immediately, without waiting; see `Mailbox.tell`.

        Raises:
            MailboxFull: The mailbox is full; nothing was delivered.
            ActorExited: The actor has ended for good; nothing was delivered.
        """
        self._mailbox.tell(message)

    def nudge(self) -> None:
        """Wake the actor without a message. Never rejected; no effect after the actor's exit. See `Mailbox.nudge`."""
        self._mailbox.nudge()

    def monitor(self, callback: Monitor) -> Callable[[], None]:
        """Call `callback(ref, exit)` once, synchronously, in the actor's exit step; immediately if the actor has ended.

        Restarts are not exits. A callback must not raise; an exception is logged and does not affect other callbacks.

        Returns:
            A function that removes the monitor; it may be called at any time and repeatedly.
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
        """Call `callback()` in the exit step before watchers are notified; meant for names and limiter tokens.

        The call is immediate if the actor has ended.
        """
        if self._exit is not None:
            call_watcher(callback)
            return
        if self._releases is None:
            self._releases = []
        self._releases.append(callback)

    def undelivered(self) -> tuple[object, ...]:
        """Return the messages in the mailbox; after the exit, the dead letters."""
        return self._mailbox.undelivered()

    def hold_reply(self, reply: Reply[Any]) -> None:
        """Fail `reply` with `ActorExited` if the actor ends before `reply` is resolved.

        Raises:
            ActorExited: The actor has ended already.
        """
        if self._exit is not None:
            raise ActorExited(self.name, self._exit)
        if self._replies is None:
            self._replies = {}
        self._replies[reply] = None

    def release_reply(self, reply: Reply[Any]) -> None:
        """Stop holding `reply`; has no effect if `reply` is not held."""
        if self._replies is not None:
            self._replies.pop(reply, None)

    def conclude(self, exit_: Exit) -> int:
        """Publish the exit in one synchronous step, and return the number of dead letters. For the wrapper only.

        Order: the mailbox closes, names become free, asks fail, `exited` is set, monitors run.
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
