"""What one step comes to: one value of a closed union, found by a pure function.

Theory of operation. One step is one answer of the model and what the answer asks for. `choose_next` is asked whenever
an input may have ended the step; the first row that holds decides:

    code runs for a call, or may still run      nothing yet (None)
    a call waits for a decision                 Interruption
    `tool_use` finds a final answer             FinalOutput, of tools
    the answer has calls                        RunAgain
    the answer has no calls                     FinalOutput, of the last text ("" if there is none)

So text beside a call is never the answer, and an empty answer ends the run, also after a tool. `steps.py` acts on the
value: streaming, resuming and restarting have no other way to the end of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..contract.calls import CallPosition, CallStatus
from ..contract.lifecycle import Stage
from ..contract.rows import CallRow
from ..contract.spec import AgentSpec


class RunAgain(msgspec.Struct, frozen=True, gc=False):
    """The model reads the outcomes of its calls in another step."""


class FinalOutput(msgspec.Struct, frozen=True):
    """The run has its answer: a text whose form has not been checked, or the JSON value of a tool's result."""

    value: Any


class Interruption(msgspec.Struct, frozen=True, gc=False):
    """Nothing moves, and calls wait for decisions about these tickets, in the model's order of the calls."""

    tickets: tuple[str, ...]


NextStep = RunAgain | FinalOutput | Interruption

_AGAIN: Final = RunAgain()
_SETTLED: Final = CallPosition.SETTLED


def choose_next(spec: AgentSpec, calls: Mapping[str, CallRow], stage: Stage, text: str) -> NextStep | None:
    """Return what the step comes to; None while its calls still move.

    Args:
        spec: of the agent that gave the answer.
        calls: of the step, in the model's order.
        stage: the stage that the calls imply (`derive_stage`).
        text: the final text of the answer.
    """
    if not calls:
        return FinalOutput(text)
    if stage is Stage.NEEDS_APPROVAL:
        parked = (call.ticket for call in calls.values() if call.at is CallPosition.PARKED)
        return Interruption(tuple(ticket.ticket_id for ticket in parked if ticket is not None))
    for call in calls.values():
        if call.at is not _SETTLED:
            return None
    rule = spec.tool_use
    if rule != "run_model_again":
        for call in calls.values():  # the first result, in the model's order, that the rule accepts
            tool = spec.tools.get(call.tool)
            counts = call.status is CallStatus.SUCCEEDED and (tool is None or tool.output)
            if counts and (rule == "stop_on_first_tool" or call.tool in rule):
                return FinalOutput(call.result)
    return _AGAIN
