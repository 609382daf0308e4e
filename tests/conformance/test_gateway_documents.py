"""A gateway on a socket against its own documents: every route is played, every answer and frame is as documented."""

import re

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.store_events import LogsRenamed
from greenroom.testing import call, text, think
from greenroom.transport import Limits, Principal
from greenroom.transport.protocol.down import DOWN
from greenroom.transport.server.routes import ROUTES

from ..support.documents import Frames, Operations
from ..support.gateway import PATIENCE, TOKEN, gateway, http, talking, welcomed
from ..support.runs import Outages, agent

pytestmark = pytest.mark.slow

OTHER = "another-token-of-16+"
MESSAGE = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents}"


@gr.tool
async def count(ctx: gr.ToolContext) -> int:
    await ctx.progress(0.5, "half")
    await ctx.output("one")
    return 2


@gr.tool
async def note(ctx: gr.ToolContext) -> str:
    return (await ctx.artifact("note.md", "# Note", media_type="text/markdown")).artifact_id


@gr.tool(effect="shell")
async def shell(command: str) -> str:
    return f"ran {command}"


@gr.tool
async def stuck() -> str:
    await trio.sleep_forever()
    return "never"


def agents():
    steps = [
        [think("hm"), text("Let me see."), call("count", id="c1"), call("note", id="c3")],
        call("refund", order="7", cents=5, id="c2"),
        "ok",
    ]
    return [
        agent(*steps, key="clerk", tools=[refund, count, note], description="Pays back."),
        agent("done", key="quick"),
        agent(call("shell", command="ls"), "ok", key="coder", tools=[shell], plugins=[gr.ext.Permission()]),
        agent(call("stuck", id="c1"), key="stuck", tools=[stuck]),
    ]


class Player:
    """Plays requests, holding each and its answer against the document."""

    def __init__(self, address):
        self.address, self.judge = address, Operations()

    async def __call__(self, method, target, *, body=None, checked=True, **options):
        if body is not None and checked:
            self.judge.check_request(method, target, body)
        reply = await http(self.address, method, target, body=body, **options)
        self.judge.check(method, target, reply)
        return reply


async def play_runs(play, runtime):
    """A run from start to end over HTTP, and what can go wrong with it."""
    order = {"agent": "clerk", "text": "hi"}
    started = await play("POST", "/v1/runs", body=order, headers={"idempotency-key": "k1"})
    assert started.status == 201
    assert (await play("POST", "/v1/runs", body=order, headers={"idempotency-key": "k1"})).status == 200
    run = await runtime.get(started.json()["run"])
    await run.wait()
    at = f"/v1/runs/{run.id}"
    assert (await play("GET", "/v1/runs?status=waiting&limit=1&agent=clerk")).json()["runs"][0]["run"] == run.id
    ticket = (await play("GET", at)).json()["tickets"][0]
    (listed,) = (await play("GET", "/v1/tickets?agent=clerk&limit=1")).json()["tickets"]
    assert {name: listed[name] for name in ticket} == ticket
    decide = {"type": "decide", "target": ticket["ticketId"], "action": "resume", "fingerprint": ticket["fingerprint"]}
    assert (await play("POST", f"{at}/commands", body=decide | {"fingerprint": "x"})).status == 409
    assert (await play("POST", f"{at}/commands", body=decide | {"target": "x"})).status == 404
    assert (await play("POST", f"{at}/commands", body=decide)).status == 202
    assert (await play("POST", f"{at}/revive")).json()["revived"] is False
    assert (await play("POST", f"{at}/commands", body=decide | {"action": "cancel"})).status in (202, 409)
    await run.result()
    late = await play(
        "POST", f"{at}/commands", body={"type": "decide", "target": ticket["ticketId"], "action": "cancel"}
    )
    assert late.status == 409
    assert (await play("POST", f"{at}/commands", body={"type": "send", "text": "more"})).status == 409
    assert (await play("POST", f"{at}/commands", body={"type": "cancel", "mode": "now"})).status in (202, 409)
    (artifact,) = (await play("GET", at)).json()["artifacts"]
    bytes_of = f"{at}/artifacts/{artifact['artifactId']}"
    tag = (await play("GET", bytes_of)).headers["etag"]
    assert (await play("GET", bytes_of, headers={"if-none-match": tag})).status == 304
    assert (await play("GET", f"{at}/artifacts/none.a1")).status == 404
    account = (await play("GET", f"{at}/evidence")).json()
    assert ticket["ticketId"] in {one["ticketId"] for call in account["calls"] for one in call["tickets"]}
    page = (await play("GET", f"{at}/events?after=2&limit=1000")).json()
    assert page["done"]
    behind = (await play("GET", f"{at}/events?after={page['head']}")).json()
    assert (behind["events"], behind["next"], behind["done"]) == ([], page["head"], True), "who has it all hears so"
    assert (await play("GET", f"{at}/events?after={page['head'] + 1}")).status == 410
    stream = {"accept": "text/event-stream"}
    live = await play("GET", f"{at}/events", headers=stream)
    assert play.judge.check_events(live.body) == page["head"]
    assert (await play("GET", f"{at}/events", headers=stream | {"last-event-id": "other-1"})).status == 410
    assert (await play("GET", at)).json()["termination"]["kind"] == "natural_end"
    order = {"step": 1, "newRun": "forked"}
    forked = await play("POST", f"{at}/fork", body=order)
    assert (forked.status, forked.json()["run"]) == (201, "forked")
    assert (await play("POST", f"{at}/fork", body=order)).status == 200
    assert (await play("POST", f"{at}/fork", body={"step": 99})).status == 422
    assert (await play("POST", "/v1/runs/nothing/fork", body=order | {"newRun": "other"})).status == 404
    await (await runtime.get("forked")).cancel()


async def play_rules(play, runtime):
    """A rule that a person makes, lists and revokes."""
    assert (await play("GET", "/v1/rules")).json() == {"rules": [], "cursor": None}
    run = await runtime.start("coder", "go")
    await run.wait()
    (ticket,) = (await play("GET", f"/v1/runs/{run.id}")).json()["tickets"]
    decide = {"type": "decide", "target": ticket["ticketId"], "action": "approve"}
    decide |= {"remember": {"scope": "run", "form": "argv"}}
    assert (await play("POST", f"/v1/runs/{run.id}/commands", body=decide)).status == 202
    (rule,) = (await play("GET", f"/v1/rules?run={run.id}&limit=5")).json()["rules"]
    assert (await play("POST", f"/v1/rules/{rule['ruleId']}/revoke")).json()["revokedBy"] == "operator"
    assert (await play("POST", "/v1/rules/none/revoke")).status == 404


async def play_front_ends(play, runtime):
    """The chat protocols; what is in their streams is judged elsewhere."""
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}
    body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
    assert (await play("POST", "/v1/ag-ui/agents/quick/run", body=body)).status == 200
    chat = {"id": "chat-1", "messages": [MESSAGE], "trigger": "submit-message"}
    for version in ("v6", "v7"):
        base = f"/v1/ai-sdk/{version}/agents/quick/chat"
        assert (await play("POST", base, body=chat | {"id": version})).status == 200
        assert (await play("GET", f"{base}/{version}/stream")).status == 204
        assert (await play("GET", f"{base}/{version}/stream?finished=true")).status == 200
    run = await runtime.start("stuck", "hi", thread_id="busy")
    base = "/v1/ai-sdk/v6/agents/stuck/chat"
    assert (await play("POST", f"{base}/busy/cancel")).status == 202
    await run.result()


async def play_mcp(play):
    """Both eras: a call, its stream again, an answer that nobody has asked for, and the protocol's errors."""

    async def say(method, *, headers=None, number=1, **params):
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        return await play("POST", "/v1/mcp", body=body, headers=headers or {})

    begun = await say("initialize", protocolVersion="2025-11-25", capabilities={})
    session = {"mcp-session-id": begun.headers["mcp-session-id"]}
    called = await say("tools/call", headers=session, number=2, name="quick", arguments={"input": "hi"})
    last = {"last-event-id": re.findall(r"id: (\S+)", called.body.decode())[0]}
    assert (await play("GET", "/v1/mcp", headers=session | last)).status == 200
    assert (await play("GET", "/v1/mcp", headers=last)).status == 400
    assert (await play("GET", "/v1/mcp", headers={"mcp-session-id": "x"} | last)).status == 404
    assert (await play("GET", "/v1/mcp")).status == 405
    assert (await say("ping")).status == 400
    assert (await say("ping", headers={"mcp-session-id": "x"})).status == 404
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await play("POST", "/v1/mcp", body=note, headers=session)).status == 202


async def play_a2a(play):
    """A run by both bindings, asked about and cancelled, and the operations that are not offered."""
    at, version = "/v1/a2a/clerk", {"a2a-version": "1.0"}

    async def ask(method, path, body=None):
        return await play(method, f"{at}{path}", body=body, headers=version)

    def said(name):
        return {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "hi"}]}

    for card in ("/.well-known/agent-card.json", f"{at}/.well-known/agent-card.json"):
        assert (await play("GET", card)).status == 200
    task = (await ask("POST", "/message:send", {"message": said("m1")})).json()["task"]
    assert (await ask("POST", "/message:stream", {"message": said("m2")})).status == 200
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
    assert (await ask("POST", "/rpc", rpc)).json()["result"]["id"] == task["id"]
    assert (await ask("GET", "/tasks")).json()["tasks"]
    own = f"/tasks/{task['id']}"
    assert (await ask("GET", own)).json()["id"] == task["id"]
    for method in ("GET", "POST"):
        assert (await ask(method, f"{own}:subscribe")).status == 200
    assert (await ask("POST", f"{own}:cancel")).status == 200
    assert (await ask("GET", "/tasks/nothing")).status == 404
    assert (await ask("GET", "/extendedAgentCard")).status == 400
    configs = f"{own}/pushNotificationConfigs"
    for method, path in (("POST", configs), ("GET", configs), ("GET", f"{configs}/x"), ("DELETE", f"{configs}/x")):
        assert (await ask(method, path)).status == 400


async def play_threads(play, runtime):
    """A conversation from its list to the bytes of a part."""
    file = gr.File(b"month,sales", media_type="text/csv", name="sales.csv")
    run = await runtime.start("quick", "see", thread_id="talk", attachments=[file])
    await run.result()
    listed = (await play("GET", "/v1/threads?limit=1")).json()["threads"]
    assert [line["thread"] for line in listed] == ["talk"]
    page = (await play("GET", "/v1/threads/talk/messages?limit=2")).json()
    target = page["messages"][0]["parts"][0]["href"]
    tag = (await play("GET", target)).headers["etag"]
    assert (await play("GET", target, headers={"if-none-match": tag})).status == 304
    assert (await play("GET", f"{target}9")).status == 404
    own = f"/v1/runs/{run.id}/parts/{page['messages'][0]['parts'][0]['sha256']}"
    assert (await play("GET", own)).body == b"month,sales"
    assert (await play("GET", own, headers={"if-none-match": tag})).status == 304
    assert (await play("GET", f"{own}9")).status == 404
    waiting = (await runtime.start("stuck", "hi", thread_id="other")).id
    assert waiting in {one["run"] for one in (await play("GET", "/v1/threads/other/messages")).json()["runs"]}
    assert (await play("GET", "/v1/threads/nothing/messages")).status == 404


async def play_refusals(play):
    """Every kind of refusal that a request alone can cause."""
    for target, status in [
        ("/v1/runs?status=odd", 422),
        ("/v1/runs?limit=x", 400),
        ("/v1/runs/nothing", 404),
        ("/v1/runs/nothing/events", 404),
        ("/console/nothing.js", 404),
    ]:
        assert (await play("GET", target)).status == status, target
    assert (await play("POST", "/v1/runs", body={"agent": "none", "text": "x"})).status == 404
    assert (await play("POST", "/v1/runs", body={"agnet": "x"}, checked=False)).status == 400
    assert (await play("POST", "/v1/runs", body=b"{", checked=False)).status == 400
    assert (await play("POST", "/v1/runs/x/commands", body=b"x" * 2_000_000, checked=False)).status == 413
    for route in ROUTES:
        if route.scope not in (None, "maybe"):
            target = route.template.replace("{version}", "v6").replace("{", "").replace("}", "")
            assert (await play(route.method, target, token=None)).status == 401, target
            assert (await play(route.method, target, token="wrong")).status == 401, target
    assert (await play("GET", "/healthz", headers={"host": "evil.example"})).status == 403
    assert (await play("GET", "/v1/agents", token=OTHER)).status == 403
    assert (await play("GET", "/v1/me", token="wrong")).status == 401


async def test_every_route_answers_as_the_document_says(tmp_path):
    """Method, status, media type and body, and nothing in a body that is not documented."""
    eve = Principal(name="eve", token=OTHER, scopes={"decide"})
    async with gr.open_runtime(tmp_path / "runs.db", agents=agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[eve], a2a_default="clerk") as address:
            play = Player(address)
            for target in (
                *(
                    "/healthz",
                    "/readyz",
                    "/metrics",
                    "/v1/me",
                    "/v1/agents",
                    "/v1/schemas",
                    "/v1/throughput",
                    "/v1/prices",
                ),
            ):
                assert (await play("GET", target)).status == 200
            known = (await play("GET", "/v1/agents")).json()["agents"]
            digests = [runtime.agents["clerk"].spec.digest]
            facts = {"description": "Pays back.", "tools": ["refund", "count", "note"], "digests": digests}
            assert known[0] == {"key": "clerk", "here": True, **facts}
            assert (await play("GET", "/v1/queues")).json() == {"queues": []}
            limited = (await play("POST", "/v1/queues/mails", body={"maxRunning": 2, "paused": False})).json()
            assert (await play("GET", "/v1/queues")).json() == {"queues": [limited]}
            assert (await play("POST", "/v1/prune", body={"before": "2020-01-31T09:30:00Z"})).json()["runs"] == 0
            for target in ("/v1/openapi.json", "/v1/asyncapi.json", "/", "/favicon.ico"):
                assert (await play("GET", target, token=None)).status == 200
            page = (await play("GET", "/")).body.decode()
            for name in re.findall(r'="/?(console/[\w.]+)"', page):
                assert (await play("GET", f"/{name}", token=None)).status == 200
            await play_runs(play, runtime)
            await play_threads(play, runtime)
            await play_rules(play, runtime)
            await play_front_ends(play, runtime)
            await play_mcp(play)
            await play_a2a(play)
            await play_refusals(play)
            documented = {
                (method.upper(), path, status)
                for path, item in play.judge.document["paths"].items()
                for method, operation in item.items()
                for status in operation["responses"]
                if status not in ("403", "default")  # of these some are enough
            }
            assert documented - play.judge.played == {("GET", "/readyz", "503")}
            assert {status for _, _, status in play.judge.played} >= {"403", "default"}


async def test_readiness_says_in_the_documented_form_that_the_store_does_not_answer(tmp_path):
    faults = Outages()
    store = gr.SQLiteStore(tmp_path / "runs.db", faults=faults)
    async with gr.open_runtime(store, agents=agents()) as runtime, gateway(runtime) as address:
        play = Player(address)
        faults.error = OSError("the disk is full")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.start, "quick", "hi")
            with trio.fail_after(PATIENCE):
                while (reply := await play("GET", "/readyz")).status == 200:  # noqa: ASYNC110 - over a socket
                    await trio.sleep(0.01)
            assert (reply.status, reply.json()["error"]["code"]) == (503, "store_unavailable")
            assert (await play("POST", "/v1/runs", body={"agent": "quick", "text": "hi"})).status == 503
            assert (await play("GET", "/healthz")).status == 200
            faults.error = None
    assert ("GET", "/readyz", "503") in play.judge.played


async def test_every_frame_of_a_connection_is_documented():
    """A client receives every type of frame that a gateway sends, and most types of events."""
    judge = Frames()
    async with gr.open_runtime(agents=agents()) as runtime, trio.open_nursery() as nursery:
        serving, address = trio.CancelScope(), None

        async def until_cancelled(task_status):
            with serving:
                async with gateway(runtime, limits=Limits(heartbeat_seconds=0.2)) as address:
                    task_status.started(address)
                    await trio.sleep_forever()

        address = await nursery.start(until_cancelled)
        async with welcomed(address) as first:
            judge.check(await first.ask("ping", id="p"))
        async with talking(address) as talk:
            judge.check(await talk.hear())
            await hear_a_run(judge, talk)
            runtime.reader._reports(LogsRenamed(runtime.store.epoch))  # as a shared store calls it
            for frame in await talk.until("gw.tick"):
                judge.check(frame)
            serving.cancel()
            for frame in await talk.until("gw.bye"):
                judge.check(frame)
    assert judge.seen >= set(DOWN), sorted(set(DOWN) - judge.seen)
    assert len(judge.seen & set(CATALOGUE)) >= 20, sorted(judge.seen & set(CATALOGUE))


async def hear_a_run(judge, talk):
    """Started, followed, listed, decided, lost and found again, refused, left."""

    async def until(kind):
        frames = await talk.until(kind)
        for frame in frames:
            judge.check(frame)
        return frames

    await talk.say("start", id="s1", agent="clerk", text="hi")
    run = (await until("gw.ack"))[-1]["run"]
    await talk.say("subscribe", run=run)
    seen = await until("run.waiting")
    ticket = next(frame["payload"] for frame in seen if frame["type"] == "run.approval.requested")
    await talk.say("subscribe", run=run, epoch="another", after=3)
    await until("gw.reset")
    await talk.say("unsubscribe", run=run)
    await until("gw.unsubscribed")
    await talk.say("subscribe", run=run)
    await until("gw.live")
    await talk.say("threads", id="l")
    thread = (await until("gw.threads"))[-1]["threads"][0]["thread"]
    await talk.say("messages", id="m", thread=thread)
    await until("gw.messages")
    await talk.say("watchTickets", id="t")
    await until("gw.tickets")
    await talk.say("watch", id="w", status="waiting")
    await until("gw.runs")
    await talk.say("decide", id="d1", run=run, target=ticket["ticketId"], action="resume")
    await until("gw.counts")
    await talk.say("unwatch", id="w")
    await until("gw.unwatched")
    await talk.say("decide", id="d2", run=run, target=ticket["ticketId"], action="cancel")
    assert (await until("gw.error"))[-1]["current"]
