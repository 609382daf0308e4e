"""Leases of processes: until when a process may use its claims, and when another process may free them.

Theory of operation. A process holds one lease for all its claims, and renews it by advancing its beat, a counter in the
shared storage, once in each turn. No clock of any server takes part: a watcher judges a beat by its own clock, and only
for as long as it watches without a break. The owner counts from the moment *before* it sent a beat, the watcher from
the moment *after* it first read that beat, so that the watcher's time begins later:

    owner:    sent |------ lease - margin ------| claims are void, bodies are cancelled   | margin ends
    watcher:        read |---------------------- lease -------------------------------------| may declare it dead

A watcher that was stopped, or that was cut off from the storage, cannot know what it missed, and begins again. So an
outage of the storage that is longer than the lease lets no process be declared dead. The functions take their times
as arguments: seconds of a clock that also counts while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

import attrs

from ...errors import UsageError

LEASE: Final = 30.0
"""Seconds that a beat may stand still before its process is declared dead."""
TURN: Final = 3.0
"""Seconds between two beats: several are lost before a lease is."""
MARGIN: Final = 8.0
"""Seconds before the end of the lease at which a process stops: its shielded clean-up ends within them."""

_MISSED: Final = 2.0
"""Turns without a look after which a watch is broken."""

K = TypeVar("K", bound=Hashable)


@attrs.frozen
class LeaseTimes:
    """The three times of a lease, in seconds. All processes of a storage use the same ones.

    Attributes:
        lease: The time for which a beat may stand still.
        turn: The time between two beats.
        margin: The time between the end of the use of claims and the end of the lease.
    """

    lease: float = LEASE
    turn: float = TURN
    margin: float = MARGIN

    def __attrs_post_init__(self) -> None:
        """Check that a process has two turns to renew its lease.

        Raises:
            UsageError: a time is not positive, or they do not fit together.
        """
        times = (self.lease, self.turn, self.margin)
        if not all(isinstance(time, int | float) for time in times) or not (
            self.turn > 0 and self.margin > 0 and 2 * self.turn <= self.lease - self.margin
        ):
            way = "give positive seconds with 2 * turn <= lease - margin"
            raise UsageError(f"lease={self.lease}, turn={self.turn}, margin={self.margin}: {way}")

    def good_until(self, sent: float) -> float:
        """Return until when claims may be used; `sent`: when the newest confirmed beat was sent, taken before that."""
        return sent + self.lease - self.margin


@attrs.define(eq=False)
class _Watched:
    """The beat of one process, and when the watcher first read that value."""

    beat: int
    since: float


class BeatWatch(Generic[K]):
    """The beats of other processes, as one process sees them."""

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self._looked: float | None = None
        self._watched: dict[K, _Watched] = {}

    def __repr__(self) -> str:
        """Return the number of watched processes, and when the watch was last continued."""
        return f"<BeatWatch of {len(self._watched)}: looked at {self._looked}>"

    def restart(self) -> None:
        """Forget what was seen: the connection was lost, or this process was away."""
        self._looked = None
        self._watched.clear()

    def look(self, now: float, beats: Mapping[K, int]) -> Mapping[K, int]:
        """Take the beats of the other live processes; return those that stood still for a lease of unbroken watching.

        Declare a returned process dead only if its beat in the storage is still the returned one. A process is returned
        again in each later look until it beats or is left out. A look more than two turns after the one before begins
        the watch again.

        Args:
            now: taken *after* the beats were read, in seconds; never less than before.
            beats: process -> beat. A process that is left out is forgotten.
        """
        if self._looked is None or now - self._looked > _MISSED * self._times.turn:
            self._watched.clear()
        self._looked = now
        for absent in self._watched.keys() - beats.keys():
            del self._watched[absent]
        still: dict[K, int] = {}
        for process, beat in beats.items():
            watched = self._watched.get(process)
            if watched is None or watched.beat != beat:
                self._watched[process] = _Watched(beat, now)
            elif now - watched.since > self._times.lease:
                still[process] = beat
        return still
