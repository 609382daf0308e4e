"""Gateways without agents: tests of a gateway in the process that works are played again on one in another process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import greenroom as gr
from greenroom.transport import Address

from .gateway import gateway

_open_alone = gr.open_runtime


@asynccontextmanager
async def open_shared(store: Any = None, **options: Any) -> AsyncIterator[gr.Runtime]:
    """A runtime on a store in memory that other processes have open, too."""
    store = gr.MemoryStore() if store is None else store
    if isinstance(store, gr.MemoryStore):
        store.peer()  # from now on the ledger is shared
    async with _open_alone(store, **options) as runtime:
        yield runtime


@asynccontextmanager
async def gateway_elsewhere(runtime: gr.Runtime, **options: Any) -> AsyncIterator[Address]:
    """A gateway in a process without agents, on the store of this runtime."""
    assert isinstance(runtime.store, gr.MemoryStore), "a file belongs to one process"
    async with _open_alone(runtime.store.peer()) as edge, gateway(edge, **options) as address:
        yield address


def play_elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test have its gateways in a process without agents. Called by a fixture."""
    if "tmp_path" in request.fixturenames:
        pytest.skip("its runs are in a file, which belongs to one process")
    monkeypatch.setattr(gr, "open_runtime", open_shared)
    monkeypatch.setattr(request.module, "gateway", gateway_elsewhere)
