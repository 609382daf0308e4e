"""What a store has of a run, as a replay reads it: its log in order, and its rows by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from ..contract.decisions import InboxItem, Ticket
from ..contract.envelope import Event, EventEncoder, decode_event
from ..contract.messages import Message
from ..contract.redaction import Redactor
from ..contract.rows import CallRow, EventDraft, RunInfo, RunRecord, RunRow
from ..engine.birth import created, row_at_birth
from ..engine.state import RunState
from ..engine.tasks import left_behind, newest_input
from .index import Index, make_index


@attrs.frozen(kw_only=True)
class Record:
    """A run as it is stored.

    Attributes:
        birth: the state in which the run was created, with the record's RunInfo.
        row: the newest run row.
        frames, events: the log. Of a log that is damaged, both end before the event that can not be read.
        damaged: that event's sequence; None if all can be read.
        calls, tickets, messages: by id. messages: of the thread, of the step that is being worked on, and those
            that wait for the next one.
        commands: all that were accepted, in order.
        created: what run.created says, made from the rows again.
        encoder: makes the bytes of events. redactor: what they have passed.
        index: where in the log to look.
    """

    birth: RunState
    row: RunRow
    frames: tuple[bytes, ...]
    events: tuple[Event, ...]
    damaged: int | None
    calls: Mapping[str, CallRow]
    tickets: Mapping[str, Ticket]
    messages: Mapping[str, Message]
    commands: tuple[InboxItem, ...]
    created: EventDraft
    encoder: EventEncoder
    redactor: Redactor
    index: Index

    @property
    def info(self) -> RunInfo:
        """What never changes about the run."""
        return self.birth.info

    def end(self) -> tuple[str | None, str]:
        """The code and detail of the run's termination; None if it is not on its way out, or was not told why."""
        termination = self.row.termination
        return (None, "") if termination is None else (termination.code, termination.detail or "")


@attrs.define(eq=False)
class Log:
    """The events of a run, as they are read: up to the first that can not be.

    Attributes:
        frames, events: as stored, and decoded. damaged: the sequence of the event that can not be read.
    """

    frames: list[bytes] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    damaged: int | None = None

    def read(self, page: Iterable[bytes]) -> Log:
        """The next ones."""
        for frame in page if self.damaged is None else ():
            event = _readable(frame)
            if event is None:
                self.damaged = len(self.events) + 1
                break
            self.frames.append(frame)
            self.events.append(event)
        return self


def make_record(
    rows: RunRecord,
    log: Log,
    thread: Iterable[Message],
    commands: Iterable[InboxItem],
    *,
    redactor: Redactor,
    birth: RunRow | None = None,
) -> Record:
    """Put together what was loaded: the log first, then the rows with all calls, then the thread and the commands.

    Args:
        rows: loaded with all calls.
        log: the whole.
        thread: of the run.
        commands: all of the run.
        redactor: with the secrets that the runtime had when the events were written.
        birth: the run row at birth; None: as `start` and `fork` write it.
    """
    info = rows.info
    history = tuple(thread)
    draft = () if rows.row.draft is None else (rows.row.draft,)
    messages = {message.id: message for message in (*history, *draft, *rows.row.pending_input)}
    waiting = {message.id: message for message in rows.row.pending_input}
    asked = waiting.get(f"{info.run_id}.m1") or messages.get(f"{info.run_id}.m1")
    text = asked.content if asked is not None else ""
    born_with: tuple[Message, ...] = () if asked is None else (asked,)
    if info.forked_from is not None:
        inherited = _before_fork((*history, *draft), info)
        text, born_with = newest_input(inherited), left_behind(inherited, info.run_id)
    return Record(
        birth=RunState(info=info, row=birth or row_at_birth(born_with)),
        row=rows.row,
        frames=tuple(log.frames),
        events=tuple(log.events),
        damaged=log.damaged,
        calls={call.call_id: call for call in rows.calls},
        tickets={ticket.ticket_id: ticket for ticket in rows.tickets},
        messages=messages,
        commands=tuple(commands),
        created=created(info, text),
        encoder=EventEncoder(info, redactor),
        redactor=redactor,
        index=make_index(log.events, rows.calls),
    )


def _before_fork(thread: Sequence[Message], info: RunInfo) -> Sequence[Message]:
    """The messages that a fork's thread began with: those before its own, or up to its parent's last one."""
    makers = [None if message.producer is None else message.producer.run_id for message in thread]
    if info.run_id in makers:
        return thread[: makers.index(info.run_id)]
    if info.forked_from in makers:
        return thread[: len(makers) - makers[::-1].index(info.forked_from)]
    return thread


def _readable(frame: bytes) -> Event | None:
    try:
        event: Any = decode_event(frame)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    sound = isinstance(event.payload, dict) and isinstance(event.type, str) and event.timestamp.tzinfo is not None
    return event if sound else None
