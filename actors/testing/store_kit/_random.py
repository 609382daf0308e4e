"""A scenario of the store kit: random operations, done to a store and to the memory store alike.

The memory store is the model. Its own rules are asserted one by one in the other scenarios.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import attrs
import msgspec
from msgspec.structs import replace

from ...abc import Store
from ...contract.claims import Claim
from ...contract.commits import NewRun, Receipt
from ...contract.decisions import Command, Ticket
from ...contract.lifecycle import RunStatus, Stage
from ...contract.rows import RunRow
from ...contract.run_lists import RunQuery, RunSummary
from ...contract.state import Scope, StateWrite
from ...contract.ticket_lists import TicketQuery
from ...errors import GreenroomError
from ...processes import Ability
from ...stores.memory.store import MemoryStore
from ._tools import (
    NOW,
    Author,
    OpenStore,
    ReportLog,
    call_row,
    decide,
    expect,
    frame,
    judge,
    message,
    new_run,
    opened,
    reopening,
    say,
    ticket_row,
)

SEEDS: Final = range(5)
"""Sequences per scenario; each is another one, and always the same."""
_STEPS: Final = 80
"""Operations per sequence: enough for threads to queue up and runs to end and be released."""
_THREADS: Final = 2
_KEYS: Final[Sequence[tuple[Scope, str]]] = (("run", "a"), ("run", "b"), ("thread", "a"), ("thread", "b"))
_PAGE: Final = 3
"""Runs per page of a list: small enough for several pages."""


@attrs.define(eq=False)
class _Run:
    """A run of both stores.

    Attributes:
        authors: The authors of the tested store and of the memory store; their rows are equal.
        old: replaced claims of both.
        commands: the accepted ones.
        tickets: The number of tickets that the run has.
    """

    name: str
    thread: str
    authors: tuple[Author, Author]
    old: list[tuple[Claim, Claim]] = attrs.field(factory=list)
    commands: list[Command] = attrs.field(factory=list)
    tickets: int = 0

    @property
    def row(self) -> RunRow:
        """As of the newest commit that was written."""
        return self.authors[0].row


@attrs.define(eq=False)
class _Pair:
    """The store under test, the memory store, and the operations on both."""

    me: str
    rng: random.Random
    runs: dict[str, _Run] = attrs.field(factory=dict)
    threads: list[str] = attrs.field(factory=list)
    handles: list[tuple[Store, Store]] = attrs.field(init=False)
    at: int = 0
    revision: int = 0

    @property
    def stores(self) -> tuple[Store, Store]:
        """The handles that the present operation uses."""
        return self.handles[self.at]

    @property
    def able(self) -> Ability:
        """The ability to work on the runs of this scenario."""
        return Ability(agents=frozenset({self.me}))

    def maybe(self, chance: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < chance

    async def both(self, sentence: str, method: str, *args: object, **options: object) -> Any:
        """Call both stores and return the result, which must be equal, errors included."""
        results = [await _answered(getattr(store, method)(*args, **options)) for store in self.stores]
        actual, expected = (list(value) if isinstance(value, Sequence) else value for value in results)
        expect(actual, expected, sentence)
        return expected

    # --- operations --------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Do one random operation."""
        self.at = self.rng.randrange(len(self.handles))
        if self.maybe(0.1):
            await self.take()
            return
        if not self.runs or self.maybe(0.25):
            await self.create()
            return
        run = self.rng.choice(list(self.runs.values()))
        await self.rng.choice(
            [self.write, self.write, self.write, self.post, self.post, self.end, self.end, self.claim, self.release]
        )(run)

    async def create(self) -> None:
        """A new run in some thread, a fork in a new one, or a run again."""
        name, thread = f"{self.me}.r{len(self.runs)}", self.rng.choice(self.threads)
        changes: dict[str, Any] = {"on_busy": self.rng.choice(["queue", "queue", "queue", "refuse"])}
        if self.runs and self.maybe(0.2):
            changes["thread_parent"] = (thread, self.rng.randrange(6))
            thread = f"{name}.thread"
        elif self.runs and self.maybe(0.1):
            name = self.rng.choice(list(self.runs))
        new = new_run(name, thread, agent=self.me, messages=(message(f"{name}.in"),), state=self.writes(), **changes)
        claim = self.maybe(0.8)
        created = [await _answered(store.create_run(new, frame(name, 1), claim=claim)) for store in self.stores]
        actual, expected = (
            created_run if isinstance(created_run, str) else replace(created_run, claim=None) for created_run in created
        )
        expect(actual, expected, "a run is created, held or refused")
        claims = [None if isinstance(created_run, str) else created_run.claim for created_run in created]
        expect(claims[0] is None, claims[1] is None, "exactly a new run is claimed")
        if not isinstance(expected, str) and (expected.unclaimed or (claims[0] is not None and claims[1] is not None)):
            void = Claim(run_id=name, token=0)
            self.add(new, claims[0] or void, claims[1] or void)

    def add(self, new: NewRun, tested: Claim, reference: Claim) -> None:
        """A run that was created."""
        name, thread = new.info.run_id, new.info.thread_id
        authors = Author(self.stores[0], tested, new.row), Author(self.stores[1], reference, new.row)
        self.runs[name] = _Run(name, thread, authors)
        if thread not in self.threads:
            self.threads.append(thread)

    def writes(self) -> tuple[StateWrite, ...]:
        """Writes to some of the state keys."""
        self.revision += 1
        keys = [key_name for key_name in _KEYS if self.maybe(0.4)]
        return tuple(
            StateWrite(key=key, scope=scope, value=self.rng.random(), revision=self.revision) for scope, key in keys
        )

    async def write(self, run: _Run) -> None:
        """A commit of some events, messages, calls, tickets and state; one in three is not in order."""
        trouble = self.rng.choice(["none", "none", "none", "none", "gap", "taken"])
        row = replace(
            run.row,
            step=run.row.step + self.rng.randrange(2),
            stage=self.rng.choice([Stage.RUNNING, Stage.NEEDS_APPROVAL]),
            inbox=self.rng.choice([run.row.inbox, len(run.commands)]),
        )
        parts: dict[str, Any] = {"state": self.writes(), "consumed": row.inbox}
        name = f"{run.name}.in" if trouble == "taken" else f"{run.name}.{self.revision}"
        parts["messages"] = (message(name),)
        if self.maybe(0.4):
            parts |= self.random_changes(run, row.step)
        await self.send(run, self.rng.randrange(5), row, gap=3 * (trouble == "gap"), **parts)

    def random_changes(self, run: _Run, step: int) -> dict[str, Any]:
        """Calls, new or old, with a new ticket each."""
        calls = {f"c{self.rng.randint(1, run.tickets + 1)}" for _ in range(2)}
        first, run.tickets = run.tickets + 1, run.tickets + len(calls)
        rows = [call_row(name, step=step, index=number) for number, name in enumerate(sorted(calls))]
        tickets = [ticket_row(run.name, number, row.call_id) for number, row in enumerate(rows, first)]
        return {"calls": tuple(rows), "tickets": tuple(tickets)}

    async def end(self, run: _Run) -> None:
        """A terminal commit, with or without having read the inbox and placed the input."""
        read = len(run.commands) if self.maybe(0.7) else run.row.inbox
        waits = (message(f"{run.name}.late"),) if self.maybe(0.2) else ()
        row = replace(run.row, stage=Stage.COMPLETED, inbox=read, pending_input=waits)
        await self.send(run, 1, row, consumed=read)

    async def claim(self, run: _Run) -> None:
        """A new claim, the only one that is good from now on; the old one is tried."""
        claims = [await store.claim(run.name) for store in self.stores]
        kinds = [type(claim).__name__ for claim in claims]
        expect(kinds[0], kinds[1], "exactly the open runs can be claimed that no other process owns")
        if isinstance(claims[0], Claim) and isinstance(claims[1], Claim):
            await self.claimed(run, claims[0], claims[1])

    async def claimed(self, run: _Run, tested: Claim, reference: Claim) -> None:
        """New claims of a run; the replaced ones are tried."""
        run.old.append((run.authors[0].claim, run.authors[1].claim))
        for author, claim, store in zip(run.authors, (tested, reference), self.stores, strict=True):
            expect(claim.token > author.claim.token, True, "tokens grow")
            author.claim, author.store = claim, store
        await self.send(run, 1, run.row, claims=run.old[-1])

    async def release(self, run: _Run) -> None:
        """Give up a run, if it is at rest; the claim is tried afterwards."""
        sentence = "a run is refused exactly if it has unread commands"
        tested, reference = [await author.store.release([author.claim]) for author in run.authors]
        expect(list(tested), list(reference), sentence)
        await self.send(run, 1, run.row)

    async def take(self) -> None:
        """Claim ready runs."""
        room = self.rng.randint(1, 3)
        tested, reference = [await store.claim_ready(room, self.able, NOW) for store in self.stores]
        pairs = [[(ready.claim.run_id, ready.held) for ready in runs] for runs in (tested, reference)]
        expect(pairs[0], pairs[1], "the same runs are ready, in the same order")
        for mine, model in zip(tested, reference, strict=True):
            run = self.runs[mine.claim.run_id]
            void = max(author.claim.token for author in run.authors) == 0
            if void:  # never claimed before
                for author, claim, store in zip(run.authors, (mine.claim, model.claim), self.stores, strict=True):
                    author.claim, author.store = claim, store
            else:
                await self.claimed(run, mine.claim, model.claim)

    async def send(
        self,
        run: _Run,
        events: int,
        row: RunRow,
        *,
        gap: int = 0,
        claims: tuple[Claim, Claim] | None = None,
        **parts: object,
    ) -> None:
        """A commit to both stores, which must have the same result."""
        actual, expected = [
            await _sent(author, claims and claims[number], gap=gap, events=events, row=row, **parts)
            for number, author in enumerate(run.authors)
        ]
        if run.row.status is RunStatus.DONE:
            actual, expected = _refused(actual), _refused(expected)
        expect(_came_to(actual), _came_to(expected), f"{run.name}: a commit is written or refused")

    async def post(self, run: _Run) -> None:
        """A new message, a decision about some ticket, or an accepted command again."""
        number = self.revision = self.revision + 1
        command = say(f"{run.name}.say{number}")
        if run.tickets and self.maybe(0.5):
            command = decide(f"{run.name}.decide{number}", f"{run.name}.t{self.rng.randint(1, run.tickets)}")
        elif run.commands and self.maybe(0.4):
            command = self.rng.choice(run.commands)
        sentence = f"{run.name}: the command result depends on the run's facts"
        result = await self.both(sentence, "post", run.name, command, judge)
        if result.status == "accepted":
            run.commands.append(command)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def compare(self, reports: Sequence[tuple[ReportLog, ReportLog]]) -> None:
        """Check that both stores hold the same and have reported the same to their reports."""
        for run in self.runs.values():
            await self.compare_run(run)
        for thread in self.threads:
            await self.both(f"{thread}: the history is whole", "messages", thread)
            await self.both(f"{thread}: the runs of the thread", "thread", thread)
        actual, expected = [await self.mine(store.open_runs()) for store in self.stores]
        expect(actual, expected, "open_runs: the same runs in the same order")
        for query in (
            RunQuery(agent=self.me, limit=_PAGE),
            RunQuery(agent=self.me, limit=_PAGE, order="waiting_longest"),
            RunQuery(agent=self.me, limit=_PAGE, status=RunStatus.DONE),
            RunQuery(agent=self.me, limit=_PAGE, thread_id=self.threads[0]),
        ):
            lines, wanted_lines = [await _listed(store, query) for store in self.stores]
            expect(lines, wanted_lines, f"the pages of {query}")
        of_mine = TicketQuery(agent=self.me, limit=_PAGE)
        tickets, wanted_tickets = [await _open_tickets(store, of_mine) for store in self.stores]
        expect(tickets, wanted_tickets, "the pages of open tickets")
        for index in range(len(self.handles)):
            self.at = index
            page, model = [await store.summaries(list(self.runs)) for store in self.stores]
            expect(list(map(_owned, page.runs)), list(map(_owned, model.runs)), "the lines of all runs")
        for log, reference in reports:
            expect(log.frames, reference.frames, "the runtime is given each durable event once, in order")
            if len(reports) == 1:  # otherwise hints are on their way
                expect(log.items, reference.items, "the runtime is given each accepted command once, in order")

    async def compare_run(self, run: _Run) -> None:
        """Check that both stores hold the same of one run."""
        name = run.name
        record = await self.both(f"{name}: all rows of the run", "load", name, calls="all")
        await self.both(f"{name}: the rows of its step", "load", name)
        await self.both(f"{name}: the outline", "outline", name)
        await self.both(f"{name}: the events are contiguous", "events", name)
        await self.both(f"{name}: the accepted commands", "commands", name)
        for step in range(record.row.step + 1):
            await self.both(f"{name}: the state at step {step}", "state_at", name, step)

    async def mine(self, call: Awaitable[Sequence[tuple[str, bool]]]) -> Sequence[tuple[str, bool]]:
        """Of a list, the runs of this scenario: others share the storage."""
        return [entry for entry in await call if entry[0] in self.runs]


async def _answered(call: Awaitable[object]) -> Any:
    """Return the result of a call, or the name of the error that it raises."""
    try:
        return await call
    except GreenroomError as error:
        return type(error).__name__


async def _sent(author: Author, claim: Claim | None, *, gap: int, **parts: Any) -> Receipt:
    """The receipt of a commit behind `gap` events that are missing; the author keeps the row of a written one."""
    before = author.row
    author.make(gap)
    receipt = await author.send(author.make(**parts), claim).receipt()
    if receipt.kind != "committed":
        author.row = before
    return receipt


def _refused(receipt: Receipt) -> Receipt:
    """Whether a commit behind the end of a run fails, or has no claim any more, is the store's choice."""
    return Receipt(kind="failed") if receipt.kind == "lease_lost" else msgspec.structs.replace(receipt, error=None)


def _came_to(receipt: Receipt) -> tuple[Any, ...]:
    return receipt.kind, receipt.next_in_thread, receipt.last if receipt.kind == "committed" else 0, type(receipt.error)


async def _listed(store: Store, query: RunQuery) -> Sequence[RunSummary]:
    """All pages of a list."""
    page = await store.runs(query)
    actual = list(page.runs)
    while page.cursor is not None:
        page = await store.runs(attrs.evolve(query, cursor=page.cursor))
        actual += page.runs
    return [_owned(line) for line in actual]


async def _open_tickets(store: Store, query: TicketQuery) -> Sequence[Ticket]:
    """All pages of a list of open tickets."""
    page = await store.tickets(query)
    tickets = [line.ticket for line in page.tickets]
    while page.cursor is not None:
        page = await store.tickets(attrs.evolve(query, cursor=page.cursor))
        tickets += [line.ticket for line in page.tickets]
    return tickets


def _owned(line: RunSummary) -> RunSummary:
    """A line without the name of the owner, which differs between stores."""
    return line if line.owner is None else attrs.evolve(line, owner="a process")


async def play_random(open_store: OpenStore, me: str, seed: int, *, steps: int = _STEPS, openings: int = 3) -> None:
    """Random operations on a store that is opened several times; `me` is the prefix of all ids.

    A shared store is opened twice each time, and either handle does some of the operations.

    Raises:
        AssertionError: the store and the memory store differ; the message names the seed.
    """
    pair, memory = _Pair(me, random.Random(seed)), MemoryStore()  # noqa: S311 - the seed is the point
    pair.threads = [f"{me}.t{number}" for number in range(_THREADS)]
    try:
        for _ in range(openings):
            first = open_store()
            pair.handles = [(first, memory.peer() if first.shared else memory)]
            if first.shared:
                pair.handles.append((open_store(), memory.peer()))
            for run in pair.runs.values():
                for author, store in zip(run.authors, pair.handles[0], strict=True):
                    author.store = store
            async with AsyncExitStack() as stack:
                logs = [
                    (await stack.enter_async_context(opened(store)), await stack.enter_async_context(opened(reference)))
                    for store, reference in pair.handles
                ]
                for _ in range(steps // openings):
                    await pair.step()
                await pair.compare(logs)
    except AssertionError as error:
        error.add_note(f"play_random(open_store, {me!r}, seed={seed}, steps={steps}, openings={openings})")
        raise


@reopening
async def random_operations_come_to_what_they_do_in_memory(open_store: OpenStore, me: str) -> None:
    """Whatever is done in whatever order, the store holds what the memory store does, also once it is opened again."""
    for seed in SEEDS:
        await play_random(open_store, f"{me}.{seed}", seed)
