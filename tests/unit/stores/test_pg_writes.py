"""The statements that write, on a real server: fences, batches, judgements, and what follows the end of a run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, EventDraft, NewRun, Receipt
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.rows import CommandContext, RunRow
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.errors import StoreError, StoreUnavailable
from greenroom.actors.stores.common._commit_rules import InvalidCommit
from greenroom.actors.stores.common._encoding import encode_commit, encode_new
from greenroom.actors.stores.common._requests import CommitRequest, CreateRequest, PostRequest
from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres import _prepared as _pg_prepared
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._create import RunCreator
from greenroom.actors.stores.postgres._post import CommandPoster
from greenroom.actors.stores.postgres._prepared import numbered
from greenroom.actors.stores.postgres._schema import LEVEL, migrate
from greenroom.actors.stores.postgres._sql import _LISTS, COMMIT_SETTINGS, SETTINGS, commit_text
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres._threads import free_threads, repair_threads
from greenroom.actors.stores.postgres._values import Bigints
from greenroom.actors.stores.postgres._write import ClaimBook, CommitWriter
from greenroom.actors.testing.store_kit._tools import (
    NOW,
    call_row,
    decide,
    frame,
    judge,
    message,
    new_run,
    say,
    ticket_row,
)

_CLAIM = (
    "UPDATE {s}.runs SET token = ((token >> 31) + 1 << 31) + 7, commits = 0 WHERE run_id = %s RETURNING number, token"
)


@attrs.define(eq=False)
class Desk:
    """The two desks of a process, without threads."""

    link: Link
    asks: Link
    book: ClaimBook = attrs.field(factory=ClaimBook)
    follows: bool = True
    writer: CommitWriter = attrs.field(init=False)
    rows: dict[str, RunRow] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.writer = CommitWriter(self.link, self.book, free_threads=self.free, wrote=lambda _: None)

    def free(self, threads: Sequence[int]) -> dict[int, tuple[int, str]]:
        found = free_threads(self.link, threads) if self.follows else []
        return {run.thread: (run.number, run.run_id) for run in found}

    def create(self, new: NewRun, bits: int = 5) -> Claim | None:
        request = CreateRequest(new, frame(new.info.run_id, 1), encode_new(new, frame(new.info.run_id, 1)))
        created = RunCreator(self.link, self.book, request, owner=1, bits=bits)()
        self.rows[new.info.run_id] = new.row
        return created.claim

    def claim(self, run_id: str) -> Claim:
        ((number, token),) = self.link.execute(_CLAIM, (run_id,))
        self.book.note(run_id, number, token)
        return Claim(run_id=run_id, token=token)

    def request(self, claim: Claim, events: int = 0, *, row: RunRow | None = None, **parts: Any) -> CommitRequest:
        """The next commit of a run; its author keeps the row."""
        before = self.rows[claim.run_id]
        now = self.rows[claim.run_id] = replace(row or before, last_sequence=before.last_sequence + events)
        commit = Commit(
            run_id=claim.run_id,
            expected_last=before.last_sequence,
            at=NOW,
            events=(EventDraft("run.step.started", {}),) * events,
            row=now,
            **parts,
        )
        frames = [frame(claim.run_id, before.last_sequence + 1 + number) for number in range(events)]
        return CommitRequest(claim, commit, frames, lambda _: None, encode_commit(commit, frames))

    def write(self, *requests: CommitRequest) -> Sequence[Receipt]:
        return self.writer.execute(list(requests))

    def column(self, name: str, run_id: str = "r") -> Any:
        return self.link.execute(f"SELECT {name} FROM {{s}}.runs WHERE run_id = %s", (run_id,))[0][0]  # noqa: S608

    def close(self) -> None:
        self.link.close()
        self.asks.close()

    def count(self, table: str) -> int:
        return int(self.link.execute(f"SELECT count(*) FROM {{s}}.{table}")[0][0])  # noqa: S608


def connected(url: str) -> Desk:
    target = PgTarget.parse(url)
    return Desk(Link(target, "commits", COMMIT_SETTINGS), Link(target, "asks", SETTINGS))


@pytest.fixture
def desk(postgres_url: str) -> Iterator[Desk]:
    desk = connected(postgres_url)
    migrate(desk.link, desk.link.target.schema, make_epoch=lambda: "e")
    yield desk
    desk.close()


@pytest.fixture
def other(postgres_url: str, desk: Desk) -> Iterator[Desk]:
    """Another process."""
    desk = connected(postgres_url)
    yield desk
    desk.close()


def kinds(receipts: Sequence[Receipt]) -> list[str]:
    return [receipt.kind for receipt in receipts]


def test_a_commit_of_a_voided_claim_does_not_ride_on_a_good_one_of_its_batch(desk: Desk) -> None:
    """Both are about one run, and only the number and the token tell them apart."""
    old = desk.create(new_run("r", "t"))
    assert old is not None
    stale = desk.request(old, messages=(message("stale"),))
    desk.rows["r"] = new_run("r", "t").row
    new = desk.claim("r")
    good = desk.request(new, messages=(message("good"),))
    for claim, request in ((old, stale), (new, good)):  # neither is refused by memory alone
        desk.book.add("r", attrs.evolve(desk.book.find("r"), token=claim.token))  # type: ignore[arg-type]
        assert request.claim.token == claim.token
    groups = [*_group(desk, old, stale), *_group(desk, new, good)]
    desk.writer._batch, desk.writer._results = [stale, good], [None, None]
    groups[1].places[:] = [1]
    desk.writer._write(groups)
    assert kinds([receipt for receipt in desk.writer._results if receipt]) == ["lease_lost", "committed"]
    assert desk.link.execute("SELECT id FROM {s}.messages") == [("good",)]


def _group(desk: Desk, claim: Claim, request: CommitRequest) -> list[Any]:
    """The group of a request, as a batch of that claim alone would have it."""
    known = desk.book.find("r")
    assert known is not None
    known.token = claim.token
    desk.writer._batch, desk.writer._results = [request], [None]
    groups = desk.writer._next_round()
    assert len(groups) == 1
    return [attrs.evolve(groups[0], claim=attrs.evolve(known))]


def test_the_token_alone_keeps_a_zombie_out(desk: Desk, other: Desk) -> None:
    """Its commit would fit: it follows the newest event, and has the next number."""
    old = desk.create(new_run("r", "t"))
    assert old is not None
    zombie = desk.request(old, 1, messages=(message("zombie"),))
    other.claim("r")
    assert kinds(desk.write(zombie)) == ["lease_lost"]
    assert (desk.count("messages"), desk.column("last_seq"), desk.column("commits")) == (0, 1, 0)


def test_a_repeated_statement_writes_nothing_and_is_known_as_written(desk: Desk, other: Desk) -> None:
    """Commits without events differ in their number only; the messages would be there twice."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    request = desk.request(claim, messages=(message("m1"),))
    assert kinds(desk.write(request)) == ["committed"]
    known = desk.book.find("r")
    assert known is not None
    known.nth = 0  # as before the answer arrived
    assert kinds(desk.write(request)) == ["committed"]
    assert (known.nth, desk.count("messages"), desk.column("commits")) == (1, 1, 1)
    assert kinds(desk.write(desk.request(claim, 1))) == ["committed"]


def test_an_ending_commit_is_known_as_written_though_a_turn_forgot_its_claim(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost; a turn sees the run's end before the writer executes the batch again."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    batch = [desk.request(claim, 1, row=replace(desk.rows["r"], stage=Stage.COMPLETED))]
    prompt = Link.prompt

    def lost(self: Link, *given: Any) -> Any:
        prompt(self, *given)
        raise Outage("the answer is lost")

    monkeypatch.setattr(Link, "prompt", lost)
    with pytest.raises(Outage):
        desk.writer.execute(batch)
    monkeypatch.undo()
    desk.book.forget("r", claim.token)
    assert kinds(desk.writer.execute(batch)) == ["committed"]
    assert (desk.column("commits"), desk.column("last_seq")) == (1, 2)


def test_queued_commits_of_a_run_become_one_entry(desk: Desk) -> None:
    claims = [desk.create(new_run(name, name)) for name in ("r", "s")]
    requests = []
    for number in range(5):
        for claim in claims:
            assert claim is not None
            state = (StateWrite(key="k", scope="run", value=number, revision=number),)
            calls = (call_row("c", index=number),)
            row = replace(desk.rows[claim.run_id], step=1)
            requests.append(desk.request(claim, number % 3, row=row, state=state, calls=calls))
    before = desk.writer.statistics.transactions
    assert set(kinds(desk.write(*requests))) == {"committed"}
    assert desk.writer.statistics.transactions - before == 1
    assert desk.writer.statistics.commits == 10
    assert (desk.column("commits"), desk.column("last_seq"), desk.count("calls"), desk.count("state")) == (1, 5, 2, 2)
    found = desk.link.execute("SELECT seq FROM {s}.events WHERE run = 1 ORDER BY seq")
    assert found == [(number,) for number in range(1, 6)]


def test_a_row_that_the_server_refuses_fails_its_run_alone(desk: Desk) -> None:
    """A repeated message id, and a text that PostgreSQL cannot hold."""
    claims = [desk.create(new_run(name, name, messages=(message("m"),))) for name in ("r", "s", "u")]
    first, second, third = [claim for claim in claims if claim is not None]
    receipts = desk.write(
        desk.request(first, 1),
        desk.request(first, 0, messages=(message("m"),)),
        desk.request(first, 1),
        desk.request(second, 2),
        desk.request(third, 0, calls=(call_row("a\0b"),)),
        desk.request(second, 1),
    )
    assert kinds(receipts) == ["committed", "failed", "lease_lost", "committed", "failed", "committed"]
    assert isinstance(receipts[1].error, InvalidCommit)
    assert [desk.column("last_seq", name) for name in ("r", "s", "u")] == [2, 4, 1]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_run_id_that_the_server_cannot_hold_is_the_callers_error(desk: Desk, name: str) -> None:
    with pytest.raises((UnicodeEncodeError, Exception)) as caught:
        desk.create(new_run(name, "t"))
    assert not isinstance(caught.value, StoreError)
    assert desk.count("runs") == 0


def test_what_a_judge_looks_at_is_counted_and_streamed_text_is_not(desk: Desk) -> None:
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    desk.write(desk.request(claim, row=replace(desk.rows["r"], stage=Stage.RUNNING, step=1)))
    counts = [desk.column("facts")]

    def wrote(**parts: Any) -> int:
        desk.write(desk.request(claim, 1, **parts))
        counts.append(desk.column("facts"))
        return int(counts[-1] - counts[-2])

    assert wrote() == 0
    assert wrote(messages=(message("m"),)) == 0
    assert wrote(row=replace(desk.rows["r"], answer="more text")) == 0
    assert wrote(state=(StateWrite(key="k", scope="run", value=1),)) == 0
    assert wrote(calls=(call_row("c"),)) == 1
    assert wrote(tickets=(ticket_row("r", 1, "c"),)) == 1
    assert wrote(row=replace(desk.rows["r"], stage=Stage.NEEDS_APPROVAL)) == 1
    assert wrote(row=replace(desk.rows["r"], early={"c": decide("d", "c").decision})) == 1
    assert wrote() == 0


def post(desk: Desk, command: Any, rule: Callable[[CommandContext, Any], Any] = judge, nonce: int = 1) -> Any:
    return CommandPoster(desk.asks, PostRequest("r", command, rule), nonce)()


def test_a_command_is_judged_again_if_its_facts_have_changed(desk: Desk, other: Desk) -> None:
    """Its ticket was closed between the look and the write."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    waiting = replace(desk.rows["r"], stage=Stage.NEEDS_APPROVAL, step=1)
    desk.write(desk.request(claim, 1, row=waiting, calls=(call_row("c"),), tickets=(ticket_row("r", 1, "c"),)))
    seen: list[str] = []

    def slow(facts: CommandContext, command: Any) -> Any:
        seen.append("" if facts.ticket is None else facts.ticket.status)
        if len(seen) == 1:
            closed = replace(ticket_row("r", 1, "c"), status="expired")
            desk.write(desk.request(claim, 1, tickets=(closed,)))
        return judge(facts, command)

    posted = post(other, decide("d", "r.t1"), slow)
    assert (seen, posted.result.status, desk.count("inbox")) == (["open", "expired"], "rejected", 0)


def test_a_command_whose_run_changes_at_each_look_is_refused_as_busy(desk: Desk, other: Desk) -> None:
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    asked = 0

    def slow(facts: CommandContext, command: Any) -> Any:
        nonlocal asked
        asked += 1
        desk.write(desk.request(claim, calls=(call_row("c"),)))
        return judge(facts, command)

    result = post(other, say("c"), slow).result
    assert (result.status, result.code, asked, desk.count("inbox")) == ("rejected", "busy", 20, 0)
    assert "send the command again" in result.detail


def test_text_that_streams_meanwhile_does_not_disturb_a_judge(desk: Desk, other: Desk) -> None:
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    asked = 0

    def slow(facts: CommandContext, command: Any) -> Any:
        nonlocal asked
        asked += 1
        desk.write(desk.request(claim, 1))
        return judge(facts, command)

    assert post(other, say("c"), slow).result.status == "accepted"
    assert asked == 1


def test_the_level_of_a_run_grows_with_a_newer_command_and_never_falls(desk: Desk) -> None:
    """A command is a row of the release that posts it; an older owner that commits meanwhile makes it no older."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    desk.link.execute("UPDATE {s}.runs SET level = 1")
    assert post(desk, say("c")).result.status == "accepted"
    assert desk.column("level") == LEVEL
    desk.link.execute("UPDATE {s}.runs SET level = 99")
    assert kinds(desk.write(desk.request(claim, 1))) == ["committed"]
    assert desk.column("level") == 99
    with pytest.raises(StoreUnavailable, match="run r was written by a newer release"):
        post(desk, say("d"))


def test_a_run_has_at_least_the_level_of_the_run_before_it_in_its_thread(desk: Desk) -> None:
    """Its owner reads that one's messages."""
    desk.create(new_run("r", "t"))
    desk.link.execute("UPDATE {s}.runs SET level = 99")
    desk.create(new_run("after", "t"))
    desk.create(new_run("other", "u"))
    assert [desk.column("level", name) for name in ("after", "other")] == [99, LEVEL]


def test_of_two_posters_with_one_id_one_is_accepted(desk: Desk, other: Desk) -> None:
    desk.create(new_run("r", "t"))
    inner: list[Any] = []

    def first(facts: CommandContext, command: Any) -> Any:
        if not inner:
            inner.append(post(other, say("c"), nonce=2))
        return judge(facts, command)

    outer = post(desk, say("c"), first, nonce=1)
    assert (inner[0].result.status, outer.result.status, desk.count("inbox")) == ("accepted", "duplicate", 1)


def test_a_post_whose_answer_was_lost_finds_its_own_row(desk: Desk) -> None:
    desk.create(new_run("r", "t"))
    first = post(desk, say("c"), nonce=9)
    again = post(desk, say("c"), nonce=9)
    assert (again.result.status, again.item) == ("accepted", first.item)
    assert post(desk, say("c"), nonce=10).result.status == "duplicate"


def test_a_create_whose_answer_was_lost_finds_its_own_run(desk: Desk) -> None:
    """The random part of the token tells the repetition of one request from a second request."""
    claim = desk.create(new_run("r", "t"), bits=77)
    assert desk.create(new_run("r", "t"), bits=77) == claim
    assert desk.create(new_run("r", "t"), bits=78) is None
    assert desk.link.execute("SELECT runs, open FROM {s}.threads") == [(1, 1)]


def test_what_a_process_left_undone_between_two_statements_is_repaired(desk: Desk) -> None:
    """The runs ended; nothing followed: input that was never admitted, and the run that is next."""
    claims = [desk.create(new_run(f"r{number}", "t")) for number in range(4)]
    first, second, third, _ = [claim for claim in claims if claim is not None]
    desk.follows = False
    done = {"stage": Stage.CANCELLED}
    for claim in (second, first):
        row = replace(desk.rows[claim.run_id], pending_input=(message(f"{claim.run_id}.in"),), **done)
        assert kinds(desk.write(desk.request(claim, 1, row=row))) == ["committed"]
    assert [desk.column("held", f"r{number}") for number in (2, 3)] == [True, True]
    number = desk.column("number", third.run_id)
    assert repair_threads(desk.link) == [(number, 1)]
    assert repair_threads(desk.link) == []
    assert [desk.column("held", f"r{number}") for number in (2, 3)] == [False, True]
    texts = desk.link.execute("SELECT pos, id FROM {s}.messages ORDER BY pos")
    assert texts == [(1, "r0.in"), (2, "r1.in")]
    assert desk.link.execute("SELECT open, late, newest FROM {s}.threads") == [(2, 0, 2)]


@pytest.mark.parametrize(("late", "statements"), [(False, 2), (True, 5)])
def test_the_end_of_a_run_takes_one_statement_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, late: bool, statements: int
) -> None:
    """For the run that is next; input of runs that ended before they were admitted takes three more."""
    claims = [desk.create(new_run(f"r{number}", "t")) for number in range(3)]
    first, second = claims[0], claims[1]
    assert first is not None
    assert second is not None
    if late:
        row = replace(desk.rows["r1"], stage=Stage.CANCELLED, pending_input=(message("late"),))
        desk.write(desk.request(second, 1, row=row))
    texts: list[str] = []
    for name in ("prompt", "persistent", "burst"):
        sends = getattr(desk.link, name)
        monkeypatch.setattr(desk.link, name, lambda text, *rest, s=sends: texts.append(text) or s(text, *rest))
    done = replace(desk.rows["r0"], stage=Stage.COMPLETED, answer="")
    assert kinds(desk.write(desk.request(first, 1, row=done))) == ["committed"]
    assert (len(texts), desk.column("held", "r1"), desk.column("held", "r2")) == (statements, False, not late)
    assert desk.count("messages") == int(late)


def test_a_running_step_changes_no_index(desk: Desk) -> None:
    """Row, step and sequence only: the server updates the row in place (HOT)."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None
    desk.write(desk.request(claim, row=replace(desk.rows["r"], stage=Stage.RUNNING, step=1)))
    counts = "SELECT pg_stat_get_xact_tuples_hot_updated(c.oid), c.relname"
    where = " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'runs'"
    with desk.link.transaction():
        for step in range(2, 6):
            row = replace(desk.rows["r"], step=step, answer="x" * 50)
            desk.write(desk.request(claim, 2, row=row, messages=(message(f"m{step}"),)))
        hot, _ = desk.link.execute(counts + where, (desk.link.target.schema,))[0]
    assert hot == 4


def test_a_batch_ends_at_two_hundred_requests(desk: Desk) -> None:
    claims = [desk.create(new_run(f"r{number}", f"r{number}")) for number in range(210)]
    before = desk.writer.statistics.transactions
    receipts = desk.write(*(desk.request(claim, 1) for claim in claims if claim is not None))
    assert set(kinds(receipts)) == {"committed"}
    assert desk.writer.statistics.transactions - before == 2
    numbers = Bigints(range(1, 211))
    assert desk.link.execute("SELECT count(*) FROM {s}.events WHERE run = ANY(%s)", (numbers,)) == [(420,)]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("tables", [(), ("events", "messages"), tuple(_LISTS)], ids=["none", "some", "all"])
@pytest.mark.parametrize("pool", ["", "&pooled=1"])
def test_the_cost_of_a_batch_is_linear(
    desk: Desk, postgres_url: str, tables: Sequence[str], ends: bool, pool: str
) -> None:
    """The plan compares no list of the batch with another one, line by line, nor reads a whole table."""
    link = Link(PgTarget.parse(postgres_url + pool), "commits", COMMIT_SETTINGS)
    text, _ = numbered(link.text(commit_text(frozenset(tables), ends)))
    places = text.count(b"$")
    try:
        link.execute("SELECT set_config('plan_cache_mode', 'force_generic_plan', false)")
        link.execute(f"PREPARE commits AS {text.decode()}")
        plan = link.execute(f"EXPLAIN EXECUTE commits({', '.join(['NULL'] * places)})")
    finally:
        link.close()
    nodes = "\n".join(line for (line,) in plan)
    assert "Hash Join" in nodes
    assert "Nested Loop" not in nodes
    assert "Seq Scan" not in nodes


def test_a_batch_ends_at_eight_mebibytes(desk: Desk) -> None:
    """What is added last may go beyond them."""
    claims = [desk.create(new_run(f"r{number}", f"r{number}")) for number in range(4)]
    before = desk.writer.statistics.transactions
    large = "x" * (3 * 2**20)
    receipts = desk.write(
        *(desk.request(claim, messages=(message(f"{claim.run_id}.m", large),)) for claim in claims if claim is not None)
    )
    assert kinds(receipts) == ["committed"] * 4
    assert desk.writer.statistics.transactions - before == 2
    assert desk.count("messages") == 4


def _pages_read(link: Link) -> int:
    """How many pages of tables and indexes this and other sessions have looked at."""
    link.execute("SELECT pg_stat_clear_snapshot()")
    columns = "heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)"
    text = f"SELECT sum({columns})::bigint FROM pg_statio_user_tables WHERE schemaname = %s"  # noqa: S608
    return int(link.execute(text, (link.target.schema,))[0][0])


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_a_commit_and_a_post_read_does_not_grow_with_the_tables(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    """The server plans while the tables are small, and has no statistics, or old ones, of what comes then."""
    claim = desk.create(new_run("r", "t"))
    assert claim is not None

    def write(number: int) -> None:
        ticket = ticket_row("r", number, f"c{number}")
        calls = (call_row(f"c{number}"),)
        row = replace(desk.rows["r"], stage=Stage.NEEDS_APPROVAL, step=1)
        parts = {"messages": (message(f"m{number}"),), "tickets": (ticket,), "calls": calls}
        assert kinds(desk.write(desk.request(claim, 2, row=row, **parts))) == ["committed"]
        assert post(desk, decide(f"d{number}", ticket.ticket_id)).result.status == "accepted"
        assert kinds(desk.write(desk.request(claim, 1))) == ["committed"]

    def pages_read() -> int:
        for link in (desk.asks, desk.link):
            link.execute("SELECT pg_stat_force_next_flush()")
        return _pages_read(desk.link)

    counts = []
    for more in (0, 3_000):
        link = desk.link
        others = "FROM {s}.runs WHERE run_id = 'r'"
        columns = "agent, status, stage, step, last_seq, token, owner, held, queue, ready_at, rank, level, created_at"
        columns += ", title, search, started_by, info, row"
        link.execute(
            f"INSERT INTO {{s}}.runs(run_id, thread, {columns}) SELECT 'r' || i, i + 100, {columns}"  # noqa: S608
            f" FROM generate_series(1, {more}) i, (SELECT * {others}) r"
        )
        link.execute(
            "INSERT INTO {s}.threads(number, thread_id, owner, created_at, runs, kept, open, newest)"  # noqa: S608
            f" SELECT i + 100, 't' || i, '', now(), 1, 1, 1, 0 FROM generate_series(1, {more}) i"
        )
        first = len(counts) * 20
        for number in range(first, first + 9):  # from the sixth on a plan is kept
            write(number)
        if analyzed and not more:
            link.execute("VACUUM ANALYZE")
        monkeypatch.setattr(_pg_prepared, "REPLAN", 0.0)
        write(first + 9)
        monkeypatch.setattr(_pg_prepared, "REPLAN", 60.0)
        before = pages_read()
        for number in range(first + 10, first + 20):
            write(number)
        counts.append(pages_read() - before)
    assert 0 < counts[1] < 2.5 * counts[0], counts


_POISON = """
CREATE FUNCTION {s}.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.run_id = 'poison' THEN RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200'; END IF; RETURN NEW;
END $$"""


def test_a_commit_for_which_the_server_has_no_memory_fails_if_others_are_written(desk: Desk):
    """Alone it is an outage: then nothing says that the server has memory for anything."""
    names = ("a", "poison", "b")
    claims = {name: desk.create(new_run(name, name)) for name in names}
    desk.link.execute(_POISON)
    desk.link.execute("CREATE TRIGGER poison BEFORE UPDATE ON {s}.runs FOR EACH ROW EXECUTE FUNCTION {s}.poison()")
    receipts = desk.write(*(desk.request(claims[name], 1) for name in names))
    assert [receipt.kind for receipt in receipts] == ["committed", "failed", "committed"]
    assert "out of memory" in str(receipts[1].error)
    desk.rows["poison"] = replace(desk.rows["poison"], last_sequence=1)
    desk.book.note("poison", desk.column("number", "poison"), desk.column("token", "poison"))
    with pytest.raises(Outage, match="out of memory"):
        desk.write(desk.request(claims["poison"], 1))


class Broken(tuple[Any, ...]):
    """Rows that cannot be read."""

    __slots__ = ()

    def __iter__(self) -> Any:
        raise self[0]


def test_rows_that_cannot_be_sent_fail_their_commit_or_wait_for_memory(desk: Desk):
    claims = {name: desk.create(new_run(name, name)) for name in ("a", "b")}
    good, bad = (desk.request(claims[name], 1) for name in ("a", "b"))
    rows = bad.blobs
    bad.blobs = replace(rows, messages=Broken([MemoryError()]))
    with pytest.raises(Outage):
        desk.write(good, bad)
    bad.blobs = replace(rows, messages=Broken([OverflowError("too long")]))
    receipts = desk.write(good, bad)
    assert [receipt.kind for receipt in receipts] == ["committed", "failed"]
    assert "too long" in str(receipts[1].error)
