"""Guardrails as data: their kinds, and the report of a guardrail that does not allow."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from .plain import JSONValue
from .row_forms import Value

GuardrailKind = Literal["input", "output", "tool_input", "tool_output"]
"""The value that is judged: a text of the user, a final answer, the arguments of a call, the result of a body."""


class Tripped(Value, frozen=True, kw_only=True):
    """The report of a guardrail that does not allow.

    Attributes:
        guardrail: its name.
        verdict: "trip" ends the run; "reject" (of guardrails of tools) replaces the result.
        info: The info of a trip (JSON; None without any), or the text of a reject.
    """

    guardrail: str
    verdict: Literal["trip", "reject"]
    info: JSONValue = None

    @property
    def text(self) -> str:
        """The text of a reject; for a trip, the sentence for people: "NAME: info"."""
        if self.verdict == "reject":
            return str(self.info)
        if self.info is None:
            return self.guardrail
        info = self.info if isinstance(self.info, str) else msgspec.json.encode(self.info).decode()
        return f"{self.guardrail}: {info}"


REJECTED: Final = "guardrail_rejected"
"""Code of a call whose arguments a guardrail has rejected."""
TRIPPED: Final = "guardrail_tripped"
"""Code of a run that a guardrail has ended, and of the call at which that happened."""
