"""The turns of processes on a real server: who is declared dead, what is freed and repaired, and the epoch."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from tests.support.postgres_rows import add_process, add_runs, column, tables

from greenroom.actors.contract import codec
from greenroom.actors.contract.decisions import Command
from greenroom.actors.stores.common._leases import LeaseTimes
from greenroom.actors.stores.common._process import Standing
from greenroom.actors.stores.postgres import _epoch as _pg_epoch
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._epoch import epoch
from greenroom.actors.stores.postgres._hints import PgHints, channel_prefix
from greenroom.actors.stores.postgres._lease import PgLease
from greenroom.actors.stores.postgres._schema import LEVEL
from greenroom.actors.stores.postgres._turn import PgProfile, TurnStatements, boot_time
from greenroom.actors.stores.postgres._write import ClaimBook
from greenroom.actors.testing.store_kit._tools import ReportLog

TIMES = LeaseTimes(lease=0.3, turn=0.05, margin=0.1)


class OfferedWork(PgHints):
    """Sends nothing, and keeps the agents of which it was to hint at work."""

    def work(self, agents: Sequence[str], *, hops: int = 0, elsewhere: bool = False) -> None:
        self.offered: list[str] = [*getattr(self, "offered", ()), *agents]


async def directly(function: Callable[[], Any]) -> Any:
    """Call a function in the calling task."""
    await trio.lowlevel.checkpoint()
    return function()


@attrs.define(eq=False)
class Process:
    """A process that takes its turns when it is told to."""

    link: Link
    name: str
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    log: ReportLog = attrs.field(factory=ReportLog)
    book: ClaimBook = attrs.field(factory=ClaimBook)
    statements: TurnStatements = attrs.field(init=False)
    hints: OfferedWork = attrs.field(init=False)
    lease: PgLease = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        profile = PgProfile(name=self.name, release="v", times=TIMES, answer=10.0)
        self.statements = TurnStatements(self.link, profile, listens=True, now=self.now)
        self.hints = OfferedWork(self.link, in_thread=directly)
        self.lease = PgLease(self.statements, self.hints, self.book, profile, directly)
        self.lease.report = self.log

    async def turn(self) -> int:
        """Take a turn; returns the number of the process."""
        await self.lease.take_turn()
        return self.statements.process

    async def turns(self, seconds: float) -> None:
        """Take turns for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.turn()
            await trio.sleep(TIMES.turn)


Peer = Callable[..., Process]


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    with tables(postgres_url) as link:
        yield link


@pytest.fixture
def peer(postgres_url: str, link: Link) -> Iterator[Peer]:
    with ExitStack() as stack:
        yield lambda name, **options: Process(stack.enter_context(tables(postgres_url)), name, **options)


def dead(link: Link) -> list[str]:
    """The names of the processes that were declared dead."""
    return [name for (name,) in link.execute("SELECT name FROM {s}.processes WHERE dead ORDER BY number")]


async def test_a_first_turn_registers_the_process_and_confirms_its_lease(link: Link, peer: Peer) -> None:
    before, a = boot_time(), peer("a")
    a.lease.room, a.lease.agents = 7, {"x": "digest"}
    await a.turn()
    assert before <= a.lease.machine.beat_sent <= boot_time()
    assert (a.lease.machine.standing, a.hints.alone, a.lease.machine.epoch) == (Standing.GOOD, True, "e")
    assert link.execute("SELECT name, room, level FROM {s}.processes") == [("a", 7, LEVEL)]
    assert link.execute("SELECT agent, digest FROM {s}.agents") == [("x", "digest")]


async def test_a_turn_beats_and_sees_the_others(link: Link, peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    await a.turn()
    a.lease.deaf = False
    await b.turn()
    assert (a.hints.alone, b.hints.alone) == (True, False)
    a.hints._unwritten, a.hints._watched = set(), {"r": None}  # type: ignore[dict-item]
    await a.turn()
    assert (a.hints.alone, a.hints._unwritten) == (False, {"r"}), "watches are written for the process that has joined"
    a.hints._unwritten, a.lease.room = set(), 3
    await a.turn()
    assert (a.hints.alone, a.hints._unwritten, a.lease.deaf) == (False, set(), False)
    assert link.execute("SELECT beat, room FROM {s}.processes WHERE name = 'a'") == [(3, 3)]
    assert abs(a.lease.offset) < 0.5


async def test_a_turn_measures_the_clock_of_the_server_against_that_of_the_machine(peer: Peer) -> None:
    late = peer("a", now=partial(later, timedelta(seconds=-40)))
    await late.turn()
    await late.turn()
    for offset, half in late.lease._samples:
        assert abs(offset - 40) <= half + 0.01 < 1


def later(by: timedelta) -> datetime:
    return datetime.now(UTC) + by


async def test_a_name_that_is_in_use_gets_a_drawn_part(peer: Peer) -> None:
    first, second = peer("a"), peer("a")
    await first.turn()
    await second.turn()
    assert first.lease.name == "a"
    assert second.lease.name.startswith("a.")


async def test_agents_that_a_process_lost_are_deleted(link: Link, peer: Peer) -> None:
    a = peer("a")
    for agents in ({"x": "1", "y": "1"}, {"y": "2", "z": "1"}):
        a.lease.agents = agents
        await a.turn()
    assert link.execute("SELECT agent, digest FROM {s}.agents ORDER BY 1") == [("y", "2"), ("z", "1")]


@pytest.mark.slow
async def test_a_process_whose_beat_stands_still_is_declared_dead_and_its_runs_are_free(link: Link, peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    number = await a.turn()
    add_runs(link, "r", 3, owner=number, status="running")
    await b.turns(0.2)
    assert dead(link) == []
    await b.turns(0.3)
    assert dead(link) == ["a"]
    assert set(column(link, "owner").values()) == {None}
    a.book.note("r1", 1, 1)
    assert await a.turn() != number
    assert (a.log.voids, a.lease.machine.standing, a.hints.process) == (1, Standing.GOOD, a.statements.process)
    assert a.book.tokens() == {}
    await a.turn()
    assert a.log.voids == 1


async def test_a_process_that_beats_after_the_look_is_not_declared_dead(link: Link, peer: Peer, monkeypatch) -> None:
    a, b = peer("a"), peer("b")
    number = await a.turn()
    await b.turn()
    before = b.lease.machine._watch.look

    def late(now: float, beats: Mapping[int, int]) -> Mapping[int, int]:
        before(now, beats)
        a.statements.beat(None, {})
        return beats

    monkeypatch.setattr(b.lease.machine._watch, "look", late)
    await b.turn()
    assert dead(link) == []
    assert await a.turn() == number


async def test_the_row_of_a_dead_process_is_forgotten_once_it_has_no_runs(link: Link, peer: Peer) -> None:
    """Not immediately: a process that was declared dead finds its row, and learns of it."""
    a, b = peer("a"), peer("b")
    a.lease.agents = {"x": "digest"}
    number = await a.turn()
    link.execute("INSERT INTO {s}.watches(run, process, until) VALUES (1, %s, now())", (number,))
    link.execute("UPDATE {s}.processes SET dead = true")
    add_runs(link, "r", 1, owner=number, status="running")
    await b.turn()
    await b.turn()
    names = "SELECT name FROM {s}.processes ORDER BY number"
    assert link.execute(names) == [("a",), ("b",)]
    b.lease.machine._remember = -1.0
    await b.turn()
    assert (link.execute(names), column(link, "owner")) == ([("b",)], {"r1": None})
    assert link.execute("SELECT agent FROM {s}.agents") == link.execute("SELECT run FROM {s}.watches") == []


async def test_a_process_whose_row_is_deleted_joins_again(link: Link, peer: Peer) -> None:
    """It was away for longer than others keep the row of a dead process."""
    a = peer("a")
    number = await a.turn()
    link.execute("DELETE FROM {s}.processes")
    assert await a.turn() > number
    assert (a.log.voids, a.lease.machine.standing) == (1, Standing.GOOD)


@pytest.mark.slow
async def test_a_watcher_that_was_away_declares_no_process_dead(link: Link, peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    await a.turn()
    await b.turns(0.2)
    await trio.sleep(0.5)  # longer than the lease
    await b.turns(0.2)
    assert dead(link) == []
    b.link.close()
    await b.turns(0.2)
    assert dead(link) == [], "nor does one with a new connection"


async def test_a_turn_after_the_lease_ran_out_gives_the_runs_back_before_it_beats(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = await a.turn()
    add_runs(link, "r", 2, owner=number, status="running")
    a.book.note("r1", 1, 1)
    assert a.lease.machine.lapse()
    await a.turn()
    assert (a.hints.offered, a.book.tokens(), a.lease.machine.standing) == (["a"], {}, Standing.GOOD)
    assert column(link, "owner") == {"r1": None, "r2": None}
    assert column(link, "crashes") == {"r1": 0, "r2": 0}
    assert all(token > 1 << 31 for token in column(link, "token").values())


async def test_a_lease_that_runs_out_during_a_beat_is_renewed_by_the_next_turn(link: Link, peer: Peer) -> None:
    a = peer("a")
    add_runs(link, "r", 1, owner=await a.turn(), status="running")
    beat = a.statements.beat

    def slow(room: int | None, agents: Mapping[str, str]) -> Any:
        a.lease.machine.lapse()
        return beat(room, agents)

    a.statements.beat = slow  # type: ignore[method-assign]
    assert await a.lease.take_turn(), "the next turn follows immediately"
    assert (a.lease.machine.standing, column(link, "owner")["r1"]) == (Standing.VOID, a.statements.process)
    a.statements.beat = beat  # type: ignore[method-assign]
    assert not await a.lease.take_turn()
    assert (a.lease.machine.standing, column(link, "owner")["r1"]) == (Standing.GOOD, None)


async def test_a_claim_that_no_actor_knows_is_given_back_after_a_second_look(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = await a.turn()
    add_runs(link, "known", 1, owner=number, token=5)
    add_runs(link, "lost", 1, owner=number, token=5)
    a.book.note("known1", 1, 5)
    owners = []
    for _ in range(6):
        await a.turn()
        owners.append(column(link, "owner")["lost1"])
    assert owners[0] == number
    assert owners[-1] is None
    assert column(link, "owner")["known1"] == number


async def test_known_claims_that_are_void_are_forgotten(link: Link, peer: Peer) -> None:
    """Of a run that another process has, of one that has ended, and of one with a newer claim."""
    a = peer("a")
    number = await a.turn()
    for name, owner in (("mine", number), ("older", number), ("taken", 999)):
        add_runs(link, name, 1, owner=owner, token=5)
    for run_id, token in {"mine1": 5, "older1": 4, "taken1": 5, "gone1": 5}.items():
        a.book.note(run_id, 1, token)
    for _ in range(3):
        await a.turn()
    assert a.book.tokens() == {"mine1": 5}


async def test_runs_of_processes_without_a_row_are_freed(link: Link, peer: Peer) -> None:
    add_runs(link, "r", 1, owner=999)
    a = peer("a")
    await a.turn()
    assert a.hints.offered == ["a"]
    assert column(link, "owner") == {"r1": None}


async def test_a_turn_finds_unread_commands_and_runs_that_their_threads_let_go(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = await a.turn()
    add_runs(link, "r", 3, owner=number)
    link.execute("UPDATE {s}.runs SET posted = 2, consumed = 1 WHERE run_id = 'r2'")
    link.execute("UPDATE {s}.runs SET held = true, thread = 1 WHERE run_id = 'r3'")
    for position in (1, 2):
        body = codec.dump(Command(command_id=f"c{position}", kind="cancel"))
        columns = "run, position, command_id, kind, nonce, body, answer"
        sql = f"INSERT INTO {{s}}.inbox({columns}) VALUES (2, %s, %s, '', 1, %s, '')"  # noqa: S608 - columns of ours
        link.execute(sql, (position, f"c{position}", body))
    for run_id in ("r1", "r3"):
        a.book.note(run_id, 1, 1)
        a.lease.machine.held.add(run_id)
    await a.turn()
    assert [(run_id, item.position, item.command.command_id) for run_id, item in a.log.items] == [("r2", 2, "c2")]
    assert (a.log.freed, a.lease.machine.held) == (["r1"], {"r3"})
    assert a.statements.unread([1, 3]) == []
    assert len(a.statements.unread([2])) == 1
    assert a.statements.freed([1, 2, 3]) == ["r1", "r2"]


async def test_a_process_that_leaves_takes_its_row_and_frees_its_runs(link: Link, peer: Peer) -> None:
    a = peer("a")
    a.lease.agents = {"x": "1"}
    number = await a.turn()
    add_runs(link, "r", 1, owner=number, status="running")
    await a.lease.leave()
    assert a.hints.offered == ["a"]
    assert (column(link, "owner"), column(link, "crashes")) == ({"r1": None}, {"r1": 0})
    assert link.execute("SELECT 1 FROM {s}.processes UNION ALL SELECT 1 FROM {s}.agents") == []


async def test_another_history_is_reported_once(link: Link, peer: Peer) -> None:
    a = peer("a")
    await a.turn()
    link.execute("UPDATE {s}.about SET value = 'another' WHERE name = 'epoch'")
    await a.turn()
    await a.turn()
    assert (a.log.epochs, a.lease.machine.epoch) == (["another"], "another")


def test_the_epoch_stays_while_the_server_is_the_same(link: Link) -> None:
    assert (epoch(link), epoch(link)) == ("e", "e")


def test_another_history_of_the_server_gets_one_new_epoch(link: Link, postgres_url: str) -> None:
    """As after a failover, in a restored backup or in a copy: the stored origin is another one."""
    epoch(link)
    link.execute("UPDATE {s}.about SET value = '7000/00000001/5' WHERE name = 'origin'")
    changed = epoch(link)
    assert changed != "e"
    with tables(postgres_url) as other:
        assert epoch(other) == changed
    ((origin,),) = link.execute("SELECT value FROM {s}.about WHERE name = 'origin'")
    system, timeline, database = origin.split("/")
    assert (timeline, int(system) > 0, int(database) > 0) == ("00000001", True, True)


def test_of_processes_that_find_another_history_at_once_one_names_it(
    link: Link, postgres_url: str, monkeypatch
) -> None:
    epoch(link)
    link.execute("UPDATE {s}.about SET value = '7000/00000001/5' WHERE name = 'origin'")
    found: list[str] = []

    def later() -> str:
        """Drawn by a process that has read the old origin; another one names the history before it writes."""
        monkeypatch.undo()
        with tables(postgres_url) as other:
            found.append(epoch(other))
        return "too late"

    monkeypatch.setattr(_pg_epoch, "new_epoch", later)
    assert [epoch(link)] == found
    assert found != ["e"]


def test_where_the_server_hides_its_identity_the_stored_epoch_counts(link: Link) -> None:
    link.execute("UPDATE {s}.about SET value = 'other' WHERE name = 'epoch'")
    link.execute("INSERT INTO {s}.about(name, value) VALUES ('origin', 'x')")
    add_process(link)
    link.execute("BEGIN")
    link.execute("CREATE ROLE blind_reader")
    link.execute("GRANT USAGE ON SCHEMA {s} TO blind_reader")
    link.execute("GRANT SELECT ON {s}.about TO blind_reader")
    link.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    link.execute("COMMIT")
    try:
        link.execute("SET ROLE blind_reader")
        assert epoch(link) == "other"
    finally:
        link.execute("RESET ROLE")
        link.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        link.execute("DROP OWNED BY blind_reader")
        link.execute("DROP ROLE blind_reader")


@pytest.mark.parametrize("value", [None, "", "x" * 9_000, 'a"; DROP', "\u00e4\u6f22"])
def test_the_name_of_a_channel_is_drawn_once_and_fits_into_63_bytes(link: Link, value: str | None) -> None:
    """Whatever another program has written into the row."""
    if value is not None:
        link.execute("INSERT INTO {s}.about(name, value) VALUES ('channels', %s)", (value,))
    prefix = channel_prefix(link)
    assert prefix == channel_prefix(link)
    assert link.target.schema not in prefix
    assert len(f"{prefix}{2**63}".encode()) <= 63
    link.execute(f'LISTEN "{prefix}{2**63}"')
    link.execute("UPDATE {s}.about SET value = 'another' WHERE name = 'channels'")
    assert channel_prefix(link) != prefix
