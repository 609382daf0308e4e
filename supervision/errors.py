"""The errors of the supervision layer. Each message names the rejected value and a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .public import restored

if TYPE_CHECKING:
    from .exits import Exit


class SupervisionError(Exception):
    """Base class of the errors that this package raises. Instances survive pickling with all attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        return restored, (type(self), self.args, vars(self))


class InvalidSpec(SupervisionError, ValueError):
    """A specification has a field with an invalid value; the message names the field, the value and allowed values."""


class MailboxFull(SupervisionError):
    """The mailbox of the actor is full. Nothing was delivered.

    Attributes:
        actor: Name of the actor.
        capacity: Maximum number of messages in the mailbox.
    """

    def __init__(self, actor: str, capacity: int) -> None:
        self.actor = actor
        self.capacity = capacity
        super().__init__(
            f"the mailbox of {actor!r} holds {capacity} messages and is full; retry later or shed the message"
        )


class MailboxEmpty(SupervisionError):
    """`peek` or `pop` was called on an empty mailbox. The consumer must check `len(mailbox)` first."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"the mailbox of {actor!r} is empty; await wait() and look at len() before peek() or pop()")


class ActorExited(SupervisionError):
    """The actor has ended for good and receives no messages.

    Attributes:
        actor: Name of the actor.
        exit: Why the actor ended.
    """

    def __init__(self, actor: str, exit_: Exit | None) -> None:
        self.actor = actor
        self.exit = exit_
        super().__init__(f"{actor!r} has ended: {exit_!r}")


class NameTaken(SupervisionError):
    """The registry already contains a live actor with this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the name {name!r} is taken by a live actor; names are free again when their actor has exited"
        )


class DuplicateChild(SupervisionError):
    """A live child of this supervisor has the same id."""

    def __init__(self, supervisor: str, child: str) -> None:
        self.supervisor = supervisor
        self.child = child
        super().__init__(
            f"{supervisor!r} already has a live child {child!r}; ids are free again when the child has exited"
        )


class UnknownChild(SupervisionError, LookupError):
    """This supervisor has no live child with that id."""

    def __init__(self, supervisor: str, child: str) -> None:
        self.supervisor = supervisor
        self.child = child
        super().__init__(f"{supervisor!r} has no live child {child!r}; it may have exited")


class TooManyChildren(SupervisionError):
    """The supervisor already has `max_children` live children."""

    def __init__(self, supervisor: str, limit: int) -> None:
        self.supervisor = supervisor
        self.limit = limit
        super().__init__(f"{supervisor!r} has {limit} live children, its max_children; wait for one to exit")


class SupervisorStopping(SupervisionError):
    """The supervisor is stopping and starts no children."""

    def __init__(self, supervisor: str) -> None:
        self.supervisor = supervisor
        super().__init__(f"{supervisor!r} is stopping and starts no more children")


class StartFailed(SupervisionError):
    """A child ended before it called `ctx.ready()` and is not restarted. The crash, if any, is `__cause__`.

    Attributes:
        child: Id of the child.
        exit: How the child ended.
    """

    def __init__(self, child: str, exit_: Exit) -> None:
        self.child = child
        self.exit = exit_
        super().__init__(f"child {child!r} ended before it was ready: {exit_!r}")


class SupervisorGaveUp(SupervisionError):
    """A child exceeded its restart intensity and the supervisor escalated. The last crash is `__cause__`.

    Attributes:
        supervisor: Name of the supervisor.
        child: Id of the child.
        exit: Exit of the child.
    """

    def __init__(self, supervisor: str, child: str, exit_: Exit) -> None:
        self.supervisor = supervisor
        self.child = child
        self.exit = exit_
        super().__init__(f"{supervisor!r} gave up because of its child {child!r}: {exit_!r}")
