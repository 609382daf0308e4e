"""The statements that claim runs, give them up and look after queues, on a real server."""

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.support.postgres_rows import NOON, add_process, add_runs, column, tables

from greenroom.actors.contract.claims import Claim
from greenroom.actors.errors import UnknownRun
from greenroom.actors.processes import Ability
from greenroom.actors.stores.postgres import _claims as _pg_claims
from greenroom.actors.stores.postgres._claims import (
    BuryProcess,
    ClaimDue,
    ClaimReady,
    FreedRuns,
    GiveRunsBack,
    ReleaseRuns,
    ReviveRun,
    SetQueue,
)
from greenroom.actors.stores.postgres._connect import Link

LATER = NOON + timedelta(seconds=1)
PAUSE = timedelta(seconds=30)
ALL = Ability()


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    with tables(postgres_url) as link:
        yield link


@pytest.fixture
def process(link: Link) -> int:
    return add_process(link)


def ids(link: Link, process: int, room: int = 20, ability: Ability = ALL, **more: object) -> list[str]:
    claimed = ClaimReady(room, ability, more.get("now", LATER))(link, process)
    return [run.ready.claim.run_id for run in claimed]


def test_queues_take_turns_and_the_lowest_rank_of_each_is_first(link: Link, process: int) -> None:
    add_runs(link, "big", 200, queue="big")
    add_runs(link, "small", 1, queue="small", after=0.5)
    link.execute("UPDATE {s}.runs SET rank = rank - interval '1 hour' WHERE run_id = 'big77'")
    claimed = ids(link, process)
    assert len(claimed) == 20
    assert {"small1", "big77"} <= set(claimed)


@pytest.mark.parametrize(
    "columns",
    [
        {"held": True},
        {"dead": "a reason"},
        {"status": "waiting"},
        {"ended_at": NOON},
        {"level": 99},
        {"agent": "b"},
        {"needs_deps": True},
        {"place": "elsewhere"},
        {"ready_at": LATER + timedelta(seconds=9)},
    ],
    ids=str,
)
def test_a_run_that_is_not_ready_or_not_for_this_process_is_left(link: Link, process: int, columns: dict) -> None:
    add_runs(link, "out", 3, **columns)
    add_runs(link, "in", 1, after=0.5)
    able = Ability(agents=frozenset({"a"}), places=frozenset({"here"}), deps=False)
    assert ids(link, process, ability=able) == ["in1"]


@pytest.mark.parametrize("columns", [{"posted": 1}, {"leaving": True}], ids=str)
def test_a_waiting_run_with_something_to_do_is_claimed(link: Link, process: int, columns: dict) -> None:
    add_runs(link, "r", 1, status="waiting", **columns)
    assert ids(link, process) == ["r1"]


def test_a_claim_voids_older_ones_and_begins_to_count_commits_anew(link: Link, process: int) -> None:
    add_runs(link, "r", 1, commits=7)
    (claimed,) = ClaimReady(1, ALL, LATER)(link, process)
    assert column(link, "owner") == {"r1": process}
    assert column(link, "commits") == {"r1": 0}
    assert claimed.ready.claim.token > 1 << 31
    GiveRunsBack([claimed.ready.claim])(link, process)
    (again,) = ClaimReady(1, ALL, LATER)(link, process)
    assert again.ready.claim.token > claimed.ready.claim.token


def test_a_claim_whose_answer_was_lost_finds_its_own_runs(link: Link, process: int) -> None:
    add_runs(link, "r", 9)
    claim = ClaimReady(3, ALL, LATER)
    first = claim(link, process)
    assert sorted(map(str, claim(link, process))) == sorted(map(str, first))
    assert len(ids(link, process)) == 6
    add_runs(link, "due", 3, status="waiting", next_due=NOON)
    due = ClaimDue(2, ALL, LATER)
    assert sorted(map(str, due(link, process))) == sorted(map(str, due(link, process)))


def test_a_process_that_was_declared_dead_claims_nothing(link: Link, process: int) -> None:
    add_runs(link, "r", 1, next_due=NOON)
    link.execute("UPDATE {s}.processes SET dead = true")
    assert ids(link, process) == []
    link.execute("UPDATE {s}.runs SET status = 'waiting'")
    assert ClaimDue(1, ALL, LATER)(link, process) == []


@pytest.mark.parametrize("columns", [{"held": True}, {"dead": "a reason"}], ids=str)
@pytest.mark.parametrize("kind", ["cancel", "send"])
def test_a_run_that_is_stopped_is_claimed_for_a_cancel_only(link: Link, process: int, columns: dict, kind: str) -> None:
    add_runs(link, "r", 1, **columns)
    link.execute("UPDATE {s}.runs SET posted = 1")
    link.execute(
        "INSERT INTO {s}.inbox(run, position, command_id, kind, nonce, body, answer) VALUES (1, 1, 'c', %s, 1, '', '')",
        (kind,),
    )
    assert ids(link, process) == (["r1"] if kind == "cancel" else [])


@pytest.mark.slow
def test_claimers_that_race_share_the_runs_and_keep_to_a_limit(link: Link, process: int, postgres_url: str) -> None:
    add_runs(link, "free", 60)
    add_runs(link, "tight", 60, queue="tight")
    SetQueue("tight", 5, False)(link, process)
    taken: list[str] = []
    start = threading.Barrier(4)

    def claim() -> None:
        with tables(postgres_url) as own:
            start.wait()
            for _ in range(15):
                taken.extend(ids(own, process, room=7))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken))
    assert Counter(name.rstrip("0123456789") for name in taken) == {"free": 60, "tight": 5}
    link.execute("UPDATE {s}.runs SET status = 'waiting' WHERE run_id = %s", (next(n for n in taken if "tight" in n),))
    assert len(ids(link, process)) == 1, "one waits for people: there is a place for another"


def test_a_paused_queue_is_left(link: Link, process: int) -> None:
    add_runs(link, "r", 1)
    SetQueue("a", None, True)(link, process)
    assert ids(link, process) == []
    SetQueue("a", None, False)(link, process)
    assert ids(link, process) == ["r1"]


def test_queues_are_listed_with_what_is_ready_and_what_works(link: Link, process: int) -> None:
    add_runs(link, "r", 3)
    add_runs(link, "later", 1, queue="b", ready_at=NOON + timedelta(days=100_000))
    ids(link, process, room=1)
    SetQueue("b", 2, True)(link, process)
    a, b = _pg_claims.queues(link)
    assert (a.name, a.ready, a.working, a.oldest, a.paused) == ("a", 2, 1, NOON, False)
    assert (b.name, b.ready, b.working, b.oldest, b.paused, b.max_running) == ("b", 0, 0, None, True, 2)


def test_runs_whose_timer_fired_are_claimed_earliest_first(link: Link, process: int) -> None:
    add_runs(link, "late", 1, status="waiting", next_due=LATER)
    add_runs(link, "early", 1, status="waiting", next_due=NOON)
    add_runs(link, "future", 1, status="waiting", next_due=LATER + timedelta(seconds=9))
    add_runs(link, "held", 1, held=True, next_due=NOON - timedelta(seconds=1))
    first = ClaimDue(2, ALL, LATER)(link, process)
    assert {(run.ready.claim.run_id, run.ready.held) for run in first} == {("held1", True), ("early1", False)}
    assert [run.ready.claim.run_id for run in ClaimDue(9, ALL, LATER)(link, process)] == ["late1"]


def test_a_run_with_unread_commands_is_not_released(link: Link, process: int) -> None:
    add_runs(link, "r", 3)
    claims = [run.ready.claim for run in ClaimReady(3, ALL, LATER)(link, process)]
    link.execute("UPDATE {s}.runs SET posted = 1 WHERE run_id = 'r2'")
    void = Claim(run_id="r3", token=1)
    release = ReleaseRuns([*(claim for claim in claims if claim.run_id != "r3"), void])
    assert release(link, process) == ["r2"]
    assert release(link, process) == ["r2"], "repeated, it says the same"
    assert column(link, "owner") == {"r1": None, "r2": process, "r3": process}


def test_a_run_that_is_given_back_rests_for_a_while(link: Link, process: int) -> None:
    add_runs(link, "r", 2, priority=3)
    one, two = (run.ready.claim for run in ClaimReady(2, ALL, LATER)(link, process))
    assert GiveRunsBack([one], LATER + PAUSE)(link, process) == ["a"]
    assert GiveRunsBack([two])(link, process) == ["a"]
    assert GiveRunsBack([two])(link, process) == [], "the claim is void"
    assert column(link, "crashes") == {"r1": 0, "r2": 0}
    sql = "SELECT ready_at = %s, rank = ready_at - interval '30 s' FROM {s}.runs WHERE run_id = %s"
    assert link.execute(sql, (LATER + PAUSE, one.run_id)) == [(True, True)]
    assert ids(link, process) == [two.run_id]


def test_a_dead_process_leaves_its_runs_and_only_work_counts_as_a_crash(link: Link, process: int) -> None:
    other = add_process(link, "other")
    add_runs(link, "works", 1, owner=process, status="running")
    add_runs(link, "waits", 1, owner=process, status="waiting")
    add_runs(link, "tasks", 1, owner=process, status="waiting", leaving=True)
    add_runs(link, "held", 1, owner=process, held=True)
    add_runs(link, "others", 1, owner=other, status="running")
    bury = BuryProcess("p")
    assert bury(link, other) == (True, FreedRuns({"a"}, 4, 0))
    assert bury(link, other) == (True, FreedRuns()), "repeated, it says the same"
    assert BuryProcess("p")(link, other) == (False, FreedRuns())
    assert column(link, "owner") == {"works1": None, "waits1": None, "tasks1": None, "held1": None, "others1": other}
    assert column(link, "crashes") == {"works1": 1, "waits1": 0, "tasks1": 1, "held1": 0, "others1": 0}
    assert all(token > 1 << 31 for name, token in column(link, "token").items() if name != "others1")


def test_pauses_grow_and_the_fifth_crash_makes_a_dead_letter(link: Link, process: int) -> None:
    add_runs(link, "r", 1, status="running", priority=1)
    pauses = []
    for crash in range(5):
        number = add_process(link, f"p{crash}")
        link.execute("UPDATE {s}.runs SET owner = %s", (number,))
        BuryProcess(f"p{crash}")(link, process)
        sql = "SELECT extract(epoch FROM ready_at - now())::float8, rank = ready_at - interval '10 s' FROM {s}.runs"
        ((pause, ranked),) = link.execute(sql)
        assert ranked
        pauses.append(pause)
    assert all(
        low - 0.1 < pause < high for low, high, pause in zip((0, 0.5, 1, 2, 2), (0.1, 1, 2, 4, 4), pauses, strict=True)
    )
    assert column(link, "dead")["r1"].startswith("5 processes in a row ended")
    far = NOON + timedelta(days=100_000)
    assert ids(link, process, now=far) == []
    assert ReviveRun("r1")(link, process) == "a"
    assert (column(link, "dead"), column(link, "crashes")) == ({"r1": None}, {"r1": 0})
    assert ReviveRun("r1")(link, process) is None
    assert ids(link, process, now=far) == ["r1"]
    with pytest.raises(UnknownRun):
        ReviveRun("nothing")(link, process)
