"""Apply the verdicts of an agent's guardrails: the run continues where it waited for them, or ends.

Theory of operation. An answer of `GuardsDone` counts if it is about the guardrails that the run's position asks; any
other is superseded. A trip ends the run. The judged text does not join the thread: an answer whose input or own text
tripped is dropped, with its calls; the messages of a step whose tools led to the output stay in form, because a history
needs an answer to each call, and lose their texts.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..contract.guardrails import TRIPPED
from ..contract.ids import error_id
from ..contract.lifecycle import Termination
from ..contract.phases import BEFORE_INFERENCE, INFERENCE, STEP_END, RunPosition
from .decisions import cancelled
from .guardrails import say_tripped
from .inference import confirm_message, discard_unusable
from .inputs import GuardsDone
from .judging import asked_names
from .state import StepBuilder
from .steps import arrive, use_answer
from .termination import append_step, conclude, discard_inference, end, fail

WITHHELD: Final = "[withheld by guardrail {}]"
"""Stands in the thread for a text that led to an output that tripped."""
REASON: Final = "guardrail"
"""Reason of `run.message.discarded`."""


def guards_done(builder: StepBuilder, message: GuardsDone) -> None:
    """Apply the verdicts of guardrails; a superseded answer is ignored."""
    waiting, names, row = builder.row.open_guardrails, asked_names(builder), builder.row
    if waiting is None or not names or (waiting.kind, names, row.step) != (message.kind, message.names, message.step):
        return
    if message.failure is not None:
        name = error_id(builder.info.run_id, f"{message.kind}_guardrails", message.step)
        fail(builder, "plugin_error", message.failure, error_id=name)
    elif message.tripped is not None:
        say_tripped(builder, message.kind, message.tripped)
        if row.draft is not None and (row.inference is None or not row.inference.unsure):
            append_step(builder, withheld=WITHHELD.format(message.tripped.guardrail))
        else:
            row.draft = None
            discard_inference(builder, REASON)
        fail(builder, TRIPPED, message.tripped.text)
    elif message.kind == "input":
        rest = tuple(name for name in waiting.names if name not in names)
        row.open_guardrails, builder.changed = replace(waiting, names=rest) if rest else None, True
        _input_passed(builder, waiting.ends)
    else:
        row.open_guardrails, row.passed_output, builder.changed = None, row.step, True
        confirm_message(builder)
        if waiting.ends is None:
            append_step(builder)
            arrive(builder, STEP_END)
        else:
            if row.cancel is not None:  # accepted while the output was judged: it wins, as over a final answer
                row.termination = cancelled(row.cancel)
            conclude(builder)


def _input_passed(builder: StepBuilder, ends: Termination | None) -> None:
    """Continue where the run waited for input guardrails. `ends`: how the answer ends the run."""
    at = builder.row.position
    if at is RunPosition.GUARDS_FIRST:
        arrive(builder, BEFORE_INFERENCE)
    elif at is not INFERENCE:
        if builder.calls or not builder.spec.output_guardrails:
            confirm_message(builder)
        if ends is not None:
            if builder.row.draft is None:
                discard_unusable(builder, ends)
            end(builder, ends)
        elif at is RunPosition.GUARDS_ANSWER:
            use_answer(builder)
