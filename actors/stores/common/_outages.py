"""Classify errors of disk, SQLite and system: temporary or permanent, and whether a file is damaged.

Theory of operation. A temporary error never ends a store or a run: no space, no memory, no descriptor, no thread, a
lock, a failed read or write. Two errors are permanent: a file that was removed or replaced (`FileGone`), and a damaged
one. SQLite reports "malformed" for damage and for a failed read alike (a read that ends in EIO becomes SQLITE_CORRUPT,
and a short read is filled with zeros). So that report is a suspicion, and `examine` decides: with a new connection,
whose cache is empty, SQLite checks the whole file. The check writes a page that it could not read into its findings, as
it does with damage; so a finding counts only if it is none of a failed read, and comes again after the file was read
to its end without SQLite.
"""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from ...errors import StoreError, StoreUnavailable
from ..sqlite._open_file import OpenFile

SUSPECT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Result codes that report damage, which may be a failed read."""

_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_ABORT,
    }
)
_NUMBERS: Final = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EINTR,
        errno.EBUSY,
        errno.ETIMEDOUT,
        errno.ESTALE,
    }
)

_CHUNK: Final = 1 << 20
"""Bytes read together."""
_READ_ERROR: Final = re.compile(r"error code[= ](\d+)")
"""How a finding of SQLite's check names the result code of a page that it did not get."""

Check = Callable[[Path, float], str | None]
"""(path, seconds to wait for a lock) -> what a check of the whole file reports."""


class Damaged(StoreError):
    """SQLite's check of the whole file found damage, which no wait heals."""


class UnreadableData(StoreUnavailable):
    """A read returned invalid data, and the file is not known to be damaged."""


class NoThread(StoreUnavailable):
    """The system gave no thread; nothing was done."""


def no_answer(error: Exception) -> StoreUnavailable:
    """Return the error of a request while the store is unavailable because of `error`, which is its cause."""
    why = "there is no memory" if isinstance(error, MemoryError) else error
    unavailable = StoreUnavailable(f"the store does not answer now: {why}; try again")
    unavailable.__cause__ = error
    return unavailable


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code; 0 if the error has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_suspect(error: BaseException) -> bool:
    """Return True for an error that reports damage of the file."""
    return isinstance(error, sqlite3.Error) and primary_code(error) in SUSPECT


def passes(error: BaseException | None) -> bool:
    """Return True if the same call may work later without a change."""
    while error is not None:
        if isinstance(error, MemoryError | StoreUnavailable):
            return True
        if isinstance(error, sqlite3.Error):
            return primary_code(error) in _CODES
        if isinstance(error, OSError):
            return error.errno in _NUMBERS
        error = error.__cause__
    return False


def is_outage(error: BaseException) -> bool:
    """Return True for a write error of the whole store; False for an error of one request.

    SQLite raises plain DatabaseError and InternalError for the whole store, too.
    """
    whole = (sqlite3.OperationalError, OSError, MemoryError)
    return isinstance(error, whole) or type(error) in (sqlite3.DatabaseError, sqlite3.InternalError)


def connect(path: Path, mode: str, busy: float) -> sqlite3.Connection:
    """Return a connection without implicit transactions. `mode`: rw or ro. `busy`: seconds to wait for a lock."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def checked(path: Path, busy: float) -> str | None:
    """Return what SQLite's check of the whole file reports; None if it reports nothing."""
    with closing(connect(path, "rw", busy)) as connection:
        connection.execute("PRAGMA query_only = ON")
        problem = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return None if problem == "ok" else " ".join(problem.replace("*** in database main ***", "").split())


def examine(file: OpenFile, busy: float, check: Check = checked) -> str | None:
    """Return what SQLite's check of the whole file finds, twice; None if the file is sound.

    Reads the whole file, up to three times.

    Raises:
        UnreadableData: the check was impossible: the file cannot be read now, or is locked.
    """
    try:
        if _found(file.path, busy, check) is None:
            return None
        _read_through(file)
        return _found(file.path, busy, check)
    except (sqlite3.Error, OSError, MemoryError) as error:
        raise UnreadableData(f"{file.path} cannot be read now ({error}); look at the disk") from error


def _found(path: Path, busy: float, check: Check) -> str | None:
    """Return what one check reports: a finding, or an error of the check itself that may be damage.

    Raises:
        UnreadableData: a page could not be read.
        sqlite3.Error: the check was impossible.
    """
    try:
        finding = check(path, busy)
    except sqlite3.DatabaseError as error:
        if not is_suspect(error):
            raise
        return str(error)  # the check has met an unreadable page, or one that no check can follow
    code = None if finding is None else _READ_ERROR.search(finding)
    if code is not None and int(code[1]) & 0xFF in _CODES:
        raise UnreadableData(f"{path} cannot be read now ({finding}); look at the disk")
    return finding


def _read_through(file: OpenFile) -> None:
    """Read the file and its WAL to their ends.

    Raises:
        OSError: a part cannot be read.
    """
    offset = 0
    while data := file.read(_CHUNK, offset):
        offset += len(data)
    try:
        with open(f"{file.path}-wal", "rb", buffering=0) as wal:
            while wal.read(_CHUNK):
                pass
    except FileNotFoundError:
        return
