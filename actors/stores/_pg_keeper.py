"""Keeps this process alive for the others: its turns, its lease, and the hints that it receives.

Theory of operation. One task owns the listener's connection. It takes a turn in a thread, and between two turns it
waits in the trio thread until the connection is readable; what arrives is read without waiting, and what it asks for is
read in a thread. A turn that meets an outage is repeated with the pauses of a writer. A second task watches the time:
when claims are not good any more, it calls `hooks.voided` at once, whatever the connection does, and until the next
turn has given the runs back, no run is claimed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import trio

from greenroom.supervision.nursery import open_collapsing_nursery

from ..abc import StoreHooks
from ..errors import StoreDown, StoreUnavailable
from ._leases import LeaseTimes
from ._pg_hints import PgHints
from ._pg_schema import LEVEL, outdated
from ._pg_turn import PgTurn, Posture, Turned, boot_time
from ._write_queue import pauses
from .faults import Outage

T = TypeVar("T")

DEAF_POLL: Final = 0.5
"""Seconds between two looks for unread commands and for work, where no hints come."""
_TEST: Final = 5.0
"""Seconds after which a hint to oneself is missed."""
_STEP: Final = 1.0
"""Most seconds between two looks at the clock: trio's stands still while the machine sleeps."""
_SAMPLES: Final = 8
"""Measurements of the server's clock, of which the one with the shortest round trip counts."""

logger = logging.getLogger("greenroom.store")


class PgKeeper:
    """The lease of this process, and the hints that it receives. Used in the trio thread.

    Attributes:
        hears: hints arrive; False with a pool in between, until a hint to oneself arrived.
    """

    def __init__(
        self,
        turn: PgTurn,
        hints: PgHints,
        times: LeaseTimes,
        *,
        listens: bool,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        known: Callable[[], Mapping[str, int]],
        forget: Callable[[str, int], None],
        renamed: Callable[[str], None],
        version: int,
        unthreaded: bool = True,
        level: int = LEVEL,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            turn: executes the statements, in a thread.
            hints: sends, and takes the hints about watches and work.
            times: of the lease.
            listens: the connection can LISTEN.
            in_thread: calls a function in a thread.
            known: returns run -> token of the claims that this process knows.
            forget: called with run and token of each claim that a turn has found to be void.
            renamed: called with the epoch after each reconnect.
            version: of the schema that this release knows.
            unthreaded: what hints are about may be read in the trio thread.
            level: newest version of rows that this process reads.
        """
        self._unthreaded = unthreaded
        self._turn, self._hints, self._times = turn, hints, times
        self._listens, self._in_thread, self._renamed = listens, in_thread, renamed
        self._known, self._forget = known, forget
        self._version, self._level = version, level
        self._hooks: StoreHooks | None = None
        self._clock = trio.lowlevel.current_clock()  # `trio.current_time` works in trio's thread only
        self._good = -math.inf
        self._void = False
        self._renewed = trio.Event()
        self._nudged = False
        self._sleeping = trio.CancelScope()
        self._agents: Mapping[str, str] | None = None
        self._room: int | None = 0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._commands: set[int] = set()
        self._freed: set[int] = set()
        self._tested: float | None = None
        self._said = False
        self._newest = level
        self._outdated: str | None = None
        self.held: set[str] = set()
        self.hears = False

    def __repr__(self) -> str:
        """Return the process, and for how long its claims are good."""
        return f"<PgKeeper of {self._turn.name}: good for {self._good - boot_time():.1f} s>"

    @property
    def name(self) -> str:
        """The name of this process."""
        return self._turn.name

    @property
    def void(self) -> bool:
        """The lease has run out, and the runs are not given back yet."""
        return self._void

    @property
    def beat_sent(self) -> float:
        """When the newest confirmed beat was sent, as `boot_time`."""
        return self._good - self._times.lease + self._times.margin

    @property
    def good_until(self) -> float:
        """Until when claims are good, in trio time; may be read in any thread.

        Computed anew for each call: trio's clock does not count sleep.
        """
        return -math.inf if self._void else self._clock.current_time() + (self._good - boot_time())

    @property
    def offset(self) -> float:
        """The server's clock less this machine's, in seconds."""
        return min(self._samples, key=lambda sample: sample[1], default=(0.0, 0.0))[0]

    def check(self) -> None:
        """Refuse to claim runs while claims are not good.

        Raises:
            StoreUnavailable: the lease has run out, and the runs are not given back yet; or the tables need a newer
                release.
        """
        if self._outdated is not None:
            raise StoreUnavailable(self._outdated)
        if self._void or boot_time() >= self._good:
            raise StoreUnavailable("the lease of this process has run out; it claims runs again once the store answers")

    def publish(self, agents: Mapping[str, str], room: int | None) -> None:
        """Say which agents this process has, and for how many runs it has room."""
        self._agents = dict(agents)
        self.set_room(room)
        self.nudge()

    def set_room(self, room: int | None) -> None:
        """Say for how many runs this process has room; others see it after the next turn."""
        self._room = room

    def nudge(self) -> None:
        """Take the next turn at once."""
        self._nudged = True
        self._sleeping.cancel()

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def open(self) -> str:
        """Take the first turn, which inserts the row of this process; returns the epoch.

        Raises:
            Outage, StoreDown: see `PgTurn.turn`.
        """
        turned = await self._take_turn()
        if turned.others:
            self._hints.joined(turned.others)
        return turned.epoch

    async def serve(self, hooks: StoreHooks) -> None:
        """Keep the lease until cancelled.

        Raises:
            StoreDown: a table or a right is missing.
        """
        self._hooks = hooks
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._expire, hooks)
            await self._keep(hooks)

    async def leave(self) -> None:
        """Give all runs back and delete the row of this process, once; in an outage the others free them later.

        The caller bounds the time: the wait for an answer has no limit here.
        """
        self._void = True
        try:
            agents = await self._in_thread(self._turn.leave)
            self._hints.work(agents, elsewhere=True)
            await self._hints.flush()
        except (Outage, StoreDown) as trouble:
            why = trouble.error if isinstance(trouble, Outage) else trouble
            logger.warning("the runs of %s are freed when its lease has run out: %s", self.name, why)

    async def _expire(self, hooks: StoreHooks) -> None:
        """Void the claims when they are not good any more."""
        while True:
            left = self._good - boot_time()
            if left > 0:
                await trio.sleep(min(left, _STEP))
                continue
            self._renewed = trio.Event()
            if not self._void:
                logger.warning("the lease of %s has run out: it ends its work, and gives its runs back", self.name)
                self._give_up(hooks)
            await self._renewed.wait()

    def _give_up(self, hooks: StoreHooks) -> None:
        self._void = True
        self.held.clear()
        hooks.voided()

    async def _keep(self, hooks: StoreHooks) -> None:
        retries = pauses()
        due = trio.current_time()
        while True:
            due = max(due, trio.current_time() - self._times.turn) + self._times.turn
            try:
                await self._attend(hooks, due)
                turned = await self._take_turn()
                if turned.oldest > self._version:
                    await self._stop_outdated(hooks, turned.oldest)
                self._report(hooks, turned)
            except Outage as outage:
                logger.info("%s does not reach its server: %s", self.name, outage.error)
                due = trio.current_time()
                await trio.sleep(next(retries))
                self.nudge()
            else:
                retries = pauses()

    async def _stop_outdated(self, hooks: StoreHooks, oldest: int) -> None:
        """End all work, and stop: the tables have changed so that this release would write what is wrong.

        Raises:
            StoreDown: always. The caller gives the runs back.
        """
        text = outdated(self._turn.link.target.schema, self._version, oldest)
        logger.warning("%s ends its work and stops: %s", self.name, text)
        self._outdated = text
        self._give_up(hooks)
        await trio.sleep(self._times.margin)  # the last clean-up of a body ends before another process may begin
        raise StoreDown(text)

    async def _take_turn(self) -> Turned:
        """Take a turn; a turn that was confirmed makes claims good again."""
        known = dict(self._known())
        self.held.intersection_update(known)
        posture = Posture(room=self._room, agents=self._agents, void=self._void, held=frozenset(self.held), known=known)
        turned: Turned = await self._in_thread(lambda: self._turn.turn(posture))
        for run_id, token in turned.lost.items():
            self._forget(run_id, token)
        if self._agents is posture.agents:
            self._agents = None
        if turned.declared_dead and self._hooks is not None and not self._void:
            logger.warning("%s was declared dead: it ends its work, and begins anew", self.name)
            self._give_up(self._hooks)
        if self._void and not posture.void and not turned.declared_dead:
            self.nudge()  # voided while the turn was on its way: the next one gives the runs back first
        else:
            self._good = self._times.good_until(turned.sent)
            self._void = False
            self._renewed.set()
        self._samples.append(turned.offset)
        anew = turned.process != self._hints.process or turned.joined or turned.reconnected
        self._hints.process, self._hints.alone = turned.process, not turned.others
        if turned.reconnected:
            self._tested, self.hears = None, False
        if anew:
            self._hints.watch_anew()
        return turned

    def _report(self, hooks: StoreHooks, turned: Turned) -> None:
        """Tell the runtime what a turn found."""
        for name in turned.buried:
            logger.info("%s has declared %s dead, whose beat stood still, and frees its runs", self.name, name)
        self._renamed(turned.epoch)
        if turned.newest > self._newest:
            self._newest = turned.newest
            logger.warning(
                "%s reads rows up to level %d, and a newer release writes level %d: it leaves the runs that newer"
                " processes have written to them",
                self.name,
                self._level,
                turned.newest,
            )
        for run_id in turned.freed:
            self.held.discard(run_id)
            hooks.thread_freed(run_id)
        for run_id, item in turned.unread:
            hooks.posted(run_id, item)
        if turned.agents:
            self._hints.work(turned.agents)
        if turned.work and self._room != 0:
            hooks.work()

    # --- hints -------------------------------------------------------------------------------------------------------

    async def _attend(self, hooks: StoreHooks, until: float) -> None:
        """Receive hints until it is time for the next turn.

        Raises:
            Outage: the connection is lost.
        """
        while trio.current_time() < until and not self._nudged:
            self._test()
            if self._listens:
                self._receive()
            if self._commands or self._freed:
                await self._look(hooks)
                continue
            wake = until if self.hears else min(until, trio.current_time() + DEAF_POLL)
            with trio.CancelScope(deadline=wake) as self._sleeping:
                if not self._nudged:
                    await self._readable()
            if not self.hears and trio.current_time() >= wake:
                await self._look(hooks, every=True)
        self._nudged = False

    def _test(self) -> None:
        """Send a hint to this process itself, once for each connection; if it is missed, say so and poll."""
        if not self._listens or self.hears:
            return
        now = trio.current_time()
        if self._tested is None:
            self._tested = now
            self._hints.test("1")
        elif now - self._tested > _TEST and not self._said:
            self._said = True
            logger.warning(
                "no hint reaches %s, so it looks every %s s: the connection seems to lead through a pool in transaction"
                " mode; write pooled=1 into the address, and listen= with a direct address",
                self.name,
                DEAF_POLL,
            )

    async def _readable(self) -> None:
        connection = self._turn.link.opened_connection if self._listens else None
        if connection is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(connection.fileno())

    def _receive(self) -> None:
        """Take the hints that have arrived, without waiting.

        Raises:
            Outage: the connection is lost.
        """
        for payload in self._turn.link.arrived():
            kind, _, text = payload.partition(":")
            self._hints.received += kind != "s"
            match kind:
                case "c":
                    self._commands.update(map(int, text.split()))
                case "h":
                    self._freed.update(map(int, text.split()))
                case "m":
                    self._hints.take_moves(text)
                case "w":
                    self._take_work(text)
                case "p":
                    self.nudge()
                case "s":
                    self.hears = True
                case _:
                    pass  # of a newer release

    def _take_work(self, text: str) -> None:
        """Claim, or pass the hint on if there is no room any more."""
        hops, _, agent = text.partition(":")
        if self._room is None or self._room > 0:
            if self._hooks is not None:
                self._hooks.work()
        else:
            self._hints.work([agent], hops=int(hops) + 1, elsewhere=True)

    async def _look(self, hooks: StoreHooks, *, every: bool = False) -> None:
        """Read what hints are about; `every`: without hints, look at all own runs.

        Raises:
            Outage: the server is unavailable.
        """
        commands, self._commands = sorted(self._commands), set()
        freed, self._freed = sorted(self._freed), set()
        turn = self._turn
        if commands or every:
            if every or not self._unthreaded:
                unread = await self._in_thread(lambda: turn.unread(None if every else commands))
            else:
                unread = await turn.unread_at_once(commands)
            for run_id, item in unread:
                hooks.posted(run_id, item)
        if freed:
            for run_id in await self._in_thread(lambda: turn.freed(freed)):
                self.held.discard(run_id)
                hooks.thread_freed(run_id)
        if every:
            hooks.work()
