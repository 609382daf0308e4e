"""What bad input to /v1/mcp gets: the protocol's own error, one sentence that names the value, and no effect."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

import greenroom as gr
from greenroom.transport import Principal
from greenroom.transport.protocol.sealed import seal

from ..support.gateway import TOKEN, gateway, http
from ..support.mcp_client import META, MODERN, TASKS, McpClient
from ..support.mcp_scenes import HANDSHAKE, Effects, asking, begun

OTHER = "another-token-of-16+"
CALL = {"name": "echo", "arguments": {"input": "x"}}
OWN = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}


def request(method: str = "tools/call", number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def modern(method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return request(method, **{"_meta": OWN, **params})


def head(method: str = "tools/call", name: str | None = "echo", **more: str) -> dict[str, str]:
    fields = {"mcp-protocol-version": MODERN, "mcp-method": method, **({} if name is None else {"mcp-name": name})}
    return {**fields, **{name.replace("_", "-"): value for name, value in more.items()}}


# what is posted, the status, the code, and what the sentence has
EITHER = [
    (b"{", 400, -32700, "the body is not JSON: "),
    (b"\xff", 400, -32700, "the body is not JSON: "),
    (b'{"a":' * 100_000, 400, -32700, "the body is not JSON: "),
    (b"[]", 400, -32600, "the body is a batch; send each message in a POST of its own"),
    ([request(**CALL)], 400, -32600, "the body is a batch"),
    (b"7", 400, -32600, 'the body is not a JSON-RPC message with "jsonrpc": "2.0"'),
    ({"id": 1, "method": "tools/call", "params": CALL}, 400, -32600, '"jsonrpc": "2.0"'),
    ({"jsonrpc": "2.0", "id": 1}, 400, -32600, "the message has no method, and is not an answer with id and result"),
    ({"jsonrpc": "2.0", "result": {}}, 400, -32600, "the message has no method"),
    ({"jsonrpc": "2.0", "id": 1, "method": 5}, 400, -32600, "method=5 is not a string"),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}, 400, -32602, "params=[1] is not an object"),
    (request(number=None, **CALL), 400, -32600, "id=None is neither an integer nor a string of at most 256 characters"),
    (request(number=1.5, **CALL), 400, -32600, "id=1.5 is neither"),
    (request(number="x" * 257, **CALL), 400, -32600, "id='xxx"),
    (request(number=2**53, **CALL), 400, -32600, "id=9007199254740992 is neither"),
]
HANDSHAKE_CASES = [
    (request("nothing"), 200, -32601, "method 'nothing' is not known here; there are ping, tools/list, tools/call"),
    (request("logging/setLevel", level="info"), 200, -32601, "method 'logging/setLevel' is not known here"),
    (request("prompts/list"), 200, -32601, "method 'prompts/list' is not known here"),
    (request("tasks/get", taskId="x"), 200, -32601, "method 'tasks/get' is not known here"),
    (request(**{**CALL, "name": "nobody"}), 200, -32602, "no tool has the name 'nobody'; tools/list names those"),
    (request(arguments={}), 200, -32602, "no tool has the name None"),
    (request(name=["echo"], arguments={}), 200, -32602, "no tool has the name ['echo']"),
    (request(name="echo", arguments=[1]), 200, -32602, "arguments=[1] is not an object"),
    (request(**CALL, _meta={"progressToken": {}}), 400, -32602, "progressToken={} is neither an integer nor a string"),
    (request(**CALL, requestState="x"), 400, -32602, "requestState 'x' is not one that was made for this client"),
    (request(name="echo", arguments={"input": " "}), 200, -32602, "input"),
    (request("tools/list", cursor="nobody"), 200, -32602, "cursor='nobody' is not one of this list"),
    (request("tools/list", cursor=7), 200, -32602, "cursor=7 is not one of this list"),
    (
        request("initialize", capabilities={}),
        200,
        -32602,
        "initialize needs protocolVersion, a string, and capabilities",
    ),
    (request("initialize", protocolVersion="2025-11-25"), 200, -32602, "initialize needs protocolVersion"),
    ({"jsonrpc": "2.0", "id": "x", "result": {}}, 400, -32602, "id 'x' is not one that was made for this client"),
    ({"jsonrpc": "2.0", "id": 7, "error": {}}, 400, -32602, "id 7 is not one that was made for this client"),
    (
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}},
        400,
        -32602,
        "requestId=None is neither an integer nor a string",
    ),
]
MODERN_CASES = [
    (
        request(**CALL),
        head(),
        400,
        -32602,
        f"params._meta must hold {META}protocolVersion and {META}clientCapabilities",
    ),
    (modern(_meta={f"{META}protocolVersion": MODERN}), head(), 400, -32602, "params._meta must hold"),
    (modern(_meta={**OWN, f"{META}clientCapabilities": 1}), head(), 400, -32602, "params._meta must hold"),
    (modern(**CALL), {"mcp-protocol-version": MODERN}, 400, -32020, "the header Mcp-Method is None"),
    (modern(**CALL), head(name=None), 400, -32020, "the header Mcp-Name is None, and the body says 'echo'"),
    (modern(**CALL), head(name="pay"), 400, -32020, "the header Mcp-Name is 'pay', and the body says 'echo'"),
    (modern(**CALL), head(name="=?base64?eA=?="), 400, -32020, "the header Mcp-Name is '=?base64?eA=?='"),
    (modern(**CALL), head("tools/list"), 400, -32020, "the header Mcp-Method is 'tools/list', and the body says"),
    (modern(**CALL), head("Tools/Call"), 400, -32020, "the header Mcp-Method is 'Tools/Call'"),
    (modern(**CALL), head(mcp_protocol_version="2025-11-25"), 400, -32020, "the header MCP-Protocol-Version is"),
    (
        modern(_meta={**OWN, f"{META}protocolVersion": "2099-01-01"}),
        head(mcp_protocol_version="2099-01-01"),
        400,
        -32022,
        "the protocol version '2099-01-01' is not known here; use 2026-07-28",
    ),
    (
        modern("nothing"),
        head("nothing", None),
        404,
        -32601,
        "method 'nothing' is not known here; there are server/discover",
    ),
    (modern("initialize"), head("initialize", None), 404, -32601, "method 'initialize' is not known here"),
    (modern("ping"), head("ping", None), 404, -32601, "method 'ping' is not known here"),
    (modern("subscriptions/listen"), head("subscriptions/listen", None), 404, -32601, "is not known here"),
    (modern(**{**CALL, "name": "nobody"}), head(name="nobody"), 200, -32602, "no tool has the name 'nobody'"),
    (
        modern(**CALL, _meta={**OWN, "greenroom/run": 7}),
        head(),
        200,
        -32602,
        "_meta greenroom/run = 7 is not a run's id",
    ),
    (modern(**CALL, _meta={**OWN, "greenroom/run": "a\nb"}), head(), 200, -32602, "run="),
    (modern(**CALL, requestState="x"), head(), 400, -32602, "requestState 'x' is not one that was made"),
    (modern(**CALL, requestState=7), head(), 400, -32602, "requestState 7 is not one that was made"),
    (modern("tasks/get", taskId="x"), head("tasks/get", "x"), 400, -32021, "tasks/get needs a client that declares"),
    (
        modern("tasks/get", taskId="x", _meta={**OWN, f"{META}clientCapabilities": TASKS}),
        head("tasks/get", "x"),
        200,
        -32602,
        "taskId='x' is not a task that you may see",
    ),
]


class Watched:
    """A gateway with an open question, of whose run no request may change anything."""

    def __init__(self, address: Any, runtime: gr.Runtime, client: McpClient) -> None:
        self.address, self.runtime, self.client = address, runtime, client

    async def facts(self) -> list[Any]:
        lines = (await self.runtime.runs()).runs
        return [(line.info.run_id, line.row.last_sequence, line.pending) for line in lines]

    async def refuses(self, body: Any, headers: Mapping[str, str], status: int, code: int, text: str) -> None:
        before = await self.facts()
        reply = await http(self.address, "POST", "/v1/mcp", body=body, headers=dict(headers))
        assert reply.status == status, reply.body
        error = reply.json()
        assert (error["jsonrpc"], error["error"]["code"]) == ("2.0", code)
        assert text in error["error"]["message"]
        assert "\n" not in error["error"]["message"]
        assert await self.facts() == before


@pytest.fixture
async def watched():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client):
            yield Watched(address, runtime, client)
        assert effects.paid == []


def named(value: object) -> str:
    return value[:40] if isinstance(value, str) else ""


@pytest.mark.rule("MS-11")
@pytest.mark.parametrize(("body", "status", "code", "text"), EITHER, ids=named)
async def test_what_is_not_one_message_is_refused_in_both_eras(watched, body, status, code, text):
    for headers in ({"mcp-session-id": watched.client.session}, head()):
        await watched.refuses(body, headers, status, code, text)


@pytest.mark.rule("MS-10", "MS-11")
@pytest.mark.parametrize(("body", "status", "code", "text"), HANDSHAKE_CASES, ids=named)
async def test_bad_input_of_the_handshake_era(watched, body, status, code, text):
    await watched.refuses(body, {"mcp-session-id": watched.client.session}, status, code, text)


@pytest.mark.rule("MS-10", "MS-11")
@pytest.mark.parametrize(("body", "headers", "status", "code", "text"), MODERN_CASES, ids=named)
async def test_bad_input_of_the_modern_era(watched, body, headers, status, code, text):
    await watched.refuses(body, headers, status, code, text)


@pytest.mark.rule("MS-1")
async def test_a_session_that_is_missing_forged_foreign_or_of_another_purpose_is_no_session(watched):
    session = watched.client.session
    foreign = seal("mcp session", ["2025-11-25", True, "x"], OTHER)
    purpose = seal("mcp state", ["2025-11-25", True, "x"], TOKEN)
    await watched.refuses(request(**CALL), {}, 400, -32600, "the request has no Mcp-Session-Id; begin with initialize")
    for wrong in ("x", session[:-1], session + "A", foreign, purpose):
        text = "is not a session of this token; begin again with initialize"
        await watched.refuses(request(**CALL), {"mcp-session-id": wrong}, 404, -32600, text)
    version = {"mcp-session-id": session, "mcp-protocol-version": "1999-01-01"}
    await watched.refuses(request(**CALL), version, 400, -32600, "MCP-Protocol-Version '1999-01-01' is not known here")


@pytest.mark.rule("MS-1")
async def test_a_resume_without_or_with_a_forged_event_id_is_refused(watched):
    own = {"mcp-session-id": watched.client.session}
    reply = await http(watched.address, "GET", "/v1/mcp", headers=own)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    for wrong in ("x", watched.client.session, seal("mcp event", ["r", 1, 0, None, "call", False], OTHER)):
        reply = await http(watched.address, "GET", "/v1/mcp", headers=own | {"last-event-id": wrong})
        assert (reply.status, reply.json()["error"]["code"]) == (400, -32602)
    reply = await http(watched.address, "DELETE", "/v1/mcp", headers=own)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_the_event_of_a_run_that_was_pruned_ends_the_stream_with_an_error(watched):
    gone = seal("mcp event", ["run_gone", 1, 0, None, "call", False], TOKEN)
    async with watched.client.resuming(gone) as stream:
        result = await stream.result()
    assert result["isError"] is True


async def test_a_sealed_text_gives_no_right_to_a_run_that_the_principal_may_not_see():
    """As of a token that has gone over to another principal: its old texts open, and show nothing."""
    eve = Principal(name="eve", token=OTHER, sees=lambda _: False)
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[eve]) as address:
            asked = await McpClient(address).call("pay")
            run_id = asked["_meta"]["greenroom/run"]
            (key,) = asked["inputRequests"]
            other = await begun(address, HANDSHAKE[0], token=OTHER)
            async with other.resuming(seal("mcp event", [run_id, 1, 0, "t", "call", False], OTHER)) as stream:
                result = await stream.result()
            assert [event.message.get("method") for event in stream.events if event.message] == [None]
            assert (result["isError"], "content" in result) == (True, True)
            taken = McpClient(address, token=OTHER)
            state = seal("mcp state", [run_id, {key: [key, "f"]}], OTHER)
            yes = {key: {"action": "accept", "content": {"decision": "approve"}}}
            for tool in ("pay", "echo"):
                error = await taken.ask("tools/call", name=tool, requestState=state, inputResponses=yes)
                assert error["message"] == f"requestState is not one of the tool {tool}"
            question = {"id": seal("mcp question", [run_id, key, "f"], OTHER)}
            assert (await other.answer(question, "accept", decision="approve")).status == 202
            (ticket,) = (await (await runtime.get(run_id)).wait()).tickets
            assert ticket.ticket_id == key
    assert effects.paid == []


async def test_a_text_that_the_client_itself_has_sealed_in_another_form_is_refused(watched):
    run_id = (await watched.runtime.runs()).runs[0].info.run_id
    own = {"mcp-session-id": watched.client.session}
    for data in (5, [1], ["2025-11-25", {}, "x"], ["1999-01-01", True, "x"], ["2025-11-25", True, ["x"]]):
        wrong = {"mcp-session-id": seal("mcp session", data, TOKEN)}
        await watched.refuses(request(**CALL), wrong, 404, -32600, "is not a session of this token")
    for data in (5, [1], [[run_id], {}], [run_id, 7], [run_id, {"t": 1}], [run_id, {"t": ["t"]}]):
        body = modern(**CALL, requestState=seal("mcp state", data, TOKEN), inputResponses={"t": {"action": "accept"}})
        await watched.refuses(body, head(), 400, -32602, "is not one that was made for this client")
    for data in (5, [run_id, "t"], [run_id, "t", 1], [[run_id], "t", "f"]):
        body = {"jsonrpc": "2.0", "id": seal("mcp question", data, TOKEN), "result": {"action": "accept"}}
        await watched.refuses(body, own, 400, -32602, "is not one that was made for this client")
    for event in (5, [1], *([run_id, 1, after, None, "call", False] for after in (-1, "x", 1.5, 2**62))):
        last = {"last-event-id": seal("mcp event", event, TOKEN)}
        reply = await http(watched.address, "GET", "/v1/mcp", headers=own | last)
        assert (reply.status, reply.json()["error"]["code"]) == (400, -32602)


@pytest.mark.rule("MS-11")
async def test_without_the_scope_to_follow_a_sealed_text_shows_only_the_principals_own_runs():
    """A principal can seal texts with its own token, about a run of anybody."""
    eve = Principal(name="eve", token=OTHER, scopes={"start"})
    async with gr.open_runtime(agents=Effects().agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[eve]) as address:
            run_id = (await McpClient(address).call("echo", {"input": "of ada"}))["_meta"]["greenroom/run"]
            own_id = (await McpClient(address, token=OTHER).call("echo", {"input": "of eve"}))["_meta"]["greenroom/run"]
            client, older = McpClient(address, token=OTHER), await begun(address, HANDSHAKE[0], token=OTHER)
            for name, text in ((run_id, None), (own_id, "you said of eve")):
                async with older.resuming(seal("mcp event", [name, 1, 0, None, "call", False], OTHER)) as stream:
                    resumed = await stream.result()
                repeated = await client.call("echo", requestState=seal("mcp state", [name, {}], OTHER))
                for answer in (resumed, repeated):
                    shown = [part["text"] for part in answer.get("content", ())] if not answer.get("isError") else []
                    assert shown == ([] if text is None else [text])


async def test_what_the_gateway_refuses_before_a_message_is_read(watched):
    own = {"mcp-session-id": watched.client.session}
    body = json.dumps(request(**CALL)).encode()
    cases: list[tuple[int, dict[str, Any]]] = [
        (413, {"body": body + b" " * 2_000_000, "headers": own}),
        (401, {"body": body, "headers": own, "token": None}),
        (401, {"body": body, "headers": own, "token": OTHER}),
        (403, {"body": body, "headers": own | {"origin": "http://evil.example"}}),
        (403, {"body": body, "headers": own | {"host": "evil.example"}}),
    ]
    before = await watched.facts()
    for status, options in cases:
        reply = await http(watched.address, "POST", "/v1/mcp", **options)
        assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    assert (await http(watched.address, "POST", "/v1/mcp?session=1", body=body, headers=own)).status == 400
    assert await watched.facts() == before


@pytest.mark.rule("MS-11")
async def test_unknown_notifications_are_accepted_and_do_nothing(watched):
    before = await watched.facts()
    for method in ("notifications/roots/list_changed", "notifications/nothing", "tools/call"):
        for headers in ({}, {"mcp-session-id": watched.client.session}, head()):
            body = {"jsonrpc": "2.0", "method": method, "params": CALL}
            reply = await http(watched.address, "POST", "/v1/mcp", body=body, headers=headers)
            assert (reply.status, reply.body) == (202, b"")
    assert await watched.facts() == before


@pytest.mark.rule("MS-11")
@pytest.mark.parametrize("version", [MODERN, HANDSHAKE[0]])
async def test_a_principal_without_the_scope_starts_decides_and_reads_nothing(version):
    reader = Principal(name="eve", token=OTHER, scopes={"follow"})
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[reader]) as address:
            eve = await begun(address, version, token=OTHER)
            for method, params in (("tools/list", {}), ("tools/call", CALL)):
                error = await eve.ask(method, **params)
                assert error["code"] == -32000
                assert error["data"] == {"code": "not_allowed", "retry": False}
                assert error["message"] == "eve has no scope 'start'; ask for a token that has it"
            assert (await runtime.runs()).runs == ()


async def test_the_texts_of_one_client_do_not_open_for_another_one():
    eve = Principal(name="eve", token=OTHER)
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[eve]) as address:
            client = await begun(address, HANDSHAKE[0])
            other = await begun(address, HANDSHAKE[0], token=OTHER)
            async with asking(client) as (stream, question):
                assert (await other.answer(question, "accept", decision="approve")).status == 400
                async with other.resuming(stream.last_id) as rest:
                    assert (await rest.hear())["error"]["code"] == -32602
                other.session = client.session
                assert (await other.post(other.message("ping"))).status == 404
            asked = await McpClient(address).call("pay")
            taken = McpClient(address, token=OTHER)
            error = await taken.ask("tools/call", name="pay", arguments={}, requestState=asked["requestState"])
            assert error["code"] == -32602
    assert effects.paid == []


async def test_the_state_of_one_tool_is_not_that_of_another():
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        asked = await client.call("pay")
        error = await client.ask("tools/call", name="echo", arguments={}, requestState=asked["requestState"])
        assert error["message"] == "requestState is not one of the tool echo"
        own = {"requestState": asked["requestState"], "inputResponses": [1]}
        error = await client.ask("tools/call", name="pay", arguments={}, **own)
        assert error["message"] == "inputResponses=[1] is not an object"
