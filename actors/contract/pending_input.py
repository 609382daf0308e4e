"""Input that waits for a step: a run's row holds where it stands, and the inbox holds the texts, once.

A run that works on a long step commits often, and each commit writes the run's row: with the texts in it, a thousand of
them would be written a thousand times. So a store that encodes rows writes `apart(row)`, and hands out `whole(...)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from .decisions import Command
from .ids import message_id
from .messages import Message, Producer
from .rows import RunRow

MAX_INPUTS: Final = 64
"""Texts that may have been sent to one run without a step having heard them; more are answered busy."""
MAX_INPUT_BYTES: Final = 256 * 1024
"""Bytes (UTF-8) of those texts together; one that waits alone may be larger."""


def apart(row: RunRow) -> RunRow:
    """The row without the messages whose texts are in the inbox."""
    if not row.sent:
        return row
    places = {message.id: at for at, message in enumerate(row.pending_input)}
    owner = next(iter(places)).rpartition(".m")[0]
    sent = tuple(replace(one, at=places[message_id(owner, one.number)]) for one in row.sent)
    removed = {one.at for one in sent}
    kept = tuple(message for at, message in enumerate(row.pending_input) if at not in removed)
    return replace(row, pending_input=kept, sent=sent)


def whole(run_id: str, row: RunRow, texts: Mapping[str, str]) -> RunRow:
    """The row with these messages again.

    Args:
        run_id: of the run.
        row: as `apart` made it.
        texts: command id -> the text that it brought.
    """
    if not row.sent:
        return row
    pending = list(row.pending_input)
    for one in row.sent:
        producer = Producer(run_id=run_id, step=one.step)
        name = message_id(run_id, one.number)
        pending.insert(one.at, Message(id=name, role="user", content=texts[one.command_id], producer=producer))
    return replace(row, pending_input=tuple(pending))


def waiting(row: RunRow, unread: Iterable[Command]) -> tuple[int, int]:
    """How many texts wait that were sent, and their bytes: those that the run knows, and those in its inbox."""
    sizes = [one.size for one in row.sent]
    sizes += [text_size(command.text) for command in unread if command.kind == "send"]
    return len(sizes), sum(sizes)


def text_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))
