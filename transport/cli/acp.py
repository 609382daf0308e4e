"""`greenroom acp`: an agent for editors, on standard streams."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from functools import partial

import attrs

import greenroom as gr
from greenroom.actors.backends.lines import LineReader
from greenroom.supervision.nursery import open_collapsing_nursery

from ..acp.agent import ACPAgent
from ..acp.link import GatewayLink
from ..acp.servers import BridgedServers, EditorServers, with_servers
from . import paths
from .bridge import BridgeGateway, StandardStreams, read_bridge, run_bridge
from .owner import where
from .serve import log_to_the_operator


def acp(args: argparse.Namespace) -> int:
    """Run the command."""
    bridge, servers = read_bridge(args), EditorServers()
    agents = tuple(with_servers(agent, servers) for agent in bridge.agents)
    return run_bridge(attrs.evolve(bridge, agents=agents), partial(_speak, args, servers))


async def _speak(
    args: argparse.Namespace, kept: EditorServers, gateway: BridgeGateway, streams: StandardStreams
) -> None:
    link = GatewayLink()
    place, in_memory = where(args), bool(gateway.bridge.agents) and gateway.bridge.place is None

    def answer_elsewhere(run_id: str) -> str:
        command = "" if in_memory else f", or with: {paths.typed('approve', run_id, *place)}"
        return f"Answer in the console at {link.url}{command}"

    async def write(line: bytes) -> None:
        await streams.write_line(line.removesuffix(b"\n"))

    log_to_the_operator()
    async with open_collapsing_nursery() as nursery:
        await nursery.start(link.stay_connected, gateway)
        agent = await _agent_key(link, args.agent)
        servers = BridgedServers(lambda: gateway.runtime, kept)
        editor = ACPAgent(link, agent, write, where=answer_elsewhere, servers=servers)
        await editor.serve(_lines(streams))
        nursery.cancel_scope.cancel()


async def _agent_key(link: GatewayLink, wanted: str | None) -> str:
    """Return the key of the agent that works on prompts.

    Raises:
        UsageError: The gateway has no such agent, or several and none is named.
    """
    keys = await link.call(lambda client: client.agents())
    names = ", ".join(keys)
    if wanted is not None and wanted not in keys:
        raise gr.UsageError(f"--agent {wanted}: the gateway has no such agent; it has {names or 'none'}")
    if wanted is None and len(keys) != 1:
        way = f"name one with --agent: {names}" if keys else "start it with an agent"
        raise gr.UsageError(f"the gateway has {len(keys)} agents; {way}")
    return wanted or keys[0]


async def _lines(streams: StandardStreams) -> AsyncIterator[bytes | None]:
    reader = LineReader()
    while data := await streams.read():
        for line in reader.feed(data):
            yield line
    last = reader.end()
    if last != b"":
        yield last
