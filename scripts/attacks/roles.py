"""A role with nothing but CONNECT, and programs that know the channels, against the database of live processes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import psycopg
import trio
from psycopg.sql import SQL, Identifier
from tests.support.postgres import Server, own_schema
from tests.support.postgres_rows import tables

from greenroom.actors.processes import Ability
from greenroom.actors.stores.postgres._hints import channel_prefix
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import frame, judge, say
from greenroom.actors.testing.store_kit.kit import ReportLog, create, new_run, opened

from .core import Dice, must, real

TIMES: Final[dict[str, Any]] = {"lease": 20.0, "turn": 0.5, "margin": 4.0, "answer": 5.0}
ATTACKING: Final = 1.5
"""Seconds for which a try goes on."""
OLD: Final = 8.0
"""Seconds since the newest beat after which it counts as delayed: one connection may be cut and opened again."""
LETTERS: Final = (
    "c",
    "h",
    "m",
    "w",
    "p",
    "s",
    "k",
    ":",
    " ",
    "0",
    "1",
    "9",
    "-",
    "x",
    "é",
    "\U0001f600",
    "\n",
    '"',
    "'",
    "\\",
)
OPERATORS: Final = (("||", "text", "bigint"), ("&", "bigint", "integer"), ("*", "smallint", "interval"))
FUNCTIONS: Final = ("power(integer, integer)", "hashtextextended(text, integer)", "unnest(bigint[])", "unnest(text[])")
FORBIDDEN: Final = (
    *("TABLE {s}.about", "TABLE {s}.runs", "UPDATE {s}.processes SET dead = true", "TABLE {s}.runs FOR UPDATE"),
    *("DROP SCHEMA {s} CASCADE", "CREATE TABLE {s}.more(x int)", "SET ROLE greenroom"),
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'greenroom/%'",
)


@functools.cache
def _server() -> Server:
    """The server of all tries; its guardian stops it at the end of this process."""
    server = Server()
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("CREATE ROLE stranger LOGIN")
        admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")  # as in every database before PostgreSQL 15
        admin.execute("CREATE SEQUENCE struck")
        admin.execute("GRANT USAGE ON SEQUENCE struck TO PUBLIC")
    return server


@attrs.frozen
class Scene:
    """What an attack needs.

    Attributes:
        dice: draws.
        schema: with the tables.
        channel: of a process; drawn, or a guess.
        until: by `time.monotonic`.
    """

    dice: Dice
    schema: str
    channel: str
    until: float

    @contextlib.contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """A session of the stranger."""
        url = _server().url().replace("//greenroom@", "//stranger@")
        with psycopg.connect(url, autocommit=True) as session:
            yield session

    @property
    def going(self) -> bool:
        """The try goes on."""
        return time.monotonic() < self.until


def a_payload(dice: Dice) -> str:
    """A text that resembles a hint more or less, of up to 7,900 bytes."""
    head = dice.choice(("c:", "h:", "m:", "w:", "w:1:", "p:", "s:", "k:", "", "c:1 ", "m:1:"))
    return head + "".join(dice.choices(LETTERS, k=dice.choice((0, 1, 3, 40, 1_900))))


def payloads(scene: Scene) -> None:
    """Payloads of all kinds, slowly."""
    with scene.session() as session:
        while scene.going:
            session.execute("SELECT pg_notify(%s::text, %s::text)", (scene.channel, a_payload(scene.dice)))


def flood(scene: Scene) -> None:
    """One payload, as fast as possible."""
    payload = a_payload(scene.dice)
    statement = "SELECT pg_notify(%s::text, %s::text || i::text) FROM generate_series(1, %s::int) i"
    most = max(10, 100_000 // (1 + len(payload)))
    with scene.session() as session:
        while scene.going:
            session.execute(statement, (scene.channel, payload, most))


def nudges(scene: Scene) -> None:
    """Processes that join, in some rhythm."""
    pause = scene.dice.choice((0.001, 0.05, 0.3, 0.49))
    with scene.session() as session:
        while scene.going:
            session.execute("SELECT pg_notify(%s::text, 'p:'::text)", (scene.channel,))
            time.sleep(pause)  # noqa: TID251 - a thread of its own


def locks(scene: Scene) -> None:
    """The advisory locks that Greenroom takes."""
    with scene.session() as session:
        for purpose in ("greenroom ", "greenroom indexes "):
            session.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s::text, 0::bigint))", (purpose + scene.schema,)
            )
        while scene.going:
            time.sleep(0.05)  # noqa: TID251 - a thread of its own


def forbidden(scene: Scene) -> None:
    """What a role without rights must not be able to do."""
    with scene.session() as session:
        while scene.going:
            statement = scene.dice.choice(FORBIDDEN)
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                rows = session.execute(SQL(statement).format(s=Identifier(scene.schema))).fetchall()
                must(not any(row[0] for row in rows), f"a stranger may {statement}")


def temporary(scene: Scene) -> None:
    """Tables of the same names in the stranger's own session."""
    with scene.session() as session:
        for table in ("about", "runs", "processes", "events", "pg_class", "pg_proc"):
            session.execute(SQL("CREATE TEMPORARY TABLE {} (name text, value text)").format(Identifier(table)))
        while scene.going:
            session.execute("INSERT INTO pg_temp.about VALUES ('oldest', '99')")


def plants(scene: Scene) -> None:
    """Operators and functions in `public` that fit better than those of the server."""
    body = "BEGIN PERFORM nextval('public.struck'); RAISE EXCEPTION 'planted'; END"
    with (
        scene.session() as session,
        contextlib.suppress(psycopg.errors.DuplicateFunction, psycopg.errors.UniqueViolation),
    ):
        operator, left, right = scene.dice.choice(OPERATORS)
        fit = scene.dice.choice(FUNCTIONS)
        setof = "SETOF text" if fit.startswith("unnest") else "text"
        for name, result in ((f"fits({left}, {right})", "text"), (fit, setof)):
            session.execute(f"CREATE FUNCTION public.{name} RETURNS {result} LANGUAGE plpgsql AS $$ {body} $$".encode())
        shape = f"LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.fits"
        session.execute(f"CREATE OPERATOR public.{operator} ({shape})".encode())
        try:
            while scene.going:
                time.sleep(0.05)  # noqa: TID251 - a thread of its own
        finally:
            session.execute("DROP OWNED BY CURRENT_USER CASCADE")


def sessions(scene: Scene) -> None:
    """Many sessions that listen in a transaction, so that the queue of notifications is kept."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            session = stack.enter_context(scene.session())
            session.execute(SQL("LISTEN {}").format(Identifier(scene.channel[:63])))
            session.execute("BEGIN")
            session.execute("SELECT txid_current()")
        while scene.going:
            time.sleep(0.05)  # noqa: TID251 - a thread of its own


ATTACKS: Final[tuple[Callable[[Scene], None], ...]] = (
    *(payloads, flood, nudges, locks, forbidden, temporary, plants, sessions),
)


async def works(a: PostgresStore, b: PostgresStore, log: ReportLog, until: float) -> None:
    """Two processes work: commits, commands, new runs, claims; each is answered, once."""
    author = await create(a, new_run("r", "t"))
    able = Ability(agents=frozenset({"q"}))
    for number in itertools.count(1):
        must((await author.write(1)).kind == "committed", "a commit is not written")
        must((await b.post("r", say(f"c{number}"), judge)).status == "accepted", "a command is not accepted")
        await b.create_run(new_run(f"q{number}", f"q{number}", agent="q"), frame(f"q{number}", 1), claim=False)
        must(len(await a.claim_ready(5, able, datetime.now(UTC))) == 1, "a claim finds another number of runs")
        for store in (a, b):
            must(store.statistics().beat_age < OLD, f"a beat is {store.statistics().beat_age:.1f} s old")
        if time.monotonic() >= until:
            break
        await trio.sleep(0.05)
    while len({item.command.command_id for _, item in log.items}) < number:  # noqa: ASYNC110 - another thread changes it
        await trio.sleep(0.02)
    must(len(await b.events("r")) == 1 + number, "the log has a gap")


async def attacked(dice: Dice) -> None:
    """One try."""
    with own_schema(_server().url()) as url:
        schema, some = url.rpartition("=")[2], dice.sample(ATTACKS, dice.choice((1, 1, 2, 3)))
        a, b = PostgresStore(url, **TIMES), PostgresStore(url, **TIMES)
        async with opened(a) as log, opened(b) as other:
            with tables(url) as link:
                number = dice.choice([number for (number,) in link.execute("SELECT number FROM {s}.processes")])
                knows_prefix = dice.random() < 0.5  # a program that may read the tables
                prefix = channel_prefix(link) if knows_prefix else f"greenroom_{schema}_"
            until = time.monotonic() + ATTACKING
            async with trio.open_nursery() as nursery:
                for attack in some:
                    scene = Scene(Dice(dice.random()), schema, f"{prefix}{number}", until)
                    nursery.start_soon(trio.to_thread.run_sync, attack, scene)
                await works(a, b, log, until)
            if dice.random() < 0.3:  # a process joins afterwards
                async with opened(PostgresStore(url, **TIMES)):
                    await trio.sleep(0.1)
            must((log.voids, other.voids) == (0, 0), "a process has lost its lease")
            dead = [process.name for process in await b.processes() if process.dead]
            must(not dead, f"a live process was declared dead: {dead}")
            if not knows_prefix:
                must(a.statistics().hints_dropped + b.statistics().hints_dropped == 0, "a stranger knows a channel")
    with psycopg.connect(_server().url(), autocommit=True) as admin:
        row = admin.execute("SELECT is_called FROM public.struck").fetchone()
        must(row == (False,), "what a stranger has planted was executed")


def roles(dice: Dice) -> None:
    """Other roles and programs on the database of live processes."""
    real(functools.partial(attacked, dice))
