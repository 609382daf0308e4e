"""`Runtime`: the public face of a runtime. It starts and finds runs; all else is in its parts.

`parts.py` puts them together: `reader.py` looks, `commands.py` decides, `agents.py` has agents and deps,
`run_registry.py` has the live runs, `starting.py` writes new ones. `open_runtime.py` opens and closes a runtime.
"""

from __future__ import annotations

import secrets as random_ids
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
from msgspec.structs import replace

from ..abc import RunOrder, RunPage, Store
from ..agent import Agent
from ..contract.lifecycle import RunStatus
from ..contract.rows import RunInfo
from ..contract.spec import ExecutionMode
from ..entry import checks_options
from ..errors import UnknownRun, UsageError
from ..options import unknown_option
from ..replay.report import ReplayReport
from .clock import Clock
from .commands import RunCommands
from .handle import Run
from .listing import query_of
from .parts import Parts
from .reader import RunReader
from .replay_run import played, replay_of
from .start_request import StartRequest, fork_of, inheriting, new_run

T = TypeVar("T")


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

    Programs that show runs to others, and pass on what these decide, use the same two parts as the gateway: `reader`
    and `commands` take ids of runs, and make no `Run` for each.
    """

    _parts: Parts

    def __repr__(self) -> str:
        return f"<Runtime with {len(self._parts.roster)} live runs>"

    @property
    def store(self) -> Store:
        """Where the runs are. Write nothing to it beside `prune`."""
        return self._parts.services.store

    @property
    def clock(self) -> Clock:
        """What time it is for the runs."""
        return self._parts.services.clock

    @property
    def agents(self) -> Mapping[str, Agent[Any]]:
        """The agents that can be started by key."""
        return self._parts.agents.by_key

    @property
    def reader(self) -> RunReader:
        """Looks at runs by their ids: follows, lists, reads."""
        return self._parts.reader

    @property
    def commands(self) -> RunCommands:
        """Commands to runs by their ids: decide, cancel, pause, send."""
        return self._parts.commands

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
        parts = self._parts
        parts.roster.check_open()
        known = parts.agents.startable(agent)
        unknown = set(options) - StartOptions.__annotations__.keys()
        if unknown:
            raise unknown_option("start", sorted(unknown)[0], StartOptions.__annotations__)
        deps, values = options.get("deps"), dict[str, Any](options)
        may_join = values.pop("may_join", None)
        values.pop("deps", None)
        values["run_id"] = options.get("run_id") or f"run_{random_ids.token_hex(8)}"
        birth = StartRequest(agent=known, text=text, has_deps=deps is not None, **values)
        new = new_run(birth, self.clock.now(), parts.services.redactor)
        if birth.thread_id is None:
            return await parts.starter.begin(new, known, deps)
        return await parts.starter.join(new, known, deps, may_join)

    async def get(self, run_id: str) -> Run[Any]:
        """The run of this id.

        Raises:
            UnknownRun: there is none. RuntimeClosed: the runtime is closed.
        """
        outline = await self.reader.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        return self._parts.handle(run_id, outline.info.thread_id)

    @checks_options
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
        self.reader.check_open()
        query = query_of(
            status=status, agent=agent, thread_id=thread_id, prefix=prefix, by=by, since=since, until=until,
            text=text, order=order, limit=limit, cursor=cursor, counts=counts,
        )  # fmt: skip
        return await self.reader.page(query)

    @checks_options
    async def fork(
        self, run_id: str, *, step: int, new_run_id: str | None = None, by: str | None = None, deps: object = None
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
        parts, reader = self._parts, self.reader
        parts.roster.check_open()
        record = await reader.record(run_id)
        if record is None:
            raise UnknownRun(run_id)
        agent = parts.agents.startable(record.info.agent)
        name = new_run_id or f"run_{random_ids.token_hex(8)}"
        with parts.services.board.looking():
            thread = await self.store.messages(record.info.thread_id)
        new = fork_of(record, thread, step, name, self.clock.now(), by=by)
        if deps is not None:
            new = replace(new, info=replace(new.info, has_deps=True))
        with parts.services.board.looking():
            new = inheriting(new, await self.store.state_at(run_id, step))
        return await parts.starter.begin(new, agent, deps)

    @checks_options
    async def resume(self, run_id: str, *, deps: object = None) -> Run[Any]:
        """Work again on a run that had no agent or deps here; harmless for one that is worked on.

        Raises:
            UnknownRun: no such run. UnknownAgent: its agent is still not here. AgentDefinitionError: that has no model.
            RuntimeClosed: the runtime is closing.
        """
        parts = self._parts
        parts.roster.check_open()
        outline = await self.reader.outline(run_id)
        if outline is None:
            raise UnknownRun(run_id)
        if outline.status is not RunStatus.DONE:  # an owner that is still looking for them takes these
            parts.roster.spawn(run_id, agent=parts.agents.startable(outline.info.agent), deps=deps)
        return parts.handle(run_id, outline.info.thread_id)

    @checks_options
    async def replay(self, run_id: str, agent: Agent[object] | None = None) -> ReplayReport:
        """Run a stored run again from its record, and report the first event that does not come again.

        The run's machine takes again what it took, at the times that are recorded with it, and each event that comes of
        that is compared byte for byte. No model, tool, hook or predicate is asked and nothing is written. The agent's
        own functions that the machine calls run again: stop conditions, `denial`, the check of the output, and the
        reducers of the state keys that it declares. Of a run that is not done, what is recorded so far is compared. The
        runtime must have the secrets that it had when the run was recorded.

        A run that an older release began, or that was worked on with `record=False`, is reported as unreplayable.

        Args:
            run_id: of the run.
            agent: another one to try the record against, whatever its key; None: the runtime's agent of the run.

        Raises:
            UnknownRun: no such run. UnknownAgent: none was given and the run's agent is not here.
            UsageError: `agent` is no Agent. RuntimeClosed: the runtime is closed. StoreError: the record is damaged.
        """
        if agent is not None and not isinstance(agent, Agent):
            raise UsageError(f"replay(agent={agent!r}): give an Agent, or None for the runtime's own")
        parts = self._parts
        services = parts.services
        with services.board.looking():
            outline = await services.store.outline(run_id)
            if outline is None:
                raise UnknownRun(run_id)
            tried = parts.agents.find(outline.info.agent) if agent is None else agent
            replay = await replay_of(services.store, run_id, tried, services.redactor, own=agent is None)
        return await played(replay)

    async def closed(self) -> None:
        """Wait until the runtime is closed: nothing can be looked up or followed any more."""
        await self.reader.closed()

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await self._parts.roster.join()
