"""Ask the guardrails of an agent: which are open, when they are asked, and about what.

Theory of operation. `RunRow.open_guardrails` names the guardrails that have not passed, so a new owner asks exactly
these again. A step that reads a text of the user opens the input guardrails; the blocking ones are asked at once
(GUARDS_FIRST), the others with the model request, and the answer waits for them (GUARDS_ANSWER). An output opens the
output guardrails (GUARDS_OUTPUT). `judged.py` applies the verdicts.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..contract.ids import message_id
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import RunPosition
from ..contract.rows import OpenGuardrails
from .effects import AskGuards
from .state import StepBuilder

_COMPLETING: Final = (TerminationKind.NATURAL_END, TerminationKind.STOPPED, TerminationKind.BEHAVIOR_REQUESTED)


def open_input(builder: StepBuilder) -> None:
    """Open the input guardrails if the step reads a text of the user: called before pending input joins the thread.

    Messages that are named already are judged as well: those of a step that was held, or the input of a fork of step 0.
    """
    spec, row = builder.spec, builder.row
    names = (*spec.blocking_guardrails, *spec.input_guardrails)
    before = () if row.open_guardrails is None else row.open_guardrails.messages
    row.open_guardrails = None
    if not names:
        return
    sent_ids = {message_id(builder.info.run_id, text.number) for text in row.sent}
    begins = row.step == 0 and not builder.info.forked_step
    texts = tuple(
        message.id
        for message in row.pending_input
        if message.kind == "text"
        and (message.id in sent_ids or (begins and message.producer is not None and message.producer.step == 0))
    )
    if before or texts:
        row.open_guardrails = OpenGuardrails(kind="input", names=names, messages=(*before, *texts))


def asked_names(builder: StepBuilder) -> tuple[str, ...]:
    """Return the names of the open guardrails that are asked at the run's position; () if none are."""
    waiting = builder.row.open_guardrails
    if waiting is None or not builder.row.position.rule.guardrails:
        return ()
    if builder.row.position is RunPosition.GUARDS_FIRST:
        return tuple(name for name in waiting.names if name in builder.spec.blocking_guardrails)
    return waiting.names


def ask_guardrails(builder: StepBuilder) -> None:
    """Ask the open guardrails that belong to the run's position, if there are any."""
    waiting, names = builder.row.open_guardrails, asked_names(builder)
    if waiting is not None and names:
        builder.do(
            AskGuards(
                kind=waiting.kind,
                step=builder.row.step,
                names=names,
                messages=waiting.messages,
                output=builder.row.output if waiting.kind == "output" else None,
                state=builder.snapshot,
            )
        )


def blocks(builder: StepBuilder, waiting: OpenGuardrails) -> bool:
    """Ask the blocking guardrails before the model request. Returns False if there are none to wait for."""
    if not any(name in builder.spec.blocking_guardrails for name in waiting.names):
        return False
    builder.enter(RunPosition.GUARDS_FIRST)
    ask_guardrails(builder)
    return True


def judge_output(builder: StepBuilder, ends: Termination | None = None) -> None:
    """Ask the output guardrails about `RunRow.output`. `ends`: the run ends with it, and its work has stopped."""
    names = builder.spec.output_guardrails
    builder.row.open_guardrails = OpenGuardrails(kind="output", names=names, ends=ends)
    builder.enter(RunPosition.GUARDS_OUTPUT)
    ask_guardrails(builder)


def must_judge(builder: StepBuilder) -> bool:
    """Return True if the run ends with an output that the output guardrails have not judged in this step."""
    row, why = builder.row, builder.row.termination
    return (
        bool(builder.spec.output_guardrails)
        and row.output is not None
        and row.passed_output != row.step
        and why is not None
        and why.kind in _COMPLETING
    )


def wait_with(builder: StepBuilder, ends: Termination) -> bool:
    """Let an end that the answer leads to wait for open input guardrails. Returns False if none are open."""
    waiting = builder.row.open_guardrails
    if waiting is None or waiting.kind != "input":
        return False
    builder.row.open_guardrails = replace(waiting, ends=ends)
    builder.enter(RunPosition.GUARDS_ANSWER)
    return True
