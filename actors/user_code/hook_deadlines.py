"""`HookDeadlines`: detect user code of one phase that ignores the end of its time, without a separate task.

Theory of operation. The time limits of hooks and predicates are cancel scopes, and code behind a shield ignores them;
the run would wait for that code without bound. So the caller of such code notes here when it must have ended, and the
run loop, which sleeps until the next moment of interest, checks (`Children.look`). Overdue code is abandoned with its
task, and its phase runs again with that plugin counted as failed; the other hooks of the phase run again, as after a
conflict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ..services.children import Child, Children

GRACE: Final = 5.0
"""Seconds in which a hook has to end once its time is over."""


class HookDeadlines:
    """The plugins of a phase that are running, and until when.

    Attributes:
        given_up: plugins that ignored their cancel when the phase ran before.
    """

    def __init__(self, shortest: float, given_up: frozenset[str] = frozenset()) -> None:
        """`shortest`: the shortest time limit of the phase, in seconds."""
        self._shortest = shortest
        self._at_work: dict[str, float] = {}
        self.given_up = given_up

    def __repr__(self) -> str:
        """Return the names of the running plugins."""
        return f"<HookDeadlines of {', '.join(self._at_work) or 'no plugin'}>"

    @contextmanager
    def over(self, who: str, seconds: float) -> Iterator[None]:
        """Note, for the time of the block, that this plugin is running and has this many seconds."""
        self._at_work[who] = trio.current_time() + seconds + GRACE
        try:
            yield
        finally:
            del self._at_work[who]

    def overdue(self) -> frozenset[str]:
        """Return the plugins that should have ended by now."""
        now = trio.current_time()
        return frozenset(who for who, at in self._at_work.items() if now >= at)

    def next_look(self) -> float:
        """Return the earliest moment at which a plugin may be overdue, in trio time."""
        return min(self._at_work.values(), default=trio.current_time() + self._shortest + GRACE)


def start_until_obeyed(
    children: Children,
    start: Callable[[HookDeadlines], Child],
    shortest: float,
    given_up: frozenset[str] = frozenset(),
) -> None:
    """Start the user code of a phase in a child; abandon the child if some of the code ignores the end of its time.

    The phase is started again then, without that code, until all of it obeys.

    Args:
        children: The tasks of the run.
        start: starts the child.
        shortest: the shortest time limit of the phase, in seconds; infinite: nothing is watched.
        given_up: the names of the code that is not called.
    """
    watch = HookDeadlines(shortest, given_up)
    child = start(watch)

    def look() -> float | None:
        late = watch.overdue()
        if not late:
            return watch.next_look()
        children.abandon(child, " ".join(sorted(late)))
        start_until_obeyed(children, start, shortest, given_up | late)
        return None

    if watch.next_look() < math.inf:
        children.watch(child.key, watch.next_look(), look)
