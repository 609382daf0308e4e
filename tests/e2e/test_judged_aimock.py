"""Our providers against a service that is not ours: npm's @copilotkit/aimock, which answers in all four formats."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import greenroom as gr

from ..support.judges import need_node_modules, need_program
from ..support.ports import free_port
from ..support.providers import MODELS
from ..support.wait_for_port import wait_for_port

pytestmark = [pytest.mark.judge, pytest.mark.slow]


@pytest.fixture
def service() -> Iterator[str]:
    """The base URL of an aimock of this test alone, without a version."""
    node, folder, port = need_program("node"), need_node_modules("aimock"), free_port()
    program = folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    command = [node, program, "--port", str(port), "--fixtures", folder / "fixtures.json", "--log-level", "silent"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@gr.tool
async def add(a: int, b: int) -> int:
    return a + b


def agent_for(name: str, service: str) -> gr.Agent:
    base = f"{service}/v1" if name in ("chat", "responses") else service
    return gr.Agent(
        "a", tools=[add], model=MODELS[name]("gpt-5", base_url=base), plugins=[gr.Retry(first=0.01), gr.Recovery(0)]
    )


async def play(agent: gr.Agent, text: str) -> tuple[Any, list[gr.Event]]:
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, text)
        async with run.events() as events:
            seen = [event async for event in events]
        return await run.result(), seen


each_provider = pytest.mark.parametrize("name", MODELS)


@each_provider
async def test_parallel_calls_and_their_results(name, service):
    outcome, seen = await play(agent_for(name, service), "sum it up")
    assert outcome.output == "3 and 7."
    assert outcome.usage.input >= 11
    results = [event.payload["result"] for event in seen if event.type == "run.tool.result"]
    assert sorted(results) == [3, 7]
    assert "Let me see." in "".join(event.payload["text"] for event in seen if event.type == "run.reasoning.delta")


@each_provider
async def test_a_rate_limit_is_waited_out(name, service):
    outcome, seen = await play(agent_for(name, service), "busy")
    assert outcome.output == "Now."
    (retried,) = (event.payload for event in seen if event.type == "run.inference.retried")
    assert retried["code"] == "rate_limited"
    assert retried["delayMs"] >= 1000


@each_provider
async def test_a_stream_that_breaks_is_asked_for_again(name, service):
    outcome, seen = await play(agent_for(name, service), "break")
    assert outcome.output == "Whole."
    (retried,) = (event.payload for event in seen if event.type == "run.inference.retried")
    assert retried["code"] == "interrupted"


@each_provider
async def test_what_it_has_no_answer_for_is_refused(name, service):
    outcome, _ = await play(agent_for(name, service), "something else")
    assert outcome.message.startswith("model_not_found: ")


@each_provider
async def test_a_cancel_in_the_middle_of_a_stream(name, service):
    agent = agent_for(name, service)
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "count")
        with trio.fail_after(30):
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.message.delta":
                        await run.cancel()
                        break
            assert isinstance(await run.wait(), gr.Cancelled)
