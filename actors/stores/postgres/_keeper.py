"""The receiver of hints, which also lets the turns of this process begin in time.

Theory of operation. One task owns the listener's connection. It takes a turn (`PgLease`), and between two turns it
waits in the trio thread until the connection is readable; what arrives is read without waiting, and what it asks for is
read in a thread. A turn that meets an outage is repeated with the pauses of a writer.

The next turn is due one turn after the newest one began, so that no turn between delays a beat; a hint may only bring
it forward, and not closer than `NEXT`. Beats and hints share a connection: where more hints come than processes send,
the process hangs up, beats over a new connection that does not listen, and looks by itself for a while.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Mapping
from typing import Final

import trio

from greenroom.supervision.nursery import open_collapsing_nursery

from ...store_events import CommandPosted, Report, WorkFound
from ..common._write_queue import pauses
from ..common.faults import Outage
from ._heard import LOUD, HeardHints
from ._hints import PgHints
from ._lease import InThread, PgLease
from ._turn import PgProfile, TurnStatements

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

logger = logging.getLogger("greenroom.store")


class PgKeeper:
    """The times of the turns, and the hints that this process receives. Used in the trio thread.

    Attributes:
        heard: the hints that were read.
        hears: hints arrive; False with a pool in between, until a hint to oneself arrived.
    """

    def __init__(
        self, lease: PgLease, statements: TurnStatements, hints: PgHints, profile: PgProfile, in_thread: InThread
    ) -> None:
        """Prepare; nothing is sent."""
        self.heard = HeardHints()
        self.hears = False
        self._lease, self._statements, self._hints, self._profile = lease, statements, hints, profile
        self._in_thread = in_thread
        self._listens = statements.listens  # `statements.listens` is False while the process has hung up
        self._due = self._began = 0.0
        self._quiet_until = -math.inf
        self._nudged = False
        self._sleeping = trio.CancelScope()
        self._tested: float | None = None
        self._sent_at = 0.0
        self._accepted_tests = 0
        self._warned = False

    def __repr__(self) -> str:
        """Return the lease, and whether hints arrive."""
        return f"<PgKeeper, {'hears' if self.hears else 'deaf'}: {self._lease!r}>"

    def publish(self, agents: Mapping[str, str], places: Mapping[str, str], room: int | None) -> None:
        """Say which agents and places this process has, and for how many runs it has room."""
        self._lease.room = room
        if (agents, places) != (self._lease.agents, self._lease.places):
            self._lease.agents, self._lease.places = dict(agents), dict(places)
            self.nudge()

    def nudge(self) -> None:
        """Take the next turn immediately."""
        self._nudged = True
        self._sleeping.cancel()

    async def serve(self, report: Report) -> None:
        """Keep the lease until cancelled.

        Raises:
            StoreDown: a table or a right is missing.
        """
        self._lease.report = report
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._lease.expire)
            await self._keep()

    async def _keep(self) -> None:
        retries = pauses()
        self._due = trio.current_time() + self._profile.times.turn
        self._test_again()
        while True:
            try:
                await self._attend()
                self._began = trio.current_time()
                self._due = self._began + self._profile.times.turn
                self._listen_again()
                if await self._lease.take_turn():
                    self.nudge()
                self._test_again()
            except Outage as outage:
                hung_up = self._hang_up()
                if not hung_up:
                    logger.info("%s does not reach its server: %s", self._lease.name, outage.error)
                await trio.sleep(0.0 if hung_up else next(retries))
                self.nudge()
            else:
                retries = pauses()

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
            if len(self._statements.link.payloads):
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
        heard = self.heard
        return bool(heard.commands or heard.freed or heard.all_commands or heard.all_freed)

    def _test_again(self) -> None:
        """Begin the test again if another connection was opened."""
        if self._lease.deaf:
            self._lease.deaf = self.hears = False
            self._tested = None

    def _test(self) -> None:
        """Send a hint to this process itself until one has come; if they are missed, say so and poll."""
        if self.hears or not (self._listens and self._statements.listens):
            return
        now = trio.current_time()
        if self._tested is None:
            self._tested, self._accepted_tests, self.heard.nonce = now, self._hints.tests, secrets.token_hex(8)
        elif now < self._sent_at + _AGAIN:
            return
        self._sent_at = now
        self._hints.test(self.heard.nonce)
        if now - self._tested > _TEST and self._hints.tests - self._accepted_tests >= _MISSED and not self._warned:
            self._warned = True
            logger.warning(
                "no hint reaches %s, so it looks every %s s: the connection seems to lead through a pool in transaction"
                " mode; write pooled=1 into the address, and listen= with a direct address",
                self._lease.name,
                DEAF_POLL,
            )

    def _hang_up(self) -> bool:
        """Stop listening if the connection was closed because of too many hints; returns whether it was."""
        payloads = self._statements.link.payloads
        if payloads.weight <= LOUD:
            return False
        logger.warning(
            "%s gets more hints than processes send, so it does not listen for %s s, and looks every %s s: a program"
            " with the rights of a process sends them",
            self._lease.name,
            QUIET,
            DEAF_POLL,
        )
        self._statements.listens, self._quiet_until = False, trio.current_time() + QUIET
        self._tested, self.hears, payloads.weight = None, False, 0
        return True

    def _listen_again(self) -> None:
        """Listen once it has been quiet for long enough, and count the hints between two turns."""
        self._statements.link.payloads.weight = 0
        if self._listens and trio.current_time() >= self._quiet_until:
            self._statements.listens = True

    async def _readable(self) -> None:
        connection = self._statements.link.opened_connection if self._listens else None
        if connection is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(connection.fileno())

    def _receive(self) -> None:
        """Read the hints that have arrived, without waiting.

        Raises:
            Outage: the connection is lost.
        """
        heard, link = self.heard, self._statements.link
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
        if heard.tested and self._statements.listens and not self.hears:
            self.hears = True
            heard.miss(0)  # hints between the look of the turn and its LISTEN were not heard
        heard.joined = heard.tested = False

    def _take_work(self, work: Mapping[str, int]) -> None:
        """Claim, or pass the hints on if no room is left."""
        if self._lease.room is None or self._lease.room > 0:
            self._lease.report(WorkFound())
            return
        for agent, hops in work.items():
            if agent in self._lease.agents:
                self._hints.work([agent], hops=hops + 1, elsewhere=True)

    async def _look(self, *, every: bool = False) -> None:
        """Read the rows that hints are about; `every`: without hints, look at all own runs.

        Raises:
            Outage: the server is unavailable.
        """
        heard, statements, lease = self.heard, self._statements, self._lease
        commands, heard.commands = sorted(heard.commands), set()
        freed, heard.freed = sorted(heard.freed), set()
        all_commands, heard.all_commands = every or heard.all_commands, False
        all_freed, heard.all_freed = heard.all_freed, False
        if commands or all_commands:
            if all_commands or not self._profile.threaded:
                unread = await self._in_thread(lambda: statements.unread(None if all_commands else commands))
            else:
                unread = await statements.unread_unthreaded(commands)
            for run_id, item in unread:
                lease.report(CommandPosted(run_id, item))
        held = frozenset(lease.machine.held) if all_freed else frozenset[str]()
        if freed or held:
            lease.report_freed(await self._in_thread(lambda: statements.freed(freed, held)))
        if every:
            lease.report(WorkFound())
