"""Which process gets which hint, and watches, on a real server: polls make up for lost hints, and hide mistakes."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
import psycopg
import pytest
import trio
from msgspec.structs import replace
from tests.support.postgres_rows import NOON, add_process, add_runs, tables

from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.processes import Ability
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._hints import MOST_HOPS, POLL, RENEWAL, WATCHED, PgHints, channel_prefix
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import ReportLog, create, frame, new_run, opened

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"lease": 60.0, "turn": 20.0, "margin": 8.0}
"""No turn of a store falls into a test."""
LATER = NOON + timedelta(seconds=1)


@pytest.fixture
def link(postgres_url: str) -> Iterator[Link]:
    with tables(postgres_url) as link:
        yield link


@attrs.define(eq=False)
class Ear:
    """Hears the hints to processes."""

    session: "psycopg.Connection[Any]"

    def heard(self) -> list[tuple[str, str]]:
        """The end of the channel and the payload of what has come."""
        self.session.execute("SELECT 1")
        found = self.session.notifies(timeout=0.3)
        return [(note.channel.rpartition("_")[2], note.payload) for note in found]


@pytest.fixture
def listening(link: Link, postgres_url: str) -> Iterator[Callable[..., Ear]]:
    with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as session:

        def begin(*numbers: int) -> Ear:
            for number in numbers:
                session.execute(f'LISTEN "{channel_prefix(link)}{number}"'.encode())
            return Ear(session)

        yield begin


def process_of(link: Link, name: str, agent: str, room: int | None, *, dead: bool = False) -> int:
    """A process with an agent and room."""
    number = add_process(link, name)
    link.execute("UPDATE {s}.processes SET room = %s, dead = %s WHERE number = %s", (room, dead, number))
    link.execute("INSERT INTO {s}.agents(process, agent, digest) VALUES (%s, %s, 'd')", (number, agent))
    return number


def sender(link: Link, number: int) -> PgHints:
    async def at_once(function: Callable[[], Any]) -> Any:
        return function()

    hints = PgHints(link, in_thread=at_once)
    hints.process, hints.prefix = number, channel_prefix(link)
    return hints


async def test_a_hint_about_work_goes_to_one_live_process_with_the_agent_and_room(
    link: Link, listening: Callable[..., Ear]
) -> None:
    me = process_of(link, "me", "other", None)
    full, dead = process_of(link, "full", "x", 0), process_of(link, "dead", "x", 9, dead=True)
    able, endless = process_of(link, "able", "x", 2), process_of(link, "endless", "x", None)
    stranger = process_of(link, "stranger", "y", 9)
    ear = listening(me, full, dead, able, endless, stranger)
    hints = sender(link, me)
    for _ in range(40):
        hints.work(["x"])
        await hints.flush()
    heard = ear.heard()
    assert {payload for _, payload in heard} == {"w:0:x"}
    counts = Counter(channel for channel, _ in heard)
    assert counts.keys() == {str(able), str(endless)}, "each of the two that can work is drawn at some time"
    assert counts.total() == 40, "and one of them at a time"


async def test_hints_about_work_of_one_moment_are_one_for_each_agent(link: Link, listening: Callable[..., Ear]) -> None:
    able = process_of(link, "able", "x", 2)
    ear = listening(able)
    hints = sender(link, process_of(link, "me", "other", None))
    for _ in range(10):
        hints.work(["x"])
    await hints.flush()
    assert ear.heard() == [(str(able), "w:0:x")]


async def test_a_hint_about_work_is_passed_on_a_few_times_only(link: Link, listening: Callable[..., Ear]) -> None:
    able = process_of(link, "able", "x", 2)
    ear = listening(able)
    hints = sender(link, process_of(link, "me", "x", 0))
    for hops in (MOST_HOPS, MOST_HOPS + 1):
        hints.work(["x"], hops=hops, elsewhere=True)
        await hints.flush()
    assert ear.heard() == [(str(able), f"w:{MOST_HOPS}:x")]


# --- watches ---------------------------------------------------------------------------------------------------------


def do(hints: PgHints, now: float) -> None:
    """Do what is due at a moment."""
    job = hints._job(now)
    if job is not None:
        hints._perform(job)


def watches(link: Link) -> list[tuple[Any, ...]]:
    """Run, process and whether the watch is good, of each watch."""
    return link.execute("SELECT run, process, until > now() FROM {s}.watches")


async def test_a_watch_is_written_renewed_before_it_is_over_and_deleted(link: Link) -> None:
    add_runs(link, "r", 1)
    hints = sender(link, 7)
    hints.alone = False
    with hints.watch("r1"), hints.watch("r1"):
        do(hints, 0.0)
        assert watches(link) == [(1, 7, True)]
        link.execute("UPDATE {s}.watches SET until = now() - interval '1 s'")
        do(hints, RENEWAL + POLL)
        assert watches(link) == [(1, 7, True)]
    do(hints, RENEWAL + 2 * POLL)
    assert watches(link) == []
    assert RENEWAL + POLL < WATCHED


async def test_a_process_that_is_alone_writes_its_watches_when_another_one_joins(link: Link) -> None:
    add_runs(link, "r", 1)
    hints = sender(link, 7)
    with hints.watch("r1"):
        do(hints, 0.0)
        assert watches(link) == []
        hints.alone = False
        hints.watch_again()
        do(hints, 0.1)
        assert watches(link) == [(1, 7, True)]


async def test_only_a_watch_that_is_good_is_told_of_new_events(link: Link, listening: Callable[..., Ear]) -> None:
    add_runs(link, "r", 3)
    insert = "INSERT INTO {s}.watches VALUES (%s, %s, now() + make_interval(secs => %s))"
    for run, process, left in ((1, 8, 60), (2, 8, 60), (2, 7, 60), (3, 8, -1)):
        link.execute(insert, (run, process, left))
    ear = listening(7, 8)
    hints = sender(link, 7)
    hints.alone = False
    for run in (1, 2, 3):
        hints.moved(run, 4)
        hints.moved(run, 5)
    await hints.flush()
    ((channel, payload),) = ear.heard()
    assert (channel, payload[:2], {*payload[2:].split()}) == ("8", "m:", {"1:5", "2:5"})


# --- stores ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two(url: str, *, room: int) -> AsyncIterator[tuple[PostgresStore, ReportLog]]:
    """A store with room for so many runs; and another one with more room, as a store and its log."""
    first, second = PostgresStore(url, **LONG), PostgresStore(url, **LONG)
    async with opened(first), opened(second) as log:
        second.publish({"x": "d"}, room=9)
        await written(second, {"x"}, 9)
        first.publish({"x": "d"}, room=room)
        await written(first, {"x"}, room)
        log.works = 0
        yield first, log


async def written(store: PostgresStore, agents: set[str], room: int) -> None:
    """Wait until a turn has written what the process has published."""
    with trio.fail_after(10):
        while True:
            me = next(info for info in await store.processes() if info.name == store.process)
            if ({*me.agents}, me.room) == (agents, room):
                return
            await trio.sleep(0.02)


async def works(log: ReportLog, seconds: float = 5.0) -> bool:
    """Whether a hint about work comes within so many seconds."""
    with trio.move_on_after(seconds):
        while not log.works:  # noqa: ASYNC110 - another thread changes it
            await trio.sleep(0.02)
    return log.works > 0


async def test_a_process_whose_room_is_full_passes_a_hint_about_work_on(postgres_url: str, link: Link) -> None:
    async with two(postgres_url, room=5) as (full, log):
        full.publish({"x": "d"}, room=0)  # its next turn will write it; until then hints come
        ((number,),) = link.execute("SELECT number FROM {s}.processes WHERE name = %s", (full.process,))
        link.execute("SELECT pg_notify(%s, 'w:0:x')", (f"{channel_prefix(link)}{number}",))
        assert await works(log), "the other process has room"


async def test_a_process_that_takes_all_it_can_leaves_word_that_there_may_be_more(
    postgres_url: str, link: Link
) -> None:
    async with two(postgres_url, room=2) as (first, log):
        add_runs(link, "r", 4, agent="x")
        able = Ability(agents=frozenset({"x"}))
        assert len(await first.claim_ready(2, able, LATER)) == 2
        assert await works(log), "two more are ready, and the other process has room"
        log.works = 0
        assert len(await first.claim_ready(3, able, LATER)) == 2
        assert not await works(log, 1.0), "nothing is left"


async def test_the_owner_of_the_next_run_of_a_thread_is_told_at_once_that_it_may_work(postgres_url: str) -> None:
    async with two(postgres_url, room=5) as (first, _):
        second = PostgresStore(postgres_url, **LONG)
        async with opened(second) as log:
            author = await create(first, new_run("r1", "t"))
            created = await second.create_run(new_run("r2", "t"), frame("r2", 1))
            assert created.held
            await trio.sleep(0.3)  # its first turns
            row = replace(author.row, stage=Stage.CANCELLED)
            assert (await author.write(1, row=row)).kind == "committed"
            with trio.fail_after(5.0):
                while log.freed != ["r2"]:  # noqa: ASYNC110 - another process changes it
                    await trio.sleep(0.02)


async def test_a_hint_about_a_run_at_a_place_goes_to_a_process_there(postgres_url: str) -> None:
    """Each of ten hints: one that is drawn among all processes with the agent would go astray."""
    async with two(postgres_url, room=5) as (away, log):
        here = PostgresStore(postgres_url, **LONG)
        async with opened(here) as near:
            here.publish({"x": "d"}, places={"shop": "here"}, room=9)
            await written(here, {"x"}, 9)
            log.works = near.works = 0
            for number in range(10):
                new = new_run(f"r{number}", f"r{number}", agent="x", place="here")
                await away.create_run(new, frame(f"r{number}", 1), claim=False)
                with trio.fail_after(5):
                    while near.works <= number:  # noqa: ASYNC110 - another thread changes it
                        await trio.sleep(0.02)
            assert log.works <= 1  # a turn, which the joining of another process brings on
