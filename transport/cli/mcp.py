"""`greenroom mcp`: an MCP server on the standard streams, whose messages a gateway answers.

Theory of operation. Each line of the client is posted to `/v1/mcp`, and each message of the answer is a line. The
bridge keeps no state of a run: a post that was cut, because the gateway has ended, is resumed behind its last event,
or posted again, and both find the same run (`mcp_post.py`). So a call outlives the gateway, unnoticed by the client.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

import greenroom as gr
from greenroom.actors.backends.lines import LineReader
from greenroom.supervision.fields import did_you_mean
from greenroom.supervision.nursery import open_collapsing_nursery

from ..client.endpoint import read_endpoint
from ..client.http_requests import fetch
from ..frontends.mcp.messages import INVALID_REQUEST, REFUSED, RequestId
from .bridge import BridgeGateway, StandardStreams, read_bridge, run_bridge
from .mcp_post import Post, Poster
from .mcp_session import LINE_LIMIT, McpSession, failure, read_line
from .owner import ServedBy

MOST: Final = 1_000
"""Requests that are open concurrently; a further one is answered with an error."""
FAREWELL: Final = 2.0
"""Seconds for the open requests to be answered after the end of the input."""
ORDER: Final = 5.0
"""Seconds for which a cancel waits for the answer to begin that it cancels."""


def mcp(args: argparse.Namespace) -> int:
    """Run the command."""
    return run_bridge(read_bridge(args), partial(_speak, args.agent))


async def _speak(agent: str | None, gateway: BridgeGateway, streams: StandardStreams) -> None:
    address = await gateway.address()
    await _check(address, agent, [one.key for one in gateway.bridge.agents])
    poster = Poster(gateway, McpSession(agent), streams.write_line)
    await poster.learn_tools(address)
    await McpBridge(poster, streams).run()


async def _check(address: ServedBy, agent: str | None, loaded: Sequence[str]) -> None:
    """Check that the gateway answers and takes the token, and that it has the agents.

    Args:
        address: The gateway.
        agent: The key of the only agent to show.
        loaded: The keys of the agents that the command names; a gateway that runs already may have others.

    Raises:
        UsageError: The gateway has no agent with one of these keys.
        ConnectError: The gateway does not answer, or refuses.
    """
    endpoint = read_endpoint(address.url)
    answer = await fetch(endpoint, "/v1/agents", token=address.token or endpoint.token)
    keys = [line["key"] for line in answer["agents"] if line["here"]]
    names = ", ".join(keys) or "none"
    lacking = next((key for key in loaded if key not in keys), None)
    if lacking is not None:
        way = "restart that server with it, or name another database"
        raise gr.UsageError(f"{endpoint.url} has the database open, and no agent {lacking!r} (but: {names}); {way}")
    if agent is not None and agent not in keys:
        near = did_you_mean(agent, keys)
        raise gr.UsageError(f"--agent {agent}: {endpoint.url} has no such agent; {near}its agents are: {names}")


class McpBridge:
    """One client on the standard streams.

    Args:
        poster: Delivers the lines to the gateway.
        streams: Where the client is.
    """

    def __init__(self, poster: Poster, streams: StandardStreams) -> None:
        self._poster, self._streams = poster, streams
        self._posts: dict[RequestId, Post] = {}

    def __repr__(self) -> str:
        return f"<McpBridge: {len(self._posts)} open requests>"

    async def run(self) -> None:
        """Speak until the input ends, and `FAREWELL` seconds longer while requests are open.

        Raises:
            BrokenPipeError: The client has closed the output.
        """
        lines = LineReader(LINE_LIMIT)
        async with open_collapsing_nursery() as nursery:
            while piece := await self._streams.read():
                for line in lines.feed(piece):
                    await self._take(nursery, line)
            await self._take(nursery, lines.end())
            nursery.cancel_scope.deadline = trio.current_time() + FAREWELL

    async def _take(self, nursery: trio.Nursery, data: bytes | None) -> None:
        if data is None:
            fault = f"the line has more than {LINE_LIMIT:,} bytes; send a shorter one"
            await self._streams.write_line(failure(None, fault, INVALID_REQUEST))
            return
        if not data.strip():
            return
        line = read_line(data, f"mcp_{secrets.token_hex(12)}")
        cancelled = None if line.cancels is None else self._posts.get(line.cancels)
        if cancelled is not None and cancelled.line.modern:
            cancelled.scope.cancel()  # a closed stream is the cancel of that era
        elif len(self._posts) >= MOST and line.id is not None:
            fault = f"{MOST:,} requests are open; wait for one of them to end"
            await self._streams.write_line(failure(line.id, fault, REFUSED))
        else:
            post = Post(line)
            if cancelled is not None:
                cancelled.cancelled = True
            if line.id is not None:
                self._posts[line.id] = post
            if line.method == "initialize":
                await self._deliver(post, None)  # its answer has the session of the lines behind it
            else:
                nursery.start_soon(self._deliver, post, cancelled)

    async def _deliver(self, post: Post, cancelled: Post | None) -> None:
        try:
            with post.scope:
                if cancelled is not None:
                    with trio.move_on_after(ORDER):
                        await cancelled.begun.wait()
                await self._poster.deliver(post)
        finally:
            post.begun.set()
            if post.line.id is not None and self._posts.get(post.line.id) is post:
                del self._posts[post.line.id]
