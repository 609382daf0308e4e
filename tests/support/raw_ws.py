"""A peer made of bytes: what it sends is what the test says, and what it receives is checked against RFC 6455.

No library is in between: whatever a library would refuse to send can be sent. Works over sockets and memory streams.
"""

import base64
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from greenroom.transport import Address

TEXT, BINARY, CLOSE, PING, PONG, MORE = 0x1, 0x2, 0x8, 0x9, 0xA, 0x0
MASK = b"\x0f\xa0\x37\x51"
KEY = base64.b64encode(b"sixteen bytes!!!").decode()
ACCEPTED = b"HTTP/1.1 101 "
PATIENCE = 120.0
"""Seconds after which a test that waits for bytes is informed that they never come."""


def frame(
    payload: bytes | str = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    mask: bytes | None = MASK,
    rsv: int = 0,
    says: int | None = None,
) -> bytes:
    """A client's frame. `says`: a length in the header that need not be the payload's."""
    data = payload.encode() if isinstance(payload, str) else payload
    size = len(data) if says is None else says
    first, bit = (0x80 if fin else 0) | rsv << 4 | opcode, 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if not mask:
        return head + data
    return head + mask + bytes(byte ^ mask[i & 3] for i, byte in enumerate(data))


def said(kind: str, **fields: Any) -> bytes:
    """A frame of the protocol."""
    return frame(json.dumps({"type": kind, **fields}))


def closing(code: int = 1000, reason: bytes = b"") -> bytes:
    """A close frame."""
    return frame(struct.pack("!H", code) + reason, CLOSE)


def head(first: str, headers: Mapping[str, str | None] | None = None, **more: str | None) -> bytes:
    """The head of a request: request line and headers; those that are None are left out."""
    head_fields = {"Host": "localhost", **(headers or {}), **more}
    lines = [first, *(f"{name.replace('_', '-')}: {value}" for name, value in head_fields.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def upgrade(host: str, token: str | None = None, **changes: str | None) -> bytes:
    """A handshake; `changes` are headers, with _ for -, None to leave one out."""
    headers: dict[str, str | None] = {
        "Host": host,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "greenroom.v1",
        "Authorization": None if token is None else f"Bearer {token}",
    }
    names = {name.lower(): name for name in headers}
    for name, value in changes.items():
        plain = name.replace("_", "-")
        headers[names.get(plain.lower(), plain)] = value
    return head("GET /v1/ws HTTP/1.1", headers)


@attrs.frozen
class Heard:
    """A frame from the gateway."""

    opcode: int
    payload: bytes

    def json(self) -> dict[str, Any]:
        assert self.opcode == TEXT, self
        data: dict[str, Any] = json.loads(self.payload)
        return data

    @property
    def code(self) -> int:
        assert self.opcode == CLOSE, self
        (code,) = struct.unpack("!H", self.payload[:2])
        return int(code)


@attrs.frozen
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.json()["error"]["code"]
        return code


class Ended(Exception):
    """The gateway has closed; `rest` came before and is no whole frame or response."""

    def __init__(self, rest: bytes, *, reset: bool = False) -> None:
        super().__init__(rest[:200])
        self.rest, self.reset = rest, reset


class Raw:
    """One connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.left = b""

    async def send(self, *data: bytes) -> None:
        """Send as it is."""
        await self.stream.send_all(b"".join(data))

    async def trickle(self, data: bytes, *, every: float, size: int = 1) -> None:
        """Send a little every now and then, until the gateway has had enough."""
        for start in range(0, len(data), size):
            try:
                await self.stream.send_all(data[start : start + size])
            except trio.BrokenResourceError:
                return
            await trio.sleep(every)

    def reset(self) -> None:
        """Close with RST."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()

    async def more(self, most: int = 65_536) -> None:
        """Wait for more bytes.

        Raises:
            Ended: there are no more.
        """
        try:
            with trio.fail_after(PATIENCE):
                data = await self.stream.receive_some(most)
        except trio.BrokenResourceError:
            raise Ended(self.left, reset=True) from None
        if not data:
            raise Ended(self.left)
        self.left += data

    async def exactly(self, size: int) -> bytes:
        while len(self.left) < size:
            await self.more()
        data, self.left = self.left[:size], self.left[size:]
        return data

    async def until(self, end: bytes) -> bytes:
        while end not in self.left:
            await self.more()
        data, _, self.left = self.left.partition(end)
        return data + end

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        try:
            while True:
                await self.more()
        except Ended as ended:
            self.left = b""
            return ended.rest

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def heading(self) -> tuple[int, dict[str, str]]:
        """Status and headers of a response."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        assert version == "HTTP/1.1", first
        pairs = [line.partition(": ") for line in lines if line]
        return int(status), {name.lower(): value for name, _, value in pairs}

    async def answer(self, *, body: bool = True) -> Answer:
        """A response, whole; `body`: it may have one (not after HEAD)."""
        status, headers = await self.heading()
        if not body or status in (204, 304) or status < 200:
            data = b""
        elif headers.get("transfer-encoding") == "chunked":
            data = b"".join([chunk async for chunk in self.chunks()])
        elif "content-length" in headers:
            data = await self.exactly(int(headers["content-length"]))
        else:
            data = await self.rest()
        return Answer(status, headers, data)

    async def chunks(self) -> AsyncIterator[bytes]:
        """A chunked body; `Ended` if it stops before its terminator."""
        while True:
            size = int(await self.until(b"\r\n"), 16)
            data = await self.exactly(size)
            assert await self.exactly(2) == b"\r\n"
            if not size:
                return
            yield data

    # --- WebSocket ---------------------------------------------------------------------------------------------------

    async def upgraded(self, handshake: bytes) -> None:
        """Send a handshake, which must be accepted."""
        await self.send(handshake)
        answer = await self.until(b"\r\n\r\n")
        assert answer.startswith(ACCEPTED), answer

    async def hear(self) -> Heard:
        """The next frame, of any kind. What RFC 6455 forbids a server fails the test."""
        first, second = await self.exactly(2)
        assert first & 0xF0 == 0x80, f"a fragment, or reserved bits: {first:#x}"
        assert not second & 0x80, "masked"
        size = second
        if second == 126:
            size = int.from_bytes(await self.exactly(2), "big")
        elif second == 127:
            size = int.from_bytes(await self.exactly(8), "big")
        opcode = first & 0x0F
        assert opcode in (TEXT, CLOSE, PING, PONG), hex(opcode)
        return Heard(opcode, await self.exactly(size))

    async def tell(self) -> dict[str, Any]:
        """The next text frame; pings are passed over and not answered."""
        while True:
            received = await self.hear()
            if received.opcode == TEXT:
                return received.json()
            assert received.opcode != CLOSE, received

    async def find(self, kind: str) -> dict[str, Any]:
        """The next text frame of a type."""
        while True:
            found = await self.tell()
            if found["type"] == kind:
                return found

    async def to_the_end(self) -> list[Heard]:
        """All frames up to the end of the connection: nothing comes after a close frame, and none is torn."""
        received: list[Heard] = []
        try:
            while True:
                received.append(await self.hear())
        except Ended as ended:
            rest = ended.rest
        assert not rest, f"a torn frame: {rest!r:.100}"
        assert CLOSE not in [one.opcode for one in received[:-1]], "something came after a close frame"
        return received

    async def parting(self) -> tuple[str | None, int | None]:
        """How the gateway ends it: the name in gw.bye and the code of the close frame."""
        received = await self.to_the_end()
        byes = [one.json() for one in received if one.opcode == TEXT and one.json()["type"] == "gw.bye"]
        closes = [one.code for one in received if one.opcode == CLOSE]
        return (byes[-1]["name"] if byes else None), (closes[-1] if closes else None)


@asynccontextmanager
async def calling(address: Address, *, buffer: int | None = None) -> AsyncIterator[Raw]:
    """A connection; `buffer` is the size of its receive buffer, for a peer that does not read."""
    sock = trio.socket.socket()
    try:
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await sock.connect((address.host, address.port))
    except BaseException:
        sock.close()
        raise
    stream = trio.SocketStream(sock)
    try:
        yield Raw(stream)
    finally:
        stream.socket.close()


def host_of(address: Address) -> str:
    """What a Host header says."""
    return f"{address.host}:{address.port}"


@asynccontextmanager
async def talking_raw(address: Address, token: str, *, buffer: int | None = None) -> AsyncIterator[Raw]:
    """A WebSocket that has been welcomed."""
    async with calling(address, buffer=buffer) as raw:
        await raw.upgraded(upgrade(host_of(address), token))
        assert (await raw.tell())["type"] == "gw.welcome"
        yield raw
