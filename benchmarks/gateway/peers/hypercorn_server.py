"""Hypercorn's trio worker with a bare ASGI application: `send` for each event and connection, and a small GET."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from on_trio import Feed, drive

BODY = b'{"status":"ok"}'
HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}


async def main() -> None:
    """Serve until ordered to end."""
    feed = Feed()

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
        match scope["type"]:
            case "lifespan":
                while True:
                    message_type = (await receive())["type"]
                    await send({"type": f"{message_type}.complete"})
                    if message_type == "lifespan.shutdown":
                        return
            case "websocket":
                await receive()
                await send({"type": "websocket.accept"})
                await feed.follow(lambda text: send({"type": "websocket.send", "text": text}))
            case _:
                await send(HEAD)
                await send({"type": "http.response.body", "body": BODY})

    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = config.errorlog = None
    config.keep_alive_max_requests = 1_000_000_000
    config.websocket_ping_interval = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, app, config)
        await drive(feed, listener.getsockname()[1])
        os._exit(0)  # its own way out waits for the connections


trio.run(main)
