"""The history of a thread in units: a message alone, or a message with calls and the answers to them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ..contract.converters import converter
from ..contract.messages import Message
from ..state.snapshot import StateValue

PART_TOKENS: Final = 1_000
"""Tokens of an image or a file, as an estimate: providers count 700 to 1,600 for an image of usual size."""
Unit = tuple[Message, ...]
"""Messages that a provider takes only together."""


def units(messages: Iterable[Message]) -> list[Unit]:
    """Return the units of a history, in order."""
    out: list[list[Message]] = []
    open_calls: set[str] = set()
    for message in messages:
        if out and message.call_id in open_calls:
            out[-1].append(message)
        else:
            out.append([message])
            open_calls = {call.call_id for call in message.calls}
    return [tuple(unit) for unit in out]


def closed(messages: Iterable[Message], ids: Collection[str]) -> tuple[str, ...]:
    """Return these ids with those of all messages that belong to one of them, in the history's order."""
    return tuple(message.id for unit in units(messages) if any(one.id in ids for one in unit) for message in unit)


def inherited_history(thread: Sequence[Message], cell: StateValue | None) -> Sequence[Message]:
    """Return what the agent of a handoff reads of a thread.

    Args:
        thread: whole.
        cell: the value of `INHERITED`.
    """
    messages = None if cell is None else cell.value["messages"]
    if cell is None or messages is None:
        return thread
    after = next((at for at, message in enumerate(thread, 1) if message.id == cell.value["after"]), 0)
    return [*converter.structure(messages, tuple[Message, ...]), *thread[after:]]


def repaired(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages without calls that have no answer, and without answers that have no call.

    The answers to a message's calls follow that message; a provider refuses a history of any other form. A message of
    which nothing is left is left out.
    """
    for message, *answers in _with_answers(messages):
        if message.call_id is not None or message.role == "tool":
            continue
        call_ids = {call.call_id for call in message.calls}
        answers_by_call = {
            answer.call_id: answer
            for answer in reversed(answers)
            if answer.call_id is not None and answer.call_id in call_ids
        }
        if len(answers_by_call) < len(message.calls):
            calls = tuple(call for call in message.calls if call.call_id in answers_by_call)
            message = replace(message, calls=calls, provider="", items=())  # noqa: PLW2901 - the items describe all calls
            if not calls and not message.content:
                continue
        yield message
        yield from (answer for answer in answers if answers_by_call.get(answer.call_id or "") is answer)


def _with_answers(messages: Iterable[Message]) -> list[list[Message]]:
    out: list[list[Message]] = []
    for message in messages:
        if out and message.role == "tool":
            out[-1].append(message)
        else:
            out.append([message])
    return out


def estimated_tokens(message: Message) -> int:
    """Return the tokens of a message by a rule of thumb.

    A quarter of the characters of its text and its calls, and `PART_TOKENS` for each image or file.
    """
    size = len(message.content) + sum(len(call.tool) + len(str(dict(call.arguments))) for call in message.calls)
    return -(-size // 4) + PART_TOKENS * len(message.parts)
