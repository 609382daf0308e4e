"""Finding who works on a run: a gateway that was named, the one of a database, or nobody.

A process that serves a database has written into its lock file where it can be talked to, and where its token is.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

import attrs
import trio

from greenroom.actors.errors import StoreOpenError, UsageError
from greenroom.actors.stores.sqlite import owner_of

from . import paths, tokens
from .hidden import hidden_values

URL: Final = "GREENROOM_URL"
TOKEN: Final = "GREENROOM_TOKEN"  # noqa: S105 - the name of a variable

PATIENCE: Final = 1.0
"""Seconds that a command waits for another one that has the database open: most of them have it for a moment."""
PAUSE: Final = 0.05
"""Seconds between two looks."""


@attrs.frozen(kw_only=True)
class ServedBy:
    """A gateway. database: the one that it serves, if it was found by that; None if it was named."""

    url: str
    token: str | None = attrs.field(repr=False)
    database: Path | None = None


@attrs.frozen(kw_only=True)
class Unowned:
    """A database that no process has open. secrets: values to be hidden while it is."""

    database: Path
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


class NoGateway(StoreOpenError):
    """A process works on the database, and can not be talked to."""


async def find_in_time(given: argparse.Namespace) -> ServedBy | Unowned:
    """`find`, for a command that others may be typed beside of: it waits until they have the database no more.

    Raises:
        UsageError, StoreOpenError: see `find`.
    """
    until = trio.current_time() + PATIENCE
    while True:
        try:
            return find(given)
        except NoGateway:
            if trio.current_time() >= until:
                raise
        await trio.sleep(PAUSE)


def find(given: argparse.Namespace) -> ServedBy | Unowned:
    """Who is to be asked about a run.

    What is typed goes before what the environment says, and without either it is the demo's database.

    Raises:
        UsageError: the options do not go together, or the token can not be read.
        StoreOpenError: there is no such database, or a process works on it that serves no gateway.
    """
    if given.url is not None and given.db is not None:
        raise UsageError("--url names a server and --db a file; give one of them")
    url = named(given)
    if url is not None:
        return ServedBy(url=url, token=_token(given) or os.environ.get(TOKEN) or None)
    database = paths.database(given.db)
    if not database.exists():
        way = "name one with --db, or a server with --url"
        raise StoreOpenError(f"there is no database {database}; {way}")
    owner = owner_of(database)
    if owner is None:
        return Unowned(database=database, secrets=hidden_values(given))
    if owner.url is None:
        who = f"process {owner.pid}" if owner.pid else "a process"
        raise NoGateway(
            f"{who} works on {database} and serves no gateway: answer in its terminal, or stop it and start "
            f"`{paths.program()} serve FILE.py:AGENT --db {database}`"
        )
    token = _token(given)
    if token is None:
        file = owner.token_file
        token = os.environ.get(TOKEN) or None if file is None else tokens.read(Path(file))
    return ServedBy(url=owner.url, token=token, database=database)


def named(given: argparse.Namespace) -> str | None:
    """The server that is named by what is typed, or else by the environment; None: it is a database."""
    return given.url if given.url is not None or given.db is not None else os.environ.get(URL) or None


def _token(given: argparse.Namespace) -> str | None:
    if given.token is not None and given.token_file is not None:
        raise UsageError("--token and --token-file both name a token; give one of them")
    if given.token_file is not None:
        return tokens.read(given.token_file)
    return given.token or None
