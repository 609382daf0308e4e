"""One turn of a process: beat, watch the others' beats, free the runs of dead processes, repair.

Theory of operation. All statements of a turn go through one connection, the listener's, so that a process which cannot
beat does not free runs either. First the runs of voided claims are given back, and only then the process beats: a
confirmed beat makes claims good again, and no older claim may profit. The beat and the look at the others' beats are
one statement. A turn of an idle process is one statement; every third one also looks for what a crash between two
statements left behind: a held run whose thread is free, and a claim that no actor knows.

This module has no trio; `PgKeeper` calls it in a thread.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.decisions import Command, InboxItem
from ..common._leases import BeatWatch, LeaseTimes
from ..common._timestamps import milliseconds
from ._claims import EARLIEST, FREE_STRAYS, GIVE_BACK_ALL, GIVE_BACK_LOST, free, random_bits
from ._connect import Link
from ._epoch import epoch
from ._hints import channel_prefix
from ._schema import LEVEL, READY, UNREAD, whole_number
from ._unthreaded import UnthreadedQuery
from ._values import Bigints, Moment, Texts

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts also while the machine sleeps, unlike trio's clock (on Linux; elsewhere the monotonic clock does)."""

_REPAIRS: Final = 3
"""Turns between two looks for what a crash left behind."""
_STRAYS: Final = 30
"""Turns between two looks for runs whose process has no row, as in a copy of a part of a database."""
_FORGET: Final = 600.0
"""Seconds for which the row of a dead process without runs is kept."""
_MOST_UNREAD: Final = 1_000
"""Commands read together; the rest follows in the next look."""

_REGISTER: Final = """INSERT INTO {s}.processes(name, host, pid, version, level, room, started_at, beat_at)
SELECT CASE WHEN EXISTS (SELECT 1 FROM {s}.processes WHERE name = %s) THEN %s ELSE %s END, %s, %s, %s, %s, %s, %s, now()
RETURNING number, name, clock_timestamp()"""

_BEAT: Final = f"""WITH mine AS (
  UPDATE {{s}}.processes SET beat = beat + 1, beat_at = now(), room = %s
  WHERE number = %s AND NOT dead RETURNING number)
SELECT p.number, p.beat, p.dead, p.number = %s AND EXISTS (SELECT 1 FROM mine), clock_timestamp(),
  (SELECT value FROM {{s}}.about WHERE name = 'epoch'), EXISTS (
    SELECT 1 FROM {{s}}.runs r WHERE {READY} AND r.agent = ANY(%s) AND r.rank <= now() + {EARLIEST}), EXISTS (
    SELECT 1 FROM {{s}}.runs r WHERE r.owner = %s AND {UNREAD}), (SELECT value FROM {{s}}.about WHERE name = 'oldest'),
  p.level
FROM {{s}}.processes p"""

_DECLARE_DEAD: Final = (
    "UPDATE {s}.processes SET dead = true WHERE number = %s AND beat = %s AND NOT dead RETURNING name"
)
_FORGET_DEAD: Final = """WITH gone AS (
  DELETE FROM {s}.processes p WHERE p.number = ANY(%s) AND p.dead
  AND NOT EXISTS (SELECT 1 FROM {s}.runs r WHERE r.owner = p.number AND r.ended_at IS NULL) RETURNING p.number),
its_agents AS (DELETE FROM {s}.agents a USING gone g WHERE a.process = g.number)
DELETE FROM {s}.watches w USING gone g WHERE w.process = g.number"""

_UNREAD: Final = f"""SELECT r.run_id, i.position, i.body FROM {{s}}.runs r
JOIN {{s}}.inbox i ON i.run = r.number AND i.position > r.consumed
WHERE r.owner = %s AND r.ended_at IS NULL AND r.posted > r.consumed
  AND (%s::bigint[] IS NULL OR r.number = ANY(%s::bigint[]))
ORDER BY r.number, i.position LIMIT {_MOST_UNREAD}"""

_FREED: Final = """SELECT r.run_id FROM {s}.runs r
WHERE r.owner = %s AND r.ended_at IS NULL AND NOT r.held
  AND (r.number = ANY(%s::bigint[]) OR r.run_id = ANY(%s::text[]))"""

_OWNED: Final = "SELECT number, run_id, token FROM {s}.runs WHERE owner = %s AND ended_at IS NULL"

_FORGET_AGENTS: Final = "DELETE FROM {s}.agents WHERE process = %s AND agent <> ALL(%s)"
_ADD_AGENTS: Final = """INSERT INTO {s}.agents(process, agent, digest)
SELECT %s, a.agent, a.digest FROM unnest(%s::text[], %s::text[]) AS a(agent, digest)
ON CONFLICT (agent, process) DO UPDATE SET digest = excluded.digest"""

_LEAVE: Final = (
    "DELETE FROM {s}.watches WHERE process = %s",
    "DELETE FROM {s}.agents WHERE process = %s",
    "DELETE FROM {s}.processes WHERE number = %s",
)


def boot_time() -> float:
    """Return the seconds since the machine was started, its sleep included."""
    return time.clock_gettime(_CLOCK)


@attrs.frozen(kw_only=True)
class Turned:
    """The result of a turn.

    Attributes:
        sent: `boot_time` before the confirmed beat was sent.
        process: this process's number; another one than before if it was declared dead.
        declared_dead: This process was declared dead.
        others: the numbers of the other live processes.
        joined: there are live processes that the turn before did not see.
        offset: the server's clock less this machine's, in seconds, and half the round trip within which that is true.
        unread: commands of own runs.
        freed: ids of own runs that their threads do not hold any more.
        agents: The agents of the runs that were freed or given back, and may be claimed.
        epoch: The epoch of the logs.
        reconnected: the connection is another one than in the turn before.
        work: there may be runs to claim for this process's agents.
        oldest: schema version of the oldest release that can work on the tables.
        newest: highest level of rows that a live process writes.
        lost: run -> token of those known claims (`Posture.known`) that were found to be void.
        buried: names of the processes that this one has declared dead.
    """

    sent: float
    process: int
    declared_dead: bool
    others: frozenset[int]
    joined: bool
    offset: tuple[float, float]
    unread: Sequence[tuple[str, InboxItem]]
    freed: Sequence[str]
    agents: Sequence[str]
    epoch: str
    reconnected: bool
    work: bool
    oldest: int
    newest: int
    lost: Mapping[str, int]
    buried: Sequence[str]


@attrs.define(kw_only=True)
class Posture:
    """The requests of the trio thread to a turn; read when the turn begins.

    Attributes:
        room: The number of further runs for which there is room; None: no limit.
        agents: key -> digest; None if they are written already.
        void: the claims of this process are void: give the runs back first.
        held: ids of own runs that their threads held.
        known: run -> token of the claims that this process knows.
    """

    room: int | None = None
    agents: Mapping[str, str] | None = None
    void: bool = False
    held: frozenset[str] = frozenset()
    known: Mapping[str, int] = attrs.field(factory=dict)


def _offset(clock: int, began: datetime, ended: datetime) -> tuple[float, float]:
    """Return the server's clock, in milliseconds, less this machine's, and half the round trip; in seconds."""
    half = (ended - began).total_seconds() / 2
    return clock / 1000 - (began.timestamp() + half), half


class PgTurn:
    """The turns of one process over one connection. Used by one thread at a time."""

    def __init__(
        self,
        link: Link,
        times: LeaseTimes,
        *,
        name: str,
        version: str,
        listens: bool,
        level: int = LEVEL,
        repair: Callable[[Link], Sequence[tuple[int, int | None]]],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            link: the connection.
            times: The times of the lease.
            name: The name of the process. If the name is in use, a random part is appended.
            version: The version of Greenroom.
            level: newest version of rows that the process reads.
            listens: LISTEN for hints; the connection has to be a session of the server's. May be changed between turns.
            repair: lets the oldest run of each free thread lose `held`; returns number and owner of those runs.
            now: the machine's clock.
        """
        self.link, self.name = link, name
        self._given, self._version, self._level = name, version, level
        self.listens, self._repair, self._now = listens, repair, now
        self._ears: tuple[int, int, bool] | None = None
        self._watch = BeatWatch[int](times)
        self._process = 0
        self._opened = -1
        self._turns = 0
        self._others: frozenset[int] = frozenset()
        self._dead_since: dict[int, float] = {}
        self._strays: set[tuple[int, int]] = set()
        self._agents: Mapping[str, str] = {}
        self.prefix = ""
        """The beginning of the names of channels; known after the first turn."""
        self._query = UnthreadedQuery(link, _UNREAD, "greenroom_unread")
        self.freed_runs = self.dead_letters = 0
        """Runs of dead processes that this one has freed; of these, runs that became dead letters."""

    def __repr__(self) -> str:
        """Return the process's name and number."""
        return f"<PgTurn of {self.name}, number {self._process}>"

    def turn(self, posture: Posture) -> Turned:
        """Do everything that a turn is due.

        Raises:
            Outage: the server is unavailable; the watch begins again.
            StoreDown: a table or a right is missing.
        """
        link, before = self.link, self._opened
        agents: set[str] = set()
        if posture.void and self._process:
            agents.update(agent for (agent,) in link.persistent(GIVE_BACK_ALL, (random_bits(), self._process)))
        sent, began = boot_time(), self._now()
        if posture.agents is not None:
            self._agents = posture.agents
        values = (posture.room, self._process, self._process, Texts(sorted(self._agents)), self._process)
        rows = link.persistent(_BEAT, values)
        ended, got = self._now(), boot_time()
        declared_dead = self._process != 0 and not any(row[3] for row in rows)
        offset = _offset(rows[0][4], began, ended) if rows else (0.0, float("inf"))
        if not self._process or declared_dead:
            sent, offset = self._register(posture)
        named = rows[0][5] if rows else None
        if link.opened != before:
            self._watch.begin_anew()
            named = epoch(link)
        self._opened = link.opened
        if posture.agents is not None:
            self._publish(posture.agents)
        others = frozenset(number for number, _, dead, *_ in rows if not dead and number != self._process)
        joined, self._others = bool(others - self._others), others
        buried: list[str] = []
        agents.update(self._bury(got, rows, buried))
        self._turns += 1
        lost: Mapping[str, int] = posture.known if posture.void or declared_dead else {}
        if self._turns % _REPAIRS == 0 or link.opened != before:
            repaired, lost = self._repaired(posture, anew=link.opened != before)
            agents.update(repaired)
        unread = self.unread() if rows and rows[0][7] else ()
        freed = self.freed(run_ids=posture.held) if posture.held else ()
        self._listen()
        return Turned(
            sent=sent,
            process=self._process,
            declared_dead=declared_dead,
            others=others,
            joined=joined,
            offset=offset,
            unread=unread,
            freed=freed,
            agents=sorted(agents),
            epoch=named or "",
            reconnected=link.opened != before,
            work=bool(rows) and rows[0][6],
            oldest=whole_number(rows[0][8]) or 1 if rows else 1,
            newest=max((level for _, _, dead, *_, level in rows if not dead), default=0),
            lost=lost,
            buried=buried,
        )

    # --- the process's own row ---------------------------------------------------------------------------------------

    def _register(self, posture: Posture) -> tuple[float, tuple[float, float]]:
        """Insert a row for this process; returns the time before that, and `Turned.offset`."""
        sent = boot_time()
        drawn = f"{self._given}.{random_bits():08x}"
        values = (
            self._given,
            drawn,
            self._given,
            platform.node(),
            os.getpid(),
            self._version,
            self._level,
            posture.room,
        )
        began = self._now()
        ((self._process, self.name, clock),) = self.link.persistent(_REGISTER, (*values, Moment(milliseconds(began))))
        offset = _offset(clock, began, self._now())
        self._strays.clear()
        self._publish(self._agents)
        return sent, offset

    def _listen(self) -> None:
        """Listen over this connection from now on, as the last of a turn: the server sends hints before an answer."""
        ears = self.link.opened, self._process, self.listens
        if ears != self._ears:
            self.prefix = channel_prefix(self.link)
            if self.listens:
                self.link.persistent(f'LISTEN "{self.prefix}{self._process}"')
            self._ears = ears

    def serves(self, agent: str) -> bool:
        """Return whether this process has published an agent."""
        return agent in self._agents

    def _publish(self, agents: Mapping[str, str]) -> None:
        names = Texts(sorted(agents))
        self.link.persistent(_FORGET_AGENTS, (self._process, names))
        if agents:
            self.link.persistent(_ADD_AGENTS, (self._process, names, Texts([agents[str(name)] for name in names])))

    def leave(self) -> list[str]:
        """Give all runs back and delete the process's row; returns the agents of those runs.

        Raises:
            Outage, StoreDown: see `Link.execute`.
        """
        if not self._process:
            return []
        rows = self.link.persistent(GIVE_BACK_ALL, (random_bits(), self._process))
        for statement in _LEAVE:
            self.link.persistent(statement, (self._process,))
        return sorted({agent for (agent,) in rows})

    # --- the others --------------------------------------------------------------------------------------------------

    def _bury(self, now: float, rows: Sequence[tuple[Any, ...]], names: list[str]) -> list[str]:
        """Declare processes dead whose beat stood still, and free their runs; returns the agents of those runs.

        The names of those processes are appended to `names`.
        """
        link = self.link
        beats = {number: beat for number, beat, dead, *_ in rows if not dead and number != self._process}
        dead = {number for number, _, dead, *_ in rows if dead}
        for number, beat in self._watch.look(now, beats).items():
            declared = link.persistent(_DECLARE_DEAD, (number, beat))
            names += [name for (name,) in declared]
            dead.update([number] if declared else [])
        self._dead_since = {number: self._dead_since.get(number, now) for number in dead}
        if not dead:
            return []
        freed = free(link)
        self.freed_runs += freed.count
        self.dead_letters += freed.dead_letters
        old = [number for number, since in self._dead_since.items() if now - since > _FORGET]
        if old:
            link.persistent(_FORGET_DEAD, (Bigints(old),))
        return sorted(freed.agents)

    # --- repair ------------------------------------------------------------------------------------------------------

    def _repaired(self, posture: Posture, *, anew: bool) -> tuple[list[str], Mapping[str, int]]:
        """Repair what a crash between two statements left behind.

        Returns:
            The agents of runs that are free now; and of the known claims those that are void.
        """
        link = self.link
        self._repair(link)
        agents: set[str] = set()
        if anew or self._turns % _STRAYS == 0:
            agents.update(agent for (agent,) in link.persistent(FREE_STRAYS, (random_bits(),)))
        rows = link.persistent(_OWNED, (self._process,))
        strays = {(number, token) for number, run_id, token in rows if posture.known.get(run_id, 0) < token}
        owned = {run_id: token for _, run_id, token in rows}
        # A claim whose answer is on its way looks the same; so only those that were strays in the look before.
        lost = sorted(strays & self._strays)
        self._strays = strays
        if lost:
            pairs = Bigints([number for number, _ in lost]), Bigints([token for _, token in lost])
            agents.update(agent for (agent,) in link.persistent(GIVE_BACK_LOST, (random_bits(), *pairs, self._process)))
        return sorted(agents), {run_id: token for run_id, token in posture.known.items() if owned.get(run_id) != token}

    # --- what is new for own runs ------------------------------------------------------------------------------------

    def unread(self, numbers: Sequence[int] | None = None) -> list[tuple[str, InboxItem]]:
        """Return the unread commands of own runs, of these or of all, as run id and item."""
        some = None if numbers is None else Bigints(numbers)
        return self._items(self.link.persistent(_UNREAD, (self._process, some, some)))

    async def unread_at_once(self, numbers: Sequence[int]) -> list[tuple[str, InboxItem]]:
        """Return the unread commands of these own runs, read by the trio thread.

        Raises:
            Outage, StoreDown: see `UnthreadedQuery`.
        """
        return self._items(await self._query(self._process, Bigints(numbers), Bigints(numbers)))

    @staticmethod
    def _items(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, InboxItem]]:
        items = []
        for run_id, position, body in rows:
            try:
                items.append((run_id, InboxItem(position=position, command=codec.load(Command, body))))
            except codec.SchemaError:  # of a newer release: the run's owner reports that when it reads its inbox
                continue
        return items

    def freed(self, numbers: Sequence[int] = (), run_ids: Sequence[str] | frozenset[str] = ()) -> list[str]:
        """Return the ids of those own runs, of the given ones, that their threads do not hold."""
        values = (self._process, Bigints(numbers), Texts(sorted(run_ids)))
        return [run_id for (run_id,) in self.link.persistent(_FREED, values)]
