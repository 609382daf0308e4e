"""The difference of two commits, as git prints it, and the id of a proposal. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import attrs

ChangeKind = Literal["added", "modified", "deleted", "renamed"]
ABSENT: Final = "000000"
"""Git's mode of a file that is not there."""


@attrs.frozen(kw_only=True)
class ChangedFile:
    """A file that a difference changes.

    Attributes:
        path: The path in the workspace; of a deleted file, the path that it had.
        change: added, modified, deleted, or renamed (its content may have changed, too).
        from_path: The former path of a renamed file.
        mode: The new mode as git writes it ("100644", "100755", "120000"), if it is another one than before.
        added, removed: Lines; 0 for a binary file.
        binary: git counts no lines of it.
    """

    path: str
    change: ChangeKind
    from_path: str | None = None
    mode: str | None = None
    added: int = 0
    removed: int = 0
    binary: bool = False


@attrs.frozen
class Version:
    """A file of a tree: git's mode, and the digest of the content."""

    mode: str
    digest: str


@attrs.frozen
class Replacement:
    """A path of two trees: its version in the old one and in the new one, each None if it has none.

    `permissions` are those of the file that is there.
    """

    path: str
    old: Version | None
    new: Version | None
    permissions: int | None = None


def proposal_id(base: str, target: str, left_out: Sequence[tuple[str, str]]) -> str:
    """Return the id of a proposal: a digest, so that the same id is the same difference.

    Args:
        base: The tree from which it starts.
        target: The tree that it proposes.
        left_out: (path, reason) of what is no part of it.
    """
    text = json.dumps([base, target, sorted(left_out)], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def parse_difference(output: bytes) -> list[ChangedFile]:
    """Read what `git diff-tree -r -z --raw --numstat` prints: all raw lines, then all counts."""
    fields = iter(output.decode("utf-8", "surrogateescape").split("\0"))
    files = dict[str, ChangedFile]()
    for field in fields:
        if field.startswith(":"):
            file = _raw(field, fields)
            files[file.path] = file
        elif field:
            path, added, removed = _counts(field, fields)
            if added == "-":
                files[path] = attrs.evolve(files[path], binary=True)
            else:
                files[path] = attrs.evolve(files[path], added=int(added), removed=int(removed))
    return sorted(files.values(), key=lambda file: file.path)


def parse_replacements(output: bytes) -> list[Replacement]:
    """Read what `git diff-tree -r -z --raw --no-renames` prints."""
    fields = iter(output.decode("utf-8", "surrogateescape").split("\0"))
    replacements = []
    for field in fields:
        if field.startswith(":"):
            old_mode, new_mode, old, new, _ = field[1:].split(" ")
            replacements.append(Replacement(next(fields), _version(old_mode, old), _version(new_mode, new)))
    return replacements


def _raw(field: str, fields: Iterator[str]) -> ChangedFile:
    old_mode, new_mode, _, _, status = field[1:].split(" ")
    path, mode = next(fields), new_mode if new_mode != old_mode else None
    match status[0]:
        case "A":
            return ChangedFile(path=path, change="added", mode=mode)
        case "D":
            return ChangedFile(path=path, change="deleted")
        case "R":
            return ChangedFile(path=next(fields), change="renamed", from_path=path, mode=mode)
        case _:  # M, and T: a file has become a link or the reverse
            return ChangedFile(path=path, change="modified", mode=mode)


def _counts(field: str, fields: Iterator[str]) -> tuple[str, str, str]:
    """Return the new path and the counts; of a rename git prints an empty path, then the old and the new one."""
    added, removed, path = field.split("\t", 2)
    if not path:
        next(fields)
        path = next(fields)
    return path, added, removed


def _version(mode: str, digest: str) -> Version | None:
    return None if mode == ABSENT else Version(mode, digest)
