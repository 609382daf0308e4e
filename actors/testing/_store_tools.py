"""Building blocks of the store kit's scenarios: runs, commits and commands to make, and checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import attrs
import trio
from msgspec.structs import replace

from ..abc import Receipt, Store
from ..contract.calls import CallPosition
from ..contract.decisions import Command, CommandResult, Decision, InboxItem, Ticket
from ..contract.lifecycle import Stage
from ..contract.messages import CallRequest, Message
from ..contract.rows import (
    CallRow,
    Claim,
    CommandContext,
    Commit,
    EventDraft,
    NewRun,
    RunInfo,
    RunRecord,
    RunRow,
)
from ..engine.command_rules import CommandRules

T = TypeVar("T")

OpenStore = Callable[[], Store]
"""Returns a store over the same storage at each call; not yet running."""

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""The time of everything in the scenarios."""


@attrs.define(eq=False)
class HookLog:
    """Hooks that record their calls."""

    items: list[tuple[str, InboxItem]] = attrs.field(factory=list)
    frames: list[tuple[str, int, tuple[bytes, ...]]] = attrs.field(factory=list)
    outages: list[Exception | None] = attrs.field(factory=list)
    sweeps: int = 0
    moves: list[tuple[str, int]] = attrs.field(factory=list)
    works: int = 0
    freed: list[str] = attrs.field(factory=list)
    voids: int = 0
    epochs: list[str] = attrs.field(factory=list)

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Record the item."""
        self.items.append((run_id, item))

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Record the frames."""
        self.frames.append((run_id, last, tuple(frames)))

    def pruned(self) -> None:
        """Count the call."""
        self.sweeps += 1

    def unavailable(self, error: Exception | None) -> None:
        """Record the outage."""
        self.outages.append(error)

    def moved(self, run_id: str, last: int) -> None:
        """Record the change."""
        self.moves.append((run_id, last))

    def work(self) -> None:
        """Count the call."""
        self.works += 1

    def thread_freed(self, run_id: str) -> None:
        """Record the run."""
        self.freed.append(run_id)

    def voided(self) -> None:
        """Count the call."""
        self.voids += 1

    def renamed(self, epoch: str) -> None:
        """Record the epoch."""
        self.epochs.append(epoch)


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


def expect(actual: object, wanted: object, sentence: str) -> None:
    """Compare two values.

    Raises:
        AssertionError: they differ; with the sentence and both values.
    """
    if actual != wanted:
        raise AssertionError(f"{sentence}\n  expected: {wanted!r}\n  found:    {actual!r}")


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
async def opened(store: Store) -> AsyncIterator[HookLog]:
    """Run a store for the time of the block and yield its hooks.

    The block's error is raised bare, once the store is closed.
    """
    hooks = HookLog()
    failure = None
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run, hooks)
        try:
            yield hooks
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
    info = {name: changes.pop(name) for name in ("agent", "created_at", "content") if name in changes}
    row = {name: changes.pop(name) for name in ("step", "stage") if name in changes}
    return NewRun(
        info=RunInfo(
            run_id=run_id,
            thread_id=thread_id,
            agent=info.get("agent", "clerk"),
            agent_digest="d1",
            created_at=info.get("created_at", NOW),
            execution="sequential",
            content=info.get("content", ""),
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
        row: as of the newest commit.
        token: of the claim.
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


async def create(store: Store, new: NewRun) -> Author:
    """Create a run and return its owner."""
    created = await store.create_run(new, frame(new.info.run_id, 1))
    if created.claim is None:
        raise AssertionError(f"run {new.info.run_id} is new, so it is created and claimed")
    return Author(store, created.claim, new.row)


async def loaded(store: Store, run_id: str) -> RunRecord:
    """Return the run, with all calls; it must exist."""
    record = await store.load(run_id, calls="all")
    if record is None:
        raise AssertionError(f"run {run_id} is in the store")
    return record


@attrs.frozen
class Scenario:
    """One promise of the port. Call it with a factory; it raises AssertionError if the store breaks the promise.

    Attributes:
        name: unique, an identifier.
        sentence: the promise.
        reopens: the scenario closes the store and opens the next over the same storage.
    """

    name: str
    sentence: str
    play: Callable[[OpenStore, str], Awaitable[None]]
    reopens: bool = False

    def __str__(self) -> str:
        """Return the name, for test ids."""
        return self.name

    async def __call__(self, open_store: OpenStore) -> None:
        """Run the scenario with ids and dates of its own, so that scenarios can share a storage.

        Raises:
            AssertionError: the store breaks the promise.
        """
        await self.play(open_store, self.name)


SCENARIOS: Final[list[Scenario]] = []
"""All that are declared, in that order."""


def scenario(play: Callable[[Store, HookLog, str], Awaitable[None]]) -> None:
    """Declare a scenario for one store that runs: its name is the function's, its sentence the docstring."""

    async def run(open_store: OpenStore, me: str) -> None:
        store = open_store()
        async with opened(store) as hooks:
            await play(store, hooks, me)

    SCENARIOS.append(Scenario(play.__name__, (play.__doc__ or "").strip(), run))


def reopening(play: Callable[[OpenStore, str], Awaitable[None]]) -> None:
    """Declare a scenario that opens stores itself, one after the other."""
    SCENARIOS.append(Scenario(play.__name__, (play.__doc__ or "").strip(), play, reopens=True))
