"""Bodies of all kinds of requests with one thing in them that cannot be: refused or taken, and never a failure."""

import copy
import json

import pytest
from tests.support.gateway import TOKEN, http
from tests.support.gateway_inside import house
from tests.support.mcp_client import META, MODERN, TASKS
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import call
from greenroom.transport.protocol.sealed import seal
from greenroom.transport.server.routes import ROUTES

pytestmark = pytest.mark.slow

ASKED = {"role": "user", "id": "m2", "parts": [{"type": "text", "text": "hi"}]}
FILE = {"type": "file", "url": "data:,x", "mediaType": "a/b"}
AI_SDK = {
    "id": "chat-1",
    "trigger": "submit-message",
    "messageId": "m1",
    "messages": [
        {"id": "m1", "role": "user", "metadata": {"a": 1}, "parts": [FILE]},
        {"id": "r", "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "tool-refund", "toolCallId": "c1", "state": "approval-responded", "input": {"order": "7"},
             "approval": {"id": "r.t1", "approved": True, "reason": "fine"}},
        ]},
        ASKED,
    ],
}  # fmt: skip
AG_UI = {
    "threadId": "thread-9",
    "runId": "run-9",
    "state": {"a": [1]},
    "tools": [{"name": "t", "description": "d", "parameters": {}}],
    "context": [{"description": "d", "value": "v"}],
    "forwardedProps": {"x": 1},
    "messages": [
        {"id": "m1", "role": "user", "content": "hi"},
        {"id": "a1", "role": "assistant", "content": "x",
         "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"id": "t1", "role": "tool", "content": "ok", "toolCallId": "c1"},
        {"id": "m2", "role": "user", "content": [{"type": "text", "text": "hi"}]},
    ],
}  # fmt: skip
RESUME = [{"interruptId": "r.t1", "status": "resolved", "payload": {"approved": True, "editedArgs": {"a": 1}}}]
A2A = {
    "message": {
        "messageId": "m1",
        "role": "ROLE_USER",
        "parts": [
            {"text": "hi", "metadata": {"a": 1}},
            {"raw": "eA==", "mediaType": "text/plain", "filename": "a.txt"},
            {"url": "data:text/plain,x"},
            {"data": {"ticketId": "r.t1", "action": "approve", "editedArguments": {"order": "8"}, "fingerprint": "f"}},
        ],
        "extensions": ["https://example.org/x"],
    },
    "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": True},
}
DECIDE = {"type": "decide", "target": "c1", "action": "resume", "result": 1, "editedArguments": {"order": "8"},
          "reason": "fine", "fingerprint": "f"}  # fmt: skip
MCP_META = {
    f"{META}protocolVersion": MODERN,
    f"{META}clientCapabilities": {"elicitation": {}, **TASKS},
    "progressToken": 1,
    "greenroom/run": "mcp-1",
}
MCP_ANSWERS = {"r.t1": {"action": "accept", "content": {"decision": "approve", "reason": "fine"}}}
MCP_STATE = seal("mcp state", ["r", {"r.t1": ["r.t1", "f"]}], TOKEN)


def mcp(method, **params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": MCP_META}}


def headers_of(body):
    """The headers that repeat the body of a modern MCP request."""
    if "jsonrpc" not in body or "_meta" not in body["params"]:
        return {}
    params = body["params"]
    name = params.get("name", params.get("taskId", ""))
    return {"mcp-protocol-version": MODERN, "mcp-method": body["method"], "mcp-name": name}


BODIES = [
    ("/v1/runs", {"agent": "helper", "text": "hi", "run": "q", "thread": "t", "session": "s", "onBusy": "queue"}),
    ("/v1/runs/{run}/commands", DECIDE),
    ("/v1/runs/{run}/commands", {"type": "cancel", "mode": "after_step", "reason": "enough"}),
    ("/v1/runs/{run}/commands", {"type": "send", "text": "more"}),
    ("/v1/runs/{run}/commands", {"type": "pause", "reason": "lunch"}),
    ("/v1/runs/{run}/fork", {"step": 0, "newRun": "copy"}),
    ("/v1/ai-sdk/{version}/agents/{agent}/chat", AI_SDK),
    ("/v1/ai-sdk/{version}/agents/{agent}/chat", {**AI_SDK, "messages": AI_SDK["messages"][1:2]}),
    ("/v1/ag-ui/agents/{agent}/run", AG_UI),
    ("/v1/ag-ui/agents/{agent}/run", {**AG_UI, "resume": RESUME}),
    ("/v1/a2a/{agent}/message:send", A2A),
    ("/v1/a2a/{agent}/message:send", {"message": {**A2A["message"], "taskId": "r"}, "configuration": {}}),
    ("/v1/a2a/{agent}/message:stream", {**A2A, "message": {**A2A["message"], "parts": [{"data": {"ticketId": "t"}}]}}),
    ("/v1/a2a/{agent}/rpc", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": A2A}),
    ("/v1/a2a/{agent}/rpc", {"jsonrpc": "2.0", "id": "x", "method": "ListTasks", "params": {"pageSize": 3}}),
    ("/v1/queues/{queue}", {"maxRunning": 3, "paused": False}),
    ("/v1/mcp", mcp("tools/call", name="clerk", arguments={"input": "hi"})),
    ("/v1/mcp", mcp("tools/call", name="clerk", arguments={}, requestState=MCP_STATE, inputResponses=MCP_ANSWERS)),
    ("/v1/mcp", mcp("tools/call", name="run_result", arguments={"run": "r", "wait": 0})),
    ("/v1/mcp", mcp("tools/list", cursor="run_result")),
    ("/v1/mcp", mcp("tasks/update", taskId="r", inputResponses=MCP_ANSWERS)),
    (
        "/v1/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"elicitation": {"form": {}}},
                "clientInfo": {},
            },
        },
    ),
    ("/v1/prune", {"before": "2020-01-31T09:30:00Z"}),
]
NAMES = {"run": "r", "agent": "clerk", "version": "v6", "chat": "chat-1", "queue": "unused"}


def nested(levels):
    found = []
    for _ in range(levels):
        found = [found]
    return found


MISSING = object()
BAD = [
    None,
    [],
    {},
    nested(200),
    "",
    "x" * 20_000,
    "\ud800",
    "\0",
    0,
    -1,
    2**70,
    1.5,
    True,
    [None],
    {"": None},
    "../..",
    MISSING,
]


def places(value, path=()):
    """The way to each part of a value, itself included."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(value, path, bad):
    """The value with one part replaced, or without it."""
    if not path:
        return {} if bad is MISSING else bad
    found = copy.deepcopy(value)
    holder = found
    for name in path[:-1]:
        holder = holder[name]
    if bad is MISSING:
        del holder[path[-1]]
    else:
        holder[path[-1]] = bad
    return found


CASES = [(number, path, bad) for number, (_, body) in enumerate(BODIES) for path in places(body) for bad in BAD]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents}"


def test_every_route_that_takes_a_body_is_tried():
    tried = {template for template, _ in BODIES}
    assert {route.template for route in ROUTES if route.method == "POST" and route.body is not None} <= tried


async def test_no_body_makes_a_handler_fail(sampled):
    clerk = agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund], key="clerk")
    async with house(clerk) as here:
        run = await here.runtime.start("clerk", "hi", run_id="r", thread_id="chat-1")
        await run.wait()
        for number, path, bad in sampled(CASES, 300):
            template, body = BODIES[number]
            target = template.format(**NAMES)
            data = json.dumps(changed(body, path, bad)).encode()
            headers = {"a2a-version": "1.0", **headers_of(body)}
            found = await http(here.address, "POST", target, body=data, headers=headers)
            assert found.status < 500, (target, path, found.body)
            assert here.failures.texts == [], (target, path)
        for one in (await here.runtime.runs(limit=1000)).runs:
            run = await here.runtime.get(one.info.run_id)
            await run.cancel(by="tests")
            assert type(await run.result()).__name__ in ("Completed", "Cancelled")
