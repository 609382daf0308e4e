"""Who may what, attacked: tokens, scopes, runs of others, forged origins, commands that are sent twice or too deep."""

import json

import pytest
import trio
from tests.support.gateway import TOKEN, http
from tests.support.gateway_inside import house
from tests.support.raw_ws import Ended, frame, head, said, upgrade
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Limits, Principal, serve
from greenroom.transport.server.routes import ROUTES

pytestmark = pytest.mark.slow

SECRET = "xyzzy"
ADMIN, FOLLOWER, DECIDER, STARTER, BLIND, ANN = (
    f"token-of-{name}-0123456789" for name in ("admin", "follower", "decider", "starter", "blind", "ann")
)


def principals():
    own = lambda info: info.by == "ann"  # noqa: E731 - short, and used once
    return [
        Principal(name="admin", token=ADMIN),
        Principal(name="follower", token=FOLLOWER, scopes={"follow"}),
        Principal(name="decider", token=DECIDER, scopes={"decide"}),
        Principal(name="starter", token=STARTER, scopes={"start"}),
        Principal(name="blind", token=BLIND, sees=lambda info: False),
        Principal(name="ann", token=ANN, sees=own),
    ]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents}"


def clerk():
    return agent(call("refund", order=SECRET, cents=5, id="c1"), "done", tools=[refund], key="clerk")


async def waiting(here):
    """A run of the admin that waits for its approval; everything about it holds the secret."""
    run = await here.runtime.start("clerk", SECRET, run_id=f"run-{SECRET}", thread_id=f"thread-{SECRET}", by="admin")
    await run.wait()
    return run


COMMANDS = {
    "start": {"id": "1", "agent": "clerk", "text": "hi"},
    "decide": {"id": "2", "run": f"run-{SECRET}", "target": "c1", "action": "resume"},
    "send": {"id": "3", "run": f"run-{SECRET}", "text": "more"},
    "cancel": {"id": "4", "run": f"run-{SECRET}"},
    "pause": {"id": "6", "run": f"run-{SECRET}"},
    "subscribe": {"id": "5", "run": f"run-{SECRET}"},
}
MAY = {
    FOLLOWER: {"subscribe"},
    DECIDER: {"decide", "send", "pause"},
    STARTER: {"start", "cancel"},
    ADMIN: set(COMMANDS),
}


@pytest.mark.parametrize("token", MAY)
@pytest.mark.parametrize("kind", COMMANDS)
async def test_a_frame_without_its_scope_is_refused_and_does_nothing(token, kind):
    async with house(clerk(), principals=principals()) as here:
        run = await waiting(here)
        before = await here.runtime.store.events(run.id)
        async with here.talking(token) as raw:
            await raw.send(said(kind, **COMMANDS[kind]))
            found = await raw.tell()
            if kind in MAY[token]:
                assert found["type"] in ("gw.ack", "gw.subscribed"), found
                return
            assert (found["code"], found["id"]) == ("not_allowed", COMMANDS[kind]["id"])
        assert await here.runtime.store.events(run.id) == before
        assert len((await here.runtime.runs()).runs) == 1


@pytest.mark.parametrize("token", [None, FOLLOWER, DECIDER, STARTER])
async def test_each_route_wants_its_scope(token):
    """From the table of routes itself: whatever is added to it is tried here."""
    free = {"maybe", None}
    scopes = {FOLLOWER: {"follow", "any"} | free, DECIDER: {"decide", "any"} | free, STARTER: {"start", "any"} | free}
    lacks = {("/v1/ai-sdk/{version}/agents/{agent}/chat/{chat}/cancel", STARTER)}  # it looks for the run to cancel
    async with house(clerk(), principals=principals()) as here:
        await waiting(here)
        for route in ROUTES:
            found = await http(
                here.address, route.method, path_of(route), token=token, body=b"{}" if route.method == "POST" else None
            )
            open_ = route.scope in scopes.get(token, free) and (route.template, token) not in lacks
            assert (found.status not in (401, 403)) == open_, (route.method, route.template, found.status)
            if token is None and route.scope not in free:
                assert found.headers["www-authenticate"] == 'Bearer realm="greenroom"'


def path_of(route):
    path = route.template
    for name, value in {"run": f"run-{SECRET}", "agent": "clerk", "chat": f"thread-{SECRET}", "version": "v6"}.items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{name}", "index.html")


BODIES = {
    "/v1/runs": [{"agent": "clerk", "text": SECRET, "run": f"run-{SECRET}"},
                 {"agent": "helper", "text": "hi", "thread": f"thread-{SECRET}"}],
    "/v1/runs/{run}/commands": [{"type": "cancel"}, {"type": "pause"}, {"type": "send", "text": "x"},
                                {"type": "decide", "target": "c1", "action": "resume"}],
    "/v1/runs/{run}/fork": [{"step": 0}, {"step": 1, "newRun": "copy"}],
    "/v1/ai-sdk/{version}/agents/{agent}/chat": [
        {"id": f"thread-{SECRET}", "trigger": "submit-message",
         "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]},
    ],
    "/v1/ag-ui/agents/{agent}/run": [
        {"threadId": f"thread-{SECRET}", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
         "messages": [{"id": "m1", "role": "user", "content": "hi"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("token", [BLIND, ANN])
async def test_runs_of_others_do_not_exist_on_any_route(token):
    """Neither what they say nor what they are called beyond what was asked for; and nothing happens to them."""
    async with house(clerk(), principals=principals()) as here:
        run = await waiting(here)
        before = await here.runtime.store.events(run.id)
        for route in ROUTES:
            for body in BODIES.get(route.template, [{}]) if route.method == "POST" else [None]:
                for headers in ({}, {"accept": "text/event-stream"}):
                    found = await http(
                        here.address, route.method, path_of(route), token=token, body=body, headers=headers
                    )
                    said_back = found.body.decode().replace(f"run-{SECRET}", "").replace(f"thread-{SECRET}", "")
                    assert SECRET not in said_back, (route.template, found.body)
                    if "{run}" in route.template:
                        assert found.json()["error"]["code"] == "unknown_run", route.template
                    assert found.status < 500, (route.template, found.body)
        assert await here.runtime.store.events(run.id) == before
        assert (await run.view()).tickets
        runs = (await here.runtime.runs(thread_id=f"thread-{SECRET}")).runs
        assert [line.info.run_id for line in runs] == [run.id], "nobody else has got a run into the thread"


async def test_runs_of_others_do_not_exist_in_any_frame():
    async with house(clerk(), principals=principals()) as here:
        run = await waiting(here)
        async with here.talking(BLIND) as raw:
            for kind in ("subscribe", "decide", "send", "cancel"):
                for more in ({}, {"after": 10**6, "epoch": "x"} if kind == "subscribe" else {}):
                    await raw.send(said(kind, **COMMANDS[kind], **more))
                    assert (await raw.tell())["code"] == "unknown_run"
            await raw.send(said("unsubscribe", run=run.id))
            assert (await raw.tell())["code"] == "unknown_run"
            await raw.send(said("start", id="1", agent="clerk", text=SECRET, run=run.id))
            found = await raw.tell()
            assert (found["code"], "thread" in found) == ("not_allowed", False)
            assert "exist" not in found["message"]


async def test_a_thread_with_one_run_of_another_principal_in_it_is_not_to_be_had():
    """Whichever run is the newest: a run reads all that was said in its thread."""
    async with house(clerk(), principals=principals()) as here:
        for by, thread, allowed in (
            ("admin", "t1", False),
            ("ann", "t2", True),
            ("admin ann", "t3", False),
            ("ann admin", "t4", False),
            ("admin " + "ann " * 120, "t5", False),
        ):
            for i, name in enumerate(by.split()):
                run = await here.runtime.start("helper", SECRET, run_id=f"{thread}-{i}", thread_id=thread, by=name)
                await run.result()
            async with here.talking(ANN) as raw:
                await raw.send(said("start", id=f"s-{thread}", agent="helper", text="what was said?", thread=thread))
                found = await raw.tell()
                assert found["type"] == ("gw.ack" if allowed else "gw.error"), (by, found)
                assert found.get("code") == (None if allowed else "not_allowed")


# --- pages of other sites --------------------------------------------------------------------------------------------

ORIGINS = ["http://evil", "null", "http://localhost", "http://localhost:1", "http://127.0.0.1", "file://", "",
           "http://127.0.0.1.evil:80", "http://evil#@127.0.0.1", "//[", "http://[", "HTTP://EVIL", "\xff"]  # fmt: skip


@pytest.mark.parametrize("origin", ORIGINS)
async def test_a_page_of_another_site_gets_nothing(origin):
    """Neither a request nor a handshake, with a token or without, nor a header that lets it read what it got."""
    async with house(origins=["https://desk.example"]) as here:
        for data in (
            head("GET /v1/runs HTTP/1.1", {"Host": here.host, "Authorization": f"Bearer {TOKEN}"}, Origin=origin),
            head("GET /healthz HTTP/1.1", {"Host": here.host}, Origin=origin),
            head("OPTIONS /v1/runs HTTP/1.1", {"Host": here.host}, Origin=origin, Access_Control_Request_Method="POST"),
            upgrade(here.host, Origin=origin),
            upgrade(here.host, TOKEN, Origin=origin),
        ):  # fmt: skip
            async with here.calling() as raw:
                await raw.send(data)
                answer = await raw.answer()
                assert (answer.status, answer.code) == (403, "forbidden_origin")
                assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host",
    ["evil", "evil:80", "localhost", "127.0.0.1", "localhost:1", "127.0.0.1.nip.io:{port}", "localhost.evil:{port}",
     "localhost:{port}.evil", "evil@127.0.0.1:{port}", "127.0.0.1:{port}@evil", "0.0.0.0:{port}", "[::1", "",
     "localhost:{port} ", "localhost:0{port}", "2130706433:{port}", "\xff:{port}", "127.1:{port}"],
)  # fmt: skip
async def test_a_name_that_was_bound_to_our_address_is_not_ours(host):
    """DNS rebinding: the page's own origin would fit, the name does not."""
    async with house() as here:
        name = host.format(port=here.address.port)
        if name.strip() == f"localhost:{here.address.port}":
            return  # HTTP takes the space away
        for origin in (None, f"http://{name}"):
            for data in (
                head("GET / HTTP/1.1", {"Host": name}, Origin=origin),
                upgrade(name, TOKEN, Origin=origin),
            ):
                async with here.calling() as raw:
                    await raw.send(data)
                    assert (await raw.answer()).status in (400, 403)


async def test_listed_pages_and_our_own_may_ask_and_may_read():
    async with house(origins=["https://desk.example"], hosts=["gate.example"]) as here:
        for host, origin, listed in (
            (here.host, "https://desk.example", True),
            (here.host, f"http://{here.host}", False),
            ("GATE.example", "https://gate.example", False),
            (f"localhost:{here.address.port}", f"http://localhost:{here.address.port}", False),
        ):
            async with here.calling() as raw:
                headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
                await raw.send(head("GET /v1/runs HTTP/1.1", headers, Origin=origin))
                answer = await raw.answer()
                assert answer.status == 200
                assert answer.headers.get("access-control-allow-origin") == (origin if listed else None)
                assert "access-control-allow-credentials" not in answer.headers
                await raw.send(head("OPTIONS /v1/runs HTTP/1.1", {"Host": host}, Origin=origin))
                answer = await raw.answer()
                assert answer.status == (204 if listed else 405)
                assert ("access-control-allow-methods" in answer.headers) == listed
            async with here.calling() as raw:
                await raw.upgraded(upgrade(host, TOKEN, Origin=origin))
                assert (await raw.tell())["type"] == "gw.welcome"


async def test_two_principals_with_one_token_are_refused():
    """Whose events it made would be a matter of luck."""
    ann, bob = Principal(name="ann", token=ANN), Principal(name="bob", token=ANN)
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError, match="same token"):
            await serve(runtime, port=0, principals=[ann, bob])
        with pytest.raises(gr.UsageError, match="same token"):
            await serve(runtime, port=0, token=ANN, principals=[ann])


async def test_another_address_of_loopback_is_reached_under_its_own_name():
    async with house(host="127.0.0.2") as here:
        assert (await http(here.address, "GET", "/healthz")).status == 200


# --- again, and otherwise --------------------------------------------------------------------------------------------


async def test_commands_that_are_sent_twice_act_once_on_whichever_way_they_come():
    async with house(clerk(), limits=Limits(messages_per_second=1000)) as here:
        run = await waiting(here)
        decide = {"target": "c1", "action": "resume", "reason": "fine"}
        async with here.talking() as raw:
            await raw.send(*[said("decide", id="d", run=run.id, **decide)] * 20)
            found = [(await raw.tell())["status"] for _ in range(20)]
            assert found == ["accepted"] + ["duplicate"] * 19
            path, key = f"/v1/runs/{run.id}/commands", {"idempotency-key": "d"}
            again = await http(here.address, "POST", path, body={"type": "decide", **decide}, headers=key)
            assert (again.status, again.json()["status"]) == (202, "duplicate")
            for other in (
                {"type": "decide", **decide, "action": "cancel"},
                {"type": "decide", **decide, "reason": "other"},
                {"type": "cancel"},
                {"type": "send", "text": "x"},
            ):
                again = await http(here.address, "POST", path, body=other, headers=key)
                assert again.json()["error"]["code"] == "decision_id_conflict", other
        await run.result()
        events = [json.loads(event) for event in await here.runtime.store.events(run.id)]
        assert [event["type"] for event in events].count("run.approval.resolved") == 1


async def test_two_who_decide_at_once_with_the_same_id_are_one_decision_or_a_conflict():
    async with house(clerk()) as here:
        run = await waiting(here)
        answers = []

        async def decide(action):
            async with here.talking() as raw:
                await raw.send(said("decide", id="d", run=run.id, target="c1", action=action))
                found = await raw.tell()
                answers.append(found.get("status") or found["code"])

        async with trio.open_nursery() as nursery:
            for action in ["resume"] * 5 + ["cancel"] * 5:
                nursery.start_soon(decide, action)
        assert answers.count("accepted") == 1
        assert answers.count("duplicate") == 4
        assert answers.count("decision_id_conflict") == 5


DEPTHS = [60, 70, 500, 960, 5000, 30_000]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
async def test_no_depth_of_nesting_crashes_a_reader_or_a_run(depth, left, right):
    bomb = left * depth + "1" + right * depth
    places = [
        '{"type":%s}',
        '{"type":"ping","id":%s}',
        '{"type":"ping","other":%s}',
        '{"type":"subscribe","run":"r","after":%s}',
        '{"type":"decide","id":"e","run":"run-xyzzy","target":"c1","action":"resume","editedArguments":{"order":%s}}',
        '{"type":"decide","id":"f","run":"run-xyzzy","target":"c1","action":%s}',
        '{"type":"decide","id":"d","run":"run-xyzzy","target":"c1","action":"resume","result":%s}',
    ]
    async with house(clerk()) as here:
        run = await waiting(here)
        for place in places:
            async with here.talking() as raw:
                await raw.send(frame(place % bomb))
                found = await raw.tell()
                assert found["type"] in ("gw.error", "gw.ack", "gw.bye"), place
            body = (place % bomb).encode()
            for path in ("/v1/runs", f"/v1/runs/{run.id}/commands"):
                assert (await http(here.address, "POST", path, body=body)).status < 500
        await run.cancel(by="admin")
        assert type(await run.result()).__name__ in ("Completed", "Cancelled")


@pytest.mark.parametrize(
    "value", ['"\\ud800"', "9" * 60_000, "-" + "9" * 4301, '"\\u0000"', '"\U0001f600"', "1e308", "-0"]
)
async def test_no_value_crashes_a_reader_or_a_run(value):
    async with house(clerk()) as here:
        run = await waiting(here)
        decide = {"type": "decide", "id": "d", "run": run.id, "target": "c1", "action": "resume"}
        start = {"type": "start", "id": "s", "agent": "helper", "text": "hi"}
        others = [{"type": "send", "id": "t", "run": run.id}, {"type": "cancel", "run": run.id}, {"type": "ping"}]
        cases = [
            (decide, ("result", "reason", "fingerprint", "target", "id")),
            (start, ("text", "run", "thread", "session")),
            (others[0], ("text",)),
            (others[1], ("id", "reason")),
            (others[2], ("id",)),
        ]
        for plain, names in cases:
            for name in names:
                data = json.dumps({**plain, name: "@"}).replace('"@"', value)
                async with here.talking() as raw:
                    await raw.send(frame(data))
                    assert (await raw.tell())["type"] in ("gw.error", "gw.ack", "gw.bye", "gw.tick"), (name, data[:100])
        for one in (await here.runtime.runs()).runs:
            run = await here.runtime.get(one.info.run_id)
            await run.cancel(by="admin")
            await run.result()


async def test_a_token_is_in_no_answer_and_in_no_log(caplog):
    caplog.set_level(0)
    async with house(clerk(), principals=principals()) as here:
        for data in (
            head("GET /v1/runs HTTP/1.1", {"Host": here.host, "Authorization": f"Bearer {ADMIN}"}),
            head("GET /v1/runs HTTP/1.1", {"Host": here.host, "Authorization": f"Bearer {ADMIN}x"}),
            head("GET /nothing HTTP/1.1", {"Host": here.host, "Authorization": f"Basic {ADMIN}"}),
            upgrade(here.host, ADMIN) + frame("x" * 70_000),
            upgrade(here.host) + said("hello", token=f"{ADMIN}x"),
            upgrade(here.host) + said("hello", tokens=ADMIN),
            upgrade(here.host) + said("hello", token=ADMIN) + said("ping", id="1") + said("cancel", id="1", run="x"),
        ):
            async with here.calling() as raw:
                await raw.send(data)
                with trio.move_on_after(0.3):
                    try:
                        await raw.until(b"never")
                    except Ended as ended:
                        raw.left = ended.rest
                assert ADMIN.encode() not in raw.left
        assert ADMIN not in repr(here.gateway)
    assert ADMIN not in caplog.text
