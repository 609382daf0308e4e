"""A gateway that does what a test tells it: logs in memory, connections that are cut, frames that are lost or doubled.

It speaks greenroom.v1 as docs/gateway.md has it, over a real socket on loopback. What a test wants to be different is
changed on the object: `tamper` sees every frame that goes down, `refuse` every upgrade, `answer` every command.
"""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

TOKEN = "a token for tests only"
TERMINAL = ("run.completed", "run.failed", "run.cancelled")


def event(run: str, sequence: int, type_: str = "run.message.delta", **payload: Any) -> str:
    """An event's text as the store would have it."""
    return json.dumps(
        {
            "id": f"{run}-{sequence}",
            "sequence": sequence,
            "type": type_,
            "version": 2,
            "runId": run,
            "sessionId": None,
            "agentId": "fake",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "payload": payload,
        }
    )


class Connection:
    """One client that is connected."""

    def __init__(self, gateway: "FakeGateway", socket: WebSocketConnection) -> None:
        self.gateway, self.socket = gateway, socket
        self.received: list[dict[str, Any]] = []
        self.places: dict[str, int] = {}
        self.silent = False
        self._news = trio.Event()

    async def tell(self, **frame: Any) -> None:
        """Send a gateway frame."""
        await self.send(json.dumps(frame))

    async def send(self, text: str) -> None:
        """Send a frame, as far as the test lets it through."""
        for one in () if self.silent else self.gateway.tamper(text):
            await self.socket.send_message(one)

    def wake(self) -> None:
        """There may be more to send."""
        self._news.set()

    async def cut(self) -> None:
        """End the TCP connection, without a word."""
        await trio.aclose_forcefully(self.socket._stream)

    async def close(self, code: int, reason: str = "", *, bye: dict[str, Any] | None = None) -> None:
        """Say goodbye, if there is something to say, and close."""
        if bye is not None:
            await self.tell(type="gw.bye", **{"code": code, "name": "test"} | bye)
        await self.socket.aclose(code, reason)

    async def serve(self) -> None:
        """Talk until the connection ends."""
        await self.tell(type="gw.welcome", **self.gateway.welcome())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump)
            while True:
                frame = json.loads(await self.socket.get_message())
                self.received.append(frame)
                self.gateway.received.append(frame)
                self.gateway.changed()
                await self._answer(frame)

    async def _answer(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "ping":
                heads = {run: len(self.gateway.logs.get(run, ())) for run in self.places}
                await self.tell(type="gw.tick", heads=heads)
            case "subscribe":
                await self._subscribe(frame)
            case "unsubscribe":
                self.places.pop(frame["run"], None)
                await self.tell(type="gw.unsubscribed", run=frame["run"], reason="asked")
            case _:
                for answer in self.gateway.answer(frame):
                    await self.tell(**answer)

    async def _subscribe(self, frame: dict[str, Any]) -> None:
        run, after, gateway = frame["run"], frame.get("after", 0), self.gateway
        log = gateway.logs.get(run)
        refusal = gateway.refusals.get(run)
        if refusal is not None or log is None:
            code = {"code": "unknown_run", "message": f"no run {run}"} if refusal is None else refusal
            await self.tell(type="gw.error", id=frame["id"], **code)
            return
        foreign = frame.get("epoch") not in (None, gateway.epoch)
        if foreign or after > len(log):
            reason, after = "epoch" if foreign else "ahead", gateway.snapshot_at.get(run, len(log))
            await self.tell(type="gw.reset", run=run, reason=reason, sequence=after, snapshot={"run": run})
        else:
            await self.tell(type="gw.subscribed", run=run, after=after, head=len(log), mode="replay", id=frame["id"])
        self.places[run] = after
        self.wake()

    async def _pump(self) -> None:
        while True:
            self._news = trio.Event()
            for run in list(self.places):
                await self._slice(run, self.gateway.logs[run])
            await self._news.wait()

    async def _slice(self, run: str, log: list[str]) -> None:
        begin = self.places[run]
        for place in range(begin, min(begin + 16, len(log))):
            if self.places.get(run) != place:
                return  # unsubscribed, or subscribed anew
            self.places[run] = place + 1
            await self.send(log[place])
        if self.places.get(run) == len(log):
            await self._end(run, log)
        else:
            self.wake()

    async def _end(self, run: str, log: list[str]) -> None:
        end = self.gateway.ends.get(run)
        if end is None and log and json.loads(log[-1])["type"] in TERMINAL:
            end = {"reason": "done"}
        if end is not None:
            del self.places[run]
            await self.tell(type="gw.unsubscribed", run=run, **end)


class FakeGateway:
    """The server.

    Attributes:
        logs: run -> its events. ends: run -> what gw.unsubscribed says at the end of one without a terminal event.
        refusals: run -> the error for a subscribe. snapshot_at: run -> the sequence of a reset, if not the head.
        epoch, limits, principal: as welcomed.
        connections: those that are open. received: each frame of each client. acted: commands that acted, in order.
        tls: set it before `open` to serve through TLS.
        tamper: frame -> the frames that are sent in its place. refuse: what is done with an upgrade before all else.
    """

    def __init__(self) -> None:
        self.port = 0
        self.epoch, self.principal = "first", "operator"
        self.limits: dict[str, float] = {"messageBytes": 65_536, "messagesPerSecond": 10_000, "subscriptions": 100}
        self.logs: dict[str, list[str]] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, dict[str, Any]] = {}
        self.snapshot_at: dict[str, int] = {}
        self.connections: list[Connection] = []
        self.upgrades = 0
        self.received: list[dict[str, Any]] = []
        self.acted: list[dict[str, Any]] = []
        self.tamper: Callable[[str], Iterable[str]] = lambda text: [text]
        self.refuse: Callable[[WebSocketRequest], Any] | None = None
        self.authenticate: Callable[[Connection], Any] = Connection.serve
        self.mute = False
        self.tls: ssl.SSLContext | None = None
        self._nursery: trio.Nursery | None = None
        self._listening: trio.CancelScope | None = None
        self._changed = trio.Event()

    @property
    def url(self) -> str:
        return f"{'ws' if self.tls is None else 'wss'}://127.0.0.1:{self.port}"

    def welcome(self) -> dict[str, Any]:
        return {
            "connection": f"c{self.upgrades}",
            "server": "fake",
            "protocol": "greenroom.v1",
            "epoch": self.epoch,
            "principal": self.principal,
            "scopes": ["admin"],
            "heartbeatSeconds": 20.0,
            "limits": self.limits,
        }

    def append(self, run: str, count: int = 1, *, end: bool = False) -> None:
        """So many more events of a run; with `end` the last one is its terminal event."""
        log = self.logs.setdefault(run, [])
        for left in range(count, 0, -1):
            last = end and left == 1
            log.append(event(run, len(log) + 1, "run.completed" if last else "run.message.delta"))
        for connection in self.connections:
            connection.wake()

    def answer(self, frame: dict[str, Any]) -> list[dict[str, Any]]:
        """What a command is answered: it acts once, and is a duplicate afterwards."""
        known = any(one["id"] == frame["id"] for one in self.acted)
        if not known:
            self.acted.append(frame)
        if self.mute:
            return []
        run = frame.get("run") or f"run-of-{frame['id']}"
        ack = {"type": "gw.ack", "id": frame["id"], "run": run, "status": "duplicate" if known else "accepted"}
        return [ack | ({"thread": "t1"} if frame["type"] == "start" else {})]

    def changed(self) -> None:
        """Something has happened that a test may wait for."""
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until something is the case."""
        with trio.fail_after(60):
            while not what():
                await self._changed.wait()

    def subscribes(self, run: str = "r") -> list[int]:
        """The cursors of all subscribes to a run, in order."""
        return [one.get("after", 0) for one in self.received if one["type"] == "subscribe" and one["run"] == run]

    # --- being there, or not -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self) -> AsyncIterator["FakeGateway"]:
        """Serve for the time of the block."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self.up()
            yield self
            nursery.cancel_scope.cancel()

    async def up(self) -> None:
        """Listen, on the same port as before."""
        assert self._nursery is not None
        self._listening = await self._nursery.start(self._listen)

    async def down(self) -> None:
        """Cut every connection, and be gone."""
        assert self._listening is not None
        self._listening.cancel()
        for connection in list(self.connections):
            await connection.cut()

    async def _listen(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                serve = partial(serve_websocket, self._meet, "127.0.0.1", self.port, self.tls, message_queue_size=64)
                server = await nursery.start(serve)
                self.port = server.port
                task_status.started(scope)

    async def _meet(self, request: WebSocketRequest) -> None:
        self.upgrades += 1
        self.changed()
        if self.refuse is not None:
            await self.refuse(request)
            return
        socket = await request.accept(subprotocol="greenroom.v1")
        if (b"authorization", f"Bearer {TOKEN}".encode()) not in request.headers:
            await socket.aclose(4401, "no such token")
            return
        connection = Connection(self, socket)
        self.connections.append(connection)
        self.changed()
        try:
            await self.authenticate(connection)
        except* ConnectionClosed:
            pass
        finally:
            self.connections.remove(connection)
            self.changed()
