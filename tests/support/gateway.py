"""A gateway on loopback, and a plain client that speaks the wire protocol frame by frame."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
import trio_websocket

import greenroom as gr
from greenroom.transport import Address, serve
from greenroom.transport.protocol.codes import PATH, SUBPROTOCOL

from .casing import cased

TOKEN = "a-token-for-these-tests"
PATIENCE = 120.0
"""Seconds after which a test that waits for a frame is informed that it never comes."""


@asynccontextmanager
async def gateway(runtime: gr.Runtime, **options: Any) -> AsyncIterator[Address]:
    """A gateway for the time of the block; its error, or the block's, leaves bare."""
    options = {"port": 0, **({} if "principals" in options else {"token": TOKEN}), **options}
    failure = None
    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, **options))
        try:
            yield address
        except Exception as error:  # noqa: BLE001 - raised below, outside of the nursery's group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


class Talk:
    """One connection: `say` a frame, `hear` the next one."""

    def __init__(self, ws: trio_websocket.WebSocketConnection) -> None:
        self.ws = ws

    async def say(self, kind: str, **fields: Any) -> None:
        await self.ws.send_message(json.dumps({"type": kind, **fields}))

    async def hear(self) -> dict[str, Any]:
        with trio.fail_after(PATIENCE):
            frame: dict[str, Any] = cased(json.loads(await self.ws.get_message()))
        return frame

    async def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Say something and receive the gateway's next frame that is no event."""
        await self.say(kind, **fields)
        while True:
            frame = await self.hear()
            if frame["type"].startswith("gw."):
                return frame

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """All frames up to the first one of this type."""
        frames = []
        while not frames or frames[-1]["type"] != kind:
            frames.append(await self.hear())
        return frames

    async def closing(self) -> tuple[int, str | None]:
        """How the connection ends: code and reason."""
        with trio.fail_after(PATIENCE):
            try:
                while True:
                    await self.ws.get_message()
            except trio_websocket.ConnectionClosed as error:
                reason = error.reason
        if reason is None:
            raise AssertionError("the connection has ended without a close frame")
        return reason.code, reason.reason


@asynccontextmanager
async def talking(
    address: Address, *, token: str | None = TOKEN, subprotocols: tuple[str, ...] = (SUBPROTOCOL,), **headers: str
) -> AsyncIterator[Talk]:
    """A connection whose header says who it is; without a token it has to say hello. The block's error leaves bare."""
    extra = [(name.encode(), value.encode()) for name, value in headers.items()]
    if token is not None:
        extra.append((b"authorization", f"Bearer {token}".encode()))
    failure = None
    url = f"ws://{address.host}:{address.port}{PATH}"
    async with trio_websocket.open_websocket_url(url, subprotocols=list(subprotocols), extra_headers=extra) as ws:
        try:
            yield Talk(ws)
        except Exception as error:  # noqa: BLE001 - raised below, outside of the library's group
            failure = error
    await trio.aclose_forcefully(ws._stream)  # the library leaves it open when the server has closed first
    if failure is not None:
        raise failure


@asynccontextmanager
async def welcomed(address: Address, **options: Any) -> AsyncIterator[Talk]:
    """A connection that has been welcomed."""
    async with talking(address, **options) as talk:
        assert (await talk.hear())["type"] == "gw.welcome"
        yield talk


class Reply:
    """An HTTP response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return cased(json.loads(self.body))


async def http(
    address: Address,
    method: str,
    target: str,
    *,
    body: Any = None,
    token: str | None = TOKEN,
    headers: dict[str, str] | None = None,
) -> Reply:
    """One request on a connection of its own."""
    import h11

    head_fields = {"host": f"{address.host}:{address.port}", "connection": "close", **(headers or {})}
    if token is not None:
        head_fields["authorization"] = f"Bearer {token}"
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if data:
        head_fields["content-length"] = str(len(data))
    connection = h11.Connection(h11.CLIENT)
    with trio.fail_after(PATIENCE):
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            request = h11.Request(method=method, target=target, headers=list(head_fields.items()))
            await stream.send_all(
                connection.send(request) + (connection.send(h11.Data(data=data)) if data else b"")
                + connection.send(h11.EndOfMessage())
            )  # fmt: skip
            status, found, parts = 0, dict[str, str](), list[bytes]()
            while True:
                while (event := connection.next_event()) is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65_536))
                await trio.lowlevel.checkpoint()
                if isinstance(event, h11.Response):
                    status = event.status_code
                    found = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    return Reply(status, found, b"".join(parts))
