"""`EffectRunner`: performs the machine's effects. An effect becomes a child, a message to a parked call, or a cancel.

Theory of operation. The machine only names effects; this module owns the way from an effect to running code and back.
Every method is synchronous. User code (models, tools, hooks) runs in children, and each child submits exactly one final
input per effect: an answer, a failure, or the crash of the child. Hooks that ignore the end of their time are watched
by `HookDeadlines` and abandoned; their phase is then run again without them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, assert_never

import attrs
import trio

from ..contract.ids import body_error_id
from ..contract.inference import Inference
from ..engine.body_inputs import CallRaised, TaskStopped
from ..engine.effects import (
    AnswerBody,
    AskGuards,
    CallModel,
    CancelChild,
    CancelTask,
    CancelWork,
    Effect,
    FinishRun,
    ForwardDecision,
    ParkCall,
    Prepare,
    ReleaseCall,
    ReportFailure,
    RunPhase,
    StartCall,
    StartTask,
)
from ..engine.inputs import Input
from ..engine.state import RunState
from ..services.child_call import child_call, child_run_key, unknown_call
from ..services.children import SLACK, Child, Release, call_key
from ..services.error_log import RUN
from ..services.sanitize import text_of
from ..tools.invoke import shown_text
from .call_actor import CallActor, make_mailbox
from .model_actor import ModelCall, cut_request
from .phase_runner import ask_guards, run_phase
from .preparing import prepare
from .run_context import RunContext

CHILD_GRACE: Final = 30.0
"""Seconds for a cancelled child run to end if its tool, which knows better, is not here."""


@attrs.define(eq=False)
class EffectRunner:
    """Performs the effects of one run's machine. All methods are synchronous; work that takes time is a child.

    Attributes:
        run: The run, with the objects that its effects need.
        at_start: the model request that was in flight when this owner took the run up.
        stop_at: after `CancelWork`: when the grace of the slowest child is over, in trio time; else None.
        finished: `FinishRun` was performed.
    """

    run: RunContext
    at_start: Inference | None = None
    stop_at: float | None = None
    finished: bool = False
    _asking: ModelCall | None = attrs.field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<EffectRunner of {self.run.info.run_id}>"

    def take_stop(self) -> bool:
        """Return True, once after `CancelWork`, when all cancelled work has ended or its grace is over."""
        if self.stop_at is None or (self.run.children.live and trio.current_time() < self.stop_at):
            return False
        self.stop_at = None
        return True

    def perform(self, effect: Effect, state: RunState) -> None:  # noqa: C901, PLR0912 - one row per effect
        """Perform one effect."""
        match effect:
            case CallModel():
                asking = self._asking = ModelCall(self.run, self.run.acting(state), effect, state)
                self.run.children.start(f"model:{effect.message_id}", asking.body, broke=asking.broke)
            case StartCall() | ParkCall() | ReleaseCall():
                self._perform_for_call(effect, state)
            case FinishRun():
                self.finished = True
            case StartTask():
                agent = self.run.agent_of(effect.agent)
                actor = CallActor(self.run, agent, agent.tool(effect.tool), state.row)
                body = partial(actor.start_task, effect)
                self._start_actor(actor, effect.task_id, effect.tool, body, effect.attempt)
            case CancelTask():
                self._cancel_task(effect)
            case AnswerBody():
                self.run.children.questions.deliver(effect)
            case ForwardDecision() | CancelChild():
                self._perform_for_child_run(effect, state)
            case RunPhase():
                run_phase(self.run, effect, state)
            case Prepare():
                prepare(self.run)
            case AskGuards():
                ask_guards(self.run, effect, state)
            case ReportFailure():
                what, fields = effect.what, {"error_id": effect.error_id, "call_id": effect.call_id}
                self.run.log.bug(RUN, what, effect.raised.error, code=effect.code, **fields)
            case CancelWork():
                if state.row.inference is not None and state.row.inference.stopped:
                    # before the cancel, which a model may not obey
                    now = self.run.services.clock.now()
                    self.run.children.submit_input(cut_request(state.row.inference, self._asking, self.at_start, now))
                stop_at = trio.current_time() + self.run.children.cancel_all(effect.reason, by_run=True) + SLACK
                self.stop_at = self.stop_at or stop_at  # a second cancel allows no more time
            case _ as never:
                assert_never(never)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _start_actor(
        self,
        actor: CallActor,
        call_id: str,
        tool_name: str,
        body: Callable[[Child], Awaitable[None]],
        attempt: int = 0,
    ) -> Child:
        """Start the actor of a call or background task, with an attempt or parked.

        A crash of the actor becomes a failure of the newest attempt that the actor was given, started or not. If the
        actor only waited for a decision, the machine ignores that input: the decision starts a new actor.
        """

        def broke(error: BaseException) -> Input:
            name = body_error_id(self.run.info.run_id, call_id, child.attempt)
            what = f"the actor of call {call_id} of run {self.run.info.run_id} crashed"
            self.run.log.bug(RUN, what, error, error_id=name, code="internal_error", call_id=call_id)
            text = text_of(f"The call's actor crashed: {shown_text(error)}")
            return CallRaised(call_id=call_id, attempt=child.attempt, code="internal_error", shown=text)

        grace = 5.0 if actor.tool is None else actor.tool.grace
        child = self.run.children.start(call_key(call_id), body, grace=grace, broke=broke, tool=tool_name)
        child.attempt = attempt
        return child

    def _perform_for_call(self, effect: StartCall | ParkCall | ReleaseCall, state: RunState) -> None:
        child = self.run.children.live.get(call_key(effect.call_id))
        mailbox = None if child is None else child.mailbox
        match effect:
            case StartCall() if child is not None and mailbox is not None:
                child.ticket, child.attempt = None, effect.attempt
                mailbox.tell(effect)
            case StartCall():
                agent = self.run.acting(state)
                actor = CallActor(self.run, agent, self.run.tool(agent, effect.tool), state.row)
                self._start_actor(actor, effect.call_id, effect.tool, partial(actor.start, effect), effect.attempt)
            case ParkCall():
                if child is None:
                    agent = self.run.acting(state)
                    actor = CallActor(self.run, agent, self.run.tool(agent, effect.ticket.tool), state.row)
                    child = self._start_actor(actor, effect.call_id, effect.ticket.tool, actor.parked)
                    child.mailbox = make_mailbox(effect.call_id)
                child.ticket = effect.ticket
            case ReleaseCall():
                if mailbox is not None:
                    mailbox.tell(Release())

    def _perform_for_child_run(self, effect: ForwardDecision | CancelChild, state: RunState) -> None:
        """Act on the child run of a call, beside the call's actor, which only watches."""
        work = self.run.services.directory.child_runs
        row = state.calls.get(effect.call_id)
        if row is None:  # the effect waited for its receipt, and the next step has begun
            row = unknown_call(effect.call_id, effect.child_run)
        tool = None if self.run.agent is None else self.run.acting(state).tool(row.tool)
        facts: dict[str, Any] = {"parent": self.run.info, "deps": self.run.deps, "log": self.run.log}
        call = child_call(row, tool, children=self.run.children, **facts)
        if isinstance(effect, ForwardDecision):
            key = f"{child_run_key(effect.call_id)}:{effect.decision.decision_id}"
            self.run.children.start(key, partial(work.forward, call, effect.decision), broke=None, ours=True)
        elif (key := child_run_key(effect.call_id)) not in self.run.children.live:  # else it is being cancelled already
            watcher = self.run.children.live.get(call_key(effect.call_id))
            grace = CHILD_GRACE if tool is None else tool.grace
            body = partial(work.cancel, call, watcher, effect)
            self.run.children.start(key, body, broke=None, grace=grace, tool=row.tool)
            if self.stop_at is not None:
                self.stop_at = max(self.stop_at, trio.current_time() + grace + SLACK)

    def _cancel_task(self, effect: CancelTask) -> None:
        """Cancel one background task; a task that overruns its grace is reported as unresponsive."""
        children = self.run.children
        child = children.live.get(call_key(effect.task_id))
        report = TaskStopped(task_id=effect.task_id, attempt=effect.attempt)
        if child is None:  # the receipt of its start is outstanding; `_outdated` drops the StartTask
            children.submit_input(report)
            return
        body = child
        body.scope.cancel("the task was cancelled")

        async def wait(_: Child) -> None:
            with trio.move_on_after(body.grace + SLACK):
                await body.ended.wait()
            if not body.ended.is_set():
                children.give_up(body, (children.where(body),), body.ended)
            children.submit_input(report)

        children.start(f"stop:{effect.task_id}", wait, broke=lambda _: report, ours=True)
