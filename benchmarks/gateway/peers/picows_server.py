"""picows (Cython) on uvloop: `send` for each event and connection, from one loop. The fastest peer that is known."""

from __future__ import annotations

import os

import uvloop
from on_asyncio import Feed, drive
from picows import WSListener, WSMsgType, WSTransport, ws_create_server


async def main() -> None:
    """Serve until ordered to end."""
    connections: list[WSTransport] = []

    class Listener(WSListener):
        def on_ws_connected(self, transport: WSTransport) -> None:
            connections.append(transport)

    def publish(text: str) -> None:
        data = text.encode()
        for connection in connections:
            connection.send(WSMsgType.TEXT, data)

    server = await ws_create_server(lambda _: Listener(), "127.0.0.1", 0, backlog=2048)
    await drive(Feed(), server.sockets[0].getsockname()[1], publish)
    os._exit(0)


uvloop.run(main())
