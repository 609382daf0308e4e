"""Releases are exchanged under load, process by process, each from a wheel of its own that is built here.

Three releases: the last one before the fourth level of the tables, this one, and one that the test makes of it,
with one more migration and rows of a higher level, which this one cannot read. What is left behind is judged as after
the strikes of `test_swarm.py`, by a process of the newest release. What was counted is printed, with the seed.

| planted | found by |
|---|---|
| the level left out of the claims of older processes | `left_alone`: the token of a newer run moves |
| a migration that adds a column without default, which older ones do not write | `starts`: refused by an older one |
"""

import json
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from greenroom.actors.contract.codec import SCHEMA_VERSION
from greenroom.actors.stores.postgres._schema import PG_MIGRATIONS

from ...support.postgres import Server, need_binaries
from .releases import (
    Release,
    changed_copy,
    install,
    next_level,
    one_more_migration,
    tree_before_the_fourth_level,
)
from .scenes import PATIENCE, asked, client_of, ended, eventually, marks, opened, select
from .swarm import Process, Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.no_cover]

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
full_only = pytest.mark.skipif(not FULL, reason="shows that the scenes find bugs: `make chaos-postgres` runs it")
RUNS, AT_ONCE = (150, 20) if FULL else (30, 10)
LIMIT = 8
"""Runs of the queue that may work at once, over all processes."""
BETWEEN = 15 if FULL else 4
"""Runs that end between two exchanges."""
LONGEST = 4.0
"""Seconds between two exchanges of processes that read different rows."""
STEADY = {"lease": 30.0, "turn": 0.5, "margin": 8.0}
"""No process loses its lease, and each looks often what there is to do."""
KNOWN = len(PG_MIGRATIONS)
BESIDE = ("ALTER TABLE {s}.runs ADD COLUMN beside text",)
DEMANDING = (
    "ALTER TABLE {s}.runs ADD COLUMN beside text NOT NULL DEFAULT ''",
    "ALTER TABLE {s}.runs ALTER COLUMN beside DROP DEFAULT",
)


# --- releases --------------------------------------------------------------------------------------------------------


class Releases:
    """The releases, each built when it is first asked for."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._built: dict[str, Release] = {}

    def _install(self, name: str, version: str, source: Callable[[], Path], tests: Path | None = None) -> Release:
        if name not in self._built:
            self._built[name] = install(name, version, source(), self._folder, tests=tests or self._root)
        return self._built[name]

    def old(self) -> Release:
        """The last one before the fourth level; the test is skipped where the history does not have it."""
        tree = tree_before_the_fourth_level(self._root, self._folder) if "old" not in self._built else self._folder
        if isinstance(tree, str):
            pytest.skip(tree)
        return self._install("old", "0.0.1", lambda: tree, tree)

    def new(self) -> Release:
        """The present tree."""
        return self._install("new", "0.1.0", lambda: self._root)

    def _changed(self, name: str, *changes: dict[str, list[tuple[str, str]]]) -> Path:
        merged: dict[str, list[tuple[str, str]]] = {}
        for change in changes:
            for file, pairs in change.items():
                merged.setdefault(file, []).extend(pairs)
        return changed_copy(self._root, self._folder / f"{name}-source", merged)

    def later(self, name: str, statements: Sequence[str] = BESIDE, *, oldest: int = 1, level: bool = True) -> Release:
        """A release with one more migration, and with rows of a higher level if asked for."""
        changes = [one_more_migration(statements, oldest=oldest), *([next_level(SCHEMA_VERSION)] if level else [])]
        return self._install(name, "0.2.0", lambda: self._changed(name, *changes))


@pytest.fixture(scope="module")
def releases(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Releases:
    need_binaries()
    return Releases(root, tmp_path_factory.mktemp("releases"))


@pytest.fixture
def old(releases: Releases) -> Release:
    """The one before the fourth level. A skip in an async test would lose its reason."""
    return releases.old()


@pytest.fixture
def times() -> Mapping[str, float]:
    return STEADY


# --- what each scene does --------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Service:
    """Three processes that work and are gateways, people who use two of them, and a follower of the older release."""

    swarm: Swarm
    server: Server
    seed: int
    processes: list[Process]
    people: Process
    follower: Process
    claims: "Claims"

    async def more_ended(self, runs: int, *, at_most: float = math.inf) -> None:
        """Wait until some more runs have ended, or all of them; or for `at_most` seconds.

        All people may wait for the exchange of a gateway, which refuses their commands about newer runs until then.
        """
        before = self.swarm.count("ended")
        with trio.move_on_after(at_most):
            await eventually(lambda: self.swarm.count("ended") >= before + runs or not self.people.alive, 90)

    async def exchange(self, index: int, release: Release) -> Process:
        """End a process in order, and start one of another release in its place."""
        gone = self.processes[index]
        await trio.to_thread.run_sync(self.swarm.terminate, gone)
        assert gone.code == 0, self.swarm.errors()[-4000:]
        self.processes[index] = worker(self.swarm, release, index, port=gone.order["port"])
        await opened(self.swarm, self.processes[index])
        return self.processes[index]

    async def end(self, newest: Release) -> dict[str, int]:
        """Let everything end, and judge it; returns what was counted."""
        swarm = self.swarm
        (swarm.folder / "enough").touch()
        await eventually(lambda: not self.people.alive, 120)
        assert self.people.code == 0, swarm.errors()[-4000:]
        runs = int(self.people.words[-1])
        if self.follower.alive and self.follower.release == newest:
            await eventually(lambda: swarm.count("followed") >= runs)
        for process in (*self.processes, self.follower):
            if process.alive:
                await trio.to_thread.run_sync(swarm.terminate, process)
        verdict = json.loads(
            await trio.to_thread.run_sync(
                partial(
                    newest.run, "-m", "tests.e2e.postgres.judge", str(swarm.folder), self.server.url(), cwd=newest.tests
                )
            )
        )
        counts = ", ".join(f"{name} {times}" for name, times in verdict["counts"].items())
        strikes = ", ".join(f"{name} {times}" for name, times in swarm.strikes.items())
        print(f"\nseed {self.seed}: {strikes}; {counts}; {self.claims.seen} claims seen")  # noqa: T201
        assert not verdict["wrong"], verdict["wrong"][:10]
        assert self.claims.wrong == []
        assert select(self.server.url(), "SELECT coalesce(sum(crashes), 0)::int FROM greenroom.runs") == [(0,)]
        assert select(self.server.url(), "SELECT run_id FROM greenroom.runs WHERE stage = 'failed'") == []
        return dict(verdict["counts"])


def worker(swarm: Swarm, release: Release, index: int, **order: Any) -> Process:
    """A process that has agents and a gateway."""
    return swarm.gateway(f"{release.name}-{index}", release=release, agents=["worker", "asker"], **order)


@attrs.define(eq=False)
class Claims:
    """Watches who claims what, from outside.

    Attributes:
        seen: claims, of those that lasted for long enough to be seen.
        wrong: a sentence for each claim of a row that the process cannot read.
    """

    url: str
    seen: int = 0
    wrong: list[str] = attrs.field(factory=list)

    async def watch(self) -> None:
        """Look again and again; a row that had a level before its token moved was claimed with it."""
        known: dict[str, tuple[int, int]] = {}
        sql = (
            "SELECT r.run_id, r.token, r.level, p.name, p.level FROM greenroom.runs r"
            " LEFT JOIN greenroom.processes p ON p.number = r.owner WHERE r.ended_at IS NULL"
        )
        while True:
            for run_id, token, level, owner, reads in await trio.to_thread.run_sync(select, self.url, sql):
                before = known.get(run_id)
                known[run_id] = token, level
                if owner is None or before is None or before[0] == token:
                    continue
                self.seen += 1
                if before[1] > reads:
                    self.wrong.append(f"{owner} reads level {reads} and claimed {run_id} of level {before[1]}")
            await trio.sleep(0.02)


@asynccontextmanager
async def service(swarm: Swarm, server: Server, release: Release, seed: int) -> AsyncIterator[Service]:
    """A service of a release, under load."""
    processes = [worker(swarm, release, index) for index in range(3)]
    follower = swarm.node("follower", follow=True, release=release)  # of rows that it cannot read it learns by chance
    await opened(swarm, *processes, follower)
    select(server.url(), "INSERT INTO greenroom.queues(name, max_running) VALUES ('worker', %s) RETURNING 1", LIMIT)
    ports = [process.order["port"] for process in processes[:2]]
    people = swarm.spawn("people", people=True, ports=ports, runs=RUNS, at_once=AT_ONCE, seed=seed)
    claims = Claims(server.url())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(claims.watch)
        yield Service(swarm, server, seed, processes, people, follower, claims)
        nursery.cancel_scope.cancel()


async def starts(gateway: Process, name: str, patience: float = PATIENCE) -> None:
    """A run starts and ends at a process; a client that gets no answer sends the start again and again."""
    async with client_of(gateway) as client:
        with trio.move_on_after(patience) as limited:
            await client.start("asker", "go", run_id=name)
        assert not limited.cancelled_caught, f"{gateway.name} starts no run"
        ticket = await asked(client, name)
        await client.decide(name, ticket.approve())
        assert (await ended(client, name))[-1].type == "run.completed"


async def left_alone(swarm: Swarm, server: Server, edge: Process, name: str) -> int:
    """A run of a newer level is claimed by no process, though older ones have its agent and room; returns its level."""
    async with client_of(edge) as client:
        await client.start("asker", "go", run_id=name)
    sql = "SELECT owner, token, level FROM greenroom.runs WHERE run_id = %s"
    ((owner, token, level),) = before = select(server.url(), sql, name)
    assert owner is None
    await trio.sleep(4 * STEADY["turn"])
    assert select(server.url(), sql, name) == before, f"an older process claimed it (token {token})"
    assert marks(swarm.folder, run=name) == []
    return int(level)


# --- scenes ----------------------------------------------------------------------------------------------------------


async def test_the_release_before_the_fourth_level_is_exchanged_for_this_one(
    old: Release, releases: Releases, swarm: Swarm, server: Server, seed: int
):
    new = releases.new()
    versions = "import greenroom.actors.stores.postgres._schema as s; print(len(s.PG_MIGRATIONS))"
    assert [release.run("-c", versions).strip() for release in (old, new)] == ["2", str(KNOWN)]
    async with service(swarm, server, old, seed) as rolling:
        schema = "SELECT value::int FROM greenroom.about WHERE name = 'schema'"
        await rolling.more_ended(3)
        assert select(server.url(), schema) == [(2,)]
        for index in range(3):
            await rolling.exchange(index, new)
            assert select(server.url(), schema) == [(KNOWN,)]
            versions_seen = select(server.url(), "SELECT version FROM greenroom.processes ORDER BY number")
            assert set(versions_seen) == {("0.0.1",), ("0.1.0",)}
            if index < 2:
                await starts(rolling.processes[2], f"at-an-older-one-{index}")
            await rolling.more_ended(BETWEEN, at_most=LONGEST)
        counts = await rolling.end(new)
    wanted = sorted(index.name for migration in PG_MIGRATIONS[2:] for index in migration.indexes)
    valid = "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid"
    assert select(server.url(), f"{valid} AND c.relname = ANY(%s) ORDER BY 1", wanted) == [(name,) for name in wanted]
    assert counts.get("people asked about an effect in flight", 0) == 0
    assert "leaves the runs that newer processes have written to them" in swarm.errors()
    assert "Traceback" not in swarm.errors()


async def test_this_release_is_exchanged_for_one_with_another_level_and_leaves_its_rows_alone(
    releases: Releases, swarm: Swarm, server: Server, seed: int
):
    new, later = releases.new(), releases.later("later")
    async with service(swarm, server, new, seed) as rolling:
        await rolling.more_ended(3)
        edge = swarm.gateway("edge", release=later)  # without agents: its runs are for others to work on
        await opened(swarm, edge)
        level = await left_alone(swarm, server, edge, "left-alone")
        assert level == SCHEMA_VERSION + 1
        said = new.cli("db", "level", "--store", server.url()).stdout
        assert f"1 run of level {level}" in said
        assert all(f"{process_name(server, process)}" in said for process in rolling.processes)
        for index in range(3):
            newer = await rolling.exchange(index, later)
            if index < 2:
                await follows_and_is_refused(newer, rolling.processes[2], f"newer-{index}")
                await starts(rolling.processes[2], f"at-an-older-one-{index}")
            await rolling.more_ended(BETWEEN, at_most=LONGEST)
        async with client_of(newer) as client:
            ticket = await asked(client, "left-alone")
            await client.decide("left-alone", ticket.approve())
            assert (await ended(client, "left-alone"))[-1].type == "run.completed"
        await trio.to_thread.run_sync(swarm.terminate, edge)
        await rolling.end(later)
    assert "leaves the runs that newer processes have written to them" in swarm.errors()


def process_name(server: Server, process: Process) -> str:
    """The name of a process on the store."""
    return str(select(server.url(), "SELECT name FROM greenroom.processes WHERE pid = %s", process.pid)[0][0])


async def follows_and_is_refused(newer: Process, older: Process, name: str) -> None:
    """A gateway of the older release follows a newer run to its end, and decides nothing about it."""
    async with client_of(newer) as ahead, client_of(older) as behind:
        await ahead.start("asker", "go", run_id=name)
        ticket = await asked(ahead, name)
        refused = await behind.decide(name, ticket.approve())
        assert (refused.status, refused.code) == ("rejected", "store_unavailable"), refused
        assert "written by a newer release" in refused.detail
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ahead.decide, name, ticket.approve())
            assert (await ended(behind, name))[-1].type == "run.completed"


async def test_processes_of_a_release_that_is_too_old_for_the_tables_end_in_order(
    releases: Releases, swarm: Swarm, server: Server, seed: int
):
    new, later = releases.new(), releases.later("demanding", oldest=KNOWN + 1, level=False)
    sentence = f"needs a release of schema version {KNOWN + 1} or newer, and this release knows {KNOWN}"
    async with service(swarm, server, new, seed) as rolling:
        await rolling.more_ended(3)
        older = list(rolling.processes)
        swarm.node("first-demanding", release=later)
        await eventually(lambda: not any(process.alive for process in (*older, rolling.follower)), 60)
        assert [process.code for process in older] == [1, 1, 1]
        assert swarm.errors().count(sentence) >= 4
        again = worker(swarm, new, 9)
        await eventually(lambda: not again.alive)
        assert again.code == 3
        rolling.processes = [worker(swarm, later, index, port=gone.order["port"]) for index, gone in enumerate(older)]
        await opened(swarm, *rolling.processes)
        await rolling.end(later)


# --- planted bugs ----------------------------------------------------------------------------------------------------


@full_only
async def test_a_claim_without_the_level_is_found(releases: Releases, swarm: Swarm, server: Server):
    swarm.plants.append("the level left out of the claim")
    await opened(swarm, *(worker(swarm, releases.new(), index) for index in range(2)))
    edge = swarm.gateway("edge", release=releases.later("later"))
    await opened(swarm, edge)
    with pytest.raises(AssertionError, match="an older process claimed it"):
        await left_alone(swarm, server, edge, "left-alone")


@full_only
async def test_a_migration_beside_which_an_older_release_cannot_write_is_found(releases: Releases, swarm: Swarm):
    older = worker(swarm, releases.new(), 0)
    await opened(swarm, older)
    await starts(older, "before")
    await opened(swarm, swarm.node("careless", release=releases.later("careless", DEMANDING, level=False)))
    with pytest.raises(AssertionError, match="new-0 starts no run"):
        await starts(older, "after", patience=3.0)
    assert 'null value in column "beside"' in swarm.errors()
