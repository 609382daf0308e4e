"""Queries of the store in PostgreSQL: each is one short read, and holds no snapshot while its result is used."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from operator import itemgetter
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from ...contract import codec
from ...contract.codec import NewerSchema, SchemaError
from ...contract.decisions import Command, InboxItem, Ticket
from ...contract.messages import Message
from ...contract.pending_input import whole, with_calls
from ...contract.recording import RecordDelta
from ...contract.rows import CallRow, RunInfo, RunOutline, RunRecord, RunRow, ThreadInfo
from ...contract.state import StateWrite
from ...errors import NewerRelease, StoreDown, StoreError, StoreUnavailable, UnknownRun
from ...stored_values import PAGE_BYTES, StoredValue
from ..common import _paging
from ..common._outages import no_answer
from ..common._record_codec import load_taken
from ..common._row_values import check_stage, items_of, outline_of, thread_of, writes_of
from ..common._timestamps import moment
from ..common.faults import READ, Faults, Outage
from ._connect import ATTEMPTS, SNAPSHOT, Again, Link
from ._driver import psycopg
from ._schema import DUE, OVERDUE, TO_DO
from ._values import Texts

T = TypeVar("T")
P = ParamSpec("P")

_HELD_OFF: Final = 1.0
"""Most seconds without a new attempt to connect after one that the server left without an answer."""

_FIRST_PAGE: Final = 64
"""Events of the first statement of a page with a limit of bytes; each further one reads twice as many."""

# One statement, so that it reads one state of the database, and its reader waits once. Each row is of a kind.
# (SELECT number FROM r) is a value for the planner, as a parameter would be, so the rows come from indexes.
_LOAD: Final = """WITH r AS (
  SELECT number, thread, step, consumed, stage, info, row FROM {s}.runs WHERE run_id = %(run)s)
SELECT 'run', number, step, stage, row, info FROM r
UNION ALL SELECT 'call', step, idx, call_id, CASE WHEN %(all)s OR step = (SELECT step FROM r) THEN body END, NULL
  FROM {s}.calls WHERE run = (SELECT number FROM r)
UNION ALL SELECT 'ticket', t.number, NULL, NULL, t.body, NULL
  FROM {s}.tickets t WHERE t.run = (SELECT number FROM r) AND (%(all)s OR t.status = 'open' OR EXISTS (
    SELECT 1 FROM {s}.calls c WHERE c.run = t.run AND c.call_id = t.call_id AND c.step = (SELECT step FROM r)))
UNION ALL SELECT 'item', position, NULL, NULL, body, NULL
  FROM {s}.inbox WHERE run = (SELECT number FROM r) AND position > (SELECT consumed FROM r)
UNION ALL (SELECT DISTINCT ON (key) 'own', run, revision, key, value, NULL
  FROM {s}.state WHERE run = (SELECT number FROM r) AND thread IS NULL ORDER BY key, number DESC)
UNION ALL (SELECT DISTINCT ON (key) 'shared', run, revision, key, value, NULL
  FROM {s}.state WHERE thread = (SELECT thread FROM r) ORDER BY key, number DESC)"""

# One run at a time works on a thread, in the order of their numbers.
_STATE_AT: Final = """SELECT * FROM (
  (SELECT DISTINCT ON (key) run, thread, key, revision, value FROM {s}.state
    WHERE run = %(run)s AND thread IS NULL AND step <= %(step)s ORDER BY key, number DESC)
  UNION ALL
  (SELECT DISTINCT ON (key) run, thread, key, revision, value FROM {s}.state
    WHERE thread = %(thread)s AND (run < %(run)s OR (run = %(run)s AND step <= %(step)s))
    ORDER BY key, number DESC)) AS s
ORDER BY thread IS NOT NULL, key"""


class _Silence:
    """The last attempt to connect has failed. The next one is made by one reader at a time.

    Else the readers of a gateway would queue up, and each would wait for its own attempt in turn.
    """

    def __init__(self, error: StoreUnavailable, waited: float) -> None:
        """`waited`: seconds that the attempt took; for as long, at most a second, no other one is made."""
        self._error, self._until = error, time.monotonic() + min(waited, _HELD_OFF)
        self._lock = threading.Lock()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Let the caller make the next attempt in the block.

        Raises:
            StoreUnavailable: another reader makes it, or it is too early.
        """
        if time.monotonic() < self._until or not self._lock.acquire(blocking=False):
            raise StoreUnavailable(str(self._error)) from self._error.__cause__
        try:
            yield
        finally:
            self._lock.release()


class ReadLinks:
    """Connections that read. Usable from any thread; a connection serves one reader at a time."""

    def __init__(self, connect: Callable[[], Link], *, faults: Faults | None = None) -> None:
        """`connect` returns a new link."""
        self._connect, self._faults = connect, faults
        self._idle: deque[Link] = deque()
        self._all: list[Link] = []
        self._closed = False
        self._silence: _Silence | None = None

    @property
    def links(self) -> Sequence[Link]:
        """All connections, for a watchdog."""
        return tuple(self._all)

    def read(self, query: Callable[Concatenate[Link, P], T], snapshot: bool, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query; `snapshot`: its statements see one state of the database.

        Raises:
            StoreUnavailable: the server does not answer.
            StoreError: a row cannot be read.
            StoreDown: the store is closed, or a table or a right is missing.
        """
        if self._closed:
            raise StoreDown("the store is closed")
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._connect()
            self._all.append(link)
        try:
            silence, begun = self._silence, time.monotonic()
            with nullcontext() if silence is None or link.opened_connection is not None else silence.asked():
                try:
                    result = self._attempts(link, query, snapshot, *args, **kwargs)
                except StoreUnavailable as error:
                    if link.opened_connection is None and not link.unknown:
                        self._silence = _Silence(error, time.monotonic() - begun)
                    raise
                self._silence = None
                return result
        finally:
            self._idle.append(link)
            if self._closed:
                self.close()  # type: ignore[unreachable]  # closed in another thread meanwhile

    def _attempts(
        self, link: Link, query: Callable[Concatenate[Link, P], T], snapshot: bool, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        fresh = link.opened
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._faults is not None:
                    self._faults(READ)
                if not snapshot:
                    return query(link, *args, **kwargs)
                with link.transaction(SNAPSHOT):
                    return query(link, *args, **kwargs)
            except (Again, Outage) as error:
                # a connection that was cut while it was idle is not an outage: another one is opened once
                met = isinstance(error, Again) and not error.waited
                again = met or (attempt == 1 and fresh == link.opened and fresh > 0 and isinstance(error, Outage))
                if attempt == ATTEMPTS or not again:
                    raise no_answer(error.error) from error.error
            except NewerSchema as error:
                raise NewerRelease(f"a row of the store was written by a newer release: {error}") from error
            except SchemaError as error:
                raise StoreError(f"a row of the store cannot be read: {error}") from error
            except (psycopg.Error, UnicodeEncodeError) as error:
                text = link.target.hidden(str(error))
                raise StoreError(f"the store cannot be read: {text}") from error
        raise AssertionError("the last attempt returns or raises")

    def may_ask(self) -> None:
        """Let every reader connect again: the server has answered."""
        self._silence = None

    def close(self) -> None:
        """Close idle connections; a connection in use is closed after its read."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def open_runs(link: Link) -> Sequence[tuple[str, bool]]:
    """Return all runs that are not done, oldest first, each with whether it is held."""
    return tuple(link.execute("SELECT run_id, held FROM {s}.runs WHERE ended_at IS NULL ORDER BY number"))


# `least` leaves NULLs out. Each part is one probe of an index.
_NEXT_DUE: Final = f"""SELECT least(
  (SELECT next_due FROM {{s}}.runs WHERE {DUE} ORDER BY next_due LIMIT 1),
  (SELECT next_due FROM {{s}}.runs WHERE {OVERDUE} AND dead IS NULL ORDER BY next_due LIMIT 1))"""


def next_due(link: Link) -> datetime | None:
    """Return when the earliest timer of a run fires that waits, or has no owner."""
    ((at,),) = link.execute(_NEXT_DUE)
    return None if at is None else moment(at)


def load(link: Link, run_id: str, calls: Literal["step", "all"]) -> RunRecord | None:
    """Return a run's rows."""
    rows: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for kind, *columns in link.execute(_LOAD, {"run": run_id, "all": calls == "all"}):
        rows[kind].append(columns)
    if not rows:
        return None
    ((number, _, stage, blob, info),) = rows["run"]
    row = load_row(link, number, run_id, blob)
    check_stage(row, run_id, stage)
    made = sorted(rows["call"], key=itemgetter(0, 1))
    calls_read = tuple(codec.load(CallRow, body) for _, _, _, body, _ in made if body is not None)
    tickets, items = (sorted(rows[kind], key=itemgetter(0)) for kind in ("ticket", "item"))
    writes = [
        (writer, thread, key, revision, value)
        for kind, thread in (("own", None), ("shared", 0))
        for writer, revision, key, value, _ in sorted(rows[kind], key=itemgetter(2))
    ]
    return RunRecord(
        info=codec.load(RunInfo, info),
        row=with_calls(row, calls_read),
        calls=calls_read,
        tickets=tuple(codec.load(Ticket, body) for _, _, _, body, _ in tickets),
        inbox=items_of((position, body) for position, _, _, body, _ in items),
        call_ids=frozenset(name for _, _, name, _, _ in made),
        state=writes_of(writes, number),
    )


def load_row(link: Link, number: int, run_id: str, blob: bytes) -> RunRow:
    """Return a run's row from its bytes, with the texts of pending input, which are in the inbox."""
    row = codec.load(RunRow, blob)
    if not row.sent:
        return row
    names = Texts([sent_text.command_id for sent_text in row.sent])
    sql = "SELECT command_id, body FROM {s}.inbox WHERE run = %s AND command_id = ANY(%s)"
    bodies = {name: codec.load(Command, body) for name, body in link.execute(sql, (number, names))}
    commands = {str(name): bodies.get(str(name)) or Command(command_id=str(name), kind="send") for name in names}
    return whole(run_id, row, commands)


def outline(link: Link, run_id: str) -> RunOutline | None:
    """Return a run's own row, also if a part of it is unreadable."""
    sql = """SELECT r.agent, r.stage, r.step, r.last_seq, r.posted, r.consumed, r.held AND r.ended_at IS NULL,
        r.created_at, r.info, r.row, t.thread_id, CASE WHEN r.held AND r.ended_at IS NULL THEN (
          SELECT o.run_id FROM {s}.runs o WHERE o.thread = r.thread AND o.ended_at IS NULL AND NOT o.held
          ORDER BY o.number LIMIT 1) END,
        r.owner IS NULL AND #TO_DO#, r.queue, r.ready_at, q.paused, q.max_running
        FROM {s}.runs r JOIN {s}.threads t ON t.number = r.thread LEFT JOIN {s}.queues q ON q.name = r.queue
        WHERE r.run_id = %s""".replace("#TO_DO#", TO_DO)
    rows = link.execute(sql, (run_id,))
    return outline_of(run_id, rows[0]) if rows else None


def ticket(link: Link, run_id: str, target: str) -> Ticket | None:
    """Return the ticket with that id, else the newest of the call with that id."""
    sql = """SELECT t.body FROM {s}.runs r JOIN {s}.tickets t ON t.run = r.number
        WHERE r.run_id = %(run)s AND (t.ticket_id = %(target)s OR t.call_id = %(target)s)
        ORDER BY t.ticket_id = %(target)s DESC, t.number DESC LIMIT 1"""
    rows = link.execute(sql, {"run": run_id, "target": target})
    return codec.load(Ticket, rows[0][0]) if rows else None


def thread(link: Link, thread_id: str) -> ThreadInfo | None:
    """Return the facts of a thread."""
    rows = link.execute("SELECT number, owner, created_at, runs FROM {s}.threads WHERE thread_id = %s", (thread_id,))
    if not rows:
        return None
    number, owner, created, runs = rows[0]
    pruned = link.execute("SELECT info FROM {s}.members WHERE thread = %s ORDER BY facts", (number,))
    rows_of_runs = link.execute("SELECT info FROM {s}.runs WHERE thread = %s ORDER BY number", (number,))
    return thread_of(thread_id, owner, created, runs, (info for (info,) in (*pruned, *rows_of_runs)))


def _number(link: Link, run_id: str) -> tuple[int, int] | None:
    """Return number and thread of a run."""
    rows = link.execute("SELECT number, thread FROM {s}.runs WHERE run_id = %s", (run_id,))
    return (rows[0][0], rows[0][1]) if rows else None


def state_at(link: Link, run_id: str, step: int) -> tuple[StateWrite, ...]:
    """Return the state keys as of the end of a step.

    Raises:
        UnknownRun: no run has this id.
    """
    run = _number(link, run_id)
    if run is None:
        raise UnknownRun(run_id)
    number, thread = run
    rows = link.execute(_STATE_AT, {"run": number, "thread": thread, "step": step})
    return writes_of(rows, number)


def events(link: Link, run_id: str, after: int, limit: int, max_bytes: int | None) -> Sequence[bytes]:
    """Return a page of encoded events, in order."""
    sql = """SELECT e.frame FROM {s}.events e WHERE e.run = (SELECT number FROM {s}.runs WHERE run_id = %s)
        AND e.seq > %s ORDER BY e.seq LIMIT %s"""
    if max_bytes is None:
        return tuple(frame for (frame,) in link.execute(sql, (run_id, after, limit)))
    page: list[bytes] = []
    chunk = min(_FIRST_PAGE, limit)
    while chunk:
        rows = link.execute(sql, (run_id, after + len(page), chunk))
        before = len(page)
        page += _paging.page((frame for (frame,) in rows), max_bytes - sum(map(len, page)))
        full = len(page) - before < len(rows) or sum(map(len, page)) >= max_bytes
        if full or len(rows) < chunk:
            break
        chunk = min(2 * chunk, limit - len(page))
    return tuple(page)


def commands(link: Link, run_id: str) -> Sequence[InboxItem]:
    """Return every accepted command of a run, in order."""
    sql = """SELECT i.position, i.body FROM {s}.runs r JOIN {s}.inbox i ON i.run = r.number
        WHERE r.run_id = %s ORDER BY i.position"""
    return items_of(link.execute(sql, (run_id,)))


def record(link: Link, run_id: str, after: int, limit: int) -> Sequence[RecordDelta]:
    """Return a page of a run's record. Commands are stored in the inbox only, and filled in from there."""
    run = _number(link, run_id)
    if run is None:
        return ()
    sql = "SELECT last, body FROM {s}.record WHERE run = %s ORDER BY number LIMIT %s OFFSET %s"
    rows = link.execute(sql, (run[0], limit, after))
    items = {item.position: item for item in commands(link, run_id)} if rows else {}
    return tuple(RecordDelta(last, load_taken(body, items)) for last, body in rows)


def parts(link: Link, thread_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
    """Return the bytes of a thread's images and files, by digest."""
    sql = """SELECT sha256, body FROM {s}.parts
        WHERE thread = (SELECT number FROM {s}.threads WHERE thread_id = %s) AND sha256 = ANY(%s)"""
    return dict(link.execute(sql, (thread_id, Texts(digests))))


def messages(link: Link, thread_id: str) -> Sequence[Message]:
    """Return a thread's history, in order."""
    sql = """SELECT body FROM {s}.messages
        WHERE thread = (SELECT number FROM {s}.threads WHERE thread_id = %s) ORDER BY pos"""
    return tuple(codec.load(Message, body) for (body,) in link.execute(sql, (thread_id,)))


_VALUES: Final = f"""SELECT name, value, revision FROM (
  SELECT name, value, revision, sum(octet_length(value)) OVER (ORDER BY name) - octet_length(value) AS before
  FROM {{s}}.stored_values WHERE space = %s AND name > %s ORDER BY name LIMIT %s) v
WHERE before < {PAGE_BYTES} ORDER BY name"""


def values(link: Link, space: str, after: str, limit: int) -> Sequence[StoredValue]:
    """Return a page of the values of a space."""
    rows = link.execute(_VALUES, (space, after, limit))
    return tuple(StoredValue(name=name, value=value, revision=revision) for name, value, revision in rows)
