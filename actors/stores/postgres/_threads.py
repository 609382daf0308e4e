"""The consequences of the end of a run in its thread: late input is placed, and the oldest open run may work.

Theory of operation. A terminal commit lowers `threads.open`; what follows is a second statement, which any process may
make, any number of times: the input of runs that ended before they were admitted joins the thread in the order of the
runs, up to the oldest open run, and that run loses `held`. Each row that changes is taken from the statement's own
update, so of two processes that do it concurrently each input is placed by one. Each terminal commit is followed by a
look at its thread, so the newest one finds everything that is left; after a crash in between the turn finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ...contract import codec
from ...contract.codec import SchemaError
from ...contract.decisions import Command
from ...contract.pending_input import whole
from ...contract.rows import RunRow
from ..common._encoding import encode_messages
from ._connect import Link, setting_text
from ._schema import LEVEL
from ._values import Bigints, Blobs, Texts

_LOOPS: Final = setting_text("enable_nestloop=on")
"""Sent with a statement about few runs: the session may be the one that commits (`_pg_sql.COMMIT_SETTINGS`)."""
REPAIR_SLICE: Final = 200
"""Threads per look of a repair."""

_OLDEST: Final = """SELECT t.thread, r.number, r.run_id, r.owner, r.agent, r.held, EXISTS (SELECT 1 FROM {s}.runs e
    WHERE e.thread = t.thread AND e.late AND (r.number IS NULL OR e.number < r.number)) AS late
  FROM unnest(%s::bigint[]) AS t(thread) LEFT JOIN LATERAL (SELECT number, run_id, owner, agent, held FROM {s}.runs
    WHERE thread = t.thread AND ended_at IS NULL ORDER BY number LIMIT 1) r ON true"""
_INHERITED: Final = """greatest(r.level, (SELECT p.level FROM {s}.runs p
    WHERE p.thread = r.thread AND p.number < r.number ORDER BY p.number DESC LIMIT 1))"""

# The oldest open runs, which may work from now on, unless input is to be placed before them.
_FREE: Final = f"""WITH h AS MATERIALIZED ({_OLDEST}),
l AS MATERIALIZED (SELECT r.number FROM {{s}}.runs r
  WHERE r.number = ANY(ARRAY(SELECT number FROM h WHERE held AND NOT late)) ORDER BY r.number FOR NO KEY UPDATE),
freed AS (UPDATE {{s}}.runs r SET held = false, level = {_INHERITED}
  FROM l WHERE r.number = l.number AND r.held AND r.ended_at IS NULL RETURNING r.number, r.owner)
SELECT h.thread, h.number, h.run_id, CASE WHEN f.number IS NULL THEN h.owner ELSE f.owner END, h.agent, h.late,
  f.number IS NOT NULL
FROM h LEFT JOIN freed f USING (number)"""
_LATE: Final = """SELECT r.number, r.thread, r.run_id, r.row, r.level FROM {s}.runs r
WHERE r.late AND r.thread = ANY(%s::bigint[]) ORDER BY r.number"""
_SENT: Final = "SELECT body FROM {s}.inbox WHERE run = %s AND command_id = %s"

_SETTLE: Final = """WITH l AS MATERIALIZED (
  SELECT r.number FROM {s}.runs r WHERE r.number = ANY(%s::bigint[]) ORDER BY r.number FOR NO KEY UPDATE),
placed AS (UPDATE {s}.runs r SET late = false, held = false, level = #LEVEL#
  FROM l WHERE r.number = l.number
  AND (r.late AND r.ended_at IS NOT NULL OR r.held AND r.ended_at IS NULL)
  RETURNING r.number, r.thread, r.run_id, r.owner, r.ended_at IS NOT NULL AS ended),
x AS (SELECT m.number AS run, m.thread, x.id, x.step, x.body, x.ord
  FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bytea[]) WITH ORDINALITY AS x(run, id, step, body, ord)
  JOIN placed m ON m.number = x.run AND m.ended
  WHERE NOT EXISTS (SELECT 1 FROM {s}.messages o WHERE o.thread = m.thread AND o.id = x.id)),
n AS (SELECT *, row_number() OVER (PARTITION BY thread ORDER BY ord) AS nth FROM x),
q AS (SELECT m.thread, count(*) AS late, (SELECT count(*) FROM n WHERE n.thread = m.thread) AS messages
  FROM placed m WHERE m.ended GROUP BY m.thread),
lt AS MATERIALIZED (SELECT t.number FROM {s}.threads t JOIN q ON q.thread = t.number ORDER BY t.number
  FOR NO KEY UPDATE OF t),
t AS (UPDATE {s}.threads t SET newest = t.newest + q.messages, late = t.late - q.late FROM q JOIN lt
  ON lt.number = q.thread WHERE t.number = q.thread RETURNING t.number, t.newest - q.messages AS before),
v AS (INSERT INTO {s}.messages(thread, pos, id, run, step, body)
  SELECT n.thread, t.before + n.nth, n.id, n.run, n.step, n.body FROM n JOIN t ON t.number = n.thread)
SELECT number FROM placed WHERE NOT ended""".replace("#LEVEL#", _INHERITED)

_LEFT: Final = f"""SELECT DISTINCT thread FROM (
  SELECT h.thread FROM {{s}}.runs h WHERE h.held AND h.ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM {{s}}.runs o WHERE o.thread = h.thread AND o.ended_at IS NULL AND o.number < h.number)
  UNION ALL
  SELECT e.thread FROM {{s}}.runs e WHERE e.late AND NOT EXISTS (
    SELECT 1 FROM {{s}}.runs o WHERE o.thread = e.thread AND o.ended_at IS NULL AND o.number < e.number)) AS z
WHERE NOT EXISTS (SELECT 1 FROM {{s}}.runs n WHERE n.thread = z.thread AND n.late AND n.level > {LEVEL})
ORDER BY thread LIMIT %s"""


@attrs.frozen
class FirstRun:
    """The oldest open run of a thread.

    Attributes:
        freed: this call has freed it.
    """

    thread: int
    number: int
    run_id: str
    owner: int | None
    agent: str
    freed: bool


def free_threads(link: Link, threads: Sequence[int]) -> list[FirstRun]:
    """Do what follows the ends of runs in these threads; returns the oldest open run of each.

    One statement, and more only where input is to be placed. A thread with input that a newer release has written is
    left to processes of that release.

    Raises:
        Outage: the server is unavailable; call it again.
    """
    rows = link.burst([(_LOOPS, ()), (_FREE, (Bigints(threads),))])
    behind = Bigints(thread for thread, *_, late, _ in rows if late)
    runs = [
        FirstRun(thread, number, run_id, owner, agent, freed)
        for thread, number, run_id, owner, agent, late, freed in rows
        if number is not None and not late
    ]
    return runs + _place(link, behind) if behind else runs


def _place(link: Link, threads: Bigints) -> list[FirstRun]:
    """Place the input of runs that ended before they were admitted; free the oldest open runs, and return them."""
    rows = link.persistent(_OLDEST, (threads,))
    first = {thread: tuple(run) for thread, *run, _ in rows if run[0] is not None}
    ended = [run for run in link.persistent(_LATE, (threads,)) if run[1] not in first or run[0] < first[run[1]][0]]
    newer = {thread for _, thread, _, _, level in ended if level > LEVEL}
    late = [(number, thread, run_id, blob) for number, thread, run_id, blob, _ in ended if thread not in newer]
    held = [number for thread, (number, _, _, _, is_held) in first.items() if is_held and thread not in newer]
    freed: set[int] = set()
    if late or held:
        texts = [
            (number, *message) for number, _, run_id, blob in late for message in _input(link, number, run_id, blob)
        ]
        columns = [Bigints(), Texts(), Bigints(), Blobs()]
        if texts:
            runs, ids, steps, bodies = zip(*texts, strict=True)
            columns = [Bigints(runs), Texts(ids), Bigints(steps), Blobs(bodies)]
        numbers = Bigints(sorted([*held, *(number for number, *_ in late)]))
        freed = {number for (number,) in link.burst([(_LOOPS, ()), (_SETTLE, (numbers, *columns))])}
    return [
        FirstRun(thread, number, run_id, owner, agent, number in freed)
        for thread, (number, run_id, owner, agent, _) in first.items()
    ]


def _input(link: Link, number: int, run_id: str, blob: bytes) -> Sequence[tuple[str, int, bytes]]:
    """Return the encoded input of a run that ended before it was admitted."""
    try:
        row = codec.load(RunRow, blob)
    except SchemaError:  # a damaged row must not hold up the thread; reading its run reports it
        return ()
    commands: dict[str, Command] = {}
    for sent in row.sent:
        rows = link.persistent(_SENT, (number, sent.command_id))
        empty = Command(command_id=sent.command_id, kind="send")
        commands[sent.command_id] = codec.load(Command, rows[0][0]) if rows else empty
    return encode_messages(whole(run_id, row, commands).pending_input)


def repair_threads(link: Link) -> list[tuple[int, int | None]]:
    """Do what a process left undone that ended between two statements; returns number and owner of freed runs."""
    freed: list[tuple[int, int | None]] = []
    while threads := [thread for (thread,) in link.persistent(_LEFT, (REPAIR_SLICE,))]:
        freed += [(run.number, run.owner) for run in free_threads(link, threads) if run.freed]
        if len(threads) < REPAIR_SLICE:
            break
    return freed
