"""Replay a run: fold its record, and compare the resulting events with the stored ones.

Theory of operation. The record is read commit by commit. Each resulting frame is compared byte for byte with the next
frame of the log; after a commit, the log must have no further event of that commit. The first difference ends the
replay, because everything after it would differ, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ..contract.codec import SchemaError
from ..contract.envelope import Event, decode_event
from ..contract.recording import RecordDelta, RecordEntry
from ..contract.rows import RunInfo
from ..contract.secrets.redaction import Redactor
from ..contract.spec import AgentSpec
from .fold import Fold, FoldedEntry, NoRecord
from .report import Difference, Missing, ReplayReport, Unreplayable, compared, shown


@attrs.frozen(kw_only=True)
class StoredRun:
    """The stored data of a run that a replay needs.

    Attributes:
        info: The facts of the run.
        definitions: call id -> recorded digest of its tool's definition.
        frames: the log.
        record: whole commits, up to the end of the log.
    """

    info: RunInfo
    definitions: Mapping[str, str]
    frames: Sequence[bytes]
    record: Sequence[RecordDelta]


class Replay:
    """A replay in progress: iterate over `steps`, then call `report`."""

    def __init__(self, stored: StoredRun, spec: AgentSpec, redactor: Redactor) -> None:
        """Begin a replay. Arguments as for `Fold`."""
        self._run, self._redactor = stored, redactor
        self._fold = Fold(stored.info, spec, stored.definitions, redactor)
        self._position = self._number = 0
        self._newest: RecordEntry | None = None
        self._finding: Difference | Unreplayable | None = None

    def __repr__(self) -> str:
        return f"<Replay of {self._run.info.run_id} at event {self._position}>"

    def steps(self) -> Iterator[FoldedEntry | None]:
        """Yield the result of each entry, up to the end of the record or the first difference.

        Yields None inside a large entry: a driver with other work lets the other work go on.
        """
        for commit in self._run.record:
            for entry in commit.taken:
                self._number, self._newest = self._number + 1, entry
                try:
                    transition = yield from self._fold.take(entry)
                except NoRecord as gap:
                    self._stop("record", str(gap))
                    return
                for frame in transition.frames:
                    self._compare(frame)
                yield transition
            if self._position < commit.last:
                self._compare(None)
            if self._finding is not None:
                return
        if self._number == 0:
            self._stop("record", "nothing of it is recorded: an older release or a runtime with record=False wrote it")
        elif self._position < len(self._run.frames):
            self._compare(None)

    def _compare(self, frame: bytes | None) -> None:
        """Compare the next event of the log with the next event of the replay; None: the replay has none here."""
        if self._finding is not None:
            return
        frames, position = self._run.frames, self._position
        stored_frame = frames[position] if position < len(frames) else None
        if stored_frame is not None and stored_frame == frame:
            self._position += 1
            return
        event = None if stored_frame is None else _readable(stored_frame)
        if stored_frame is not None and event is None:
            self._stop("bytes", "the stored bytes are no event; restore the store from a backup")
            return
        line = "" if self._newest is None else shown(self._number, self._newest, self._redactor)
        self._finding = compared(position + 1, event, None if frame is None else decode_event(frame), line)

    def _stop(self, missing: Missing, why: str) -> None:
        sequence = self._position + 1
        self._finding = Unreplayable(sequence=sequence, missing=missing, text=f"event {sequence}: {why}")

    def report(self) -> ReplayReport:
        """Return the result of the replay; call it when `steps` has ended."""
        run_id, events, difference = self._run.info.run_id, self._position, self._finding
        if isinstance(difference, Difference):
            return ReplayReport(run_id=run_id, equal=False, events=events, difference=difference)
        return ReplayReport(run_id=run_id, equal=difference is None, events=events, unreplayable=difference)


def _readable(frame: bytes) -> Event | None:
    try:
        event = decode_event(frame)
    except SchemaError:
        return None
    sound = isinstance(event.payload, dict) and isinstance(event.type, str) and event.timestamp.tzinfo is not None
    return event if sound else None
