"""A server that cannot be reached: opening a store is bounded and ends with a cancel, and so does closing it."""

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import trio
from tests.support.black_holes import HOLES
from tests.support.cutting_proxy import CuttingProxy

import greenroom as gr
from greenroom.actors.stores.postgres import admin as postgres_admin
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit.kit import create, new_run, opened

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

CANARY = "canary-of-a-password"


@pytest.fixture(params=HOLES)
def hole(request: pytest.FixtureRequest) -> Iterator[int]:
    with HOLES[request.param]() as port:
        yield port


def through(postgres_url: str, proxy: CuttingProxy) -> str:
    """The URL that leads through a proxy, with a password that the server does not ask for, and short times."""
    head, _, rest = postgres_url.partition("@")
    _, _, path = rest.partition("/")
    return f"{head}:{CANARY}@127.0.0.1:{proxy.port}/{path}&connect_timeout=2"


async def test_an_opening_is_bounded_and_names_the_address(hole: int, caplog: pytest.LogCaptureFixture) -> None:
    store = PostgresStore(f"postgresql://u:{CANARY}@127.0.0.1:{hole}/d?connect_timeout=2", patience=3.0)
    begun = time.monotonic()
    with pytest.raises(
        gr.StoreOpenError, match=f"127.0.0.1:{hole} gives no answer within 2 s; check the host"
    ) as error:
        async with gr.open_runtime(store):
            pass
    assert time.monotonic() - begun < 3 + 2 + 2  # the patience, and the attempt that is on its way then
    assert CANARY not in f"{error.value} {error.value.__cause__!r} {store!r} {caplog.text}"


async def test_a_cancelled_opening_ends_at_once(hole: int) -> None:
    store = PostgresStore(f"postgresql://u:{CANARY}@127.0.0.1:{hole}/d")
    begun = time.monotonic()
    with trio.move_on_after(0.5) as scope:
        async with opened(store):
            pass
    assert scope.cancelled_caught
    assert time.monotonic() - begun < 2.5


async def test_an_opening_that_is_cancelled_while_a_statement_waits_ends_at_once(postgres_url: str) -> None:
    with CuttingProxy(urlsplit(postgres_url).port or 5432) as proxy:
        proxy.hole = 60.0
        proxy.arm("hole", containing=b"information_schema")
        proxy.arm("hole", containing=b"about")
        begun = time.monotonic()
        with trio.move_on_after(1.0) as scope:
            async with opened(PostgresStore(through(postgres_url, proxy))):
                pass
        assert proxy.cuts["hole"]
        assert scope.cancelled_caught
        assert time.monotonic() - begun < 3.5


async def until_refused(store: PostgresStore) -> str:
    """Read until a read is refused, and return the sentence; an answer may be on its way still."""
    with trio.fail_after(15):
        while True:
            await trio.lowlevel.checkpoint()
            try:
                await store.outline("r")
            except gr.StoreUnavailable as error:
                return str(error)


async def test_a_store_whose_server_vanishes_closes_in_bounded_time(postgres_url: str, caplog) -> None:
    with CuttingProxy(urlsplit(postgres_url).port or 5432) as proxy:
        store = PostgresStore(through(postgres_url, proxy), answer=1.0, lease=9.0, turn=1.0, margin=3.0)
        async with opened(store):
            await create(store, new_run("r", "t"))
            proxy.frozen = True
            with trio.fail_after(15):
                while store.unready is None:  # noqa: ASYNC110 - threads change it
                    await trio.sleep(0.05)
            assert f"127.0.0.1:{proxy.port} gives no answer" in await until_refused(store)
            begun = time.monotonic()
        assert time.monotonic() - begun < 6
        proxy.frozen = False
    assert CANARY not in caplog.text


async def test_of_many_readers_one_waits_for_a_server_that_is_silent(postgres_url: str) -> None:
    """Else they would wait in turn, four at a time, each for an attempt of its own."""
    with CuttingProxy(urlsplit(postgres_url).port or 5432) as proxy:
        store = PostgresStore(through(postgres_url, proxy))
        refused: list[float] = []

        async def ask() -> None:
            begun = time.monotonic()
            with pytest.raises(gr.StoreUnavailable, match=f"127.0.0.1:{proxy.port} gives no answer"):
                await store.outline("r")
            refused.append(time.monotonic() - begun)

        async with opened(store):
            await create(store, new_run("r", "t"))
            proxy.frozen = True
            proxy.cut_all()
            await until_refused(store)
            begun = time.monotonic()
            async with trio.open_nursery() as nursery:
                for _ in range(40):
                    nursery.start_soon(ask)
            assert time.monotonic() - begun < 4  # ten rounds of an attempt would take twenty seconds
            assert sorted(refused)[35] < 1
            proxy.frozen = False
            with trio.fail_after(20):
                while True:
                    await trio.sleep(0.1)
                    try:
                        assert await store.outline("r") is not None
                    except gr.StoreUnavailable:
                        continue
                    break


def test_db_show_ends_although_the_server_falls_silent(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with CuttingProxy(urlsplit(postgres_url).port or 5432) as proxy:
        proxy.hole = 60.0
        proxy.arm("hole", containing=b"server_version")
        url = through(postgres_url, proxy)
        watched = postgres_admin._linked
        monkeypatch.setattr(postgres_admin, "_linked", lambda url: watched(url, 1.0))
        begun = time.monotonic()
        with pytest.raises(gr.StoreUnavailable, match=f"127.0.0.1:{proxy.port} gives no answer within 1") as error:
            postgres_admin.show(url)
        assert time.monotonic() - begun < 4
        assert CANARY not in str(error.value)
