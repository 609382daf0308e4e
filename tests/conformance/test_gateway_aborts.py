"""Chat streams that their client closes, messages that wait behind a run, scopes, and fields of a query."""

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Principal

from ..support.gateway import TOKEN, gateway, http
from ..support.raw_ws import calling
from ..support.runs import agent

pytestmark = pytest.mark.slow

PATIENCE = 60.0
WATCHER = Principal(name="watcher", token="w" * 20, scopes={"follow"})
OPERATOR = Principal(name="operator", token=TOKEN)


class Work:
    """A tool that works until it may end."""

    def __init__(self) -> None:
        self.started, self.may_end = trio.Event(), trio.Event()

        @gr.tool(replay="safe")
        async def work() -> str:
            """Work."""
            self.started.set()
            await self.may_end.wait()
            return "worked"

        self.tool = work


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


def ai_sdk(message: str, words: str = "hi") -> tuple[str, Any]:
    asked = {"id": message, "role": "user", "parts": [{"type": "text", "text": words}]}
    return "/v1/ai-sdk/v6/agents/helper/chat", {"id": "chat", "trigger": "submit-message", "messages": [asked]}


def ag_ui(message: str, words: str = "hi") -> tuple[str, Any]:
    body = {
        "threadId": "chat",
        "runId": f"r-{message}",
        "messages": [{"id": message, "role": "user", "content": words}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    return "/v1/ag-ui/agents/helper/run", body


PROTOCOLS = pytest.mark.parametrize("asked", [ai_sdk, ag_ui])


@asynccontextmanager
async def streaming(address, target: str, body: Any = None, *, token: str = TOKEN):
    """A request whose response continues, on a connection that the block may leave at any time."""
    data = b"" if body is None else json.dumps(body).encode()
    async with calling(address) as raw:
        lines = [
            f"{'GET' if body is None else 'POST'} {target} HTTP/1.1",
            f"Host: {address.host}:{address.port}",
            f"Authorization: Bearer {token}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
        ]
        await raw.send("\r\n".join([*lines, "", ""]).encode() + data)
        assert (await raw.heading())[0] == 200
        yield raw


async def only_run(runtime: gr.Runtime) -> gr.Run[Any]:
    (found,) = (await runtime.runs()).runs
    return await runtime.get(found.info.run_id)


@PROTOCOLS
async def test_a_client_that_hangs_up_cancels_its_run_where_the_gateway_is_to_do_so(asked):
    work = Work()
    helper = agent(call("work", id="c1"), "done", tools=[work.tool])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, on_abort="cancel") as address:
        async with streaming(address, *asked("u1")):
            await work.started.wait()
        with trio.fail_after(PATIENCE):
            outcome = await (await only_run(runtime)).result()
    assert isinstance(outcome, gr.Cancelled)
    assert (outcome.by, outcome.reason) == ("operator", "the client has closed its stream")


@PROTOCOLS
async def test_a_client_that_hangs_up_leaves_its_run_alone_by_default(asked):
    work = Work()
    helper = agent(call("work", id="c1"), "done", tools=[work.tool])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with streaming(address, *asked("u1")):
            await work.started.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        work.may_end.set()
        with trio.fail_after(PATIENCE):
            assert isinstance(await (await only_run(runtime)).result(), gr.Completed)


@PROTOCOLS
async def test_a_stream_that_came_to_its_end_cancels_nothing(asked):
    """The client hangs up after the last part, as every client does: the run waits for its approval as before."""
    helper = agent(call("pay", id="c1"), "done", tools=[pay])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, on_abort="cancel") as address:
        target, body = asked("u1")
        assert (await http(address, "POST", target, body=body)).status == 200
        run = await only_run(runtime)
        assert isinstance(await run.wait(), gr.Waiting)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert (await run.view()).stage == "needs_approval"


async def test_a_principal_that_may_not_cancel_cancels_nothing_by_hanging_up():
    work = Work()
    helper = agent(call("work", id="c1"), "done", tools=[work.tool])
    who = [OPERATOR, WATCHER]
    async with (
        gr.open_runtime(agents=[helper]) as runtime,
        gateway(runtime, on_abort="cancel", principals=who) as address,
    ):
        target, body = ai_sdk("u1")
        async with streaming(address, target, body):
            await work.started.wait()
            async with streaming(address, f"{target}/chat/stream", token=WATCHER.token):
                pass
            await trio.testing.wait_all_tasks_blocked(0.05)
            work.may_end.set()
            with trio.fail_after(PATIENCE):
                assert isinstance(await (await only_run(runtime)).result(), gr.Completed)


@PROTOCOLS
async def test_a_message_behind_a_live_run_is_reported_at_once(asked):
    work = Work()
    helper = agent(call("work", id="c1"), "first", "second", tools=[work.tool])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with streaming(address, *asked("u1")):
            await work.started.wait()
            first = (await only_run(runtime)).id
            async with streaming(address, *asked("u2")) as second:
                with trio.fail_after(PATIENCE):
                    await second.until(b"queued")
                    await second.until(first.encode())
                assert not work.may_end.is_set()
                work.may_end.set()


@PROTOCOLS
async def test_a_principal_that_may_not_start_gets_403_and_no_word_of_the_run_that_waits(asked):
    helper = agent(call("pay", id="c1"), "done", tools=[pay])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, principals=[OPERATOR, WATCHER]) as address:
        target, body = asked("u1")
        assert (await http(address, "POST", target, body=body)).status == 200
        run = await only_run(runtime)
        target, body = asked("u2")
        reply = await http(address, "POST", target, body=body, token=WATCHER.token)
        assert reply.status == 403
        assert run.id not in reply.body.decode()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/v1/runs?stauts=done", "did you mean status?"),
        ("/v1/runs?limit=0", "from 1 to 1000"),
        ("/v1/runs?limit=1000000", "from 1 to 1000"),
        ("/v1/runs/r/events?atfer=3", "did you mean after?"),
        ("/v1/runs/r?after=3", "there are none"),
        ("/v1/runs/r/events?limit=0", "from 1 to 1000"),
        ("/v1/agents?x=1", "there are none"),
        ("/v1/ai-sdk/v6/agents/helper/chat/c/stream?finshed=true", "did you mean finished?"),
    ],
)
async def test_every_route_refuses_query_fields_that_it_does_not_know(target, says):
    async with gr.open_runtime(agents=[agent()]) as runtime, gateway(runtime) as address:
        await (await runtime.start("helper", "hi", run_id="r")).result()
        reply = await http(address, "GET", target)
    assert reply.status == 400, reply.body
    assert says in json.loads(reply.body)["error"]["message"]


async def test_pages_and_health_checks_may_be_asked_with_anything():
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        for target in ("/healthz?t=1", "/readyz?now", "/?utm=x"):
            assert (await http(address, "GET", target, token=None)).status == 200
