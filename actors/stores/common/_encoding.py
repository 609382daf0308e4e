"""Rows as bytes: the encoded forms of commits and of new runs, the same for each store that writes bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ...contract import codec
from ...contract.artifacts import Artifact
from ...contract.commits import Commit, NewRun
from ...contract.decisions import Ticket
from ...contract.messages import Message
from ...contract.parts import Part
from ...contract.pending_input import apart
from ...contract.sizes import COMMIT_LIMIT, measured
from ...contract.state import StateWrite
from ...contract.ticket_lists import summary_of
from ._commit_rules import InvalidCommit, size_fault
from ._record_codec import dump_taken
from ._timestamps import milliseconds
from .faults import Outage

Row = tuple[Any, ...]

_SMALL: Final = 4_096
"""Bytes of what is new in a commit up to which it is not measured where nothing else needs its bytes: an event that
is cut has as many."""


class EncodedRows(msgspec.Struct, frozen=True):
    """The encoded rows of a commit or of a new run, each with its columns. Made in the trio thread.

    Attributes:
        row: The encoded row of the run.
        calls: (call id, step, index, status, tool, body).
        tickets: (ticket id, call id, status, time of opening, brief, body).
        messages: (id, step, body).
        state: (whether of the thread, key, revision, value).
        size: bytes of all of it, and of the frames.
        info: The info of a new run.
        taken: The entries for the record; empty without any.
        parts: (digest, bytes); without bytes for a part of a fork's history.
    """

    row: bytes
    calls: Sequence[Row]
    tickets: Sequence[Row]
    messages: Sequence[Row]
    state: Sequence[tuple[bool, str, int, bytes]]
    size: int
    info: bytes = b""
    taken: bytes = b""
    parts: Sequence[tuple[str, bytes | None]] = ()


def encode_commit(commit: Commit, frames: Sequence[bytes]) -> EncodedRows:
    """Encode the rows of a commit.

    Raises:
        InvalidCommit: they are too large together.
        TypeError: a value has no form in JSON. Other exceptions of an encoder for a strange value pass.
    """
    dump = codec.dump
    row = dump(apart(commit.row))
    calls = [(call.call_id, call.step, call.index, call.status.value, call.tool, dump(call)) for call in commit.calls]
    tickets = [_ticket_row(ticket) for ticket in commit.tickets]
    messages = encode_messages(commit.messages) if commit.messages else ()
    state = _encode_state(commit.state) if commit.state else ()
    entries = dump_taken(commit.taken) if commit.taken else b""
    parts = encode_parts(commit.parts) if commit.parts else ()
    size = len(row) + len(entries) + sum(map(len, frames))
    for rows in (calls, tickets, messages, state, parts):
        for values in rows:
            size += len(values[-1] or b"")
    if size > COMMIT_LIMIT:
        raise size_fault(commit.run_id, size)
    return EncodedRows(row, calls, tickets, messages, state, size, taken=entries, parts=parts)


def encode_again(commit: Commit, frames: Sequence[bytes]) -> tuple[EncodedRows | None, Exception | None]:
    """Encode the rows of a commit whose first encoding has found no memory; returns the rows, or the error.

    Raises:
        Outage: the memory does not suffice now, either.
    """
    try:
        return encode_commit(commit, frames), None
    except MemoryError as error:
        raise Outage(error) from error
    except Exception as error:  # noqa: BLE001 - of this commit alone
        return None, error


def encode_new(new: NewRun, frame: bytes) -> EncodedRows:
    """Encode the rows of a new run. Raises as `encode_commit` does; a fork's history is copied, and may be larger."""
    row, info = codec.dump(new.row), codec.dump(new.info)
    messages = encode_messages(new.messages) if new.messages else ()
    state = _encode_state(new.state) if new.state else ()
    entries = dump_taken(new.taken) if new.taken else b""
    size = (
        len(row)
        + len(info)
        + len(frame)
        + len(entries)
        + sum(len(values[-1]) for rows in (messages, state) for values in rows)
    )
    parts = encode_parts(new.parts) if new.parts else ()
    size += sum(len(data or b"") for _, data in parts)
    copied = 0 if new.thread_parent is None else sum(len(values[-1]) for values in messages)
    if size - copied > COMMIT_LIMIT:
        raise size_fault(new.info.run_id, size - copied)
    return EncodedRows(row, (), (), messages, state, size, info, entries, parts)


def _ticket_row(ticket: Ticket) -> Row:
    head = (ticket.ticket_id, ticket.call_id, ticket.status, milliseconds(ticket.requested_at))
    return (*head, brief_of(ticket), codec.dump(ticket))


def encode_messages(messages: Sequence[Message]) -> Sequence[Row]:
    """Return (id, step, body) of each message."""
    return [
        (message.id, 0 if message.producer is None else message.producer.step, codec.dump(message))
        for message in messages
    ]


def encode_parts(parts: Sequence[Part | Artifact]) -> Sequence[tuple[str, bytes | None]]:
    """Return (digest, bytes) of each part."""
    return [(part.sha256, part.data) for part in parts]


def _encode_state(state: Sequence[StateWrite]) -> Sequence[tuple[bool, str, int, bytes]]:
    return [(write.scope == "thread", write.key, write.revision, codec.dump(write.value)) for write in state]


def brief_of(ticket: Ticket) -> bytes | None:
    """Return an open ticket's summary for lists; None for a closed ticket."""
    return codec.dump(summary_of(ticket)) if ticket.status == "open" else None


def unencoded_fault(commit: Commit, frames: Sequence[bytes]) -> InvalidCommit | None:
    """Return why a commit is too large, for a store that keeps objects: one without anything large is not encoded.

    Whatever is large in a commit shows in its events, in its messages or in the state that it writes; the run's row
    alone is as large as it was in an earlier commit.
    """
    size = sum(map(len, frames))
    for message in commit.messages:
        size += len(message.content)
    for part in commit.parts:
        size += part.size
    if commit.state:
        size += measured([write.value for write in commit.state], _SMALL)
    return None if size <= _SMALL else _measured(encode_commit, commit, frames)


def unencoded_birth_fault(new: NewRun, frame: bytes) -> InvalidCommit | None:
    """Return why a new run is too large, as `unencoded_fault` does."""
    size = len(frame)
    for message in new.messages:
        size += len(message.content)
    for part in new.parts:
        size += part.size
    if new.state:
        size += measured([write.value for write in new.state], _SMALL)
    return None if size <= _SMALL else _measured(encode_new, new, frame)


def _measured(encode: Callable[..., EncodedRows], *values: object) -> InvalidCommit | None:
    try:
        encode(*values)
    except InvalidCommit as fault:
        return fault
    except Exception:  # noqa: BLE001 - a value without a form in JSON is no matter of its size
        return None
    return None
