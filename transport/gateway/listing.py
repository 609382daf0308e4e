"""Lists of runs for a principal: visible runs only, full pages, and cursors that reveal nothing of hidden runs."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import attrs
import msgspec
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.rows import RunRecord
from greenroom.actors.contract.titles import shown_line
from greenroom.actors.runtime.run_registry import DEAD_LETTER

from ..protocol.limits import PAGE_BYTES, ROW_BYTES
from ..protocol.lines import Counts, RunLine, TerminationLine, TicketLine
from .access import Principal, everything

SCAN: Final = 500
"""Runs per read where some may be hidden."""
READS: Final = 16
"""Reads of the store for one page of a query with a text, of which each looks into `SEARCHED` runs."""
OPEN: Final = (RunStatus.CREATED, RunStatus.RUNNING, RunStatus.WAITING)

_encode = msgspec.json.Encoder().encode
_NONCE: Final = 8
_TAG: Final = 12


@attrs.frozen(kw_only=True)
class VisiblePage:
    """A page of the runs that a principal may see.

    Attributes:
        lines: The runs.
        rows: The same in the clients' form.
        cursor: For the next page; None on the last one.
    """

    lines: tuple[gr.RunSummary, ...]
    rows: tuple[RunLine, ...]
    cursor: str | None


async def visible_page(reader: gr.RunReader, who: Principal, query: gr.RunQuery) -> VisiblePage:
    """Return a page of the visible runs: as long as the query says, or as `PAGE_BYTES` allows.

    Hidden runs are skipped up to the next visible one. Therefore only the last page has no cursor, and no page is short
    because of hidden runs. A page of a query with a text ends after `READS` reads, with the runs found so far.

    Raises:
        UsageError: A value of the query is invalid, or its cursor is not of this query and principal.
    """
    inner_query = attrs.evolve(
        query, cursor=None if query.cursor is None else unsealed(who, query.cursor), counts=False
    )
    if query.limit < 1:
        await reader.page(inner_query)  # raises UsageError
    gathered = _PageBuilder(reader, query.limit)
    scan = query.limit if who.sees is everything else SCAN
    part: gr.RunQuery | None = attrs.evolve(inner_query, limit=scan)
    reads = 0
    while part is not None and not gathered.more:
        if query.text is not None and (reads := reads + 1) > READS:
            return gathered.page(who, part.cursor)
        page = await reader.page(part)
        for index, line in enumerate(page.runs):
            if who.sees(line.info) and not gathered.take(line, part, index):
                break
        part = None if page.cursor is None else attrs.evolve(part, cursor=page.cursor)
        if part is not None and gathered.full and who.sees is everything:
            gathered.more = True
    return gathered.page(who, await gathered.cursor() if gathered.more else None)


@attrs.define
class _PageBuilder:
    """The lines of a page under construction.

    Attributes:
        last: The query whose page had the last line, and the index of the line there.
        more: True if a visible run follows the page.
    """

    reader: gr.RunReader
    limit: int
    lines: list[gr.RunSummary] = attrs.field(factory=list)
    rows: list[RunLine] = attrs.field(factory=list)
    size: int = 0
    last: tuple[gr.RunQuery, int] | None = None
    more: bool = False

    @property
    def full(self) -> bool:
        """True if no further line fits."""
        return len(self.lines) >= self.limit or self.size >= PAGE_BYTES

    def take(self, line: gr.RunSummary, query: gr.RunQuery, index: int) -> bool:
        """Add a visible line; return False if the page is full and the line is the first of the next page."""
        if self.full:
            self.more = True
            return False
        row, size = row_of(line, self.reader)
        self.lines.append(line)
        self.rows.append(row)
        self.size += size
        self.last = query, index
        return True

    def page(self, who: Principal, cursor: str | None) -> VisiblePage:
        """Return the page, with the store's cursor of the next one."""
        return VisiblePage(lines=tuple(self.lines), rows=tuple(self.rows), cursor=sealed(who, cursor))

    async def cursor(self) -> str | None:
        """Return the store's cursor after the last line: that of a page that ends there."""
        if self.last is None:
            return None
        query, index = self.last
        return (await self.reader.page(attrs.evolve(query, limit=index + 1))).cursor


async def visible_open(reader: gr.RunReader, who: Principal) -> dict[str, RunStatus]:
    """Return the visible runs that are not done. Reads all runs that are not done."""
    statuses: dict[str, RunStatus] = {}
    for status in OPEN:
        cursor = None
        while True:
            page = await reader.page(gr.RunQuery(status=status, limit=SCAN, cursor=cursor))
            statuses |= {line.info.run_id: line.row.status for line in page.runs if who.sees(line.info)}
            cursor = page.cursor
            if cursor is None:
                break
    return statuses


def counted(statuses: Mapping[str, RunStatus]) -> Counts:
    """Count the runs by status."""
    states = list(statuses.values())
    created, running, waiting = (states.count(status) for status in OPEN)
    return Counts(created=created, running=running, waiting=waiting)


async def visible_counts(reader: gr.RunReader, who: Principal) -> Counts:
    """Count the visible runs that are not done."""
    if who.sees is not everything:
        return counted(await visible_open(reader, who))
    counts = (await reader.summaries((), counts=True)).counts or gr.RunCounts()
    return Counts(created=counts.created, running=counts.running, waiting=counts.waiting)


# --- rows ------------------------------------------------------------------------------------------------------------


def row_of(line: gr.RunSummary, reader: gr.RunReader) -> tuple[RunLine, int]:
    """Return a run's line and its size in bytes, at most `ROW_BYTES`."""
    row = _row_of(line, reader)
    size = len(_encode(row))
    if size > ROW_BYTES:  # reviewers' names have no limit of their own
        row = replace(row, asked=())
        size = len(_encode(row))
    return row, size


def _row_of(line: gr.RunSummary, reader: gr.RunReader) -> RunLine:
    info, row = line.info, line.row
    is_done = row.status is RunStatus.DONE
    degraded = None if is_done or line.owner is not None else reader.degraded(RunRecord(info=info, row=row))
    if line.dead is not None and not is_done:
        degraded = DEAD_LETTER, line.dead
    return RunLine(
        run_id=info.run_id,
        thread_id=info.thread_id,
        agent=info.agent,
        by=info.by,
        title=line.title,
        stage=row.stage,
        status=row.status,
        created_at=info.created_at,
        ended_at=line.ended_at,
        step=row.step,
        last_sequence=row.last_sequence,
        usage=row.usage,
        pending=line.pending,
        held=line.held,
        queue=line.queue,
        owner=line.owner,
        dead=None if line.dead is None else shown_line(line.dead, reader.redactor),
        degraded=None if degraded is None else degraded[0],
        waiting_since=line.waiting_since,
        asked=tuple(TicketLine(**attrs.asdict(ticket, recurse=False)) for ticket in line.asked),
        asked_count=line.asked_count,
        termination=_termination(row.termination, reader) if is_done else None,
    )


def _termination(termination: gr.Termination | None, reader: gr.RunReader) -> TerminationLine | None:
    if termination is None:
        return None
    detail = None if termination.detail is None else shown_line(termination.detail, reader.redactor)
    return TerminationLine(
        kind=termination.kind, code=termination.code, detail=detail, by=termination.by, error_id=termination.error_id
    )


# --- cursors ---------------------------------------------------------------------------------------------------------
# A store's cursor contains the number of a run among all runs, including hidden ones. A principal that may not see all
# runs receives the cursor encrypted with a key derived from the principal's token: valid for this principal only, and
# across restarts of the gateway.


def sealed(who: Principal, cursor: str | None) -> str | None:
    """Encrypt a cursor for a principal that may not see all runs."""
    if cursor is None or who.sees is everything:
        return cursor
    nonce, data = secrets.token_bytes(_NONCE), cursor.encode()
    hidden = bytes(a ^ b for a, b in zip(data, _stream(who, nonce, len(data)), strict=True))
    return base64.urlsafe_b64encode(nonce + _tag(who, nonce + hidden) + hidden).decode()


def unsealed(who: Principal, cursor: str) -> str:
    """Decrypt a cursor.

    Raises:
        UsageError: The cursor is not of this principal.
    """
    if who.sees is everything:
        return cursor
    try:
        data = base64.urlsafe_b64decode(cursor)
    except (binascii.Error, ValueError):
        data = b""
    nonce, tag, hidden = data[:_NONCE], data[_NONCE : _NONCE + _TAG], data[_NONCE + _TAG :]
    if not hidden or not hmac.compare_digest(tag, _tag(who, nonce + hidden)):
        raise gr.UsageError(
            f"cursor={cursor!r:.200} is invalid, or belongs to another principal; start again without one"
        )
    return bytes(a ^ b for a, b in zip(hidden, _stream(who, nonce, len(hidden)), strict=True)).decode()


def _key(who: Principal) -> bytes:
    return sha256(b"greenroom cursor\n" + who.token.encode(errors="surrogatepass")).digest()


def _tag(who: Principal, data: bytes) -> bytes:
    return hmac.digest(_key(who), b"tag" + data, "sha256")[:_TAG]


def _stream(who: Principal, nonce: bytes, size: int) -> bytes:
    key, stream = _key(who), b""
    while len(stream) < size:
        stream += hmac.digest(key, b"stream" + nonce + len(stream).to_bytes(4, "big"), "sha256")
    return stream[:size]
