"""Writing the report: atomically, and over nothing but a previous report."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from greenroom.actors.errors import ToolError

from .files import MARK, open_regular

_LONGEST = 100
"""Maximum characters of a report's name."""


def check_name(name: str) -> str:
    """Check the name of a report: a Markdown file directly in the folder.

    Raises:
        ToolError: The name is invalid.
    """
    plain = name.isprintable() and "/" not in name and "\\" not in name and not name.startswith(".")
    if not plain or not name.endswith(".md") or len(name) > _LONGEST:
        raise ToolError(f"{name!r} cannot be the report's name; use a plain file name that ends in .md")
    return name


def former_report(path: Path) -> str | None:
    """Return the previous report; None if there is no file.

    Raises:
        ToolError: There is a file that is not a report.
    """
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"{path.name!r} is there and cannot be read ({error.strerror}); it is left alone") from error
    if not text.startswith(MARK):
        raise ToolError(f"{path.name!r} is there and is not a report of the census; it is left alone")
    return text


def write_report(folder: Path, name: str, content: str) -> None:
    """Write the report atomically: readers see the previous or the new one, and a crash leaves one of the two.

    Raises:
        ToolError: The name is invalid, another file exists, or the folder is not writable.
    """
    path = folder / check_name(name)
    former = former_report(path)
    temporary = folder / f".{name}.{secrets.token_hex(4)}.tmp"
    try:
        _write_new(temporary, content)
        if former is None:
            os.link(temporary, path, follow_symlinks=False)  # fails if a file was created there meanwhile
        else:
            os.replace(temporary, path)
    except FileExistsError as error:
        raise ToolError(f"{name!r} has come into being meanwhile; it is left alone") from error
    except OSError as error:
        raise ToolError(f"{name!r} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_new(path: Path, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
