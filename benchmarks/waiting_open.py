"""Opening a file in which very many runs wait for people, and what they cost then: time, tasks, memory.

The runs are copies of one that a runtime has made, with ids of their own, put into the file by SQL; then the file is
opened in the measured way, one run is decided, and it ends.
"""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from .files import database
from .harness import Benchmark, Figure, Values, on_trio, resident
from .waiting_memory import ask
from .workload import QuietModel

_RENAMED = "CAST(replace(CAST({} AS TEXT), 'template', 'copy' || value) AS BLOB)"
_NUMBER = "(SELECT number FROM runs WHERE run_id = 'copy' || value)"
_THREAD = "(SELECT number FROM threads WHERE thread_id = 'copy' || value || '.thread')"
_RUN = "agent, status, stage, step, last_seq, token, posted, consumed, dispatch, created_at, ended_at, next_due"
_PARTS = {
    "calls": ("call_id, step, idx, status", "call_id, step, idx, status", "body"),
    "tickets": (
        "ticket_id, call_id, status",
        "replace(ticket_id, 'template', 'copy' || value), call_id, status",
        "body",
    ),
    "events": ("seq", "seq", "frame"),
}
"""Table -> columns, their values in a copy, and the column whose text names the run."""


def _statements() -> Iterator[str]:
    yield "INSERT INTO threads(thread_id) SELECT 'copy' || value || '.thread' FROM copies"
    info, row = _RENAMED.format("info"), _RENAMED.format("row")
    yield (
        f"INSERT INTO runs(run_id, thread, {_RUN}, info, row)"  # noqa: S608 - constants, here and below
        f" SELECT 'copy' || value, {_THREAD}, {_RUN}, {info}, {row} FROM copies, runs WHERE run_id = 'template'"
    )
    for table, (columns, values, text) in _PARTS.items():
        yield (
            f"INSERT INTO {table}(run, {columns}, {text}) SELECT {_NUMBER}, {values}, {_RENAMED.format(text)}"  # noqa: S608
            f" FROM copies, {table} WHERE run = (SELECT number FROM runs WHERE run_id = 'template')"
        )


def _agent() -> gr.Agent[str]:
    return gr.Agent("asking", tools=[ask], model=QuietModel(calls=1, tool="ask"))


async def _template(path: Path) -> None:
    agent = _agent()
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        run = await runtime.start(agent, "hi", run_id="template")
        assert isinstance(await run.wait(), gr.Waiting)


def _copy(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TEMP TABLE copies(value INTEGER NOT NULL)")
        connection.executemany("INSERT INTO copies VALUES (?)", ((number,) for number in range(1, count + 1)))
        for statement in _statements():
            connection.execute(statement)
    connection.close()


def _case(count: int) -> object:
    async def main(quick: bool) -> Values:
        runs = count // 100 if quick else count
        with database() as path:
            await _template(path)
            await trio.to_thread.run_sync(_copy, path, runs)
            gc.collect()
            memory, living = resident(), trio.lowlevel.current_statistics().tasks_living
            wall, cpu = time.perf_counter(), time.process_time()
            async with gr.open_runtime(path, agents=[_agent()]) as runtime:
                opening = Values(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
                memory_per_all = resident() - memory
                tasks = trio.lowlevel.current_statistics().tasks_living - living
                actors = len(runtime._parts.registry)
                start = time.perf_counter()
                run = await runtime.get(f"copy{max(1, runs // 2)}")
                assert (await run.decide((await run.view()).tickets[0].approve())).ok
                assert isinstance(await run.result(), gr.Completed)
                wake_seconds = time.perf_counter() - start
        return {
            f"wall_{count}": opening["wall"] * 1e3,
            f"cpu_{count}": opening["cpu"] * 1e3,
            f"kib_{count}": memory_per_all / 1024,
            f"tasks_{count}": tasks,
            f"actors_{count}": actors,
            f"woken_{count}": wake_seconds * 1e3,
        }

    return on_trio(main)


def _parent(children: int) -> gr.Agent[str]:
    calls = [call("asking", input="ask", id=f"k{number}") for number in range(children)]
    model = ScriptedModel([calls, "done"])
    return gr.Agent("parent", tools=[_agent().as_tool()], model=model, execution="parallel_streaming")


async def _left(runtime: gr.Runtime) -> None:
    """Wait until no run is in memory."""
    with trio.fail_after(60):
        while len(runtime._parts.registry):  # noqa: ASYNC110 - a roster has no event
            await trio.sleep(0.01)


async def _family(quick: bool) -> Values:
    """One parent run with child runs that wait for an approval each: opened, left alone, decided by either id."""
    children = 10 if quick else 100
    values = dict[str, float]()
    with database() as path:
        async with gr.open_runtime(path, agents=[_parent(children)], passivate_after=0.1) as runtime:
            run = await runtime.start("parent", "hi", run_id="parent")
            while len((await run.view()).tickets) < children:  # noqa: ASYNC110 - a view has no event
                await trio.sleep(0.01)
            await _left(runtime)
        for name in ("mirror", "child"):
            gc.collect()
            memory, cpu = resident(), time.process_time()
            async with gr.open_runtime(path, agents=[_parent(children)], passivate_after=0.1) as runtime:
                await _left(runtime)
                values |= {"family_cpu": (time.process_time() - cpu) * 1e3, "family_kib": (resident() - memory) / 1024}
                values["family_actors"] = len(runtime._parts.registry)
                run = await runtime.get("parent")
                ticket = (await run.view()).tickets[0]
                child = await runtime.get(ticket.child_run_id or "")
                start = time.perf_counter()
                target, owner = (ticket.ticket_id, run) if name == "mirror" else (ticket.child_ticket_id or "", child)
                assert (await owner.decide(target, "approve")).ok
                assert isinstance(await child.result(), gr.Completed)
                values[f"family_{name}"] = (time.perf_counter() - start) * 1e3
    return values


BENCHMARK = Benchmark(
    name="waiting_open",
    about="opening a SQLite file in which runs wait for an approval; then one of them is approved and ends",
    cases={"100": _case(100), "100000": _case(100_000), "family": on_trio(_family)},
    figures=(
        Figure(
            key="wall_100000", what="100,000 waiting runs: until the runtime is open", unit="ms", at_most=1000, digits=0
        ),
        Figure(key="cpu_100000", what="the same, CPU", unit="ms", digits=0),
        Figure(key="wall_100", what="100 waiting runs: until the runtime is open", unit="ms", digits=0),
        Figure(key="actors_100000", what="actors of the 100,000", unit="", at_most=0, digits=0),
        Figure(key="tasks_100000", what="tasks of the runtime with 100,000", unit="", digits=0),
        Figure(key="tasks_100", what="tasks of the runtime with 100", unit="", digits=0),
        Figure(key="kib_100000", what="growth of resident memory by opening, 100,000", unit="KiB", digits=0),
        Figure(key="kib_100", what="growth of resident memory by opening, 100", unit="KiB", digits=0),
        Figure(key="family_cpu", what="a parent with 100 waiting child runs: opened, looked at, left, CPU", unit="ms"),
        Figure(key="family_kib", what="the same, growth of resident memory afterwards", unit="KiB", digits=0),
        Figure(key="family_actors", what="actors of the 101 runs afterwards", unit="", at_most=0, digits=0),
        Figure(key="family_mirror", what="one of the 100, decided by its mirror: until the child run ended", unit="ms"),
        Figure(key="family_child", what="one of the 100, decided by its own ticket: the same", unit="ms"),
        Figure(key="woken_100000", what="one of the 100,000: looked up, approved, woken, ended", unit="ms", digits=1),
    ),
)
