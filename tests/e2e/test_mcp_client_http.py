"""Tools of an MCP server at an address: the SDK's own, in a process of its own, and small ones that refuse."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.mcp_servers import FREE, SAFE, Used, agent_with, executed, run_with, seen, until, use
from ..support.ports import free_port
from ..support.wait_for_port import wait_for_port

PROGRAM = Path(__file__).parent.parent / "support" / "mcp_sdk_server.py"
CANARY = "canary-5d2b7a90cc"


@contextmanager
def started(log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The SDK's server in a process of its own."""
    port = free_port()
    output = log.with_suffix(".out").open("wb")
    with subprocess.Popen([sys.executable, str(PROGRAM), str(port), str(log)], stdout=output, stderr=output) as process:
        try:
            wait_for_port(port)
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()
    output.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("mcp") / "log"


@pytest.fixture(scope="module")
def url(log):
    with started(log) as (url, _):
        yield url


def at(url: str, **options: Any) -> gr.mcp.Server:
    return gr.mcp.Server("t", url=url, **({"tools": {"*": FREE}} | options))


@pytest.mark.rule("MC-4")
async def test_a_run_calls_tools_of_a_server_at_an_address(url):
    life = await run_with(at(url), use("echo", {"text": "hello"}), use("add", {"a": 1, "b": 2}, id="B"))
    assert life.texts == {"A": '{"result":"hello"}', "B": '{"sum":3}'}


@pytest.mark.rule("MC-1")
async def test_headers_are_sent_and_their_values_are_shown_nowhere(url, monkeypatch, caplog):
    monkeypatch.setenv("MCP_TOKEN", CANARY)
    caplog.set_level("DEBUG")
    headers = {"Authorization": gr.env("MCP_TOKEN", "Bearer {}")}
    life = await run_with(at(url, headers=headers), use("authorization"))
    assert life.texts["A"].startswith('{"result":"Bearer ')
    assert CANARY not in repr([event.payload for event in life.events])
    assert CANARY not in caplog.text


@pytest.mark.rule("MC-5", "MC-8")
async def test_a_cancel_closes_the_stream_of_the_call_and_the_next_call_works(url, log):
    agent = agent_with(at(url), steps=[use("slow"), "done"])
    other = agent_with(*agent.toolsets, steps=[use("echo", {"text": "x"}), "done"], key="b")
    async with gr.open_runtime(agents=[agent, other]) as runtime:
        run = await runtime.start(agent, "go")
        async with run.events() as stream:
            async for event in stream:
                if event.type == "run.tool.progress":
                    break
        assert event.payload["fraction"] == 0.25
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
        await until(lambda: "cancelled" in executed(log))
        run = await runtime.start(other, "go")
        assert (await seen(run, other, await run.result())).texts == {"A": '{"result":"x"}'}


@pytest.mark.slow
@pytest.mark.rule("MC-8", "MC-9")
async def test_an_unsafe_call_is_cut_once_with_its_server_and_later_ones_are_not_sent(tmp_path):
    log = tmp_path / "log"
    with started(log) as (url, process):
        agent = agent_with(at(url), steps=[[use("slow"), use("echo", {"text": "x"}, id="B")], "done"])
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "go")
            await until(lambda: "slow" in executed(log))
            process.send_signal(signal.SIGKILL)
            await until(lambda: process.poll() is not None)  # a connection that is still open would take the next call
            (ticket,) = (await run.wait()).tickets
            assert (ticket.reason, executed(log)) == ("outcome_unknown", ["slow"])
            await run.decide(ticket.approve(result="it took effect"))
            life = await seen(run, agent, await run.result())
    assert life.texts["A"] == "it took effect"
    assert life.codes["B"] == "runtime_unavailable"
    assert "cannot connect" in life.texts["B"]
    assert executed(log) == ["slow"]


# --- servers that refuse ---------------------------------------------------------------------------------------------


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server on loopback that answers each POST with a function, and the end of a session not at all."""
    silent = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer(self)

        def do_DELETE(self) -> None:
            silent.wait(20)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            silent.set()
            server.shutdown()
            thread.join()


def plain(status: int, body: bytes = b"no", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in ({"content_type": "text/plain"} | headers).items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


async def refused(answer: Callable[[BaseHTTPRequestHandler], None], **options: Any) -> str:
    """Why a server that answers so is not available."""
    with serving(answer) as url:
        life: Used = await run_with(at(url, **options), "done")
    (degraded,) = life.of("run.degraded")
    return degraded["detail"]


@pytest.mark.rule("MC-9")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (plain(401), "HTTP 401 Unauthorized"),
        (plain(500, b"x" * 100), "HTTP 500 Internal Server Error"),
        (plain(200), "Unexpected content type: text/plain"),
        (plain(200, b"{", content_type="application/json"), "Failed to parse JSON response"),
        (plain(200, b"x" * 13_000_000, content_type="application/json"), "it sent more than 12,582,912 bytes"),
        (plain(200, content_encoding="gzip", content_type="application/json"), "the encoding 'gzip'"),
    ],
)
async def test_a_server_that_answers_something_else_is_not_available_and_the_text_says_why(answer, text):
    assert text in await refused(answer)


@pytest.mark.rule("MC-1")
async def test_another_host_gets_no_header_of_ours_by_a_redirect():
    headers: list[dict[str, str]] = []

    def note(request: BaseHTTPRequestHandler) -> None:
        headers.append(dict(request.headers))
        plain(500)(request)

    with serving(note) as other:
        elsewhere = other.replace("127.0.0.1", "localhost")
        text = await refused(plain(307, location=elsewhere), headers={"Authorization": f"Bearer {CANARY}"})
    assert f"Redirect to {elsewhere} not followed" in text
    assert headers == []


async def test_no_cookie_of_a_server_is_kept():
    """A server could fill the memory with them, a few with each answer."""
    cookies: list[str | None] = []

    def give(request: BaseHTTPRequestHandler) -> None:
        cookies.append(request.headers["cookie"])
        plain(200, b"{", content_type="application/json", set_cookie=f"c{len(cookies)}=x; Path=/")(request)

    await refused(give)
    assert len(cookies) > 1
    assert set(cookies) == {None}


@pytest.mark.rule("MC-9")
async def test_a_server_that_nobody_serves_is_not_available():
    life = await run_with(at(f"http://127.0.0.1:{free_port()}/mcp"), "done")
    assert "cannot connect" in life.of("run.degraded")[0]["detail"]


@pytest.mark.rule("MC-9")
async def test_a_header_whose_variable_is_not_set_makes_the_server_unavailable(monkeypatch):
    monkeypatch.delenv("MCP_TOKEN", raising=False)
    life = await run_with(at("http://127.0.0.1:9/mcp", headers={"X-Key": gr.env("MCP_TOKEN")}), "done")
    assert "env('MCP_TOKEN')" in life.of("run.degraded")[0]["detail"]


async def test_a_safe_call_is_sent_once_more_when_its_answer_is_cut():
    answers = iter(range(100))

    def cut(request: BaseHTTPRequestHandler) -> None:
        next(answers)
        request.close_connection = True

    with serving(cut) as url, trio.fail_after(20):
        life = await run_with(at(url, tools={"*": SAFE}), "done")
    assert "the connection was lost" in life.of("run.degraded")[0]["detail"]


class Sessions:
    """A server of the handshake era that forgets its sessions.

    Attributes:
        session: the newest session; a request of another one is answered 404.
        calls: how often a tool was executed, by session.
    """

    def __init__(self) -> None:
        self.session, self.calls = 0, list[int]()

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        message, session = request.message, request.headers.get("mcp-session-id")  # type: ignore[attr-defined]
        number, method = message.get("id"), message["method"]
        if method == "initialize":
            self.session += 1
        elif method != "server/discover" and session != str(self.session):
            return plain(404, b"no such session")(request)
        match method:
            case "initialize":
                info = {"name": "sessions", "version": "1"}
                result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                result = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                self.calls.append(self.session)
                result = {"content": [{"type": "text", "text": str(len(self.calls))}]}
            case _ if number is None:
                return plain(202, b"")(request)
            case _:
                return plain(404)(request)
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        return plain(200, body, content_type="application/json", mcp_session_id=str(self.session))(request)


@pytest.mark.rule("MC-1", "MC-9")
async def test_a_session_that_the_server_has_forgotten_fails_one_call_unsent_and_the_next_one_has_a_new_session():
    sessions = Sessions()

    async def forget(ctx: Any, arguments: Any) -> str:
        sessions.session += 1
        return "forgotten"

    forgets = gr.Tool.from_schema(forget, schema={"type": "object"}, name="forget")
    with serving(sessions) as url:
        steps = [use("count", id="A"), call("forget", id="F"), use("count", id="B"), use("count", id="C"), "done"]
        agent = agent_with(at(url), steps=steps, tools=[forgets])
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "go")
            life = await seen(run, agent, await run.result())
    assert (life.texts["A"], life.texts["C"]) == ("1", "2")
    assert (life.codes["B"], sessions.calls) == ("runtime_unavailable", [1, 3])
    assert "its session has ended" in life.texts["B"]
