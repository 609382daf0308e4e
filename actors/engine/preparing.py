"""The beginning of a run: it is admitted, prepared if it needs that, and enters run_start.

Theory of operation. A run in a workspace, or with a tool that prepares itself, rests at `preparing` until `Prepared`
answers the one effect of that position; every other run passes all stages up to `running` in one commit. Nothing of the
run but its preparation is in flight there, so a cancel and the deadline end it as they end any other work: the
preparation is cancelled, and no hook of run_end runs, because none of run_start has.
"""

from __future__ import annotations

from ..contract import events as ev
from ..contract.lifecycle import PLANNED, Stage
from ..contract.phases import ADMISSION, RunPosition
from ..contract.plain import JSONObject
from ..contract.work_events import RuntimeUnavailable
from ..state.snapshot import StateSnapshot
from .effects import Prepare
from .inputs import Admit, Prepared
from .state import StepBuilder
from .steps import arrive
from .termination import fail


def begin(builder: StepBuilder, message: Admit | Prepared) -> None:
    """Begin a run that has its slot and thread, or that was prepared; a late answer is ignored."""
    if isinstance(message, Admit):
        admit(builder, message)
    elif builder.row.position is RunPosition.PREPARING:
        prepared(builder, message)


def admit(builder: StepBuilder, message: Admit | None = None) -> None:
    """Let the run work: planned -> accepted -> preparing, and without a preparation -> running."""
    if builder.row.position is not ADMISSION or builder.row.stage is not PLANNED:
        return
    if message is not None and message.state is not None:
        builder.snapshot = StateSnapshot.restored(builder.snapshot.revision, message.state)
    builder.move(Stage.ACCEPTED)
    builder.move(Stage.PREPARING)
    if builder.info.place is not None or builder.spec.prepares:
        builder.enter(RunPosition.PREPARING)
        prepare(builder)
    else:
        _start(builder)


def prepare(builder: StepBuilder) -> None:
    """Ask for the preparation, again after a crash during it."""
    builder.phase_open = True
    builder.do(Prepare())


def prepared(builder: StepBuilder, message: Prepared) -> None:
    """Begin the work of a prepared run, or end the run with the code of the failure."""
    builder.phase_open = False
    for reason, detail in message.doubts:
        builder.emit("run.degraded", ev.RunDegraded(reason=reason, detail=detail))
    if message.code is None:
        _start(builder, message.facts or None)
        return
    if message.code == "runtime_unavailable":
        lack = RuntimeUnavailable(
            code=message.code, runtime=message.runtime, reason=message.reason or message.code, hint=message.text
        )
        builder.emit("runtime.unavailable", lack)
    reason = f"{message.reason}: " if message.reason else ""
    fail(builder, message.code, f"{reason}{message.text}", error_id=message.error_id)


def _start(builder: StepBuilder, facts: JSONObject | None = None) -> None:
    builder.move(Stage.RUNNING, detail=facts)
    builder.row.hooks_started = True
    arrive(builder, RunPosition.RUN_START)
