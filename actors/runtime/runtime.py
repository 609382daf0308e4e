"""`Runtime`: the public face of a runtime. `Runtime` starts and finds runs; its parts do everything else.

Theory of operation. `Runtime` checks arguments and hands them on; it keeps no state of a run. `parts.py` puts the parts
together: `reader.py` reads runs, `commands.py` decides, `agents.py` knows agents and deps, `run_registry.py` holds the
live runs, `starting.py` writes new runs. `open_runtime.py` opens and closes a runtime. Those who embed Greenroom, the
gateway among them, use the public parts `reader` and `commands`.
"""

from __future__ import annotations

import secrets as random_ids
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
from msgspec.structs import replace

from ..abc import Model, Pruned, Store
from ..agents.agent import Agent
from ..agents.attachments import File, Image
from ..agents.options import Deps
from ..contract.decisions import ActionWord, CommandResult, Decision
from ..contract.envelope import Event
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunInfo
from ..contract.run_lists import RunFilters, RunPage
from ..contract.spec import AgentSpec, Execution
from ..contract.threads.lists import HistoryQuery, ThreadPage, ThreadQuery
from ..contract.threads.messages import ThreadMessages
from ..entry import checks_options
from ..errors import UnknownRun, UsageError
from ..evidence.account import RunEvidence
from ..options import unknown_option
from ..permission.remembered import Always, RememberedRule
from ..permission.stored_rules import newest_first
from ..processes import QueueInfo
from ..replay.report import ReplayReport
from ..run.view import RunView
from ..services.agents import Override
from ..services.clock import Clock
from ..services.sanitize import given_text, name_of, run_id_of
from .artifacts import with_artifacts
from .commands import RunCommands
from .evidence_of import read_log
from .handle import DecisionOptions, Run, decided, followed
from .listing import query_of
from .parts import RuntimeParts
from .queueing import AT_ONCE, OPTIONS, Queueing
from .reader import RunReader
from .remembering import rules_for, stored_rules
from .replay_run import played, replay_of
from .start_request import LOCAL, StartRequest, check_id, fork_of, inheriting, new_run
from .thread_access import MayJoin

T = TypeVar("T")


class StartOptions(TypedDict, Generic[Deps], total=False):
    """The options of `Runtime.start`, documented there."""

    run_id: str | None
    thread_id: str | None
    session_id: str | None
    by: str | None
    workspace: str | None
    deps: Deps | None
    deadline: datetime | None
    execution: Execution | None
    on_busy: Literal["queue", "refuse"]
    title: str | None
    attachments: Sequence[Image | File]
    may_join: MayJoin | None
    background: bool | None
    queue: str | None
    at: datetime | None
    priority: int | None
    dedupe: str | None


_START_OPTIONS: Final = frozenset(StartOptions.__annotations__)


def _check_may_join(may_join: object) -> None:
    if may_join is not None and not callable(may_join):
        raise UsageError(f"may_join={may_join!r:.200}: give a function of a RunInfo that returns a bool, or None")


@attrs.define(eq=False, repr=False)
class Runtime:
    """The runs of one store. Made by `open_runtime`; call every method from a trio task, any number of tasks at a time.

    Programs that show runs to others, or pass on the decisions of others, use the same two parts as the gateway:
    `reader` and `commands` take run ids and create no `Run` for each.
    """

    _parts: RuntimeParts
    principal: str = LOCAL
    """The principal of the runs and commands of this object; `as_principal` makes an object for another principal."""

    def __repr__(self) -> str:
        return f"<Runtime with {len(self._parts.registry)} live runs>"

    @property
    def store(self) -> Store:
        """The store of the runs. Write nothing to the store except with `prune`."""
        return self._parts.services.store

    @property
    def clock(self) -> Clock:
        """The clock of the runs."""
        return self._parts.services.clock

    @property
    def agents(self) -> Mapping[str, Agent[Any]]:
        """The agents that can be started by key."""
        return self._parts.agents.by_key

    @property
    def reader(self) -> RunReader:
        """Reads of runs by id: follow, list, load."""
        return self._parts.reader

    @property
    def commands(self) -> RunCommands:
        """Commands to runs by id: decide, cancel, pause, send."""
        return self._parts.commands

    # --- starting and finding runs -----------------------------------------------------------------------------------

    @overload
    async def start(self, agent: Agent[T, Deps], text: str, /, **options: Unpack[StartOptions[Deps]]) -> Run[T]: ...
    @overload
    async def start(self, agent: str | None, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]: ...
    async def start(self, agent: Any, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]:
        """Start a run. Returns when `run.created` is durable.

        The run id is the idempotency key: the same id with the same content returns the same run. Creating the run and
        giving it an owner is one shielded step. After Cancelled the run may exist: start it again with the same id.

        Args:
            agent: an Agent, or the key of an agent that the runtime knows. None, with a `thread_id`: the agent with
                which the newest completed run of the thread ended.
            text: the input; must not be blank without attachments, because providers reject blank messages.
            options: run_id (default: a new id), thread_id (default: a new thread), session_id, by (a principal),
                workspace (the name of one of `open_runtime(workspaces=...)`, or a path in one: "shop/web"; any text
                where there are none), deps (dependencies of this run only), deadline (absolute, with time zone; waiting
                counts), execution (a mode other than the agent's), on_busy ("queue" or "refuse", if the thread has an
                active run), title (a label for lists: the first line, redacted, cut at 80 characters; default: the
                title of the text; not part of the content), attachments (images and files of the input, at most 100 and
                8 MiB together), may_join, background, queue, at, priority, dedupe (see below).

        A run reads the whole thread that it joins. `may_join(info)` returns whether the caller may see a run; it is
        called for every run in the thread, in the thread of a fork also for those whose messages the fork has copied,
        and for pruned runs whose messages are still there (once per combination of by, agent, session_id and
        workspace). One False refuses the start. A thread whose runs are all pruned belongs to its owner: `by` must be
        the principal of its first run. The result holds in the transaction that writes the run. None allows any thread,
        for a caller with access to everything.

        A run begins in this process, or, with `background=True`, waits in its queue until a process has room
        (`max_running`). `queue` is the queue's name (default: the agent's key), `at` the earliest time at which the run
        begins (with time zone), `priority` -100 to 100: each step counts like ten seconds of waiting. Each of the three
        implies `background`. Such a run takes no `deps`. In a store that several processes share, a run for
        which this process has no room, or whose agent only another process has (give its key), waits in its queue,
        too. While an open run was started with the same `dedupe`, a text of 1 to 256 characters, that run is returned,
        whatever its content. None of these options is part of the content.

        Raises:
            UsageError: an argument is invalid; or `agent` is None and no run of the thread has completed.
            InvalidAttachment: an attachment is not an Image or File, or they are too many or too large together.
            UnknownAgent: no agent has this key, here or in a live process that shares the store; or none the key that a
                handoff names.
            AgentDefinitionError: the agent has no model, or does not fit to the agents of its handoffs.
            RunExists: a run with other content has the id.
            RunPruned: a pruned run had the id.
            ThreadBusy: on_busy is "refuse" and the thread has an active run.
            ThreadForbidden: `may_join` refuses the thread.
            WorkspaceRefused: `workspace` is not allowed, or no live process has it.
            StoreUnavailable: the run was not started.
            RuntimeClosed: the runtime is closing.
        """
        parts = self._parts
        parts.registry.check_open()
        if agent is None:
            agent = await self._agent_to_continue(options.get("run_id"), options.get("thread_id"))
        agent_or_spec = await self._startable(agent)
        if not options.keys() <= _START_OPTIONS:
            unknown = min(options.keys() - _START_OPTIONS)
            raise unknown_option("start", unknown, StartOptions.__annotations__)
        values: dict[str, Any] = {**options}
        deps, may_join = values.pop("deps", None), values.pop("may_join", None)
        _check_may_join(may_join)
        queueing = AT_ONCE
        if not OPTIONS.isdisjoint(values):
            queueing = Queueing(**{name: values.pop(name) for name in OPTIONS if name in values})
        if values.get("by") is None:
            values["by"] = self.principal
        if values.get("run_id") is None:
            values["run_id"] = f"run_{random_ids.token_hex(8)}"
        birth = StartRequest(agent=agent_or_spec, text=text, has_deps=deps is not None, queueing=queueing, **values)
        with parts.services.signals.looking():
            place = await parts.placing.place(
                birth.workspace, thread_id=birth.thread_id, may_join=may_join, run_id=options.get("run_id")
            )
        new = new_run(birth, self.clock.now(), parts.services.redactor, place=place)
        here = self._worker(agent_or_spec, new.info)
        queueing.check_deps(deps, here=here is not None)
        background = queueing.background is True
        if birth.thread_id is None:
            return await parts.starter.begin(new, here, deps, background=background)
        return await parts.starter.join(new, here, deps, may_join, background=background)

    async def _startable(self, agent: Agent[Any] | str) -> Agent[Any] | AgentSpec:
        """Return an agent; one that only another live process has as its facts.

        Raises:
            UnknownAgent: no agent has this key, here or in a live process that shares the store.
            AgentDefinitionError: the agent has no model.
        """
        parts = self._parts
        if isinstance(agent, str) and parts.agents.get(agent) is None:
            with parts.services.signals.looking():
                spec = await parts.elsewhere.find(agent)
            if spec is not None:
                return spec
        return parts.agents.startable(agent)

    def _worker(self, agent: Agent[Any] | AgentSpec, info: RunInfo) -> Agent[Any] | None:
        """Return the agent of a new run; None if only other processes can work on the run."""
        return None if isinstance(agent, AgentSpec) or not self._parts.agents.has_place(info) else agent

    async def _agent_to_continue(self, run_id: str | None, thread_id: str | None) -> str:
        """Return the agent of a start without one; of a repeated start, the agent of the run."""
        check_id("run_id", run_id)
        check_id("thread_id", thread_id)
        if thread_id is None:
            raise UsageError("start(None): give an agent, or the thread_id of a thread with a completed run")
        before = None if run_id is None else await self.reader.outline(run_id)
        return before.info.agent if before is not None else await self.reader.agent_of_thread(thread_id)

    async def get(self, run_id: str) -> Run[Any]:
        """Return the run with this id.

        Raises:
            UnknownRun: no run has this id.
            RuntimeClosed: the runtime is closed.
        """
        outline = await self.reader.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        return self._parts.handle(run_id, outline.info.thread_id)

    async def runs(self, **filters: Unpack[RunFilters]) -> RunPage:
        """Return a page of runs. Each line has the run's title and its open questions, both redacted.

        All given filters must match: status (or a stage, such as "failed"), agent, thread_id, by (who started it),
        prefix (the beginning of the run id), since and until (created from, and before; with time zone), outcome
        ("completed", "stopped", "failed" or "cancelled"), code (of the termination), tool (one that the run called),
        and text (part of the id, title, input, output or reason of failure, as events show them, ignoring case).
        `order` is "newest", or "waiting_longest": waiting runs only, the longest waiting first. A page has at most
        `limit` lines (1 to 1,000; default: 100), and may be short with a text, which is looked for in some hundred runs
        only; the next page begins at `page.cursor`. `counts` adds the number of runs that are not done, by status.

        Raises:
            UsageError: an argument is invalid, or the cursor belongs to another query.
            RuntimeClosed: the runtime is closed.
        """
        self.reader.check_open()
        return await self.reader.page(query_of(**filters))

    @checks_options
    async def threads(self, *, by: str | None = None, limit: int = 50, cursor: str | None = None) -> ThreadPage:
        """Return a page of threads, in the order of their newest runs, the newest first.

        `by`: only threads in which this principal has started a run, in the order of its newest runs. A page has at
        most `limit` lines (1 to 1,000); the next page begins at `page.cursor`.

        Raises:
            UsageError, RuntimeClosed: see `runs`.
        """
        self.reader.check_open()
        return await self.reader.threads.page(ThreadQuery(by=by, limit=limit, cursor=cursor))

    @checks_options
    async def messages(
        self, thread_id: str, *, before: int | None = None, after: int | None = None, limit: int = 100
    ) -> ThreadMessages:
        """Return a page of a thread's messages, redacted; without a position the newest ones.

        A page ends with the message that reaches a MiB. Its `runs` say where to follow the unfinished runs, so that
        page and events tell each part of the conversation once.

        `before`: the newest messages before this position (`ThreadMessages.before`). `after`: the oldest ones behind
        it; 0: from the beginning. At most `limit` messages, 1 to 1,000.

        Raises:
            UnknownThread: no thread has this id.
            UsageError, RuntimeClosed: see `runs`.
        """
        self.reader.check_open()
        return await self.reader.threads.messages(thread_id, HistoryQuery(after=after, before=before, limit=limit))

    @checks_options
    async def fork(
        self,
        run_id: str,
        *,
        step: int,
        new_run_id: str | None = None,
        by: str | None = None,
        deps: object = None,
        may_join: MayJoin | None = None,
    ) -> Run[Any]:
        """Start a new run that begins where another run was at the end of `step`, in a new thread.

        Step 0 is the beginning of the run, before its first step. The fork gets the history and the state keys of both
        scopes as of that step; later writes of either run do not reach the other.

        Args:
            run_id: the run to begin from.
            step: a finished step of that run, or 0.
            new_run_id: id of the fork; the same fork again returns the same run. None: a new id.
            by: the principal that forks; `principal` if not given, also if another principal started the parent.
            deps: dependencies of the fork.
            may_join: says whether the caller may see a run, as in `start`; it is called for each run of which the fork
                gets a message, also for those of other threads that a fork before has copied. None allows all.

        Raises:
            UnknownRun: no run has this id.
            ThreadForbidden: `may_join` refuses a run of which the fork would get a message.
            UsageError: the run has no finished step of that number, or an argument is invalid.
            UnknownAgent: no agent has the key of the run's agent, here or in a live process that shares the store.
            AgentDefinitionError: the agent has no model.
            RunExists: another run has the new id.
            RunPruned: a pruned run had the new id.
            RuntimeClosed: the runtime is closing.
        """
        parts, reader = self._parts, self.reader
        parts.registry.check_open()
        _check_may_join(may_join)
        record = await reader.record(run_id)
        if record is None:
            raise UnknownRun(run_id)
        agent_or_spec = await self._startable(record.info.agent)
        here = self._worker(agent_or_spec, record.info)
        AT_ONCE.check_deps(deps, here=here is not None)
        name = f"run_{random_ids.token_hex(8)}" if new_run_id is None else new_run_id
        with parts.services.signals.looking():
            thread = await self.store.messages(record.info.thread_id)
        new = fork_of(record, thread, step, name, self.clock.now(), by=self.principal if by is None else by)
        if may_join is not None:
            await reader.check_thread(record.info, new.info.by, may_join, copied=new.messages)
        if deps is not None:
            new = replace(new, info=replace(new.info, has_deps=True))
        with parts.services.signals.looking():
            new = inheriting(new, await self.store.state_at(run_id, step))
            whole = await self.store.load(run_id, calls="all") if record.row.counters.artifacts else None
            new = with_artifacts(new, () if whole is None else whole.calls, step)
        return await parts.starter.begin(new, here, deps)

    @checks_options
    async def resume(self, run_id: str, *, deps: object = None) -> Run[Any]:
        """Take up a run that had no agent or deps here; no effect for a run that has an owner with both.

        A dead letter is revived: a run that no process of a shared store claimed any more, because its owners ended
        again and again, is claimed again. That needs no agent here.

        Raises:
            UnknownRun: no run has this id.
            UnknownAgent: the runtime still does not know the run's agent.
            AgentDefinitionError: the agent has no model.
            RuntimeClosed: the runtime is closing.
        """
        parts = self._parts
        parts.registry.check_open()
        outline = await self.reader.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        is_revived = parts.registry.ownership.dead_letters and await self.revive_run(run_id)
        if is_revived and parts.agents.get(outline.info.agent) is None:
            return parts.handle(run_id, outline.info.thread_id)
        if outline.status is not RunStatus.DONE:  # an owner that still waits for agent or deps uses these
            parts.registry.spawn(run_id, agent=parts.agents.startable(outline.info.agent), deps=deps)
        return parts.handle(run_id, outline.info.thread_id)

    # --- runs by id: with the others, what `RunAccess` asks for ------------------------------------------------------

    def as_principal(self, name: str) -> Runtime:
        """Return the same runtime for another principal: who starts, forks, decides and commands with that one.

        Raises:
            UsageError: the name is not valid for a principal.
        """
        return Runtime(self._parts, name_of(name, "principal"))

    async def view(self, run_id: str) -> RunView:
        """Return one consistent, durable snapshot; see `Run.view`."""
        return await self.reader.view(run_id)

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact; see `Run.artifact`."""
        return (await self.reader.artifact(run_id, artifact_id)).data or b""

    def follow(self, run_id: str, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow a run's events to its end; see `Run.events`."""
        return followed(self.reader, run_id, after)

    async def decide(
        self,
        run_id: str,
        target: Decision | str,
        action: ActionWord | None = None,
        /,
        *,
        remember: Always | None = None,
        **options: Unpack[DecisionOptions],
    ) -> CommandResult:
        """Decide a ticket or a call; see `Run.decide`."""
        return await self.commands.decide(run_id, decided(self.principal, target, action, options), remember=remember)

    @checks_options
    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask a run to end; see `Run.cancel`."""
        return await self.commands.cancel(run_id, mode=mode, reason=reason, by=self.principal, command_id=command_id)

    @checks_options
    async def pause(self, run_id: str, *, reason: str | None = None, command_id: str | None = None) -> CommandResult:
        """Hold a run before its next step; see `Run.pause`."""
        return await self.commands.pause(run_id, reason=reason, by=self.principal, command_id=command_id)

    @checks_options
    async def send(
        self, run_id: str, text: str, *, attachments: Sequence[Image | File] = (), command_id: str | None = None
    ) -> CommandResult:
        """Give a run more input; see `Run.send`."""
        return await self.commands.send(run_id, text, attachments=attachments, by=self.principal, command_id=command_id)

    async def revive_run(self, run_id: str) -> bool:
        """Let a dead letter be claimed again; see `Claims.revive_run`."""
        parts = self._parts
        with parts.services.signals.looking():
            is_revived = await self.store.revive_run(run_id)
        if is_revived:
            parts.registry.note_dead(run_id, None)
            parts.services.directory.work()
        return is_revived

    async def rules(self, run_id: str | None = None) -> Sequence[RememberedRule]:
        """Return the rules that people made with "always", revoked ones included, the newest first.

        Args:
            run_id: Only the rules that hold for this run: its own, those of its thread and its workspace. None: all, at
                most 10,000.

        Raises:
            UnknownRun: no run has this id.
            UsageError: the store keeps no values.
            StoreUnavailable, StoreDown: the store does not answer.
            StoreError: a rule cannot be read.
        """
        services = self._parts.services
        with services.signals.looking():
            rules = stored_rules(services.store)
            return newest_first(await (rules.all() if run_id is None else rules_for(services.store, run_id_of(run_id))))

    async def revoke_rule(self, rule_id: str) -> RememberedRule | None:
        """Revoke a remembered rule: from now on it allows nothing, in every process. Durable on return; twice is once.

        Returns the revoked rule, or None if no rule has this id.

        Raises:
            UsageError: the store keeps no values.
            StoreUnavailable, StoreDown: the store does not answer.
            StoreError: the rule cannot be read.
        """
        services = self._parts.services
        with services.signals.looking():
            rules = stored_rules(services.store)
            return await rules.revoke(given_text(rule_id, "rule_id"), at=self.clock.now(), by=self.principal)

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues, by name; see `Claims.queues`."""
        return await self.store.queues()

    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        """Limit a queue, or pause it; see `Claims.set_queue`."""
        await self.store.set_queue(name, max_running=max_running, paused=paused)

    async def prune(self, before: datetime) -> Pruned:
        """Delete the runs that ended before a time; see `Store.prune`."""
        return await self.store.prune(before)

    @checks_options
    async def replay(self, run_id: str, agent: Agent[object] | None = None) -> ReplayReport:
        """Fold a stored run's record again and report the first event that differs.

        The machine takes the recorded inputs at their recorded times, and each event is compared byte for byte with the
        stored one. No model, tool, hook or predicate is called and nothing is written. The agent's own functions that
        the machine calls run again: stop conditions, `denial`, the check of the output, and the reducers of declared
        state keys. For a run that is not done, the record up to now is compared. The runtime needs the secrets of the
        time of recording.

        A run that an older release began, or that was worked on with `record=False`, is reported as unreplayable.

        Args:
            run_id: the run to replay.
            agent: another agent to fold the record with, whatever its key; None: the run's own agent.

        Raises:
            UnknownRun: no run has this id.
            UnknownAgent: `agent` is None and the runtime does not know the run's agent; or no agent has the key that a
                handoff names.
            UsageError: `agent` is not an Agent.
            RuntimeClosed: the runtime is closed.
            StoreError: the record is damaged.
        """
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"replay(agent={agent!r}): give an Agent, or None for the runtime's own")
        parts, run_id = self._parts, run_id_of(run_id)
        services = parts.services
        with services.signals.looking():
            outline = await services.store.outline(run_id)
            if outline is None:
                raise UnknownRun(run_id)
            with_agent = parts.agents.find(outline.info.agent) if agent is None else agent
            agents = {**parts.agents.by_key, with_agent.key: with_agent}
            replay = await replay_of(
                services.store, run_id, with_agent, services.redactor, own=agent is None, known=agents
            )
        return await played(replay)

    async def evidence(self, run_id: str) -> RunEvidence:
        """Return who allowed what in a run, and what came of it: the account of its log, child runs included.

        Reads the whole log. The texts are those of the events: redacted, and each at most 4,096 characters.

        Raises:
            UnknownRun: no run has this id.
            RuntimeClosed: the runtime is closed.
            StoreError: an event is damaged, or the store cannot be read.
        """
        run_id, services = run_id_of(run_id), self._parts.services
        with services.signals.looking():
            return (await read_log(services.store, run_id)).account

    @checks_options
    @contextmanager
    def override(self, model: Model | str, agents: Iterable[Agent[Any] | str] | None = None) -> Iterator[None]:
        """Ask another model for every request that begins in the block: for tests and trials.

        Requests of runs that already work count, and so do retries, fallbacks, and what hooks ask (`ctx.ask_model`),
        also if they name a model. Requests that began before are finished by the model that they began with. Of nested
        blocks the innermost counts. The override ends with the block, whether or not runs still work. Nothing of it is
        stored: a run that continues in another process asks its agent's model.

        Args:
            model: a Model, or a name as in `Agent(model=...)`.
            agents: Agents or their keys; None: all agents.

        Raises:
            UsageError: an argument is invalid.
            AgentDefinitionError: no provider makes a model of this name.
        """
        if isinstance(model, str):
            model = self._parts.services.models.named(model)
        if not isinstance(model, Model):
            raise UsageError(f"override(model={model!r:.200}): give a Model, or the name of one")
        if isinstance(agents, str | Agent) or not (agents is None or isinstance(agents, Iterable)):
            raise UsageError(f"override(agents={agents!r:.200}): give a list of agents or keys, or None for all")
        keys = None if agents is None else [one.key if isinstance(one, Agent) else one for one in agents]
        wrong = next((one for one in keys or () if not isinstance(one, str)), None)
        if wrong is not None:
            raise UsageError(f"override(agents=...) has {wrong!r:.200}; give agents or their keys")
        override = Override(model, None if keys is None else frozenset(keys))
        overrides = self._parts.agents.overrides
        overrides.append(override)
        try:
            yield
        finally:
            overrides.remove(override)

    async def closed(self) -> None:
        """Wait until the runtime is closed and no run can be read or followed any more."""
        await self.reader.closed()

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await self._parts.registry.join()
