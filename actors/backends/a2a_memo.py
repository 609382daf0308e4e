"""The memo of a call whose work another server does: with it, another attempt knows what was sent. Pure.

Theory of operation. The memo is kept before the first byte of a message leaves, and again with the first news of the
task. So an attempt without a memo has sent nothing; one with a task attaches to the task; and one in between looks for
its message among the tasks of its conversation. A question to people is kept before it is asked, with the newest
decision of that time: only a later decision answers the question.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

from ..contract.decisions import Decision
from ..contract.ids import content_digest
from ..contract.plain import JSONObject

Asked = Literal["", "input", "auth", "unknown"]
"""What people were asked: for input of the other side, for an outside event, or whether a message may be sent again."""
CONTEXT_SIZE: Final = 32


@attrs.frozen(kw_only=True)
class Memo:
    """What is known about the messages of a call.

    Attributes:
        sent: The id of the newest message that was, or may have been, sent; "" before the first.
        task: The id of the A2A task; "" while it is not known.
        asked: What people were asked last; "" if their answer is used already.
        question: The identity of the question of the other side that was asked, or answered.
        fingerprint: The action that a ticket of another Greenroom is about.
        before: The newest decision when people were asked.
        told: The number of artifacts that the log of the run has as messages.
    """

    sent: str = ""
    task: str = ""
    asked: Asked = ""
    question: str = ""
    fingerprint: str = ""
    before: str = ""
    told: int = 0

    @classmethod
    def of(cls, data: Any) -> Memo:
        """Return the memo of an earlier attempt; an empty one if there is none."""
        names = [field.name for field in attrs.fields(cls)]
        return cls(**{name: data[name] for name in names if name in data}) if isinstance(data, dict) else cls()

    def as_json(self) -> JSONObject:
        """Return the memo as the row of the call keeps it."""
        return attrs.asdict(self, filter=lambda _, value: bool(value))

    def is_answered(self, decision: Decision | None) -> bool:
        """Return True if people have answered the question that the memo tells of."""
        return bool(self.asked) and decision is not None and decision.decision_id != self.before


def context_of(thread_id: str, *agent: str) -> str:
    """Return the id of the conversation that a thread has with an agent."""
    return content_digest([thread_id, *agent])[:CONTEXT_SIZE]


def answer_id(key: str, decision: Decision) -> str:
    """Return the id of the message that brings a decision to the other side, equal in every attempt."""
    return f"{key}/{content_digest(decision.decision_id)[:CONTEXT_SIZE]}"
