"""`check_backend`: what keeps the promises passes, and each broken promise is found and named."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import check_backend

from ...support.a2a_peer import URL, Peer, served

SCHEMA = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}


class Echo(gr.backends.Backend):
    """A backend that repeats its prompt."""

    name = "echo"

    def tool(self) -> gr.Tool[..., Any]:
        return gr.Tool.from_schema(self.work, **self.options())

    def options(self) -> Any:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "description": "Repeat.",
            "effect": "delegate",
            "on_error": "raise",
            "grace": 1.0,
        }

    async def work(self, ctx: gr.ToolContext, arguments: dict[str, Any]) -> Any:
        await trio.sleep(5 if "slow" in arguments["prompt"] else 0)
        return f"echo: {arguments['prompt']}"


class Returns(Echo):
    def options(self) -> Any:
        return {**super().options(), "on_error": "return"}


class Demanding(Echo):
    def options(self) -> Any:
        return {**super().options(), "schema": {**SCHEMA, "required": ["prompt", "folder"]}}


class Background(Echo):
    def options(self) -> Any:
        return {**super().options(), "background": True}


class Changing(Echo):
    number = 0

    def options(self) -> Any:
        Changing.number += 1
        return {**super().options(), "description": f"The tool number {Changing.number}."}


class Forgetful(Echo):
    async def work(self, ctx: gr.ToolContext, arguments: dict[str, Any]) -> Any:
        if len(await ctx.messages()) > 1:
            raise gr.ToolError("I do one thing in a thread")
        return "done"


class Single(Echo):
    """Cannot be opened again."""

    opened = False

    async def prepare(self, ctx: Any) -> None:
        if Single.opened:
            raise gr.PreparationError("runtime_unavailable", "it was closed")
        return

    def open(self) -> Any:
        return self._open()

    class _Open:
        async def __aenter__(self) -> None:
            return None

        async def __aexit__(self, *_: object) -> None:
            Single.opened = True

    def _open(self) -> Any:
        return self._Open()


class Stubborn(Echo):
    async def work(self, ctx: gr.ToolContext, arguments: dict[str, Any]) -> Any:
        with trio.CancelScope(shield="slow" in arguments["prompt"]):
            return await super().work(ctx, arguments)


class Asking(Echo):
    async def work(self, ctx: gr.ToolContext, arguments: dict[str, Any]) -> Any:
        return gr.Suspend(message="Why?")


async def test_a_backend_that_keeps_its_promises_passes(autojump_clock):
    await check_backend(Echo, slow="slow")


async def test_an_agent_on_a_server_of_a2a_passes(autojump_clock, nursery):
    with served(Peer(nursery)):
        await check_backend(lambda: gr.backends.A2A(URL), slow="slow 5")


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Returns, "does not end the run"),
        (Demanding, "does not take"),
        (Background, "is a background tool"),
        (Changing, "two processes would have two tools"),
        (Forgetful, "a second prompt in the thread came to Failed"),
        (Single, "after it was closed and opened again"),
        (Stubborn, "did not end within the grace"),
        (Asking, "a first prompt came to Waiting"),
    ],
)
async def test_a_broken_promise_is_named(autojump_clock, broken, sentence):
    with pytest.raises(AssertionError, match=sentence):
        await check_backend(broken, slow="slow")
