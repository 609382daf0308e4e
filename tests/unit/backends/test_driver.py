"""The driver: a function of the thread, each row of its table, and any thread."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.backends.driver import Driver, new_parts, read_result
from greenroom.actors.contract.messages import CallRequest, Message, Producer
from greenroom.actors.contract.parts import Part

CONFLICT = "conflict: a.txt"


class Elsewhere(gr.backends.Backend):
    """A backend without a program."""

    name = "coder"

    def tool(self) -> gr.Tool[..., Any]:
        @gr.tool(name="coder", effect="delegate")
        async def work(prompt: str) -> str:
            """Work."""
            return prompt

        return work


def read_apply(content: str) -> Any:
    return {"applied": "applied", "conflict": "conflicted"}.get(content.partition(":")[0], "refused")


BARE, APPLYING = Driver(Elsewhere(), "coder"), Driver(Elsewhere(), "coder", read_apply)


class Thread:
    """The messages of a thread, added one by one."""

    def __init__(self, *texts: str, system: str = "") -> None:
        self.messages: list[Message] = []
        self.run = "r"
        self.system = system
        for text in texts:
            self.add("user", text)

    def add(self, role: Any, content: str, **fields: Any) -> "Thread":
        name = f"m{len(self.messages)}"
        producer = Producer(run_id=self.run, step=1)
        self.messages.append(Message(id=name, role=role, content=content, producer=producer, **fields))
        return self

    def worked(self, content: str, tool: str = "coder", **arguments: Any) -> "Thread":
        call = CallRequest(call_id=f"c{len(self.messages)}", tool=tool, arguments=arguments)
        self.add("assistant", "", calls=(call,))
        return self.add("tool", content, call_id=call.call_id)

    def proposed(self, proposal: str = "p1", text: str = "I did it.") -> "Thread":
        return self.worked(json.dumps({"text": text, "proposal": proposal}))

    def applied(self, content: str) -> "Thread":
        return self.worked(content, "apply_changes", proposal="p1")

    def next(self, driver: Driver = APPLYING, **fields: Any) -> tuple[str, Any]:
        """What the driver does: ("text", it), or the tool and its arguments."""
        system = [Message(id="system", role="system", content=self.system)] if self.system else []
        answer = driver.answer(gr.ModelRequest(agent="a", messages=(*system, *self.messages), **fields))
        assert len(answer.calls) + len(answer.text) == 1
        if answer.text:
            return "text", answer.text[0]
        return answer.calls[0].tool, dict(answer.calls[0].arguments)


def test_the_first_prompt_is_what_people_have_sent():
    assert Thread("Do it.", "And this.").next() == ("coder", {"prompt": "Do it.\n\nAnd this."})


def test_instructions_begin_the_prompt_of_a_tool_that_takes_only_a_prompt():
    assert Thread("Do it.", system="Be brief.").next() == ("coder", {"prompt": "Be brief.\n\nDo it."})


def test_instructions_are_apart_for_a_tool_that_takes_them():
    info = gr.ToolInfo(name="coder", description="", schema={"properties": {"prompt": {}, "instructions": {}}})
    given = Thread("Do it.", system="Be brief.").next(tools=(info,))
    assert given == ("coder", {"prompt": "Do it.", "instructions": "Be brief."})


def test_a_result_without_a_proposal_is_the_answer():
    assert Thread("Do it.").worked("Done.").next(BARE) == ("text", "Done.")
    nothing = json.dumps({"text": "Nothing to do.", "proposal": None})
    assert Thread("Do it.").worked(nothing).next() == ("text", "Nothing to do.")


def test_a_proposal_is_to_be_applied_with_the_text_as_its_summary():
    arguments = {"proposal": "p1", "summary": "I did it."}
    assert Thread("Do it.").proposed().next() == ("apply_changes", arguments)


def test_a_text_that_looks_like_a_proposal_is_a_text_where_nothing_can_be_applied():
    content = json.dumps({"text": "x", "proposal": "p1"})
    assert Thread("Do it.").worked(content).next(BARE) == ("text", "x")


def test_what_was_applied_is_said_behind_the_text():
    thread = Thread("Do it.").proposed().applied("applied: a.txt, b.txt")
    assert thread.next() == ("text", "I did it.\n\nApplied: a.txt, b.txt.")


def test_an_answer_of_a_form_is_the_text_alone():
    thread = Thread("Do it.").proposed(text='{"ok": true}').applied("applied: a.txt")
    assert thread.next(output_schema={"type": "object"}) == ("text", '{"ok": true}')


def test_an_apply_of_chosen_files_is_read_behind_the_note_about_its_arguments():
    thread = Thread("Do it.").proposed().applied("(The arguments were changed to {'paths': ['a']}.)\napplied: a")
    assert thread.next() == ("text", "I did it.\n\nApplied: a.")


def test_a_conflict_goes_back_twice_and_leaves_the_proposal_open_the_third_time():
    thread = Thread("Do it.")
    for number in range(3):
        thread.proposed(f"p{number}").applied(CONFLICT)
        does, value = thread.next()
        if number < 2:
            assert (does, CONFLICT in value["prompt"]) == ("coder", True)
    assert does == "text"
    assert value.startswith("I did it.\n\nThe proposal is open")


def test_conflicts_count_since_the_newest_text_of_a_person():
    thread = Thread("Do it.").proposed().applied(CONFLICT).proposed().applied(CONFLICT)
    thread.add("user", "Try again.").proposed().applied(CONFLICT)
    assert thread.next()[0] == "coder"


def test_a_denied_apply_is_answered_by_the_backend():
    does, arguments = Thread("Do it.").proposed().applied("Use pytest instead.").next()
    assert (does, "Use pytest instead." in arguments["prompt"]) == ("coder", True)


def test_a_denied_apply_and_what_was_sent_beside_it_go_to_the_backend_together():
    _, arguments = Thread("Do it.").proposed().applied("Use pytest.").add("user", "And the docs.").next()
    assert arguments["prompt"] == "Your changes were not applied: Use pytest.\n\nAnd the docs."


def test_what_is_sent_meanwhile_goes_to_the_backend_before_anything_is_applied():
    assert Thread("Do it.").proposed().add("user", "And the docs.").next() == ("coder", {"prompt": "And the docs."})


def test_a_later_run_of_the_thread_sends_only_what_is_new():
    thread = Thread("Do it.").worked("Done.").add("assistant", "Done.")
    thread.run = "r2"
    assert thread.add("user", "And this.").next(BARE) == ("coder", {"prompt": "And this."})


def test_the_words_of_other_agents_come_along_with_their_roles():
    thread = Thread("Hi.").add("assistant", "Hello, I am the boss.", calls=())
    thread.run = "r2"
    thread.add("user", "Do it.").worked('{"agent":"coder"}', "transfer_to_coder")
    assert thread.next(BARE) == (
        "coder",
        {"prompt": "user: Hi.\n\nassistant: Hello, I am the boss.\n\nuser: Do it."},
    )


def test_a_handover_with_nothing_but_texts_of_people_is_a_plain_prompt():
    thread = Thread("Do it.").worked('{"agent":"coder"}', "transfer_to_coder")
    assert thread.next(BARE) == ("coder", {"prompt": "Do it."})


def test_the_new_parts_are_those_that_no_call_of_the_backend_has_had():
    def part(name: str) -> Part:
        return Part(type="file", media_type="text/plain", size=1, sha256="0" * 64, name=name)

    thread = Thread().add("user", "Look.", parts=(part("a"), part("b")))
    assert thread.next() == ("coder", {"prompt": "Look."})
    assert [one.name for one in new_parts(thread.messages, "coder")] == ["a", "b"]
    thread.worked("I looked.").add("user", "", parts=(part("c"),)).worked("x", "transfer_to_coder")
    assert [one.name for one in new_parts(thread.messages, "coder")] == ["c"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": 1, "proposal": "p"}', '{"text": "x"}', "{" * 5_000])
def test_a_result_that_is_not_of_the_form_is_a_text(content):
    assert read_result(content) == (content, None)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.text(min_size=1, max_size=5)),
        st.tuples(st.just("worked"), st.sampled_from(["done", '{"text":"t","proposal":"p"}', "{"])),
        st.tuples(st.just("applied"), st.sampled_from(["applied: a", CONFLICT, "no"])),
        st.tuples(st.just("other"), st.text(max_size=5)),
    ),
    max_size=20,
)


@pytest.mark.no_cover
@given(acts=ACTS, driver=st.sampled_from([BARE, APPLYING]))
def test_every_thread_has_one_answer_and_no_text_of_a_person_is_lost(acts, driver):
    thread = Thread("first")
    news = ["first"]
    for kind, value in acts:
        if kind == "user":
            thread.add("user", value)
            news.append(value)
        elif kind == "worked":
            thread.worked(value)
            news = []
        elif kind == "applied":
            thread.applied(value)
        else:
            thread.worked(value, "transfer_to_coder")
    does, value = thread.next(driver)
    assert does in ("text", "coder", "apply_changes")
    assert thread.next(driver) == (does, value)
    if thread.messages[-1].role == "user":
        assert does == "coder"
        assert all(text in value["prompt"] for text in news)
