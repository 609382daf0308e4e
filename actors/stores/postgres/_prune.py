"""Delete done runs, in slices of one short statement each; any number of processes may prune concurrently.

Theory of operation. A run is pruned by one statement: its row is deleted, its id joins `pruned`, and its number joins
`garbage`, so that it is invisible immediately and whole for every reader. Rows of other tables under that number are
deleted by later slices, also of another process: numbers are never reused. A thread whose last run is pruned gets a
new number, and the old one joins `garbage` likewise. Rows that another process works on are skipped.
"""

from __future__ import annotations

from typing import Any, Final

from ...abc import Pruned
from ...contract.rows import RunInfo
from ..common._requests import PruneSlice
from ..common._row_values import facts_of, readable
from ._connect import Link
from ._values import Bigints, Blobs, Moment, Texts

RUNS: Final = 100
"""Runs per statement."""
ROWS: Final = 2_000
"""Rows of one table per statement."""

_FIND: Final = "SELECT number, run_id, thread, info FROM {s}.runs WHERE ended_at < %s ORDER BY ended_at LIMIT %s"

_TAKE: Final = """WITH w AS (SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bytea[])
  AS t(number, content, facts, info)),
d AS MATERIALIZED (SELECT r.number FROM {s}.runs r WHERE r.number IN (SELECT number FROM w)
  AND r.ended_at IS NOT NULL ORDER BY r.number FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {s}.runs r USING d WHERE r.number = d.number RETURNING r.number, r.run_id, r.thread, r.late),
p AS (INSERT INTO {s}.pruned(run_id, content) SELECT g.run_id, w.content FROM gone g JOIN w USING (number)
  ON CONFLICT (run_id) DO UPDATE SET content = excluded.content),
q AS (SELECT thread, count(*) AS runs, sum(late::int) AS late FROM gone GROUP BY thread),
lt AS MATERIALIZED (SELECT t.number, t.kept FROM {s}.threads t JOIN q ON q.thread = t.number ORDER BY t.number
  FOR UPDATE OF t),
x AS (INSERT INTO {s}.garbage(kind, number) SELECT 'run', number FROM gone
  UNION ALL SELECT 'thread', q.thread FROM q JOIN lt ON lt.number = q.thread WHERE lt.kept = q.runs
  RETURNING kind, number, fresh),
t AS (UPDATE {s}.threads t SET kept = t.kept - q.runs, late = t.late - q.late, number = coalesce(x.fresh, t.number),
    newest = CASE WHEN x.fresh IS NULL THEN t.newest ELSE 0 END
  FROM q JOIN lt ON lt.number = q.thread LEFT JOIN x ON x.kind = 'thread' AND x.number = q.thread
  WHERE t.number = q.thread RETURNING q.thread, x.fresh IS NOT NULL AS empty),
m AS (INSERT INTO {s}.members(thread, facts, info)
  SELECT DISTINCT ON (g.thread, w.facts) g.thread, w.facts, w.info FROM gone g JOIN w USING (number)
  JOIN t ON t.thread = g.thread AND NOT t.empty WHERE w.info IS NOT NULL ORDER BY g.thread, w.facts, g.number
  ON CONFLICT (thread, facts) DO NOTHING)
SELECT g.number, g.thread, t.empty FROM gone g JOIN t ON t.thread = g.thread"""

# The runs that are left read their own writes, and of earlier writes only the newest.
_DROP_HIDDEN: Final = """WITH o AS (
  SELECT t.thread, (SELECT min(number) FROM {s}.runs WHERE thread = t.thread) AS oldest
  FROM unnest(%s::bigint[]) AS t(thread))
DELETE FROM {s}.state s USING o WHERE s.thread = o.thread AND s.run < o.oldest AND EXISTS (
  SELECT 1 FROM {s}.state n WHERE n.thread = s.thread AND n.key = s.key AND n.run < o.oldest AND n.number > s.number)"""

_GARBAGE: Final = "SELECT kind, number FROM {s}.garbage LIMIT 1"
_CLEARED: Final = "DELETE FROM {s}.garbage WHERE kind = %s AND number = %s"
_TABLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "run": (
        ("events", "run = %s"),
        ("record", "run = %s"),
        ("calls", "run = %s"),
        ("tickets", "run = %s"),
        ("inbox", "run = %s"),
        ("watches", "run = %s"),
        ("state", "run = %s AND thread IS NULL"),
    ),
    "thread": (
        ("messages", "thread = %s"),
        ("state", "thread = %s"),
        ("parts", "thread = %s"),
        ("members", "thread = %s"),
    ),
}


def sweep(link: Link, before: int) -> PruneSlice:
    """Do one slice of work: garbage first, then further runs.

    Raises:
        Outage: the server is unavailable; nothing is lost by another call.
    """
    rows = link.persistent(_GARBAGE)
    if rows:
        kind, number = rows[0]
        for table, where in _TABLES[kind]:
            chunk = f"SELECT ctid FROM {{s}}.{table} WHERE {where} LIMIT {ROWS}"
            deleted = f"DELETE FROM {{s}}.{table} WHERE ctid = ANY(ARRAY({chunk})) RETURNING 1"
            count = len(link.persistent(deleted, (number,)))
            if count:
                return PruneSlice(messages=count if table == "messages" else 0)
        link.persistent(_CLEARED, (kind, number))
        return PruneSlice()
    return _take_runs(link, before) or PruneSlice(more=False)


def _take_runs(link: Link, before: int) -> PruneSlice | None:
    rows = link.persistent(_FIND, (Moment(before), RUNS))
    if not rows:
        return None
    infos = [readable(RunInfo, blob) for *_, blob in rows]  # an unreadable run can still be deleted
    values = (
        Bigints([number for number, *_ in rows]),
        Texts(["" if info is None else info.content for info in infos]),
        Texts(["" if info is None else facts_of(info) for info in infos]),
        Blobs([None if info is None else blob for (*_, blob), info in zip(rows, infos, strict=True)]),
    )
    deleted_rows = link.persistent(_TAKE, values)
    threads_with_runs = {thread for _, thread, empty in deleted_rows if not empty}
    if threads_with_runs:
        link.persistent(_DROP_HIDDEN, (Bigints(sorted(threads_with_runs)),))
    return PruneSlice(runs=len(deleted_rows)) if deleted_rows else None


_SIZE: Final = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"""


def size(link: Link) -> int:
    """Return the bytes of all tables and indexes. Free space in them is reused, and never returned by itself."""
    return int(link.execute(_SIZE, (link.target.schema,))[0][0])


_OLD: Final = "SELECT number, thread FROM {s}.runs WHERE ended_at < %s"
_FORECAST: Final = f"""WITH old AS ({_OLD}),
empty AS (SELECT o.thread FROM old o JOIN {{s}}.threads t ON t.number = o.thread GROUP BY o.thread, t.kept
  HAVING count(*) = t.kept)
SELECT (SELECT count(*) FROM old), (SELECT count(*) FROM {{s}}.messages WHERE thread IN (SELECT thread FROM empty)),
  (SELECT coalesce(sum(length(r.info) + length(r.row)), 0) FROM {{s}}.runs r JOIN old USING (number))
  + (SELECT coalesce(sum(length(frame)), 0) FROM {{s}}.events WHERE run IN (SELECT number FROM old))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.record WHERE run IN (SELECT number FROM old))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.calls WHERE run IN (SELECT number FROM old))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.tickets WHERE run IN (SELECT number FROM old))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.inbox WHERE run IN (SELECT number FROM old))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.messages WHERE thread IN (SELECT thread FROM empty))
  + (SELECT coalesce(sum(length(body)), 0) FROM {{s}}.parts WHERE thread IN (SELECT thread FROM empty))"""


def forecast(link: Link, before: int) -> Pruned:
    """Return what a prune would delete. Reads the lengths of rows, not their content."""
    rows: list[tuple[Any, ...]] = link.execute(_FORECAST, (Moment(before),))
    runs, messages, freed = rows[0]
    return Pruned(runs=runs, messages=messages, freed=int(freed))
