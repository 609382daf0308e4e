"""A connection that is cut or has failed is reset: a server that sends to it learns of the end with the next packet."""

import socket
from collections.abc import Callable, Iterator

import pytest

from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._target import PgTarget


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    """A link whose connection is a socket alone, and the server's end of the socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(PgTarget.parse("postgresql://127.0.0.1/none"), "test")
        link._socket = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with server:
            server.settimeout(10)
            yield link, server


def cut(link: Link) -> None:
    link.cut()
    link.close()


@pytest.mark.parametrize("end", [cut, lambda link: link.close(reset=True)], ids=["cut", "failed"])
def test_the_server_learns_of_the_end_with_the_next_packet(
    pair: tuple[Link, socket.socket], end: Callable[[Link], None]
) -> None:
    link, server = pair
    end(link)
    with pytest.raises(ConnectionError):
        answered(server)


def answered(server: socket.socket) -> int:
    """Read to the end and send a byte, which a socket that was closed in order still takes."""
    while server.recv(1):
        pass
    return server.send(b"x")


def test_a_connection_that_is_not_needed_any_more_ends_in_order(pair: tuple[Link, socket.socket]) -> None:
    link, server = pair
    link.close()
    assert answered(server) == 1
