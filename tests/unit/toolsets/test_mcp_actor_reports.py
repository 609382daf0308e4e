"""What the actor of an MCP server hands on of a server that says too much."""

import logging
from typing import Any

import trio
from mcp import types

from greenroom.actors.contract.codec import MESSAGE_LIMIT
from greenroom.actors.toolsets.mcp_actor import ServerActor
from greenroom.actors.toolsets.mcp_messages import CallArguments, CallTool, Progressed
from greenroom.supervision import Reply


class Loud:
    """A client whose server reports a progress of a megabyte, and answers."""

    def __init__(self) -> None:
        self.session = self

    async def send_request(self, _: Any, __: Any, *, progress_callback: Any) -> types.CallToolResult:
        await progress_callback(0.5, 1.0, "x" * 2**20)
        return types.CallToolResult(content=[])


def actor(lines: list[str]) -> ServerActor:
    return ServerActor("loud", None, log=lambda _, text: lines.append(text), idle=None, version="0")  # type: ignore[arg-type]


async def test_the_text_of_a_progress_is_shortened_before_it_waits_for_the_body():
    outgoing, incoming = trio.open_memory_channel[Any](4)
    call = CallArguments(tool="t", arguments={}, meta={})
    message = CallTool(reply=Reply(), call=call, run_id="r", steps=outgoing)
    await actor([])._send(Loud(), message)  # type: ignore[arg-type]
    progress = incoming.receive_nowait()
    assert isinstance(progress, Progressed)
    assert len(progress.text) <= MESSAGE_LIMIT


async def test_the_log_of_a_server_is_not_formatted_unless_it_is_shown(caplog):
    lines: list[str] = []
    for level, shown in ((logging.INFO, []), (logging.DEBUG, ["info: 7"])):
        caplog.set_level(level, "greenroom.mcp")
        await actor(lines)._logged(types.LoggingMessageNotificationParams(level="info", data=7))
        assert lines == shown
