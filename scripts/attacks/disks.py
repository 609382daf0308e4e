"""What was acknowledged is done, whatever the disk does for a while."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from functools import partial
from pathlib import Path

import attrs
import trio
from tests.support.runs import events_of, frames_of, home
from tests.unit.stores.test_disk_faults import Disk

import greenroom as gr
from greenroom.actors.stores.common.faults import POINTS, READ, passing
from greenroom.testing import ScriptedModel, call

from .core import LONG, Dice, must, virtual


@gr.tool(needs_approval=True)
async def pay(cents: int = 1) -> str:
    """Pay."""
    await trio.sleep(1)
    return "paid"


@attrs.define
class Bank:
    """Runs at work in a store, and what was accepted for each."""

    runtime: gr.Runtime
    dice: Dice
    accepted: dict[str, set[str]] = attrs.field(factory=dict)

    async def act(self) -> None:
        """Do one thing; the store may say that it is not there now."""
        with contextlib.suppress(gr.StoreUnavailable, gr.RunDegradedError, trio.TooSlowError):
            with trio.fail_after(300):
                await self._act(self.dice.choice(("start", "start", "decide", "cancel", "send", "look", "fork")))

    async def _act(self, what: str) -> None:
        run_ids = sorted(self.accepted)
        if what == "start" or not run_ids:
            order = {"thread_id": self.dice.choice(("t1", "t2", None)), "run_id": f"r{self.dice.getrandbits(40)}"}
            self.accepted[(await self.runtime.start("payer", "pay", **order)).id] = set()
            return
        run_id = self.dice.choice(run_ids)
        run = await self.runtime.get(run_id)
        match what:
            case "decide":
                answer = await run.decide(f"{run_id}-c1", "resume")
                self.accepted[run_id] |= {"decide"} if answer.ok else set()
            case "cancel":
                answer = await run.cancel()
                self.accepted[run_id] |= {"cancel"} if answer.ok and answer.code != "run_done" else set()
            case "send":
                word = f"word{self.dice.getrandbits(40)}"
                self.accepted[run_id] |= {word} if (await run.send(word)).ok else set()
            case "look":
                await self.runtime.reader.page(gr.RunQuery(text="pay"))
                await run.view()
            case "fork":
                with contextlib.suppress(gr.UsageError):
                    self.accepted[(await self.runtime.fork(run_id, step=1)).id] = set()

    async def settle(self) -> None:
        """Everything comes to its end, and what was accepted is seen in it."""
        async with trio.open_nursery() as nursery:
            for run_id in sorted(self.accepted):
                nursery.start_soon(self._settle, run_id)

    async def _settle(self, run_id: str) -> None:
        run = await self.runtime.get(run_id)
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                await run.decide(ticket.approve())
            await trio.sleep(1)  # a store that has not found back yet refuses commands at once
        must(not isinstance(outcome, gr.Failed), f"{run_id}: {outcome}")
        events = await events_of(run)
        must([one.sequence for one in events] == list(range(1, len(events) + 1)), f"{run_id}: a gap")
        commands, frames = self.accepted[run_id], (await frames_of(self.runtime, run_id)).decode()
        must(
            "cancel" not in commands or isinstance(outcome, gr.Cancelled),
            f"{run_id}: not cancelled: {frames[-2000:]}",
        )
        for one in commands - {"cancel", "decide"}:
            must(one in frames or isinstance(outcome, gr.Cancelled), f"{run_id}: no word of {one}: {frames[-2000:]}")


async def on_a_bad_disk(dice: Dice, path: Path) -> None:
    """One scene: work, with faults that come and go."""
    disk = Disk()
    payer = gr.Agent("payer", model=ScriptedModel([call("pay"), "done"] * 9), tools=[pay])
    store = gr.SQLiteStore(path, writer="inline", faults=disk, patience=LONG)
    async with home(store, agents=[payer], passivate_after=dice.choice((0.0, 5.0, None))) as runtime:
        bank = Bank(runtime, dice)
        async with trio.open_nursery() as nursery:
            for _ in range(dice.randint(2, 4)):
                if dice.random() < 0.8:
                    with disk.failing(dice.choice((*POINTS[:-1], READ)), dice.choice(list(passing().values()))):
                        for _ in range(dice.randint(1, 6)):
                            nursery.start_soon(bank.act)
                            await trio.sleep(dice.choice((0.001, 0.5, 20, 45)))
                for _ in range(dice.randint(1, 6)):
                    nursery.start_soon(bank.act)
                await trio.sleep(dice.choice((0, 0.3, 30)))
        await bank.settle()
    with contextlib.closing(sqlite3.connect(path)) as check:
        must(check.execute("PRAGMA integrity_check").fetchone() == ("ok",), "the file is damaged")


def disks(dice: Dice) -> None:
    """Faults that pass, at random points of random operations, for random times."""
    with tempfile.TemporaryDirectory() as folder:
        virtual(partial(on_a_bad_disk, dice, Path(folder) / "runs.db"))
