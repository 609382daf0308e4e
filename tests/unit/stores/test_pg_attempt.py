"""Opening a connection where nothing answers: given up from any thread, in one sentence that names host and port."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres._attempt import Attempt
from greenroom.actors.stores.postgres._connect import Link, hopeless
from greenroom.actors.stores.postgres._target import PgTarget

from ...support.black_holes import HOLES, silent

CANARY = "canary-of-a-password"


class Opened:
    """A connection as far as an attempt knows one."""

    closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(params=HOLES)
def hole(request: pytest.FixtureRequest) -> Iterator[int]:
    with HOLES[request.param]() as port:
        yield port


def later(seconds: float, function) -> None:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


def test_an_attempt_returns_the_connection_or_raises_its_error() -> None:
    opened = Opened()
    assert Attempt(lambda: opened).result() is opened

    def refused():
        raise psycopg.OperationalError("no")

    attempt = Attempt(refused)
    with pytest.raises(psycopg.OperationalError, match="no"):
        attempt.result()


def test_an_attempt_that_is_given_up_raises_at_once_and_closes_what_it_opens_later() -> None:
    opened, go = Opened(), threading.Event()

    def slowly():
        go.wait()
        return opened

    attempt = Attempt(slowly)
    later(0.05, attempt.give_up)
    with pytest.raises(psycopg.OperationalError, match="given up"):
        attempt.result()
    assert not opened.closed.is_set()
    go.set()
    assert opened.closed.wait(10)
    attempt.give_up()


def test_an_attempt_that_is_over_cannot_be_given_up() -> None:
    opened = Opened()
    attempt = Attempt(lambda: opened)
    assert attempt.result() is opened
    attempt.give_up()
    assert attempt._connection is opened


def test_a_system_without_threads_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(Outage, match="no thread"):
        Link(PgTarget.parse("postgresql://u@127.0.0.1:1/d"), "test").execute("SELECT 1")


def test_the_sentence_names_host_and_port_and_the_way_out(hole: int) -> None:
    link = Link(PgTarget.parse(f"postgresql://u:{CANARY}@127.0.0.1:{hole}/d?connect_timeout=2"), "test")
    begun = time.monotonic()
    with pytest.raises(Outage) as caught:
        link.execute("SELECT 1")
    assert 1.5 < time.monotonic() - begun < 4
    text = str(caught.value.error)
    assert text == (
        f"127.0.0.1:{hole} gives no answer within 2 s;"
        " check the host and the port, and whether a firewall drops the packets"
    )
    assert not hopeless(caught.value.error)


def test_of_several_hosts_each_is_named_with_what_it_answered() -> None:
    with silent() as hole:
        url = f"postgresql://u:{CANARY}@127.0.0.1:1,127.0.0.1:{hole}/d?connect_timeout=2"
        with pytest.raises(Outage) as caught:
            Link(PgTarget.parse(url), "test").execute("SELECT 1")
    text = str(caught.value.error)
    assert text.startswith(f"127.0.0.1:1, 127.0.0.1:{hole} gives no answer within 2 s (")
    assert "Connection refused" in text
    assert CANARY not in text


def test_a_cut_ends_the_wait_for_a_connection_in_any_thread(hole: int) -> None:
    link = Link(PgTarget.parse(f"postgresql://u:{CANARY}@127.0.0.1:{hole}/d"), "test")
    later(0.2, link.cut)
    begun = time.monotonic()
    with pytest.raises(Outage, match=rf"^127.0.0.1:{hole} gives no answer within 0\.\d+ s; look at the server$"):
        link.execute("SELECT 1")
    assert time.monotonic() - begun < 2


def test_the_lookup_of_a_name_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks names up without one."""
    asked, ended = threading.Event(), threading.Event()

    def lookup(*_: object, **__: object):
        asked.set()
        ended.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    link = Link(PgTarget.parse("postgresql://u@db.example.org/d?sslmode=disable"), "test")
    found: list[str] = []

    def ask() -> None:
        try:
            link.execute("SELECT 1")
        except Outage as error:
            found.append(str(error.error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        assert asked.wait(10)
        assert link.since is not None
        assert not link.cut_late(1.0, link.since + 9.9)  # an attempt that takes 5 s for its host ends by itself
        assert link.cut_late(1.0, link.since + 10.1)
        thread.join(10)
    finally:
        ended.set()
    (text,) = found
    assert "db.example.org:5432" in text


def test_a_name_that_does_not_exist_is_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*_: object, **__: object):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(Outage, match=r"db\.example\.org") as caught:
        Link(PgTarget.parse("postgresql://u@db.example.org/d?sslmode=disable"), "test").execute("SELECT 1")
    assert hopeless(caught.value.error)


@pytest.mark.parametrize(
    ("text", "place", "hosts"),
    [
        ("postgresql://u@h/d", "h:5432", 1),
        ("postgresql://u@h:6000/d", "h:6000", 1),
        ("postgresql://u@a:1,b:2/d", "a:1, b:2", 2),
        ("host=a,b,c port=7 dbname=d", "a:7, b:7, c:7", 3),
        ("dbname=d", "the local socket:5432", 1),
    ],
)
def test_a_target_names_its_hosts(text: str, place: str, hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    target = PgTarget.parse(text)
    assert (target.place, target.hosts) == (place, hosts)


@pytest.mark.parametrize(
    ("field", "seconds"), [("", 5), ("connect_timeout=9", 9), ("connect_timeout=1", 2), ("connect_timeout=0", 130)]
)
def test_the_time_for_a_host_is_that_of_the_address(field: str, seconds: float) -> None:
    assert PgTarget.parse(f"postgresql://h/d?{field}").patience == seconds


def test_the_time_for_a_host_may_be_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    target = PgTarget.parse("postgresql://h/d")
    assert target.patience == 7
    assert "connect_timeout" not in target.fields


def test_a_statement_that_was_never_sent_has_no_unknown_outcome() -> None:
    """So its sender is answered at once, and need not wait for the end of the outage."""
    link = Link(PgTarget.parse("postgresql://u@127.0.0.1:1/d"), "test")
    with pytest.raises(Outage):
        link.twice(lambda: link.execute("SELECT 1"))
    assert not link.unknown


def test_a_statement_that_was_sent_once_has_an_unknown_outcome_although_no_connection_follows(postgres_server) -> None:
    link = Link(PgTarget.parse(postgres_server), "test")
    link.execute("SELECT 1")
    link.target = PgTarget.parse("postgresql://u@127.0.0.1:1/d")
    calls = 0

    def ask():
        nonlocal calls
        calls += 1
        if calls == 1:
            link.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return link.execute("SELECT 1")

    with pytest.raises(Outage):
        link.twice(ask)
    assert calls == 2
    assert link.unknown


@pytest.mark.slow
@pytest.mark.no_cover
def test_opening_in_a_scope_that_is_cancelled_already_ends(postgres_url: str) -> None:
    """In a process of its own: tasks that are shielded would hold up this one for ever."""
    program = (
        "import sys, trio, greenroom as gr\n"
        "async def main():\n"
        "    for steps in range(60):\n"
        "        with trio.CancelScope() as scope:\n"
        "            class Stop(trio.abc.Instrument):\n"
        "                left = steps\n"
        "                def before_task_step(self, task):\n"
        "                    self.left -= 1\n"
        "                    if self.left < 0: scope.cancel()\n"
        "            stop = Stop()\n"
        "            trio.lowlevel.add_instrument(stop)\n"
        "            async with gr.open_runtime(sys.argv[1]): await trio.sleep(0)\n"
        "        trio.lowlevel.remove_instrument(stop)\n"
        "trio.run(main)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, postgres_url], check=False, timeout=60, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
