"""`open_store`: a store without a runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from greenroom.actors.abc import Store
from greenroom.actors.store_events import ignore
from greenroom.supervision.nursery import open_collapsing_nursery


@asynccontextmanager
async def open_store(store: Store) -> AsyncIterator[Store]:
    """Open a store without a runtime for the block.

    Raises:
        StoreOpenError: The store cannot be opened.
    """
    ready = trio.Event()

    class StoreStarted:
        def started(self, _: object = None) -> None:
            ready.set()

    # not `nursery.start`, which makes an internal error of Ctrl-C and a store that fails at the same time
    async with open_collapsing_nursery() as nursery:
        nursery.start_soon(partial(store.run, ignore, task_status=StoreStarted()))
        await ready.wait()
        yield store
        nursery.cancel_scope.cancel()
