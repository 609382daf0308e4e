"""Each long-lived task of a runtime and of `serve` crashes, once and ten times in a row, under load.

The load: six runs in bodies, five that wait for people and have left memory, one that waits for its time, one whose
ticket expires, and a client that follows four runs through the gateway. Afterwards every run is brought to its end:
none has failed, none is without an owner, every accepted command has acted, and the client has seen each event once.

`TASKS` has a row for each task that is there at rest, found in the tree of tasks: a task without a row fails a test.
Virtual time; `make test` plays a sample, `GREENROOM_CHAOS=full` all.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.supervision import chaos
from greenroom.testing import FunctionModel, call
from greenroom.transport import connect

from ..support.gateway import TOKEN, gateway, http
from ..support.runs import Shelf
from ..support.scene_surroundings import Shop

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
pytestmark = pytest.mark.slow

TICK = 1.0
"""Virtual seconds between two events of a body: the gap of a client that nothing disturbs."""
SPACE = 21.0
"""Seconds between two crashes of a part of the store, of which three are repaired within a minute."""
LONGEST = 1_000.0
"""Virtual seconds until all runs have ended, after ten crashes of a part with a pause of 30 s after the last."""
EVERYWHERE = ("sqlite", "peers", "postgres")
SHARED = ("peers", "postgres")


@attrs.frozen
class Row:
    """A long-lived task.

    Attributes:
        task: matches its name.
        row: of the table in docs/design/processes.md.
        kinds: stores with which it is there.
        spaced: a part of the store.
    """

    task: str
    row: str
    kinds: tuple[str, ...] = EVERYWHERE
    spaced: bool = False

    @property
    def name(self) -> str:
        return re.sub(r"\W+", "_", self.task).strip("_")


TASKS = (
    Row("runtime/:store", "store", ("sqlite", "peers"), spaced=True),
    Row("runtime/:models", "models"),
    Row("runtime/:passivation", "passivation"),
    Row("runtime/:alarm", "alarm"),
    Row("runtime/:clock", "clock"),
    Row("runtime/:taker", "taker"),
    Row("runtime/:cleaning", "cleaning"),
    Row(r"greenroom\.actors\.runtime\.shared\.moved_runs\.MovedRuns\.(look_again|sweep)", "moved runs", SHARED),
    Row("runtime/:moved", "moved runs", SHARED),
    Row("runtime/:work", "run owners"),
    Row(r"trio\._highlevel_serve_listeners\._serve_one_listener", "connections"),
    Row("gateway/lists", "lists"),
    Row("gateway/pulse", "pulse"),
    Row("the turns of this process", "lease", ("peers",), spaced=True),
    Row("the end of the lease", "lease", ("peers",), spaced=True),
    Row("the desk that (commits|is asked)", "store", ("postgres",), spaced=True),
    Row("the hints to other processes", "hints", ("postgres",), spaced=True),
    Row("the watch over (answers|a closing store)", "watch over answers", ("postgres",), spaced=True),
    Row("the lease of this process", "lease", ("postgres",), spaced=True),
    Row(r"greenroom\.actors\.stores\.postgres\._lease\.PgLease\.expire", "lease", ("postgres",), spaced=True),
)
UNSTRUCK = {
    "runtime/:store": "it waits for the tasks of a shared store, which have rows of their own",
    "greenroom.actors.stores.postgres._peers.PgPeers._keep": "it waits for the tasks of the lease and the hints",
    "gateway/connections": "it waits for the listener and the connections",
    "greenroom.transport.serve": "the block of its caller",
}
"""Tasks that wait for others all the time, so that nothing in them can crash, and why."""
OF_RUNS = r"runtime/[^:].*|call:.*|model:.*|open .*|a hint"
"""Tasks of single runs, which end with them: an owner, a call, a model request, an open model."""


class Pooled(FunctionModel):
    """A model that holds something between requests: after it was closed, a request fails."""

    def __init__(self, play: Callable[..., Any]) -> None:
        super().__init__(play)
        self.is_open = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False


@attrs.define(eq=False)
class Scene:
    """A runtime on a store with load, a gateway, and the client."""

    kind: str
    folder: Path
    url: str = ""
    gate: trio.Event = attrs.field(factory=trio.Event)
    runtime: Any = None
    address: Any = None
    runs: dict[str, gr.Run[Any]] = attrs.field(factory=dict)
    accepted: list[str] = attrs.field(factory=list)
    seen: dict[str, list[tuple[int, float]]] = attrs.field(factory=dict)
    tasks: set[Any] = attrs.field(factory=set)
    statuses: dict[str, str] = attrs.field(factory=dict)

    def agents(self) -> list[gr.Agent[Any]]:
        @gr.tool(replay="safe")
        async def work(ctx: gr.ToolContext[Any]) -> str:
            for number in range(100_000):
                if self.gate.is_set():
                    break
                await ctx.output(f"{number} ")
                await trio.sleep(TICK)
            return "worked"

        @gr.tool(needs_approval=True, replay="safe")
        async def ask() -> str:
            return "asked"

        @gr.tool(replay="safe")
        async def hurry() -> str:
            too_late = gr.SetResult("too late")
            raise gr.Suspend(
                message="now?", expires_after=60, on_expiry=too_late, resume_mode="use_decision_as_tool_result"
            )

        def play(name: str) -> Callable[..., Any]:
            async def answer(request: Any) -> Any:
                await trio.sleep(0.1)
                assert model.is_open
                return "done" if any(message.role == "tool" for message in request.messages) else call(name, id="c1")

            model = Pooled(answer)
            return model

        tools = {"work": work, "ask": ask, "hurry": hurry}
        return [gr.Agent(key, model=play(key), tools=[tool]) for key, tool in tools.items()]

    async def begin(self) -> None:
        runtime = self.runtime
        for number in range(6):
            self.runs[f"work{number}"] = await runtime.start("work", "x", run_id=f"work{number}")
        for number in range(5):
            self.runs[f"ask{number}"] = await runtime.start("ask", "x", run_id=f"ask{number}")
        self.runs["hurry"] = await runtime.start("hurry", "x", run_id="hurry")
        at = runtime.clock.now() + timedelta(seconds=30)
        self.runs["later"] = await runtime.start("work", "x", run_id="later", at=at)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        shelf = Shelf(self.kind, self.folder)
        shelf.url = self.url
        before = set(chaos.program_tasks())
        options = {
            "agents": self.agents(),
            "passivate_after": 0.5,
            "drain": 1.0,
            "clock": Clock(),
            "workspaces": Shop(),
        }
        async with gr.open_runtime(shelf.open(), **options) as self.runtime, gateway(self.runtime) as address:
            self.address = address
            await self.begin()
            await trio.sleep(5)
            self.tasks = set(chaos.program_tasks()) - before
            async with connect(address.url, token=TOKEN) as client, trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(self._follow, client, f"work{number}")
                await trio.sleep(1)
                yield
                nursery.cancel_scope.cancel()

    async def _follow(self, client: Any, run_id: str) -> None:
        seen = self.seen[run_id] = []
        async with client.follow(run_id) as events:
            async for event in events:
                seen.append((event.sequence, trio.current_time()))  # noqa: PERF401 - as it comes, with its time

    # --- crashing ----------------------------------------------------------------------------------------------------

    async def crash(self, row: Row, nth: int) -> None:
        """Crash each task of a row as soon as it works (again)."""
        with trio.fail_after(200):
            struck: set[str] = set()
            while not struck:
                for task in list(chaos.program_tasks()):
                    if re.fullmatch(row.task, task.name) and task.name not in struck and self._works(task):
                        fault = chaos.CrashAt(0, lambda _: True, ZeroDivisionError(f"{row.task} {nth}"))
                        fault.before_task_step(task)
                        struck |= {task.name} if fault.struck else set()
                if not struck:
                    await trio.sleep(0.05)

    @staticmethod
    def _works(task: Any) -> bool:
        return not chaos.site_of(task).endswith((":_incarnate", ":kept"))

    async def decide(self, number: int) -> None:
        run = self.runs[f"ask{number}"]
        with trio.fail_after(200):
            while True:
                waiting = await run.wait()
                (ticket,) = waiting.tickets
                try:
                    reply = await run.decide(ticket.approve())
                except gr.StoreUnavailable:
                    await trio.sleep(0.1)
                    continue
                if reply.status == "accepted":
                    self.accepted.append(run.id)
                    return
                assert reply.code == "store_unavailable", reply
                await trio.sleep(0.1)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        self.gate.set()
        with trio.move_on_after(LONGEST):
            for name, run in self.runs.items():
                while not isinstance(outcome := await run.wait(), gr.Completed | gr.Failed | gr.Cancelled):  # noqa: ASYNC110
                    await trio.sleep(1)
                self.statuses[name] = type(outcome).__name__
        ends = {name: (await self.runtime.reader.outline(name)).last_sequence for name in self.seen}
        with trio.move_on_after(LONGEST):
            while any(not seen or seen[-1][0] < ends[name] for name, seen in self.seen.items()):  # noqa: ASYNC110
                await trio.sleep(0.5)

    def broken(self) -> list[str]:
        """What is not as promised."""
        faults = [f"{name}: stranded" for name in self.runs if name not in self.statuses]
        faults += [f"{name} ended as {status}" for name, status in self.statuses.items() if status != "Completed"]
        for name, seen in self.seen.items():
            if [sequence for sequence, _ in seen] != list(range(1, len(seen) + 1)):
                faults.append(f"{name}: the client has seen {[sequence for sequence, _ in seen]}")
        return faults

    def gap(self) -> float:
        """The longest time in which the client saw no event of a run that it follows."""
        times = [[at for _, at in seen] for seen in self.seen.values()]
        return max((after - before for one in times for before, after in itertools.pairwise(one)), default=0.0)


QUICK = ("runtime/:store", "runtime/:taker", "runtime/:work")
"""Rows that crash ten times on SQLite also in `make test`; on a memory peer all do, which takes a second each."""


def is_played(row: Row, kind: str, times: int) -> bool:
    """Return whether a case is in this session's sample."""
    return FULL or times == 1 or kind == "peers" or (kind == "sqlite" and row.task in QUICK)


CASES = [(row, kind, times) for row in TASKS for kind in row.kinds for times in (1, 10) if is_played(row, kind, times)]


def shown(case: tuple[Row, str, int]) -> str:
    return f"{case[0].name}-{case[1]}-{case[2]}"


def url_for(request: pytest.FixtureRequest, kind: str) -> str:
    return str(request.getfixturevalue("postgres_url")) if kind == "postgres" else ""


async def play(scene: Scene, row: Row, times: int) -> None:
    async with scene.playing():
        for nth in range(times):
            await scene.crash(row, nth)
            if nth < 5:
                await scene.decide(nth)
            await trio.sleep(SPACE if row.spaced and times > 3 else 0.3)
        crashed = (await http(scene.address, "GET", "/readyz", token=None)).json().get("crashed", {})
        assert crashed, "/readyz names no part"
        for number in range(times, 5):
            await scene.decide(number)
        await scene.finish()


@pytest.mark.parametrize("case", CASES, ids=shown)
async def test_a_long_lived_task_crashes_under_load_and_no_run_ends_of_it(case, tmp_path, request, autojump_clock):
    row, kind, times = case
    scene = Scene(kind, tmp_path, url_for(request, kind))
    with trio.fail_after(3 * LONGEST):
        await play(scene, row, times)
    print(f"{row.name} on {kind}, {times} crashes: the client's longest gap was {scene.gap():.1f} s")  # noqa: T201
    assert scene.broken() == []
    assert len(scene.accepted) == 5


@pytest.mark.parametrize("kind", EVERYWHERE)
async def test_each_task_of_a_runtime_has_a_row(kind, tmp_path, request, autojump_clock):
    scene = Scene(kind, tmp_path, url_for(request, kind))
    async with scene.playing():
        names = {task.name for task in scene.tasks}
        scene.gate.set()
    print(sorted(names))  # noqa: T201 - shown by -s
    rows = [row.task for row in TASKS if kind in row.kinds]
    known = "|".join([*rows, *map(re.escape, UNSTRUCK), OF_RUNS])
    assert {name for name in names if not re.fullmatch(known, name)} == set()
    missing = [row for row in rows if not any(re.fullmatch(row, name) for name in names)]
    assert missing == []


def test_the_design_has_a_row_and_a_test_for_each_task():
    page = Path(__file__).parents[2].joinpath("docs/design/processes.md").read_text(encoding="utf-8")
    table = page.partition("## The runtime as a tree")[2].partition("\n## ")[0]
    titles = {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")}
    assert {row.row for row in TASKS} <= titles
