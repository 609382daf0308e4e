"""A bounded mailbox whose consumer peeks, works, and pops in the stretch in which it commits.

The buffer is a bounded trio memory channel; the consumer drains it with `receive_nowait` into a deque that belongs
to the mailbox and outlives any incarnation of the actor. Waking up carries no message: a consumer that is cancelled
or crashes between being woken and running has taken nothing. A message leaves the mailbox in `pop` and nowhere else,
hence delivery is at-least-once across restarts and first-in first-out per sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from attrs import define, field
from trio.lowlevel import Abort, Task, checkpoint, current_clock, current_task, reschedule, wait_task_rescheduled

from .errors import ActorExited, InvalidSpec, MailboxEmpty, MailboxFull
from .exits import Exit

M = TypeVar("M")

CAPACITY = 1024
"""Messages. An actor that is this far behind has stopped keeping up, and its senders should hear of it."""

FAIR_TURNS = 64
"""How many times `wait` may return without yielding: about 0.3 ms of small messages, then it is the others' turn."""

_Stamped = tuple[float, M]


@define(eq=False)
class Mailbox(Generic[M]):
    """Many senders, one consumer. All methods must be called from the trio thread.

    When it is full, `tell` raises `MailboxFull`; it never waits and never drops. `nudge` is never refused.
    """

    owner: str = "?"
    capacity: int = CAPACITY
    _send: trio.MemorySendChannel[_Stamped[M]] = field(init=False)  # opened by the first message: most get none,
    _receive: trio.MemoryReceiveChannel[_Stamped[M]] = field(init=False)  # and an empty channel is 1.8 KB
    _pending: deque[_Stamped[M]] | None = field(init=False, default=None)  # an empty deque is 0.6 KB per parked actor
    _depth: int = field(init=False, default=0)
    _nudged: bool = field(init=False, default=False)
    _parked: Task | None = field(init=False, default=None)
    _turns: int = field(init=False, default=FAIR_TURNS)
    _now: Callable[[], float] | None = field(init=False, default=None)  # the clock, looked up with the first message
    _closed: bool = field(init=False, default=False)
    _exit: Exit | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        if self.capacity < 1:
            raise InvalidSpec(f"capacity={self.capacity}: give 1 or more; a mailbox holds at least one message")

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Mailbox of {self.owner!r} {self._depth}/{self.capacity}{state}>"

    def __len__(self) -> int:
        return self._depth

    @property
    def closed(self) -> bool:
        """True after the actor's final exit."""
        return self._closed

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest unpopped message was told; 0.0 if there is none."""
        if not self._depth:
            return 0.0
        return trio.current_time() - self._drain()[0][0]

    def tell(self, message: M) -> None:
        """Deliver `message`, now, without waiting.

        Delivered means: it is in the mailbox and stays there over restarts until the consumer pops it. It is lost
        only with the actor's final exit, where it counts as a dead letter.

        Raises:
            MailboxFull: `capacity` messages are unpopped; nothing was delivered.
            ActorExited: The actor has ended for good; nothing was delivered.
        """
        if self._depth >= self.capacity or self._closed:
            self._refuse()
        now = self._now or self._open()
        self._send.send_nowait((now(), message))
        self._depth += 1
        if self._parked is not None:
            self._wake()

    def nudge(self) -> None:
        """Wake the consumer without a message: there is something for it in a slot of its own.

        Never refused, never queued: any number of nudges before the consumer looks are one. A no-op after the final
        exit.
        """
        self._nudged = True
        if self._parked is not None:
            self._wake()

    def heed(self) -> None:
        """All slots have been looked at: a nudge that came before is used up. Messages stay."""
        self._nudged = False

    async def wait(self) -> None:
        """Return when a message is pending or a nudge has come; takes nothing.

        A nudge is used up by the `wait` that returns for it; an incarnation that begins should look at its slots
        before its first `wait`. Returns without yielding while there is work, but yields at least once in
        `FAIR_TURNS` calls.

        Cancellation: a cancelled wait has had no effect; messages and nudges stay.
        """
        if not self._depth and not self._nudged:
            if self._parked is not None:
                raise RuntimeError(f"two tasks wait on the mailbox of {self.owner!r}; a mailbox has one consumer")
            self._turns = FAIR_TURNS
            self._parked = current_task()
            await wait_task_rescheduled(self._abort)
        elif self._turns > 1:
            self._turns -= 1
        else:
            await checkpoint()
            self._turns = FAIR_TURNS
        self._nudged = False

    def peek(self) -> M:
        """The oldest message; it stays.

        Raises:
            MailboxEmpty: Nothing is pending.
        """
        return (self._pending or self._drain())[0][1]

    def pop(self) -> M:
        """Remove and return the oldest message. Call it in the synchronous stretch in which its effect is committed.

        Raises:
            MailboxEmpty: Nothing is pending.
        """
        pending = self._pending or self._drain()
        self._depth -= 1
        return pending.popleft()[1]

    def close(self, exit_: Exit | None = None) -> int:
        """Refuse everything from now on; returns the number of messages that nobody will handle (dead letters)."""
        if not self._closed:
            self._closed = True
            self._exit = exit_
            if self._depth:
                self._drain()
            if self._now is not None:
                self._send.close()
                self._receive.close()
        return self._depth

    def undelivered(self) -> tuple[M, ...]:
        """What is still unpopped, oldest first; it stays. After `close`: the dead letters."""
        return tuple(message for _, message in self._drain()) if self._depth else ()

    def _open(self) -> Callable[[], float]:
        self._send, self._receive = trio.open_memory_channel[_Stamped[M]](self.capacity)
        self._now = current_clock().current_time
        return self._now

    def _drain(self) -> deque[_Stamped[M]]:
        """Move the channel's buffer into the pending deque; there is at least one message or the caller is at fault."""
        if not self._depth:
            raise MailboxEmpty(self.owner)
        if self._pending is None:
            self._pending = deque()
        receive, pending = self._receive.receive_nowait, self._pending
        missing = self._depth - len(pending)
        while missing:
            pending.append(receive())
            missing -= 1
        return pending

    def _refuse(self) -> None:
        if self._closed:
            raise ActorExited(self.owner, self._exit)
        raise MailboxFull(self.owner, self.capacity)

    def _wake(self) -> None:
        task, self._parked = self._parked, None
        if task is not None:
            reschedule(task)

    def _abort(self, _: object) -> Abort:
        self._parked = None
        return Abort.SUCCEEDED
