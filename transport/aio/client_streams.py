"""Streams to a gateway on asyncio, and the loop of a client on asyncio."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import Final

from typing_extensions import override

from ..client.endpoint import Endpoint
from ..client.http_exchange import HttpExchange, InvalidAnswer
from ..client.trio_streams import CHUNK, ON_THE_WAY, reason_of
from ..client.waiting import Loop

_EYEBALLS: Final = 0.25
"""Seconds before the next address of a name is tried beside the one before (RFC 8305)."""


class Stream:
    """A byte stream, with the errors of a socket as its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def __repr__(self) -> str:
        return f"<Stream {'closing' if self._writer.is_closing() else 'open'}>"

    async def receive(self) -> bytes:
        """Return the next bytes; none at the end, also at a broken one."""
        try:
            return await self._reader.read(CHUNK)
        except OSError:
            return b""

    async def send(self, data: bytes) -> bool:
        """Send bytes, and wait until there is room for more; return False if the stream is broken."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return True

    def abort(self) -> None:
        """Close the stream; what was not sent yet is dropped."""
        self._writer.transport.abort()


async def open_stream(address: Endpoint, context: ssl.SSLContext | None = None) -> Stream:
    """Open a stream to a gateway, through TLS if the URL is secure.

    Raises:
        NotReachable: The gateway does not answer, or its certificate is invalid.
    """
    tls = (context or ssl.create_default_context()) if address.secure else None
    try:
        reader, writer = await asyncio.open_connection(
            address.host,
            address.port,
            ssl=tls,
            server_hostname=address.host if tls else None,
            # only for names: in Python 3.11 a cancelled race may leave a socket to the garbage collector
            happy_eyeballs_delay=None if _is_number(address.host) else _EYEBALLS,
        )
    except ssl.SSLError as error:
        raise address.unreachable(f"TLS: {error}") from error
    except OSError as error:
        raise address.unreachable(reason_of(error)) from error
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ON_THE_WAY)
    return Stream(reader, writer)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class AsyncioLoop(Loop):
    """The loop of a client on asyncio."""

    @override
    def occurrence(self) -> asyncio.Event:
        return asyncio.Event()

    @override
    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    @override
    async def exchange(self, address: Endpoint, exchange: HttpExchange, context: ssl.SSLContext | None) -> None:
        stream = await open_stream(address, context)
        try:
            await stream.send(exchange.data)
            while not exchange.receive(await stream.receive()):
                pass
        except InvalidAnswer as error:
            raise address.unreachable(str(error)) from error
        finally:
            stream.abort()


ASYNCIO: Final = AsyncioLoop()
