"""What a step costs: the same in the last step of a long run as in the second, and in a long thread as in an empty one.

Everything here is counted: events, rows, bytes, reads, instructions of the database. Nothing is timed. A long run has
1,000 steps in `make chaos`, and 250 otherwise.
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.codec import dump
from greenroom.actors.contract.commits import Commit, Deliver
from greenroom.testing import FunctionModel, Step, call, text

from ..support.runs import KINDS, home

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
STEPS = 1_000 if FULL else 250
CALLS = 4
"""Per step: five messages, with the assistant's."""
LONG = STEPS * (CALLS + 1)

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]


NUMBER = re.compile(rb"[0-9]+")


@attrs.define
class Written:
    """What was written in one step.

    Attributes:
        rows: calls and tickets. keys: of state. size: bytes of all events and rows, with each number counted as one
            digit long: numbers grow with the run, nothing else may. bytes: as the store counts them.
        instructions: of the database's machine.
    """

    commits: int = 0
    events: int = 0
    rows: int = 0
    messages: int = 0
    keys: int = 0
    size: int = 0
    bytes: int = 0
    instructions: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """What must be equal in all steps."""
        return (self.commits, self.events, self.rows, self.messages, self.keys, self.size)


class Counting:
    """Counts what a store is asked for, and what it is given to write, by step."""

    def count_from_here(self) -> None:
        """Begin to count."""
        self.written: dict[int, Written] = {}
        self.reads: Counter[str] = Counter()
        self.instructions = 0

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """As the store's own."""
        bytes_before, instructions_before = self.statistics().bytes_written, self.instructions  # type: ignore[attr-defined]
        super().submit(claim, commit, frames, deliver)  # type: ignore[misc]
        step = self.written.setdefault(commit.row.step, Written())
        step.commits += 1
        step.events += len(commit.events)
        step.rows += len(commit.calls) + len(commit.tickets)
        step.messages += len(commit.messages)
        step.keys += len(commit.state)
        written = [commit.row, *commit.calls, *commit.tickets, *commit.messages, *commit.state]
        step.size += sum(len(NUMBER.sub(b"0", blob)) for blob in (*map(dump, written), *frames))
        step.bytes += self.statistics().bytes_written - bytes_before  # type: ignore[attr-defined]
        step.instructions += self.instructions - instructions_before

    async def load(self, run_id: str, **options: Any) -> Any:
        """As the store's own."""
        self.reads["load"] += 1
        return await super().load(run_id, **options)  # type: ignore[misc]

    async def messages(self, thread_id: str) -> Any:
        """As the store's own."""
        self.reads["messages"] += 1
        return await super().messages(thread_id)  # type: ignore[misc]

    async def events(self, run_id: str, **options: Any) -> Any:
        """As the store's own."""
        self.reads["events"] += 1
        return await super().events(run_id, **options)  # type: ignore[misc]


class CountingMemory(Counting, gr.MemoryStore):
    """Memory, counted."""


class CountingSQLite(Counting, gr.SQLiteStore):
    """SQLite in the calling task, counted."""

    def count_instructions(self) -> None:
        """Every instruction of the writer's database machine counts; makes it slow."""

        def tick() -> int:
            self.instructions += 1
            return 0

        self._transactor._connection.set_progress_handler(tick, 1)  # type: ignore[union-attr]


@gr.tool
async def look(at: str) -> str:
    return "something of always the same length"


def answer(steps: int) -> Any:
    """A model that calls, says and uses the same in each step, and ends after so many."""

    def each(request: gr.ModelRequest) -> Step:
        used = gr.Usage(requests=1, input=1_000, output=100)
        if request.model_attempts + 1 >= steps:
            return text("done", usage=used)
        return [text("", usage=used), *(call("look", at="here") for _ in range(CALLS))]

    return each


def agent(steps: int, **options: Any) -> gr.Agent[str]:
    unlimited = gr.stop.MaxRounds(None)
    return gr.Agent("helper", tools=[look], model=FunctionModel(answer(steps)), stop=[unlimited], **options)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, folder: Path) -> Any:
    made = CountingMemory() if request.param == "memory" else CountingSQLite(folder / "runs.db", writer="inline")
    made.count_from_here()
    return made


@pytest.mark.parametrize("mode", ["sequential", "parallel_streaming"])
async def test_every_step_of_a_long_run_writes_the_same(store, mode, autojump_clock):
    async with home(store) as runtime:
        run = await runtime.start(agent(STEPS), "hi", run_id="r", execution=mode)
        assert (await run.result()).output == "done"
    steps = [store.written[number] for number in range(2, STEPS)]  # the first begins the run, the last one ends it
    assert {step.counts for step in steps} == {steps[0].counts}
    assert steps[0].messages == CALLS + 1
    assert store.reads == {}, "the run and its history are at hand"
    if isinstance(store, gr.SQLiteStore):
        assert max(step.bytes for step in steps) < 1.06 * min(step.bytes for step in steps)  # numbers grow


async def test_a_thread_of_many_messages_adds_a_step_as_an_empty_one(store, autojump_clock):
    steps, reads = {}, {}
    async with home(store) as runtime:
        await (await runtime.start(agent(STEPS + 1), "hi", run_id="before", thread_id="laden")).result()
        assert len(await store.messages("laden")) >= LONG
        if isinstance(store, CountingSQLite):
            store.count_instructions()
        for thread in ("empty", "laden"):  # names of one length
            store.count_from_here()
            run = await runtime.start(agent(5), "and now?", run_id=f"in-{thread}", thread_id=thread)
            assert (await run.result()).output == "done"
            steps[thread], reads[thread] = store.written, store.reads
    for number in (1, 2, 3, 4):
        empty, laden = steps["empty"][number], steps["laden"][number]
        assert laden.counts == empty.counts
        assert laden.instructions <= 1.02 * empty.instructions
    assert reads["laden"] == reads["empty"] == {"messages": 1, "load": 1}, "a thread's history and state are read once"


KEYS = [gr.StateKey(f"key{number:03}", str) for number in range(200)]


@gr.tool
async def fill(ctx: gr.ToolContext) -> str:
    for key in KEYS:
        ctx.state.set(key, "something of some length, so that it would be seen")
    return "filled"


@pytest.mark.parametrize("mode", ["sequential", "parallel_streaming"])
async def test_a_step_that_changes_one_of_two_hundred_state_keys_writes_one(store, mode, autojump_clock):
    numbers = itertools.count()

    @gr.tool
    async def turn(ctx: gr.ToolContext) -> str:
        number = next(numbers)
        ctx.state.set(KEYS[number % len(KEYS)], f"something of always the same length: {number:04}")
        return "turned"

    def each(request: gr.ModelRequest) -> Step:
        used = gr.Usage(requests=1)
        if request.model_attempts == STEPS // 2:
            return text("done", usage=used)
        return [text("", usage=used), call("turn") if request.model_attempts else call("fill")]

    unlimited = [gr.stop.MaxRounds(None)]
    keeper = gr.Agent("helper", tools=[fill, turn], model=FunctionModel(each), stop=unlimited, state=KEYS)
    async with home(store) as runtime:
        run = await runtime.start(keeper, "hi", execution=mode)
        await run.result()
        assert len((await run.view()).state) == len(KEYS)
    steps = [store.written[number] for number in range(20, STEPS // 2 + 1)]  # a commit that ends a step begins the next
    assert {step.counts for step in steps} == {steps[0].counts}
    assert (store.written[2].keys, steps[0].keys) == (len(KEYS), 1)
    assert steps[0].size < store.written[2].size / 5
    if isinstance(store, gr.SQLiteStore):
        assert max(step.bytes for step in steps) < 1.06 * min(step.bytes for step in steps)


async def test_the_counts_would_see_a_step_that_costs_more(store, autojump_clock):
    """A run whose calls get longer and longer is not constant."""

    def wordy(request: gr.ModelRequest) -> Step:
        used = gr.Usage(requests=1)
        if request.model_attempts == 20:
            return text("done", usage=used)
        return [text("", usage=used), call("look", at="here " * request.model_attempts)]

    unlimited = [gr.stop.MaxRounds(None)]
    async with home(store) as runtime:
        wordier = gr.Agent("helper", tools=[look], model=FunctionModel(wordy), stop=unlimited)
        await (await runtime.start(wordier, "hi")).result()
    sizes = [store.written[number].size for number in range(2, 20)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)
