"""The facts of the calls of a step for user code, an end of the run with a result of them, answers to nested calls."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec

from ..state.values import copied, copied_decision
from .calls import CallStatus
from .decisions import Decision
from .plain import JSONObject, JSONValue
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
        parent: the call whose body makes this nested call; None for a call of the model.
        definition: The digest of the tool's definition; "" of a nested call, which has none.
    """

    call_id: str
    tool: str
    _arguments: JSONObject = attrs.field(alias="arguments")  # type checkers do not know that attrs drops the underscore
    effect: str = "read"
    status: CallStatus = CallStatus.NEW
    attempt: int = 0
    decision: Decision | None = None
    _result: Any = attrs.field(default=None, alias="result")
    text: str | None = None
    code: str | None = None
    parent: str | None = None
    definition: str = ""

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
            parent=row.parent,
            definition=row.definition,
        )


class FinalOutput(msgspec.Struct, frozen=True):
    """The answer of a run, as an `Agent(tool_use=function)` returns it: `gr.FinalOutput(value)`.

    Attributes:
        value: the output, data that has a form in JSON. The output type of the agent checks texts of the model only.
    """

    value: Any


class NestedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a nested call: the body may do the work, or the call has ended without it.

    Attributes:
        call_id: the nested call.
        arguments: those that run, edited by a decision if it has some; None: the call has ended.
        status: the status of the call.
        text: the text about a call that has ended.
        result: its result.
        decision: the newest decision about it; None if there is none.
    """

    call_id: str
    arguments: JSONObject | None = None
    status: CallStatus = CallStatus.RUNNING
    text: str = ""
    result: JSONValue = None
    decision: Decision | None = None
