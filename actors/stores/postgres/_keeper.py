"""Keeps this process alive for the others: its turns, its lease, and the hints that it receives.

Theory of operation. One task owns the listener's connection. It takes a turn in a thread, and between two turns it
waits in the trio thread until the connection is readable; what arrives is read without waiting, and what it asks for is
read in a thread. A turn that meets an outage is repeated with the pauses of a writer. A second task watches the time:
when claims are not good any more, it calls `ClaimsVoided` immediately, whatever the connection does, and until the next
turn has given the runs back, no run is claimed.

The next turn is due one turn after the newest one began, so that no turn between delays a beat; a hint may only bring
it forward, and not closer than `NEXT`. Beats and hints share a connection: where more hints come than processes send,
the process hangs up, beats over a new connection that does not listen, and looks by itself for a while.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import trio

from greenroom.supervision.nursery import open_collapsing_nursery

from ...errors import StoreDown, StoreUnavailable
from ...store_events import ClaimsVoided, CommandPosted, Report, ThreadFreed, WorkFound, ignore
from ..common._leases import LeaseTimes
from ..common._write_queue import failed, pauses
from ..common.faults import Outage
from ._heard import LOUD, HeardHints
from ._hints import PgHints
from ._schema import LEVEL, outdated
from ._turn import PgTurn, Posture, Turned, boot_time

T = TypeVar("T")

DEAF_POLL: Final = 0.5
"""Seconds between two looks for unread commands and for work, where no hints come."""
NEXT: Final = 0.3
"""Seconds after the beginning of a turn before which no hint lets the next one begin."""
QUIET: Final = 60.0
"""Seconds for which a process does not listen that got more hints than processes send (`LOUD`)."""
_TEST: Final = 5.0
"""Seconds after which a hint to oneself is missed."""
_AGAIN: Final = 1.0
"""Seconds until the test is repeated: it is lost with the connection that sends it."""
_MISSED: Final = 3
"""Tests that the server has taken, and that did not come, before a warning."""
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
            times: The times of the lease.
            listens: the connection can LISTEN.
            in_thread: calls a function in a thread.
            known: returns run -> token of the claims that this process knows.
            forget: called with run and token of each claim that a turn has found to be void.
            renamed: called with the epoch after each reconnect.
            version: The version of the schema that this release knows.
            unthreaded: True if the trio thread may read the rows that hints are about.
            level: newest version of rows that this process reads.
        """
        self._unthreaded = unthreaded
        self._heard = HeardHints()
        self._due = self._began = 0.0
        self._quiet_until = -math.inf
        self._turn, self._hints, self._times = turn, hints, times
        self._listens, self._in_thread, self._renamed = listens, in_thread, renamed
        self._known, self._forget = known, forget
        self._version, self._level = version, level
        self._report: Report = ignore
        self._clock = trio.lowlevel.current_clock()  # `trio.current_time` works in trio's thread only
        self._good = -math.inf
        self._void = False
        self._renewed = trio.Event()
        self._nudged = False
        self._sleeping = trio.CancelScope()
        self._agents: Mapping[str, str] | None = None
        self._room: int | None = 0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._tested: float | None = None
        self._sent_at = 0.0
        self._taken = 0
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

        Computed again for each call: trio's clock does not count sleep.
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
        """Take the next turn immediately."""
        self._nudged = True
        self._sleeping.cancel()

    @property
    def received(self) -> int:
        """Hints of other processes that were read."""
        return self._heard.received

    @property
    def dropped(self) -> int:
        """Payloads that could not be read, or were too many."""
        return self._heard.dropped

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

    async def serve(self, report: Report) -> None:
        """Keep the lease until cancelled.

        Raises:
            StoreDown: a table or a right is missing.
        """
        self._report = report
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._expire)
            await self._keep()

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

    async def _expire(self) -> None:
        """Void the claims when they are not good any more."""
        while True:
            left = self._good - boot_time()
            if left > 0:
                await trio.sleep(min(left, _STEP))
                continue
            self._renewed = trio.Event()
            if not self._void:
                logger.warning("the lease of %s has run out: it ends its work, and gives its runs back", self.name)
                self._give_up()
            await self._renewed.wait()

    def _give_up(self) -> None:
        """Report that claims are void.

        Raises:
            StoreDown: the hook raised; begun again, this task would not report it, and runs go on under void claims.
        """
        self._void = True
        self.held.clear()
        try:
            self._report(ClaimsVoided())
        except Exception as error:  # a supervision boundary: of a bug
            raise failed(error) from error

    async def _keep(self) -> None:
        retries = pauses()
        self._due = trio.current_time() + self._times.turn
        while True:
            try:
                await self._attend()
                self._began = trio.current_time()
                self._due = self._began + self._times.turn
                self._listen_again()
                turned = await self._take_turn()
                if turned.oldest > self._version:
                    await self._stop_outdated(turned.oldest)
                self._tell(turned)
            except Outage as outage:
                hung_up = self._hang_up()
                if not hung_up:
                    logger.info("%s does not reach its server: %s", self.name, outage.error)
                await trio.sleep(0.0 if hung_up else next(retries))
                self.nudge()
            else:
                retries = pauses()

    async def _stop_outdated(self, oldest: int) -> None:
        """End all work, and stop: the tables have changed so that this release would write what is wrong.

        Raises:
            StoreDown: always. The caller gives the runs back.
        """
        text = outdated(self._turn.link.target.schema, self._version, oldest)
        logger.warning("%s ends its work and stops: %s", self.name, text)
        self._outdated = text
        self._give_up()
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
        if turned.declared_dead and not self._void:
            logger.warning("%s was declared dead: it ends its work, and begins anew", self.name)
            self._give_up()
        if self._void and not posture.void and not turned.declared_dead:
            self.nudge()  # voided while the turn was on its way: the next one gives the runs back first
        else:
            self._good = self._times.good_until(turned.sent)
            self._void = False
            self._renewed.set()
        self._samples.append(turned.offset)
        anew = turned.process != self._hints.process or turned.joined or turned.reconnected
        self._hints.process, self._hints.prefix, self._hints.alone = (
            turned.process,
            self._turn.prefix,
            not turned.others,
        )
        if turned.reconnected:
            self._tested, self.hears = None, False
        if anew:
            self._hints.watch_anew()
        return turned

    def _tell(self, turned: Turned) -> None:
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
            self._report(ThreadFreed(run_id))  # before the note: a hook that raises is called again at the next turn
            self.held.discard(run_id)
        for run_id, item in turned.unread:
            self._report(CommandPosted(run_id, item))
        if turned.agents:
            self._hints.work(turned.agents)
        if turned.work and self._room != 0:
            self._report(WorkFound())

    # --- hints -------------------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Receive hints until it is time for the next turn.

        Raises:
            Outage: the connection is lost.
        """
        while trio.current_time() < self._due and not self._nudged:
            self._test()
            if self._listens:
                self._receive()
            if len(self._turn.link.payloads):
                await trio.lowlevel.checkpoint()
                continue
            if self._to_look:
                await self._look()
                continue
            wake = self._due if self.hears else min(self._due, trio.current_time() + DEAF_POLL)
            with trio.CancelScope(deadline=wake) as self._sleeping:
                if not self._nudged:
                    await self._readable()
            if not self.hears and trio.current_time() >= wake:
                await self._look(every=True)
        self._nudged = False

    @property
    def _to_look(self) -> bool:
        heard = self._heard
        return bool(heard.commands or heard.freed or heard.all_commands or heard.all_freed)

    def _test(self) -> None:
        """Send a hint to this process itself until one has come; if they are missed, say so and poll."""
        if self.hears or not (self._listens and self._turn.listens):
            return
        now = trio.current_time()
        if self._tested is None:
            self._tested, self._taken, self._heard.nonce = now, self._hints.tests, secrets.token_hex(8)
        elif now < self._sent_at + _AGAIN:
            return
        self._sent_at = now
        self._hints.test(self._heard.nonce)
        if now - self._tested > _TEST and self._hints.tests - self._taken >= _MISSED and not self._said:
            self._said = True
            logger.warning(
                "no hint reaches %s, so it looks every %s s: the connection seems to lead through a pool in transaction"
                " mode; write pooled=1 into the address, and listen= with a direct address",
                self.name,
                DEAF_POLL,
            )

    def _hang_up(self) -> bool:
        """Stop listening if the connection was closed because of too many hints; returns whether it was."""
        payloads = self._turn.link.payloads
        if payloads.weight <= LOUD:
            return False
        logger.warning(
            "%s gets more hints than processes send, so it does not listen for %s s, and looks every %s s: a program"
            " with the rights of a process sends them",
            self.name,
            QUIET,
            DEAF_POLL,
        )
        self._turn.listens, self._quiet_until = False, trio.current_time() + QUIET
        self._tested, self.hears, payloads.weight = None, False, 0
        return True

    def _listen_again(self) -> None:
        """Listen once it has been quiet for long enough, and count the hints between two turns."""
        self._turn.link.payloads.weight = 0
        if self._listens and trio.current_time() >= self._quiet_until:
            self._turn.listens = True

    async def _readable(self) -> None:
        connection = self._turn.link.opened_connection if self._listens else None
        if connection is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(connection.fileno())

    def _receive(self) -> None:
        """Read the hints that have arrived, without waiting.

        Raises:
            Outage: the connection is lost.
        """
        heard, link = self._heard, self._turn.link
        for payload in link.arrived():
            heard.read(payload)
        if link.payloads.lost:
            heard.miss(link.payloads.lost)
            link.payloads.lost = 0
        if heard.moves:
            self._hints.take_moves(heard.moves)
            heard.moves = {}
        if heard.work:
            self._take_work(heard.work)
            heard.work = {}
        if heard.joined:
            self._due = min(self._due, self._began + NEXT)
        if heard.tested and self._turn.listens and not self.hears:
            self.hears = True
            heard.miss(0)  # what came between the look of the turn and its LISTEN was not heard
        heard.joined = heard.tested = False

    def _take_work(self, work: Mapping[str, int]) -> None:
        """Claim, or pass the hints on if no room is left."""
        if self._room is None or self._room > 0:
            self._report(WorkFound())
            return
        for agent, hops in work.items():
            if self._turn.serves(agent):
                self._hints.work([agent], hops=hops + 1, elsewhere=True)

    async def _look(self, *, every: bool = False) -> None:
        """Read what hints are about; `every`: without hints, look at all own runs.

        Raises:
            Outage: the server is unavailable.
        """
        heard, turn = self._heard, self._turn
        commands, heard.commands = sorted(heard.commands), set()
        freed, heard.freed = sorted(heard.freed), set()
        all_commands, heard.all_commands = every or heard.all_commands, False
        all_freed, heard.all_freed = heard.all_freed, False
        if commands or all_commands:
            if all_commands or not self._unthreaded:
                unread = await self._in_thread(lambda: turn.unread(None if all_commands else commands))
            else:
                unread = await turn.unread_at_once(commands)
            for run_id, item in unread:
                self._report(CommandPosted(run_id, item))
        if freed or (all_freed and self.held):
            held = frozenset(self.held) if all_freed else frozenset[str]()
            for run_id in await self._in_thread(lambda: turn.freed(freed, held)):
                self._report(ThreadFreed(run_id))
                self.held.discard(run_id)
        if every:
            self._report(WorkFound())
