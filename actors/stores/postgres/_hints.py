"""Hints from this process to others, and the watches that ask others for hints.

Theory of operation. A hint is a NOTIFY to one process's channel, sent after the commit that it is about. Its
transaction writes nothing, so it waits for no disk and no standby. Hints may be lost: the rows are the truth, and each
process looks at them by itself in its turn. The payloads:

    c:RUN RUN        commands of your runs are unread
    h:RUN            your run is not held by its thread any more
    m:RUN:LAST ...   runs that you watch have events up to LAST
    w:HOPS:AGENT     there may be runs of this agent to claim
    p:               another process has joined
    s:NONCE          a test of the connection, to oneself
    k:               reserved for configuration

The name of a channel has a part that is drawn, once for each schema, and kept in `about`: who may not read our tables
can neither send hints to a process nor hear them. A release that names its channels otherwise gets no hints from this
one and sends none to it; each finds by its own looks what the other did.

A hint about a command travels with the statement that journals the command, and the server executes it right after
that statement's commit: it costs the sender no round trip (`Link.prompt`). All other hints have a connection of
their own. Moves of runs are gathered for two milliseconds and sent by one statement, which
joins them with the watches: a run without watches elsewhere causes no NOTIFY, and a process that is alone sends
nothing at all. A hint about work goes to one process that has the agent and room, drawn at random; a process whose room
is full by then passes the hint on.

A watch is a row with the run and the watching process, good for 60 seconds and renewed. It is written when a run is
first watched, and then the run's newest sequence is read: what happened before the row was there is reported then. A
poll of two seconds over all watched runs makes up for lost hints.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from ...store_events import ChangedElsewhere, Report, WorkFound, ignore
from ..common.faults import HINT, Faults, Outage
from ._connect import Link
from ._driver import psycopg
from ._values import Bigints, Texts

FLUSH: Final = 0.002
"""Seconds for which moves of runs are gathered."""
IDLE_FLUSH: Final = 0.02
"""As `FLUSH`, while no run of this process is watched elsewhere."""
WATCHFUL: Final = 5.0
"""Seconds for which `FLUSH` is used after a flush that met a watcher: most flushes are about other runs."""
WORK_FLUSH: Final = 0.02
"""Seconds for which hints about work are gathered."""
POLL: Final = 2.0
"""Seconds between two looks at the watched runs."""
WATCHED: Final = 60.0
"""Seconds for which a watch is good."""
RENEWAL: Final = 20.0
"""Seconds after which watches are renewed."""
_AGAIN: Final = 0.5
"""Seconds until the next attempt of a statement that met an outage."""
MOST_HOPS: Final = 3
"""How often a hint about work is passed on."""
_LONGEST: Final = 200
"""Most runs in one hint: a payload has less than 8,000 bytes."""

_DRAWN: Final = 32
"""Hexadecimal digits of a channel's name that are drawn: 128 bits. With the number of a process it has 63 bytes."""

_CHANNELS: Final = "SELECT value FROM {s}.about WHERE name = 'channels'"
_DRAW: Final = "INSERT INTO {s}.about(name, value) VALUES ('channels', %s) ON CONFLICT (name) DO NOTHING"

_SEND: Final = "SELECT pg_notify(h.channel, h.payload) FROM unnest(%s::text[], %s::text[]) AS h(channel, payload)"
_SEND_ONE: Final = "SELECT pg_notify(%s, %s)"
_MOVED: Final = """SELECT pg_notify(%s || w.process, 'm:' || string_agg(x.run || ':' || x.last, ' '))
FROM unnest(%s::bigint[], %s::bigint[]) AS x(run, last) JOIN {s}.watches w ON w.run = x.run AND w.until > now()
WHERE w.process <> %s GROUP BY w.process"""
_WORK: Final = """WITH drawn AS (
  SELECT DISTINCT ON (x.agent, x.place) x.agent, p.number FROM unnest(%s::text[], %s::text[]) AS x(agent, place)
  JOIN {s}.agents a ON a.agent = x.agent JOIN {s}.processes p ON p.number = a.process
  WHERE NOT p.dead AND (p.room IS NULL OR p.room > 0) AND p.number <> %s
    AND (x.place IS NULL OR x.place = ANY(p.places))
  ORDER BY x.agent, x.place, random())
SELECT d.number, CASE WHEN d.number <> %s THEN pg_notify(%s || d.number, 'w:' || %s || ':' || d.agent) END
FROM drawn d"""
_WATCH: Final = f"""INSERT INTO {{s}}.watches(run, process, until)
SELECT r.number, %s, now() + interval '{WATCHED} s' FROM {{s}}.runs r WHERE r.run_id = ANY(%s)
ON CONFLICT (run, process) DO UPDATE SET until = excluded.until"""
_UNWATCH: Final = """DELETE FROM {s}.watches w USING {s}.runs r
WHERE w.run = r.number AND w.process = %s AND r.run_id = ANY(%s)"""
_HEADS: Final = """SELECT r.run_id, r.number, r.last_seq FROM {s}.runs r
WHERE r.run_id = ANY(%s) AND r.owner IS DISTINCT FROM %s"""


logger = logging.getLogger("greenroom.store")


def channel_prefix(link: Link) -> str:
    """Return what the names of the channels of a schema begin with; the number of a process follows.

    Raises:
        Outage, StoreDown: see `Link.execute`.
    """
    rows = link.persistent(_CHANNELS)
    if not rows:
        link.persistent(_DRAW, (secrets.token_hex(),))
        rows = link.persistent(_CHANNELS)
    drawn = hashlib.sha256(str(rows[0][0]).encode()).hexdigest()[:_DRAWN]  # a name, whatever the row contains
    return f"greenroom_{drawn}_"


@attrs.define
class _WatchedRun:
    """A watched run: the number of its blocks, its own number once that is known, and the newest reported sequence."""

    blocks: int = 0
    number: int = 0
    reported: int = -1


@attrs.frozen
class _Job:
    """The work of one call in the thread, in this order."""

    process: int
    sends: Sequence[tuple[str, str]] = ()
    moves: Mapping[int, int] = attrs.field(factory=dict)
    work: Mapping[tuple[int, bool], Sequence[tuple[str, str | None]]] = attrs.field(factory=dict)
    watch: Sequence[str] = ()
    unwatch: Sequence[str] = ()
    heads: Sequence[str] = ()


@attrs.frozen
class _Done:
    """The results of a job: whether other processes watch, whether this one was drawn for work, heads of runs."""

    sent: int
    watched: bool
    drawn: bool
    heads: Sequence[tuple[str, int, int]]


class PgHints:
    """The hints that this process sends, and the runs that it watches. Used in the trio thread.

    Attributes:
        process: number of this process; set before `serve`.
        prefix: The beginning of the names of channels (`channel_prefix`); set before `serve`.
        alone: no other process has the store open.
        sent: hints to other processes, without those that travelled with commands.
        refused: hints that the server did not take.
        tests: hints to oneself that the server has taken.
    """

    def __init__(
        self,
        link: Link,
        *,
        in_thread: Callable[[Callable[[], Any]], Any],
        poll: float = POLL,
        faults: Faults | None = None,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            link: the connection to send through.
            in_thread: an async function that calls a function in a thread.
            poll: seconds between two looks at the watched runs.
            faults: called at `faults.HINT`.
        """
        self._faults = faults
        self._link, self._in_thread, self._poll = link, in_thread, poll
        self.process = 0
        self.prefix = ""
        self.alone = True
        self.sent = self.refused = self.tests = 0
        self._report: Report = ignore
        self._sends: dict[tuple[str, str], None] = {}
        self._commands: dict[int, set[int]] = {}
        self._moves: dict[int, int] = {}
        self._work: dict[tuple[str, str | None], tuple[int, bool]] = {}
        self._watched: dict[str, _WatchedRun] = {}
        self._numbered: dict[int, str] = {}  # of watched runs whose number is known
        self._unwritten: set[str] = set()
        self._unwatched: set[str] = set()
        self._watchful_until = 0.0
        self._next_poll = self._next_renewal = self._work_at = 0.0
        self._moved_at = 0.0
        self._wake = trio.Event()

    def __repr__(self) -> str:
        """Return the number of watched runs, and of sent hints."""
        return f"<PgHints: watches {len(self._watched)}, sent {self.sent}>"

    # --- what to send ------------------------------------------------------------------------------------------------

    def posted(self, owner: int, number: int) -> None:
        """Send a hint about a command of a run to its owner, another process."""
        self._commands.setdefault(owner, set()).add(number)
        self._wake.set()

    def command(self, owner: int, number: int) -> tuple[str, Sequence[Any]] | None:
        """Return the statement that sends a hint about a command to the owner; None if a test loses it.

        May be called in any thread.
        """
        return None if self._lost() else (_SEND_ONE, (f"{self.prefix}{owner}", f"c:{number}"))

    def freed(self, owner: int, number: int) -> None:
        """Send a hint about a run that its thread does not hold any more to its owner, another process."""
        self._send(owner, f"h:{number}")

    def joined(self, others: Sequence[int] | frozenset[int]) -> None:
        """Send a hint about this process, which is new."""
        for other in others:
            self._send(other, "p:")

    def test(self, nonce: str) -> None:
        """Send a hint to this process itself."""
        self._send(self.process, f"s:{nonce}")

    def moved(self, number: int, last: int) -> None:
        """Send a hint about new events of an own run to the processes that watch it."""
        if self.alone:
            return
        if not self._moves:
            self._moved_at = trio.current_time()
            self._wake.set()
        self._moves[number] = last

    def work(self, agents: Sequence[str], *, place: str | None = None, hops: int = 0, elsewhere: bool = False) -> None:
        """Send a hint about work for these agents. `place`: of the work; `elsewhere`: not to this process itself."""
        if hops > MOST_HOPS or not agents:
            return
        if not self._work:
            self._work_at = trio.current_time() + WORK_FLUSH
            self._wake.set()
        for agent in agents:
            self._work[agent, place] = (hops, elsewhere)

    def _send(self, process: int, payload: str) -> None:
        self._sends[f"{self.prefix}{process}", payload] = None
        self._wake.set()

    # --- watches -----------------------------------------------------------------------------------------------------

    @contextmanager
    def watch(self, run_id: str) -> Iterator[None]:
        """Report changes of a run for the time of the block. See `Notifier.watch`."""
        watch = self._watched.setdefault(run_id, _WatchedRun())
        watch.blocks += 1
        if watch.blocks == 1:
            self._unwatched.discard(run_id)
            self._unwritten.add(run_id)
            self._wake.set()
        try:
            yield
        finally:
            watch.blocks -= 1
            if not watch.blocks:
                del self._watched[run_id]
                self._numbered.pop(watch.number, None)
                self._unwritten.discard(run_id)
                self._unwatched.add(run_id)  # deleted with the next poll; the collector of garbage may be in any thread

    def watch_again(self) -> None:
        """Write all watches again: another process has joined, or the server has lost them."""
        self._unwritten.update(self._watched)
        self._wake.set()

    def take_moves(self, moves: Mapping[int, int]) -> None:
        """Report the moves of received hints that are new."""
        for number, last in moves.items():
            run_id = self._numbered.get(number)
            if run_id is not None:
                self._advance(run_id, last)

    def _take_head(self, run_id: str, number: int, last: int) -> None:
        """Report what was read of a run, which counts more than what a hint has said."""
        watch = self._watched.get(run_id)
        if watch is not None:
            watch.number = number
            self._numbered[number] = run_id
            if watch.reported > last:  # a hint was wrong, or newer than what was read; reported twice does no harm
                watch.reported = -1
            self._advance(run_id, last)

    def _advance(self, run_id: str, last: int) -> None:
        watch = self._watched.get(run_id)
        if watch is not None and last > watch.reported:
            watch.reported = last
            self._report(ChangedElsewhere(run_id, last))

    # --- sending -----------------------------------------------------------------------------------------------------

    async def serve(self, report: Report) -> None:
        """Send hints and look at watched runs until cancelled. In an outage hints are dropped, watches are not."""
        self._report = report
        while True:
            with trio.move_on_at(self._until()):
                await self._wake.wait()
            self._wake = trio.Event()
            job = self._job(trio.current_time())
            if job is None:
                continue
            try:
                # Sent also by a process that leaves right after its command; the watchdog bounds the time.
                with trio.CancelScope(shield=True):
                    done: _Done = await self._in_thread(partial(self._perform, job))
            except Outage:
                self._unwritten.update(run_id for run_id in job.watch if run_id in self._watched)
                await trio.sleep(_AGAIN)
            else:
                self._take(done)

    async def flush(self) -> None:
        """Send what is waiting, whatever its time.

        Raises:
            Outage: the server is unavailable.
        """
        job = self._job(float("inf"))
        if job is not None:
            await self._in_thread(partial(self._perform, job))

    def _until(self) -> float:
        """Return when the next statement is due, in trio time."""
        due: list[float] = []
        if self._sends or self._commands or self._unwritten:
            return -1.0
        if self._moves:
            due.append(self._moved_at + self._gathers)
        if self._work:
            due.append(self._work_at)
        if self._watched and not self.alone:
            due.append(self._next_poll)
        if self._unwatched:
            due.append(self._next_poll)
        return min(due, default=float("inf"))

    def _job(self, now: float) -> _Job | None:
        """Take what is due; None if there is nothing."""
        sends, self._sends = [*self._sends], {}
        for owner, runs in self._commands.items():
            sends.append((f"{self.prefix}{owner}", f"c:{' '.join(map(str, sorted(runs)[:_LONGEST]))}"))
        self._commands = {}
        moves: dict[int, int] = {}
        if self._moves and now >= self._moved_at + self._gathers:
            due_moves = [*self._moves.items()][:_LONGEST]
            moves = dict(due_moves)
            for number in moves:
                del self._moves[number]
        work: dict[tuple[int, bool], list[tuple[str, str | None]]] = {}
        if self._work and now >= self._work_at:
            for target, way in self._work.items():
                work.setdefault(way, []).append(target)
            self._work = {}
        watch, heads, unwatch = self._watches(now)
        if not (sends or moves or work or watch or heads or unwatch):
            return None
        return _Job(self.process, sends, moves, work, watch, unwatch, heads)

    def _watches(self, now: float) -> tuple[list[str], list[str], list[str]]:
        """Return the watches to write, the runs to look at, and the watches to delete."""
        watch, heads, unwatch = [*self._unwritten], [*self._unwritten], []
        self._unwritten = set()
        if now >= self._next_poll and (self._watched or self._unwatched):
            self._next_poll = now + self._poll
            unwatch, self._unwatched = [*self._unwatched], set()
            if not self.alone:
                heads = [*self._watched]
                if now >= self._next_renewal:
                    self._next_renewal = now + RENEWAL
                    watch = heads
        return ([] if self.alone else watch), heads, ([] if self.alone else unwatch)

    def _perform(self, job: _Job) -> _Done:
        """Execute a job, in a thread.

        Raises:
            Outage: the server is unavailable; a part may have been sent.
        """
        link = self._link
        sent, watched, drawn = (0, False, False) if self._lost() else self._send_hints(job)
        if job.watch:
            link.persistent(_WATCH, (job.process, Texts(job.watch)))
        if job.unwatch:
            link.persistent(_UNWATCH, (job.process, Texts(job.unwatch)))
        heads = link.persistent(_HEADS, (Texts(job.heads), job.process)) if job.heads else []
        return _Done(sent, watched, drawn, [(run_id, number, last) for run_id, number, last in heads])

    def _lost(self) -> bool:
        """Return True if a test loses the hints."""
        try:
            if self._faults is not None:
                self._faults(HINT)
        except Outage:
            return True
        return False

    def _send_hints(self, job: _Job) -> tuple[int, bool, bool]:
        """Send; return how many were sent, whether others watch moved runs, and whether this one was drawn for work."""
        drawn, watchers = False, 0
        own = f"{self.prefix}{job.process}"
        sent = sum(channel != own for channel, _ in job.sends)
        if job.sends:
            channels, payloads = zip(*job.sends, strict=True)
            accepted_rows = self._notify(_SEND, (Texts(channels), Texts(payloads)))
            self.tests += bool(accepted_rows) and own in channels
        if job.moves:
            moves = Bigints(job.moves), Bigints(job.moves.values())
            watchers = len(self._notify(_MOVED, (self.prefix, *moves, job.process)))
        for (hops, elsewhere), targets in job.work.items():
            agents, places = Texts([agent for agent, _ in targets]), Texts([place for _, place in targets])
            values = (agents, places, job.process if elsewhere else 0, job.process, self.prefix, str(hops))
            numbers = [row[0] for row in self._notify(_WORK, values)]
            drawn = drawn or job.process in numbers
            sent += sum(number != job.process for number in numbers)
        return sent + watchers, watchers > 0, drawn

    def _notify(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement that sends hints, and return its rows; none if the server does not take the hints.

        So it is when its queue of notifications is full, which any role can bring about, and when a payload is too long
        because of the name of an agent. Polls make up for hints that are lost.

        Raises:
            Outage, StoreDown: see `Link.execute`.
        """
        try:
            return self._link.persistent(statement, values)
        except psycopg.Error as error:
            if not self.refused:
                logger.warning("the server does not take hints: %s", self._link.target.hidden(str(error)))
            self.refused += 1
            return []

    @property
    def _gathers(self) -> float:
        """Seconds for which moves of runs are gathered now."""
        return FLUSH if trio.current_time() < self._watchful_until else IDLE_FLUSH

    def _take(self, done: _Done) -> None:
        self.sent += done.sent
        if done.watched:
            self._watchful_until = trio.current_time() + WATCHFUL
        for run_id, number, last in done.heads:
            self._take_head(run_id, number, last)
        if done.drawn:
            self._report(WorkFound())
