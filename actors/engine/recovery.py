"""Recovery: a run has an owner again, and everything that was in flight is asked for again.

Theory of operation. Only rows survive an owner, so recovery looks at the run's position alone. A waiting run still
waits; a run between effects continues; an inference is repeated under a new message id; an interrupted body runs again
if its tool is replay-safe, else becomes a question to a person (outcome_unknown). A background task runs again under
the same condition, else it has failed, which the model learns from a message. If a release changed a tool's definition,
open questions about its calls are asked again, because people answered about another action. If a release removed the
tool, they are withdrawn (`lost_questions.py`).
"""

from __future__ import annotations

from typing import Final

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.decisions import Suspend
from ..contract.ids import fingerprint
from ..contract.lifecycle import PLANNED, STATUS, RunStatus, Stage
from ..contract.phases import ADMISSION, TOOLS, Phase, RunPosition
from ..contract.rows import CallRow
from .asking import ask_anew
from .child_runs import watch_child
from .effects import ParkCall, RunPhase
from .gates import ask_gates
from .inputs import Activate
from .judging import ask_guardrails
from .lost_questions import withdraw_lost
from .preparing import admit, prepare
from .state import StepBuilder, held_at_start, milliseconds
from .steps import arrive, continue_run, run_hooks
from .tasks import recover_tasks
from .termination import lose_bodies, run_end, stop_work
from .tickets import ask_afresh, open_ticket

UNKNOWN = Suspend(
    reason="outcome_unknown",
    action="outcome_unknown",
    message="The run lost its owner while this call ran; it may or may not have taken effect. "
    "Resume runs it again, resume with a result uses that result, cancel ends the call.",
)


def _redefined(builder: StepBuilder, call: CallRow) -> bool:
    """Handle a tool whose definition a release has changed: people decided about another action, and are asked again.

    This concerns open questions, and approvals whose body has not begun; a denial remains. A call that was allowed
    without a person passes the gates again.

    Returns:
        True if a person is asked about the call.
    """
    definition = "" if builder.spec.recorded is not None else builder.spec.definition(call.tool, call.call_id)
    if call.settled or not call.definition or definition in ("", call.definition):
        return False
    text = f"the tool {call.tool} of {call.call_id} was {call.definition} when it was called, and is {definition} now"
    builder.emit("run.degraded", ev.RunDegraded(reason="tool_changed", detail=text))
    mark = fingerprint(builder.spec.key, call.tool, call.arguments, definition)
    call, ticket = builder.put(call, definition=definition, fingerprint=mark), call.ticket
    denied = call.at is CallPosition.DECIDED and call.decision is not None and call.decision.action == "cancel"
    begins = call.status is CallStatus.RESUMING or (call.status is CallStatus.SUSPENDED and not denied)
    again = call.status is CallStatus.RUNNING and (
        call.at is CallPosition.BODY or CallPosition.BODY in call.position.to
    )
    tool = builder.spec.tools.get(call.tool)
    safe = tool is not None and tool.replay_safe
    if ticket is not None and (begins or (again and (safe or call.at is not CallPosition.BODY))):
        ask_afresh(builder, call, ticket, CHANGED)
        return True
    if call.status is CallStatus.NEW and CallPosition.NEW in call.position.to:
        builder.put(call, at=CallPosition.NEW)
    return False


def activate(builder: StepBuilder, message: Activate) -> None:
    """Handle the first input of an incarnation."""
    builder.followed = True
    if message.agent_digest != builder.info.agent_digest:
        detail = f"started with spec {builder.info.agent_digest}, continues with {message.agent_digest}"
        builder.emit("run.degraded", ev.RunDegraded(reason="agent_changed", detail=detail))
    if builder.row.stage is Stage.CREATED and builder.row.position is ADMISSION:
        builder.move(PLANNED)
    else:
        withdraw_lost(builder, message.withdrawn)
        recover(builder)
    if message.admitted:
        admit(builder)


def recover(builder: StepBuilder) -> None:
    """Ask again for everything that was in flight."""
    count_unowned_time(builder)
    lose_bodies(builder)
    if not builder.row.position.rule.leaving:
        recover_tasks(builder)
    if lacks_instructions(builder):
        ask_anew(builder, lambda again, _: arrive(again, RunPosition.BEFORE_INFERENCE))
        return
    ask_guardrails(builder)
    match builder.row.position:
        case RunPosition.PREPARING:
            prepare(builder)
        case RunPosition.TASKS:
            continue_run(builder)
        case RunPosition.INFERENCE:
            ask_anew(builder)
        case RunPosition.TOOLS:
            _recover_calls(builder)
        case RunPosition.STOPPING if builder.row.termination is not None:
            stop_work(builder, builder.row.termination)  # no work is alive, but unread commands may wait
        case RunPosition.RUN_END:
            run_end(builder)
        case position if position.rule.hooks is not None and not held_at_start(builder.row):
            run_hooks(builder)
        case _:
            pass  # nothing was in flight but guardrails, which are asked again at every position


def count_unowned_time(builder: StepBuilder) -> None:
    """Count the time without an owner, which is not active time."""
    if STATUS[builder.row.stage] is RunStatus.RUNNING:
        since = builder.counters.active_since
        builder.counters.unowned_ms += 0 if since is None else milliseconds(since, builder.now)
        builder.counters.active_since, builder.changed = builder.now, True


def lacks_instructions(builder: StepBuilder) -> bool:
    """Return True if a release has made the instructions a function, which the step of a request has not asked."""
    request = builder.row.request
    has_instructions = request is not None and request.instructions is not None
    return builder.spec.instructed and not has_instructions and builder.row.position is RunPosition.INFERENCE


def _recover_calls(builder: StepBuilder) -> None:
    for call in tuple(builder.calls.values()):
        if builder.row.position is TOOLS and not _redefined(builder, call):
            _recover_call(builder, builder.calls[call.call_id])
    continue_run(builder)


CHANGED: Final = "the tool's definition has changed; the question is asked again"


def _recover_call(builder: StepBuilder, call: CallRow) -> None:
    match call.at:
        case CallPosition.GATING if call.status is CallStatus.RESUMING:
            ask_gates(builder, call)
        case CallPosition.GATING:
            builder.put(call, at=CallPosition.NEW)
        case CallPosition.BEFORE:
            builder.put(call, at=CallPosition.ALLOWED)
        case CallPosition.BODY | CallPosition.CHILD if call.child_run is not None:
            watch_child(builder, call)
        case CallPosition.BODY:
            tool = builder.spec.tools.get(call.tool)
            if tool is not None and tool.replay_safe:
                builder.put(call, at=CallPosition.ALLOWED)
            else:
                open_ticket(builder, call, UNKNOWN)
        case CallPosition.AFTER if Phase.AFTER_TOOL_EXECUTE not in builder.spec.hooked:
            builder.put(call, at=CallPosition.SETTLED)
        case CallPosition.AFTER:
            after = Phase.AFTER_TOOL_EXECUTE
            builder.do(
                RunPhase(phase=after, step=builder.row.step, call_id=call.call_id, state=builder.snapshot, durable=True)
            )
        case CallPosition.PARKED | CallPosition.DECIDED if call.ticket is not None:
            builder.do(ParkCall(call_id=call.call_id, ticket=call.ticket, durable=False))
        case _:
            pass
