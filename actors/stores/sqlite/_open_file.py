"""One database file as the system knows it: a device and an inode, not the spelling of a path.

Theory of operation. A file has many names: symbolic and hard links, bind mounts, `./runs.db` before and after a change
of the working directory. So the path is resolved once, at opening, and from then on the process holds a descriptor of
the inode. That descriptor has three purposes:

* It carries the owner's lock on the inode: an open-file-description lock (`F_OFD_SETLK`) on one byte far behind the
  range that SQLite locks. `flock` and POSIX locks are unsuitable: POSIX drops all locks of a process on a file with the
  first descriptor of that file that the process closes, SQLite's among them
  (https://www.sqlite.org/howtocorrupt.html, section 2.2); and where `flock` and byte ranges are one mechanism (the
  BSDs, network file systems) a lock on the whole file would exclude SQLite's own connections. The system drops the lock
  with the last descriptor, whatever killed the process. A forked child closes its copies immediately, so that a child
  which outlives its parent does not keep the file.
* It stays open until the last store of the process has closed its connections, for the reason above: a file in use is
  opened and closed by SQLite alone.
* It identifies the file that the names have to lead to: `check` compares. A file that was removed or replaced would
  accept every commit and show none of them to the next start.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Final

import attrs

from ...errors import StoreDown, StoreOpenError

_BYTE: Final = 1 << 62
"""The byte that the owner locks: behind every byte of a file, and behind SQLite's range (1 GiB and 512 bytes)."""

_OFD: Final = sys.platform == "linux" and struct.calcsize("P") == 8
"""True where the layout of `struct flock` below is valid. Elsewhere only the lock beside the resolved path protects."""

REFUSED: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without locks."""

Key = tuple[int, int]
"""Device and inode."""


class FileGone(StoreDown):
    """The file is no longer where it was opened."""


@attrs.define(eq=False)
class _Inode:
    """The open descriptors of one file in this process."""

    descriptors: list[int]
    users: int = 0
    owned: bool = False


_inodes: Final[dict[Key, _Inode]] = {}
_guard: Final = threading.Lock()


def _in_child() -> None:
    """Close all descriptors in a forked child: it has no POSIX locks to lose, and its parent keeps the inode's."""
    for inode in _inodes.values():
        for descriptor in inode.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        inode.descriptors.clear()  # the system may reuse their numbers
    _inodes.clear()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)
os.register_at_fork(after_in_child=_in_child)


def key_of(status: os.stat_result) -> Key:
    """Return device and inode."""
    return status.st_dev, status.st_ino


class OpenFile:
    """One store's share in the open file, from `OpenFile(...)` to `close`.

    Attributes:
        path: absolute, without symbolic links.
        fresh: no other store of this process has the file open.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or share the open descriptors.

        Raises:
            OSError: the file cannot be opened.
        """
        self.path = path
        with _guard:
            self._key = key_of(path.stat())
            if self._key not in _inodes:
                self._key = _open(path)
            inode = _inodes[self._key]
            self.fresh = inode.users == 0
            inode.users += 1
        self._inode: _Inode | None = inode
        self._owner = False
        self._names: list[tuple[str, Key]] = [(str(path), self._key)]

    def __repr__(self) -> str:
        """Return the path, and whether the file is open."""
        return f"<OpenFile {self.path}: {'closed' if self._inode is None else 'open'}>"

    @property
    def owned_here(self) -> bool:
        """True if a store of this process has locked the inode."""
        return self._inode is not None and self._inode.owned

    def read(self, size: int, offset: int) -> bytes:
        """Read bytes of the file without SQLite.

        Raises:
            OSError: the bytes cannot be read.
        """
        assert self._inode is not None  # noqa: S101 - closed last
        return os.pread(self._inode.descriptors[0], size, offset)

    def own(self) -> bool:
        """Lock the inode. Returns False if another process, or another store of this process, has the lock.

        Raises:
            StoreOpenError: the file system has no locks, or the file was replaced just now.
            OSError: the file cannot be locked.
        """
        assert self._inode is not None  # noqa: S101 - closed last
        with _guard:
            if self._inode.owned:
                return False
            if _OFD:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                self._inode.descriptors.append(descriptor)  # closed with the others: closing drops SQLite's locks
                if key_of(os.fstat(descriptor)) != self._key:
                    raise StoreOpenError(f"{self.path} was replaced while it was being opened; try again")
                if not _lock(descriptor, self.path):
                    return False
            self._inode.owned = self._owner = True
        return True

    def watch(self) -> None:
        """Let `check` also compare the WAL and its index, which SQLite has created and keeps to the end."""
        for suffix in ("-wal", "-shm"):
            name = f"{self.path}{suffix}"
            with contextlib.suppress(FileNotFoundError):
                self._names.append((name, key_of(os.stat(name))))

    def check(self) -> None:
        """Check that the names still lead to the open files. Costs some microseconds per name.

        Raises:
            FileGone: a file was removed, renamed or replaced.
        """
        for name, key in self._names:
            try:
                status = os.stat(name)
            except (FileNotFoundError, NotADirectoryError):
                raise FileGone(_gone(name, "removed or renamed")) from None
            except OSError:
                continue  # such an error tells nothing about the file
            if key_of(status) != key:
                raise FileGone(_gone(name, "replaced"))

    def close(self) -> None:
        """Release the share, after the connections are closed. Idempotent."""
        inode, self._inode = self._inode, None
        if inode is None:
            return
        with _guard:
            inode.users -= 1
            if self._owner:
                inode.owned = False
                _unlock(inode)
            if inode.users == 0 and _inodes.get(self._key) is inode:
                del _inodes[self._key]
                for descriptor in inode.descriptors:
                    os.close(descriptor)


def _open(path: Path) -> Key:
    """Open a file that the process does not have open."""
    writable = os.access(path, os.W_OK)
    descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    key = key_of(os.fstat(descriptor))
    inode = _inodes.setdefault(key, _Inode([]))  # replaced since it was looked at, by one that is open: keep this too
    inode.descriptors.append(descriptor)
    return key


def is_owned(path: Path) -> bool:
    """Return True if a store has locked the file of this path, under any name. Takes no lock."""
    if not _OFD:
        return False
    try:
        with _guard:
            inode = _inodes.get(key_of(path.stat()))
            if inode is not None:
                return inode.owned or _asked(inode.descriptors[0])
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _asked(descriptor)
            finally:
                os.close(descriptor)
    except OSError:
        return False


def _range(kind: int) -> bytes:
    return struct.pack("hhqqi", kind, os.SEEK_SET, _BYTE, 1, 0)


def _lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno == errno.EINVAL:  # a kernel without these locks: the lock beside the resolved path remains
            return True
        if error.errno in REFUSED:
            raise StoreOpenError(refused(path, error)) from error
        raise
    return True


def _unlock(inode: _Inode) -> None:
    if _OFD:
        for descriptor in inode.descriptors:
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK))


def _asked(descriptor: int) -> bool:
    """Return True if a lock would be refused."""
    region = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_RDLCK))
    return bool(struct.unpack_from("h", region)[0] != fcntl.F_UNLCK)


def refused(path: Path, error: OSError) -> str:
    """Return that a file system has no locks, and what to do."""
    return (
        f"{path}: its file system refuses locks ({error.strerror}), and without one two processes could write the same "
        "file; keep the database on a local disk"
    )


def _gone(name: str, what: str) -> str:
    return (
        f"{name} was {what} while it was open: nothing that is written from now on would be found again, so the store "
        "stops; leave its files where they are while a process uses them (`SQLiteStore.backup` copies), and start again"
    )
