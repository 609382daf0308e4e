"""Connections to PostgreSQL: how one is cut while a statement waits for its answer."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata

import psycopg
import pytest

from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import create, new_run, opened

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "57014"])
def test_a_statement_that_meets_others_is_repeated_at_once_and_is_an_outage_after_ten_attempts(
    link: Link, state: str
) -> None:
    """Serialization failure, deadlock, lock timeout, statement timeout; a sequence counts the attempts."""
    link.execute("CREATE TEMPORARY SEQUENCE attempts")
    meets = "DO $$BEGIN IF nextval('attempts') < {most} THEN RAISE SQLSTATE '{state}'; END IF; END$$"
    link.persistent(meets.format(most=10, state=state))
    assert link.execute("SELECT last_value FROM attempts") == [(10,)]
    link.execute("ALTER SEQUENCE attempts RESTART")
    with pytest.raises(Outage):
        link.persistent(meets.format(most=11, state=state))


def test_a_session_bounds_what_it_may_hold_up_and_says_whose_it_is(link: Link) -> None:
    names = ("jit", "idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout", "application_name")
    values = link.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
    assert values == [("off", "5s", "30s", "5s", "test")]


async def test_each_connection_of_a_process_says_its_release_its_name_and_its_purpose(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, name="me")
    async with opened(store):
        author = await create(store, new_run("r", "t"))
        await author.write(1)
        await store.queues()
        sql = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE %s"
        with psycopg.connect(postgres_url.partition("?")[0]) as session:
            names = {name for (name,) in session.execute(sql, ("greenroom/%/me/%",))}
    release = metadata.version("greenroom")
    assert names == {f"greenroom/{release}/me/{purpose}" for purpose in ("commits", "asks", "turns", "hints", "reads")}


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The process may open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def cut_while_waiting(link: Link) -> float:
    """Cut the connection during a long statement; returns the seconds until the statement has ended."""
    assert link.execute("SELECT 1") == [(1,)]
    ended: list[float] = []

    def sleep() -> None:
        with pytest.raises(Outage):
            link.execute("SELECT pg_sleep(20)")
        ended.append(time.monotonic())

    waiting = threading.Thread(target=sleep)
    waiting.start()
    time.sleep(0.2)  # noqa: TID251 - the server has the statement
    began = time.monotonic()
    link.cut()
    waiting.join(10)
    return ended[0] - began


def test_a_cut_ends_a_statement_that_waits(link: Link) -> None:
    assert cut_while_waiting(link) < 2
    assert link.execute("SELECT 2") == [(2,)], "the next statement opens another connection"


def test_a_connection_is_cut_while_the_process_is_out_of_descriptors(link: Link) -> None:
    link.execute("SELECT 1")
    with no_descriptors():
        assert cut_while_waiting(link) < 2


def test_a_connection_that_cannot_be_cut_is_not_opened(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", full)
        with pytest.raises(Outage, match="Too many open files"):
            link.execute("SELECT 1")
        assert link.opened_connection is None
    assert link.execute("SELECT 2") == [(2,)]


def test_a_cut_of_a_broken_connection_harms_no_other_file(link: Link) -> None:
    """libpq has closed its descriptor by then, and the number belongs to another socket."""
    link.execute("SELECT 1")
    connection = link.opened_connection
    assert connection is not None
    number = connection.pgconn.socket
    near, far = socket.socketpair()
    with near, far:
        connection.pgconn.finish()
        os.dup2(near.fileno(), number)
        try:
            link.cut()
            near.sendall(b"alive")
            far.sendall(b"alive")
            assert (far.recv(5), near.recv(5)) == (b"alive", b"alive")
        finally:
            os.close(number)


def test_an_idle_connection_and_a_closed_one_may_be_cut(link: Link) -> None:
    link.cut()
    link.execute("SELECT 1")
    link.cut()
    assert link.twice(lambda: link.execute("SELECT 2")) == [(2,)]
    link.close()
    link.cut()


def test_a_statement_that_has_waited_for_a_lock_is_an_outage_after_one_attempt(link: Link, postgres_url: str) -> None:
    """Ten attempts of `lock_timeout` each would be a silence of 50 s."""
    holder = Link(PgTarget.parse(postgres_url), "holder")
    try:
        link.execute("CREATE TABLE IF NOT EXISTS public.locked(n int)")
        holder.execute("SET idle_in_transaction_session_timeout = 0")
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE public.locked IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        with pytest.raises(Outage, match="another session holds a lock on the tables"):
            link.persistent("SELECT n FROM public.locked")
        assert 4.0 < time.monotonic() - begun < 8.0
    finally:
        holder.close()
        link.execute("DROP TABLE public.locked")
