"""The statements of the turns of a process: beat, watch the others' beats, free the runs of dead processes, repair.

All statements of a turn go through one connection, the listener's, so that a process which cannot beat does not free
runs either. The beat and the look at the others' beats are one statement, and the turn of an idle process is that one.
`PgLease` decides, by the machine in `common/_process.py`, which statements a turn has, and executes them in a thread.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.decisions import Command, InboxItem
from ...processes import NO_PLACES
from ..common._leases import LeaseTimes
from ..common._timestamps import milliseconds
from ._claims import EARLIEST, FREE_STRAYS, GIVE_BACK_ALL, GIVE_BACK_LOST, free, random_bits
from ._connect import Link
from ._epoch import epoch
from ._hints import channel_prefix
from ._schema import LEVEL, PG_MIGRATIONS, READY, UNREAD, whole_number
from ._threads import repair_threads
from ._unthreaded import UnthreadedQuery
from ._values import Bigints, Moment, Texts

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts also while the machine sleeps, unlike trio's clock (on Linux; elsewhere the monotonic clock does)."""

_MOST_UNREAD: Final = 1_000
"""Commands read together; the rest follows in the next look."""

_REGISTER: Final = """INSERT INTO {s}.processes(name, host, pid, version, level, room, started_at, beat_at)
SELECT CASE WHEN EXISTS (SELECT 1 FROM {s}.processes WHERE name = %s) THEN %s ELSE %s END, %s, %s, %s, %s, %s, %s, now()
RETURNING number, name"""

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

_PUT_PLACES: Final = "UPDATE {s}.processes SET workspaces = %s, places = %s WHERE number = %s"

_LEAVE: Final = (
    "DELETE FROM {s}.watches WHERE process = %s",
    "DELETE FROM {s}.agents WHERE process = %s",
    "DELETE FROM {s}.processes WHERE number = %s",
)


def boot_time() -> float:
    """Return the seconds since the machine was started, its sleep included."""
    return time.clock_gettime(_CLOCK)


@attrs.frozen(kw_only=True)
class PgProfile:
    """The constants of a process on a database.

    Attributes:
        name: The name that the process asks for.
        release: The version of Greenroom.
        times: The times of the lease.
        level: newest version of rows that the process reads.
        schema_version: The version of the tables that the release knows.
        answer: seconds after which a statement without an answer is ended.
        threaded: statements are executed in threads; else in the calling task.
    """

    name: str
    release: str
    times: LeaseTimes
    answer: float
    level: int = LEVEL
    schema_version: int = len(PG_MIGRATIONS)
    threaded: bool = True


@attrs.frozen(kw_only=True)
class BeatAnswer:
    """The answer to a beat.

    Attributes:
        sent: `boot_time` before the beat was sent.
        read: `boot_time` after its answer was read.
        alive: the beat is this process's newest one; False if this process was declared dead.
        beats: process -> beat of the other live processes.
        dead: The processes that were declared dead.
        offset: the server's clock less this machine's, in seconds, and half the round trip within which that is true.
        epoch: The epoch of the logs.
        reconnected: the connection is another one than at the beat before.
        work: there may be runs to claim for this process's agents.
        unread: commands of own runs are unread.
        oldest: schema version of the oldest release that can work on the tables.
        newest: highest level of rows that a live process writes.
    """

    sent: float
    read: float
    alive: bool = False
    beats: Mapping[int, int] = attrs.field(factory=dict)
    dead: Sequence[int] = ()
    offset: tuple[float, float] = (0.0, math.inf)
    epoch: str = ""
    reconnected: bool = False
    work: bool = False
    unread: bool = False
    oldest: int = 1
    newest: int = 0


def _offset(clock: int, began: datetime, ended: datetime) -> tuple[float, float]:
    """Return the server's clock, in milliseconds, less this machine's, and half the round trip; in seconds."""
    half = (ended - began).total_seconds() / 2
    return clock / 1000 - (began.timestamp() + half), half


class TurnStatements:
    """The statements of the turns of one process over one connection. Used by one thread at a time.

    Each method raises Outage if the server is unavailable, and StoreDown if a table or a right is missing.

    Attributes:
        link: the connection.
        name, process: The name and the number of the process; others once it was declared dead. The number is 0 before
            the first row.
        listens: LISTEN for hints; the connection has to be a session of the server's. May be changed between turns.
        prefix: The beginning of the names of channels; known after the first turn.
        freed_runs, dead_letters: runs of dead processes that this one has freed; of these, runs that became dead
            letters.
    """

    def __init__(
        self, link: Link, profile: PgProfile, *, listens: bool, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Prepare; nothing is sent. `now`: the machine's clock."""
        self.link, self.name, self._profile = link, profile.name, profile
        self.listens, self._now = listens, now
        self.process = 0
        self.prefix = ""
        self.freed_runs = self.dead_letters = 0
        self._ears: tuple[int, int, bool] | None = None
        self._opened = -1
        self._has_places = False
        self._query = UnthreadedQuery(link, _UNREAD, "greenroom_unread")

    def __repr__(self) -> str:
        """Return the process's name and number."""
        return f"<TurnStatements of {self.name}, number {self.process}>"

    # --- the process's own row ---------------------------------------------------------------------------------------

    def join(self, room: int | None, agents: Mapping[str, str], places: Mapping[str, str] = NO_PLACES) -> float:
        """Insert a row for this process; returns `boot_time` before that. A name in use gets a random part."""
        profile, sent = self._profile, boot_time()
        name = profile.name
        values = (name, f"{name}.{random_bits():08x}", name, platform.node(), os.getpid(), profile.release)
        now = Moment(milliseconds(self._now()))
        ((self.process, self.name),) = self.link.persistent(_REGISTER, (*values, profile.level, room, now))
        self.publish(agents, places)
        return sent

    def beat(self, room: int | None, agents: Mapping[str, str]) -> BeatAnswer:
        """Advance the beat, and read the beats of the others. `agents`: those that this process has published."""
        sent, began = boot_time(), self._now()
        values = (room, self.process, self.process, Texts(sorted(agents)), self.process)
        rows = self.link.persistent(_BEAT, values)
        ended, read = self._now(), boot_time()
        if not rows:  # this process was declared dead, and its row is deleted by now
            return BeatAnswer(sent=sent, read=read)
        alive, reconnected = any(row[3] for row in rows), self.link.opened != self._opened
        if alive:
            self._opened = self.link.opened
        _, _, _, _, clock, stored_epoch, work, unread, oldest, _ = rows[0]
        return BeatAnswer(
            sent=sent,
            read=read,
            alive=alive,
            beats={number: beat for number, beat, dead, *_ in rows if not dead and number != self.process},
            dead=[number for number, _, dead, *_ in rows if dead],
            offset=_offset(clock, began, ended),
            epoch=epoch(self.link) if reconnected else str(stored_epoch or ""),
            reconnected=reconnected,
            work=work,
            unread=unread,
            oldest=whole_number(oldest) or 1,
            newest=max((level for _, _, dead, *_, level in rows if not dead), default=0),
        )

    def publish(self, agents: Mapping[str, str], places: Mapping[str, str] = NO_PLACES) -> None:
        """Write the agents of this process, key -> digest, and its places, name -> place."""
        names = Texts(sorted(agents))
        self.link.persistent(_FORGET_AGENTS, (self.process, names))
        if agents:
            self.link.persistent(_ADD_AGENTS, (self.process, names, Texts([agents[str(name)] for name in names])))
        if places or self._has_places:
            self.link.persistent(_PUT_PLACES, (Texts([*places]), Texts([*places.values()]), self.process))
            self._has_places = bool(places)

    @property
    def _ears_needed(self) -> tuple[int, int, bool]:
        return self.link.opened, self.process, self.listens

    @property
    def must_listen(self) -> bool:
        """True if `listen` has something to do."""
        return self._ears != self._ears_needed

    def listen(self) -> None:
        """Listen over this connection from now on, as the last of a turn: the server sends hints before an answer."""
        self.prefix = channel_prefix(self.link)
        if self.listens:
            self.link.persistent(f'LISTEN "{self.prefix}{self.process}"')
        self._ears = self._ears_needed

    def give_back_all(self) -> set[str]:
        """Give back the runs of this process, which counts as no crash; returns their agents."""
        return {agent for (agent,) in self.link.persistent(GIVE_BACK_ALL, (random_bits(), self.process))}

    def leave(self) -> set[str]:
        """Give all runs back and delete the process's row; returns the agents of those runs."""
        if not self.process:
            return set()
        agents = self.give_back_all()
        for statement in _LEAVE:
            self.link.persistent(statement, (self.process,))
        return agents

    # --- the others, and what a crash between two statements left behind ---------------------------------------------

    def declare_dead(self, process: int, beat: int) -> str | None:
        """Declare a process dead if its beat still is this one; returns its name, or None if it is not."""
        rows = self.link.persistent(_DECLARE_DEAD, (process, beat))
        return str(rows[0][0]) if rows else None

    def free_dead(self) -> set[str]:
        """Free the runs of dead processes; returns their agents."""
        freed = free(self.link)
        self.freed_runs += freed.count
        self.dead_letters += freed.dead_letters
        return freed.agents

    def forget_dead(self, processes: Sequence[int]) -> None:
        """Delete the rows of these dead processes, if they own no run."""
        self.link.persistent(_FORGET_DEAD, (Bigints(processes),))

    def free_strays(self) -> set[str]:
        """Free the runs whose owner has no row; returns their agents."""
        return {agent for (agent,) in self.link.persistent(FREE_STRAYS, (random_bits(),))}

    def owned(self) -> Mapping[str, tuple[int, int]]:
        """Let the oldest run of each free thread work; then return own runs: id -> token and number."""
        repair_threads(self.link)
        rows = self.link.persistent(_OWNED, (self.process,))
        return {run_id: (token, number) for number, run_id, token in rows}

    def give_back(self, runs: Sequence[tuple[int, int]]) -> set[str]:
        """Give back runs, named by token and number; returns their agents."""
        pairs = Bigints([number for _, number in runs]), Bigints([token for token, _ in runs])
        rows = self.link.persistent(GIVE_BACK_LOST, (random_bits(), *pairs, self.process))
        return {agent for (agent,) in rows}

    # --- news of own runs --------------------------------------------------------------------------------------------

    def unread(self, numbers: Sequence[int] | None = None) -> list[tuple[str, InboxItem]]:
        """Return the unread commands of own runs, of these or of all, as run id and item."""
        some = None if numbers is None else Bigints(numbers)
        return self._items(self.link.persistent(_UNREAD, (self.process, some, some)))

    async def unread_unthreaded(self, numbers: Sequence[int]) -> list[tuple[str, InboxItem]]:
        """Return the unread commands of these own runs, read by the trio thread."""
        return self._items(await self._query(self.process, Bigints(numbers), Bigints(numbers)))

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
        """Return the ids of those own runs, of these ones, that their threads do not hold."""
        values = (self.process, Bigints(numbers), Texts(sorted(run_ids)))
        return [run_id for (run_id,) in self.link.persistent(_FREED, values)]
