"""The port to the owners: which process may write which run, and in what order runs get an owner."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from datetime import datetime

from ..contract.claims import Claim
from ..processes import NO_PLACES, Ability, ProcessInfo, QueueInfo, ReadyRun, Taken


class Claims(abc.ABC):
    """Owners of runs, the queues in which runs wait for an owner, and the lease of this process.

    A claim gives the right to commit to a run; a newer claim voids it. Errors: as of `RunStore`.
    """

    shared: bool = False
    """True if several processes may have the storage open together.

    Then a claim may be `Taken`, a run at rest has no owner (`release`), and a `PeerEvent` reports what another process
    did. In a store that is not shared the one process owns every run, and the methods about other processes do nothing.
    """

    @property
    @abc.abstractmethod
    def good_until(self) -> float:
        """Until when no other process can have this store's claims, in trio time; infinite if it is not shared.

        May be read in any thread. Begin no effect outside of the store after that time; `ClaimsVoided` follows
        soon after it.
        """

    @property
    @abc.abstractmethod
    def unready(self) -> str | None:
        """Why this process should get no new requests (a sentence), or None; for load balancers.

        Of a shared store: no beat of this process is confirmed for two turns, or it was declared dead.
        """

    @property
    @abc.abstractmethod
    def offset(self) -> float:
        """Seconds to add to this machine's clock to get the storage's clock; 0 if the store is not shared."""

    @abc.abstractmethod
    async def claim(self, run_id: str) -> Claim | Taken | None:
        """Claim a run: a new fencing token, which voids older claims. None if no run has this id or it is done.

        Taken: another process owns the run. A run that this process owns is claimed again. Held runs and dead letters
        can be claimed by their id.
        """

    @abc.abstractmethod
    async def release(self, claims: Sequence[Claim]) -> Sequence[str]:
        """Give up runs that are at rest: from now on each process may claim them when there is something to do.

        Returns the ids of runs that were refused, because they have unread commands: their claims are still good. A
        claim that is void is released already. Does nothing in a store that is not shared.
        """

    @abc.abstractmethod
    async def give_back(self, claims: Sequence[Claim], *, ready_at: datetime | None = None) -> None:
        """Give up runs that are not at rest. Counts as no crash.

        For runs that this process cannot work on, and for owners that have ended. Void claims are ignored. Does nothing
        in a store that is not shared.

        Args:
            claims: The claims of the runs.
            ready_at: `claim_ready` claims them from this moment on, UTC, by the same clock as its `now`; None:
                immediately.
        """

    @abc.abstractmethod
    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        """Claim up to `room` runs that need an owner and have none: not at rest, or waiting with background tasks.

        Runs of the queues take turns, and within a queue the lowest rank is first: the time at which the run became
        ready, less ten seconds for each step of its priority. Left out are runs that are not ready before a later time,
        that `ability` leaves out (of another agent, at another place), of queues that are paused or at their limit,
        and, unless an unread command cancels them, dead letters and (in a shared store) runs that another run of their
        thread holds. Costs the size of the result and the number of queues.

        In a store that is not shared, a run that was claimed since the opening has an owner.
        """

    @abc.abstractmethod
    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        """Claim runs without an owner whose timer fired by `now`, earliest first; dead letters are left out.

        Those are waiting and held runs, and runs in queues, whatever the queue's limits: a run's deadline needs no
        room. With `ability.unserved` also runs for which no live process has published both agent and place. The timer
        of a run without open tickets is its deadline; a run with open tickets that does not wait, or that no process
        can serve, is left alone until its `ready_at`.

        In a store that is not shared, every waiting run whose timer fired is returned; one that was claimed since the
        opening, with its present claim.
        """

    @abc.abstractmethod
    async def next_due(self) -> datetime | None:
        """Return when the earliest timer (`row.next_due`) of a run fires that waits or has no owner; None: no timer."""

    @abc.abstractmethod
    def publish(self, agents: Mapping[str, str], *, places: Mapping[str, str] = NO_PLACES, room: int | None) -> None:
        """Say what this process has, and for how many more runs it has room.

        Args:
            agents: key -> digest, and behind a blank facts of the agent as JSON, as `PublishedAgent` reads them.
            places: name of a workspace -> place.
            room: None: no limit.

        Never waits. Other processes see it soon.
        """

    @abc.abstractmethod
    async def agents(self) -> Mapping[str, frozenset[str]]:
        """Return the agents of all live processes: key -> texts, as published. Empty in a store that is not shared."""

    @abc.abstractmethod
    async def processes(self) -> Sequence[ProcessInfo]:
        """Return the processes that have the store open, or own runs still. Empty in a store that is not shared."""

    @abc.abstractmethod
    async def bury(self, process: str) -> bool:
        """Declare a process dead and free its runs immediately. False if no live process has this name.

        For a supervisor that has seen the process end, such as its parent.
        """

    @abc.abstractmethod
    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues, by name."""

    @abc.abstractmethod
    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        """Limit a queue, or pause it. Runs that work already continue.

        Raises:
            UsageError: `max_running` is less than 1.
        """

    @abc.abstractmethod
    async def revive_run(self, run_id: str) -> bool:
        """Let a dead letter be claimed again, with no crash counted. False if the run is not a dead letter.

        Raises:
            UnknownRun: no run has this id.
        """
