"""Classes of the user's may refuse a value in any words: the model reads why, and the run continues."""

import asyncio  # noqa: TID251 - user code is written for it
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.scene_tools import Speechless
from ..support.scenes import deny

WORDS: dict[str, tuple[Callable[[], Exception], str]] = {
    "no text": (Speechless, "(its message cannot be shown)"),
    "no utf-8": (lambda: RuntimeError("half \ud800 a character"), "half ? a character"),
    "no utf-8 of a value": (lambda: ValueError("half \ud800 a character"), "half ? a character"),
    "long": (lambda: RuntimeError("x" * 100_000), "x" * 1_999 + "…"),
}
words = pytest.mark.parametrize(("make", "said"), WORDS.values(), ids=WORDS)


def order(make: Callable[[], Exception]) -> Any:
    """A class whose values refuse what is below zero."""

    def check(self: Any) -> None:
        if self.n < 0:
            raise make()

    return dataclasses.make_dataclass("Order", [("n", int)], namespace={"__post_init__": check})


@words
async def test_arguments(play, autojump_clock, make, said):
    async def body(order: Any) -> str:
        return "taken"

    body.__annotations__["order"] = order(make)
    life = await play([call("take", id="A", order={"n": -1})], "done", tools=[gr.tool(body, name="take")])
    assert (life.codes["A"], life.outcome.output) == ("invalid_arguments", "done")
    assert life.tool_texts["A"].startswith(f"Invalid arguments: {said} - at")


@words
async def test_an_answer(play, autojump_clock, make, said):
    kind = order(make)
    life = await play('{"n": -1}', '{"n": 1}', output_type=kind)
    assert life.outcome.output == kind(1)
    assert f"not JSON of the expected form: {said}" in life.history[2]


@words
async def test_a_formatter_of_denials(play, autojump_clock, make, said):
    def denial(ticket: gr.Ticket, decision: gr.Decision) -> str:
        raise make()

    @gr.tool(needs_approval=True)
    async def sign() -> str:
        """Sign."""
        return "signed"

    life = await play([call("sign", id="A")], "done", do=[deny("A", "no")], tools=[sign], denial=denial)
    (degraded,) = life.payloads("degraded")
    assert degraded["detail"].endswith(f": it raised {type(make()).__name__}: {said}")


@words
async def test_a_provider_of_deps(autojump_clock, make, said):
    def deps(_: object) -> object:
        raise make()

    helper = gr.Agent("helper", model=ScriptedModel(["done"]))
    async with gr.open_runtime(agents=[helper], deps=deps) as runtime:
        run = await runtime.start(helper, "hi")
        with pytest.raises(gr.RunDegradedError) as caught:
            await run.wait()
    text = f"the provider failed, and is asked again: {type(make()).__name__}: {said}"
    assert caught.value.detail == f"{text} (error_id {run.id}/deps)"


async def test_a_provider_that_finds_none_names_no_secret(autojump_clock):
    def deps(_: object) -> object:
        raise LookupError("no account for hunter2-hunter2")

    helper = gr.Agent("helper", model=ScriptedModel(["done"]))
    async with gr.open_runtime(agents=[helper], deps=deps, secrets=["hunter2-hunter2"]) as runtime:
        run = await runtime.start(helper, "hi")
        with pytest.raises(gr.RunDegradedError) as caught:
            await run.wait()
    assert "hunter2" not in caught.value.detail


async def _of_asyncio(*_: Any) -> str:
    return await asyncio.sleep(0.001, "slept")


async def test_a_tool_for_asyncio_fails_with_a_sentence_that_names_trio_and_the_way_out(play, autojump_clock):
    @gr.tool
    async def rest() -> str:
        """Rest."""
        return await _of_asyncio()

    life = await play([call("rest", id="A")], "done", tools=[rest])
    text = "no running event loop; asyncio does not run here, trio does: use a library for trio or anyio"
    assert text in life.tool_texts["A"]


async def test_so_does_a_function_of_the_agent(play, autojump_clock):
    failed = await play("done", instructions=_of_asyncio)
    assert "asyncio does not run here, trio does" in failed.outcome.message


async def test_the_way_out_works_in_a_worker_thread():
    assert await trio.to_thread.run_sync(asyncio.run, _of_asyncio()) == "slept"
