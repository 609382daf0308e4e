"""Discovery of a run's owner: a named gateway, the gateway of a database, or none.

A process that serves a database has written its address, and the path of its token file, into the lock file.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

import attrs
import trio

from greenroom.actors.errors import StoreOpenError, UsageError
from greenroom.actors.stores.sqlite.store import owner_of

from . import paths, places, tokens
from .hidden import hidden_values
from .places import Place, SharedStore

URL: Final = "GREENROOM_URL"
TOKEN: Final = "GREENROOM_TOKEN"  # noqa: S105 - the name of a variable

PATIENCE: Final = 1.0
"""Seconds that a command waits for other commands that have the database open, most of them only for a moment."""
PAUSE: Final = 0.05
"""Seconds between two attempts."""


@attrs.frozen(kw_only=True)
class ServedBy:
    """A gateway. `database` is the file whose lock file named the gateway; None if an option or a variable did."""

    url: str
    token: str | None = attrs.field(repr=False)
    database: Path | None = None


@attrs.frozen(kw_only=True)
class Stored:
    """A file that no process has open, or a shared store. `secrets` are the values to hide while it is open."""

    place: Place
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)


Owner = ServedBy | Stored


class NoGateway(StoreOpenError):
    """A process uses the database and serves no gateway."""


async def find_in_time(args: argparse.Namespace) -> Owner:
    """Do the same as `find`, but wait for concurrent commands that have the database open."""
    until = trio.current_time() + PATIENCE
    while True:
        try:
            return find(args)
        except NoGateway:
            if trio.current_time() >= until:
                raise
        await trio.sleep(PAUSE)


def find(args: argparse.Namespace) -> Owner:
    """Return the owner of a run's database, or the database itself; a shared store has no single owner.

    Options have precedence over the environment; without either, the demo's database is used.

    Raises:
        UsageError: The options contradict each other, or the token cannot be read.
        StoreOpenError: There is no such database, or a process that serves no gateway uses it.
    """
    url = named(args)
    if url is not None:
        if args.db is not None or args.store is not None:
            other = "--db a file" if args.db is not None else "--store a store"
            raise UsageError(f"--url names a server and {other}; give one of them")
        return ServedBy(url=url, token=_token(args) or os.environ.get(TOKEN) or None)
    database = places.kept(args)
    if isinstance(database, SharedStore):
        return Stored(place=database, secrets=hidden_values(args))
    if not database.exists():
        raise StoreOpenError(f"there is no database {database}; name one with --db, or a server with --url")
    owner = owner_of(database)
    if owner is None:
        return Stored(place=database, secrets=hidden_values(args))
    if owner.url is None:
        who = f"process {owner.pid}" if owner.pid else "a process"
        raise NoGateway(
            f"{who} works on {database} and serves no gateway of its own: answer in its terminal; if its web"
            " application has a gateway, give --url and --token; or stop it and start "
            f"`{paths.program()} serve FILE.py:AGENT --db {database}`"
        )
    token = _token(args)
    if token is None:
        token = os.environ.get(TOKEN) or None if owner.token_file is None else tokens.read(Path(owner.token_file))
    return ServedBy(url=owner.url, token=token, database=database)


def named(args: argparse.Namespace) -> str | None:
    """Return the server named by the options, or else by the environment; None for a database.

    The options of some commands name a database only.
    """
    if "url" not in args:
        return None
    if args.url is not None or args.db is not None or args.store is not None:
        url: str | None = args.url
        return url
    return os.environ.get(URL) or None


def _token(args: argparse.Namespace) -> str | None:
    token: str | None = getattr(args, "token", None)  # not all commands have the options
    file: Path | None = getattr(args, "token_file", None)
    if token is not None and file is not None:
        raise UsageError("--token and --token-file both name a token; give one of them")
    return tokens.read(file) if file is not None else token or None


def where(args: argparse.Namespace) -> list[str]:
    """Return the options that name the place, as typed, without a token."""
    store = None if args.store is None else SharedStore(args.store)
    url = None if args.url is None else args.url.partition("#")[0]
    return paths.flags({"--db": args.db, "--store": store, "--url": url, "--token-file": args.token_file})
