"""Lists of runs for a principal: visible runs only, whole pages of them, and cursors that say nothing of the others."""

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

import greenroom as gr
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.rows import RunRecord
from greenroom.actors.contract.titles import shown_line

from ..protocol.limits import PAGE_BYTES, ROW_BYTES
from ..protocol.lines import Counts, RunLine, TicketLine
from .access import Principal, everything

SCAN: Final = 500
"""Runs that are looked through at once, where not all of them may be seen."""
OPEN: Final = (RunStatus.CREATED, RunStatus.RUNNING, RunStatus.WAITING)

_encode = msgspec.json.Encoder().encode
_NONCE: Final = 8
_TAG: Final = 12


@attrs.frozen(kw_only=True)
class VisiblePage:
    """A page of the runs that a principal may see.

    Attributes:
        lines: the runs. rows: the same, as clients get them.
        cursor: for the next page; None on the last one.
    """

    lines: tuple[gr.RunSummary, ...]
    rows: tuple[RunLine, ...]
    cursor: str | None


async def visible_page(reader: gr.RunReader, who: Principal, query: gr.RunQuery) -> VisiblePage:
    """A page of the runs that the principal may see: as long as the query says, or as `PAGE_BYTES` lets it be.

    Where a principal may not see all runs, those between are looked through, up to the next one that may be seen: the
    last page has no cursor, and no page is short because of what is hidden.

    Raises:
        UsageError: a value of the query can not be, or its cursor is not one of this query and principal.
    """
    opened = attrs.evolve(query, cursor=None if query.cursor is None else _unsealed(who, query.cursor), counts=False)
    if query.limit < 1:
        await reader.page(opened)  # says what is wrong
    gathered = _PageBuilder(reader, query.limit)
    scan = query.limit if who.sees is everything else SCAN
    part: gr.RunQuery | None = attrs.evolve(opened, limit=scan)
    while part is not None and not gathered.more:
        page = await reader.page(part)
        for index, line in enumerate(page.runs):
            if who.sees(line.info) and not gathered.take(line, part, index):
                break
        part = None if page.cursor is None else attrs.evolve(part, cursor=page.cursor)
        if part is not None and gathered.full and who.sees is everything:
            gathered.more = True
    return VisiblePage(
        lines=tuple(gathered.lines),
        rows=tuple(gathered.rows),
        cursor=_sealed(who, await gathered.cursor()) if gathered.more else None,
    )


@attrs.define
class _PageBuilder:
    """The lines of a page, as they are found.

    Attributes:
        last: the query whose page held the last line, and the line's index there.
        more: there is a visible run behind the page.
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
        """Nothing more fits."""
        return len(self.lines) >= self.limit or self.size >= PAGE_BYTES

    def take(self, line: gr.RunSummary, query: gr.RunQuery, index: int) -> bool:
        """Take a visible line; False if the page is full, and this one is the first of the next."""
        if self.full:
            self.more = True
            return False
        row, size = row_of(line, self.reader)
        self.lines.append(line)
        self.rows.append(row)
        self.size += size
        self.last = query, index
        return True

    async def cursor(self) -> str | None:
        """The store's cursor behind the last line: of a page that ends there."""
        if self.last is None:
            return None
        query, index = self.last
        return (await self.reader.page(attrs.evolve(query, limit=index + 1))).cursor


async def visible_open(reader: gr.RunReader, who: Principal) -> dict[str, RunStatus]:
    """The runs that are not done and that the principal may see. Reads all that are not done."""
    found: dict[str, RunStatus] = {}
    for status in OPEN:
        cursor = None
        while True:
            page = await reader.page(gr.RunQuery(status=status, limit=SCAN, cursor=cursor))
            found |= {line.info.run_id: line.row.status for line in page.runs if who.sees(line.info)}
            cursor = page.cursor
            if cursor is None:
                break
    return found


def counted(found: Mapping[str, RunStatus]) -> Counts:
    """How many of each status."""
    states = list(found.values())
    created, running, waiting = (states.count(status) for status in OPEN)
    return Counts(created=created, running=running, waiting=waiting)


async def visible_counts(reader: gr.RunReader, who: Principal) -> Counts:
    """How many runs are not done, of those that the principal may see."""
    if who.sees is not everything:
        return counted(await visible_open(reader, who))
    counts = (await reader.summaries((), counts=True)).counts or gr.RunCounts()
    return Counts(created=counts.created, running=counts.running, waiting=counts.waiting)


# --- rows ------------------------------------------------------------------------------------------------------------


def row_of(line: gr.RunSummary, reader: gr.RunReader) -> tuple[RunLine, int]:
    """A run as lists show it, and its bytes, at most `ROW_BYTES`."""
    row = _row_of(line, reader)
    size = len(_encode(row))
    if size > ROW_BYTES:  # names of reviewers have no limit of their own
        row = msgspec.structs.replace(row, asked=())
        size = len(_encode(row))
    return row, size


def _row_of(line: gr.RunSummary, reader: gr.RunReader) -> RunLine:
    info, row = line.info, line.row
    done = row.status is RunStatus.DONE
    degraded = None if done else reader.degraded(RunRecord(info=info, row=row))
    return RunLine(
        run=info.run_id,
        thread=info.thread_id,
        agent=info.agent,
        by=info.by,
        title=line.title,
        stage=row.stage,
        status=row.status,
        created_at=info.created_at,
        ended_at=line.ended_at,
        step=row.step,
        sequence=row.last_sequence,
        usage=row.usage,
        pending=line.pending,
        held=line.held,
        degraded=None if degraded is None else degraded[0],
        waiting_since=line.waiting_since,
        asked=tuple(TicketLine(**attrs.asdict(one, recurse=False)) for one in line.asked),
        asked_count=line.asked_count,
        termination=_termination(row.termination, reader) if done else None,
    )


def _termination(found: gr.Termination | None, reader: gr.RunReader) -> gr.Termination | None:
    if found is None or found.detail is None:
        return found
    return attrs.evolve(found, detail=shown_line(found.detail, reader.redactor))


# --- cursors ---------------------------------------------------------------------------------------------------------
# A store's cursor holds the number of a run among all runs, hidden ones too. Whoever may not see all gets it sealed,
# with a key that is made of the principal's token: good for this principal only, and over a restart of the gateway.


def _sealed(who: Principal, cursor: str | None) -> str | None:
    if cursor is None or who.sees is everything:
        return cursor
    nonce, data = secrets.token_bytes(_NONCE), cursor.encode()
    hidden = bytes(a ^ b for a, b in zip(data, _stream(who, nonce, len(data)), strict=True))
    return base64.urlsafe_b64encode(nonce + _tag(who, nonce + hidden) + hidden).decode()


def _unsealed(who: Principal, cursor: str) -> str:
    """The store's cursor.

    Raises:
        UsageError: it is none of this principal.
    """
    if who.sees is everything:
        return cursor
    try:
        data = base64.urlsafe_b64decode(cursor)
    except (binascii.Error, ValueError):
        data = b""
    nonce, tag, hidden = data[:_NONCE], data[_NONCE : _NONCE + _TAG], data[_NONCE + _TAG :]
    if not hidden or not hmac.compare_digest(tag, _tag(who, nonce + hidden)):
        raise gr.UsageError(f"cursor={cursor!r:.200} is none of ours, or somebody else's; start again without one")
    return bytes(a ^ b for a, b in zip(hidden, _stream(who, nonce, len(hidden)), strict=True)).decode()


def _key(who: Principal) -> bytes:
    return sha256(b"greenroom cursor\n" + who.token.encode(errors="surrogatepass")).digest()


def _tag(who: Principal, data: bytes) -> bytes:
    return hmac.digest(_key(who), b"tag" + data, "sha256")[:_TAG]


def _stream(who: Principal, nonce: bytes, size: int) -> bytes:
    key, found = _key(who), b""
    while len(found) < size:
        found += hmac.digest(key, b"stream" + nonce + len(found).to_bytes(4, "big"), "sha256")
    return found[:size]
