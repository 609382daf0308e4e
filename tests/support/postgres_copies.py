"""Many runs at once in a database, as copies of the row of one that a runtime has made."""

from typing import Any

import psycopg


def copy_run(url: str, run_id: str, count: int, **columns: str) -> None:
    """Add `count` runs named RUN_ID-1, RUN_ID-2 and so on; `columns` have other values than the row, as SQL text.

    Only the rows of `runs` are copied: for what looks at runs by status, owner and queue, and does not load them.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'greenroom'"
            " AND table_name = 'runs' AND is_identity = 'NO' ORDER BY ordinal_position"
        )
        values = {name: f'"{name}"' for (name,) in rows.fetchall()}
        values |= {"run_id": "run_id || '-' || i", **columns}
        names = ", ".join(f'"{name}"' for name in values)
        source = f"SELECT {', '.join(values.values())} FROM greenroom.runs, generate_series(1, {count}) i"  # noqa: S608 - names of columns
        connection.execute(f"INSERT INTO greenroom.runs ({names}) {source} WHERE run_id = %s".encode(), (run_id,))
        connection.execute("VACUUM ANALYZE greenroom.runs")


def rest(url: str) -> None:
    """Let the server do nothing by itself: the transactions of its autovacuum count as any others."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        connection.execute("SELECT pg_reload_conf()")


def transactions(url: str) -> int:
    """How many transactions the server has ended; those of connections at rest are counted up to ten seconds late."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows: Any = connection.execute("SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database")
        return int(rows.fetchone()[0])
