"""Columns that say again what stands in a row's body, so that lists of runs can be filtered, ordered and shown cheaply.

The same functions make them for new rows and, called by SQLite, for the rows of an older file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import msgspec

from ..contract import codec
from ..contract.decisions import Ticket
from ..contract.envelope import decode_event
from ..contract.rows import RunInfo
from ..contract.ticket_summary import summary_of
from ..contract.titles import TITLE, one_line, searched
from ._timestamps import milliseconds


def brief_of(ticket: Ticket) -> bytes | None:
    """An open ticket as lists show it; None for any other."""
    return codec.dump(summary_of(ticket)) if ticket.status == "open" else None


def define_functions(connection: sqlite3.Connection) -> None:
    """Let the migrations of a connection call these functions."""
    connection.create_function("greenroom_requested", 1, _requested, deterministic=True)
    connection.create_function("greenroom_brief", 1, _brief, deterministic=True)
    connection.create_function("greenroom_by", 1, _by, deterministic=True)
    connection.create_function("greenroom_title", 1, _title, deterministic=True)
    connection.create_function("greenroom_search", 2, searched, deterministic=True)


# A row that can not be read must not keep a whole file from being opened: its run says so when it is looked at.


def _requested(body: bytes) -> int | None:
    with suppress(codec.SchemaError):
        return milliseconds(codec.load(Ticket, body).requested_at)
    return None


def _brief(body: bytes) -> bytes | None:
    with suppress(codec.SchemaError):
        return brief_of(codec.load(Ticket, body))
    return None


def _by(info: bytes) -> str:
    with suppress(codec.SchemaError):
        return codec.load(RunInfo, info).by
    return ""


def _title(frame: bytes | None) -> str:
    """The title of a run that was written before there were titles; its first event has passed the redactor."""
    with suppress(msgspec.DecodeError, KeyError, TypeError, ValueError):
        return one_line(str(decode_event(frame or b"").payload["input"]), TITLE)
    return ""
