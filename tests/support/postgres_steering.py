"""Steers the processes on a PostgreSQL schema, for the shared scenarios of the store kit, by a proxy for each store."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import attrs
import psycopg
import trio
from tests.support.cutting_proxy import CuttingProxy
from tests.support.postgres_rows import tables

from greenroom.actors.abc import Store
from greenroom.actors.stores.common.faults import FOLLOW_UP, HINT, LEAVE, Outage
from greenroom.actors.stores.postgres._schema import LEVEL
from greenroom.actors.stores.postgres.store import PostgresStore

LEASE, TURN, MARGIN, ANSWER = 3.0, 0.25, 0.6, 1.5
"""Seconds; a machine under load is given `patience` in addition."""


@attrs.define(eq=False)
class _Handle:
    """A store, the proxy that it connects through, and what is lost."""

    proxy: CuttingProxy
    losing: bool = False


class PostgresSteering:
    """A `Steering` of the stores on one schema.

    Attributes:
        can, lease, turn, patience: as in `Steering`.
    """

    can: Collection[str] = ("freeze", "lose_hints", "lose_follow_ups", "lose_answer", "renew_epoch", "older")
    lease, turn, patience = LEASE, TURN, 5.0

    def __init__(self, url: str, **options: object) -> None:
        """Make the steering of a schema; `options` are of the stores."""
        self._url, self._port = url, urlsplit(url).port or 5432
        self._options = {"lease": LEASE, "turn": TURN, "margin": MARGIN, "answer": ANSWER, **options}
        self._handles: dict[Store, _Handle] = {}
        self._stack = ExitStack()
        self._lost: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def open_store(self) -> PostgresStore:
        """Return another store on the schema, behind a proxy of its own."""
        handle = _Handle(self._stack.enter_context(CuttingProxy(self._port)))
        url = self._url.replace(f":{self._port}/", f":{handle.proxy.port}/")
        store = PostgresStore(url, faults=lambda point: self._fault(handle, point), **self._options)
        self._handles[store] = handle
        return store

    def proxy(self, store: Store) -> CuttingProxy:
        """The proxy of a store."""
        return self._handles[store].proxy

    def _fault(self, handle: _Handle, point: str) -> None:
        if point == "after_commit" and handle.losing:
            handle.losing = False
            raise Outage(ConnectionError("the answer is lost"))
        if point in self._lost or (point == LEAVE and handle.proxy.frozen):
            raise Outage(ConnectionError("lost by a test"))

    def freeze(self, store: Store) -> None:
        """See `Steering.freeze`."""
        self.proxy(store).frozen = True

    def thaw(self, store: Store) -> None:
        """See `Steering.thaw`."""
        self.proxy(store).frozen = False

    def lose_answer(self, store: Store) -> None:
        """See `Steering.lose_answer`."""
        self._handles[store].losing = True

    @contextmanager
    def lose_hints(self) -> Iterator[None]:
        """See `Steering.lose_hints`."""
        with self._losing(HINT):
            yield

    @contextmanager
    def lose_follow_ups(self) -> Iterator[None]:
        """See `Steering.lose_follow_ups`."""
        with self._losing(FOLLOW_UP):
            yield

    @contextmanager
    def _losing(self, point: str) -> Iterator[None]:
        self._lost.add(point)
        try:
            yield
        finally:
            self._lost.discard(point)

    async def renew_epoch(self) -> None:
        """See `Steering.renew_epoch`: at the next connection the server has another history, as after a failover."""
        await trio.to_thread.run_sync(self._fail_over)

    def _fail_over(self) -> None:
        with tables(self._url) as link:
            link.execute("UPDATE {s}.about SET value = '7/00000001/5' WHERE name = 'origin'")
            link.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'greenroom/%%' AND pid <> pg_backend_pid() AND %s > 0",
                (1,),
            )

    def older(self) -> Store:
        """See `Steering.older`."""
        store = self.open_store()
        store._level = LEVEL - 1
        return store


@contextmanager
def steering(url: str, **options: object) -> Iterator[PostgresSteering]:
    """A steering whose proxies end with the block."""
    with suppress(psycopg.OperationalError), PostgresSteering(url, **options) as steered:
        yield steered
