"""The facts of the calls of a step for user code, and an end of the run with a result of them."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec

from ..state.values import copied, copied_decision
from .calls import CallStatus
from .decisions import Decision
from .plain import JSONObject
from .rows import CallRow


@attrs.frozen(kw_only=True)
class CallFacts:
    """A tool call at one moment. Arguments and result are copies at each read: changing them changes no call.

    Attributes:
        call_id, tool, arguments, effect: what would run, with edited arguments if it has some.
        status: A status of the lifecycle.
        attempt: bodies started so far.
        decision: the newest decision about it, or None.
        result: The result of a succeeded call (JSON).
        text: the model's text about an ended call.
        code: The code of a failure.
    """

    call_id: str
    tool: str
    _arguments: JSONObject
    effect: str = "read"
    status: CallStatus = CallStatus.NEW
    attempt: int = 0
    decision: Decision | None = None
    _result: Any = None
    text: str | None = None
    code: str | None = None

    @property
    def arguments(self) -> JSONObject:
        """The arguments that would run."""
        return cast("JSONObject", copied(self._arguments))

    @property
    def result(self) -> Any:
        """The result of a succeeded call."""
        return copied(self._result)

    @classmethod
    def of(cls, row: CallRow) -> CallFacts:
        """Return the facts of a row."""
        return cls(
            call_id=row.call_id,
            tool=row.tool,
            arguments=row.arguments,
            effect=row.effect,
            status=row.status,
            attempt=row.attempts,
            decision=None if row.decision is None else copied_decision(row.decision),
            result=row.result,
            text=row.shown,
            code=row.code,
        )


class FinalOutput(msgspec.Struct, frozen=True):
    """The answer of a run, as an `Agent(tool_use=function)` returns it: `gr.FinalOutput(value)`.

    Attributes:
        value: the output, data that has a form in JSON. The output type of the agent checks texts of the model only.
    """

    value: Any
