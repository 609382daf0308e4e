"""Building blocks of the store kit's scenarios: runs, commits and commands to make, and checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar, assert_never

import attrs
import trio
from msgspec.structs import replace

from ...abc import Store
from ...contract.calls import CallPosition
from ...contract.claims import Claim
from ...contract.commits import Commit, EventDraft, NewRun, Receipt
from ...contract.decisions import Command, CommandResult, Decision, InboxItem, Ticket
from ...contract.lifecycle import Stage
from ...contract.messages import CallRequest, Message
from ...contract.rows import CallRow, CommandContext, RunInfo, RunRecord, RunRow
from ...engine.command_rules import CommandRules
from ...errors import UsageError
from ...processes import Ability
from ...store_events import (
    ChangedElsewhere,
    ClaimsVoided,
    CommandPosted,
    LogsRenamed,
    OutageChanged,
    PartCrashed,
    PeerEvent,
    RunCommitted,
    RunsPruned,
    StoreEvent,
    ThreadFreed,
    WorkFound,
)

T = TypeVar("T")

OpenStore = Callable[[], Store]
"""Returns a store over the same storage at each call; not yet running."""

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""The time of everything in the scenarios."""


@attrs.define(eq=False)
class ReportLog:
    """Records the reports of a store."""

    items: list[tuple[str, InboxItem]] = attrs.field(factory=list)
    frames: list[tuple[str, int, tuple[bytes, ...]]] = attrs.field(factory=list)
    outages: list[Exception | None] = attrs.field(factory=list)
    sweeps: int = 0
    moves: list[tuple[str, int]] = attrs.field(factory=list)
    works: int = 0
    freed: list[str] = attrs.field(factory=list)
    voids: int = 0
    epochs: list[str] = attrs.field(factory=list)
    crashes: list[tuple[str, Exception]] = attrs.field(factory=list)

    def __call__(self, event: StoreEvent) -> None:
        """Record a report; a command once, because a store may report it twice."""
        match event:
            case RunCommitted(run_id=run_id, last=last, frames=frames):
                self.frames.append((run_id, last, tuple(frames)))
            case CommandPosted(run_id=run_id, item=item):
                if (run_id, item) not in self.items:
                    self.items.append((run_id, item))
            case RunsPruned():
                self.sweeps += 1
            case OutageChanged(error=outage):
                self.outages.append(outage)
            case PartCrashed(part=part, error=error):
                self.crashes.append((part, error))
            case _:
                self._heard(event)

    def _heard(self, event: PeerEvent) -> None:
        match event:
            case ChangedElsewhere(run_id=run_id, last=last):
                self.moves.append((run_id, last))
            case WorkFound():
                self.works += 1
            case ThreadFreed(run_id=run_id):
                self.freed.append(run_id)
            case ClaimsVoided():
                self.voids += 1
            case LogsRenamed(epoch=epoch):
                self.epochs.append(epoch)
            case _:
                assert_never(event)


@attrs.define(eq=False)
class SubmittedCommit:
    """A submitted commit, with its receipt once it has arrived."""

    receipts: list[Receipt] = attrs.field(factory=list)
    arrived: trio.Event = attrs.field(factory=trio.Event)

    def deliver(self, receipt: Receipt) -> None:
        """Record the receipt."""
        self.receipts.append(receipt)
        self.arrived.set()

    async def receipt(self) -> Receipt:
        """Wait for the receipt; exactly one must arrive."""
        await self.arrived.wait()
        expect(len(self.receipts), 1, "a commit has exactly one receipt")
        return self.receipts[0]


def expect(actual: object, expected: object, sentence: str) -> None:
    """Compare two values.

    Raises:
        AssertionError: they differ; with the sentence and both values.
    """
    if actual != expected:
        raise AssertionError(f"{sentence}\n  expected: {expected!r}\n  found:    {actual!r}")


async def refused(kind: type[T], call: Awaitable[object], sentence: str) -> T:
    """Await a call that must raise `kind`, and return the error.

    Raises:
        AssertionError: it raised nothing, or another error.
    """
    try:
        value = await call
    except Exception as error:  # what is not wanted is raised
        if isinstance(error, kind):
            return error
        raise
    raise AssertionError(f"{sentence}\n  expected: {kind.__name__}\n  found:    {value!r}")


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[ReportLog]:
    """Run a store for the time of the block and yield its reports.

    The block's error is raised bare, once the store is closed.
    """
    reports = ReportLog()
    failure = None
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, reports)
        try:
            yield reports
        except Exception as error:  # noqa: BLE001 - it is raised again below, outside of the nursery's group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def frame(run_id: str, sequence: int) -> bytes:
    """Return a stand-in for an encoded event, which the store passes through."""
    return f'{{"id":"{run_id}-{sequence}"}}'.encode()


def new_run(run_id: str, thread_id: str, **changes: Any) -> NewRun:
    """Return a run to create; `changes` are fields of NewRun, of RunInfo or of RunRow."""
    info = {
        name: changes.pop(name) for name in ("agent", "created_at", "content", "has_deps", "place") if name in changes
    }
    row = {name: changes.pop(name) for name in ("step", "stage", "next_due") if name in changes}
    return NewRun(
        info=RunInfo(
            run_id=run_id,
            thread_id=thread_id,
            agent=info.get("agent", "clerk"),
            agent_digest="d1",
            created_at=info.get("created_at", NOW),
            execution="sequential",
            content=info.get("content", ""),
            has_deps=info.get("has_deps", False),
            place=info.get("place"),
        ),
        row=RunRow(last_sequence=1, **row),
        created=EventDraft("run.created", {}),
        messages=changes.pop("messages", ()),
        **changes,
    )


def message(name: str, text: str = "") -> Message:
    """Return a message of a thread."""
    return Message(id=name, role="user", content=text or name)


def call_row(call_id: str, *, step: int = 1, index: int = 0, at: CallPosition = CallPosition.BODY) -> CallRow:
    """Return a call's row."""
    request = CallRequest(call_id=call_id, tool="pay", arguments={"sum": 12})
    return CallRow(
        call_id=call_id,
        index=index,
        step=step,
        tool="pay",
        arguments={"sum": 12},
        fingerprint=f"print of {call_id}",
        requested=request,
        at=at,
    )


def ticket_row(run_id: str, number: int, call_id: str) -> Ticket:
    """Return an open ticket."""
    return Ticket(
        ticket_id=f"{run_id}.t{number}",
        run_id=run_id,
        call_id=call_id,
        tool="pay",
        arguments={"sum": 12},
        fingerprint=f"print of {call_id}",
        reason="tool_permission",
        requested_at=NOW,
    )


def decide(command_id: str, target: str, *, by: str = "ann", result: object = None) -> Command:
    """Return a decision to resume."""
    decision = Decision(target=target, action="resume", decision_id=command_id, result=result)
    return Command(command_id=command_id, kind="decide", decision=decision, by=by, posted_at=NOW)


def say(command_id: str, text: str = "hello") -> Command:
    """Return a command with new input."""
    return Command(command_id=command_id, kind="send", text=text, posted_at=NOW)


def judge(facts: CommandContext, command: Command) -> CommandResult:
    """Judge with the real rules, at `NOW`, accepting all arguments."""
    return CommandRules(now=NOW, check_arguments=lambda _tool, _arguments: None)(facts, command)


@attrs.define(eq=False)
class Author:
    """The owner of a run: makes commits that follow each other.

    Attributes:
        row: The row as of the newest commit.
        token: The token of the claim.
    """

    store: Store
    claim: Claim
    row: RunRow

    @property
    def run_id(self) -> str:
        """The run of the commits."""
        return self.claim.run_id

    def make(self, events: int = 1, *, row: RunRow | None = None, **parts: Any) -> Commit:
        """Return a commit that follows the newest one."""
        before = self.row
        self.row = replace(row or before, last_sequence=before.last_sequence + events)
        drafts = (EventDraft("run.step.started", {}),) * events
        parts = {"at": NOW, **parts}
        return Commit(run_id=self.run_id, expected_last=before.last_sequence, events=drafts, row=self.row, **parts)

    def send(self, commit: Commit, claim: Claim | None = None) -> SubmittedCommit:
        """Submit a commit."""
        sent = SubmittedCommit()
        frames = [frame(commit.run_id, commit.expected_last + 1 + i) for i in range(len(commit.events))]
        self.store.submit(claim or self.claim, commit, frames, sent.deliver)
        return sent

    async def write(self, events: int = 1, *, row: RunRow | None = None, **parts: object) -> Receipt:
        """Make a commit, submit it and wait for the receipt, which must say committed."""
        receipt = await self.send(self.make(events, row=row, **parts)).receipt()
        expect((receipt.kind, receipt.error), ("committed", None), "a commit that is in order is written")
        expect(receipt.last, self.row.last_sequence, "the receipt names the newest event")
        return receipt

    async def end(self, *, stage: Stage = Stage.COMPLETED, at: datetime = NOW) -> Receipt:
        """Write the terminal commit."""
        return await self.write(row=replace(self.row, stage=stage), at=at)


async def claimed(store: Store, run_id: str) -> Claim:
    """Claim a run that can be claimed.

    Raises:
        AssertionError: the store gave no claim.
    """
    claim = await store.claim(run_id)
    if not isinstance(claim, Claim):
        raise AssertionError(f"run {run_id} can be claimed here, but claim() returned {claim!r}")  # noqa: TRY004 - a kit's verdict
    return claim


async def create(store: Store, new: NewRun, first: bytes | None = None) -> Author:
    """Create a run, with its first event, and return its owner."""
    created = await store.create_run(new, first or frame(new.info.run_id, 1))
    if created.claim is None:
        raise AssertionError(f"run {new.info.run_id} is new, so it is created and claimed")
    return Author(store, created.claim, new.row)


async def loaded(store: Store, run_id: str) -> RunRecord:
    """Return the run, with all calls; it must exist."""
    record = await store.load(run_id, calls="all")
    if record is None:
        raise AssertionError(f"run {run_id} is in the store")
    return record


class Steering(Protocol):
    """The ways in which a scenario of a shared store hampers its processes; written by the store's author, for tests.

    Attributes:
        can: names of the methods that the storage allows; scenarios that need another one are left out.
        lease, turn: seconds, of the stores that `open_store` returns. Short ones make the suite fast in real time.
        patience: seconds that a machine under load may add to what is promised within a turn or a lease; 0 under
            virtual time.
    """

    can: Collection[str]
    lease: float
    turn: float
    patience: float

    def freeze(self, store: Store) -> None:
        """Let an open store neither beat, nor hear hints, nor get answers, until `thaw`.

        A store that is closed while frozen has died: it gives nothing back, and its requests are lost or late.
        """

    def thaw(self, store: Store) -> None:
        """End `freeze`: requests that wait may be executed now, or never."""

    def lose_hints(self) -> AbstractContextManager[None]:
        """Lose every hint between the processes for the time of the block."""

    def lose_follow_ups(self) -> AbstractContextManager[None]:
        """Leave out the second half of each terminal commit, which frees the thread, as a crash may."""

    def lose_answer(self, store: Store) -> None:
        """Lose the answer to the next write of a store, after the write became durable; the store sends it again."""

    async def renew_epoch(self) -> None:
        """Give the logs another identity, as a failover does."""

    def older(self) -> Store:
        """Return a store over the same storage that reads rows of an older level only; not yet running."""


Play = Callable[[OpenStore, str, Steering | None], Awaitable[None]]


@attrs.frozen
class Scenario:
    """One promise of the port. Call it with a factory; it raises AssertionError if the store breaks the promise.

    Attributes:
        name: unique, an identifier.
        sentence: the promise.
        reopens: the scenario closes the store and opens the next over the same storage.
        shared: the scenario has two stores open together over the same storage.
        needs: methods of `Steering` that the scenario uses.
        values: The scenario is about stored values; leave it out for a store that is not a `ValueStore`.
    """

    name: str
    sentence: str
    play: Play
    reopens: bool = False
    shared: bool = False
    needs: frozenset[str] = frozenset()
    values: bool = False

    def __str__(self) -> str:
        """Return the name, for test ids."""
        return self.name

    async def __call__(self, open_store: OpenStore, steering: Steering | None = None) -> None:
        """Run the scenario with ids and dates of its own, so that scenarios can share a storage.

        Args:
            open_store: the factory.
            steering: The steering of a shared storage; needed for shared scenarios.

        Raises:
            AssertionError: the store breaks the promise.
        """
        await self.play(open_store, self.name, steering)


SCENARIOS: Final[list[Scenario]] = []
"""All that are declared, in that order."""


def _declare(function: Callable[..., object], play: Play, **marks: Any) -> None:
    SCENARIOS.append(Scenario(function.__name__, (function.__doc__ or "").strip(), play, **marks))


def scenario(play: Callable[[Store, ReportLog, str], Awaitable[None]], *, values: bool = False) -> None:
    """Declare a scenario for one store that runs: its name is the function's, its sentence the docstring."""

    async def run(open_store: OpenStore, me: str, _: Steering | None) -> None:
        store = open_store()
        async with opened(store) as reports:
            await play(store, reports, me)

    _declare(play, run, values=values)


def reopening(play: Callable[[OpenStore, str], Awaitable[None]], *, values: bool = False) -> None:
    """Declare a scenario that opens stores itself, one after the other."""

    async def run(open_store: OpenStore, me: str, _: Steering | None) -> None:
        await play(open_store, me)

    _declare(play, run, reopens=True, values=values)


@attrs.frozen
class Pair:
    """Two open stores over one storage, and the means to hamper them.

    Attributes:
        open_store: returns one more.
        a, b: the stores.
        log_a, log_b: their reports.
        name_a, name_b: the names of their processes.
        me: names the scenario: its runs, threads, queues and agent.
        steering: The steering of the storage.
    """

    open_store: OpenStore
    a: Store
    b: Store
    log_a: ReportLog
    log_b: ReportLog
    name_a: str
    name_b: str
    me: str
    steering: Steering

    @property
    def able(self) -> Ability:
        """The ability to work on this scenario's runs alone, because others share the storage."""
        return Ability(agents=frozenset({self.me}))

    async def create(self, store: Store, run_id: str, thread: str | None = None, **changes: Any) -> Author:
        """Create a run of this scenario and return its owner."""
        return await create(store, new_run(run_id, thread or run_id, agent=self.me, **changes))

    async def queue(self, store: Store, run_id: str, **changes: Any) -> None:
        """Create a run that waits in its queue."""
        new = new_run(run_id, changes.pop("thread", run_id), agent=self.me, **changes)
        created = await store.create_run(new, frame(run_id, 1), claim=False)
        expect((created.claim, created.unclaimed), (None, True), "the run is written without a claim")

    async def ready(self, store: Store, room: int = 10, now: datetime = NOW) -> list[str]:
        """Claim ready runs of this scenario; returns their ids."""
        return [run.claim.run_id for run in await store.claim_ready(room, self.able, now)]

    async def owner(self, run_id: str) -> str | None:
        """Return the name of the process that owns a run."""
        return await owner_of(self.b, run_id)

    async def eventually(
        self, check: Callable[[], bool | Awaitable[bool]], sentence: str, *, turns: float = 2, leases: float = 0
    ) -> None:
        """Wait until a check is true, at most for some turns and leases.

        Raises:
            AssertionError: it is still false.
        """
        steering = self.steering
        until = trio.current_time() + turns * steering.turn + leases * steering.lease + steering.patience
        while True:
            value = check()
            if value if isinstance(value, bool) else await value:
                return
            if trio.current_time() > until:
                raise AssertionError(sentence)
            await trio.sleep(steering.turn / 8)


async def owner_of(store: Store, run_id: str) -> str | None:
    """Return the name of the process that owns a run."""
    (line,) = (await store.summaries([run_id])).runs
    return line.owner


def shared(*needs: str, values: bool = False) -> Callable[[Callable[[Pair], Awaitable[None]]], None]:
    """Declare a scenario for two open stores over one storage; `needs`: methods of `Steering`."""

    def declare(play: Callable[[Pair], Awaitable[None]]) -> None:
        async def run(open_store: OpenStore, me: str, steering: Steering | None) -> None:
            if steering is None:
                raise UsageError(f"scenario {me} needs a steering, because the store is shared")
            a, b = open_store(), open_store()
            async with opened(a) as log_a, opened(b) as log_b:
                name_a, name_b = await name_of(a, f"{me}.a"), await name_of(b, f"{me}.b")
                await play(Pair(open_store, a, b, log_a, log_b, name_a, name_b, me, steering))

        _declare(play, run, shared=True, needs=frozenset(needs), values=values)

    return declare


async def name_of(store: Store, probe: str) -> str:
    """Return the name of a store's process, by means of a run with the id `probe`."""
    author = await create(store, new_run(probe, probe, agent=probe))
    name = await owner_of(store, probe)
    await author.end()
    if name is None:
        raise AssertionError("the store is shared, so a run that it has claimed has an owner")
    return name
