"""The lease of this process on a database: performs the actions of its machine by statements in a thread.

Theory of operation. `common/_process.py` decides; this module owns the machine, in the trio thread. `take_turn` sends
the beat, and then the statements that the machine finds due. `expire` watches the time: when claims are not good any
more, it reports `ClaimsVoided` immediately, whatever the connection does, and until a turn has given the runs back, no
run is claimed. The time is that of `boot_time`, which also counts while the machine sleeps.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

import trio

from ...errors import StoreDown, StoreUnavailable
from ...store_events import ClaimsVoided, CommandPosted, LogsRenamed, Report, ThreadFreed, WorkFound, ignore
from ..common._process import Duties, LeaseAction, ProcessMachine, Standing
from ..common._write_queue import failed
from ..common.faults import Outage
from ._hints import PgHints
from ._schema import outdated
from ._turn import BeatAnswer, PgProfile, TurnStatements, boot_time

T = TypeVar("T")

_REPAIRS: Final = 3
"""Turns between two looks for what a crash left behind."""
_STEP: Final = 1.0
"""Most seconds between two looks at the clock: trio's stands still while the machine sleeps."""
_SAMPLES: Final = 8
"""Measurements of the server's clock, of which the one with the shortest round trip counts."""

logger = logging.getLogger("greenroom.store")


class Book(Protocol):
    """The claims of this process; `_write.ClaimBook` has it."""

    def note(self, run_id: str, number: int, token: int) -> None:
        """Note a new claim."""

    def forget(self, run_id: str, token: int) -> None:
        """Forget a claim that is of no more use."""

    def tokens(self) -> Mapping[str, int]:
        """Return run id -> token."""


class InThread(Protocol):
    """Calls a function in a thread.

    Raises:
        Outage: the system gave no thread.
    """

    async def __call__(self, function: Callable[[], T], /) -> T:
        """Return what the function returns."""


class PgLease:
    """The lease of this process, and its turns. Used in the trio thread, where a comment does not say otherwise.

    Attributes:
        machine: The machine of the process.
        agents: key -> digest of the agents that this process has.
        places: name -> place of its workspaces.
        room: The number of further runs for which there is room; None: no limit. Others see it after the next turn.
        report: receives the store's reports.
        deaf: a turn has opened another connection, so that no hint is known to arrive, until this is set to False.
    """

    def __init__(
        self, statements: TurnStatements, hints: PgHints, book: Book, profile: PgProfile, in_thread: InThread
    ) -> None:
        self.machine = ProcessMachine[int](profile.times, every=_REPAIRS)
        self.agents: Mapping[str, str] = {}
        self.places: Mapping[str, str] = {}
        self.room: int | None = 0
        self.report: Report = ignore
        self.deaf = self._reconnected = False
        self._statements, self._hints, self._book, self._profile = statements, hints, book, profile
        self._in_thread = in_thread
        self._clock = trio.lowlevel.current_clock()  # `trio.current_time` works in trio's thread only
        self._renewed = trio.Event()
        self._published: tuple[Mapping[str, str], Mapping[str, str]] = (self.agents, self.places)
        self._freed_agents: set[str] = set()
        self._others: frozenset[int] = frozenset()
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._newest = profile.level
        self._outdated: str | None = None

    def __repr__(self) -> str:
        """Return the process, and for how long its claims are good."""
        return f"<PgLease of {self.name}: good for {self.machine.good_until - boot_time():.1f} s>"

    def serves(self, agent: str, place: str | None) -> bool:
        """Return whether this process has an agent and a place; None: the run has no place."""
        return agent in self.agents and (place is None or place in self.places.values())

    @property
    def name(self) -> str:
        """The name of this process."""
        return self._statements.name

    @property
    def good_until(self) -> float:
        """Until when claims are good, in trio time; may be read in any thread.

        Computed again for each call: trio's clock does not count sleep.
        """
        if self.machine.standing is not Standing.GOOD:
            return -math.inf
        return self._clock.current_time() + (self.machine.good_until - boot_time())

    @property
    def offset(self) -> float:
        """The server's clock less this machine's, in seconds."""
        return min(self._samples, key=lambda sample: sample[1], default=(0.0, 0.0))[0]

    def check(self) -> None:
        """Refuse to claim runs while claims are not good. May be called in any thread.

        Raises:
            StoreUnavailable: the lease has run out, and the runs are not given back yet; or the tables need a newer
                release.
        """
        if self._outdated is not None:
            raise StoreUnavailable(self._outdated)
        if not self.machine.good(boot_time()):
            raise StoreUnavailable("the lease of this process has run out; it claims runs again once the store answers")

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the first turn, which inserts the row of this process.

        Raises:
            Outage, StoreDown: see `TurnStatements`.
        """
        await self.take_turn()
        if self._others:
            self._hints.joined(self._others)

    async def expire(self) -> None:
        """Void the claims when they are not good any more.

        Raises:
            StoreDown: the report raised.
        """
        machine = self.machine
        while True:
            seconds = machine.good_until - boot_time()
            if machine.standing is Standing.GOOD and seconds > 0:
                await trio.sleep(min(seconds, _STEP))
                continue
            self._renewed = trio.Event()
            if machine.clock(boot_time()):
                self._void()
            await self._renewed.wait()

    def _void(self) -> None:
        """Report that claims are void.

        Raises:
            StoreDown: the hook raised; begun again, this task would not report it, and runs go on under void claims.
        """
        if self.machine.standing is Standing.DEAD:
            logger.warning("%s was declared dead: it ends its work, and begins again", self.name)
        else:
            logger.warning("the lease of %s has run out: it ends its work, and gives its runs back", self.name)
        try:
            self.report(ClaimsVoided())
        except Exception as error:  # a supervision boundary: of a bug
            raise failed(error) from error

    async def _end_outdated(self, oldest: int) -> None:
        """End all work, and stop: the tables have changed so that this release would write what is wrong.

        Raises:
            StoreDown: always. The caller gives the runs back.
        """
        text = outdated(self._statements.link.target.schema, self._profile.schema_version, oldest)
        logger.warning("%s ends its work and stops: %s", self.name, text)
        self._outdated = text
        if self.machine.lapse():
            self._void()
        await trio.sleep(self._profile.times.margin)  # the last clean-up of a body ends before another process begins
        raise StoreDown(text)

    async def leave(self) -> None:
        """Give all runs back and delete the row of this process, once; in an outage the others free them later.

        The caller bounds the time: the wait for an answer has no limit here.
        """
        self.machine.end()
        try:
            agents = await self._in_thread(self._statements.leave)
            self._hints.work(sorted(agents), elsewhere=True)
            await self._hints.flush()
        except (Outage, StoreDown) as trouble:
            why = trouble.error if isinstance(trouble, Outage) else trouble
            logger.warning("the runs of %s are freed when its lease has run out: %s", self.name, why)

    # --- the turn ----------------------------------------------------------------------------------------------------

    async def take_turn(self) -> bool:
        """Take a turn; returns True if the next one is to begin immediately.

        Raises:
            Outage: the server is unavailable; the watch over the others begins again.
            StoreDown: a table or a right is missing, or the tables need a newer release.
        """
        try:
            return await self._turn()
        except Outage:
            self.machine.outage()
            raise

    async def _turn(self) -> bool:
        statements, machine, hints = self._statements, self.machine, self._hints
        process, tokens = statements.process, self._book.tokens()
        machine.held.intersection_update(tokens)
        answer, again = await self._renew(tokens)
        if answer.oldest > self._profile.schema_version:
            await self._end_outdated(answer.oldest)
        await self._publish()
        others = frozenset(answer.beats)
        joined, self._others = others - self._others, others
        await self._perform(machine.look(answer.read, answer.beats, answer.dead, reconnected=self._reconnected), tokens)
        unread = await self._in_thread(statements.unread) if answer.unread else ()
        held = frozenset(machine.held)
        freed = await self._in_thread(lambda: statements.freed(run_ids=held)) if held else ()
        if statements.must_listen:
            await self._in_thread(statements.listen)
        hints.prefix, hints.alone = statements.prefix, not others
        if joined or self._reconnected or process != statements.process:
            hints.watch_again()
        self.deaf, self._reconnected = self.deaf or self._reconnected, False
        self._notice(answer)
        self.report_freed(freed)
        for run_id, item in unread:
            self.report(CommandPosted(run_id, item))
        agents, self._freed_agents = sorted(self._freed_agents), set()
        hints.work(agents)
        if answer.work and self.room != 0:
            self.report(WorkFound())
        return again

    async def _renew(self, tokens: Mapping[str, int]) -> tuple[BeatAnswer, bool]:
        """Perform the machine's actions until a beat is confirmed; returns it, and whether a turn follows soon."""
        statements, machine, again = self._statements, self.machine, False
        answer = BeatAnswer(sent=-math.inf, read=-math.inf)
        actions = deque(machine.turn(boot_time()))
        while actions:
            match actions.popleft():
                case LeaseAction.RETURN_ALL:
                    self._freed_agents |= await self._in_thread(statements.give_back_all)
                    self._forget(tokens)
                case LeaseAction.JOIN:
                    self._published = self.agents, self.places
                    sent = await self._in_thread(partial(statements.join, self.room, *self._published))
                    self._hints.process = statements.process  # before claims are good again
                    machine.joined(sent)
                    self._forget(tokens)
                case LeaseAction.BEAT:
                    answer = await self._in_thread(partial(statements.beat, self.room, self.agents))
                    self._reconnected = self._reconnected or answer.reconnected
                    actions.extend(machine.beat(answer.sent, alive=answer.alive))
                    self._renewed.set()
                case LeaseAction.VOID:
                    self._void()
                case LeaseAction.TURN:
                    again = True
                case never:
                    assert_never(never)
        self._samples.append(answer.offset)
        return answer, again

    def _forget(self, tokens: Mapping[str, int]) -> None:
        for run_id, token in tokens.items():
            self._book.forget(run_id, token)

    async def _publish(self) -> None:
        publication = self.agents, self.places
        if publication != self._published:
            await self._in_thread(partial(self._statements.publish, *publication))
            self._published = publication

    async def _perform(self, duties: Duties[int], tokens: Mapping[str, int]) -> None:
        """Do what a turn is due after its beat."""
        statements = self._statements
        if duties.free or duties.strays:
            self._freed_agents |= await self._in_thread(partial(self._free, duties))
        if duties.repair:
            owned = await self._in_thread(statements.owned)
            repairs = self.machine.repair({run_id: token for run_id, (token, _) in owned.items()}, tokens)
            self._forget(repairs.lost)
            if repairs.strays:
                strays = [owned[run_id] for run_id in repairs.strays]
                self._freed_agents |= await self._in_thread(lambda: statements.give_back(strays))

    def _free(self, duties: Duties[int]) -> set[str]:
        """Free runs of dead processes, in a thread; returns their agents."""
        statements, agents = self._statements, set[str]()
        for process, beat in duties.silent.items():
            name = statements.declare_dead(process, beat)
            if name is not None:
                logger.info("%s has declared %s dead, whose beat stood still, and frees its runs", self.name, name)
        if duties.free:
            agents |= statements.free_dead()
        if duties.forget:
            statements.forget_dead(duties.forget)
        if duties.strays:
            agents |= statements.free_strays()
        return agents

    def _notice(self, answer: BeatAnswer) -> None:
        """Say what a beat tells about the server and the other releases."""
        machine = self.machine
        if machine.epoch and machine.epoch != answer.epoch:
            self.report(LogsRenamed(answer.epoch))  # before the note: a receiver that raises is called again
        machine.epoch = answer.epoch
        if answer.newest > self._newest:
            self._newest = answer.newest
            logger.warning(
                "%s reads rows up to level %d, and a newer release writes level %d: it leaves the runs that newer"
                " processes have written to them",
                self.name,
                self._profile.level,
                answer.newest,
            )

    def report_freed(self, run_ids: Iterable[str]) -> None:
        """Report own runs that their threads do not hold any more."""
        for run_id in run_ids:
            self.report(ThreadFreed(run_id))  # before the note: a receiver that raises is called again at the next turn
            self.machine.held.discard(run_id)
