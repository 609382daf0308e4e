"""Operators and functions that another role has put where a search path may lead, and that count their executions.

A statement whose session looks names up in `public` takes an operator or a function from there if the types of its
arguments fit better than those of the server's own, as for `text || bigint`, whose operator in pg_catalog takes any.
So for each operator and each function that Greenroom's statements name, the role plants one for each pair of types that
pg_catalog lacks. What is planted counts (a sequence keeps its value when the transaction fails) and raises.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import psycopg

import greenroom.actors.stores as stores

TYPES = (
    *("smallint", "integer", "bigint", "double precision", "numeric", "text", "name", "boolean", "bytea", "oid"),
    *("regclass", "timestamptz", "interval", "jsonb"),
)
ARRAYS = ("bigint[]", "text[]", "bytea[]", "timestamptz[]")
MOST_ARGUMENTS = 3
"""Of a planted function that takes texts and numbers."""

_CALL = re.compile(r"(?<![\w.{}])([a-z_]\w*)\(")
_BODY = """BEGIN PERFORM nextval('planted.struck'); RAISE EXCEPTION 'executed what a stranger has planted'; END"""


def statements() -> str:
    """The source of everything that sends statements."""
    files = Path(stores.__file__).parent.glob("postgres/*.py")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@attrs.frozen
class Planted:
    """A database with plants.

    Attributes:
        url: of it, for the role that Greenroom uses.
        admin: of it, for an administrator.
        count: how many operators and functions were planted.
    """

    url: str
    admin: str
    count: int

    def struck(self) -> int:
        """How often one was executed."""
        with psycopg.connect(self.admin, autocommit=True) as session:
            row = session.execute(
                "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM planted.struck"
            ).fetchone()
        return int(row[0]) if row else 0


@contextmanager
def planted(server: str) -> Iterator[Planted]:
    """A database of the server in which a stranger has planted what it can; dropped after the block."""
    name, parts = f"plants_{secrets.token_hex(4)}", urlsplit(server)
    admin = server.replace(parts.path, f"/{name}")
    with psycopg.connect(server, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
        session.execute(f"CREATE ROLE {name} LOGIN".encode())
        session.execute(f"CREATE ROLE {name}_service LOGIN".encode())
        try:
            with psycopg.connect(admin) as inside:
                inside.execute("CREATE SCHEMA planted")
                inside.execute("CREATE SEQUENCE planted.struck")
                inside.execute("GRANT USAGE ON SCHEMA planted TO PUBLIC")
                inside.execute("GRANT USAGE ON SEQUENCE planted.struck TO PUBLIC")
                inside.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")  # as in every database before PostgreSQL 15
                inside.execute(f"GRANT CREATE ON DATABASE {name} TO {name}_service".encode())
            with psycopg.connect(admin.replace(f"//{parts.username}@", f"//{name}@")) as stranger:
                count = _plant(stranger)
            yield Planted(admin.replace(f"//{parts.username}@", f"//{name}_service@"), admin, count)
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            session.execute(f"DROP ROLE {name}".encode())
            session.execute(f"DROP ROLE {name}_service".encode())


def _plant(stranger: "psycopg.Connection[tuple[object, ...]]") -> int:
    text = statements()
    known = stranger.execute("SELECT DISTINCT oprname FROM pg_catalog.pg_operator WHERE oprkind = 'b'").fetchall()
    operators = [str(name) for (name,) in known if str(name) in text or name in ("~~", "~~*", "!~~")]
    pairs = [*product(TYPES, TYPES), *product(ARRAYS, (*ARRAYS, "bigint", "text")), ("anyelement", "anyelement")]
    pairs += [("anyarray", "anyelement"), ("anyelement", "text"), ("text", "anyelement"), ("anyarray", "anyarray")]
    count = 0
    for number, (left, right) in enumerate(pairs):
        result = left if left in ("text", "bigint", "timestamptz", "double precision") else "boolean"
        taken = _taken(stranger, left, right)
        for kind in dict.fromkeys((result, "boolean")):
            stranger.execute(_function(f"o{number}{kind[:2]}", (left, right), kind))
        for operator in operators:
            if operator not in taken:
                compares = operator.strip("!~*") == "" or operator in ("=", "<>", "<", ">", "<=", ">=")
                planted = f"o{number}{'bo' if compares else result[:2]}"
                shape = f"(LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.{planted})"
                stranger.execute(f"CREATE OPERATOR public.{operator} {shape}".encode())
                count += 1
    return count + _plant_functions(stranger, text)


def _taken(stranger: "psycopg.Connection[tuple[object, ...]]", left: str, right: str) -> set[object]:
    """The operators of pg_catalog for exactly these types: it is looked at first, so no other one counts."""
    found = stranger.execute(
        "SELECT oprname FROM pg_catalog.pg_operator WHERE oprleft = %s::regtype AND oprright = %s::regtype"
        " AND oprnamespace = 'pg_catalog'::regnamespace",
        (left, right),
    )
    return {name for (name,) in found.fetchall()}


def _plant_functions(stranger: "psycopg.Connection[tuple[object, ...]]", text: str) -> int:
    called = set(_CALL.findall(text))
    known = stranger.execute("SELECT DISTINCT proname FROM pg_catalog.pg_proc").fetchall()
    some = ("text", "bigint", "integer")
    lists = [combination for size in range(1, MOST_ARGUMENTS + 1) for combination in product(some, repeat=size)]
    lists += [(kind,) for kind in (*TYPES, *ARRAYS) if (kind,) not in lists]
    lists += [("timestamptz", "text"), ("double precision", "integer"), ("numeric", "integer")]
    count = 0
    for name in sorted(called & {str(name) for (name,) in known}):
        for arguments in lists:
            stranger.execute(_function(name, arguments, "SETOF text" if name == "unnest" else "text"))
            count += 1
    return count


def _function(name: str, arguments: tuple[str, ...], result: str) -> bytes:
    return f"CREATE FUNCTION public.{name}({', '.join(arguments)}) RETURNS {result} LANGUAGE plpgsql AS $$ {_BODY} $$".encode()  # noqa: E501
