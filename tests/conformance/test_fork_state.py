"""A fork begins with the state keys that its parent had at the end of the step, and from there on they are its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, Created, Deliver, NewRun
from greenroom.actors.contract.state import StateWrite
from greenroom.testing import call

from ..support.runs import KINDS, agent, home


class Writing:
    """A store in which each run writes its name and step to a key of each scope, in every commit from step 1 on.

    `born` is what each run was created with.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.born: dict[str, NewRun] = {}

    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        """As the store's own."""
        self.born[new.info.run_id] = new
        return await super().create_run(new, frame, claim=claim)  # type: ignore[misc]

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """As the store's own."""
        if commit.row.step:
            value = f"{commit.run_id} {commit.row.step}"
            mine = StateWrite(key="k", scope="run", value=value, revision=commit.row.step)
            ours = StateWrite(key="k", scope="thread", value=value, revision=commit.row.step)
            commit = msgspec.structs.replace(commit, state=(mine, ours))
        super().submit(claim, commit, frames, deliver)  # type: ignore[misc]


class WritingMemory(Writing, gr.MemoryStore):
    """Memory."""


class WritingSQLite(Writing, gr.SQLiteStore):
    """SQLite in the calling task."""


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Of each kind."""
    return WritingMemory() if request.param == "memory" else WritingSQLite(tmp_path / "runs.db", writer="inline")


@gr.tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.fixture
def helper() -> gr.Agent[Any]:
    """Three steps."""
    return agent(call("add", a=1, b=2, id="c1"), call("add", a=3, b=4, id="c2"), "seven", tools=[add])


async def values_at(store: gr.Store, run_id: str, step: int) -> list[str]:
    """The values of the run's key and the thread's, in this order."""
    return [write.value for write in await store.state_at(run_id, step)]


@pytest.mark.parametrize(
    ("step", "wanted"), [(0, ["r0 3"]), (1, ["r 1", "r 1"]), (2, ["r 2", "r 2"]), (3, ["r 3", "r 3"])]
)
async def test_a_fork_is_born_with_the_state_as_it_was_at_the_end_of_the_step(
    store, helper, step, wanted, autojump_clock
):
    """Of the thread's key at step 0: what the run before had left. What the parent wrote later is not there."""
    async with home(store, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r0", thread_id="t")).result()
        await (await runtime.start(helper, "hi", run_id="r", thread_id="t")).result()
        await (await runtime.start(helper, "hi", run_id="r2", thread_id="t")).result()
        child = await runtime.fork("r", step=step, new_run_id="f")
        born = await store.state_at("f", 0)
        await child.result()
        assert [write.value for write in born] == wanted
        assert {write.revision for write in born} == {0}
        assert await store.state_at("f", 0) == born
        assert (await values_at(store, "f", 1)) == ["f 1", "f 1"]
        assert (await values_at(store, "r", 3)) == ["r 3", "r 3"]
        record = await store.load("f")
    assert {write.value for write in record.state} == {f"f {record.row.step}"}


async def test_a_new_fork_has_its_parents_state_and_no_revision(store, helper, autojump_clock):
    """It has merged nothing yet; the values are its own all the same, the thread's in a thread of its own."""
    async with home(store, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).result()
        await runtime.fork("r", step=2, new_run_id="f")
        await runtime.join()
    wanted = tuple(StateWrite(key="k", scope=scope, value="r 2") for scope in ("run", "thread"))
    born = store.born["f"]
    assert (born.row.revision, born.row.step, born.state) == (0, 0, wanted)
    assert born.info.thread_id != store.born["r"].info.thread_id


async def test_a_fork_of_a_fork_begins_with_what_the_first_fork_had(store, helper, autojump_clock):
    """At step 0 what it was born with, whatever it and its parent have written since."""
    async with home(store, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).result()
        await (await runtime.fork("r", step=2, new_run_id="f")).result()
        await (await runtime.fork("f", step=0, new_run_id="g")).result()
        await (await runtime.fork("f", step=1, new_run_id="h")).result()
        await (await runtime.fork("g", step=0, new_run_id="i")).result()
        born = {name: await values_at(store, name, 0) for name in "fghi"}
    assert born == {"f": ["r 2", "r 2"], "g": ["r 2", "r 2"], "h": ["f 1", "f 1"], "i": ["r 2", "r 2"]}


@pytest.mark.rule("S-34")
async def test_a_fork_keeps_its_state_when_its_parent_is_pruned(store, helper, autojump_clock):
    """Nothing of a fork lives in its parent."""
    async with home(store, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).result()
        done = runtime.clock.now()
        await runtime.fork("r", step=1, new_run_id="f")
        assert (await store.prune(done.replace(year=done.year + 1))).runs == 1
        assert await values_at(store, "f", 0) == ["r 1", "r 1"]
        await runtime.join()


async def test_a_fork_is_born_with_state_only_once(store, helper, autojump_clock):
    """The same fork again is the same run, as it has become."""
    async with home(store, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).result()
        first = await runtime.fork("r", step=1, new_run_id="f")
        await first.result()
        before = (await store.load("f")).state
        assert await runtime.fork("r", step=1, new_run_id="f") == first
        assert (await store.load("f")).state == before
        assert await values_at(store, "f", 0) == ["r 1", "r 1"]
