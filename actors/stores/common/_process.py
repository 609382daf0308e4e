"""One process among those of a shared storage: its lease, and the duties of its turns, as a pure machine.

Theory of operation. A process holds one lease for all its claims (`_leases`), and renews it by a beat in each turn.
`STANDINGS` has one row per standing: for each signal that may come, the standing that follows and the actions that the
adapter performs, in this order. Claims are good in `good` only. Runs whose claims are void are given back before the
beat that makes claims good again, so that no older claim profits from it; a beat that was on its way while the lease
ran out (`void`, beat) renews nothing. A process that others have declared dead gets a new row, under another name.

In each turn the process also watches the beats of the others, frees the runs of the dead, and looks for what a crash
between two statements left behind. The machine says what is due (`look`, `repair`); an adapter reads and writes:
`memory/_peers.py` on tables in one synchronous stretch, `postgres/_lease.py` by statements in a thread. Time is an
argument: seconds of a clock that also counts while the machine sleeps.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, Generic, TypeVar

import attrs

from ...contract.lifecycle import IllegalTransition
from ._leases import BeatWatch, LeaseTimes

K = TypeVar("K", bound=Hashable)


class Standing(Enum):
    """The state of a process among the others. `STANDINGS` is the table."""

    NEW = auto()  # without a row
    GOOD = auto()  # claims are good
    VOID = auto()  # claims are void, and the storage still has this process as the owner of its runs
    RETURNING = auto()  # as VOID, in a turn that gives the runs back
    DEAD = auto()  # declared dead by another process, and without a new row
    ENDED = auto()  # it takes no more turns


class LeaseSignal(Enum):
    """An input to the lease."""

    TURN = auto()  # a turn begins
    BEAT = auto()  # the storage confirmed a beat
    DENIAL = auto()  # the storage has no live row for the beat
    JOIN = auto()  # the storage confirmed a new row
    LAPSE = auto()  # the time until which claims are good has passed
    OUTAGE = auto()  # the turn met an outage
    END = auto()  # the process leaves, or the tables need a newer release


class LeaseAction(Enum):
    """A duty of the adapter."""

    JOIN = auto()  # write a new row; the answer is `joined`
    BEAT = auto()  # advance the beat; the answer is `beat`
    RETURN_ALL = auto()  # take the ownership of all runs from this process, which counts as no crash
    VOID = auto()  # report that all claims are void
    TURN = auto()  # begin the next turn immediately


_S, _I, _A = Standing, LeaseSignal, LeaseAction
Move = tuple[Standing, tuple[LeaseAction, ...]]

STANDINGS: Final[Mapping[Standing, Mapping[LeaseSignal, Move]]] = {
    _S.NEW: {
        _I.TURN: (_S.NEW, (_A.JOIN, _A.BEAT)),
        _I.JOIN: (_S.GOOD, ()),
        _I.LAPSE: (_S.NEW, ()),
        _I.OUTAGE: (_S.NEW, ()),
        _I.END: (_S.ENDED, ()),
    },
    _S.GOOD: {
        _I.TURN: (_S.GOOD, (_A.BEAT,)),
        _I.BEAT: (_S.GOOD, ()),
        _I.DENIAL: (_S.DEAD, (_A.VOID, _A.JOIN, _A.BEAT)),
        _I.LAPSE: (_S.VOID, (_A.VOID,)),
        _I.OUTAGE: (_S.GOOD, ()),
        _I.END: (_S.ENDED, ()),
    },
    _S.VOID: {
        _I.TURN: (_S.RETURNING, (_A.RETURN_ALL, _A.BEAT)),
        _I.BEAT: (_S.VOID, (_A.TURN,)),
        _I.DENIAL: (_S.DEAD, (_A.JOIN, _A.BEAT)),
        _I.LAPSE: (_S.VOID, ()),
        _I.OUTAGE: (_S.VOID, ()),
        _I.END: (_S.ENDED, ()),
    },
    _S.RETURNING: {
        _I.TURN: (_S.RETURNING, (_A.RETURN_ALL, _A.BEAT)),  # the turn before was cut off
        _I.BEAT: (_S.GOOD, ()),
        _I.DENIAL: (_S.DEAD, (_A.JOIN, _A.BEAT)),
        _I.LAPSE: (_S.RETURNING, ()),
        _I.OUTAGE: (_S.VOID, ()),
        _I.END: (_S.ENDED, ()),
    },
    _S.DEAD: {
        _I.TURN: (_S.DEAD, (_A.JOIN, _A.BEAT)),
        _I.JOIN: (_S.GOOD, ()),
        _I.LAPSE: (_S.DEAD, ()),
        _I.OUTAGE: (_S.DEAD, ()),
        _I.END: (_S.ENDED, ()),
    },
    _S.ENDED: dict.fromkeys((_I.BEAT, _I.DENIAL, _I.JOIN, _I.LAPSE, _I.OUTAGE, _I.END), (_S.ENDED, ())),
}


@attrs.frozen(kw_only=True)
class Duties(Generic[K]):
    """The work of a turn after its beat, in this order.

    Attributes:
        silent: process -> beat of processes to declare dead, if the beat in the storage is still this one.
        free: free the runs of dead processes.
        forget: dead processes whose rows may be deleted if they own no run.
        strays: free the runs whose owner has no row.
        repair: look for what a crash between two statements left behind; then call `repair`.
    """

    silent: Mapping[K, int]
    free: bool
    forget: Sequence[K]
    strays: bool
    repair: bool


@attrs.frozen(kw_only=True)
class Repairs:
    """The result of a look at the runs that the storage says this process owns.

    Attributes:
        strays: run -> token of claims that this process does not know, in two looks: to give back.
        lost: run -> token of claims that this process knows and that are void: to forget.
    """

    strays: Mapping[str, int]
    lost: Mapping[str, int]


class ProcessMachine(Generic[K]):
    """The machine of one process; `K` names processes in the storage.

    Attributes:
        standing: The state.
        good_until: The time until which claims are good, if the standing is `GOOD`.
        beat_sent: The time before the newest confirmed beat was sent.
        held: ids of own runs that their threads hold.
        epoch: The identity of the logs, as far as it was reported.
    """

    def __init__(self, times: LeaseTimes, *, every: int = 1, strays_every: int = 30, remember: float = 600.0) -> None:
        """Make the machine of a process without a row.

        Args:
            times: The times of the lease.
            every: turns between two repairs.
            strays_every: turns between two looks for runs whose owner has no row, as in a copy of a part of a database.
            remember: seconds for which the row of a dead process without runs is kept: it learns from the row that it
                was declared dead.
        """
        self._times, self._every, self._strays_every, self._remember = times, every, strays_every, remember
        self._watch = BeatWatch[K](times)
        self._turns = 0
        self._dead_since: dict[K, float] = {}
        self._strays: set[tuple[str, int]] = set()
        self.standing = Standing.NEW
        self.good_until = self.beat_sent = -float("inf")
        self.held: set[str] = set()
        self.epoch = ""

    def __repr__(self) -> str:
        """Return the standing, and until when claims are good."""
        return f"<ProcessMachine {self.standing.name.lower()}: good until {self.good_until:.1f}>"

    @property
    def void(self) -> bool:
        """True if claims were good before and are not now."""
        return self.standing not in (Standing.GOOD, Standing.NEW)

    def good(self, now: float) -> bool:
        """Return whether a claim may be made and used now."""
        return self.standing is Standing.GOOD and now < self.good_until

    def unready(self, now: float) -> str | None:
        """Return why this process should get no new requests, a sentence; None if it should."""
        if self.void:
            return "the lease of this process has run out, and its runs are not given back yet"
        age = now - self.beat_sent
        if age > 2 * self._times.turn:
            return f"the newest beat of this process was confirmed {age:.0f} seconds ago"
        return None

    # --- the lease ---------------------------------------------------------------------------------------------------

    def _take(self, signal: LeaseSignal) -> tuple[LeaseAction, ...]:
        row = STANDINGS[self.standing]
        if signal not in row:
            raise IllegalTransition("process", self.standing.name, signal.name, (legal.name for legal in row))
        self.standing, actions = row[signal]
        if LeaseAction.VOID in actions:
            self.held.clear()
        return actions

    def turn(self, now: float) -> tuple[LeaseAction, ...]:
        """Begin a turn, or a beat between two turns."""
        return (*self.clock(now), *self._take(LeaseSignal.TURN))

    def clock(self, now: float) -> tuple[LeaseAction, ...]:
        """Void the claims once they are not good any more."""
        return self.lapse() if now >= self.good_until else ()

    def lapse(self) -> tuple[LeaseAction, ...]:
        """Void the claims, whatever the time."""
        return self._take(LeaseSignal.LAPSE)

    def beat(self, sent: float, *, alive: bool) -> tuple[LeaseAction, ...]:
        """Take the answer to a beat; `sent`: taken before it was sent, `alive`: a live row has the beat."""
        actions = self._take(LeaseSignal.BEAT if alive else LeaseSignal.DENIAL)
        self._renew(sent)
        return actions

    def joined(self, sent: float) -> None:
        """Take the answer to a new row; `sent`: taken before the row was sent."""
        self._take(LeaseSignal.JOIN)
        self._strays.clear()
        self._renew(sent)

    def _renew(self, sent: float) -> None:
        if self.standing is Standing.GOOD:
            self.beat_sent, self.good_until = sent, self._times.good_until(sent)

    def outage(self) -> None:
        """Note that a turn met an outage, or that this process was away: what it missed is unknown."""
        self._watch.restart()
        self._take(LeaseSignal.OUTAGE)

    def end(self) -> None:
        """Take no more turns."""
        self._take(LeaseSignal.END)

    # --- the others, and what is left behind -------------------------------------------------------------------------

    def look(self, now: float, beats: Mapping[K, int], dead: Collection[K], *, reconnected: bool = False) -> Duties[K]:
        """Watch the others, in each turn; returns what is due.

        Args:
            now: taken after the beats were read.
            beats: process -> beat of the other live processes.
            dead: the processes that were declared dead before, this one's former rows included.
            reconnected: the connection is another one than in the turn before.
        """
        if reconnected:
            self._watch.restart()
        silent = self._watch.look(now, beats)
        self._dead_since = {process: self._dead_since.get(process, now) for process in (*dead, *silent)}
        self._turns += 1
        return Duties(
            silent=silent,
            free=bool(self._dead_since),
            forget=[process for process, since in self._dead_since.items() if now - since > self._remember],
            strays=reconnected or self._turns % self._strays_every == 0,
            repair=reconnected or self._turns % self._every == 0,
        )

    def repair(self, owned: Mapping[str, int], claims: Mapping[str, int]) -> Repairs:
        """Compare the runs that the storage says this process owns with the claims that the process knows.

        A claim whose answer is on its way looks like a stray; so a run is given back only if the look before found it.

        Args:
            owned: run -> token, read after `claims`.
            claims: run -> token of the newest claims.
        """
        strays = {(run_id, token) for run_id, token in owned.items() if claims.get(run_id, 0) < token}
        repeated, self._strays = strays & self._strays, strays
        lost = {run_id: token for run_id, token in claims.items() if owned.get(run_id) != token}
        return Repairs(strays=dict(sorted(repeated)), lost=lost)
