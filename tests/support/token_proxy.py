"""A proxy that adds a token to each request, for clients that cannot; one request for each connection."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio


async def _pump(source: trio.abc.ReceiveStream, target: trio.abc.SendStream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for piece in source:
            await target.send_all(piece)
    scope.cancel()


async def _serve(port: int, token: str, client: trio.SocketStream) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await client.receive_some()
        if not piece:
            return
        head += piece
    own = client.socket.getsockname()[1]
    head = head.replace(f":{own}\r\n".encode(), f":{port}\r\n".encode())
    head = re.sub(rb"(?im)^connection:.*\r\n", b"", head)
    added = f"\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
    server = await trio.open_tcp_stream("127.0.0.1", port)
    async with client, server, trio.open_nursery() as nursery:
        await server.send_all(head.replace(b"\r\n", added.encode(), 1))
        nursery.start_soon(_pump, client, server, nursery.cancel_scope)
        nursery.start_soon(_pump, server, client, nursery.cancel_scope)


@asynccontextmanager
async def token_proxy(port: int, token: str) -> AsyncIterator[int]:
    """Pass requests on to a port of this machine, with the token; the value is the proxy's own port."""
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, partial(_serve, port, token), 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()
