"""Agents on servers of A2A do the work of agents here: PyPI a2a-sdk, npm @a2a-js/sdk, and Greenroom's own."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.a2a_servers import RemoteServer, remote_server
from ..support.judges import FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]
SERVERS = [("python", "HTTP+JSON"), ("python", "JSONRPC"), ("js", "HTTP+JSON"), ("js", "JSONRPC"), ("own", "HTTP+JSON")]


@pytest.fixture(scope="module", params=SERVERS, ids="-".join)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteServer]:
    with remote_server(request.param[0], tmp_path_factory.mktemp("remote"), request.param[1]) as server:
        yield server
        assert len(server.executed) == len(set(server.executed))  # by the server's own count, over all tests


def test_the_versions_of_the_judges(server: RemoteServer, capsys: pytest.CaptureFixture[str]) -> None:
    lock = json.loads((FOLDER / "a2a" / "package-lock.json").read_text())
    npm = lock["packages"]["node_modules/@a2a-js/sdk"]["version"]
    with capsys.disabled():
        sys.stdout.write(f"[{server.kind}: a2a-sdk {version('a2a-sdk')}, @a2a-js/sdk {npm}] ")
    assert npm


def far(server: RemoteServer, **options: Any) -> gr.Agent[Any]:
    return gr.backends.agent("far", server.backend(), **options)


def answered(ticket: gr.Ticket, result: str) -> gr.Decision:
    """The answer to a question of either kind of server."""
    plain = ticket.response_schema == {"type": "string"}
    return ticket.approve(result if plain else {"action": "approve", "result": result}, by="ada")


async def events_of(run: gr.Run[Any]) -> list[gr.Event]:
    async with run.events() as events:
        return [event async for event in events]


async def test_a_text_comes_back_as_the_agent_says_it(server):
    async with gr.open_runtime(agents=[far(server)]) as runtime:
        run = await runtime.start("far", "slow 0.3")
        assert (await run.result()).output.endswith("2 ")
        said = [event.payload["text"] for event in await events_of(run) if event.type == "run.message.delta"]
        assert "".join(said).startswith("0 1 2 ")
        assert (await runtime.replay(run.id)).equal


async def test_files_go_there_and_come_back(server):
    async with gr.open_runtime(agents=[far(server)]) as runtime:
        file = gr.File(b"abc", media_type="text/plain", name="a.txt")
        run = await runtime.start("far", "files", attachments=[file])
        assert (await run.result()).output.startswith("got: a.txt text/plain 3")
        (result,) = [event.payload for event in await events_of(run) if event.type == "run.tool.result"]
        assert '"name":"menu.csv"' in str(result["result"]).replace("'", '"').replace(": ", ":")


async def test_the_other_side_asks_twice_and_each_answer_is_executed_once(server):
    before = len(server.executed)
    async with gr.open_runtime(agents=[far(server)]) as runtime:
        run = await runtime.start("far", "ask twice")
        for number in range(2):
            (ticket,) = (await run.wait()).tickets
            assert (ticket.message, ticket.reason) == ("which order?", "user_input")
            await run.decide(answered(ticket, f"order {number}"))
        assert (await run.result()).output == "done: order 1"
    executed = server.executed[before:]
    assert len(executed) == len(set(executed)) == 3


@attrs.frozen
class Price:
    tea: float  # protobuf knows no integers in data


async def test_data_of_the_other_side_are_an_output_of_a_type(server):
    agent = gr.backends.agent("far", server.backend("prices"), output_type=Price)
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("far", "data")
        assert (await run.result()).output == Price(tea=3)


async def test_another_agent_uses_the_remote_one_as_a_tool_and_the_mirror_is_decided(server):
    boss = gr.Agent(
        "boss",
        model=ScriptedModel([call("ask_far", input="ask"), "It says so."]),
        tools=[far(server).as_tool(name="ask_far")],
    )
    async with gr.open_runtime(agents=[boss]) as runtime:
        run = await runtime.start(boss, "Ask.")
        (mirror,) = (await run.wait()).tickets
        assert (mirror.reason, mirror.message) == ("child_approval", "which order?")
        await run.decide(answered(mirror, "order 7"))
        assert (await run.result()).output == "It says so."
        result = [event.payload["result"] for event in await events_of(run) if event.type == "run.tool.result"]
        assert result == ["done: order 7"]


async def test_another_agent_hands_over_to_the_remote_one(server):
    agent = far(server)
    boss = gr.Agent("boss", model=ScriptedModel([call("transfer_to_far")]), handoffs=[agent])
    async with gr.open_runtime(agents=[boss, agent]) as runtime:
        run = await runtime.start(boss, "hello")
        assert (await run.result()).output == "done: hello"


async def test_a_cancelled_run_cancels_the_task_and_so_does_a_deadline(server):
    async with gr.open_runtime(agents=[far(server)]) as runtime:
        run = await runtime.start("far", "slow 30")
        await told(run)
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
        late = await runtime.start("far", "slow 30", deadline=datetime.now(UTC) + timedelta(seconds=1))
        outcome = await late.result()
        assert (type(outcome), outcome.code) == (gr.Failed, "run_timeout")
        assert outcome.outcome_unknown == ()
    if server.kind != "own":
        assert server.count.read_text().count("cancel ") >= 2


async def told(run: gr.Run[Any]) -> None:
    """Wait until the other side has said something."""
    with trio.fail_after(20):
        async with run.events() as events:
            async for event in events:
                if event.type == "run.message.delta":
                    return


async def test_a_failure_there_is_a_failed_run_here(server):
    async with gr.open_runtime(agents=[far(server)]) as runtime:
        outcome = await (await runtime.start("far", "fail")).result()
        assert (type(outcome), outcome.code) == (gr.Failed, "runtime_failed")
