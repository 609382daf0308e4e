"""websockets on asyncio: `send` for each event and connection, or `broadcast` for each event."""

from __future__ import annotations

import asyncio  # noqa: TID251 - it knows no other loop
import os

from course import arguments
from on_asyncio import Feed, drive
from websockets.asyncio.server import ServerConnection, broadcast, serve


async def main() -> None:
    """Serve until ordered to end."""
    feed, connections = Feed(), set[ServerConnection]()
    all_at_once = arguments().get("broadcast", False)

    async def handler(connection: ServerConnection) -> None:
        connections.add(connection)
        if all_at_once:
            await connection.wait_closed()
        else:
            await feed.follow(connection.send)

    server = await serve(handler, "127.0.0.1", 0, ping_interval=None, compression=None, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    await drive(feed, port, (lambda text: broadcast(connections, text)) if all_at_once else None)
    os._exit(0)  # its own way out waits for the connections


asyncio.run(main())
