"""The place of the runs: a SQLite file, or a shared store (a URL) that any number of processes have open."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

import attrs

from greenroom.actors.abc import Store
from greenroom.actors.contract.secrets.named_secrets import searchable
from greenroom.actors.errors import UsageError
from greenroom.actors.runtime.open_runtime import is_store_url, make_store

from . import paths

STORE: Final = "GREENROOM_STORE"
PASSWORD: Final = "PGPASSWORD"  # noqa: S105 - the name of a variable
PATIENCE: Final = 5.0
"""Seconds that a command of a person waits for a shared store that does not answer."""

_URL: Final = re.compile(r"\w+://")
_KEY_VALUE: Final = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'?|(?:[^\s'\\]|\\.)*)\s*")
_LISTEN: Final = "listen"
"""The field that has another address in it."""


@attrs.frozen
class SharedStore:
    """A shared store.

    Attributes:
        url: The URL, or the key=value text; may hold a password.
        named: An option named the store, not the environment, so that the commands shown to people name it, too.
    """

    url: str = attrs.field(repr=False)
    named: bool = True

    def __str__(self) -> str:
        """Return the URL without a password."""
        if _URL.match(self.url) is None:
            return _KEY_VALUE.sub(_kept, self.url).strip()
        scheme, _, rest = self.url.partition("://")
        server, mark, query = rest.partition("?")
        user, at, where = server.rpartition("@")
        if not at and "@" in query and _LISTEN not in query:  # the password has a question mark
            return scheme
        fields = "&".join(field for part in query.split("&") if (field := _field(part)))
        return f"{scheme}://{user.partition(':')[0]}{at}{where}{fields and mark}{fields}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords in the URL and in the environment, as far as they are long enough to be searched for."""
        passwords = [os.environ.get(PASSWORD) or "", *_passwords(self.url)]
        return tuple(dict.fromkeys(filter(searchable, passwords)))

    def opened(self, *, patience: float | None = PATIENCE, name: str | None = None) -> Store:
        """Return the store, not open yet. `name` is that of the process.

        Raises:
            UsageError: the driver is missing, or the text is not the URL of a store.
            StoreOpenError: the text cannot be read.
        """
        return make_store(self.url, patience=patience, name=name)


Place = Path | SharedStore


def _kept(match: re.Match[str]) -> str:
    """Return a field of a key=value text as it may be shown; "" for a password."""
    name, value = match.groups()
    if "password" in name.lower():
        return ""
    if name != _LISTEN:
        return match.group()
    address = str(SharedStore(_bare(value)))
    return "listen='{}' ".format(re.sub(r"(['\\])", r"\\\1", address))


def _field(part: str) -> str:
    """Return a field of a URL as it may be shown; "" for a password."""
    name, _, value = part.partition("=")
    if "password" in name.lower():
        return ""
    return f"{name}={quote(str(SharedStore(unquote(value))), safe=':/@=')}" if name == _LISTEN else part


def _bare(value: str) -> str:
    """Return a value of a key=value text without quotes and escapes."""
    return re.sub(r"\\(.)", r"\1", value.removeprefix("'").removesuffix("'") if value.startswith("'") else value)


def _passwords(url: str) -> Iterator[str]:
    """Yield the passwords of an address, and of the address for hints in it."""
    if _URL.match(url) is None:
        fields = [(match[1], _bare(match[2])) for match in _KEY_VALUE.finditer(url)]
    else:
        server, _, query = url.partition("://")[2].partition("?")
        password = server.rpartition("@")[0].partition(":")[2]
        yield from (password, unquote(password))
        fields = parse_qsl(query)
    for name, value in fields:
        if "password" in name.lower():
            yield value
        elif name == _LISTEN:
            yield from _passwords(value)


def chosen(args: argparse.Namespace) -> Place | None:
    """Return the file or the store that the options name, else the store of the environment; None for neither.

    Raises:
        UsageError: the options contradict each other, or name no store.
        StoreOpenError: the file is a folder.
    """
    url = getattr(args, "store", None)
    if url is not None and args.db is not None:
        raise UsageError("--store names a shared store and --db a file; give one of them")
    if args.db is not None:
        return paths.database(args.db)
    is_option = url is not None
    url = url if is_option else os.environ.get(STORE) or None
    if url is None:
        return None
    if not is_store_url(url):
        where = "--store" if is_option else f"the variable {STORE}"
        raise UsageError(f"{where} is no URL of a store; write postgresql://user@host/database or service=NAME")
    return SharedStore(url, is_option)


def kept(args: argparse.Namespace) -> Place:
    """Return the file or the store that holds the runs; without one, the demo's database.

    Raises:
        UsageError, StoreOpenError: see `chosen`.
    """
    return chosen(args) or paths.database(None)


def options(place: Place) -> Sequence[str]:
    """Return the options that name a place, for commands that are shown; without a password."""
    if isinstance(place, Path):
        return ("--db", str(place))
    return ("--store", str(place)) if place.named else ()
