"""Two gateways on one database, which a test kills, and the truth about a run."""

import http.client
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ...support.ports import free_port
from ..cli_kit import Cli

T = TypeVar("T")

TOKEN = "the-token-of-all-doors"
PATIENCE = 60.0
"""Seconds after which a door is informed that what it waits for never comes."""
TERMINAL = ("run.completed", "run.failed", "run.cancelled")
AGAIN = (OSError, http.client.HTTPException)
"""What a client of a gateway that was killed gets."""


def pause() -> None:
    """Let the other processes work."""
    threading.Event().wait(0.03)


def until(look: Callable[[], T | None]) -> T:
    """Return what is there once something is; a gateway that is killed meanwhile is asked again."""
    for _ in range(int(PATIENCE / 0.03)):
        try:
            found = look()
        except AGAIN:
            found = None
        if found is not None:
            return found
        pause()
    raise AssertionError(f"{look} has not come true")


class Gateway:
    """One of the gateways; the same port in all lives."""

    def __init__(self, nest: "subprocess.Popen[str]") -> None:
        self._nest, self.port, self._pid = nest, free_port(), 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert self._nest.stdin is not None
        assert self._nest.stdout is not None
        self._nest.stdin.write(f"{self.port} {TOKEN}\n")
        self._nest.stdin.flush()
        word, _, pid = self._nest.stdout.readline().partition(" ")
        assert word == "ready", "the gateway does not start; what it said is above"
        self._pid = int(pid)

    def kill(self) -> None:
        """Kill -9; returns when it is dead."""
        if self._pid:
            alive = os.pidfd_open(self._pid)
            os.kill(self._pid, signal.SIGKILL)
            select.select([alive], [], [], PATIENCE)
            os.close(alive)
            self._pid = 0

    def ask(self, method: str, path: str, body: Any = None, *, name: str | None = None) -> tuple[int, Any]:
        """One request of the gateway's own API: status and answer.

        Raises:
            OSError, HTTPException: The gateway was killed.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Idempotency-Key": name} if name else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as response:
            data = json.loads(response.read())
        connection.close()
        return response.status, data


class House:
    """The gateways, and what else has the store open: the command line.

    Attributes:
        effects: The file that is the world outside.
    """

    def __init__(self, folder: Path, store: str, nest: "subprocess.Popen[str]", cli: Cli) -> None:
        self.folder, self.store, self.cli = folder, store, cli
        self.gateways = [Gateway(nest), Gateway(nest)]

    def view(self, run: str) -> dict[str, Any]:
        """The snapshot of a run, at any gateway."""
        return until(lambda: self._found(f"/v1/runs/{run}"))

    def is_open(self, run: str, ticket: str) -> bool:
        """Whether a ticket has no decision yet."""
        return any(one["ticketId"] == ticket for one in self.view(run)["tickets"])

    def log(self, run: str, gateway: Gateway) -> list[dict[str, Any]]:
        """All events of a run."""
        found = until(lambda: self._found(f"/v1/runs/{run}/events?limit=1000", gateway))
        events: list[dict[str, Any]] = found["events"]
        return events

    def _found(self, path: str, gateway: Gateway | None = None) -> Any:
        status, data = (gateway or self.gateways[0]).ask("GET", path)
        return data if status == 200 else None

    @contextmanager
    def killing(self, lot: random.Random) -> Iterator[None]:
        """Kill a gateway, in most blocks: before the block, or while it works; the next life begins."""
        gateway, moment = lot.choice(self.gateways), lot.choice([None, 0.0, lot.uniform(0.0, 0.1)])

        def strike() -> None:
            gateway.kill()
            gateway.start()

        timer = threading.Timer(moment or 0.0, strike)
        if moment is not None:
            timer.start()
        if moment == 0.0:
            timer.join()
        yield
        if moment is not None:
            timer.join()

    def stored(self) -> str:
        """All rows of all tables, as text."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.store.partition("?")[0]) as connection:
            schema = self.store.rpartition("schema=")[2]
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
            rows = [
                value
                for (table,) in found.fetchall()
                for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
                for value in row
            ]
        return " ".join(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in rows)

    def effects(self, run: str) -> int:
        """How often the money of a run was paid back."""
        path = self.folder / "effects.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(line.partition(" ")[0] == run for line in lines)


@contextmanager
def house(folder: Path, root: Path, store: str) -> Iterator[House]:
    """The house, for the time of the block."""
    (folder / "token").write_text(TOKEN)
    environment = {**os.environ, "DOORS_EFFECTS": str(folder / "effects.log")}
    cli = Cli(root / "tests" / "e2e" / "doors", folder / "state")
    cli.env |= environment | {"GREENROOM_STORE": store}
    command = [sys.executable, "-m", "tests.e2e.doors.server", store]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=root, env=environment, **pipes) as nest:
        built = House(folder, store, nest, cli)
        try:
            for gateway in built.gateways:
                gateway.start()
            yield built
        finally:
            for gateway in built.gateways:
                gateway.kill()
            assert nest.stdin is not None
            nest.stdin.close()
