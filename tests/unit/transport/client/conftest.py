"""Each test of a client at the fake gateway runs with the client of trio, and with that of asyncio."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from greenroom.transport.client import connect

from ....support.asyncio_client import asyncio_thread, connect_on_asyncio
from . import kit


@pytest.fixture(params=["trio", "asyncio"])
async def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The event loop of the clients that `kit.client_of` opens."""
    with asyncio_thread() as host:
        monkeypatch.setattr(kit, "opened", connect if request.param == "trio" else partial(connect_on_asyncio, host))
        yield request.param
