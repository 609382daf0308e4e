"""The thread on its way to a provider: what goes back unchanged, and the ids of calls as the wire takes them.

Theory of operation. A provider may want an answer back as it gave it: reasoning, signatures, ids. The items of a
message do that, unless the message is another's or its text or calls have been changed since (redacted, edited, merged,
with invalid arguments): then the items would contradict the thread, and the message is written anew from its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...contract.messages import CallRequest, Message
from ...contract.plain import JSONObject, JSONValue

LONGEST_ID: Final = 40
"""Most characters of a call's id; the smallest limit among the providers (OpenAI chat)."""
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")


class Said(NamedTuple):
    """The content of items: the text, and (id, tool, arguments) of each call."""

    text: str
    calls: Sequence[tuple[str, str, JSONValue]]


class Entry(NamedTuple):
    """A message on its way, with the items to send in place of its text and calls; none: write it from its parts."""

    message: Message
    items: Sequence[JSONObject]


Read = Callable[[Sequence[JSONObject]], Said]
"""Reads items of a provider's own answers."""


class Thread:
    """The messages of a request, and the ids of their calls on the wire.

    Args:
        messages: of the request.
        provider: whose items may be sent.
        read: reads such items.
    """

    def __init__(self, messages: Iterable[Message], provider: str, read: Read) -> None:
        self.entries = tuple(Entry(message, _kept(message, provider, read)) for message in messages)
        self._ids: dict[str, str] = {}
        for message, kept in self.entries:
            if kept:
                found = (call[0] for call in read(kept).calls)
                self._ids |= zip((call.call_id for call in message.calls), found, strict=True)
        used = set(self._ids.values())
        for call_id in _ids(entry.message for entry in self.entries):
            if call_id not in self._ids:
                self._ids[call_id] = _free(_FOREIGN.sub("_", call_id)[:LONGEST_ID] or "call", used)
                used.add(self._ids[call_id])

    def wire_id(self, call_id: str) -> str:
        """Return the id of a call or its result: allowed characters, unique in the request; an item's own id stays."""
        return self._ids[call_id]

    def split(self) -> tuple[str, Sequence[Entry]]:
        """Return the text of all system messages, and the other messages."""
        system = (entry.message.content for entry in self.entries if entry.message.role == "system")
        rest = tuple(entry for entry in self.entries if entry.message.role != "system")
        return "\n\n".join(filter(None, system)), rest

    def tools(self) -> Mapping[str, str]:
        """Return the names of the called tools, by call id."""
        return {call.call_id: call.tool for entry in self.entries for call in entry.message.calls}


def _kept(message: Message, provider: str, read: Read) -> Sequence[JSONObject]:
    if not message.items or message.provider != provider:
        return ()
    text, calls = read(message.items)
    same = text == message.content and [call[1:] for call in calls] == [_said(call) for call in message.calls]
    return message.items if same else ()


def _said(call: CallRequest) -> tuple[str, JSONValue]:
    return call.tool, call.arguments


def _ids(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield from (call.call_id for call in message.calls)
        if message.call_id is not None:
            yield message.call_id


def _free(wish: str, used: set[str]) -> str:
    name, number = wish, 2
    while name in used:
        behind = f"_{number}"
        name, number = wish[: LONGEST_ID - len(behind)] + behind, number + 1
    return name
