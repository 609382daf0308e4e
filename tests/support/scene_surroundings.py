"""Surroundings of scenes: a workspace that takes a while to prepare, and a tool that prepares itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

import greenroom as gr

PREPARING = 10.0
"""Virtual seconds of a preparation."""


@attrs.define(eq=False)
class Shop(gr.Surroundings):
    """The workspace `shop`, which no crash of ours undoes.

    Attributes:
        place: where it is.
        seconds: how long each preparation takes.
        ends: what a preparation does after that; it may raise.
        begun, ended: the runs whose preparations began, and ended by themselves.
        stubborn: preparations that ignore their cancel take so many seconds longer.
    """

    place: str = "here"
    seconds: float = PREPARING
    ends: Callable[[], Any] = lambda: None
    begun: list[str] = attrs.field(factory=list)
    ended: list[str] = attrs.field(factory=list)
    stubborn: float = 0.0

    async def open(self) -> Mapping[str, str]:
        return {"shop": self.place}

    def check(self, workspace: str) -> str | None:
        return f"{workspace!r} is not a folder that a run may use" if ".." in workspace else None

    async def prepare(self, info: gr.RunInfo) -> Any:
        self.begun.append(info.run_id)
        try:
            await trio.sleep(self.seconds)
        finally:
            if self.stubborn:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.stubborn)
        self.ended.append(info.run_id)
        return self.ends() or gr.Preparation(facts={"name": info.workspace, "files": 3})

    def of(self, info: gr.RunInfo) -> object:
        return f"the copy of {info.workspace} for {info.thread_id}"

    def roots(self) -> Sequence[str]:
        return ()


def raising(error: Exception) -> Callable[[], Any]:
    """An end of a preparation that fails."""

    def end() -> Any:
        raise error

    return end


MISSING = gr.PreparationError("runtime_unavailable", "there is no git; install git 2.38 or newer", reason="missing")


def probe(log: list[Any], result: Any = None) -> gr.Tool[..., Any]:
    """A tool that prepares itself."""

    async def prepare(ctx: gr.PreparationContext[Any]) -> Any:
        log.append((ctx.info.run_id, ctx.workspace))
        await trio.sleep(1)
        if isinstance(result, Exception):
            raise result
        return result

    @gr.tool(prepare=prepare)
    async def program() -> str:
        """Work."""
        return "worked"

    return program
