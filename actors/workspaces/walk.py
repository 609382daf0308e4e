"""Read a folder as it is: which files it has, and their contents as git objects.

Theory of operation. `git add -A` is not used: it fails as a whole where a program has left an empty repository, and
turns a repository with commits into a link without its files. The walk goes level by level, so that git is asked once
per level what is ignored, and no ignored folder is entered. A file is hashed by the descriptor that was opened for it:
a program that exchanges a folder for a link meanwhile changes nothing of what is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, Final, Literal

import attrs

from .allowlist import DEEPEST, is_inside, is_repository, is_usable, target_of
from .errors import OutsideWorkspace, WorkspaceTooLarge
from .paths import TEMPORARY, Parts, mapped, opened_file, opened_folder, opened_root
from .withheld import Withheld

MOST_FILES: Final = 50_000
"""Files of a folder that are neither ignored nor withheld."""
MOST_BYTES: Final = 2 * 1024**3
"""Bytes of these files together."""
MOST_NAMES: Final = 250_000
"""Names that a walk looks at, ignored ones included: about a second."""
_CHUNK: Final = 1 << 20
Reader = Callable[[BinaryIO], str]

Reason = Literal["withheld", "link", "device", "hard_link", "name", "depth"]
FILE: Final = "100644"
PROGRAM: Final = "100755"
LINK: Final = "120000"
Mode = str
"""A mode of git: `FILE`, `PROGRAM` or `LINK`."""


@attrs.frozen(kw_only=True)
class LeftOut:
    """A file or folder that is part of no copy and no proposal.

    Attributes:
        path: Its path in the workspace; characters that cannot be shown are escaped.
        reason: withheld, link (it leads out of the workspace), device (it is no file, folder or link), hard_link (it
            may be a file elsewhere), name (the name cannot be used), or depth (more than 64 folders).
    """

    path: str
    reason: Reason


@attrs.frozen
class WalkedFile:
    """A file or link of a walk: folder, name, mode, and the bytes of its content."""

    folder: Parts
    name: str
    mode: Mode
    size: int

    @property
    def path(self) -> str:
        """The path relative to the root of the walk."""
        return "/".join((*self.folder, self.name))


@attrs.define
class Level:
    """What the folders of one level have."""

    files: list[WalkedFile] = attrs.field(factory=list)
    folders: list[Parts] = attrs.field(factory=list)
    left_out: list[LeftOut] = attrs.field(factory=list)
    names: int = 0


def read_level(root: Path, folders: Sequence[Parts], withheld: Withheld, *, linked: bool) -> Level:
    """List folders. `.git` is skipped wherever it is.

    Args:
        root: The root of the walk.
        folders: The folders, relative to it.
        withheld: The patterns of what is left out.
        linked: Files with other hard links are read; otherwise they are left out.
    """
    level = Level()
    with opened_root(root) as top:
        for parts in folders:
            try:
                with opened_folder(top, parts) as folder:
                    _read_folder(level, parts, folder, withheld, linked=linked)
            except OutsideWorkspace:  # removed, or exchanged for a link, since its parent was read
                continue
    return level


def _read_folder(level: Level, parts: Parts, folder: int, withheld: Withheld, *, linked: bool) -> None:
    with mapped("/".join(parts)), os.scandir(folder) as entries:
        for entry in entries:
            level.names += 1
            if level.names > MOST_NAMES:
                raise WorkspaceTooLarge(f"the folder has more than {MOST_NAMES:,} names, the limit of a walk")
            if not is_repository(entry.name) and not entry.name.startswith(TEMPORARY):
                _read_entry(level, parts, folder, entry, withheld, linked=linked)


def _read_entry(
    level: Level, parts: Parts, folder: int, entry: os.DirEntry[str], withheld: Withheld, *, linked: bool
) -> None:
    path = "/".join((*parts, entry.name))
    if not is_usable(entry.name):
        level.left_out.append(LeftOut(path=shown(path), reason="name"))
        return
    if withheld.has(path):
        level.left_out.append(LeftOut(path=path, reason="withheld"))
        return
    try:
        facts = entry.stat(follow_symlinks=False)
        target = os.readlink(entry.name, dir_fd=folder) if stat.S_ISLNK(facts.st_mode) else None
    except OSError:  # removed meanwhile
        return
    if stat.S_ISDIR(facts.st_mode):
        if len(parts) + 1 >= DEEPEST:
            level.left_out.append(LeftOut(path=path, reason="depth"))
        else:
            level.folders.append((*parts, entry.name))
    elif (reason := _refused(facts, target, parts, withheld, linked=linked)) is not None:
        level.left_out.append(LeftOut(path=path, reason=reason))
    else:
        mode = LINK if target is not None else PROGRAM if facts.st_mode & stat.S_IXUSR else FILE
        level.files.append(WalkedFile(parts, entry.name, mode, facts.st_size))


def _refused(
    facts: os.stat_result, target: str | None, parts: Parts, withheld: Withheld, *, linked: bool
) -> Reason | None:
    if target is not None:
        usable = is_inside(target, parts) and not withheld.has(target_of(target, parts))
        return None if usable else "link"
    if not stat.S_ISREG(facts.st_mode):
        return "device"
    return "hard_link" if facts.st_nlink > 1 and not linked else None


def shown(path: str) -> str:
    """Return a path with what cannot be shown escaped, at most 300 characters."""
    return path.encode("unicode_escape", "surrogatepass").decode("ascii")[:300]


def digests(root: Path, files: Sequence[WalkedFile]) -> list[str | None]:
    """Return git's digest of each file's content, in order; None for a file that is no longer there."""
    return _each(root, files, _digest)


def store_objects(root: Path, files: Sequence[WalkedFile], objects: Path) -> list[str | None]:
    """Write each content as an object of a repository, and return the digests of what was written, as `digests`."""
    return _each(root, files, partial(_store, objects))


def digest_of(folder: int, name: str, mode: Mode) -> str | None:
    """Return git's digest of a file or link in an open folder; None if there is no such thing."""
    return _one(folder, WalkedFile((), name, mode, 0), _digest)


def _each(root: Path, files: Sequence[WalkedFile], read: Reader) -> list[str | None]:
    results = list[str | None]()
    with opened_root(root) as top:
        for parts, group in groupby(files, key=lambda file: file.folder):
            members = list(group)
            try:
                with opened_folder(top, parts) as folder:
                    results += [_one(folder, file, read) for file in members]
            except OutsideWorkspace:
                results += [None] * len(members)
    return results


def _one(folder: int, file: WalkedFile, read: Reader) -> str | None:
    try:
        if file.mode == LINK:
            return read(BytesIO(os.fsencode(os.readlink(file.name, dir_fd=folder))))
        with opened_file(folder, file.name, file.path) as content:
            return read(content)
    except (OSError, OutsideWorkspace):  # removed, or exchanged for something else
        return None


def _object(content: BinaryIO) -> Iterator[bytes]:
    """Yield the object that git makes of a content: a header with the size, then the bytes.

    Raises:
        OSError: the file has become shorter meanwhile. What is appended meanwhile is not read.
    """
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    yield b"blob %d\0" % size
    while size:
        chunk = content.read(min(size, _CHUNK))
        if not chunk:
            raise OSError("the file has become shorter while it was read")
        size -= len(chunk)
        yield chunk


def _digest(content: BinaryIO) -> str:
    state = hashlib.sha1(usedforsecurity=False)
    for chunk in _object(content):
        state.update(chunk)
    return state.hexdigest()


def _store(objects: Path, content: BinaryIO) -> str:
    """Write a loose object (gitformat-loose(5)) and return its digest."""
    state, pack = hashlib.sha1(usedforsecurity=False), zlib.compressobj(1)
    beside = objects / f"tmp_obj_{threading.get_native_id()}"  # a name that `git prune` removes
    with beside.open("wb") as file:
        for chunk in _object(content):
            state.update(chunk)
            file.write(pack.compress(chunk))
        file.write(pack.flush())
    digest = state.hexdigest()
    place = objects / digest[:2] / digest[2:]
    place.parent.mkdir(exist_ok=True)
    beside.chmod(0o444)
    beside.replace(place)
    return digest
