"""The thread on its way to a provider: what goes back unchanged, and the ids of calls as the wire takes them.

Theory of operation. A provider may want an answer back as it gave it: reasoning, signatures, ids. The items of a
message do that, unless the message is another's or its text or calls have been changed since (redacted, edited, merged,
with invalid arguments): then the items would contradict the thread, and the message is written again from its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from ...contract.messages import CallRequest, Message
from ...contract.plain import JSONObject, JSONValue

LONGEST_ID: Final = 40
"""Most characters of a call's id; the smallest limit among the providers (OpenAI chat)."""
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")


class Said(NamedTuple):
    """The content of items: the text, and (id, tool, arguments) of each call."""

    text: str
    calls: Sequence[tuple[str, str, JSONValue]]


class Entry(NamedTuple):
    """A message on its way.

    Attributes:
        message: the message.
        items: to send in place of its text and calls; none: write it from its parts.
        call_ids: the ids of its calls on the wire, in order.
        result_id: for a result, the id of its call on the wire; "" for every other message.
        tool: for a result, the name of the called tool.
    """

    message: Message
    items: Sequence[JSONObject]
    call_ids: Sequence[str] = ()
    result_id: str = ""
    tool: str = ""


Read = Callable[[Sequence[JSONObject]], Said]
"""Reads items of a provider's own answers."""

IdForm = Callable[[str, int], str]
"""(id of a call, number of the try from 1) -> an id as the wire takes it; another one for each number."""


def usual_id(call_id: str, number: int) -> str:
    """Return an id of the characters that all providers take."""
    wish = _FOREIGN.sub("_", call_id)[:LONGEST_ID] or "call"
    behind = f"_{number}" if number > 1 else ""
    return wish[: LONGEST_ID - len(behind)] + behind


def nine_id(call_id: str, number: int) -> str:
    """Return an id of nine letters and digits, as Mistral demands; its own ids stay as they are."""
    if number == 1 and _NINE.fullmatch(call_id):
        return call_id
    return sha256(f"{call_id} {number}".encode("utf-8", "surrogatepass")).hexdigest()[:9]


class Thread:
    """The messages of a request, and the ids of their calls on the wire.

    The ids of calls are unique in their run. A thread has many runs, and where a model gives no ids, or the same ones
    again, two runs have calls of one id. So each call gets an id of the wire for itself, and a result gets the id of
    the newest call with its id before the result.

    Args:
        messages: The messages of the request.
        provider: whose items may be sent.
        reader: reads such items.
        call_id: The form of the ids on the wire.

    Attributes:
        entries: the messages, each with the wire ids of its calls: allowed characters, unique in the request.
    """

    def __init__(self, messages: Iterable[Message], provider: str, reader: Read, call_id: IdForm = usual_id) -> None:
        rows = [(message, *_kept(message, provider, reader)) for message in messages]
        own: set[str] = set()  # the ids inside of items stay as they are, so that no other call may get one of them
        for place, (message, _, ids) in enumerate(rows):
            if len(set(ids)) < len(ids) or not own.isdisjoint(ids):
                rows[place] = message, (), ()  # the provider has repeated an id: the message is written from its parts
            else:
                own.update(ids)
        self._names = _WireIds(own, call_id)
        self.entries = tuple(self._entries(rows))

    def _entries(self, rows: Iterable[tuple[Message, Sequence[JSONObject], Sequence[str]]]) -> Iterator[Entry]:
        newest: dict[str, tuple[str, str]] = {}  # id of a call -> its id on the wire, and its tool
        for message, items, ids in rows:
            wire_ids = ids or [self._names.free(call.call_id) for call in message.calls]
            for call, wire_id in zip(message.calls, wire_ids, strict=True):
                newest[call.call_id] = wire_id, call.tool
            result_id, tool = "", ""
            if message.call_id is not None:
                if message.call_id not in newest:  # the call was left out of the request
                    newest[message.call_id] = self._names.free(message.call_id), ""
                result_id, tool = newest[message.call_id]
            yield Entry(message, items, tuple(wire_ids), result_id, tool)

    def split(self) -> tuple[str, Sequence[Entry]]:
        """Return the text of all system messages, and the other messages."""
        system = (entry.message.content for entry in self.entries if entry.message.role == "system")
        rest = tuple(entry for entry in self.entries if entry.message.role != "system")
        return "\n\n".join(filter(None, system)), rest


class _WireIds:
    """Gives out ids that are unique in a request."""

    def __init__(self, used_ids: set[str], form: IdForm) -> None:
        self._used = used_ids
        self._form = form
        self._next: dict[str, int] = {}  # the number with which the search for a free id of this name continues

    def free(self, call_id: str) -> str:
        """Return a free id like that of a call: of a thousand calls of one id, each costs the same."""
        wire_id = wish = self._form(call_id, 1)
        number = self._next.get(wish, 2)
        while wire_id in self._used:
            wire_id = self._form(call_id, number)
            number += 1
        self._next[wish] = number
        self._used.add(wire_id)
        return wire_id


def _kept(message: Message, provider: str, reader: Read) -> tuple[Sequence[JSONObject], Sequence[str]]:
    """Return the items that can be sent in place of a message, and the ids of the calls in them."""
    if not message.items or message.provider != provider:
        return (), ()
    text, calls = reader(message.items)
    same = text == message.content and [call[1:] for call in calls] == [_said(call) for call in message.calls]
    return (message.items, [call[0] for call in calls]) if same else ((), ())


def _said(call: CallRequest) -> tuple[str, JSONValue]:
    return call.tool, call.arguments
