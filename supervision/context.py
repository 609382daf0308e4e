"""`ActorContext`: what an actor's body gets."""

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
    """What a body gets; a new one per incarnation.

    Attributes:
        ref: The actor's own address; the same in all incarnations.
        mailbox: The actor's mailbox; the same in all incarnations, unpopped messages included.
        attempt: 0 for the first incarnation.
        scope: Cancel scope of this incarnation; the body may cancel itself or set a deadline.
        previous: How the incarnation before this one ended.
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
        """Initialisation is over: `start_child_ready` returns. Harmless when nothing waits, and when called again."""
        self._on_ready()
