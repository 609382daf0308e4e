"""How far one thing travels through the house: five journeys, counted in frames of our own code.

    python scripts/journeys.py                 the table
    python scripts/journeys.py decision -v     one journey, with its functions in the order of their first calls
    python scripts/journeys.py --json

Each journey is a program with a SQLite store. `sys.setprofile` sees every call, and every time that a coroutine goes
on, in the thread of trio, between two moments that the program marks. Counted are frames of functions in supervision,
actors and transport (a comprehension is a part of its function): the calls, the distinct functions, their modules, the
returns and the hand-overs. A return is a call in another module than the call before, if that module was left before. A
hand-over is a call in another task than the call before. The threads of the store are not looked into. Tasks take turns
in a random order, so each journey is made several times and the shortest one counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.transport import connect, serve

PACKAGES: Final = ("supervision", "actors", "transport")
TOKEN: Final = "a-token-for-the-journeys"  # noqa: S105 - of a gateway that lives for a second
PATIENCE: Final = 30.0
"""Seconds for one journey."""
TIMES: Final = 3
"""Journeys of a kind, after one that warms up what is made once per process."""


# --- counting ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Trace:
    """The frames of our own code between `begin` and `end`, in the order of their calls."""

    steps: list[tuple[str, str, object]] = attrs.field(factory=list)
    active: bool = False
    _places: dict[CodeType, tuple[str, str] | None] = attrs.field(factory=dict)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """See the calls of this thread."""
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def begin(self) -> None:
        """Count from here on."""
        self.steps.clear()
        self.active = True

    def end(self) -> None:
        """Count no more."""
        self.active = False

    def _see(self, frame: FrameType, what: str, _: Any) -> None:
        if what != "call" or not self.active:
            return
        code = frame.f_code
        if code not in self._places:
            self._places[code] = place_of(code)
        place = self._places[code]
        if place is not None:
            self.steps.append((*place, executor()))

    def counts(self) -> dict[str, int]:
        """The row of the table."""
        modules_left, returns, handovers = set[str](), 0, 0
        for index, (module, _, runner) in enumerate(self.steps):
            before = self.steps[index - 1] if index else None
            if before is not None and before[0] != module:
                modules_left.add(before[0])
                returns += module in modules_left
            handovers += before is not None and before[2] != runner
        return {
            "calls": len(self.steps),
            "functions": len({(module, name) for module, name, _ in self.steps}),
            "modules": len({module for module, _, _ in self.steps}),
            "returns": returns,
            "handovers": handovers,
        }


def installed_copy() -> str | None:
    """Return the folder of a package that is installed as a copy; `place_of` counts frames of checkouts alone."""
    home = Path(gr.__file__).parent
    return str(home) if "site-packages" in home.parts else None


def place_of(code: CodeType) -> tuple[str, str] | None:
    """Module and function of a piece of our own code; None for any other, and for a part of a function."""
    parts = Path(code.co_filename).parts
    package = next((one for one in PACKAGES if one in parts), None)
    if package is None or "site-packages" in parts or code.co_name.startswith("<"):
        return None
    return "/".join(parts[parts.index(package) :]), code.co_qualname


def executor() -> object:
    """The task that runs now; None between tasks."""
    try:
        return trio.lowlevel.current_task()
    except RuntimeError:
        return None


# --- the programs -----------------------------------------------------------------------------------------------------


class Answers(gr.Model):
    """Gives the answers of a list, one per request; calls back before each and after each request."""

    name = "journeys"

    def __init__(
        self,
        answers: list[gr.ModelResponse],
        *,
        asked: Callable[[int], None] = lambda _: None,
        answered: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._answers, self._asked, self._answered = answers, asked, answered

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[Any]]:
        """The next answer."""
        self._asked(request.model_attempts)
        yield self._parts(request.model_attempts)

    async def _parts(self, number: int) -> AsyncIterator[Any]:
        await trio.sleep(0.05)  # the start of the step comes to rest first
        self._answered(number)
        yield self._answers[number]


def calling(tool: str, **arguments: Any) -> gr.ModelResponse:
    """An answer that is one call."""
    return gr.ModelResponse(text=(), calls=(gr.CallRequest(call_id="c", tool=tool, arguments=arguments),))


DONE: Final = gr.ModelResponse(text=("done",), calls=())


async def decision(trace: Trace, path: Path) -> None:
    """`run.decide(ticket.approve())` until the body runs."""

    @gr.tool(needs_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        trace.end()
        return f"paid {cents}"

    agent = gr.Agent("a", tools=[pay], model=Answers([calling("pay", cents=5), DONE]))
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Pay.")
        await run.wait()
        (ticket,) = (await run.view()).tickets
        await trio.sleep(0.1)
        trace.begin()
        await run.decide(ticket.approve())
        await run.result()


async def result(trace: Trace, path: Path) -> None:
    """Tool result until a WebSocket client has it."""

    @gr.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        await trio.sleep(0.1)  # the client has what came before
        trace.begin()
        return a + b

    agent = gr.Agent("a", tools=[add], model=Answers([calling("add", a=1, b=2), DONE]))
    async with gr.open_runtime(path, agents=[agent]) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(lambda task_status: serve(runtime, port=0, token=TOKEN, task_status=task_status))
        async with connect(address.url, token=TOKEN) as client:
            run = await runtime.start(agent, "Add.")
            async with client.follow(run.id) as events:
                async for event in events:
                    if event.type == "run.tool.result":
                        break
            trace.end()
            await run.result()
        nursery.cancel_scope.cancel()


async def answer(trace: Trace, path: Path) -> None:
    """Model answer until the next step."""

    @gr.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    model = Answers(
        [calling("add", a=1, b=2), DONE],
        asked=lambda number: trace.end() if number == 1 else None,
        answered=lambda number: trace.begin() if number == 0 else None,
    )
    agent = gr.Agent("a", tools=[add], model=model)
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Add.")
        await run.result()


async def mutation(trace: Trace, path: Path) -> None:
    """A hook's Mutation until its receipt."""
    count = gr.StateKey("count", int, default=0)

    class Counting(gr.Plugin):
        state = (count,)

        async def step_start(self, ctx: gr.PhaseContext) -> gr.Mutation:
            await trio.sleep(0.1)
            trace.begin()
            return gr.Mutation().set(count, ctx.state[count] + 1)

    class Told(gr.SQLiteStore):
        def submit(self, claim: Any, commit: Any, frames: Any, deliver: Any) -> None:
            def told(receipt: Any) -> None:
                deliver(receipt)
                if commit.state:
                    trace.end()

            super().submit(claim, commit, frames, told)

    agent = gr.Agent("a", plugins=[Counting()], model=Answers([DONE]))
    async with gr.open_runtime(Told(path), agents=[agent]) as runtime:
        run = await runtime.start(agent, "Count.")
        await run.result()


async def recovery(trace: Trace, path: Path) -> None:
    """A kill -9 until the body runs again."""
    began = trio.Event()

    def begin() -> None:
        trace.end()
        began.set()

    command = [sys.executable, __file__, "--victim", str(path)]
    async with trio.open_nursery() as nursery:
        victim: trio.Process = await nursery.start(
            partial(trio.run_process, command, capture_stdout=False, check=False)
        )
        while not path.with_suffix(".began").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.01)
        victim.kill()
    agent = waiting_agent(begin)
    trace.begin()
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        await began.wait()
        await (await runtime.get("r")).cancel()


def waiting_agent(on_begin: Callable[[], None]) -> gr.Agent:
    """One whose body waits for ever, and may run again."""

    @gr.tool(replay="safe")
    async def hold() -> str:
        """Wait."""
        on_begin()
        await trio.sleep_forever()
        return ""

    return gr.Agent("a", tools=[hold], model=Answers([calling("hold"), DONE]))


async def live_until_killed(path: Path) -> None:
    """The process that `recovery` kills."""
    agent = waiting_agent(path.with_suffix(".began").touch)
    async with gr.open_runtime(path, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Hold.", run_id="r")
        await run.result()


JOURNEYS: Final[dict[str, Callable[[Trace, Path], Awaitable[None]]]] = {
    one.__name__: one for one in (decision, result, answer, mutation, recovery)
}


# --- the table --------------------------------------------------------------------------------------------------------


def travelled(name: str) -> Trace:
    """The shortest of several journeys of a kind."""

    async def journey(trace: Trace, path: Path) -> None:
        with trio.fail_after(PATIENCE):
            await JOURNEYS[name](trace, path)

    traces = [Trace() for _ in range(1 + TIMES)]
    with tempfile.TemporaryDirectory() as folder:
        for index, trace in enumerate(traces):
            with trace.installed():
                trio.run(journey, trace, Path(folder, f"{index}.db"))
    return min(traces[1:], key=lambda trace: len(trace.steps))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(JOURNEYS))
    parser.add_argument("-v", "--verbose", action="store_true", help="the functions, with how often each is called")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--victim", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.victim is not None:
        trio.run(live_until_killed, options.victim)
    if home := installed_copy():
        parser.exit(2, f"greenroom is imported from {home}; install the checkout instead: pip install -e .\n")
    traces = {name: travelled(name) for name in options.names or JOURNEYS}
    if options.json:
        print(json.dumps({name: trace.counts() for name, trace in traces.items()}, indent=2))
        return
    print("| journey | calls | functions | modules | returns | hand-overs |\n|---|---|---|---|---|---|")
    for name, trace in traces.items():
        print(f"| {JOURNEYS[name].__doc__} | {' | '.join(map(str, trace.counts().values()))} |")
        if options.verbose:
            for module, function in dict.fromkeys((module, function) for module, function, _ in trace.steps):
                print(f"    {module}: {function}")


if __name__ == "__main__":
    main()
