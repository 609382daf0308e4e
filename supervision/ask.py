"""Ask: a tell with a one-shot reply. The asker gets the answer, a failure, or the target's exit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .ref import Ref
from .reply import Reply

M = TypeVar("M")
T = TypeVar("T")


async def ask(ref: Ref[M], make_message: Callable[[Reply[T]], M]) -> T:
    """Tell `ref` the message that `make_message` builds around a reply, and wait for the answer.

    There is no timeout argument: put a cancel scope around it. The message may be handled although the asker has
    gone; its answer is then dropped. If the actor crashes after it has popped the message without answering and is
    restarted, the question is open until the asker's deadline; an actor that peeks, answers and pops is asked again
    by its own mailbox.

    Raises:
        ActorExited: The target has ended for good, before or while it was asked.
        MailboxFull: The target's mailbox is full; nothing was delivered.
        BaseException: What the target failed the reply with.
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
