"""A runtime in a program on asyncio: trio in a thread (`greenroom.aio`), or in the host's loop as a guest; beside trio.

The guest is what trio offers for it (`trio.lowlevel.start_guest_run`), made here for the comparison only. A host is
late if a task that sleeps a millisecond wakes later: other tasks of its loop had to wait so long.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the host that is measured
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

import greenroom as gr
from greenroom import aio
from greenroom.testing import FunctionModel, call, text

from .harness import Benchmark, Figure, Values

Once = Callable[[], Awaitable[None]]
"""Starts one run, and waits for its end."""


@gr.tool
async def look() -> int:
    """Look."""
    return 1


def _answer(request: gr.ModelRequest) -> Any:
    return text("done") if any(message.role == "tool" for message in request.messages) else call("look")


AGENT = gr.Agent("a", model=FunctionModel(_answer), tools=[look])


async def _serial(once: Once, count: int) -> dict[str, float]:
    spans = []
    for _ in range(count):
        began = time.perf_counter()
        await once()
        spans.append(time.perf_counter() - began)
    spans.sort()
    return {"p50": 1e3 * statistics.median(spans), "p99": 1e3 * spans[int(0.99 * len(spans))]}


async def _on_trio(quick: bool) -> Values:
    async with gr.open_runtime(agents=[AGENT], record=False) as runtime:

        async def once() -> None:
            await (await runtime.start(AGENT, "x")).wait()

        await _serial(once, 5 if quick else 50)
        values = await _serial(once, 10 if quick else 300)
        count, began = 20 if quick else 1_000, time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(once)
        values["rate"] = count / (time.perf_counter() - began)
    return {f"trio_{name}": value for name, value in values.items()}


async def _late(lateness: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        lateness.append(1e3 * (time.perf_counter() - began - 0.001))


async def _on_asyncio(open_once: Callable[[], Any], name: str, quick: bool) -> Values:
    async with open_once() as once:
        await _serial(once, 5 if quick else 50)
        values = await _serial(once, 10 if quick else 300)
        lateness: list[float] = []
        ticker = asyncio.create_task(_late(lateness))
        await asyncio.sleep(0.01)
        count, began = 20 if quick else 1_000, time.perf_counter()
        await asyncio.gather(*(once() for _ in range(count)))
        values["rate"] = count / (time.perf_counter() - began)
        ticker.cancel()
    values["late"], values["latest"] = statistics.median(lateness), max(lateness)
    return {f"{name}_{key}": value for key, value in values.items()}


@asynccontextmanager
async def _thread() -> AsyncIterator[Once]:
    async with aio.open_runtime(agents=[AGENT], record=False) as runtime:

        async def once() -> None:
            await (await runtime.start(AGENT, "x")).wait()

        yield once


@asynccontextmanager
async def _guest() -> AsyncIterator[Once]:
    loop = asyncio.get_running_loop()
    ready, done, closing = loop.create_future(), loop.create_future(), trio.Event()
    parts: list[tuple[gr.Runtime, trio.Nursery]] = []

    async def main() -> None:
        async with gr.open_runtime(agents=[AGENT], record=False) as runtime, trio.open_nursery() as nursery:
            parts.append((runtime, nursery))
            ready.set_result(None)
            await closing.wait()

    async def one(end: asyncio.Future[None]) -> None:
        await (await parts[0][0].start(AGENT, "x")).wait()
        end.set_result(None)

    async def once() -> None:
        end = loop.create_future()
        parts[0][1].start_soon(one, end)
        await end

    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=done.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    await ready
    yield once
    closing.set()
    await done


def _trio(quick: bool) -> Values:
    return trio.run(_on_trio, quick)


def _asyncio(open_once: Callable[[], Any], name: str) -> Callable[[bool], Values]:
    return lambda quick: asyncio.run(_on_asyncio(open_once, name, quick))


_WHAT = {
    "p50": ("start and wait, one run after the other, p50", "ms"),
    "p99": ("the same, p99", "ms"),
    "rate": ("1,000 runs together", "runs/s"),
    "late": ("how late the host's tasks are meanwhile, p50", "ms"),
    "latest": ("the same, at most", "ms"),
}
BENCHMARK = Benchmark(
    name="asyncio_roads",
    about="runs of two steps with a tool, store in memory, in a program on asyncio",
    cases={"trio": _trio, "thread": _asyncio(_thread, "thread"), "guest": _asyncio(_guest, "guest")},
    figures=tuple(
        Figure(key=f"{road}_{key}", what=f"{road}: {what}", unit=unit)
        for key, (what, unit) in _WHAT.items()
        for road in (("thread", "guest") if key.startswith("late") else ("trio", "thread", "guest"))
    ),
)
