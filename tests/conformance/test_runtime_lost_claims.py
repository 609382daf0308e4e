"""An owner that has lost its claim writes nothing more: a new run begins again from the store, any other is left."""

from collections import Counter
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.commits import Receipt
from greenroom.testing import call

from ..support.runs import agent, events_of, home


@gr.tool(needs_approval=True, replay="safe")
async def pay() -> str:
    """Pay."""
    return "paid"


class Taken(gr.MemoryStore):
    """The claims of a run are taken by another owner, which releases the run at once: at the commits named here."""

    def __init__(self, *at: int) -> None:
        super().__init__()
        self.at, self.seen, self.claims = at, 0, Counter[str]()

    async def claim(self, *args: Any, **options: Any) -> Any:
        """Count."""
        self.claims[args[0]] += 1
        return await super().claim(*args, **options)

    def submit(self, claim: Any, commit: Any, frames: Any, deliver: Any) -> None:
        """Refuse what the claim wrote."""
        self.seen += 1
        if self.seen in self.at:
            deliver(Receipt(kind="lease_lost"))
        else:
            super().submit(claim, commit, frames, deliver)


async def test_a_new_run_whose_claim_is_taken_begins_again_from_the_store(autojump_clock):
    helper, store = agent("done"), Taken(1)
    async with home(store, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        assert (await run.result()).output == "done"
        events = await events_of(run)
    assert store.claims["r"] == 1
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("at", [1, 2])
async def test_a_run_that_was_taken_up_is_left_to_its_new_owner(autojump_clock, caplog, at):
    """The owner ends without a crash; the next command takes the run up again."""
    helper, store = agent(call("pay", id="P"), "done", tools=[pay]), Taken()
    async with home(store, agents=[helper], passivate_after=1.0) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.wait()
        await trio.sleep(10)
        store.at = (store.seen + at,)
        assert (await run.decide("P", "resume")).ok
        with trio.move_on_after(10) as waiting:
            await run.result()
        assert waiting.cancelled_caught
        assert store.claims["r"] == 1
        await run.send("are you there?")
        assert (await run.result()).output == "done"
    assert store.claims["r"] == 2
    assert "crashed" not in caplog.text
