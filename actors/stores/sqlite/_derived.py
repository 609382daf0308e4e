"""Columns derived from row bodies, so that lists of runs can be filtered, ordered and shown cheaply.

The same functions derive them for new rows and, called by SQLite, for the rows of an older file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import msgspec

from ...contract import codec
from ...contract.decisions import Ticket
from ...contract.envelope import decode_event
from ...contract.rows import CallRow, RunInfo, RunRow
from ...contract.run_lists import code_of
from ...contract.titles import TITLE, one_line, searched
from ..common._encoding import brief_of
from ..common._recased import recased
from ..common._timestamps import milliseconds


def define_functions(connection: sqlite3.Connection) -> None:
    """Register the functions that migrations call."""
    connection.create_function("greenroom_requested", 1, _requested, deterministic=True)
    connection.create_function("greenroom_brief", 1, _brief, deterministic=True)
    connection.create_function("greenroom_by", 1, _by, deterministic=True)
    connection.create_function("greenroom_title", 1, _title, deterministic=True)
    connection.create_function("greenroom_recased", 1, recased, deterministic=True)
    connection.create_function("greenroom_search", 2, searched, deterministic=True)
    connection.create_function("greenroom_code", 1, _code, deterministic=True)
    connection.create_function("greenroom_tool", 1, _tool, deterministic=True)


# An unreadable row must not keep the whole file from opening: reading its run reports it.


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


def _code(row: bytes) -> str | None:
    with suppress(codec.SchemaError):
        return code_of(codec.load(RunRow, row))
    return None


def _tool(call: bytes) -> str:
    with suppress(codec.SchemaError):
        return codec.load(CallRow, call).tool
    return ""


def _title(frame: bytes | None) -> str:
    """Return the title of a run written before titles existed; its first event is already redacted."""
    with suppress(msgspec.DecodeError, KeyError, TypeError, ValueError):
        return one_line(str(decode_event(frame or b"").payload["input"]), TITLE)
    return ""
