"""Read-only access to one folder: never outside of it, never through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

import attrs

from greenroom.actors.errors import ToolError

SKIPPED: Final = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".greenroom", ".idea", ".vscode"),
    }
)
"""Folders with copies, caches and third-party code, which do not belong to a census of the user's files."""

LARGEST: Final = 4_000_000
"""Maximum size in bytes of a file whose lines are counted; larger files are data."""
READ: Final = 20_000
"""Maximum bytes of a file for the model."""
_PROBE: Final = 8_192
"""Bytes that are searched for a NUL, which marks a binary file, as in git."""

MARK: Final = "<!-- written by the greenroom census -->"
"""The first line of a report, which marks it as replaceable and excludes it from the count."""

LANGUAGES: Final = {
    **dict.fromkeys((".py", ".pyi"), "Python"),
    **dict.fromkeys((".md", ".markdown"), "Markdown"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "JavaScript"),
    **dict.fromkeys((".ts", ".tsx"), "TypeScript"),
    **dict.fromkeys((".c", ".h"), "C"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp"), "C++"),
    **dict.fromkeys((".yml", ".yaml"), "YAML"),
    **dict.fromkeys((".sh", ".bash", ".zsh"), "Shell"),
    **dict.fromkeys((".html", ".htm"), "HTML"),
    **dict.fromkeys((".css", ".scss"), "CSS"),
    **dict.fromkeys((".txt", ".text"), "Text"),
    **dict.fromkeys((".ini", ".cfg"), "INI"),
    **dict.fromkeys((".ex", ".exs"), "Elixir"),
    ".rs": "Rust",
    ".go": "Go",
    ".java": "Java",
    ".kt": "Kotlin",
    ".rb": "Ruby",
    ".php": "PHP",
    ".swift": "Swift",
    ".sql": "SQL",
    ".json": "JSON",
    ".toml": "TOML",
    ".rst": "reStructuredText",
    ".csv": "CSV",
    ".xml": "XML",
    ".lua": "Lua",
    ".erl": "Erlang",
    ".hs": "Haskell",
}
"""Suffix -> language."""
_NAMES: Final = {"Makefile": "Make", "Dockerfile": "Docker"}


@attrs.frozen(kw_only=True)
class Listing:
    """The content of a folder: names of folders and files, and the number of omitted entries."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    skipped: int


@attrs.define
class Count:
    """A count of text files: lines and files by language, the largest files, unreadable files."""

    lines: Counter[str] = attrs.field(factory=Counter)
    files: Counter[str] = attrs.field(factory=Counter)
    largest: list[tuple[str, int]] = attrs.field(factory=list)
    binary: int = 0
    unreadable: list[str] = attrs.field(factory=list)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


@attrs.frozen
class Folder:
    """The folder of the census.

    Attributes:
        root: Its real path.
    """

    root: Path = attrs.field(converter=_real)

    def inside(self, path: str) -> Path:
        """Return the real path of an entry of the folder.

        Raises:
            ToolError: The path leads out of the folder, directly or through a symbolic link, or does not exist.
        """
        if "\0" in path:
            raise ToolError(f"{path!r} is not a path")
        real = Path(os.path.realpath(self.root / path))
        if not real.is_relative_to(self.root):
            raise ToolError(f"{path!r} is outside of the folder; name something inside, relative to its top")
        if not real.exists():
            raise ToolError(f"{path!r} does not exist")
        return real

    def listing(self, path: str) -> Listing:
        """List a folder without links and without the folders in `SKIPPED`.

        Raises:
            ToolError: The folder cannot be listed.
        """
        folders, files, skipped = [], [], 0
        for entry in self._entries(self.inside(path)):
            if entry.is_symlink() or (entry.name in SKIPPED and entry.is_dir(follow_symlinks=False)):
                skipped += 1
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            else:
                skipped += 1
        return Listing(folders=tuple(folders), files=tuple(files), skipped=skipped)

    def read(self, path: str) -> str:
        """Return the beginning of a text file.

        Raises:
            ToolError: The path is outside of the folder, not a text file, or unreadable.
        """
        data = _bytes_of(self.inside(path), READ)
        if data is None:
            raise ToolError(f"{path!r} cannot be read")
        if b"\0" in data[:_PROBE]:
            raise ToolError(f"{path!r} is a binary file")
        return data.decode("utf-8", "replace")

    def count(self, path: str, *, deep: bool, heed: Callable[[int, str], None]) -> Count:
        """Count the lines of the text files in a folder, and in its subfolders if `deep`.

        Args:
            path: Path of the folder.
            deep: Include subfolders.
            heed: Called with the number of files so far and the path of the next one; an exception ends the count.

        Raises:
            ToolError: The folder is outside or cannot be listed.
        """
        total = Count()
        for number, file in enumerate(self._walk(self.inside(path), deep=deep, total=total)):
            name = file.relative_to(self.root).as_posix()
            heed(number, name)
            self._count_file(file, name, total)
        total.largest.sort(key=lambda item: (-item[1], item[0]))
        del total.largest[5:]
        return total

    def _count_file(self, file: Path, name: str, total: Count) -> None:
        data = _bytes_of(file, LARGEST + 1)
        if data is None:
            total.unreadable.append(name)
        elif b"\0" in data[:_PROBE] or len(data) > LARGEST:
            total.binary += 1
        elif not data.startswith(MARK.encode()):
            lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
            language = language_of(name)
            total.lines[language] += lines
            total.files[language] += 1
            total.largest.append((name, lines))

    def _walk(self, folder: Path, *, deep: bool, total: Count) -> Iterator[Path]:
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            try:
                entries = self._entries(here)
            except ToolError:
                if here == folder:
                    raise
                total.unreadable.append(f"{here.relative_to(self.root).as_posix()}/")
                continue
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
                elif deep and entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                    waiting.append(Path(entry.path))

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            name = folder.relative_to(self.root).as_posix()
            raise ToolError(f"{name!r} cannot be listed: {error.strerror}") from error


def language_of(name: str) -> str:
    """Return the language of a file by its name."""
    path = PurePosixPath(name)
    return _NAMES.get(path.name) or LANGUAGES.get(path.suffix.lower()) or "other text"


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; never follows a link at the end of the path, never waits for a pipe.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def _bytes_of(path: Path, limit: int) -> bytes | None:
    """Return the first bytes of a regular file; None if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(limit)
    except OSError:
        return None
