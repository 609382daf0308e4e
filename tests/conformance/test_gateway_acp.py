"""ACP sessions at the real gateway: what docs/acp.md promises, with an editor in this process."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from tests.support.acp_editor import ALL, AgentError, Editor, Places, editing
from tests.support.gateway import TOKEN, gateway
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import FunctionModel, ScriptedModel, call, text
from greenroom.transport import Client, Principal, connect
from greenroom.transport.client import ListedRunChanged

pytestmark = pytest.mark.slow

COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
}
BOB = "another-token-for-these-tests"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90_000)).decode()


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents}"


def asking(schema: Any = COLOUR) -> gr.Tool[..., object]:
    @gr.tool
    async def paint(ctx: gr.ToolContext) -> str:
        """Ask in the middle of the work."""
        decision = await ctx.ask(gr.Suspend(message="Which colour?", reason="user_input", response_schema=schema))
        return f"{decision.result} by {decision.decided_by}"

    return paint


def clerk(**options: Any) -> gr.Agent[Any]:
    return agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund], **options)


def painter(schema: Any = COLOUR) -> gr.Agent[Any]:
    return agent(call("paint", id="c1"), "done", tools=[asking(schema)])


@asynccontextmanager
async def session(
    helper: gr.Agent[Any], capabilities: Any = ALL, **options: Any
) -> AsyncIterator[tuple[Editor, str, Client]]:
    """An editor with a new session, and another client of the gateway."""
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, **options) as address:
        async with connect(address.url, token=TOKEN) as client, editing(address, capabilities=capabilities) as editor:
            yield editor, await editor.new(), client


async def ticket_of(client: Client) -> tuple[str, gr.Ticket]:
    """The open ticket of the only run."""
    (line,) = (await client.runs()).runs
    (ticket,) = (await client.view(line.run_id)).tickets
    return line.run_id, ticket


# --- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("ACP-1")
async def test_an_editor_learns_what_the_agent_can_do():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        async with editing(address, capabilities=None) as editor:
            answer = await editor.call("initialize", protocolVersion=99, clientCapabilities={})
    assert answer["protocolVersion"] == 1
    capabilities = answer["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert set(capabilities["sessionCapabilities"]) == {"list", "resume", "close"}
    assert answer["authMethods"] == []


@pytest.mark.rule("ACP-3", "ACP-6")
async def test_a_prompt_is_a_run_and_its_approval_a_permission_request():
    async with session(clerk()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund ", {"type": "resource_link", "name": "o7", "uri": "file:///7"})
        question = await editor.question()
        assert question["method"] == "session/request_permission"
        assert [option["kind"] for option in question["params"]["options"]] == ["allow_once", "reject_once"]
        assert question["params"]["toolCall"]["rawInput"] == {"order": "7", "cents": 5}
        await editor.select(question, "allow_once")
        answer = await editor.answer_to(prompt)
        assert answer["stopReason"] == "end_turn"
        assert editor.said(session_id) == "done"
        assert [update.get("status") for update in editor.of("tool_call_update")] == ["in_progress", "completed"]
        (line,) = (await client.runs(thread_id=session_id)).runs
        assert line.run_id == answer["_meta"]["greenroom/run"]
        assert line.title == "refund [o7](file:///7)"


@pytest.mark.rule("ACP-6")
async def test_a_rejected_call_does_not_run():
    async with session(clerk()) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "refund")
        await editor.select(await editor.question(), "reject_once")
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        (ended,) = editor.of("tool_call_update")
        assert ended["status"] == "failed"
        assert "approval_rejected" in ended["content"][0]["content"]["text"]


@pytest.mark.rule("ACP-7")
async def test_always_is_offered_where_a_rule_would_remember_it():
    rules = gr.ext.Permission(rules=[gr.ext.Rule("ask", tool="refund")])

    @gr.tool(name="refund", effect="write")
    async def pay(order: str, cents: int) -> str:
        """Pay back."""
        return "paid"

    def answer(request: Any) -> Any:
        if request.messages[-1].role == "user":
            return call("refund", order="7", cents=5)
        return "done"

    helper = gr.Agent("helper", model=FunctionModel(answer), tools=[pay], plugins=[rules])
    async with session(helper) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "refund")
        question = await editor.question()
        assert [option["kind"] for option in question["params"]["options"]] == [
            *("allow_once", "allow_always", "reject_once")
        ]
        await editor.select(question, "allow_always")
        await editor.answer_to(prompt)
        await editor.answer_to(await editor.prompt(session_id, "again"))
        assert editor.said(session_id) == "donedone"


@pytest.mark.rule("ACP-3")
async def test_images_go_to_the_model_also_above_the_limit_of_a_message():
    helper = agent("seen")
    async with session(helper) as (editor, session_id, _):
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        await editor.answer_to(await editor.prompt(session_id, "what is it?", image))
        (part,) = helper.model.requests[0].messages[-1].parts
        assert part.data == base64.b64decode(PNG)
        await editor.answer_to(await editor.prompt(session_id, image))


@pytest.mark.rule("ACP-3")
async def test_one_prompt_at_a_time():
    async with session(clerk()) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "refund")
        question = await editor.question()
        with pytest.raises(AgentError, match="not answered yet") as refused:
            await editor.answer_to(await editor.prompt(session_id, "more"))
        assert refused.value.code == -32600
        await editor.select(question, "allow_once")
        await editor.answer_to(prompt)
        assert len((await editor.call("session/list"))["sessions"]) == 1


@pytest.mark.rule("ACP-9")
async def test_a_failed_run_is_an_error_that_says_what_to_do():
    def fail(_: Any) -> Any:
        raise gr.ModelError("no such key", kind="unauthorized")

    async with session(gr.Agent("helper", model=FunctionModel(fail))) as (editor, session_id, _):
        with pytest.raises(AgentError) as failed:
            await editor.answer_to(await editor.prompt(session_id, "hi"))
        assert failed.value.code == -32603
        assert failed.value.data["code"] == "model_error"
        assert failed.value.data["recovery"]


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("ACP-6")
async def test_a_question_with_a_flat_schema_is_a_form():
    async with session(painter()) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "paint")
        question = await editor.question()
        assert question["method"] == "elicitation/create"
        params = question["params"]
        assert params["requestedSchema"] == COLOUR
        assert "Which colour?" in params["message"]
        await editor.answer(question, action="accept", content={"colour": "green"})
        again = await editor.question()
        assert "invalid_result" in again["params"]["message"]
        await editor.answer(again, action="accept", content={"colour": "blue"})
        await editor.answer_to(prompt)
        *_, done = [update for update in editor.of("tool_call_update") if update.get("status") == "completed"]
        assert done["rawOutput"].startswith("{'colour': 'blue'}")


@pytest.mark.rule("ACP-6")
@pytest.mark.parametrize(
    ("schema", "content", "result"),
    [
        ({"type": "string"}, "blue", "blue"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", "[1, 2]"),
        (None, "as you like", "as you like"),
    ],
)
async def test_another_schema_asks_for_one_value(schema: Any, content: str, result: str):
    async with session(painter(schema)) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "paint")
        question = await editor.question()
        assert list(question["params"]["requestedSchema"]["properties"]) == ["result"]
        await editor.answer(question, action="accept", content={"result": content})
        await editor.answer_to(prompt)
        assert editor.of("tool_call_update")[-1]["rawOutput"].startswith(result)


@pytest.mark.rule("ACP-6")
async def test_a_declined_form_denies():
    async with session(painter()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "paint")
        await editor.answer(await editor.question(), action="decline")
        await editor.answer_to(prompt)
        (line,) = (await client.runs()).runs
        async with client.follow(line.run_id) as events:
            resolved = [event async for event in events if event.type == "run.approval.resolved"]
        assert [event.payload["resolution"] for event in resolved] == ["denied"]


@pytest.mark.rule("ACP-8")
async def test_an_editor_without_forms_is_told_where_to_answer():
    async with session(painter(), {}) as (editor, session_id, client):
        answer = await editor.answer_to(await editor.prompt(session_id, "paint"))
        run_id, ticket = await ticket_of(client)
        assert answer["stopReason"] == "end_turn"
        assert f"See {run_id}." in editor.said(session_id)
        await client.decide(run_id, ticket.approve({"colour": "red"}))
        await editor.until(lambda: editor.said(session_id).endswith("done"))  # the run is followed further


@pytest.mark.rule("ACP-8")
async def test_a_principal_who_is_no_reviewer_is_not_asked():
    principals = [Principal(name="ann", token=TOKEN), Principal(name="bob", token=BOB)]

    @gr.tool(effect="write")
    async def pay(ctx: gr.ToolContext) -> str:
        """Pay."""
        await ctx.ask(gr.Suspend(message="Pay?", reviewers=("bob",)))
        return "paid"

    helper = agent(call("pay", id="c1"), "done", tools=[pay])
    async with session(helper, principals=principals) as (editor, session_id, client):
        answer = await editor.answer_to(await editor.prompt(session_id, "pay"))
        assert answer["stopReason"] == "end_turn"
        assert "Only bob may decide" in editor.said(session_id)
        assert editor.asked == {}
        run_id, ticket = await ticket_of(client)
        async with connect(client.url, token=BOB) as bob:
            await bob.decide(run_id, ticket.approve())
        await editor.until(lambda: editor.said(session_id).endswith("done"))


@pytest.mark.rule("ACP-8")
async def test_a_question_that_is_dismissed_decides_nothing():
    async with session(clerk()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund")
        await editor.answer(await editor.question(), outcome={"outcome": "cancelled"})
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        run_id, ticket = await ticket_of(client)
        await client.decide(run_id, ticket.deny())
        await editor.until(lambda: editor.said(session_id).endswith("done"))


@pytest.mark.rule("ACP-8")
async def test_a_dismissed_question_is_asked_again_with_the_next_prompt():
    async with session(clerk()) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "refund")
        await editor.answer(await editor.question(), outcome={"outcome": "cancelled"})
        await editor.answer_to(prompt)
        second = await editor.prompt(session_id, "go on")
        await editor.select(await editor.question(), "allow_once")
        await editor.until(lambda: editor.said(session_id).endswith("done"))
        await editor.select(await editor.question(), "reject_once")  # of the second run, which was queued
        assert (await editor.answer_to(second))["stopReason"] == "end_turn"


@pytest.mark.rule("ACP-8")
async def test_a_question_that_is_decided_elsewhere_is_withdrawn():
    async with session(clerk()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund")
        question = await editor.question()
        run_id, ticket = await ticket_of(client)
        await client.decide(run_id, ticket.approve())
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        assert editor.withdrawn == [question["id"]]
        await editor.say(id=question["id"], error={"code": -32800, "message": "cancelled"})  # as the protocol demands
        await editor.prompt(session_id, "once more")
        assert (await editor.question())["id"] > question["id"]


@pytest.mark.rule("ACP-8")
async def test_a_principal_that_may_not_decide_is_told_where_others_may():
    principals = [Principal(name="ann", token=TOKEN, scopes={"start", "follow"}), Principal(name="bob", token=BOB)]
    async with session(clerk(), principals=principals) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund")
        await editor.select(await editor.question(), "allow_once")
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        assert "not accepted (not_allowed)" in editor.said(session_id)
        run_id, ticket = await ticket_of(client)
        async with connect(client.url, token=BOB) as bob:
            await bob.decide(run_id, ticket.approve())
        await editor.until(lambda: editor.said(session_id).endswith("done"))


@pytest.mark.rule("ACP-13")
async def test_answers_that_nobody_waits_for_change_nothing():
    async with session(clerk()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund")
        question = await editor.question()
        yes = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        before = len(editor.lines)
        for message in (
            {"id": 99, "result": yes},
            {"id": str(question["id"]), "result": yes},
            {"id": None, "result": yes},
            {"id": question["id"] + 0.5, "result": yes},
            {"method": "session/cancel", "params": {"sessionId": "nobody"}},
            {"method": "session/cancel", "params": {}},
            {"method": "$/cancel_request", "params": {"requestId": []}},
            {"method": "$/progress", "params": {}},
        ):
            await editor.say(**message)
        assert await editor.call("session/list", cwd="/elsewhere") == {"sessions": []}
        assert len(editor.lines) == before + 1
        await editor.select(question, "reject_once")
        await editor.say(id=question["id"], result=yes)  # the second answer
        await editor.answer_to(prompt)
        run_id = (await client.runs()).runs[0].run_id
        assert [status.value for status in (await client.view(run_id)).calls.values()] == ["cancelled"]


@pytest.mark.rule("ACP-3")
async def test_an_editor_that_does_not_read_stops_no_run_and_gets_everything_later():
    many = 2_000
    helper = gr.Agent("helper", model=ScriptedModel([text("x" * many)], chunk=1))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with connect(address.url, token=TOKEN) as client, editing(address) as editor:
            session_id = await editor.new()
            with editor.not_reading():
                prompt = await editor.prompt(session_id, "go")
                async with client.watch_runs() as changes:
                    async for change in changes:
                        if isinstance(change, ListedRunChanged) and change.line and change.line.ended_at:
                            break
                assert len(editor.said(session_id)) < many
            assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
            assert editor.said(session_id) == "x" * many


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("ACP-10")
@pytest.mark.parametrize("dismissed", ["before", "after", "never"])
async def test_a_cancel_while_a_question_is_open(dismissed: str):
    async with session(clerk()) as (editor, session_id, client):
        prompt = await editor.prompt(session_id, "refund")
        question = await editor.question()
        if dismissed == "before":
            await editor.answer(question, outcome={"outcome": "cancelled"})
        await editor.notify("session/cancel", sessionId=session_id)
        if dismissed == "after":
            editor.asked.pop(question["id"], None)
            await editor.say(id=question["id"], result={"outcome": {"outcome": "cancelled"}})
        assert (await editor.answer_to(prompt))["stopReason"] == "cancelled"
        (line,) = (await client.runs()).runs
        assert line.stage == "cancelled"
        assert editor.asked == {}


class Streaming(gr.Model):
    """A model that says something, and goes on for ever."""

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        async def deltas() -> AsyncIterator[Any]:
            yield gr.TextDelta("One moment")
            await trio.sleep_forever()

        yield deltas()


@pytest.mark.rule("ACP-10")
@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request", "session/close"])
async def test_a_cancel_while_the_model_writes(how: str):
    async with session(gr.Agent("helper", model=Streaming())) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "hi")
        await editor.until(lambda: editor.said(session_id))
        if how == "session/close":
            assert await editor.call(how, sessionId=session_id) == {}
        else:
            await editor.notify(
                how, **({"sessionId": session_id} if how == "session/cancel" else {"requestId": prompt})
            )
        assert (await editor.answer_to(prompt))["stopReason"] == "cancelled"


@pytest.mark.rule("ACP-10")
async def test_a_cancel_reaches_a_run_that_is_being_started():
    async with session(gr.Agent("helper", model=Streaming())) as (editor, session_id, _):
        prompt = await editor.prompt(session_id, "hi")
        await editor.notify("session/cancel", sessionId=session_id)
        assert (await editor.answer_to(prompt))["stopReason"] == "cancelled"


# --- sessions --------------------------------------------------------------------------------------------------------


def history(editor: Editor, session_id: str) -> list[Any]:
    """What an editor has: whole messages and calls, in order."""
    shown: list[Any] = []
    for name, update in editor.updates:
        kind = update["sessionUpdate"]
        if name != session_id or kind not in ("user_message_chunk", "agent_message_chunk", "tool_call"):
            continue
        text = update["content"]["text"] if kind.endswith("chunk") else update["toolCallId"]
        if shown and shown[-1][:2] == [kind, update.get("messageId")]:
            shown[-1][2] += text
        else:
            shown.append([kind, update.get("messageId"), text])
    return shown


@pytest.mark.rule("ACP-4")
async def test_a_loaded_session_has_its_history_and_asks_again():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        async with editing(address) as first:
            session_id = await first.new()
            prompt = await first.prompt(session_id, "refund one")
            await first.select(await first.question(), "allow_once")
            await first.answer_to(prompt)
            await first.prompt(session_id, "refund two")
            await first.question()
        async with editing(address) as second:
            assert await second.call("session/load", sessionId=session_id, cwd="/work", mcpServers=[]) == {}
            assert second.said(session_id, "user_message_chunk") == "refund onerefund two"
            with_prompts = [entry for entry in history(second, session_id) if entry[0] != "user_message_chunk"]
            assert with_prompts == history(first, session_id)
            question = await second.question()
            await second.select(question, "allow_once")
            await second.until(lambda: second.said(session_id) == "donedone")


@pytest.mark.rule("ACP-4")
async def test_a_resumed_session_asks_again_and_repeats_nothing():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        async with editing(address) as first:
            session_id = await first.new()
            await first.prompt(session_id, "refund")
            await first.question()
        async with editing(address) as second:
            assert await second.call("session/resume", sessionId=session_id, cwd="/work") == {}
            question = await second.question()
            assert second.updates == []
            with pytest.raises(AgentError, match="is open, and works"):
                await second.call("session/load", sessionId=session_id, cwd="/work", mcpServers=[])
            await second.select(question, "allow_once")
            await second.until(lambda: second.said(session_id) == "done")


@pytest.mark.rule("ACP-4")
async def test_a_loaded_session_goes_on_with_a_message_that_is_being_written():
    async with gr.open_runtime(agents=[gr.Agent("helper", model=Streaming())]) as runtime, gateway(runtime) as address:
        async with editing(address) as first:
            session_id = await first.new()
            await first.prompt(session_id, "hi")
            await first.until(lambda: first.said(session_id))
        async with editing(address) as second:
            await second.call("session/load", sessionId=session_id, cwd="/work", mcpServers=[])
            assert second.said(session_id) == first.said(session_id)
            await second.call("session/close", sessionId=session_id)
            with pytest.raises(AgentError, match="no open session"):
                await second.answer_to(await second.prompt(session_id, "hi"))


@pytest.mark.rule("ACP-5")
async def test_sessions_are_listed_newest_first_page_by_page():
    async with gr.open_runtime(agents=[agent("ok"), agent("ok", key="other")]) as runtime, gateway(runtime) as address:
        async with editing(address) as editor:
            names = [await editor.new(f"/work/{number % 2}") for number in range(60)]
            for name in names:
                await editor.answer_to(await editor.prompt(name, f"hello {name}"))
            await editor.answer_to(await editor.prompt(names[0], "the newest run of the oldest session"))
            async with connect(address.url, token=TOKEN) as client:
                await client.start("other", "hi")
            listed, cursor, pages = list[Any](), None, 0
            while pages == 0 or cursor is not None:
                page = await editor.call("session/list", **({"cursor": cursor} if cursor else {}))
                listed += page["sessions"]
                cursor, pages = page.get("nextCursor"), pages + 1
            assert [entry["sessionId"] for entry in listed] == [names[0], *names[:0:-1]]
            assert pages == 2
            of_folder = (await editor.call("session/list", cwd="/work/1"))["sessions"]
            assert {entry["cwd"] for entry in of_folder} == {"/work/1"}
            assert listed[0]["title"] == "the newest run of the oldest session"


@pytest.mark.rule("ACP-11")
async def test_the_mcp_servers_of_an_editor_are_named_where_they_are_not_used():
    server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
    async with gr.open_runtime(agents=[agent("ok")]) as runtime, gateway(runtime) as address:
        async with editing(address) as editor:
            await editor.new(servers=[server])
            (notice,) = await editor.until(lambda: editor.of("notice"))
            assert "files" in notice["title"]


# --- the gateway is lost ---------------------------------------------------------------------------------------------


@pytest.mark.rule("ACP-12")
async def test_another_gateway_takes_the_place_of_a_lost_one():
    places = Places()

    async def serve(runtime: gr.Runtime, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            async with gateway(runtime) as address:
                places.move(address)
                task_status.started(scope)
                await trio.sleep_forever()

    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        first = await nursery.start(serve, runtime)
        async with editing(places) as editor:
            session_id = await editor.new()
            prompt = await editor.prompt(session_id, "refund")
            question = await editor.question()
            first.cancel()
            await nursery.start(serve, runtime)
            await editor.select(question, "allow_once")
            assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
            assert editor.said(session_id) == "done"
            assert len(editor.of("tool_call")) == 1
        assert len(places.lost_places) == 1
        nursery.cancel_scope.cancel()


# --- bad input -------------------------------------------------------------------------------------------------------

ASK: dict[str, Any] = {"jsonrpc": "2.0", "id": "x"}
NEW = {"cwd": "/work", "mcpServers": []}
BAD_LINES: list[tuple[str, bytes | None, int, str]] = [
    ("not JSON", b"hello", -32700, "not JSON"),
    ("half a line", b'{"jsonrpc": "2.0", ', -32700, "not JSON"),
    ("not UTF-8", b'{"jsonrpc": "\xff"}', -32700, "not JSON"),
    ("nested too deep", b"[" * 100_000, -32700, "not JSON"),
    ("too many values", b"[" + b"1," * 300_000 + b"1]", -32700, "more than 200,000 values"),
    ("too long", None, -32700, "more than 10,485,760 bytes"),
    ("a batch", b'[{"jsonrpc": "2.0", "id": 1, "method": "session/list"}]', -32600, "not a JSON object"),
    ("a number", b"7", -32600, "not a JSON object"),
    ("neither method nor id", b'{"jsonrpc": "2.0"}', -32600, "neither a method nor an id"),
    ("an id that is none", b'{"id": 1.5, "method": "session/list"}', -32600, "not a text or a whole number"),
    ("params that are a list", b'{"id": "x", "method": "session/list", "params": []}', -32602, "not an object"),
]


@pytest.mark.rule("ACP-13")
@pytest.mark.parametrize(("line", "code", "text"), [row[1:] for row in BAD_LINES], ids=[row[0] for row in BAD_LINES])
async def test_a_line_that_is_no_request_gets_the_error_of_the_standard(line: bytes | None, code: int, text: str):
    async with session(clerk()) as (editor, _, client):
        before = len(editor.lines)
        if line is not None and b'"x"' in line:
            editor._open["x"] = None
        await editor._send(line)
        await editor.until(lambda: len(editor.lines) > before)
        error = editor.lines[-1]["error"]
        assert error["code"] == code
        assert text in error["message"]
        assert (await editor.call("session/list")) == {"sessions": []}
        assert (await client.runs()).runs == ()


BAD_REQUESTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("session/new", {"mcpServers": []}, -32602, "cwd"),
    ("session/new", {"cwd": "here", "mcpServers": []}, -32602, "cwd='here'"),
    ("session/new", {"cwd": "/work"}, -32602, "mcpServers is missing"),
    ("session/new", {"cwd": "/work", "mcpServers": {}}, -32602, "mcpServers"),
    ("session/new", {"cwd": "/work", "mcpServers": [{"name": "a"}]}, -32602, "'a' has no command"),
    ("session/new", {"cwd": "/work", "mcpServers": [{"name": "a", "type": "sse", "url": "x"}]}, -32602, "'sse'"),
    ("session/new", {"cwd": "/work", "mcpServers": [{"name": "a", "command": "/x"}] * 2}, -32602, "one name"),
    ("session/new", {"cwd": "/work", "mcpServers": [{"name": str(n)} for n in range(33)]}, -32602, "at most 32"),
    ("session/load", {**NEW, "sessionId": "../x"}, -32602, "sessionId='../x'"),
    ("session/load", {**NEW, "sessionId": "nobody"}, -32002, "no session nobody"),
    ("session/resume", {**NEW, "sessionId": "nobody"}, -32002, "no session nobody"),
    ("session/close", {"sessionId": "nobody"}, -32002, "no open session nobody"),
    ("session/close", {}, -32602, "sessionId"),
    ("session/list", {"cwd": "x"}, -32602, "cwd='x'"),
    ("session/list", {"cursor": "forged"}, -32603, "cursor"),
    ("session/prompt", {"sessionId": "nobody", "prompt": [{"type": "text", "text": "x"}]}, -32002, "nobody"),
    ("session/prompt", {"sessionId": "SESSION"}, -32602, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": "hi"}, -32602, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": []}, -32602, "empty"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text", "text": " "}]}, -32602, "empty"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "audio"}]}, -32602, "not audio"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "image", "data": "!"}]}, -32602, "prompt[0]"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "image", "data": "eA=="}]}, -32602, "prompt[0]"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text"}] * 1_001}, -32602, "1,001 blocks"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text", "text": "x" * 1_100_000}]}, -32603, ""),
    ("session/set_mode", {"sessionId": "SESSION", "modeId": "x"}, -32601, "session/set_mode"),
    ("authenticate", {"methodId": "x"}, -32601, "authenticate"),
    ("fs/read_text_file", {}, -32601, "fs/read_text_file"),
    ("initialize", {}, -32602, "protocolVersion"),
]


@pytest.mark.rule("ACP-13")
async def test_a_request_that_cannot_be_gets_an_error_that_names_the_value_and_nothing_is_started():
    async with session(clerk()) as (editor, session_id, client):
        for method, fields, code, text in BAD_REQUESTS:
            params = json.loads(json.dumps(fields).replace("SESSION", session_id))
            with pytest.raises(AgentError) as refused:
                await editor.call(method, **params)
            assert (refused.value.code, text in str(refused.value)) == (code, True), (
                f"{method} {params}: {refused.value}"
            )
        assert (await client.runs()).runs == ()


@pytest.mark.rule("ACP-13")
async def test_a_request_before_initialize_is_refused():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        async with editing(address, capabilities=None) as editor:
            with pytest.raises(AgentError, match="before initialize"):
                await editor.new()


@pytest.mark.rule("ACP-13")
async def test_a_principal_without_the_scope_starts_nothing():
    principals = [Principal(name="ann", token=TOKEN, scopes={"follow"})]
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime, principals=principals) as address:
        async with editing(address) as editor:
            with pytest.raises(AgentError, match="start"):
                await editor.answer_to(await editor.prompt(await editor.new(), "hi"))
            assert (await runtime.runs()).runs == ()
