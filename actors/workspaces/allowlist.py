"""The names that a run may give: of workspaces, and of files in one. Pure."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from ..errors import UsageError
from .errors import OutsideWorkspace

LONGEST_PATH: Final = 4_096
"""Bytes of a path, as Linux has them (PATH_MAX)."""
LONGEST_NAME: Final = 255
"""Bytes of one component, as the common file systems have them."""
DEEPEST: Final = 64
"""Components of a path: each level of a folder costs a snapshot one process."""

_WORKSPACE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# Controls would forge lines in lists and logs, and a name that is not UTF-8 (a surrogate here) fits into no event.
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_name(name: str) -> None:
    """Check the name of a workspace.

    Raises:
        UsageError: the name is not `[a-z0-9][a-z0-9._-]{0,63}`.
    """
    if not isinstance(name, str) or not _WORKSPACE.fullmatch(name):
        raise UsageError(
            f"workspace {name!r:.80}: a name has 1 to 64 of a-z, 0-9, '.', '_', '-', the first a letter or digit"
        )


def parts_of(path: str) -> tuple[str, ...]:
    """Return the components of a relative path; () for "" and ".".

    Raises:
        OutsideWorkspace: the path is absolute, has `..`, `.git`, a control character or a lone surrogate, or is too
            long or too deep.
    """
    if not isinstance(path, str) or path.startswith("/") or len(path) > LONGEST_PATH:
        raise OutsideWorkspace(str(path))
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if len(parts) > DEEPEST or not all(map(is_usable, parts)) or _bytes(path) > LONGEST_PATH:
        raise OutsideWorkspace(path)
    return parts


def is_usable(name: str) -> bool:
    """Return True for a component that files of a workspace may have."""
    return (
        name not in {"", ".", ".."}
        and "/" not in name
        and _UNPRINTABLE.search(name) is None
        and _bytes(name) <= LONGEST_NAME
        and not is_repository(name)
    )


def is_repository(name: str) -> bool:
    """Return True for `.git` and what some file systems take for it: other case, ignorable characters, a short name."""
    if len(name) > 4 and name.isascii():
        return name.casefold() == "git~1"
    plain = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
    return plain.casefold() == ".git"


def is_inside(target: str, folder: tuple[str, ...]) -> bool:
    """Return True if a link in a folder cannot lead out of the workspace.

    After the first plain component a `..` is refused: that component may be a link, and `..` then leads elsewhere
    than the text says.
    """
    if target.startswith("/") or not target or len(target) > LONGEST_PATH:
        return False
    parts = [part for part in target.split("/") if part not in {"", "."}]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return up <= len(folder) and all(map(is_usable, parts[up:]))


def target_of(target: str, folder: tuple[str, ...]) -> str:
    """Return the path to which a link in a folder leads; call it for targets that are inside only."""
    return posixpath.normpath("/".join([*folder, target]))


def find_workspace(where: str, names: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the name of the workspace and the components of the folder in it, for "shop" or "shop/packages/web".

    Raises:
        OutsideWorkspace: there is no such workspace, or the path is invalid.
    """
    parts = parts_of(where)
    if not parts or parts[0] not in names:
        raise OutsideWorkspace(where)
    return parts[0], parts[1:]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
