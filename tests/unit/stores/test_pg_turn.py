"""The turns of processes on a real server: who is declared dead, what is freed and repaired, and the epoch."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from tests.support.postgres_rows import add_process, add_runs, column, tables

from greenroom.actors.contract import codec
from greenroom.actors.contract.decisions import Command
from greenroom.actors.stores.common._leases import LeaseTimes
from greenroom.actors.stores.postgres import _epoch as _pg_epoch
from greenroom.actors.stores.postgres import _turn as _pg_turn
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._epoch import epoch
from greenroom.actors.stores.postgres._hints import channel_prefix
from greenroom.actors.stores.postgres._schema import LEVEL
from greenroom.actors.stores.postgres._turn import PgTurn, Posture, boot_time

TIMES = LeaseTimes(lease=0.3, turn=0.05, margin=0.1)
Peer = Callable[..., PgTurn]


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    with tables(postgres_url) as link:
        yield link


@pytest.fixture
def peer(postgres_url: str, link: Link) -> Iterator[Peer]:
    with ExitStack() as stack:

        def make(name: str) -> PgTurn:
            own = stack.enter_context(tables(postgres_url))
            return PgTurn(own, TIMES, name=name, version="v", listens=True, repair=lambda link: ())

        yield make


def turns(peer: PgTurn, seconds: float, posture: Posture | None = None) -> list[str]:
    """Take turns for a while; the names of those that were declared dead."""
    until, declared = time.monotonic() + seconds, list[str]()
    while time.monotonic() < until:
        declared += peer.turn(posture or Posture()).buried
        time.sleep(TIMES.turn)  # noqa: TID251 - the beats of real processes
    return declared


def test_a_first_turn_registers_the_process_and_confirms_its_lease(link: Link, peer: Peer) -> None:
    before = boot_time()
    turned = peer("a").turn(Posture(room=7, agents={"x": "digest"}))
    assert before <= turned.sent <= boot_time()
    assert (turned.declared_dead, turned.others, turned.epoch) == (False, frozenset(), "e")
    assert link.execute("SELECT name, room, level FROM {s}.processes") == [("a", 7, LEVEL)]
    assert link.execute("SELECT agent, digest FROM {s}.agents") == [("x", "digest")]


def test_a_turn_beats_and_sees_the_others(link: Link, peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    a.turn(Posture())
    assert b.turn(Posture()).others == {1}
    joined = a.turn(Posture())
    assert (joined.others, joined.joined) == ({2}, True)
    turned = a.turn(Posture(room=3))
    assert (turned.others, turned.joined, turned.reconnected) == ({2}, False, False)
    assert link.execute("SELECT beat, room FROM {s}.processes WHERE name = 'a'") == [(2, 3)]
    assert abs(turned.offset[0]) < 0.5 > turned.offset[1]


def test_a_turn_measures_the_clock_of_the_server_against_that_of_the_machine(link: Link) -> None:
    now = partial(later, timedelta(seconds=-40))
    late = PgTurn(link, TIMES, name="a", version="v", listens=True, repair=lambda link: (), now=now)
    for offset, half in (late.turn(Posture()).offset, late.turn(Posture()).offset):  # the first one has no row to read
        assert abs(offset - 40) <= half + 0.01 < 1


def later(by: timedelta) -> datetime:
    return datetime.now(UTC) + by


def test_a_name_that_is_in_use_gets_a_drawn_part(peer: Peer) -> None:
    first, second = peer("a"), peer("a")
    first.turn(Posture())
    second.turn(Posture())
    assert first.name == "a"
    assert second.name.startswith("a.")


def test_agents_that_a_process_lost_are_deleted(link: Link, peer: Peer) -> None:
    a = peer("a")
    a.turn(Posture(agents={"x": "1", "y": "1"}))
    a.turn(Posture(agents={"y": "2", "z": "1"}))
    assert link.execute("SELECT agent, digest FROM {s}.agents ORDER BY 1") == [("y", "2"), ("z", "1")]


@pytest.mark.slow
def test_a_process_whose_beat_stands_still_is_declared_dead_and_its_runs_are_free(link: Link, peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    dead = a.turn(Posture()).process
    add_runs(link, "r", 3, owner=dead, status="running")
    assert turns(b, 0.2) == []
    assert turns(b, 0.3) == ["a"]
    assert set(column(link, "owner").values()) == {None}
    turned = a.turn(Posture())
    assert turned.declared_dead
    assert turned.process != dead
    assert not a.turn(Posture()).declared_dead


def test_a_process_that_beats_after_the_look_is_not_declared_dead(link: Link, peer: Peer, monkeypatch) -> None:
    a, b = peer("a"), peer("b")
    number = a.turn(Posture()).process
    b.turn(Posture())

    def late(_: float, beats: Mapping[int, int]) -> Mapping[int, int]:
        a.turn(Posture())
        return beats

    monkeypatch.setattr(b._watch, "look", late)
    assert b.turn(Posture()).buried == []
    assert not a.turn(Posture()).declared_dead
    assert a.turn(Posture()).process == number


def test_the_row_of_a_dead_process_is_forgotten_once_it_has_no_runs(link: Link, peer: Peer, monkeypatch) -> None:
    """Not at once: a process that was declared dead finds its row, and learns of it."""
    a, b = peer("a"), peer("b")
    number = a.turn(Posture(agents={"x": "digest"})).process
    link.execute("INSERT INTO {s}.watches(run, process, until) VALUES (1, %s, now())", (number,))
    link.execute("UPDATE {s}.processes SET dead = true")
    add_runs(link, "r", 1, owner=number, status="running")
    b.turn(Posture())
    b.turn(Posture())
    names = "SELECT name FROM {s}.processes ORDER BY number"
    assert link.execute(names) == [("a",), ("b",)]
    monkeypatch.setattr(_pg_turn, "_FORGET", -1.0)
    b.turn(Posture())
    assert (link.execute(names), column(link, "owner")) == ([("b",)], {"r1": None})
    assert link.execute("SELECT agent FROM {s}.agents") == link.execute("SELECT run FROM {s}.watches") == []


@pytest.mark.slow
def test_a_watcher_that_was_away_declares_no_process_dead(peer: Peer) -> None:
    a, b = peer("a"), peer("b")
    a.turn(Posture())
    turns(b, 0.2)
    time.sleep(0.5)  # noqa: TID251 - longer than the lease
    assert turns(b, 0.2) == []
    b.link.close()
    assert turns(b, 0.2) == [], "nor does one with a new connection"


def test_a_turn_after_the_lease_ran_out_gives_the_runs_back_before_it_beats(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = a.turn(Posture()).process
    add_runs(link, "r", 2, owner=number, status="running")
    turned = a.turn(Posture(void=True))
    assert turned.agents == ["a"]
    assert column(link, "owner") == {"r1": None, "r2": None}
    assert column(link, "crashes") == {"r1": 0, "r2": 0}
    assert all(token > 1 << 31 for token in column(link, "token").values())


def test_a_claim_that_no_actor_knows_is_given_back_after_a_second_look(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = a.turn(Posture()).process
    add_runs(link, "known", 1, owner=number, token=5)
    add_runs(link, "lost", 1, owner=number, token=5)
    posture = Posture(known={"known1": 5})
    owners = []
    for _ in range(6):
        a.turn(posture)
        owners.append(column(link, "owner")["lost1"])
    assert owners[0] == number
    assert owners[-1] is None
    assert column(link, "owner")["known1"] == number


def test_known_claims_that_are_void_are_reported(link: Link, peer: Peer) -> None:
    """Of a run that another process has, of one that has ended, and of one with a newer claim; all after a lapse."""
    a = peer("a")
    number = a.turn(Posture()).process
    for name, owner in (("mine", number), ("older", number), ("taken", 999)):
        add_runs(link, name, 1, owner=owner, token=5)
    known = {"mine1": 5, "older1": 4, "taken1": 5, "gone1": 5}
    lost = [dict(a.turn(Posture(known=known)).lost) for _ in range(3)]
    assert {"older1": 4, "taken1": 5, "gone1": 5} in lost
    assert all("mine1" not in found for found in lost)
    assert a.turn(Posture(known=known, void=True)).lost == known


def test_runs_of_processes_without_a_row_are_freed(link: Link, peer: Peer) -> None:
    add_runs(link, "r", 1, owner=999)
    assert peer("a").turn(Posture()).agents == ["a"]
    assert column(link, "owner") == {"r1": None}


def test_a_turn_finds_unread_commands_and_runs_that_their_threads_let_go(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = a.turn(Posture()).process
    add_runs(link, "r", 3, owner=number)
    link.execute("UPDATE {s}.runs SET posted = 2, consumed = 1 WHERE run_id = 'r2'")
    link.execute("UPDATE {s}.runs SET held = true WHERE run_id = 'r3'")
    for position in (1, 2):
        body = codec.dump(Command(command_id=f"c{position}", kind="cancel"))
        columns = "run, position, command_id, kind, nonce, body, answer"
        sql = f"INSERT INTO {{s}}.inbox({columns}) VALUES (2, %s, %s, '', 1, %s, '')"  # noqa: S608 - columns of ours
        link.execute(sql, (position, f"c{position}", body))
    turned = a.turn(Posture(held=frozenset({"r1", "r3"})))
    assert [(run_id, item.position, item.command.command_id) for run_id, item in turned.unread] == [("r2", 2, "c2")]
    assert turned.freed == ["r1"]
    assert a.unread([1, 3]) == []
    assert len(a.unread([2])) == 1
    assert a.freed([1, 2, 3]) == ["r1", "r2"]


def test_a_process_that_leaves_takes_its_row_and_frees_its_runs(link: Link, peer: Peer) -> None:
    a = peer("a")
    number = a.turn(Posture(agents={"x": "1"})).process
    add_runs(link, "r", 1, owner=number, status="running")
    assert a.leave() == ["a"]
    assert (column(link, "owner"), column(link, "crashes")) == ({"r1": None}, {"r1": 0})
    assert link.execute("SELECT 1 FROM {s}.processes UNION ALL SELECT 1 FROM {s}.agents") == []
    assert a.leave() == []


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
