"""The pure parts of a remote call: the task as it is told, the memo, and the forms of questions and files."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.backends.a2a_codec import TICKET_TYPE
from greenroom.actors.backends.a2a_forms import attachments_of, input_question, prompt_message
from greenroom.actors.backends.a2a_memo import Memo, answer_id, context_of
from greenroom.actors.backends.a2a_task import ARTIFACTS_LIMIT, PARTS_LIMIT, RESULT_LIMIT, RemoteTask
from greenroom.actors.backends.a2a_values import (
    A2AArtifact,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    ArtifactUpdate,
    Role,
    StatusUpdate,
    TaskState,
)
from greenroom.actors.backends.items import MessageDone, SaidText, Unparsed
from greenroom.actors.contract.json_schema.faults import schema_fault, unusable_schema
from greenroom.actors.contract.parts import MAX_BYTES, Part


def state(name: str, *parts: A2APart, message_id: str = "m") -> A2AStatus:
    message = A2AMessage(message_id=message_id, role=Role.AGENT, parts=parts) if parts else None
    return A2AStatus(state=TaskState[name], message=message)


def said(text: str, name: str = "a", *, append: bool = False) -> ArtifactUpdate:
    artifact = A2AArtifact(artifact_id=name, parts=(A2APart(text=text),))
    return ArtifactUpdate(task_id="t", artifact=artifact, append=append)


def moved(name: str, *parts: A2APart) -> StatusUpdate:
    return StatusUpdate(task_id="t", status=state(name, *parts))


def snapshot(name: str, **texts: str) -> A2ATask:
    artifacts = tuple(A2AArtifact(artifact_id=key, parts=(A2APart(text=text),)) for key, text in texts.items())
    return A2ATask(id="t", status=state(name), artifacts=artifacts)


# --- the task --------------------------------------------------------------------------------------------------------


def test_texts_that_grow_by_turns_are_in_the_log_once():
    """Else a server that sends two artifacts by turns fills the log with the whole texts."""
    task, parts = RemoteTask(), ["a" * 100_000, *"xyxyxyxy"]
    news = [item for turn, text in enumerate(parts) for item in task.feed(said(text, "ab"[turn % 2], append=turn > 1))]
    whole = [item.text for item in news if isinstance(item, MessageDone)]
    assert whole == parts[:-1]
    assert [item.text for item in news if isinstance(item, SaidText)] == parts
    assert [item.text for item in task.complete() if isinstance(item, MessageDone)] == parts[-1:]
    assert task.feed(moved("COMPLETED")) == []
    assert task.result().text == "xxxx"


def test_the_first_parts_of_a_message_count_and_all_of_an_artifact():
    parts = (A2APart(text="x"),) * (PARTS_LIMIT + 5)
    task = RemoteTask()
    task.feed(moved("INPUT_REQUIRED", *parts))
    assert task.words == "\n".join("x" * PARTS_LIMIT)
    task.feed(ArtifactUpdate(task_id="t", artifact=A2AArtifact(artifact_id="a", parts=parts)))
    assert task.result().text == "x" * len(parts)
    answered = RemoteTask()
    answered.feed(A2AMessage(message_id="m", role=Role.AGENT, parts=parts))
    assert answered.result().text == "x" * PARTS_LIMIT


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        (moved("COMPLETED"), moved("COMPLETED"), "second_end"),
        (moved("FAILED"), snapshot("COMPLETED"), "second_end"),
        (moved("COMPLETED"), moved("WORKING"), "after_end"),
        (moved("COMPLETED"), said("x"), "after_end"),
        (snapshot("WORKING"), StatusUpdate(task_id="u", status=state("WORKING")), "another_task"),
        (snapshot("WORKING"), A2AMessage(message_id="m", role=Role.AGENT), "message_after_task"),
        (A2AMessage(message_id="m", role=Role.AGENT), A2AMessage(message_id="n", role=Role.AGENT), "second_message"),
        (A2AMessage(message_id="m", role=Role.AGENT), snapshot("WORKING"), "task_after_message"),
    ],
)
def test_an_item_that_cannot_stand_there_is_a_fault_and_changes_nothing(first, second, rule):
    task = RemoteTask()
    task.feed(first)
    before = task.state
    (fault,) = task.feed(second)
    assert isinstance(fault, Unparsed)
    assert (fault.rule, task.faults, task.state) == (rule, 1, before)


@given(
    pieces=st.lists(st.text(min_size=1, max_size=5), max_size=8),
    cut=st.integers(0, 8),
    ahead=st.integers(0, 8),
)
def test_a_task_that_is_attached_to_anywhere_says_and_comes_to_the_same(pieces, cut, ahead):
    whole, rest = "".join(pieces), pieces[cut:]
    task = RemoteTask("t")
    heard = task.look(snapshot("WORKING", a="".join(pieces[: cut + ahead])))  # ahead of the stream: it does not count
    heard += task.feed(snapshot("WORKING", a="".join(pieces[:cut])))
    for piece in rest:
        heard += task.feed(said(piece, append=True))
    heard += task.feed(moved("COMPLETED"))
    heard += task.look(snapshot("COMPLETED", a=whole))
    assert "".join(item.text for item in heard if isinstance(item, SaidText)) == whole
    assert task.result().text == whole
    assert task.faults == 0


def test_an_artifact_is_a_message_as_soon_as_another_one_begins():
    task = RemoteTask()
    heard = task.feed(said("one", "a")) + task.feed(said("two", "b"))
    assert heard == [SaidText(text="one"), MessageDone(text="one"), SaidText(text="two")]


def test_artifacts_that_an_earlier_attempt_has_told_are_not_told_again():
    first = RemoteTask()
    first.feed(said("one", "a"))
    assert first.complete() == [MessageDone(text="one")]
    assert first.complete() == []
    again = RemoteTask("t", told=first.told)
    assert again.look(snapshot("INPUT_REQUIRED", a="one")) == []
    assert again.feed(said("two", "b")) == [SaidText(text="two")]


def test_an_answered_question_is_no_rest_until_there_was_time_for_the_answer():
    task = RemoteTask("t")
    task.feed(moved("INPUT_REQUIRED", A2APart(text="which?")))
    question = task.question
    task.answer(question)
    assert (task.at_rest, task.asks_again) == (False, True)
    task.answer("")
    assert task.at_rest


def test_a_long_text_is_cut_and_the_result_says_so():
    task = RemoteTask()
    for _ in range(3):
        task.feed(said("x" * (RESULT_LIMIT // 2), append=True))
    result = task.result()
    assert len(result.text) == RESULT_LIMIT
    assert result.notes == (f"The text is longer than {RESULT_LIMIT:,} characters and was cut.",)


def test_too_many_artifacts_and_files_are_left_out_and_named():
    task = RemoteTask()
    for number in range(ARTIFACTS_LIMIT + 5):
        task.feed(said("x", f"a{number}"))
    big = A2APart(raw="A" * 7 * 1024 * 1024, filename="big")
    for number in range(3):
        artifact = A2AArtifact(artifact_id=f"a{number}", parts=(A2APart(text="x"), big))
        task.feed(ArtifactUpdate(task_id="t", artifact=artifact))
    result = task.result()
    assert len(result.files) == 1
    assert [note.split(";")[0] for note in result.notes] == [
        f"There are more than {ARTIFACTS_LIMIT:,} artifacts",
        "There are files and data of more than 12 MiB",
    ]


def test_a_status_may_bring_the_final_text():
    task = RemoteTask()
    task.feed(moved("COMPLETED", A2APart(text="All is well.")))
    assert task.result().text == "All is well."


# --- the memo --------------------------------------------------------------------------------------------------------


def test_a_memo_survives_its_row_and_knows_no_more_than_it_says():
    memo = Memo(sent="s", task="t", asked="input", question="q", told=2)
    assert Memo.of(memo.as_json()) == memo
    assert Memo.of(None) == Memo.of("x") == Memo()
    assert Memo().as_json() == {}


def test_only_a_later_decision_answers_a_question():
    old = gr.Decision(target="a", action="resume", decision_id="d1")
    new = gr.Decision(target="b", action="resume", decision_id="d2")
    memo = Memo(sent="s", asked="input", before="d1")
    assert [memo.is_answered(one) for one in (None, old, new)] == [False, False, True]
    assert not Memo(sent="s").is_answered(new)


def test_ids_are_equal_in_every_attempt_and_differ_between_threads_and_decisions():
    first = gr.Decision(target="t", action="resume", decision_id="d1")
    second = gr.Decision(target="t", action="resume", decision_id="d2")
    assert answer_id("k", first) == answer_id("k", first) != answer_id("k", second)
    assert context_of("t", "a") == context_of("t", "a") != context_of("u", "a")


# --- forms -----------------------------------------------------------------------------------------------------------


def asks(ticket: dict[str, Any]) -> RemoteTask:
    task = RemoteTask("t")
    task.feed(moved("INPUT_REQUIRED", A2APart(text="Decide."), A2APart(data=ticket, media_type=TICKET_TYPE)))
    return task


@pytest.mark.parametrize(
    ("schema", "result", "fits"),
    [
        (None, None, True),
        (None, {"action": "approve"}, True),
        (None, {"action": "yes"}, False),
        ({"type": "integer"}, {"action": "approve", "result": 3}, True),
        ({"type": "integer"}, {"action": "approve", "result": "3"}, False),
        ({"type": "integer"}, None, False),
        ({"type": 7}, {"action": "approve", "result": "anything"}, True),
    ],
)
def test_the_schema_of_an_answer_is_that_of_the_other_ticket_with_its_words(schema, result, fits):
    question = input_question("far", asks({"ticketId": "k", "responseSchema": schema}))
    assert question.response_schema is not None
    assert unusable_schema(question.response_schema) is None
    assert (schema_fault(question.response_schema, result) is None) is fits


def test_a_ticket_that_shows_too_much_is_cut():
    question = input_question("far", asks({"ticketId": "k", "tool": "x", "arguments": {"a": "y" * 100_000}}))
    assert question.parameters == {"tool": "x", "leftOut": "the arguments are too large to be shown"}


def test_a_question_without_words_has_some():
    task = RemoteTask("t")
    task.feed(moved("INPUT_REQUIRED"))
    assert input_question("far", task).message == "It asks for more, and does not say what."


def test_files_that_cannot_be_attachments_are_named():
    files = [
        A2APart(raw=b64encode(b"\x89PNG\r\n\x1a\n").decode(), filename="a/b.png", media_type="IMAGE/PNG"),
        A2APart(raw="", filename="empty.txt"),
        A2APart(raw=b64encode(b"x" * (MAX_BYTES + 1)).decode(), filename="large.bin"),
        A2APart(raw=b64encode(b"<svg/>").decode(), filename="a.svg", media_type="image/svg+xml"),
        *(A2APart(url=f"https://shop.example/{number}") for number in range(20)),
    ]
    attachments, notes = attachments_of(files)
    assert [(one.part.type, one.part.media_type, one.part.name) for one in attachments] == [
        ("image", "image/png", ""),
        ("file", "application/octet-stream", "a.svg"),
    ]
    assert notes[0] == "File 2 (empty.txt, 0 bytes) was left out"
    assert notes[1].startswith("File 3 (large.bin, 8,388,609 bytes)")
    assert notes[2].count("https://") == 10


def test_parts_of_the_input_go_with_the_message():
    linked = Part(type="image", media_type="image/png", url="https://shop.example/a.png")
    file = Part(type="file", media_type="text/csv", size=3, name="a.csv", data=b"tea")
    message = prompt_message("k", "c", "", (linked, file))
    assert [(part.url, part.raw, part.text) for part in message.parts] == [
        ("https://shop.example/a.png", None, None),
        (None, "dGVh", None),
    ]
    with pytest.raises(gr.ToolError, match="are not there any more"):
        prompt_message("k", "c", "", (Part(type="file", media_type="text/csv", size=3),))
