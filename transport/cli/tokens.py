"""The token of a gateway, in a file that only its user can read."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from greenroom.actors.errors import UsageError

from ..bearer_token import new_token


def beside(database: Path) -> Path:
    """Return the token file of a database's gateway."""
    return database.with_name(f"{database.name}.token").absolute()


def read(path: Path, *, option: str = "--token-file") -> str:
    """Read the token in a file that an option names.

    Raises:
        UsageError: The file cannot be read, or has no token.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the token file {path} cannot be read: {why}; name another with {option}") from error
    if len(token) < 16 or not (token.isascii() and token.isprintable()):
        way = "delete it to have a new one made" if option == "--token-file" else "make one with secrets.token_hex(24)"
        raise UsageError(f"the token file {path} holds no token (16 printable characters or more); {way}")
    return token


def shown() -> bool:
    """Return True if a token may be printed: only to a terminal, which is not stored as journals and files are."""
    return sys.stdout is not None and sys.stdout.isatty()


def file_for(
    database: Path | None, path: Path | None, stack: ExitStack | AsyncExitStack, *, printed: bool
) -> Path | None:
    """Return the token file of a gateway: the named one, the one of the database, or None if the token is `printed`.

    Otherwise the gateway has a temporary file, in a folder that only its user can enter; the stack deletes the folder.
    """
    if path is not None:
        return path.absolute()
    if database is not None:
        return beside(database)
    if printed:
        return None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="greenroom-")))
    return folder / "token"


def of(file: Path | None) -> str:
    """Return the token of a gateway with this token file; a new one without a file.

    Raises:
        UsageError: See `kept`.
    """
    return new_token() if file is None else kept(file)


def kept(path: Path) -> str:
    """Return the token in a file, created (0600) if it does not exist; clients keep the token across server restarts.

    The file is written under another name and renamed, so that no reader sees a partial token.

    Raises:
        UsageError: The file cannot be read or written, or has no token.
    """
    if path.exists():
        return read(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{new_token()}\n".encode())
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"the token file {path} cannot be written: {error.strerror}; use --token-file") from error
    return read(path)
