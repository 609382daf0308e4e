"""A toolset of the scenes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import call

TITLE: Any = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
ANY: Any = {"type": "object"}
MAKE = call("github__make", {"title": "a"}, id="M")


@attrs.define(eq=False)
class Github(gr.Toolset):
    """A toolset of a scene: two tools, and what was asked of it.

    Attributes:
        faults: raised by the first calls of `tools`, one after the other; None: that call answers.
        find_fault: raised by `find`.
        forgets: `find` has no tool.
        done: the arguments of the bodies that have run.
        asked: the steps in which it was asked.
        opened: how often it was opened and closed.
    """

    name: str = "github"
    text: str = "Make an issue."
    options: dict[str, Any] = attrs.field(factory=dict)
    faults: list[BaseException | None] = attrs.field(factory=list)
    find_fault: BaseException | None = None
    forgets: bool = False
    seconds: float = 0.0
    on_unavailable: Any = "skip"
    more: Sequence[Any] = ()
    done: list[Any] = attrs.field(factory=list)
    asked: list[int] = attrs.field(factory=list)
    found: list[str] = attrs.field(factory=list)
    opened: list[int] = attrs.field(factory=lambda: [0, 0])

    def make(self) -> list[Any]:
        async def make(ctx: Any, arguments: dict[str, Any]) -> Any:
            self.done.append(arguments)
            return {"made": arguments["title"]}

        async def read(ctx: Any, arguments: dict[str, Any]) -> Any:
            return 3

        return [
            gr.Tool.from_schema(make, schema=TITLE, name="github__make", description=self.text, **self.options),
            gr.Tool.from_schema(read, schema=ANY, name="github__list", description="List."),
            *self.more,
        ]

    async def tools(self, ctx: Any) -> Any:
        self.asked.append(ctx.step)
        await trio.sleep(self.seconds)
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return self.make()

    async def find(self, info: gr.RunInfo, name: str) -> Any:
        self.found.append(name)
        if self.find_fault is not None:
            raise self.find_fault
        return None if self.forgets else next((tool for tool in self.make() if tool.name == name), None)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.opened[0] += 1
        try:
            yield
        finally:
            self.opened[1] += 1
