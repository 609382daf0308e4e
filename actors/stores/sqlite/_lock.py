"""One process owns a file: an OS lock on `<db>.lock`, which also names the owner and the address of its gateway.

Theory of operation. The lock ends with the process, whatever killed it. The lock file itself stays: deleting it would
let two processes lock two different files of one name. It is beside the file that the path resolves to, not beside a
symbolic link. Other names (hard links, bind mounts) have lock files of their own; for these there is the lock on the
inode (`_open_file.py`). This lock names the owner, also for earlier releases.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import msgspec

from ...errors import StoreOpenError
from ._open_file import REFUSED, is_owned, refused

_LARGEST: Final = 4096
"""Bytes read of a lock file; a larger file is not ours."""
_LOOKED_AT: Final = 0.5
"""Seconds to wait for a reader of the lock file, which holds a shared lock for microseconds."""


@attrs.frozen(kw_only=True)
class Owner:
    """The process that has a file open.

    Attributes:
        pid: the process; 0 if unknown.
        url: The address of its gateway, if it has one.
        token_file: The path of the file with the gateway's token.
    """

    pid: int
    url: str | None = None
    token_file: str | None = None


def resolved(database: Path) -> Path:
    """Return the absolute path of the file, through all symbolic links (also one that leads to no file yet).

    Raises:
        StoreOpenError: the links form a loop.
    """
    try:
        return database.resolve()
    except (OSError, RuntimeError) as error:
        raise StoreOpenError(f"{database} leads nowhere ({error}); name another file") from error


def lock_path(database: Path) -> Path:
    """Return the path of a database's lock file: beside the file that the path resolves to."""
    real = resolved(database)
    return real.with_name(f"{real.name}.lock")


class FileLock:
    """The lock of one database, held from `acquire` to `release`."""

    def __init__(self, database: Path, lock: Callable[[int, int], None] = fcntl.flock) -> None:
        """`lock`: locks a descriptor; replaced in tests of file systems without locks."""
        self._database = database
        self._lock = lock
        self._descriptor: int | None = None

    def __repr__(self) -> str:
        """Return the lock file and whether it is held."""
        return f"<FileLock {lock_path(self._database)}: {'free' if self._descriptor is None else 'held'}>"

    def acquire(self) -> None:
        """Take the lock and write the owner into the lock file.

        Raises:
            StoreOpenError: another process (or another store of this process) has the lock, the file cannot be created,
                or its file system has no locks.
        """
        path = lock_path(self._database)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreOpenError(f"{path}: {error.strerror}; the lock file must be writable") from error
        try:
            _take(descriptor, path, self._lock)
        except BlockingIOError:
            owner = _read(descriptor)
            os.close(descriptor)
            raise StoreOpenError(in_use(self._database, owner)) from None
        except OSError as error:
            os.close(descriptor)
            words = refused(path, error) if error.errno in REFUSED else f"{path} cannot be locked: {error.strerror}"
            raise StoreOpenError(words) from error
        self._descriptor = descriptor
        _held.add(self)
        self.announce(Owner(pid=os.getpid()))

    def announce(self, owner: Owner) -> None:
        """Write the owner into the lock file, for processes that come later.

        Best effort: a full disk leaves it unwritten, and does not affect the lock.
        """
        if self._descriptor is None:
            return
        data = msgspec.json.encode({"pid": owner.pid, "url": owner.url, "tokenFile": owner.token_file})
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, data, 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def forget(self) -> None:
        """Close the descriptor in a forked child: lock and content belong to the parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_held: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_in_child)  # a flock lasts as long as any copy of its descriptor


def _take(descriptor: int, path: Path, lock: Callable[[int, int], None]) -> None:
    """Lock the descriptor. `owner_of` holds a shared lock for microseconds, which is waited for; an owner is not.

    Raises:
        BlockingIOError: the file has an owner.
        OSError: the file cannot be locked.
    """
    until = time.monotonic() + _LOOKED_AT
    while True:
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until or _has_owner(path):
                raise
        else:
            return
        os.sched_yield()


def _has_owner(path: Path) -> bool:
    other = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(other)


def owner_of(database: Path) -> Owner | None:
    """Return the process that has the database open now, under any name; None if no process has.

    Raises:
        StoreOpenError: the lock file cannot be read.
    """
    beside = _owner_beside(lock_path(database))
    if beside is not None:
        return beside
    return Owner(pid=0) if is_owned(database) else None


def _owner_beside(path: Path) -> Owner | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreOpenError(f"{path}: {error.strerror}; it says who has the database open") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Owner:
    try:
        data = msgspec.json.decode(os.pread(descriptor, _LARGEST, 0), type=dict[str, int | str | None])
    except (OSError, msgspec.DecodeError):
        return Owner(pid=0)
    pid, url, token_file = data.get("pid"), data.get("url"), data.get("tokenFile")
    return Owner(
        pid=pid if isinstance(pid, int) else 0,
        url=url if isinstance(url, str) else None,
        token_file=token_file if isinstance(token_file, str) else None,
    )


def in_use(database: Path, owner: Owner) -> str:
    """Return that the file has an owner, and what to do."""
    who = f"process {owner.pid}" if owner.pid else "another process"
    if owner.pid == os.getpid():
        return f"{database} is open already in this process (pid {owner.pid}); use that runtime, or close it first"
    talk = f"talk to it at {owner.url}" if owner.url else "open it with read_only=True to look"
    return f"{database} is open in {who}, and one process owns a file; stop that one, or {talk}"
