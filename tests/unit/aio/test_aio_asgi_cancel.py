"""A server or a framework cancels a request of the gateway: the request ends, and nothing is cancelled later."""

import asyncio  # noqa: TID251 - the host of the tests

import pytest
import trio
from tests.support.in_asyncio import in_asyncio

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call
from greenroom.transport.server.asgi_app import FAREWELL

TOKEN = "t" * 20


@gr.tool
async def wait() -> str:
    """Wait."""
    await trio.sleep_forever()
    return ""


def scope_of(run_id):
    headers = {"host": "localhost:8765", "authorization": f"Bearer {TOKEN}", "accept": "text/event-stream"}
    return {
        "type": "http",
        "method": "GET",
        "path": f"/v1/runs/{run_id}/events",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 1),
    }


class Server:
    """Takes the messages of a response; with `stuck`, not the last one."""

    def __init__(self, *, stuck):
        self.stuck, self.messages, self.asked = stuck, [], False
        self.streams = asyncio.Event()

    async def receive(self):
        if self.asked:
            await asyncio.Event().wait()
        self.asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message):
        if self.stuck and not message.get("more_body", True):
            await asyncio.Event().wait()
        self.messages.append(message)
        if b"data:" in message.get("body", b""):
            self.streams.set()


@pytest.mark.parametrize("stuck", [False, True])
@in_asyncio
async def test_a_time_limit_around_a_stream_is_one_cancellation(stuck) -> None:
    agent = gr.Agent("waits", model=ScriptedModel([call("wait"), "done"]), tools=[wait])
    async with aio.open_runtime(agents=[agent]) as runtime, aio.asgi_app(runtime, token=TOKEN) as app:
        run, server, task = await runtime.start("waits", "hi"), Server(stuck=stuck), asyncio.current_task()
        with pytest.raises(TimeoutError):
            await _until_streaming(app(scope_of(run.id), server.receive, server.send), server)
        assert task.cancelling() == 0
        assert stuck or server.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        await asyncio.sleep(FAREWELL + 0.2)  # a late cancel would end this
        await run.cancel()


async def _until_streaming(response, server):
    """Wait for a response with a time limit that ends once it streams."""
    async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
        tasks.create_task(_expire(server, limit))
        await response


async def _expire(server, limit):
    await server.streams.wait()
    limit.reschedule(0)
