"""`BodyReports`: what one attempt of a body reports to its run: messages, notes, a memo, and the usage of models.

Theory of operation. Text of an incomplete message goes into buffers, which merge it. A complete message, a note and a
memo are requests to the run's machine: the body awaits that they are durable, so it reports no faster than the store
writes. Usage is counted here, and joins the run with the end of the attempt.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from ..contract.casing import camel
from ..contract.codec import normalise
from ..contract.messages import Usage
from ..contract.plain import JSONObject
from ..contract.sizes import VALUE_LIMIT, measured, too_large
from ..contract.work_events import NOTES
from ..engine.body_inputs import (
    BodyNoted,
    BodyReport,
    BodySaved,
    BodySpoke,
    CallRaised,
    CallReturned,
    CallSuspended,
    ResultRefused,
    Spent,
)
from ..engine.inputs import Input
from ..engine.reports import OF_A_TASK
from ..errors import ToolError
from ..services.children import Children
from ..services.sanitize import InvalidValue, object_of, text_of, usage_of

MEMO_LIMIT: Final = 16_384
"""Most bytes of a memo as JSON: the ids with which another attempt continues, and no data."""
NOTE_LIMIT: Final = 65_536
"""Most bytes of the fields of a note as JSON."""
MOST_MODELS: Final = 16
"""Most models whose usage one attempt counts apart, for their prices."""
_LONGEST_MODEL: Final = 200

Ended = TypeVar("Ended", bound=Input)


class BodyReports:
    """The reports of one attempt of a body.

    Args:
        children: The children of the run.
        call_id: The call, or the background task.
        attempt: The attempt.
        tool: The name of the tool.
        of_task: the body is that of a background task, which reports its usage only.
    """

    def __init__(self, children: Children, call_id: str, attempt: int, tool: str, *, of_task: bool = False) -> None:
        self._children, self._call_id, self._attempt = children, call_id, attempt
        self._tool, self._of_task = tool, of_task
        self._number = 1
        self._usage: dict[str, Usage] = {}

    def __repr__(self) -> str:
        return f"<BodyReports of {self._call_id}, attempt {self._attempt}>"

    # --- messages ----------------------------------------------------------------------------------------------------

    async def say(self, text: str = "", *, reasoning: str = "") -> None:
        """Stream more of the message that the body is saying; waits while too much text waits for the store.

        The message is complete with `complete`; if the body ends before, the message is discarded.

        Raises:
            ToolError: the body is that of a background task.
            TypeError: a text is not a str.
        """
        if self._of_task:
            raise ToolError(OF_A_TASK)
        streams = self._children.spoken.stream((self._call_id, self._attempt, self._number))
        if reasoning:
            await streams.reasoning.put(reasoning)
        if text:
            await streams.text.put(text)

    async def complete(self, text: str) -> None:
        """Complete the message that the body is saying: `text` is all of it, whatever was streamed before.

        Returns when the message is durable.

        Raises:
            ToolError: the text has more than 4 MiB, or the report is refused, with the reason.
            TypeError: the text is not a str.
        """
        if isinstance(text, str) and len(text) > VALUE_LIMIT:
            raise ToolError(f"complete(...): the message cannot be stored: {too_large(len(text))}")
        whole, number = text_of(text), self._number
        self._number += 1  # text that is said meanwhile belongs to the next message
        await self._ask(BodySpoke(call_id=self._call_id, attempt=self._attempt, number=number, whole=whole))

    # --- notes and the memo ------------------------------------------------------------------------------------------

    async def note(self, kind: str, /, **fields: object) -> None:
        """Note an event of the run; returns when the event is durable.

        Args:
            kind: A key of `NOTES`, such as "run.plan.changed".
            fields: The fields of the event, without the call's id.

        Raises:
            ToolError: the kind is unknown, a field is missing, unknown or of a wrong type, the fields have more than
                64 KiB, or the report is refused.
        """
        payload = note_payload(kind, fields)
        await self._ask(BodyNoted(call_id=self._call_id, attempt=self._attempt, type=kind, payload=payload))

    async def save(self, memo: object) -> None:
        """Keep a memo for the next attempt, in place of the one before; returns when the memo is durable.

        Raises:
            ToolError: the memo has no form in JSON, or more than 16 KiB, or the report is refused.
        """
        _check_size(measured(memo, MEMO_LIMIT), MEMO_LIMIT, "save(...): the memo has")
        data, why = normalise(memo)
        if why is not None:
            raise ToolError(f"save(...): the memo cannot be stored ({why}); give plain JSON data")
        _check_size(len(msgspec.json.encode(data)), MEMO_LIMIT, "save(...): the memo has")
        await self._ask(BodySaved(call_id=self._call_id, attempt=self._attempt, memo=data))

    async def _ask(self, report: BodyReport) -> None:
        await self._children.questions.ask(lambda number: replace(report, ask=number))

    # --- usage -------------------------------------------------------------------------------------------------------

    def spend(self, usage: Usage, model: str = "") -> None:
        """Add what a model has used for the body. A body that is cut off reports nothing of that.

        Raises:
            ToolError: the value is not a usage, or the attempt has named more than 16 models.
        """
        try:
            addition, name = usage_of(usage), text_of(model)[:_LONGEST_MODEL]
        except (InvalidValue, TypeError) as error:
            raise ToolError(f"spend(...): {error}") from None
        if name not in self._usage and len(self._usage) >= MOST_MODELS:
            raise ToolError(f"spend(model={name!r}): one body counts at most {MOST_MODELS} models apart")
        self._usage[name] = self._usage.get(name, Usage()) + addition

    @property
    def usage(self) -> tuple[Spent, ...]:
        """The usage so far, of each model."""
        return tuple(Spent(by=self._tool, usage=usage, model=model) for model, usage in self._usage.items())

    def with_usage(self, end: Ended) -> Ended:
        """Return the end of the attempt with the usage."""
        if not self._usage or not isinstance(end, CallReturned | CallRaised | CallSuspended | ResultRefused):
            return end
        return replace(end, usage=self.usage)


def note_payload(kind: str, fields: dict[str, object]) -> JSONObject:
    """Return the fields of a note as they are in its event.

    Raises:
        ToolError: the kind or a field is invalid, or the fields are too large.
    """
    payload_class: Any = NOTES.get(kind) if isinstance(kind, str) else None
    if payload_class is None:
        raise ToolError(f"note({kind!r:.100}): there is no such event; the events are {', '.join(NOTES)}")
    names = [name for name in payload_class.__struct_fields__ if name != "call_id"]
    for name in fields:
        if name not in names:
            raise ToolError(f"note({kind!r}): {name!r:.100} is no field of it; the fields are {', '.join(names)}")
    has = f"note({kind!r}): its fields have"
    _check_size(measured(fields, NOTE_LIMIT), NOTE_LIMIT, has)
    try:
        data = object_of({camel(name): value for name, value in fields.items()}, "the fields")
        own = {"callId": ""} if "call_id" in payload_class.__struct_fields__ else {}
        msgspec.convert({**data, **own}, payload_class)
    except (InvalidValue, msgspec.ValidationError) as error:
        raise ToolError(f"note({kind!r}): {error}") from None
    _check_size(len(msgspec.json.encode(data)), NOTE_LIMIT, has)
    return data


def _check_size(size: int, limit: int, has: str) -> None:
    """Refuse a value of at least `size` bytes that is too large: before it is copied, as far as its size is known.

    Raises:
        ToolError: it exceeds the limit.
    """
    if size > limit:
        raise ToolError(f"{has} {size:,} bytes or more, and at most {limit:,} are kept; give ids, and publish data")
