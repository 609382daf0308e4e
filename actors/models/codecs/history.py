"""The thread on its way to a provider: ids of calls as the wire takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...contract.messages import Message

LONGEST_ID: Final = 40
"""Most characters of a call's id; the smallest limit among the providers (OpenAI chat)."""
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")


def wire_ids(messages: Iterable[Message]) -> Mapping[str, str]:
    """Return the ids of calls and results on the wire, by call id: allowed characters only, unique in the request."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for call_id in _ids(messages):
        if call_id not in found:
            found[call_id] = _free(_FOREIGN.sub("_", call_id)[:LONGEST_ID] or "call", used)
            used.add(found[call_id])
    return found


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
