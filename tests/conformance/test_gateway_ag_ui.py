"""AG-UI over HTTP: what a client may ask, what it receives, and that what is answered with RUN_ERROR has no effect.

Streams are held to `tests/support/ag_ui_rules.py`; the protocol's own client judges in `tests/e2e/test_judge_ag_ui.py`.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import h11
import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, fail, text, think
from greenroom.transport import Principal

from ..support.ag_ui_rules import Client, check
from ..support.gateway import TOKEN, gateway, http
from ..support.runs import agent, events_of, payloads

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gateways")]

SEAL = gr.Suspend(message="which seal?", resume_mode="use_decision_as_tool_result", response_schema={"type": "string"})
OTHER = "another-token-of-16+"


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents} for {order}"


@gr.tool
async def seal() -> str:
    raise SEAL


@gr.tool
async def ship(to: str = "nowhere") -> str:
    if to == "nowhere":
        raise gr.Suspend(message="where to?", resume_mode="pass_decision_to_tool")
    return f"shipped to {to}"


@gr.tool
async def hurry() -> str:
    raise gr.Suspend(message="quick!", expires_after=0.02)


@gr.tool
async def count(ctx: gr.ToolContext) -> int:
    await ctx.progress(0.5, "half")
    await ctx.output("one")
    return 2


TOOLS = [refund, seal, ship, hurry, count]


def clerk(*steps: Any, **options: Any) -> gr.Agent[Any]:
    return agent(*steps, tools=TOOLS, **options)


def two_refunds() -> gr.Agent[Any]:
    calls = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    return clerk([text("Two refunds."), *calls], "done")


class Front:
    """An AG-UI client by hand: keeps the conversation as one does, and holds every stream to the rules."""

    def __init__(self, address: Any, thread: str = "th", token: str = TOKEN) -> None:
        self.address, self.thread, self.token = address, thread, token
        self.client = Client(state={"page": 7})
        self.events: list[dict[str, Any]] = []
        self.run_of_ours = ""

    def say(self, name: str, content: Any) -> None:
        self.client.messages.append({"id": name, "role": "user", "content": content})

    def body(self, run_id: str, resume: Any = None, **more: Any) -> dict[str, Any]:
        found = {"threadId": self.thread, "runId": run_id, "messages": self.client.input(), "state": self.client.state}
        found |= {"tools": [], "context": [], "forwardedProps": {}, "protocolVersion": "1.0"}
        return found | ({} if resume is None else {"resume": resume}) | more

    async def post(self, body: Mapping[str, Any], *, key: str = "helper") -> Any:
        path = f"/v1/ag-ui/agents/{key}/run"
        return await http(self.address, "POST", path, body=body, token=self.token)

    async def run(self, run_id: str, resume: Any = None, **more: Any) -> list[dict[str, Any]]:
        """One AG-UI run, to its end."""
        body = self.body(run_id, resume, **more)
        reply = await self.post(body)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream"), reply.body
        self.events = parsed(reply.body)
        check(self.events, thread_id=self.thread, run_id=run_id, known=body["messages"])
        self.client.take(self.events)
        self.run_of_ours = self.events[0].get("metadata", {}).get("greenroom", {}).get("run", self.run_of_ours)
        return self.events

    async def ask(self, run_id: str, content: str, resume: Any = None) -> list[dict[str, Any]]:
        self.say(f"u-{run_id}", content)
        return await self.run(run_id, resume)

    def answers(self, *payloads: Any) -> list[dict[str, Any]]:
        """Answers to the open interrupts in order; None declines."""
        pairs = zip(self.client.interrupts, payloads, strict=True)
        return [answer(one["id"], payload) for one, payload in pairs]

    def contents(self, role: str) -> list[str]:
        return [
            message["content"] for message in self.client.messages if message["role"] == role and "content" in message
        ]

    @property
    def results(self) -> dict[str, str]:
        """Call id -> what it came to."""
        tools = [message for message in self.client.messages if message["role"] == "tool"]
        return {tool["toolCallId"].partition(":")[2]: tool["content"] for tool in tools}


class Reader:
    """A response that is read as it comes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream, self.http = stream, h11.Connection(h11.CLIENT)
        self.body = b""

    async def until(self, words: bytes | None) -> bytes:
        """The body up to where it holds these words, or to its end."""
        with trio.fail_after(60):
            while words is None or words not in self.body:
                event = self.http.next_event()
                if event is h11.NEED_DATA:
                    self.http.receive_data(await self.stream.receive_some(65_536))
                elif isinstance(event, h11.Data):
                    self.body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    assert words is None, self.body
                    return self.body
        return self.body


@asynccontextmanager
async def reading(front: Front, body: Mapping[str, Any]) -> AsyncIterator[Reader]:
    address, data = front.address, json.dumps(body).encode()
    headers = {"host": f"{address.host}:{address.port}", "authorization": f"Bearer {TOKEN}"}
    request = h11.Request(
        method="POST",
        target="/v1/ag-ui/agents/helper/run",
        headers=[*headers.items(), ("content-length", str(len(data)))],
    )
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        reader = Reader(stream)
        parts = [reader.http.send(part) for part in (request, h11.Data(data=data), h11.EndOfMessage())]
        await stream.send_all(b"".join(part for part in parts if part))
        yield reader


def parsed(body: bytes) -> list[dict[str, Any]]:
    """Frames of a stream: `data:` lines and nothing else."""
    assert body.endswith(b"\n\n")
    frames = body.decode()[:-2].split("\n\n")
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames), frames
    return [json.loads(frame[6:]) for frame in frames]


def answer(name: str, payload: Any) -> dict[str, Any]:
    if payload is None:
        return {"interruptId": name, "status": "cancelled"}
    return {"interruptId": name, "status": "resolved", "payload": payload}


YES = {"approved": True}


# --- a conversation --------------------------------------------------------------------------------------------------


async def test_a_conversation_continues_on_its_thread_and_the_agent_reads_every_message_once():
    model = ScriptedModel([[think("hm"), text("hello")]])
    helper = gr.Agent("helper", model=model)
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "hi")
        assert [message["role"] for message in front.client.messages] == ["user", "reasoning", "assistant"]
        await front.ask("r2", "and?")
    assert front.contents("assistant") == ["hello", "hello"]
    assert front.client.outcome == "success"
    assert front.events[-1]["result"] == "hello"
    assert front.events[-1]["usage"][0]["model"] == "scripted"
    assert front.client.state["page"] == 7
    assert front.client.state["greenroom"]["stage"] == "completed"
    assert [message.content for message in model.requests[-1].messages if message.role == "user"] == ["hi", "and?"]


async def test_a_pause_is_an_interrupt_without_a_call_that_comes_when_nothing_else_holds_the_run():
    """A client pauses the run after the client was informed of the calls: their answers need not know of it."""
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        run = await runtime.get(front.run_of_ours)
        assert (await run.pause(reason="lunch", by="ada")).ok
        await front.run("r2", front.answers(YES, YES))
        assert (front.client.outcome, front.results) == ("interrupt", {"c1": "paid 5 for 1", "c2": "paid 5 for 2"})
        (pause,) = front.client.interrupts
        assert (pause["reason"], pause["message"]) == ("greenroom:manual_pause", "ada paused the run: lunch")
        assert "toolCallId" not in pause
        assert pause["responseSchema"]["properties"].keys() >= {"approved", "result"}
        assert "editedArgs" not in pause["responseSchema"]["properties"]
        edits = front.answers({"approved": True, "editedArgs": {"cents": 1}})
        refused = parsed((await front.post(front.body("r3", edits))).body)
        assert (refused[-1]["type"], refused[-1]["code"]) == ("RUN_ERROR", "invalid_arguments")
        await front.run("r4", front.answers({"approved": True, "result": "back again"}))
    assert front.client.outcome == "success"
    assert front.contents("user") == ["refund both", "back again"]


async def test_to_decline_a_pause_ends_the_run():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        run = await runtime.get(front.run_of_ours)
        assert (await run.pause()).ok
        await front.run("r2", front.answers(YES, YES))
        await front.run("r3", front.answers(None))
        assert isinstance(await run.result(), gr.Cancelled)
    assert front.events[-1]["outcome"]["type"] == "cancelled"


async def test_two_interrupts_are_answered_at_once_one_approved_one_declined():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        assert front.client.outcome == "interrupt"
        first, second = front.client.interrupts
        assert (first["reason"], first["toolCallId"], first["message"]) == (
            "tool_call",
            f"{front.run_of_ours}:c1",
            "This call needs an approval.",
        )
        assert first["metadata"]["greenroom"]["arguments"] == {"order": "1", "cents": 5}
        assert first["responseSchema"]["properties"].keys() >= {"approved", "editedArgs"}
        assert front.client.state["greenroom"]["tickets"] == [first["id"], second["id"]]
        await front.run("r2", front.answers(YES, {"approved": False, "reason": "too much"}))
    assert front.client.outcome == "success"
    assert front.results == {"c1": "paid 5 for 1", "c2": "The reviewer denied this call: too much"}
    assert front.contents("assistant") == ["Two refunds.", "done"]
    kinds = [event["type"] for event in front.events]
    assert kinds[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert not {"TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"} & set(kinds)


async def test_edited_arguments_replace_those_of_the_agent():
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund")
        await front.run("r2", front.answers({"approved": True, "editedArgs": {"order": "9", "cents": 1}}))
    assert front.results == {"c1": "paid 1 for 9"}


async def test_where_a_ticket_asks_for_a_value_the_payload_is_the_value():
    helper = clerk([call("seal", id="c1"), call("ship", id="c2")], "done", execution="parallel_streaming")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "go")
        first, second = front.client.interrupts
        assert (first["reason"], first["responseSchema"]) == ("input_required", {"type": "string"})
        assert second["responseSchema"] == {"type": "object"}
        await front.run("r2", front.answers("blue", {"to": "Oslo"}))
    assert front.results == {"c1": "blue", "c2": "shipped to Oslo"}


async def test_what_a_tool_tells_while_it_runs_is_an_activity():
    helper = clerk(call("count", id="c1"), "two")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "count")
    (activity,) = [message for message in front.client.messages if message["role"] == "activity"]
    assert activity["content"]["fraction"] == 0.5
    assert activity["content"]["output"] == ["one"]
    assert front.results == {"c1": "2"}


async def test_a_failure_is_an_error_with_its_code():
    helper = clerk(fail("unauthorized", "no key"))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "go")
    assert front.events[-1]["type"] == "RUN_ERROR"
    assert front.events[-1]["code"] == "model_error"
    assert "no key" in front.events[-1]["message"]


async def test_a_run_that_is_cancelled_elsewhere_ends_as_cancelled():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        run = await runtime.get(front.run_of_ours)
        await run.cancel(reason="enough")
        await front.run("r2", front.answers(None, None))
    assert front.client.outcome == "cancelled"
    assert front.events[-1]["metadata"]["greenroom"]["reason"] == "enough"


# --- the same again --------------------------------------------------------------------------------------------------


async def test_the_same_request_receives_the_same_whatever_has_happened_since():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u1", "refund both")
        bodies, replies = [front.body("r1")], [await front.post(front.body("r1"))]
        front.client.take(parsed(replies[0].body))
        bodies.append(front.body("r2", front.answers(YES, None)))
        replies.append(await front.post(bodies[1]))
        for body, reply in zip(bodies, replies, strict=True):
            assert (await front.post(body)).body == reply.body
        assert len((await runtime.runs()).runs) == 1


async def test_a_message_that_comes_again_under_another_run_id_begins_no_second_run():
    helper = clerk("hello")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u1", "hi")
        async with trio.open_nursery() as nursery:
            for name in ("r1", "r2", "r3"):
                nursery.start_soon(front.post, front.body(name))
        again = parsed((await front.post(front.body("r4"))).body)
        assert again[0]["runId"] == again[-1]["runId"] == "r4"
        assert len((await runtime.runs()).runs) == 1
    assert len(helper.model.requests) == 1


async def test_an_id_that_was_used_for_something_else_is_refused_before_the_stream():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        cases = [
            front.body("r9", messages=[{"id": "u-r1", "role": "user", "content": "something else"}]),
            front.body("r1", messages=[{"id": "u2", "role": "user", "content": "another message"}]),
        ]
        for body in cases:
            reply = await front.post(body)
            assert (reply.status, reply.json()["error"]["code"]) == (409, "run_exists")
        assert len((await runtime.runs()).runs) == 1


# --- clients before version 1.0 of the protocol ----------------------------------------------------------------------


class OlderFront(Front):
    """Names no version, and answers interrupts under the `runId` that they came with, as CopilotKit does."""

    def body(self, run_id: str, resume: Any = None, **more: Any) -> dict[str, Any]:
        found = super().body(run_id, resume, **more)
        del found["protocolVersion"]
        return found


def said(events: list[dict[str, Any]]) -> list[str]:
    """What an answer that had no effect was answered: codes."""
    notices = [event["value"] for event in events if event.get("name") == "greenroom.refused"]
    return [one["code"] for one in (*notices, *(event for event in events if event["type"] == "RUN_ERROR"))]


@pytest.mark.parametrize("kind", [Front, OlderFront])
async def test_interrupts_are_answered_under_the_run_id_that_began_the_run(kind):
    """The same request again leads to the same; other answers or another message under that id are refused."""
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = kind(address)
        await front.ask("r1", "refund both")
        body = front.body("r1", front.answers(YES, YES))
        first, again = [parsed((await front.post(body)).body) for _ in range(2)]
        assert first == again
        assert (first[0]["runId"], first[-1]["runId"], first[-1]["outcome"]) == ("r1", "r1", {"type": "success"})
        assert len((await runtime.runs()).runs) == 1
        other = front.body("r1", front.answers(YES, {"approved": False}))
        assert said(parsed((await front.post(other)).body)) == ["already_decided"]
        strange = front.body("r1", messages=[{"id": "u2", "role": "user", "content": "another message"}])
        assert (await front.post(strange)).json()["error"]["code"] == "run_exists"


async def test_a_result_that_the_client_has_made_of_its_answer_gives_way_to_the_result_of_the_call():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = OlderFront(address)
        await front.ask("r1", "refund both")
        for number, one in enumerate(front.client.interrupts):
            own = {
                "id": f"own-{number}",
                "role": "tool",
                "toolCallId": one["toolCallId"],
                "content": '{"approved":true}',
            }
            front.client.messages.append(own)
        await front.run("r1", front.answers(YES, YES))
    assert front.contents("tool") == ["paid 5 for 1", "paid 5 for 2"]


async def test_an_older_client_is_sent_an_error_for_a_run_that_was_cancelled():
    async with (
        gr.open_runtime(agents=[clerk([text("Wait. "), delay(100), "late"])]) as runtime,
        gateway(runtime) as address,
    ):
        front = OlderFront(address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(front.ask, "r1", "wait")
            await trio.testing.wait_all_tasks_blocked(0.05)  # the text has been sent
            found = (await runtime.runs(thread_id="th")).runs
            await (await runtime.get(found[0].info.run_id)).cancel(reason="enough")
    end = front.events[-1]
    assert (end["type"], end["code"], end["message"]) == ("RUN_ERROR", "cancelled", "The run was cancelled: enough")


async def test_an_older_client_does_not_judge_by_itself_whether_an_interrupt_has_expired():
    async with gr.open_runtime(agents=[clerk(call("hurry", id="c1"), "done")]) as runtime, gateway(runtime) as address:
        front = OlderFront(address)
        await front.ask("r1", "go")
    (interrupt,) = front.client.interrupts
    assert "expiresAt" not in interrupt
    assert interrupt["metadata"]["greenroom"]["expiresAt"]


async def test_an_older_client_gets_the_open_interrupts_again_when_its_answers_are_refused():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = OlderFront(address)
        await front.ask("r1", "refund both")
        asked = [one["id"] for one in front.client.interrupts]
        events = await front.run("r1", front.answers(YES, YES)[:1])
    assert said(events) == ["interrupts_open"]
    assert [one["id"] for one in events[-1]["outcome"]["interrupts"]] == asked


async def test_a_run_that_an_older_client_has_resumed_finishes_before_its_error():
    """The client keeps the answered interrupts until an AG-UI run finishes, and sends no further message before."""
    helper = clerk(call("refund", order="A", cents=5, id="A"), fail("unauthorized", "no key"))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = OlderFront(address)
        await front.ask("r1", "refund")
        events = parsed((await front.post(front.body("r1", front.answers(YES)))).body)
    assert [event["type"] for event in events][-2:] == ["RUN_FINISHED", "RUN_ERROR"]
    assert events[-1]["code"] == "model_error"


async def test_a_message_behind_one_that_was_answered_with_an_error_begins_a_run_alone():
    helper = clerk(fail("unauthorized", "no key"))
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "first")
        await front.ask("r2", "second")
        runs = [await runtime.get(run.info.run_id) for run in (await runtime.runs()).runs]
        inputs = [(await events_of(run))[0].payload["input"] for run in runs]
    assert inputs == ["second", "first"]


async def test_interrupts_are_answered_where_they_were_asked():
    """The agent in the path is the one that runs; another one's interrupts are not its own."""
    async with gr.open_runtime(agents=[two_refunds(), clerk("x", key="other")]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        events = parsed((await front.post(front.body("r2", front.answers(YES, YES)), key="other")).body)
        assert events[-1]["code"] == "unknown_target"
        await front.run("r3", front.answers(YES, YES))
        assert front.client.outcome == "success"


async def test_a_page_that_asks_nothing_new_receives_the_newest_run_again_as_far_as_it_has_come():
    """Its messages may be those of a stream that was cut anywhere, or of long ago: no message comes twice."""
    helper = clerk([think("hm"), text("Two."), *(call("refund", order=n, cents=5, id=f"c{n}") for n in "12")], "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        waiting, asked = list(front.client.messages), front.client.interrupts
        cut = [waiting[0], *(one | {"content": one["content"][:1]} for one in waiting[1:3])]
        for messages in (cut, waiting, waiting[:1]):
            front.client.messages = messages
            await front.run("r2" if len(messages) > 1 else "r1")
            assert front.client.messages == waiting
            assert front.client.interrupts == asked
        await front.run("r3", front.answers(YES, YES))
        done = list(front.client.messages)
        for messages in (cut, waiting, done):
            front.client.messages = messages
            await front.run("r4")
            assert front.client.messages == done
            assert front.client.outcome == "success"
        assert len((await runtime.runs()).runs) == 1


async def test_several_new_messages_begin_one_run():
    helper = clerk("hello")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u1", "hi")
        front.say("u2", [{"type": "text", "text": "it is "}, {"type": "text", "text": "me"}])
        await front.run("r1")
        assert (await events_of(await runtime.get(front.run_of_ours)))[0].payload["input"] == "hi\n\nit is me"
    assert [message["id"] for message in front.client.messages[:2]] == ["u1", "u2"]


# --- what is answered RUN_ERROR --------------------------------------------------------------------------------------

T1, T2 = "{run}.t1", "{run}.t2"
WRONG = {
    "one is left out": ([answer(T1, YES)], "interrupts_open"),
    "no answer at all": (None, "interrupts_open"),
    "one that never was": ([answer(T1, YES), answer(T2, YES), answer("{run}.t3", YES)], "unknown_target"),
    "of no run": ([answer("t1", YES)], "unknown_target"),
    "of two runs": ([answer(T1, YES), answer("run_x.t2", YES)], "unknown_target"),
    "twice": ([answer(T1, YES), answer(T1, YES), answer(T2, YES)], "bad_message"),
    "not said whether": ([answer(T1, YES), answer(T2, {"reason": "x"})], "bad_message"),
    "not true and not false": ([answer(T1, YES), answer(T2, {"approved": "yes"})], "bad_message"),
    "misspelt": ([answer(T1, YES), answer(T2, {**YES, "editedArguments": {}})], "bad_message"),
    "no object": ([answer(T1, YES), answer(T2, "yes")], "bad_message"),
    "arguments that do not fit": ([answer(T1, YES), answer(T2, {**YES, "editedArgs": {}})], "invalid_arguments"),
    "another action": (
        [answer(T1, YES), answer(T2, {**YES, "approvedActionFingerprint": "f"})],
        "fingerprint_mismatch",
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_answers_that_do_not_fit_are_reported_and_none_of_them_acts(case):
    resume, code = WRONG[case]
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        run_id, asked = front.run_of_ours, front.client.interrupts
        before = await runtime.store.events(run_id, limit=1000)
        if resume is None:
            front.say("u2", "never mind")
        else:
            resume = json.loads(json.dumps(resume).replace("{run}", run_id))
        events = await front.run("r2", resume)
        assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
        assert events[-1]["code"] == code
        assert await runtime.store.events(run_id, limit=1000) == before
        assert len((await runtime.runs()).runs) == 1
        front.client.interrupts = asked
        front.client.messages = [message for message in front.client.messages if message["id"] != "u2"]
        await front.run("r3", front.answers(YES, YES))
        assert front.results == {"c1": "paid 5 for 1", "c2": "paid 5 for 2"}


async def test_an_answer_that_says_something_else_than_before_is_refused():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        other = front.body("r3", front.answers(YES, None))
        await front.run("r2", front.answers(None, YES))
        events = parsed((await front.post(other)).body)
        assert events[-1]["code"] == "already_decided"
    assert front.results["c2"] == "paid 5 for 2"


async def test_a_ticket_that_was_decided_elsewhere_can_be_left_behind():
    """Else the client, which must answer all that it was asked, could never continue."""
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        run, asked = await runtime.get(front.run_of_ours), front.client.interrupts
        await run.decide(asked[0]["id"], "cancel", reason="the console said no")
        events = await front.run("r2", front.answers(YES, YES))
        assert events[-1]["code"] == "already_decided"
        front.client.interrupts = asked
        await front.run("r3", front.answers(None, YES))
    assert front.client.outcome == "success"
    assert front.results == {"c1": "The reviewer denied this call: the console said no", "c2": "paid 5 for 2"}


async def test_an_interrupt_that_has_expired_can_be_cancelled_and_no_more():
    helper = clerk(call("hurry", id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "go")
        asked = front.client.interrupts
        assert "expiresAt" in asked[0]
        await (await runtime.get(front.run_of_ours)).result()
        events = await front.run("r2", front.answers(YES))
        assert events[-1]["code"] == "expired"
        front.client.interrupts = asked
        await front.run("r3", front.answers(None))
    assert front.client.outcome == "success"
    assert front.results == {"c1": "The approval expired: no decision came in time."}


async def test_a_request_without_a_question_is_reported():
    async with gr.open_runtime(agents=[clerk("hello")]) as runtime, gateway(runtime) as address:
        front = Front(address)
        events = await front.run("r1")
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "unprocessable")
        front.client.messages.append({"id": "a1", "role": "assistant", "content": "hello, who are you?"})
        events = await front.run("r2")
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "unprocessable")
        assert (await runtime.runs()).runs == ()


# --- messages to a run that has begun --------------------------------------------------------------------------------


@pytest.mark.parametrize("on_new_input", ["queue", "supersede"])
async def test_a_message_that_comes_with_answers_goes_to_the_run(on_new_input):
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done", "fine", on_new_input=on_new_input)
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund")
        body = front.body("r2", front.answers(YES))
        body["messages"].append({"id": "u2", "role": "user", "content": "and be quick"})
        front.say("u2", "and be quick")
        await front.run("r2", body["resume"])
        again = parsed((await front.post(body)).body)
        assert len((await runtime.runs()).runs) == 1
    assert again == front.events
    assert front.results == {"c1": "paid 5 for 1"}
    assert front.contents("user") == ["refund", "and be quick"]
    said = [message.content for message in helper.model.requests[-1].messages if message.role == "user"]
    assert said == ["refund", "and be quick"]


async def test_a_blank_message_is_refused_alone_and_passed_over_beside_answers():
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u0", " ")
        assert (await front.post(front.body("r0"))).status == 422
        await front.ask("r1", "refund")
        body = front.body("r2", front.answers(YES))
        body["messages"].append({"id": "u2", "role": "user", "content": " "})
        events = parsed((await front.post(body)).body)
        assert events[-1]["type"] == "RUN_FINISHED"
        assert "run.input.received" not in [
            event.type for event in await events_of(await runtime.get(front.run_of_ours))
        ]


async def test_a_message_that_comes_when_the_run_has_ended_begins_the_next_one():
    """An interrupt expires, the run ends without the page, and its user continues with something else."""
    helper = clerk(call("hurry", id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "go")
        await (await runtime.get(front.run_of_ours)).result()
        front.say("u2", "something else")
        body, asked = front.body("r2", front.answers(None)), front.client.interrupts
        events = await front.run("r2", body["resume"])
        assert parsed((await front.post(body)).body) == events
        assert len((await runtime.runs()).runs) == 2
        assert front.client.outcome == "interrupt"
        assert front.client.interrupts != asked
        assert [message["role"] for message in front.client.messages] == [
            *("user", "assistant", "tool", "assistant"),
            *("user", "assistant"),
        ]
    assert front.contents("user") == ["go", "something else"]
    assert front.contents("assistant") == ["done"]


async def test_a_client_that_sends_no_history_receives_the_whole_run():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
        front.client.messages.clear()
        await front.run("r2", front.answers(YES, YES))
        run = front.run_of_ours
    assert [message["id"] for message in front.client.messages if message["role"] != "tool"] == [
        f"{run}.m{n}" for n in (1, 2, 5)
    ]
    assert front.contents("user") == ["refund both"]


async def test_input_from_elsewhere_is_a_message_of_the_user():
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund")
        await (await runtime.get(front.run_of_ours)).send("from the console")
        await front.run("r2", front.answers(YES))
    assert front.contents("user") == ["refund", "from the console"]
    assert [message["role"] for message in front.client.messages][-1] == "assistant"


@pytest.mark.parametrize("kind", [Front, OlderFront])
async def test_a_run_that_was_started_elsewhere_is_followed_and_answered(kind):
    """The page has the thread and no message; it may lose the stream, and ask again with what it has received."""
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        run = await runtime.start("helper", "refund both", thread_id="th", run_id="elsewhere")
        await run.wait()
        front = kind(address)
        await front.run("r1")
        assert (front.run_of_ours, front.contents("user")) == ("elsewhere", ["refund both"])
        asked, waiting = front.client.interrupts, list(front.client.messages)
        front.client.messages = waiting[:1]  # the user's message is not the page's own: it starts nothing
        await front.run("r2")
        assert (front.client.messages, front.client.interrupts) == (waiting, asked)
        await front.run("r3", front.answers(YES, YES))
        assert front.client.outcome == "success"
        assert front.results == {"c1": "paid 5 for 1", "c2": "paid 5 for 2"}
        assert len((await runtime.runs()).runs) == 1


async def test_a_text_from_elsewhere_that_is_the_newest_message_is_not_sent_again():
    helper = clerk(call("refund", order="1", cents=5, id="c1"), "done")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund")
        run = await runtime.get(front.run_of_ours)
        await run.send("from the console")
        await front.run("r2", front.answers(YES))
        done = list(front.client.messages)
        assert done[-2]["content"] == "from the console"
        front.client.messages = done[:-1]  # the stream broke there
        await front.run("r3")
        assert front.client.messages == done
        inputs = [event for event in await events_of(run) if event.type == "run.input.received"]
        assert (len(inputs), len((await runtime.runs()).runs)) == (1, 1)


async def test_a_thread_without_a_run_has_nothing_to_send():
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        (*_, end) = await front.run("r1")
        assert (end["type"], end["code"]) == ("RUN_ERROR", "unprocessable")
        assert "the thread has no run" in end["message"]
        assert not (await runtime.runs()).runs


# --- HTTP ------------------------------------------------------------------------------------------------------------

BAD = [
    ({"threadId": 7}, "input.threadId"),
    ({"runId": None}, "input.runId"),
    ({"messages": {"id": "u"}}, "input.messages"),
    ({"messages": [{"role": "user", "content": "x"}]}, "input.messages[0].id"),
    ({"messages": [{"id": "u", "role": "robot", "content": "x"}]}, "input.messages[0]"),
    ({"messages": [{"id": "u", "role": "user", "content": 5}]}, "input.messages[0]"),
    ({"messages": [{"id": "t", "role": "tool", "content": "x"}]}, "input.messages[0]"),
    ({"messages": [{"id": "u", "role": "user"}]}, "input.messages[0]"),
    ({"messages": ["hi"]}, "input.messages[0]"),
    ({"messages": [{"id": "", "role": "user", "content": "x"}]}, "input.messages[0]"),
    ({"tools": [1]}, "input.tools[0]"),
    ({"threadId": ""}, "input"),
    ({"resume": {"interruptId": "i", "status": "resolved"}}, "input.resume"),
    ({"resume": [{"interruptId": "i", "status": "approved"}]}, "input.resume[0]"),
    ({"resume": [{"status": "resolved"}]}, "input.resume[0].interruptId"),
    ({"tools": "none"}, "input.tools"),
]


async def test_a_field_of_the_wrong_kind_is_refused_and_named():
    async with gr.open_runtime(agents=[clerk("x")]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u", "hi")
        for wrong, named in BAD:
            reply = await front.post(front.body("r", **wrong))
            assert (reply.status, reply.json()["error"]["code"]) == (400, "bad_message"), wrong
            assert reply.json()["error"]["message"].endswith(f"@ {named}"), reply.json()
        assert (await runtime.runs()).runs == ()


async def test_what_is_not_known_is_passed_over_and_nulls_are_as_good_as_nothing():
    async with gr.open_runtime(agents=[clerk("hello")]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.client.messages += [
            {"id": "a0", "role": "assistant", "content": None, "toolCalls": None, "mood": "good"},
            {"id": "x0", "role": "activity", "activityType": "chart", "content": {"a": 1}},
        ]
        front.say("u1", "hi")
        body = front.body("r1", future={"a": 1}, resume=None, parentRunId="r0", state=None)
        body["messages"] = [*front.client.messages]
        reply = await front.post({**body, "resume": None})
        events = parsed(reply.body)
        check(events, thread_id="th", run_id="r1")
    assert events[0]["parentRunId"] == "r0"
    assert events[-1]["outcome"] == {"type": "success"}


async def test_what_cannot_be_is_refused_with_a_status():
    async with gr.open_runtime(agents=[clerk("x")]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u", [{"type": "image", "source": {"type": "file", "value": "file-7"}}])
        assert (await front.post(front.body("r"))).status == 422
        assert (await front.post(front.body("r"), key="nobody")).status == 404
        assert (await front.post(b"[1]")).status == 400
        front.client.messages.clear()
        front.say("u", "hi")
        assert (await front.post(front.body("r", threadId="a/b"))).status == 422
        many = [{"id": f"u{n}", "role": "user", "content": "x"} for n in range(40)]
        assert (await front.post(front.body("r", messages=many))).status == 422
        front.token = "not-a-token-of-anybody"
        assert (await front.post(front.body("r"))).status == 401
        assert (await runtime.runs()).runs == ()


async def test_a_principal_sees_and_does_what_it_may():
    ann = Principal(name="ann", token=TOKEN, scopes={"follow", "start"}, sees=lambda info: info.by == "ann")
    bob = Principal(name="bob", token=OTHER, scopes={"follow", "start", "decide"}, sees=lambda info: info.by == "bob")
    async with gr.open_runtime(agents=[two_refunds()]) as runtime, gateway(runtime, principals=[ann, bob]) as address:
        front, other = Front(address), Front(address, token=OTHER)
        await front.ask("r1", "refund both")
        asked = front.answers(YES, YES)
        events = await front.run("r2", asked)
        assert events[-1]["code"] == "not_allowed"
        events = await other.run("r3", asked)
        assert events[-1]["code"] == "unknown_target"
        other.say("u", "hi")
        assert (await other.post(other.body("r4"))).status == 403
        events = await Front(address, thread="another").run("r5", asked)
        assert events[-1]["code"] == "unknown_target"
        run = await runtime.get(front.run_of_ours)
        assert not payloads(await events_of(run, until="rest"), "approval.resolved")


# --- life and death of the server ------------------------------------------------------------------------------------


async def test_answers_find_their_run_after_a_restart(tmp_path):
    async with gr.open_runtime(tmp_path / "runs.db", agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front = Front(address)
        await front.ask("r1", "refund both")
    async with gr.open_runtime(tmp_path / "runs.db", agents=[two_refunds()]) as runtime, gateway(runtime) as address:
        front.address = address
        await front.run("r2", front.answers(YES, None))
    assert front.client.outcome == "success"
    assert front.results == {"c1": "paid 5 for 1", "c2": "The reviewer denied this call."}


async def test_a_stream_is_closed_when_the_server_stops_and_reported_again_when_it_is_back(tmp_path):
    helper = clerk([text("a long"), delay(3600)], "the end")
    async with gr.open_runtime(tmp_path / "runs.db", agents=[helper], drain=0.1) as runtime, AsyncExitStack() as stack:
        async with gateway(runtime) as address:
            front = Front(address)
            front.say("u1", "tell me")
            reader = await stack.enter_async_context(reading(front, front.body("r1")))
            await reader.until(b"TEXT_MESSAGE_CONTENT")
        events = parsed(await reader.until(None))
    check(events, thread_id="th", run_id="r1")
    assert events[-1]["code"] == "closing"
    async with gr.open_runtime(tmp_path / "runs.db", agents=[clerk("the end")]) as runtime:
        async with gateway(runtime) as front.address:
            await front.run("r1")
    assert front.client.outcome == "success"
    assert front.contents("assistant") == ["the end"]


async def test_closing_the_connection_does_not_cancel_the_run():
    release = trio.Event()

    @gr.tool
    async def wait() -> str:
        await release.wait()
        return "waited"

    helper = agent(call("wait", id="c1"), "done", tools=[wait])
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        front = Front(address)
        front.say("u1", "wait")
        async with reading(front, front.body("r1")) as reader:
            await reader.until(b"TOOL_CALL_END")
        (summary,) = (await runtime.runs()).runs
        run = await runtime.get(summary.info.run_id)
        release.set()
        assert isinstance(await run.result(), gr.Completed)
        await front.run("r1")
    assert front.results == {"c1": "waited"}


async def test_a_run_without_an_owner_is_reported(tmp_path):
    """It was started with dependencies of its own, and after the restart no provider can give it any."""
    async with gr.open_runtime(tmp_path / "runs.db", agents=[two_refunds()], deps=lambda _: "deps") as runtime:
        async with gateway(runtime) as address:
            front = Front(address)
            await front.ask("r1", "refund both")

    def none(info: Any) -> Any:
        raise LookupError("gone")

    async with gr.open_runtime(tmp_path / "runs.db", agents=[two_refunds()], deps=none) as runtime:
        async with gateway(runtime) as front.address:
            events = await front.run("r2", front.answers(YES, YES))
    assert events[-1]["code"] == "degraded"
