"""Commands about a store as a whole: `greenroom runs revive`, `greenroom queues` and `greenroom db`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import trio

import greenroom as gr
from greenroom.actors.contract.casing import wire_of
from greenroom.actors.processes import QueueInfo

from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen, complain
from . import exits, owner, places
from .command_target import CommandTarget, at_run, open_target
from .hidden import hidden_values
from .inspect import reading
from .owner import find_in_time
from .places import SharedStore

FIELDS: Final = ("name", "max_running", "paused", "ready", "working", "oldest", "scheduled", "later")
_WARNINGS: Final = ("warnings", "lacking", "fault")


# --- dead letters ----------------------------------------------------------------------------------------------------


def revive(args: argparse.Namespace) -> int:
    """Let a dead letter be claimed again."""
    if args.run_id is None:
        raise gr.UsageError("greenroom runs revive lacks the RUN_ID")
    return at_run(args, _revive)


async def _revive(target: CommandTarget, run_id: str, screen: Screen) -> int:
    revived = await target.access.revive_run(run_id)
    screen.outcome({"runId": run_id, "revived": revived})
    if not revived:
        complain(f"run {run_id} is no dead letter; `greenroom runs` marks those that are")
        return exits.FAILED
    screen.row(f"{run_id} may be claimed again", "good")
    return exits.COMPLETED


# --- queues ----------------------------------------------------------------------------------------------------------


def queues(args: argparse.Namespace) -> int:
    """List, limit, pause or resume queues."""
    screen = open_screen(machine=args.json, secrets=hidden_values(args))
    if args.action == "list":
        lines: Sequence[QueueInfo] = trio.run(_queues, args)
        for queue in lines:
            screen.outcome(wire_of(queue, FIELDS))
        for text, style in _listing(lines, datetime.now(UTC)):
            screen.row(text, style)
        return exits.COMPLETED
    queue = trio.run(_changed, args)
    screen.outcome(wire_of(queue, FIELDS))
    limit = "no limit" if queue.max_running is None else f"at most {queue.max_running} at once"
    screen.row(f"{text_format.one_line(queue.name, 80)}: {limit}{', paused' if queue.paused else ''}", "good")
    return exits.COMPLETED


async def _queues(args: argparse.Namespace) -> Sequence[QueueInfo]:
    if owner.named(args) is not None:
        async with open_target(owner.find(args)) as target:
            return await target.access.queues()
    async with reading(places.kept(args)) as store:
        return await store.queues()


async def _changed(args: argparse.Namespace) -> QueueInfo:
    async with open_target(await find_in_time(args)) as target:
        by_name = {queue.name: queue for queue in await target.access.queues()}
        before = by_name.get(args.name) or QueueInfo(name=args.name)
        limit = args.number if args.action == "limit" else before.max_running
        paused = before.paused if args.action == "limit" else args.action == "pause"
        await target.access.set_queue(args.name, max_running=limit, paused=paused)
        return next(queue for queue in await target.access.queues() if queue.name == args.name)


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


def db(args: argparse.Namespace) -> int:
    """Show the database of a shared store, migrate it, or adopt a copy."""
    args.db = None
    place = places.chosen(args)
    if not isinstance(place, SharedStore):
        raise gr.UsageError(f"greenroom db needs a shared store: add --store URL, or set {places.STORE}")
    from greenroom.actors.stores.postgres.admin import WATCHED, adopt, beats, level, migrate, show  # noqa: PLC0415 - its driver is an extra

    screen = open_screen(machine=args.json, secrets=hidden_values(args))

    # in a thread that Ctrl-C leaves behind: the server may not answer
    aside = partial(trio.to_thread.run_sync, abandon_on_cancel=True)

    async def facts_of() -> Mapping[str, Any]:
        if args.action != "adopt":
            return await aside({"show": show, "migrate": migrate, "level": level}[args.action], place.url)
        before = await aside(beats, place.url)
        if before:
            await trio.sleep(WATCHED)
        return await aside(adopt, place.url, before)

    facts = trio.run(facts_of)
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
