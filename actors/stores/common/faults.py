"""Fault injection: tests and chaos runs make a store fail at named points, without mocks."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

Faults = Callable[[str], None]
"""Called with the name of a point; raises to make the store fail there.

A threaded store calls it in its writer thread.
"""

POINTS: Final = ("begin", "write", "before_commit", "after_commit")
"""In order: before a transaction; before each request; all written; all durable, not yet reported."""

READ: Final = "read"
"""A snapshot is open and about to be read, in the reading thread."""

OPEN: Final = "open"
"""The file is about to be opened."""

HINT: Final = "hint"
"""Hints to other processes are about to be sent. A raise loses them."""

FOLLOW_UP: Final = "follow_up"
"""A run has ended, and its thread is about to be freed. A raise leaves that out, as a crash may."""

LEAVE: Final = "leave"
"""A store that closes is about to give its runs back. A raise leaves that out, as if the process had died."""


def disk(name: str, text: str = "") -> sqlite3.Error:
    """Return SQLite's error of this name, such as SQLITE_IOERR_READ, for faults.

    Raises:
        AttributeError: SQLite has no such error.
    """
    code = getattr(sqlite3, name)
    kinds = {sqlite3.SQLITE_CORRUPT: sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB: sqlite3.DatabaseError}
    error = kinds.get(code & 0xFF, sqlite3.OperationalError)(text or name)
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


def passing() -> dict[str, Exception]:
    """Return one new error of each temporary kind: a store that meets one waits and retries."""
    errors: dict[str, Exception] = {name: disk(name) for name in _PASSING}
    for number in _NUMBERS:
        errors[errno.errorcode[number]] = OSError(number, os.strerror(number))
    return errors | {"MemoryError": MemoryError()}


_PASSING: Final = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL",
    "SQLITE_IOERR",
    "SQLITE_IOERR_READ",
    "SQLITE_IOERR_SHORT_READ",
    "SQLITE_IOERR_WRITE",
    "SQLITE_IOERR_FSYNC",
    "SQLITE_IOERR_LOCK",
    "SQLITE_IOERR_NOMEM",
    "SQLITE_IOERR_SHMMAP",
    "SQLITE_CORRUPT",  # for a sound file: a failed read
    "SQLITE_NOTADB",
)
_NUMBERS: Final = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EINTR,
)


class InjectedCrash(Exception):
    """The store's writer must die at this point, as in a killed process."""


class Outage(Exception):
    """The whole store is unavailable (disk full, I/O, locked): nothing was written, and a retry may work.

    Raised by the code that executes requests; `error` is the store's own error. `settled`: the results of requests that
    need no retry, since they were executed before the outage, or are refused and were not begun.
    """

    def __init__(self, error: Exception, settled: Mapping[Any, Any] | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.settled: Mapping[Any, Any] = settled or {}


def meet(faults: Faults | None, point: str) -> None:
    """Call a test's faults at a point where each error counts as an outage.

    Raises:
        Outage: a fault was raised, or another error.
        InjectedCrash: it was raised.
    """
    if faults is None:
        return
    try:
        faults(point)
    except (InjectedCrash, Outage):
        raise
    except Exception as error:  # whatever a test raises
        raise Outage(error) from error
