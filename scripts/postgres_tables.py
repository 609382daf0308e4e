"""The tables of a store in PostgreSQL as a table of Markdown, read from the statements that make them."""

import re
from typing import Final

from greenroom.actors.stores.postgres._schema import PG_MIGRATIONS

PURPOSES: Final = {
    "about": "version of the schema, epoch of the logs, the server's identity",
    "processes": "one row per open store: its beat and when that came, room, level, and workspaces with their places",
    "agents": "which process has which agents",
    "queues": "limits and pauses; a row appears with the first run of a queue",
    "threads": "one row per thread, which orders its runs",
    "messages": "the messages of threads, in order",
    "parts": "the bytes of images and files, once per thread and digest",
    "runs": "one row per run: its state, owner and place in its queue",
    "events": "the logs: encoded events by run and sequence",
    "record": "the inputs of each run's machine, for replay",
    "calls": "the tool calls of runs",
    "tickets": "the open and decided questions of runs",
    "inbox": "the accepted commands of runs, in order",
    "state": "the state keys of runs and threads, one row per key and step",
    "pruned": "ids of deleted runs, which stay in use",
    "members": "facts of deleted runs whose messages are left in a thread",
    "garbage": "deleted runs whose rows in other tables are still to be deleted",
    "watches": "which process follows runs of others (unlogged: lost in a crash of the server, and written again)",
    "stored_values": "values beside the runs, such as remembered rules",
}
"""Table -> its purpose."""

_TABLE: Final = re.compile(r"CREATE (?:UNLOGGED )?TABLE \{s\}\.(\w+)\((.*?)\)(?:\s+WITH \(.*\))?\s*$", re.DOTALL)
_COLUMN: Final = re.compile(r"ALTER TABLE \{s\}\.(\w+) ADD COLUMN (?:IF NOT EXISTS )?(\w+)")
_CONSTRAINTS: Final = ("PRIMARY", "UNIQUE", "CHECK")


def columns() -> dict[str, list[str]]:
    """Table -> its columns, after all migrations."""
    tables: dict[str, list[str]] = {}
    for migration in PG_MIGRATIONS:
        for statement in migration.statements:
            if creation := _TABLE.match(statement):
                parts = re.split(r",\s*(?![^(]*\))", creation[2])
                tables[creation[1]] = [
                    words[0] for part in parts if not (words := part.split())[0].startswith(_CONSTRAINTS)
                ]
            if column := _COLUMN.match(statement):
                tables[column[1]].append(column[2])
    return tables


def table() -> str:
    """The tables, their purposes and their columns."""
    lines = ["| table | content | columns |", "|---|---|---|"]
    lines += [f"| {name} | {PURPOSES[name]} | {', '.join(names)} |" for name, names in columns().items()]
    return "\n".join(lines)
