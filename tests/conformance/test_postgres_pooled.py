"""Processes behind pgbouncer in transaction mode: without hints, with a direct connection for them, and by mistake."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
import trio
from tests.support.judges import need_program
from tests.support.pgbouncer import bouncing

from greenroom.actors.errors import StoreOpenError
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import judge, say
from greenroom.actors.testing.store_kit.kit import STORE_SCENARIOS, ReportLog, Scenario, create, new_run, opened

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

LONG: dict[str, Any] = {"lease": 60.0, "turn": 20.0, "margin": 8.0}
"""A turn is no net in these tests."""


@pytest.fixture(autouse=True)
def pgbouncer() -> str:
    """The path of the program. A skip in an async test would lose its reason."""
    return need_program("pgbouncer")


@asynccontextmanager
async def owner_and_poster(url: str) -> AsyncIterator[tuple[PostgresStore, ReportLog, PostgresStore, ReportLog]]:
    a, b = PostgresStore(url, **LONG), PostgresStore(url, **LONG)
    async with opened(a) as log_a, opened(b) as log_b:
        yield a, log_a, b, log_b


async def learns(log: ReportLog, seconds: float) -> None:
    with trio.fail_after(seconds):
        while not log.items:  # noqa: ASYNC110 - another thread changes it
            await trio.sleep(0.02)


@pytest.mark.parametrize("scenario", STORE_SCENARIOS[::6], ids=str)
async def test_a_pooled_store_keeps_its_promise(scenario: Scenario, postgres_url: str) -> None:
    with bouncing(postgres_url) as url:
        await scenario(lambda: PostgresStore(f"{url}&pooled=1"))


async def test_without_hints_commands_work_and_changes_are_found_by_polling(postgres_url: str) -> None:
    with bouncing(postgres_url) as url:
        async with owner_and_poster(f"{url}&pooled=1") as (a, log_a, b, log_b):
            author = await create(a, new_run("r", "t", agent="a"))
            await b.post("r", say("c1"), judge)
            await learns(log_a, 10)
            with b.watch("r"):
                await author.write(2)
                with trio.fail_after(10):
                    while ("r", 3) not in log_b.moves:  # noqa: ASYNC110 - another process changes it
                        await trio.sleep(0.05)


async def test_hints_come_through_a_direct_connection(postgres_url: str) -> None:
    with bouncing(postgres_url) as url:
        pooled = f"{url}&pooled=1&listen={quote(postgres_url, safe='')}"
        async with owner_and_poster(pooled) as (a, log_a, b, _):
            await create(a, new_run("r", "t"))
            await trio.sleep(0.5)
            assert a.statistics().hints_received > 0
            await b.post("r", say("c1"), judge)
            await learns(log_a, 5)
            assert a.statistics().hints_received > 1


async def test_a_pool_that_the_address_does_not_name_is_noticed(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """LISTEN through a pool in transaction mode is silently deaf; the store says so, and polls."""
    settings = "ignore_startup_parameters = options,extra_float_digits"
    with bouncing(postgres_url, more=settings) as url, caplog.at_level(logging.WARNING, logger="greenroom.store"):
        listening = f"{postgres_url}&pooled=1&listen={quote(url, safe='')}"
        a = PostgresStore(listening, **LONG)
        async with opened(a):
            with trio.fail_after(20):
                while "no hint reaches" not in caplog.text:  # noqa: ASYNC110 - a log
                    await trio.sleep(0.1)


async def test_a_pool_that_refuses_the_options_of_a_session_is_named(postgres_url: str) -> None:
    with bouncing(postgres_url) as url, pytest.raises(StoreOpenError, match="write pooled=1"):
        await PostgresStore(url).run(ReportLog())
