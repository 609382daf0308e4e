"""Write a new run and give the run an owner, in a new thread or in a named one.

Theory of operation. A named thread may be read only by permitted callers. The check needs the thread's runs, which may
change before the run is written; so `create_run` gets the number of runs that were checked (`thread_runs`), refuses if
it has changed, and the check is repeated. Nothing is locked. Each retry means that another start succeeded, so the
loop makes progress overall.
"""

from __future__ import annotations

import secrets as random_ids
from collections.abc import Callable

import attrs
from msgspec.structs import replace

from ..agents.agent import Agent
from ..contract.commits import Created, NewRun
from ..contract.envelope import EventEncoder
from ..contract.rows import RunInfo
from ..engine.recording import birth_of
from ..engine.state import RunState
from ..errors import RunExists, RunPruned, ThreadBusy, ThreadForbidden
from ..run.run_actor import NewRunClaim
from ..services.services import Services, logger
from ..services.stepping import in_steps
from ..state.snapshot import StateSnapshot
from .handle import Run
from .run_registry import RunRegistry
from .start_request import in_thread
from .thread_access import MayJoin, open_to


class _ThreadChanged(Exception):
    """The thread differs from what the start found; nothing was written."""


@attrs.frozen(eq=False)
class Starter:
    """Writes new runs and gives each its owner.

    Attributes:
        handle: (run id, thread id) -> the result of a start.
    """

    _services: Services
    _registry: RunRegistry
    _handle: Callable[[str, str], Run[object]]

    async def begin(
        self, new: NewRun, agent: Agent[object] | None, deps: object, *, background: bool = False
    ) -> Run[object]:
        """Start a run in a new thread (`new.thread_runs` is 0); a thread name that is already used gets a suffix.

        `agent`: None if only other processes have it. `background`: the run waits in its queue.

        Raises:
            RunExists, RunPruned: the id is taken.
        """
        while True:  # noqa: ASYNC913 - each time round waits, or ends the loop
            try:
                return await self._create(new, agent, deps, background)
            except _ThreadChanged:
                new = in_thread(new, f"{new.info.run_id}.thread.{random_ids.token_hex(4)}")

    async def join(
        self,
        new: NewRun,
        agent: Agent[object] | None,
        deps: object,
        may_join: MayJoin | None,
        *,
        background: bool = False,
    ) -> Run[object]:
        """Start a run in a named thread, if the caller may read that thread. See `begin`.

        Raises:
            ThreadForbidden: the caller may not.
            RunExists, RunPruned: the id is taken.
            ThreadBusy: another run works on the thread.
        """
        if may_join is None:
            return await self._create(new, agent, deps, background)
        info, store, signals = new.info, self._services.store, self._services.signals
        while True:
            with signals.looking():
                thread = await store.thread(info.thread_id)
                is_open = thread is None or await open_to(store, thread, info.by, may_join)
            if not is_open:
                text = f"thread {info.thread_id!r} is not open to {info.by!r}; leave thread_id out for a new one"
                raise ThreadForbidden(text)
            try:
                joined_run = replace(new, thread_runs=0 if thread is None else thread.runs)
                return await self._create(joined_run, agent, deps, background)
            except _ThreadChanged:
                continue  # another start came between: each retry means that one more run was created

    async def _create(self, new: NewRun, agent: Agent[object] | None, deps: object, background: bool) -> Run[object]:
        """Write a run and give it an owner, or let it wait in its queue.

        In a shared store it also waits in its queue if this process has no room or not the agent: another one may.

        Raises:
            RunExists, RunPruned: the id is taken.
            _ThreadChanged: the thread differs from what `new.thread_runs` says.
        """
        info = new.info
        if self._services.record:
            new = replace(new, taken=(birth_of(new),))
        encoder = EventEncoder(info, self._services.redactor)
        first = 0, info.created_at, (new.created,)
        frames = encoder.small_frames(*first)
        (frame,) = await in_steps(encoder.frame_steps(*first)) if frames is None else frames
        registry = self._registry
        waits = background or agent is None or (registry.passes_on and deps is None and info.parent_run is None)
        run = registry.starting(info.run_id)
        try:
            with self._services.signals.looking():
                creation = await self._written(new, frame, claim=not waits)
            # no checkpoint since the store answered, so a cancel cannot leave the run without an owner
            if creation.unclaimed:
                self._services.directory.work()
                self._services.alarm.by(info.deadline)
            elif creation.claim is not None:
                state = RunState(info=info, row=new.row, snapshot=StateSnapshot.restored(0, new.state))
                history = new.messages if new.thread_runs == 0 else None
                claim = NewRunClaim(claim=creation.claim, state=state, history=history)
                registry.spawn(info.run_id, claim, agent=agent, deps=deps, held=creation.held)
                if creation.behind is not None:
                    self._queue(info, creation.behind)
        finally:
            registry.started(run)
        if creation.claim is not None or creation.unclaimed:
            return self._handle(info.run_id, info.thread_id)
        return self._of_another(creation, info)

    def _of_another(self, creation: Created, info: RunInfo) -> Run[object]:
        """Return the run of the earlier start that this one repeats, or raise why no run was written. See `_create`."""
        if creation.thread_changed:
            raise _ThreadChanged
        if creation.pruned is not None:
            text = f"a run {info.run_id!r} is done and was pruned; an id is used once: take another one, or None"
            raise RunPruned(text, same=creation.pruned == info.content)
        existing = creation.existing or info
        if not creation.deduplicated and existing.content != info.content:
            raise RunExists(f"run {info.run_id!r} exists with another content; take another id, or None for a new one")
        return self._handle(existing.run_id, existing.thread_id)

    async def _written(self, new: NewRun, frame: bytes, *, claim: bool) -> Created:
        """Write the run. A run that was given up does not keep the thread busy; it is ended first.

        Cancelled means that nothing was written: `Store.create_run` shields itself once its request is queued.

        Raises:
            ThreadBusy: another run works on the thread.
        """
        try:
            return await self._services.store.create_run(new, frame, claim=claim)
        except ThreadBusy as error:
            if not self._registry.bury(error.active):
                raise
            active = error.active
        await self._registry.left(active)
        return await self._services.store.create_run(new, frame, claim=claim)

    def _queue(self, info: RunInfo, front: str) -> None:
        """Log that a run waits for its thread; a run in front of it that was given up is ended."""
        reason = self._registry.degraded(front)
        if self._registry.bury(front) or reason is None:
            logger.info("run %s waits for its thread %s: run %s works on it", info.run_id, info.thread_id, front)
            return
        text = "run %s waits for its thread %s: run %s has it, and no process here works on that run (%s): %s"
        logger.warning(text, info.run_id, info.thread_id, front, *reason)
