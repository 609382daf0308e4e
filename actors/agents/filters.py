"""Ready-made input filters for `gr.handoff(..., input_filter=...)`: pure functions of the thread's messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from ..contract.messages import Message

_HEAD: Final = "The conversation before you took over, as numbered records:"


def without_tools(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages without calls and without their answers; a message that had only calls is left out."""
    return tuple(_without_tools(messages))


def _without_tools(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if message.role == "tool":
            continue
        if not message.calls:
            yield message
        elif message.content:
            yield replace(message, calls=())


def nested(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return one user message with the whole conversation as numbered records; nothing of nothing.

    Each text, each call with its arguments, and each result is a separate record, with the facts of its images and
    files, which are parts of the one message. The next agent reads that others have spoken, and takes none of their
    answers for its own.
    """
    thread = tuple(messages)
    lines = [f"{number}. {record}" for number, record in enumerate(_records(thread), 1)]
    if not lines:
        return ()
    parts = tuple(part for message in thread for part in message.parts)
    return (Message(id=f"{thread[-1].id}.nested", role="user", content="\n".join((_HEAD, *lines)), parts=parts),)


def _records(messages: Iterable[Message]) -> Iterator[str]:
    tools: dict[str | None, str] = {}
    for message in messages:
        text = " ".join((*filter(None, [message.content]), *(f"[{part.line()}]" for part in message.parts)))
        if message.role == "tool":
            yield f"result of {tools.get(message.call_id, 'a call')}: {text}"
        elif text:
            yield f"{message.role}: {text}"
        for call in message.calls:
            tools[call.call_id] = call.tool
            yield f"{message.role} calls {call.tool} with {msgspec.json.encode(call.arguments).decode()}"
