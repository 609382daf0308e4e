"""One call whose work another server does: each road from the memo to the result, and each fault of the connection."""

import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.backends.a2a_codec import TICKET_TYPE
from greenroom.actors.backends.a2a_task import RemoteTask
from greenroom.actors.backends.a2a_values import A2ATask
from greenroom.actors.errors import ToolError

from ...support.a2a_peer import URL, Fault, Peer, PeerTask, play, served

KEY = "r/c"


@attrs.define(eq=False)
class Caller:
    """The attempts of one call: what they keep, and what they report."""

    peer: Peer
    options: dict[str, Any] = attrs.field(factory=dict)
    memo: Any = None
    attempt: int = 0
    stopped: bool = False
    decision: gr.Decision | None = None
    said: list[str] = attrs.field(factory=list)
    completed: list[str] = attrs.field(factory=list)
    notes: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    printed: list[str] = attrs.field(factory=list)

    async def save(self, memo: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.memo = memo

    async def say(self, text: str = "", *, reasoning: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self.said.append(text)

    async def complete(self, text: str) -> None:
        await trio.lowlevel.checkpoint()
        self.completed.append(text)

    async def note(self, kind: str, /, **fields: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.notes.append((kind, fields))

    async def output(self, text: str) -> None:
        self.printed.append(text)

    async def work(self, prompt: str = "hello") -> Any:
        """Make the next attempt."""
        self.attempt += 1
        context: Any = gr.ToolContext(
            run_id="r",
            thread_id="t",
            call_id="c",
            attempt=self.attempt,
            memo=self.memo,
            decision=self.decision,
            save_memo=self.save,
            reports=self,
            report_output=self.output,
            see_stop=lambda: self.stopped,
        )
        tool = gr.backends.A2A(URL, **self.options).tool()
        return await tool.call(context, {"prompt": prompt})

    async def cut(self, prompt: str, seconds: float) -> None:
        """Make an attempt that ends after some seconds, as one of a process that ends."""
        with trio.move_on_after(seconds) as scope:
            await self.work(prompt)
        assert scope.cancelled_caught

    def decide(self, result: Any = None, name: str = "d1") -> None:
        self.decision = gr.Decision(target="ticket", action="resume", decision_id=name, result=result)


@pytest.fixture
async def peer(nursery: trio.Nursery) -> AsyncIterator[Peer]:
    peer = Peer(nursery)
    with served(peer):
        yield peer


@pytest.fixture
def caller(peer: Peer) -> Caller:
    return Caller(peer)


def failing(code: str, text: str = "") -> Any:
    return pytest.raises(ToolError, match=text, check=lambda error: error.run_code == code)


# --- happy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", [False, True])
@pytest.mark.parametrize("streams", [True, False])
async def test_the_result_of_a_task_is_the_text_of_its_artifact(nursery, autojump_clock, rpc, streams):
    peer = Peer(nursery, rpc=rpc, streams=streams)
    with served(peer):
        caller = Caller(peer)
        assert await caller.work("slow 3") == "0 1 2 "
    assert peer.executed == [KEY]
    assert "".join(caller.said) == "0 1 2 "


@pytest.mark.rule("AB-1")
async def test_the_id_of_a_message_is_kept_before_its_first_byte_and_the_task_with_the_first_item(
    autojump_clock, peer, caller
):
    seen = []
    peer.hooks["stream"] = lambda: seen.append(caller.memo)
    await caller.work()
    assert seen == [{"sent": KEY}]
    assert caller.memo == {"sent": KEY, "task": "t1"}


@pytest.mark.rule("AB-1")
async def test_a_thread_is_one_conversation_there(autojump_clock, peer, caller):
    await caller.work()
    await Caller(peer).work()
    assert len({task.context for task in peer.tasks.values()}) == 1


@pytest.mark.rule("AB-4")
async def test_each_artifact_but_the_last_one_is_a_message_of_the_run_and_the_last_one_is_the_result(
    autojump_clock, peer, caller
):
    async def work(task: PeerTask, message: Any) -> None:
        task.say("I look.", name="a")
        task.say("It is ", name="b")
        task.say("tea.", name="b", append=True)
        task.move("COMPLETED")

    peer._work = work
    assert await caller.work() == "It is tea."
    assert caller.completed == ["I look."]
    assert caller.said == ["I look.", "It is ", "tea."]


@pytest.mark.rule("AB-4")
async def test_files_are_attachments_addresses_are_named_and_data_are_json(autojump_clock, peer, caller):
    async def work(task: PeerTask, message: Any) -> None:
        file = {"raw": "dGVh", "mediaType": "text/csv", "filename": "menu.csv"}
        linked = {"url": "https://shop.example/tea.png", "mediaType": "image/png"}
        task.say("Here.", file, {"raw": "!"}, linked)
        task.move("COMPLETED")

    peer._work = work
    text, menu = await caller.work()
    assert text.startswith("Here.\n\nFile 2 (without a name) is not base64")
    assert text.endswith("Not fetched: https://shop.example/tea.png")
    assert (menu.part.name, menu.part.media_type, menu.part.data) == ("menu.csv", "text/csv", b"tea")


@pytest.mark.rule("AB-4")
async def test_data_without_a_text_are_the_result_as_json(autojump_clock, peer, caller):
    async def work(task: PeerTask, message: Any) -> None:
        task.say("I look.", name="a")
        task.say({"data": {"tea": 3}}, name="b")
        task.move("COMPLETED")

    peer._work = work
    assert await caller.work() == '{"tea":3}'


async def test_an_agent_may_answer_with_a_message_and_no_task(autojump_clock, peer, caller):
    item = b'data: {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi."}]}}\n\n'
    peer.faults["stream"] = [Fault("answer", answer=item, headers={"content-type": "text/event-stream"})]
    assert await caller.work() == "Hi."


@pytest.mark.rule("AB-4")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fail", "it failed: I fail"),
        ("reject", "it rejected the task: I reject"),
        ("cancel", "cancelled by the other side"),
    ],
)
async def test_a_task_that_comes_to_nothing_is_a_failure_with_its_text(autojump_clock, peer, caller, text, sentence):
    with failing("runtime_failed", sentence):
        await caller.work(text)


# --- attempts after the first ----------------------------------------------------------------------------------------


@pytest.mark.rule("AB-2")
async def test_an_attempt_without_a_memo_begins(autojump_clock, peer, caller):
    caller.attempt = 1
    assert await caller.work() == "done: hello"
    assert "list" not in peer.operations


@pytest.mark.rule("AB-2")
@pytest.mark.rule("AB-3")
async def test_an_attempt_with_a_task_attaches_to_the_task(autojump_clock, peer, caller):
    await caller.cut("slow 5", 2.5)
    assert await caller.work("slow 5") == "0 1 2 3 4 "
    assert peer.executed == [KEY]
    assert peer.operations == ["stream", "get", "subscribe", "get"]


@pytest.mark.rule("AB-3")
async def test_a_task_that_is_at_rest_already_is_not_subscribed_to(autojump_clock, peer, caller):
    await caller.cut("slow 2", 1.5)
    await trio.sleep(5)
    assert await caller.work("slow 2") == "0 1 "
    assert "subscribe" not in peer.operations


@pytest.mark.rule("AB-2")
async def test_a_message_whose_task_is_not_known_is_looked_for(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("hang")]
    await caller.cut("slow 2", 1.5)
    assert caller.memo == {"sent": KEY}
    assert await caller.work("slow 2") == "0 1 "
    assert peer.executed == [KEY]


@pytest.mark.rule("AB-2")
@pytest.mark.parametrize("lists", [True, False])
async def test_people_are_asked_about_a_message_that_is_not_found(autojump_clock, peer, caller, lists):
    peer.lists = lists
    caller.memo = {"sent": KEY}
    question = await caller.work()
    assert question.reason == "outcome_unknown"
    assert peer.executed == []
    caller.decide()
    assert await caller.work() == "done: hello"
    assert peer.executed == [KEY]


@pytest.mark.rule("AB-2")
async def test_a_message_that_is_found_after_people_were_asked_is_not_sent_again(autojump_clock, peer, caller):
    caller.memo = {"sent": KEY}
    await caller.work()
    await Caller(peer).work()  # what the process has sent that was frozen meanwhile
    caller.decide()
    assert await caller.work() == "done: hello"
    assert peer.executed == [KEY]


async def test_an_attempt_whose_question_was_not_asked_asks_again(autojump_clock, peer, caller):
    caller.memo = {"sent": KEY, "asked": "unknown"}
    assert (await caller.work()).reason == "outcome_unknown"
    caller.memo, caller.decision = {"sent": KEY, "asked": "unknown", "before": "d1"}, None
    caller.decide(name="d1")
    assert (await caller.work()).reason == "outcome_unknown"
    assert peer.executed == []


async def test_a_task_that_the_server_has_forgotten_is_a_failure(autojump_clock, peer, caller):
    caller.memo = {"sent": KEY, "task": "t9"}
    with failing("runtime_failed", "it does not give its task t9: no such task"):
        await caller.work()


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AB-5")
@pytest.mark.parametrize("keeps_open", [True, False])
async def test_a_question_of_the_other_side_is_durable_and_its_answer_a_text(autojump_clock, peer, caller, keeps_open):
    peer.keeps_open = keeps_open
    question = await caller.work("ask twice")
    assert (question.reason, question.message, question.response_schema) == (
        "user_input",
        "which order?",
        {"type": "string"},
    )
    caller.decide("order 7")
    assert (await caller.work("ask twice")).message == "which order?"
    caller.decide("order 8", "d2")
    assert await caller.work("ask twice") == "done: order 8"
    assert len(peer.executed) == len(set(peer.executed)) == 3
    assert [message["parts"][0]["text"] for message in peer.tasks["t1"].history] == ["ask twice", "order 7", "order 8"]


@pytest.mark.rule("AB-5")
async def test_an_answer_is_not_sent_if_the_other_side_has_gone_on(autojump_clock, peer, caller):
    await caller.work("ask")
    peer.tasks["t1"].say("I went on.")
    peer.tasks["t1"].move("COMPLETED")
    caller.decide("order 7")
    text = await caller.work("ask")
    assert text == "I went on.\n\nThe answer was not sent, because the other side had gone on meanwhile."
    assert peer.executed == [KEY]


@pytest.mark.rule("AB-5")
async def test_an_answer_to_another_question_is_not_sent(autojump_clock, peer, caller):
    await caller.work("ask")
    peer.tasks["t1"].move("INPUT_REQUIRED", "which table?")
    caller.decide("order 7")
    assert (await caller.work("ask")).message == "which table?"
    assert peer.executed == [KEY]


async def test_an_answer_that_may_have_arrived_is_not_sent_again(autojump_clock, peer, caller):
    await caller.work("ask")
    caller.decide("slow 3")
    peer.faults["stream"] = [Fault("hang")]
    await caller.cut("ask", 1.5)
    assert await caller.work("ask") == "0 1 2 "
    assert len(peer.executed) == 2


async def test_people_are_asked_again_if_an_answer_did_not_arrive(autojump_clock, peer, caller):
    await caller.work("ask")
    caller.decide("order 7")
    peer.faults["stream"] = [Fault("lose")]
    assert (await caller.work("ask")).message == "which order?"
    caller.decide("order 7", "d2")
    assert await caller.work("ask") == "done: order 7"
    assert len(peer.executed) == 2


@pytest.mark.rule("AB-5")
async def test_an_authorization_is_an_outside_event_after_which_the_task_is_looked_at(autojump_clock, peer, caller):
    question = await caller.work("auth")
    assert (question.reason, question.message) == ("external_event", "I auth\n\nApprove to look again.")
    caller.decide()
    assert (await caller.work("auth")).reason == "external_event"
    peer.tasks["t1"].say("In.")
    peer.tasks["t1"].move("COMPLETED")
    caller.decide(name="d2")
    assert await caller.work("auth") == "In."


TICKET = {
    "ticketId": "k1",
    "tool": "refund",
    "arguments": {"order": 7},
    "reason": "tool_permission",
    "message": "May I?",
    "fingerprint": "f1",
}


def asking(*tickets: dict[str, Any]) -> Callable[..., Any]:
    async def work(task: PeerTask, message: Any) -> None:
        if len(task.history) > len(tickets):
            task.say("Done.")
            task.move("COMPLETED")
            return
        parts = [{"data": ticket, "mediaType": TICKET_TYPE} for ticket in tickets[len(task.history) - 1 :]]
        task.move("INPUT_REQUIRED", "Decide.", tuple(parts))

    return work


@pytest.mark.rule("AB-5")
@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (None, {"action": "approve"}),
        ({"action": "deny", "reason": "too much"}, {"action": "deny", "reason": "too much"}),
        (
            {"action": "approve", "editedArguments": {"order": 8}},
            {"action": "approve", "editedArguments": {"order": 8}},
        ),
    ],
)
async def test_the_ticket_of_another_greenroom_is_answered_by_a_data_part(autojump_clock, peer, caller, result, answer):
    peer._work = asking(TICKET)
    question = await caller.work()
    assert (question.message, question.parameters["arguments"]) == ("May I?", {"order": 7})
    assert question.response_schema["properties"]["action"] == {"enum": ["approve", "deny"]}
    caller.decide(result)
    assert await caller.work() == "Done."
    (part,) = peer.tasks["t1"].history[1]["parts"]
    assert part == {"data": {"ticketId": "k1", "fingerprint": "f1", **answer}, "mediaType": TICKET_TYPE}


@pytest.mark.rule("AB-5")
async def test_of_several_tickets_the_oldest_is_asked_first(autojump_clock, peer, caller):
    peer._work = asking(
        TICKET, {**TICKET, "ticketId": "k2", "message": "And this?", "responseSchema": {"type": "integer"}}
    )
    assert (await caller.work()).message == "May I?"
    caller.decide()
    question = await caller.work()
    assert (question.message, question.response_schema["properties"]["result"]) == ("And this?", {"type": "integer"})
    caller.decide({"action": "approve", "result": 3}, "d2")
    assert await caller.work() == "Done."


# --- cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AB-6")
async def test_a_cancelled_run_cancels_the_task(autojump_clock, peer, caller):
    with trio.move_on_after(2.5):
        caller.stopped = True
        await caller.work("slow 9")
    assert peer.cancelled == ["t1"]


@pytest.mark.rule("AB-6")
async def test_the_task_of_a_process_that_ends_goes_on(autojump_clock, peer, caller):
    await caller.cut("slow 9", 2.5)
    assert peer.cancelled == []


@pytest.mark.rule("AB-6")
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault("hang"), "it did not answer within 9 s"),
        (Fault("refuse"), "no connection"),
        (Fault("answer", status=403), "status 403"),
    ],
)
async def test_a_task_that_cannot_be_cancelled_is_named(autojump_clock, peer, caller, fault, why, caplog):
    peer.faults["cancel"] = [fault]
    caller.stopped = True
    began = trio.current_time()
    with caplog.at_level(logging.WARNING), failing("outcome_unknown", f"the task t1 of a2a .* may still run: .*{why}"):
        with trio.move_on_after(2.5):
            await caller.work("slow 9")
    assert "may still run" in caplog.text
    assert trio.current_time() - began <= 12.5


@pytest.mark.rule("AB-6")
async def test_the_result_of_a_call_names_the_task_that_may_still_run(autojump_clock, peer):
    peer.faults["cancel"] = [Fault("hang")]
    agent = gr.backends.agent("far", gr.backends.A2A(URL))
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "slow 30")
        await trio.sleep(2)
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
        async with run.events() as events:
            (result,) = [event.payload async for event in events if event.type == "run.tool.result"]
        assert (result["code"], result["result"].partition(":")[0]) == ("outcome_unknown", "the task t1 of a2a (https")
        assert (await runtime.replay(run.id)).equal


@pytest.mark.rule("AB-6")
async def test_a_task_that_has_just_ended_needs_no_cancel(autojump_clock, peer, caller):
    caller.memo, caller.stopped = {"sent": KEY, "task": "t1"}, True
    await Caller(peer).work()
    peer.faults["get"] = [Fault("hang")]
    with trio.move_on_after(1) as scope:
        await caller.work()
    assert scope.cancelled_caught


# --- lost connections ------------------------------------------------------------------------------------------------


@pytest.mark.rule("AB-7")
@pytest.mark.parametrize("kind", ["cut", "end"])
@pytest.mark.parametrize("items", range(7))
async def test_a_stream_that_breaks_at_any_item_costs_nothing(autojump_clock, peer, caller, kind, items):
    peer.faults["stream"] = [Fault(kind, items=items)]
    assert await caller.work("slow 4") == "0 1 2 3 "
    assert peer.executed == [KEY]
    assert "".join(caller.said).endswith("3 ")


@pytest.mark.rule("AB-7")
async def test_a_message_that_surely_did_not_arrive_is_sent_again(autojump_clock, peer, caller):
    seen = []
    peer.hooks["stream"] = lambda: seen.append(caller.memo)
    peer.faults["stream"] = [Fault("refuse"), Fault("answer", status=503), Fault("refuse")]
    assert await caller.work() == "done: hello"
    assert seen == [{"sent": KEY}] * 4
    assert "list" not in peer.operations


@pytest.mark.rule("AB-7")
@pytest.mark.parametrize("fault", [Fault("lose"), Fault("answer", status=504), Fault("refuse")])
async def test_nothing_is_sent_without_a_card_and_nothing_kept(autojump_clock, peer, caller, fault):
    peer.faults["card"] = [fault]
    assert await caller.work() == "done: hello"
    assert peer.operations == ["stream", "get"]


@pytest.mark.rule("AB-7")
async def test_a_message_that_may_have_arrived_is_looked_for(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("cut")]
    assert await caller.work() == "done: hello"
    assert peer.operations[:2] == ["stream", "list"]


@pytest.mark.rule("AB-7")
async def test_people_are_asked_about_a_message_whose_connection_broke_and_which_is_not_there(
    autojump_clock, peer, caller
):
    peer.faults["stream"] = [Fault("lose")]
    assert (await caller.work()).reason == "outcome_unknown"


@pytest.mark.rule("AB-7")
async def test_a_server_that_is_gone_for_a_while_is_waited_for(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("cut", items=2)]
    peer.faults["get"] = [Fault("refuse")] * 12
    began = trio.current_time()
    assert await caller.work("slow 3") == "0 1 2 "
    assert 60 < trio.current_time() - began < 300


@pytest.mark.rule("AB-7")
async def test_a_server_that_is_gone_for_longer_is_offline_and_its_task_is_named(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("cut", items=2)]
    peer.faults["get"] = [Fault("refuse")] * 1_000
    began = trio.current_time()
    with failing("target_offline", "away for 300 s .* its task t1 goes on there"):
        await caller.work("slow 3")
    assert 295 < trio.current_time() - began < 320
    assert len(peer.operations) < 40


async def test_a_stream_that_is_silent_is_helped_by_looks(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("hang", items=1)]
    assert await caller.work("slow 3") == "0 1 2 "
    assert peer.operations == ["stream", "get", "get"]


async def test_a_stream_without_a_first_item_is_helped_by_the_list_of_tasks(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("hang")]
    assert await caller.work("slow 3") == "0 1 2 "
    assert peer.operations[:2] == ["stream", "list"]


async def test_a_server_that_takes_a_message_and_says_nothing_is_left(autojump_clock, peer, caller):
    peer.faults["stream"], peer.lists = [Fault("hang")], False
    caller.options["idle"] = 100
    with failing("run_timeout", "it said nothing for 100 s"):
        await caller.work()
    assert caller.notes[-1][0] == "runtime.timeout"


# --- faults of the other side ----------------------------------------------------------------------------------------


def rules(caller: Caller) -> list[str]:
    return [fields["rule"] for kind, fields in caller.notes if kind == "schema.validation_failed"]


async def test_items_that_break_the_protocol_are_logged_by_kind_and_passed_over(autojump_clock, peer, caller):
    async def work(task: PeerTask, message: Any) -> None:
        task.put({"statusUpdate": {"taskId": "other", "status": {"state": "TASK_STATE_FAILED"}}})
        task.put({"nothing": 1})
        task.put({"statusUpdate": {"taskId": task.id, "status": {"state": "TASK_STATE_BORED"}}})
        task.put({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}})
        task.say("Done.")
        task.move("COMPLETED")

    peer._work = work
    assert await caller.work() == "Done."
    assert rules(caller) == ["another_task", "invalid_item", "invalid_item", "message_after_task"]


async def test_more_than_twenty_faults_end_the_call(autojump_clock, peer, caller):
    async def work(task: PeerTask, message: Any) -> None:
        for _ in range(30):
            task.put({"nothing": 1})
        task.move("COMPLETED")

    peer._work = work
    with failing("schema_validation_failed", "more than 20 times"):
        await caller.work()
    assert len(rules(caller)) == 21


async def test_answers_that_are_none_end_the_call_in_time(autojump_clock, peer, caller):
    peer.faults["stream"] = [Fault("cut", items=1)]
    peer.faults["get"] = [Fault("answer", answer=b"<html>")] * 1_000
    with failing("schema_validation_failed", "more than 20 times"):
        await caller.work("slow 3")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault("answer", status=401), "status 401; check headers="),
        (
            Fault("answer", status=307, headers={"location": "https://else.example/x"}),
            "moved to https://else.example/x",
        ),
        (Fault("answer", headers={"content-encoding": "gzip"}), "content encoding"),
    ],
)
async def test_a_server_that_cannot_be_used_fails_the_run_with_the_way_out(autojump_clock, peer, caller, fault, text):
    peer.faults["stream"] = [fault]
    with failing("runtime_unavailable", text):
        await caller.work()
    assert peer.executed == []
    assert caller.notes[-1][0] == "runtime.unavailable"


async def test_a_message_that_the_server_refuses_is_a_failure(autojump_clock, peer, caller):
    peer._on_stream = lambda params: {"reason": "INVALID_PARAMS", "code": -32602, "text": "too long"}
    with failing("runtime_failed", "it refused the message: too long"):
        await caller.work()


async def test_the_default_agent_of_this_kit_plays(autojump_clock, peer):
    task = PeerTask("t", "c")
    task.history.append({"parts": [{"text": "hello"}]})
    await play(task, task.history[0])
    assert task.state == "COMPLETED"


async def test_an_item_that_is_too_long_for_a_stream_comes_with_the_task_at_its_end(autojump_clock, peer, caller):
    async def work(task: PeerTask, message: Any) -> None:
        task.say("Here.", {"raw": "A" * 4 * 2_200_000, "mediaType": "application/zip", "filename": "tea.zip"})
        task.move("COMPLETED")

    peer._work = work
    text, archive = await caller.work()
    assert (text, archive.part.size) == ("Here.", 3 * 2_200_000)
    assert peer.executed == [KEY]
    assert rules(caller) == ["invalid_answer"]


@pytest.mark.parametrize("streams", [True, False])
async def test_an_item_of_many_parts_is_read_beside_the_loop(nursery, autojump_clock, monkeypatch, streams):
    async def work(task: PeerTask, message: Any) -> None:
        task.say(*["word "] * 30_000)
        task.move("COMPLETED")

    readers = list[tuple[int, int]]()
    put = RemoteTask._take_all

    def seen(self: RemoteTask, task: A2ATask) -> Any:
        readers.append((threading.get_ident(), sum(len(artifact.parts) for artifact in task.artifacts)))
        return put(self, task)

    monkeypatch.setattr(RemoteTask, "_take_all", seen)
    peer = Peer(nursery, streams=streams)
    peer._work = work
    with served(peer):
        assert await Caller(peer).work() == "word " * 30_000
    large = [reader for reader, size in readers if size == 30_000]
    assert large
    assert threading.get_ident() not in large
