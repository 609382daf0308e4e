"""The part of a run's row that a store writes: texts that wait for a step are in the inbox, calls in their own rows.

A run in a long step commits often, and each commit writes the run's row: with a thousand texts or calls inside, each of
them would be written a thousand times. So a store that encodes rows writes `apart(row)`, and returns it with its texts
(`whole`) and the calls of its draft (`with_calls`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from .decisions import Command
from .ids import message_id
from .messages import Message, Producer
from .rows import CallRow, JudgedRow, RunRow

MAX_INPUTS: Final = 64
"""Texts that may wait for the next step of one run; further texts are rejected as busy."""
MAX_INPUT_BYTES: Final = 256 * 1024
"""Bytes (UTF-8) of those texts together; a single waiting text may be larger."""


def apart(row: RunRow) -> RunRow:
    """Return the row without the messages whose texts are in the inbox, and without the calls of its draft."""
    if row.draft is not None and row.draft.calls:
        row = replace(row, draft=replace(row.draft, calls=()))
    if not row.sent:
        return row
    places = {message.id: at for at, message in enumerate(row.pending_input)}
    owner = next(iter(places)).rpartition(".m")[0]
    sent_texts = tuple(replace(sent_text, at=places[message_id(owner, sent_text.number)]) for sent_text in row.sent)
    places_of_sent = {sent_text.at for sent_text in sent_texts}
    pending_input = tuple(message for at, message in enumerate(row.pending_input) if at not in places_of_sent)
    return replace(row, pending_input=pending_input, sent=sent_texts)


def whole(run_id: str, row: RunRow, commands: Mapping[str, Command]) -> RunRow:
    """Return the row with these messages again.

    Args:
        run_id: the run.
        row: a result of `apart`.
        commands: command id -> the command with the text and the parts.
    """
    if not row.sent:
        return row
    pending = list(row.pending_input)
    for sent_text in row.sent:
        producer = Producer(run_id=run_id, step=sent_text.step)
        name = message_id(run_id, sent_text.number)
        command = commands[sent_text.command_id]
        message = Message(id=name, role="user", content=command.text, producer=producer, parts=command.parts)
        pending.insert(sent_text.at, message)
    return replace(row, pending_input=tuple(pending))


def with_calls(row: RunRow, calls: Iterable[CallRow]) -> RunRow:
    """Return the row with the calls of its draft again.

    Args:
        row: a result of `apart`.
        calls: The calls of the run, in the model's order; those of other steps, and nested ones, are ignored.
    """
    if row.draft is None or row.draft.calls:  # until version 3 a row has the calls itself
        return row
    requests = tuple(call.requested for call in calls if call.step == row.step and call.parent is None)
    return replace(row, draft=replace(row.draft, calls=requests)) if requests else row


def waiting(row: RunRow | JudgedRow, unread: Iterable[Command]) -> tuple[int, int]:
    """Return how many sent texts wait, and their bytes: in the run's row, and in its unread inbox."""
    sizes = [sent_text.size for sent_text in row.sent]
    sizes += [text_size(command.text) for command in unread if command.kind == "send"]
    return len(sizes), sum(sizes)


def text_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))
