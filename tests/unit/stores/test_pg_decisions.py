"""What a decision costs in another process and in the run's own, and a takeover: statements, counted without a clock.

The budget: two statements to post, and the hint in the same flight; one read by the owner, in the trio thread; one
commit before the body begins.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import trio
from tests.support.postgres import Server

import greenroom as gr
from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres import _prepared as _pg_prepared
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres._unthreaded import UnthreadedQuery
from greenroom.actors.stores.postgres._values import Bigints, Moment, Texts
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import ScriptedModel, call

pytestmark = pytest.mark.slow


# --- the whole path --------------------------------------------------------------------------------------------------


class Counted:
    """Notes every statement of every link: its purpose and its first words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        execute, prompt, called = Link.execute, Link.prompt, UnthreadedQuery.__call__

        def note(link: Link, text: str) -> None:
            self.seen.append((link._name.rsplit("/", 1)[-1], " ".join(text.split()[:3])))

        def executed(link: Link, text: str, parameters: Any = ()) -> Any:
            note(link, text)
            return execute(link, text, parameters)

        def sent(link: Link, text: str, parameters: Any, by: Any = None) -> Any:
            note(link, text)
            return prompt(link, text, parameters, by)

        async def asked(query: UnthreadedQuery, *parameters: Any) -> Any:
            note(query._link, query._text)
            return await called(query, *parameters)

        monkeypatch.setattr(Link, "execute", executed)
        monkeypatch.setattr(Link, "prompt", sent)
        monkeypatch.setattr(UnthreadedQuery, "__call__", asked)


@pytest.mark.parametrize("way", ["by its ticket", "by its call"])
async def test_a_decision_in_another_process_takes_two_statements_there_and_two_in_the_owner(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    counted, at_body, begun = Counted(monkeypatch), list[tuple[str, str]](), trio.Event()

    @gr.tool(needs_approval=True)
    async def pay(cents: int) -> str:
        at_body.extend(counted.seen)
        begun.set()
        return "paid"

    def made() -> gr.Agent[Any]:
        return gr.Agent("payer", tools=[pay], model=ScriptedModel([call("pay", cents=1, id="c1"), "done"]))

    def store() -> gr.Store:
        return PostgresStore(postgres_url, turn=20.0, lease=90.0)

    async with gr.open_runtime(store(), agents=[made()]) as owner, gr.open_runtime(store(), agents=[made()]) as other:
        run = await owner.start(made(), "hi")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        await trio.sleep(1.0)  # hints about the start are sent, and the test of the listener's connection is over
        del counted.seen[:]
        target = waiting.tickets[0].approve() if way == "by its ticket" else gr.Decision(target="c1", action="resume")
        answer = await other.commands.decide(run.id, target)
        assert answer.status == "accepted"
        with trio.fail_after(5):
            await begun.wait()
        await run.result()
    # once a second each process looks whether there is work to claim
    asks = [words for purpose, words in at_body if purpose == "asks" and words != "WITH RECURSIVE pair"]
    assert asks == ["SELECT r.number, r.owner,", "WITH r AS"]
    assert [words for purpose, words in at_body if purpose == "turns"] == ["SELECT r.run_id, i.position,"]
    assert [words for purpose, words in at_body if purpose == "commits"] == ["WITH c AS"]
    assert [words for purpose, words in at_body if purpose in ("hints", "reads")] == []


async def test_a_run_that_is_taken_over_costs_one_statement_for_its_rows_and_one_for_its_thread(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, begun, next_step = Counted(monkeypatch), trio.Event(), trio.Event()

    @gr.tool(replay="safe")
    async def dig() -> None:
        if not begun.is_set():
            begun.set()
            await trio.sleep_forever()

    @gr.tool(replay="safe")
    async def fill() -> None:
        next_step.set()

    script = [call("dig", id="c1")], [call("fill", id="c2")], "done"
    agent = gr.Agent("digger", tools=[dig, fill], model=ScriptedModel(script))
    async with gr.open_runtime(PostgresStore(postgres_url), agents=[agent], drain=0) as runtime:
        await runtime.start(agent, "hi")
        await begun.wait()
    del counted.seen[:]
    async with gr.open_runtime(PostgresStore(postgres_url), agents=[agent]):
        with trio.fail_after(5):
            await next_step.wait()
        reads = [words for purpose, words in counted.seen if purpose == "reads"]
    assert [words for words in reads if not words.startswith("SELECT least")] == ["WITH r AS", "SELECT body FROM"]


# --- a query of the trio thread --------------------------------------------------------------------------------------


async def test_a_query_of_the_trio_thread_returns_rows_as_the_link_does(link: Link) -> None:
    link.execute("SELECT 1")
    query = UnthreadedQuery(link, "SELECT x::bigint, 'a' || x, 'b'::bytea FROM generate_series(1, %s::bigint) x", "q")
    expected = link.execute("SELECT x::bigint, 'a' || x, 'b'::bytea FROM generate_series(1, 3) x")
    assert await query(3) == expected == [(1, "a1", b"b"), (2, "a2", b"b"), (3, "a3", b"b")]
    assert len(await query(100_000)) == 100_000  # more than a socket's buffer, and a parameter of another size
    assert await query(0) == []


async def test_the_trio_thread_works_while_its_query_waits(link: Link) -> None:
    link.execute("SELECT 1")
    query = UnthreadedQuery(link, "SELECT pg_sleep(%s::bigint)", "q")
    turns = 0
    async with trio.open_nursery() as nursery:

        async def count() -> None:
            nonlocal turns
            while True:
                await trio.sleep(0.01)
                turns += 1

        nursery.start_soon(count)
        await query(1)
        nursery.cancel_scope.cancel()
    assert turns > 10


async def test_an_error_of_a_query_leaves_the_connection_usable(link: Link) -> None:
    link.execute("SELECT 1")
    divided = UnthreadedQuery(link, "SELECT 1 / %s::bigint", "divided")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await divided(0)
    assert await divided(1) == [(1,)]
    unknown = UnthreadedQuery(link, "SELECT * FROM nothing_here WHERE 1 = %s::bigint", "unknown")
    with pytest.raises(gr.StoreDown):
        await unknown(1)
    assert await divided(1) == [(1,)]
    assert link.opened == 1


async def test_a_closed_or_lost_connection_is_an_outage_and_the_next_one_is_prepared(link: Link) -> None:
    query = UnthreadedQuery(link, "SELECT %s::bigint", "q")
    with pytest.raises(Outage):
        await query(1)  # it opens none: that would wait for the server
    (pid,) = link.execute("SELECT pg_backend_pid()")[0]
    assert await query(1) == [(1,)]
    other = Link(link.target, "other")
    other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises(Outage):
        await query(2)
    assert link.opened_connection is None
    link.execute("SELECT 1")
    assert await query(3) == [(3,)]
    other.close()


async def test_a_statement_whose_table_has_changed_is_an_outage_of_its_connection(link: Link) -> None:
    link.execute("CREATE SCHEMA IF NOT EXISTS {s}")
    link.execute("CREATE TABLE {s}.t AS SELECT 1 AS a")
    query = UnthreadedQuery(link, "SELECT * FROM {s}.t WHERE a = %s::bigint", "q")
    assert await query(1) == [(1,)]
    link.execute("ALTER TABLE {s}.t ADD COLUMN b text")
    with pytest.raises(Outage):
        await query(1)
    link.execute("SELECT 1")
    assert await query(1) == [(1, None)]


async def test_a_cancelled_query_is_waited_for(link: Link) -> None:
    link.execute("SELECT 1")
    query = UnthreadedQuery(link, "SELECT pg_sleep(%s::bigint * 0.2), 7", "q")
    with trio.move_on_after(0.05) as scope:
        await query(1)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert link.execute("SELECT 8") == [(8,)]  # the answer before was taken from the connection


async def test_no_notification_is_lost_beside_answers(link: Link) -> None:
    other = Link(link.target, "other")
    link.execute("LISTEN heard")
    query = UnthreadedQuery(link, "SELECT %s::bigint", "q")
    heard: list[bytes] = []
    for number in range(6):
        other.execute("SELECT pg_notify('heard', %s)", (str(number),))
        if number % 3 == 1:
            await query(number)
        elif number % 3 == 2:
            link.execute("SELECT 1")
        with trio.fail_after(5):
            while len(heard) <= number:
                heard += link.arrived()
                await trio.sleep(0.001)
    assert heard == [b"%d" % number for number in range(6)]
    other.close()


# --- a statement and what follows it ---------------------------------------------------------------------------------


@pytest.fixture(params=["prepared", "by the driver"])
def either(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Link]:
    """A link that prepares statements, and one behind a pool, which does not."""
    link = Link(PgTarget.parse(postgres_url + ("" if request.param == "prepared" else "&pooled=1")), "test")
    yield link
    link.close()


def test_the_second_statement_follows_the_commit_of_the_first(either: Link) -> None:
    either.execute("CREATE TEMP TABLE t (a bigint PRIMARY KEY, b timestamptz DEFAULT now())")
    either.execute("CREATE TEMP TABLE u (seen bigint, b timestamptz)")
    by = ("INSERT INTO u SELECT count(*), now() FROM t WHERE xmin::text::bigint <> %s", (0,))
    assert either.prompt("INSERT INTO t(a) VALUES (%s) RETURNING a", (1,), by=by) == [(1,)]
    ((seen, later),) = either.execute("SELECT u.seen, u.b > t.b FROM u, t")
    assert (seen, later) == (1, True)  # another transaction, begun after the first one
    either.execute("DROP TABLE t, u")


SLOW_COMMIT = """CREATE TABLE public.t (a bigint);
CREATE FUNCTION public.rest() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER rests AFTER INSERT ON public.t DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION public.rest();"""
INSERT = "INSERT INTO public.t VALUES (%s) RETURNING a"
HINT = ("SELECT pg_notify('x', %s)", ("y",))
ROADS: dict[str, Callable[[Link], object]] = {
    "alone": lambda link: link.prompt(INSERT, (1,)),
    "followed": lambda link: link.prompt(INSERT, (1,), by=HINT),
    "by the driver": lambda link: link.persistent(INSERT, (1,)),
    "in a burst": lambda link: link.burst((("SELECT 1", ()), (INSERT, (1,)))),
}


@pytest.mark.parametrize("pooled", ["", "?pooled=1"], ids=["session", "pool"])
def test_rows_without_their_commit_are_no_answer(pooled: str) -> None:
    """A server that dies flushes what a statement has answered, also while the statement's commit is under way."""
    with Server(durable=True) as server:
        with psycopg.connect(server.url(), autocommit=True) as session:
            session.execute(SLOW_COMMIT.encode())
        for name, road in ROADS.items():
            link = Link(PgTarget.parse(server.url() + pooled), "test")
            link.execute("SELECT 1")
            crash = threading.Timer(0.5, server.crash)
            crash.start()
            with pytest.raises(Outage):
                pytest.fail(f"{name}: {road(link)}")
            crash.join()
            link.close()
            server.start()
            with psycopg.connect(server.url()) as session:
                assert session.execute("SELECT count(*) FROM public.t").fetchone() == (0,), name


def test_an_error_of_the_first_statement_is_its_error(either: Link) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            either.prompt("SELECT 1 / %s", (0,), by=("SELECT 1 / %s", (0,)))
        assert either.execute("SELECT 1") == [(1,)]
    assert either.opened == 1


def test_a_connection_that_breaks_before_the_answer_is_an_outage_of_unknown_outcome(
    either: Link, caplog: pytest.LogCaptureFixture
) -> None:
    either.execute("SELECT 1")
    with pytest.raises(Outage):
        either.prompt("SELECT pg_terminate_backend(pg_backend_pid())", (), by=("SELECT %s::bigint", (1,)))
    assert either.unknown
    with pytest.raises(Outage):
        either.burst((("SELECT pg_terminate_backend(pg_backend_pid())", ()), ("SELECT %s::bigint", (1,))))
    by = ("SELECT pg_terminate_backend(pg_backend_pid())", ())
    if either.target.pooled:  # the driver does not show where the first transaction ends
        with pytest.raises(Outage):
            either.prompt("SELECT 1", (), by=by)
        assert either.unknown
    else:
        assert either.prompt("SELECT 1", (), by=by) == [(1,)]
    assert either.execute("SELECT 2") == [(2,)]  # by another connection
    assert caplog.text == ""  # the driver warns of a pipeline whose end fails after its block


def test_an_error_of_the_second_statement_is_not_reported(either: Link) -> None:
    for _ in range(2):
        assert either.prompt("SELECT %s::bigint", (5,), by=("SELECT 1 / %s", (0,))) == [(5,)]
    assert either.execute("SELECT 1") == [(1,)]
    assert either.opened == 1


def test_a_prompt_statement_returns_rows_as_the_driver_does(either: Link) -> None:
    text = "SELECT %s::bigint, %s::text, %s::bytea, %s::bigint[], %s::text[], %s::boolean, now() > %s"
    for values in (
        (1, "a", b"b", Bigints([1, 2]), Texts(["x", None]), True, Moment(5)),
        (2**40, None, None, Bigints(), Texts(), None, Moment(7)),
        (None, "\u00e9'%s", b"\0", Bigints([-1]), Texts([""]), False, Moment(0)),
    ):
        assert either.prompt(text, values) == either.execute(text, values)
    named = "SELECT %(a)s::bigint + %(b)s::bigint + %(a)s::bigint"
    assert either.prompt(named, {"b": 1, "a": 20}) == [(41,)]
    assert either.prompt("CREATE TEMP TABLE t (a bigint)", ()) == []
    assert either.opened == 1


def test_a_prompt_statement_may_be_larger_than_what_a_socket_holds(either: Link) -> None:
    data = b"x" * 5_000_000
    by = ("SELECT %s::bytea", (data,))
    assert either.prompt("SELECT %s::bytea, i FROM generate_series(1, 3) i", (data,), by=by) == [
        (data, number) for number in (1, 2, 3)
    ]
    assert either.prompt("SELECT %s::bytea", (data,)) == [(data,)]


def test_a_parameter_that_cannot_be_encoded_leaves_the_connection_open(either: Link) -> None:
    either.execute("SELECT 1")
    with pytest.raises(UnicodeEncodeError):
        either.prompt("SELECT %s::text", ("a\ud800",))
    with pytest.raises(UnicodeEncodeError):
        either.prompt("SELECT 1", (), by=("SELECT %s::text", ("a\ud800",)))
    assert either.prompt("SELECT %s::text", ("a",)) == [("a",)]
    assert either.opened == 1


def test_a_missing_table_is_a_fault_of_the_schema(either: Link) -> None:
    with pytest.raises(gr.StoreDown):
        either.prompt("SELECT * FROM nothing_here WHERE 1 = %s::bigint", (1,))
    assert either.prompt("SELECT 1", ()) == [(1,)]
    assert either.opened == 1


def test_a_statement_whose_table_has_changed_is_prepared_anew_at_once(link: Link) -> None:
    link.execute("CREATE SCHEMA IF NOT EXISTS {s}")
    link.execute("CREATE TABLE {s}.t AS SELECT 1 AS a")
    for _ in range(2):
        assert link.prompt("SELECT * FROM {s}.t WHERE a = %s::bigint", (1,)) == [(1,)]
    link.execute("ALTER TABLE {s}.t ADD COLUMN b text")
    assert link.prompt("SELECT * FROM {s}.t WHERE a = %s::bigint", (1,)) == [(1, None)]
    assert link.opened == 2


def test_a_connection_keeps_the_statements_that_were_used_last(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pg_prepared, "MOST", 4)
    for number in range(8):
        by = (f"SELECT %s::bigint + {number}", (1,)) if number % 2 else None
        for _ in range(2):
            assert link.prompt(f"SELECT %s::bigint * {number}", (2,), by=by) == [(2 * number,)]
        assert link.prompt("SELECT 'always'", ()) == [("always",)]
    kept = link.execute("SELECT statement FROM pg_prepared_statements WHERE name LIKE 'greenroom%' ORDER BY name")
    assert {text for (text,) in kept} == {
        *("SELECT $1::bigint * 6", "SELECT $1::bigint * 7", "SELECT $1::bigint + 7", "SELECT 'always'")
    }
    with pytest.raises(psycopg.errors.DivisionByZero):
        link.prompt("SELECT 1 / %s::bigint", (0,))
    assert link.prompt("SELECT 'always'", ()) == [("always",)]
    assert link.opened == 1


async def test_a_connection_that_is_cut_meanwhile_is_an_outage_of_unknown_outcome(link: Link) -> None:
    link.execute("SELECT 1")
    for by in (None, ("SELECT %s::bigint", (1,))):
        async with trio.open_nursery() as nursery:

            async def cut() -> None:
                await trio.sleep(0.3)
                link.cut()

            nursery.start_soon(cut)
            with pytest.raises(Outage):
                await trio.to_thread.run_sync(lambda by=by: link.prompt("SELECT pg_sleep(%s::bigint)", (20,), by=by))
        assert link.unknown
        assert link.prompt("SELECT 1", ()) == [(1,)]
