"""Messages for an A2A agent, what it asks as questions to people, and its files as attachments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ..agents.attachments import File, Image
from ..contract.codec import shortened
from ..contract.decisions import Decision, Suspend
from ..contract.json_schema.faults import unusable_schema
from ..contract.parts import MAX_BYTES, MAX_PARTS, UNKNOWN_TYPE, Attachment, Part, detected, is_file_name, is_media_type
from ..contract.plain import JSONObject, JSONValue
from ..errors import ToolError
from .a2a_codec import TICKET_TYPE
from .a2a_memo import Memo
from .a2a_task import QUESTION_LIMIT, RemoteTask
from .a2a_values import A2AInvalid, A2AMessage, A2APart, Role

PARAMETERS_LIMIT: Final = 64 * 1024
"""Most bytes of what a ticket of the other side shows to people, and of the schema of its answer."""
NAMES_LIMIT: Final = 10
"""Most files that a note names."""
_SHOWN: Final = ("tool", "arguments", "reason", "expiresAt", "reviewers")
"""The fields of a ticket of another Greenroom that people see."""


# --- messages --------------------------------------------------------------------------------------------------------


def prompt_message(message_id: str, context_id: str, prompt: str, parts: Iterable[Part]) -> A2AMessage:
    """Return the message that begins the work.

    Raises:
        ToolError: the bytes of an attachment are lost.
    """
    files = tuple(map(_file, parts))
    texts = (A2APart(text=prompt),) if prompt or not files else ()
    return A2AMessage(message_id=message_id, role=Role.USER, context_id=context_id, parts=(*texts, *files))


def _file(part: Part) -> A2APart:
    if part.url:
        return A2APart(url=part.url, media_type=part.media_type)
    if part.data is None:
        raise ToolError(f"the bytes of this {part.type} are not there any more: {part.line()}")
    return A2APart.of_bytes(part.data, media_type=part.media_type, filename=part.name)


def answer_message(message_id: str, context_id: str, memo: Memo, decision: Decision, *, is_ticket: bool) -> A2AMessage:
    """Return the message that brings the decision of a person to the other side.

    Args:
        message_id: Its id.
        context_id: The conversation.
        memo: Tells the task and the question.
        decision: The decision; its result satisfies the schema that the question had.
        is_ticket: The question is a ticket of another Greenroom.
    """
    part = _ticket_answer(memo, decision) if is_ticket else A2APart(text=_text(decision.result))
    return A2AMessage(message_id=message_id, role=Role.USER, context_id=context_id, task_id=memo.task, parts=(part,))


def _ticket_answer(memo: Memo, decision: Decision) -> A2APart:
    own_answer = dict(decision.result) if isinstance(decision.result, dict) else {}
    answer: dict[str, JSONValue] = {"ticketId": memo.question, "action": "approve", **own_answer}
    if memo.fingerprint:
        answer["fingerprint"] = memo.fingerprint
    if decision.reason and "reason" not in answer:
        answer["reason"] = decision.reason
    return A2APart(data=answer, media_type=TICKET_TYPE)


def _text(result: JSONValue) -> str:
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()


# --- questions -------------------------------------------------------------------------------------------------------


def input_question(name: str, task: RemoteTask) -> Suspend:
    """Return the question to people that the other side asks."""
    if not task.tickets:
        words = task.words or "It asks for more, and does not say what."
        return Suspend(reason="user_input", action=f"answer {name}", message=words, response_schema={"type": "string"})
    ticket = task.tickets[0]
    message = ticket.get("message")
    text = message if isinstance(message, str) and message else task.words
    parameters = {field: ticket[field] for field in _SHOWN if field in ticket}
    if len(msgspec.json.encode(parameters)) > PARAMETERS_LIMIT:
        parameters = {
            "tool": shortened(str(ticket.get("tool")), 200),
            "leftOut": "the arguments are too large to be shown",
        }
    return Suspend(
        reason="user_input",
        action=f"answer {name}",
        message=shortened(text or f"May this run? {ticket.get('tool')}", QUESTION_LIMIT),
        parameters=parameters,
        response_schema=_answer_schema(ticket.get("responseSchema")),
    )


def _answer_schema(schema: JSONValue) -> JSONObject:
    """Return the schema of a decision about a ticket: its action words, and a result if the ticket wants one.

    An approval without a result stands for the action alone, if the ticket wants no result.
    """
    properties: dict[str, JSONValue] = {
        "action": {"enum": ["approve", "deny"]},
        "editedArguments": {"type": "object"},
        "reason": {"type": "string"},
    }
    if not isinstance(schema, dict):
        return {"type": ["object", "null"], "properties": properties, "required": ["action"]}
    small = len(msgspec.json.encode(schema)) <= PARAMETERS_LIMIT
    properties["result"] = schema if small and unusable_schema(schema) is None else {}
    return {"type": "object", "properties": properties, "required": ["action"]}


def auth_question(name: str, task: RemoteTask) -> Suspend:
    """Return the question to people when the other side waits for an authorization that it gets elsewhere."""
    words = task.words or "It waits for an authorization."
    return Suspend(reason="external_event", action=f"authorize {name}", message=f"{words}\n\nApprove to look again.")


def unknown_question(name: str, url: str) -> Suspend:
    """Return the question to people when a message may, or may not, have arrived."""
    text = (
        f"A message may, or may not, have arrived at {name} ({url}). Approve to look again, and to send the message"
        " again if no task of it is there; approve with a result to take that; deny to end the call."
    )
    return Suspend(reason="outcome_unknown", action="outcome_unknown", message=text)


# --- files -----------------------------------------------------------------------------------------------------------


def attachments_of(files: Sequence[A2APart]) -> tuple[list[Attachment], list[str]]:
    """Return the files of a result as attachments, and sentences about those that are none."""
    attachments, notes, addresses, total = list[Attachment](), list[str](), list[str](), 0
    for number, part in enumerate(files, 1):
        name = part.filename if is_file_name(part.filename) else ""
        if part.url is not None:
            addresses.append(shortened(part.url, 300))
            continue
        try:
            data = part.content()
        except A2AInvalid:
            notes.append(f"File {number} ({name or 'without a name'}) is not base64, and was left out")
            continue
        if not data or len(attachments) >= MAX_PARTS or total + len(data) > MAX_BYTES:
            notes.append(f"File {number} ({name or 'without a name'}, {len(data):,} bytes) was left out")
            continue
        total += len(data)
        attachments.append(_attachment(data, part.media_type.lower(), name))
    if addresses:
        notes.append(f"Not fetched: {', '.join(addresses[:NAMES_LIMIT])}")
    if len(notes) > NAMES_LIMIT:
        notes = [*notes[:NAMES_LIMIT], f"And {len(notes) - NAMES_LIMIT:,} more"]
    return attachments, notes


def _attachment(data: bytes, media_type: str, name: str) -> Attachment:
    content_type = detected(data)
    if content_type is not None and content_type.startswith("image/"):
        return Image(data)
    fits = is_media_type(media_type) and not media_type.startswith("image/")
    return File(data, media_type=media_type if fits else UNKNOWN_TYPE, name=name or None)
