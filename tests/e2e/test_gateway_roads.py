"""Every route and frame, asked by each kind of principal about runs of threads that several principals share.

Each thread begins with a run of ann's, which only carol and root see beside her, and continues with a run of bob's: in
`done` it is done, in `open` it waits for an approval, in `held` it is paused. A principal that may not see ann's run
reads nothing of it, and brings no words to a model that has read it. A route or a frame without a row fails.
"""

import json
import re

import attrs
import pytest
from tests.support.gateway import gateway, http, welcomed

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Principal
from greenroom.transport.frontends.mcp.messages import META, MODERN, TASKS
from greenroom.transport.protocol.up import UP
from greenroom.transport.server.routes import ROUTES

pytestmark = pytest.mark.slow

CANARY = "the-safe-is-0000"
TOKENS = {name: f"token-of-{name}-0123456789" for name in ("ann", "bob", "carol", "review", "eve", "root")} | {
    "-": None
}
"""ann and bob see their own runs, carol those of both, the reviewer bob's; eve is of another house, root an admin."""
ALL = frozenset({"follow", "decide", "start"})


def sees(*names):
    return lambda info: info.by in names


PEOPLE = [
    Principal(name="ann", token=TOKENS["ann"], scopes=ALL, sees=sees("ann")),
    Principal(name="bob", token=TOKENS["bob"], scopes=ALL, sees=sees("bob")),
    Principal(name="carol", token=TOKENS["carol"], scopes=ALL, sees=sees("ann", "bob", "carol")),
    Principal(name="review", token=TOKENS["review"], scopes=frozenset({"follow", "decide"}), sees=sees("bob")),
    Principal(name="eve", token=TOKENS["eve"], scopes=ALL, sees=sees("eve")),
    Principal(name="root", token=TOKENS["root"]),
]


@gr.tool(needs_approval=True)
async def pay() -> str:
    return "paid"


def repeats(request):
    """Ask for an approval, or repeat all that was said so far, as the newest message wants."""
    said = [str(message.content) for message in request.messages]
    if said[-1] == "pay":
        return call("pay", id="c1")
    return "; ".join(said) if "repeat" in said[-1] else "done"


class House:
    """The runs, and how the gateway answers."""

    def __init__(self, runtime, address):
        self.runtime, self.address = runtime, address

    async def prepare(self):
        for thread, text in (("done", "hi"), ("open", "pay"), ("held", "pay")):
            first = await self.runtime.start("echo", CANARY, run_id=f"ann-{thread}", thread_id=thread, by="ann")
            await first.result()
            run = await self.runtime.start("echo", text, run_id=f"bob-{thread}", thread_id=thread, by="bob")
            await run.wait()
        await self.runtime.commands.pause("bob-held", by="bob")
        await self.runtime.commands.send("bob-held", "go on", by="bob")
        await (await self.runtime.get("bob-held")).wait()
        assert (await self.runtime.reader.ticket("bob-held", "bob-held.t2")).call_id is None
        assert CANARY not in json.dumps([frame.decode() for frame in await self.runtime.store.events("bob-open")])

    async def asked(self, name, ask):
        """The code of the answer (`ok`: there is none), and its whole text."""
        if isinstance(ask, Frame):
            async with welcomed(self.address, token=TOKENS[name]) as talk:
                reply = await talk.ask(ask.type, **ask.fields)
                return reply.get("code") or "ok", json.dumps(reply)
        headers = {"accept": "application/json", "a2a-version": "1.0", **ask.headers}
        reply = await http(self.address, ask.method, ask.path, token=TOKENS[name], body=ask.body, headers=headers)
        text = reply.body.decode()
        code = re.search(r'"code":"(\w+)"', text.replace("\\", ""))
        refused = (
            reply.status >= 400
            or '"type":"RUN_ERROR"' in text
            or '"greenroom.refused"' in text
            or ('"jsonrpc":"2.0"' in text and '"error":{' in text)
        )
        return (code[1] if code else str(reply.status)) if refused else "ok", text

    async def rows(self):
        """What an order would change."""
        runs = (await self.runtime.runs(limit=1000)).runs
        return [(one.info.run_id, one.row.last_sequence, one.pending, one.row.status) for one in runs]


@attrs.frozen
class Ask:
    """A request."""

    method: str
    path: str
    body: object = None
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Frame:
    """A frame."""

    type: str
    fields: dict


def user(text):
    return {"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}


def chat(thread, *messages):
    return Ask("POST", CHAT, {"id": thread, "trigger": "submit-message", "messages": [*messages]})


def ag_ui(thread, **fields):
    body = {"threadId": thread, "runId": "x1", "state": {}, "messages": [], "tools": [], "context": []}
    return Ask("POST", "/v1/ag-ui/agents/echo/run", {**body, "forwardedProps": {}, **fields})


APPROVED = {
    "id": "bob-open",
    "role": "assistant",
    "parts": [
        {
            "type": "tool-pay",
            "toolCallId": "bob-open-c1",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "bob-open.t1", "approved": True},
        }
    ],
}


def a2a(path, text="repeat it all", data=None, **place):
    part = {"text": text} if data is None else {"data": data}
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [part], **place}
    return Ask("POST", f"/v1/a2a/echo/{path}", {"message": message})


def mcp(method, subject, **params):
    able = {"elicitation": {}, "extensions": {TASKS: {}}}
    meta = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": able}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": subject}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return Ask("POST", "/v1/mcp", body, headers)


def a2a_rpc(method, **params):
    return Ask("POST", "/v1/a2a/echo/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


ACCEPT = {"action": "accept", "content": {"decision": "approve"}}
A2A_YES = {"ticketId": "bob-open.t1", "action": "approve"}
RESUMED = [{"interruptId": "bob-open.t1", "status": "resolved", "payload": {"approved": True}}]
A2A = "/v1/a2a/{agent}"
PUSH = f"{A2A}/tasks/{{task}}/pushNotificationConfigs"
CHAT, TEMPLATE = "/v1/ai-sdk/v6/agents/echo/chat", "/v1/ai-sdk/{version}/agents/{agent}/chat"
WORDS = {"target": "bob-held.t2", "action": "resume", "result": "repeat it all"}
NO_WORDS = {"target": "bob-held.t2", "action": "resume"}
YES = {"target": "bob-open.t1", "action": "resume"}
SEND = {"text": "repeat it all"}
START = {"agent": "echo", "text": "repeat it all", "thread": "done"}

OPEN = "ok ok ok ok ok ok ok"
TOKEN = "ok ok ok ok ok ok unauthenticated"
ADMIN = "not_allowed not_allowed not_allowed not_allowed not_allowed ok unauthenticated"
SEE = "unknown_run ok ok ok unknown_run ok unauthenticated"
LOOK = SEE.replace("ok", "unknown_artifact")
DECIDE = SEE
BEGIN = "unknown_run ok ok not_allowed unknown_run ok unauthenticated"
JOIN = "not_allowed not_allowed ok not_allowed not_allowed ok unauthenticated"
THREAD = "unknown_thread unknown_thread ok unknown_thread unknown_thread ok unauthenticated"
COPY = "unknown_run not_allowed ok not_allowed unknown_run ok unauthenticated"
ANSWER = "unprocessable ok ok ok unprocessable ok unauthenticated"
RESUME = "unknown_target ok ok ok unknown_target ok unauthenticated"
NEVER = "400 400 400 400 400 400 unauthenticated"
START_ONLY = "ok ok ok not_allowed ok ok unauthenticated"
TASK = "200 ok ok ok 200 ok unauthenticated"
STOP = "run_done ok ok not_allowed unknown_run ok unauthenticated"

# route -> requests, each with what ann, bob, carol, the reviewer, eve, root and a stranger are answered
ROADS = {
    "GET /healthz": [(Ask("GET", "/healthz"), OPEN)],
    "GET /readyz": [(Ask("GET", "/readyz"), OPEN)],
    "GET /": [(Ask("GET", "/"), OPEN)],
    "GET /console/{name}": [(Ask("GET", "/console/app.js"), OPEN)],
    "GET /favicon.ico": [(Ask("GET", "/favicon.ico"), OPEN)],
    "GET /v1/schemas": [(Ask("GET", "/v1/schemas"), OPEN)],
    "GET /v1/openapi.json": [(Ask("GET", "/v1/openapi.json"), OPEN)],
    "GET /v1/asyncapi.json": [(Ask("GET", "/v1/asyncapi.json"), OPEN)],
    "GET /metrics": [(Ask("GET", "/metrics"), ADMIN)],
    "GET /v1/queues": [(Ask("GET", "/v1/queues"), ADMIN)],
    "POST /v1/queues/{queue}": [(Ask("POST", "/v1/queues/echo", {}), ADMIN)],
    "POST /v1/prune": [(Ask("POST", "/v1/prune", {"before": "2020-01-31T09:30:00Z"}), ADMIN)],
    "GET /v1/me": [(Ask("GET", "/v1/me"), OPEN)],
    "GET /v1/agents": [(Ask("GET", "/v1/agents"), TOKEN.replace("ok ok ok ok", "ok ok ok not_allowed", 1))],
    "GET /v1/rules": [(Ask("GET", "/v1/rules"), TOKEN), (Ask("GET", "/v1/rules?run=bob-open"), SEE)],
    "POST /v1/rules/{rule}/revoke": [(Ask("POST", "/v1/rules/none/revoke"), TOKEN.replace("ok", "unknown_rule"))],
    "GET /v1/threads": [(Ask("GET", "/v1/threads"), TOKEN), (Ask("GET", "/v1/threads?by=ann"), TOKEN)],
    "GET /v1/threads/{thread}/messages": [(Ask("GET", "/v1/threads/open/messages"), THREAD)],
    "GET /v1/threads/{thread}/messages/{position}/parts/{place}": [
        (Ask("GET", "/v1/threads/open/messages/1/parts/1"), THREAD.replace("ok", "unknown_part")),
    ],
    "GET /v1/throughput": [(Ask("GET", "/v1/throughput"), TOKEN)],
    "GET /v1/prices": [(Ask("GET", "/v1/prices"), TOKEN)],
    "GET /v1/tickets": [(Ask("GET", "/v1/tickets"), TOKEN), (Ask("GET", "/v1/tickets?agent=echo&tool=pay"), TOKEN)],
    "GET /v1/runs": [(Ask("GET", "/v1/runs?thread=open"), TOKEN), (Ask("GET", "/v1/runs?counts=true"), TOKEN)],
    "POST /v1/runs": [(Ask("POST", "/v1/runs", START), JOIN)],
    "GET /v1/runs/{run}": [(Ask("GET", "/v1/runs/bob-open"), SEE)],
    "GET /v1/runs/{run}/artifacts/{artifact}": [(Ask("GET", "/v1/runs/bob-open/artifacts/none.a1"), LOOK)],
    "GET /v1/runs/{run}/parts/{sha256}": [
        (Ask("GET", f"/v1/runs/bob-open/parts/{'0' * 64}"), SEE.replace("ok", "unknown_part")),
    ],
    "GET /v1/runs/{run}/evidence": [(Ask("GET", "/v1/runs/bob-open/evidence"), SEE)],
    "GET /v1/runs/{run}/events": [(Ask("GET", "/v1/runs/bob-open/events"), SEE)],
    "POST /v1/runs/{run}/fork": [
        (Ask("POST", "/v1/runs/bob-done/fork", {"step": 1}), COPY),
        (Ask("POST", "/v1/runs/bob-open/fork", {"step": 0}), COPY),
    ],
    "POST /v1/runs/{run}/revive": [(Ask("POST", "/v1/runs/bob-open/revive"), BEGIN)],
    "POST /v1/runs/{run}/commands": [
        (Ask("POST", "/v1/runs/bob-held/commands", {"type": "send", **SEND}), COPY),
        (Ask("POST", "/v1/runs/bob-held/commands", {"type": "decide", **WORDS}), COPY),
        (Ask("POST", "/v1/runs/bob-held/commands", {"type": "decide", **NO_WORDS}), DECIDE),
        (Ask("POST", "/v1/runs/bob-open/commands", {"type": "decide", **YES}), DECIDE),
        (Ask("POST", "/v1/runs/bob-open/commands", {"type": "pause"}), DECIDE),
        (Ask("POST", "/v1/runs/bob-open/commands", {"type": "cancel"}), BEGIN),
    ],
    "POST /v1/ag-ui/agents/{agent}/run": [
        (ag_ui("done", messages=[{"id": "m1", "role": "user", "content": "repeat it all"}]), JOIN),
        (ag_ui("open", resume=RESUMED), RESUME),
    ],
    "GET /.well-known/agent-card.json": [(Ask("GET", "/.well-known/agent-card.json"), TOKEN)],
    f"GET {A2A}/.well-known/agent-card.json": [(Ask("GET", "/v1/a2a/echo/.well-known/agent-card.json"), TOKEN)],
    f"POST {A2A}/message:send": [
        (a2a("message:send", contextId="done"), JOIN),
        (a2a("message:send", taskId="bob-held"), COPY),
        (a2a("message:send", taskId="bob-open", data=A2A_YES), DECIDE),
    ],
    f"POST {A2A}/message:stream": [
        (a2a("message:stream", contextId="done"), JOIN),
        (a2a("message:stream", taskId="bob-open", data=A2A_YES), DECIDE),
    ],
    f"POST {A2A}/rpc": [
        (a2a_rpc("GetTask", id="bob-open"), SEE),
        (a2a_rpc("ListTasks", contextId="open"), TOKEN),
        (a2a_rpc("CancelTask", id="bob-open"), BEGIN),
    ],
    f"GET {A2A}/tasks": [(Ask("GET", "/v1/a2a/echo/tasks?contextId=open"), TOKEN)],
    f"GET {A2A}/tasks/{{task}}": [(Ask("GET", "/v1/a2a/echo/tasks/bob-open"), SEE)],
    f"GET {A2A}/tasks/{{task}}:subscribe": [(Ask("GET", "/v1/a2a/echo/tasks/bob-open:subscribe"), SEE)],
    f"POST {A2A}/tasks/{{task}}:subscribe": [(Ask("POST", "/v1/a2a/echo/tasks/bob-open:subscribe"), SEE)],
    f"POST {A2A}/tasks/{{task}}:cancel": [(Ask("POST", "/v1/a2a/echo/tasks/bob-open:cancel"), BEGIN)],
    f"GET {A2A}/extendedAgentCard": [(Ask("GET", "/v1/a2a/echo/extendedAgentCard"), NEVER)],
    f"POST {PUSH}": [(Ask("POST", "/v1/a2a/echo/tasks/bob-open/pushNotificationConfigs", {}), NEVER)],
    f"GET {PUSH}": [(Ask("GET", "/v1/a2a/echo/tasks/bob-open/pushNotificationConfigs"), NEVER)],
    f"GET {PUSH}/{{config}}": [(Ask("GET", "/v1/a2a/echo/tasks/bob-open/pushNotificationConfigs/x"), NEVER)],
    f"DELETE {PUSH}/{{config}}": [(Ask("DELETE", "/v1/a2a/echo/tasks/bob-open/pushNotificationConfigs/x"), NEVER)],
    "POST /v1/mcp": [
        (mcp("tools/call", "run_result", name="run_result", arguments={"run": "bob-open"}), START_ONLY),
        (mcp("tasks/get", "bob-open", taskId="bob-open"), TASK),
        (mcp("tasks/update", "bob-open", taskId="bob-open", inputResponses={"bob-open.t1": ACCEPT}), TASK),
        (mcp("tasks/cancel", "bob-open", taskId="bob-open"), TASK.replace("ok ok ok", "ok ok not_allowed")),
    ],
    "GET /v1/mcp": [(Ask("GET", "/v1/mcp", headers={"last-event-id": "x"}), NEVER)],
    f"POST {CHAT}": [(chat("done", user("repeat it all")), JOIN), (chat("open", APPROVED), ANSWER)],
    f"GET {CHAT}/{{chat}}/stream": [(Ask("GET", f"{CHAT}/open/stream"), TOKEN)],
    f"POST {CHAT}/{{chat}}/cancel": [(Ask("POST", f"{CHAT}/open/cancel"), STOP)],
}
FRAMES = {
    "hello": [],  # its token is that of `welcomed`
    "subscribe": [(Frame("subscribe", {"run": "bob-open"}), SEE)],
    "unsubscribe": [(Frame("unsubscribe", {"run": "bob-open"}), " ".join(["unknown_run"] * 7))],
    "watch": [(Frame("watch", {"id": "w", "thread": "open"}), OPEN)],
    "watchTickets": [(Frame("watchTickets", {"id": "w", "agent": "echo"}), OPEN)],
    "threads": [(Frame("threads", {"id": "t"}), OPEN)],
    "messages": [(Frame("messages", {"id": "m", "thread": "open"}), THREAD)],
    "unwatch": [(Frame("unwatch", {"id": "w"}), " ".join(["bad_message"] * 7))],
    "start": [(Frame("start", {"id": "s", **START}), JOIN)],
    "fork": [(Frame("fork", {"id": "f", "run": "bob-done", "step": 1}), COPY)],
    "decide": [
        (Frame("decide", {"id": "d", "run": "bob-held", **WORDS}), COPY),
        (Frame("decide", {"id": "d", "run": "bob-held", **NO_WORDS}), DECIDE),
        (Frame("decide", {"id": "d", "run": "bob-open", **YES}), DECIDE),
    ],
    "cancel": [(Frame("cancel", {"id": "c", "run": "bob-open"}), BEGIN)],
    "send": [(Frame("send", {"id": "s", "run": "bob-held", **SEND}), COPY)],
    "pause": [(Frame("pause", {"id": "p", "run": "bob-open"}), DECIDE)],
    "ping": [(Frame("ping", {}), OPEN)],
}


def test_every_route_and_every_frame_has_a_row():
    known = {f"{route.method} {route.template}".replace(TEMPLATE, CHAT) for route in ROUTES}
    assert set(ROADS) == known
    assert set(FRAMES) == set(UP)


TABLE = [
    pytest.param(ask, name, code, id=f"{road} {number} {name}")
    for roads in (ROADS, FRAMES)
    for road, rows in roads.items()
    for number, (ask, codes) in enumerate(rows)
    for name, code in zip(TOKENS, codes.split(" "), strict=True)
    if name != "-" or roads is ROADS
]


@pytest.mark.parametrize(("ask", "name", "code"), TABLE)
async def test_a_principal_is_answered_as_the_table_says_and_learns_nothing_of_hidden_runs(ask, name, code):
    agents = [gr.Agent("echo", model=FunctionModel(repeats), tools=[pay])]
    async with gr.open_runtime(agents=agents) as runtime, gateway(runtime, principals=PEOPLE) as address:
        house = House(runtime, address)
        await house.prepare()
        before = await house.rows()
        found, text = await house.asked(name, ask)
        assert found == code, text[:500]
        if code != "ok":
            assert await house.rows() == before
        if name not in ("ann", "carol", "root"):
            assert CANARY not in text
            assert "ann-" not in text
