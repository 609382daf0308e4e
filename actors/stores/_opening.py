"""Opening a SQLite file: what must be right about it, and a clear word for everything that is not."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from greenroom.actors.errors import StoreOpenError

from ._schema import APPLICATION_ID, MIGRATIONS, NEXT_GENERATION, Migration, migrate, version_of

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER: Final = 100
"""Bytes of the header of a SQLite file (https://www.sqlite.org/fileformat.html)."""

CHECKED_WHOLE: Final = 16 * 2**20
"""Bytes up to which a file that was not closed is checked at opening (some 50 ms); a larger one by `greenroom db`."""

AUTOCHECKPOINT: Final = 4000
"""Pages of WAL between checkpoints (16 MB): a fourth of the default's fsyncs."""

JOURNAL_LIMIT: Final = 64 * 2**20
"""Bytes that the WAL is cut back to after a burst."""

OLDEST_SQLITE: Final = (3, 35, 0)
"""RETURNING and upsert are needed."""

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT}",
    f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}",
    "PRAGMA temp_store = MEMORY",
)


_users: Final[Counter[tuple[int, int]]] = Counter()
_users_lock: Final = threading.Lock()


def begin_using(path: Path) -> Callable[[], None]:
    """Count one more store of this process that has the file open; the first looks at its header. Returns the end.

    POSIX drops every lock that a process has on a file when it closes any descriptor of it, also those of SQLite
    (https://www.sqlite.org/howtocorrupt.html, section 2.2). Another process would then believe that nobody has the
    file, and delete its WAL. So a file in use is opened by SQLite alone.

    Raises:
        StoreOpenError: it is not a database, or it is cut off.
    """
    found = path.stat()
    key = (found.st_dev, found.st_ino)
    with _users_lock:
        if not _users[key]:
            _check_header(path)
        _users[key] += 1

    def end() -> None:
        with _users_lock:
            _users[key] -= 1
            if not _users[key]:
                del _users[key]

    return end


def make_ready(path: Path) -> None:
    """Make the file, or look whether it can be written.

    Raises:
        StoreOpenError: with what is wrong with it, and the way out.
    """
    _check_library()
    _check_file(path)


def open_writer(path: Path, *, busy: float, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """The one connection that writes: migrated, WAL, every older claim void.

    Call it with the lock held, after `make_ready` and `begin_using`. `busy` is how many seconds a statement waits for a
    foreign lock.

    Raises:
        StoreOpenError: with what is wrong with the file, and the way out.
    """
    unclean = _unclean(path)
    with _explained(path), contextlib.ExitStack() as undo:
        connection = _connect(path, "rw", busy)
        undo.callback(connection.close)
        fresh = _check_kind(connection, path, len(migrations))
        if unclean and not fresh:
            _check_pages(connection, path)
        _set_up(connection, path)
        migrate(connection, migrations)
        connection.execute(NEXT_GENERATION)
        undo.pop_all()
    return connection


def open_reader(path: Path, *, busy: float, versions: int = len(MIGRATIONS)) -> sqlite3.Connection:
    """A connection that can not write, of a file with our tables. Call it after `begin_using`.

    Raises:
        StoreOpenError: with what is wrong with the file, and the way out.
    """
    with _explained(path), contextlib.ExitStack() as undo:
        connection = _connect(path, "rw" if os.access(path, os.W_OK) else "ro", busy)
        undo.callback(connection.close)
        connection.execute("PRAGMA query_only = ON")
        _check_kind(connection, path, versions)
        _check_old(connection, path, versions)
        undo.pop_all()
    return connection


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Foreign errors in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreOpenError(explain(path, error)) from error


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreOpenError(f"{path}: this place can not do WAL ({mode}); use a local disk, not a network mount")
    for setting in _SETTINGS:
        connection.execute(setting)


def _check_old(connection: sqlite3.Connection, path: Path, versions: int) -> None:
    """A reader can not migrate."""
    if (version := version_of(connection)) < versions:
        raise StoreOpenError(f"{path} has schema version {version}, needed is {versions}; open it for writing once")


def _connect(path: Path, mode: str, busy: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreOpenError(f"SQLite {sqlite3.sqlite_version} is too old; a Python with SQLite {needed} is needed")


def look_for(path: Path) -> None:
    """Is there a file to be read?

    Raises:
        StoreOpenError: there is none.
    """
    _check_library()
    if not path.exists():
        raise StoreOpenError(f"{path} does not exist; start a run with this store, or name another file")


def _check_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise StoreOpenError(f"the folder {path.parent} does not exist; make it first")
    if path.is_dir():
        raise StoreOpenError(f"{path} is a folder; name a file in it")
    try:
        if not path.exists():
            _make(path)
        permissions = path.stat().st_mode
    except OSError as error:
        raise StoreOpenError(
            f"{path}: {error.strerror}; the file and its folder must be readable and writable"
        ) from error
    if not permissions & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise StoreOpenError(f"{path} is read-only; allow writing (chmod u+w), or open it with read_only=True")


def _make(path: Path) -> None:
    """An empty file that only its owner can read, whose name survives the loss of power."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unclean(path: Path) -> bool:
    """True if the file was not closed in order."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _check_header(path: Path) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
    except OSError as error:
        raise StoreOpenError(f"{path}: {error.strerror}; the file must be readable") from error
    if not header.startswith(_MAGIC[: len(header)]):
        raise StoreOpenError(f"{path} is not a database of Greenroom; name another file")
    if len(header) < _HEADER:
        raise StoreOpenError(f"{path} is cut off after {size} bytes; restore it from a backup")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    whole = pages * (65536 if page == 1 else page)
    if size < whole and not _unclean(path):
        raise StoreOpenError(f"{path} is cut off: {size} of {whole} bytes; restore it from a backup")


def _check_kind(connection: sqlite3.Connection, path: Path, versions: int) -> bool:
    """Whose file is it, and of which release? True for a new one."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = version_of(connection)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == 0 and version == 0 and tables == 0:
        return True
    if application != APPLICATION_ID:
        raise StoreOpenError(f"{path} is a database of another program; name another file")
    if version > versions:
        raise StoreOpenError(
            f"{path} has schema version {version}, newer than this release knows ({versions}); upgrade Greenroom"
        )
    return False


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """After an unclean end: is a file of moderate size whole?"""
    if path.stat().st_size > CHECKED_WHOLE:
        return
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreOpenError(f"{path} is damaged ({found}); restore it from a backup")


_WORDS: Final = {
    sqlite3.SQLITE_NOTADB: "is not a database, or is damaged; restore it from a backup",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup",
    sqlite3.SQLITE_BUSY: "is locked by another program; close it there",
    sqlite3.SQLITE_LOCKED: "is locked by another program; close it there",
    sqlite3.SQLITE_READONLY: "can not be written; allow writing, or open it with read_only=True",
    sqlite3.SQLITE_PERM: "is not permitted; allow reading and writing it",
    sqlite3.SQLITE_CANTOPEN: "can not be opened; the file and its folder must be readable and writable",
    sqlite3.SQLITE_FULL: "has no room on its disk; make some",
    sqlite3.SQLITE_IOERR: "can not be read or written (I/O error); look at the disk",
}


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if the error has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def explain(path: Path, error: sqlite3.Error) -> str:
    """What is wrong with the file, and the way out."""
    words = _WORDS.get(primary_code(error), "can not be used")
    return f"{path} {words} ({error})"
