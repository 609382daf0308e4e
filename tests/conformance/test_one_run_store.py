"""A command about one run opens a database without taking up what else is unfinished there."""

from pathlib import Path

import trio

import greenroom as gr
from greenroom.actors.testing.store_kit._tools import create, new_run, opened
from greenroom.transport.server.one_run import OneRunStore

from ..support.runs import agent


async def test_only_the_run_of_the_command_is_worked_on(tmp_path: Path, autojump_clock) -> None:
    """Another run, which its process left in the middle of its work, is as it was."""
    path = tmp_path / "runs.db"
    async with opened(first := gr.SQLiteStore(path, writer="inline")):
        await create(first, new_run("left", "t", agent="helper"))
    async with gr.open_runtime(OneRunStore(path, writer="inline"), agents=[agent("hello", key="helper")]) as runtime:
        run = await runtime.start("helper", "hi", run_id="mine")
        assert (await run.result()).output == "hello"
        await trio.sleep(600)
        assert len(await runtime.store.events("left")) == 1
    async with gr.open_runtime(gr.SQLiteStore(path, writer="inline"), agents=[agent("hello", key="helper")]) as runtime:
        await (await runtime.get("left")).result()
        assert len(await runtime.store.events("left")) > 1
