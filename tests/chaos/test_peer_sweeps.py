"""A run that one process works on and another one follows and decides: the first leaves, dies and hangs at every step.

Both processes are in one program, on peers of one memory store, in virtual time. The decisions are posted in the
process that does not own the run, so each of them crosses processes; after the owner's end the other one takes over.
`GREENROOM_CHAOS=full` strikes every step under several schedules; else a seeded sample of the steps.
"""

import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from msgspec.structs import replace
from tests.support.planted_bugs import shown

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, Receipt
from greenroom.actors.stores.common.faults import InjectedCrash, Outage
from greenroom.actors.stores.memory import store as memory
from greenroom.actors.stores.memory._peers import Peer
from greenroom.actors.stores.memory._tables import MemoryTables
from greenroom.supervision import chaos, open_collapsing_nursery
from greenroom.supervision.exits import leaves

from .stage import RUN, Book, WatchedMemory, World, broken, coding, preparing, telling

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2) if FULL else (1,)
LONGEST = 900.0
"""Virtual seconds of a scenario: some leases, and the pauses after the crashes of several owners."""
SETTLE = 400.0
"""Virtual seconds from a fault to the run's end."""
BELOW, ABOVE = 9.0, 55.0
"""Virtual seconds of a freeze: less than a lease, and more than a lease and what the others need to notice."""

TAKEN = 0.0
"""As the length of a freeze: until the other process works on the run."""

pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class Processes(World):
    """Two processes on one store; faults strike the one that starts the run.

    Attributes:
        strike: what `die` does: "leave" (the process is asked to end), "kill" or "freeze".
        pause: virtual seconds of a freeze, or `TAKEN`.
        losing: hints that are lost; "all" of them, or every "second".
        owner: the store of the process that is struck.
        dead: that process has been killed.
        posts: the struck process posts the decisions, and the other one works: a pure gateway is struck.
    """

    strike: str = "leave"
    posts: bool = False
    pause: float = ABOVE
    losing: str = ""
    points: list[str] = attrs.field(factory=list)
    deadly: int | None = None
    lost: str = ""
    owner: WatchedMemory = attrs.field(init=False)
    world_of_owner: Book = attrs.field(init=False)
    dead: bool = False
    struck: bool = False
    _hinted: int = 0
    _nursery: trio.Nursery | None = None
    _begun: trio.Event = attrs.field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        root = WatchedMemory()
        self.store, self.owner = root.peer(name="other"), root.peer(name="owner", faults=self._at)
        self.store.book = self.owner.book = self.book
        root.hints = self._hint
        # the bodies that run are each process's own; everything else is the world's
        self.world_of_owner = attrs.evolve(self.book, running=set())

    def _hint(self, kind: str, _: str) -> float | None:
        if kind == "follow_up" and not self.losing:
            return 0.0
        self._hinted += 1
        return None if self.losing == "all" or (self.losing == "second" and self._hinted % 2) else 0.0

    def _at(self, point: str) -> None:
        """Called at each write of the owner's store."""
        if self.dead:
            raise InjectedCrash("the process was killed")
        self.points.append(point)
        if len(self.points) - 1 == self.deadly:
            if self.lost:
                raise Outage(ConnectionError("the answer is lost"))
            self.die().cancel()
            if self.dead:
                raise InjectedCrash("the process is killed here")

    def die(self) -> trio.CancelScope:
        """Strike the owner; returns the scope to cancel."""
        self.struck = True
        if self.strike == "freeze":
            self._freeze()
            return trio.CancelScope()
        if self.strike == "kill":
            self.dead = True
            self.world_of_owner.running.clear()
            self.world_of_owner.bodies = Counter()  # what it still does on its way down, it does not do
        return self.scope

    def _freeze(self) -> None:
        if self.owner.process and self._nursery is not None:
            self.owner.freeze()
            self._nursery.start_soon(self._thaw, name="thaw")

    async def _thaw(self) -> None:
        if self.pause == TAKEN:
            with trio.move_on_after(ABOVE):
                while not self._taken():  # noqa: ASYNC110 - no event says it
                    await trio.sleep(0.1)
            await trio.sleep(0.05)
        else:
            await trio.sleep(self.pause)
        if self.owner.process:
            self.owner.thaw()

    def _taken(self) -> bool:
        """The other process works on the run."""
        run = self.store._ledger.runs.get(RUN)
        return run is not None and (run.ended is not None or run.owner == self.store.process)

    # --- the processes -----------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Both processes, until the run has ended."""
        agent = self.make_agent(self.execution)
        with trio.fail_after(LONGEST):
            async with open_collapsing_nursery() as around:
                self._nursery = around
                async with gr.open_runtime(self.store, agents=[agent], deps=self.book) as runtime:
                    if not self.posts:
                        around.start_soon(self._own, agent, name="owner")
                        with trio.move_on_after(5):
                            await self._begun.wait()
                    run = await runtime.start(agent, "please", run_id=RUN)
                    async with open_collapsing_nursery() as readers:
                        readers.start_soon(self._decide_all, around, run, name="follower")
                        self.book.outcomes.append(await run.result())
                    frames = await self.store.events(RUN)
                    record = await self.store.load(RUN, calls="all")
                    self.ended = (frames, record, await self.store.messages(run.thread_id))
                    if self.owner.process:
                        self.owner.thaw()
                    self.scope.cancel()
                around.cancel_scope.cancel()

    async def _decide_all(self, around: trio.Nursery, run: gr.Run[Any]) -> None:
        """Follow and decide; if another process does, once that one has ended."""
        if self.posts:
            await around.start(self._post)
            await self._begun.wait()
        if not self._seen_whole():
            await self._follow(self.book, run)

    def _seen_whole(self) -> bool:
        """The other process has followed the run to its end."""
        run = self.store._ledger.runs[RUN]
        return run.ended is not None and self.book.cursor == len(run.frames)

    async def _post(self, *, task_status: trio.TaskStatus[None]) -> None:
        """The process that has no agent, and follows and decides."""
        task_status.started()
        with self._struck(), self.scope:
            async with gr.open_runtime(self.owner, drain=0.5) as runtime:
                await self._follow(self.book, await runtime.get(RUN))
                self._begun.set()
                await trio.sleep_forever()
        self._begun.set()

    @contextmanager
    def _struck(self) -> Iterator[None]:
        """Note what a process that was struck raises on its way down."""
        try:
            yield
        except Exception as error:
            known = (gr.RuntimeFailed, gr.StoreDown, gr.StoreUnavailable)
            if not self.struck or not all(isinstance(leaf, known) for leaf in leaves(error)):
                raise
            self.deaths.append("".join(traceback.format_exception(error)))

    async def _own(self, agent: gr.Agent[Any]) -> None:
        """The process that starts the run, and works on it while it lives."""
        with self._struck(), self.scope:
            async with gr.open_runtime(self.owner, agents=[agent], deps=self.world_of_owner, drain=0.5) as runtime:
                run = await runtime.start(agent, "please", run_id=RUN)
                self._begun.set()
                await run.result()
                await trio.sleep_forever()
        self._begun.set()


async def until_it_has_ended(world: Processes) -> None:
    """The scenario of all sweeps."""
    with world.nothing_left():
        await world.live()


def promises(world: Processes) -> Iterator[str]:
    """All promises of a run, and that no work of a dead or late process is left."""
    yield from broken(world)
    if world.world_of_owner.running:
        yield f"bodies of the owner still run: {sorted(world.world_of_owner.running)}"
    if world.ended is not None and world.store._ledger.open:
        yield f"runs are left: {sorted(world.store._ledger.open)}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a runtime reports about injected failures does not flood the report."""
    logged = logging.root.manager.disable
    logging.disable()
    yield
    logging.disable(logged)


@pytest.fixture
def sample(seed: int) -> Callable[[int], tuple[int, int] | None]:
    """How many points of a sweep are visited: all of them in a full one."""
    return lambda n: None if FULL else (n, seed)


def show(what: str, report: chaos.Report) -> None:
    """For the log of the CI (pytest -rA)."""
    print(f"\n{what}: {report}")  # noqa: T201
    report.require()


STRIKES = [
    pytest.param({"strike": "leave"}, id="leaves"),
    pytest.param({"strike": "kill"}, id="is killed"),
    pytest.param({"strike": "kill", "losing": "all"}, id="is killed, hints lost"),
    pytest.param({"strike": "freeze", "pause": BELOW}, id="hangs a while"),
    pytest.param({"strike": "freeze", "pause": ABOVE}, id="hangs longer than its lease"),
    pytest.param({"strike": "freeze", "pause": TAKEN}, id="comes back while another works"),
    pytest.param({"strike": "freeze", "pause": ABOVE, "losing": "second"}, id="hangs, every second hint lost"),
]


@pytest.mark.parametrize("options", STRIKES)
def test_the_owner_is_struck_at_every_step_and_another_process_finishes_the_run(options, sample, request):
    for unknown in ("resume", "cancel") if FULL else ("resume",):
        report = chaos.sweep_cancel(
            lambda unknown=unknown: Processes(None, unknown=unknown, **options),
            until_it_has_ended,
            promises,
            get_scope=Processes.die,
            seeds=SEEDS,
            sample=sample(10),
            settle_within=SETTLE,
        )
        show(f"{request.node.name} unknown={unknown}", report)


@pytest.mark.parametrize("make_agent", [coding, telling])
@pytest.mark.parametrize("options", [STRIKES[1], STRIKES[4], STRIKES[5]])
def test_the_owner_of_a_program_is_struck_at_every_step_and_nothing_takes_effect_twice(
    options, make_agent, sample, request
):
    """The program of a process that hangs goes on; what it asks is withdrawn once another process works on the run.

    What it has kept is found by the next attempt, and nothing that it reports late is kept.
    """
    report = chaos.sweep_cancel(
        lambda: Processes(None, make_agent=make_agent, unknown="resume", **options),
        until_it_has_ended,
        promises,
        get_scope=Processes.die,
        seeds=SEEDS,
        sample=sample(10),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


@pytest.mark.parametrize("options", [STRIKES[0], STRIKES[1], STRIKES[3], STRIKES[5]])
def test_the_owner_of_a_preparation_is_struck_at_every_step_and_another_process_prepares_the_run(
    options, sample, request
):
    """A process that hangs while it prepares says nothing about the run once another process has the run."""
    report = chaos.sweep_cancel(
        lambda: Processes(None, make_agent=preparing, unknown="resume", **options),
        until_it_has_ended,
        promises,
        get_scope=Processes.die,
        seeds=SEEDS,
        sample=sample(10),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


@pytest.mark.parametrize("options", STRIKES)
def test_the_poster_is_struck_at_every_step_and_each_decision_acts_once(options, sample, request):
    """What it has posted counts, and the process that works decides the rest, by the same decision ids."""
    report = chaos.sweep_cancel(
        lambda: Processes(None, posts=True, unknown="resume", **options),
        until_it_has_ended,
        promises,
        get_scope=Processes.die,
        seeds=SEEDS,
        sample=sample(10),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


def one(options: dict[str, Any], deadly: int | None, seed: int) -> Processes:
    """One life of both processes, with a fault at one point of the owner's store."""
    worlds: list[Processes] = []

    async def program() -> None:
        worlds.append(Processes(None, deadly=deadly, unknown="resume", **options))
        await until_it_has_ended(worlds[0])

    chaos.run(program, seed=seed, clock=trio.testing.MockClock(autojump_threshold=0))
    return worlds[0]


WRITES = [
    pytest.param({"strike": "kill"}, id="is killed"),
    pytest.param({"strike": "freeze"}, id="hangs"),
    pytest.param({"strike": "freeze", "pause": TAKEN}, id="comes back"),
    pytest.param({"lost": "answer"}, id="gets no answer"),
    pytest.param({"strike": "kill", "posts": True}, id="posts and is killed"),
    pytest.param({"strike": "freeze", "pause": BELOW, "posts": True}, id="posts and hangs"),
    pytest.param({"lost": "answer", "posts": True}, id="posts and gets no answer"),
    pytest.param({"strike": "kill", "make_agent": coding}, id="is killed with nested calls"),
    pytest.param({"strike": "freeze", "pause": TAKEN, "make_agent": coding}, id="comes back with nested calls"),
    pytest.param({"strike": "kill", "make_agent": preparing}, id="is killed while it prepares"),
    pytest.param({"strike": "freeze", "pause": TAKEN, "make_agent": preparing}, id="comes back while it prepares"),
    pytest.param({"strike": "freeze", "make_agent": coding, "posts": True}, id="posts about nested calls and hangs"),
    pytest.param({"strike": "kill", "make_agent": telling}, id="is killed with reports"),
    pytest.param({"strike": "freeze", "pause": TAKEN, "make_agent": telling}, id="comes back with reports"),
    pytest.param({"lost": "answer", "make_agent": telling}, id="gets no answer about reports"),
]


@pytest.mark.parametrize("options", WRITES)
def test_a_process_is_struck_at_every_write_and_the_run_ends_once(options, sample):
    """Before a write, and after it became durable while its answer is on the way."""
    for seed in SEEDS:
        whole = one(options, None, seed)
        assert list(promises(whole)) == []
        points: Sequence[int] = range(len(whole.points))
        if "lost" in options:
            points = [number for number in points if whole.points[number] == "after_commit"]
        if not FULL:
            points = points[:: max(1, len(points) // 8)]
        found = {f"{seed}:{number}": list(promises(one(options, number, seed))) for number in points}
        assert {point: said for point, said in found.items() if said} == {}
        assert len(points) >= 3


@pytest.mark.parametrize("losing", ["all", "second"])
def test_without_hints_the_run_takes_longer_and_ends_the_same(losing):
    whole = one({}, None, 1)
    slow = one({"losing": losing}, None, 1)
    assert list(promises(slow)) == []
    kinds = [type(outcome) for outcome in slow.book.outcomes]
    assert kinds == [type(outcome) for outcome in whole.book.outcomes] == [gr.Completed]
    assert slow.book.bodies == whole.book.bodies


# --- the sweeps can fail ---------------------------------------------------------------------------------------------


class FreesNothing(Peer):
    """The runs of the dead stay with them."""

    def _free(self, name: str) -> bool:
        return False


class TrustsHints(Peer):
    """A turn repairs nothing."""

    def _repair(self) -> None:
        pass


class ForgetsItsCommits(WatchedMemory):
    """A commit whose answer was lost is written again, or refused."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, None if name == "_answered" else value)


class SharesTokens(MemoryTables):
    """A new claim does not void the old one, and a commit may leave out events."""

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        run = self.runs[commit.run_id]
        gap = len(run.frames) - commit.expected_last
        if gap > 0 and run.ended is None:
            row = replace(commit.row, last_sequence=commit.row.last_sequence + gap)
            commit = replace(commit, expected_last=commit.expected_last + gap, row=row)
        return super().commit(Claim(run_id=claim.run_id, token=run.token), commit, frames)


@pytest.mark.parametrize(
    ("bug", "options"),
    [
        (FreesNothing, {"strike": "kill"}),
        (TrustsHints, {"losing": "all", "strike": "leave"}),
        (ForgetsItsCommits, {"lost": "answer"}),
        (SharesTokens, {"strike": "freeze", "pause": TAKEN}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(bug, options, monkeypatch):
    if issubclass(bug, Peer):
        monkeypatch.setattr(memory, "Peer", bug)
    if issubclass(bug, WatchedMemory):
        monkeypatch.setattr(sys.modules[__name__], "WatchedMemory", bug)
    if issubclass(bug, MemoryTables):
        monkeypatch.setattr(memory, "MemoryTables", bug)
    for number in (None, *range(60)):
        try:
            if any(promises(one(options, number, 1))):
                return
        except Exception as error:  # noqa: BLE001 - a bug may show itself by any error but its own, also as a group
            shown(error)
            return
    pytest.fail(f"no life shows it: {bug.__doc__}")
