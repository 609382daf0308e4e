"""A gateway in this process: bound, announced in the lock file, stopped before the runtime."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs

import greenroom as gr
from greenroom.supervision.nursery import open_collapsing_nursery

from ..gateway.descriptors import raise_soft_limit
from ..gateway.exposed import Cards
from ..gateway.gateway import OnAbort
from ..gateway.sign_ins.sign_in import SignIn
from ..protocol.limits import Limits
from .serve import Address, serve

EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
"""Wildcard address -> the address at which the machine reaches itself."""


class CannotBind(gr.GreenroomError):
    """The address of a gateway cannot be bound; `taken` by another program, or for the reason in the text."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        self.taken = error.errno == errno.EADDRINUSE or "in use" in str(error)
        why = "is taken by another program" if self.taken else f"cannot be bound ({error.strerror or error})"
        super().__init__(f"{host}:{port} {why}")


@attrs.frozen(kw_only=True)
class GatewayOptions:
    """The options of a gateway.

    Attributes:
        host, port: Address to bind.
        hosts, origins: Accepted headers, as in `serve`.
        token: Token of the operator.
        token_file: File with the token for other processes; None for no file.
        on_abort: Effect of a closed chat stream on its run, as in `serve`.
        mcp: Keys of the agents that are MCP tools, as in `serve`.
        a2a, a2a_default, a2a_cards: Agents and cards for A2A clients, as in `serve`.
        authenticate: Further principals, as in `serve`.
        prices: Prices of models, as in `serve`.
        sockets: Listening sockets of the parent, in place of host and port.
    """

    token: str = attrs.field(repr=False)
    token_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    hosts: Iterable[str] = ()
    origins: Iterable[str] = ()
    on_abort: OnAbort = "continue"
    mcp: Iterable[str] | None = None
    a2a: Iterable[str] | None = None
    a2a_default: str | None = None
    a2a_cards: Cards = "private"
    authenticate: Iterable[SignIn] = ()
    prices: Mapping[str, gr.Price] | None = None
    sockets: Sequence[socket.socket] = ()


@asynccontextmanager
async def hosting(runtime: gr.Runtime, gate: GatewayOptions) -> AsyncIterator[Address]:
    """Serve the runtime for the block, and announce the address in the lock file of its database.

    Raises:
        CannotBind: The address cannot be bound.
        UsageError: An option is invalid.
    """
    raise_soft_limit(Limits().connections)
    async with open_collapsing_nursery() as nursery:
        try:
            address = await nursery.start(
                partial(
                    serve,
                    runtime,
                    host=gate.host,
                    port=gate.port,
                    token=gate.token,
                    hosts=gate.hosts,
                    origins=gate.origins,
                    on_abort=gate.on_abort,
                    mcp=gate.mcp,
                    a2a=gate.a2a,
                    a2a_default=gate.a2a_default,
                    a2a_cards=gate.a2a_cards,
                    authenticate=gate.authenticate,
                    prices=gate.prices,
                    sockets=gate.sockets,
                )
            )
        except OSError as error:
            raise CannotBind(gate.host, gate.port, error) from error
        reached = attrs.evolve(address, host=EVERYWHERE.get(address.host, address.host))
        store = runtime.store
        if isinstance(store, gr.SQLiteStore):
            store.announce(reached.url, None if gate.token_file is None else str(gate.token_file))
        try:
            yield reached
        finally:
            if isinstance(store, gr.SQLiteStore):
                store.announce(None)
            nursery.cancel_scope.cancel()
