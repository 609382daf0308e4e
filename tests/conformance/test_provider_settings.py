"""Tools, files and caches that a provider has, in real runs: what its own tools did stays with the thread."""

import json

import pytest

import greenroom as gr
from greenroom.testing import FaultReply, open_fault_server, reply

from ..support.providers import model_of

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So.", "annotations": []}]}


def searched() -> FaultReply:
    """An answer of responses, with a search in front of the text."""
    events = (
        {"type": "response.output_item.done", "output_index": 0, "item": SEARCH},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "So."},
        {"type": "response.output_item.done", "output_index": 1, "item": SAID},
        {"type": "response.completed", "response": {"status": "completed"}},
    )
    return reply(raw=b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events))


@pytest.mark.rule("M-15", "M-21")
async def test_a_search_of_the_provider_goes_back_in_the_next_run_of_the_thread_and_to_it_alone(tmp_path):
    """Also after a restart; another provider gets the text."""
    settings = {"provider_tools": [{"type": "web_search"}], "provider_files": ["file-1"]}
    path = tmp_path / "runs.db"
    async with open_fault_server(searched(), reply("Again."), reply("Third.")) as server:
        agent = gr.Agent("reader", model=model_of("responses", server), settings=settings)
        async with gr.open_runtime(path, agents=[agent]) as runtime:
            run = await runtime.start(agent, "Search.")
            assert (await run.result()).output == "So."
            thread_id = run.thread_id
            async with run.events() as events:
                assert "web_search" not in repr([event.payload async for event in events])
        async with gr.open_runtime(path, agents=[agent]) as runtime:
            assert (await (await runtime.start(agent, "And?", thread_id=thread_id)).result()).output == "Again."
        other = gr.Agent("reader", model=model_of("chat", server))
        async with gr.open_runtime(path, agents=[other]) as runtime:
            assert (await (await runtime.start(other, "Else?", thread_id=thread_id)).result()).output == "Third."
        first, second, third = (asked.body for asked in server.requests)
    assert first["tools"] == [{"type": "web_search"}]
    assert second["input"][1:3] == [SEARCH, SAID]
    assert second["input"][0]["content"][0] == {"type": "input_file", "file_id": "file-1"}
    assert "web_search" not in repr(third)
    assert third["messages"][1] == {"role": "assistant", "content": "So."}
