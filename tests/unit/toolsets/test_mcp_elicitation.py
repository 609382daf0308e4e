"""What an attempt keeps for the next one while people answer a server: states, keys, answers."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.toolsets.mcp_elicitation import Round, answer_elicitation, first_round, next_round
from greenroom.actors.toolsets.mcp_forms import ROUNDS
from greenroom.actors.toolsets.mcp_messages import CallArguments, Elicited, ServerAnswer

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 2}}}
PARAMS = {"mode": "form", "message": "Who?", "requestedSchema": SCHEMA}
REQUESTS = {"who": {"method": "elicitation/create", "params": PARAMS}}
CALL = CallArguments(tool="t", arguments={"a": 1}, meta={})


@attrs.define(eq=False)
class Attempts:
    """The attempts of one call: what they keep, and what people say."""

    memo: Any = None
    decision: gr.Decision | None = None
    answers: list[gr.Decision] = attrs.field(factory=list)
    asked: list[gr.Suspend] = attrs.field(factory=list)

    def next(self) -> gr.ToolContext[Any]:
        async def save(memo: object) -> None:
            self.memo = memo

        async def ask(question: gr.Suspend) -> gr.Decision:
            self.asked.append(question)
            return self.answers.pop(0)

        return gr.ToolContext(
            deps=None, run_id="r", thread_id="t", call_id="c", memo=self.memo, decision=self.decision,
            save_memo=save, ask_people=ask,
        )  # fmt: skip

    async def asks(self, before: Round, requests: Any = REQUESTS, state: str | None = "s1") -> gr.Suspend:
        """The server has asked."""
        result = {"resultType": "input_required", "inputRequests": requests}
        with pytest.raises(gr.Suspend) as question:
            await next_round(
                self.next(), "s", before, ServerAnswer(result=result | ({"requestState": state} if state else {}))
            )
        return question.value

    def says(self, result: Any, decision_id: str) -> None:
        self.decision = gr.Decision(target="t", action="resume", result=result, decision_id=decision_id)


@pytest.mark.rule("MC-6")
async def test_the_answer_goes_with_the_state_and_every_later_attempt_sends_the_same():
    attempts = Attempts()
    begun = await first_round(attempts.next(), CALL)
    assert begun == Round(call=CALL)
    question = await attempts.asks(begun)
    assert (question.reason, question.message) == ("user_input", "s asks: Who?")
    attempts.says({"name": "Ada"}, "d1")
    second = await first_round(attempts.next(), CALL)
    responses = {"who": {"action": "accept", "content": {"n": 2, "name": "Ada"}}}
    assert second == Round(call=attrs.evolve(CALL, input_responses=responses, request_state="s1"), number=1)
    attempts.says(None, "d2")  # about the outcome of that attempt, which was cut
    assert await first_round(attempts.next(), CALL) == second


@pytest.mark.rule("MC-6")
async def test_each_round_has_its_own_state_and_answer():
    attempts = Attempts()
    await attempts.asks(Round(call=CALL))
    attempts.says({"name": "Ada"}, "d1")
    second = await first_round(attempts.next(), CALL)
    await attempts.asks(second, state=None)
    assert attempts.memo["round"] == 2
    attempts.says({"name": "Eve"}, "d2")
    third = await first_round(attempts.next(), CALL)
    assert (third.number, third.call.request_state) == (2, None)
    assert third.call.input_responses == {"who": {"action": "accept", "content": {"n": 2, "name": "Eve"}}}


@pytest.mark.rule("MC-6")
@pytest.mark.parametrize("earlier", [None, "d1"])
async def test_a_call_whose_question_was_lost_in_a_crash_begins_at_its_beginning(earlier):
    """The memo was kept, and the process ended before the question was: the newest decision is of another question."""
    attempts = Attempts()
    if earlier is not None:
        attempts.says({"name": "Ada"}, earlier)
    await attempts.asks(Round(call=CALL))
    assert await first_round(attempts.next(), CALL) == Round(call=CALL)


@pytest.mark.rule("MC-6")
async def test_edited_arguments_are_another_call():
    attempts = Attempts()
    await attempts.asks(Round(call=CALL))
    attempts.says({"name": "Ada"}, "d1")
    edited = attrs.evolve(CALL, arguments={"a": 2})
    assert await first_round(attempts.next(), edited) == Round(call=edited)


@pytest.mark.rule("MC-6")
async def test_a_server_may_ask_for_time_but_not_without_end(autojump_clock):
    attempts, now = Attempts(), Round(call=attrs.evolve(CALL, input_responses={"who": {}}))
    wait = ServerAnswer(result={"resultType": "input_required", "requestState": "busy"})
    for number in range(1, ROUNDS + 1):
        now = await next_round(attempts.next(), "s", now, wait)
        assert now == Round(call=attrs.evolve(CALL, request_state="busy"), number=number)
    with pytest.raises(gr.ToolError, match="'s' asks again and again"):
        await next_round(attempts.next(), "s", now, wait)
    assert attempts.memo is None


@pytest.mark.rule("MC-7")
@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (gr.Decision(target="t", action="resume", result={}), {"action": "accept", "content": {"n": 2}}),
        (gr.Decision(target="t", action="cancel", decided_by="ada"), {"action": "decline"}),
        (gr.Decision(target="t", action="cancel", decided_by="clock"), {"action": "cancel"}),
    ],
)
async def test_a_decision_is_the_answer_of_a_session(decision, answer):
    attempts = Attempts(answers=[decision])
    assert await answer_elicitation(attempts.next(), "s", Elicited(params=PARAMS)) == answer
    assert [question.message for question in attempts.asked] == ["s asks: Who?"]


@pytest.mark.rule("MC-7")
async def test_what_people_cannot_be_shown_is_not_asked():
    attempts = Attempts()
    params = {"mode": "url", "message": "Log in.", "url": "http://x.example", "elicitationId": "e"}
    with pytest.raises(gr.ToolError, match="only shown https"):
        await answer_elicitation(attempts.next(), "s", Elicited(params=params))
    assert attempts.asked == []
