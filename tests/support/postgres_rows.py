"""Rows of runs and processes, written straight into the tables, for tests of single statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._schema import migrate
from greenroom.actors.stores.postgres._target import PgTarget

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
_RUNS = """INSERT INTO {s}.runs(run_id, thread, agent, status, stage, step, last_seq, token, held, queue, ready_at,
  rank, level, created_at, title, search, started_by, info, row)
SELECT %s || i, i, 'a', 'created', 'created', 0, 1, 1, false, 'a', %s, %s, 1, %s, '', '', 'x', '', ''
FROM generate_series(1, %s::int) i"""


@contextmanager
def tables(url: str) -> Iterator[Link]:
    """A connection to a schema with its tables."""
    link = Link(PgTarget.parse(url), "test")
    try:
        migrate(link, link.target.schema, make_epoch=lambda: "e")
        yield link
    finally:
        link.close()


def add_process(link: Link, name: str = "p") -> int:
    """A live process; returns its number."""
    sql = (
        "INSERT INTO {s}.processes(name, host, pid, version, level, room, started_at)"
        " VALUES (%s, 'h', 1, 'v', 1, 10, %s) RETURNING number"
    )
    return int(link.execute(sql, (name, NOON))[0][0])


def add_runs(link: Link, name: str = "r", count: int = 1, *, after: float = 0.0, **columns: Any) -> None:
    """Runs `name` 1 to `count`, ready `after` seconds after NOON, with other values in the given columns."""
    ready = NOON + timedelta(seconds=after)
    link.execute(_RUNS, (name, ready, ready, NOON, count))
    for column, value in columns.items():
        sql = f"UPDATE {{s}}.runs SET {column} = %s WHERE run_id LIKE %s"  # noqa: S608 - a column of ours
        link.execute(sql, (value, f"{name}%"))


def column(link: Link, name: str) -> dict[str, Any]:
    """One column of all runs, by run id."""
    return dict(link.execute(f"SELECT run_id, {name} FROM {{s}}.runs ORDER BY number"))  # noqa: S608 - a column of ours
