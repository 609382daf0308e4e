"""The message of a client as commands to the runtime: the start of a run, decisions about tickets, or input for a run.

| the message | the commands |
|---|---|
| without a taskId | the start of a run, on the thread `contextId` |
| with a taskId and data parts about tickets | a decision each; texts and files beside them are sent to the run |
| with a taskId and other parts | input for the run; a single text may be the result of a ticket |

Other data parts are read as their JSON. A data part is about a ticket if its media type says so, or if it has a
ticketId.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgspec

from greenroom.actors.backends.a2a_codec import CONTENT_TYPE_NOT_SUPPORTED, TICKET_TYPE, A2AFault
from greenroom.actors.backends.a2a_values import A2AInvalid, A2AMessage, A2APart, Role
from greenroom.actors.contract.decisions import ActionWord
from greenroom.actors.contract.parts import type_of_url
from greenroom.actors.contract.plain import JSONObject, JSONValue

from ...protocol.up import Decide, Send, SentAttachment, Start, structure
from . import ids

MOST_PARTS: Final = 1_000
"""Most parts of a message; each costs time on the loop."""
MOST_ANSWERS: Final = 100
"""Most decisions of one message."""
_LARGEST: Final = 2**53
"""The largest whole number up to which a float has every whole number."""
_BETWEEN: Final = "\n\n"
"""Joins the texts of a message."""

_encode = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class SentDecision:
    """A data part that decides a ticket; the fields are those of the frame `decide`."""

    ticket_id: str
    action: ActionWord
    fingerprint: str | None = None
    result: Any = None
    edited_arguments: JSONObject | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class MessageContent:
    """The content of a message.

    Attributes:
        text: The texts, joined.
        attachments: Images and files.
        answers: Decisions.
    """

    text: str
    attachments: tuple[SentAttachment, ...]
    answers: tuple[SentDecision, ...]


def check_count(params: Any) -> None:
    """Check the number of parts before they are read.

    Raises:
        A2AInvalid: There are too many.
    """
    message = params.get("message") if isinstance(params, dict) else None
    parts = message.get("parts") if isinstance(message, dict) else None
    if isinstance(parts, list) and len(parts) > MOST_PARTS:
        raise A2AInvalid(f"{len(parts)} parts; a message has at most {MOST_PARTS:,}")


def read_parts(message: A2AMessage) -> MessageContent:
    """Read the parts of a message.

    Raises:
        A2AInvalid: the message is not the user's, or a part is invalid.
        A2AFault: CONTENT_TYPE_NOT_SUPPORTED.
        Refused: bad_message: a decision is invalid; the text names the field.
    """
    if message.role is not Role.USER:
        raise A2AInvalid(f"role is {message.role.value}; a message to an agent has {Role.USER.value}")
    texts, attachments, answers = list[str](), list[SentAttachment](), list[SentDecision]()
    for index, part in enumerate(message.parts):
        if part.text is not None:
            texts.append(part.text)
        elif part.data is msgspec.UNSET:
            attachments.append(_attachment(part, index))
        elif _is_answer(part):
            answers.append(_answer(part, index))
        else:
            texts.append(_encode(part.data).decode())
    if len(answers) > MOST_ANSWERS or len({answer.ticket_id for answer in answers}) < len(answers):
        raise A2AInvalid(f"{len(answers)} decisions; a message has at most {MOST_ANSWERS}, one for each ticket")
    return MessageContent(text=_BETWEEN.join(texts), attachments=tuple(attachments), answers=tuple(answers))


def start_of(who: str, agent: str, message: A2AMessage, said: MessageContent) -> Start:
    """Return the start of the run of a message without a taskId.

    Raises:
        A2AInvalid: the message decides a ticket.
    """
    if said.answers:
        name = said.answers[0].ticket_id
        raise A2AInvalid(f"the message decides the ticket {name!r:.100}, and names no task; send its taskId")
    run_id = ids.run_of(who, agent, message.message_id)
    return Start(
        id=run_id,
        agent=agent,
        text=said.text,
        attachments=said.attachments,
        run=run_id,
        thread=message.context_id or ids.thread_of(run_id),
        session=ids.session_of(message.message_id),
    )


def decisions_of(run_id: str, message: A2AMessage, answers: Sequence[SentDecision]) -> list[Decide]:
    """Return the decisions of a message; the same message again has the same ones."""
    return [
        Decide(
            id=ids.decision_of(message.message_id, answer.ticket_id),
            run=run_id,
            target=answer.ticket_id,
            action=answer.action,
            result=answer.result,
            edited_arguments=answer.edited_arguments,
            reason=answer.reason,
            fingerprint=answer.fingerprint,
        )
        for answer in answers
    ]


def send_of(run_id: str, message: A2AMessage, said: MessageContent) -> Send:
    """Return the input of a message for a run."""
    name = ids.command_of(message.message_id)
    return Send(id=name, run=run_id, text=said.text, attachments=said.attachments)


def _is_answer(part: A2APart) -> bool:
    return part.media_type == TICKET_TYPE or (isinstance(part.data, dict) and "ticketId" in part.data)


def _answer(part: A2APart, index: int) -> SentDecision:
    if not isinstance(part.data, dict):
        raise A2AInvalid(f"the data of parts[{index}] is not an object; a decision has ticketId and action")
    try:
        data = _whole_numbers(part.data)
    except RecursionError as error:
        raise A2AInvalid(f"the data of parts[{index}] is nested too deeply") from error
    answer: SentDecision = structure(data, SentDecision, f"parts[{index}].data")
    return answer


def _whole_numbers(value: JSONValue) -> JSONValue:
    """Return data with 1 in place of 1.0: the data of protobuf, and so of official clients, has no whole numbers."""
    match value:
        case float() if value.is_integer() and abs(value) <= _LARGEST:
            return int(value)
        case dict():
            return {name: _whole_numbers(item) for name, item in value.items()}
        case list():
            return [_whole_numbers(item) for item in value]
        case _:
            return value


def _attachment(part: A2APart, index: int) -> SentAttachment:
    """Return an image or a file: bytes, or the address of an image, which the provider reads."""
    media_type = part.media_type.partition(";")[0].strip().lower() or None
    name = part.filename or None
    if part.raw is not None:
        text = part.raw.rstrip("=").replace("-", "+").replace("_", "/")
        return SentAttachment(data=text + "=" * (-len(text) % 4), media_type=media_type, name=name)
    address = part.url or ""
    if not address.startswith("data:") and not (media_type or type_of_url(address)).startswith("image/"):
        kind = media_type or "a file"
        text = f"parts[{index}] is the address of {kind}; send its bytes as raw: only images are taken by address"
        raise A2AFault(CONTENT_TYPE_NOT_SUPPORTED, text, metadata={"code": "unprocessable"})
    return SentAttachment(url=address, media_type=media_type, name=name if address.startswith("data:") else None)
