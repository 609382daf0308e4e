"""Replace files of a folder, all or none, also if the process ends between two of them.

Theory of operation. A journal has, for each path, the version that the folder has now and the version that it gets;
the shadow repository has the contents. Each path then is in one of three states: the old version is
there (write the new one), the new version is there (nothing to do), or something else is (a person has changed the
file meanwhile: what was written is put back). So to begin, to go on after a crash and to find that all was done
already are the same function, `perform`.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, Literal

import attrs
import msgspec

from .difference import Replacement, Version
from .errors import OutsideWorkspace, WorkspaceError
from .paths import (
    TEMPORARY,
    Parts,
    discard,
    look,
    mapped,
    new_file,
    new_link,
    opened_folder,
    opened_root,
    remove_all,
    replace_text,
)
from .walk import FILE, LINK, PROGRAM, digest_of

State = Literal["old", "new", "moved"]
_EXECUTE: Final = 0o111


@attrs.frozen(kw_only=True)
class Journal:
    """What an apply is about to do, in the state folder until all is done.

    Attributes:
        key: The folder of the thread in the state folder.
        request: The proposal and the paths that were asked for, as a digest.
        proposal: The id of the proposal.
        base: The thread's next base.
        replacements: The paths.
    """

    key: str
    request: str
    proposal: str
    base: str
    replacements: tuple[Replacement, ...]


@attrs.frozen
class Contents:
    """Contents of versions, by their digests: in memory, or large ones as files.

    Attributes:
        texts: Those in memory.
        folder: The folder of the others, each under its digest.
    """

    texts: Mapping[str, bytes]
    folder: Path

    def open(self, version: Version) -> BinaryIO:
        """Open the content of a version; of a link, its target.

        Raises:
            WorkspaceError: the content is in neither.
        """
        if version.digest in self.texts:
            return BytesIO(self.texts[version.digest])
        try:
            return (self.folder / version.digest).open("rb")
        except OSError as error:
            raise WorkspaceError(f"the content {version.digest} is gone from the state folder; apply again") from error

    def __repr__(self) -> str:
        return f"<Contents: {len(self.texts)} in memory>"


def save_journal(path: Path, journal: Journal) -> None:
    """Write the journal; it and the objects of both trees are durable when this returns.

    One sync for all objects: an fsync of each takes seconds for a thousand files.
    """
    os.sync()
    replace_text(path, msgspec.json.encode(journal).decode())


def load_journal(path: Path) -> Journal | None:
    """Return the journal of an apply that has not ended; None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None


def with_permissions(root: Path, replacements: Iterable[Replacement]) -> tuple[Replacement, ...]:
    """Add the permissions of the files that are there, which their next versions keep."""
    with opened_root(root) as top:
        return tuple(attrs.evolve(one, permissions=_permissions(top, one.path)) for one in replacements)


def perform(root: Path, replacements: Sequence[Replacement], contents: Contents, *, again: bool) -> tuple[str, ...]:
    """Bring each path to its new version, or none.

    Files are removed first, so that a file can become a folder. Each one is compared with its old version immediately
    before it is replaced, and a rename puts the new one in its place.

    Args:
        root: The folder.
        replacements: The paths with both versions.
        contents: The contents of both versions.
        again: An earlier process may have written some of the new versions.

    Returns:
        The paths that had neither version: then nothing is changed, what was written is put back. Empty: all is done.

    Raises:
        WorkspaceError: the file system refuses, such as where the disk is full; what was written is put back.
    """
    ordered = sorted(replacements, key=lambda one: (one.new is not None, one.path))
    with opened_root(root) as top:
        states = {one.path: _state(top, one) for one in ordered}
        moved = tuple(path for path, state in states.items() if state == "moved")
        if again:
            _discard_halves(top, ordered)
        new_ones = [one for one in ordered if again and states[one.path] == "new"]
        try:
            for one in () if moved else ordered:
                state = _state(top, one)
                if state == "moved" or (state == "old" and not _replace(top, one, contents)):
                    moved = (one.path,)
                    break
                if state == "old":
                    new_ones.append(one)
        except BaseException:  # such as a full disk: the folder is as it was, then the caller learns why
            _put_back(top, new_ones, contents)
            raise
        if moved:
            _put_back(top, new_ones, contents)
    return moved


def force(root: Path, replacements: Iterable[Replacement], contents: Contents) -> None:
    """Bring each path of a worktree to its new version, whatever is there now."""
    ordered = sorted(replacements, key=lambda one: (one.new is not None, one.path))
    with opened_root(root) as top:
        for one in ordered:
            parts = tuple(one.path.split("/"))
            _clear_way(top, parts)
            _write(top, one, one.new, contents)


def _replace(top: int, one: Replacement, contents: Contents) -> bool:
    """Write the new version; False if something is in the way, such as a folder or a link in place of a folder."""
    try:
        _write(top, one, one.new, contents)
    except OutsideWorkspace as error:
        if isinstance(error.__cause__, PermissionError):
            raise WorkspaceError(f"{one.path!r:.300} cannot be written: {error.__cause__.strerror}") from error
        return False
    return True


def _discard_halves(top: int, ordered: Iterable[Replacement]) -> None:
    """Remove the file that a process was writing when it ended."""
    for parents in {tuple(one.path.split("/")[:-1]) for one in ordered}:
        try:
            with opened_folder(top, parents) as folder:
                discard(folder, TEMPORARY)
        except OutsideWorkspace:  # the folder was never made
            continue


def _put_back(top: int, new_ones: Sequence[Replacement], contents: Contents) -> None:
    """Bring paths back to their old versions: new files go first, so that a folder can be a file again."""
    for one in sorted(new_ones, key=lambda one: (one.old is not None, one.path)):
        if _state(top, one) == "new":
            _write(top, one, one.old, contents)


def _state(top: int, one: Replacement) -> State:
    """Compare a path with its versions."""
    *parents, name = one.path.split("/")
    try:
        with opened_folder(top, tuple(parents)) as folder:
            present = _present(folder, name)
    except OutsideWorkspace:  # a parent is missing, or a file or a link: nothing is at the path
        present = None
    if present == one.new:
        return "new"
    return "old" if present == one.old else "moved"


def _present(folder: int, name: str) -> Version | Literal["other"] | None:
    """Return the version at a name; None for nothing and for a folder, as trees of git have files only."""
    facts = look(folder, name)
    if facts is None or stat.S_ISDIR(facts.st_mode):
        return None
    is_link = stat.S_ISLNK(facts.st_mode)
    if not is_link and not stat.S_ISREG(facts.st_mode):
        return "other"
    mode = LINK if is_link else PROGRAM if facts.st_mode & stat.S_IXUSR else FILE
    digest = digest_of(folder, name, mode)
    return "other" if digest is None else Version(mode, digest)


def _write(top: int, one: Replacement, version: Version | None, contents: Contents) -> None:
    *parents, name = one.path.split("/")
    if version is None:
        _remove(top, tuple(parents), name)
        return
    source = contents.open(version)
    with source, opened_folder(top, tuple(parents), make=True) as folder, mapped(one.path):
        facts = look(folder, name)
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            os.rmdir(name, dir_fd=folder)  # refuses, unless it is empty
        if version.mode == LINK:
            new_link(folder, name, os.fsdecode(source.read()))
            return
        executable = version.mode == PROGRAM
        mode = None if one.permissions is None else _with_execution(one.permissions, executable=executable)
        with new_file(folder, name, mode=mode, executable=executable) as file:
            shutil.copyfileobj(source, file, 1 << 20)


def _remove(top: int, parents: Parts, name: str) -> None:
    """Remove a file, and the folders above that are empty then, as git does."""
    try:
        with opened_folder(top, parents) as folder:
            discard(folder, TEMPORARY)
            facts = look(folder, name)
            if facts is not None and not stat.S_ISDIR(facts.st_mode):
                with mapped(name):
                    os.unlink(name, dir_fd=folder)
    except OutsideWorkspace as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return
    for depth in range(len(parents), 0, -1):
        with opened_folder(top, parents[: depth - 1]) as folder:
            try:
                os.rmdir(parents[depth - 1], dir_fd=folder)
            except OSError:  # it has files
                return


def _clear_way(top: int, parts: Parts) -> None:
    """Remove what a path of a worktree cannot have: a file or link in place of a folder, a folder in its own place."""
    for depth in range(1, len(parts) + 1):
        with opened_folder(top, parts[: depth - 1]) as folder:
            facts = look(folder, parts[depth - 1])
        if facts is None:
            return
        if stat.S_ISDIR(facts.st_mode) == (depth == len(parts)):
            remove_all(top, parts[:depth])


def _permissions(top: int, path: str) -> int | None:
    *parents, name = path.split("/")
    try:
        with opened_folder(top, tuple(parents)) as folder:
            facts = look(folder, name)
    except OutsideWorkspace:
        return None
    return stat.S_IMODE(facts.st_mode) if facts is not None and stat.S_ISREG(facts.st_mode) else None


def _with_execution(permissions: int, *, executable: bool) -> int:
    """Return permissions with the right to execute for those who may read, or without."""
    return permissions | (permissions >> 2 & _EXECUTE) if executable else permissions & ~_EXECUTE
