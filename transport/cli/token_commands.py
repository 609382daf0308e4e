"""`greenroom token`: add, list and revoke the tokens of a file, which a gateway reads while it serves."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import trio

from greenroom.actors.errors import UsageError

from ..bearer_token import new_token
from ..gateway.sign_ins.token_file import LONGEST_FILE, TokenEntry, entry_of, read_tokens
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import exits

HEADER: Final = """\
# Tokens of a gateway; `greenroom token` changes them, and a gateway reads changes while it serves.
# NAME  SCOPES  EXPIRES  SHA-256
"""
LOCK_SECONDS: Final = 10.0
"""Seconds to wait for another command that changes a file of the same folder."""
LEAST_ID: Final = 8
"""Fewest digits of an id that name a token: a shorter word is a name."""


def token(args: argparse.Namespace) -> int:
    """Add, list or revoke tokens."""
    screen = open_screen(machine=args.json)
    args.tokens = args.tokens.resolve()  # a link stays a link
    match args.action:
        case "add":
            return trio.run(_added, args, screen)
        case "revoke":
            return trio.run(_revoked, args, screen)
        case _:
            return _listed(args, screen)


async def _added(args: argparse.Namespace, screen: Screen) -> int:
    text = new_token()
    scopes = frozenset(args.scope or ("follow", "decide", "start"))
    expires = None if args.expires is None else _end_of(args.expires)
    entry = TokenEntry(
        name=args.name, scopes=scopes, own=args.own, expires=expires, digest=sha256(text.encode()).digest()
    )

    def add(lines: list[str]) -> None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        lines.append(f"{entry.line()}\n")

    await _change(args.tokens, add, create=True)
    screen.outcome({**_facts(entry), "token": text})
    screen.row(text)
    if not args.json:  # a file to which the output goes holds the token alone, as curl and Prometheus read it
        name = text_format.one_line(entry.name, 60)
        Screen(sys.stderr).row(f"The token of {name} ({entry.id}); it is shown only now.")
    return exits.COMPLETED


async def _revoked(args: argparse.Namespace, screen: Screen) -> int:
    word, entries = args.which, list[TokenEntry]()

    def names(line: str) -> bool:
        entry = entry_of(line)
        if entry is None:
            return False
        by_id = len(word) >= LEAST_ID and entry.digest.hex().startswith(word.lower())
        if entry.name == word or by_id:
            entries.append(entry)
        return entry.name == word or by_id

    def remove(lines: list[str]) -> None:
        lines[:] = [line for line in lines if not names(line)]
        if not entries:
            raise UsageError(f"{args.tokens} has no token with the name or the id {word!r:.150}")

    await _change(args.tokens, remove)
    for entry in entries:
        screen.outcome({**_facts(entry), "revoked": True})
        screen.row(f"revoked: {text_format.one_line(entry.name, 60)} ({entry.id})")
    screen.row("A gateway that serves with the file ends its connections within 4 seconds.", "dim")
    return exits.COMPLETED


def _listed(args: argparse.Namespace, screen: Screen) -> int:
    _, entries = read_tokens(args.tokens)
    now = datetime.now(UTC)
    for entry in entries:
        screen.outcome(_facts(entry))
        until = "never expires" if entry.expires is None else f"expires {entry.expires:%Y-%m-%d %H:%M} UTC"
        scopes = ", ".join([*sorted(entry.scopes), *(["own runs only"] if entry.own else [])])
        is_over = entry.expired(now)
        line = f"{text_format.one_line(entry.name, 60)}  {scopes}  {'expired' if is_over else until}  {entry.id}"
        screen.row(line, "dim" if is_over else "")
    if not entries:
        screen.row("no tokens", "dim")
    return exits.COMPLETED


def _facts(entry: TokenEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "id": entry.id,
        "scopes": sorted(entry.scopes),
        "own": entry.own,
        "expires": None if entry.expires is None else entry.expires.isoformat(),
    }


def _end_of(value: datetime | timedelta) -> datetime:
    now = datetime.now(UTC)
    try:
        end = now + value if isinstance(value, timedelta) else value
    except OverflowError:
        raise UsageError(f"--expires {value}: give a shorter time, or none for a token that never expires") from None
    if end <= now:
        raise UsageError(f"--expires {end:%Y-%m-%d %H:%M}: the token would have expired already")
    return end.replace(microsecond=0)


# --- the file --------------------------------------------------------------------------------------------------------


async def _change(path: Path, edit: Callable[[list[str]], None], *, create: bool = False) -> None:
    """Change the lines of a file under a lock.

    Raises:
        UsageError: The file is invalid, before or after the change, or cannot be written.
    """
    async with _locked(path.parent):
        _replace(path, edit, create=create)


def _replace(path: Path, edit: Callable[[list[str]], None], *, create: bool) -> None:
    """Write the changed file beside the old one and put it in its place, so that no reader sees a part.

    All other lines, comments included, stay as they are. The new file is for its user only.
    """
    text = HEADER if create and not path.exists() else read_tokens(path)[0]
    lines = text.splitlines(keepends=True)
    edit(lines)
    data = "".join(lines).encode()
    if len(data) > LONGEST_FILE:
        raise UsageError(f"{path} would be larger than {LONGEST_FILE} bytes; revoke tokens first")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(draft, data)
        read_tokens(draft)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(f"the file of tokens {path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # of a process with the same number that was killed
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


@asynccontextmanager
async def _locked(parent: Path) -> AsyncIterator[None]:
    """Lock the folder of a file: the file itself is replaced, and a lock of it would be of the old one.

    Raises:
        UsageError: The folder cannot be opened, or another program has the lock for too long.
    """
    try:
        folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"the folder {parent} cannot be opened: {error.strerror}") from error
    try:
        end = trio.current_time() + LOCK_SECONDS
        while not _try_lock(folder):
            if trio.current_time() > end:
                raise UsageError(f"another program has locked {parent}; try again")
            await trio.sleep(0.05)
        yield
    finally:
        os.close(folder)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
