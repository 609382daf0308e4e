"""Images and files over the gateway: starts over HTTP and WebSocket, and the parts of both chat protocols."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Limits, connect

from ..support.ai_sdk_page import Page
from ..support.gateway import TOKEN, gateway, http
from ..support.part_scenes import CHART, PNG, TABLE, seen
from ..support.runs import agent
from .test_gateway_ag_ui import Front

pytestmark = pytest.mark.slow

IMAGE = b64encode(PNG).decode()
CSV = b64encode(TABLE.part.data or b"").decode()
AT = "https://example.org/a.png"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[gr.Runtime, gr.Agent[Any], Any]]:
    helper = agent("done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, **options) as address:
        yield runtime, helper, address


async def started(address: Any, *attachments: Any, text: str = "hi", **more: Any) -> Any:
    body = {"agent": "helper", "text": text, "attachments": attachments, **more}
    return await http(address, "POST", "/v1/runs", body=body, headers={"idempotency-key": "k1"})


@pytest.mark.rule("AT-20")
async def test_a_start_over_http_takes_bytes_in_base64_and_addresses():
    async with serving() as (runtime, helper, address):
        given = (
            {"data": IMAGE},
            {"data": CSV, "mediaType": "text/csv", "name": "sales.csv"},
            {"url": AT},
            {"url": f"data:image/png;base64,{IMAGE}"},
        )
        reply = await started(address, *given, text="")
        assert reply.status == 201, reply.body
        assert (await started(address, *given, text="")).status == 200
        run = await runtime.get(reply.json()["run"])
        await run.result()
        assert seen(helper.model.requests[0]) == {"user": [PNG, TABLE.part.data, AT, PNG]}
        assert [part.name for part in (await run.view()).messages[0].parts] == ["", "sales.csv", "", ""]
        assert (await started(address, *given[:1], text="")).status == 409


@pytest.mark.rule("AT-20")
@pytest.mark.parametrize(
    ("attachment", "status", "words"),
    [
        ({}, 422, "one of the two"),
        ({"data": IMAGE, "url": AT}, 422, "one of the two"),
        ({"data": "???", "mediaType": "image/png"}, 422, "not base64"),
        ({"data": ""}, 422, "no media type"),
        ({"data": "", "mediaType": "image/png"}, 422, "there are no bytes"),
        ({"data": CSV}, 422, "bytes show no media type"),
        ({"data": CSV, "mediaType": "csv"}, 422, "type/subtype"),
        ({"data": CSV, "mediaType": "a/b", "name": "../x"}, 422, "without slashes"),
        ({"url": "file:///etc/passwd"}, 422, "http, https or data"),
        ({"url": "data:nothing"}, 422, "is no data: address"),
        ({"data": 7}, 400, "expected a string"),
        ({"data": IMAGE, "media_type": "image/png"}, 400, "media_type is not known"),
        ("chart.png", 400, "expected a list of objects"),
    ],
)
async def test_what_is_no_attachment_is_refused(attachment, status, words):
    async with serving() as (runtime, _, address):
        reply = await started(address, attachment)
        assert (reply.status, words in reply.json()["error"]["message"]) == (status, True), reply.body
        assert (await runtime.runs()).runs == ()


@pytest.mark.rule("AT-20")
async def test_attachments_that_are_no_list_are_refused():
    async with serving() as (_, __, address):
        for given in ({"data": IMAGE}, "x", None):
            reply = await http(
                address, "POST", "/v1/runs", body={"id": "a", "agent": "helper", "text": "hi", "attachments": given}
            )
            assert (reply.status, "expected a list of objects" in reply.json()["error"]["message"]) == (400, True)


@pytest.mark.rule("AT-20")
async def test_the_limits_of_bodies_hold_for_attachments():
    async with serving(limits=Limits(body_bytes=2_000_000)) as (_, helper, address):
        large = b64encode(bytes(1_400_000)).decode()
        assert (await started(address, {"data": large, "mediaType": "a/b"})).status == 201
        more = b64encode(bytes(1_600_000)).decode()
        assert (await started(address, {"data": more, "mediaType": "a/b"}, id="k2")).status == 413
    assert [len(data) for data in seen(helper.model.requests[0])["user"]] == [1_400_000]


@pytest.mark.rule("AT-20")
async def test_a_client_starts_a_run_with_attachments():
    async with serving() as (runtime, helper, address), connect(address.url, token=TOKEN) as client:
        begun = await client.start("helper", "", attachments=[CHART, TABLE, gr.Image(url=AT)])
        await (await runtime.get(begun.run_id)).result()
        assert seen(helper.model.requests[0]) == {"user": [PNG, TABLE.part.data, AT]}
        begun = await client.start("helper", "hi", attachments=[gr.File(bytes(100_000), media_type="a/b")])
        await (await runtime.get(begun.run_id)).result()  # above the limit of a message: sent with POST
        with pytest.raises(gr.GreenroomError, match=r"1048576|1,048,576"):
            await client.start("helper", "hi", attachments=[gr.File(bytes(1_000_000), media_type="a/b")])
        with pytest.raises(gr.InvalidAttachment):
            await client.start("helper", "hi", attachments=[PNG])


# --- chat protocols --------------------------------------------------------------------------------------------------


def file_part(url: str, media_type: str = "image/png", **more: Any) -> dict[str, Any]:
    return {"type": "file", "url": url, "mediaType": media_type, **more}


@pytest.mark.rule("AT-21")
async def test_files_of_an_ai_sdk_message_are_parts_of_the_input():
    async with serving() as (_, helper, address):
        page = Page(address)
        page.say("u1", "what is it?")
        page.messages[-1]["parts"] += [
            file_part(f"data:image/png;base64,{IMAGE}", filename="chart.png"),
            file_part(f"data:text/csv;base64,{CSV}", "text/csv;charset=utf-8", filename="sales.csv"),
            file_part(AT),
        ]
        for _ in range(2):  # a message that is sent again is the same run
            assert (await page.post()).status == 200
        assert [seen(request) for request in helper.model.requests] == [{"user": [PNG, TABLE.part.data, AT]}]


@pytest.mark.rule("AT-21")
async def test_an_ai_sdk_message_may_be_a_file_alone():
    async with serving() as (_, helper, address):
        page = Page(address)
        page.messages = [{"id": "u1", "role": "user", "parts": [file_part(f"data:image/png;base64,{IMAGE}")]}]
        assert (await page.post()).status == 200
        assert seen(helper.model.requests[0]) == {"user": [PNG]}


@pytest.mark.rule("AT-21")
@pytest.mark.parametrize(
    ("part", "status", "words"),
    [
        (file_part("https://example.org/a.pdf", "application/pdf"), 422, "is sent as a data: address"),
        (file_part("ftp://example.org/a.png"), 422, "http, https or data"),
        (file_part("data:image/png;base64,???"), 422, "not base64"),
        ({"type": "file", "url": "data:,x"}, 400, "mediaType and url"),
        ({"type": "source-url", "url": AT}, 422, "sources are not taken"),
    ],
)
async def test_other_files_of_an_ai_sdk_message_are_refused(part, status, words):
    async with serving() as (runtime, _, address):
        page = Page(address)
        page.say("u1", "what is it?")
        page.messages[-1]["parts"].append(part)
        reply = await page.post()
        assert (reply.status, words in reply.json()["error"]["message"]) == (status, True), reply.body
        assert (await runtime.runs()).runs == ()


def media(kind: str, source: Any) -> dict[str, Any]:
    return {"type": kind, "source": source}


@pytest.mark.rule("AT-21")
async def test_media_of_an_ag_ui_message_are_parts_of_the_input():
    async with serving() as (_, helper, address):
        front = Front(address)
        content = [
            {"type": "text", "text": "what is it?"},
            media("image", {"type": "data", "value": IMAGE, "mimeType": "image/png"}),
            media("document", {"type": "data", "value": CSV, "mimeType": "text/csv"}),
            media("image", {"type": "url", "value": AT}),
            {"type": "binary", "mimeType": "image/png", "data": IMAGE},
        ]
        front.say("u1", content)
        await front.run("r1")
        assert seen(helper.model.requests[0]) == {"user": [PNG, TABLE.part.data, AT, PNG]}
        assert helper.model.requests[0].messages[-1].content == "what is it?"


@pytest.mark.rule("AT-21")
@pytest.mark.parametrize(
    ("part", "words"),
    [
        (media("image", {"type": "file", "value": "file-7"}), "without a source of data or url"),
        (media("image", {"type": "data", "value": IMAGE}), "without a source of data or url"),
        (media("image", None), "without a source of data or url"),
        (media("video", {"type": "url", "value": AT}), "send the bytes of video"),
        (media("image", {"type": "data", "value": "???", "mimeType": "image/png"}), "not base64"),
        ({"type": "binary", "mimeType": "image/png", "id": "7"}, "without a source of data or url"),
        ({"type": "hologram"}, "a part of type 'hologram'"),
    ],
)
async def test_other_media_of_an_ag_ui_message_are_refused(part, words):
    async with serving() as (runtime, _, address):
        front = Front(address)
        front.say("u1", [{"type": "text", "text": "hi"}, part])
        reply = await front.post(front.body("r1"))
        assert words in reply.body.decode(), reply.body
        assert (await runtime.runs()).runs == ()


# --- more input ------------------------------------------------------------------------------------------------------


@gr.tool(needs_approval=True)
async def pay() -> str:
    return "paid"


def asking() -> gr.Agent[Any]:
    return agent(call("pay", id="c1"), "done", "done", tools=[pay])


@pytest.mark.rule("AT-20", "AT-24")
async def test_more_input_over_http_and_websocket_takes_attachments():
    helper = asking()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        body = {"type": "send", "text": "", "attachments": [{"data": IMAGE}]}
        reply = await http(address, "POST", f"/v1/runs/{run.id}/commands", body=body)
        assert (reply.status, reply.json()["status"]) == (202, "accepted"), reply.body
        wrong = {"type": "send", "text": "x", "attachments": [{"data": "???", "mediaType": "a/b"}]}
        reply = await http(address, "POST", f"/v1/runs/{run.id}/commands", body=wrong)
        assert (reply.status, "not base64" in reply.json()["error"]["message"]) == (422, True)
        async with connect(address.url, token=TOKEN) as client:
            assert (await client.send(run.id, "more", attachments=[TABLE])).ok
        await run.decide((await run.wait()).tickets[0].approve())
        await run.result()
        sent = [part.data for m in helper.model.requests[-1].messages for part in m.parts]
        assert sent == [PNG, TABLE.part.data]


@pytest.mark.rule("AT-21", "AT-24")
async def test_an_ag_ui_message_beside_answers_may_have_files():
    helper = asking()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "hi")
        front.say("u2", [media("image", {"type": "data", "value": IMAGE, "mimeType": "image/png"})])
        await front.run("r2", front.answers({"approved": True}))
        assert seen(helper.model.requests[-1]) == {"user": [PNG]}
