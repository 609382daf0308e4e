"""`HookDeadlines`: notices user code of one phase that hides from the end of its time, without a task of its own.

Theory of operation. Hooks and predicates have time limits, which are cancel scopes: code behind a shield does not hear
them, and the run would stand there for as long as it likes. So whoever calls such code notes here until when it has to
have obeyed, and the run actor, which sleeps until the next moment of interest, looks (`Children.look`). What is overdue
is given up with the task that it runs in, and its phase is asked again, in which it counts as having failed; the other
hooks of the phase run again, as after a conflict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

GRACE: Final = 5.0
"""Seconds in which hooks have to obey when their time is over."""


class HookDeadlines:
    """Who of a phase's plugins is at work, and until when.

    Attributes:
        given_up: who has not obeyed, when the phase was asked before.
    """

    def __init__(self, shortest: float, given_up: frozenset[str] = frozenset()) -> None:
        """`shortest`: seconds; nobody has less time."""
        self._shortest = shortest
        self._at_work: dict[str, float] = {}
        self.given_up = given_up

    def __repr__(self) -> str:
        """Who is at work."""
        return f"<Watch of {', '.join(self._at_work) or 'nobody'}>"

    @contextmanager
    def over(self, who: str, seconds: float) -> Iterator[None]:
        """For the time of the block `who` is at work, and has so many seconds."""
        self._at_work[who] = trio.current_time() + seconds + GRACE
        try:
            yield
        finally:
            del self._at_work[who]

    def overdue(self) -> frozenset[str]:
        """Who should have obeyed by now."""
        now = trio.current_time()
        return frozenset(who for who, at in self._at_work.items() if now >= at)

    def next_look(self) -> float:
        """When somebody may be overdue at the earliest, in trio time."""
        return min(self._at_work.values(), default=trio.current_time() + self._shortest + GRACE)


UNWATCHED: Final = HookDeadlines(math.inf)
"""For whoever is bounded otherwise."""
