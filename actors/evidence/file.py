"""An evidence file: the account and the log of a run at one moment, to compare the log with later. Pure.

Theory of operation. The log of a run lies in a store that its owner can write; nothing in a row could prove that the
row is as it was. So whoever wants proof exports the log and keeps the file elsewhere. The file is lines of JSON:

    {"type": "evidence", "version": 1, "runId": ..., "exportedAt": ..., "account": {...}}
    {"type": "log", "runId": ..., "events": N, "terminal": true}     then N lines, each an event as it is stored,
    ...                                                               and the same for each child run
    {"type": "end", "sha256": ...}                                    over all bytes before this line

`compare` finds the first event of a log that is not as in the file. A run that had not ended when the file was made has
a longer log later; that is no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal

import attrs
import msgspec

from ..contract.casing import camel
from ..errors import UsageError
from .account import RunEvidence

VERSION: Final = 1
Kind = Literal["changed", "dropped", "added", "moved"]


class EvidenceFileError(UsageError):
    """A file is no evidence file, is cut or was changed, or a newer release has made it."""


@attrs.frozen(kw_only=True)
class LogEvidence:
    """The log of one run in an evidence file.

    Attributes:
        run_id: The run.
        digests: A SHA-256 of each event as it was stored.
        terminal: The run had ended: its log gets no more events.
    """

    run_id: str
    digests: tuple[bytes, ...]
    terminal: bool


@attrs.frozen(kw_only=True)
class LogDifference:
    """The first event of a log that is not as in an evidence file.

    Attributes:
        run_id: The run.
        sequence: The place in the log, from 1; of a dropped event, the place that it had.
        kind: changed: other bytes stand there. dropped: the event is not in the log. added: an event stands there that
            is not in the file. moved: the event stands at another place.
    """

    run_id: str
    sequence: int
    kind: Kind

    def __str__(self) -> str:
        return f"event {self.sequence} of run {self.run_id} was {self.kind} since the file was made"


def digest(frame: bytes) -> bytes:
    """Return the digest of an event as it is stored."""
    return hashlib.sha256(frame).digest()


def compare(log: LogEvidence, digests: Sequence[bytes]) -> LogDifference | None:
    """Return the first difference between a log in a file and the digests of the log as it is now, or None.

    Takes time and memory in proportion to the log.
    """
    before = log.digests
    place = next((at for at, (old, new) in enumerate(zip(before, digests, strict=False)) if old != new), None)
    if place is None:
        if len(digests) < len(before):
            return LogDifference(run_id=log.run_id, sequence=len(digests) + 1, kind="dropped")
        if len(digests) > len(before) and log.terminal:
            return LogDifference(run_id=log.run_id, sequence=len(before) + 1, kind="added")
        return None
    was_there, is_there = digests[place] in set(before[place:]), before[place] in set(digests[place:])
    kinds: dict[tuple[bool, bool], Kind] = {(True, True): "moved", (True, False): "dropped", (False, True): "added"}
    kind = kinds.get((was_there, is_there), "changed")
    return LogDifference(run_id=log.run_id, sequence=place + 1, kind=kind)


class EvidenceWriter:
    """Makes the lines of an evidence file: `head`, `log` for each run, then `end`. Write them as they come."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def head(self, account: RunEvidence, exported_at: str) -> bytes:
        """Return the first line."""
        return self._line(
            type="evidence", version=VERSION, run_id=account.run_id, exported_at=exported_at, account=account
        )

    def log(self, run_id: str, frames: Sequence[bytes], *, terminal: bool) -> Iterator[bytes]:
        """Return the lines of one run."""
        yield self._line(type="log", run_id=run_id, events=len(frames), terminal=terminal)
        for frame in frames:
            self._hash.update(line := frame + b"\n")
            yield line

    def end(self) -> bytes:
        """Return the last line."""
        return self._line(type="end", sha256=self._hash.hexdigest())

    def _line(self, **fields: object) -> bytes:
        line = msgspec.json.encode({camel(name): value for name, value in fields.items()}) + b"\n"
        self._hash.update(line)
        return line


def read(lines: Iterable[bytes], run_id: str) -> tuple[LogEvidence, ...]:
    """Return the logs in an evidence file, the run's own first.

    Args:
        lines: The lines of the file, each with its newline.
        run_id: The run whose file this should be.

    Raises:
        EvidenceFileError: The file is none, is cut, was changed, is another run's, or a newer release has made it.
    """
    check, logs, rest = hashlib.sha256(), list[LogEvidence](), iter(lines)
    head = _object(next(rest, b""), "evidence", check)
    if head.get("version") != VERSION:
        raise EvidenceFileError(
            f"the file has version {head.get('version')!r:.20} and this release reads {VERSION}: check it with the "
            "release that made it"
        )
    if head.get("runId") != run_id:
        raise EvidenceFileError(f"the file is of run {head.get('runId')!r:.100}, not of {run_id}")
    for line in rest:
        before = check.hexdigest()
        fields = _object(line, None, check)
        if fields.get("type") == "end":
            if fields.get("sha256") != before or next(rest, None) is not None:
                raise EvidenceFileError("the file was changed: its SHA-256 is not that of its lines")
            return tuple(logs)
        logs.append(_log(fields, rest, check))
    raise EvidenceFileError("the file is cut: it has no last line")


def _log(fields: dict[str, object], rest: Iterator[bytes], check: Any) -> LogEvidence:
    """Read the events that follow the line of a log."""
    run_id, events = fields.get("runId"), fields.get("events")
    if fields.get("type") != "log" or not isinstance(run_id, str) or type(events) is not int:
        raise EvidenceFileError("the file is no evidence file: a line is neither an event nor begins a log")
    digests = []
    for line in islice(rest, events):
        check.update(line)
        digests.append(digest(line.removesuffix(b"\n")))
    return LogEvidence(run_id=run_id, digests=tuple(digests), terminal=fields.get("terminal") is True)


def _object(line: bytes, kind: str | None, check: Any) -> dict[str, object]:
    """Decode a line of the file's own."""
    check.update(line)
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or (kind is not None and fields.get("type") != kind):
        raise EvidenceFileError(
            "the file is no evidence file, or is cut; `greenroom evidence RUN --export FILE` makes one"
        )
    return fields
