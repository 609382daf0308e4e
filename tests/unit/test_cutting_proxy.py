"""The proxy that cuts connections: which requests reach the server, and which answers the client."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ..support.cutting_proxy import CuttingProxy

ANSWER = b"T....Z\x00\x00\x00\x05I"


class Server:
    """Answers each request as PostgreSQL does: rows, then ReadyForQuery.

    Attributes:
        requests: all that came.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.came = threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # the proxy resets connections that it cuts
            while request := connection.recv(1 << 16):
                self.requests.append(request)
                self.came.release()
                connection.sendall(ANSWER[:5])
                connection.sendall(ANSWER[5:])

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    with CuttingProxy(server.port) as proxy:
        proxy.hole = 0.05
        yield proxy


@contextmanager
def connected(proxy: CuttingProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as client:
        yield client


def asked(client: socket.socket, request: bytes) -> bytes:
    """The whole answer; b"" if the connection ended before it."""
    client.sendall(request)
    received = b""
    while not received.endswith(ANSWER[-6:]):
        try:
            chunk = client.recv(100)
        except ConnectionError:
            return b""
        if not chunk:
            return b""
        received += chunk
    return received


def test_a_request_that_nothing_cuts_is_answered(server, proxy):
    with connected(proxy) as client:
        assert asked(client, b"Qone") == asked(client, b"Qtwo") == ANSWER
    assert (server.requests, dict(proxy.cuts)) == ([b"Qone", b"Qtwo"], {})


def test_a_connection_cut_before_a_request_never_reaches_the_server(server, proxy):
    proxy.arm("before", containing=b"two")
    with connected(proxy) as client:
        assert asked(client, b"Qone") == ANSWER
        assert asked(client, b"Qtwo") == b""
    with connected(proxy) as client:
        assert asked(client, b"Qtwo") == ANSWER  # armed once
    assert (server.requests, dict(proxy.cuts)) == ([b"Qone", b"Qtwo"], {"before": 1})


def test_a_connection_cut_after_a_request_loses_only_the_answer(server, proxy):
    proxy.arm("after")
    with connected(proxy) as client:
        assert asked(client, b"Qone") == b""
    assert (server.requests, dict(proxy.cuts)) == ([b"Qone"], {"after": 1})


def test_a_black_hole_delivers_the_request_after_its_client_has_gone(server, proxy):
    proxy.arm("hole")
    with connected(proxy) as client:
        client.sendall(b"Qone")
        client.settimeout(0.01)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert server.came.acquire(timeout=5.0)
    assert (server.requests, dict(proxy.cuts)) == ([b"Qone"], {"hole": 1})


def test_neither_the_start_of_a_connection_nor_its_end_is_cut(server, proxy):
    proxy.chance = 1.0
    with connected(proxy) as client:
        assert asked(client, b"\x00\x00\x00\x08start") == ANSWER
        client.sendall(b"X\x00\x00\x00\x04")
        assert server.came.acquire(timeout=5.0)
        assert server.came.acquire(timeout=5.0)
    with connected(proxy) as client:
        client.sendall(b"Qone")
        client.settimeout(0.5)
        assert client.recv(1) == b""
    assert proxy.cuts.total() == 1


def test_the_same_seed_draws_the_same_cuts(server):
    def drawn(seed: int) -> list[str | None]:
        proxy = CuttingProxy(server.port, seed=seed)
        proxy.chance = 0.5
        return [proxy._drawn(b"Q") for _ in range(30)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert set(drawn(7)) == {None, "before", "after", "hole"}


def test_a_refused_connection_ends_and_a_frozen_one_waits(server, proxy):
    proxy.refusing = True
    with connected(proxy) as client:
        assert client.recv(1) == b""
    proxy.refusing = False
    with connected(proxy) as client:
        proxy.frozen = True
        client.sendall(b"Qone")
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert server.requests == []
        proxy.frozen = False
        client.settimeout(5.0)
        assert client.recv(1) == ANSWER[:1]


def test_all_connections_are_cut_at_once(proxy):
    with connected(proxy) as one, connected(proxy) as two:
        assert asked(one, b"Qone") == asked(two, b"Qone") == ANSWER
        proxy.cut_all()
        assert asked(one, b"Qone") == asked(two, b"Qone") == b""


@pytest.mark.slow
@pytest.mark.no_cover
def test_as_a_program_it_takes_its_settings_from_stdin_and_answers_with_its_counts(server, root):
    program = [sys.executable, "-m", "tests.support.cutting_proxy", str(server.port), "7"]
    with subprocess.Popen(program, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as client:
            assert asked(client, b"Qone") == ANSWER
        process.stdin.write('{"chance": 1, "hole": 0.01}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {}
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as client:
            assert asked(client, b"Qone") == b""
        process.stdin.write("{}\n")
        process.stdin.flush()
        assert sum(json.loads(process.stdout.readline()).values()) == 1
