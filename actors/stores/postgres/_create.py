"""A new run: one statement that takes its place in the thread, or the reason why it is refused.

Theory of operation. The row of the thread orders its runs: an update of it waits for other updates and then sees them,
which no count of runs does. The run's number is drawn after that, so numbers are the order of a thread. If the
statement writes nothing, what is in the way is looked up; if nothing is, it has gone meanwhile, and the statement is
executed again. After an unknown outcome the run is found by the random part of its first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...contract import codec
from ...contract.claims import Claim
from ...contract.codec import NewerSchema
from ...contract.commits import Created, NewRun
from ...contract.rows import RunInfo
from ...contract.titles import searched
from ...errors import NewerRelease, StoreUnavailable
from ..common._commit_rules import InvalidCommit, PlaceFacts, birth_fault, place
from ..common._encoding import EncodedRows
from ..common._ranks import rank
from ..common._requests import CreateRequest
from ..common._timestamps import milliseconds
from ._connect import Link
from ._driver import psycopg
from ._schema import LEVEL
from ._sql import columns, judged_part
from ._values import Bigints, Blobs, Moment, Texts
from ._write import ClaimBook

ATTEMPTS: Final = 20
"""How often a statement is executed again whose facts have changed; then the caller is asked to try again."""

_CREATE: Final = f"""WITH known AS (
  SELECT 1 FROM {{s}}.runs WHERE run_id = %(run)s OR (dedupe = %(dedupe)s AND ended_at IS NULL)
  UNION ALL SELECT 1 FROM {{s}}.pruned WHERE run_id = %(run)s),
t AS (INSERT INTO {{s}}.threads AS t (thread_id, owner, created_at, runs, kept, open, newest)
  SELECT %(thread)s, %(by)s, %(created)s, 1, 1, 1, %(messages)s::bigint WHERE NOT EXISTS (SELECT 1 FROM known)
    AND (coalesce(%(runs)s::bigint, 0) = 0 OR EXISTS (SELECT 1 FROM {{s}}.threads WHERE thread_id = %(thread)s))
  ON CONFLICT (thread_id) DO UPDATE SET runs = t.runs + 1, kept = t.kept + 1, open = t.open + 1,
    newest = t.newest + excluded.newest
  WHERE (%(queued)s OR t.open = 0) AND t.runs = coalesce(%(runs)s::bigint, t.runs)
    AND t.newest = coalesce(%(newest)s::bigint, t.newest)
  RETURNING number, open, newest - %(messages)s::bigint AS before),
r AS (INSERT INTO {{s}}.runs(run_id, thread, agent, status, stage, step, last_seq, token, owner, held, needs_deps,
    place, queue, ready_at, rank, priority, dedupe, level, judged, created_at, next_due, title, search, started_by,
    info, row)
  SELECT %(run)s, t.number, %(agent)s, %(status)s, %(stage)s, %(step)s, 1, %(token)s, %(owner)s::bigint, t.open > 1,
    %(deps)s, %(place)s, %(queue)s, %(ready)s, %(rank)s, %(priority)s, %(dedupe)s, greatest({LEVEL}, (
      SELECT p.level FROM {{s}}.runs p WHERE p.thread = t.number ORDER BY p.number DESC LIMIT 1)),
    %(judged)s, %(created)s, %(due)s, %(title)s, %(search)s, %(by)s, %(info)s, %(row)s FROM t
  RETURNING number, thread, held),
e AS (INSERT INTO {{s}}.events(run, seq, frame) SELECT number, 1, %(frame)s FROM r),
v AS (INSERT INTO {{s}}.messages(thread, pos, id, run, step, body)
  SELECT t.number, t.before + x.ord, x.id, CASE WHEN x.run = 0 THEN r.number ELSE x.run END, x.step, x.body
  FROM t, r, unnest(%(message_runs)s::bigint[], %(message_ids)s::text[], %(message_steps)s::bigint[],
    %(message_bodies)s::bytea[]) WITH ORDINALITY AS x(run, id, step, body, ord)),
y AS (INSERT INTO {{s}}.state(run, thread, key, step, revision, value)
  SELECT r.number, CASE WHEN x.shared = 1 THEN r.thread END, x.key, x.step, x.revision, x.value
  FROM r, unnest(%(state_i)s::bigint[], %(state_shared)s::bigint[], %(state_keys)s::text[], %(state_steps)s::bigint[],
    %(state_revisions)s::bigint[], %(state_values)s::bytea[]) WITH ORDINALITY
    AS x(i, shared, key, step, revision, value, ord) ORDER BY x.ord),
f AS (INSERT INTO {{s}}.parts(thread, sha256, body)
  SELECT r.thread, x.sha256, coalesce(x.body, p.body) FROM r,
    unnest(%(part_names)s::text[], %(part_bodies)s::bytea[]) AS x(sha256, body)
    LEFT JOIN {{s}}.parts p ON x.body IS NULL AND p.sha256 = x.sha256 AND p.thread = %(parent)s
  WHERE coalesce(x.body, p.body) IS NOT NULL ON CONFLICT (thread, sha256) DO NOTHING),
d AS (INSERT INTO {{s}}.record(run, last, body) SELECT number, 1, %(taken)s FROM r WHERE %(taken)s::bytea IS NOT NULL),
u AS (INSERT INTO {{s}}.queues(name) SELECT %(queue)s FROM r ON CONFLICT (name) DO NOTHING)
SELECT r.number, r.held, (SELECT o.run_id FROM {{s}}.runs o WHERE o.thread = r.thread AND o.ended_at IS NULL
  ORDER BY o.number LIMIT 1) FROM r"""

_FIND: Final = """SELECT r.number, r.token, r.held AND r.ended_at IS NULL, r.info, r.run_id, (
  SELECT o.run_id FROM {s}.runs o WHERE o.thread = r.thread AND o.ended_at IS NULL ORDER BY o.number LIMIT 1)
FROM {s}.runs r WHERE r.run_id = %s OR (r.dedupe = %s AND r.ended_at IS NULL) ORDER BY r.run_id = %s DESC LIMIT 1"""
_PRUNED: Final = "SELECT content FROM {s}.pruned WHERE run_id = %s"
_THREAD: Final = """SELECT t.runs, (SELECT o.run_id FROM {s}.runs o WHERE o.thread = t.number
  AND o.ended_at IS NULL ORDER BY o.number LIMIT 1) FROM {s}.threads t WHERE t.thread_id = %s"""
_NEWEST: Final = "SELECT newest FROM {s}.threads WHERE thread_id = %s"
_HISTORY: Final = """SELECT m.run, m.id, m.step, m.body FROM {s}.messages m
JOIN {s}.threads t ON t.number = m.thread WHERE t.thread_id = %s AND m.pos <= %s ORDER BY m.pos"""
_PARENT: Final = "SELECT number FROM {s}.threads WHERE thread_id = %s"


class RunCreator:
    """Executes one request for a new run, until its answer arrives."""

    def __init__(self, link: Link, book: ClaimBook, request: CreateRequest, *, owner: int, bits: int) -> None:
        """Begin.

        Args:
            link: the connection.
            book: notes the claim.
            request: The request with its encoded rows.
            owner: number of this process.
            bits: the random part of the first token.
        """
        self._link, self._book, self._request = link, book, request
        self._owner = owner if request.claimed else None
        self._token = (1 << 31) | bits
        self.sent = False
        """The statement was sent, and may have written the run."""

    def __call__(self) -> Created:
        """Create the run, or return why it is refused.

        Raises:
            ThreadBusy: the thread has an active run, and the new run does not queue.
            InvalidCommit: the run cannot be written.
            StoreUnavailable: its thread changes too fast.
        """
        new, rows = self._request.new, self._request.blobs
        if not isinstance(rows, EncodedRows):
            raise InvalidCommit(f"run {new.info.run_id}: no rows")
        if birth_fault(new) is not None and (refusal := self._in_the_way(new)) is not None:
            return refusal
        for _ in range(ATTEMPTS):
            self.sent = True
            try:
                written = self._link.persistent(_CREATE, self._values(new, rows))
            except psycopg.errors.UniqueViolation as error:
                if error.diag.constraint_name not in ("runs_run_id_key", "runs_dedupe"):
                    raise
                continue  # another process was faster
            if written:
                number, held, behind = written[0]
                return self._created(number, held, behind)
            refusal = self._in_the_way(new)
            if refusal is not None:
                return refusal
        raise StoreUnavailable(f"thread {new.info.thread_id!r} changes too fast; try again")

    def _created(self, number: int, held: bool, behind: str | None) -> Created:
        run_id = self._request.new.info.run_id
        behind = behind if held else None
        if self._owner is None:
            return Created(claim=None, held=held, behind=behind, unclaimed=True)
        self._book.note(run_id, number, self._token)
        return Created(claim=Claim(run_id=run_id, token=self._token), held=held, behind=behind)

    def _in_the_way(self, new: NewRun) -> Created | None:
        """Return what kept the statement from writing; None if it is gone.

        Raises:
            InvalidCommit, ThreadBusy: see `place`.
        """
        run_id = new.info.run_id
        rows = self._link.persistent(_FIND, (run_id, new.dedupe, run_id))
        if rows:
            number, token, held, info, name, behind = rows[0]
            if name == run_id and token == self._token:  # written by this request; the answer was lost
                return self._created(number, held, behind)
            try:
                return place(PlaceFacts(codec.load(RunInfo, info), held), new)
            except NewerSchema as error:
                raise NewerRelease(f"run {name} was written by a newer release; upgrade Greenroom") from error
        pruned = self._link.persistent(_PRUNED, (run_id,))
        if pruned:
            return place(PlaceFacts(pruned=pruned[0][0]), new)
        thread = self._link.persistent(_THREAD, (new.info.thread_id,))
        runs, active = thread[0] if thread else (0, None)
        return place(PlaceFacts(runs=runs, active=active), new)

    def _values(self, new: NewRun, rows: EncodedRows) -> dict[str, Any]:
        info, row = new.info, new.row
        created = milliseconds(info.created_at)
        ready = new.ready_at or info.created_at
        newest, messages = self._messages(new, rows)
        step = row.step
        state = columns(
            "state", [(0, int(shared), key, step, revision, value) for shared, key, revision, value in rows.state]
        )
        names = ("state_i", "state_shared", "state_keys", "state_steps", "state_revisions", "state_values")
        return {
            **dict(zip(names, state, strict=True)),
            "run": info.run_id,
            "thread": info.thread_id,
            "by": info.by,
            "created": Moment(created),
            "runs": new.thread_runs,
            "newest": newest,
            "queued": new.on_busy == "queue",
            "messages": len(messages),
            "message_runs": Bigints([message[0] for message in messages]),
            "message_ids": Texts([message[1] for message in messages]),
            "message_steps": Bigints([message[2] for message in messages]),
            "message_bodies": Blobs([message[3] for message in messages]),
            "part_names": Texts([digest for digest, _ in rows.parts]),
            "part_bodies": Blobs([data for _, data in rows.parts]),
            "parent": self._parent(new, rows),
            "taken": rows.taken or None,
            "agent": info.agent,
            "status": row.status.value,
            "stage": row.stage.value,
            "step": step,
            "token": self._token,
            "owner": self._owner,
            "deps": info.has_deps,
            "place": info.place,
            "queue": new.queue or info.agent,
            "ready": Moment(milliseconds(ready)),
            "rank": Moment(milliseconds(rank(ready, new.priority))),
            "priority": new.priority,
            "dedupe": new.dedupe,
            "judged": judged_part(row),
            "due": None if row.next_due is None else Moment(milliseconds(row.next_due)),
            "title": info.title,
            "search": searched(info.title, info.run_id),
            "info": rows.info,
            "row": rows.row,
            "frame": self._request.frame,
        }

    def _messages(self, new: NewRun, rows: EncodedRows) -> tuple[int | None, Sequence[tuple[int, str, int, bytes]]]:
        """Return the messages with which the run begins; and for a fork, after which message of its thread."""
        own = [(0, *message) for message in rows.messages]
        if new.thread_parent is None:
            return None, own
        newest = self._link.persistent(_NEWEST, (new.info.thread_id,))
        if newest and newest[0][0]:
            return int(newest[0][0]), own
        history = self._link.persistent(_HISTORY, new.thread_parent)
        history_ids = {name for _, name, _, _ in history}
        return 0, [*history, *(message for message in own if message[1] not in history_ids)]

    def _parent(self, new: NewRun, rows: EncodedRows) -> int | None:
        """Return the number of the thread that a fork copies bytes from."""
        if new.thread_parent is None or all(data is not None for _, data in rows.parts):
            return None
        parents = self._link.persistent(_PARENT, (new.thread_parent[0],))
        return int(parents[0][0]) if parents else None
