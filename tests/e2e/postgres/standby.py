"""A standby of a test's server, and its promotion."""

import subprocess
from typing import Self

import psycopg

from ...support.postgres import USER, Server, need_binaries

REPLICATING = {"wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on"}
"""Settings of a primary, and of its standby."""
REMOTE = "ANY 1 (*)"
"""`synchronous_standby_names`: a commit waits for the standby."""


class Standby(Server):
    """A standby that copies a primary's log from its start on; started by `with`."""

    def __init__(self, primary: Server) -> None:
        """Copy the primary, which runs with `REPLICATING`."""
        super().__init__(durable=True, settings=REPLICATING)
        data = self.folder / "data"
        subprocess.run(["rm", "-rf", data], check=True)
        command = [need_binaries() / "pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", USER]
        subprocess.run([*command, "-D", data, "-R", "-X", "stream", "-c", "fast"], check=True, **self._as)

    def __enter__(self) -> Self:
        self.start()
        return self

    def promote(self) -> None:
        """Make it a primary, with a timeline of its own; returns when it takes writes."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote(true)").fetchone() == (True,)
            connection.execute("CHECKPOINT")  # the new timeline is in the control file from here on


def wait_for_commits(primary: Server, *, remote: bool) -> None:
    """Let commits of the primary wait for its standby, or not."""
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{REMOTE if remote else ''}'".encode())
        connection.execute("SELECT pg_reload_conf()")
