"""The request of an AI SDK client: the whole chat in the client's view, of which little is trusted.

Used are the text and the files of a new user message; answers, each of which names its ticket; and the progress of the
continued message, which affects only its reader. Tool names, inputs and histories come from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from greenroom.actors.contract.plain import JSONObject

from ...protocol.codes import Refused
from ...protocol.up import SentAttachment
from .builder import ToolPart

Json = JSONObject
_ANSWERED: Final = ("approval-responded", "output-available", "output-error")


@attrs.frozen(kw_only=True)
class ChatBody:
    """The body of the default transport; further fields (`body` of the transport or the request) are ignored.

    Attributes:
        id: Id of the chat, which is the thread of its runs.
        messages: UI messages, the newest last; the default transport sends all of them.
        trigger: submit-message, or regenerate-message, which is refused: threads are append-only.
        messageId: The message that is answered or continued, if it is not the last one.
    """

    id: str
    messages: Sequence[Any]
    trigger: str = "submit-message"
    messageId: str | None = None  # noqa: N815 - the protocol's name


@attrs.frozen(kw_only=True)
class TicketAnswer:
    """An answer to a ticket.

    Attributes:
        ticket_id: The ticket that the part was shown for.
        kind: approved, denied, output (a value) or failed (the client could not produce a value).
        value: Value of an output.
        reason: Reason of an approval or denial, or the failure.
    """

    ticket_id: str
    kind: Literal["approved", "denied", "output", "failed"]
    value: Any = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ReaderPosition:
    """An assistant message in its reader's view.

    Attributes:
        run_id: Id of the message, which is the run's id.
        answers: The newest answer for each ticket.
        parts: Call id -> tool part.
        sequence: Sequence up to which the message includes the run; None if a torn stream leaves it unknown.
    """

    run_id: str
    answers: tuple[TicketAnswer, ...]
    parts: Mapping[str, ToolPart]
    sequence: int | None


@attrs.frozen(kw_only=True)
class UserMessage:
    """A user message: its id, its text and its files."""

    message_id: str
    text: str
    attachments: tuple[SentAttachment, ...] = ()


@attrs.frozen(kw_only=True)
class ChatRequest:
    """A parsed request.

    Attributes:
        chat: Id of the chat.
        user_message: The user message that starts a run; None if the request continues `seen`.
        seen: The assistant message that is continued, or the last one before `user_message`.
    """

    chat: str
    user_message: UserMessage | None
    seen: ReaderPosition | None


def read_request(data: Json) -> ChatRequest:
    """Parse the body of a request.

    Raises:
        Refused: bad_message: the body is not of the default transport. unprocessable: the request is not possible.
    """
    body = _body(data)
    if body.trigger == "regenerate-message":
        raise Refused("unprocessable", "a chat cannot be regenerated: threads are append-only; send a new message")
    if body.trigger != "submit-message":
        raise Refused("bad_message", f"trigger {body.trigger!r:.40} is not known; send submit-message")
    messages = [_message(index, message) for index, message in enumerate(body.messages)]
    if not messages:
        raise Refused("unprocessable", "there are no messages; the last one must be the user's, or hold decisions")
    continued = next(
        (message for message in messages if message["role"] == "assistant" and message["id"] == body.messageId), None
    )
    last = messages[-1]
    if continued is None and last["role"] == "user":
        earlier = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
        return ChatRequest(chat=body.id, user_message=_asked(last), seen=None if earlier is None else _seen(earlier))
    continued = continued or last
    if continued["role"] != "assistant":
        raise Refused("unprocessable", f"the last message is the {continued['role']:.40}'s; send a user message")
    return ChatRequest(chat=body.id, user_message=None, seen=_seen(continued))


def _body(data: Json) -> ChatBody:
    chat, messages, trigger = data.get("id"), data.get("messages"), data.get("trigger", "submit-message")
    if not isinstance(chat, str) or not chat:
        raise Refused("bad_message", "id is missing: give the chat's id, as the default transport does")
    if not isinstance(messages, list):
        raise Refused("bad_message", "messages is missing: give the chat's UI messages, the newest last")
    if not isinstance(trigger, str):
        raise Refused("bad_message", "trigger: expected a string")
    name = data.get("messageId")
    return ChatBody(id=chat, messages=messages, trigger=trigger, messageId=name if isinstance(name, str) else None)


def _message(index: int, message: Any) -> Json:
    """Return a message with an id, a role, and a list of objects as parts."""
    fine = isinstance(message, dict) and isinstance(message.get("id"), str) and isinstance(message.get("role"), str)
    if not fine or not isinstance(message.get("parts"), list):
        raise Refused("bad_message", f"messages[{index}] is no UI message: it needs id, role and parts")
    parts = [part for part in message["parts"] if isinstance(part, dict) and isinstance(part.get("type"), str)]
    return {**message, "parts": parts}


def _asked(message: Json) -> UserMessage:
    if not message["id"]:
        raise Refused("bad_message", "the user message has no id")
    if any(part["type"] in ("source-url", "source-document") for part in message["parts"]):
        raise Refused("unprocessable", "sources are not taken; send text and files, or let a tool fetch what it needs")
    attachments = tuple(_attachment(part) for part in message["parts"] if part["type"] == "file")
    texts = [part.get("text") for part in message["parts"] if part["type"] == "text"]
    text = "\n".join(text_part for text_part in texts if isinstance(text_part, str))
    if not text.strip() and not attachments:
        raise Refused("unprocessable", "the user message has no text")
    return UserMessage(message_id=message["id"], text=text, attachments=attachments)


def _attachment(part: Json) -> SentAttachment:
    """Return the file of a part: its bytes in a data: address, or the address of an image."""
    url, media_type = part.get("url"), part.get("mediaType")
    if not isinstance(url, str) or not isinstance(media_type, str):
        raise Refused("bad_message", "a part of type file has mediaType and url, both strings")
    if not url.startswith("data:") and not media_type.startswith("image/"):
        raise Refused("unprocessable", f"a file of type {media_type!r:.60} is sent as a data: address")
    name = part.get("filename")
    plain = media_type.partition(";")[0].strip().lower()
    is_file = not plain.startswith("image/") and isinstance(name, str)
    return SentAttachment(media_type=plain, url=url, name=_text(name) if is_file else None)


# --- the assistant's message, as its reader has it -------------------------------------------------------------------


def _seen(message: Json) -> ReaderPosition:
    tools = list(_tools(message))
    answers = {one.ticket_id: one for _, part in tools if (one := _answer(part)) is not None}
    newest = sum(part["type"] == "step-start" for part in message["parts"])
    return ReaderPosition(
        run_id=message["id"],
        answers=tuple(answers.values()),
        parts={part["toolCallId"]: _tool_part(part, earlier=step < newest) for step, part in tools},
        sequence=_sequence(message),
    )


def _tools(message: Json) -> Iterator[tuple[int, Json]]:
    """Yield the tool parts, of known and of dynamic tools, each with the number of its step in the message."""
    step = 0
    for part in message["parts"]:
        step += part["type"] == "step-start"
        is_tool = part["type"].startswith("tool-") or part["type"] == "dynamic-tool"
        if is_tool and isinstance(part.get("toolCallId"), str) and isinstance(part.get("state"), str):
            yield step, part


def _tool_part(part: Json, *, earlier: bool) -> ToolPart:
    approval = _object(part.get("approval"))
    name, approved = approval.get("id"), approval.get("approved")
    return ToolPart(
        state=part["state"],
        provider=part.get("providerExecuted") is True,
        approval=name if isinstance(name, str) else None,
        approved=approved if isinstance(approved, bool) else None,
        earlier=earlier,
    )


def _answer(part: Json) -> TicketAnswer | None:
    """Return the answer in a part, if there is one and it names its ticket."""
    approval, state = _object(part.get("approval")), part["state"]
    ticket = approval.get("id") or _object(_object(part.get("callProviderMetadata")).get("greenroom")).get("ticketId")
    if not isinstance(ticket, str) or state not in _ANSWERED:
        return None
    if state == "approval-responded":
        if not isinstance(approval.get("approved"), bool):
            return None
        kind: Literal["approved", "denied"] = "approved" if approval["approved"] else "denied"
        return TicketAnswer(ticket_id=ticket, kind=kind, reason=_text(approval.get("reason")))
    if state == "output-error":
        return TicketAnswer(ticket_id=ticket, kind="failed", reason=_text(part.get("errorText")))
    if part.get("preliminary") is True:
        return None
    return TicketAnswer(ticket_id=ticket, kind="output", value=part.get("output"))


def _sequence(message: Json) -> int | None:
    for part in message["parts"]:
        data = _object(part.get("data"))
        if part["type"] == "data-run" and data.get("runId") == message["id"] and data.get("status") != "running":
            sequence = data.get("sequence")
            return sequence if type(sequence) is int and sequence >= 0 else None
    return None


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
