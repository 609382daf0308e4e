"""What the client's tests share: a paced client, and a gateway that does as ordered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from greenroom import Event
from greenroom.transport.client import Client, ConnectionTiming, EventIterator, connect

from ....support.fake_gateway import TOKEN, FakeGateway

FAST = ConnectionTiming(
    first=0.001, slowest=0.01, settled=0.05, handshake=60.0, closing=60.0, patience=0.01, lots=lambda: 1.0
)
"""Comes back at once; what only a gateway that hangs makes long is long."""


opened: Any = connect
"""Opens a client; see `conftest.road`."""


@asynccontextmanager
async def client_of(gateway: FakeGateway, **options: Any) -> AsyncIterator[Client]:
    async with opened(gateway.url, **{"token": TOKEN, "pace": FAST} | options) as client:
        yield client


async def some(events: EventIterator, count: int) -> list[int]:
    """The sequences of the next events."""
    return [(await anext(events)).sequence for _ in range(count)]


async def all_of(events: EventIterator) -> list[Event]:
    return [event async for event in events]
