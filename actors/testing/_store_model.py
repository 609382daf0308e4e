"""A scenario of the store kit: random operations, compared with a model that is small enough to be right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import attrs

from ..abc import RunQuery, Store
from ..contract.lifecycle import Stage
from ..contract.rows import Claim
from ..contract.state import Scope, StateWrite
from ._store_tools import (
    Author,
    OpenStore,
    create,
    expect,
    frame,
    judge,
    loaded,
    message,
    new_run,
    opened,
    reopening,
    say,
)

SEEDS: Final = range(5)
"""Sequences per scenario; each is another one, and always the same."""
_STEPS: Final = 80
"""Operations per sequence: enough for threads to queue up and runs to end and be released."""
_THREADS: Final = 3
_KEYS: Final[Sequence[tuple[Scope, str]]] = (("run", "a"), ("run", "b"), ("thread", "a"), ("thread", "b"))


@attrs.define(eq=False)
class _Run:
    """What the model knows of a run; `number` is in the order of creation."""

    number: int
    author: Author
    thread: str
    held: bool
    events: int = 1
    posted: int = 0
    consumed: int = 0
    done: bool = False
    usable: bool = True


class _World:
    """The model, and the operations that are done to it and to the store alike."""

    def __init__(self, me: str, rng: random.Random) -> None:
        self.me = me
        self.rng = rng
        self.runs: dict[str, _Run] = {}
        self.messages: dict[str, list[str]] = {f"{me}.t{i}": [] for i in range(_THREADS)}
        self.log: list[tuple[_Run, int, StateWrite]] = []

    def pick(self) -> _Run | None:
        """A run, done or not."""
        return self.rng.choice(list(self.runs.values())) if self.runs else None

    def active(self, thread: str) -> bool:
        """Whether somebody works on the thread."""
        return any(run.thread == thread and not run.done and not run.held for run in self.runs.values())

    async def create(self, store: Store) -> None:
        """A new run in some thread."""
        name, thread = f"{self.me}.r{len(self.runs)}", self.rng.choice(list(self.messages))
        busy = self.active(thread)
        author = await create(store, new_run(name, thread, agent=self.me, messages=(message(f"{name}.in"),)))
        self.messages[thread].append(f"{name}.in")
        self.runs[name] = _Run(len(self.runs), author, thread, held=busy)

    def draw_state(self) -> tuple[StateWrite, ...]:
        """Writes to some of the keys."""
        keys = [one for one in _KEYS if self.rng.random() < 0.4]
        number = self.rng.random()
        return tuple(StateWrite(key=key, scope=scope, value=number, revision=len(self.log)) for scope, key in keys)

    def state_of(self, run: _Run, step: int | None) -> list[StateWrite]:
        """The newest writes that the run knows: now, or at the end of a step."""
        newest: dict[tuple[str, str], StateWrite] = {}
        for writer, at, write in self.log:
            mine = writer is run and (step is None or at <= step)
            others = write.scope == "thread" and writer.thread == run.thread
            earlier = writer is not run if step is None else writer.number < run.number
            if mine or (others and earlier):
                newest[write.scope, write.key] = write if writer is run else attrs.evolve(write, revision=0)
        return [newest[key] for key in sorted(newest)]

    async def write(self, _: Store, run: _Run) -> None:
        """A commit of some events, messages and state; one in three is not in order."""
        author, before = run.author, run.author.row
        trouble = self.rng.choice(["none", "none", "none", "none", "gap", "taken"])
        events = self.rng.randrange(5)
        name = f"{author.run_id}.{run.events}.{self.rng.random()}"
        taken = self.messages[run.thread][0]
        if trouble == "gap":
            author.make(3)
        row = attrs.evolve(author.row, step=author.row.step + self.rng.randrange(2))
        parts = (message(taken if trouble == "taken" else name),)
        commit = author.make(events, row=row, messages=parts, state=self.draw_state())
        receipt = await author.send(commit).receipt()
        author.row = before
        if run.done:
            expect(receipt.kind in ("failed", "lease_lost"), True, "a commit after the end is refused")
        elif not run.usable or trouble == "gap":
            expect(receipt.kind, "lease_lost", "a commit with a void claim or with a gap is refused")
        elif trouble == "taken":
            expect(receipt.kind, "failed", "a commit that repeats a message fails")
            run.usable = False
        else:
            expect(receipt.kind, "committed", "a commit that is in order is written")
            author.row = commit.row
            run.events += events
            self.messages[run.thread].append(name)
            self.log += [(run, commit.row.step, write) for write in commit.state]

    async def post(self, store: Store, run: _Run) -> None:
        """A new command, or the newest one again."""
        again = run.posted > 0 and self.rng.random() < 0.3
        number = run.posted if again else run.posted + 1
        answer = await store.post(run.author.run_id, say(f"c{number}"), judge)
        wanted = "duplicate" if again else "rejected" if run.done else "accepted"
        expect(answer.status, wanted, "a command is answered by what is known of its run")
        run.posted += wanted == "accepted"

    async def end(self, _: Store, run: _Run) -> None:
        """A terminal commit, with or without having read the inbox."""
        author, before = run.author, run.author.row
        read = run.posted if self.rng.random() < 0.7 else run.consumed
        row = attrs.evolve(before, stage=Stage.COMPLETED, inbox=read)
        commit = author.make(1, row=row, consumed=read)
        receipt = await author.send(commit).receipt()
        author.row = before
        if run.done:
            expect(receipt.kind in ("failed", "lease_lost"), True, "a run ends once")
        elif not run.usable:
            expect(receipt.kind, "lease_lost", "a void claim ends nothing")
        elif read < run.posted:
            expect(receipt.kind, "inbox_ahead", "a run does not end with unread commands")
        else:
            author.row = commit.row
            run.events, run.consumed, run.done = run.events + 1, read, True
            waiting = [one for one in self.runs.values() if one.thread == run.thread and one.held and not one.done]
            released = waiting[0] if waiting and not run.held else None
            expect(receipt.released, released and released.author.run_id, "the oldest held run is released")
            if released is not None:
                released.held = False

    async def claim(self, store: Store, run: _Run) -> None:
        """A new claim, the only one that is good from now on."""
        claim = await store.claim(run.author.run_id)
        expect(claim is None, run.done, "exactly the open runs can be claimed")
        if claim is not None:
            old, run.author.claim, run.usable = run.author.claim, claim, True
            expect(claim.token > old.token, True, "tokens grow")
            stale = Claim(run_id=old.run_id, token=old.token)
            row = run.author.row
            receipt = await run.author.send(run.author.make(1), stale).receipt()
            run.author.row = row
            expect(receipt.kind, "lease_lost", "the old claim is void")

    async def step(self, store: Store) -> None:
        """One operation."""
        run = self.pick()
        operations = [self.write, self.write, self.write, self.post, self.end, self.claim]
        if run is None or self.rng.random() < 0.15:
            await self.create(store)
        else:
            run.author.store = store
            await self.rng.choice(operations)(store, run)

    def reopened(self) -> None:
        """All claims are void."""
        for run in self.runs.values():
            run.usable = False

    async def compare(self, store: Store) -> None:
        """The store holds what the model holds."""
        for name, run in self.runs.items():
            record = await loaded(store, name)
            expect(record.row, run.author.row, f"{name}: the row is that of the newest written commit")
            numbers = [item.position for item in record.inbox]
            expect(numbers, list(range(run.consumed + 1, run.posted + 1)), f"{name}: what nobody has read is there")
            wanted = [frame(name, number) for number in range(1, run.events + 1)]
            expect(list(await store.events(name)), wanted, f"{name}: the events are contiguous")
            expect(list(record.state), self.state_of(run, None), f"{name}: the newest state counts")
            for step in range(record.row.step + 1):
                at = list(await store.state_at(name, step))
                expect(at, self.state_of(run, step), f"{name}: the state as it was at step {step}")
        for thread, names in self.messages.items():
            expect([one.id for one in await store.messages(thread)], names, f"{thread}: the history is whole")
        mine = [entry for entry in await store.open_runs() if entry[0] in self.runs]
        wanted_open = [(name, run.held) for name, run in self.runs.items() if not run.done]
        expect(mine, wanted_open, "the open runs, oldest first")
        listed = [one.info.run_id for one in (await store.runs(RunQuery(agent=self.me, limit=1000))).runs]
        expect(listed, list(reversed(self.runs)), "all runs, newest first")


async def play_random(open_store: OpenStore, me: str, seed: int, *, steps: int = _STEPS, openings: int = 3) -> None:
    """Random operations on a store that is opened several times; `me` is the prefix of all ids.

    Raises:
        AssertionError: the store and the model differ; the message names the seed.
    """
    world = _World(me, random.Random(seed))  # noqa: S311 - the seed is the point
    try:
        for _ in range(openings):
            store = open_store()
            world.reopened()
            async with opened(store):
                for _ in range(steps // openings):
                    await world.step(store)
                await world.compare(store)
    except AssertionError as error:
        error.add_note(f"play_random(open_store, {me!r}, seed={seed}, steps={steps}, openings={openings})")
        raise


@reopening
async def random_operations_agree_with_a_model(open_store: OpenStore, me: str) -> None:
    """Whatever is done in whatever order, the store holds what the port says, also after it was opened again."""
    for seed in SEEDS:
        await play_random(open_store, f"{me}.{seed}", seed)
