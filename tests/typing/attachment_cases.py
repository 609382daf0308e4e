"""What type checkers must know of images and files; checked by test_typing.py, never run."""

from pathlib import Path
from typing import assert_type

from greenroom.actors.agents.agent import Agent
from greenroom.actors.agents.attachments import File, Image
from greenroom.actors.contract.messages import Message, ModelRequest
from greenroom.actors.contract.outcomes import Completed
from greenroom.actors.contract.parts import Part
from greenroom.actors.runtime.handle import Run
from greenroom.actors.runtime.open_runtime import run
from greenroom.actors.runtime.runtime import Runtime
from greenroom.actors.testing import ScriptedModel
from greenroom.actors.tools import tool


@tool
def chart(title: str) -> Image:
    return Image(Path(title).read_bytes())


@tool
async def report() -> list[str | Image | File]:
    return ["the report", Image(url="https://example.org/a.png"), File(b"a", media_type="a/b", name="a.b")]


writer = Agent("writer", model=ScriptedModel(["done"]), tools=[chart, report])
Image("chart.png")  # type: ignore[arg-type]
Image(b"", "image/png")  # type: ignore[call-arg]
File(b"")  # type: ignore[call-arg]


async def started(runtime: Runtime) -> None:
    handle = await runtime.start(writer, "Write.", attachments=[Image(b"a"), File(b"b", media_type="a/b")])
    assert_type(handle, Run[str])
    await runtime.start(writer, "Write.", attachments=(Image(b"a"),))
    await runtime.start(writer, "Write.", attachments=[b"a"])  # type: ignore[list-item]
    outcome = await run(writer, "Write.", attachments=[Image(b"a")])
    if isinstance(outcome, Completed):
        assert_type(outcome.output, str)
    part = (await handle.view()).messages[0].parts[0]
    assert_type(part, Part)
    assert_type(part.data, bytes | None)
    assert_type(await handle.part(part), bytes)


def answer(request: ModelRequest, message: Message) -> int:
    return sum(len(part.data or b"") for part in (*request.messages[-1].parts, *message.parts))
