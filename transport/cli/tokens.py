"""The token of a gateway in a file that only its user can read."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from greenroom.actors.errors import UsageError


def beside(database: Path) -> Path:
    """Where the token of a database's gateway is kept."""
    return database.with_name(f"{database.name}.token").absolute()


def read(path: Path) -> str:
    """The token in a file.

    Raises:
        UsageError: the file can not be read, or holds none.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the token file {path} can not be read: {why}; name another with --token-file") from error
    if len(token) < 16 or not (token.isascii() and token.isprintable()):
        raise UsageError(
            f"the token file {path} holds no token (16 printable characters or more); delete it to have a new one made"
        )
    return token


def shown() -> bool:
    """Whether a token may be printed: to a terminal, which keeps nothing. Journals and files do."""
    return sys.stdout is not None and sys.stdout.isatty()


def file_for(
    database: Path | None, given: Path | None, stack: ExitStack | AsyncExitStack, *, printed: bool
) -> Path | None:
    """Where a gateway's token is: in the file that was named, beside the database, or nowhere if it is `printed`.

    A gateway without either has a file of its own, in a folder that only its user can enter; it goes with the stack.
    """
    if given is not None:
        return given.absolute()
    if database is not None:
        return beside(database)
    if printed:
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="greenroom-")))
    return folder / "token"


def fresh() -> str:
    """A new random token (192 bits)."""
    return secrets.token_urlsafe(24)


def kept(path: Path) -> str:
    """The token in a file, made (0600) if there is none: clients of the server before this one still have it.

    Written whole under another name first, so that nobody ever reads half of it.

    Raises:
        UsageError: the file can not be read or written, or holds no token.
    """
    if path.exists():
        return read(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{fresh()}\n".encode())
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"the token file {path} can not be written: {error.strerror}; use --token-file") from error
    return read(path)
