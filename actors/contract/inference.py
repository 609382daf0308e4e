"""The model request of a step, as the run row keeps it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from .plain import JSONObject
from .row_forms import Value


class Inference(Value, frozen=True, kw_only=True):
    """The model request in flight, or the one whose answer this step works on.

    Attributes:
        message_id: The id of the assistant message.
        attempt: counts from 1 per step.
        failures: failed requests of this step to this model; an interruption does not count.
        started_at: UTC.
        delay_ms: milliseconds from `started_at` to the request.
        unsure: guardrails decide whether the answered message stays; until then it is not complete.
        stopped: the end of the run has stopped this request; the owner has not reported yet what had arrived.
        text_index, reasoning_index: the next delta's index.
        prefix: the text of broken streams that this request continues; "" if the answer begins again.
        cut_calls: names of the tools whose calls broken streams of this step had begun.
        recovered: requests of this step that continued a text.
        model: 0: the step's own model; else the number of a fallback, from 1.
        truncated: requests of this step that continued an answer that its token limit had cut.
    """

    message_id: str
    attempt: int
    started_at: datetime
    text_index: int = 0
    reasoning_index: int = 0
    failures: int = 0
    delay_ms: int = 0
    prefix: str = ""
    cut_calls: tuple[str, ...] = ()
    recovered: int = 0
    model: int = 0
    truncated: int = 0
    unsure: bool = False
    stopped: bool = False

    @property
    def asked_at(self) -> datetime:
        """When the request is made: in the future during a back-off."""
        return self.started_at + timedelta(milliseconds=self.delay_ms) if self.delay_ms else self.started_at


class ContextMessage(Value, frozen=True, kw_only=True):
    """A message that a hook adds to the request of one step; it does not join the thread.

    Attributes:
        content: the text.
        role: system or user.
        placement: "system" (after the instructions), "session" (before the thread), "conversation" (before the newest
            user message) or "suffix" (last).
        priority: within a placement the lower priority comes first.
    """

    content: str
    role: Literal["system", "user"] = "system"
    placement: Literal["system", "session", "conversation", "suffix"] = "suffix"
    priority: int = 0


class RequestChanges(Value, frozen=True, kw_only=True):
    """Changes by before_inference hooks of the model request of one step.

    Attributes:
        messages: added to the request, in their order within a placement.
        include: only these tools are offered; None: all of the agent's.
        exclude: tools that are not offered.
        settings: override the agent's, field by field.
        model: replaces the agent's, as "provider:name".
        hidden: ids of messages of the thread that are not sent.
        instructions: what the agent's instructions function returned; None if the agent has a text.
    """

    messages: tuple[ContextMessage, ...] = ()
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    settings: JSONObject = msgspec.field(default_factory=dict)
    model: str | None = None
    hidden: tuple[str, ...] = ()
    instructions: str | None = None

    def offers(self, tool: str) -> bool:
        """Return True if the tool is offered in this step."""
        return tool not in self.exclude and (self.include is None or tool in self.include)

    def joined(self, more: RequestChanges) -> RequestChanges:
        """Return both changes merged: `more` wins where only one can count; messages are ordered by priority."""
        include = self.include
        if more.include is not None:
            include = (*(include or ()), *more.include)
        messages = sorted((*self.messages, *more.messages), key=lambda message: message.priority)
        return RequestChanges(
            messages=tuple(messages),
            include=include,
            exclude=(*self.exclude, *more.exclude),
            settings={**self.settings, **more.settings},
            model=more.model or self.model,
            hidden=tuple(dict.fromkeys((*self.hidden, *more.hidden))),
            instructions=self.instructions if more.instructions is None else more.instructions,
        )
