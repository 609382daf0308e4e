"""A store in PostgreSQL through outages: what is refused, what waits, and what a repeated statement writes."""

from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest
import trio
from msgspec.structs import replace
from tests.support.postgres import Server

from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.errors import StoreUnavailable
from greenroom.actors.stores.common.faults import Outage
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.actors.testing.store_kit._tools import frame, judge, message, say
from greenroom.actors.testing.store_kit.kit import create, new_run, opened

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as own:
        yield own


@pytest.fixture(autouse=True)
def running_again(server: Server) -> Iterator[None]:
    yield
    if server.pid is None:
        server.start()


class Lost:
    """Loses the answers of statements that were executed: an outage after the commit."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, point: str) -> None:
        if point == "after_commit" and self.times:
            self.times -= 1
            raise Outage(ConnectionError("the answer was lost"))


async def test_commands_are_refused_within_two_seconds_and_commits_wait(server: Server) -> None:
    store = PostgresStore(server.url(schema="refused"))
    async with opened(store) as hooks:
        author = await create(store, new_run("r", "t"))
        server.stop()
        late = author.send(author.make(2))
        with trio.fail_after(2):
            with pytest.raises(StoreUnavailable):
                await store.post("r", say("c"), judge)
            with pytest.raises(StoreUnavailable):
                await store.create_run(new_run("other", "t2"), frame("other", 1))
            with pytest.raises(StoreUnavailable):
                await store.load("r")
        assert not late.receipts
        server.start()
        receipt = await late.receipt()
        assert (receipt.kind, receipt.last) == ("committed", 3)
        with trio.fail_after(10):
            while hooks.outages[-1] is not None:  # noqa: ASYNC110 - the end is reported after the receipt
                await trio.sleep(0.02)
        assert [error is None for error in hooks.outages] == [False, True]
        assert (await store.post("r", say("c"), judge)).status == "accepted"
        assert len(await store.events("r")) == 3


async def test_a_command_that_waited_for_a_lock_is_refused_and_unwritten(server: Server) -> None:
    """Not kept until the lock is gone: the statement failed, so nothing is unknown."""
    store = PostgresStore(server.url(schema="locked"))
    async with opened(store):
        await create(store, new_run("r", "t"))
        assert (await store.post("r", say("before"), judge)).status == "accepted"
        with closing(psycopg.connect(server.url())) as other:
            other.execute("LOCK TABLE locked.inbox IN EXCLUSIVE MODE")
            with trio.fail_after(8), pytest.raises(StoreUnavailable, match="another session holds a lock"):
                await store.post("r", say("c"), judge)
            other.rollback()
        answers = []
        with trio.fail_after(10):
            while not answers:
                with suppress(StoreUnavailable):  # until a retry has found that the store answers
                    answers.append(await store.post("r", say("c"), judge))
                await trio.sleep(0.02)
        assert answers[0].status == "accepted"


async def test_a_restart_while_nothing_is_asked_is_no_outage(server: Server) -> None:
    """The first statement after it opens a new connection."""
    store = PostgresStore(server.url(schema="restart"))
    async with opened(store) as hooks:
        author = await create(store, new_run("r", "t"))
        server.restart()
        assert (await store.post("r", say("c"), judge)).status == "accepted"
        assert (await store.load("r")) is not None
        await author.write(2)
        assert hooks.outages == []


async def test_commits_whose_answer_was_lost_are_written_once(server: Server) -> None:
    """Commits without events have nothing but their number that tells them from each other."""
    lost = Lost()
    store = PostgresStore(server.url(schema="once"), faults=lost)
    async with opened(store) as hooks:
        author = await create(store, new_run("r", "t"))
        for number in range(6):
            lost.times = number % 3
            row = replace(author.row, step=number)
            receipt = await author.send(author.make(0, row=row, messages=(message(f"m{number}"),))).receipt()
            assert receipt.kind == "committed"
        lost.times = 1
        held = await store.create_run(new_run("next", "t"), frame("next", 1))
        lost.times = 2
        receipt = await author.end()
        assert (held.held, receipt.next_in_thread) == (True, "next")
        assert [one.id for one in await store.messages("t")] == [f"m{number}" for number in range(6)]
        assert len(await store.events("r")) == 2
        assert len(hooks.frames) == 2 + 6 + 1


async def test_a_new_run_and_a_command_find_their_own_rows(server: Server) -> None:
    lost = Lost()
    store = PostgresStore(server.url(schema="own"), faults=lost)
    async with opened(store) as hooks:
        lost.times = 2
        author = await create(store, new_run("r", "t"))
        await author.write(1)
        lost.times = 2
        result = await store.post("r", say("c"), judge)
        assert (result.status, [item.position for _, item in hooks.items]) == ("accepted", [1])
        again = await store.post("r", say("c"), judge)
        assert again.status == "duplicate"
        assert len(hooks.items) == 1


class Life:
    """A run that commits and ends while commands are sent to it.

    Attributes:
        accepted: commands.
    """

    STEPS = 60

    def __init__(self, store: PostgresStore, name: str) -> None:
        self.store, self.name, self.accepted = store, name, 0

    async def work(self) -> None:
        author = await create(self.store, new_run(self.name, self.name))
        for step in range(self.STEPS):
            row = replace(author.row, step=step)
            await author.write(step % 3, row=row, messages=(message(f"{self.name}.{step}"),))
        while True:
            before, read = author.row, self.accepted
            ending = replace(before, stage=Stage.COMPLETED, inbox=read)
            receipt = await author.send(author.make(1, row=ending)).receipt()
            if receipt.kind == "committed":
                return
            assert receipt.kind == "inbox_ahead"
            author.row = before
            await trio.sleep(0.01)

    async def post(self) -> None:
        for number in range(30):
            with suppress(StoreUnavailable):
                result = await self.store.post(self.name, say(f"{self.name}.c{number}"), judge)
                self.accepted += result.status == "accepted"
                assert result.status == "accepted" or result.code in ("run_done", "busy"), result
            await trio.sleep(0.02)

    async def check(self) -> None:
        assert [one.id for one in await self.store.messages(self.name)] == [
            f"{self.name}.{step}" for step in range(self.STEPS)
        ]
        assert list(await self.store.events(self.name)) == [
            frame(self.name, number) for number in range(1, self.STEPS + 3)
        ]
        assert len(await self.store.commands(self.name)) == self.accepted


async def test_a_crash_of_the_server_in_the_middle_loses_nothing(server: Server) -> None:
    """Three crashes while runs commit, take commands and end: each event once, each accepted command once."""
    store = PostgresStore(server.url(schema="crashes"))
    lives = [Life(store, f"r{number}") for number in range(8)]
    async with opened(store):
        async with trio.open_nursery() as nursery:
            for life in lives:
                nursery.start_soon(life.work)
            await trio.sleep(0.3)
            for life in lives:
                nursery.start_soon(life.post)
            for _ in range(3):
                await trio.sleep(0.3)
                await trio.to_thread.run_sync(server.restart)
        for life in lives:
            await life.check()
