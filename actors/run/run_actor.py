"""The actor that owns one run: the run's only writer, always ready for a decision, a cancel or a message.

Theory of operation. The actor claims the run, loads its rows, finds the agent and the deps, and runs one `RunLoop`. The
loop handles each input in one synchronous stretch: step the machine, submit the commit, hold back the effects that must
be durable first, perform the others. Models, tools and the disk are never awaited there; children await them and submit
inputs.

There are two cancel scopes. `CancelWork` cancels the children one by one; only shutdown cancels the actor itself. A
cancellation from outside writes nothing: the durable rows are the checkpoint.

A crash of the actor is a small process crash: the children are cancelled, memory is dropped, and the next incarnation
takes a new claim and rebuilds the run from the store. After three crashes in a minute the run fails
(`run_registry.py`); if even that end cannot be written, `forced_end.py` writes a minimal one on demand.

In a shared store another process may have the run. Then there is no claim, and the actor leaves quietly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Final, Literal

import attrs
import trio

from greenroom.supervision import ActorContext, Ref

from ..agents.agent import Agent
from ..contract.claims import Claim
from ..contract.decisions import InboxItem
from ..contract.lifecycle import DONE, WAITING
from ..contract.messages import Message
from ..contract.phases import ADMISSION
from ..contract.sizes import TooLarge
from ..contract.spec import AgentSpec
from ..engine.inputs import (
    Activate,
    BodyOverran,
    CancelUnowned,
    CommandArrived,
    DeadlinePassed,
    FailUnrecoverable,
    Input,
)
from ..engine.lost_questions import lost_questions
from ..engine.state import RunState
from ..errors import StoreDown, StoreError
from ..services.agents import MISFIT, OFFLINE, RunUnavailable
from ..services.children import EMPTY, Children, ClaimLost, OverrunBody
from ..services.part_bytes import PartBytes
from ..services.services import Services, retry_until_available
from ..state.declared_keys import invalid_state
from ..state.values import own_message
from .effect_runner import EffectRunner
from .forced_end import GAVE_UP, end_if_given_up
from .run_context import RunContext
from .run_loop import Hint, RunLoop, RunPermissions

NEWER_SCHEMA: Final = "newer_schema"
"""Degraded code of a run whose rows a newer release has written."""
PATIENCE: Final = 5.0
"""Seconds that a cancel waits for the run's deps, so that the run_end hooks can use them."""


Errand = Literal["command", "cancel", "wake", "child"]
"""Why an actor asks the store for a claim: a command was accepted, or a cancel; a timer or a changed tool wakes the
run; or its parent run works here. The last two are for shared stores."""


@attrs.frozen(kw_only=True)
class NewRunClaim:
    """Begin with a run that was just created, without a read of the store; a later incarnation asks for a claim.

    Attributes:
        claim, state: as `create_run` left them.
        history: the thread's messages, if known to be complete; else None.
    """

    claim: Claim
    state: RunState
    history: tuple[Message, ...] | None


@attrs.frozen
class WithClaim:
    """Begin with a claim that the process has; a later incarnation asks for another one."""

    claim: Claim


@attrs.frozen
class ClaimIfNeeded:
    """Ask for a claim if the errand needs an owner here, else leave."""

    errand: Errand


@attrs.frozen
class ClaimAnyway:
    """Ask for a claim in any case."""


CLAIM_ANYWAY: Final = ClaimAnyway()
Begin = NewRunClaim | WithClaim | ClaimIfNeeded | ClaimAnyway
"""How the next incarnation of an actor comes to its claim."""


def is_inside(begin: Begin) -> bool:
    """Return True for a child run that works in its parent's slot."""
    if isinstance(begin, NewRunClaim):
        return begin.state.info.parent_run is not None
    return isinstance(begin, ClaimIfNeeded) and begin.errand == "child"


@attrs.frozen(kw_only=True)
class ForcedEnd:
    """The end of a run whose owner gave up.

    Attributes:
        why: the reason for giving up.
        held: returns the runs that may wait for the same thread.
    """

    why: str
    held: Callable[[], Collection[str]]


@attrs.define(eq=False)
class RunActor:
    """The owner of a run in this process. The supervisor starts it, and restarts it after a crash.

    Attributes:
        permissions: The permissions that the runtime gives the owner.
        begin: The way in which the next incarnation comes to its claim.
        claim: the present claim, until the run is done or released.
        void: the claims of this process are void.
        token: The fencing token of the newest claim.
        refusals: The number of failures in a row to work on the run here.
        abandon: The reason for which the run ends immediately, as failed(internal_error).
        burial: The forced end of a run whose ordinary end could not be written.
        needed: the forced end is needed now.
        degraded: The reason why the owner does not work on the run (deps_missing, agent_unknown, target_offline,
            state_mismatch), with a sentence.
        passing: the cause of `degraded` may go away without a command.
        ref: the actor's address.
        life: the present run loop, or the last one.
        posted: position of the newest command accepted while the run had this owner.
        overrun_bodies: The overrun bodies of earlier incarnations. The actor reports these bodies to the machine, and
            a later attempt of the call waits for its own.
        deadline: the run's deadline, once its rows were read.
        sequence: The sequence of the newest event, once the rows were read; kept up to date in a degraded run only.
        met_start: a start or a resume of the run met this owner, so the run needs an owner whatever the errand was.
        child_moved: a child run came to rest, continued or ended after the run loop had decided to leave memory.
    """

    services: Services
    run_id: str
    permissions: RunPermissions = attrs.field(factory=RunPermissions)
    begin: Begin = CLAIM_ANYWAY
    agent: Agent[object] | None = None
    deps: Any = None
    has_deps: bool = False
    abandon: str | None = None
    burial: ForcedEnd | None = None
    needed: bool = False
    degraded: tuple[str, str] | None = None
    passing: bool = False
    ref: Ref[Hint] | None = None
    life: RunLoop | None = None
    posted: int = 0
    overrun_bodies: Mapping[str, OverrunBody] = EMPTY
    deadline: datetime | None = None
    sequence: int | None = None
    child_moved: bool = False
    met_start: bool = False
    claim: Claim | None = None
    token: int = 0
    refusals: int = 0
    void: bool = attrs.field(init=False, default=False)
    _asking: trio.CancelScope | None = attrs.field(init=False, default=None)
    _patient_until: float = attrs.field(init=False, default=math.inf)

    @property
    def durable(self) -> RunState | None:
        """The run as known to be in the store (the store may be further); None if unknown here."""
        if self.life is not None:
            return self.life.durable
        return self.begin.state if isinstance(self.begin, NewRunClaim) else None

    @property
    def asking(self) -> bool:
        """True while the provider of deps is being called."""
        return self._asking is not None

    @property
    def unread(self) -> bool:
        """True if an accepted command has not acted durably."""
        durable = self.durable
        return durable is None or durable.row.inbox < self.posted

    @property
    def left_unread(self) -> bool:
        """True if the last run loop passivated the run while an accepted command had not acted."""
        return self.life is not None and self.life.passive and self.unread

    def __repr__(self) -> str:
        return f"<RunActor {self.run_id}>"

    def attach_deps(self, agent: Agent[object] | None, deps: object) -> None:
        """Add the agent and deps where the actor has none yet."""
        self.agent = self.agent or agent
        if deps is not None and not self.has_deps:
            self.deps, self.has_deps = deps, True
            if self._asking is not None:
                self._asking.cancel("others have given its deps")

    def cap_deps_wait(self) -> None:
        """Bound the wait for the deps provider once a cancel is pending (`PATIENCE` seconds)."""
        self.needed = True
        self._patient_until = min(self._patient_until, trio.current_time() + PATIENCE)
        if self._asking is not None:
            self._asking.deadline = min(self._asking.deadline, self._patient_until)

    def lose(self) -> None:
        """End the incarnation without another write: its claim is void."""
        self.void, self.claim = True, None
        if self.life is not None:
            self.life.lose("the claims of this process are void")
        if self._asking is not None:
            self._asking.cancel("the claims of this process are void")

    async def body(self, ctx: ActorContext[Hint]) -> None:
        """Run one incarnation."""
        if self.burial is not None:
            await self._bury(self.burial)
            return
        self.life, self._patient_until, self.void = None, math.inf, False
        was_born = isinstance(self.begin, NewRunClaim)
        life = self.life = await self._begin(ctx)
        if life is None or self.void:
            return
        try:
            await life.live()
            if life.durable.row.status is DONE:
                self.degraded = self.claim = None  # the run ended without agent or deps
            if life.passive:
                self.claim = None
                self.services.alarm.by(life.durable.row.next_due)
        except RunUnavailable as error:
            self.degraded, self.passing = (error.reason, str(error)), error.passing
            self.sequence = life.durable.row.last_sequence
        except ClaimLost as error:
            if error.args == ("lease_lost",):
                self.claim = None
                if was_born:
                    raise  # another owner claimed the new run first and released it: begin from the store
        except StoreError as error:  # after a commit that is too large: the next incarnation would make it again
            self.abandon = str(error) if isinstance(error.__cause__, TooLarge) else self.abandon
            raise
        finally:
            self.overrun_bodies = await life.end()  # noqa: ASYNC102 - bounded inside
            self.services.models.leave(self.run_id)

    async def _bury(self, burial: ForcedEnd) -> None:
        done = False
        while not done:
            is_needed = self.needed
            try:
                done = await end_if_given_up(self.services, self.run_id, burial.why, burial.held(), wanted=is_needed)
            except StoreDown:  # the runtime fails of it and says so
                break
            if is_needed == self.needed:
                break
        self.degraded = None if done else (GAVE_UP, self.services.redactor.text(burial.why))

    async def _begin(self, ctx: ActorContext[Hint]) -> RunLoop | None:
        """Return a run loop; None if the run needs no work or its agent or deps are missing."""
        while True:
            holding = await self._take(ctx.attempt)
            if holding is None:
                return None
            claim, state, inbox, history = holding
            self.claim, self.token = claim, claim.token
            self.deadline, self.sequence = state.info.deadline, state.row.last_sequence
            agent = None if self.abandon is not None else await self._live_agent(state, inbox)
            first = self._first(agent, state, inbox)
            if first:
                break
            if not len(ctx.mailbox) or self.void:
                return None  # neither agent nor deps, and no command arrived meanwhile
            while len(ctx.mailbox):
                ctx.mailbox.pop()  # the hinted command is in the inbox: load the record again
        part_bytes = PartBytes(self.services, state.info.thread_id)
        part_bytes.note(state.row.pending_input)
        if history:
            part_bytes.note(history)
        if state.calls.all:
            part_bytes.note(state.calls.values())
        if inbox:
            part_bytes.note([item.command for item in inbox])
        children = Children(
            self.services.tasks,
            ctx.mailbox.nudge,
            self.services.holdback.within(state.info.workspace).split,
            self.overrun_bodies,
            claim_is_good=self.services.ownership.fence,
        )
        run = RunContext(
            part_bytes=part_bytes,
            services=self.services,
            info=state.info,
            agent=agent,
            deps=self.deps,
            children=children,
            history=None if history is None else [*map(own_message, history)],
        )
        return RunLoop(
            self.services,
            claim=claim,
            state=state,
            spec=AgentSpec(key=state.info.agent) if agent is None else self.services.agents.spec_of(agent),
            mailbox=ctx.mailbox,
            effects=EffectRunner(run, at_start=state.row.inference),
            permissions=self.permissions,
            first=first,
        )

    async def _take(
        self, attempt: int
    ) -> tuple[Claim, RunState, tuple[InboxItem, ...], tuple[Message, ...] | None] | None:
        store, begin = self.services.store, self.begin
        if not isinstance(begin, ClaimIfNeeded):
            self.begin = CLAIM_ANYWAY  # of the next incarnation
        if isinstance(begin, NewRunClaim) and attempt == 0:
            state = begin.state
            if begin.history is None and self.permissions.admitted:  # earlier runs of its thread may have left state
                record = await retry_until_available(store.load, self.run_id)
                state = state if record is None else RunState.from_record(record)
            return begin.claim, state, (), begin.history
        claim = begin.claim if isinstance(begin, WithClaim) and attempt == 0 else None
        record, is_wanted = None, True
        if isinstance(begin, ClaimIfNeeded):
            record = await self.services.ownership.early_rows(self.run_id)
            has_begun = record is not None and (record.row.status is DONE or record.row.position is not ADMISSION)
            is_wanted = has_begun or await self._is_wanted(begin.errand)
        if claim is None and (is_wanted or self.met_start):
            claim = await self._claim()
        if claim is None:
            return None
        # from here on the end of the actor gives the claim back, also if the rows are unreadable
        self.claim, self.token = claim, claim.token
        record = record or await retry_until_available(store.load, self.run_id)
        if record is None or record.row.status is DONE:
            self.claim = None
            return None
        if record.row.position is not ADMISSION:
            self.permissions.admitted, self.begin = True, CLAIM_ANYWAY
        return claim, RunState.from_record(record), record.inbox, None

    async def _is_wanted(self, errand: Errand) -> bool:
        """Return whether the errand needs an owner here.

        A run that has not begun stays where the run waits: in the queue, or behind another run of the thread. No
        command begins such a run, and a cancel ends the run without a beginning.
        """
        page = await retry_until_available(self.services.store.summaries, (self.run_id,))
        if not page.runs:
            return True  # unreadable: the attempt to load the run says so
        line = page.runs[0]
        if line.held:
            self.services.directory.registry.hold(self.run_id)
        if errand == "cancel":
            return True
        if errand == "command" and line.row.position is ADMISSION:
            return False
        if errand == "child" and line.row.status is WAITING and not line.pending:
            return False
        if line.held or line.dead is not None:
            return False
        if line.info.deadline is not None and line.info.deadline <= self.services.clock.now():
            return True  # an end needs neither agent nor place
        agents = self.services.agents
        return agents.has_place(line.info) and (self.agent or agents.get(line.info.agent)) is not None

    async def _claim(self) -> Claim | None:
        """Return a new claim; None if there is nothing left to work on, or another process has the run.

        An unavailable store is awaited; the store's own patience bounds the wait. A crash here would count as one of
        the three after which the run is given up, although the run is not at fault.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # a cancelled owner must not take a claim
        try:
            claim = await retry_until_available(self.services.store.claim, self.run_id)
            return claim if isinstance(claim, Claim) else None
        except StoreDown:  # the runtime fails and reports the cause; the run stays unchanged
            return None

    async def _live_agent(self, state: RunState, inbox: tuple[InboxItem, ...]) -> Agent[object] | None:
        """Return the agent, with deps in place; None if the run is degraded."""
        agents, info = self.services.agents, state.info
        try:
            agents.check_place(info)
            if self.agent is None:
                self.agent = agents.agent_for(info, state.row.agent)
            text = invalid_state(agents.declared_state(self.agent), state.snapshot)
            if text is not None:
                self.degraded, self.passing = (MISFIT, text), False
                return None
            if not self.has_deps and not agents.has_provider:
                self.deps = agents.own_deps(info)
            elif not self.has_deps:
                deps = await self._ask_deps(state, inbox)
                self.deps = self.deps if self.has_deps else deps
        except RunUnavailable as error:
            if (
                error.reason == OFFLINE or self.agent is None or not self.has_deps
            ):  # `attach_deps` did not add deps while the provider was called
                self.degraded, self.passing = (error.reason, str(error)), error.passing
                return None
        self.degraded = None
        return self.agent

    def _at_deadline(self, deadline: datetime) -> float:
        return max(self.services.clock.trio_time(deadline), trio.current_time()) + PATIENCE

    def nudge(self) -> None:
        """Move the deadline of the provider call after a clock jump.

        The run's deadline is wall time, and now at another moment of trio time.
        """
        if self._asking is not None and self.deadline is not None:
            self._asking.deadline = min(self._at_deadline(self.deadline), self._patient_until)

    async def _ask_deps(self, state: RunState, inbox: tuple[InboxItem, ...]) -> Any:
        """Await the deps provider until the run can end without deps: after a cancel, or when its deadline passes."""
        until = math.inf
        if _is_cancelled(state, inbox):
            self.cap_deps_wait()
            until = self._patient_until
        elif self.deadline is not None:
            until = self._at_deadline(self.deadline)
        # Without a deadline the call does not depend on wall time, and each new run would wake the clock watch.
        clock_watch = nullcontext() if until == math.inf else self.services.clock_watch.waiting(self)
        try:
            with clock_watch, trio.CancelScope(deadline=until) as self._asking:
                return await self.services.agents.ask_deps(state.info)
        finally:
            self._asking = None
        raise RunUnavailable("deps_missing", "the provider has not answered in time")

    def _first(self, agent: Agent[object] | None, state: RunState, inbox: tuple[InboxItem, ...]) -> Sequence[Input]:
        if self.abandon is not None:
            return (FailUnrecoverable(detail=self.abandon),)
        if agent is not None:
            overruns = (
                BodyOverran(item=overrun.item) for overrun in self.overrun_bodies.values() if not overrun.ended.is_set()
            )
            commands = (CommandArrived(item=item) for item in inbox)
            begins = self.permissions.admitted
            if state.row.position is ADMISSION:
                if self._late():  # a run is not begun for the sake of ending
                    return (Activate(admitted=False, agent_digest=agent.spec.digest), *commands, DeadlinePassed())
                begins = begins and not inbox  # a cancel or a pause acts before the first step; the loop admits the run
            spec = self.services.agents.spec_of(agent).acting(state.row.agent)
            lost_calls = lost_questions(spec, state.calls.values(), inbox) if state.calls.all else ()
            digest = agent.spec.digest
            return (*overruns, Activate(admitted=begins, agent_digest=digest, withdrawn=lost_calls), *commands)
        if _is_cancelled(state, inbox):
            return (CancelUnowned(items=inbox),)
        if self._late():  # also of an end that has begun
            return (DeadlinePassed(unowned=True),)
        return ()  # the run is left untouched; the next owner with agent and deps reads the inbox

    def _late(self) -> bool:
        return self.deadline is not None and self.deadline <= self.services.clock.now()


def _is_cancelled(state: RunState, inbox: tuple[InboxItem, ...]) -> bool:
    """Return True if a cancel was accepted, and consumed or not: a process may end before the run does."""
    return state.row.cancel is not None or any(item.command.kind == "cancel" for item in inbox)
