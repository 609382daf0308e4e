"""The place of the runs: a SQLite file, or a shared store (a URL) that any number of processes have open."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import attrs

from greenroom.actors.abc import Store
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.errors import UsageError
from greenroom.actors.run.open_runtime import is_store_url, make_store

from . import paths

STORE: Final = "GREENROOM_STORE"
PASSWORD: Final = "PGPASSWORD"  # noqa: S105 - the name of a variable
PATIENCE: Final = 5.0
"""Seconds that a command of a person waits for a shared store that does not answer."""

_KEY_VALUE: Final = re.compile(r"\b(\w*password\w*)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']+)", re.IGNORECASE)


@attrs.frozen
class SharedStore:
    """A shared store.

    Attributes:
        url: its URL, or the key=value text; may hold a password.
        named: an option named it, so that commands for people have to name it, too; not the environment.
    """

    url: str = attrs.field(repr=False)
    named: bool = True

    def __str__(self) -> str:
        """Return the URL without a password."""
        if "://" not in self.url:
            return " ".join(_KEY_VALUE.sub("", self.url).split())
        try:
            parts = urlsplit(self.url)
            where = parts.netloc.rpartition("@")[2]
            user = "" if parts.username is None else f"{quote(unquote(parts.username))}@"
            fields = "&".join(part for part in parts.query.split("&") if "password" not in part.lower())
            return urlunsplit((parts.scheme, f"{user}{where}", parts.path, fields, ""))
        except ValueError:
            return self.url.partition("://")[0]

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords in the URL and in the environment, as far as they are long enough to be searched for."""
        found = [os.environ.get(PASSWORD) or ""]
        if "://" in self.url:
            with suppress(ValueError):
                parts = urlsplit(self.url)
                found += [parts.password or "", unquote(parts.password or "")]
                found += [value for name, value in parse_qsl(parts.query) if "password" in name.lower()]
            userinfo = self.url.partition("://")[2].partition("/")[0].rpartition("@")[0]
            found.append(userinfo.partition(":")[2])  # also of a URL that cannot be read
        else:
            found += [match[2].strip("'") for match in _KEY_VALUE.finditer(self.url)]
        return tuple(dict.fromkeys(filter(_searchable, found)))

    def opened(self, *, patience: float | None = PATIENCE, name: str | None = None) -> Store:
        """Return the store, not open yet. `name`: of the process.

        Raises:
            UsageError: the driver is missing, or the text is no URL of a store.
            StoreOpenError: the text cannot be read.
        """
        return make_store(self.url, patience=patience, name=name)


Place = Path | SharedStore


def _searchable(value: str) -> bool:
    if not value:
        return False
    try:
        Redactor([value])
    except ValueError:
        return False
    return True


def chosen(given: argparse.Namespace) -> Place | None:
    """Return the file or the store that the options name, else the store of the environment; None for neither.

    Raises:
        UsageError: the options contradict each other, or name no store.
        StoreOpenError: the file is a folder.
    """
    url = getattr(given, "store", None)
    if url is not None and given.db is not None:
        raise UsageError("--store names a shared store and --db a file; give one of them")
    if given.db is not None:
        return paths.database(given.db)
    named = url is not None
    url = url if named else os.environ.get(STORE) or None
    if url is None:
        return None
    if not is_store_url(url):
        where = "--store" if named else f"the variable {STORE}"
        raise UsageError(f"{where} is no URL of a store; write postgresql://user@host/database or service=NAME")
    return SharedStore(url, named)


def kept(given: argparse.Namespace) -> Place:
    """Return the file or the store that holds the runs; without one, the demo's database.

    Raises:
        UsageError, StoreOpenError: see `chosen`.
    """
    return chosen(given) or paths.database(None)


def options(place: Place) -> Sequence[str]:
    """Return the options that name a place, for commands that are shown; without a password."""
    if isinstance(place, Path):
        return ("--db", str(place))
    return ("--store", str(place)) if place.named else ()
