"""Processes that die at a write: what they leave is taken up by another process, and every run replays byte-equal.

A `Death` opens the homes of a test (`runs.home`) and ends one of them at the n-th write of the whole test: before the
write is durable, or after it and before the runtime learns of it. The next process has the same agents and options. In
it people answer, refuse, say more, pause or cancel, by lot, until no run works any more; then each run is replayed. The
test itself ends where its process died, with `Killed`.
"""

import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Literal

import attrs
import trio
from trio.testing import MockClock

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.stores.common.faults import InjectedCrash

from . import runs

Point = Literal["before_commit", "after_commit"]
POINTS: tuple[Point, ...] = ("before_commit", "after_commit")
ROUNDS = 6
"""Times that people look after a run which waits; the last time they cancel it, or leave it as it is."""
PATIENT, HASTY = 5_000.0, 0.2
"""Seconds that people wait for a run to rest: virtual ones, and real ones."""
OTHER_AGENT = ("agent_changed", "tool_changed")


class Killed(Exception):
    """The process in which the test was has died."""


@attrs.define(eq=False)
class Death:
    """The death of one process of a test.

    Attributes:
        at: the write at which it dies, from 1; 0: none does. point: where in this write.
        writes: seen so far. store: the one that died.
        judging: replay all runs also at the end of a home whose process is not killed.
        replayed: how many runs replayed equal. types: of their events. entries: in the records of all runs.
        differences: sentences about the others.
        skipped: runs that no replay can reproduce with the agents at hand, each with the reason.
        unrecorded: a process of the test kept no record.
    """

    at: int = 0
    point: Point = "after_commit"
    dice: Random = attrs.field(factory=Random)
    writes: int = 0
    store: gr.Store | None = None
    judging: bool = False
    unrecorded: bool = False
    replayed: int = 0
    types: set[str] = attrs.field(factory=set)
    entries: set[type] = attrs.field(factory=set)
    differences: list[str] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)

    @asynccontextmanager
    async def open(self, store: Any = None, /, **options: Any) -> AsyncIterator[gr.Runtime]:
        """As `gr.open_runtime`.

        Raises:
            Killed: the process has died, and the next one has done its work.
        """
        place: Any = gr.MemoryStore() if store is None else store
        if isinstance(place, gr.MemoryStore | gr.SQLiteStore):
            place._faults = self._armed(place, scope := trio.CancelScope(), faults := place._faults)
        else:
            scope, faults = trio.CancelScope(), None
        known: Mapping[str, gr.Agent[Any]] = {}
        try:
            with scope:
                async with gr.open_runtime(place, **options) as runtime:
                    known = runtime.agents  # also those that `start` will be given
                    self.unrecorded |= not options.get("record", True)
                    yield runtime
                    if self.at == 0 and self.judging:
                        await self.judge_all(runtime)
        except Exception:
            if self.store is not place:
                raise
        finally:
            if isinstance(place, gr.MemoryStore | gr.SQLiteStore):
                place._faults = faults
        if self.store is place:
            with trio.CancelScope(shield=True):
                try:
                    await self._afterlife(place, {**options, "agents": list(known.values())})
                except Exception as error:  # noqa: BLE001 - the test learns of Killed only
                    self._differ("".join(traceback.format_exception(error, chain=False)))
            raise Killed

    def _armed(
        self, store: Any, scope: trio.CancelScope, faults: Callable[[str], None] | None
    ) -> Callable[[str], None]:
        token = trio.lowlevel.current_trio_token()

        def at_point(point: str) -> None:
            if faults is not None:
                faults(point)
            if point not in POINTS:
                return
            if self.store is store:
                raise InjectedCrash("the process is dead")
            self.writes += point == self.point
            if self.writes == self.at and point == self.point:
                self.store = store
                token.run_sync_soon(scope.cancel)
                raise InjectedCrash("the process dies here")

        return at_point

    async def _afterlife(self, store: Any, options: dict[str, Any]) -> None:
        with trio.fail_after(runs.NEVER):
            async with gr.open_runtime(store, **options) as runtime:
                for turn in range(ROUNDS):
                    for line in (await runtime.runs(limit=1000)).runs:
                        if line.row.status != "done":
                            await self._look_after(await runtime.get(line.info.run_id), last=turn == ROUNDS - 1)
                await self.judge_all(runtime)

    async def _look_after(self, run: gr.Run[Any], *, last: bool) -> None:
        rest = await _rested(run)
        if last or rest is None:
            if self.dice.random() < 0.5:
                await run.cancel(by="ada")
                await _rested(run)
            return
        for ticket in rest.tickets if isinstance(rest, gr.Waiting) else ():
            match self.dice.choices(["approve", "deny", "say"], [6, 3, 1])[0]:
                case "approve":
                    await run.decide(ticket.ticket_id, "resume", result="yes", by="ada")
                case "deny":
                    await run.decide(ticket.deny("no", by="ada"))
                case _:
                    await run.send("go on", by="ada")
        match self.dice.choices(["nothing", "pause", "send", "cancel"], [12, 1, 1, 1])[0]:
            case "pause":
                await run.pause(by="ada")
            case "send":
                await run.send("and?", by="ada")
            case "cancel":
                await run.cancel(mode=self.dice.choice(["now", "after_step"]), by="ada")
            case _:
                pass

    async def judge_all(self, runtime: gr.Runtime) -> None:
        """Replay all runs."""
        for line in (await runtime.runs(limit=1000)).runs:
            await self.judge(runtime, line.info.run_id)

    async def judge(self, runtime: gr.Runtime, run_id: str) -> None:
        """Replay one run."""
        for delta in await runtime.store.record(run_id, limit=10_000):
            self.entries.update(type(entry.entry) for entry in delta.taken)
        try:
            report = await runtime.replay(run_id)
        except gr.UnknownAgent:
            self.skipped.append(f"{run_id}: its agent is not known")
            return
        events = [decode_event(frame) for frame in await runtime.store.events(run_id, limit=100_000)]
        if report.equal:
            self.replayed += 1
            self.types.update(event.type for event in events)
        elif any(event.type == "run.degraded" and event.payload["reason"] in OTHER_AGENT for event in events):
            self.skipped.append(f"{run_id}: another agent went on with it")
        elif self.unrecorded and report.unreplayable is not None and report.unreplayable.missing == "record":
            self.skipped.append(f"{run_id}: not recorded")
        else:
            self._differ(f"{run_id}: {report.difference or report.unreplayable}")

    def _differ(self, text: str) -> None:
        self.differences.append(f"killed at write {self.at}, {self.point}: {text}")


async def _rested(run: gr.Run[Any]) -> Any:
    """The outcome of a run at rest; None if it does not come to rest, or cannot be worked on here."""
    virtual = isinstance(trio.lowlevel.current_clock(), MockClock)
    with trio.move_on_after(PATIENT if virtual else HASTY), suppress(gr.RunDegradedError):
        return await run.wait()
    return None
