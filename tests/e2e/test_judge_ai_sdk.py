"""The AI SDK's own client, versions 6 and 7, judges the gateway; and it judges the rules that our other tests go by.

`tests/judges/ai-sdk/client.mjs` is a page without a browser: the SDK's chat and its default transport. Whatever it
gets, `tests/support/ai_sdk_rules.py` gets too, and both must come to the same message.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.transport.frontends.ai_sdk.encoder import INTERRUPTED

from ..support.ai_sdk_rules import Chat, Part, check_message, check_stream, read_sse
from ..support.gateway import http
from ..support.judges import need_node_modules, need_program
from ..support.ports import free_port
from ..unit.engine.chaos import TOOLS
from ..unit.transport.encoders.test_ai_sdk import events_of, life, parts_of

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

TOKEN = "a-token-for-these-tests"
PATIENCE = 120.0
"""Seconds until a page or server that says nothing is given up; it takes less than one."""
both = pytest.mark.parametrize("version", ["v6", "v7"])


# --- servers and pages -----------------------------------------------------------------------------------------------


class Speaker:
    """A process that is spoken to line by line."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._heard = b""

    async def hear(self) -> bytes:
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._heard:
                data = await self.process.stdout.receive_some(65_536)
                assert data, f"the process has ended with {await self.process.wait()}"
                self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    async def ask(self, order: Any) -> Any:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(json.dumps(order).encode() + b"\n")
        return json.loads(await self.hear())


@asynccontextmanager
async def speaking(*command: str, cwd: Path | None = None) -> AsyncIterator[Speaker]:
    """A process for the time of the block."""
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    try:
        yield Speaker(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            await trio.aclose_forcefully(pipe)


class Server:
    """Where the gateway is, and what it keeps."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Speaker]:
        """The server, until it is killed or the block ends; the next one has the same port and database."""
        script = Path(__file__).parent / "ai_sdk_server.py"
        database = str(self.folder / "runs.db")
        async with speaking(sys.executable, str(script), database, str(self.port), TOKEN) as server:
            self.port = int(await server.hear())
            yield server

    def go(self) -> None:
        """What the slow agent waits for."""
        (self.folder / "go").touch()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


class Page:
    """A page in its own process, and the same message by our rules."""

    def __init__(self, speaker: Speaker, server: Server, version: Any, agent: str, chat: str) -> None:
        self.speaker, self.server, self.version, self.chat = speaker, server, version, chat
        self.path = f"/v1/ai-sdk/{version}/agents/{agent}/chat"
        self.ours = Chat(version)
        self.known: dict[str, Any] = {}
        self._read = 0

    async def do(self, name: str, **fields: Any) -> dict[str, Any]:
        """One order; what the page says after it."""
        self.known = await self.speaker.ask({"do": name, **fields})
        return self.known

    async def open(self, messages: Sequence[Part] = ()) -> None:
        api = f"http://127.0.0.1:{self.server.port}{self.path}"
        await self.do("open", api=api, token=TOKEN, chat=self.chat, messages=list(messages))

    async def send(self, name: str, words: str) -> dict[str, Any]:
        await self.do("send", id=name, text=words)
        return await self.settled()

    async def respond(self, call_id: str, approved: bool, reason: str | None = None) -> None:
        approval = self.ours.tool(call_id)["approval"]["id"]
        self.ours.respond(approval, approved, reason)
        await self.do("respond", approval=approval, approved=approved, reason=reason)

    async def output(self, call_id: str, output: Any) -> None:
        tool = self.ours.tool(call_id)["type"].removeprefix("tool-")
        self.ours.output(call_id, output)
        await self.do("output", call=call_id, tool=tool, output=output)

    async def settled(self) -> dict[str, Any]:
        """Until all responses are read: ours must have come to the same."""
        await self.do("settled")
        streams = [request for request in self.known["requests"] if request["status"] == 200]
        assert len(streams) == len(self.known["bodies"])
        for request, body in list(zip(streams, self.known["bodies"], strict=True))[self._read :]:
            assert request["headers"]["x-vercel-ai-ui-message-stream"] == "v1"
            parts = read_sse(body)
            check_stream(parts, self.version, message_id=str(parts[0].get("messageId")))
            continued = request["method"] == "POST" and request["answers"] == "assistant"
            self.ours = Chat(self.version, self.ours.message if continued else None).stream(parts)
        self._read = len(streams)
        if self._read:
            assert plain(self.last) == plain(self.ours.message)
        return self.known

    async def torn(self) -> None:
        """Until the page knows that its stream has been torn: it has no end."""
        await self.do("settled")
        body = self.known["bodies"][-1]
        assert body is None or "[DONE]" not in body
        assert self.known["finished"][-1]["finishReason"] is None
        self._read = len(self.known["bodies"])

    @property
    def last(self) -> Part:
        last: Part = self.known["messages"][-1]
        return last

    @property
    def statuses(self) -> list[int]:
        """Of all requests so far."""
        return [request["status"] for request in self.known["requests"]]


def plain(value: Any) -> Any:
    """A message without what our rules do not know: undefined fields, and texts for people."""
    if isinstance(value, dict):
        left_out = ("requestReason", "metadata") + (("id",) if value.get("type") == "reasoning" else ())
        return {name: plain(one) for name, one in value.items() if one is not None and name not in left_out}
    return [plain(one) for one in value] if isinstance(value, list) else value


@asynccontextmanager
async def a_page(server: Server, version: Any, agent: str, chat: str = "chat-1") -> AsyncIterator[Page]:
    """A page that is open."""
    script = need_node_modules("ai-sdk") / "client.mjs"
    async with speaking(need_program("node"), str(script), version) as speaker:
        page = Page(speaker, server, version, agent, chat)
        await page.open()
        yield page


def states(message: Part) -> dict[str, str]:
    return {part["toolCallId"]: part["state"] for part in message["parts"] if "toolCallId" in part}


def how_it_stands(page: Page) -> dict[str, Any]:
    """What the message says of its run."""
    return next(part["data"] for part in page.last["parts"] if part["type"] == "data-run")


# --- judgements ------------------------------------------------------------------------------------------------------


@both
async def test_a_conversation(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "plain") as page:
        await page.send("u1", "hi")
        message = await page.send("u2", "again")
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert [one["role"] for one in message["messages"]] == ["user", "assistant", "user", "assistant"]
    assert page.ours.texts() == "hello "
    assert (
        message["finished"] == [{"finishReason": "stop", "isAbort": False, "isError": False, "isDisconnect": False}] * 2
    )


@both
async def test_two_approvals_go_in_one_request_and_the_message_continues(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "refunds") as page:
        message = await page.send("u1", "refund both")
        assert (message["status"], message["legal"]) == ("ready", "legal")
        assert set(states(page.last).values()) == {"approval-requested"}
        assert message["calls"] == []
        await page.respond("c1", True, "fine")
        assert len((await page.settled())["requests"]) == 1, "one answer is not enough to be sent"
        await page.respond("c2", False, "too much")
        message = await page.settled()
    assert page.statuses == [200, 200]
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert [one["role"] for one in message["messages"]] == ["user", "assistant"]
    assert states(page.last) == {"c1": "output-available", "c2": "output-denied"}
    assert page.ours.tool("c1")["output"] == "paid 5 for 1"
    assert page.ours.texts() == "Two refunds. done"
    assert [one["finishReason"] for one in message["finished"]] == ["tool-calls", "stop"]
    check_message(page.ours.message, ended=True)


@both
async def test_answers_to_nested_calls_are_sent_while_their_parent_works(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "program") as page:
        message = await page.send("u1", "work")
        assert (message["status"], message["legal"]) == ("ready", "legal")
        asked = sorted(name for name, state in states(page.last).items() if state == "approval-requested")
        assert len(asked) == 2, states(page.last)
        first, second = sorted(asked, key=lambda name: page.ours.tool(name)["type"])
        await page.respond(first, True)
        assert len((await page.settled())["requests"]) == 1, "one answer is not enough to be sent"
        await page.respond(second, False, "not there")
        message = await page.settled()
        assert page.statuses == [200, 200]
        assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
        (third,) = (name for name, state in states(page.last).items() if state == "approval-requested")
        await page.respond(third, True)
        message = await page.settled()
    assert page.statuses == [200, 200, 200]
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    ends = {first: "output-available", second: "output-denied", third: "output-available"}
    assert states(page.last) == {"p1": "output-available", **ends}
    assert page.ours.tool("p1")["output"] == "Bash: done, Edit: done, Write: The reviewer denied this call: not there"
    assert page.ours.texts() == "done"
    check_message(page.ours.message, ended=True)


@both
async def test_a_page_that_knows_what_a_tool_asks_for_answers_it(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "mixed") as page:
        message = await page.send("u1", "go")
        assert (message["calls"], message["legal"]) == (["c2"], "legal")
        await page.output("c2", {"city": "Kyiv"})  # all that is the page's own is there, so it is sent
        await page.settled()
        assert states(page.last) == {"c1": "approval-requested", "c2": "output-available"}
        await page.respond("c1", True)
        message = await page.settled()
    assert page.statuses == [200, 200, 200]
    assert states(page.last) == {"c1": "output-available", "c2": "output-available"}
    assert page.ours.tool("c2")["output"] == {"city": "Kyiv"}
    assert (message["status"], message["legal"]) == ("ready", "legal")


@both
async def test_a_message_that_ends_with_calls_is_not_sent_again_and_again(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "stopping") as page:
        await page.send("u1", "go")
        await page.output("c1", "here")
        message = await page.settled()
    assert page.statuses == [200, 200]
    assert (message["status"], states(page.last)) == ("ready", {"c1": "output-available"})


@both
async def test_a_running_stream_is_resumed_from_its_start_by_another_page(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "slow") as page, a_page(server, version, "slow") as other:
        await other.do("resume")
        assert (await other.settled())["status"] == "ready"
        assert other.statuses == [204]
        await page.do("send", id="u1", text="go")
        await page.do("text", words="Wait. ")
        kept = page.known["messages"]
        await other.open(kept)
        await other.do("resume")
        server.go()
        for one in (page, other):
            message = await one.settled()
            assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
            assert one.ours.texts() == "Wait. done"
        assert other.known["messages"] == page.known["messages"]
        assert any(one["type"] == "data-tool-output" for one in page.known["data"])
        await page.do("resume")
        assert (await page.settled())["status"] == "ready"
    assert page.statuses == [200, 204]


@both
async def test_answers_act_after_the_server_was_killed(server: Server, version: Any) -> None:
    async with a_page(server, version, "refunds") as page:
        async with server.up() as process:
            await page.open()
            await page.send("u1", "refund both")
            os.kill(process.process.pid, signal.SIGKILL)
            await process.process.wait()
        await page.respond("c1", True)
        async with server.up():
            await page.respond("c2", False)
            message = await page.settled()
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert states(page.last) == {"c1": "output-available", "c2": "output-denied"}
    assert page.ours.texts() == "Two refunds. done"


@both
async def test_a_stream_that_a_kill_has_torn_is_resumed_whole(server: Server, version: Any) -> None:
    async with a_page(server, version, "slow") as page:
        async with server.up() as process:
            await page.open()
            await page.do("send", id="u1", text="go")
            await page.do("text", words="Wait. ")
            os.kill(process.process.pid, signal.SIGKILL)
            await process.process.wait()
        await page.torn()
        async with server.up():
            await page.do("resume")
            await page.do("answered", requests=2)
            server.go()
            message = await page.settled()
    assert page.statuses == [200, 200]
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert page.ours.texts() == "Wait. done"


@both
async def test_a_server_that_stops_says_so_and_the_stream_is_resumed(server: Server, version: Any) -> None:
    async with a_page(server, version, "slow") as page:
        async with server.up() as process:
            await page.open()
            await page.do("send", id="u1", text="go")
            await page.do("text", words="Wait. ")
            os.kill(process.process.pid, signal.SIGTERM)
            message = await page.settled()
            assert message["status"] == "error"
            assert "resume the stream" in message["error"]
            assert message["error"] != INTERRUPTED
            with trio.fail_after(PATIENCE):
                await process.process.wait()
        async with server.up():
            await page.do("resume")
            await page.do("text", words="Wait. ")
            server.go()
            message = await page.settled()
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert page.ours.texts() == "Wait. done"


@both
async def test_text_of_an_inference_that_failed_is_not_left_twice(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "stumbling") as page:
        message = await page.send("u1", "hi")
    assert (message["status"], message["legal"]) == ("ready", "legal")
    assert page.ours.texts() == "Hello"
    texts = [part["text"] for part in page.last["parts"] if part["type"] == "text"]
    assert texts == (["Hello"] if version == "v7" else ["Hel ", "Hello"])


@both
async def test_an_error(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "broken") as page:
        message = await page.send("u1", "hi")
        assert (message["status"], "no key" in message["error"]) == ("error", True)
        assert message["finished"][0]["isError"] is True
        run = how_it_stands(page)
        assert run["termination"]["code"] == "model_error"
        await page.do("regenerate")
        message = await page.do("settled")
    assert page.statuses == [200, 422]
    assert "append-only" in message["error"]


@both
async def test_a_cancel(server: Server, version: Any) -> None:
    async with server.up(), a_page(server, version, "slow") as page:
        await page.do("send", id="u1", text="go")
        await page.do("text", words="Wait. ")
        reply = await http(server, "POST", f"{page.path}/{page.chat}/cancel", token=TOKEN)  # type: ignore[arg-type]
        assert reply.status == 202
        message = await page.settled()
    assert (message["status"], message.get("error"), message["legal"]) == ("ready", None, "legal")
    assert page.statuses == [200], "nothing is sent by itself"
    run = how_it_stands(page)
    assert run["termination"] == {"kind": "cancelled", "by": "operator"}
    assert message["finished"][-1]["finishReason"] == "other"


@both
async def test_streams_of_many_lives_are_read_as_our_rules_read_them(version: Any, rng: Any) -> None:
    """Each life whole, and cut where it rests or anywhere: the SDK's schema and reader against ours."""
    script = need_node_modules("ai-sdk") / "lives.mjs"
    async with speaking(need_program("node"), str(script), version) as reader:
        for mode in (*MODES, *MODES, *MODES):
            world = life(AgentSpec(key="a", tools=TOOLS), mode, rng.randrange(2**32), rng.randrange(20, 120))
            events = events_of(world)
            rests = [event.sequence for event in events if event.type == "run.waiting"]
            for cut in (len(events), rng.randrange(1, len(events)), *rests[:2]):
                chat = Chat(version)
                for after, upto in ((0, cut), (cut, len(events))):
                    before, parts = chat.sent() if after else None, parts_of(events[:upto], version, after=after)
                    message = await reader.ask({"message": before, "parts": parts} if before else {"parts": parts})
                    chat.stream(parts)
                    assert message.get("error") == chat.error
                    assert plain(message["message"]) == plain(chat.message)
                    if after == 0 and (version == "v7" or cut == len(events)) and chat.error is None:
                        assert message["legal"] == "legal"
