"""No statement executes an operator or a function that another role has put into the database (CVE-2018-1058)."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest
from tests.support.postgres_plants import Planted, planted

from greenroom.actors.stores.postgres import admin as postgres_admin
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit.kit import STORE_SCENARIOS, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

SOME = 10
"""Scenarios of the store kit, where not all of them are played."""

_schemas = itertools.count(1)


@pytest.fixture(scope="module")
def database(postgres_server: str) -> Iterator[Planted]:
    with planted(postgres_server) as plants:
        assert plants.count > 1_000
        yield plants


@pytest.fixture(params=["direct", "pooled"])
def url(request: pytest.FixtureRequest, database: Planted) -> Iterator[str]:
    """An empty schema; `pooled`: without settings of the session, as behind a pool."""
    pooled = "&pooled=1" if request.param == "pooled" else ""
    yield f"{database.url}?schema=s{next(_schemas)}{pooled}"
    assert database.struck() == 0


def test_what_is_planted_strikes_a_session_that_looks_into_public(database: Planted) -> None:
    """Else the other tests would show nothing."""
    with psycopg.connect(database.url, autocommit=True) as session:
        for attempt in ("'a'::text || 1::bigint", "1::bigint & 1::integer", "power(2, 3)", "hashtextextended('a', 0)"):
            with pytest.raises(psycopg.errors.RaiseException, match="executed what a stranger has planted"):
                session.execute(f"SELECT {attempt}".encode())
        assert database.struck() == 4
    with psycopg.connect(database.admin, autocommit=True) as session:
        session.execute("SELECT setval('planted.struck', 1, false)")


def test_migrations_and_the_commands_for_the_database_execute_nothing_planted(url: str) -> None:
    assert postgres_admin.migrate(url)["applied"] > 0
    with psycopg.connect(url.partition("?")[0], autocommit=True) as session:
        schema = url.partition("schema=")[2].partition("&")[0]
        for index in ("runs_working", "runs_overdue"):
            session.execute(f"DROP INDEX {schema}.{index}".encode())
    again = postgres_admin.migrate(url)
    assert ("indexes" in again) != ("pooled" in url)
    assert postgres_admin.show(url)["fault"] is None
    postgres_admin.level(url)
    assert postgres_admin.adopt(url, postgres_admin.beats(url))["epoch"]


@pytest.mark.parametrize("pooled", ["", "&pooled=1"], ids=["direct", "pooled"])
async def test_a_store_executes_nothing_planted(
    pooled: str, database: Planted, sampled: Callable[[Sequence[Scenario], int], list[Scenario]]
) -> None:
    for scenario in sampled(STORE_SCENARIOS, SOME):
        url = f"{database.url}?schema=s{next(_schemas)}{pooled}"
        await scenario(lambda url=url: PostgresStore(url))  # type: ignore[misc]
        assert database.struck() == 0, scenario
