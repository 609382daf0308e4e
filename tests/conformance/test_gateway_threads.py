"""Threads over the gateway: who reads which, the same over HTTP, WebSocket and client, and the bytes of parts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Principal, connect

from ..support.gateway import TOKEN, Reply, gateway, http, welcomed

ANN, BOB = "token-of-ann-0123456789", "token-of-bob-0123456789"
PEOPLE = [
    Principal(name="ops", token=TOKEN),
    *(
        Principal(name=name, token=token, sees=lambda info, name=name: info.by == name)
        for name, token in (("ann", ANN), ("bob", BOB))
    ),
]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
SECRET = "swordfish-4711"


@gr.tool
async def look(what: str) -> Any:
    """Look something up."""
    if what == "picture":
        return ["here", gr.Image(PNG)]
    return {"password": SECRET, "what": what}


def answers(request: gr.ModelRequest) -> Any:
    newest = request.messages[-1]
    text = str(newest.content)
    if newest.role == "user" and text.startswith("look "):
        return call("look", what=text.removeprefix("look "))
    return f"heard {len(request.messages)}"


def helper() -> gr.Agent[str]:
    return gr.Agent("helper", model=FunctionModel(answers), tools=[look])


@asynccontextmanager
async def served() -> AsyncIterator[tuple[gr.Runtime, Any]]:
    async with gr.open_runtime(agents=[helper()]) as runtime, gateway(runtime, principals=PEOPLE) as address:
        yield runtime, address


async def said(runtime: gr.Runtime, thread: str, by: str, *texts: str, **options: Any) -> None:
    for text in texts:
        run = await runtime.start("helper", text, thread_id=thread, by=by, **options)
        await run.result()


async def got(address: Any, path: str, token: str = TOKEN) -> Reply:
    return await http(address, "GET", path, token=token)


def texts_of(page: Any) -> list[str]:
    return [message["text"] for message in page["messages"]]


async def test_a_second_device_reads_the_list_and_the_conversation():
    async with served() as (runtime, address):
        await said(runtime, "t1", "ann", "hello", "look it up")
        await said(runtime, "t2", "ann", "other")
        page = (await got(address, "/v1/threads", ANN)).json()
        assert page["cursor"] is None
        assert [(line["thread"], line["title"], line["by"], line["runs"]) for line in page["threads"]] == [
            ("t2", "other", "ann", 1),
            ("t1", "hello", "ann", 2),
        ]
        assert page["threads"][1]["run"]["title"] == "look it up"
        history = (await got(address, "/v1/threads/t1/messages", ANN)).json()
        roles = [(message["position"], message["role"], message.get("callId")) for message in history["messages"]]
        assert [role for _, role, _ in roles] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
        assert [position for position, _, _ in roles] == [1, 2, 3, 4, 5, 6]
        assert (history["before"], history["after"], history["newest"], history["runs"]) == (None, 6, 6, [])
        assert history["messages"][3]["calls"][0]["arguments"] == {"what": "it up"}
        assert history["epoch"] == runtime.store.epoch


async def test_texts_and_results_are_redacted_as_events_are():
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", f"look my token={SECRET}")
        history = await got(address, "/v1/threads/t/messages")
        assert SECRET not in history.body.decode()
        user, assistant, tool, _ = history.json()["messages"]
        run = user["run"]
        created, *events = (await got(address, f"/v1/runs/{run}/events")).json()["events"]
        result = next(event for event in events if event["type"] == "run.tool.result")
        asked = next(event for event in events if event["type"] == "run.tool.call")
        assert user["text"] == created["payload"]["input"]
        assert assistant["calls"][0]["arguments"] == asked["payload"]["arguments"]
        assert tool["text"] == '{"password":"[redacted]","what":"my token=[redacted]"}'
        assert result["payload"]["result"] == {"password": "[redacted]", "what": "my token=[redacted]"}


async def test_a_page_leads_both_ways():
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", *(f"text {n}" for n in range(4)))
        read, before = [], ""
        while before is not None:
            page = (await got(address, f"/v1/threads/t/messages?limit=3{before and f'&before={before}'}")).json()
            read, before = [*page["messages"], *read], page["before"]
        assert [message["position"] for message in read] == list(range(1, 9))
        after, forward = 0, []
        while True:
            page = (await got(address, f"/v1/threads/t/messages?limit=3&after={after}")).json()
            forward += page["messages"]
            after = page["after"]
            if after == page["newest"]:
                break
        assert forward == read
        assert (await got(address, "/v1/threads/t/messages?after=8")).json()["messages"] == []


async def test_a_thread_with_a_hidden_run_is_unknown_and_in_no_list():
    """All roads into a thread ask about each of its runs; a refusal reveals nothing."""
    async with served() as (runtime, address):
        await said(runtime, "mixed", "ann", "mine", "look picture")
        await said(runtime, "own", "ann", "mine")
        await said(runtime, "mixed", "bob", "his")
        for n in range(4):
            await said(runtime, f"b{n}", "bob", "his")
        assert [line["thread"] for line in (await got(address, "/v1/threads", ANN)).json()["threads"]] == ["own"]
        for path in ("messages", "messages?after=0&limit=1", "messages/4/parts/0"):
            refused = await got(address, f"/v1/threads/mixed/{path}", ANN)
            unknown = await got(address, f"/v1/threads/nothing/{path}", ANN)
            assert (refused.status, refused.json()["error"]["code"]) == (404, "unknown_thread")
            assert refused.body == unknown.body.replace(b"nothing", b"mixed")
        assert (await got(address, "/v1/threads/mixed/messages")).status == 200
        bobs, cursor = [], ""
        while cursor is not None:
            page = (
                await got(address, f"/v1/threads?limit=1&cursor={cursor}" if cursor else "/v1/threads?limit=1", BOB)
            ).json()
            bobs, cursor = [*bobs, *(line["thread"] for line in page["threads"])], page["cursor"]
        assert bobs == ["b3", "b2", "b1", "b0"]
        everything = (await got(address, "/v1/threads?limit=1&by=bob")).json()
        stolen = await got(address, f"/v1/threads?limit=1&by=bob&cursor={everything['cursor']}", BOB)
        assert (stolen.status, stolen.json()["error"]["code"]) == (422, "unprocessable")


async def test_the_copied_messages_of_a_fork_need_the_right_to_their_runs():
    async with served() as (runtime, address):
        await said(runtime, "t", "bob", "his")
        (line,) = (await runtime.runs(thread_id="t")).runs
        fork = await runtime.fork(line.run_id, step=1, new_run_id="f", by="ann")
        await fork.result()
        assert (await got(address, f"/v1/threads/{fork.thread_id}/messages")).status == 200
        refused = await got(address, f"/v1/threads/{fork.thread_id}/messages", ANN)
        assert refused.json()["error"]["code"] == "unknown_thread"


async def test_a_principal_without_the_scope_reads_no_thread():
    people = [Principal(name="eve", token=TOKEN, scopes=frozenset({"start"}))]
    async with gr.open_runtime(agents=[helper()]) as runtime, gateway(runtime, principals=people) as address:
        await said(runtime, "t", "eve", "hi")
        for path in ("/v1/threads", "/v1/threads/t/messages", "/v1/threads/t/messages/1/parts/0"):
            assert (await got(address, path)).json()["error"]["code"] == "not_allowed"
        async with welcomed(address) as talk:
            for frame in ({"kind": "threads"}, {"kind": "messages", "thread": "t"}):
                assert (await talk.ask(**frame, id="1"))["code"] == "not_allowed"


async def test_a_websocket_answers_with_the_same_pages():
    async with served() as (runtime, address), welcomed(address) as talk:
        await said(runtime, "t", "ann", "hi", "look picture")
        page = await talk.ask("threads", id="a", limit=1)
        over_http = (await got(address, "/v1/threads?limit=1")).json()
        assert page == {"type": "gw.threads", "id": "a", **over_http}
        answer = await talk.ask("messages", id="b", thread="t", before=6, limit=2)
        assert answer["type"] == "gw.messages"
        assert answer["page"] == (await got(address, "/v1/threads/t/messages?before=6&limit=2")).json()
        refused = await talk.ask("messages", id="c", thread="nothing")
        assert (refused["type"], refused["code"], refused["id"]) == ("gw.error", "unknown_thread", "c")


WRONG = {
    "limit=0": "bad_message", "limit=1001": "bad_message", "after=-1": "bad_message", "before=0": "bad_message",
    "after=x": "bad_message", "after=1&before=2": "unprocessable", "before=9007199254740992": "bad_message",
    "cursor=x": "bad_message", "afte=1": "bad_message",
}  # fmt: skip


@pytest.mark.parametrize("query", WRONG)
async def test_a_wrong_query_is_refused_and_names_the_field(query):
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", "hi")
        reply = await got(address, f"/v1/threads/t/messages?{query}")
        assert reply.json()["error"]["code"] == WRONG[query]
        assert query.partition("=")[0] in reply.json()["error"]["message"]


FRAMES: dict[str, dict[str, Any]] = {
    "limit": {"limit": 0}, "after": {"after": -1}, "before": {"before": "1"}, "thread": {"thread": 7},
    "position": {"after": 2**53}, "extra": {"threads": "t"}, "both": {"after": 1, "before": 2},
}  # fmt: skip


async def test_a_wrong_frame_is_refused():
    async with served() as (runtime, address), welcomed(address) as talk:
        await said(runtime, "t", "ann", "hi")
        for name, fields in FRAMES.items():
            answer = await talk.ask("messages", **{"id": "1", "thread": "t", **fields})
            assert answer["code"] == ("unprocessable" if name == "both" else "bad_message"), (name, answer)
        for fields in ({"limit": 1001}, {"cursor": "x"}, {"by": 7}):
            answer = await talk.ask("threads", id="1", **fields)
            assert answer["code"] == ("unprocessable" if "cursor" in fields else "bad_message"), (fields, answer)


async def test_the_bytes_of_a_part_are_a_download_that_no_browser_executes():
    async with served() as (runtime, address):
        page = gr.File(b"<script>alert(1)</script>", media_type="text/html", name="a.html")
        await said(runtime, "t:1", "ann", "look picture", attachments=[page])
        user, _, tool, _ = (await got(address, "/v1/threads/t%3A1/messages", ANN)).json()["messages"]
        (facts,) = user["parts"]
        assert (facts["mediaType"], facts["name"], facts["href"]) == (
            "text/html", "a.html", "/v1/threads/t%3A1/messages/1/parts/0",
        )  # fmt: skip
        reply = await got(address, facts["href"], ANN)
        assert (reply.status, reply.body) == (200, b"<script>alert(1)</script>")
        names = ("content-type", "content-disposition", "content-security-policy", "x-content-type-options", "etag")
        assert {name: reply.headers[name] for name in names} == {
            "content-type": "text/html; charset=utf-8",
            "content-disposition": "attachment; filename=\"a.html\"; filename*=UTF-8''a.html",
            "content-security-policy": "default-src 'none'; sandbox",
            "x-content-type-options": "nosniff",
            "etag": f'"{facts["sha256"]}"',
        }
        headers = {"if-none-match": reply.headers["etag"]}
        assert (await http(address, "GET", facts["href"], token=ANN, headers=headers)).status == 304
        picture = await got(address, tool["parts"][0]["href"], ANN)
        assert (picture.body, picture.headers["content-type"]) == (PNG, "image/png")
        assert (await got(address, facts["href"], BOB)).json()["error"]["code"] == "unknown_thread"
        for path in ("1/parts/1", "1/parts/x", "2/parts/0", "0/parts/0", "x/parts/0", "99/parts/0"):
            missing = await got(address, f"/v1/threads/t%3A1/messages/{path}", ANN)
            assert (missing.status, missing.json()["error"]["code"]) == (404, "unknown_part"), path


async def test_an_address_has_no_bytes():
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", "see", attachments=[gr.Image(url="https://example.com/a.png")])
        (facts,) = (await got(address, "/v1/threads/t/messages")).json()["messages"][0]["parts"]
        assert facts == {"type": "image", "mediaType": "image/png", "url": "https://example.com/a.png"}
        assert (await got(address, "/v1/threads/t/messages/1/parts/0")).json()["error"]["code"] == "unknown_part"


async def test_a_client_reads_threads_messages_and_parts():
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", "look picture", "second")
        async with connect(f"http://{address.host}:{address.port}", token=ANN) as client:
            page = await client.threads(limit=1)
            assert [(line.thread_id, line.run.title) for line in page.threads] == [("t", "second")]
            history = await client.messages("t", limit=2)
            assert [message.position for message in history.messages] == [5, 6]
            older = await client.messages("t", before=history.before)
            assert (older.before, len(older.messages)) == (None, 4)
            assert await client.part(older.messages[2].parts[0]) == PNG
            here = await runtime.messages("t", limit=2)
            assert here == history
            with pytest.raises(gr.UnknownThread, match="'nothing'"):
                await client.messages("nothing")
            with pytest.raises(gr.UsageError, match="limit"):
                await client.threads(limit=0)
            with pytest.raises(gr.UsageError, match="an address has no bytes"):
                await client.part("x")
        with trio.fail_after(5):
            async with connect(f"http://{address.host}:{address.port}", token=BOB) as client:
                assert (await client.threads()).threads == ()


async def test_the_parts_of_a_run_are_open_to_those_who_may_see_the_run():
    """Not those of the thread before it, which its digest alone would name."""
    async with served() as (runtime, address):
        mine = gr.File(b"mine", media_type="text/plain", name="m.txt")
        await said(runtime, "t", "bob", "his", attachments=[gr.File(b"his", media_type="text/plain")])
        await said(runtime, "t", "ann", "look picture", attachments=[mine])
        ann, bob = (await runtime.runs(thread_id="t")).runs
        messages = (await runtime.messages("t")).messages
        his, own, picture = (part.sha256 for message in messages for part in message.parts)
        for digest, data in ((own, b"mine"), (picture, PNG)):
            reply = await got(address, f"/v1/runs/{ann.run_id}/parts/{digest}", ANN)
            assert (reply.status, reply.body) == (200, data)
            assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
        hidden = await got(address, f"/v1/runs/{ann.run_id}/parts/{his}", ANN)
        assert (hidden.status, hidden.json()["error"]["code"]) == (404, "unknown_part")
        other = await got(address, f"/v1/runs/{bob.run_id}/parts/{his}", ANN)
        assert (other.status, other.json()["error"]["code"]) == (404, "unknown_run")


async def test_the_parts_of_sent_input_belong_to_the_run():
    async with served() as (runtime, address):
        await said(runtime, "t", "ann", "hello")
        (line,) = (await runtime.runs(thread_id="t")).runs
        part = f"/v1/runs/{line.run_id}/parts/{'0' * 64}"
        assert (await got(address, part)).json()["error"]["code"] == "unknown_part"
        held = await runtime.start(
            "helper", "more", thread_id="s", by="ann", at=runtime.clock.now() + timedelta(days=1)
        )
        await held.send("see", attachments=[gr.Image(PNG)])
        digest = sha256(PNG).hexdigest()
        assert (await got(address, f"/v1/runs/{held.id}/parts/{digest}", ANN)).body == PNG
