"""`EffectRunner`: performs the machine's effects. An effect becomes a child, a message to a parked call, or a cancel.

Theory of operation. The machine only names effects; this module owns the way from an effect to running code and back.
Every method is synchronous. User code (models, tools, hooks) runs in children, and each child submits exactly one final
input per effect: an answer, a failure, or the crash of the child. Hooks that ignore the end of their time are watched
by `HookDeadlines` and abandoned; their phase is then run again without them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, assert_never

import attrs
import trio
from msgspec.structs import replace

from ..abc import Model
from ..agents.agent import Agent
from ..contract.guardrails import Tripped
from ..contract.ids import body_error_id, error_id, phase_error_id
from ..contract.inference import Inference, RequestChanges
from ..contract.messages import Message, ModelRequest
from ..contract.phases import Phase
from ..contract.rows import CallRow, RunInfo
from ..contract.state import INHERITED
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
    ReleaseCall,
    ReportFailure,
    RunPhase,
    StartCall,
    StartTask,
)
from ..engine.inputs import CallRaised, GuardsDone, Input, PhaseDone, TaskStopped
from ..engine.state import RunState
from ..plugins.guardrails import Guardrail, shortest
from ..plugins.history import inherited_history, repaired
from ..plugins.plugin import has_hook
from ..services.child_call import child_call, child_run_key, unknown_call
from ..services.children import SLACK, Child, Children, Release, call_key
from ..services.error_log import PLUGIN, RUN, TOOL
from ..services.part_bytes import PartBytes
from ..services.sanitize import text_of
from ..services.services import Services, retry_until_available
from ..state.access import State
from ..state.values import copied, own_message
from ..tools.definition import Tool
from ..tools.invoke import shown_text
from ..user_code.approvals import NO, ApprovalNeed, wants_approval
from ..user_code.calls import PREDICATE_TIMEOUT, HookFailed
from ..user_code.enabled_tools import ask_enabled
from ..user_code.gate_runner import run_gates
from ..user_code.guardrails import ask_all, in_order, log_failure
from ..user_code.hook_deadlines import HookDeadlines
from ..user_code.hook_models import HookModels
from ..user_code.hooks import HookRequest, limit_of, most_seconds, run_hooks
from ..user_code.instructions import ask_instructions
from .call_actor import CallActor, gate_context, make_mailbox
from .model_actor import ModelCall, cut_request
from .model_request import hook_request, model_request
from .view import typed_output

_OF_THE_RUN: Final = (Phase.RUN_START, Phase.RUN_END)
"""The phases whose hooks are those of the agent with which the run was started."""
CHILD_GRACE: Final = 30.0
"""Seconds for a cancelled child run to end if its tool, which knows better, is not here."""
RUN_END_LIMIT: Final = "run_end:limit"
"""Key of the child that bounds the time of the run_end hooks."""


@attrs.define(eq=False)
class EffectRunner:
    """Performs the effects of one run's machine. All methods are synchronous; work that takes time is a child.

    Attributes:
        history: the thread's messages, copies for models; None until the first model call reads them from the store.
        part_bytes: of the thread's images and files.
        found: the model request that was in flight when this owner took the run up.
        stop_at: after `CancelWork`: when the grace of the slowest child is over, in trio time; else None.
        finished: `FinishRun` was performed.
    """

    services: Services
    info: RunInfo
    agent: Agent[object] | None
    deps: Any
    children: Children
    history: list[Message] | None
    part_bytes: PartBytes
    found: Inference | None = None
    stop_at: float | None = None
    finished: bool = False
    _asking: ModelCall | None = attrs.field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<EffectRunner of {self.info.run_id}>"

    def perform(self, effect: Effect, state: RunState) -> None:  # noqa: C901, PLR0912 - one row per effect
        """Perform one effect."""
        match effect:
            case CallModel():
                self._call_model(effect, state)
            case StartCall() | ParkCall() | ReleaseCall():
                self._perform_for_call(effect, state)
            case FinishRun():
                self.finished = True
            case StartTask():
                agent = self._agent_of(effect.agent)
                body = partial(self._actor(state, agent).start_task, effect)
                self._start_actor(agent, effect.task_id, effect.tool, body, effect.attempt)
            case CancelTask():
                self._cancel_task(effect)
            case AnswerBody():
                self.children.questions.deliver(effect)
            case ForwardDecision() | CancelChild():
                self._perform_for_child_run(effect, state)
            case RunPhase():
                self._run_phase(effect, state)
            case AskGuards():
                self._ask_guards(effect, state)
            case ReportFailure():
                what, fields = effect.what, {"error_id": effect.error_id, "call_id": effect.call_id}
                self.services.log.bug(RUN, what, effect.raised.error, code=effect.code, **self._who(), **fields)
            case CancelWork():
                if state.row.inference is not None and state.row.inference.stopped:
                    # before the cancel, which a model may not obey
                    now = self.services.clock.now()
                    self.children.submit_input(cut_request(state.row.inference, self._asking, self.found, now))
                stop_at = trio.current_time() + self.children.cancel_all(effect.reason) + SLACK
                self.stop_at = self.stop_at or stop_at  # a second cancel allows no more time
            case _ as never:
                assert_never(never)

    # --- model -------------------------------------------------------------------------------------------------------

    def _call_model(self, effect: CallModel, state: RunState) -> None:
        agent = self._acting(state)

        async def request(chosen: Model) -> ModelRequest:
            native = chosen.structured == "native"
            history = await self._history(state)
            if self.part_bytes.needed:
                history = [*await self.part_bytes.filled(history)]
            return model_request(agent, self.info.run_id, effect, history, model=chosen.name, native=native)

        def model() -> Model:
            other = None if effect.changes is None or effect.model else effect.changes.model
            return self.services.agents.model_for(agent, effect.model, other)

        def tell(error: BaseException) -> None:
            what = f"the model of run {self.info.run_id} failed (step {effect.step}, attempt {effect.attempt})"
            name = error_id(self.info.run_id, effect.message_id)
            fields = {"step": effect.step, "attempt": effect.attempt, "message_id": effect.message_id}
            self.services.log.model_failed(what, error, error_id=name, **self._who(), **fields)

        models, policies = self.services.models, agent.spec.policies
        child = ModelCall(
            effect=effect,
            find_model=model,
            opened=models.opened,
            make_request=request,
            children=self.children,
            jitter=self.services.jitter,
            tell=tell,
            policies=policies,
            breakers=models.breakers,
        )
        self.children.start(f"model:{effect.message_id}", child.run, broke=child.broke)
        self._asking = child

    async def _thread(self) -> list[Message]:
        if self.history is None:
            stored = await retry_until_available(self.services.store.messages, self.info.thread_id)
            self.part_bytes.note(stored)
            self.history = [*map(own_message, stored)]
        return self.history

    async def _history(self, state: RunState) -> list[Message]:
        """Return the messages that the active agent reads: the thread, or what a handoff has made of it."""
        if self.history is not None and state.row.agent is None:  # the usual case
            return self.history
        thread = await self._thread()
        if state.row.agent is None:
            return thread
        return [*repaired(inherited_history(thread, state.snapshot.cells.get(INHERITED)))]

    # --- calls -------------------------------------------------------------------------------------------------------

    def _actor(self, state: RunState, agent: Agent[object]) -> CallActor:
        return CallActor(
            info=self.info,
            agent=agent,
            thread=self._thread,
            deps=self.deps,
            children=self.children,
            threads=self.services.threads,
            log=self.services.log,
            run_row=state.row,
            child_runs=self.services.directory.child_runs,
        )

    def _start_actor(
        self,
        agent: Agent[object],
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
            name = body_error_id(self.info.run_id, call_id, child.attempt)
            what = f"the actor of call {call_id} of run {self.info.run_id} crashed"
            self.services.log.bug(
                RUN, what, error, error_id=name, code="internal_error", **self._who(), call_id=call_id
            )
            text = text_of(f"The call's actor crashed: {shown_text(error)}")
            return CallRaised(call_id=call_id, attempt=child.attempt, code="internal_error", shown=text)

        tool = agent.tool(tool_name)
        grace = 5.0 if tool is None else tool.grace
        child = self.children.start(call_key(call_id), body, grace=grace, broke=broke, tool=tool_name)
        child.attempt = attempt
        return child

    def _perform_for_call(self, effect: StartCall | ParkCall | ReleaseCall, state: RunState) -> None:
        child = self.children.live.get(call_key(effect.call_id))
        mailbox = None if child is None else child.mailbox
        match effect:
            case StartCall() if child is not None and mailbox is not None:
                child.ticket, child.attempt = None, effect.attempt
                mailbox.tell(effect)
            case StartCall():
                agent = self._acting(state)
                body = partial(self._actor(state, agent).start, effect)
                self._start_actor(agent, effect.call_id, effect.tool, body, effect.attempt)
            case ParkCall():
                if child is None:
                    agent = self._acting(state)
                    parked = self._actor(state, agent).parked
                    child = self._start_actor(agent, effect.call_id, effect.ticket.tool, parked)
                    child.mailbox = make_mailbox(effect.call_id)
                child.ticket = effect.ticket
            case ReleaseCall():
                if mailbox is not None:
                    mailbox.tell(Release())

    def _perform_for_child_run(self, effect: ForwardDecision | CancelChild, state: RunState) -> None:
        """Act on the child run of a call, beside the call's actor, which only watches."""
        work = self.services.directory.child_runs
        row = state.calls.get(effect.call_id)
        if row is None:  # the effect waited for its receipt, and the next step has begun
            row = unknown_call(effect.call_id, effect.child_run)
        tool = None if self.agent is None else self._acting(state).tool(row.tool)
        facts: dict[str, Any] = {"parent": self.info, "deps": self.deps, "log": self.services.log}
        call = child_call(row, tool, children=self.children, **facts)
        if isinstance(effect, ForwardDecision):
            key = f"{child_run_key(effect.call_id)}:{effect.decision.decision_id}"
            self.children.start(key, partial(work.forward, call, effect.decision), broke=None, ours=True)
        elif (key := child_run_key(effect.call_id)) not in self.children.live:  # else it is being cancelled already
            watcher = self.children.live.get(call_key(effect.call_id))
            grace = CHILD_GRACE if tool is None else tool.grace
            body = partial(work.cancel, call, watcher, effect)
            self.children.start(key, body, broke=None, grace=grace, tool=row.tool)
            if self.stop_at is not None:
                self.stop_at = max(self.stop_at, trio.current_time() + grace + SLACK)

    def _cancel_task(self, effect: CancelTask) -> None:
        """Cancel one background task; a task that overruns its grace is reported as unresponsive."""
        children = self.children
        child = children.live.get(call_key(effect.task_id))
        stopped = TaskStopped(task_id=effect.task_id, attempt=effect.attempt)
        if child is None:  # the receipt of its start is outstanding; `_outdated` drops the StartTask
            children.submit_input(stopped)
            return
        doomed = child
        doomed.scope.cancel("the task was cancelled")

        async def wait(_: Child) -> None:
            with trio.move_on_after(doomed.grace + SLACK):
                await doomed.ended.wait()
            if not doomed.ended.is_set():
                children.give_up(doomed, (children.where(doomed),), doomed.ended)
            children.submit_input(stopped)

        children.start(f"stop:{effect.task_id}", wait, broke=lambda _: stopped, ours=True)

    # --- phases ------------------------------------------------------------------------------------------------------

    def _run_phase(self, effect: RunPhase, state: RunState, given_up: frozenset[str] = frozenset()) -> None:
        agent = self._need_agent() if effect.phase in _OF_THE_RUN else self._acting(state)
        watch = _watch(agent, effect, given_up)
        call = None if effect.call_id is None else state.calls[effect.call_id]
        children = self.children

        def broke(error: BaseException) -> Input:
            where = f"the hooks of {effect.phase.value} of run {self.info.run_id} crashed"
            self.services.log.bug(PLUGIN, where, error, code="plugin_error", **self._where(effect))
            text = text_of(f"{effect.phase.value}: {shown_text(error)}")
            return PhaseDone(phase=effect.phase, step=effect.step, call_id=effect.call_id, failure=text)

        models = HookModels(self.services, agent, self.info.run_id, self.part_bytes)

        async def body(child: Child) -> None:
            guarded = call is not None and self._guarded(agent, call, effect)
            asked = effect.phase in agent.spec.hooked or (call is not None and _conditional(agent, call) is not None)
            history = await self._history(state) if guarded or asked else []
            request = attrs.evolve(
                hook_request(effect, state, agent, self.deps, history, models=models),
                find_model=self.services.models.named,
                watch=watch,
                tell=partial(self._log_hook, effect),
            )
            if effect.phase is Phase.RUN_END and RUN_END_LIMIT not in children.live:
                await trio.lowlevel.checkpoint_if_cancelled()  # reading the store may have hidden a cancel
                children.start(RUN_END_LIMIT, partial(_give_up, children, request), broke=None, ours=True)
            if effect.phase is Phase.BEFORE_INFERENCE:
                done = await self._before_inference(agent, effect, request)
            elif effect.phase is not Phase.TOOL_GATE or call is None:
                done = await run_hooks(request)
            else:
                done = await self._gates(agent, call, effect, request)
            if not child.muted:
                children.submit_input(done)

        child = children.start(f"{effect.phase.value}:{effect.call_id or effect.step}", body, broke=broke)

        def look() -> float | None:
            late = watch.overdue()
            if not late:
                return watch.next_look()
            children.abandon(child, " ".join(sorted(late)))
            self._run_phase(effect, state, given_up | late)
            return None

        if effect.phase is not Phase.RUN_END and watch.next_look() < math.inf:
            children.watch(child.key, watch.next_look(), look)

    async def _before_inference(self, agent: Agent[object], effect: RunPhase, request: HookRequest) -> PhaseDone:
        """Run the hooks, then ask for the instructions, and which tools are enabled.

        A disabled tool is excluded from the step's request.
        """
        done, function = await run_hooks(request), agent.instructions
        if not agent.asks_each_step or done.failure is not None or done.end is not None:
            return done
        ctx, changes = request.context(State(request.snapshot, agent.spec.keys), ()), done.request
        if not isinstance(function, str):
            try:
                text = await ask_instructions(function, ctx, request.watch)
            except HookFailed as failure:
                log_failure(self.services.log, failure=failure, **self._where(effect))
                return request.done(failure=text_of(str(failure)), ignored=done.ignored, spent=done.spent)
            changes = (changes or RequestChanges()).joined(RequestChanges(instructions=text))
        found = await ask_enabled(agent.conditional, ctx, request.watch, partial(self._log_enabled, effect))
        if found.names:
            changes = (changes or RequestChanges()).joined(RequestChanges(exclude=found.names))
        return replace(done, request=changes, enabled_faults=found.faults)

    async def _gates(self, agent: Agent[object], call: CallRow, effect: RunPhase, request: HookRequest) -> PhaseDone:
        """Ask again whether the tool of a call is enabled, then run the call's gates."""
        tool = _conditional(agent, call)
        if tool is not None:
            ctx = request.context(State(request.snapshot, agent.spec.keys), ())
            found = await ask_enabled([tool], ctx, request.watch, partial(self._log_enabled, effect))
            if found.names:
                return request.done(disabled=True, enabled_faults=found.faults)
        approved = call.approved == call.fingerprint
        needed = None if approved else partial(self._approval_need, agent, call, effect, request.watch)
        guards = partial(self._ask_guardrails, agent, call, effect, request)
        guarded = self._guarded(agent, call, effect)
        return await run_gates(request, approved=approved, built_in=needed, guardrails=guards if guarded else None)

    def _log_enabled(self, effect: RunPhase, tool: Tool[..., object], why: str, error: BaseException | None) -> None:
        what = f"run {self.info.run_id}: the tool {tool.name!r} is not offered, for its is_enabled failed: {why}"
        fields = {"code": "is_enabled_failed", "tool": tool.name, **self._where(effect)}
        if error is None:
            self.services.log.note(TOOL, logging.ERROR, what, **fields)
        else:
            self.services.log.bug(TOOL, what, error, **fields)

    def _log_hook(self, effect: RunPhase, plugin: str, failure: HookFailed) -> None:
        fields = {"code": "plugin_error", "plugin": plugin, **self._where(effect)}
        if failure.__cause__ is not None:
            what = f"plugin {plugin!r} failed in {effect.phase.value} of run {self.info.run_id}"
            self.services.log.bug(PLUGIN, what, failure.__cause__, **fields)
        else:
            self.services.log.note(PLUGIN, failure.level, f"run {self.info.run_id}: {failure}", **fields)

    async def _approval_need(
        self, agent: Agent[object], call: CallRow, effect: RunPhase, watch: HookDeadlines | None
    ) -> ApprovalNeed:
        """Find out whether the tool itself needs an approval; a doubt about that is logged."""
        tool = agent.tool(call.tool)
        if tool is None:
            return NO
        ctx = gate_context(self.info, self.deps, call, effect.state, agent.spec.keys)
        need = await wants_approval(tool, ctx, call.arguments, watch)
        if need.doubt is not None:
            what = f"run {self.info.run_id}: a person is asked, for {need.doubt}"
            fields = {"code": "predicate_failed", "tool": tool.name, **self._where(effect)}
            if need.error is None:
                self.services.log.note(TOOL, logging.ERROR, what, **fields)
            else:
                self.services.log.bug(TOOL, what, need.error, **fields)
        return need

    def _ask_guards(self, effect: AskGuards, state: RunState, given_up: frozenset[str] = frozenset()) -> None:
        """Ask guardrails of the agent in a child; a guardrail that ignores the end of its time is abandoned."""
        agent = self._need_agent() if effect.kind == "input" else self._acting(state)
        children = self.children
        known: tuple[Guardrail, ...] = agent.input_guardrails if effect.kind == "input" else agent.output_guardrails
        chosen = [guardrail for guardrail in known if guardrail.name in effect.names]
        watch = HookDeadlines(shortest(chosen), given_up)
        answer = partial(GuardsDone, kind=effect.kind, step=effect.step, names=effect.names)
        phase = Phase.BEFORE_INFERENCE if effect.kind == "input" else Phase.STEP_END
        name = error_id(self.info.run_id, f"{effect.kind}_guardrails", effect.step)
        fields = {**self._who(), "error_id": name, "step": effect.step}

        def broke(error: BaseException) -> Input:
            what = f"the guardrails ({effect.kind}) of run {self.info.run_id} crashed"
            self.services.log.bug(PLUGIN, what, error, code="plugin_error", **fields)
            return answer(failure=text_of(f"{effect.kind} guardrails: {shown_text(error)}"))

        async def body(child: Child) -> None:
            history = await self._history(state)
            asked = RunPhase(phase=phase, step=effect.step, state=effect.state)
            models = HookModels(self.services, agent, self.info.run_id, self.part_bytes)
            request = hook_request(asked, state, agent, self.deps, history, models=models)
            ctx = request.context(State(effect.state, agent.spec.keys), ())
            texts = [message.content for message in await self._thread() if message.id in effect.messages]
            value = (
                partial("\n\n".join, texts)
                if effect.kind == "input"
                else partial(typed_output, agent, copied(effect.output))
            )
            try:
                done = answer(tripped=await ask_all(chosen, ctx, value, watch))
            except HookFailed as failure:
                log_failure(self.services.log, failure=failure, **fields)
                done = answer(failure=text_of(str(failure)))
            if not child.muted:
                children.submit_input(done)

        child = children.start(f"guardrails:{effect.kind}:{effect.step}:{effect.names[0]}", body, broke=broke)

        def look() -> float | None:
            late = watch.overdue()
            if not late:
                return watch.next_look()
            children.abandon(child, " ".join(sorted(late)))
            self._ask_guards(effect, state, given_up | late)
            return None

        children.watch(child.key, watch.next_look(), look)

    @staticmethod
    def _guarded(agent: Agent[object], call: CallRow, effect: RunPhase) -> bool:
        """Return True if input guardrails judge the call in this phase."""
        tool = agent.tool(call.tool)
        return effect.phase is Phase.TOOL_GATE and tool is not None and bool(tool.input_guardrails)

    async def _ask_guardrails(
        self, agent: Agent[object], call: CallRow, effect: RunPhase, request: HookRequest
    ) -> Tripped | None:
        """Ask the input guardrails of a call's tool; a failure is logged."""
        tool = agent.tool(call.tool)
        if tool is None:
            return None
        ctx = request.context(State(effect.state, agent.spec.keys), ())
        try:
            return await in_order(tool.input_guardrails, ctx, partial(tool.complete, call.arguments), request.watch)
        except HookFailed as failure:
            log_failure(self.services.log, failure=failure, **self._where(effect))
            raise

    def _who(self) -> dict[str, Any]:
        """Return the fields of every log line about this run."""
        return {"run_id": self.info.run_id, "thread_id": self.info.thread_id, "agent": self.info.agent}

    def _where(self, effect: RunPhase) -> dict[str, Any]:
        """Return the fields of every log line about a phase."""
        phase, step, call_id = effect.phase.value, effect.step, effect.call_id
        name = phase_error_id(self.info.run_id, phase, step, call_id)
        return {**self._who(), "error_id": name, "phase": phase, "step": step, "call_id": call_id}

    def _acting(self, state: RunState) -> Agent[object]:
        """Return the active agent."""
        key, agent = state.row.agent, self.agent
        return agent if key is None and agent is not None else self._agent_of(key)

    def _agent_of(self, key: str | None) -> Agent[object]:
        """Return an agent of the run by its key; None: the run's first agent."""
        agent = self._need_agent()
        return agent if key is None else self.services.agents.acting(agent, key)

    def _need_agent(self) -> Agent[object]:
        if self.agent is None:
            raise RuntimeError(f"run {self.info.run_id}: only a cancel can be worked on without the agent")
        return self.agent


def _watch(agent: Agent[object], effect: RunPhase, given_up: frozenset[str]) -> HookDeadlines:
    limits = [limit_of(plugin, effect.phase) for plugin in agent.plugins if has_hook(plugin, effect.phase)]
    if effect.phase is Phase.TOOL_GATE or (effect.phase is Phase.BEFORE_INFERENCE and agent.asks_each_step):
        limits.append(PREDICATE_TIMEOUT)
        limits += [shortest(tool.input_guardrails) for tool in agent.tools]
    return HookDeadlines(min(limits, default=math.inf), given_up)


def _conditional(agent: Agent[object], call: CallRow) -> Tool[..., object] | None:
    """Return the tool of a call whose gates ask again whether it is enabled; None if they do not."""
    tool = agent.tool(call.tool)
    return None if tool is None or tool.is_enabled is True or call.attempts else tool


async def _give_up(children: Children, request: HookRequest, _: Child) -> None:
    """Fail the run_end phase when its time is over, so that a hook that ignores its cancel cannot block the end."""
    await trio.sleep(most_seconds(request))
    children.submit_input(request.done(failure="a hook in run_end did not finish in time and did not obey either"))
