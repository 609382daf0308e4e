"""`serve(authenticate=)` at each door: HTTP, streams, WebSockets, the chat protocols, MCP and A2A."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from tests.e2e.test_gateway_access import clerk, path_of
from tests.support.gateway import gateway, http, talking
from tests.support.gateway_inside import listening
from tests.support.runs import agent

import greenroom as gr
from greenroom.transport import Principal, SignIn, SignInRefusal, serve
from greenroom.transport.server.routes import ROUTES

pytestmark = pytest.mark.slow

PEOPLE = {"token of ann": "ann", "token of bob": "bob"}
DOORS = [route for route in ROUTES if route.scope not in (None, "maybe")]


async def authenticate(request):
    """Know two people; a third is banned, and the fourth breaks the function."""
    match request.token:
        case None:
            return None
        case "token of eve":
            return SignInRefusal(message="eve is banned", status=403)
        case "token of a bug":
            raise RuntimeError("a bug of the program")
        case token if token in PEOPLE:
            return Principal(name=PEOPLE[token], scopes={"follow", "decide", "start"})
    return SignInRefusal(message="the session has expired; sign in again")


@asynccontextmanager
async def house(sign_in=authenticate, agents=(), **options):
    async with gr.open_runtime(agents=[clerk(), *agents], drain=0.1) as runtime:
        async with gateway(runtime, authenticate=sign_in, token=None, **options) as address:
            yield runtime, address


async def test_each_route_asks_the_function_and_answers_as_it_says():
    """From the table of routes itself: whatever is added to it is tried here."""
    answers = {None: 401, "token of eve": 403, "unknown": 401, "token of a bug": 500}
    async with house() as (_, address):
        with listening("greenroom"):  # the bug is logged
            for route in DOORS:
                body = b"{}" if route.method == "POST" else None
                for token, status in answers.items():
                    reply = await http(address, route.method, path_of(route), token=token, body=body)
                    assert reply.status == status, (route.template, token)
                    text = reply.body.decode()
                    assert "a bug of the program" not in text
                    assert ("eve is banned" in text) == (token == "token of eve")
                reply = await http(address, route.method, path_of(route), token="token of ann", body=body)
                assert reply.status != 401, route.template
                assert (reply.status == 403) == (route.scope == "admin"), route.template


async def test_a_client_may_ask_who_it_is():
    async with house() as (_, address):
        ann = (await http(address, "GET", "/v1/me", token="token of ann")).json()
        assert ann == {"principal": "ann", "scopes": ["decide", "follow", "start"]}
        assert (await http(address, "GET", "/v1/me", token=None)).json() == {"principal": None, "scopes": []}
        assert (await http(address, "GET", "/v1/me", token="unknown")).status == 401


async def test_a_route_without_a_scope_asks_nobody():
    calls = []

    async def counted(request):
        calls.append(request.path)
        return await authenticate(request)

    async with house(counted) as (_, address):
        for route in ROUTES:
            if route.scope is None:
                reply = await http(address, route.method, path_of(route), token="unknown")
                assert reply.status not in (401, 403), route.template
    assert calls == []


@pytest.mark.parametrize(
    ("token", "code", "reason"),
    [
        ("token of eve", 4403, "eve is banned"),
        ("unknown", 4401, "the session has expired"),
        ("token of a bug", 1011, ""),
    ],
)
async def test_a_websocket_whose_first_message_is_refused_is_closed_with_the_reason(token, code, reason):
    async with house() as (_, address):
        with listening("greenroom"):
            async with talking(address, token=None) as talk:
                await talk.say("hello", token=token)
                closed = await talk.closing()
    assert closed[0] == code
    assert reason in closed[1]


@pytest.mark.parametrize("by_header", [True, False], ids=["header", "hello"])
async def test_starts_and_decisions_over_a_websocket_name_the_person(by_header):
    async with house() as (runtime, address):
        async with talking(address, token="token of ann" if by_header else None) as talk:
            if not by_header:
                await talk.say("hello", token="token of ann")
            welcome = await talk.hear()
            assert (welcome["principal"], welcome["scopes"]) == ("ann", ["decide", "follow", "start"])
            ack = await talk.ask("start", id="1", agent="clerk", text="refund")
            run = await runtime.get(ack["run"])
            await run.wait()
        async with talking(address, token="token of bob") as talk:
            await talk.hear()
            await talk.ask("decide", id="2", run=run.id, target="c1", action="approve")
        await run.wait()
        account = await runtime.evidence(run.id)
        assert account.by == "ann"
        assert [ticket.by for made in account.calls for ticket in made.tickets] == ["bob"]


async def opened_stream(address, nursery, method, path, body=None):
    """Open a stream as ann, with keep-alive; the event tells its end, and the bytes what was heard."""
    ended, heard = trio.Event(), bytearray()

    async def read(task_status):
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAccept: text/event-stream\r\n"
        head += f"Authorization: Bearer token of ann\r\nContent-Length: {len(data)}\r\n\r\n"
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(head.encode() + data)
            while not heard.endswith(b"0\r\n\r\n"):
                part = await stream.receive_some()
                if not part:
                    break
                heard.extend(part)
                if b"data:" in heard:
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
        ended.set()

    await nursery.start(read)
    assert heard.startswith(b"HTTP/1.1 200"), heard
    return ended, heard


RESTRICTED = "a run that this connection follows is not visible any more; connect again"
CHAT = {"id": "chat-1", "trigger": "submit-message",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}  # fmt: skip


async def test_a_revoked_principal_loses_websockets_and_streams_and_gets_in_no_more():
    people = dict(PEOPLE)

    async def known(request):
        name = people.get(request.token)
        return None if name is None else Principal(name=name)

    @gr.tool
    async def wait() -> str:
        """Wait."""
        await trio.sleep_forever()

    sign_in = SignIn(known)
    waits = agent(gr.testing.call("wait"), "done", tools=[wait], key="waits")
    async with house(sign_in, [waits]) as (runtime, address), trio.open_nursery() as nursery:
        run = await runtime.start("waits", "hi")
        streams = [
            await opened_stream(address, nursery, "GET", f"/v1/runs/{run.id}/events"),
            await opened_stream(address, nursery, "POST", "/v1/ai-sdk/v6/agents/waits/chat", CHAT),
        ]
        async with talking(address, token="token of ann") as ann, talking(address, token="token of bob") as bob:
            await ann.hear()
            await bob.hear()
            del people["token of ann"]
            with trio.fail_after(30):  # nothing here waits for a time
                assert sign_in.revoke("ann") == 3
                assert await ann.closing() == (4401, "the sign-in of ann was revoked")
                for ended, heard in streams:
                    await ended.wait()
                    assert heard.endswith(b"0\r\n\r\n"), "a stream ends well-formed"
            assert (await http(address, "GET", "/v1/runs", token="token of ann")).status == 401
            assert (await bob.ask("ping"))["type"] == "gw.tick"
        assert (await runtime.get(run.id)).id == run.id
        await run.cancel()


async def test_who_may_not_see_a_run_any_more_gets_no_further_event_of_it():
    hidden = set()

    async def known(request):
        return request.token and Principal(name="ann", sees=lambda info: info.run_id not in hidden)

    done = trio.Event()

    @gr.tool
    async def wait() -> str:
        """Wait."""
        await done.wait()
        return "done"

    waits = agent(gr.testing.call("wait"), "the secret", tools=[wait], key="waits")
    async with house(SignIn(known, seconds=0.2), [waits]) as (runtime, address), trio.open_nursery() as nursery:
        run = await runtime.start("waits", "hi")
        streams = [
            await opened_stream(address, nursery, "GET", f"/v1/runs/{run.id}/events"),
            await opened_stream(address, nursery, "POST", "/v1/ai-sdk/v6/agents/waits/chat", CHAT),
        ]
        async with talking(address, token="token of ann") as ann:
            await ann.hear()
            await ann.say("subscribe", run=run.id, id="1")
            await ann.until("run.created")
            hidden.update(line.run_id for line in (await runtime.runs()).runs)
            with trio.fail_after(30):
                assert await ann.closing() == (1012, RESTRICTED)
                for ended, heard in streams:
                    await ended.wait()
                    assert heard.endswith(b"0\r\n\r\n"), "a stream ends well-formed"
        done.set()
        await run.result()
        assert all(b"the secret" not in heard for _, heard in streams)


async def test_with_a_function_there_is_no_operator_and_no_token_for_another_address():
    async with house(host="0.0.0.0") as (_, address):
        assert address.token is None


async def test_a_function_learns_the_address_at_the_other_end():
    peers = []

    async def by_peer(request):
        peers.append(request.peer)
        return Principal(name="local")

    async with house(by_peer) as (_, address):
        assert (await http(address, "GET", "/v1/runs", token=None)).status == 200
        async with talking(address, token=None) as talk:
            assert (await talk.hear())["principal"] == "local"
    assert peers == ["127.0.0.1"]


@pytest.mark.parametrize("wrong", [7, [authenticate], [None], "ann"])
async def test_something_else_than_a_function_is_refused_in_words(wrong):
    async with gr.open_runtime(agents=[clerk()]) as runtime:
        with pytest.raises(gr.UsageError, match="authenticate"):
            await serve(runtime, authenticate=wrong)
