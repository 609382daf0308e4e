"""The encoding of the database: every character can be kept, or the database is refused with the way out."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
import trio
from msgspec.structs import replace
from tests.support.postgres_rows import tables

from greenroom.actors.errors import StoreOpenError
from greenroom.actors.stores.postgres import admin as postgres_admin
from greenroom.actors.stores.postgres._hints import channel_prefix
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit.kit import STORE_SCENARIOS, ReportLog, Scenario, create, new_run, opened

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

TITLE = "Grüße, 漢字, Привет, 🙂"
WAY = r"encoding {encoding}, which has not every character; make one with UTF8 \(createdb -E UTF8 -T template0"


@contextmanager
def encoded(server: str, encoding: str) -> Iterator[str]:
    """The URL of a database with an encoding; dropped after the block."""
    name = f"encoded_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
        try:
            yield server.replace(urlsplit(server).path, f"/{name}")
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "EUC_JP"])
async def test_an_encoding_without_every_character_is_refused_with_the_way_out(
    encoding: str, postgres_server: str
) -> None:
    text = WAY.format(encoding=encoding)
    with encoded(postgres_server, encoding) as url:
        with pytest.raises(StoreOpenError, match=text):
            await PostgresStore(url).run(ReportLog())
        with pytest.raises(StoreOpenError, match=text):
            postgres_admin.migrate(url)
        with pytest.raises(StoreOpenError, match=text):
            postgres_admin.level(url)
        shown = postgres_admin.show(url)
        assert shown["fault"] is not None
        assert f"encoding {encoding}" in shown["fault"]


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
async def test_an_encoding_with_every_character_keeps_every_character(encoding: str, postgres_server: str) -> None:
    with encoded(postgres_server, encoding) as url:
        store = PostgresStore(url)
        async with opened(store):
            new = new_run("r", "t", agent="漢")
            await create(store, replace(new, info=replace(new.info, title=TITLE)))
            assert [line.title for line in (await store.summaries(["r"])).runs] == [TITLE]
        shown = postgres_admin.show(url)
        assert shown["fault"] is None
        assert any("SQL_ASCII" in warning for warning in shown["warnings"]) == (encoding == "SQL_ASCII")


@pytest.mark.parametrize("scenario", STORE_SCENARIOS[::9], ids=str)
async def test_a_store_keeps_its_promise_where_the_server_checks_no_text(
    scenario: Scenario, postgres_server: str
) -> None:
    with encoded(postgres_server, "SQL_ASCII") as url:
        await scenario(lambda: PostgresStore(url))


async def test_a_payload_that_is_no_text_ends_no_store(postgres_server: str) -> None:
    """Where the server checks no text, a payload may have any bytes: the server ends the connection that hears it."""
    with encoded(postgres_server, "SQL_ASCII") as url:
        store = PostgresStore(url, lease=3.0, turn=0.25, margin=0.6)
        async with opened(store) as log:
            author = await create(store, new_run("r", "t"))
            with tables(url) as link:
                ((number,),) = link.execute("SELECT number FROM {s}.processes")
                channel = f"{channel_prefix(link)}{number}"
                link.execute("SELECT pg_notify(%s, convert_from('\\xfffe'::bytea, 'SQL_ASCII'))", (channel,))
            with trio.fail_after(10):
                while not store.statistics().reconnects:  # noqa: ASYNC110 - threads change it
                    await trio.sleep(0.02)
            await trio.sleep(0.5)
            assert (await author.write(1)).kind == "committed"
            assert log.voids == 0
