"""Streams to a gateway on trio, and the loop of a client on trio."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final

import trio
from typing_extensions import override

from greenroom.supervision.exits import leaves

from .endpoint import Endpoint
from .http_exchange import HttpExchange, InvalidAnswer
from .waiting import Loop

ON_THE_WAY: Final = 128 * 1024
"""Size of the socket's receive buffer, in bytes.

Data in this buffer is wasted when a full reader unsubscribes, so the buffer should not hold megabytes.
"""
CHUNK: Final = 64 * 1024
"""Bytes per read."""


async def open_stream(address: Endpoint, context: ssl.SSLContext | None = None) -> trio.abc.Stream:
    """Open a stream to a gateway, through TLS if the URL is secure.

    Raises:
        NotReachable: The gateway does not answer, or its certificate is invalid.
    """
    try:
        stream = await trio.open_tcp_stream(address.host, address.port)
    except OSError as error:
        raise address.unreachable(reason_of(error)) from error
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ON_THE_WAY)
    if not address.secure:
        return stream
    context = context or ssl.create_default_context()
    # https_compatible: many servers and proxies close the connection without TLS's close_notify
    wrapped = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
    try:
        await wrapped.do_handshake()
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise address.unreachable(f"TLS: {error.__cause__ or error}") from error
    except BaseException:  # the stream has no other owner, also if this task is cancelled
        await trio.aclose_forcefully(stream)
        raise
    return wrapped


def reason_of(error: OSError) -> str:
    """Describe a failed connection; trio groups the attempts at all addresses of a name under one error."""
    causes = [error] if error.__cause__ is None else leaves(error.__cause__)
    return ", ".join(dict.fromkeys(map(_in_words, causes)))


def _in_words(error: BaseException) -> str:
    number = isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno
    return os.strerror(number) if number else str(getattr(error, "strerror", None) or error)


class TrioLoop(Loop):
    """The loop of a client on trio."""

    @override
    def occurrence(self) -> trio.Event:
        return trio.Event()

    @override
    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    @override
    async def exchange(self, address: Endpoint, exchange: HttpExchange, context: ssl.SSLContext | None) -> None:
        stream = await open_stream(address, context)
        try:
            await stream.send_all(exchange.data)
            while not exchange.receive(bytes(await stream.receive_some(CHUNK))):
                pass
        except InvalidAnswer as error:
            raise address.unreachable(str(error)) from error
        except trio.BrokenResourceError as error:
            raise address.unreachable(f"the answer is not HTTP: {error}") from error
        finally:
            await trio.aclose_forcefully(stream)


TRIO: Final = TrioLoop()
