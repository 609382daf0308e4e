"""`Runtime`: starting, finding, deciding. Who works is in `roster.py`, how a runtime opens in `opening.py`."""

from __future__ import annotations

import inspect
import logging
import secrets as random_ids
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
import trio

from greenroom.supervision import Supervisor, failure_of

from ..abc import Model, RunOrder, RunPage, RunQuery, Store
from ..agent import Agent
from ..contract.calls import CallStatus
from ..contract.codec import failure_text, message_of
from ..contract.decisions import Answer, Command, Decision, InboxItem
from ..contract.ids import error_id
from ..contract.lifecycle import RunStatus
from ..contract.redaction import Redactor
from ..contract.rows import RunInfo, RunRecord
from ..contract.spec import ExecutionMode
from ..engine.judge import ArgumentCheck, Judge, reject
from ..errors import (
    AgentDefinitionError,
    RuntimeClosed,
    StoreDown,
    StoreUnavailable,
    UnknownAgent,
    UnknownRun,
    UsageError,
)
from ..models import resolve_model
from ..replay.report import ReplayReport
from .alarm import Alarm
from .birth import LOCAL, Birth, fork_of, inheriting, new_run
from .board import Board
from .clock import Clock, ClockWatch
from .follow import Follower, follow
from .foreign import Unusable, command_of, data_of, decision_of, object_of
from .handle import Run
from .holdback import HoldBack
from .journal import DEPS, RUN, Journal
from .listing import query_of, shown_page
from .passivation import Passivation
from .replaying import load_record, mode_for, replay_run
from .roster import Roster
from .services import Degraded, Services, patiently
from .starting import begin, join
from .workplace import Workplace

T = TypeVar("T")

THREADS: Final = 32
"""Sync tools that may run at once in one runtime."""

DepsProvider = Callable[[RunInfo], Any]
"""(RunInfo) -> deps, sync or async. Asked at every activation of a run without live deps.

One that raises leaves the run as it is, degraded(deps_missing). LookupError says that it has none: the run waits for a
command, for `resume`, or for the next start. Anything else is a failure that may pass: the provider is asked again,
after a second at first and after a minute at most.
"""


class StartOptions(TypedDict, total=False):
    """The options of `Runtime.start`; see there."""

    run_id: str | None
    thread_id: str | None
    session_id: str | None
    by: str | None
    workspace: str | None
    deps: Any
    deadline: datetime | None
    execution: ExecutionMode | None
    on_busy: Literal["queue", "refuse"]
    title: str | None
    may_join: Callable[[RunInfo], bool] | None


@attrs.define(eq=False, repr=False)
class Runtime:
    """Made by `open_runtime`. Every method must be called from trio; any task may call.

    Attributes:
        store, clock, redactor, holdback: what the runs share.
        board, rests: where tasks wait for runs to change, and to come to rest.
        agents: by key.
        roster: the runs that have an owner here.
        outage: why the store does not answer now; None if it does.
    """

    store: Store
    clock: Clock
    board: Board
    rests: Board
    redactor: Redactor
    holdback: HoldBack
    agents: dict[str, Agent[Any]]
    _deps: Any
    supervisor: Supervisor
    max_running: int | None
    passivate_after: float | None
    journal: Journal = attrs.field(init=False)
    alarm: Alarm = attrs.field(init=False)
    clock_watch: ClockWatch = attrs.field(init=False)
    passivation: Passivation = attrs.field(init=False)
    outage: Exception | None = attrs.field(init=False, default=None)
    _bad_deps: set[str] = attrs.field(init=False, factory=set)
    _unreadable: set[str] = attrs.field(init=False, factory=set)
    workplace: Workplace = attrs.field(init=False, factory=Workplace)
    roster: Roster = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clock_watch = ClockWatch(self.clock)
        self.journal = Journal(self.redactor)
        self.alarm = Alarm(self.store, self.clock, self.clock_watch, self._wake)
        self.passivation = Passivation(self.passivate_after)
        services = Services(
            store=self.store,
            clock=self.clock,
            clock_watch=self.clock_watch,
            redactor=self.redactor,
            journal=self.journal,
            holdback=self.holdback,
            board=self.board,
            rests=self.rests,
            threads=trio.CapacityLimiter(THREADS),
            workplace=self.workplace,
            alarm=self.alarm,
            passivation=self.passivation,
            jitter=lambda: 0.5 + random_ids.randbelow(1000) / 1000,
            directory=self,
        )
        self.roster = Roster(services, self.supervisor, self.max_running)

    def __repr__(self) -> str:
        return f"<Runtime with {len(self.roster)} live runs>"

    # --- starting and finding runs -----------------------------------------------------------------------------------

    @overload
    async def start(self, agent: Agent[T], text: str, /, **options: Unpack[StartOptions]) -> Run[T]: ...
    @overload
    async def start(self, agent: str, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]: ...
    async def start(self, agent: Any, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]:
        """Start a run; returns when run.created is durable.

        The run id is the idempotency key: the same id with the same content returns the same run. Creating and taking
        hold of the run are one shielded step; after Cancelled the run may exist: start it again with its id.

        Args:
            agent: an Agent, or the key of one that the runtime knows.
            text: the input; not blank, for there must be something that the model can read.
            options: run_id (default: a new one), thread_id (default: a thread of its own), session_id, by (a
                principal), workspace, deps (this run's dependencies), deadline (absolute, with timezone, includes
                waiting), execution (another mode than the agent's), on_busy ("queue" or "refuse" when the thread has
                an active run), title (one line for lists of runs: its first line, redacted, cut at 80 characters;
                default: that of the text. It is a label: the same start with another title is the same start), may_join
                (whose threads the run may join, see below).

        A run reads the whole thread that it joins. `may_join` says of a run whether the caller may see it; it is asked
        of each run in the thread, also of pruned ones whose messages are left there (of these once for each combination
        of by, agent, session_id and workspace). One False refuses the start. A thread whose runs are all pruned belongs
        to its owner: `by` has to be the principal of its first run. The answer holds in the transaction that writes the
        run. None: any thread, for a caller who may see everything.

        Raises:
            UsageError: a value can not be. UnknownAgent: no agent has this key. AgentDefinitionError: it has no model.
            RunExists: the id is taken by another run. RunPruned: it was taken by a run that is pruned. ThreadBusy:
                on_busy is "refuse" and the thread has an active run. ThreadForbidden: `may_join` refuses the thread.
            StoreUnavailable: not started. RuntimeClosed: the runtime is closing.
        """
        self.roster.check_open()
        known = self._agent(agent)
        self.model_for(known)
        unknown = set(options) - StartOptions.__annotations__.keys()
        if unknown:
            known_names, wrong = list(StartOptions.__annotations__), sorted(unknown)[0]
            near = "".join(f"; did you mean {name}?" for name in get_close_matches(wrong, known_names, n=1))
            raise UsageError(f"start() has no option {wrong!r}{near}; it has {', '.join(known_names)}")
        deps, values = options.get("deps"), dict[str, Any](options)
        may_join = values.pop("may_join", None)
        values.pop("deps", None)
        values["run_id"] = options.get("run_id") or f"run_{random_ids.token_hex(8)}"
        birth = Birth(agent=known, text=text, has_deps=deps is not None, **values)
        new = new_run(birth, self.clock.now(), self.redactor)
        if birth.thread_id is None:
            return await begin(self, new, known, deps)
        return await join(self, new, known, deps, may_join)

    async def get(self, run_id: str) -> Run[Any]:
        """The run of this id.

        Raises:
            UnknownRun: there is none. RuntimeClosed: the runtime is closed.
        """
        with self.board.looking():
            outline = await self.store.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        return Run(run_id, outline.info.thread_id, self)

    async def runs(
        self,
        *,
        status: RunStatus | str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        prefix: str = "",
        by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: RunOrder = "newest",
        limit: int = 100,
        cursor: str | None = None,
        counts: bool = False,
    ) -> RunPage:
        """A page of runs; each line has its title and what it asks, both without secrets.

        All filters that are given must match: status, agent, thread_id, by (the principal that started the run), prefix
        (what its id begins with), since and until (when it was created: from, and before, with a time zone), and text
        (what its title or id contains; upper and lower case are the same). `order` is "newest", or "waiting_longest":
        waiting runs only, the longest waiting first. A page has at most `limit` lines (1 to 1,000); the next one begins
        at its `cursor`. `counts` also counts all runs that are not done, by status.

        Raises:
            UsageError: a value can not be, or the cursor belongs to another query.
            RuntimeClosed: the runtime is closed.
        """
        self.board.check_open()
        query = query_of(
            status=status, agent=agent, thread_id=thread_id, prefix=prefix, by=by, since=since, until=until,
            text=text, order=order, limit=limit, cursor=cursor, counts=counts,
        )  # fmt: skip
        return await self.list_runs(query)

    async def list_runs(self, query: RunQuery) -> RunPage:
        """A page of runs, by a query; see `runs`.

        Raises:
            UsageError: a value can not be, or the cursor belongs to another query.
            RuntimeClosed: the runtime is closed.
        """
        with self.board.looking():
            page = await self.store.runs(query)
        self._note_unreadable(page)
        return shown_page(page, self.redactor)

    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        """The lines of these runs, as `runs` shows them; an id that is not there is left out.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        with self.board.looking():
            page = await self.store.summaries(run_ids, counts=counts)
        self._note_unreadable(page)
        return shown_page(page, self.redactor)

    def _note_unreadable(self, page: RunPage) -> None:
        for run_id in page.unreadable:
            if run_id not in self._unreadable:  # once: lists are read again and again
                self._unreadable.add(run_id)
                text = f"the rows of run {run_id} can not be read; lists leave it out"
                self.journal.note(RUN, logging.WARNING, text)

    def follow(
        self, run_id: str, *, after: int = 0, until: Literal["end", "rest"] = "end"
    ) -> AbstractContextManager[Follower]:
        """Follow a run in slices of encoded events: what `Run.events`, the gateway and the pages are made of.

            with runtime.follow(run_id, after=seen) as follower:
                async for found in follower:
                    write(b"".join(found.frames))

        The same guarantees as `Run.events`; for whoever passes the bytes on, and does not look into them.

        Raises:
            UsageError: `after` is negative, or `until` is not known. RuntimeClosed: the runtime is closed.
            UnknownRun, RunDegraded, RuntimeClosed, StoreError: from the iteration.
        """
        if type(after) is not int or after < 0 or until not in ("end", "rest"):
            raise UsageError(f"follow(after={after!r}, until={until!r}): give after >= 0 and until 'end' or 'rest'")
        return follow(self, run_id, after, until)

    async def fork(
        self, run_id: str, *, step: int, new_run_id: str | None = None, by: str | None = None, deps: Any = None
    ) -> Run[Any]:
        """Start a new run that begins where another one stood at the end of `step`, in a thread of its own.

        Step 0 is before its first one. It has the history and the state keys of both scopes as they were then; nothing
        that is written later, by either, reaches the other.

        Args:
            run_id: of the run to begin from.
            step: a finished step of it, or 0.
            new_run_id: of the fork; the same fork again returns the same run. None: a new id.
            by: the principal that asks; "local" if not given, as for `start`, whoever started the parent.
            deps: dependencies of the fork.

        Raises:
            UnknownRun: no such run. UsageError: it has no finished step of that number, or an argument is invalid.
            UnknownAgent: its agent is not here. AgentDefinitionError: that has no model.
            RunExists: the new id is taken, or a run that is pruned had it. RuntimeClosed: the runtime is closing.
        """
        self.roster.check_open()
        with self.board.looking():
            record = await self.store.load(run_id, calls="step")
        if record is None:
            raise UnknownRun(run_id)
        agent = self._agent(record.info.agent)
        self.model_for(agent)
        with self.board.looking():
            thread = await self.store.messages(record.info.thread_id)
        name = new_run_id or f"run_{random_ids.token_hex(8)}"
        new = fork_of(record, thread, step, name, self.clock.now(), by=by)
        if deps is not None:
            new = attrs.evolve(new, info=attrs.evolve(new.info, has_deps=True))
        with self.board.looking():
            new = inheriting(new, await self.store.state_at(run_id, step))
        return await begin(self, new, agent, deps)

    async def resume(self, run_id: str, *, deps: Any = None) -> Run[Any]:
        """Work again on a run that had no agent or deps here; harmless for one that is worked on.

        Raises:
            UnknownRun: no such run. UnknownAgent: its agent is still not here. AgentDefinitionError: that has no model.
            RuntimeClosed: the runtime is closing.
        """
        self.roster.check_open()
        with self.board.looking():
            outline = await self.store.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        if outline.status is not RunStatus.DONE:  # an owner that is still looking for them takes these
            agent = self._agent(outline.info.agent)
            self.model_for(agent)
            self.roster.spawn(run_id, agent=agent, deps=deps)
        return Run(run_id, outline.info.thread_id, self)

    async def replay(self, run_id: str, agent: Agent[Any] | None = None) -> ReplayReport:
        """Re-run a stored run against what is recorded of it, and report the first difference.

        Nobody is asked and nothing is touched: no model, no tool, no hook or predicate, no write. The model's answers,
        the results of calls and what people said are the recorded ones. Of a run that is not done, what is recorded so
        far is compared. The runtime must have the secrets that it had when the run was recorded.

        Args:
            run_id: of the run.
            agent: another one to try the record against, whatever its key; None: the runtime's agent of the run.

        Raises:
            UnknownRun: no such run. UnknownAgent: none was given and the run's agent is not here.
            UsageError: `agent` is no Agent. RuntimeClosed: the runtime is closed.
        """
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"replay(agent={agent!r}): give an Agent, or None for the runtime's own")
        with self.board.looking():
            record = await load_record(self.store, run_id, self.redactor)
            tried = self._agent(record.info.agent) if agent is None else agent
            mode = record.info.execution if agent is None else await mode_for(self.store, record, tried)
        return await replay_run(record, tried, mode)

    def degraded(self, record: RunRecord) -> tuple[str, str] | None:
        """Why nobody works on a run that is not done here, or None.

        None also while its owner looks what has come: it may be what needs no agent, such as a cancel. Of a run that
        waits and is not in memory see `lacking`.
        """
        reason = self.roster.degraded(record.info.run_id)
        owned = self.roster.get(record.info.run_id) is not None
        if reason is not None or owned or record.row.status is not RunStatus.WAITING:
            return reason
        return self.lacking(record)

    def lacking(self, record: RunRecord) -> tuple[str, str] | None:
        """What a run that is not done needs and does not have here, or None; its owner may be doing without just now.

        Of a run whose owner has not asked yet it is known whether its agent is here, and whether there is anybody who
        could have its deps; a provider is asked when the run is woken.
        """
        info, actor = record.info, self.roster.get(record.info.run_id)
        known = self.roster.degraded(info.run_id) if actor is None else actor.degraded
        if known is not None or (actor is not None and actor.abandon is not None):
            return known
        if info.agent not in self.agents and (actor is None or actor.agent is None):
            return "agent_unknown", f"no agent has the key {info.agent!r}"
        given = self._deps is not None or (actor is not None and actor.has_deps)
        return ("deps_missing", _NO_PROVIDER) if info.has_deps and not given else None

    async def closed(self) -> None:
        """Wait until the runtime is closed: nothing can be looked up or followed any more."""
        await trio.lowlevel.checkpoint()
        try:
            while True:
                await self.board.notice(":runtime").wait()  # no run has an id that begins with a colon
        except RuntimeClosed:
            return

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await self.roster.join()

    # --- commands ----------------------------------------------------------------------------------------------------

    async def decide(self, run_id: str, decision: Decision) -> Answer:
        """Judge and journal one decision; see `Run.decide`."""
        decision = decision_of(decision)
        name = decision.decision_id or self.new_id()
        decision = attrs.evolve(decision, decision_id=name, decided_at=decision.decided_at or self.clock.now())
        command = Command(
            command_id=name, kind="decide", decision=decision, reason=decision.reason, by=decision.decided_by
        )
        try:
            edited = decision.edited_arguments
            edited = None if edited is None else object_of(edited, "edited_arguments")
        except Unusable as error:
            await trio.lowlevel.checkpoint()
            return reject(command, "invalid_arguments", f"{error}; give an object of plain JSON data")
        try:
            result = data_of(decision.result, "the result")
        except Unusable as error:
            await trio.lowlevel.checkpoint()
            return reject(command, "invalid_result", f"{error}; give plain JSON data")
        decision = attrs.evolve(decision, result=result, edited_arguments=edited)
        return await self.post(run_id, attrs.evolve(command, decision=decision))

    async def post(self, run_id: str, command: Command) -> Answer:
        """Judge and journal a command: the one way in, also for the run's own process.

        Raises:
            UsageError: a text of it is no str, or what it sends is blank. UnknownRun: no such run.
        """
        if self.roster.closing:
            await trio.lowlevel.checkpoint()
            return reject(command, "store_unavailable", "the runtime is closing; try again when it is open")
        command = attrs.evolve(_signed(command_of(command)), posted_at=self.clock.now())
        await trio.lowlevel.checkpoint_if_cancelled()
        answer = reject(command, "store_unavailable", "the store gave no answer; repeat the command with the same id")
        try:
            command = await self._unmasked(run_id, command)
            check, definition = await self._tools_of(run_id, command)
            with trio.CancelScope(shield=True):  # between submit and receipt; the store answers within its patience
                answer = await self.store.post(run_id, command, Judge(self.clock.now(), check, definition))
        except (StoreUnavailable, StoreDown) as error:
            answer = reject(command, "store_unavailable", f"{error}; repeat the command with the same id")
            await trio.lowlevel.cancel_shielded_checkpoint()  # who repeats it at once lets the store recover
        if answer.code == "fingerprint_mismatch":
            self.roster.wake(run_id)  # a changed tool: the run asks again as soon as it has an owner
        return answer

    async def _unmasked(self, run_id: str, command: Command) -> Command:
        """Edited arguments with the call's own values in place of the masks that people were shown of them."""
        decision = command.decision
        if decision is None or decision.edited_arguments is None:
            return command
        ticket, outline = await self.store.ticket(run_id, decision.target), await self.store.outline(run_id)
        if ticket is None or outline is None:
            return command
        redactor = self.redactor.within(outline.info.workspace)
        edited = redactor.restored(decision.edited_arguments, ticket.arguments)
        return attrs.evolve(command, decision=attrs.evolve(decision, edited_arguments=edited))

    async def _tools_of(self, run_id: str, command: Command) -> tuple[ArgumentCheck, Callable[[str], str]]:
        """How edited arguments are checked, and what is known of a tool's definition: by the run's agent."""
        decision = command.decision
        if decision is None or command.kind != "decide":
            return (lambda _tool, _arguments: None), (lambda _tool: "")
        actor = self.roster.get(run_id)
        agent = None if actor is None else actor.agent
        if agent is None:
            outline = await self.store.outline(run_id)
            agent = None if outline is None else self.agents.get(outline.info.agent)

        def check(tool_name: str, arguments: Any) -> str | None:
            tool = None if agent is None else agent.tool(tool_name)
            if tool is None:
                return f"the tool {tool_name!r} is not here, so its arguments can not be checked"
            return tool.check(arguments)

        def definition(tool_name: str) -> str:
            return "" if agent is None else agent.spec.definition(tool_name, "")

        return check, definition

    def asks_anew(self, record: RunRecord) -> bool:
        """True if a tool has changed since a person was asked about a call, and the run is about to ask again.

        A run that waits is not in memory after a restart, and so has not noticed: it gets an owner.
        """
        name = record.info.run_id
        actor = self.roster.get(name)
        agent = (None if actor is None else actor.agent) or self.agents.get(record.info.agent)
        asked = [call for call in record.calls if call.status is CallStatus.SUSPENDED and call.definition]
        if agent is None or all(
            agent.spec.definition(call.tool, call.call_id) in ("", call.definition) for call in asked
        ):
            return False
        self.roster.wake(name)
        return self.roster.get(name) is not None

    @staticmethod
    def new_id() -> str:
        """A fresh random id (96 bits)."""
        return random_ids.token_hex(12)

    # --- what the store and the run actors say -----------------------------------------------------------------------

    def posted(self, run_id: str, item: InboxItem) -> None:
        """A command is durable: hint it to the run's actor (`StoreHooks`)."""
        self.roster.posted(run_id, item)
        self.board.posted(run_id)

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Events of a run are durable: who follows it is told (`StoreHooks`)."""
        self.board.committed(run_id, last, frames)

    def pruned(self) -> None:
        """Done runs have been deleted: lists of runs are told (`StoreHooks`)."""
        self.board.pruned()

    def unavailable(self, error: Exception | None) -> None:
        """The store has stopped answering, or answers again (`StoreHooks`): told to the log `greenroom.run`.

        Runs stand at their receipts meanwhile, and commands are answered store_unavailable.
        """
        self.outage = error
        if error is None:
            self.journal.note(RUN, logging.WARNING, "the store answers again")
        else:
            text = f"the store does not answer ({failure_text(error)}); it is tried again for its patience"
            self.journal.note(RUN, logging.WARNING, text)

    async def agent_for(self, info: RunInfo) -> Agent[Any]:
        """The agent of a run that is taken up (`Directory`)."""
        agent = self.agents.get(info.agent)
        if agent is None:
            raise Degraded("agent_unknown", f"no agent has the key {info.agent!r}")
        try:
            self.model_for(agent)
        except AgentDefinitionError as error:
            raise Degraded("agent_unknown", str(error)) from error
        return agent

    async def deps_for(self, info: RunInfo) -> Any:
        """The deps of a run that has no live ones (`Directory`)."""
        if not callable(self._deps):
            if info.has_deps and self._deps is None:
                raise Degraded("deps_missing", _NO_PROVIDER)
            return self._deps
        try:
            deps = self._deps(info)
            if inspect.isawaitable(deps):
                deps = await deps
        except LookupError as error:
            raise Degraded("deps_missing", self.redactor.text(f"the provider has none: {message_of(error)}")) from error
        except BaseException as error:  # noqa: BLE001 - user code: what it can not give now it may give in a while
            failure = failure_of(error)
            name = self._log_provider(info, failure)
            said = f"the provider failed, and is asked again: {failure_text(failure)} (error_id {name})"
            text = self.redactor.text(said)
            raise Degraded("deps_missing", text, passing=True) from failure  # noqa: ASYNC104 - the border has raised what passes
        self._bad_deps.discard(info.run_id)
        return deps

    def _log_provider(self, info: RunInfo, failure: BaseException) -> str:
        """The traceback once for each run, then a line for each time that the provider fails again; the error's id."""
        name, what = error_id(info.run_id, "deps"), f"the deps provider failed for run {info.run_id}"
        fields = {"error_id": name, "code": "deps_missing", "run_id": info.run_id, "agent": info.agent}
        if info.run_id in self._bad_deps:
            self.journal.note(DEPS, logging.WARNING, f"{what} again: {failure_text(failure)}", **fields)
        else:
            self._bad_deps.add(info.run_id)
            self.journal.bug(DEPS, what, failure, **fields)
        return name

    def model_for(self, agent: Agent[Any]) -> Model:
        """The model that an agent is to use (`Directory`).

        Raises:
            AgentDefinitionError: it has none.
        """
        model = agent.model
        if isinstance(model, Model):
            return model
        if model is None:
            raise AgentDefinitionError(f"agent {agent.key!r} has no model; give it one: Agent(..., model=...)")
        return resolve_model(model)

    def can_revive(self, info: RunInfo) -> bool:
        """True if the run's live objects can be had again once it has left memory (`Directory`)."""
        return info.agent in self.agents and (not info.has_deps or callable(self._deps))

    def released(self, run_id: str) -> None:
        """The run's thread is free (`Directory`)."""
        self.roster.released(run_id)

    def resting(self, run_id: str, resting: bool) -> None:
        """The run came to rest, or works again (`Directory`)."""
        self.roster.resting(run_id, resting)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _agent(self, wanted: Agent[Any] | str) -> Agent[Any]:
        if isinstance(wanted, Agent):
            known = self.agents.setdefault(wanted.key, wanted)
            if known.spec.digest != wanted.spec.digest:
                raise UsageError(f"another agent has the key {wanted.key!r} in this runtime; keys must be unique")
            return wanted
        agent = self.agents.get(wanted) if isinstance(wanted, str) else None
        if agent is None:
            keys = ", ".join(sorted(self.agents)) or "none"
            raise UnknownAgent(f"no agent has the key {wanted!r}; this runtime knows: {keys}")
        return agent

    def _wake(self, run_id: str, degraded: bool) -> bool:
        return self.roster.wake(run_id, degraded=degraded)

    async def recover(self) -> None:
        """Take up every run that is not at rest; those that wait are woken by a command, or by the alarm."""
        for run_id, held in await patiently(self.store.to_do):
            self.roster.spawn(run_id, held=held)


_NO_PROVIDER: Final = "it was started with deps of its own and the runtime has no provider"


def _signed(command: Command) -> Command:
    """With a principal: who does not say is LOCAL, as for start. The clock signs its own commands."""
    if command.by is not None or command.kind == "expire":
        return command
    decision = command.decision
    if decision is not None:
        decision = attrs.evolve(decision, decided_by=LOCAL)
    return attrs.evolve(command, by=LOCAL, decision=decision)
