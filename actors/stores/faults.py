"""A port for planned failures: tests and chaos runs break a store at named points, without mocks."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from typing import Final

Faults = Callable[[str], None]
"""Called with the name of a point; raises to make the store fail there. A threaded store calls it in its writer."""

POINTS: Final = ("begin", "write", "before_commit", "after_commit")
"""In order: a transaction is to begin; a request of it is to be written; all is written; all is durable, untold."""

READ: Final = "read"
"""A snapshot has been opened, and is to be read; in the thread that reads."""

OPEN: Final = "open"
"""The file is to be opened."""


def disk(name: str, text: str = "") -> sqlite3.Error:
    """SQLite's error of this name, such as SQLITE_IOERR_READ: what a store raises that meets it, for faults.

    Raises:
        AttributeError: SQLite has no such error.
    """
    code = getattr(sqlite3, name)
    kinds = {sqlite3.SQLITE_CORRUPT: sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB: sqlite3.DatabaseError}
    error = kinds.get(code & 0xFF, sqlite3.OperationalError)(text or name)
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


def passing() -> dict[str, Exception]:
    """An error of each kind that passes: a store that meets one waits, and tries again. New objects at each call."""
    found: dict[str, Exception] = {name: disk(name) for name in _PASSING}
    for number in _NUMBERS:
        found[errno.errorcode[number]] = OSError(number, os.strerror(number))
    return found | {"MemoryError": MemoryError()}


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
    "SQLITE_CORRUPT",  # of a file that is sound: a read that failed
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
    """The store's writer is to die at this point, as if its process had been killed."""


class Outage(Exception):
    """The whole store does not answer (disk full, I/O, locked): nothing was written, and it may work later.

    Raised by whoever executes requests; `error` is what the store said.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
