"""The console in Chromium: first paint, a list of 10,000 runs, a search through all of them, a run of 5,000 events.

`python -m benchmarks.console RUNS ROUNDS` serves a gateway with so many runs, and one run of so many rounds of calls;
it prints the address and the id of that run.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, Step, call, text
from greenroom.transport import serve

from .files import database
from .harness import ROOT, Benchmark, Figure, Skipped, Values

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOKEN = "token-of-the-figures"  # noqa: S105 - of a gateway that lives for some seconds
CHROMIUM = "/usr/bin/chromium"
AT_ONCE = 50
"""Runs that are made concurrently."""
CALLS = 10
"""Calls of a round, each of three events."""
WATCH = """() => { window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask", buffered: true }); }"""
SCROLL = """async () => {
    const scroller = document.getElementById("runs-scroll");
    const frames = [];
    let before = performance.now();
    for (let n = 0; n < 60; n += 1) {
        scroller.scrollTop = (scroller.scrollHeight / 60) * n;
        await new Promise((go) => requestAnimationFrame(go));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    return frames.sort((one, other) => one - other)[30];
}"""


@gr.tool(replay="safe")
async def tick(n: int) -> int:
    """Return the number."""
    return n


def _agents(rounds: int) -> tuple[gr.Agent[Any], ...]:
    def many(request: gr.ModelRequest) -> Step:
        if request.model_attempts >= rounds:
            return "Counted."
        return [text(f"Round {request.model_attempts + 1}."), *(call("tick", n=n) for n in range(CALLS))]

    return (
        gr.Agent("echo", model=FunctionModel(lambda request: f"You said: {request.messages[-1].content}")),
        gr.Agent("many", tools=[tick], model=FunctionModel(many), stop=[gr.stop.MaxRounds(None)]),
    )


async def _serve(runs: int, rounds: int) -> None:
    """Make the runs and serve until killed."""
    with database() as path:
        async with gr.open_runtime(path, agents=_agents(rounds)) as runtime, trio.open_nursery() as nursery:
            numbers = iter(range(runs))

            async def some() -> None:
                for number in numbers:
                    await (await runtime.start("echo", f"Order {number}: where is the lamp?")).result()

            async with trio.open_nursery() as makers:
                for _ in range(AT_ONCE):
                    makers.start_soon(some)
            long = await runtime.start("many", "Count a lot.")
            await long.result()
            address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
            sys.stdout.write(f"{address.url} {long.id}\n")
            sys.stdout.flush()


def _console(quick: bool) -> Values:
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may be missing
    except ImportError as error:
        raise Skipped("playwright is not installed") from error
    if not Path(CHROMIUM).exists():
        raise Skipped(f"there is no {CHROMIUM}")
    sizes = ("200", "15") if quick else ("10000", "150")
    command = [sys.executable, "-m", "benchmarks.console", *sizes]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        assert server.stdout is not None
        try:
            url, run = server.stdout.readline().split()
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
                values = _measured(page, url, run)
                browser.close()
        finally:
            server.kill()
    return values


def _measured(page: Page, url: str, run: str) -> Values:
    page.add_init_script(f"({WATCH})()")
    page.goto(f"{url}/#token={TOKEN}")
    page.locator("#runs a").first.wait_for()
    page.locator(".chart svg").wait_for()
    values = {
        "paint": page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"),
        "listed": page.evaluate("performance.now()"),
        "kib": page.evaluate("performance.getEntriesByType('resource').reduce((n, one) => n + one.transferSize, 0)")
        / 1024,
        "scroll": page.evaluate(SCROLL),
        "start_tasks": page.evaluate("longTasks.reduce((sum, one) => sum + one, 0)"),
    }
    page.evaluate("longTasks.length = 0")
    began = page.evaluate("performance.now()")
    page.locator("#search").fill("nobody said this")
    page.locator("#runs-note", has_text="No run matches").wait_for(timeout=120_000)
    values["search"] = page.evaluate("performance.now()") - began
    page.locator("#search").fill("")
    began = page.evaluate(f"(location.hash = '#run={run}', longTasks.length = 0, performance.now())")
    page.locator(".end-completed").wait_for(timeout=120_000)
    values["run"] = page.evaluate("performance.now()") - began
    values["run_tasks"] = page.evaluate("longTasks.reduce((sum, one) => sum + one, 0)")
    values["run_worst"] = page.evaluate("Math.max(0, ...longTasks)")
    values["nodes"] = page.evaluate("document.querySelectorAll('*').length")
    return values


BENCHMARK = Benchmark(
    name="console",
    about="the console in Chromium, before a gateway with 10,000 runs in SQLite, one of them with some 5,000 events",
    cases={"console": _console},
    figures=(
        Figure(key="paint", what="first contentful paint", unit="ms", at_most=1000, digits=0),
        Figure(key="listed", what="until list and start page are shown", unit="ms", at_most=3000, digits=0),
        Figure(key="kib", what="loaded, without a cache", unit="KiB", digits=0),
        Figure(key="start_tasks", what="tasks of 50 ms and more until then, scrolling included", unit="ms", digits=0),
        Figure(key="scroll", what="one frame of scrolling through the list, median", unit="ms", at_most=50),
        Figure(key="search", what="a text that is in none of the 10,000 runs: until that is said", unit="ms", digits=0),
        Figure(key="run", what="the run of 5,000 events: until its end is shown", unit="ms", at_most=3000, digits=0),
        Figure(key="run_tasks", what="the same, tasks of 50 ms and more", unit="ms", digits=0),
        Figure(key="run_worst", what="the same, the longest task", unit="ms", at_most=1000, digits=0),
        Figure(key="nodes", what="the same, elements of the page", unit="", digits=0),
    ),
)

if __name__ == "__main__":
    trio.run(_serve, int(sys.argv[1]), int(sys.argv[2]))
