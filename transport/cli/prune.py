"""`greenroom prune`: delete runs that ended long ago from a database, and return their space."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.stores.sqlite.store import owner_of

from ..client import connect
from ..server.open_store import open_store
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from . import exits, places
from .inspect import reading
from .owner import NoGateway, ServedBy, find_in_time
from .places import SharedStore

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def prune(args: argparse.Namespace) -> int:
    """Delete the runs that ended before a time."""
    try:
        before = datetime.now(UTC) - args.older_than
    except OverflowError as error:
        age = f"--older-than {args.older_than.days}d"
        raise gr.UsageError(f"{age} is before the year 1; give a shorter time") from error
    pruned = trio.run(_pruned, args, before)
    screen = open_screen(machine=args.json)
    counts = {"runs": pruned.runs, "messages": pruned.messages}
    sizes = {"freedBytes": pruned.freed, "reusableBytes": pruned.reusable}
    screen.outcome({**counts, **sizes, "before": before, "dryRun": args.dry_run})
    screen.row(_told(pruned, dry_run=args.dry_run))
    return exits.COMPLETED


def _told(pruned: gr.Pruned, *, dry_run: bool) -> str:
    if not pruned.runs and not pruned.freed:
        return "no run ended so long ago"
    what = f"{text_format.plural(pruned.runs, 'run')} and {text_format.plural(pruned.messages, 'message')}"
    if dry_run:
        return f"would delete {what}, some {size_text(pruned.freed)}"
    if not pruned.freed:
        return f"deleted {what}"
    return f"deleted {what}; the file is {size_text(pruned.freed)} smaller"


def size_text(size: int) -> str:
    """Format a number of bytes: three digits and a unit."""
    number, unit = float(size), 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.3g} {_UNITS[unit]}"


async def _pruned(args: argparse.Namespace, before: datetime) -> gr.Pruned:
    """Prune a store, or let the gateway do it that has the file open; with --dry-run, only look.

    Raises:
        StoreOpenError: The file does not exist, or a process has it open that serves no gateway.
    """
    if args.dry_run:
        async with reading(places.kept(args)) as store:
            return await store.prune(before, dry_run=True)
    try:
        owner = await find_in_time(args)
    except NoGateway as error:
        database = places.kept(args)
        pid = holder.pid if isinstance(database, Path) and (holder := owner_of(database)) is not None else 0
        who = f"process {pid}" if pid else "another process"
        raise gr.StoreOpenError(
            f"{database} is open in {who}, and one process owns a file: stop that one first, or let its program call "
            "`await runtime.store.prune(before)`; --dry-run looks without opening it"
        ) from error
    if isinstance(owner, ServedBy):
        async with connect(owner.url, token=owner.token) as client:
            return await client.prune(before)
    place = owner.place
    if isinstance(place, SharedStore):
        async with open_store(place.opened()) as store:
            return await store.prune(before)
    size = _size(place)
    async with open_store(gr.SQLiteStore(place)) as store:
        pruned = await store.prune(before)
    if pruned.reusable:  # from an older release: space is returned only by rewriting the file, once
        async with open_store(gr.SQLiteStore(place, compact=True)):
            pass
    return attrs.evolve(pruned, freed=max(0, size - _size(place)), reusable=0)


def _size(database: Path) -> int:
    wal = database.with_name(f"{database.name}-wal")
    return database.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
