"""Ask the guardrails of an agent about the input or the output of the run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from ..agents.agent import Agent
from ..contract.ids import error_id
from ..contract.phases import Phase
from ..engine.effects import AskGuards, RunPhase
from ..engine.inputs import GuardsDone
from ..engine.state import RunState
from ..plugins.guardrails import Guardrail, shortest
from ..services.children import Child
from ..services.error_log import PLUGIN, ErrorLog
from ..services.sanitize import text_of
from ..state.access import State
from ..state.values import copied
from ..tools.invoke import shown_text
from ..user_code.calls import HookFailed
from ..user_code.guardrails import ask_all, log_failure
from ..user_code.hook_deadlines import HookDeadlines, start_until_obeyed
from .model_request import hook_request
from .run_context import RunContext
from .view import typed_output


def ask_guards(run: RunContext, effect: AskGuards, state: RunState) -> None:
    """Ask guardrails in a child, which submits `GuardsDone`."""
    agent = run.need_agent() if effect.kind == "input" else run.acting(state)
    known: tuple[Guardrail, ...] = agent.input_guardrails if effect.kind == "input" else agent.output_guardrails
    guards = GuardsRunner(run, effect, state, agent, [guard for guard in known if guard.name in effect.names])

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
        asked = RunPhase(phase=phase, step=effect.step, state=effect.state)
        request = hook_request(asked, self.state, agent, run.deps, history, models=run.models_for(agent))
        ctx, value = request.context(State(effect.state, agent.spec.keys), ()), await self._judged()
        try:
            done = self._done(tripped=await ask_all(self.guardrails, ctx, value, watch))
        except HookFailed as failure:
            log_failure(self.log, run.info.run_id, failure)
            done = self._done(failure=text_of(str(failure)))
        if not child.muted:
            run.children.submit_input(done)

    async def _judged(self) -> Callable[[], object]:
        """Return a function that makes a copy of what is judged."""
        thread, effect = await self.run.thread(), self.effect
        if effect.kind == "output":
            return partial(typed_output, self.agent, copied(effect.output))
        return partial("\n\n".join, [message.content for message in thread if message.id in effect.messages])
