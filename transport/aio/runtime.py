"""`Runtime` and `Run` of a program on asyncio: the methods of those of trio, which live in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar, Unpack, overload

import attrs

import greenroom as gr
from greenroom.actors.agents.options import Deps
from greenroom.actors.contract.decisions import ActionWord
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.permission.remembered import Always
from greenroom.actors.runtime.runtime import StartOptions
from greenroom.actors.runtime.thread_access import MayJoin

from ..bridge.trio_thread import TrioThread
from .bridged import followed, in_trio

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@attrs.frozen(repr=False)
class Run(Generic[T_co]):
    """A run's address, as `greenroom.Run`, for tasks of asyncio. Two addresses of one run are equal.

    Attributes:
        inner: The same address, for functions that the thread of the runtime runs.
        thread: The thread of the runtime.
    """

    inner: gr.Run[T_co]
    thread: TrioThread = attrs.field(eq=False)

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self.inner.id

    @property
    def thread_id(self) -> str:
        """The thread of messages to which the run belongs."""
        return self.inner.thread_id

    events = followed(gr.Run.events)
    view = in_trio(gr.Run.view)
    part = in_trio(gr.Run.part)
    artifact = in_trio(gr.Run.artifact)
    decide_all = in_trio(gr.Run.decide_all)
    cancel = in_trio(gr.Run.cancel)
    pause = in_trio(gr.Run.pause)
    send = in_trio(gr.Run.send)

    async def wait(self) -> gr.Completed[T_co] | gr.Waiting | gr.Failed | gr.Cancelled:
        """Wait until the run is at rest; see `greenroom.Run.wait`. A cancel ends the wait, and not the run."""
        return await self.thread.run(self.inner.wait)

    async def result(self) -> gr.Completed[T_co] | gr.Failed | gr.Cancelled:
        """Wait until the run is done; see `greenroom.Run.result`. A cancel ends the wait, and not the run."""
        return await self.thread.run(self.inner.result)

    @overload
    async def decide(self, target: gr.Decision, /, *, remember: Always | None = None) -> gr.CommandResult: ...
    @overload
    async def decide(
        self,
        target: str,
        action: ActionWord,
        /,
        *,
        result: object = None,
        edited_arguments: JSONObject | None = None,
        reason: str | None = None,
        decision_id: str | None = None,
        by: str | None = None,
        remember: Always | None = None,
    ) -> gr.CommandResult: ...
    async def decide(self, *args: Any, **options: Any) -> gr.CommandResult:
        """Decide a ticket or a call; see `greenroom.Run.decide`."""

        async def decide() -> gr.CommandResult:
            return await self.inner.decide(*args, **options)

        return await self.thread.run(decide)


@attrs.frozen(eq=False, repr=False)
class RunReader:
    """Reads runs by id, as `greenroom.RunReader`, for tasks of asyncio.

    Attributes:
        inner: The reader of the runtime, for functions that its thread runs; `on_change` and its kind are there.
        thread: The thread of the runtime.
    """

    inner: gr.RunReader
    thread: TrioThread

    def __repr__(self) -> str:
        return f"<RunReader of {self.inner!r}>"

    page = in_trio(gr.RunReader.page)
    summaries = in_trio(gr.RunReader.summaries)
    info = in_trio(gr.RunReader.info)
    outline = in_trio(gr.RunReader.outline)
    record = in_trio(gr.RunReader.record)
    ticket = in_trio(gr.RunReader.ticket)
    check_thread = in_trio(gr.RunReader.check_thread)
    events = in_trio(gr.RunReader.events)
    tickets = in_trio(gr.RunReader.tickets)
    part = in_trio(gr.RunReader.part)
    artifact = in_trio(gr.RunReader.artifact)
    agent_of_thread = in_trio(gr.RunReader.agent_of_thread)
    backlog = in_trio(gr.RunReader.backlog)
    throughput = in_trio(gr.RunReader.throughput)
    view = in_trio(gr.RunReader.view)
    outcome = in_trio(gr.RunReader.outcome)
    closed = in_trio(gr.RunReader.closed)


@attrs.frozen(eq=False, repr=False)
class Runtime:
    """The runs of one store, as `greenroom.Runtime`, for tasks of asyncio. Made by `greenroom.aio.open_runtime`.

    Each method does what that of `greenroom.Runtime` does, in the runtime's thread, and raises what that raises. A
    cancelled task is cancelled there, too, and ends when the method has: a cancel of `await run.wait()` ends the wait
    and not the run, and after a cancel of `start` or `decide` the run or the decision may exist.

    Attributes:
        inner: The runtime of trio, for functions that the thread runs: `await runtime.thread.run(function)`.
        thread: The thread of the runtime.
    """

    inner: gr.Runtime
    thread: TrioThread

    def __repr__(self) -> str:
        return f"<Runtime of {self.inner!r}>"

    @property
    def principal(self) -> str:
        """The principal of the runs and commands of this object."""
        return self.inner.principal

    @property
    def agents(self) -> Mapping[str, gr.Agent[Any]]:
        """The agents that can be started by key."""
        return self.inner.agents

    @property
    def reader(self) -> RunReader:
        """Reads of runs by id."""
        return RunReader(self.inner.reader, self.thread)

    # --- starting and finding runs -----------------------------------------------------------------------------------

    @overload
    async def start(self, agent: gr.Agent[T, Deps], text: str, /, **options: Unpack[StartOptions[Deps]]) -> Run[T]: ...
    @overload
    async def start(self, agent: str | None, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]: ...
    async def start(self, agent: Any, text: str, /, **options: Unpack[StartOptions]) -> Run[Any]:
        """Start a run; see `greenroom.Runtime.start`."""

        async def start() -> gr.Run[Any]:
            return await self.inner.start(agent, text, **options)

        return Run(await self.thread.run(start), self.thread)

    async def get(self, run_id: str) -> Run[Any]:
        """Return the run with this id; see `greenroom.Runtime.get`."""
        return Run(await self.thread.run(self.inner.get, run_id), self.thread)

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
        """Start a new run that begins where another run was at the end of `step`; see `greenroom.Runtime.fork`."""

        async def fork() -> gr.Run[Any]:
            return await self.inner.fork(run_id, step=step, new_run_id=new_run_id, by=by, deps=deps, may_join=may_join)

        return Run(await self.thread.run(fork), self.thread)

    async def resume(self, run_id: str, *, deps: object = None) -> Run[Any]:
        """Take up a run that had no agent or deps here; see `greenroom.Runtime.resume`."""

        async def resume() -> gr.Run[Any]:
            return await self.inner.resume(run_id, deps=deps)

        return Run(await self.thread.run(resume), self.thread)

    runs = in_trio(gr.Runtime.runs)

    # --- runs by id --------------------------------------------------------------------------------------------------

    def as_principal(self, name: str) -> Runtime:
        """Return the same runtime for another principal; see `greenroom.Runtime.as_principal`."""
        return Runtime(self.inner.as_principal(name), self.thread)

    view = in_trio(gr.Runtime.view)
    artifact = in_trio(gr.Runtime.artifact)
    follow = followed(gr.Runtime.follow)
    decide = in_trio(gr.Runtime.decide)
    cancel = in_trio(gr.Runtime.cancel)
    pause = in_trio(gr.Runtime.pause)
    send = in_trio(gr.Runtime.send)
    revive_run = in_trio(gr.Runtime.revive_run)
    rules = in_trio(gr.Runtime.rules)
    revoke_rule = in_trio(gr.Runtime.revoke_rule)
    threads = in_trio(gr.Runtime.threads)
    messages = in_trio(gr.Runtime.messages)
    queues = in_trio(gr.Runtime.queues)
    set_queue = in_trio(gr.Runtime.set_queue)
    prune = in_trio(gr.Runtime.prune)
    replay = in_trio(gr.Runtime.replay)
    evidence = in_trio(gr.Runtime.evidence)
    join = in_trio(gr.Runtime.join)
    closed = in_trio(gr.Runtime.closed)

    def override(
        self, model: gr.Model | str, agents: Iterable[gr.Agent[Any] | str] | None = None
    ) -> AbstractContextManager[None]:
        """Ask another model for every request that begins in the block; see `greenroom.Runtime.override`."""
        return self.inner.override(model, agents)
