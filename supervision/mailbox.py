"""A bounded mailbox whose consumer peeks, works, and pops in the same synchronous stretch as the commit.

The buffer is a bounded trio memory channel; the consumer drains the channel with `receive_nowait` into a deque that
belongs to the mailbox and outlives every incarnation of the actor. A wake-up carries no message: a consumer that is
cancelled or crashes between the wake-up and its next step has taken nothing. A message leaves the mailbox in `pop` and
nowhere else, hence delivery is at least once across restarts and in order per sender.

    while True:
        await mailbox.wait()
        while len(mailbox):
            handle(mailbox.peek())  # no await between handle and pop
            mailbox.pop()
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
"""Default capacity, in messages. An actor that is this far behind cannot keep up, and its senders should receive an
error.
"""

FAIR_TURNS = 64
"""Number of times `wait` may return without yielding: about 0.3 ms of small messages before other tasks run."""

_Stamped = tuple[float, M]


@define(eq=False)
class Mailbox(Generic[M]):
    """A queue with many senders and one consumer. All methods must be called from the trio thread.

    If the mailbox is full, `tell` raises `MailboxFull`; `tell` never waits and never drops. `nudge` always succeeds.
    """

    owner: str = "?"
    capacity: int = CAPACITY
    # opened by the first message: most mailboxes get none,
    _send: trio.MemorySendChannel[_Stamped[M]] = field(init=False)
    _receive: trio.MemoryReceiveChannel[_Stamped[M]] = field(init=False)  # and an empty channel is 1.8 KB
    _pending: deque[_Stamped[M]] | None = field(init=False, default=None)  # an empty deque is 0.6 KB per parked actor
    _depth: int = field(init=False, default=0)
    _nudged: bool = field(init=False, default=False)
    _parked: Task | None = field(init=False, default=None)
    _turns: int = field(init=False, default=FAIR_TURNS)
    _now: Callable[[], float] | None = field(init=False, default=None)  # the clock, resolved with the first message
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
    def parked(self) -> bool:
        """True while the consumer waits and neither a message nor a nudge nor a cancel has woken the consumer."""
        return self._parked is not None

    @property
    def oldest_age(self) -> float:
        """Seconds since the delivery of the oldest unpopped message; 0.0 if the mailbox is empty."""
        if not self._depth:
            return 0.0
        return trio.current_time() - self._drain()[0][0]

    def tell(self, message: M) -> None:
        """Deliver `message` immediately, without waiting.

        A delivered message is in the mailbox and stays there over restarts until the consumer pops the message. Only
        the actor's final exit loses a message, which then counts as a dead letter.

        Raises:
            MailboxFull: `capacity` messages are unpopped; nothing was delivered.
            ActorExited: The actor has ended for good; nothing was delivered.
        """
        # the depth counts channel and deque together: the channel alone would accept up to twice the capacity
        if self._depth >= self.capacity or self._closed:
            self._refuse()
        now = self._now or self._open()
        self._send.send_nowait((now(), message))
        self._depth += 1
        if self._parked is not None:
            self._wake()

    def nudge(self) -> None:
        """Wake the consumer without a message: work is pending in a slot outside of the mailbox.

        A nudge is never rejected and never queued: any number of nudges before the consumer looks count once. Has no
        effect after the final exit.
        """
        self._nudged = True
        if self._parked is not None:
            self._wake()

    def heed(self) -> None:
        """Clear the nudge: the consumer has looked at all its slots. Messages stay."""
        self._nudged = False

    async def wait(self) -> None:
        """Return when a message is pending or a nudge was given. Takes no message.

        The `wait` that returns for a nudge clears the nudge; a new incarnation should look at its slots before its
        first `wait`. Returns without yielding while there is work, but yields at least once in `FAIR_TURNS` calls.

        Cancellation: a cancelled wait has no effect; messages and nudges stay.
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
        """Return the oldest message without removing it.

        Raises:
            MailboxEmpty: No message is pending.
        """
        return (self._pending or self._drain())[0][1]

    def pop(self) -> M:
        """Remove and return the oldest message.

        Call `pop` in the synchronous stretch that commits the message's effect.

        Raises:
            MailboxEmpty: No message is pending.
        """
        pending = self._pending or self._drain()
        self._depth -= 1
        return pending.popleft()[1]

    def close(self, exit_: Exit | None = None) -> int:
        """Reject all further messages, and return the number of unhandled messages (dead letters)."""
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
        """Return the unpopped messages, oldest first, without removing them. After `close`: the dead letters."""
        return tuple(message for _, message in self._drain()) if self._depth else ()

    def _open(self) -> Callable[[], float]:
        self._send, self._receive = trio.open_memory_channel[_Stamped[M]](self.capacity)
        self._now = current_clock().current_time
        return self._now

    def _drain(self) -> deque[_Stamped[M]]:
        """Move the channel's buffer into the pending deque.

        Raises:
            MailboxEmpty: No message is pending.
        """
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
