"""Connections take file descriptors; what the process needs for its work stays free, whatever strangers do."""

import resource
import socket
import sys
from contextlib import AsyncExitStack, ExitStack, contextmanager

import pytest
import trio
from tests.support.gateway import http
from tests.support.gateway_inside import house, until
from tests.support.raw_ws import said

from greenroom.transport.gateway.descriptors import LEAST_RESERVE, raise_soft_limit, room, soft_limit
from greenroom.transport.protocol.limits import Limits

from .cli_kit import Cli
from .serving_kit import serving

FILES = 256
AGENTS = """
import os

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@gr.tool(replay="safe")
async def files() -> int:
    \"\"\"Open as many files as a tool may want.\"\"\"
    found = [open(os.devnull) for _ in range(20)]
    for file in found:
        file.close()
    return len(found)


worker = gr.Agent("worker", tools=[files], model=ScriptedModel([call("files"), "done"]))
"""


@pytest.mark.parametrize(
    ("files", "wanted"), [(None, None), (1, 1), (64, 1), (256, 192), (1024, 768), (100_000, 75_000)]
)
def test_a_quarter_of_the_descriptors_is_left_to_all_else(files, wanted):
    assert room(files) == wanted


@contextmanager
def files_allowed(soft: int):
    """The soft limit of this process, for the time of the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_program_asks_for_the_descriptors_that_its_connections_need():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with files_allowed(512):
        raise_soft_limit(1000)
        found = soft_limit()
        assert found is not None
        assert found == min(hard if hard != resource.RLIM_INFINITY else found, 1333 + LEAST_RESERVE)
        raise_soft_limit(10)
        assert soft_limit() == found, "it is never lowered"


async def test_a_gateway_takes_no_more_connections_than_there_is_room_for(caplog):
    with files_allowed(1000):
        async with house() as here:
            assert here.gateway.most == 750
    assert "750 connections at most, not 8192: this process may open 1000 files" in caplog.text


async def test_the_oldest_stranger_makes_room_for_a_newer_one_and_who_has_a_token_stays():
    async with house(limits=Limits(connections=40, strangers=5)) as here, here.talking() as known:
        async with AsyncExitStack() as stack:
            strangers = [
                await stack.enter_async_context(await trio.open_tcp_stream(here.address.host, here.address.port))
                for _ in range(5)
            ]
            await until(lambda: len(here.gateway.strangers) == 5)
            async with here.calling():
                with trio.fail_after(10):
                    assert await strangers[0].receive_some(1) == b"", "the oldest one is closed"
            for _ in range(20):
                assert (await http(here.address, "GET", "/v1/runs")).status == 200
            await known.send(said("ping", id="1"))
            assert (await known.tell())["id"] == "1"


@pytest.fixture
def small(tmp_path):
    """The command line in processes that may open 256 files, and cannot raise that."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
    start = f"{limit}; from greenroom.transport.cli import main; raise SystemExit(main())"
    (tmp_path / "agents.py").write_text(AGENTS)
    return Cli(tmp_path, tmp_path / "state", (sys.executable, "-c", start))


@pytest.mark.slow
def test_strangers_who_take_all_connections_stop_neither_a_tool_nor_the_store_nor_a_client(small):
    with serving(small, "agents.py:worker", "--db", "runs.db") as server, ExitStack() as stack:
        for _ in range(FILES + 100):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            stranger.sendall(b"GET /")
        for number in range(3):
            server.starts("worker", f"r{number}", until="run.completed")
        assert server.stops() == 0
