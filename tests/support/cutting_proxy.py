"""A proxy between a client and PostgreSQL that cuts connections before a request, after a request, or as a black hole.

    with CuttingProxy(port_of_server, seed=7) as proxy:
        proxy.arm("after", containing=b"decision-1")     # the next request with these bytes is done, its answer is lost
        proxy.chance = 0.004                             # of each further request to be cut, in a mode by lot
        ... connect to 127.0.0.1:proxy.port ...
        assert proxy.cuts["after"] == 1

The proxy works in a thread of its own, so that it serves tests that block their thread, too. As a program it serves
other processes; it reads commands from stdin, one JSON object a line, and answers each with its counts:

    python -m tests.support.cutting_proxy TARGET SEED
    {"port": 20133}                                      # printed first
    {"chance": 0.004}                                    # attributes of `CuttingProxy` that are set
    {"after": 3, "before": 2, "hole": 1}                 # printed

Only requests are cut at random: neither the first packets of a connection nor its last one.
"""

import json
import random
import sys
import threading
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

import attrs
import trio

from greenroom.supervision import open_collapsing_nursery

Mode = Literal["before", "after", "hole"]
MODES: tuple[Mode, ...] = ("before", "after", "hole")
REQUESTS = b"QPBEDFCSH"
"""First bytes of the messages with which a client asks something; a start-up packet begins with its length."""
ANSWERED = b"Z\x00\x00\x00\x05"
"""ReadyForQuery, without its last byte: the server has ended the transaction of the request."""
CHUNK = 1 << 16
LINGER = 0.05
"""Seconds for which the connection to the server stays open after a delayed request has been delivered."""


@attrs.define(eq=False)
class _Connection:
    """A connection through the proxy.

    Attributes:
        mode: the way in which it is being cut; None while it is whole.
    """

    client: trio.SocketStream
    server: trio.SocketStream
    mode: Mode | None = None


@attrs.define
class _Armed:
    mode: Mode
    containing: bytes
    times: int


class CuttingProxy:
    """A proxy on a free port of 127.0.0.1 for the time of a `with` block.

    Attributes:
        port: of the proxy.
        target: port of the server; counts for later connections.
        chance: of each request to be cut.
        hole: seconds for which nothing moves in a black hole, before the request reaches the server after all and both
            connections end: the server performs a request that its client has given up.
        refusing: new connections are closed at once.
        frozen: nothing moves on any connection, old or new, and none is closed.
        cuts: by mode, how many connections were cut.
        connections: how many were opened.
    """

    def __init__(self, target: int, *, seed: int = 0) -> None:
        self.target = target
        self.chance = 0.0
        self.hole = 1.5
        self.refusing = False
        self.frozen = False
        self.cuts: Counter[str] = Counter()
        self.connections = 0
        self.port = 0
        self._rng = random.Random(seed)
        self._armed: list[_Armed] = []
        self._open: dict[_Connection, trio.CancelScope] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), name="cutting proxy", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(10.0)

    def arm(self, mode: Mode, *, containing: bytes = b"", times: int = 1) -> None:
        """Cut the next requests that contain these bytes: values of parameters, names, or the text of a statement."""
        self._armed.append(_Armed(mode, containing, times))

    def cut_all(self) -> None:
        """Close every connection at once, as a server does that dies."""
        assert self._token is not None
        self._token.run_sync_soon(self._cut_all)

    def _cut_all(self) -> None:
        for scope in self._open.values():
            scope.cancel()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self._ready.set()
        with self._scope:
            await trio.serve_listeners(self._connect, listeners)

    async def _connect(self, client: trio.SocketStream) -> None:
        self.connections += 1
        try:
            if not self.refusing:
                with suppress(OSError):  # the server is away, so the client loses its connection
                    await self._forward(_Connection(client, await trio.open_tcp_stream("127.0.0.1", self.target)))
        finally:
            await trio.aclose_forcefully(client)

    async def _forward(self, connection: _Connection) -> None:
        try:
            async with open_collapsing_nursery() as nursery:
                self._open[connection] = nursery.cancel_scope
                nursery.start_soon(self._upwards, connection, nursery.cancel_scope)
                nursery.start_soon(self._downwards, connection, nursery.cancel_scope)
        finally:
            del self._open[connection]
            await trio.aclose_forcefully(connection.server)

    async def _upwards(self, connection: _Connection, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await connection.client.receive_some(CHUNK):
                await self._thawed()
                if connection.mode is None and (mode := self._drawn(chunk)) is not None:
                    connection.mode = mode
                    self.cuts[mode] += 1
                if connection.mode == "before":
                    break
                if connection.mode == "hole":
                    await trio.sleep(self.hole)
                    await connection.server.send_all(chunk)
                    await trio.sleep(LINGER)
                    break
                await connection.server.send_all(chunk)
        scope.cancel()

    async def _downwards(self, connection: _Connection, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await connection.server.receive_some(CHUNK):
                await self._thawed()
                if connection.mode is None:
                    await connection.client.send_all(chunk)
                elif connection.mode == "after" and chunk[-6:-1] == ANSWERED:
                    break
        if connection.mode != "hole":  # in a hole the request is still on its way to the server
            scope.cancel()

    async def _thawed(self) -> None:
        while self.frozen:  # noqa: ASYNC110 - another thread sets it
            await trio.sleep(0.01)

    def _drawn(self, chunk: bytes) -> Mode | None:
        if chunk[0] not in REQUESTS:
            return None
        for armed in self._armed:
            if armed.containing in chunk:
                armed.times -= 1
                if not armed.times:
                    self._armed.remove(armed)
                return armed.mode
        return self._rng.choice(MODES) if self._rng.random() < self.chance else None


def main(target: int, seed: int) -> None:
    """Serve until stdin ends."""
    with CuttingProxy(target, seed=seed) as proxy:
        print(json.dumps({"port": proxy.port}), flush=True)  # noqa: T201
        for line in sys.stdin:
            for name, value in json.loads(line).items():
                setattr(proxy, name, value)
            print(json.dumps(proxy.cuts), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
