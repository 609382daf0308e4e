"""The conformance suite of the Backend port, for the author of a backend.

    await check_backend(lambda: MyBackend(url), slow="Count to a million.")

The backend works in runs of a store in memory: it answers, answers again in the same thread and in two runs at a time,
is cancelled, and is taken up by another process. A check fails with an AssertionError whose sentence states the broken
promise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import trio

from ..agents.agent import Agent
from ..backends.agent import agent
from ..backends.backend import Backend
from ..contract.outcomes import Cancelled, Completed, Failed, Stopped, Waiting
from ..runtime.handle import Run
from ..runtime.open_runtime import open_runtime
from ..runtime.runtime import Runtime
from ..stores.memory.store import MemoryStore
from ..tools.definition import Tool

ANSWER_TIME: Final = 60.0
"""Seconds within which a backend answers a prompt of the suite."""
_BEGUN: Final = 1.0
"""Seconds of work before a cancel."""
_KEY: Final = "checked"

Ended: TypeAlias = Completed[Any] | Stopped[Any] | Waiting | Failed | Cancelled


async def check_backend(
    open_backend: Callable[[], Backend], *, prompt: str = "Say hello.", slow: str | None = None
) -> None:
    """Check the promises of a backend that can work.

    Args:
        open_backend: makes a backend, with the same work behind it each time, as two processes would.
        prompt: answered within a minute, and without a question.
        slow: a prompt that takes the backend at least three seconds; None: no work is cancelled or taken up.

    Raises:
        AssertionError: the backend breaks a promise; the sentence states which.
    """
    _check_tool(open_backend().tool(), open_backend().tool())
    worker = agent(_KEY, open_backend())
    async with _opened(MemoryStore(), worker) as runtime:
        first = await runtime.start(_KEY, prompt, thread_id="t")
        _expect_text(await _end(first), "a first prompt")
        again = await runtime.start(_KEY, prompt, thread_id="t")
        _expect_text(await _end(again), "a second prompt in the thread")
        both = [await runtime.start(_KEY, prompt) for _ in range(2)]
        for run in both:
            _expect_text(await _end(run), "two prompts at a time")
        for run in (first, again, *both):
            report = await runtime.replay(run.id)
            _expect(report.equal, f"a replay of its run differs: {report}")
    async with _opened(MemoryStore(), worker) as runtime:  # the same backend, opened again
        _expect_text(await _end(await runtime.start(_KEY, prompt)), "a prompt after it was closed and opened again")
    if slow is not None:
        await _check_cancel(worker, slow)
        await _check_next_process(open_backend, slow)


def _check_tool(tool: Tool[..., Any], other: Tool[..., Any]) -> None:
    _expect(isinstance(tool, Tool), f"tool() returned {tool!r:.100}; return a tool, such as Tool.from_schema(...)")
    fault = tool.check({"prompt": "x"})
    _expect(fault is None, f"its tool does not take {{'prompt': 'x'}}: {fault}")
    _expect(tool.on_error == "raise", "a failure of its tool does not end the run; make the tool with on_error='raise'")
    _expect(not tool.background, "its tool is a background tool, whose result is not the answer")
    _expect(tool.is_async, "its tool is not async: a thread cannot be cancelled")
    _expect(tool.info == other.info, "two processes would have two tools: name, description and schema differ")


async def _check_cancel(worker: Agent[Any], slow: str) -> None:
    async with _opened(MemoryStore(), worker) as runtime:
        run = await runtime.start(_KEY, slow)
        await trio.sleep(_BEGUN)
        await run.cancel()
        outcome = await _end(run)
        _expect(isinstance(outcome, Cancelled), f"a cancelled run ended as {outcome!r:.200}")
        unknown = outcome.outcome_unknown if isinstance(outcome, Cancelled) else ()
        _expect(not unknown, "a cancelled body did not end within the grace of its tool, or left its work in doubt")


async def _check_next_process(open_backend: Callable[[], Backend], slow: str) -> None:
    """Check that another process finishes, or asks about, what the first one has begun."""
    store = MemoryStore()
    async with _opened(store, agent(_KEY, open_backend())) as runtime:
        run_id = (await runtime.start(_KEY, slow)).id
        await trio.sleep(_BEGUN)
    async with _opened(store, agent(_KEY, open_backend())) as runtime:
        outcome = await _end(await runtime.get(run_id))
        unknown = isinstance(outcome, Waiting) and all(one.reason == "outcome_unknown" for one in outcome.tickets)
        _expect(unknown or isinstance(outcome, Completed), f"another process came to {outcome!r:.200}")


@asynccontextmanager
async def _opened(store: MemoryStore, worker: Agent[Any]) -> AsyncIterator[Runtime]:
    async with open_runtime(store, agents=[worker]) as runtime:
        yield runtime


async def _end(run: Run[Any]) -> Ended:
    with trio.move_on_after(ANSWER_TIME):
        return await run.wait()
    raise AssertionError(f"a prompt was not answered within {ANSWER_TIME:g} s")


def _expect_text(outcome: Ended, what: str) -> None:
    text = outcome.output if isinstance(outcome, Completed) else None
    _expect(isinstance(text, str), f"{what} came to {outcome!r:.300}")


def _expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
