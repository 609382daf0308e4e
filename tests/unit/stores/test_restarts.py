"""A store that crashes begins again by itself: nothing is lost or written twice, and it gives up after three times."""

from __future__ import annotations

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call

KINDS = ("memory", "sqlite-inline", "sqlite-thread")


class Bug(Exception):
    """An error that no outage explains."""


class Bugs:
    """Raises at a point, some times."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.times, self.armed, self.hits = point, times, False, 0

    def __call__(self, point: str) -> None:
        if self.armed and point == self.point and self.times:
            self.times -= 1
            self.hits += 1
            raise Bug(f"at {point}")


def store_of(kind: str, folder, faults=None):
    if kind == "memory":
        return gr.MemoryStore(faults=faults)
    return gr.SQLiteStore(folder / "runs.db", writer=kind.partition("-")[2], faults=faults)


def helper():
    @gr.tool
    async def pay() -> str:
        paid.append(1)
        return "paid"

    paid: list[int] = []
    return gr.Agent("helper", model=ScriptedModel([[call("pay", id="c1")], "done"]), tools=[pay]), paid


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_batch_that_crashes_after_its_commit_is_not_written_twice(kind, times, tmp_path):
    await _crashed(kind, "after_commit", times, tmp_path)


@pytest.mark.parametrize("kind", KINDS[1:])  # in memory every error before a commit is an outage
@pytest.mark.parametrize("times", [1, 3])
async def test_a_batch_that_crashes_before_its_commit_is_written_by_the_next_try(kind, times, tmp_path):
    await _crashed(kind, "before_commit", times, tmp_path)


async def _crashed(kind, point, times, folder):
    bugs, (agent, paid) = Bugs(point, times), helper()
    with trio.fail_after(30):
        async with gr.open_runtime(store_of(kind, folder, bugs), agents=[agent]) as runtime:
            bugs.armed = True
            run = await _started(runtime)
            assert (await run.result()).output == "done"
            async with run.events() as events:
                sequences = [event.sequence async for event in events]
            crashed = runtime.reader.crashed()
    assert bugs.hits == times
    assert paid == [1]
    assert sequences == list(range(1, len(sequences) + 1))
    assert crashed == {"runtime/:store": times}


async def _started(runtime):
    while True:
        try:
            return await runtime.start("helper", "hi", run_id="r1")
        except gr.StoreUnavailable:
            await trio.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_fourth_crash_within_a_minute_ends_the_runtime_and_names_its_cause(kind, tmp_path, caplog):
    bugs, (agent, _) = Bugs("after_commit", 100), helper()
    with trio.fail_after(30), pytest.raises(gr.RuntimeFailed, match="at after_commit") as caught:  # noqa: PT012
        async with gr.open_runtime(store_of(kind, tmp_path, bugs), agents=[agent]) as runtime:
            bugs.armed = True
            await _started(runtime)
            await trio.sleep_forever()
    assert bugs.hits == 4
    assert caught.value.__cause__ is not None
    tracebacks = [record for record in caplog.records if "crashed; it begins again" in record.getMessage()]
    assert len(tracebacks) == 3
    assert all("in __call__" in record.exc_text for record in tracebacks)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_crash_of_the_task_of_the_store_ends_nothing(kind, tmp_path):
    agent, paid = helper()
    with trio.fail_after(30):
        async with gr.open_runtime(store_of(kind, tmp_path), agents=[agent]) as runtime:
            for _ in range(3):
                fault = chaos.CrashAt(0, lambda task: task.name == "runtime/:store", Bug())
                while not fault.struck:
                    await trio.sleep(0.01)
                    for task in list(chaos.program_tasks()):
                        if task.name == "runtime/:store":
                            fault.before_task_step(task)
                await trio.sleep(0.1)
            run = await _started(runtime)
            assert (await run.result()).output == "done"
    assert paid == [1]
