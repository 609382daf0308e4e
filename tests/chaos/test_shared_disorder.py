"""Processes of a shared store that end, stop and miss hints at random, in virtual time.

No run is lost, none ends twice, and no effect happens twice. Each round has some 30 strikes in 120 virtual seconds.
"""

import random
from collections import Counter

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay

from ..support.runs import events_of, types
from ..support.shared import cluster

RUNS = 8
SECONDS = 120.0
"""Virtual seconds of disorder; then all is well again, and every run has to end."""


class World:
    """What bodies did, outside of the store."""

    def __init__(self):
        self.effects = Counter()

    def agent(self):
        @gr.tool(needs_approval=True)
        async def pay(ctx: gr.ToolContext, n: int) -> str:
            """Pay: an effect that must not happen twice."""
            await trio.sleep(0.5)
            self.effects[ctx.run_id, ctx.call_id, ctx.attempt] += 1
            await trio.sleep(1.5)
            return f"paid {n}"

        @gr.tool(replay="safe")
        async def look(n: int) -> str:
            """Look."""
            await trio.sleep(1)
            return str(n)

        steps = [
            [delay(1), call("look", n=1, id="c1")],
            call("pay", n=2, id="c2"),
            [delay(1), call("pay", n=3, id="c3")],
            "done",
        ]
        return gr.Agent("worker", model=ScriptedModel(steps), tools=[pay, look])


class Disorder:
    """Draws what happens to the processes."""

    def __init__(self, shared, world, rng):
        self.shared, self.world, self.rng = shared, world, rng
        self.processes, self.frozen = [], {}
        self.struck = Counter()

    async def open(self):
        limits = {"max_running": self.rng.choice([None, 2, 3]), "passivate_after": self.rng.choice([1, 10, 60])}
        runtime = await self.shared.open(self.world.agent(), **limits)
        self.processes.append(runtime)

    def policy(self, kind, _):
        dice = self.rng.random()
        return None if dice < 0.2 else 0.0 if dice < 0.7 else self.rng.random() * 2

    async def strike(self):
        kind = self.rng.choice(["kill", "freeze", "freeze", "close", "open"])
        awake = [runtime for runtime in self.processes if runtime not in self.frozen]
        if kind in ("kill", "close") and len(awake) > 1:
            victim = self.rng.choice(awake)
            self.processes.remove(victim)
            if kind == "close":
                await self.shared.close(victim)
            else:
                name = await self.shared.kill(victim)
                if self.rng.random() < 0.5:
                    await self.rng.choice([one for one in awake if one is not victim]).store.bury(name)
            self.struck[kind] += 1
        elif kind == "freeze" and len(awake) > 1:
            self.struck[kind] += 1
            victim = self.rng.choice(awake)
            victim.store.freeze()
            self.frozen[victim] = trio.current_time() + self.rng.choice([0.5, 3, 24, 45])
        elif kind == "open" and len(self.processes) < 5:
            await self.open()
        if len(self.processes) - len(self.frozen) < 2:
            await self.open()

    def thaw(self, *, all_of_them=False):
        for runtime, until in list(self.frozen.items()):
            if all_of_them or trio.current_time() >= until:
                runtime.store.thaw()
                del self.frozen[runtime]

    async def decide(self, run_ids, gateway):
        """Decide what is asked, twice."""
        for run_id in run_ids:
            view = await (await gateway.get(run_id)).view()
            for ticket in view.tickets:
                given = {"result": "seen"} if ticket.reason == "outcome_unknown" else {}
                name = f"d:{ticket.ticket_id}"
                decision = gr.Decision(target=ticket.ticket_id, action="resume", decision_id=name, **given)
                for _ in range(2):
                    await (await gateway.get(run_id)).decide(decision)


@pytest.mark.parametrize("round_", range(3))
async def test_no_run_is_lost_and_no_effect_is_doubled(autojump_clock, seed, round_):
    rng, world = random.Random(f"{seed} {round_}"), World()
    async with cluster() as shared:
        disorder = Disorder(shared, world, rng)
        shared.first.hints = disorder.policy
        gateway = await shared.open()
        for _ in range(3):
            await disorder.open()
        runs = []
        for n in range(RUNS):
            names = {"run_id": f"r{n}", "thread_id": f"t{n // 2}"}
            runs.append(await gateway.start("worker", "hi", **names, background=rng.random() < 0.5))
        ids = [run.id for run in runs]
        while trio.current_time() < SECONDS:
            await trio.sleep(rng.random() * 4)
            disorder.thaw()
            if rng.random() < 0.5:
                await disorder.strike()
            await disorder.decide(ids, gateway)
        disorder.thaw(all_of_them=True)
        shared.first.hints = None
        with trio.move_on_after(600):
            while [run for run in runs if (await run.view()).status != "done"]:
                await disorder.decide(ids, gateway)
                await trio.sleep(1)
        for run in runs:
            view = await run.view()
            assert view.status == "done", (run.id, view.stage, view.waiting_for, view.degraded, disorder.struck)
            events = await events_of(run)
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            kinds = types(events)
            assert kinds[-1] == "completed", (view.termination, kinds)
            assert sum(kinds.count(kind) for kind in ("completed", "failed", "cancelled")) == 1
        assert max(world.effects.values()) == 1
        calls = Counter((run_id, call_id) for run_id, call_id, _ in world.effects)
        assert max(calls.values()) == 1, "a person was asked, and said that it was done"
        assert sum(disorder.struck.values()) >= 6
        messages = [message.role for message in (await runs[1].view()).messages]
        assert messages.count("user") == 2
