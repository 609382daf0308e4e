"""A run with background tasks: each task ends once, none is repeated."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..stage import Book, World, broken_calls, broken_log, decode_event
from .subject import Subject, beginning

CODES = ("outcome_unknown", "tool_error", "internal_error")
"""Of a task that has failed: the outcome is unknown, its body was struck, its actor was struck."""


def named(ctx: gr.ToolContext[Book]) -> gr.ToolContext[Book]:
    """For the book, which knows bodies by their call."""
    return attrs.evolve(ctx, call_id=ctx.task_id or ctx.call_id)


@gr.tool(background=True, replay="safe")
async def fetch(ctx: gr.ToolContext[Book]) -> str:
    """May be repeated."""
    with ctx.deps.body(named(ctx)):
        await ctx.progress(0.5)
        await trio.sleep(0.4)
    return "fetched"


@gr.tool(background=True)
async def crawl(ctx: gr.ToolContext[Book], site: str) -> str:
    """Must never be repeated."""
    with ctx.deps.body(named(ctx)):
        await trio.sleep(0.3)
    return f"crawled {site}"


@gr.tool(replay="safe")
async def boss(ctx: gr.ToolContext[Book]) -> str:
    """Spawns one, and is run again after a crash."""
    task = await ctx.spawn(crawl, site="b")
    await trio.sleep(0.1)
    return task


def crawling(execution: Any) -> gr.Agent:
    """The agent of these sweeps."""
    calls = [call("fetch", id="F"), call("crawl", site="a", id="C"), call("boss", id="B")]
    model = ScriptedModel([calls, *["done"] * 12])
    return gr.Agent("crawling", tools=[fetch, crawl, boss], model=model, execution=execution)


def world(_: None, folder: Path | None, execution: str, **options: Any) -> World:
    return World(folder=folder, execution=execution, make_agent=crawling, **options)


def check(_: None, world: World) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from world.book.faults
    if world.ended is None:
        yield "the run never came to its end"
        return
    frames, record, history = world.ended
    events = [decode_event(frame) for frame in frames]
    yield from broken_log(events, frames, world.book.seen)
    yield from broken_calls(events, record, history)
    yield from broken_tasks(events, history, world.book.bodies)
    started = {event.payload["taskId"] for event in events if event.type == "run.task.started"}
    if world.injected is None and started != {"F.task1", "C.task1", "B.task1"}:
        yield f"of the tasks only {sorted(started)} were started"


def broken_tasks(events: list[gr.Event], history: Any, bodies: Counter[str]) -> Iterator[str]:
    """Each task has one end and one message; one that must not be repeated ran at most once, and says so if it did."""
    started = {event.payload["taskId"] for event in events if event.type == "run.task.started"}
    ended = {event.payload["taskId"]: event.payload for event in events if event.type == "run.task.finished"}
    finishes = sum(event.type == "run.task.finished" for event in events)
    if started != set(ended) or finishes != len(ended):
        yield f"{sorted(started)} were started, {finishes} of {sorted(ended)} ended"
    notes = Counter(message.task_id for message in history if message.kind == "task_finished")
    if notes != Counter(started):
        yield f"the model is told of {notes}"
    for name, end in ended.items():
        times = bodies[f"r/{name}"]
        if end["tool"] == "crawl" and times > 1:
            yield f"{name} ran {times} times"
        if end["status"] == "succeeded" and not times:
            yield f"{name} succeeded without having run"
        if end["status"] == "failed" and end["code"] not in CODES:
            yield f"{name} ended with {end}"


TASKS = Subject(
    world,
    check,
    victims={"run": beginning("runtime/r"), "call": beginning("call:")},
    plan=[("memory", "parallel_streaming"), ("sqlite", "parallel_streaming")],
    points=12,
    cancels=False,
)
