"""Open a SQLite file: check everything that must be right about it, and explain every fault."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ...errors import StoreOpenError
from ..common._outages import UnreadableData, connect, examine, is_suspect, primary_code
from ._lock import Owner, in_use
from ._open_file import OpenFile
from ._prune import INCREMENTAL
from ._schema import APPLICATION_ID, MIGRATIONS, NEXT_GENERATION, Migration, migrate, version_of

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER: Final = 100
"""Bytes of the header of a SQLite file (https://www.sqlite.org/fileformat.html)."""

CHECKED_WHOLE: Final = 16 * 2**20
"""Bytes up to which an uncleanly closed file is checked at opening (about 50 ms); a larger one by `greenroom db`."""

AUTOCHECKPOINT: Final = 4000
"""Pages of WAL between checkpoints (16 MB): a quarter of the default's fsyncs."""

JOURNAL_LIMIT: Final = 64 * 2**20
"""Bytes to which the WAL is truncated after a burst."""

OLDEST_SQLITE: Final = (3, 35, 0)
"""Required for RETURNING and upsert."""

_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT}",
    f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}",
    "PRAGMA temp_store = MEMORY",
)


def begin_using(path: Path, *, own: bool) -> OpenFile:
    """Take a share in the file; the first store of the process checks its header. `own`: also lock the inode.

    Args:
        path: resolved.
        own: this store writes.

    Raises:
        StoreOpenError: not a database, truncated, owned under another name, or it cannot be opened.
    """
    try:
        file = OpenFile(path)
    except OSError as error:
        raise StoreOpenError(f"{path}: {error.strerror}; the file must be readable") from error
    with contextlib.ExitStack() as undo:
        undo.callback(file.close)
        if own:
            _own(path, file)
        if file.fresh:
            _check_header(path, file)
        undo.pop_all()
    return file


def _own(path: Path, file: OpenFile) -> None:
    try:
        if not file.own():
            raise StoreOpenError(in_use(path, Owner(pid=os.getpid() if file.owned_here else 0)))
    except OSError as error:
        raise StoreOpenError(f"{path} cannot be locked: {error.strerror}") from error
    names = path.stat().st_nlink
    if names > 1:  # SQLite keeps the WAL beside one name: under another one, what a killed process wrote is not seen
        raise StoreOpenError(
            f"{path} has {names} names (hard links), and SQLite's journal belongs to one of them; remove the others "
            "(a backup by `cp` is a file of its own)"
        )


def make_ready(path: Path) -> None:
    """Create the file, or check that it can be written.

    Raises:
        StoreOpenError: the message has the fault and what to do.
    """
    _check_library()
    _check_file(path)


def open_writer(
    file: OpenFile, *, busy: float, migrations: Sequence[Migration] = MIGRATIONS, compact: bool = False
) -> sqlite3.Connection:
    """Open the one connection that writes: migrated, in WAL mode, with every older claim void.

    Call it with the lock held, after `make_ready` and `begin_using`. `busy`: seconds that a statement waits for a
    foreign lock. `compact`: rewrite the file if it cannot return free pages, however large it is.

    Raises:
        StoreOpenError: the message has the fault of the file and what to do.
    """
    path = file.path
    unclean = _unclean(path)
    with _explained(file, busy), contextlib.ExitStack() as undo:
        connection = connect(path, "rw", busy)
        undo.callback(connection.close)
        fresh = _check_kind(connection, path, len(migrations))
        if unclean and not fresh:
            _check_pages(connection, file, busy)
        _set_up(connection, path)
        migrate(connection, migrations)
        _compact(connection, path, wanted=compact)
        connection.execute(NEXT_GENERATION)
        undo.pop_all()
    return connection


def open_reader(file: OpenFile, *, busy: float, versions: int = len(MIGRATIONS)) -> sqlite3.Connection:
    """Open a connection that cannot write, of a file with our tables. Call it after `begin_using`.

    Raises:
        StoreOpenError: the message has the fault of the file and what to do.
    """
    path = file.path
    file.check()
    with _explained(file, busy), contextlib.ExitStack() as undo:
        connection = connect(path, "rw" if os.access(path, os.W_OK) else "ro", busy)
        undo.callback(connection.close)
        connection.execute("PRAGMA query_only = ON")
        _check_kind(connection, path, versions)
        _check_old(connection, path, versions)
        undo.pop_all()
    return connection


@contextlib.contextmanager
def _explained(file: OpenFile, busy: float) -> Iterator[None]:
    """Translate foreign errors. Damage is reported only if a check of the whole file confirms it."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_suspect(error):
            raise StoreOpenError(explain(file.path, error)) from error
        try:
            finding = examine(file, busy)
        except UnreadableData as unread:
            raise StoreOpenError(str(unread)) from unread
        if finding is None:
            raise StoreOpenError(
                f"{file.path} was misread ({error}), and is sound; look at the disk"
            ) from UnreadableData("it was misread")
        raise StoreOpenError(f"{file.path} is damaged ({finding}); restore it from a backup") from error
    except MemoryError as error:
        raise StoreOpenError(f"{file.path} cannot be opened: there is no memory for it") from error


def _compact(connection: sqlite3.Connection, path: Path, *, wanted: bool) -> None:
    """Rewrite a file of an older release once, so that it can return free pages, too.

    A small file costs some milliseconds and is rewritten unasked. A large one is left for `compact=True`: the rewrite
    takes seconds, and disk space for a second copy.
    """
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] == INCREMENTAL:
        return
    if not wanted and path.stat().st_size > CHECKED_WHOLE:
        return
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    try:
        connection.execute("VACUUM")
    except sqlite3.Error:
        if wanted:
            raise


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    # affects a new file; one with tables is unchanged until VACUUM
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreOpenError(f"{path}: this place cannot do WAL ({mode}); use a local disk, not a network mount")
    for setting in _SETTINGS:
        connection.execute(setting)


def _check_old(connection: sqlite3.Connection, path: Path, versions: int) -> None:
    """Refuse a file of an older version, because a reader cannot migrate."""
    if (version := version_of(connection)) < versions:
        raise StoreOpenError(f"{path} has schema version {version}, needed is {versions}; open it for writing once")


def _check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreOpenError(f"SQLite {sqlite3.sqlite_version} is too old; a Python with SQLite {needed} is needed")


def look_for(path: Path) -> None:
    """Check that there is a file to read.

    Raises:
        StoreOpenError: the file is missing, or SQLite is too old.
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
    """Create an empty file that only its owner can read, and make its name survive a loss of power."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unclean(path: Path) -> bool:
    """Return True if the file was not closed cleanly."""
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _check_header(path: Path, file: OpenFile) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    try:
        header = file.read(_HEADER, 0)
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
    """Check that the file is ours and its version known. Returns True for a new file."""
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


def _check_pages(connection: sqlite3.Connection, file: OpenFile, busy: float) -> None:
    """Check a file of moderate size after an unclean end."""
    if file.path.stat().st_size > CHECKED_WHOLE:
        return
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem == "ok":
        return
    finding = examine(file, busy)  # with another connection, because a misread page stays in the cache of this one
    if finding is None:
        raise StoreOpenError(
            f"{file.path} was misread ({problem}), and is sound; look at the disk"
        ) from UnreadableData("it was misread")
    raise StoreOpenError(f"{file.path} is damaged ({finding}); restore it from a backup")


_WORDS: Final = {
    sqlite3.SQLITE_BUSY: "is locked by another program; close it there",
    sqlite3.SQLITE_LOCKED: "is locked by another program; close it there",
    sqlite3.SQLITE_READONLY: "cannot be written; allow writing, or open it with read_only=True",
    sqlite3.SQLITE_PERM: "is not permitted; allow reading and writing it",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; the file and its folder must be readable and writable",
    sqlite3.SQLITE_FULL: "has no room on its disk; make some",
    sqlite3.SQLITE_IOERR: "cannot be read or written (I/O error); look at the disk",
}


def explain(path: Path, error: sqlite3.Error) -> str:
    """Return what is wrong with the file, and what to do."""
    words = _WORDS.get(primary_code(error), "cannot be used")
    return f"{path} {words} ({error})"
