"""Files of a folder, opened relative to descriptors: no link is followed, in no component of a path.

Every function is synchronous and is called in a worker thread. Errors about a path are `OutsideWorkspace`, so that a
missing file, a forbidden one, a link and a device are the same to whoever asks.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal

from .errors import OutsideWorkspace, WorkspaceError, WorkspaceTooLarge

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO would block for its writer
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT: Final = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO, errno.EEXIST,
    errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EINVAL, errno.ENODEV,
})  # fmt: skip
TEMPORARY: Final = ".greenroom-new"
"""Name beside a file while its new content is written. A crash may leave one: the next write there removes it, and no
snapshot has it."""
Parts = tuple[str, ...]


@contextmanager
def mapped(path: str) -> Iterator[None]:
    """Turn the errors of the file system about a path into `OutsideWorkspace`, others into `WorkspaceError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise OutsideWorkspace(path) from error
        raise WorkspaceError(f"{path!r:.300}: {error.strerror or error}") from error


@contextmanager
def opened_root(folder: Path) -> Iterator[int]:
    """Open the folder itself, by its resolved path.

    Raises:
        OutsideWorkspace: it is not a folder, or its path leads through a link now.
    """
    with mapped(folder.name):
        if Path(os.path.realpath(folder)) != folder:
            raise OutsideWorkspace(folder.name)
        root = os.open(folder, _FOLDER)
    try:
        yield root
    finally:
        os.close(root)


@contextmanager
def opened_folder(root: int, parts: Parts, *, make: bool = False) -> Iterator[int]:
    """Open a folder below another, one component at a time; `make` creates missing ones."""
    current = os.dup(root)
    try:
        with mapped("/".join(parts)):
            for part in parts:
                deeper = _step(current, part, make=make)
                os.close(current)
                current = deeper
        yield current
    finally:
        os.close(current)


def _step(folder: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


@contextmanager
def opened_file(folder: int, name: str, path: str, *, linked: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Args:
        folder: The descriptor of its folder.
        name: Its name there.
        path: Its path, for errors.
        linked: It may have other hard links. A program in a copy could make one to a file elsewhere.

    Raises:
        OutsideWorkspace: there is nothing, or something else.
    """
    with mapped(path):
        descriptor = os.open(name, _READ, dir_fd=folder)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or (facts.st_nlink > 1 and not linked):
        os.close(descriptor)
        raise OutsideWorkspace(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield file


def read_file(root: int, parts: Parts, *, most: int) -> bytes:
    """Return the content of a file in a copy.

    Raises:
        OutsideWorkspace: there is no such file, or it has other hard links.
        WorkspaceTooLarge: it has more than `most` bytes.
    """
    path = "/".join(parts)
    if not parts:
        raise OutsideWorkspace(path)
    with opened_folder(root, parts[:-1]) as folder, opened_file(folder, parts[-1], path, linked=False) as file:
        content = bytearray()
        while len(content) <= most and (chunk := file.read(1 << 20)):
            content += chunk
        size = max(len(content), os.fstat(file.fileno()).st_size)
    if size > most:
        raise WorkspaceTooLarge(f"{path!r:.300} has {size:,} bytes; the limit is {most:,}")
    return bytes(content)


def write_file(root: int, parts: Parts, content: bytes) -> None:
    """Write a file in a copy: beside, then renamed. Missing folders are made; an existing file keeps its mode.

    Raises:
        OutsideWorkspace: a component is a link, or a file where a folder is needed; or the file is no regular one, or
            has other hard links.
    """
    path = "/".join(parts)
    if not parts:
        raise OutsideWorkspace(path)
    with opened_folder(root, parts[:-1], make=True) as folder:
        facts = look(folder, parts[-1])
        if facts is not None and (not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1):
            raise OutsideWorkspace(path)
        with mapped(path):
            mode = None if facts is None else stat.S_IMODE(facts.st_mode)
            beside = f"{TEMPORARY}-{threading.get_native_id()}"  # tools write in several threads
            with new_file(folder, parts[-1], mode=mode, executable=False, beside=beside) as file:
                file.write(content)


def remove_file(root: int, parts: Parts) -> None:
    """Remove a file or link in a copy; raises OutsideWorkspace if there is none."""
    if not parts:
        raise OutsideWorkspace("")
    with opened_folder(root, parts[:-1]) as folder, mapped("/".join(parts)):
        os.unlink(parts[-1], dir_fd=folder)


def look(folder: int, name: str) -> os.stat_result | None:
    """Return the facts of a name, of a link itself; None if there is nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def look_at(root: int, parts: Parts) -> Literal["file", "folder"] | None:
    """Return what is at a path: None for nothing, and for a link or a device."""
    if not parts:
        return "folder"
    try:
        with opened_folder(root, parts[:-1]) as folder:
            facts = look(folder, parts[-1])
    except OutsideWorkspace:
        return None
    if facts is None:
        return None
    return "folder" if stat.S_ISDIR(facts.st_mode) else "file" if stat.S_ISREG(facts.st_mode) else None


@contextmanager
def new_file(
    folder: int, name: str, *, mode: int | None, executable: bool, beside: str = TEMPORARY
) -> Iterator[BinaryIO]:
    """Write a file beside its name, and rename it when the block ends without an exception.

    Args:
        folder: The descriptor of its folder.
        name: Its name there.
        mode: The permissions of the file that is replaced; None: as the umask says.
        executable: A new file gets the permission to be executed.
        beside: The name until then.
    """
    discard(folder, beside)
    descriptor = os.open(beside, _WRITE, 0o777 if executable else 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if mode is not None:
                os.fchmod(descriptor, mode)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # nothing half stays beside the file
        discard(folder, beside)
        raise


def new_link(folder: int, name: str, target: str) -> None:
    """Make a symbolic link beside its name, and rename it."""
    discard(folder, TEMPORARY)
    os.symlink(target, TEMPORARY, dir_fd=folder)
    os.rename(TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)


def discard(folder: int, name: str) -> None:
    """Remove a file if there is one."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def remove_all(root: int, parts: Parts) -> None:
    """Remove a file, link or folder with all that it has; no link is followed."""
    with opened_folder(root, parts[:-1]) as folder, mapped("/".join(parts)):
        facts = look(folder, parts[-1])
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            shutil.rmtree(parts[-1], dir_fd=folder)
        elif facts is not None:
            os.unlink(parts[-1], dir_fd=folder)


def replace_text(path: Path, text: str) -> None:
    """Write a file of the state folder: durable when this returns, and never half."""
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, _FOLDER)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
