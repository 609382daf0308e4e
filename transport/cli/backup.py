"""`greenroom backup`: copy a database into a new file, also while a server works on it."""

from __future__ import annotations

import argparse
from pathlib import Path

import trio

import greenroom as gr

from ..server.open_store import open_store
from ..terminal.open_screen import open_screen
from . import exits, places
from .prune import size_text


def backup(args: argparse.Namespace) -> int:
    """Copy a database."""
    database = places.kept(args)
    if not isinstance(database, Path):
        raise gr.UsageError(
            f"{database} is a shared store: copy it with pg_dump, and put the copy into use with `greenroom db adopt`"
        )
    trio.run(_copied, database, args.copy)
    size = args.copy.stat().st_size
    screen = open_screen(machine=args.json)
    screen.outcome({"database": str(database), "copy": str(args.copy), "bytes": size})
    screen.row(f"copied {database} to {args.copy}, {size_text(size)}")
    return exits.COMPLETED


async def _copied(database: Path, copy: Path) -> None:
    """Copy a file, which another process may have open.

    Raises:
        StoreOpenError: The database does not exist, or cannot be read.
        StoreError: The copy exists, or cannot be written.
    """
    store = gr.SQLiteStore(database, read_only=True)
    async with open_store(store):
        await store.backup(copy)
