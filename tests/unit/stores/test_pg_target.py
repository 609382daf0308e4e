"""The address of a database: fields of our own, TLS by default, and no password in any text."""

import math
import subprocess
import sys
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.errors import StoreOpenError
from greenroom.actors.stores.postgres._schema import quoted
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres.store import PostgresStore

SECRET = "s3cr3t word"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGPASSWORD", "PGSERVICE", "PGSERVICEFILE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)


def test_our_fields_are_taken_out_and_the_rest_is_libpqs() -> None:
    target = PgTarget.parse("postgresql://ann@127.0.0.1:7/work?schema=a%20b&pooled=1&listen=host%3D/tmp&sslcert=x")
    assert (target.schema, target.pooled, target.listen) == ("a b", True, "host=/tmp")
    kept = {name: target.fields[name] for name in ("user", "host", "port", "dbname", "sslcert")}
    assert kept == {"user": "ann", "host": "127.0.0.1", "port": "7", "dbname": "work", "sslcert": "x"}


def test_a_text_of_keys_and_values_is_read_too() -> None:
    target = PgTarget.parse(r"host=/tmp  schema='it\'s' dbname = work application_name='a schema=b'")
    assert (target.schema, target.fields["dbname"]) == ("it's", "work")
    assert target.fields["application_name"] == "a schema=b"


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "[::1]"])
def test_this_machine_needs_no_tls(host: str) -> None:
    assert "sslmode" not in PgTarget.parse(f"postgresql://{host}/work").fields


@pytest.mark.parametrize("host", ["db.example", "10.0.0.7", "localhost,db.example"])
def test_another_machine_is_verified_if_nothing_is_said(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PgTarget.parse(f"postgresql://{host}/work").fields["sslmode"] == "verify-full"
    assert PgTarget.parse(f"postgresql://{host}/work?sslmode=require").fields["sslmode"] == "require"
    monkeypatch.setenv("PGSSLMODE", "prefer")
    assert "sslmode" not in PgTarget.parse(f"postgresql://{host}/work").fields


def test_a_service_file_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = tmp_path / "services.conf"
    services.write_text(f"[near]\nhost=/tmp\n[far]\nhost=db.example\npassword={SECRET}\n", encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    assert "sslmode" not in PgTarget.parse("service=near").fields
    far = PgTarget.parse("service=far schema=x")
    assert far.fields["sslmode"] == "verify-full"
    assert far.secrets == (SECRET,)


def test_several_hosts_mean_the_one_that_writes() -> None:
    assert PgTarget.parse("postgresql://a,b/work").fields["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in PgTarget.parse("postgresql://a/work").fields


def test_a_connection_that_is_dead_is_noticed_in_seconds_unless_the_address_says_otherwise() -> None:
    fields = PgTarget.parse("postgresql://a/work").fields
    assert (fields["connect_timeout"], fields["tcp_user_timeout"], fields["keepalives_idle"]) == ("5", "10000", "5")
    given = PgTarget.parse("postgresql://a/work?connect_timeout=7&tcp_user_timeout=90000&keepalives_idle=60").fields
    assert (given["connect_timeout"], given["tcp_user_timeout"], given["keepalives_idle"]) == ("7", "90000", "60")


def test_settings_of_a_session_are_left_out_behind_a_pool() -> None:
    direct, pooled = PgTarget.parse("host=/tmp"), PgTarget.parse("host=/tmp pooled=yes")
    assert "jit=off" in direct.connection_fields("x")["options"]
    assert "options" not in pooled.connection_fields("x")
    assert pooled.direct() is None
    listening = PgTarget.parse("host=/tmp pooled=1 schema=s listen='host=/run'").direct()
    assert listening is not None
    assert (listening.fields["host"], listening.schema, listening.pooled) == ("/run", "s", False)


def test_no_address_lets_names_be_looked_up_where_other_roles_may_put_something() -> None:
    """Of several settings of one name, the last one counts."""
    target = PgTarget.parse("postgresql://127.0.0.1/d?options=-csearch_path%3Dpublic")
    options = target.connection_fields("x")["options"]
    assert options.endswith("-c search_path=pg_catalog,pg_temp")
    assert "-csearch_path=public" in options


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://ann:{SECRET.replace(' ', '%20')}@db/work?nonsense=1",
        f"host=db password='{SECRET}' nonsense=1",
        "work",
        "postgresql://ann:%zz@db/",
        "host=db pooled=perhaps",
        "host=db schema=pg_x",
        f"postgresql://ann:{SECRET.replace(' ', '/')}@db/work",
        f"postgresql://ann:{SECRET.replace(' ', '@')}@db/work",
        f"postgresql://ann:7/{SECRET.replace(' ', '')}@db/work",
        f"postgresql://ann:{SECRET.replace(' ', '')}",
        f"host=db dbname=work\0 password={SECRET}",
    ],
)
def test_what_cannot_be_read_is_said_without_repeating_it(text: str) -> None:
    with pytest.raises(StoreOpenError) as caught:
        PgTarget.parse(text)
    said = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"[:200]
    assert SECRET.split(maxsplit=1)[0] not in said
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["%s", "{s}", "a%zz", "a\nb", "a\0b", "x" * 64, "\ud800", ""])
def test_a_schema_whose_name_fits_into_no_statement_is_refused(name: str) -> None:
    with pytest.raises(StoreOpenError, match="a schema's name has 1 to 63 bytes, all printable"):
        quoted(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a\0b"},
        {"name": "x" * 201},
        {"name": 5},
        {"name": "\ud800"},
        {"answer": 0},
        {"answer": "x"},
        {"patience": -1},
        {"patience": math.nan},
        {"lease": "x"},
        {"turn": None},
    ],
    ids=str,
)
def test_arguments_of_the_store_are_checked_before_they_reach_the_server(wrong: dict[str, Any]) -> None:
    """A name with NUL cut the address off, so that the store looked for another server."""
    with pytest.raises(gr.UsageError, match=f"{next(iter(wrong))}="):
        PostgresStore("service=x", **wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    ["sslmode=bogus", "options=-c%20foo", "options=-cfoo%3D1", "options=-cwork_mem%3Dx", "service=none", "port=1,2,3"],
)
async def test_an_address_that_no_wait_makes_right_is_refused_at_once(fields: str, postgres_url: str) -> None:
    with trio.fail_after(3.0), pytest.raises(StoreOpenError, match="cannot be opened"):
        async with gr.open_runtime(f"{postgres_url}&{fields}"):
            pass


def test_no_text_shows_a_password() -> None:
    target = PgTarget.parse(f"host=db user=ann password='{SECRET}'")
    assert SECRET not in f"{target} {target!r} {target.text}"
    assert target.hidden(f"login as ann with\n {SECRET} failed") == "login as ann with *** failed"


def test_greenroom_needs_the_driver_only_for_this_store() -> None:
    """Without the extra everything else works, and the store says what to install."""
    program = (
        "import sys; sys.modules['psycopg'] = None; import greenroom, greenroom.testing\n"
        "try:\n    import greenroom.actors.stores.postgres._connect\n"
        "except greenroom.UsageError as error:\n    print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'greenroom[postgres]'" in found.stdout
