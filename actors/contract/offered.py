"""Offered tools: tools of toolsets, which are known in a step only.

Theory of operation. The engine knows the tools of an agent from its spec. A tool of a toolset is in no spec, so the
model's answer brings what the engine has to know of each such tool that the answer calls, and the row of the call keeps
that. Recovery, replay and the judge of decisions read the row, and need no toolset.
"""

from __future__ import annotations

from typing import Literal

from .json_schema import schema_fault
from .plain import JSONObject
from .row_forms import Value
from .spec import Concurrency, GateKind, ToolSpec


class OfferedTool(Value, frozen=True, kw_only=True):
    """A tool of a toolset, as the answer that called the tool brought it.

    Attributes:
        toolset: its name.
        schema: JSON Schema of the arguments.
        definition: digest of the tool's definition.

    The other attributes are those of `ToolSpec`.
    """

    name: str
    toolset: str
    schema: JSONObject
    definition: str
    effect: str = "read"
    replay_safe: bool = False
    gate: GateKind = "never"
    concurrency: Concurrency = "shared"
    fatal: bool = False
    grace: float = 5.0
    on_conflict: Literal["keep", "retry"] = "keep"
    guarded: bool = False

    @property
    def spec(self) -> ToolSpec:
        """The tool as the engine sees it."""
        return ToolSpec(
            name=self.name,
            effect=self.effect,
            replay_safe=self.replay_safe,
            gate=self.gate,
            concurrency=self.concurrency,
            fatal=self.fatal,
            grace=self.grace,
            on_conflict=self.on_conflict,
            guarded=self.guarded,
            definition=self.definition,
            check=self.check,
        )

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        fault = schema_fault(self.schema, arguments)
        return None if fault is None else f"Invalid arguments: {fault}."
