"""A run has an owner again: what was in flight when the last one went is not in flight any more.

A waiting run waits on, a run between effects goes on, an inference is asked again under a new message id, a body that
was running is run again if its tool says so and else becomes a question to a human (outcome_unknown). A background task
is run again under the same condition, and else has failed: the model is told.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.decisions import Suspend
from ..contract.lifecycle import STATUS, RunStatus, Stage
from ..contract.phases import LEAVING, CallAt, Cursor, Phase
from ..contract.rows import CallRow
from .calls import drive
from .effects import ParkCall, RunPhase
from .ending import run_end, stop_work
from .gates import gate, tool_of
from .inference import ask_again
from .inputs import Activate
from .state import Draft, milliseconds
from .steps import admit, arrive, tools_done, wake
from .tasks import recover_tasks
from .tickets import open_ticket

UNKNOWN = Suspend(
    reason="outcome_unknown",
    action="outcome_unknown",
    message="The run lost its owner while this call ran; it may or may not have taken effect. "
    "Resume runs it again, resume with a result uses that result, cancel ends the call.",
)


def activate(d: Draft, message: Activate) -> None:
    """The first input of an incarnation."""
    d.followed = True
    _compare_digest(d, message.agent_digest)
    if d.stage is Stage.CREATED and d.cursor is Cursor.ADMISSION:
        d.move(Stage.PLANNED)
    else:
        recover(d)
    if message.admitted:
        admit(d)


def _compare_digest(d: Draft, digest: str) -> None:
    if digest != d.info.agent_digest:
        detail = f"started with spec {d.info.agent_digest}, goes on with {digest}"
        d.emit("run.degraded", ev.RunDegraded(reason="agent_changed", detail=detail))


def recover(d: Draft) -> None:
    """Ask again for what was in flight."""
    if STATUS[d.stage] is RunStatus.RUNNING:
        d.unowned += 0 if d.active_since is None else milliseconds(d.active_since, d.now)
        d.active_since = d.now  # the time without an owner was not active time
        d.changed = True
    if d.cursor not in LEAVING:
        recover_tasks(d)
    match d.cursor:
        case Cursor.TASKS:
            wake(d)
        case Cursor.INFERENCE:
            ask_again(d, "interrupted", "the process that asked the model ended")
        case Cursor.TOOLS:
            _recover_calls(d)
        case Cursor.STOPPING if d.termination is not None:
            stop_work(d, d.termination)  # nothing is alive, but commands may wait
        case Cursor.ENDED | Cursor.ADMISSION | Cursor.PAUSED:
            pass
        case Cursor.STEP_START if d.holds:
            pass  # its hooks have answered: they hold the run
        case Cursor.RUN_END:
            run_end(d)
        case _:
            arrive(d, d.cursor)


def _recover_calls(d: Draft) -> None:
    for call in tuple(d.calls.values()):
        if d.in_tools:
            _recover_call(d, call)
    if drive(d):
        tools_done(d)


def _recover_call(d: Draft, call: CallRow) -> None:
    match call.at:
        case CallAt.GATING if call.status is CallStatus.RESUMING:
            gate(d, call)
        case CallAt.GATING:
            d.put(call, at=CallAt.NEW)
        case CallAt.BEFORE:
            d.put(call, at=CallAt.ALLOWED)
        case CallAt.BODY:
            tool = tool_of(d, call)
            if tool is not None and tool.replay_safe:
                d.put(call, at=CallAt.ALLOWED)
            else:
                open_ticket(d, call, UNKNOWN)
        case CallAt.AFTER if Phase.AFTER_TOOL_EXECUTE not in d.spec.hooked:
            d.put(call, at=CallAt.SETTLED)
        case CallAt.AFTER:
            after = Phase.AFTER_TOOL_EXECUTE
            d.do(RunPhase(phase=after, step=d.step, call_id=call.call_id, state=d.snapshot, durable=True))
        case CallAt.PARKED | CallAt.HELD if call.ticket is not None:
            d.do(ParkCall(call_id=call.call_id, ticket=call.ticket, durable=False))
        case _:
            pass
