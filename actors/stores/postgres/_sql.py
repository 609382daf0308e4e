"""The statement that commits: any number of runs, their events and rows, in one statement and so in one transaction.

Theory of operation. `c` holds one line for each commit of the batch, `i` is its place. `l` locks the run rows in the
order of their numbers, so that two batches never wait for each other in a circle. `moved` is the fence: it writes the
rows of the commits that follow under a valid claim, and returns their places. All other rows join `moved` by the place,
never by the run's number: a commit of a voided claim may be in one batch with a valid commit of the same run. Threads
change once, after all runs, in the order of their numbers. Tables that a batch does not touch are left out.

The server keeps a plan for some seconds (`_pg_prepared.REPLAN`), in which thousands of runs may begin. So rows are
found by `= ANY` of a primary key, `SETTINGS` keep the plan from whole tables, and no condition that is left is one of a
partial index (`coalesce(ended_at, ...)`), whose scan looks cheap as long as the server has no statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.commits import Commit
from ...contract.lifecycle import TERMINAL, WAITING
from ...contract.rows import RunRow
from ...contract.run_lists import code_of
from ..common._encoding import EncodedRows, Row
from ..common._timestamps import milliseconds
from ._schema import LEVEL
from ._values import Bigints, Blobs, Moments, Texts

SETTINGS: Final = ("enable_seqscan=off",)
"""Of the session: see the module. Also of the session of the desk that is asked, whose statements are about one run."""
COMMIT_SETTINGS: Final = (*SETTINGS, "enable_nestloop=off")
"""Of the session that commits: a plan for 10 lines, which the server takes every list for, would compare each of 200
lines with each other, five times. Every join of the statement is one of lists, whose cost is linear by a hash."""

_HEAD: Final = """WITH c AS (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
  %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
  %s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::text[], %s::bytea[])
  WITH ORDINALITY
  AS t(number, token, nth, expected, last, step, status, stage, consumed, judged, touches, leaving, ends, late, fresh,
    due, at, opened, code, row, i)),
l AS MATERIALIZED (
  SELECT r.number FROM {s}.runs r WHERE r.number = ANY(%s::bigint[]) ORDER BY r.number FOR NO KEY UPDATE)"""

_TICKETS: Final = """,
tk AS (SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::bytea[],
  %s::bytea[]) WITH ORDINALITY AS t(i, ticket_id, call_id, status, requested_at, brief, body, ord))"""
_WRITTEN: Final = " AND NOT EXISTS (SELECT 1 FROM tk WHERE tk.i = c.i AND tk.ticket_id = o.ticket_id)"

_MOVED: Final = f""",
moved AS (UPDATE {{s}}.runs r SET row = c.row, stage = c.stage, status = c.status, step = c.step, last_seq = c.last,
  commits = c.nth, consumed = greatest(r.consumed, c.consumed), level = greatest(r.level, {LEVEL}), judged = c.judged,
  facts = r.facts + (c.touches = 1 OR r.stage <> c.stage OR r.judged <> c.judged OR c.consumed > r.consumed)::int,
  next_due = c.due, leaving = c.leaving = 1, crashes = CASE WHEN c.step > r.step THEN 0 ELSE r.crashes END,
  waiting_since = CASE WHEN c.status = 'waiting' THEN least(CASE WHEN c.fresh = 1 THEN c.at
    ELSE coalesce(r.waiting_since, c.at) END, c.opened, (SELECT o.requested_at FROM {{s}}.tickets o
    WHERE o.run = r.number AND o.status = 'open'#WRITTEN# ORDER BY o.number LIMIT 1)) END,
  ended_at = CASE WHEN c.ends = 1 THEN c.at END, code = c.code, late = c.late = 1,
  owner = CASE WHEN c.ends = 1 THEN NULL ELSE r.owner END
  FROM c JOIN l USING (number)
  WHERE r.number = ANY(%s::bigint[]) AND r.number = c.number AND r.token = c.token AND r.commits = c.nth - 1
    AND r.last_seq = c.expected AND coalesce(r.ended_at, 'infinity') = 'infinity'
    AND (c.ends = 0 OR r.posted <= greatest(r.consumed, c.consumed))
  RETURNING c.i, r.number, r.thread, r.posted, c.ends, c.late)"""

_EVENTS: Final = """,
e AS (INSERT INTO {s}.events(run, seq, frame) SELECT m.number, x.seq, x.frame
  FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) AS x(i, seq, frame) JOIN moved m USING (i))"""
_CALLS: Final = """,
k AS (INSERT INTO {s}.calls(run, call_id, step, idx, status, tool, body)
  SELECT m.number, x.call_id, x.step, x.idx, x.status, x.tool, x.body
  FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bytea[])
    AS x(i, call_id, step, idx, status, tool, body) JOIN moved m USING (i)
  ON CONFLICT (run, call_id) DO UPDATE SET step = excluded.step, idx = excluded.idx, status = excluded.status,
    body = excluded.body)"""
_PUT_TICKETS: Final = """,
w AS (INSERT INTO {s}.tickets(run, ticket_id, call_id, status, requested_at, brief, body)
  SELECT m.number, x.ticket_id, x.call_id, x.status, x.requested_at, x.brief, x.body FROM tk x JOIN moved m USING (i)
  ORDER BY x.ord
  ON CONFLICT (run, ticket_id) DO UPDATE SET call_id = excluded.call_id, status = excluded.status,
    requested_at = excluded.requested_at, brief = excluded.brief, body = excluded.body)"""
_STATE: Final = """,
y AS (INSERT INTO {s}.state(run, thread, key, step, revision, value)
  SELECT m.number, CASE WHEN x.shared = 1 THEN m.thread END, x.key, x.step, x.revision, x.value
  FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bytea[]) WITH ORDINALITY
    AS x(i, shared, key, step, revision, value, ord) JOIN moved m USING (i) ORDER BY x.ord
  ON CONFLICT (run, key, step, coalesce(thread, 0)) DO UPDATE SET number = excluded.number,
    revision = excluded.revision, value = excluded.value)"""
_RECORD: Final = """,
d AS (INSERT INTO {s}.record(run, last, body) SELECT m.number, x.last, x.body
  FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) WITH ORDINALITY AS x(i, last, body, ord) JOIN moved m USING (i)
  ORDER BY x.ord)"""
_PARTS: Final = """,
f AS (INSERT INTO {s}.parts(thread, sha256, body) SELECT m.thread, x.sha256, x.body
  FROM unnest(%s::bigint[], %s::text[], %s::bytea[]) AS x(i, sha256, body) JOIN moved m USING (i)
  ON CONFLICT (thread, sha256) DO NOTHING)"""

_MESSAGES: Final = """,
n AS (SELECT m.number AS run, m.thread, x.id, x.step, x.body,
  row_number() OVER (PARTITION BY m.thread ORDER BY x.ord) AS nth
  FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bytea[]) WITH ORDINALITY AS x(i, id, step, body, ord)
  JOIN moved m USING (i))"""
_THREADS: Final = """,
q AS (SELECT thread, sum(messages) AS messages, sum(ends) AS ends, sum(late) AS late FROM (
  SELECT thread, 0 AS messages, ends, late FROM moved WHERE ends = 1#ADDED#) AS z GROUP BY thread),
lt AS MATERIALIZED (SELECT t.number FROM {s}.threads t WHERE t.number = ANY(ARRAY(SELECT thread FROM q))
  ORDER BY t.number FOR NO KEY UPDATE),
t AS (UPDATE {s}.threads t SET newest = t.newest + q.messages, open = t.open - q.ends, late = t.late + q.late
  FROM q JOIN lt ON lt.number = q.thread WHERE t.number = q.thread AND t.number = ANY(ARRAY(SELECT thread FROM q))
  RETURNING t.number, t.newest - q.messages AS before, t.open, t.late)"""
_ADDED: Final = " UNION ALL SELECT thread, 1, 0, 0 FROM n"
_PLACE: Final = """,
v AS (INSERT INTO {s}.messages(thread, pos, id, run, step, body)
  SELECT n.thread, t.before + n.nth, n.id, n.run, n.step, n.body FROM n JOIN t ON t.number = n.thread)"""

_ANSWER: Final = "\nSELECT i, posted, thread, NULL::bigint, NULL::bigint FROM moved"
_ANSWER_THREADS: Final = (
    "\nSELECT m.i, m.posted, m.thread, t.open, t.late FROM moved m LEFT JOIN t ON t.number = m.thread"
)


@cache
def commit_text(tables: frozenset[str], ends: bool) -> str:
    """Return the statement for a batch that touches these tables, and ends runs or does not."""
    threads = ends or "messages" in tables
    text = _HEAD
    if "tickets" in tables:
        text += _TICKETS
    text += _MOVED.replace("#WRITTEN#", _WRITTEN if "tickets" in tables else "")
    for name, piece in _PIECES:
        if name in tables:
            text += piece
    if threads:
        text += _THREADS.replace("#ADDED#", _ADDED if "messages" in tables else "")
    if "messages" in tables:
        text += _PLACE
    return text + (_ANSWER_THREADS if threads else _ANSWER)


_PIECES: Final = (
    ("tickets", _PUT_TICKETS),
    ("events", _EVENTS),
    ("calls", _CALLS),
    ("state", _STATE),
    ("record", _RECORD),
    ("parts", _PARTS),
    ("messages", _MESSAGES),
)
"""The tables in the order of their parameters; tickets have theirs before."""

_LISTS: Final[dict[str, tuple[Any, ...]]] = {
    "tickets": (Bigints, Texts, Texts, Texts, Moments, Blobs, Blobs),
    "events": (Bigints, Bigints, Blobs),
    "calls": (Bigints, Texts, Bigints, Bigints, Texts, Texts, Blobs),
    "state": (Bigints, Bigints, Texts, Bigints, Bigints, Blobs),
    "record": (Bigints, Bigints, Blobs),
    "parts": (Bigints, Texts, Blobs),
    "messages": (Bigints, Texts, Bigints, Blobs),
}
_COLUMNS: Final[tuple[Any, ...]] = (
    *(Bigints,) * 6, Texts, Texts, *(Bigints,) * 7, Moments, Moments, Moments, Texts, Blobs,
)  # fmt: skip


@attrs.frozen
class Piece:
    """One commit of an entry, with its encoded rows."""

    commit: Commit
    frames: Sequence[bytes]
    rows: EncodedRows


@attrs.define(eq=False)
class BatchEntry:
    """A line of the batch: commits of one run under one claim that follow each other, written as one.

    Attributes:
        number: The number of the run.
        token: The token of the claim.
        nth: number of this entry under the claim.
        pieces: the commits, in order.
    """

    number: int
    token: int
    nth: int
    pieces: list[Piece] = attrs.field(factory=list)

    @property
    def ends(self) -> bool:
        """True if the newest commit is terminal."""
        return self.pieces[-1].commit.row.stage in TERMINAL

    @property
    def first(self) -> Commit:
        """The oldest commit."""
        return self.pieces[0].commit

    @property
    def last(self) -> Commit:
        """The newest commit."""
        return self.pieces[-1].commit

    def line(self) -> Row:
        """Return the values of `c`."""
        last = self.last
        row = last.row
        streak = 0
        for piece in reversed(self.pieces):
            if piece.commit.row.status is not WAITING:
                break
            streak += 1
        began = self.pieces[-streak].commit if streak else last
        summaries = self._asked(streak) if streak else ()
        return (
            self.number,
            self.token,
            self.nth,
            self.first.expected_last,
            last.last,
            row.step,
            row.status.value,
            row.stage.value,
            max(max(piece.commit.row.inbox, piece.commit.consumed) for piece in self.pieces),
            judged_part(row),
            int(any(piece.commit.calls or piece.commit.tickets for piece in self.pieces)),
            int(row.restless),
            int(self.ends),
            int(self.ends and bool(row.pending_input)),
            int(0 < streak < len(self.pieces)),
            None if row.next_due is None else milliseconds(row.next_due),
            milliseconds(last.at if self.ends else began.at),
            min(summaries, default=None),
            code_of(row),
            self.pieces[-1].rows.row,
        )

    def _asked(self, streak: int) -> Iterable[int]:
        """Return when tickets were opened that are open now, or were while the run has waited."""
        newest = {ticket.ticket_id: ticket for piece in self.pieces for ticket in piece.commit.tickets}
        written = (ticket for piece in self.pieces[-streak:] for ticket in piece.commit.tickets)
        opened = (ticket for ticket in (*newest.values(), *written) if ticket.status == "open")
        return [milliseconds(ticket.requested_at) for ticket in opened]

    def add_to(self, lists: dict[str, list[Row]], i: int) -> None:
        """Append the rows of the other tables, each with the place `i`."""
        calls: dict[str, Row] = {}
        tickets: dict[str, Row] = {}
        state: dict[tuple[bool, str, int], Row] = {}
        for piece in self.pieces:
            commit, rows = piece.commit, piece.rows
            if piece.frames:
                lists["events"] += [(i, seq, frame) for seq, frame in enumerate(piece.frames, commit.expected_last + 1)]
            calls.update((call[0], (i, *call)) for call in rows.calls)
            tickets.update((ticket[0], (i, *ticket)) for ticket in rows.tickets)
            for shared, key, revision, value in rows.state:
                name = (shared, key, commit.written_at)
                state.pop(name, None)
                state[name] = (i, int(shared), key, commit.written_at, revision, value)
            if rows.taken:
                lists["record"].append((i, commit.last, rows.taken))
            lists["parts"] += [(i, digest, data) for digest, data in rows.parts if data is not None]
            lists["messages"] += [(i, *message) for message in rows.messages]
        lists["calls"] += calls.values()
        lists["tickets"] += tickets.values()
        lists["state"] += state.values()


def commit_statement(entries: Sequence[BatchEntry]) -> tuple[str, list[Any]]:
    """Return the statement that writes the entries, and its parameters. Its places count from 1."""
    lists: dict[str, list[Row]] = {name: [] for name in _LISTS}
    lines = []
    for i, entry in enumerate(entries, 1):
        lines.append(entry.line())
        entry.add_to(lists, i)
    parameters = [kind(column) for kind, column in zip(_COLUMNS, zip(*lines, strict=True), strict=True)]
    numbers = Bigints(sorted({entry.number for entry in entries}))
    parameters.append(numbers)
    tables = frozenset(name for name, rows in lists.items() if rows)
    if "tickets" in tables:
        parameters += columns("tickets", lists["tickets"])
    parameters.append(numbers)
    for name, _ in _PIECES:
        if name in tables and name != "tickets":
            parameters += columns(name, lists[name])
    return commit_text(tables, any(entry.ends for entry in entries)), parameters


def columns(table: str, rows: Sequence[Row]) -> list[Any]:
    """Return the rows of a table as one array for each column."""
    kinds = _LISTS[table]
    if not rows:
        return [kind() for kind in kinds]
    return [kind(column) for kind, column in zip(kinds, zip(*rows, strict=True), strict=True)]


def judged_part(row: RunRow) -> int:
    """Return a digest of what a judge looks at in the row's body: leaving, early decisions, waiting input."""
    if not row.early and not row.sent:
        return int(row.position.rule.leaving)
    early = sorted(row.early)
    sent = [[sent_text.number, sent_text.size] for sent_text in row.sent]
    data = codec.dump([row.position.rule.leaving, early, sent])
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1
