"""What it costs to use a run by another protocol: MCP, A2A, ACP, AG-UI and the AI SDK, beside the run itself."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import greenroom as gr
from greenroom.actors.contract.envelope import Event, decode_event
from greenroom.testing import FakeToolset, ScriptedModel, call, text
from greenroom.transport.acp.encoder import AcpEncoder
from greenroom.transport.frontends.a2a import encoder as a2a
from greenroom.transport.frontends.ag_ui import encoder as ag_ui
from greenroom.transport.frontends.ai_sdk import encoder as ai_sdk
from greenroom.transport.frontends.mcp import encoder as mcp

from .files import database
from .harness import ROOT, Benchmark, Figure, Values, on_trio
from .interop.server import TOKEN, agents
from .workload import QuietModel

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
FORMS: dict[str, Any] = {"elicitation": {}, "extensions": {f"{META}tasks": {}}}
STARTING = 30.0
"""Seconds that a program may take to its first line."""


# --- programs --------------------------------------------------------------------------------------------------------


@contextmanager
def _program(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, **options) as process:  # noqa: S603 - our own
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _server(*words: str) -> Iterator[tuple[int, int]]:
    """The port and the process id of a server."""
    with _program("-m", *words) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid


class _Client:
    """A kept connection, with one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STARTING)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> http.client.HTTPResponse:
        """Send a request, and return the response once its head is there."""
        usual = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        usual["Accept"] = "application/json, text/event-stream"
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, None if body is None else json.dumps(body), usual | own)
        return self._connection.getresponse()

    def mcp(self, method: str, *, path: str = "/v1/mcp", **params: Any) -> bytes:
        """Send a request of the modern era, and return the whole answer."""
        meta = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": FORMS}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        name = params.get("name") or params["taskId"]
        head = {"Mcp_Protocol_Version": MODERN, "Mcp_Method": method, "Mcp_Name": name}
        response = self.ask("POST", path, message, **head)
        body = response.read()
        assert response.status == 200, body
        return body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _times(action: Callable[[], object], count: int) -> list[float]:
    """Return the milliseconds of each of so many actions, one after the other."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1e3)
    return times


# --- calls -----------------------------------------------------------------------------------------------------------


async def _bare(quick: bool) -> Values:
    """The run itself, in memory."""
    (quiet, *_), times = agents(), []
    async with gr.open_runtime(agents=[quiet], drain=0) as runtime:
        for _ in range(10 if quick else 300):
            began = time.perf_counter()
            await (await runtime.start(quiet, "hi")).result()
            times.append((time.perf_counter() - began) * 1e3)
    return {"bare": median(times)}


def _called(key: str, path: str, *words: str) -> Callable[[bool], Values]:
    def case(quick: bool) -> Values:
        with _server(*words) as (port, _):
            client = _connected(port)
            calls = _times(
                lambda: client.mcp("tools/call", path=path, name="quiet", arguments={"input": "hi"}),
                10 if quick else 300,
            )
            client.close()
        return {key: median(calls)}

    return case


def _connected(port: int) -> _Client:
    end = time.monotonic() + STARTING
    while True:
        try:
            return _Client(port)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)  # noqa: TID251 - no event loop here


def _across(quick: bool) -> Values:
    """A question of an A2A stream is answered over MCP: from the answer to the state that the stream shows next."""
    times = []
    with _server("benchmarks.interop.server") as (port, _):
        decider = _Client(port)
        for number in range(3 if quick else 100):
            reader = _Client(port)
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            question = reader.ask("POST", "/v1/a2a/asking/message:stream", {"message": message}, A2A_Version="1.0")
            run = json.loads(_data(question)[0])["task"]["id"]
            stream = reader.ask("GET", f"/v1/runs/{run}/events?after=0", Accept="text/event-stream")
            _until(stream, b"run.waiting")
            (ticket,) = json.loads(decider.mcp("tasks/get", taskId=run))["result"]["inputRequests"]
            answer = {ticket: {"action": "accept", "content": {"decision": "approve"}}}
            began = time.perf_counter()
            decider.mcp("tasks/update", taskId=run, inputResponses=answer)
            _until(stream, b"run.approval.resolved")
            times.append((time.perf_counter() - began) * 1e3)
            _until(stream, b"run.completed")
            stream.read()
            reader.close()
        decider.close()
    return {"across": median(times)}


def _data(response: http.client.HTTPResponse) -> list[bytes]:
    lines = response.read().splitlines()
    return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]


def _until(stream: http.client.HTTPResponse, word: bytes) -> None:
    while word not in (line := stream.readline()):
        assert line, f"the stream has ended before {word!r}"


# --- steps and events ------------------------------------------------------------------------------------------------


def _offering(key: str, count: int) -> Callable[[bool], Values]:
    async def case(quick: bool) -> Values:
        """Steps of a run whose toolset has so many tools."""
        steps = 5 if quick else 60
        tools = [_echo(number) for number in range(count)]
        toolset = FakeToolset("many", tools)
        model = QuietModel(steps=steps, tool=tools[0].name, arguments={"word": "x"})
        agent = gr.Agent("a", model=model, toolsets=[toolset], stop=[gr.stop.MaxRounds(None)])
        async with gr.open_runtime(agents=[agent], drain=0) as runtime:
            await (await runtime.start(agent, "hi")).result()
            began = time.perf_counter()
            await (await runtime.start(agent, "hi")).result()
        return {key: (time.perf_counter() - began) / (steps + 1) * 1e3}

    return on_trio(case)


def _echo(number: int) -> gr.Tool[..., Any]:
    async def say(ctx: gr.ToolContext[Any], arguments: Any) -> str:
        return str(arguments["word"])

    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    return gr.Tool.from_schema(say, schema=schema, name=f"many_{number}", description="Say a word again.")


async def _events() -> Sequence[Event]:
    """The events of a run that streams, calls a tool and asks."""

    @gr.tool(needs_approval=True)
    async def pay(ctx: gr.ToolContext[Any], cents: int) -> str:
        """Pay."""
        for number in range(20):
            await ctx.progress(number / 20, f"part {number}")
        return "paid"

    steps: list[Any] = [[text("I pay. " * 40), call("pay", cents=number)] for number in range(5)]
    agent = gr.Agent("a", tools=[pay], model=ScriptedModel([*steps, "All is paid. " * 40], chunk=8))
    async with gr.open_runtime(agents=[agent], drain=0) as runtime:
        run = await runtime.start(agent, "hi", run_id="r", thread_id="t")
        while isinstance(outcome := await run.wait(), gr.Waiting):
            await run.decide(outcome.tickets[0].approve())
        return [decode_event(frame) for frame in await runtime.store.events("r")]


NEW = ("mcp", "a2a", "acp")
"""Encoders of agents and editors; those of chats are older."""


def _stepped(begin: Callable[[], Any], step: Callable[[Any, Event], Any], events: Sequence[Event]) -> None:
    state = begin()
    for event in events:
        state = step(state, event)


def _editor() -> AcpEncoder:
    encoder = AcpEncoder("r")
    encoder.live()
    return encoder


ENCODERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Event], Any]]] = {
    "mcp": (lambda: mcp.begin(1, token=7), lambda state, event: mcp.step(state, event)[0]),
    "a2a": (lambda: a2a.begin("r", "t", after=0), lambda state, event: a2a.step(state, event)[0]),
    "ag_ui": (
        lambda: ag_ui.begin(thread_id="t", run_id="x", answered=[f"r.t{number}" for number in range(1, 6)], after=0),
        lambda state, event: ag_ui.step(state, event)[0],
    ),
    "ai_sdk": (lambda: ai_sdk.begin("r"), lambda state, event: ai_sdk.step(state, event)[0]),
    "acp": (_editor, lambda encoder, event: (encoder.take(event), encoder)[1]),
}


async def _encoded(quick: bool) -> Values:
    events = await _events()
    figures = {}
    for name, (begin, step) in ENCODERS.items():
        times = _times(lambda begin=begin, step=step: _stepped(begin, step, events), 3 if quick else 30)  # type: ignore[misc]
        figures[f"encode_{name}"] = median(times) * 1e3 / len(events)
    return figures


# --- waiting ---------------------------------------------------------------------------------------------------------


def _waiting(key: str) -> Callable[[bool], Values]:
    """So many clients wait for a person, each in a run of its own; what the server's memory has grown by."""

    def case(quick: bool) -> Values:
        count, first = (20, 5) if quick else (1_000, 100)
        with database() as path, _server("benchmarks.interop.server", str(path)) as (port, pid), ExitStack() as stack:
            begin = _WAITS[key]
            for number in range(first):
                begin(stack, port, number)
            before = _resident(pid)
            for number in range(first, first + count):
                begin(stack, port, number)
            return {f"{key}_kb": (_resident(pid) - before) / count / 1024}

    return case


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


def _mcp_waits(stack: ExitStack, port: int, number: int) -> None:
    client = _Client(port)
    stack.callback(client.close)
    params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "b"}}
    greeting = client.ask("POST", "/v1/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    session = greeting.headers["mcp-session-id"]
    greeting.read()
    params = {"name": "asking", "arguments": {"input": f"hi {number}"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    _until(client.ask("POST", "/v1/mcp", message, Mcp_Session_Id=session), b"elicitation/create")


def _a2a_waits(stack: ExitStack, port: int, number: int) -> None:
    client = _Client(port)
    stack.callback(client.close)
    message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    stream = client.ask("POST", "/v1/a2a/slow/message:stream", {"message": message}, A2A_Version="1.0")
    _until(stream, b'"task"')


def _sse_waits(stack: ExitStack, port: int, number: int) -> None:
    client = _Client(port)
    stack.callback(client.close)
    order = {"agent": "asking", "text": f"hi {number}"}
    run = json.loads(client.ask("POST", "/v1/runs", order).read())["run"]
    _until(client.ask("GET", f"/v1/runs/{run}/events", Accept="text/event-stream"), b"run.waiting")


_WAITS: dict[str, Callable[[ExitStack, int, int], None]] = {"mcp": _mcp_waits, "a2a": _a2a_waits, "sse": _sse_waits}


# --- programs of editors ---------------------------------------------------------------------------------------------

_AGENT = """
import greenroom as gr
from greenroom.testing import ScriptedModel

agent = gr.Agent("a", model=ScriptedModel(["done"]), description="Answers.")
"""


def _started(key: str, params: dict[str, Any]) -> Callable[[bool], Values]:
    def case(_: bool) -> Values:
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        with TemporaryDirectory() as folder:
            file = Path(folder) / "agents.py"
            file.write_text(_AGENT, encoding="utf-8")
            words = ("-m", "greenroom.transport.cli", key, str(file), "--db", f"{folder}/runs.db")
            began = time.perf_counter()
            with _program(*words, stdin=subprocess.PIPE) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{message}\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                seconds = time.perf_counter() - began
        assert "result" in answer, answer
        return {f"{key}_start": seconds}

    return case


_ACP = {"protocolVersion": 1, "clientCapabilities": {}}
_MCP = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}


def _derived(values: Values) -> Values:
    return {"beside": values["call"] - values["bare"], "offered": values["many"] - values["one"]}


BENCHMARK = Benchmark(
    name="doors",
    about="runs by way of other protocols, beside the run itself and the SDK's own server in the same rounds",
    cases={
        "bare": on_trio(_bare),
        "call": _called("call", "/v1/mcp", "benchmarks.interop.server"),
        "sdk": _called("sdk", "/mcp", "benchmarks.interop.mcp_sdk_server"),
        "across": _across,
        "one": _offering("one", 1),
        "many": _offering("many", 1_000),
        "encoders": on_trio(_encoded),
        "mcp waits": _waiting("mcp"),
        "a2a waits": _waiting("a2a"),
        "sse waits": _waiting("sse"),
        "acp": _started("acp", _ACP),
        "mcp": _started("mcp", _MCP),
    },
    derive=_derived,
    figures=(
        Figure(key="beside", what="MCP tools/call of a quick agent, beside its run", unit="ms", at_most=6),
        Figure(key="call", what="the whole call", unit="ms"),
        Figure(key="bare", what="the run alone, in memory", unit="ms"),
        Figure(key="sdk", what="peer: a call of a function by the MCP SDK's own server", unit="ms"),
        Figure(key="across", what="a question of A2A, answered over MCP: seen elsewhere", unit="ms", at_most=50),
        Figure(key="offered", what="a step with 1,000 offered tools, beside one with one", unit="ms", at_most=5),
        *(Figure(key=f"encode_{name}", what=f"an event for {name}", unit="us", at_most=20, digits=1) for name in NEW),
        *(
            Figure(key=f"encode_{name}", what=f"beside them: an event for {name}", unit="us", digits=1)
            for name in ENCODERS
            if name not in NEW
        ),
        Figure(key="mcp_kb", what="a waiting MCP call with its run (SQLite)", unit="KiB", at_most=40, digits=1),
        Figure(key="a2a_kb", what="an A2A stream of a run that works", unit="KiB", at_most=40, digits=1),
        Figure(key="sse_kb", what="beside them: server-sent events of a run that waits", unit="KiB", digits=1),
        Figure(key="acp_start", what="greenroom acp, to the answer of initialize", unit="s", at_most=1),
        Figure(key="mcp_start", what="greenroom mcp, to the answer of initialize", unit="s"),
    ),
)
