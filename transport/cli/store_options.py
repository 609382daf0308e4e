"""The options of the commands about a store: `greenroom queues` and `greenroom db`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Command = Callable[[Any, str, str, str], argparse.ArgumentParser]
Place = Callable[[Any], None]


def queues(commands: Any, command: Command, place: Place) -> None:
    """Add `greenroom queues`."""
    whole = command(commands, "queues", "list, limit and pause queues of runs", "List, limit and pause queues of runs.")
    actions = whole.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    listing = actions.add_parser("list", help="length, limit and oldest run of each queue")
    limit = actions.add_parser("limit", help="limit the runs of a queue that work at once, over all processes")
    pause = actions.add_parser("pause", help="claim no run of a queue")
    resume = actions.add_parser("resume", help="claim the runs of a queue again")
    for parser in (limit, pause, resume):
        parser.add_argument(
            "name", metavar="NAME", type=_queue, help="name of the queue: the agent's key, if start names no other"
        )
    limit.add_argument("number", metavar="N", type=_limit, help="1 or more, or none for no limit")
    for parser in (listing, limit, pause, resume):
        _common(parser, place)


def db(commands: Any, command: Command, place: Place) -> None:
    """Add `greenroom db`."""
    text = "Look at the database of a shared store, and keep it in order."
    whole = command(commands, "db", "look at the database of a shared store, migrate it", text)
    actions = whole.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    for name, summary in (
        ("show", "show server, schema, missing rights, replication and processes"),
        ("migrate", "create the tables, or bring them to this release"),
        ("level", "show the releases of the processes and the levels of the rows"),
        ("adopt", "put a copy of a database into use: a new epoch, and no claim of the original is valid"),
    ):
        _common(actions.add_parser(name, help=summary), place)


def _common(parser: argparse.ArgumentParser, place: Place) -> None:
    place(parser)
    parser.add_argument("--json", action="store_true", help="JSON")
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def _queue(text: str) -> str:
    if not text.isprintable() or " " in text or not 0 < len(text) <= 128:
        raise argparse.ArgumentTypeError(f"{text!r:.150} names no queue: a name has 1 to 128 characters, and no spaces")
    return text


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 1,000,000; write none for no limit")
    return int(text)
