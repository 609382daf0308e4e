"""Commands about a shared store: its URL, its database, its queues, and a sentence for each way in which it fails."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from greenroom.transport.cli import places

from ..support.postgres import Server
from .cli_kit import PATIENCE, Inside
from .serving_kit import AGENTS

pytestmark = pytest.mark.slow
CANARY = "canary-of-a-password"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.delenv(places.STORE, raising=False)
    return Inside(tmp_path, tmp_path / "state", monkeypatch)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server where the role `locked` needs a password, and `weak` and `reader` lack rights."""
    own = Server(settings={"max_connections": "12", "superuser_reserved_connections": "1"})
    rules = own.folder / "data" / "pg_hba.conf"
    rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with own, psycopg.connect(own.url(), autocommit=True) as connection:
        for statement in (
            f"CREATE ROLE locked LOGIN PASSWORD '{CANARY}x'",
            "CREATE ROLE weak LOGIN",
            "CREATE ROLE reader LOGIN",
            "CREATE SCHEMA other",
            "CREATE TABLE other.foo(a int)",
        ):
            connection.execute(statement)
        yield own


def url(server: Server, role: str = "greenroom", **fields: str) -> str:
    """The URL for a role, with a canary as its password."""
    return server.url(**fields).replace("greenroom@", f"{role}:{CANARY}@")


def migrated(cli: Inside, server: Server, schema: str) -> str:
    """The URL of a schema with tables, which `reader` may read."""
    place = url(server, schema=schema)
    assert cli("db", "migrate", "--store", place).returncode == 0
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO reader".encode())
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader".encode())
    return place


def failed(done: Any, code: int, *words: str) -> None:
    """One line of error with these words, and no password anywhere."""
    assert done.returncode == code, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    for word in words:
        assert word in line, line


def until(condition: Callable[[], bool]) -> None:
    """Wait until a server has done what it was asked."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.05)


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "--store", "postgresql://h/d", "--db", "x.db"], "--store names a shared store and --db a file"),
        (["runs", "--store", f"http://u:{CANARY}@h"], "--store is no URL of a store"),
        (["serve", "agents.py", "--workers", "2"], "processes share runs only in a shared store"),
        (["serve"], "name an agent"),
        (["serve", "agents.py", "--store", "service=x", "--workers", "0"], "not between 1 and 64"),
        (["serve", "--store", "service=x", "--worker", "x"], "--worker is for the processes that --workers starts"),
        (["follow", "r", "--url", "http://h", "--store", "service=x"], "--url names a server and --store a store"),
        (["db", "show"], "needs a shared store"),
        (["runs", "revive", "--store", "service=x"], "lacks the RUN_ID"),
        (["queues", "limit", "mails", "0", "--store", "service=x"], "not between 1 and"),
        (["queues", "pause", "", "--store", "service=x"], "names no queue"),
        (["queues", "limit", "a b", "5", "--store", "service=x"], "names no queue"),
        (["queues", "resume", "a\udcff", "--store", "service=x"], "names no queue"),
        (["runs", f"postgresql://u:{CANARY}@h/d"], "invalid choice"),
        (["show", "r", f"postgresql://u:{CANARY}@h/d"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_options_that_do_not_fit_are_refused_without_a_password(cli: Inside, words: list[str], said: str) -> None:
    failed(cli(*words), 2, said)


def test_a_variable_that_is_no_url_is_named(cli: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.STORE, f"mysql://u:{CANARY}@h/d")
    failed(cli("runs"), 2, "the variable GREENROOM_STORE is no URL of a store")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://u:pw-of-mine@h:1/d?schema=s", "postgresql://u@h:1/d?schema=s"),
        ("postgresql://h/d?password=pw-of-mine&schema=s", "postgresql://h/d?schema=s"),
        ("host=h password='pw-of-mine' dbname=d", "host=h dbname=d"),
        ("service=runs", "service=runs"),
        ("postgresql://u:pw-of-mine@[h/d", "postgresql://u@[h/d"),
        ("postgresql://u:pw-of-mine#x@h/d", "postgresql://u@h/d"),
        ("postgresql://u:pw-of-mine/x@h/d", "postgresql://u@h/d"),
        ("postgresql://u:pw-of-mine?x@h/d", "postgresql"),
        (
            "postgresql://u:pw-of-mine@h/d?listen=postgresql://u:pw-of-mine@i:1/d",
            "postgresql://u@h/d?listen=postgresql://u@i:1/d",
        ),
        ("postgresql://u:pw-of-mine@h/d?listen=host%3Di%20password%3Dpw-of-mine", "postgresql://u@h/d?listen=host=i"),
        (r"host=h password=pw-of-mine\ x\' dbname=d", "host=h dbname=d"),
        (r"host=h password='pw-of-mine \'x' dbname=d", "host=h dbname=d"),
        ("host=h password='pw-of-mine x", "host=h"),
        ("host=h listen=postgresql://u:pw-of-mine@i/d dbname=d", "host=h listen='postgresql://u@i/d' dbname=d"),
        ("host=h listen='host=i password=pw-of-mine'", "host=h listen='host=i'"),
    ],
)
def test_a_place_is_shown_without_its_password(given: str, shown: str) -> None:
    place = places.SharedStore(given)
    assert str(place) == shown
    assert "pw-of-mine" not in repr(place)
    assert places.options(place) == ("--store", shown)
    assert all(secret.startswith("pw-of-mine") for secret in place.secrets)
    assert bool(place.secrets) == ("pw-" in given and shown != "postgresql")


@pytest.mark.parametrize(
    ("given", "password"),
    [
        ("postgresql://u:pw-of-mine@h/d?listen=postgresql://u:other-pw@i/d", "other-pw"),
        ("postgresql://u:pw%2Dof-mine@h/d", "pw-of-mine"),
        (r"host=h password='pw \'of mine' dbname=d", "pw 'of mine"),
        (r"host=h password=pw\ of\ mine dbname=d", "pw of mine"),
    ],
)
def test_the_passwords_of_a_place_are_known_as_the_server_gets_them(given: str, password: str) -> None:
    assert password in places.SharedStore(given).secrets


@pytest.mark.parametrize("given", [" ", "="])
def test_an_address_of_blanks_spoils_no_sentence(cli: Inside, given: str) -> None:
    failed(cli("runs", "--store", given), 2, "--store is no URL of a store")


def test_a_store_of_the_environment_is_not_repeated_in_commands() -> None:
    assert places.options(places.SharedStore("service=runs", named=False)) == ()
    assert places.options(Path("x.db")) == ("--db", "x.db")


# --- the database ----------------------------------------------------------------------------------------------------


def test_the_tables_are_made_once_and_shown(cli: Inside, server: Server) -> None:
    place = url(server, schema="made")
    assert "empty" in cli("db", "show", "--store", place).stdout
    failed(cli("db", "level", "--store", place), 5, "greenroom db migrate")
    assert json.loads(cli("db", "migrate", "--store", place, "--json").stdout)["applied"] >= 1
    assert json.loads(cli("db", "migrate", "--store", place, "--json").stdout)["applied"] == 0
    facts = json.loads(cli("db", "show", "--store", place, "--json").stdout)
    assert (facts["lacking"], facts["fault"], facts["processes"]) == ([], None, [])
    assert facts["replication"] == "none"
    assert any("fsync is off" in warning for warning in facts["warnings"])
    shown = cli("db", "show", "--store", place).stdout
    assert "PostgreSQL" in shown
    assert CANARY not in shown


def test_a_copy_gets_an_epoch_of_its_own(cli: Inside, server: Server) -> None:
    place = migrated(cli, server, "copied")
    before = json.loads(cli("db", "show", "--store", place, "--json").stdout)["epoch"]
    adopted = json.loads(cli("db", "adopt", "--store", place, "--json").stdout)
    after = json.loads(cli("db", "show", "--store", place, "--json").stdout)["epoch"]
    assert before != after == adopted["epoch"]


def test_levels_of_rows_and_processes_are_listed(cli: Inside, server: Server) -> None:
    place = migrated(cli, server, "levels")
    facts = json.loads(cli("db", "level", "--store", place, "--json").stdout)
    assert (facts["processes"], facts["rows"], facts["leftAlone"]) == ([], [], [])
    assert "level" in facts["release"]


# --- what may be wrong ------------------------------------------------------------------------------------------------

ASKING = (
    ["db", "show"],
    ["db", "migrate"],
    ["runs"],
    ["approve", "r", "--yes"],
    ["follow", "r"],
    ["serve", "--port=0"],
)


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["", "debug"])
def test_a_wrong_password_is_not_shown(cli: Inside, server: Server, words: list[str], debug: list[str]) -> None:
    done = cli(*debug, *words, "--store", url(server, "locked"))
    assert done.returncode == 5
    assert CANARY not in done.stdout + done.stderr
    assert "password authentication failed" in done.stderr


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_server_that_is_down_is_named(cli: Inside, words: list[str]) -> None:
    failed(cli(*words, "--store", f"postgresql://u:{CANARY}@127.0.0.1:1/d"), 5, "127.0.0.1:1", "Connection refused")


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_role_that_does_not_exist_is_named(cli: Inside, server: Server, words: list[str]) -> None:
    failed(cli(*words, "--store", url(server, "nobody")), 5, 'role "nobody" does not exist')


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_url_that_cannot_be_read_is_not_repeated(cli: Inside, words: list[str]) -> None:
    done = cli(*words, "--store", f"postgresql://u:{CANARY}@h:port/d?x=%zz&&=")
    assert done.returncode == 5
    assert CANARY not in done.stdout + done.stderr


def test_rights_that_a_role_lacks_are_listed(cli: Inside, server: Server) -> None:
    migrated(cli, server, "rights")
    weak = cli("db", "show", "--store", url(server, "weak", schema="rights"))
    assert weak.returncode == 5
    assert "lacking: USAGE on the schema rights" in weak.stdout
    reader = json.loads(cli("db", "show", "--store", url(server, "reader", schema="rights"), "--json").stdout)
    assert [right.partition(" on ")[0] for right in reader["lacking"]] == ["INSERT", "UPDATE", "DELETE"]
    failed(cli("db", "migrate", "--store", url(server, "weak", schema="rights")), 5, "permission denied", "grant")
    for role, words in (("weak", ["runs"]), ("reader", ["runs"]), ("reader", ["approve", "r"])):
        failed(cli(*words, "--store", url(server, role, schema="rights")), 5, "grant")


def test_the_roles_of_the_page_have_the_rights_that_they_need(cli: Inside, server: Server, root: Path) -> None:
    page = (root / "docs/postgres.md").read_text(encoding="utf-8")
    block = next(text for text in page.split("```") if text.startswith("text\n-- as an administrator"))
    admin, _, owner = block.partition("-- as runs_owner, after greenroom db migrate:")
    admin = admin.removeprefix("text").replace("DATABASE runs", "DATABASE postgres")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(admin.encode())
    assert "lacking: CREATE on the database" in cli("db", "show", "--store", url(server, "runs")).stdout
    failed(cli("runs", "--store", url(server, "runs")), 5, "permission denied")
    assert cli("db", "migrate", "--store", url(server, "runs_owner")).returncode == 0
    with psycopg.connect(url(server, "runs_owner"), autocommit=True) as connection:
        connection.execute(owner.encode())
    assert cli("db", "show", "--store", url(server, "runs")).returncode == 0
    (cli.folder / "agents.py").write_text(AGENTS)
    words = ("run", "agents.py:support", "help", "--yes", "--store", url(server, "runs"))
    assert cli(*words).returncode == 0
    assert cli("queues", "limit", "mails", "3", "--store", url(server, "runs")).returncode == 0
    assert "deleted 1 run" in cli("prune", "--older-than", "0m", "--store", url(server, "runs")).stdout


def test_the_kind_of_replication_is_shown_with_what_it_may_lose(cli: Inside, tmp_path: Path) -> None:
    def facts(port: int) -> Any:
        return json.loads(cli("db", "show", "--store", primary.url(port=port), "--json").stdout)

    with Server() as primary, ExitStack() as stack:
        standby = stack.enter_context(primary.standby())
        until(lambda: facts(primary.port)["replication"].startswith("asynchronous, 1 connected"))
        assert any("may lose commits" in warning for warning in facts(primary.port)["warnings"])
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        until(lambda: "1 of them synchronous" in facts(primary.port)["replication"])
        assert not any("may lose commits" in warning for warning in facts(primary.port)["warnings"])
        assert any("this server is a standby" in warning for warning in facts(standby.port)["warnings"])


def test_the_schema_of_another_program_is_left_alone(cli: Inside, server: Server) -> None:
    place = url(server, schema="other")
    for words in (["db", "migrate"], ["runs"], ["send", "r", "more"]):
        failed(cli(*words, "--store", place), 5, "tables of another program")
    shown = cli("db", "show", "--store", place)
    assert (shown.returncode, "tables of another program" in shown.stdout) == (5, True)


def test_the_schema_of_a_newer_release_is_left_alone(cli: Inside, server: Server) -> None:
    place = migrated(cli, server, "newer")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("UPDATE newer.about SET value = '99' WHERE name IN ('schema', 'oldest')")
    for words in (["db", "migrate"], ["runs"], ["cancel", "r"]):
        failed(cli(*words, "--store", place), 5, "schema version 99 or newer", "upgrade Greenroom")
    shown = cli("db", "show", "--store", place)
    assert (shown.returncode, "upgrade Greenroom" in shown.stdout) == (5, True)


def test_a_server_without_a_free_connection_says_so(cli: Inside, server: Server) -> None:
    with ExitStack() as stack:
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(server.url().replace("greenroom@", "weak@")))
        for words in (["db", "show"], ["runs"]):
            failed(cli(*words, "--store", url(server, "weak")), 5, "remaining connection slots")


def test_the_password_of_the_environment_is_hidden(
    cli: Inside, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PGPASSWORD", CANARY)
    done = cli("--debug", "db", "show", "--store", server.url().replace("greenroom@", "locked@"))
    assert done.returncode == 5
    assert CANARY not in done.stdout + done.stderr
