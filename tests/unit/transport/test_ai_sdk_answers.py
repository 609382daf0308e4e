"""What is read of an AI SDK client's message, and which decisions its answers come to."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from greenroom.actors.contract.decisions import Ticket
from greenroom.transport.frontends.ai_sdk.builder import ToolPart
from greenroom.transport.frontends.ai_sdk.decide import decide, decisions_of
from greenroom.transport.frontends.ai_sdk.request import ReaderPosition, TicketAnswer, read_request
from greenroom.transport.gateway.access import Principal
from greenroom.transport.protocol.codes import Refused
from greenroom.transport.protocol.up import Decide

AT = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Principal(name="ann", token="a-token-of-16-characters")
PLAIN = Ticket(
    ticket_id="r.t1",
    run_id="r",
    call_id="c1",
    tool="pay",
    arguments={},
    fingerprint="f",
    reason="tool_permission",
    requested_at=AT,
)
VALUE = replace(PLAIN, reason="user_input", resume_mode="use_decision_as_tool_result")
FORM = replace(PLAIN, reason="user_input", response_schema={"type": "object"})
EDIT = replace(PLAIN, reason="user_input", resume_mode="pass_decision_to_tool")
UNKNOWN = replace(PLAIN, reason="outcome_unknown")


# --- reading ---------------------------------------------------------------------------------------------------------


def seen(*parts: Any) -> ReaderPosition:
    message = {"id": "r", "role": "assistant", "parts": list(parts)}
    found = read_request({"id": "ch", "messages": [message]}).seen
    assert found is not None
    return found


def tool(**fields: Any) -> dict[str, Any]:
    return {"type": "tool-pay", "toolCallId": "c1", "state": "input-available"} | fields


APPROVAL, DENIAL = ({"id": "r.t1", "approved": approved} for approved in (True, False))
ASKED = {"greenroom": {"ticketId": "r.t1"}}


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        (tool(state="approval-responded", approval=APPROVAL), ("approved", None, None)),
        (tool(state="approval-responded", approval={**DENIAL, "reason": "no"}), ("denied", None, "no")),
        (tool(state="output-available", output=7, callProviderMetadata=ASKED), ("output", 7, None)),
        (tool(state="output-available", output=7, approval={"id": "r.t1"}), ("output", 7, None)),
        (tool(state="output-error", errorText="x", callProviderMetadata=ASKED), ("failed", None, "x")),
        (tool(type="dynamic-tool", state="approval-responded", approval=APPROVAL), ("approved", None, None)),
        (tool(state="approval-responded", approval={"id": "r.t1"}), None),
        (tool(state="approval-responded", approval={"id": 7, "approved": True}), None),
        (tool(state="approval-responded", approval="r.t1"), None),
        (tool(state="approval-requested", approval={"id": "r.t1"}), None),
        (tool(state="output-available", output=7), None),
        (tool(state="output-available", output=7, preliminary=True, callProviderMetadata=ASKED), None),
        (tool(state="output-denied", approval=DENIAL), None),
        (tool(toolCallId=None, state="approval-responded", approval=APPROVAL), None),
        ({"type": "text", "state": "approval-responded", "approval": APPROVAL, "toolCallId": "c1"}, None),
        (7, None),
        ({"type": 7}, None),
    ],
)  # fmt: skip
def test_an_answer_names_its_ticket_and_is_whole_or_it_is_none(part: Any, answer: Any) -> None:
    found = [(one.ticket_id, one.kind, one.value, one.reason) for one in seen(part).answers]
    assert found == ([] if answer is None else [("r.t1", *answer)])


def test_of_two_answers_to_one_ticket_the_last_one_counts() -> None:
    denied = tool(state="approval-responded", approval=DENIAL)
    (answer,) = seen(tool(state="approval-responded", approval=APPROVAL), {**denied, "toolCallId": "c2"}).answers
    assert answer.kind == "denied"


def test_the_parts_of_a_message_are_known_as_their_reader_has_them() -> None:
    part = tool(state="approval-responded", approval=APPROVAL, providerExecuted=True)
    assert seen(part).parts == {
        "c1": ToolPart(state="approval-responded", provider=True, approval="r.t1", approved=True)
    }


@pytest.mark.parametrize(
    ("data", "sequence"),
    [
        ({"runId": "r", "status": "waiting", "sequence": 7}, 7),
        ({"runId": "r", "status": "interrupted", "sequence": 7}, 7),
        ({"runId": "r", "status": "running", "sequence": 7}, None),
        ({"runId": "another", "status": "waiting", "sequence": 7}, None),
        ({"runId": "r", "status": "waiting", "sequence": -1}, None),
        ({"runId": "r", "status": "waiting", "sequence": True}, None),
        ({"runId": "r", "status": "waiting"}, None),
        ("text", None),
    ],
)
def test_a_message_knows_how_far_it_tells_unless_its_stream_was_torn(data: Any, sequence: int | None) -> None:
    assert seen({"type": "data-run", "id": "r", "data": data}).sequence == sequence


def test_message_id_names_the_assistant_message_that_is_continued() -> None:
    first, last = ({"id": name, "role": "assistant", "parts": []} for name in ("r1", "r2"))
    user = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "and?"}]}
    body = {"id": "ch", "messages": [first, last, user]}
    request = read_request({**body, "messageId": "r1"})
    assert (request.user_message, request.seen and request.seen.run_id) == (None, "r1")
    for other in ("u2", "nobody", None):
        request = read_request({**body, "messageId": other})
        assert (request.user_message and request.user_message.text, request.seen and request.seen.run_id) == (
            "and?",
            "r2",
        )


# --- deciding --------------------------------------------------------------------------------------------------------


def answer(kind: Any, **more: Any) -> TicketAnswer:
    return TicketAnswer(ticket_id="r.t1", kind=kind, **more)


NO_GPS = {"error": "no GPS"}


@pytest.mark.parametrize(
    ("ticket", "said", "wishes"),
    [
        (PLAIN, answer("approved", reason="ok"), [("resume", None)]),
        (PLAIN, answer("denied"), [("cancel", None)]),
        (PLAIN, answer("failed", reason="no GPS"), [("cancel", None)]),
        (VALUE, answer("output", value=0), [("resume", 0)]),
        (VALUE, answer("output"), [("resume", None)]),
        (VALUE, answer("denied"), [("cancel", None)]),
        (VALUE, answer("failed", reason="no GPS"), [("resume", NO_GPS), ("cancel", None)]),
        (VALUE, answer("failed"), [("resume", {"error": "the client's tool has failed"}), ("cancel", None)]),
        (FORM, answer("output", value={}), [("resume", {})]),
        (FORM, answer("failed", reason="no GPS"), [("cancel", None)]),
        (EDIT, answer("output", value={"n": 1}), [("resume", {"n": 1})]),
        (EDIT, answer("failed", reason="no GPS"), [("cancel", None)]),
        (UNKNOWN, answer("approved"), [("resume", None)]),
        (UNKNOWN, answer("output", value="paid"), [("resume", "paid")]),
        (UNKNOWN, answer("failed", reason="no GPS"), [("resume", NO_GPS), ("cancel", None)]),
    ],
)
def test_an_answer_comes_to_decisions(ticket: Ticket, said: TicketAnswer, wishes: list[Any]) -> None:
    found = decisions_of(ticket, said)
    assert [(decision.action, decision.result) for decision in found] == wishes
    assert {(decision.run, decision.target, decision.fingerprint, decision.reason) for decision in found} == {
        ("r", "r.t1", "f", said.reason)
    }
    assert found == decisions_of(ticket, said), "the same answer has the same id"
    assert len({one.id for one in found}) == len(found)


@pytest.mark.parametrize(
    ("ticket", "said"),
    [
        (PLAIN, answer("output", value=1)),
        (VALUE, answer("approved")),
        (FORM, answer("approved")),
        (EDIT, answer("approved")),
        (UNKNOWN, answer("output")),
    ],
)
def test_an_answer_of_the_wrong_kind_is_refused(ticket: Ticket, said: TicketAnswer) -> None:
    with pytest.raises(Refused, match=r"r\.t1"):
        decisions_of(ticket, said)


class Desk:
    """An Api that answers commands with refusals, one after the other; None accepts."""

    def __init__(self, *codes: str | None) -> None:
        self.codes, self.asked = list(codes), list[Decide]()

    async def command(self, _: Principal, command: Decide) -> None:
        self.asked.append(command)
        code = self.codes.pop(0)
        if code is not None:
            raise Refused(code, code)


async def decided(desk: Desk, *tickets: Ticket) -> Any:
    answers = [attrs.evolve(answer("failed", reason="no GPS"), ticket_id=ticket.ticket_id) for ticket in tickets]
    return await decide(SimpleNamespace(api=desk), WHO, SimpleNamespace(tickets=tickets), answers)  # type: ignore[arg-type]


async def test_answers_to_closed_tickets_are_not_sent() -> None:
    found = await decided(Desk(), replace(PLAIN, status="denied"))
    assert (found.accepted, found.refused) == (0, {})


@pytest.mark.parametrize("code", ["already_decided", "decision_id_conflict", "run_done", "unknown_target"])
async def test_an_answer_that_comes_too_late_is_no_error(code: str) -> None:
    found = await decided(Desk(code), PLAIN)
    assert (found.accepted, found.refused) == (0, {})


@pytest.mark.parametrize("code", ["store_unavailable", "busy", "closing"])
async def test_what_may_work_later_is_refused_whole_so_that_it_is_sent_again(code: str) -> None:
    with pytest.raises(Refused, match=code):
        await decided(Desk(None, code), PLAIN, replace(PLAIN, ticket_id="r.t2"))


async def test_a_value_that_does_not_fit_gives_way_to_the_next_wish() -> None:
    desk = Desk("invalid_result", None)
    assert (await decided(desk, VALUE)).accepted == 1
    assert [command.action for command in desk.asked] == ["resume", "cancel"]
    desk = Desk("not_allowed")
    found = await decided(desk, VALUE)
    assert (found.accepted, list(found.refused)) == (0, ["r.t1"])
    assert len(desk.asked) == 1
