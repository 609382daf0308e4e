"""Connections to PostgreSQL: how one is cut while a statement waits for its answer."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from greenroom.actors.stores._pg_connect import Link
from greenroom.actors.stores._pg_target import PgTarget
from greenroom.actors.stores.faults import Outage

pytestmark = pytest.mark.slow


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    link = Link(PgTarget.parse(postgres_url), "test")
    yield link
    link.close()


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
    assert link.anew(lambda: link.execute("SELECT 2")) == [(2,)]
    link.close()
    link.cut()
