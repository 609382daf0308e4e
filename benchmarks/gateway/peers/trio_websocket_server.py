"""trio-websocket as its documentation has it: `send_message` for each event and connection."""

from __future__ import annotations

from functools import partial

import trio
from on_trio import Feed, drive
from trio_websocket import WebSocketRequest, serve_websocket


async def main() -> None:
    """Serve until ordered to end."""
    feed = Feed()

    async def handler(request: WebSocketRequest) -> None:
        connection = await request.accept()
        await feed.follow(connection.send_message)

    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve_websocket, handler, "127.0.0.1", 0, ssl_context=None))
        await drive(feed, server.port)
        nursery.cancel_scope.cancel()


trio.run(main)
