"""Run the hooks of one phase: concurrently, on one snapshot, merged into one answer.

Theory of operation. All hooks of a phase run concurrently on the same snapshot of the state. Their answers are merged
in the order of registration. A hook whose answer conflicts with an earlier one runs again, alone, on the merged state.
Each hook ends in one of four ways: an answer, a failure that its plugin ignores, a failure that ends the run, or a
cancel because another hook ended the phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

import attrs
from msgspec.structs import replace

from greenroom.supervision import Raised, capture

from ..abc import Model
from ..agents.agent import Agent
from ..contract.decisions import Suspend
from ..contract.inference import RequestChanges
from ..contract.phases import Phase
from ..engine.body_inputs import Spent
from ..engine.inputs import CallEdit, PhaseDone, Trimmed
from ..errors import AgentDefinitionError
from ..models import resolve_model
from ..plugins.contexts import GateContext, PhaseContext
from ..plugins.history import closed
from ..plugins.mutation import Mutation
from ..plugins.plugin import Plugin, has_hook, name_of
from ..services.sanitize import suspend_of, text_of, usage_of
from ..state.access import State, WritableState
from ..state.snapshot import StateSnapshot
from ..state.values import shown
from .calls import HookFailed, answer_of, call_user, read_answer, together
from .hook_deadlines import GRACE, HookDeadlines

LAST: Final = 30.0
"""Time limit in seconds of a run_end hook whose plugin has none: no command can end the run behind such a hook."""
_HOLD: Final = "to hold the run, return gr.Mutation().hold(gr.Suspend(...)) in run_start, step_start or step_end"


@attrs.frozen(kw_only=True)
class HookRequest:
    """The phase to run, and its subject.

    Attributes:
        phase, step, call_id: identify the phase.
        agent: the owner of the plugins.
        snapshot: the state that all hooks read.
        context: makes a hook's context from a view of the state and the edits so far.
        find_model: returns the model of a name.
        watch: notes which hooks are running, and until when.
        tell: A callback for each failed hook, including ignored failures.
    """

    phase: Phase
    step: int
    call_id: str | None
    agent: Agent[object]
    snapshot: StateSnapshot
    context: Callable[[State, tuple[CallEdit, ...]], PhaseContext]
    find_model: Callable[[str], Model] = resolve_model
    watch: HookDeadlines | None = None
    tell: Callable[[str, HookFailed], None] = lambda plugin, failure: None

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins with a hook for the phase, in the order of registration."""
        return tuple(plugin for plugin in self.agent.plugins if has_hook(plugin, self.phase))

    def done(self, **fields: Any) -> PhaseDone:
        """Return the answer of the phase."""
        return PhaseDone(
            phase=self.phase, step=self.step, call_id=self.call_id, revision=self.snapshot.revision, **fields
        )


# --- run-level phases, and those around a body -----------------------------------------------------------------------


async def run_hooks(request: HookRequest) -> PhaseDone:
    """Run the hooks of a phase and return their merged answer.

    Failures of hooks are part of the answer; Cancelled passes.
    """
    plugins, keys = request.plugins, request.agent.spec.keys
    board = _HookAnswers(request)
    try:
        answers = await together(plugins, lambda plugin: board.ask(plugin, State(request.snapshot, keys), ()))
        later = [plugin for plugin, answer in zip(plugins, answers, strict=True) if not board.take(plugin, answer)]
        for plugin in later:
            answer = await board.ask(plugin, board.state.view(), tuple(board.edits))
            board.take(plugin, answer, fresh=True)
        return board.done()
    except HookFailed as failure:
        return request.done(failure=text_of(str(failure)), ignored=tuple(board.failures), spent=tuple(board.spendings))


class _HookAnswers:
    """The merged answers of one phase's hooks, in the order of registration."""

    def __init__(self, request: HookRequest) -> None:
        self._request = request
        self.state = WritableState(request.snapshot, request.agent.spec.keys)
        self.edits: list[CallEdit] = []
        self.failures: list[str] = []
        self.spendings: list[Spent] = []
        self._fields: dict[Any, str] = {}
        self._mutations: dict[str, Mutation] = {}

    async def ask(self, plugin: Plugin, state: State, edits: tuple[CallEdit, ...]) -> Mutation | None:
        """Run one hook and return its checked answer; None for no request or an ignored failure."""
        request = self._request
        try:
            answer = await call_hook(request, plugin, request.context(state, edits))
            mutation = read_answer(where(plugin, request.phase), "answer", lambda: _checked(plugin, request, answer))
        except HookFailed as failure:
            self._note_failure(plugin, failure)
            return None
        for model, usage in () if mutation is None else mutation.spent:
            self.spendings.append(Spent(by=name_of(plugin), usage=usage, model=model))
        return mutation

    def _note_failure(self, plugin: Plugin, failure: HookFailed) -> None:
        """Note a failure and continue without the hook's answer.

        Raises:
            HookFailed: the failure ends the run. In run_end it does not, because the other hooks still have to run.
        """
        self._request.tell(name_of(plugin), failure)
        if plugin.on_error == "fail" and self._request.phase is not Phase.RUN_END:
            raise failure
        self.failures.append(text_of(str(failure)))

    def take(self, plugin: Plugin, answer: Mutation | None, *, fresh: bool = False) -> bool:
        """Merge an answer. Returns False if it conflicts with an earlier answer that this hook had not seen."""
        if answer is None:
            return True
        touched_fields = answer.touched()
        for what, how in touched_fields.items():
            before = self._fields.get(what)
            if not fresh and before is not None and "exclusive" in (before, how):
                return False
        trial = self.state.copy()
        try:
            answer_of(capture(_apply, trial, answer), where(plugin, self._request.phase))
        except HookFailed as failure:  # of a reducer
            self._note_failure(plugin, failure)
            return True
        self.state = trial
        self._fields.update(touched_fields)
        self._mutations[name_of(plugin)] = answer
        # the newer edit of a call wins, except that a dropped call stays dropped
        dropped_calls = {edit.call_id for edit in self.edits if edit.arguments is None}
        new = [replace(edit, by=name_of(plugin)) for edit in answer.edits if edit.call_id not in dropped_calls]
        changed_calls = {edit.call_id for edit in new}
        self.edits = [edit for edit in self.edits if edit.call_id not in changed_calls] + new
        return True

    def done(self) -> PhaseDone:
        """Return the phase's answer, in the order of registration even if some hooks ran twice."""
        request, end = RequestChanges(), None
        ticket_requests: tuple[Suspend, ...] = ()
        trims = list[Trimmed]()
        for plugin in self._request.plugins:
            answer = self._mutations.get(name_of(plugin), Mutation())
            request = request.joined(answer.request)
            end = end if end is not None else answer.reason
            ticket_requests += answer.ticket_requests
            if answer.request.hidden:
                trims.append(Trimmed(by=name_of(plugin), messages=len(answer.request.hidden)))
        return self._request.done(
            batch=self.state.batch(),
            keys=self.state.used,
            request=None if request == RequestChanges() else request,
            edits=tuple(self.edits),
            end=end,
            ticket_requests=ticket_requests,
            ignored=tuple(self.failures),
            trimmed=tuple(trims),
            spent=tuple(self.spendings),
        )


def _apply(state: WritableState, answer: Mutation) -> None:
    for key, write in answer.writes:
        state.apply(key, write)


def _checked(plugin: Plugin, request: HookRequest, answer: object) -> Mutation | None:
    hook = where(plugin, request.phase)
    if answer is None:
        return None
    if not isinstance(answer, Mutation):
        way = _HOLD if isinstance(answer, Suspend) else "return a gr.Mutation or None"
        raise HookFailed(f"{hook}: it returned {shown(answer)}; {way}")
    wrong = answer.misplaced(request.phase) or _unknown(answer, request)
    if wrong is not None:
        raise HookFailed(f"{hook} {wrong}")
    try:
        if answer.request.model is not None:
            request.find_model(answer.request.model)
        if answer.request.hidden:
            hidden_ids = closed(request.context(State(), ()).messages, answer.request.hidden)
            answer = attrs.evolve(answer, request=replace(answer.request, hidden=hidden_ids))
        spendings = tuple((model, usage_of(usage)) for model, usage in answer.spent)
        return attrs.evolve(answer, ticket_requests=tuple(map(suspend_of, answer.ticket_requests)), spent=spendings)
    except AgentDefinitionError as error:
        raise HookFailed(f"{hook}: {error}") from error


def _unknown(answer: Mutation, request: HookRequest) -> str | None:
    """Return the fault of an answer that names a tool or call that does not exist; else None."""
    tools = {info.name for info in request.agent.tool_infos}
    for name in (*(answer.request.include or ()), *answer.request.exclude):
        if name not in tools and not request.agent.toolsets:  # they offer tools of any name
            return f"names the tool {name!r}; the agent's tools are: {', '.join(sorted(tools)) or 'none'}"
    message_ids = {message.id for message in request.context(State(), ()).messages} if answer.request.hidden else set()
    for name in answer.request.hidden:
        if name not in message_ids:
            return f"hides the message {name!r}, which is not in the thread"
    calls = {call.call_id for call in request.context(State(), ()).calls} if answer.edits else set()
    for edit in answer.edits:
        if edit.call_id not in calls:
            return f"names the call {edit.call_id!r}; the step's calls are: {', '.join(sorted(calls)) or 'none'}"
    return None


# --- one hook --------------------------------------------------------------------------------------------------------


async def call_hook(request: HookRequest, plugin: Plugin, ctx: PhaseContext) -> Any:
    """Call one hook within its time limit; a later answer is dropped.

    Raises:
        HookFailed: the hook raised, or did not finish in time.
        trio.Cancelled: cancelled.
    """
    hook = where(plugin, request.phase)
    outcome = await call_user(
        methodcaller(request.phase.value, ctx),
        plugin,
        name=name_of(plugin),
        limit=limit_of(plugin, request.phase),
        watch=request.watch,
        answers=(Suspend,) if isinstance(ctx, GateContext) else (),
    )
    if isinstance(outcome, Raised) and isinstance(outcome.error, Suspend):
        raise HookFailed(f"{hook}: it raised gr.Suspend; {_HOLD}") from outcome.error
    return answer_of(outcome, hook, f"{hook}: it did not finish")


def limit_of(plugin: Plugin, phase: Phase) -> float:
    """Return a hook's time limit in seconds."""
    if plugin.timeout is not None:
        return plugin.timeout
    return LAST if phase is Phase.RUN_END else math.inf


def most_seconds(request: HookRequest) -> float:
    """Return the longest time in seconds that a phase takes if no hook ignores the end of its time."""
    limits = [limit_of(plugin, request.phase) for plugin in request.plugins]
    # after a conflict, all but the first may run again, one by one
    return max(limits, default=0.0) + sum(limits[1:]) + GRACE


def where(plugin: Plugin, phase: Phase) -> str:
    """Return the place of a failure, for its message."""
    return f"plugin {name_of(plugin)!r} in {phase.value}"
