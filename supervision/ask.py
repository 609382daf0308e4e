"""Ask: a tell with a one-shot reply. The asker receives the answer, a failure, or the target's exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .ref import Ref
from .reply import Reply

M = TypeVar("M")
T = TypeVar("T")


async def ask(ref: Ref[M], make_message: Callable[[Reply[T]], M]) -> T:
    """Send `ref` the message that `make_message` builds around a reply, and wait for the answer.

    There is no timeout argument: put a cancel scope around the call. A message whose asker was cancelled may still be
    handled; the answer is then dropped. If the actor pops the message, crashes before it answers and is restarted, the
    ask stays open until the asker's deadline. An actor that peeks, answers and then pops sees the message again after a
    restart.

    Raises:
        ActorExited: The target ended for good, before or during the ask.
        MailboxFull: The target's mailbox is full; nothing was delivered.
        BaseException: The error that the target passed to `Reply.fail`.
    """
    reply: Reply[T] = Reply()
    message = make_message(reply)
    ref.hold_reply(reply)
    try:
        ref.tell(message)
        return await reply.wait()
    finally:
        reply.abandon()
        ref.release_reply(reply)
