"""Addresses behind which nothing answers: a server that says nothing, and one that packets do not reach."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def silent() -> Iterator[int]:
    """The port of a server on 127.0.0.1 that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@contextmanager
def dropping() -> Iterator[int]:
    """A port on 127.0.0.1 to which no connection can be made, and that refuses none: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(server.getsockname())
        yield server.getsockname()[1]


HOLES: dict[str, Callable[[], object]] = {"silent": silent, "dropping": dropping}
