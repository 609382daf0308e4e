"""What bad input gets over A2A: status, error and sentence of each, and that nothing came of it."""

import json
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import Binding
from greenroom.testing import call
from greenroom.transport import Principal
from greenroom.transport.gateway.exposed import a2a_options
from greenroom.transport.protocol.limits import Limits

from ..support.a2a_client import A2A, Fault, decides, says, tickets
from ..support.gateway import TOKEN, Reply, gateway, http
from ..support.runs import agent

pytestmark = [pytest.mark.slow]

FOLLOWER = "follows-and-no-more"
BASE = "/v1/a2a/helper"
VERSION = {"a2a-version": "1.0", "content-type": "application/json"}
MESSAGE = says("m9", "hi")


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
def binding(request: pytest.FixtureRequest) -> Binding:
    return request.param  # type: ignore[no-any-return]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents} for {order}"


def clerk() -> gr.Agent[Any]:
    return agent(call("refund", order="1", cents=5, id="c1"), "done", tools=[refund])


async def rows(runtime: gr.Runtime) -> list[Any]:
    """Everything that a refused request could have changed."""
    page = await runtime.runs()
    return [(line.run_id, line.row.last_sequence, line.pending, line.row.status) for line in page.runs]


def send(**message: Any) -> dict[str, Any]:
    return {"message": {**MESSAGE, **message}}


def part(**fields: Any) -> dict[str, Any]:
    return send(parts=[fields])


SEND, STREAM, GET, LIST, CANCEL, SUBSCRIBE = (
    codec.SEND_MESSAGE,
    codec.SEND_STREAMING_MESSAGE,
    codec.GET_TASK,
    codec.LIST_TASKS,
    codec.CANCEL_TASK,
    codec.SUBSCRIBE_TO_TASK,
)
INPUTS: list[tuple[Any, dict[str, Any], str, str]] = [
    (SEND, {}, "INVALID_PARAMS", "`message`"),
    (SEND, {"message": 7}, "INVALID_PARAMS", "$.message"),
    (SEND, send(messageId=""), "INVALID_PARAMS", "$.message.messageId"),
    (SEND, send(messageId="x" * 2_000), "INVALID_PARAMS", "$.message.messageId"),
    (SEND, send(role="ROLE_AGENT"), "INVALID_PARAMS", "ROLE_USER"),
    (SEND, send(role="user"), "INVALID_PARAMS", "'user'"),
    (SEND, send(parts=[]), "INVALID_PARAMS", "text"),
    (SEND, send(parts=[{"text": "a"}] * 1_001), "INVALID_PARAMS", "at most 1,000"),
    (SEND, send(parts=["hi"]), "INVALID_PARAMS", "$.message.parts[0]"),
    (STREAM, part(text="  "), "INVALID_PARAMS", "text"),
    (STREAM, part(text="a", url="b"), "INVALID_PARAMS", "exactly one of text, raw, url and data"),
    (STREAM, part(text=7), "INVALID_PARAMS", "$.message.parts[0].text"),
    (STREAM, part(filename="x"), "INVALID_PARAMS", "exactly one"),
    (SEND, part(raw="%%", mediaType="a/b"), "INVALID_PARAMS", "base64"),
    (SEND, part(raw="eA==", mediaType="no type"), "INVALID_PARAMS", "no type"),
    (SEND, part(url="https://example.org/a.pdf"), "CONTENT_TYPE_NOT_SUPPORTED", "parts[0]"),
    (SEND, part(url="ftp://example.org/a.png", mediaType="image/png"), "INVALID_PARAMS", "ftp://"),
    (SEND, send(contextId="no thread!"), "INVALID_PARAMS", "no thread!"),
    (SEND, part(data={"ticketId": "t", "action": "approve"}), "INVALID_PARAMS", "names no task"),
    (SEND, send(taskId="run_nowhere"), "TASK_NOT_FOUND", "run_nowhere"),
    (SEND, send(taskId="not an id"), "TASK_NOT_FOUND", "not an id"),
    (SEND, {**send(), "configuration": {"historyLength": -1}}, "INVALID_PARAMS", "historyLength=-1"),
    (SEND, {**send(), "configuration": {"acceptedOutputModes": ["audio/ogg"]}}, "CONTENT_TYPE_NOT_SUPPORTED", "audio"),
    (
        SEND,
        {**send(), "configuration": {"taskPushNotificationConfig": {"url": "https://example.org"}}},
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "subscribe",
    ),
    (GET, {"id": "run_nowhere"}, "TASK_NOT_FOUND", "run_nowhere"),
    (GET, {"id": "TASK", "historyLength": -1}, "INVALID_PARAMS", "historyLength=-1"),
    (CANCEL, {"id": "run_nowhere"}, "TASK_NOT_FOUND", "run_nowhere"),
    (SUBSCRIBE, {"id": "run_nowhere"}, "TASK_NOT_FOUND", "run_nowhere"),
    (LIST, {"pageSize": 0}, "INVALID_PARAMS", "pageSize=0"),
    (LIST, {"pageSize": 101}, "INVALID_PARAMS", "pageSize=101"),
    (LIST, {"pageSize": "many"}, "INVALID_PARAMS", "$.pageSize"),
    (LIST, {"status": "TASK_STATE_DONE"}, "INVALID_PARAMS", "TASK_STATE_DONE"),
    (LIST, {"pageToken": "forged"}, "INVALID_PARAMS", "forged"),
    (LIST, {"statusTimestampAfter": "2026-01-01T00:00:00Z"}, "INVALID_PARAMS", "statusTimestampAfter"),
    (codec.GET_EXTENDED_CARD, {}, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", "card"),
    (codec.PUSH_OPERATIONS[0], {"taskId": "TASK"}, "PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe"),
    (codec.PUSH_OPERATIONS[1], {"taskId": "TASK"}, "PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe"),
    (codec.PUSH_OPERATIONS[2], {"taskId": "TASK", "id": "p"}, "PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe"),
    (codec.PUSH_OPERATIONS[3], {"taskId": "TASK", "id": "p"}, "PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe"),
]


@pytest.mark.rule("AS-17")
async def test_bad_input_gets_the_protocols_error_that_names_it_and_nothing_comes_of_it(binding):
    """One gateway for the whole table: what one of them left would show in the next one's rows."""
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = (await a2a.send(says("m1", "go")))["id"]
        before = await rows(runtime)
        for operation, params, reason, named in INPUTS:
            asked = {name: task if value == "TASK" else value for name, value in params.items()}
            with pytest.raises(Fault) as refused:
                await (a2a.items if operation.streams else a2a.ask)(operation, asked)
            shown = (reason, refused.value.reason, refused.value.text, params)
            assert refused.value.reason == reason, shown
            assert named in refused.value.text, shown
            assert len(refused.value.text) < 2_000
            if binding == "HTTP+JSON":
                error = codec._BY_REASON[reason]
                assert (refused.value.status, refused.value.code) == (error.status, error.status)
            assert await rows(runtime) == before, shown


async def test_bad_decisions_are_refused_and_decide_nothing(binding):
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = await a2a.send(says("m1", "go"))
        (ticket,) = tickets(task)
        before = await rows(runtime)
        good = decides(ticket)["data"]
        table: list[tuple[Any, str, str]] = [
            ({**good, "action": "yes"}, "bad_message", "'yes'"),
            ({**good, "editedArgs": {}}, "bad_message", "editedArguments"),
            ({**good, "editedArguments": []}, "bad_message", "editedArguments"),
            ({**good, "editedArguments": {"cents": "many"}}, "invalid_arguments", "cents"),
            ({**good, "fingerprint": "0"}, "fingerprint_mismatch", ""),
            ({**good, "ticketId": "t9"}, "unknown_target", "t9"),
            ({"ticketId": ticket["ticketId"]}, "bad_message", "action"),
        ]
        for index, (data, code, named) in enumerate(table):
            with pytest.raises(Fault) as refused:
                await a2a.send(says(f"d{index}", {"data": data}, taskId=task["id"]))
            assert (refused.value.reason, refused.value.metadata["code"]) == ("INVALID_PARAMS", code), data
            assert named in refused.value.text
            assert await rows(runtime) == before
        deep: Any = 1
        for _ in range(900):
            deep = [deep]
        for parts in (
            [{"data": good}] * 2,
            [{"data": 7, "mediaType": codec.TICKET_TYPE}],
            [{"data": {**good, "result": deep}}],
        ):
            with pytest.raises(Fault) as refused:
                await a2a.send(says("d8", *parts, taskId=task["id"]))
            assert refused.value.reason == "INVALID_PARAMS"
        with pytest.raises(Fault, match="is not in the context"):
            await a2a.send(says("d9", {"data": good}, taskId=task["id"], contextId="elsewhere"))
        assert await rows(runtime) == before


@pytest.mark.rule("AS-3")
@pytest.mark.parametrize("version", ["", "0.3", "2.0", "one"])
async def test_another_version_is_not_spoken(binding, version):
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        with pytest.raises(Fault) as refused:
            await a2a.ask(SEND, send(), **{"A2A-Version": version})
        assert refused.value.reason == "VERSION_NOT_SUPPORTED"
        assert version in refused.value.text
        assert await rows(runtime) == []


@pytest.mark.parametrize("last", ["x", "x-1", "EPOCH-999", "EPOCH-x"])
async def test_a_cursor_of_another_log_is_refused(binding, last):
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = (await a2a.send(says("m1", "go")))["id"]
        name = last.replace("EPOCH", runtime.store.epoch)
        with pytest.raises(Fault) as refused:
            await a2a.subscribe(task, **{"Last-Event-ID": name})
        assert refused.value.metadata["code"] in ("reset", "bad_message")


def read(reply: Reply) -> tuple[int, Any, Any]:
    """Status, code and reason of an error in either binding."""
    error = json.loads(reply.body)["error"]
    (info,) = error.get("details") or error["data"]
    return reply.status, error["code"], info["reason"]


async def test_a_body_that_is_not_the_bindings_is_refused():
    async with (
        gr.open_runtime(agents=[clerk()]) as runtime,
        gateway(runtime, limits=Limits(body_bytes=5_000)) as address,
    ):
        table: list[tuple[str, Any, tuple[int, Any, str]]] = [
            (f"{BASE}/message:send", b"{", (400, 400, "INVALID_PARAMS")),
            (f"{BASE}/message:send", b"[]", (400, 400, "INVALID_PARAMS")),
            (f"{BASE}/message:send", b"\xff", (400, 400, "INVALID_PARAMS")),
            (f"{BASE}/message:stream", b"[" * 4_000, (400, 400, "INVALID_PARAMS")),
            (f"{BASE}/message:send", b" " * 6_000, (413, 413, "TOO_BIG")),
            (f"{BASE}/rpc", b"{", (400, -32700, "INVALID_REQUEST")),
            (f"{BASE}/rpc", b"[" * 4_000, (400, -32700, "INVALID_REQUEST")),
            (f"{BASE}/rpc", b"[]", (400, -32600, "INVALID_REQUEST")),
            (f"{BASE}/rpc", b'{"jsonrpc": "2.0", "id": 1}', (200, -32601, "METHOD_NOT_FOUND")),
            (
                f"{BASE}/rpc",
                b'{"jsonrpc": "2.0", "id": 1, "method": "message/send"}',
                (200, -32601, "METHOD_NOT_FOUND"),
            ),
            (f"{BASE}/rpc", b" " * 6_000, (413, -32600, "TOO_BIG")),
            ("/v1/a2a/nobody/message:send", MESSAGE, (404, 404, "UNKNOWN_AGENT")),
        ]
        for target, body, expected in table:
            assert read(await http(address, "POST", target, body=body, headers=VERSION)) == expected, (
                target,
                body[:20],
            )
        assert read(await http(address, "GET", f"{BASE}/message:send")) == (405, 405, "METHOD_NOT_ALLOWED")
        unknown = await http(address, "POST", f"{BASE}/message:shout", body={}, headers=VERSION)
        assert unknown.status == 404
        assert await rows(runtime) == []


@pytest.mark.rule("AS-16", "AS-17")
async def test_who_may_not_is_told_so_in_the_form_of_the_binding(binding):
    principals = [Principal(name="ada", token=TOKEN), Principal(name="eve", token=FOLLOWER, scopes={"follow"})]
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime, principals=principals) as address:
        a2a, eve = A2A(address, binding), A2A(address, binding, token=FOLLOWER)
        task = await a2a.send(says("m1", "go"))
        before = await rows(runtime)
        for asked in (
            eve.send(says("m2", "hi")),
            eve.send(says("m3", *map(decides, tickets(task)), taskId=task["id"])),
            eve.send(says("m4", "hurry", taskId=task["id"])),
            eve.cancel(task["id"]),
        ):
            with pytest.raises(Fault) as refused:
                await asked
            assert (refused.value.reason, refused.value.metadata["code"]) == ("NOT_ALLOWED", "not_allowed")
        assert await rows(runtime) == before
        for token in (None, "an-unknown-token-of-16"):
            reply = await A2A(address, binding, token=token).post(SEND, send())
            status, _, reason = read(reply)
            assert (status, reason) == (401, "UNAUTHENTICATED")
            assert reply.headers["www-authenticate"].startswith("Bearer")


async def test_a_reviewer_of_another_name_decides_nothing(binding):
    @gr.tool(replay="safe")
    async def seal() -> Any:
        raise gr.Suspend(message="which?", response_schema={"type": "string"}, reviewers=("carol",))

    helper = agent(call("seal", id="c1"), "done", tools=[seal])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = await a2a.send(says("m1", "go"))
        (ticket,) = tickets(task)
        assert ticket["reviewers"] == ["carol"]
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m2", decides(ticket, result="red"), taskId=task["id"]))
        assert refused.value.metadata == {"code": "not_allowed", "ticketId": ticket["ticketId"]}
        assert [one["ticketId"] for one in tickets(await a2a.send(says("m3", "red", taskId=task["id"])))] == [
            ticket["ticketId"]
        ]


@pytest.mark.parametrize("host", ["a b", "x/y", "<x>"])
async def test_a_host_that_is_no_address_gets_no_card(host):
    principals = [Principal(name="ada", token=TOKEN)]
    options: dict[str, Any] = {"principals": principals, "hosts": [host]}
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime, **options) as address:
        reply = await http(address, "GET", f"{BASE}/.well-known/agent-card.json", headers={"host": host})
        assert reply.status == 400


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"a2a": "helper"}, "a2a='helper'"),
        ({"a2a": 7}, "a2a=7"),
        ({"a2a": ["nobody"]}, "nobody"),
        ({"a2a_default": "nobody"}, "nobody"),
        ({"a2a": (), "a2a_default": "helper"}, "a2a_default='helper'"),
        ({"a2a_cards": "open"}, "a2a_cards"),
    ],
)
def test_options_of_serve_that_name_nothing_are_refused(options, named):
    asked = {"a2a": None, "a2a_default": None, "a2a_cards": "private", **options}
    with pytest.raises(gr.UsageError, match=named):
        a2a_options(asked["a2a"], asked["a2a_default"], asked["a2a_cards"], ["helper"])
