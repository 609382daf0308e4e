"""Commands about a store as a whole: `greenroom runs revive`, `greenroom queues` and `greenroom db`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.processes import QueueInfo

from ..client import connect
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen, complain
from . import exits, owner, places
from .command_target import GatewayTarget
from .hidden import hidden_values
from .inspect import opened, reading, whole_id
from .owner import ServedBy, Shared, Unowned, find_in_time
from .places import Place, SharedStore

T = TypeVar("T")

_WARNINGS: Final = ("warnings", "lacking", "fault")


@asynccontextmanager
async def writing(place: Place) -> AsyncIterator[Store]:
    """Open a file, which no other process may have open, or a shared store, for a change of the store itself.

    Raises:
        StoreOpenError: The file or the store cannot be opened.
    """
    if isinstance(place, Path) and not place.exists():
        raise gr.StoreOpenError(f"there is no database {place}; name one with --db, or a store with --store")
    async with opened(gr.SQLiteStore(place) if isinstance(place, Path) else place.opened()) as store:
        yield store


class QueueHome(Protocol):
    """What has queues and dead letters: a store, or the gateway that has it open."""

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues, by name."""

    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        """Limit a queue, or pause it."""

    async def revive_run(self, run_id: str) -> bool:
        """Let a dead letter be claimed again; False if the run is none."""


@asynccontextmanager
async def _home(place: ServedBy | Unowned | Shared) -> AsyncIterator[tuple[QueueHome, Callable[[str], Awaitable[str]]]]:
    """Open what has the queues for a change, and the function that completes the beginning of a run's id.

    Raises:
        ConnectError: The gateway does not answer, or refuses.
        StoreOpenError: The file or the store cannot be opened.
    """
    if isinstance(place, ServedBy):
        async with connect(place.url, token=place.token) as client:
            yield client, GatewayTarget(client).whole_id
        return
    async with writing(place.store if isinstance(place, Shared) else place.database) as store:
        yield store, partial(whole_id, store)


# --- dead letters ----------------------------------------------------------------------------------------------------


def revive(given: argparse.Namespace) -> int:
    """Let a dead letter be claimed again.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    if given.run_id is None:
        raise gr.UsageError("greenroom runs revive lacks the RUN_ID")
    run_id, revived = trio.run(_revive, given)
    screen = open_screen(machine=given.json, secrets=hidden_values(given))
    screen.outcome({"runId": run_id, "revived": revived})
    if not revived:
        complain(f"run {run_id} is no dead letter; `greenroom runs` marks those that are")
        return exits.FAILED
    screen.row(f"{run_id} may be claimed again", "good")
    return exits.COMPLETED


async def _revive(given: argparse.Namespace) -> tuple[str, bool]:
    async with _home(await find_in_time(given, remote=False)) as (home, whole):
        run_id = await whole(given.run_id)
        return run_id, await home.revive_run(run_id)


# --- queues ----------------------------------------------------------------------------------------------------------


def queues(given: argparse.Namespace) -> int:
    """List, limit, pause or resume queues.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    screen = open_screen(machine=given.json, secrets=hidden_values(given))
    if given.action == "list":
        lines: Sequence[QueueInfo] = trio.run(_queues, given)
        for queue in lines:
            screen.outcome(_plain(queue))
        for text, style in _listing(lines, datetime.now(UTC)):
            screen.row(text, style)
        return exits.COMPLETED
    queue = trio.run(_changed, given)
    screen.outcome(_plain(queue))
    limit = "no limit" if queue.max_running is None else f"at most {queue.max_running} at once"
    screen.row(f"{text_format.one_line(queue.name, 80)}: {limit}{', paused' if queue.paused else ''}", "good")
    return exits.COMPLETED


async def _queues(given: argparse.Namespace) -> Sequence[QueueInfo]:
    if owner.named(given) is not None:
        async with _home(owner.find(given)) as (home, _):
            return await home.queues()
    async with reading(places.kept(given)) as store:
        return await store.queues()


async def _changed(given: argparse.Namespace) -> QueueInfo:
    async with _home(await find_in_time(given)) as (home, _):
        known = {queue.name: queue for queue in await home.queues()}
        before = known.get(given.name) or QueueInfo(name=given.name)
        limit = given.number if given.action == "limit" else before.max_running
        paused = before.paused if given.action == "limit" else given.action == "pause"
        await home.set_queue(given.name, max_running=limit, paused=paused)
        return next(queue for queue in await home.queues() if queue.name == given.name)


def _plain(queue: QueueInfo) -> dict[str, Any]:
    return {
        "name": queue.name,
        "maxRunning": queue.max_running,
        "paused": queue.paused,
        "ready": queue.ready,
        "working": queue.working,
        "oldest": queue.oldest,
        "scheduled": queue.scheduled,
        "later": queue.later,
    }


def _listing(lines: Sequence[QueueInfo], now: datetime) -> list[tuple[str, Any]]:
    if not lines:
        return [("no queues", "dim")]
    names = [text_format.one_line(queue.name, 40) for queue in lines]
    width = max(5, *map(text_format.columns, names))
    heads = f"{'queue':<{width}}  {'ready':>7}  {'later':>7}  {'working':>7}  {'limit':>7}  oldest"
    rows: list[tuple[str, Any]] = [(heads, "dim")]
    for name, queue in zip(names, lines, strict=True):
        limit = "-" if queue.max_running is None else f"{queue.max_running:,}"
        oldest = "-" if queue.oldest is None else text_format.duration(max(1.0, (now - queue.oldest).total_seconds()))
        paused = "  paused" if queue.paused else ""
        numbers = f"{queue.ready:>7,}  {queue.scheduled:>7,}  {queue.working:>7,}  {limit:>7}  {oldest}{paused}"
        rows.append((f"{text_format.padded(name, width)}  {numbers}", "warn" if queue.paused else ""))
    return rows


# --- the database ----------------------------------------------------------------------------------------------------


def db(given: argparse.Namespace) -> int:
    """Show the database of a shared store, migrate it, or adopt a copy.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    given.db = None
    place = places.chosen(given)
    if not isinstance(place, SharedStore):
        raise gr.UsageError(f"greenroom db needs a shared store: add --store URL, or set {places.STORE}")
    from greenroom.actors.stores.postgres.admin import WATCHED, adopt, beats, level, migrate, show  # noqa: PLC0415 - its driver is an extra

    screen = open_screen(machine=given.json, secrets=hidden_values(given))

    async def aside(function: Callable[..., T], *arguments: object) -> T:
        """Call a function in a thread that Ctrl-C leaves behind: the server may not answer."""
        return await trio.to_thread.run_sync(function, *arguments, abandon_on_cancel=True)

    async def adopted() -> Mapping[str, Any]:
        before = await aside(beats, place.url)
        if before:
            await trio.sleep(WATCHED)
        return await aside(adopt, place.url, before)

    if given.action == "adopt":
        facts = trio.run(adopted)
    else:
        facts = trio.run(aside, {"show": show, "migrate": migrate, "level": level}[given.action], place.url)
    screen.outcome(dict(facts))
    _told(facts, screen)
    return exits.STORE if facts.get("lacking") or facts.get("fault") else exits.COMPLETED


def _told(facts: Mapping[str, Any], screen: Screen) -> None:
    for name, value in facts.items():
        style: Any = "warn" if name in _WARNINGS else ""
        if isinstance(value, list | tuple):
            for line in value:
                text = line if isinstance(line, str) else "  ".join(f"{key} {part}" for key, part in line.items())
                screen.row(f"{name}: {text_format.clean(text)}", style)
        elif value is not None:
            screen.row(f"{name}: {text_format.clean(str(value))}", style)
