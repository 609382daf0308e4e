"""The history of a thread in units: a message alone, or a message with calls and the answers to them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..contract.messages import Message

Unit = tuple[Message, ...]
"""Messages that a provider takes only together."""


def units(messages: Iterable[Message]) -> list[Unit]:
    """Return the units of a history, in order."""
    out: list[list[Message]] = []
    owed: set[str] = set()
    for message in messages:
        if out and message.call_id in owed:
            out[-1].append(message)
        else:
            out.append([message])
            owed = {call.call_id for call in message.calls}
    return [tuple(unit) for unit in out]


def closed(messages: Iterable[Message], ids: Collection[str]) -> tuple[str, ...]:
    """Return these ids with those of all messages that belong to one of them, in the history's order."""
    return tuple(message.id for unit in units(messages) if any(one.id in ids for one in unit) for message in unit)


def estimated_tokens(message: Message) -> int:
    """Return the tokens of a message by a rule of thumb: a quarter of the characters of its text and its calls."""
    size = len(message.content) + sum(len(call.tool) + len(str(dict(call.arguments))) for call in message.calls)
    return -(-size // 4)
