"""A server whose disk is full: commands are refused in one clear sentence without a password, and nothing is lost."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trio

import greenroom as gr

from ...support.postgres import USER, Server
from .nodes import AGENTS
from .scenes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.no_cover]

CANARY = "swordfish-7d1f"
SMALL = 48 * 2**20
"""Bytes of the disk that becomes full."""
SLICE = 2**20


def with_password(server: Server) -> str:
    """The URL with a password, which the server does not ask for."""
    return server.url().replace(f"{USER}@", f"{USER}:{CANARY}@")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB; root may mount one."""
    folder = Path("/tmp") / f"greenroom-{tmp_path.name}-{os.getpid()}"  # noqa: S108 - the server's user can enter it
    folder.mkdir(mode=0o777)
    size = f"size={SMALL},mode=0777"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, check=False)
    try:
        if done.returncode:
            pytest.skip(f"no file system of its own: {done.stderr.decode().strip()}")
        yield folder
        subprocess.run(["umount", "-l", folder], check=False)
    finally:
        folder.rmdir()


async def test_a_full_disk_is_an_outage_that_ends_when_there_is_room(small_disk: Path, caplog):
    """Commands are refused within two seconds, no run is harmed, and everything continues once the disk has room."""
    with Server(durable=True) as server:
        space = small_disk / "space"
        space.mkdir()
        if server._as.get("user") is not None:
            os.chown(space, server._as["user"], server._as["group"])  # type: ignore[arg-type]
        with psycopg.connect(server.url().replace("/postgres", "/template1"), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
            connection.execute("ALTER DATABASE postgres SET TABLESPACE small")
        agent = AGENTS["asker"]()
        async with gr.open_runtime(with_password(server), agents=[agent]) as runtime:
            runs = [await runtime.start(agent, "go") for _ in range(5)]
            tickets = [(await run.wait()).tickets[0] for run in runs]
            filler = fill(server)
            with trio.fail_after(30):
                while True:
                    with trio.fail_after(2.5):
                        answer = await refused_start(runtime, agent)
                    if answer is not None:
                        break
            print(f"\n{answer}")  # noqa: T201
            assert CANARY not in f"{answer} {caplog.text}"
            filler.execute("DROP TABLE filler")
            filler.close()

            async def decided(run, ticket) -> bool:
                return (await run.decide(ticket.approve())).status in ("accepted", "duplicate")

            for run, ticket in zip(runs, tickets, strict=True):
                await eventually(lambda run=run, ticket=ticket: decided(run, ticket))
                assert isinstance(await run.result(), gr.Completed)


async def refused_start(runtime: gr.Runtime, agent: gr.Agent) -> str | None:
    """The sentence with which a start is refused; None if it is not."""
    try:
        await runtime.start(agent, "x" * 50_000)
    except gr.StoreUnavailable as error:
        return str(error)
    return None


def fill(server: Server) -> "psycopg.Connection":
    """Fill the disk; the connection drops the table that fills it."""
    connection = psycopg.connect(server.url(), autocommit=True)
    connection.execute("CREATE TABLE filler(body bytea)")
    connection.execute("ALTER TABLE filler ALTER body SET STORAGE EXTERNAL")
    for size in (SLICE, SLICE // 16, 4096):
        try:
            while True:
                connection.execute("INSERT INTO filler VALUES (%s)", (os.urandom(size),))
        except psycopg.errors.DiskFull:
            continue
    return connection
