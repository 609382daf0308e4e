"""MCP over HTTP: what a client may send, what it receives, and that a call outlives its connections.

Streams are held to `tests/support/mcp_rules.py`; the clients of others judge in `tests/e2e`.
"""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay
from greenroom.transport import Principal, serve

from ..support.gateway import TOKEN, gateway
from ..support.mcp_client import FORMS, MODERN, TASKS, McpClient, Stream
from ..support.mcp_scenes import HANDSHAKE, Effects, accept, asking, begun, working
from ..support.runs import events_of

OTHER = "another-token-of-16+"
eras = pytest.mark.parametrize("version", [MODERN, *HANDSHAKE])
both = pytest.mark.parametrize("version", [MODERN, HANDSHAKE[0]])


# --- lists -----------------------------------------------------------------------------------------------------------


@both
async def test_the_agents_of_the_process_are_tools_in_the_order_of_their_keys(version):
    agents = [
        gr.Agent("b.c", model=ScriptedModel(["x"]), description="With a point.", instructions="a secret text"),
        gr.Agent("b_c", model=ScriptedModel(["x"])),
        gr.Agent("run_result", model=ScriptedModel(["x"])),
        gr.Agent("typed", model=ScriptedModel(["x"]), output_type=Report),
        gr.Agent("inner"),
    ]
    async with gr.open_runtime(agents=agents) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        reply = await client.post(client.message("tools/list"))
    assert b"a secret text" not in reply.body
    result = reply.json()["result"]
    tools = {tool["name"]: tool for tool in result["tools"]}
    first, point, second, third, typed = tools
    assert (first, point, typed) == ("run_result", "b_c", "typed")
    assert second.startswith("b_c_")
    assert third.startswith("run_result_")
    assert tools[point]["description"] == "With a point."
    assert tools[second]["description"] == "Ask the agent b_c."
    assert tools[typed]["outputSchema"]["type"] == "object"
    assert tools[typed]["outputSchema"]["required"] == ["title"]
    assert ("ttlMs" in result, "resultType" in result) == (client.modern, client.modern)


async def test_the_list_has_pages_of_a_hundred():
    agents = [gr.Agent(f"a{number:03}", model=ScriptedModel(["x"])) for number in range(250)]
    async with gr.open_runtime(agents=agents) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        pages, cursor = list[list[str]](), None
        while cursor is not None or not pages:
            page = await client.ask("tools/list", **({} if cursor is None else {"cursor": cursor}))
            pages.append([tool["name"] for tool in page["tools"]])
            cursor = page.get("nextCursor")
    assert [len(page) for page in pages] == [100, 100, 51]
    names = [name for page in pages for name in page]
    assert names == ["run_result", *[f"a{number:03}" for number in range(250)]]


async def test_serve_chooses_the_agents_that_are_tools():
    agents = Effects().agents()
    async with gr.open_runtime(agents=agents) as runtime:
        async with gateway(runtime, mcp=("echo",)) as address:
            client = McpClient(address)
            listed = await client.ask("tools/list")
            assert [tool["name"] for tool in listed["tools"]] == ["run_result", "echo"]
            refused = await client.call("pay")
            assert refused["error"]["message"] == "no tool has the name 'pay'; tools/list names those there are"
        async with gateway(runtime, mcp=()) as address:
            assert (await McpClient(address).ask("tools/list"))["tools"] == []
        for wrong, text in (("echo", "give a tuple"), (("ecko",), "did you mean 'echo'")):
            with pytest.raises(gr.UsageError, match=text):
                await serve(runtime, port=0, mcp=wrong)


# --- results ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Report:
    title: str
    pages: int = 1


@pytest.mark.rule("MS-2")
@eras
async def test_a_call_is_answered_with_the_output_of_its_run(version):
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        result = await client.call("echo", {"input": "hi"})
        assert result["content"] == [{"type": "text", "text": "you said hi"}]
        assert result["isError"] is False
        (line,) = (await runtime.runs()).runs
        assert (line.info.run_id, line.info.by) == (result["_meta"]["greenroom/run"], "operator")


@pytest.mark.rule("MS-7")
@both
async def test_an_object_is_structured_content(version):
    report = gr.Agent("report", model=ScriptedModel(['{"title": "t"}']), output_type=Report)
    async with gr.open_runtime(agents=[report]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        result = await client.call("report")
    assert result["structuredContent"] == {"title": "t", "pages": 1}
    assert result["content"] == [{"type": "text", "text": '{"pages":1,"title":"t"}'}]


@pytest.mark.rule("MS-7")
@both
async def test_images_and_files_of_a_tool_are_content_up_to_a_limit(version):
    png = b"\x89PNG\r\n\x1a\n" + b"x" * 20

    @gr.tool
    async def shoot() -> list[object]:
        big = gr.File(data=b"y" * 300_000, name="big.bin", media_type="application/octet-stream")
        return ["done", gr.Image(data=png), gr.File(data=b"abc", name="a.txt", media_type="text/plain"), big]

    camera = gr.Agent("camera", model=ScriptedModel([call("shoot")]), tools=[shoot], tool_use="stop_on_first_tool")
    async with gr.open_runtime(agents=[camera]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        content = (await client.call("camera"))["content"]
    assert [item["type"] for item in content] == ["text", "image", "resource", "text"]
    assert content[1]["mimeType"] == "image/png"
    assert content[2]["resource"]["blob"] == "YWJj"
    assert "big.bin is not in this result: greenroom://runs/" in content[3]["text"]


@pytest.mark.rule("MS-7")
@both
async def test_a_failed_run_is_an_error_that_the_model_of_the_client_reads(version):
    @gr.tool
    async def work() -> str:
        return "x"

    broken = gr.Agent("broken", model=ScriptedModel([call("nothing")]), tools=[work], on_unknown_tool="raise")
    async with gr.open_runtime(agents=[broken]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        result = await client.call("broken")
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("model_behavior_error: There is no tool")


@both
async def test_arguments_that_do_not_fit_are_an_error_and_start_nothing(version):
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        reply = await client.post(client.message("tools/call", name="echo", arguments={"inputt": 1}))
        assert reply.headers["content-type"] == "application/json"
        result = reply.json()["result"]
        assert result["isError"] is True
        assert "'input' is a required property" in result["content"][0]["text"]
        assert (await runtime.runs()).runs == ()


async def test_a_model_with_a_schema_gets_the_arguments_as_json():
    fields = {"a": {"type": "integer", "x-mcp-header": "A"}, "b": {"type": "integer"}}
    model = ScriptedModel(["sum"])
    model.input_schema = {"type": "object", "properties": fields, "required": ["a"]}
    async with gr.open_runtime(agents=[gr.Agent("adds", model=model)]) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        body = client.message("tools/call", name="adds", arguments={"a": 1, "b": 2})
        for sent in (None, "2", "=?base64?MQ=="):
            headers = {} if sent is None else {"mcp_param_a": sent}
            reply = await client.post(body, **headers)
            assert (reply.status, reply.json()["error"]["code"]) == (400, -32020)
        assert (await client.post(body, mcp_param_a="=?base64?MQ==?=")).status == 200
        (line,) = (await runtime.runs()).runs
        view = await (await runtime.get(line.info.run_id)).view()
    assert view.messages[0].content == '{"a":1,"b":2}'


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-10")
@both
async def test_progress_has_the_token_and_rises(version):
    @gr.tool
    async def work(ctx: gr.ToolContext) -> str:
        await ctx.progress(0.5, "half")
        return "x"

    worker = gr.Agent("worker", model=ScriptedModel([call("work"), "done"]), tools=[work])
    async with gr.open_runtime(agents=[worker]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        async with client.calling("worker", _meta={"progressToken": "t"}) as stream:
            await stream.result()
    client.check(stream, token="t")
    steps = [event.message["params"] for event in stream.events if event.message and "method" in event.message]
    assert [step["message"] for step in steps] == ["step 1", "half", "step 2"]


@pytest.mark.rule("MS-10")
async def test_a_call_that_waits_says_so_every_quarter_of_a_minute(autojump_clock):
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with client.calling("pay", _meta={"progressToken": 1}) as stream:
            question = await stream.until("elicitation/create")
            numbers = [(await stream.until("notifications/progress"))["params"]["progress"] for _ in range(3)]
            await client.answer(question, "accept", decision="approve")
            await stream.result()
    client.check(stream, token=1)
    assert numbers == sorted(set(numbers))


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-4")
async def test_a_question_of_the_handshake_era_is_put_on_the_stream_and_answered_by_a_post():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client) as (stream, question):
            assert question["params"]["message"] == 'Pay it?\npay {"invoice":7}'
            assert effects.paid == []
            assert (await client.answer(question, "accept", decision="approve")).status == 202
            result = await stream.result()
    client.check(stream)
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]
    assert [event.message.get("method", "") for event in stream.events if event.message] == ["elicitation/create", ""]


@pytest.mark.rule("MS-4")
async def test_a_question_of_the_modern_era_is_a_result_and_answered_with_the_repeated_call():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        asked = await client.call("pay")
        assert asked["resultType"] == "input_required"
        answers = accept(asked, decision="approve")
        result = await client.call("pay", **answers)
        assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
        assert await client.call("pay", **answers) == result  # the same call again acts once
    assert effects.paid == [7]


@both
@pytest.mark.parametrize(("action", "content"), [("decline", {}), ("accept", {"decision": "deny", "reason": "poor"})])
async def test_a_declined_form_denies(version, action, content):
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        if client.modern:
            asked = await client.call("pay")
            result = await client.call("pay", **accept(asked, action, **content))
        else:
            async with asking(client) as (stream, question):
                await client.answer(question, action, **content)
                result = await stream.result()
        (line,) = (await runtime.runs()).runs
        events = await events_of(await runtime.get(line.info.run_id))
    (resolved,) = [event.payload for event in events if event.type == "run.approval.resolved"]
    assert (resolved["resolution"], resolved["by"]) == ("denied", "operator")
    assert resolved.get("reason") == content.get("reason")
    assert result["isError"] is False  # the model has read the denial, and answered
    assert effects.paid == []


@pytest.mark.rule("MS-5")
@both
@pytest.mark.parametrize(
    ("action", "content", "why"),
    [
        ("cancel", {}, "the question was dismissed"),
        ("accept", {"decision": "perhaps"}, "content.decision='perhaps' is neither approve nor deny"),
        ("later", {}, "action='later' is not known; use accept, decline or cancel"),
    ],
)
async def test_a_dismissed_form_decides_nothing_and_ends_the_call(version, action, content, why):
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        if client.modern:
            result = await client.call("pay", **accept(await client.call("pay"), action, **content))
        else:
            async with asking(client) as (stream, question):
                assert (await client.answer(question, action, **content)).status == 202
                result = await stream.result()
            client.check(stream)
        run_id = result["_meta"]["greenroom/run"]
        (ticket_id,) = result["_meta"]["greenroom/tickets"]
        assert result["isError"] is True
        assert result["content"][0]["text"].splitlines() == [
            f"The run {run_id} waits for a decision by a person at the gateway.",
            f"{ticket_id}: pay",
            f"{ticket_id}: {why}",
            "Call run_result with this run's id once the decision is made.",
        ]
        run = await runtime.get(run_id)
        (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve(by="ann"))
        late = await client.call("run_result", {"run": run_id, "wait": 20})
        assert late["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-5")
@both
async def test_a_client_without_forms_and_a_principal_who_is_no_reviewer_are_told_who_decides(version):
    effects = Effects(reviewers=("ann", "bob"))
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        for capabilities in (FORMS, {}, {"elicitation": {"url": {}}}):
            client = await begun(address, version, capabilities=capabilities)
            result = await client.call("pay")
            assert result["isError"] is True
            assert "waits for a decision by ann, bob." in result["content"][0]["text"]
    assert effects.paid == []


@pytest.mark.rule("MS-5", "MS-11")
@both
async def test_a_principal_without_the_scope_to_decide_is_asked_nothing(version):
    starter = Principal(name="eve", token=OTHER, scopes={"start"})
    async with gr.open_runtime(agents=Effects().agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[starter]) as address:
            client = await begun(address, version, token=OTHER)
            assert (await client.call("echo", {"input": "x"}))["isError"] is False
            assert (await client.call("pay"))["isError"] is True


@pytest.mark.rule("MS-6")
async def test_a_question_that_others_decide_is_withdrawn_and_a_late_answer_changes_nothing():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client) as (stream, question):
            run = await runtime.get((await runtime.runs()).runs[0].info.run_id)
            (ticket,) = (await run.wait()).tickets
            await run.decide(ticket.approve(by="ann"))
            withdrawn = await stream.until("notifications/cancelled")
            assert withdrawn["params"]["requestId"] == question["id"]
            assert (await client.answer(question, "decline")).status == 202
            result = await stream.result()
    client.check(stream)
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]


@pytest.mark.rule("MS-6")
async def test_the_modern_call_after_a_decision_of_others_answers_as_the_run_stands():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        asked = await client.call("pay")
        run = await runtime.get(asked["_meta"]["greenroom/run"])
        (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve(by="ann"))
        result = await client.call("pay", **accept(asked, "decline"))
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]


@pytest.mark.rule("MS-4")
@both
async def test_questions_with_a_schema_are_forms_of_it(version):
    person = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}

    @gr.tool
    async def who() -> str:
        raise gr.Suspend(message="Who?", resume_mode="use_decision_as_tool_result", response_schema=person)

    @gr.tool
    async def where() -> str:
        raise gr.Suspend(resume_mode="use_decision_as_tool_result", response_schema={"type": "string"})

    @gr.tool
    async def what() -> str:
        nested = {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}
        raise gr.Suspend(resume_mode="use_decision_as_tool_result", response_schema=nested)

    steps = [call("who"), call("where"), call("what"), "done"]
    asks = gr.Agent("asks", model=ScriptedModel(steps), tools=[who, where, what])
    answers = [{"name": "ann", "age": 7}, {"result": "here"}, {"result": '{"list": [1]}'}]
    async with gr.open_runtime(agents=[asks]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        if client.modern:
            result = await client.call("asks")
            for content in answers:
                result = await client.call("asks", **accept(result, **content))
        else:
            async with client.calling("asks") as stream:
                for content in answers:
                    await client.answer(await stream.until("elicitation/create"), "accept", **content)
                result = await stream.result()
        view = await (await runtime.get(result["_meta"]["greenroom/run"])).view()
    results = [message.content for message in view.messages if message.role == "tool"]
    assert results == ['{"name":"ann","age":7}', "here", '{"list":[1]}']


@pytest.mark.rule("MS-6")
async def test_a_question_that_expires_is_withdrawn():
    @gr.tool
    async def where() -> str:
        raise gr.Suspend(expires_after=0.2, on_expiry=gr.SetResult("nowhere"), reason="user_input")

    asks = gr.Agent("asks", model=ScriptedModel([call("where"), "done"]), tools=[where])
    async with gr.open_runtime(agents=[asks]) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client, "asks") as (stream, question):
            withdrawn = await stream.until("notifications/cancelled")
            assert withdrawn["params"]["requestId"] == question["id"]
            assert (await stream.result())["content"][0]["text"] == "done"
    client.check(stream)


async def answered(client: McpClient, tool: str, **content: Any) -> Any:
    """The result of a call whose questions are all accepted with this content."""
    if not client.modern:
        async with client.calling(tool) as stream:
            while (message := await stream.hear())["id"] != stream.request_id:
                await client.answer(message, "accept", **content)
        client.check(stream)
        return message["result"]
    result = await client.call(tool)
    while result["resultType"] == "input_required":
        result = await client.call(tool, **accept(result, **content))
    return result


@pytest.mark.rule("MS-4")
@both
async def test_questions_of_child_runs_of_bodies_and_of_the_run_itself_are_put_too(version):
    @gr.tool(needs_approval=True)
    async def pay(invoice: int) -> str:
        return f"paid {invoice}"

    @gr.tool
    async def ask(ctx: gr.ToolContext) -> str:
        decision = await ctx.ask(gr.Suspend(message="May I?"))
        return decision.action

    child = gr.Agent("child", model=ScriptedModel([call("pay", invoice=7), "the child is done"]), tools=[pay])
    steps = [call("child", input="go"), call("ask"), "done"]
    parent = gr.Agent("parent", model=ScriptedModel(steps), tools=[child.as_tool(), ask])
    async with gr.open_runtime(agents=[parent]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        result = await answered(client, "parent", decision="approve")
        assert result["content"] == [{"type": "text", "text": "done"}]
        view = await (await runtime.get(result["_meta"]["greenroom/run"])).view()
    assert [message.content for message in view.messages if message.role == "tool"] == ["the child is done", "resume"]


@pytest.mark.rule("MS-4")
@both
async def test_a_paused_run_asks_whether_to_go_on(version):
    go = trio.Event()

    @gr.tool
    async def work() -> str:
        await go.wait()
        return "x"

    worker = gr.Agent("worker", model=ScriptedModel([call("work"), "done"]), tools=[work])
    async with gr.open_runtime(agents=[worker]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        async with trio.open_nursery() as nursery:

            async def pause() -> None:
                run = await working(runtime)
                await run.pause(reason="wait a moment", by="ann")
                go.set()

            nursery.start_soon(pause)
            result = await answered(client, "worker", decision="approve")
    assert result["content"] == [{"type": "text", "text": "done"}]


# --- streams that go on ----------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-3")
async def test_a_cut_stream_goes_on_in_another_connection():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with client.calling("pay") as stream:
            assert await stream.until("elicitation/create")
            assert [event.retry for event in stream.events] == ["1000", None]
        async with client.resuming(stream.last_id) as rest:
            question = await rest.until("elicitation/create")
            await client.answer(question, "accept", decision="approve")
            result = await rest.result()
        client.check(rest, request_id=stream.request_id)
        async with client.resuming(stream.last_id) as again:
            assert await again.result() == result
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-3")
@pytest.mark.parametrize("pieces", [1, 2, 3])
async def test_a_stream_that_is_cut_after_each_few_messages_loses_nothing(pieces):
    """The client resumes behind its last event each time; a question that is still open comes again."""
    paid = list[int]()

    @gr.tool(needs_approval=True)
    async def pay(ctx: gr.ToolContext, invoice: int) -> str:
        paid.append(invoice)
        await ctx.progress(0.5, f"half of {invoice}")
        return f"paid {invoice}"

    steps = [call("pay", invoice=1), call("pay", invoice=2), "done"]
    payer = gr.Agent("payer", model=ScriptedModel(steps), tools=[pay])
    async with gr.open_runtime(agents=[payer]) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        seen, ids, answered = list[dict[str, Any]](), list[str](), set[str]()

        async def reads(stream: Stream, most: int) -> bool:
            """True if the call is answered within so many messages."""
            for _ in range(most):
                message = await stream.hear()
                seen.append(message)
                if message.get("method") == "elicitation/create" and message["id"] not in answered:
                    answered.add(message["id"])
                    await client.answer(message, "accept", decision="approve")
                if "method" not in message:
                    return True
            return False

        async with client.calling("payer", _meta={"progressToken": "t"}) as stream:
            own_id, done = stream.request_id, await reads(stream, pieces)
            ids.append(stream.last_id)
        for _ in range(40):
            if done:
                break
            async with client.resuming(ids[-1]) as stream:
                done = await reads(stream, pieces)
                ids.append(stream.last_id)
        assert done
        questions = {message["id"] for message in seen if message.get("method") == "elicitation/create"}
        steps_seen = [message["params"].get("message") for message in seen if "progress" in message.get("method", "")]
        for last in ids:  # whichever event was the last one: the result follows
            async with client.resuming(last) as stream:
                assert (await stream.result())["content"] == seen[-1]["result"]["content"]
            client.check(stream, request_id=own_id, token="t")
    assert paid == [1, 2]
    assert questions == answered
    assert len(answered) == 2
    assert {"step 1", "half of 1", "step 2", "half of 2", "step 3"} <= {*steps_seen}


@pytest.mark.rule("MS-1", "MS-3")
async def test_a_call_outlives_the_process_and_the_new_one_takes_the_answer(tmp_path):
    effects = Effects()
    async with gr.open_runtime(tmp_path / "runs.db", agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client) as (stream, question):
            pass
    async with gr.open_runtime(tmp_path / "runs.db", agents=effects.agents()) as runtime, gateway(runtime) as address:
        client.address = address
        async with client.resuming(stream.last_id) as rest:
            same = await rest.until("elicitation/create")
            assert same["id"] == question["id"]
            await client.answer(question, "accept", decision="approve")
            result = await rest.result()
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


async def test_a_modern_call_outlives_the_process(tmp_path):
    effects = Effects()
    async with gr.open_runtime(tmp_path / "runs.db", agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        asked = await client.call("pay")
    async with gr.open_runtime(tmp_path / "runs.db", agents=effects.agents()) as runtime, gateway(runtime) as address:
        client.address = address
        result = await client.call("pay", **accept(asked, decision="approve"))
    assert result["content"] == [{"type": "text", "text": "invoice 7 is paid"}]
    assert effects.paid == [7]


@pytest.mark.rule("MS-2")
@pytest.mark.parametrize("version", HANDSHAKE)
async def test_the_first_event_is_empty_for_clients_that_read_no_json_in_it(version):
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        async with client.calling("echo", {"input": "x"}) as stream:
            await stream.result()
    assert [event.message is None for event in stream.events] == [True] * (version == HANDSHAKE[0]) + [False]


@pytest.mark.rule("MS-8")
@both
async def test_a_stopping_gateway_leaves_the_call_to_its_client(version, tmp_path):
    """Handshake: the stream ends without an answer, and is resumed. Modern: an error names the run to call again."""
    client: McpClient

    @gr.tool
    async def work() -> str:
        await trio.sleep_forever()
        return ""

    slow = gr.Agent("slow", model=ScriptedModel([call("work")]), tools=[work])
    async with gr.open_runtime(tmp_path / "runs.db", agents=[slow], drain=0.1) as runtime:
        async with trio.open_nursery() as nursery:
            heard: list[object] = []

            async def hears() -> None:
                async with client.calling("slow") as stream:
                    while (message := await stream.hear()) is not None:
                        heard.append(message)

            async with gateway(runtime) as address:
                client = await begun(address, version)
                nursery.start_soon(hears)
                run = await working(runtime)
        assert (await run.view()).status.value == "running"
    if version == MODERN:
        (message,) = heard
        assert message["error"]["data"] == {"code": "closing", "greenroom/run": run.id}
    else:
        assert heard == []


# --- the id of the run -----------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-2")
async def test_the_same_request_of_a_session_is_the_same_run():
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        first = await client.call("echo", {"input": "x"})
        client.last -= 1
        assert await client.call("echo", {"input": "x"}) == first
        client.last -= 1
        other = await client.call("echo", {"input": "y"})
        assert other["error"]["data"]["code"] == "run_exists"
        assert len((await runtime.runs()).runs) == 1


@pytest.mark.rule("MS-2")
async def test_a_program_of_the_modern_era_names_the_run_and_comes_back_for_it():
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address)
        first = await client.call("echo", {"input": "x"}, _meta={"greenroom/run": "mine"})
        assert first["_meta"]["greenroom/run"] == "mine"
        assert await client.call("echo", {"input": "x"}, _meta={"greenroom/run": "mine"}) == first
        assert len((await runtime.runs()).runs) == 1


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-8")
async def test_a_cancelled_request_of_the_handshake_era_cancels_the_run():
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = await begun(address, HANDSHAKE[0])
        async with asking(client) as (stream, _):
            params = {"requestId": stream.request_id, "reason": "no need"}
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            assert (await client.post(note)).status == 202
            result = await stream.result()
        client.check(stream)
        (line,) = (await runtime.runs()).runs
    assert line.row.termination.kind.value == "cancelled"
    assert result["content"][0]["text"] == "cancelled: the run was cancelled by operator: no need"


@pytest.mark.rule("MS-8")
@pytest.mark.parametrize("version", [MODERN, HANDSHAKE[0]])
async def test_a_closed_stream_cancels_in_the_modern_era_only(version):
    @gr.tool
    async def work() -> str:
        await trio.sleep_forever()
        return ""

    slow = gr.Agent("slow", model=ScriptedModel([call("work")]), tools=[work])
    async with gr.open_runtime(agents=[slow]) as runtime, gateway(runtime) as address:
        client = await begun(address, version)
        async with client.calling("slow"):
            run = await working(runtime)
        if client.modern:
            outcome = await run.result()
            assert (outcome.reason, outcome.by) == ("the client has closed its call", "operator")
            return
        assert (await client.call("run_result", {"run": run.id}))["isError"] is False
        assert (await run.view()).status.value == "running"
        await run.cancel()


# --- run_result ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MS-5")
@both
async def test_run_result_is_for_the_runs_of_the_principal_only(version):
    eve = Principal(name="eve", token=OTHER, scopes={"start", "follow"})
    async with gr.open_runtime(agents=Effects().agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[eve]) as address:
            client, other = await begun(address, version), await begun(address, version, token=OTHER)
            mine = (await client.call("echo", {"input": "x"}))["_meta"]["greenroom/run"]
            for who, run_id in ((other, mine), (client, "nothing"), (client, 7), (client, "\n"), (client, "x" * 999)):
                result = await who.call("run_result", {"run": run_id})
                assert result["isError"] is True
                assert "no call of yours has started the run" in result["content"][0]["text"]
            for wait in (-1, 51, "1", True):
                result = await client.call("run_result", {"run": mine, "wait": wait})
                assert f"wait={wait!r}: give seconds, 0 to 50" in result["content"][0]["text"]
            assert (await client.call("run_result", {"run": mine}))["content"][0]["text"] == "you said x"


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def capabilities():
    return {**FORMS, **TASKS}


async def test_a_quick_call_is_no_task(capabilities):
    async with gr.open_runtime(agents=Effects().agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address, capabilities=capabilities)
        assert (await client.begin())["capabilities"]["extensions"] == TASKS["extensions"]
        assert (await client.call("echo", {"input": "x"}))["resultType"] == "complete"
        assert (await client.call("pay"))["resultType"] == "input_required"


@pytest.mark.rule("MS-9")
async def test_a_call_that_takes_longer_is_a_task_that_ends_with_the_result(capabilities):
    go = trio.Event()

    @gr.tool
    async def work() -> str:
        await go.wait()
        return "x"

    slow = gr.Agent("slow", model=ScriptedModel([call("work"), "done"]), tools=[work])
    async with gr.open_runtime(agents=[slow]) as runtime, gateway(runtime) as address:
        client = McpClient(address, capabilities=capabilities)
        async with client.calling("slow") as stream:
            task = await stream.result()
        client.check(stream)
        found = await client.ask("tasks/get", taskId=task["taskId"])
        facts = ("taskId", "createdAt", "ttlMs", "pollIntervalMs")
        assert [found[name] for name in facts] == [task[name] for name in facts]
        assert (found["status"], found["resultType"]) == ("working", "complete")
        go.set()
        await (await runtime.get(task["taskId"])).result()
        done = await client.ask("tasks/get", taskId=task["taskId"])
    assert done["status"] == "completed"
    assert done["result"]["content"] == [{"type": "text", "text": "done"}]


@pytest.mark.rule("MS-9")
async def test_a_task_asks_and_is_answered_one_question_after_the_other(capabilities):
    @gr.tool(needs_approval=True)
    async def pay(invoice: int) -> str:
        return f"paid {invoice}"

    pays = gr.Agent(
        "pays",
        model=ScriptedModel([[delay(0.7), call("pay", invoice=1), call("pay", invoice=2)], "done"]),
        tools=[pay],
        execution="parallel_batch_approval",
    )
    async with gr.open_runtime(agents=[pays]) as runtime, gateway(runtime) as address:
        client = McpClient(address, capabilities=capabilities)
        task = (await client.call("pays"))["taskId"]
        run = await runtime.get(task)
        await run.wait()
        found = await client.ask("tasks/get", taskId=task)
        first, second = found["inputRequests"]
        assert found["status"] == "input_required"
        yes = {"action": "accept", "content": {"decision": "approve"}}
        for answers in ({first: yes, "unknown": yes}, {second: {"action": "cancel"}}):
            assert await client.ask("tasks/update", taskId=task, inputResponses=answers) == {"resultType": "complete"}
            assert list((await client.ask("tasks/get", taskId=task))["inputRequests"]) == [second]
        misfit = await client.ask("tasks/update", taskId=task, inputResponses={second: {"action": "accept"}})
        assert misfit == {"code": -32602, "message": f"{second}: content is not an object"}
        await client.ask("tasks/update", taskId=task, inputResponses={second: yes})
        await run.result()
        assert (await client.ask("tasks/get", taskId=task))["status"] == "completed"


@pytest.mark.rule("MS-9")
async def test_a_task_is_cancelled_twice_as_once_and_a_failed_one_is_completed(capabilities):
    effects = Effects()
    async with gr.open_runtime(agents=effects.agents()) as runtime, gateway(runtime) as address:
        client = McpClient(address, capabilities=capabilities)
        task = (await client.call("pay"))["_meta"]["greenroom/run"]
        for _ in range(2):
            assert await client.ask("tasks/cancel", taskId=task) == {"resultType": "complete"}
            await (await runtime.get(task)).result()
        assert (await client.ask("tasks/get", taskId=task))["status"] == "cancelled"
        broken = gr.Agent("broken", model=ScriptedModel([call("no")]), on_unknown_tool="raise")
        failed = await runtime.start(broken, "x")
        await failed.result()
        found = await client.ask("tasks/get", taskId=failed.id)
        assert (found["status"], found["result"]["isError"]) == ("completed", True)


@pytest.mark.rule("MS-9")
async def test_tasks_need_the_extension_and_a_visible_run(capabilities):
    blind = Principal(name="eve", token=OTHER, sees=lambda _: False)
    async with gr.open_runtime(agents=Effects().agents()) as runtime:
        async with gateway(runtime, token=TOKEN, principals=[blind]) as address:
            client = McpClient(address)
            task = (await client.call("echo", {"input": "x"}))["_meta"]["greenroom/run"]
            eve = McpClient(address, capabilities=capabilities, token=OTHER)
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                assert (await eve.ask(method, taskId=7))["code"] == -32020
                refused = await client.ask(method, taskId=task)
                assert refused["code"] == -32021
                assert refused["data"] == {"requiredCapabilities": TASKS}
                for name in (task, "nothing"):
                    hidden = await eve.ask(method, taskId=name)
                    assert hidden["message"] == f"taskId={name!r} is not a task that you may see"
            for method in ("tasks/list", "tasks/result"):
                assert (await eve.ask(method, taskId=task))["code"] == -32601
