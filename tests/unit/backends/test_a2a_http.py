"""The connection to an A2A server: cards, who gets the headers, and what is never shown."""

import json
import logging
import re
from functools import partial
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.backends.a2a_codec import GET_TASK, LIST_TASKS
from greenroom.actors.backends.a2a_http import A2AConnection, Away, Unusable

from ...support.a2a_peer import URL, Fault, Peer, served

CANARY = "canary-5d41402abc4b2a76b9719d911017c592"
HEADERS = {"Authorization": f"Bearer {CANARY}"}


def connection(url: str = URL, **options: Any) -> A2AConnection:
    return A2AConnection("far", url, options.pop("headers", {}), **options)


def interface(url: str, binding: str = "HTTP+JSON", version: str = "1.0") -> dict[str, str]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version}


@pytest.mark.rule("AB-7")
async def test_the_first_interface_that_is_spoken_counts_and_a_card_is_kept_for_ten_minutes(autojump_clock, nursery):
    peer = Peer(nursery)
    with served(peer):
        far = connection()
        target = await far.target()
        assert (target.url, target.binding, target.streams) == (f"{URL}/a2a", "HTTP+JSON", True)
        await trio.sleep(500)
        assert await far.target() is target
        await trio.sleep(200)
        assert (await far.target()).url == target.url
    assert [name for name, _ in peer.requests] == ["card", "card"]


@pytest.mark.rule("AB-7")
@pytest.mark.parametrize(
    ("interfaces", "text"),
    [
        ([], "its card offers nothing"),
        ([interface(URL, "GRPC")], "its card offers GRPC 1.0"),
        ([interface(URL, version="0.3")], "its card offers HTTP+JSON 0.3"),
        ([interface("http://other.example")], "use https, or say insecure=True"),
        ([interface("file:///etc/passwd")], "is not one of http"),
        ([interface("https://user:pass@other.example")], "is not one of http"),
        ([interface("https://other.example:99999")], "is not one of http"),
    ],
)
async def test_a_card_without_a_usable_interface_is_refused(autojump_clock, nursery, interfaces, text):
    peer = Peer(nursery)
    peer.card["supportedInterfaces"] = interfaces
    with served(peer), pytest.raises(Unusable, match=re.escape(text)):
        await connection().target()


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (Fault("answer", answer=b"<html>"), Unusable, "is not one of A2A 1.0"),
        (Fault("answer", answer=b'{"supportedInterfaces": 3}'), Unusable, "is not one of A2A 1.0"),
        (Fault("answer", answer=b"[" * 100_000), Unusable, "is not one of A2A 1.0"),
        (Fault("answer", answer=b" " * 300_000), Unusable, "more than 262,144 bytes"),
        (Fault("answer", status=404, answer=b"{}"), Unusable, "there is no card at https://far.example/.well-known"),
        (
            Fault("answer", status=302, headers={"location": "https://b.example"}),
            Unusable,
            "moved to https://b.example",
        ),
        (Fault("answer", status=401), Unusable, "refused the request with status 401"),
        (Fault("answer", status=503), Away, "status 503"),
        (Fault("refuse"), Away, "no connection"),
    ],
)
async def test_an_answer_that_is_no_card_is_named(autojump_clock, nursery, fault, error, text):
    peer = Peer(nursery)
    peer.faults["card"] = [fault]
    with served(peer), pytest.raises(error, match=re.escape(text)):
        await connection().target()


async def test_the_address_of_a_card_can_be_given_itself(autojump_clock, nursery):
    with served(Peer(nursery)):
        assert (await connection(f"{URL}/cards/agent-card.json").target()).url == f"{URL}/a2a"


# --- headers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "gets"), [(f"{URL}/a2a", True), ("https://else.example/a2a", False)])
async def test_headers_go_to_the_origin_of_the_address_only(autojump_clock, nursery, place, gets):
    peer = Peer(nursery)
    peer.card["supportedInterfaces"] = [interface(place)]
    with served(peer):
        await connection(headers=HEADERS).call(LIST_TASKS, {"contextId": "c"})
    card, listed = [headers for _, headers in peer.requests]
    assert card["authorization"] == HEADERS["Authorization"]
    assert ("authorization" in listed) is gets
    assert listed["a2a-version"] == "1.0"


async def test_a_redirect_is_not_followed(autojump_clock, nursery):
    peer = Peer(nursery)
    peer.faults["list"] = [Fault("answer", status=307, headers={"location": f"https://else.example/?t={CANARY}"})]
    with served(peer), pytest.raises(Unusable) as caught:
        await connection(headers=HEADERS).call(LIST_TASKS, {"contextId": "c"})
    assert [name for name, _ in peer.requests] == ["card", "list"]
    assert str(caught.value) == "it moved to https://else.example/?t=[redacted]; change url="


async def test_the_value_of_a_variable_is_read_when_it_is_sent(autojump_clock, nursery, monkeypatch):
    peer = Peer(nursery)
    far = connection(headers={"X-Key": gr.env("FAR_KEY")})
    with served(peer):
        with pytest.raises(gr.UsageError, match="FAR_KEY"):
            await far.target()
        monkeypatch.setenv("FAR_KEY", CANARY)
        await far.target()
        monkeypatch.setenv("FAR_KEY", "two\nlines")
        with pytest.raises(Unusable, match="X-Key"):
            await far.call(GET_TASK, {"id": "t"})
    assert peer.requests[0][1]["x-key"] == CANARY


async def test_a_variable_that_is_not_set_fails_the_run_before_its_first_step(autojump_clock, nursery):
    agent = gr.backends.agent("far", gr.backends.A2A(URL, headers={"X-Key": gr.env("FAR_KEY")}))
    with served(Peer(nursery)):
        async with gr.open_runtime(agents=[agent]) as runtime:
            outcome = await (await runtime.start(agent, "hello")).wait()
    assert (outcome.code, "FAR_KEY" in outcome.message) == ("runtime_unavailable", True)


def test_the_words_of_a_header_are_secrets_only_under_a_telling_name():
    headers = {"Authorization": f"Bearer {CANARY}", "X-Client": "the greenroom shop"}
    tool = gr.backends.A2A(URL, headers=headers).tool()
    assert set(tool.secrets) == {f"Bearer {CANARY}", CANARY, "the greenroom shop"}


async def test_no_event_row_or_log_shows_the_value_of_a_header(autojump_clock, nursery, caplog):
    """A server that puts our own header into everything it says."""

    async def leak(task: Any, message: Any) -> None:
        task.say(f"You are {CANARY}.", {"raw": "dGVh", "mediaType": "text/csv", "filename": f"{CANARY}.csv"})
        task.put({"nothing": CANARY})
        task.move("INPUT_REQUIRED" if len(task.history) < 2 else "FAILED", f"Is {CANARY} right?")

    peer = Peer(nursery, leak)
    peer.card["name"] = f"agent of {CANARY}"
    agent = gr.backends.agent("far", gr.backends.A2A(URL, headers=HEADERS))
    store = gr.MemoryStore()
    with served(peer), caplog.at_level(logging.DEBUG, "greenroom"):
        async with gr.open_runtime(store, agents=[agent]) as runtime:
            run = await runtime.start(agent, "hello")
            (ticket,) = (await run.wait()).tickets
            assert ticket.message == "Is [redacted] right?"
            await run.decide(ticket.approve("yes"))
            outcome = await run.wait()
            view = await run.view()
            async with run.events() as events:
                log = [json.dumps(event.payload, default=str) async for event in events]
    assert isinstance(outcome, gr.Failed)
    assert len(log) > 10
    for text in (*log, repr(outcome), repr(view), caplog.text, repr(agent), repr(store.__dict__)):
        assert CANARY not in text


# --- what a user gives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"url": "far"}, "A2A(url='far'): give an address of http or https"),
        ({"url": "https://a:b@far.example"}, "without a password"),
        ({"url": "http://far.example"}, "use https, or say insecure=True"),
        ({"url": URL, "offline": 0}, "A2A(offline=0): give seconds, more than 0"),
        ({"url": URL, "idle": float("inf")}, "A2A(idle=inf): give seconds"),
        ({"url": URL, "headers": {"X": "a\nb"}}, "A2A(headers={'X': ...}): give printable ASCII"),
    ],
)
def test_a_faulty_option_is_refused_when_the_backend_is_made(arguments, text):
    with pytest.raises(gr.AgentDefinitionError, match=re.escape(text)):
        gr.backends.A2A(**arguments)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", URL])
def test_this_machine_and_https_need_no_permission(url):
    assert gr.backends.A2A(url).url == url


async def test_prepare_names_the_agent_that_was_found(autojump_clock, nursery):
    agent = gr.backends.agent("far", gr.backends.A2A(URL))
    with served(Peer(nursery)):
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "hello")
            await run.result()
            async with run.events() as events:
                (started,) = [event.payload async for event in events if event.type == "run.started"]
    facts = started["detail"]["a2a"]
    assert (facts["agent"], facts["version"], facts["binding"]) == ("far", "7", "HTTP+JSON")


async def test_no_cookie_of_a_server_is_kept_or_sent_with_the_headers_of_another_agent(nursery):
    sent: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            sent.append(await stream.receive_some(65_536))
            await stream.send_all(b"HTTP/1.1 404 No\r\nset-cookie: session=of-ada; Path=/\r\ncontent-length: 0\r\n\r\n")

    (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    agents = [connection(url, headers={"authorization": f"Bearer {name}"}) for name in ("ada", "eve")]
    async with agents[0].open(), agents[1].open():
        for agent in agents:
            with pytest.raises(Unusable):
                await agent.target()
    assert len(sent) == 2
    assert b"cookie" not in sent[1].lower()
