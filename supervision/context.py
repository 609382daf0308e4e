"""`ActorContext`: the argument of an actor's body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from attrs import define

from .exits import Exit
from .mailbox import Mailbox
from .ref import Ref

M = TypeVar("M")


@define(eq=False)
class ActorContext(Generic[M]):
    """The argument of an actor's body; each incarnation receives a new context.

    Attributes:
        ref: Address of the actor; the same in all incarnations.
        mailbox: Mailbox of the actor; the same in all incarnations, with the messages that are not popped.
        attempt: Number of incarnations before this one; 0 for the first.
        scope: Cancel scope of this incarnation; the body may cancel the scope or set a deadline.
        previous: Exit of the previous incarnation; None for the first.
    """

    ref: Ref[M]
    mailbox: Mailbox[M]
    attempt: int
    scope: trio.CancelScope
    previous: Exit | None
    _on_ready: Callable[[], None]

    def __repr__(self) -> str:
        return f"<ActorContext of {self.ref.name!r}, attempt {self.attempt}>"

    def ready(self) -> None:
        """Declare the initialisation complete: `start_child_ready` returns. Repeated calls have no effect."""
        self._on_ready()
