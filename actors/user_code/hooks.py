"""Run the hooks of one phase: concurrently, on one snapshot, merged into one answer.

Theory of operation. All hooks of a phase run at once on the same snapshot of the state. Their answers are merged in the
order of registration. A hook whose answer conflicts with an earlier one runs again, alone, on the merged state. Each
hook ends in one of four ways: an answer, a failure that its plugin ignores, a failure that ends the run, or a cancel
because another hook ended the phase.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import attrs
import trio
from msgspec.structs import replace

from greenroom.supervision.border import failure_of, failure_of_call
from greenroom.supervision.nursery import open_collapsing_nursery

from ..abc import Model
from ..agents.agent import Agent
from ..contract.decisions import Suspend
from ..contract.inference import RequestChanges
from ..contract.phases import Phase
from ..engine.inputs import CallEdit, PhaseDone, Spent, Trimmed
from ..errors import AgentDefinitionError
from ..models import resolve_model
from ..plugins.contexts import GateContext, PhaseContext
from ..plugins.history import closed
from ..plugins.mutation import Mutation
from ..plugins.plugin import Plugin, has_hook, name_of
from ..services.sanitize import InvalidValue, suspend_of, text_of, usage_of
from ..state.access import State, WritableState
from ..state.snapshot import StateSnapshot
from ..state.values import shown
from ..tools.invoke import shown_text
from .hook_deadlines import GRACE, UNWATCHED, HookDeadlines

T = TypeVar("T")
A = TypeVar("A")
LAST: Final = 30.0
"""Time limit in seconds of a run_end hook whose plugin has none: no command can end the run behind such a hook."""
_HOLD: Final = "to hold the run, return gr.Mutation().hold(gr.Suspend(...)) in run_start, step_start or step_end"


class HookFailed(Exception):
    """A hook raised, took too long, or gave an invalid answer; the text says which.

    Attributes:
        level: log level of the failure.
    """

    def __init__(self, text: str, *, level: int = logging.ERROR) -> None:
        super().__init__(text)
        self.level = level


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
        tell: called for each failed hook, including ignored failures.
    """

    phase: Phase
    step: int
    call_id: str | None
    agent: Agent[object]
    snapshot: StateSnapshot
    context: Callable[[State, tuple[CallEdit, ...]], PhaseContext]
    find_model: Callable[[str], Model] = resolve_model
    watch: HookDeadlines = UNWATCHED
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
    plugins, known = request.plugins, request.agent.spec.keys
    board = _HookAnswers(request)
    try:
        answers = await together(plugins, lambda plugin: board.ask(plugin, State(request.snapshot, known), ()))
        later = [plugin for plugin, answer in zip(plugins, answers, strict=True) if not board.take(plugin, answer)]
        for plugin in later:
            answer = await board.ask(plugin, board.state.view(), tuple(board.edits))
            board.take(plugin, answer, fresh=True)
        return board.done()
    except HookFailed as failure:
        return request.done(failure=text_of(str(failure)), ignored=tuple(board.ignored), spent=tuple(board.spent))


async def together(plugins: Sequence[A], ask: Callable[[A], Awaitable[Any]]) -> list[Any]:
    """Ask plugins (or tools) concurrently and return their answers in order.

    The first failure that ends the run cancels the others.

    Raises:
        HookFailed: that first failure.
    """
    answers: list[Any] = [None] * len(plugins)
    failures: list[HookFailed] = []

    async def ask_one(index: int, plugin: A) -> None:
        try:
            answers[index] = await ask(plugin)
        except HookFailed as failure:
            failures.append(failure)
            nursery.cancel_scope.cancel("a hook of the phase has failed")

    if len(plugins) < 2:  # the usual case needs no task
        return [await ask(plugin) for plugin in plugins]
    async with open_collapsing_nursery() as nursery:
        for index, plugin in enumerate(plugins):
            nursery.start_soon(ask_one, index, plugin)
    if failures:
        raise failures[0]
    return answers


class _HookAnswers:
    """The merged answers of one phase's hooks, in the order of registration."""

    def __init__(self, request: HookRequest) -> None:
        self._request = request
        self.state = WritableState(request.snapshot, request.agent.spec.keys)
        self.edits: list[CallEdit] = []
        self.ignored: list[str] = []
        self.spent: list[Spent] = []
        self._touched: dict[Any, str] = {}
        self._taken: dict[str, Mutation] = {}

    async def ask(self, plugin: Plugin, state: State, edits: tuple[CallEdit, ...]) -> Mutation | None:
        """Run one hook and return its checked answer; None for no request or an ignored failure."""
        request = self._request
        try:
            answer = await call_hook(request, plugin, request.context(state, edits))
            read = read_answer(plugin, request.phase, lambda: _checked(plugin, request, answer))
        except HookFailed as failure:
            self._note_failure(plugin, failure)
            return None
        for model, usage in () if read is None else read.spent:
            self.spent.append(Spent(by=name_of(plugin), usage=usage, model=model))
        return read

    def _note_failure(self, plugin: Plugin, failure: HookFailed) -> None:
        """Note a failure and continue without the hook's answer.

        Raises:
            HookFailed: the failure ends the run. In run_end it does not, because the other hooks still have to run.
        """
        self._request.tell(name_of(plugin), failure)
        if plugin.on_error == "fail" and self._request.phase is not Phase.RUN_END:
            raise failure
        self.ignored.append(text_of(str(failure)))

    def take(self, plugin: Plugin, answer: Mutation | None, *, fresh: bool = False) -> bool:
        """Merge an answer. Returns False if it conflicts with an earlier answer that this hook had not seen."""
        if answer is None:
            return True
        touched = answer.touched()
        for what, how in touched.items():
            before = self._touched.get(what)
            if not fresh and before is not None and "exclusive" in (before, how):
                return False
        trial = self.state.copy()
        try:
            for key, write in answer.writes:
                trial.apply(key, write)
        except BaseException as error:  # noqa: BLE001, ASYNC103 - a reducer is user code
            cause = failure_of_call(error)
            failure = HookFailed(text_of(f"{where(plugin, self._request.phase)}: {shown_text(cause)}"))
            failure.__cause__ = cause
            self._note_failure(plugin, failure)
            return True  # noqa: ASYNC104 - the border has raised what passes
        self.state = trial
        self._touched.update(touched)
        self._taken[name_of(plugin)] = answer
        # the newer edit of a call wins, except that a dropped call stays dropped
        dropped = {edit.call_id for edit in self.edits if edit.arguments is None}
        new = [replace(edit, by=name_of(plugin)) for edit in answer.edits if edit.call_id not in dropped]
        changed = {edit.call_id for edit in new}
        self.edits = [edit for edit in self.edits if edit.call_id not in changed] + new
        return True

    def done(self) -> PhaseDone:
        """Return the phase's answer, in the order of registration even if some hooks ran twice."""
        request, end = RequestChanges(), None
        ticket_requests: tuple[Suspend, ...] = ()
        trimmed = list[Trimmed]()
        for plugin in self._request.plugins:
            answer = self._taken.get(name_of(plugin), Mutation())
            request = request.joined(answer.request)
            end = end if end is not None else answer.reason
            ticket_requests += answer.ticket_requests
            if answer.request.hidden:
                trimmed.append(Trimmed(by=name_of(plugin), messages=len(answer.request.hidden)))
        return self._request.done(
            batch=self.state.batch(),
            keys=self.state.used,
            request=None if request == RequestChanges() else request,
            edits=tuple(self.edits),
            end=end,
            ticket_requests=ticket_requests,
            ignored=tuple(self.ignored),
            trimmed=tuple(trimmed),
            spent=tuple(self.spent),
        )


def _checked(plugin: Plugin, request: HookRequest, answer: object) -> Mutation | None:
    named = where(plugin, request.phase)
    if answer is None:
        return None
    if not isinstance(answer, Mutation):
        way = _HOLD if isinstance(answer, Suspend) else "return a gr.Mutation or None"
        raise HookFailed(f"{named}: it returned {shown(answer)}; {way}")
    wrong = answer.misplaced(request.phase) or _unknown(answer, request)
    if wrong is not None:
        raise HookFailed(f"{named} {wrong}")
    try:
        if answer.request.model is not None:
            request.find_model(answer.request.model)
        if answer.request.hidden:
            hidden = closed(request.context(State(), ()).messages, answer.request.hidden)
            answer = attrs.evolve(answer, request=replace(answer.request, hidden=hidden))
        spent = tuple((model, usage_of(usage)) for model, usage in answer.spent)
        return attrs.evolve(answer, ticket_requests=tuple(map(suspend_of, answer.ticket_requests)), spent=spent)
    except AgentDefinitionError as error:
        raise HookFailed(f"{named}: {error}") from error
    except InvalidValue as error:
        raise HookFailed(f"{named}: its answer cannot be stored: {error}") from error


def _unknown(answer: Mutation, request: HookRequest) -> str | None:
    """Return what is wrong if an answer names a tool or call that does not exist; else None."""
    tools = {info.name for info in request.agent.tool_infos}
    for name in (*(answer.request.include or ()), *answer.request.exclude):
        if name not in tools:
            return f"names the tool {name!r}; the agent's tools are: {', '.join(sorted(tools)) or 'none'}"
    known = {message.id for message in request.context(State(), ()).messages} if answer.request.hidden else set()
    for name in answer.request.hidden:
        if name not in known:
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
    limit, name = limit_of(plugin, request.phase), name_of(plugin)
    late = f"{where(plugin, request.phase)}: it did not finish within {limit:g} s"
    if name in request.watch.given_up:
        raise HookFailed(f"{late}, and did not obey either", level=logging.WARNING)
    with request.watch.over(name, limit), trio.move_on_after(limit) as time:
        try:
            answer = await getattr(plugin, request.phase.value)(ctx)
        except BaseException as error:  # noqa: ASYNC103 - user code may raise anything; `failure_of` raises what must pass
            answer = failure_of(error)
            if not isinstance(answer, Suspend):
                raise HookFailed(f"{where(plugin, request.phase)}: {shown_text(answer)}") from answer  # noqa: ASYNC104 - the border has raised what passes
            if not isinstance(ctx, GateContext):
                raise HookFailed(f"{where(plugin, request.phase)}: it raised gr.Suspend; {_HOLD}") from error  # noqa: ASYNC104 - the border has raised what passes
        if not time.cancel_called:
            return answer
    raise HookFailed(late, level=logging.WARNING)


def read_answer(plugin: Plugin, phase: Phase, read: Callable[[], T]) -> T:
    """Read a hook's answer. Its values are the plugin's objects, and reading them may run any code.

    Raises:
        HookFailed: the answer cannot be used.
    """
    try:
        return read()
    except HookFailed:
        raise
    except BaseException as error:  # noqa: BLE001 - the values of an answer are the program's
        failure = failure_of_call(error)
        raise HookFailed(f"{where(plugin, phase)}: its answer cannot be read: {shown_text(failure)}") from failure  # noqa: ASYNC104 - the border has raised what passes


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
