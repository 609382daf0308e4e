"""Which process works on which run: the statements that claim runs, give them up, and look after queues.

Theory of operation. Each function is one statement, or one burst of two that the server takes as a transaction, so no
lock is ever held while a client thinks. Every function may be repeated after an unknown outcome. A claim draws 31
random bits for its token; a claim whose answer was lost finds its own runs again by these bits.

A claim of ready runs looks at the pairs of agent and queue that have ready runs, one index probe for each, so its cost
depends neither on the backlog nor on the agents that the process lacks. Of each pair it locks up to `room` runs of the
lowest rank, and takes them in turns over the queues. A queue with a limit is left to a second statement: its row is
locked first, and what works is counted afterwards, in a newer snapshot, so that no two processes fill the same place.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from ...contract.claims import Claim
from ...errors import UnknownRun
from ...processes import Ability, ProcessInfo, QueueInfo, ReadyRun
from ..common._ranks import DEAD_AFTER, DEAD_TEXT, FIRST_PAUSE, GREATEST_PRIORITY, LONGEST_PAUSE, PRIORITY_STEP
from ..common._timestamps import milliseconds
from ._connect import Link
from ._schema import DUE, LEVEL, OVERDUE, READY, WORKS
from ._values import Bigints, Moment, Texts

FREE_SLICE: Final = 500
"""Most runs that one statement frees: others wait for its locks."""

NEW_TOKEN: Final = "((r.token >> 31) + 1 << 31) + %s::bigint"  # noqa: S105 - a statement
"""The next fencing token: greater than each earlier one, and never drawn again by another history of the log."""

_FIRST: Final = milliseconds(datetime.min.replace(tzinfo=UTC))
_LAST: Final = milliseconds(datetime.max.replace(microsecond=0, tzinfo=UTC))
"""Milliseconds since 1970 of the times that Python can have; another program may have written others."""

EARLIEST: Final = f"interval '{GREATEST_PRIORITY * PRIORITY_STEP.total_seconds()} s'"
"""A ready run has no rank that is later than this after now."""

_ABLE: Final = (
    "(%s::text[] IS NULL OR r.agent = ANY(%s::text[])) AND (%s OR NOT r.needs_deps)"
    " AND r.level <= %s AND (r.place IS NULL OR coalesce(r.place = ANY(%s::text[]), true))"
)
_CLAIMABLE: Final = """(NOT r.held AND r.dead IS NULL OR EXISTS (
      SELECT 1 FROM {s}.inbox i WHERE i.run = r.number AND i.position > r.consumed AND i.kind = 'cancel'))"""
"""Of what READY admits: a held run or a dead letter is claimed for a cancel only."""
_ALIVE: Final = "EXISTS (SELECT 1 FROM {s}.processes p WHERE p.number = %s AND NOT p.dead)"

# Pairs of agent and queue with ready runs, by a skip scan over the index runs_ready: one probe for each pair.
_PAIRS: Final = f"""pair AS (
  (SELECT agent, queue FROM {{s}}.runs WHERE {READY} ORDER BY agent, queue LIMIT 1)
  UNION ALL
  SELECT n.agent, n.queue FROM pair p CROSS JOIN LATERAL (
    SELECT agent, queue FROM {{s}}.runs WHERE {READY} AND (agent, queue) > (p.agent, p.queue)
    ORDER BY agent, queue LIMIT 1) n)"""

_DUE_RUNS: Final = f"""due AS (
  SELECT d.number, d.rank, q.queue, q.free, row_number() OVER (PARTITION BY q.queue ORDER BY d.rank, d.number) AS turn
  FROM queue q CROSS JOIN LATERAL (
    SELECT r.number, r.rank FROM {{s}}.runs r
    WHERE {READY} AND r.agent = q.agent AND r.queue = q.queue
      AND r.ready_at <= %s AND r.rank <= %s + {EARLIEST} AND {_ABLE} AND {_CLAIMABLE}
    ORDER BY r.rank, r.number LIMIT least(q.free, %s) FOR UPDATE SKIP LOCKED) d)"""

_TAKEN: Final = f"""taken AS (
  UPDATE {{s}}.runs r SET owner = %s, commits = 0, token = {NEW_TOKEN}
  WHERE r.number = ANY(ARRAY(SELECT number FROM pick)) AND {_ALIVE}
  RETURNING r.run_id, r.token, r.number, r.held, r.agent)
SELECT t.*, pick.place FROM taken t JOIN pick USING (number)"""
"""Claim the runs of `pick`, which gives each a place."""
_TAKE: Final = f""",
pick AS (
  SELECT number, row_number() OVER (ORDER BY turn, hashtextextended(queue, %s), rank, number) AS place FROM due
  WHERE turn <= free ORDER BY place LIMIT %s),
{_TAKEN}"""
"""Of the runs of one turn, those of a queue that is drawn are first: many small claims serve every queue, too."""
_IN_ORDER: Final = " ORDER BY place"

# The last row tells whether queues with a limit have ready runs, so that most claims are one statement.
_CLAIM_READY: Final = f"""WITH RECURSIVE {_PAIRS},
queue AS (
  SELECT p.agent, p.queue, %s::bigint AS free FROM pair p LEFT JOIN {{s}}.queues l ON l.name = p.queue
  WHERE l.max_running IS NULL AND NOT coalesce(l.paused, false)),
{_DUE_RUNS}{_TAKE}
UNION ALL SELECT NULL, NULL, NULL, EXISTS (
  SELECT 1 FROM pair p JOIN {{s}}.queues l ON l.name = p.queue WHERE l.max_running IS NOT NULL AND NOT l.paused), NULL,
  {1 << 60}{_IN_ORDER}"""

_LOCK_LIMITED: Final = "SELECT 1 FROM {s}.queues WHERE max_running IS NOT NULL AND NOT paused ORDER BY name FOR UPDATE"

_CLAIM_LIMITED: Final = f"""WITH RECURSIVE {_PAIRS},
queue AS (
  SELECT p.agent, p.queue,
    greatest(0, l.max_running - (SELECT count(*) FROM {{s}}.runs WHERE queue = l.name AND {WORKS})) AS free
  FROM pair p JOIN {{s}}.queues l ON l.name = p.queue
  WHERE l.max_running IS NOT NULL AND NOT l.paused),
{_DUE_RUNS}{_TAKE}{_IN_ORDER}"""

_MINE_BY_NONCE: Final = """SELECT r.run_id, r.token, r.number, r.held, r.agent FROM {s}.runs r
WHERE r.owner = %s AND r.ended_at IS NULL AND (r.token & 2147483647) = %s ORDER BY r.rank, r.number"""

# Without open tickets the timer is the deadline, which ends the run: no pause after a crash or a refusal counts.
_NOT_PAUSED: Final = """(r.ready_at <= %s OR NOT EXISTS (
      SELECT 1 FROM {s}.tickets t WHERE t.run = r.number AND t.status = 'open'))"""
_SERVED: Final = """EXISTS (SELECT 1 FROM {s}.agents a JOIN {s}.processes p ON p.number = a.process
      WHERE a.agent = r.agent AND NOT p.dead AND (r.place IS NULL OR r.place = ANY(p.places)))"""
_FIRES: Final = f"({_ABLE} OR %s AND NOT {_SERVED} AND {_NOT_PAUSED} AND r.level <= %s)"

_CLAIM_DUE: Final = f"""WITH waiting AS (
  SELECT r.number, r.next_due FROM {{s}}.runs r
  WHERE r.owner IS NULL AND {DUE} AND r.dead IS NULL AND r.next_due <= %s AND {_FIRES}
  ORDER BY r.next_due LIMIT %s FOR UPDATE SKIP LOCKED),
others AS (
  SELECT r.number, r.next_due FROM {{s}}.runs r
  WHERE {OVERDUE} AND r.dead IS NULL AND r.next_due <= %s AND (r.held OR {_NOT_PAUSED}) AND {_FIRES}
  ORDER BY r.next_due LIMIT %s FOR UPDATE SKIP LOCKED),
pick AS (
  SELECT number, next_due AS place FROM (SELECT * FROM waiting UNION ALL SELECT * FROM others) d
  ORDER BY place LIMIT %s),
{_TAKEN} ORDER BY place, number"""

_CLAIMS: Final = "unnest(%s::text[], %s::bigint[]) AS c(run_id, token)"

_RELEASE: Final = f"""UPDATE {{s}}.runs r SET owner = NULL, token = {NEW_TOKEN} FROM {_CLAIMS}
WHERE r.run_id = c.run_id AND r.token = c.token AND r.owner = %s AND r.posted <= r.consumed AND r.ended_at IS NULL"""

_REFUSED: Final = f"""SELECT r.run_id FROM {{s}}.runs r JOIN {_CLAIMS} ON c.run_id = r.run_id AND c.token = r.token
WHERE r.owner = %s AND r.ended_at IS NULL"""

_RANKED: Final = "- r.priority * interval '10 s'"

_GIVE_BACK: Final = f"""UPDATE {{s}}.runs r
SET owner = NULL, token = {NEW_TOKEN},
  ready_at = CASE WHEN c.until IS NULL THEN r.ready_at ELSE greatest(r.ready_at, c.until) END,
  rank = CASE WHEN c.until IS NULL THEN r.rank ELSE greatest(r.ready_at, c.until) {_RANKED} END
FROM (SELECT c.run_id, c.token, %s::timestamptz AS until FROM {_CLAIMS}) c
WHERE r.run_id = c.run_id AND r.token = c.token AND r.owner = %s AND r.ended_at IS NULL
RETURNING r.agent"""

GIVE_BACK_ALL: Final = f"""UPDATE {{s}}.runs r SET owner = NULL, token = {NEW_TOKEN}
WHERE r.owner = %s AND r.ended_at IS NULL RETURNING r.agent"""

GIVE_BACK_LOST: Final = f"""UPDATE {{s}}.runs r SET owner = NULL, token = {NEW_TOKEN}
FROM unnest(%s::bigint[], %s::bigint[]) AS c(number, token)
WHERE r.number = c.number AND r.token = c.token AND r.owner = %s AND r.ended_at IS NULL RETURNING r.agent"""

# A pause after the first crash would delay what is most often a lost machine; from the second one on it doubles.
_WORKED: Final = "(NOT r.held AND (r.status <> 'waiting' OR r.leaving))"
_PAUSE: Final = (
    f"CASE WHEN r.crashes = 0 THEN 0 ELSE least({LONGEST_PAUSE}, {FIRST_PAUSE} * power(2, least(r.crashes - 1, 30)))"
    " * (0.5 + random() / 2) END"
)
FREE: Final = f"""WITH freed AS (
  SELECT r.number, {_WORKED} AS worked, {_WORKED} AND r.crashes + 1 < {DEAD_AFTER} AS paused,
    greatest(r.ready_at, now() + make_interval(secs => {_PAUSE})) AS ready FROM {{s}}.runs r
  WHERE r.owner = ANY(ARRAY(SELECT number FROM {{s}}.processes WHERE dead)) AND r.ended_at IS NULL
  LIMIT {FREE_SLICE} FOR UPDATE OF r SKIP LOCKED)
UPDATE {{s}}.runs r
SET owner = NULL, token = {NEW_TOKEN}, crashes = r.crashes + f.worked::int,
  ready_at = CASE WHEN f.paused THEN f.ready ELSE r.ready_at END,
  rank = CASE WHEN f.paused THEN f.ready {_RANKED} ELSE r.rank END,
  dead = CASE WHEN f.worked AND NOT f.paused THEN (r.crashes + 1) ||
    '{DEAD_TEXT}' ELSE r.dead END
FROM freed f WHERE r.number = f.number
RETURNING r.agent, f.worked AND NOT f.paused"""
"""Free up to 500 runs of dead processes."""

FREE_STRAYS: Final = f"""UPDATE {{s}}.runs r SET owner = NULL, token = {NEW_TOKEN}
WHERE r.owner IS NOT NULL AND r.ended_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM {{s}}.processes p WHERE p.number = r.owner)
RETURNING r.agent"""
"""Free runs of processes without a row: of a copy of a database, whose processes were left out."""

_BURY: Final = "UPDATE {s}.processes SET dead = true WHERE name = %s AND NOT dead RETURNING number"

_QUEUES: Final = f"""WITH names AS (
  SELECT name FROM {{s}}.queues UNION SELECT DISTINCT queue FROM {{s}}.runs WHERE ended_at IS NULL)
SELECT n.name, q.max_running, coalesce(q.paused, false),
  (SELECT count(*) FROM {{s}}.runs WHERE queue = n.name AND {READY} AND ready_at <= now()),
  (SELECT count(*) FROM {{s}}.runs WHERE queue = n.name AND {WORKS}),
  (SELECT min(ready_at) FROM {{s}}.runs WHERE queue = n.name AND {READY} AND ready_at <= now()),
  (SELECT count(*) FROM {{s}}.runs WHERE queue = n.name AND {READY} AND ready_at > now()),
  (SELECT min(ready_at) FROM {{s}}.runs WHERE queue = n.name AND {READY} AND ready_at > now())
FROM names n LEFT JOIN {{s}}.queues q ON q.name = n.name ORDER BY n.name"""

_SET_QUEUE: Final = """INSERT INTO {s}.queues(name, max_running, paused) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET max_running = excluded.max_running, paused = excluded.paused"""

_REVIVE: Final = """UPDATE {s}.runs
SET dead = NULL, crashes = 0, ready_at = now(), rank = now() - priority * interval '10 s'
WHERE run_id = %s AND dead IS NOT NULL AND ended_at IS NULL RETURNING agent"""

_PROCESSES: Final = """SELECT p.name, p.host, p.pid, p.version, p.level, p.beat, p.dead, p.room, p.started_at,
  CASE WHEN p.beat_at IS NOT NULL THEN greatest(0, extract(epoch FROM now() - p.beat_at))::float8 END,
  coalesce((SELECT array_agg(a.agent ORDER BY a.agent) FROM {s}.agents a WHERE a.process = p.number), '{}'),
  coalesce((SELECT array_agg(split_part(a.digest, ' ', 1) ORDER BY a.agent)
    FROM {s}.agents a WHERE a.process = p.number), '{}'), p.workspaces, p.places,
  (SELECT count(*) FROM {s}.runs r WHERE r.owner = p.number AND r.ended_at IS NULL)
FROM {s}.processes p ORDER BY p.number"""

_AGENTS: Final = """SELECT a.agent, array_agg(DISTINCT a.digest) FROM {s}.agents a
JOIN {s}.processes p ON p.number = a.process WHERE NOT p.dead GROUP BY a.agent"""


def random_bits() -> int:
    """Return the random part of a token."""
    return secrets.randbits(31)


@attrs.frozen
class ClaimedRun:
    """A run that a statement claimed."""

    number: int
    agent: str
    ready: ReadyRun


def _claimed(rows: Sequence[tuple[Any, ...]]) -> list[ClaimedRun]:
    return [
        ClaimedRun(number, agent, ReadyRun(claim=Claim(run_id=run_id, token=token), held=held))
        for run_id, token, number, held, agent, *_ in rows
    ]


def _able(ability: Ability, level: int) -> tuple[object, ...]:
    agents = None if ability.agents is None else Texts(sorted(ability.agents))
    places = None if ability.places is None else Texts(sorted(ability.places))
    return (agents, agents, ability.deps, level, places)


def _moment(now: datetime) -> Moment:
    return Moment(milliseconds(now))


@attrs.define(eq=False)
class _RunClaim:
    """A claim of some runs, to be executed until its answer arrives.

    Attributes:
        most: runs to claim.
        ability: the runs that this process can work on.
        now: UTC.
        level: newest version of rows that this process reads.
        nonce: The random part in the token of each run that this claim takes.
        sent: a statement of this claim was sent, and may have claimed runs.
    """

    most: int
    ability: Ability
    now: datetime
    level: int = LEVEL
    nonce: int = attrs.field(factory=random_bits)
    sent: bool = False

    def _earlier(self, link: Link, process: int) -> list[ClaimedRun]:
        """Return what an execution has claimed whose answer was lost."""
        runs = _claimed(link.persistent(_MINE_BY_NONCE, (process, self.nonce))) if self.sent else []
        self.sent = True
        return runs


@attrs.define(eq=False)
class ClaimReady(_RunClaim):
    """A claim of ready runs."""

    def __call__(self, link: Link, process: int) -> list[ClaimedRun]:
        """Claim; returns the runs in the order of their turns."""
        if earlier_runs := self._earlier(link, process):
            return earlier_runs
        *rows, marker = link.persistent(
            _CLAIM_READY, (self.most, *self._due(self.most), *self._take(process, self.most))
        )
        claimed, limited = _claimed(rows), bool(marker[3])
        room = self.most - len(claimed)
        if room > 0 and limited:
            values = (*self._due(room), *self._take(process, room))
            link.unknown = bool(claimed)  # a lock must not lose them: the claim is executed again, and finds them
            claimed += _claimed(link.burst(((_LOCK_LIMITED, ()), (_CLAIM_LIMITED, values))))
        return claimed

    def _due(self, room: int) -> tuple[object, ...]:
        now = _moment(self.now)
        return (now, now, *_able(self.ability, self.level), room)

    def _take(self, process: int, room: int) -> tuple[object, ...]:
        return (self.nonce, room, process, self.nonce, process)


@attrs.define(eq=False)
class ClaimDue(_RunClaim):
    """A claim of runs whose timer has fired."""

    def __call__(self, link: Link, process: int) -> list[ClaimedRun]:
        """Claim, earliest first."""
        if earlier_runs := self._earlier(link, process):
            return earlier_runs
        now = _moment(self.now)
        fires = (*_able(self.ability, self.level), self.ability.unserved, now, self.level)
        values = (now, *fires, self.most, now, now, *fires, self.most, self.most, process, self.nonce, process)
        return _claimed(link.persistent(_CLAIM_DUE, values))


def _pairs(claims: Sequence[Claim]) -> tuple[Texts, Bigints]:
    return Texts([claim.run_id for claim in claims]), Bigints([claim.token for claim in claims])


@attrs.define(eq=False)
class ReleaseRuns:
    """Give up runs that are at rest; the result is the ids of those that have unread commands."""

    claims: Sequence[Claim]
    nonce: int = attrs.field(factory=random_bits)

    def __call__(self, link: Link, process: int) -> list[str]:
        """ReleaseRuns, then look for what is still owned under these claims."""
        pairs = _pairs(self.claims)
        link.persistent(_RELEASE, (self.nonce, *pairs, process))
        refused = {run_id for (run_id,) in link.persistent(_REFUSED, (*pairs, process))}
        return [claim.run_id for claim in self.claims if claim.run_id in refused]


@attrs.define(eq=False)
class GiveRunsBack:
    """Give up runs that are not at rest, until `ready_at`; the result is the agents of those runs."""

    claims: Sequence[Claim]
    ready_at: datetime | None = None
    nonce: int = attrs.field(factory=random_bits)

    def __call__(self, link: Link, process: int) -> list[str]:
        """Give back. Repeated, it finds no claim that is still good."""
        until = None if self.ready_at is None else _moment(self.ready_at)
        values = (self.nonce, until, *_pairs(self.claims), process)
        return sorted({agent for (agent,) in link.persistent(_GIVE_BACK, values)})


@attrs.define(eq=False)
class BuryProcess:
    """Declare a process dead by its name; the result is whether it was alive, and what was freed."""

    name: str
    found: bool = False

    def __call__(self, link: Link, process: int) -> tuple[bool, FreedRuns]:
        """Declare it dead, then free its runs. The turn of any process frees the remaining ones."""
        self.found = bool(link.persistent(_BURY, (self.name,))) or self.found
        return self.found, free(link) if self.found else FreedRuns()


@attrs.define
class FreedRuns:
    """Runs of dead processes that were freed.

    Attributes:
        agents: The agents of the runs that may be claimed.
        count: The number of all freed runs.
        dead_letters: The number of these that became dead letters.
    """

    agents: set[str] = attrs.field(factory=set)
    count: int = 0
    dead_letters: int = 0


def free(link: Link) -> FreedRuns:
    """Free the runs of all dead processes."""
    freed = FreedRuns()
    while True:
        rows = link.persistent(FREE, (random_bits(),))
        freed.agents.update(agent for agent, dead in rows if not dead)
        freed.count += len(rows)
        freed.dead_letters += sum(dead for _, dead in rows)
        if len(rows) < FREE_SLICE:
            return freed


@attrs.define(eq=False)
class SetQueue:
    """Limit a queue, or pause it."""

    name: str
    max_running: int | None
    paused: bool

    def __call__(self, link: Link, process: int) -> None:
        """Write the queue's row."""
        link.persistent(_SET_QUEUE, (self.name, self.max_running, self.paused))


@attrs.define(eq=False)
class ReviveRun:
    """Let a dead letter be claimed again; the result is its agent, or None if the run is not one."""

    run_id: str
    done: str | None = None

    def __call__(self, link: Link, process: int) -> str | None:
        """ReviveRun.

        Raises:
            UnknownRun: no run has this id.
        """
        rows = link.persistent(_REVIVE, (self.run_id,))
        if rows:
            self.done = rows[0][0]
        elif self.done is None and not link.persistent("SELECT 1 FROM {s}.runs WHERE run_id = %s", (self.run_id,)):
            raise UnknownRun(self.run_id)
        return self.done


def queues(link: Link) -> list[QueueInfo]:
    """Return the queues, by name."""
    return [
        QueueInfo(
            name=name,
            max_running=most,
            paused=paused,
            ready=ready,
            working=working,
            oldest=_time(oldest),
            scheduled=scheduled,
            later=_time(later),
        )
        for name, most, paused, ready, working, oldest, scheduled, later in link.persistent(_QUEUES)
    ]


def processes(link: Link) -> list[ProcessInfo]:
    """Return the processes, oldest first."""
    infos = []
    for row in link.persistent(_PROCESSES):
        name, host, pid, version, level, beat, dead, room, started, age, agents, digests, names, places, runs = row
        info = ProcessInfo(name=name, host=host, pid=pid, version=version, level=level, beat=beat, dead=dead, room=room)
        keys = dict(zip(agents, digests, strict=True))
        here = dict(zip(names, places, strict=True))
        infos.append(attrs.evolve(info, started_at=_time(started), beat_age=age, agents=keys, places=here, runs=runs))
    return infos


def agents(link: Link) -> dict[str, frozenset[str]]:
    """Return the agents of all live processes."""
    return {agent: frozenset(digests) for agent, digests in link.persistent(_AGENTS)}


def _time(number: int | None) -> datetime | None:
    """Return a time; one that Python cannot have, such as infinity, is the first or the last that it can."""
    return None if number is None else datetime.fromtimestamp(min(max(number, _FIRST), _LAST) / 1000, UTC)
