"""The client of the gateway that a bridge has now: another one takes its place when the gateway is lost."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from ..client import Client, ClientClosed, ConnectError, ConnectionState, NotReachable, connect

ATTEMPTS: Final = 2
"""Failures in a row after which a gateway counts as lost: a server that restarts drops one connection."""
PATIENCE: Final = 10.0
"""Seconds in which a request over HTTP is tried again while no gateway answers."""
PAUSE: Final = 0.2
"""Seconds between two tries."""

T = TypeVar("T")
_log = logging.getLogger("greenroom.acp")


class ServedAt(Protocol):
    """The address of a gateway."""

    @property
    def url(self) -> str:
        """The address."""

    @property
    def token(self) -> str | None:
        """The token."""


class Gateways(Protocol):
    """The gateway of a bridge, now."""

    async def address(self) -> ServedAt:
        """Return the address of the gateway; waits while there is none."""

    def lost(self, address: ServedAt, /) -> None:
        """Report that no gateway answers at an address; another one is looked for."""


class GatewayLink:
    """The client of the present gateway. Any number of tasks may use it."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"<GatewayLink: {self._client!r}>"

    @property
    def url(self) -> str:
        """The address of the present gateway; "" while there is none."""
        return "" if self._client is None else self._client.url

    def use(self, client: Client | None) -> None:
        """Use a client from now on; None: there is none now."""
        self._client = client
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def client(self) -> Client:
        """Return the client; waits while there is none."""
        while self._client is None:
            await self._changed.wait()
        return self._client

    async def call(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """Return the answer to a request, asked again if the gateway is lost; the request must be repeatable.

        Raises:
            NotReachable: No gateway answers within `PATIENCE` seconds.
            GreenroomError: The gateway refuses the request.
        """
        until = trio.current_time() + PATIENCE
        while True:
            client = await self.client()
            try:
                return await request(client)
            except ClientClosed:
                await trio.lowlevel.checkpoint()
            except NotReachable:
                if trio.current_time() >= until:
                    raise
                await trio.sleep(PAUSE)

    async def stay_connected(
        self, gateways: Gateways, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Connect to the gateway, and to the next one when it is lost, until cancelled.

        Raises:
            ConnectError: The first gateway does not answer, or refuses.
        """

        def connected() -> None:
            task_status.started()

        await self._stay(await gateways.address(), gateways, patient=False, connected=connected)
        while True:
            address = await gateways.address()
            try:
                await self._stay(address, gateways, patient=True)
            except ConnectError as error:
                _log.warning("%s", error)
                await trio.sleep(PAUSE)
                gateways.lost(address)

    async def _stay(
        self, address: ServedAt, gateways: Gateways, *, patient: bool, connected: Callable[[], None] = lambda: None
    ) -> None:
        lost = trio.Event()
        watch = partial(_watch, lost)
        async with connect(address.url, token=address.token, patient=patient, on_change=watch) as client:
            self.use(client)
            try:
                connected()
                await lost.wait()
            finally:
                self.use(None)
        gateways.lost(address)


def _watch(lost: trio.Event, state: ConnectionState) -> None:
    refused = state.attempt == 0  # for good: the client makes no further attempt
    if not state.connected and (refused or state.attempt >= ATTEMPTS):
        lost.set()
