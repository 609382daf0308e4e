"""`open_runtime`: the home of runs. A supervisor keeps the store and one actor per run.

Leaving the block stops them all.
Order at the end: commands are refused, live runs get `drain` seconds to come to a durable point, then their work is
cancelled, then the store writes what is queued and closes. No run is ended by that: all of them can be resumed at the
next start.
"""

from __future__ import annotations

import inspect
import secrets as random_ids
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
import trio

from greenroom.supervision import (
    ActorContext,
    ActorExited,
    ChildSpec,
    Exit,
    GaveUp,
    MailboxFull,
    Ref,
    StartFailed,
    Supervisor,
    SupervisorGaveUp,
    cleanup,
    open_supervisor,
)

from ..abc import Model, RunPage, RunQuery, Store
from ..agent import Agent
from ..contract.decisions import Answer, Command, Decision, InboxItem
from ..contract.envelope import EventEncoder
from ..contract.lifecycle import RunStatus
from ..contract.outcomes import Cancelled, Completed, Failed, Waiting
from ..contract.redaction import Redactor
from ..contract.rows import NewRun, RunInfo, RunRecord
from ..contract.spec import ExecutionMode
from ..engine.judge import Judge, reject
from ..engine.state import RunState
from ..errors import (
    AgentDefinitionError,
    RunExists,
    RuntimeClosed,
    RuntimeFailed,
    StoreDown,
    StoreUnavailable,
    UnknownAgent,
    UnknownRun,
    UsageError,
)
from ..models import resolve_model
from ..stores.memory import MemoryStore
from ..stores.sqlite import SQLiteStore
from .birth import Birth, fork_of, new_run
from .board import Board
from .clock import Clock
from .handle import Run
from .incarnation import Hint, Orders
from .run_actor import Born, RunActor
from .services import Degraded, Services

T = TypeVar("T")

GRACE: Final = 6.0
"""Seconds that runs get to unwind once their work is cancelled: the default clean-up grace of a tool and a little
more.
"""
THREADS: Final = 32
"""Sync tools that may run at once in one runtime."""
CRASHES: Final = 2
"""Restarts of a run actor within `CRASH_WINDOW` seconds; the third crash gives up and the run ends as
failed(internal_error).
"""
CRASH_WINDOW: Final = 60.0
STORE: Final = ":store"
"""Id of the child that serves the store; no run id begins with a colon."""

DepsProvider = Callable[[RunInfo], Any]
"""(RunInfo) -> deps, sync or async. Asked at every activation of a run without live deps; LookupError means: not to
be had.
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


@attrs.define(eq=False, repr=False)
class Runtime:
    """Made by `open_runtime`. Every method must be called from trio; any task may call.

    Attributes:
        store, clock, redactor: what the runs share.
        board, rests: where tasks wait for runs to change, and to come to rest.
        agents: by key.
    """

    store: Store
    clock: Clock
    board: Board
    rests: Board
    redactor: Redactor
    agents: dict[str, Agent[Any]]
    _deps: Any
    _max_running: int | None
    _supervisor: Supervisor
    _services: Services = attrs.field(init=False)
    _actors: dict[str, RunActor] = attrs.field(init=False, factory=dict)
    _degraded: dict[str, tuple[str, str]] = attrs.field(init=False, factory=dict)
    _working: set[str] = attrs.field(init=False, factory=set)
    _resting: set[str] = attrs.field(init=False, factory=set)
    _queue: deque[str] = attrs.field(init=False, factory=deque)
    _held: set[str] = attrs.field(init=False, factory=set)
    _closing: bool = attrs.field(init=False, default=False)
    _idle: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._services = Services(
            store=self.store,
            clock=self.clock,
            redactor=self.redactor,
            board=self.board,
            rests=self.rests,
            threads=trio.CapacityLimiter(THREADS),
            jitter=lambda: 0.5 + random_ids.randbelow(1000) / 1000,
            directory=self,
        )

    def __repr__(self) -> str:
        return f"<Runtime with {len(self._actors)} live runs>"

    # --- starting and finding runs -----------------------------------------------------------------------------------

    @overload
    async def start(self, agent: Agent[T], text: str, /, **options: Unpack[StartOptions]) -> Run[T]: ...
    @overload
    async def start(self, agent: str, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]: ...
    async def start(self, agent: Any, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]:
        """Start a run; returns when run.created is durable.

        The run id is the idempotency key: the same id with the same content returns the same run. Creating and taking
            hold of the run are
        one shielded step; after Cancelled the run may exist: start it again with its id.

        Args:
            agent: an Agent, or the key of one that the runtime knows.
            text: the input.
            options: run_id (default: a new one), thread_id (default: a thread of its own), session_id, by (a
                principal), workspace, deps (this run's dependencies), deadline (absolute, with timezone, includes
                waiting), execution (another mode than the agent's), on_busy ("queue" or "refuse" when the thread has
                an active run).

        Raises:
            UsageError: a value can not be. UnknownAgent: no agent has this key. AgentDefinitionError: it has no model.
            RunExists: the id is taken by another run. ThreadBusy: on_busy is "refuse" and the thread has an active run.
            StoreUnavailable: not started. RuntimeClosed: the runtime is closing.
        """
        self._check_open()
        known = self._agent(agent)
        self.model_for(known)
        unknown = set(options) - StartOptions.__annotations__.keys()
        if unknown:
            raise UsageError(
                f"start() has no option {sorted(unknown)[0]!r}; it has {', '.join(StartOptions.__annotations__)}"
            )
        deps, values = options.get("deps"), dict[str, Any](options)
        values.pop("deps", None)
        values["run_id"] = options.get("run_id") or f"run_{random_ids.token_hex(8)}"
        birth = Birth(agent=known, text=text, has_deps=deps is not None, **values)
        new = new_run(birth, self.clock.now())
        return await self._create(new, known, deps, fresh=birth.thread_id is None)

    async def _create(self, new: NewRun, agent: Agent[Any], deps: Any, *, fresh: bool) -> Run[Any]:
        await trio.lowlevel.checkpoint_if_cancelled()
        info = new.info
        encoder = EventEncoder(info, self.redactor)
        (frame,) = encoder.frames(0, info.created_at, (new.created,))
        with trio.CancelScope(
            shield=True
        ):  # the store answers or fails within its patience; then the run has its owner
            created = await self.store.create_run(new, frame)
            if created.existing is None and created.claim is not None:
                state = RunState(info=info, row=new.row)
                born = Born(claim=created.claim, state=state, history=new.messages if fresh else None)
                self._spawn(info.run_id, born=born, agent=agent, deps=deps, held=created.held)
        if created.existing is not None and created.existing.content != info.content:
            raise RunExists(f"run {info.run_id!r} exists with another content; take another id, or None for a new one")
        known = created.existing or info
        return Run(known.run_id, known.thread_id, self)

    async def get(self, run_id: str) -> Run[Any]:
        """The run of this id.

        Raises:
            UnknownRun: there is none.
        """
        record = await self.store.load(run_id)
        if record is None:
            raise UnknownRun(run_id)
        return Run(run_id, record.info.thread_id, self)

    async def runs(
        self,
        *,
        status: RunStatus | str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> RunPage:
        """A page of runs, newest first.

        Raises:
            UsageError: the status is not known, the limit is out of range, or the cursor belongs to another query.
        """
        try:
            wanted = None if status is None else RunStatus(status)
        except ValueError as error:
            known = ", ".join(item.value for item in RunStatus)
            raise UsageError(f"status={status!r} is not known; use one of {known}") from error
        return await self.store.runs(
            RunQuery(status=wanted, agent=agent, thread_id=thread_id, limit=limit, cursor=cursor)
        )

    async def fork(self, run_id: str, *, step: int, new_run_id: str | None = None, deps: Any = None) -> Run[Any]:
        """Start a new run that begins where another one stood at the end of `step`, in a thread of its own.

        Raises:
            UnknownRun: no such run. UsageError: it has no finished step of that number. UnknownAgent: its agent is
                not here.
            RunExists: the new id is taken. RuntimeClosed: the runtime is closing.
        """
        self._check_open()
        record = await self.store.load(run_id, calls="step")
        if record is None:
            raise UnknownRun(run_id)
        agent = self._agent(record.info.agent)
        thread = await self.store.messages(record.info.thread_id)
        new = fork_of(record, thread, step, new_run_id or f"run_{random_ids.token_hex(8)}", self.clock.now())
        return await self._create(new, agent, deps, fresh=True)

    async def resume(self, run_id: str, *, deps: Any = None) -> Run[Any]:
        """Work again on a run that had no agent or deps here; harmless for one that is worked on.

        Raises:
            UnknownRun: no such run. UnknownAgent: its agent is still not here. RuntimeClosed: the runtime is closing.
        """
        self._check_open()
        record = await self.store.load(run_id)
        if record is None:
            raise UnknownRun(run_id)
        if record.row.status is not RunStatus.DONE and run_id not in self._actors:
            self._spawn(run_id, agent=self._agent(record.info.agent), deps=deps)
        return Run(run_id, record.info.thread_id, self)

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await trio.lowlevel.checkpoint()
        while any(run_id not in self._resting for run_id in self._actors if run_id not in self._held):
            self._check_open()
            await self._idle.wait()

    # --- commands ----------------------------------------------------------------------------------------------------

    async def decide(self, run_id: str, decision: Decision) -> Answer:
        """Judge and journal one decision; see `Run.decide`."""
        name = decision.decision_id or self.new_id()
        decision = attrs.evolve(decision, decision_id=name, decided_at=decision.decided_at or self.clock.now())
        command = Command(
            command_id=name, kind="decide", decision=decision, reason=decision.reason, by=decision.decided_by
        )
        return await self.post(run_id, command)

    async def post(self, run_id: str, command: Command) -> Answer:
        """Judge and journal a command: the one way in, also for the run's own process.

        Raises:
            UnknownRun: no such run.
        """
        if self._closing:
            return reject(command, "store_unavailable", "the runtime is closing; try again when it is open")
        command = attrs.evolve(command, posted_at=self.clock.now())
        await trio.lowlevel.checkpoint_if_cancelled()
        check = await self._argument_check(run_id, command)
        answer = reject(command, "store_unavailable", "the store gave no answer; repeat the command with the same id")
        try:
            with trio.CancelScope(shield=True):  # between submit and receipt; the store answers within its patience
                answer = await self.store.post(run_id, command, Judge(self.clock.now(), check))
        except (StoreUnavailable, StoreDown) as error:
            return reject(command, "store_unavailable", f"{error}; repeat the command with the same id")
        return answer

    async def _argument_check(self, run_id: str, command: Command) -> Any:
        """How edited arguments are checked: by the tools of the run's agent."""
        decision = command.decision
        if decision is None or command.kind != "decide":
            return lambda _tool, _arguments: None
        actor = self._actors.get(run_id)
        agent = None if actor is None else actor.agent
        if agent is None:
            record = await self.store.load(run_id)
            agent = None if record is None else self.agents.get(record.info.agent)

        def check(tool_name: str, arguments: Any) -> str | None:
            tool = None if agent is None else agent.tool(tool_name)
            if tool is None:
                return f"the tool {tool_name!r} is not here, so its arguments can not be checked"
            return tool.check(arguments)

        return check

    @staticmethod
    def new_id() -> str:
        """A fresh random id (96 bits)."""
        return random_ids.token_hex(12)

    # --- what the store and the run actors say -----------------------------------------------------------------------

    def posted(self, run_id: str, item: InboxItem) -> None:
        """A command is durable: hint it to the run's actor (`StoreHooks`)."""
        actor = self._actors.get(run_id)
        if actor is None:
            if not self._closing:
                self._spawn(run_id)
            return
        if actor.ref is not None:
            try:
                actor.ref.tell(item)
            except (MailboxFull, ActorExited):  # the row is durable; a later hint or the next owner finds it
                actor.ref.nudge()

    def unavailable(self, error: Exception | None) -> None:
        """The store has stopped answering, or answers again (`StoreHooks`). Runs stand at their receipts meanwhile."""

    def degraded(self, run_id: str) -> tuple[str, str] | None:
        """Why nobody works on a run here, or None."""
        return self._degraded.get(run_id)

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
                raise Degraded("deps_missing", "it was started with deps of its own and the runtime has no provider")
            return self._deps
        try:
            deps = self._deps(info)
            if inspect.isawaitable(deps):
                deps = await deps
        except LookupError as error:
            raise Degraded("deps_missing", f"the provider has none: {error}") from error
        return deps

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

    def released(self, run_id: str) -> None:
        """The run's thread is free (`Directory`)."""
        self._held.discard(run_id)
        self._queue.append(run_id)
        self._admit()

    def resting(self, run_id: str, resting: bool) -> None:
        """The run came to rest, or works again (`Directory`). A resting run gives its slot to others."""
        if resting:
            self._resting.add(run_id)
            self._working.discard(run_id)
            self._admit()
            self._look_idle()
        else:
            self._resting.discard(run_id)
            self._working.add(run_id)

    async def gone(self, run_id: str, record: RunRecord) -> None:
        """Wait until nothing of a finished run is alive (but for calls that are named stubborn)."""
        actor = self._actors.get(run_id)
        if actor is not None and actor.ref is not None and not record.row.stubborn:
            await actor.ref.exited.wait()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closing:
            raise RuntimeClosed("the runtime is closing; open it again to start or resume runs")

    def _agent(self, wanted: Agent[Any] | str) -> Agent[Any]:
        if isinstance(wanted, Agent):
            known = self.agents.setdefault(wanted.key, wanted)
            if known.spec.digest != wanted.spec.digest:
                raise UsageError(f"another agent has the key {wanted.key!r} in this runtime; keys must be unique")
            return wanted
        agent = self.agents.get(wanted)
        if agent is None:
            keys = ", ".join(sorted(self.agents)) or "none"
            raise UnknownAgent(f"no agent has the key {wanted!r}; this runtime knows: {keys}")
        return agent

    def _spawn(
        self,
        run_id: str,
        *,
        born: Born | None = None,
        agent: Agent[Any] | None = None,
        deps: Any = None,
        held: bool = False,
        abandon: str | None = None,
    ) -> None:
        """Give a run an actor."""
        room = self._max_running is None or len(self._working) < self._max_running
        admitted = not held and (room or abandon is not None)
        actor = RunActor(
            self._services,
            run_id,
            orders=Orders(admitted=admitted),
            born=born,
            agent=agent,
            deps=deps,
            has_deps=deps is not None,
            abandon=abandon,
        )
        if held:
            self._held.add(run_id)
        elif admitted:
            self._working.add(run_id)
        else:
            self._queue.append(run_id)
        self._degraded.pop(run_id, None)
        self._actors[run_id] = actor
        spec: ChildSpec[Hint] = ChildSpec(
            id=run_id,
            start=actor.body,
            restart="transient",
            shutdown=GRACE,
            max_restarts=CRASHES,
            within=CRASH_WINDOW,
        )
        try:
            actor.ref = self._supervisor.start_child(spec)
        except BaseException:
            self._forget(run_id)
            raise

    def ended(self, ref: Ref[Any], exit_: Exit) -> None:
        """A child of the supervisor has ended for good; called in its last step."""
        if ref.id == STORE:
            return
        actor = self._actors.get(ref.id)
        self._forget(ref.id)
        if actor is not None and actor.degraded is not None:
            self._degraded[ref.id] = actor.degraded
        if isinstance(exit_, GaveUp) and not self._closing and (actor is None or actor.abandon is None):
            error = exit_.error
            self._spawn(ref.id, abandon=f"the run's owner crashed again and again: {type(error).__name__}: {error}")
        self._admit()
        self._look_idle()
        self.board.changed(ref.id)
        self.rests.changed(ref.id)

    def _forget(self, run_id: str) -> None:
        self._actors.pop(run_id, None)
        self._working.discard(run_id)
        self._resting.discard(run_id)
        self._held.discard(run_id)

    def _admit(self) -> None:
        """Give free slots to runs that wait for one, oldest first."""
        while self._queue and (self._max_running is None or len(self._working) < self._max_running):
            run_id = self._queue.popleft()
            actor = self._actors.get(run_id)
            if actor is not None and actor.ref is not None:
                actor.orders.admitted = True
                self._working.add(run_id)
                actor.ref.nudge()

    def _look_idle(self) -> None:
        self._idle.set()
        self._idle = trio.Event()

    async def recover(self) -> None:
        """Take up every run that is not done."""
        for run_id, held in await self.store.open_runs():
            self._spawn(run_id, held=held)

    async def drain(self, seconds: float) -> None:
        """Refuse commands and let live runs come to a durable point, for so many seconds at most."""
        self._closing = True
        for actor in self._actors.values():
            actor.orders.draining = True
            if actor.ref is not None:
                actor.ref.nudge()
        if self._actors and seconds > 0:
            with cleanup(seconds, what="drain the runs", on_overrun=lambda _: None):
                await self._supervisor.join()

    def close(self) -> None:
        """No more commands; whoever waits is told."""
        self._closing = True
        self._look_idle()


def make_store(store: Store | str | Path | None, *, patience: float) -> Store:
    """The store that `open_runtime` was given in whatever form.

    Raises:
        UsageError: nothing can be made of it.
    """
    match store:
        case None:
            return MemoryStore()
        case Store():
            return store
        case str() if "://" in store:
            raise UsageError(f"store={store!r}: this release opens memory (None) and SQLite files (a path)")
        case str() | Path():
            return SQLiteStore(store, patience=patience)
    raise UsageError(f"store={store!r}: give None (memory), a path (SQLite), or a Store object")


@asynccontextmanager
async def open_runtime(
    store: Store | str | Path | None = None,
    *,
    agents: Iterable[Agent[Any]] = (),
    deps: Any = None,
    drain: float = 5.0,
    store_patience: float = 30.0,
    max_running: int | None = None,
    secrets: Iterable[str] = (),
    clock: Clock | None = None,
) -> AsyncIterator[Runtime]:
    """A runtime for the time of the block. Every run in the store that is not done is taken up again.

    Leaving the block stops, it does not wait: commands are refused, live runs get `drain` seconds to come to a
        durable point, then
    their work is cancelled. They get no terminal event; the next open_runtime on the store goes on with them. (`await
    runtime.join()` waits until no run is running.) If the block is cancelled from outside there is no drain.

    Args:
        store: None for memory, a path for a SQLite file, or a Store object.
        agents: those that can be started by key and taken up again; start() adds those it is given.
        deps: handed to tools as ctx.deps; or a provider, (RunInfo) -> deps, sync or async.
        drain: seconds.
        store_patience: seconds that a store which does not answer is waited for before the runtime fails.
        max_running: runs that may work at once; others wait in stage planned. A run that waits for people holds no
            slot, and takes one back without queueing when it goes on.
        secrets: values that must not appear in events, ticket views and messages of errors.
        clock: another one than the system's: give the same one again to reopen a store in virtual time.

    Raises:
        StoreOpenError: the store can not be opened. UsageError: an argument can not be.
        RuntimeFailed: the store has failed for good; the block is cancelled; raised from the cause.
        BaseException: the block's own exception, bare.
    """
    if max_running is not None and max_running < 1:
        raise UsageError(f"max_running={max_running}: give at least 1, or None for no limit")
    table: dict[str, Agent[Any]] = {}
    for agent in agents:
        if table.setdefault(agent.key, agent) is not agent:
            raise UsageError(f"two agents have the key {agent.key!r}; keys must be unique in a runtime")
    real_store = make_store(store, patience=store_patience)
    board, rests = Board(), Board()
    ended: list[Callable[[Ref[Any], Exit], None]] = []

    def tell_runtime(ref: Ref[Any], exit_: Exit) -> None:
        for listener in ended:  # none yet while the supervisor is being made
            listener(ref, exit_)

    try:
        async with open_supervisor(name="runtime", stop_budget=GRACE, on_exit=tell_runtime) as supervisor:
            runtime = Runtime(
                real_store, clock or Clock(), board, rests, Redactor(secrets), table, deps, max_running, supervisor
            )
            ended.append(runtime.ended)
            await _open_store(supervisor, real_store, runtime)
            try:
                await runtime.recover()
                yield runtime
            except BaseException as error:
                if isinstance(error, trio.Cancelled):
                    drain = 0.0
                raise
            finally:
                runtime.close()
                await runtime.drain(drain)
                board.close()
                rests.close()
    except SupervisorGaveUp as error:
        raise RuntimeFailed(f"the runtime can not go on: {error.__cause__}") from error.__cause__


async def _open_store(supervisor: Supervisor, store: Store, runtime: Runtime) -> None:
    async def serve(ctx: ActorContext[Any]) -> None:
        class Ready:
            def started(self, _: object = None) -> None:
                ctx.ready()

        await store.run(runtime, task_status=Ready())

    refused: BaseException | None = None
    try:
        await supervisor.start_child_ready(
            ChildSpec(id=STORE, start=serve, restart="permanent", max_restarts=0, within=1.0, shutdown=60.0)
        )
    except StartFailed as error:
        refused = error.__cause__ or error
    if refused is not None:
        raise refused


async def run(agent: Agent[T], text: str, /, *, deps: Any = None) -> Completed[T] | Waiting | Failed | Cancelled:
    """Run an agent once in memory and return what it came to.

    There is nobody to decide anything: a run that asks for an approval ends here as `Waiting`, and is gone.

    Raises:
        UsageError: the input is not a str. AgentDefinitionError: the agent has no model.
    """
    async with open_runtime(agents=[agent]) as runtime:
        handle = await runtime.start(agent, text, deps=deps)
        return await handle.wait()
