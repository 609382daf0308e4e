"""The result of one step: one value of a closed union, found by a pure function.

Theory of operation. One step is one answer of the model and what the answer asks for. `choose_next` is asked whenever
an input may have ended the step; the first row that holds decides:

    code runs for a call, or may still run      nothing yet (None)
    a call waits for a decision                 Interruption
    a handoff was carried out                   Handover
    `tool_use` finds a final answer             FinalOutput, of tools
    the answer has calls                        RunAgain
    the answer has no calls                     FinalOutput, of the last text ("" if there is none)

So text beside a call is never the answer, and an empty answer ends the run, also after a tool. `steps.py` acts on the
value: streaming, resuming and restarting have no other way to the end of a step.
"""

from __future__ import annotations

from typing import Final

import msgspec

from greenroom.supervision.border import Raised, capture

from ..contract.calls import CallPosition, CallStatus
from ..contract.codec import normalise
from ..contract.facts import CallFacts, FinalOutput
from ..contract.guardrails import REJECTED
from ..contract.lifecycle import NEEDS_APPROVAL, Stage
from ..contract.rows import Handover
from ..contract.spec import AgentSpec
from .step_calls import StepCalls


class ToolUseInvalid(ValueError):
    """The `tool_use` function of an agent returned a value that is not a final output."""


class RunAgain(msgspec.Struct, frozen=True, gc=False):
    """The model reads the outcomes of its calls in another step."""


class Interruption(msgspec.Struct, frozen=True, gc=False):
    """Nothing moves, and calls wait for decisions about these tickets: own ones in the model's order, then mirrors."""

    tickets: tuple[str, ...]


class ToolUseFailed(msgspec.Struct, frozen=True, gc=False):
    """The `tool_use` function of the agent raised, or returned an invalid value (`ToolUseInvalid`)."""

    error: BaseException


NextStep = RunAgain | Handover | FinalOutput | Interruption | ToolUseFailed

_AGAIN: Final = RunAgain()


def choose_next(
    spec: AgentSpec,
    calls: StepCalls,
    stage: Stage,
    text: str,
    *,
    handoff: Handover | None = None,
) -> NextStep | None:
    """Return what the step comes to; None while its calls still move.

    Args:
        spec: The spec of the agent that gave the answer.
        calls: The calls of the step.
        stage: the stage that the calls imply (`derive_stage`).
        text: the final text of the answer.
        handoff: that a call of the step has carried out.

    The agent's `tool_use` function is called once per step, when all calls are settled.
    """
    if not calls.all:
        return FinalOutput(text)
    if stage is NEEDS_APPROVAL:
        suspended_tickets = (call.ticket for call in calls.each(calls.marked(CallPosition.PARKED.mark)))
        tickets = (*suspended_tickets, *calls.open_mirrors())
        return Interruption(tuple(ticket.ticket_id for ticket in tickets if ticket is not None))
    if calls.open:
        return None
    if handoff is not None:
        return handoff
    rule = spec.tool_use
    return _AGAIN if rule == "run_model_again" else output_of_tools(spec, calls) or _AGAIN


def output_of_tools(spec: AgentSpec, calls: StepCalls) -> FinalOutput | ToolUseFailed | None:
    """Return the answer that `tool_use` finds among the results, in the model's order; None if there is none."""
    rule = spec.tool_use
    hidden_tools = {name for name, tool in spec.tools.items() if not tool.output}
    results = [
        call
        for call in calls.of_model()
        if (call.outcome is CallStatus.SUCCEEDED or call.code == REJECTED) and call.tool not in hidden_tools
    ]
    if not callable(rule):
        final_calls = (call for call in results if rule == "stop_on_first_tool" or call.tool in rule)
        return next((FinalOutput(call.shown if call.code == REJECTED else call.result) for call in final_calls), None)
    answer = capture(rule, tuple(map(CallFacts.of, results)))
    if isinstance(answer, Raised):
        return ToolUseFailed(answer.error)
    if answer.value is None:
        return None
    if not isinstance(answer.value, FinalOutput):
        text = f"it returned {type(answer.value).__name__}; return gr.FinalOutput(value) or None"
        return ToolUseFailed(ToolUseInvalid(text))
    value, why = normalise(answer.value.value)
    if why is not None:
        return ToolUseFailed(ToolUseInvalid(f"the value of its FinalOutput has no form in JSON ({why})"))
    return FinalOutput(value)
