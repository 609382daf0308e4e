"""Secrets that are cut at every place, and secrets that are put into all a run touches: no output shows one.

What is looked at is what leaves: events, views, outcomes, HTTP, Server-Sent Events, WebSocket frames, the streams of
the AI SDK and AG-UI, A2A, metrics, the log, the command line. Rows are private and keep everything.
"""

import base64
import json
from collections.abc import AsyncIterator

import attrs
import pytest

import greenroom as gr
from greenroom.testing import call, fail, text
from greenroom.transport import Address

from ..support.gateway import gateway, http, welcomed
from ..support.runs import agent, events_of, frames_of, home, payloads

KEY = "kanarienvogel-0123456789-abcdefghijklmnopqrstuvwx"
"""49 characters."""
EDGE = 4_096


def assert_none_shown(shown: bytes | str) -> None:
    reported = shown if isinstance(shown, str) else shown.decode()
    for length in range(6, len(KEY) + 1):
        assert KEY[:length] not in reported, f"the first {length} characters"
        if length > 8:
            assert KEY[-length:] not in reported, f"the last {length} characters"


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(-50, 3, 4))
@pytest.mark.parametrize("edge", ["head", "tail"])
async def test_a_secret_that_the_cut_of_a_large_result_goes_through_is_not_shown(shelf, autojump_clock, offset, edge):
    before = EDGE + offset
    filled = "x " * 200_000
    whole = filled[:before] + KEY + filled if edge == "head" else filled + KEY + filled[: before + 1]

    @gr.tool
    async def dump() -> str:
        return whole

    @gr.tool
    async def listing() -> list[str]:
        return [whole[:300_000], whole[-300_000:]]

    helper = agent([call("dump", id="c1"), call("listing", id="c2")], whole, tools=[dump, listing])
    async with home(shelf, agents=[helper], secrets=[KEY]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        assert_none_shown(await frames_of(runtime, run.id))
        results = payloads(await events_of(run), "tool.result")
    assert all("characters left out" in entry["result"] for entry in results)
    assert [len(entry["result"]) for entry in results] == [pytest.approx(2 * EDGE + 60, abs=60)] * 2


async def test_the_keys_of_a_large_result_are_read_before_it_becomes_text(shelf, autojump_clock):
    large = {"password": "swordfish", "rows": ["x" * 100] * 4_000, "auth": {"api_key": "marlin", "n": 1}}

    @gr.tool
    async def dump() -> dict:
        return large

    helper = agent(call("dump", id="c1"), "done", tools=[dump])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
        record = await runtime.store.load(run.id, calls="all")
    assert record.calls[0].result == large
    assert result["result"].startswith('{"password":"[redacted]","rows":["xxx')
    assert result["result"].endswith('"auth":{"api_key":"[redacted]","n":1}}')
    size = len(json.dumps(large, separators=(",", ":")))
    assert f"[... {size - 2 * EDGE} of {size} characters left out ...]" in result["result"]


@pytest.mark.parametrize("length", [1_990, 1_960, 1_999])
async def test_a_secret_that_the_limit_of_an_errors_text_cuts_is_not_shown(shelf, autojump_clock, length):
    @gr.tool
    async def fails() -> str:
        raise ValueError("x" * (length - 20) + " " + KEY + " and more " * 100)

    @gr.tool
    async def leaks() -> str:
        raise RuntimeError({"password": "swordfish", "at": "/home/alice/x"})

    helper = agent([call("fails", id="c1"), call("leaks", id="c2")], text("done"), tools=[fails, leaks])
    async with home(shelf, agents=[helper], secrets=[KEY]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        frames = await frames_of(runtime, run.id)
    assert_none_shown(frames)
    assert b"swordfish" not in frames
    assert b"alice" not in frames


async def test_the_directory_of_a_run_is_shown_by_its_name(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def read(path: str) -> str:
        raise FileNotFoundError(2, "No such file", path)

    helper = agent(call("read", path="/srv/acme/project/a.csv", id="c1"), "in /srv/acme/project", tools=[read])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", workspace="/srv/acme/project")
        waiting = await run.wait()
        assert waiting.tickets[0].arguments == {"path": "[workspace]/a.csv"}
        await run.decide(waiting.tickets[0].approve())
        await run.result()
        events = await events_of(run)
        assert b"/srv/acme" not in await frames_of(runtime, run.id)
        assert (await runtime.store.load(run.id)).info.workspace == "/srv/acme/project"
    assert events[0].payload["workspace"] == "project"
    assert "[workspace]/a.csv" in payloads(events, "tool.result")[0]["result"]


SHAPED = "sk_live_" + "a1B2c3D4" * 4
TOLD = "swordfish-42"
"""A password that only its name tells."""
PLACE = "/home/alice/project"


def leaky() -> gr.Agent[object]:
    """An agent whose model, tools, errors, questions and streams all speak of secrets."""

    @gr.tool
    async def works(ctx: gr.ToolContext, key: str, config: dict) -> dict:
        await ctx.progress(0.5, f"with {key}")
        for letter in f"printing {key} and {SHAPED} then {key[:-7]}":
            await ctx.output(letter)
        return {"used": key, "config": config, "text": json.dumps(config), "path": f"{PLACE}/a.csv", key: [key]}

    @gr.tool
    async def fails(key: str) -> str:
        raise KeyError({"password": TOLD, "key": key, "at": f"{PLACE}/b.csv"})

    @gr.tool(needs_approval=True)
    async def pays(key: str, password: str) -> str:
        raise gr.ToolError(f"no: {key} Authorization: Basic {BASIC}")

    secret = {"password": TOLD, "shaped": SHAPED, "nested": {"api_key": TOLD}}
    return agent(
        [text(f"thinking of {KEY}"), call("works", key=KEY, config=secret, id="c1"), call("fails", key=KEY, id="c2")],
        fail("overloaded", f"{KEY} is throttled at {PLACE}"),
        call("pays", key=KEY, password=TOLD, id="c3"),
        f"the key is {KEY}, the other {SHAPED}, in {PLACE}/c.csv, and {KEY[:-5]}",
        tools=[works, fails, pays],
    )


BASIC = base64.b64encode(f"user:{TOLD}".encode()).decode()
FORBIDDEN = (TOLD, SHAPED, SHAPED[:20], BASIC, PLACE, "alice", *(KEY[:n] for n in range(12, 50)), KEY[-20:])


def assert_clean(where: str, shown: object) -> None:
    reported = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown)
    assert [one for one in FORBIDDEN if one in reported] == [], f"{where}: {reported[:2_000]}"


async def everything(
    runtime: gr.Runtime, address: Address, run_id: str, *, over: bool, until: str = "run.approval.requested"
) -> AsyncIterator[tuple[str, object]]:
    """Every output about one run that a gateway and a runtime have."""
    for path in ("", "/events"):
        yield path or "one run", (await http(address, "GET", f"/v1/runs/{run_id}{path}")).body
    if over:  # a stream of a living run does not end
        streamed = await http(address, "GET", f"/v1/runs/{run_id}/events", headers={"accept": "text/event-stream"})
        yield "Server-Sent Events", streamed.body
    for path in ("/v1/runs", "/metrics", "/healthz", "/readyz", "/v1/agents", "/v1/openapi.json"):
        yield path, (await http(address, "GET", path)).body
    view = await (await runtime.get(run_id)).view()
    server, version = f"/v1/a2a/{view.agent}", {"a2a-version": "1.0"}
    tasks = f"{server}/tasks"
    for path in (f"{tasks}/{run_id}", f"{tasks}/{run_id}:subscribe", f"{tasks}?includeArtifacts=true", tasks):
        shown = await http(address, "GET", path, headers=version)
        assert shown.status == (400 if over and "subscribe" in path else 200)
        yield f"A2A: {path}", shown.body
    yield "the card", (await http(address, "GET", f"{server}/.well-known/agent-card.json")).body
    yield "the log of the store", await frames_of(runtime, run_id)
    yield "the view", repr((view.tickets, view.termination))
    async with welcomed(address) as talk:
        await talk.say("subscribe", run=run_id, after=0)
        frames = json.dumps(await talk.until(until))
        refusal = json.dumps(await talk.ask("decide", run=run_id, target="none", mode="approve", id="x"))
    yield "WebSocket frames", frames
    yield "a refusal", refusal


@pytest.mark.slow
async def test_no_output_of_a_run_that_touches_secrets_everywhere_shows_one(tmp_path, caplog):
    caplog.set_level("DEBUG")
    store = gr.SQLiteStore(tmp_path / "runs.db")
    async with (
        gr.open_runtime(store, agents=[leaky()], secrets=[KEY]) as runtime,
        gateway(runtime) as address,
    ):
        run = await runtime.start("helper", f"use {KEY} or {SHAPED}, password={TOLD}", workspace=PLACE, title=f"{KEY}")
        waiting = await run.wait()
        assert waiting.tickets, waiting
        async for where, shown in everything(runtime, address, run.id, over=False):
            assert_clean(f"while it waits: {where}", shown)
        answer = await run.decide(waiting.tickets[0].approve(reason=f"since {KEY}"))
        assert answer.ok
        await run.send(f"and {KEY[:-3]}")
        await run.result()
        async for where, shown in everything(runtime, address, run.id, over=True):
            assert_clean(f"at its end: {where}", shown)
        assert "[redacted]" in (await frames_of(runtime, run.id)).decode()
        record = await runtime.store.load(run.id, calls="all")
        assert record.calls[0].arguments["key"] == KEY, "the private row has all of it"
        await runtime.start(leaky_again(), "hi")
        for version, body in (("v6", AI_SDK), ("v7", AI_SDK)):
            reply = await http(address, "POST", f"/v1/ai-sdk/{version}/agents/again/chat", body={**body, "id": version})
            assert reply.status == 200, reply.body
            assert_clean(f"AI SDK {version}", reply.body)
        reply = await http(address, "POST", "/v1/ag-ui/agents/again/run", body=AG_UI)
        assert reply.status == 200, reply.body
        assert_clean("AG-UI", reply.body)
    assert_clean("the log", caplog.text)


def _raises(*_: object) -> object:
    raise ValueError({"password": TOLD, "key": KEY, "shaped": SHAPED, "at": f"{PLACE}/b.csv"})


FORM = {"type": "object", "additionalProperties": {"type": "integer"}}
WRONG = json.dumps({f"{KEY} {SHAPED} in {PLACE}": f"{KEY} {SHAPED} in {PLACE}"})
ENDS = {"completed": gr.Completed, "failed": gr.Failed}


def _draws(ctx: gr.ToolContext) -> list[object]:
    return [KEY, gr.File(b"x", media_type="text/plain", name=f"{KEY}.txt"), gr.Image(url=f"https://a.example/?k={KEY}")]


def _child(*steps: object, **options: object) -> gr.Tool[..., object]:
    return agent(*steps, key="child").as_tool(**options)


draws = gr.tool(name="draws")(_draws)
rejected = gr.tool(
    name="draws", output_guardrails=[gr.tool_output_guardrail(lambda c, r: gr.Reject(f"{KEY} in {PLACE}"), name="g")]
)(_draws)
tripping = gr.input_guardrail(lambda c, t: gr.Trip({"password": TOLD, "k": t}), name="g")
CALL = call("draws", id="c1")
ASKS = call("child", input=f"{KEY} {SHAPED}", id="c1")


def _desk() -> gr.Agent[str]:
    return agent(f"the key is {KEY}, the other {SHAPED}, in {PLACE}", key="desk")


@attrs.frozen
class Order:
    password: str
    note: str


READS = {"on_handoff": lambda ctx, given: None, "input_type": Order}
GIVES = call("transfer_to_desk", {"password": TOLD, "note": f"{KEY} {SHAPED}"}, id="c1")
MOVES = call("transfer_to_desk", id="c1")
SECRETIVE = {
    "instructions": (lambda: agent("x", instructions=_raises), "failed"),
    "an answer of another form": (lambda: agent(WRONG, WRONG, output_type=FORM), "failed"),
    "a use of tools": (lambda: agent(CALL, tools=[draws], tool_use=_raises), "failed"),
    "parts of a result": (lambda: agent(CALL, "x", tools=[draws]), "completed"),
    "a predicate": (lambda: agent("x", tools=[gr.tool(name="draws", is_enabled=_raises)(_draws)]), "completed"),
    "a trip": (lambda: agent("x", input_guardrails=[tripping]), "failed"),
    "a guardrail": (lambda: agent("x", output_guardrails=[gr.output_guardrail(_raises, name="g")]), "failed"),
    "a rejected result": (lambda: agent(CALL, "x", tools=[rejected]), "completed"),
    "a child run": (lambda: agent(ASKS, KEY, tools=[_child(f"{SHAPED} in {PLACE}")]), "completed"),
    "a child run that fails": (
        lambda: agent(ASKS, "x", tools=[_child(fail("unauthorized", f"{KEY} {PLACE}"))]),
        "completed",
    ),
    "the extract of a child run": (lambda: agent(ASKS, "x", tools=[_child("y", extract=_raises)]), "completed"),
    "the input of a handoff": (lambda: agent(GIVES, handoffs=[gr.handoff(_desk(), **READS)]), "completed"),
    "the callback of a handoff": (
        lambda: agent(MOVES, f"the key is {KEY}", handoffs=[gr.handoff(_desk(), on_handoff=_raises)]),
        "completed",
    ),
    "the filter of a handoff": (
        lambda: agent(MOVES, f"the key is {KEY}", handoffs=[gr.handoff(_desk(), input_filter=_raises)]),
        "completed",
    ),
    "the messages of a filter": (
        lambda: agent(MOVES, handoffs=[gr.handoff(_desk(), input_filter=gr.filters.nested)]),
        "completed",
    ),
    "a compaction": (
        lambda: agent(CALL, f"a summary of {KEY}", "x", tools=[draws], plugins=[gr.Compaction(above=1, keep=1)]),
        "completed",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SECRETIVE)
async def test_no_output_of_what_belongs_to_the_loop_shows_a_secret(case, caplog):
    caplog.set_level("DEBUG")
    make, end = SECRETIVE[case]
    attachments = [
        gr.File(b"x", media_type="text/plain", name=f"{KEY}.txt"),
        gr.Image(url=f"https://user:{KEY}@a.example/?password={TOLD}"),
    ]
    async with gr.open_runtime(agents=[make()], secrets=[KEY]) as runtime, gateway(runtime) as address:
        run = await runtime.start("helper", f"use {KEY}", workspace=PLACE, attachments=attachments)
        outcome = await run.wait()
        assert type(outcome) is ENDS[end]
        page = await runtime.runs()
        for one in page.runs:
            async for where, shown in everything(runtime, address, one.info.run_id, over=True, until="run.created"):
                assert_clean(where, shown)
        if end == "failed":
            assert_clean("the outcome", repr(outcome))
        assert "[redacted]" in (await frames_of(runtime, run.id)).decode()
    assert_clean("the log", caplog.text)


def leaky_again() -> gr.Agent[object]:
    """What the streams of other protocols are asked to run: it needs no person."""

    @gr.tool
    async def fails(key: str, password: str) -> str:
        raise RuntimeError({"password": password, "key": key, "at": f"{PLACE}/b.csv"})

    steps = [text(f"a {KEY}"), call("fails", key=KEY, password=TOLD, id="c1")], f"{KEY} {SHAPED} {PLACE} {KEY[:-5]}"
    return agent(*steps * 4, tools=[fails], key="again")


AI_SDK = {
    "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
    "trigger": "submit-message",
}
AG_UI = {
    "threadId": "thread-1",
    "runId": "run-1",
    "state": {},
    "messages": [{"id": "m1", "role": "user", "content": "hi"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


@pytest.mark.rule("A-21")
@pytest.mark.parametrize("where", ["runtime", "run"])
async def test_a_mask_that_an_edit_leaves_in_place_replaces_the_value_behind_it(where):
    """People edit the arguments as they are shown; a tool never runs with the text of a mask."""
    ran = []

    @gr.tool(needs_approval=True)
    async def pay(cents: int, token: str, note: str, to: list[dict[str, str]]) -> str:
        ran.append((cents, token, note, to))
        return "paid"

    given = {
        "cents": 500,
        "token": "a-token-of-the-shop",
        "note": "key hunter2-hunter2 for you",
        "to": [{"name": "ann", "password": "p"}, {"name": "bob", "password": "q"}],
    }
    helper = agent(call("pay", given, id="c1"), "done", tools=[pay])
    async with gr.open_runtime(agents=[helper], secrets=["hunter2-hunter2"]) as runtime:
        run = await runtime.start("helper", "hi")
        waiting = await run.wait()
        (ticket,) = waiting.tickets
        assert (ticket.arguments["token"], ticket.arguments["note"]) == ("[redacted]", "key [redacted] for you")
        assert [one["password"] for one in ticket.arguments["to"]] == ["[redacted]"] * 2
        edited = {**ticket.arguments, "cents": 400}
        edited["to"] = [dict(ticket.arguments["to"][0]), {**ticket.arguments["to"][1], "name": "bill"}]
        if where == "runtime":
            decision = attrs.evolve(ticket.approve(edited_arguments=edited), decision_id="d")
            answer = await runtime.commands.decide(run.id, decision)
            again = await runtime.commands.decide(run.id, decision)
            assert again.status == "duplicate"
        else:
            answer = await run.decide(ticket.approve(edited_arguments=edited))
        assert answer.status == "accepted"
        await run.result()
    people = [{"name": "ann", "password": "p"}, {"name": "bill", "password": "q"}]
    assert ran == [(400, given["token"], given["note"], people)]
