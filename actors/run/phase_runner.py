"""Run one phase: its hooks, and the predicates, guardrails and instructions that belong to the phase.

Guardrails of an agent, which are asked beside the phases, are here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
import trio
from msgspec.structs import replace

from ..agents.agent import Agent
from ..contract.guardrails import Tripped
from ..contract.ids import error_id, phase_error_id
from ..contract.inference import RequestChanges
from ..contract.phases import Phase
from ..contract.rows import CallRow
from ..engine.effects import AskGuards, RunPhase
from ..engine.inputs import GuardsDone, PhaseDone
from ..engine.state import RunState
from ..plugins.contexts import PhaseContext
from ..plugins.guardrails import Guardrail, shortest
from ..plugins.plugin import has_hook
from ..services.children import Child, Children
from ..services.error_log import PLUGIN, TOOL, ErrorLog
from ..services.sanitize import text_of
from ..state.access import State
from ..state.values import copied
from ..tools.definition import Tool
from ..tools.invoke import shown_text
from ..user_code.approvals import NO, ApprovalNeed, wants_approval
from ..user_code.calls import PREDICATE_TIMEOUT, HookFailed
from ..user_code.enabled_tools import ask_enabled
from ..user_code.gate_runner import run_gates
from ..user_code.guardrails import ask_all, in_order, log_failure
from ..user_code.hook_deadlines import HookDeadlines, start_until_obeyed
from ..user_code.hooks import HookRequest, limit_of, most_seconds, run_hooks
from ..user_code.instructions import ask_instructions
from .call_actor import gate_context
from .model_request import hook_request
from .run_context import RunContext
from .step_tools import ask_for_step, tool_of_call
from .view import typed_output

_OF_THE_RUN: Final = (Phase.RUN_START, Phase.RUN_END)
"""The phases whose hooks are those of the agent with which the run was started."""
RUN_END_LIMIT: Final = "run_end:limit"
"""Key of the child that bounds the time of the run_end hooks."""


def run_phase(run: RunContext, effect: RunPhase, state: RunState) -> None:
    """Run a phase in a child, which submits `PhaseDone`."""

    def start(watch: HookDeadlines) -> Child:
        call = None if effect.call_id is None else state.calls[effect.call_id]
        phase = PhaseRunner(run, effect, state, _agent(run, effect, state), call, watch)
        key = f"{effect.phase.value}:{effect.call_id or effect.step}"
        return run.children.start(key, phase.body, broke=phase.broke)

    start_until_obeyed(run.children, start, _shortest(_agent(run, effect, state), effect))


def _agent(run: RunContext, effect: RunPhase, state: RunState) -> Agent[object]:
    return run.need_agent() if effect.phase in _OF_THE_RUN else run.acting(state)


def _shortest(agent: Agent[object], effect: RunPhase) -> float:
    """Return the shortest time limit of a phase; infinite for run_end, which has a child that bounds the whole."""
    if effect.phase is Phase.RUN_END:
        return math.inf
    limits = [limit_of(plugin, effect.phase) for plugin in agent.plugins if has_hook(plugin, effect.phase)]
    if effect.phase is Phase.TOOL_GATE or (effect.phase is Phase.BEFORE_INFERENCE and agent.asks_each_step):
        limits.append(PREDICATE_TIMEOUT)
        limits += [shortest(tool.input_guardrails) for tool in agent.tools]
    return min(limits, default=math.inf)


@attrs.frozen(eq=False)
class PhaseRunner:
    """Runs one phase once.

    Attributes:
        agent: whose hooks run.
        call: the subject of a phase of a call.
        watch: notes which user code is running, and until when.
    """

    run: RunContext
    effect: RunPhase
    state: RunState
    agent: Agent[object]
    call: CallRow | None
    watch: HookDeadlines

    def __repr__(self) -> str:
        return f"<PhaseRunner of {self.effect.phase.value} of {self.run.info.run_id}>"

    @property
    def log(self) -> ErrorLog:
        """The log of the run, with the fields of every line about this phase."""
        phase, step, call_id = self.effect.phase.value, self.effect.step, self.effect.call_id
        name = phase_error_id(self.run.info.run_id, phase, step, call_id)
        return self.run.log.bind(error_id=name, phase=phase, step=step, call_id=call_id)

    @property
    def _tool(self) -> Tool[..., object] | None:
        """The tool of a call before its gates; None in the other phases, and for a nested call, which has none."""
        has_tool = self.call is not None and self.call.parent is None and self.effect.phase is Phase.TOOL_GATE
        return self.run.tool(self.agent, self.call.tool) if has_tool and self.call is not None else None

    @property
    def _conditional(self) -> Tool[..., object] | None:
        """The tool of the call, if it is asked again whether it is enabled."""
        call = self.call
        tool = None if call is None or call.attempts or call.parent is not None else self.agent.tool(call.tool)
        return None if tool is None or tool.is_enabled is True else tool

    def broke(self, error: BaseException) -> PhaseDone:
        """Return the answer of a phase that has crashed."""
        effect, phase = self.effect, self.effect.phase.value
        what = f"the hooks of {phase} of run {self.run.info.run_id} crashed"
        self.log.bug(PLUGIN, what, error, code="plugin_error")
        text = text_of(f"{phase}: {shown_text(error)}")
        return PhaseDone(phase=effect.phase, step=effect.step, call_id=effect.call_id, failure=text)

    async def body(self, child: Child) -> None:
        """The body of the child."""
        request, children = await self._request(), self.run.children
        if request.phase is Phase.RUN_END and RUN_END_LIMIT not in children.live:
            await trio.lowlevel.checkpoint_if_cancelled()  # reading the store may have hidden a cancel
            children.start(RUN_END_LIMIT, partial(_give_up, children, request), broke=None, ours=True)
        if request.phase is Phase.BEFORE_INFERENCE:
            done = await self._before_inference(request)
        elif request.phase is not Phase.TOOL_GATE or self.call is None:
            done = await run_hooks(request)
        else:
            done = await self._gates(self.call, request)
        if not child.muted:
            children.submit_input(done)

    async def _request(self) -> HookRequest:
        run, agent, tool = self.run, self.agent, self._tool
        has_guardrails = tool is not None and bool(tool.input_guardrails)
        needs_history = has_guardrails or self.effect.phase in agent.spec.hooked or self._conditional is not None
        history = await run.history_for(self.state) if needs_history else []
        request = hook_request(self.effect, self.state, agent, run, history)
        return attrs.evolve(request, find_model=run.services.models.named, watch=self.watch, tell=self._log_hook)

    def _context(self, request: HookRequest) -> PhaseContext:
        """Return the context of user code that is not a hook."""
        return request.context(State(request.snapshot, self.agent.spec.keys), ())

    async def _before_inference(self, request: HookRequest) -> PhaseDone:
        """Run the hooks, then ask for the instructions, which tools are enabled, and the toolsets.

        A disabled tool is excluded from the step's request.
        """
        agent, done = self.agent, await run_hooks(request)
        if not agent.asks_each_step or done.failure is not None or done.end is not None:
            return done
        ctx, changes = self._context(request), done.request
        if not isinstance(agent.instructions, str):
            try:
                text = await ask_instructions(agent.instructions, ctx, self.watch)
            except HookFailed as failure:
                log_failure(self.log, self.run.info.run_id, failure)
                return request.done(failure=text_of(str(failure)), ignored=done.ignored, spent=done.spent)
            changes = (changes or RequestChanges()).joined(RequestChanges(instructions=text))
        disabled_tools = await ask_enabled(agent.conditional, ctx, self.watch, self._log_enabled)
        if disabled_tools.names:
            changes = (changes or RequestChanges()).joined(RequestChanges(exclude=disabled_tools.names))
        done = replace(done, request=changes, enabled_faults=disabled_tools.faults)
        if not agent.toolsets:
            return done
        tools = await ask_for_step(self.run, agent, ctx, self.watch)
        return replace(done, toolset_faults=tools.faults, unavailable=tools.unavailable)

    async def _gates(self, call: CallRow, request: HookRequest) -> PhaseDone:
        """Ask again whether the tool of a call is enabled, then run the call's gates.

        A tool of a toolset that is not here any more cannot say what it needs: the call ends as if it were disabled.
        """
        if call.offered is not None and not isinstance(await tool_of_call(self.run, self.agent, call.offered), Tool):
            return request.done(disabled=True)
        if self._conditional is not None:
            disabling = await ask_enabled([self._conditional], self._context(request), self.watch, self._log_enabled)
            if disabling.names:
                return request.done(disabled=True, enabled_faults=disabling.faults)
        has_approval, tool = call.approved == call.fingerprint, self._tool
        built_in = None if has_approval else partial(self._approval_need, call)
        guards = None
        if tool is not None and tool.input_guardrails:
            guards = partial(self._ask_guardrails, tool, call, request)
        return await run_gates(request, approved=has_approval, built_in=built_in, guardrails=guards)

    async def _ask_guardrails(self, tool: Tool[..., object], call: CallRow, request: HookRequest) -> Tripped | None:
        """Ask the input guardrails of a call's tool; a failure is logged."""
        arguments = partial(tool.complete, call.arguments)
        try:
            return await in_order(tool.input_guardrails, self._context(request), arguments, self.watch)
        except HookFailed as failure:
            log_failure(self.log, self.run.info.run_id, failure)
            raise

    async def _approval_need(self, call: CallRow) -> ApprovalNeed:
        """Find out whether the tool itself needs an approval; a doubt about that is logged."""
        tool, run = self._tool, self.run
        if tool is None:
            return NO
        ctx = gate_context(run, call, self.effect.state, self.agent.spec.keys)
        need = await wants_approval(tool, ctx, call.arguments, self.watch)
        if need.doubt is not None:
            what = f"run {run.info.run_id}: a person is asked, for {need.doubt}"
            self.log.fault(TOOL, what, need.error, code="predicate_failed", tool=tool.name)
        return need

    def _log_enabled(self, tool: Tool[..., object], why: str, error: BaseException | None) -> None:
        run_id = self.run.info.run_id
        what = f"run {run_id}: the tool {tool.name!r} is not offered, for its is_enabled failed: {why}"
        self.log.fault(TOOL, what, error, code="is_enabled_failed", tool=tool.name)

    def _log_hook(self, plugin: str, failure: HookFailed) -> None:
        run_id, cause = self.run.info.run_id, failure.__cause__
        what = f"run {run_id}: {failure}"
        if cause is not None:
            what = f"plugin {plugin!r} failed in {self.effect.phase.value} of run {run_id}"
        self.log.fault(PLUGIN, what, cause, level=failure.level, code="plugin_error", plugin=plugin)


async def _give_up(children: Children, request: HookRequest, _: Child) -> None:
    """Fail the run_end phase when its time is over, so that a hook that ignores its cancel cannot block the end."""
    await trio.sleep(most_seconds(request))
    children.submit_input(request.done(failure="a hook in run_end did not finish in time and did not obey either"))


# --- guardrails of the agent -----------------------------------------------------------------------------------------


def ask_guards(run: RunContext, effect: AskGuards, state: RunState) -> None:
    """Ask guardrails in a child, which submits `GuardsDone`."""
    agent = run.need_agent() if effect.kind == "input" else run.acting(state)
    guardrails: tuple[Guardrail, ...] = agent.input_guardrails if effect.kind == "input" else agent.output_guardrails
    guards = GuardsRunner(run, effect, state, agent, [guard for guard in guardrails if guard.name in effect.names])

    def start(watch: HookDeadlines) -> Child:
        key = f"guardrails:{effect.kind}:{effect.step}:{effect.names[0]}"
        return run.children.start(key, partial(guards.body, watch), broke=guards.broke)

    start_until_obeyed(run.children, start, shortest(guards.guardrails))


@attrs.frozen(eq=False)
class GuardsRunner:
    """Asks guardrails of an agent.

    Attributes:
        agent: whose guardrails they are.
        guardrails: those that have not answered yet.
    """

    run: RunContext
    effect: AskGuards
    state: RunState
    agent: Agent[object]
    guardrails: list[Guardrail]

    def __repr__(self) -> str:
        return f"<GuardsRunner of {self.run.info.run_id}>"

    @property
    def log(self) -> ErrorLog:
        """The log of the run, with the fields of every line about these guardrails."""
        effect, run_id = self.effect, self.run.info.run_id
        return self.run.log.bind(error_id=error_id(run_id, f"{effect.kind}_guardrails", effect.step), step=effect.step)

    def _done(self, **answer: Any) -> GuardsDone:
        return GuardsDone(kind=self.effect.kind, step=self.effect.step, names=self.effect.names, **answer)

    def broke(self, error: BaseException) -> GuardsDone:
        """Return the answer of guardrails whose child has crashed."""
        kind = self.effect.kind
        what = f"the guardrails ({kind}) of run {self.run.info.run_id} crashed"
        self.log.bug(PLUGIN, what, error, code="plugin_error")
        return self._done(failure=text_of(f"{kind} guardrails: {shown_text(error)}"))

    async def body(self, watch: HookDeadlines, child: Child) -> None:
        """The body of the child."""
        run, effect, agent = self.run, self.effect, self.agent
        history = await run.history_for(self.state)
        phase = Phase.BEFORE_INFERENCE if effect.kind == "input" else Phase.STEP_END
        phase_effect = RunPhase(phase=phase, step=effect.step, state=effect.state)
        request = hook_request(phase_effect, self.state, agent, run, history)
        ctx, thread = request.context(State(effect.state, agent.spec.keys), ()), await run.thread()
        value: Callable[[], object]  # makes a copy for each guardrail
        if effect.kind == "output":
            value = partial(typed_output, agent, copied(effect.output))
        else:
            value = partial("\n\n".join, [message.content for message in thread if message.id in effect.messages])
        try:
            done = self._done(tripped=await ask_all(self.guardrails, ctx, value, watch))
        except HookFailed as failure:
            log_failure(self.log, run.info.run_id, failure)
            done = self._done(failure=text_of(str(failure)))
        if not child.muted:
            run.children.submit_input(done)
