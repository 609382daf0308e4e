"""When a process takes its turns, whatever hints come; in virtual time, with a server that is a script."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from greenroom.actors.store_events import Report, StoreEvent, ignore
from greenroom.actors.stores.common._leases import LeaseTimes
from greenroom.actors.stores.common._process import ProcessMachine
from greenroom.actors.stores.postgres import _keeper as _pg_keeper
from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._heard import READ_BATCH
from greenroom.actors.stores.postgres._hints import PgHints
from greenroom.actors.stores.postgres._keeper import DEAF_POLL, PgKeeper
from greenroom.actors.stores.postgres._lease import PgLease
from greenroom.actors.stores.postgres._target import PgTarget
from greenroom.actors.stores.postgres._turn import PgProfile, TurnStatements
from greenroom.actors.stores.postgres._write import ClaimBook
from greenroom.actors.testing.store_kit._tools import ReportLog

TIMES = LeaseTimes(lease=30.0, turn=3.0, margin=8.0)


class SilentLink(Link):
    """A connection to no server: payloads are put into it, and it hears the tests that are sent to it."""

    def __init__(self) -> None:
        super().__init__(PgTarget.parse("postgresql://127.0.0.1/none"), "turns")
        self.come: list[bytes] = []

    def arrived(self) -> list[bytes]:
        with self.sorted():
            come, self.come = self.come, []
            for payload in come:
                self.payloads.add(payload)
        return self.payloads.take()

    def persistent(self, text: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return []


class ScriptedStatements(TurnStatements):
    """Statements of a process that is alone. `looks`: how often all own runs were looked at."""

    def __init__(self, link: Link, profile: PgProfile) -> None:
        super().__init__(link, profile, listens=True)
        self.looks: list[object] = []

    def unread(self, numbers: object = None) -> list[Any]:
        """Look."""
        self.looks.append(numbers)
        return []

    def freed(self, numbers: object = (), run_ids: object = ()) -> list[str]:
        """Look."""
        self.looks.append((numbers, run_ids))
        return []


@attrs.define(eq=False)
class ScriptedLease:
    """Turns that beat. `at`: when they were taken; `reconnects`: the next one opens another connection."""

    name: str = "p"
    agents: Mapping[str, str] = attrs.field(factory=dict)
    room: int | None = 0
    report: Report = ignore
    machine: ProcessMachine[int] = attrs.field(factory=lambda: ProcessMachine(TIMES))
    deaf: bool = False
    reconnects: bool = False
    at: list[float] = attrs.field(factory=list)

    async def take_turn(self) -> bool:
        """Beat."""
        await trio.lowlevel.checkpoint()
        self.at.append(trio.current_time())
        self.deaf, self.reconnects = self.reconnects, False
        return False

    async def expire(self) -> None:
        """Claims stay good."""
        await trio.sleep_forever()


class EchoingHints(PgHints):
    """Sends nothing; hints to oneself arrive, unless they are lost."""

    lost = 0
    asked = 0

    def test(self, nonce: str) -> None:
        self.asked += 1
        if self.lost > 0:
            self.lost -= 1
        else:
            self.tests += 1
            self._link.come.append(f"s:{nonce}".encode())  # type: ignore[attr-defined]


@attrs.define(eq=False)
class Kept:
    """A keeper at work."""

    keeper: PgKeeper
    lease: ScriptedLease
    statements: ScriptedStatements
    hints: EchoingHints
    link: SilentLink

    def send(self, *payloads: str) -> None:
        """Let payloads arrive, and be noticed."""
        for payload in payloads:
            self.link.come.append(payload.encode())
        self.keeper._sleeping.cancel()

    def longest(self) -> float:
        """The longest time between two turns."""
        return round(max(after - before for before, after in pairwise(self.lease.at)), 6)


async def at_once(function: Callable[[], Any]) -> Any:
    """Call a function in the calling task."""
    await trio.lowlevel.checkpoint()
    return function()


@asynccontextmanager
async def kept(*, lost: int = 0) -> AsyncIterator[Kept]:
    link = SilentLink()
    profile = PgProfile(name="p", release="v", times=TIMES, answer=10.0, threaded=False)
    lease, statements, hints = ScriptedLease(), ScriptedStatements(link, profile), EchoingHints(link, in_thread=at_once)
    hints.lost = lost
    keeper = PgKeeper(lease, statements, hints, profile, at_once)  # type: ignore[arg-type]
    await lease.take_turn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.serve, ReportLog())  # noqa: ASYNC113 - the next line waits until the keeper waits
        await trio.testing.wait_all_tasks_blocked()
        yield Kept(keeper, lease, statements, hints, link)
        nursery.cancel_scope.cancel()


async def test_the_next_turn_is_due_one_turn_after_each_turn(autojump_clock: trio.testing.MockClock) -> None:
    """Turns between, as of processes that join, must not postpone the beats that follow."""
    async with kept() as process:
        for _ in range(20):
            process.keeper.nudge()
            await trio.sleep(0.05)
        await trio.sleep(60.0)
    assert process.longest() <= TIMES.turn


@pytest.mark.parametrize("every", [0.001, 0.25, 0.9, 2.9])
async def test_no_rhythm_of_hints_postpones_a_turn_or_brings_one_closer_than_a_little(
    every: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with kept() as process:
        until = trio.current_time() + 60.0
        while trio.current_time() < until:
            process.send("p:")
            await trio.sleep(every)
        await trio.sleep(30.0)
    assert process.longest() <= TIMES.turn
    assert len(process.lease.at) <= 2 + 90.0 / _pg_keeper.NEXT


async def test_a_test_of_the_connection_is_repeated_until_it_comes(autojump_clock: trio.testing.MockClock) -> None:
    async with kept(lost=3) as process:
        await trio.sleep(10.0)
        assert process.keeper.hears
        assert process.hints.asked == 4
        looks = len(process.statements.looks)
        process.lease.reconnects, process.hints.lost = True, 1
        await trio.sleep(10.0)
        assert process.keeper.hears, "after a restart the connection of hints is cut, too, and loses the first test"
        after = len(process.statements.looks)
        await trio.sleep(60.0)
        assert len(process.statements.looks) == after, "a process that hears does not look by itself"
        assert looks < 10


async def test_a_process_warns_of_a_pool_only_if_the_server_has_taken_the_tests(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(lost=40) as process:
        await trio.sleep(30.0)
        assert "no hint reaches" not in caplog.text
        assert not process.keeper.hears
        await trio.sleep(30.0)
        assert process.keeper.hears


async def test_a_foreign_test_does_not_make_a_deaf_process_believe_that_it_hears(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with kept(lost=1_000) as process:
        for _ in range(10):
            process.send("s:1", "s:", "s:x")
            await trio.sleep(1.0)
        assert not process.keeper.hears
        assert process.keeper.heard.dropped == 30


async def test_a_flood_of_hints_is_not_listened_to_and_delays_no_turn(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept() as process:
        await trio.sleep(4.0)
        for _ in range(200):
            process.send(*["c:1 2 3"] * 1_000)
            await trio.sleep(0.01)
        assert not process.statements.listens
        assert not process.keeper.hears
        assert caplog.text.count("gets more hints than processes send") == 1
        before = len(process.statements.looks)
        await trio.sleep(_pg_keeper.QUIET / 2)
        looks = (len(process.statements.looks) - before) / (_pg_keeper.QUIET / 2)
        assert looks <= 1 / DEAF_POLL + 1, "meanwhile it looks by itself"
        await trio.sleep(_pg_keeper.QUIET)
        assert process.statements.listens
        assert process.keeper.hears
    assert process.longest() <= TIMES.turn


async def test_what_came_before_a_process_listened_is_looked_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """A turn reads the commands first and listens last: a hint in between is heard by no connection."""
    async with kept() as process:
        await trio.sleep(10.0)
        assert process.statements.looks == [None]
        process.lease.reconnects = True
        await trio.sleep(60.0)
        assert process.statements.looks == [None, None]


async def test_reading_many_hints_leaves_time_for_other_tasks(autojump_clock: trio.testing.MockClock) -> None:
    async with kept() as process:
        await trio.sleep(4.0)
        looks = len(process.statements.looks)
        process.send(*["c:1"] * (5 * READ_BATCH))
        for read in range(1, 6):
            await trio.lowlevel.checkpoint()
            assert process.keeper.heard.received <= read * READ_BATCH
        await trio.sleep(1.0)
        assert process.keeper.heard.received == 5 * READ_BATCH
        assert process.statements.looks[looks:] == [[1]]


@attrs.define(eq=False)
class FailsOnce(ReportLog):
    """Its first report of a free thread raises."""

    def __call__(self, event: StoreEvent) -> None:
        super().__call__(event)
        if len(self.freed) == 1:
            raise ZeroDivisionError


async def test_a_free_thread_whose_report_raised_is_reported_again(autojump_clock: trio.testing.MockClock) -> None:
    async with kept() as process:
        statements = process.statements
        lease = PgLease(statements, process.hints, ClaimBook(), statements._profile, at_once)
        lease.report = reports = FailsOnce()
        lease.machine.held.add("r")
        with pytest.raises(ZeroDivisionError):
            lease.report_freed(["r"])
        assert lease.machine.held == {"r"}, "the next turn asks about the run again"
        lease.report_freed(["r"])
    assert reports.freed == ["r", "r"]
    assert lease.machine.held == set()
