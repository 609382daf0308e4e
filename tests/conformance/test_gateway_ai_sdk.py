"""The AI SDK's chat protocol over HTTP: what a client may send, what it receives, and that repeating never does harm.

Streams are held to `tests/support/ai_sdk_rules.py`; the SDK's own client judges in `tests/e2e/test_judge_ai_sdk.py`.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call, fail, text
from greenroom.transport import Principal

from ..support.ai_sdk_page import Page, states
from ..support.ai_sdk_rules import check_message, read_sse
from ..support.gateway import TOKEN, Reply, gateway, http
from ..support.runs import Shelf, agent, events_of, types

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gateways")]

OTHER = "another-token-of-16+"
both = pytest.mark.parametrize("version", ["v6", "v7"])


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents} for {order}"


@gr.tool
async def locate() -> dict[str, Any]:
    raise gr.Suspend(message="where are you?", resume_mode="use_decision_as_tool_result")


@gr.tool
async def seal() -> str:
    raise gr.Suspend(resume_mode="use_decision_as_tool_result", response_schema={"type": "string"})


@gr.tool
async def ship(to: str = "nowhere") -> str:
    if to == "nowhere":
        raise gr.Suspend(message="where to?", resume_mode="pass_decision_to_tool")
    return f"shipped to {to}"


@gr.tool
async def look() -> str:
    return "seen"


TOOLS = [refund, locate, seal, ship, look]


def clerk(*steps: Any, **options: Any) -> gr.Agent[Any]:
    return agent(*steps, tools=[*TOOLS, *options.pop("tools", [])], **options)


def two_refunds(**options: Any) -> gr.Agent[Any]:
    calls = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    return clerk([text("Two refunds. "), *calls], "done", **options)


# --- a conversation --------------------------------------------------------------------------------------------------


@both
async def test_a_conversation_continues_in_its_thread(version):
    helper = clerk(text("hello"))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "hi", "there")
        assert page.last.texts() == "hello"
        check_message(page.last.message, ended=True)
        await page.ask("u2", "and?")
        runs = (await runtime.runs()).runs
    assert [run.info.thread_id for run in runs] == ["ch", "ch"]
    assert {run.info.by for run in runs} == {"operator"}
    assert [message["role"] for message in page.messages] == ["user", "assistant", "user", "assistant"]
    said = [message.content for message in helper.model.requests[-1].messages if message.role == "user"]
    assert said == ["hi\nthere", "and?"]


@both
async def test_two_approvals_are_answered_in_one_request_one_approved_one_denied(version):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        assert states(page) == ["approval-requested"] * 2
        assert page.last.reason == "tool-calls"
        page.approve("c1", deny="c2")
        assert page.last.answered()
        message = await page.answer(messageId=page.run_of_ours)
        run = await runtime.get(page.run_of_ours)
        events = await events_of(run)
    assert states(page) == ["output-available", "output-denied"]
    assert page.last.texts() == "Two refunds. done"
    check_message(page.last.message, ended=True)
    assert [part["type"] for part in message][:2] == ["start", "data-run"]
    assert not [part for part in message if part["type"] == "tool-input-available"]
    resolved = [e.payload for e in events if e.type == "run.approval.resolved"]
    assert [(event["resolution"], event["by"], event["reason"]) for event in resolved] == [
        ("approved", "operator", "because"),
        ("denied", "operator", "because"),
    ]


@both
async def test_a_partial_answer_acts_and_the_rest_can_follow(version):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        page.approve("c2")
        await page.answer()
        assert states(page) == ["approval-requested", "output-available"]
        assert page.last.reason == "tool-calls"
        page.approve("c1")
        await page.answer()
    assert states(page) == ["output-available"] * 2
    assert page.last.texts() == "Two refunds. done"


@both
async def test_a_page_gives_the_outputs_that_tools_ask_it_for(version):
    helper = clerk([call("locate", id="c1"), call("ship", id="c2")], "done", execution="parallel_streaming")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "go")
        assert sorted(page.last.tool_calls) == ["c1", "c2"]
        page.last.output("c1", {"city": "Kyiv"})
        page.last.output("c2", {"to": "Oslo"})
        assert page.last.completed()
        await page.answer()
    assert [tool["output"] for tool in page.last.tools()] == [{"city": "Kyiv"}, "shipped to Oslo"]
    check_message(page.last.message, ended=True)
    assert not page.last.completed()


@both
async def test_an_output_that_the_page_could_not_make_is_reported_to_the_model_or_denied(version):
    calls = [call("locate", id="c1"), call("seal", id="c2"), call("ship", id="c3")]
    helper = clerk(calls, "done", execution="parallel_streaming")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "go")
        for one in ("c1", "c2", "c3"):
            page.last.output(one, error="no GPS")
        await page.answer()
        run = await runtime.get(page.run_of_ours)
        view = await run.view()
    assert page.last.tool("c1")["output"] == {"error": "no GPS"}
    assert [str(status) for status in view.calls.values()] == ["succeeded", "cancelled", "cancelled"]
    texts = [message.content for message in view.messages if message.role == "tool"]
    assert texts[1:] == ["The reviewer denied this call: no GPS"] * 2
    check_message(page.last.message, ended=True)


@both
async def test_an_answer_that_does_not_fit_is_refused_and_asked_for_again(version):
    helper = clerk([call("seal", id="c1"), call("refund", order="1", cents=5, id="c2")], "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "go")
        page.last.output("c1", 7)
        status, code, message = await page.refused()
        assert (status, code) == (422, "invalid_result")
        assert "7" in message
        page.approve("c2")
        shown_message = await page.answer()
        (notice,) = [one["data"] for one in shown_message if one["type"] == "data-notice"]
        assert (notice["event"], notice["code"]) == ("refused", "invalid_result")
        assert states(page) == ["input-available", "output-available"]
        page.last.output("c1", "blue")
        await page.answer()
    assert page.last.tool("c1")["output"] == "blue"
    assert page.last.texts() == "done"


@both
async def test_an_approval_is_no_value_and_an_output_no_approval(version):
    helper = clerk([call("locate", id="c1"), call("refund", order="1", cents=5, id="c2")], "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "go")
        page.last.output("c2", "paid 1000000")
        assert (await page.refused())[:2] == (422, "unprocessable")
        part = page.last.tool("c1")
        ticket = part["callProviderMetadata"]["greenroom"]["ticketId"]
        part["state"], part["approval"] = "approval-responded", {"id": ticket, "approved": True}
        assert (await page.refused())[:2] == (422, "unprocessable")
        part["approval"]["approved"] = False
        await page.answer()
        assert page.last.tool("c2")["state"] == "approval-requested", "it is asked for again"
        assert page.last.tool("c2").get("output") is None
        run = await runtime.get(page.run_of_ours)
        calls = (await run.view()).calls
    assert {name: str(status) for name, status in calls.items()} == {"c1": "cancelled", "c2": "suspended"}


async def test_what_a_client_says_of_tool_and_input_is_not_believed():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address)
        await page.ask("u1", "refund both")
        page.approve("c1", "c2")
        for tool in page.last.tools():
            tool["input"] = {"order": "1", "cents": 1_000_000}
        page.last.tool("c2")["type"] = "tool-look"
        await page.answer()
    assert [tool["output"] for tool in page.last.tools()] == ["paid 5 for 1", "paid 5 for 2"]


async def test_parts_of_tools_that_the_page_does_not_know_count_too():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address)
        await page.ask("u1", "refund both")
        page.approve("c1", "c2")
        sent = page.last.sent()
        for part in sent["parts"]:
            if "toolCallId" in part:
                part["type"], part["toolName"] = "dynamic-tool", "refund"
        page.messages[-1] = sent
        page.take(await page.post(), fresh=False)
    assert page.last.texts() == "Two refunds. done"


async def test_a_new_message_may_come_with_the_answers_to_the_last_one():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address)
        await page.ask("u1", "refund both")
        first = page.run_of_ours
        page.say("u2", "hurry")
        assert (await page.refused())[:2] == (409, "thread_busy")
        page.messages.pop()
        page.approve("c1", deny="c2")
        page.messages[-1] = page.last.sent()
        await page.ask("u2", "hurry")
        assert page.run_of_ours != first
        outcome = await (await runtime.get(first)).result()
    assert isinstance(outcome, gr.Completed)
    assert states(page) == ["approval-requested"] * 2


# --- ends ------------------------------------------------------------------------------------------------------------


@both
async def test_a_failed_run_is_an_error(version):
    async with gr.open_runtime(agents=[clerk(fail("unauthorized", "no key"))]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "hi")
    assert "no key" in str(page.last.error)
    assert page.parts[-1]["finishReason"] == "error"


@both
async def test_a_run_that_waits_or_works_is_cancelled_once(version):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        assert (await page.cancel()).status == 404
        await page.ask("u1", "refund both")
        first, second = await page.cancel(), await page.cancel()
        assert (first.status, first.json()["status"]) == (202, "accepted")
        assert second.json()["status"] == "duplicate"
        assert first.json()["run"] == page.run_of_ours
        await (await runtime.get(page.run_of_ours)).result()
        page.approve("c1")
        await page.answer()
    assert page.parts[-2] == {"type": "abort"}
    assert "approval-requested" not in states(page)
    assert not page.last.answered(), "nothing is sent by itself any more"


# --- the same again, and too late ------------------------------------------------------------------------------------


@both
async def test_a_message_that_is_sent_again_is_the_same_run_from_its_start(version):
    helper = two_refunds()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        page.say("u1", "refund both")
        replies = []

        async def post() -> None:
            replies.append(await page.post())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(post)
        assert len({reply.body for reply in replies}) == 1
        assert len((await runtime.runs()).runs) == 1
    assert len(helper.model.requests) == 1


@both
async def test_answers_that_are_sent_again_are_answered_the_same(version):
    """The response was lost: the same request tells all of it again, and nothing acts twice."""
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        page.approve("c1", deny="c2")
        page.messages[-1] = page.last.sent()
        first, second = await page.post(), await page.post()
        assert first.body == second.body
        events = types(await events_of(await runtime.get(page.run_of_ours)))
        assert events.count("approval.resolved") == 2
        page.take(second, fresh=False)
        assert await page.refused() == (
            422,
            "unprocessable",
            "nothing is answered that is open: resume the stream to see the state of the run",
        )
    assert page.last.texts() == "Two refunds. done"


@both
async def test_who_answers_too_late_is_shown_what_has_happened(version):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        run = await runtime.get(page.run_of_ours)
        for ticket in (await run.view()).tickets:
            await run.decide(ticket.deny("no", by="ann") if ticket.call_id == "c1" else ticket.approve(by="ann"))
        await run.result()
        page.approve("c1", deny="c2")
        await page.answer()
        assert page.last.texts() == "Two refunds. done"
        outputs = {tool["toolCallId"]: tool.get("output") for tool in page.last.tools()}
        assert outputs == {"c1": None, "c2": "paid 5 for 2"}
        tickets = [part["data"] for part in page.last.parts if part["type"] == "data-ticket"]
        assert [(ticket["status"], ticket["by"]) for ticket in tickets] == [("denied", "ann"), ("approved", "ann")]


async def test_a_message_without_its_data_parts_gets_what_follows_the_answer():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address)
        await page.ask("u1", "refund both")
        page.approve("c1", "c2")
        sent = page.last.sent()
        sent["parts"] = [part for part in sent["parts"] if not part["type"].startswith("data-")]
        page.messages[-1] = sent
        message = page.take(await page.post(), fresh=False)
        assert page.last.texts() == "Two refunds. done"
        kinds = [part["type"] for part in message]
        assert kinds.count("tool-output-available") == 2
        again = await page.post()
        assert (again.status, again.json()["error"]["code"]) == (422, "unprocessable")


# --- resuming --------------------------------------------------------------------------------------------------------


@both
async def test_a_chat_is_resumed_from_the_start_of_its_active_run(version):
    going, started = trio.Event(), trio.Event()

    @gr.tool
    async def slow(ctx: gr.ToolContext) -> str:
        await ctx.output("working")
        started.set()
        await going.wait()
        return "slept"

    helper = clerk([text("wait "), call("slow", id="c1")], "done", tools=[slow])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        page, second = Page(address, version), Page(address, version)
        assert (await page.get()).status == 204
        page.say("u1", "go")
        replies = list[Reply]()

        async def post() -> None:
            replies.append(await page.post())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await started.wait()
            await nursery.start(second.watch)
            going.set()
        assert second.last.texts() == "wait done"
        assert (await page.get()).status == 204
        again = await page.get("?finished=true")
        assert again.body == replies[0].body
        assert read_sse(again.body.decode()) == second.parts
        assert (await page.get("?finished=maybe")).status == 400


@both
async def test_a_chat_that_waits_is_resumed_with_its_requests(version):
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        page.approve("c1")
        await page.answer()
        fresh = Page(address, version)
        fresh.take(await fresh.get(), fresh=True)
        check_message(fresh.last.message, ended=False)
        assert states(fresh) == ["output-available", "approval-requested"]
        fresh.approve("c2")
        await fresh.answer()
    assert fresh.last.texts() == "Two refunds. done"


async def test_an_event_id_resumes_exactly_behind_it():
    async with gr.open_runtime(agents=[clerk([text("hello "), call("look", id="c1")], "done")]) as runtime:
        async with gateway(runtime) as address:
            page = Page(address)
            page.say("u1", "hi")
            whole = (await page.post()).body
            frames = whole.split(b"\n\n")
            ids = [frame.split(b"\n")[0][4:].decode() for frame in frames if frame.startswith(b"id: ")]
            assert len(ids) == len(set(ids)) > 5
            for name in ids[:-1]:
                rest = (await page.get("?finished=true", **{"last-event-id": name})).body
                cut = next(i for i, frame in enumerate(frames) if frame.startswith(f"id: {name}\n".encode()))
                assert rest == b"\n\n".join(frames[cut + 1 :])
            epoch, _, head = ids[-1].rpartition("-")
            for wrong, status in ((f"{epoch}-{int(head) + 1}", 410), (f"other-{head}", 410), ("x", 400)):
                assert (await page.get("?finished=true", **{"last-event-id": wrong})).status == status


@both
async def test_answers_act_after_a_restart(version, tmp_path: Path):
    shelf = Shelf("sqlite", tmp_path)
    async with gr.open_runtime(shelf.open(), agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page = Page(address, version)
        await page.ask("u1", "refund both")
        page.approve("c1", deny="c2")
    async with gr.open_runtime(shelf.open(), agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        page.address = address
        await page.answer()
        assert page.last.texts() == "Two refunds. done"
        check_message(page.last.message, ended=True)
        assert states(page) == ["output-available", "output-denied"]


@both
async def test_a_gateway_that_stops_leaves_a_whole_stream_that_can_be_resumed(version):
    going, started = trio.Event(), trio.Event()

    @gr.tool
    async def slow() -> str:
        started.set()
        await going.wait()
        return "slept"

    helper = clerk([text("wait "), call("slow", id="c1")], "done", tools=[slow])
    async with gr.open_runtime(agents=[helper], drain=0.0) as runtime:
        async with trio.open_nursery() as nursery, gateway(runtime) as address:
            page = Page(address, version)
            run = await runtime.start("helper", "go", thread_id="ch")
            await started.wait()
            await nursery.start(page.watch)
        assert "resume the stream" in str(page.last.error)
        assert states(page) == ["input-available"]
        async with gateway(runtime) as address:
            page.address = address
            going.set()
            await run.result()
            page.take(await page.get("?finished=true"), fresh=True)
    assert page.last.texts() == "wait done"


async def test_a_run_without_an_owner_is_reported_as_an_error(tmp_path: Path):
    shelf, started = Shelf("sqlite", tmp_path), trio.Event()

    @gr.tool(replay="safe")
    async def slow() -> str:
        started.set()
        await trio.sleep_forever()
        raise AssertionError

    def agents() -> list[gr.Agent[Any]]:
        return [clerk(call("slow", id="c1"), "done", tools=[slow])]

    async with gr.open_runtime(shelf.open(), agents=agents(), drain=0.0) as runtime:
        await runtime.start("helper", "hi", thread_id="ch", deps=object())
        await started.wait()
    async with gr.open_runtime(shelf.open(), agents=agents()) as runtime, gateway(runtime) as address:
        page = Page(address)
        page.take(await page.get(), fresh=True)
    assert "deps" in str(page.last.error)
    assert page.last.parts[0]["data"]["status"] == "interrupted"


# --- who may, and what is refused ------------------------------------------------------------------------------------


def mine(info: gr.RunInfo) -> bool:
    return info.by == "bob"


async def test_no_principal_reads_the_chats_of_others():
    people = [Principal(name="ann", token=TOKEN), Principal(name="bob", token=OTHER, sees=mine)]
    async with gr.open_runtime(agents=[two_refunds()]) as runtime:
        async with gateway(runtime, principals=people) as address:
            ann, bob = Page(address), Page(address, token=OTHER)
            await ann.ask("u1", "refund both")
            assert (await bob.get()).status == 204
            assert (await bob.cancel()).status == 404
            ann.approve("c1", "c2")
            bob.messages, bob.last = copy.deepcopy([*ann.messages[:-1], ann.last.sent()]), ann.last
            assert (await bob.refused())[:2] == (422, "unprocessable")
            bob.say("u1", "refund both")
            assert (await bob.refused())[:2] == (403, "not_allowed")
            run = await runtime.get(ann.run_of_ours)
            assert len((await run.view()).tickets) == 2
            bob.chat = "his-own"
            await bob.ask("u1", "refund both")
            assert bob.run_of_ours != ann.run_of_ours


async def test_who_may_only_look_can_neither_send_nor_answer_nor_cancel():
    people = [Principal(name="ann", token=TOKEN), Principal(name="bob", token=OTHER, scopes=frozenset({"follow"}))]
    async with gr.open_runtime(agents=[two_refunds()]) as runtime:
        async with gateway(runtime, principals=people) as address:
            ann, bob = Page(address), Page(address, token=OTHER)
            bob.say("u1", "refund both")
            assert (await bob.refused())[:2] == (403, "not_allowed")
            await ann.ask("u1", "refund both")
            bob.take(await bob.get(), fresh=True)
            bob.approve("c1", "c2")
            assert (await bob.refused())[:2] == (403, "not_allowed")
            assert (await bob.cancel()).status == 403
            assert (await http(address, "GET", f"{ann.path}/ch/stream", token=None)).status == 401


USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"messages": "hi"}, 400, "messages is missing"),
    ({"id": 7}, 400, "id is missing"),
    ({"trigger": 7}, 400, "trigger"),
    ({"trigger": "resume"}, 400, "is not known"),
    ({"messages": []}, 422, "there are no messages"),
    ({"messages": [{"id": "u1", "role": "user"}]}, 400, "messages[0] is no UI message"),
    ({"messages": [7]}, 400, "messages[0] is no UI message"),
    ({"messages": [USER | {"id": ""}]}, 400, "no id"),
    ({"messages": [USER | {"parts": []}]}, 422, "has no text"),
    ({"messages": [USER | {"parts": [{"type": "file", "url": "http://a.b/c", "mediaType": "a/b"}]}]}, 422, "data:"),
    ({"messages": [USER | {"role": "system"}]}, 422, "the last message is the system's"),
    ({"messages": [USER | {"role": "assistant"}]}, 422, "is no run of this chat"),
    ({"trigger": "regenerate-message"}, 422, "append-only"),
    ({"id": "x" * 2000}, 422, "thread"),
]


@pytest.mark.parametrize(("fields", "status", "words"), REFUSED, ids=lambda value: str(value)[:40])
async def test_what_cannot_be_is_refused_before_anything_happens(fields, status, words):
    async with gr.open_runtime(agents=[clerk("hello")]) as runtime, gateway(runtime) as address:
        page = Page(address)
        page.messages = [USER]
        reply = await page.post(**fields)
        assert (reply.status, words in reply.json()["error"]["message"]) == (status, True), reply.body
        assert (await runtime.runs()).runs == ()


async def test_a_message_that_was_sent_cannot_be_edited():
    async with gr.open_runtime(agents=[clerk("hello")]) as runtime, gateway(runtime) as address:
        page = Page(address)
        await page.ask("u1", "hi")
        page.messages = []
        page.say("u1", "ho")
        status, code, message = await page.refused(messageId="u1")
        assert (status, code) == (409, "run_exists")
        assert "append-only" in message


async def test_an_unknown_agent_or_version_is_not_found():
    async with gr.open_runtime(agents=[clerk("hello")]) as runtime, gateway(runtime) as address:
        page = Page(address, "v8")
        page.messages = [USER]
        assert (await page.refused())[:2] == (404, "not_found")
        assert (await page.get()).status == (await page.cancel()).status == 404
        path = "/v1/ai-sdk/v7/agents/nobody/chat"
        assert (await http(address, "POST", path, body=page.body())).json()["error"]["code"] == "unknown_agent"


async def test_a_run_of_another_chat_or_agent_takes_no_answers():
    async with gr.open_runtime(agents=[two_refunds(), clerk("x", key="second")]) as runtime:
        async with gateway(runtime) as address:
            page = Page(address)
            await page.ask("u1", "refund both")
            page.approve("c1", "c2")
            page.chat = "another"
            assert (await page.refused())[:2] == (422, "unprocessable")
            page.chat = "ch"
            path = page.path.replace("helper", "second")
            reply = await http(address, "POST", path, body=page.body())
            assert (reply.status, reply.json()["error"]["code"]) == (422, "unprocessable")
            assert len((await (await runtime.get(page.run_of_ours)).view()).tickets) == 2
