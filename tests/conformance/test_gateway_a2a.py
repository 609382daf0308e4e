"""A2A over HTTP, in both bindings: what a client may ask, what it receives, and that a message acts once.

Every answer is read by the official protobuf, and streams are held to `tests/support/a2a_rules.py`; the official
clients judge in `tests/e2e/test_judge_a2a.py`.
"""

import base64
import json
from typing import Any

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.backends import a2a_codec as codec
from greenroom.actors.backends.a2a_codec import Binding
from greenroom.testing import FunctionModel, ScriptedModel, call, delay, fail, text
from greenroom.transport import Principal

from ..support.a2a_client import A2A, Fault, decides, says, state, texts, tickets
from ..support.a2a_rules import check, plain
from ..support.gateway import TOKEN, gateway, http
from ..support.runs import agent

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gateways")]

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.fixture(params=["HTTP+JSON", "JSONRPC"])
def binding(request: pytest.FixtureRequest) -> Binding:
    return request.param  # type: ignore[no-any-return]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents} for {order}"


@gr.tool(replay="safe")
async def ask() -> Any:
    raise gr.Suspend(
        message="which order?", response_schema={"type": "string"}, resume_mode="use_decision_as_tool_result"
    )


@gr.tool(replay="safe")
async def chart() -> list[Any]:
    return ["a chart", gr.Image(PNG), gr.File(b"a,b\n", media_type="text/csv", name="sales.csv")]


TOOLS = [refund, ask, chart]


def clerk(*steps: Any, **options: Any) -> gr.Agent[Any]:
    return agent(*steps, tools=TOOLS, **options)


def two_refunds() -> gr.Agent[Any]:
    calls = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    return clerk([text("Two refunds."), *calls], "done")


# --- a conversation --------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS-4", "AS-5")
async def test_a_message_is_a_run_and_its_context_the_thread(binding):
    helper = clerk([text("hel"), text("lo")])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        first = await a2a.send(says("m1", "hi", "there"))
        second = await a2a.send(says("m2", "and?", contextId=first["contextId"]))
        assert (state(first), texts(first)) == ("COMPLETED", ["hello"])
        assert first["history"][0]["messageId"] == "m1"
        assert first["history"][0]["parts"] == [{"text": "hi\n\nthere"}]
        assert second["contextId"] == first["contextId"] != second["id"]
        view = await (await runtime.get(second["id"])).view()
    assert [message.content for message in view.messages if message.role == "user"] == ["hi\n\nthere", "and?"]


@pytest.mark.rule("AS-7", "AS-8", "AS-11")
async def test_a_stream_is_the_task_and_then_what_changes(binding):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        client = await a2a.stream(says("m1", "refund both"))
        assert state(client.task) == "INPUT_REQUIRED"
        assert plain(client.task) == plain(await a2a.get(client.task["id"]))
        first, second = client.tickets()
        assert (first["tool"], first["arguments"]) == ("refund", {"order": "1", "cents": 5})
        answers = [decides(first), decides(second, "deny", reason="too much")]
        after = await a2a.stream(says("m2", *answers, taskId=client.task["id"]))
        run = await runtime.get(client.task["id"])
        assert state(after.task) == "COMPLETED"
        results = [message.content for message in (await run.view()).messages if message.role == "tool"]
    assert results == ["paid 5 for 1", "The reviewer denied this call: too much"]
    assert [*after.texts().values()] == ["Two refunds.", "done"]


@pytest.mark.rule("AS-6")
async def test_a_client_that_does_not_wait_is_answered_with_the_task_as_it_stands(binding):
    helper = clerk(delay(3600), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = await a2a.send(says("m1", "hi"), returnImmediately=True, historyLength=0)
        assert state(task) in ("SUBMITTED", "WORKING")
        assert "history" not in task
        await a2a.cancel(task["id"])


@pytest.mark.rule("AS-4", "AS-14")
async def test_the_same_message_is_the_same_run(binding):
    helper = clerk("hello", "again")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        first = await a2a.send(says("m 1/ü", "hi"))
        again = await a2a.send(says("m 1/ü", "hi", contextId=first["contextId"]))
        assert (again["id"], again["history"][0]["messageId"]) == (first["id"], "m 1/ü")
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m 1/ü", "something else"))
        assert (refused.value.reason, refused.value.metadata["code"]) == ("INVALID_PARAMS", "run_exists")
        assert len((await runtime.runs()).runs) == 1


async def test_a_message_of_a_busy_context_waits_for_the_run_before_it(binding):
    helper = clerk(call("ask", id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        first = await a2a.send(says("m1", "hi", contextId="th"))
        second = await a2a.send(says("m2", "and?", contextId="th"), returnImmediately=True)
        assert (state(first), state(second)) == ("INPUT_REQUIRED", "SUBMITTED")
        await a2a.send(says("m3", "order 7", taskId=first["id"]))
        asked = await a2a.send(says("m2", "and?", contextId="th"))
    assert (asked["id"], state(asked)) == (second["id"], "INPUT_REQUIRED")


# --- decisions -------------------------------------------------------------------------------------------------------


async def test_edited_arguments_replace_those_of_the_agent(binding):
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "refund"))
        edit = decides(tickets(asked)[0], editedArguments={"order": "9", "cents": 1.0})  # as protobuf writes 1
        await a2a.send(says("m2", edit, taskId=asked["id"]))
        view = await (await runtime.get(asked["id"])).view()
    (result,) = [message.content for message in view.messages if message.role == "tool"]
    assert result.endswith("paid 1 for 9")


@pytest.mark.rule("AS-10")
@pytest.mark.parametrize("words", ["yes", "approve", '{"action": "approve"}'])
async def test_a_text_never_approves(binding, words):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "refund both"))
        task = await a2a.send(says("m2", words, taskId=asked["id"]))
        assert state(task) == "INPUT_REQUIRED"
        assert [one["ticketId"] for one in tickets(task)] == [one["ticketId"] for one in tickets(asked)]
        client = await a2a.stream(says("m3", words, taskId=asked["id"]))
        assert state(client.task) == "INPUT_REQUIRED"


@pytest.mark.rule("AS-9")
async def test_a_decision_about_another_action_is_refused_and_named(binding):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "refund both"))
        first, second = tickets(asked)
        wrong = decides(first, fingerprint=second["fingerprint"] + "0")
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m2", wrong, taskId=asked["id"]))
        fault = refused.value
        assert (fault.reason, fault.metadata) == (
            "INVALID_PARAMS",
            {"code": "fingerprint_mismatch", "ticketId": first["ticketId"]},
        )
        task = await a2a.send(says("m3", wrong, decides(second), taskId=asked["id"]))
        (named,) = task["metadata"]["refused"]
        assert (named["ticketId"], named["code"]) == (first["ticketId"], "fingerprint_mismatch")
        assert [one["ticketId"] for one in tickets(task)] == [first["ticketId"]]
        done = await a2a.stream(says("m4", decides(first), taskId=asked["id"]))
        assert state(done.task) == "COMPLETED"


@pytest.mark.rule("AS-9")
async def test_a_decision_acts_once_however_often_it_is_sent(binding):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "refund both"))
        answer = says("m2", *map(decides, tickets(asked)), taskId=asked["id"])
        done = [await a2a.send(answer) for _ in range(3)]
        assert [state(task) for task in done] == ["COMPLETED"] * 3
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m3", decides(tickets(asked)[0], "deny"), taskId=asked["id"]))
        assert refused.value.metadata["code"] == "already_decided"


@pytest.mark.rule("AS-10")
async def test_a_text_answers_the_one_ticket_that_asks_for_a_text_and_does_so_once(binding):
    helper = clerk(call("ask", id="c1"), call("ask", id="c2"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "which?"))
        for _ in range(3):
            task = await a2a.send(says("m2", "order 7", taskId=asked["id"]))
            assert (state(task), tickets(task)[0]["callId"]) == ("INPUT_REQUIRED", "c2")
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m2", "order 8", taskId=asked["id"]))
        assert refused.value.metadata["code"] == "decision_id_conflict"
        done = await a2a.send(says("m3", "order 9", taskId=asked["id"]))
        assert state(done) == "COMPLETED"
        assert state(await a2a.send(says("m2", "order 7", taskId=asked["id"]))) == "COMPLETED"
        view = await (await runtime.get(asked["id"])).view()
    assert [message.content for message in view.messages if message.role == "tool"] == ["order 7", "order 9"]


async def test_further_input_joins_the_run_once_and_its_history(binding):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "refund both"))
        for _ in range(2):
            await a2a.send(says("m2", "be quick", taskId=asked["id"]))
        done = await a2a.send(says("m3", "thanks", *map(decides, tickets(asked)), taskId=asked["id"]))
        assert [(one["messageId"], one["parts"][0]["text"]) for one in done["history"]] == [
            ("m1", "refund both"),
            ("m2", "be quick"),
            ("m3", "thanks"),
        ]
        newest = await a2a.get(asked["id"], historyLength=1)
        assert [one["messageId"] for one in newest["history"]] == ["m3"]


@pytest.mark.rule("AS-8")
async def test_the_question_of_a_child_run_is_asked_and_answered_here(binding):
    child = gr.Agent("child", tools=TOOLS, model=ScriptedModel([call("refund", order="1", cents=5, id="k1"), "paid"]))
    parent = agent(call("child", input="refund", id="c1"), "done", tools=[child.as_tool()])
    async with gr.open_runtime(agents=[parent, child]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        asked = await a2a.send(says("m1", "go"))
        (ticket,) = tickets(asked)
        assert (ticket["tool"], ticket["reason"]) == ("refund", "child_approval")
        task = await a2a.send(says("m2", "yes", taskId=asked["id"]))
        assert state(task) == "INPUT_REQUIRED"
        done = await a2a.send(says("m3", decides(ticket), taskId=asked["id"]))
    assert (state(done), texts(done)) == ("COMPLETED", ["done"])


async def test_a_question_in_the_middle_of_the_work_is_asked_and_answered_here(binding):
    @gr.tool
    async def paint(ctx: gr.ToolContext) -> str:
        decision = await ctx.ask(gr.Suspend(message="which colour?", response_schema={"type": "string"}))
        return f"painted {decision.result}"

    helper = agent(call("paint", id="c1"), "done", tools=[paint])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        client = await a2a.stream(says("m1", "paint"))
        assert [ticket["message"] for ticket in client.tickets()] == ["which colour?"]
        done = await a2a.stream(says("m2", "red", taskId=client.task["id"]))
        assert state(done.task) == "COMPLETED"
        view = await (await runtime.get(client.task["id"])).view()
    assert [message.content for message in view.messages if message.role == "tool"] == ["painted red"]


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS-7")
async def test_a_subscription_goes_on_where_the_client_was_cut_off(binding):
    helper = clerk([text("a"), text("b"), text("c")])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        whole = await a2a.items(codec.SEND_STREAMING_MESSAGE, {"message": says("m1", "go")})
        client, ids = check(whole), a2a.ids
        task = client.task["id"]
        with pytest.raises(Fault) as refused:
            await a2a.subscribe(task)
        assert refused.value.reason == "UNSUPPORTED_OPERATION"
        assert len(ids) == len(set(ids)) == len(whole)
        for last in ids:
            rest = await a2a.subscribe(task, **{"Last-Event-ID": last})
            assert rest == whole[ids.index(last) + 1 :]
        again = await a2a.items(
            codec.SEND_STREAMING_MESSAGE, {"message": says("m1", "go")}, **{"Last-Event-ID": ids[0]}
        )
        assert again == whole[1:]


async def test_a_client_subscribes_while_the_run_works(binding):
    helper = clerk([text("a"), delay(0.3), text("b")])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = await a2a.send(says("m1", "go"), returnImmediately=True)
        client = check(await a2a.subscribe(task["id"]))
        assert plain(client.task) == plain(await a2a.get(task["id"]))
    assert [*client.texts().values()] == ["ab"]


@pytest.mark.rule("AS-13")
async def test_a_failed_run_is_a_failed_task_that_says_why(binding):
    helper = clerk([text("Hel"), fail("unauthorized", "no key")])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        client = await a2a.stream(says("m1", "go"))
        listed = (await a2a.list(status="TASK_STATE_FAILED"))["tasks"]
        assert (await a2a.list(status="TASK_STATE_REJECTED"))["tasks"] == []
    assert state(client.task) == "FAILED"
    assert "no key" in client.task["status"]["message"]["parts"][0]["text"]
    assert client.task["metadata"]["code"] == "model_error"
    assert [task["id"] for task in listed] == [client.task["id"]]


@pytest.mark.rule("AS-15", "AS-10")
async def test_a_cancelled_task_is_answered_at_its_end(binding):
    helper = clerk(delay(60), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        task = await a2a.send(says("m1", "go"), returnImmediately=True)
        cancelled = await a2a.cancel(task["id"])
        assert state(cancelled) == "CANCELED"
        with pytest.raises(Fault) as refused:
            await a2a.cancel(task["id"])
        assert (refused.value.reason, refused.value.metadata["code"]) == ("TASK_NOT_CANCELABLE", "run_done")
        with pytest.raises(Fault) as refused:
            await a2a.send(says("m2", "more", taskId=task["id"]))
        assert refused.value.reason == "UNSUPPORTED_OPERATION"


@pytest.mark.rule("AS-14")
async def test_the_list_has_pages_and_filters(binding):
    model = FunctionModel(lambda request: call("ask", id="c1") if "0" in request.messages[-1].content else "done")
    helper = gr.Agent("helper", model=model, tools=TOOLS)
    async with gr.open_runtime(agents=[helper, gr.Agent("other", model=ScriptedModel(["x"]))]) as runtime:
        async with gateway(runtime) as address:
            a2a = A2A(address, binding)
            await A2A(address, binding, "other").send(says("m1", "elsewhere"))
            places = ["th", "ch1", "ch0", "ch1", "ch0"]
            sent = [
                (await a2a.send(says(f"m{n}", f"text {n}", contextId=place)))["id"] for n, place in enumerate(places)
            ]
            pages, token = [], ""
            while not pages or token:
                pages.append(await a2a.list(pageSize=2, **({"pageToken": token} if token else {})))
                token = pages[-1]["nextPageToken"]
            assert [len(page["tasks"]) for page in pages] == [2, 2, 1]
            listed = [task["id"] for page in pages for task in page["tasks"]]
            assert listed == sent[::-1]
            whole = await a2a.list()
            assert (whole["totalSize"], whole["nextPageToken"]) == (5, "")
            assert [task["history"][0]["messageId"] for task in whole["tasks"]] == [f"m{n}" for n in range(4, -1, -1)]
            assert all("artifacts" not in task for task in whole["tasks"])
            (waiting,) = (await a2a.list(status="TASK_STATE_INPUT_REQUIRED", historyLength=0))["tasks"]
            assert (waiting["id"], "history" in waiting) == (sent[0], False)
            assert [task["id"] for task in (await a2a.list(contextId="ch0"))["tasks"]] == [sent[4], sent[2]]
            assert (await a2a.list(status="TASK_STATE_AUTH_REQUIRED"))["tasks"] == []
            (done, *_) = (await a2a.list(includeArtifacts=True))["tasks"]
            assert plain(done) == plain(await a2a.get(sent[4]))


@pytest.mark.rule("AS-16")
async def test_a_principal_sees_its_own_tasks_and_no_other(binding):
    own = {"ada": "ada-has-a-token-16", "bob": "bob-has-a-token-16"}
    principals = [
        Principal(name=name, token=token, sees=lambda info, name=name: info.by == name) for name, token in own.items()
    ]
    helper = clerk(*["done"] * 9)
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, principals=principals) as address:
        ada, bob = (A2A(address, binding, token=token) for token in own.values())
        task = await ada.send(says("m1", "hi"))
        assert (await bob.send(says("m1", "hi")))["id"] != task["id"]
        assert [one["id"] for one in (await ada.list())["tasks"]] == [task["id"]]
        faults = []
        for name in (task["id"], "run_nowhere"):
            for asked in (bob.get(name), bob.cancel(name), bob.subscribe(name), bob.send(says("m2", "x", taskId=name))):
                with pytest.raises(Fault) as refused:
                    await asked
                faults.append((refused.value.reason, refused.value.text.replace(name, "ID"), refused.value.metadata))
        assert all(fault == faults[0] for fault in faults)
        assert faults[0][0] == "TASK_NOT_FOUND"
        with pytest.raises(Fault) as refused:
            await bob.send(says("m3", "let me in", contextId=task["contextId"]))
        assert refused.value.metadata["code"] == "not_allowed"


async def test_a_task_of_another_agent_is_not_found(binding):
    other = gr.Agent("other", model=ScriptedModel(["x"]))
    async with gr.open_runtime(agents=[clerk("done"), other]) as runtime, gateway(runtime) as address:
        task = await A2A(address, binding).send(says("m1", "hi"))
        with pytest.raises(Fault) as refused:
            await A2A(address, binding, "other").get(task["id"])
        assert refused.value.reason == "TASK_NOT_FOUND"


# --- files, outputs, handoffs ----------------------------------------------------------------------------------------


@pytest.mark.rule("AS-5", "AS-12")
async def test_files_are_attachments_and_files_of_results_have_their_bytes(binding):
    model = ScriptedModel([call("chart", id="c1"), "It rises."])
    helper = gr.Agent("helper", model=model, tools=TOOLS)
    raw = {"raw": base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode().rstrip("="), "mediaType": "application/pdf"}
    inline = {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}
    address_part = {"url": "https://example.org/a.png", "mediaType": "image/png"}
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        a2a = A2A(address, binding)
        client = await a2a.stream(says("m1", "look", {**raw, "filename": "a.pdf"}, inline, address_part, {"data": [1]}))
        whole = await a2a.get(client.task["id"])
    newest = model.requests[0].messages[-1]
    assert newest.content == "look\n\n[1]"
    assert [(part.media_type, part.name, part.data, part.url) for part in newest.parts] == [
        ("application/pdf", "a.pdf", b"\xff\xfe\xfd", ""),
        ("image/png", "", PNG, ""),
        ("image/png", "", None, "https://example.org/a.png"),
    ]
    for artifacts in (client.artifacts(), {one["artifactId"]: one for one in whole["artifacts"]}):
        image, table = artifacts[f"{whole['id']}.c1"]["parts"]
        assert (base64.b64decode(image["raw"]), image["mediaType"]) == (PNG, "image/png")
        assert (base64.b64decode(table["raw"]), table["filename"]) == (b"a,b\n", "sales.csv")


async def test_a_file_that_is_too_large_for_an_answer_is_named(binding):
    @gr.tool(replay="safe")
    async def film() -> gr.File:
        return gr.File(bytes(300_000), media_type="video/mp4", name="film.mp4")

    helper = agent(call("film", id="c1"), "done", tools=[film])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        task = await A2A(address, binding).send(says("m1", "show"))
    (part,) = next(one for one in task["artifacts"] if one["artifactId"].endswith(".c1"))["parts"]
    assert (part["data"]["size"], part["filename"]) == (300_000, "film.mp4")


@pytest.mark.rule("AS-11")
async def test_a_structured_output_is_data(binding):
    helper = agent(json.dumps({"sum": 3}), output_type=dict[str, int])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        task = await A2A(address, binding).send(says("m1", "add"))
    assert task["artifacts"][-1]["parts"] == [{"data": {"sum": 3}, "mediaType": "application/json"}]


async def test_the_agent_that_has_taken_over_is_named(binding):
    expert = gr.Agent("expert", model=ScriptedModel(["I know."]))
    helper = agent(call("transfer_to_expert", id="h1"), handoffs=[expert])
    async with gr.open_runtime(agents=[helper, expert]) as runtime, gateway(runtime) as address:
        client = await A2A(address, binding).stream(says("m1", "hard"))
    assert client.task["metadata"]["agent"] == "expert"
    assert [one["metadata"]["agent"] for one in client.artifacts().values()] == ["expert"]


# --- the gateway -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS-6")
async def test_an_answer_that_waits_outlives_its_client(binding):
    """Also where the gateway cancels the runs of chat pages that are closed."""
    helper = clerk(delay(0.3), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, on_abort="cancel") as address:
        a2a = A2A(address, binding)
        async with a2a.reading(codec.SEND_STREAMING_MESSAGE, {"message": says("m1", "go")}) as reader:
            await reader.until(b"data: ")
        (line,) = (await runtime.runs()).runs
        assert isinstance(await (await runtime.get(line.run_id)).result(), gr.Completed)


@pytest.mark.rule("AS-6")
async def test_a_gateway_that_stops_answers_with_the_task_as_it_stands(binding):
    helper = clerk(call("ask", id="c1"), "done", "x")
    async with gr.open_runtime(agents=[helper]) as runtime:
        async with trio.open_nursery() as nursery:
            async with gateway(runtime) as address:
                a2a = A2A(address, binding)
                asked = await a2a.send(says("m1", "go", contextId="th"))
                answers: list[Any] = []

                async def behind() -> None:
                    answers.append(await a2a.send(says("m2", "and?", contextId="th")))

                nursery.start_soon(behind)
                await _until_runs(runtime, 2)
            assert state(asked) == "INPUT_REQUIRED"
    assert [state(task) for task in answers] == ["SUBMITTED"]


async def _until_runs(runtime: gr.Runtime, count: int) -> None:
    while len((await runtime.runs()).runs) < count:  # noqa: ASYNC110 - real sockets: no one sets an event
        await trio.sleep(0.01)


@pytest.mark.rule("AS-1")
async def test_the_card_of_an_agent_names_both_bindings_and_no_secret(binding):
    helper = gr.Agent("helper", description="Helps.", instructions="SECRET WAYS", model=ScriptedModel(["x"]))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        replies = [
            await http(address, "GET", path)
            for path in ("/.well-known/agent-card.json", "/v1/a2a/helper/.well-known/agent-card.json")
        ]
        assert (await http(address, "GET", "/.well-known/agent-card.json", token=None)).status == 401
    assert [reply.status for reply in replies] == [200, 200]
    card = json.loads(replies[0].body)
    assert replies[0].body == replies[1].body
    assert {one["protocolBinding"]: one["url"] for one in card["supportedInterfaces"]} == {
        "HTTP+JSON": f"{address.url}/v1/a2a/helper",
        "JSONRPC": f"{address.url}/v1/a2a/helper/rpc",
    }
    assert binding in {one["protocolBinding"] for one in card["supportedInterfaces"]}
    assert b"SECRET" not in replies[0].body
    assert TOKEN.encode() not in replies[0].body


@pytest.mark.rule("AS-1", "AS-2")
async def test_public_cards_need_no_token_and_a_default_agent_is_chosen(binding):
    agents = [gr.Agent(key, model=ScriptedModel(["x"])) for key in ("one", "two", "three")]
    options: dict[str, Any] = {"a2a": ("one", "two"), "a2a_default": "two", "a2a_cards": "public"}
    async with gr.open_runtime(agents=agents) as runtime:
        async with gateway(runtime, **options) as address:
            card = json.loads((await http(address, "GET", "/.well-known/agent-card.json", token=None)).body)
            assert card["name"] == "two"
            assert (await http(address, "GET", "/v1/a2a/one/.well-known/agent-card.json", token=None)).status == 200
            with pytest.raises(Fault) as refused:
                await A2A(address, binding, "three").send(says("m1", "hi"))
            assert refused.value.metadata["code"] == "unknown_agent"
        async with gateway(runtime) as address:
            assert (await http(address, "GET", "/.well-known/agent-card.json")).status == 404
            assert state(await A2A(address, binding, "three").send(says("m1", "hi"))) == "COMPLETED"
        async with gateway(runtime, a2a=()) as address:
            with pytest.raises(Fault, match="UNKNOWN_AGENT"):
                await A2A(address, binding, "three").send(says("m1", "hi"))
