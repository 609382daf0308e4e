"""Plays random scenes to the end of all their runs, and judges them by what every life keeps.

    faults = play(draw(7))        # sentences; none if nothing is broken
    shorter = shortened(scene)    # the shortest scene that still fails, by leaving things out

All time is virtual. After the last act the people of a scene decide every ticket that they find, and in the end they
cancel; a run that has not ended by then hangs.
"""

import logging
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.commits import Commit
from greenroom.actors.stores.common.faults import InjectedCrash
from greenroom.supervision import chaos
from greenroom.supervision.exits import leaves
from greenroom.testing import Clock, FakeWall, FunctionModel

from .random_judge import ENDS, Judge
from .random_scenes import (
    EXECUTIONS,
    GUARDRAILS,
    HANDOFF_OPTIONS,
    INPUTS,
    OPTIONS,
    PLUGINS,
    TOOL_OPTIONS,
    TOOLS,
    Act,
    RandomScene,
    Role,
    World,
)
from .recording_stores import WatchedShelf
from .scene_surroundings import Shop

ROOT = "r"
LONG = 30_000.0
"""Virtual seconds in which whatever works comes to its rest."""
EXPECTED = ("bursts", "beyond repair", "cannot be written", "ZeroDivisionError", "StoreDown", "scripted ", "disk full")
"""What the faults of a scene say; the log has nothing else at ERROR."""
ALLOWED = 2
"""Crashes of owners in a scene; after one more in a short time a run is given up."""
STEPS = 10_000
"""Steps of one task at one moment of virtual time after which it works for ever."""
PATIENCE = 30
"""Looks, ten seconds apart, at runs that all wait for others, before the people of a scene go on."""
TURNS = 14
"""Times that the people of a scene look at all its runs, after its acts."""
AGREED = 9
"""Of those, the turns in which they do not cancel."""


class _Gone(Exception):
    """The process of the scene is over."""


@attrs.define(eq=False)
class Posted:
    """An accepted command."""

    run_id: str
    kind: str
    by: str
    command_id: str
    text: str = ""


@attrs.define(eq=False, repr=False)
class Written:
    """A commit that was submitted, and whether it became durable."""

    commit: Commit
    frames: tuple[bytes, ...]
    durable: bool = False


@attrs.define(eq=False, repr=False)
class Life:
    """A scene while it is played.

    Attributes:
        faults: sentences about what is broken.
        seen: run -> the events that its follower got, in order.
        posted: the accepted commands.
        changed: how often the agents were changed. missing: the role whose agent the next process lacks.
        gap: virtual seconds until the next process. outages: writes that the store will not answer.
        broken: crashes of owners so far. begun, pruned: ids of runs. set_back: the clock of the wall was.
        names: counts ids of commands and runs.
    """

    scene: RandomScene
    folder: Path
    world: World = attrs.field(factory=World)
    faults: list[str] = attrs.field(factory=list)
    seen: dict[str, list[gr.Event]] = attrs.field(factory=dict)
    posted: list[Posted] = attrs.field(factory=list)
    models: list[Any] = attrs.field(factory=list)
    submitted: list[Written] = attrs.field(factory=list)
    flying: list[Written] = attrs.field(factory=list)
    changed: int = 0
    missing: int | None = None
    gap: float = 0.0
    outages: int = 0
    broken: int = 0
    begun: set[str] = attrs.field(factory=set)
    pruned: set[str] = attrs.field(factory=set)
    set_back: bool = False
    names: int = 0
    shelf: WatchedShelf = attrs.field(init=False)
    wall: FakeWall = attrs.field(init=False)
    clock: Any = attrs.field(init=False)
    runtime: gr.Runtime = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(init=False)
    nursery: trio.Nursery = attrs.field(init=False)
    _kill: tuple[int, str] | None = None
    _dead: bool = False

    async def play(self) -> None:
        """From the first process to the last."""
        self.shelf = WatchedShelf(self.scene.kind, self.folder)
        self.wall = FakeWall()
        self.clock = Clock(self.wall)
        acts = list(self.scene.acts)
        while not await self._process(acts):
            await trio.sleep(self.gap)
            self.gap = 0.0

    # --- processes ---------------------------------------------------------------------------------------------------

    async def _process(self, acts: list[Act]) -> bool:
        """One process. True if the scene is over."""
        before = set(chaos.program_tasks())
        place: Any = self.shelf.open(faults=self._at)
        place._faults = self._at
        self._record(place)
        self._dead, self._kill, self.scope, self.flying = False, None, trio.CancelScope(), []
        agents = self._agents()
        options = {**dict(self.scene.runtime), "deps": self.world, "clock": self.clock}
        if self.scene.prepared is not None:
            options["workspaces"] = Shop(seconds=self.scene.prepared)
        over = False
        try:
            with self.scope:
                async with gr.open_runtime(place, agents=agents, **options) as self.runtime:
                    async with trio.open_nursery() as self.nursery:
                        with suppress(_Gone):
                            over = await self._acted(acts)
                        self.nursery.cancel_scope.cancel()
        except Exception as error:
            if not self._dead:
                raise
            for leaf in leaves(error):
                if not isinstance(leaf, DEATHS):
                    raise
        await trio.testing.wait_all_tasks_blocked()
        left = [task.name for task in chaos.program_tasks() if task not in before]
        if left:
            self.faults.append(f"tasks are alive after the runtime has closed: {left}")
        if self.world.running:
            self.faults.append(f"bodies run after the runtime has closed: {self.world.running}")
        return over

    def _at(self, point: str) -> None:
        """The faults of the store."""
        if self._dead and point in ("before_commit", "after_commit"):
            raise InjectedCrash("the process is dead")
        if point == "before_commit" and self.outages:
            self.outages -= 1
            raise OSError("disk full")
        if self._kill is not None and point == self._kill[1]:
            left = self._kill[0] - 1
            self._kill = left, point
            if left <= 0:
                self._dead = True
                self.world.die()
                self.scope.cancel()
                if self.flying and point == "after_commit":  # else the write was no commit
                    self.flying[0].durable = True
                raise InjectedCrash("the process dies here")

    def _record(self, place: Any) -> None:
        submit = type(place).submit

        def noting(claim: Any, commit: Any, frames: Any, deliver: Any) -> None:
            written = Written(commit, tuple(frames))
            self.submitted.append(written)
            self.flying.append(written)

            def settled(receipt: Any) -> None:
                self.flying.remove(written)
                written.durable = written.durable or receipt.kind == "committed"  # a kill may hide that it is
                deliver(receipt)

            submit(place, claim, commit, frames, settled)

        place.submit = noting

    def _agents(self) -> list[gr.Agent[Any]]:
        made: dict[int, gr.Agent[Any]] = {}
        for number in reversed(range(len(self.scene.roles))):
            made[number] = self._agent(number, made)
        missing, self.missing = self.missing, None
        return [agent for number, agent in sorted(made.items()) if number != missing]

    def _agent(self, number: int, made: dict[int, gr.Agent[Any]]) -> gr.Agent[Any]:
        role = self.scene.roles[number]
        tools = list(TOOLS)
        for other, names in role.tools:
            given = {key: value for name in names for key, value in TOOL_OPTIONS[name]().items()}
            tools.append(made[other].as_tool(name=f"expert{other}", **given))
        options = {key: value for name in role.options for key, value in OPTIONS[name]().items()}
        for name in role.guardrails:
            kind, guardrail = GUARDRAILS[name]
            options.setdefault(kind, []).append(guardrail)
        options["handoffs"] = [
            gr.handoff(
                made[other] if other > number else f"role{other}",
                **{key: value for name in names for key, value in HANDOFF_OPTIONS[name]().items()},
            )
            for other, names in role.handoffs
        ]
        if self.changed % 3 == 1:
            options["stop"] = [*options.get("stop", ()), gr.stop.MaxRounds(9)]
        if self.changed % 3 == 2:
            tools = [tool for tool in tools if tool.name not in ("sign", "note")]
        script = role.script

        def answers(request: gr.ModelRequest) -> Any:
            return script[request.model_attempts] if request.model_attempts < len(script) else _last(role)

        model = FunctionModel(answers, chunk=4)
        self.models.append(model)
        plugins = [PLUGINS[name]() for name in role.plugins]
        return gr.Agent(f"role{number}", description="Knows.", tools=tools, model=model, plugins=plugins, **options)

    # --- acts --------------------------------------------------------------------------------------------------------

    async def _acted(self, acts: list[Act]) -> bool:
        await self._begin(ROOT, thread_id="t")
        while acts:
            act = acts.pop(0)
            if act.wait is None:
                await self._rested(300.0)
            else:
                await trio.sleep(act.wait)
            await self._follow()
            with suppress(gr.StoreUnavailable):
                await getattr(self, act.kind)(*act.lots)
        await self._finish()
        if not self.faults:
            self.faults += [sentence async for sentence in Judge(self).broken()]
        return True

    async def _begin(self, run_id: str, **options: Any) -> None:
        if run_id in self.begun:
            return
        if "role0" not in self.runtime.agents:
            raise _Gone
        if self.scene.deadline is not None:
            options["deadline"] = self.clock.now() + timedelta(seconds=self.scene.deadline)
        if self.scene.attached:
            options["attachments"] = [gr.File(b"a file", media_type="text/plain", name="a.txt")]
        if self.scene.prepared is not None:
            options["workspace"] = "shop"
        agent = self.runtime.agents["role0"]
        await self.runtime.start(agent, self.scene.ask, run_id=run_id, execution=EXECUTIONS[self.scene.mode], **options)
        self.begun.add(run_id)

    async def _follow(self) -> None:
        """Let a follower read each run that has none in this process."""
        for run in await self._runs():
            if run.id not in self._followed():
                self.nursery.start_soon(self._read, run, name=f"follower of {run.id}")
        await trio.lowlevel.checkpoint()

    def _followed(self) -> set[str]:
        return {task.name.removeprefix("follower of ") for task in self.nursery.child_tasks}

    async def _read(self, run: gr.Run[Any]) -> None:
        seen = self.seen.setdefault(run.id, [])
        if seen and seen[-1].type in ENDS:
            return
        with suppress(gr.RuntimeClosed, gr.StoreDown, gr.RunPruned, gr.UnknownRun, gr.RunDegradedError):
            async with run.events(after=len(seen)) as events:
                async for event in events:
                    if event.sequence != len(seen) + 1:
                        self.faults.append(f"the follower of {run.id} got event {event.sequence} after {len(seen)}")
                    seen.append(event)

    async def _runs(self, *, done: bool = True) -> list[gr.Run[Any]]:
        page = await self.runtime.runs(limit=1000, order="newest")
        lines = sorted(page.runs, key=lambda line: (line.info.created_at, line.info.run_id))
        return [
            await self.runtime.get(line.info.run_id)
            for line in lines
            if done or line.row.status is not gr.RunStatus.DONE
        ]

    async def _one(self, lot: float, *, done: bool = False) -> gr.Run[Any] | None:
        runs = await self._runs(done=done)
        return runs[int(lot * len(runs))] if runs else None

    async def _rested(self, seconds: float) -> list[gr.Run[Any]]:
        """Wait until all runs rest, or wait for others. Returns those that do not."""
        runs = await self._runs(done=False)
        busy = {run.id: run for run in runs}

        async def wait(run: gr.Run[Any]) -> None:
            with suppress(gr.RunDegradedError):
                await run.wait()
            busy.pop(run.id, None)

        patience = PATIENCE
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for run in runs:
                    nursery.start_soon(wait, run)
                while busy and patience:
                    held = [run for run in tuple(busy.values()) if _waits((await run.view()).waiting_for)]
                    patience = patience - 1 if len(held) == len(busy) else PATIENCE
                    await trio.sleep(10.0)
                nursery.cancel_scope.cancel()
        return list(busy.values()) if patience else []

    def _took(
        self, run: gr.Run[Any], kind: str, by: str, command_id: str, answer: gr.CommandResult, said: str = ""
    ) -> None:
        if answer.status == "rejected":
            if answer.code not in REJECTIONS:
                self.faults.append(f"{kind} of {run.id} was rejected: {answer.code}: {answer.detail}")
        else:
            self.posted.append(Posted(run.id, kind, by, command_id, said))

    async def _decide(
        self, run: gr.Run[Any], target: str, ticket: gr.Ticket | None, lots: Sequence[float], name: str
    ) -> None:
        action: Any = "cancel" if lots[0] < 0.25 else "resume"
        options: dict[str, Any] = {}
        if action == "resume" and lots[1] < 0.3:
            options["result"] = "yes"
        elif action == "resume" and ticket is not None and lots[1] < 0.4 and "cents" in ticket.arguments:
            options["edited_arguments"] = {**ticket.arguments, "cents": 4}
        answer = await run.decide(target, action, decision_id=name, by=f"by {name}", **options)
        self._took(run, "decide", f"by {name}", name, answer)

    def _name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    async def _tickets(self) -> list[tuple[gr.Run[Any], gr.Ticket]]:
        return [(run, ticket) for run in await self._runs(done=False) for ticket in (await run.view()).tickets]

    async def decide(self, *lots: float) -> None:
        """One open ticket of any run is decided, by its id or its call's."""
        tickets = await self._tickets()
        if tickets:
            run, ticket = tickets[int(lots[5] * len(tickets))]
            target = ticket.call_id if lots[4] < 0.4 and ticket.call_id else ticket.ticket_id
            await self._decide(run, target, ticket, lots, self._name())

    async def decide_early(self, *lots: float) -> None:
        """A call is decided that may not be there yet."""
        run = await self._one(lots[5])
        if run is not None:
            target = f"{'abc'[int(lots[4] * len(self.scene.roles))]}{int(lots[3] * 3)}{int(lots[2] * 3)}"
            await self._decide(run, target, None, lots, self._name())

    async def decide_again(self, *lots: float) -> None:
        """One ticket is decided twice: at once the same, and then otherwise."""
        tickets = await self._tickets()
        if tickets:
            run, ticket = tickets[int(lots[5] * len(tickets))]
            first, second = self._name(), self._name()
            await self._decide(run, ticket.ticket_id, ticket, lots, first)
            await self._decide(run, ticket.ticket_id, ticket, lots, first)
            await self._decide(run, ticket.call_id or ticket.ticket_id, ticket, (1 - lots[0], *lots[1:]), second)

    async def decide_all(self, *lots: float) -> None:
        """All open tickets are decided at once: of both sides of a mirror, too."""
        async with trio.open_nursery() as nursery:
            for run, ticket in await self._tickets():
                nursery.start_soon(self._decide, run, ticket.ticket_id, ticket, lots, self._name())

    async def cancel(self, *lots: float) -> None:
        """A run is cancelled."""
        run, name = await self._one(lots[0]), self._name()
        if run is not None:
            mode: Any = "after_step" if lots[1] < 0.3 else "now"
            answer = await run.cancel(mode=mode, by=f"by {name}", command_id=name)
            self._took(run, "cancel", f"by {name}", name, answer)

    async def pause(self, *lots: float) -> None:
        """A run is to be held."""
        run, name = await self._one(lots[0]), self._name()
        if run is not None:
            self._took(run, "pause", f"by {name}", name, await run.pause(by=f"by {name}", command_id=name))

    async def send(self, *lots: float) -> None:
        """New input."""
        run, name = await self._one(lots[0]), self._name()
        if run is not None:
            said = f"{INPUTS[int(lots[1] * len(INPUTS) * 0.999)] if lots[2] < 0.5 else 'more'} {name}"
            files = [gr.File(b"more", media_type="text/plain")] if lots[3] < 0.2 else []
            answer = await run.send(said, attachments=files, by=f"by {name}", command_id=name)
            self._took(run, "send", f"by {name}", name, answer, said)

    async def restart(self, *lots: float) -> None:
        """The process ends, in the middle of whatever it does."""
        self.gap = 0.0 if lots[0] < 0.6 else lots[1] * 100.0
        raise _Gone

    async def kill(self, *lots: float) -> None:
        """The process dies at a later write."""
        self._kill = 1 + int(lots[0] * 12), "after_commit" if lots[1] < 0.5 else "before_commit"

    async def jump(self, *lots: float) -> None:
        """The clock of the wall is set."""
        seconds = (lots[0] - 0.2) * 100.0
        self.set_back |= seconds < 0
        self.wall.step(seconds)

    async def prune(self, *lots: float) -> None:
        """All runs that are over are deleted."""
        before = {run.id for run in await self._runs()}
        await self.runtime.store.prune(self.clock.now() + timedelta(seconds=1))
        self.pruned |= before - {run.id for run in await self._runs()}

    async def fork(self, *lots: float) -> None:
        """A run is forked at a step."""
        run, self.names = await self._one(lots[0], done=True), self.names + 1
        if run is not None:
            with suppress(gr.UsageError, gr.UnknownAgent):
                await self.runtime.fork(run.id, step=int(lots[1] * 3), new_run_id=f"fork{self.names}")

    async def another(self, *lots: float) -> None:
        """Another run begins, in the same thread or in its own."""
        self.names += 1
        with suppress(_Gone):
            await self._begin(f"next{self.names}", thread_id="t" if lots[0] < 0.6 else None)

    async def change(self, *lots: float) -> None:
        """The next process has other versions of the agents."""
        self.changed += 1
        raise _Gone

    async def missing_agent(self, *lots: float) -> None:
        """The next process lacks an agent."""
        self.missing = int(lots[0] * len(self.scene.roles))
        raise _Gone

    async def refuse(self, *lots: float) -> None:
        """The store cannot write the next commit: the owner of that run begins again."""
        if self.broken < ALLOWED:
            self.broken += 1
            self.shelf.refusals = 1

    async def crash(self, *lots: float) -> None:
        """The owner of a run crashes, in the middle of whatever it does."""
        owners = [
            task for task in chaos.program_tasks() if task.name in {f"runtime/{run.id}" for run in await self._runs()}
        ]
        able = sorted((task for task in owners if not chaos.waits_for_children(task)), key=lambda task: task.name)
        if able and self.broken < ALLOWED:
            self.broken += 1
            victim = able[int(lots[0] * len(able))]
            chaos.CrashAt(0, lambda task: task is victim, ZeroDivisionError()).before_task_step(victim)

    async def outage(self, *lots: float) -> None:
        """The store does not answer for its next writes."""
        self.outages = 1 + int(lots[0] * 4)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Bring every run to its end."""
        self.outages = 0
        if len(self.runtime.agents) < len(self.scene.roles):
            raise _Gone
        for turn in range(TURNS):
            await self._follow()
            late = await self._rested(LONG)
            if late:
                self.faults += [f"{run.id} works for ever: {await _state(run)}" for run in late]
                return
            if not await self._runs(done=False):
                break
            self.faults += [sentence async for sentence in Judge(self).broken_rest()]
            await self._look_after(turn)
        self.faults += [f"{run.id} does not end: {await _state(run)}" for run in await self._runs(done=False)]
        await self._follow()
        with trio.move_on_after(100):
            while self._followed() - {"wait"}:  # noqa: ASYNC110 - followers end by themselves, one after the other
                await trio.sleep(1)

    async def _look_after(self, turn: int) -> None:
        """Decide what is open; in the last turns cancel the oldest run, and then all runs."""
        lots = ((turn * 7 % 10) / 10, 0.0 if turn % 3 else 0.9, 0.0, 0.0, turn % 2, 0.0)
        if turn < AGREED:
            for run, ticket in await self._tickets():
                await self._decide(run, ticket.ticket_id, ticket, lots, self._name())
        else:
            for run in (await self._runs(done=False))[: 1 if turn < TURNS - 2 else None]:
                await run.cancel(by="in the end")


async def _state(run: gr.Run[Any]) -> str:
    view = await run.view()
    return f"{view.stage} {view.waiting_for} {view.degraded} {dict(view.calls)}"


def _last(role: Role) -> Any:
    return '{"n": 3}' if "a form" in role.options else "9" if "a number" in role.options else "done"


def _waits(waiting: Any) -> bool:
    """Whether a run waits for another run, so that it does not rest by itself."""
    return waiting is not None and waiting.kind in ("thread", "slot")


DEATHS = (gr.RuntimeFailed, gr.StoreDown, gr.StoreUnavailable, gr.RuntimeClosed, InjectedCrash, gr.StoreError, _Gone)
REJECTIONS = (
    "already_decided", "run_done", "unknown_target", "expired", "invalid_result", "invalid_arguments", "busy",
    "store_unavailable", "fingerprint_mismatch", "decision_id_conflict",
)  # fmt: skip


# --- playing and shortening ------------------------------------------------------------------------------------------


@contextmanager
def _listening(lines: list[str]) -> Iterator[None]:
    """Keep what the runtime reports at ERROR of its own doing."""

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name}: {record.getMessage()}")

    log, keep = logging.getLogger("greenroom"), Keep(logging.ERROR)
    propagate, log.propagate = log.propagate, False
    log.addHandler(keep)
    try:
        yield
    finally:
        log.removeHandler(keep)
        log.propagate = propagate


@attrs.define(eq=False, repr=False)
class _Steps(trio.abc.Instrument):
    """Ends a scene whose tasks run for ever while virtual time does not pass."""

    life: Life
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    last: float = 0.0
    busy: Counter[str] = attrs.field(factory=Counter)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Called by trio."""
        now = trio.current_time()
        if now != self.last:
            self.last, self.busy = now, Counter()
        self.busy[task.name] += 1
        if self.busy[task.name] > STEPS and not self.scope.cancel_called:
            self.life.faults.append(f"tasks run for ever: {self.busy.most_common(4)}")
            self.scope.cancel()


def play(scene: RandomScene, *, heard: list[str] | None = None, types: list[str] | None = None) -> list[str]:
    """Play a scene. Returns a sentence per fault.

    Args:
        scene: what is played.
        heard: gets what the runtime has logged at ERROR.
        types: gets the types of all events that followers have read, run by run.
    """
    lines: list[str] = [] if heard is None else heard
    shared = Path("/dev/shm")  # noqa: S108 - a fresh folder is made in it
    folder = Path(tempfile.mkdtemp(prefix="greenroom-", dir=shared if shared.is_dir() else None))
    life = Life(scene, folder)

    steps = _Steps(life)

    async def main() -> None:
        with steps.scope:
            await life.play()

    try:
        with _listening(lines):
            chaos.run(main, seed=scene.seed, instruments=[steps])
    except Exception as error:  # noqa: BLE001 - whatever leaves a scene is a fault
        life.faults += ["".join(traceback.format_exception(leaf)) for leaf in leaves(error)]
    finally:
        shutil.rmtree(folder)
    life.faults += [f"unexpected: {line}" for line in lines if not any(words in line for words in EXPECTED)]
    if types is not None:
        types += [f"{run_id} {event.type}" for run_id, seen in life.seen.items() for event in seen]
    return life.faults


def shortened(scene: RandomScene, fails: Callable[[RandomScene], bool]) -> RandomScene:
    """The shortest scene that still fails: what can be left out is left out, one thing at a time."""
    found = True
    while found:
        found = False
        for smaller in _smaller(scene):
            if fails(smaller):
                scene, found = smaller, True
                break
    return scene


def _smaller(scene: RandomScene) -> Iterator[RandomScene]:
    for index in reversed(range(len(scene.acts))):
        yield attrs.evolve(scene, acts=_without(scene.acts, index))
    if len(scene.roles) > 1:
        last = len(scene.roles) - 1
        roles = [
            attrs.evolve(
                role,
                tools=tuple(item for item in role.tools if item[0] != last),
                handoffs=tuple(item for item in role.handoffs if item[0] != last),
            )
            for role in scene.roles[:last]
        ]
        yield attrs.evolve(scene, roles=tuple(roles))
    for number, role in enumerate(scene.roles):
        for smaller in _smaller_roles(role):
            yield attrs.evolve(scene, roles=(*scene.roles[:number], smaller, *scene.roles[number + 1 :]))
    for index in range(len(scene.runtime)):
        yield attrs.evolve(scene, runtime=_without(scene.runtime, index))
    for name, value in (
        ("kind", "memory"),
        ("mode", "sequential"),
        ("ask", "hi"),
        ("deadline", None),
        ("prepared", None),
    ):
        if getattr(scene, name) != value:
            yield attrs.evolve(scene, **{name: value})


def _smaller_roles(role: Role) -> Iterator[Role]:
    for name in ("script", "plugins", "guardrails", "options", "handoffs"):
        values = getattr(role, name)
        for index in reversed(range(len(values))):
            yield attrs.evolve(role, **{name: _without(values, index)})
    for step, answer in enumerate(role.script):
        if len(answer) > 1:
            for index in range(len(answer)):
                script = (*role.script[:step], _without(answer, index), *role.script[step + 1 :])
                yield attrs.evolve(role, script=script)
    for index, (other, names) in enumerate(role.tools):
        if names:
            yield attrs.evolve(role, tools=(*role.tools[:index], (other, ()), *role.tools[index + 1 :]))


def _without(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return values[:index] + values[index + 1 :]
