"""The errors of the kernel. Each names the value that was refused and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .public import restored

if TYPE_CHECKING:
    from .exits import Exit


class SupervisionError(Exception):
    """Base of every error that this package raises by itself. It comes whole out of a pickle."""

    def __reduce__(self) -> tuple[object, ...]:
        return restored, (type(self), self.args, vars(self))


class InvalidSpec(SupervisionError, ValueError):
    """A specification has a field with an invalid value; the message names both, and the values that are allowed."""


class MailboxFull(SupervisionError):
    """A tell was refused because the actor has not kept up. Nothing was delivered.

    Attributes:
        actor: Name of the actor.
        capacity: How many messages its mailbox holds.
    """

    def __init__(self, actor: str, capacity: int) -> None:
        self.actor = actor
        self.capacity = capacity
        super().__init__(
            f"the mailbox of {actor!r} holds {capacity} messages and is full; retry later or shed the message"
        )


class MailboxEmpty(SupervisionError):
    """`peek` or `pop` on an empty mailbox: the consumer did not look at `len(mailbox)` first."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        super().__init__(f"the mailbox of {actor!r} is empty; await wait() and look at len() before peek() or pop()")


class ActorExited(SupervisionError):
    """The actor has ended for good; a message or a question can not reach it.

    Attributes:
        actor: Name of the actor.
        exit: Why it ended.
    """

    def __init__(self, actor: str, exit_: Exit | None) -> None:
        self.actor = actor
        self.exit = exit_
        super().__init__(f"{actor!r} has ended: {exit_!r}")


class NameTaken(SupervisionError):
    """The registry already holds a live actor of that name."""

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
    """No live child of this supervisor has that id."""

    def __init__(self, supervisor: str, child: str) -> None:
        self.supervisor = supervisor
        self.child = child
        super().__init__(f"{supervisor!r} has no live child {child!r}; it may have exited")


class TooManyChildren(SupervisionError):
    """`max_children` live children are there already."""

    def __init__(self, supervisor: str, limit: int) -> None:
        self.supervisor = supervisor
        self.limit = limit
        super().__init__(f"{supervisor!r} has {limit} live children, its max_children; wait for one to exit")


class SupervisorStopping(SupervisionError):
    """The supervisor is stopping and takes no more children."""

    def __init__(self, supervisor: str) -> None:
        self.supervisor = supervisor
        super().__init__(f"{supervisor!r} is stopping and starts no more children")


class StartFailed(SupervisionError):
    """A child ended before it had called `ctx.ready()`; it is not restarted. The crash, if any, is `__cause__`.

    Attributes:
        child: Id of the child.
        exit: How it ended.
    """

    def __init__(self, child: str, exit_: Exit) -> None:
        self.child = child
        self.exit = exit_
        super().__init__(f"child {child!r} ended before it was ready: {exit_!r}")


class SupervisorGaveUp(SupervisionError):
    """A child exceeded its restart intensity and the supervisor escalates. The last crash is `__cause__`.

    Attributes:
        supervisor: Name of the supervisor.
        child: Id of the child.
        exit: The child's exit.
    """

    def __init__(self, supervisor: str, child: str, exit_: Exit) -> None:
        self.supervisor = supervisor
        self.child = child
        self.exit = exit_
        super().__init__(f"{supervisor!r} gave up because of its child {child!r}: {exit_!r}")
