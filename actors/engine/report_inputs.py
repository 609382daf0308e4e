"""The reports of running bodies: the inputs with which a body tells of its work before it ends."""

from __future__ import annotations

import msgspec

from ..contract.parts import Part
from ..contract.plain import JSONObject, JSONValue


class BodySpoke(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body says something: more text of a message (coalesced), or all of it.

    Attributes:
        call_id, attempt: the body.
        number: The number of the message among those of this attempt, from 1.
        text, reasoning: more streamed text; an empty string means no new text of that kind.
        index, reasoning_index: The number of such a delta among those of the message, from 0.
        whole: all of the message, which is complete now; None: it is not.
        ask: number of the request, for its answer; 0: the body awaits none.
    """

    call_id: str
    attempt: int
    number: int
    text: str = ""
    reasoning: str = ""
    index: int = 0
    reasoning_index: int = 0
    whole: str | None = None
    ask: int = 0


class BodyNoted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body notes an event of its own.

    Attributes:
        call_id, attempt: the body.
        type: a key of `NOTES`.
        payload: the fields of the event, as JSON, without the call's id.
        parts: images and files that belong to the event, with their bytes, which join the thread.
        ask: number of the request, for its answer.
    """

    call_id: str
    attempt: int
    type: str
    payload: JSONObject
    parts: tuple[Part, ...] = ()
    ask: int = 0


class BodySaved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A body keeps a memo (JSON) for the next attempt. `ask`: number of the request, for its answer."""

    call_id: str
    attempt: int
    memo: JSONValue
    ask: int = 0


BodyReport = BodySpoke | BodyNoted | BodySaved
"""The reports of running bodies."""
