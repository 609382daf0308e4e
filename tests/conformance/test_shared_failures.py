"""Failures on a shared store: processes that end, stop for a while or lose their lease, and what the others do."""

from functools import partial

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.callbacks import StoreReports
from greenroom.actors.store_events import ClaimsVoided
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import agent, events_of, payloads, types
from ..support.shared import LEASE, MARGIN, TURN, cluster, live, owner_of, until

GOOD = LEASE - MARGIN
TAKEN_OVER = LEASE + 2 * TURN + 3.0
"""Seconds after which a run of an ended process works elsewhere: lease, two turns, and the pause after a crash."""


class Bodies:
    """A tool that notes when its body begins and ends."""

    def __init__(self, seconds):
        self.began, self.ended, self.seconds = [], [], seconds

    def tool(self, **options):
        @gr.tool(**options)
        async def work() -> str:
            """Work."""
            self.began.append(trio.current_time())
            try:
                await trio.sleep(self.seconds)
            finally:
                self.ended.append(trio.current_time())
            return "worked"

        return work


def worker(tool, think=0.0):
    return agent([delay(think), call("work", id="c1")], "done", key="worker", tools=[tool])


# --- the end of a process --------------------------------------------------------------------------------------------


async def test_a_run_whose_process_has_ended_continues_elsewhere_after_the_lease(autojump_clock):
    bodies = Bodies(5)
    async with cluster() as shared:
        there = await shared.open(worker(bodies.tool(replay="safe")))
        here = await shared.open(worker(bodies.tool(replay="safe")))
        await here.start("worker", "hi", run_id="r1")
        await trio.sleep(1)
        assert len(bodies.began) == 1
        await shared.kill(here)
        run = await there.get("r1")
        assert (await run.result()).output == "done"
        assert len(bodies.began) == 2
        assert LEASE <= bodies.began[1] - 1 <= TAKEN_OVER
        assert types(await events_of(run)).count("completed") == 1


async def test_a_supervisor_that_saw_the_end_of_a_process_has_its_runs_taken_over_at_once(autojump_clock):
    bodies = Bodies(5)
    async with cluster() as shared:
        there = await shared.open(worker(bodies.tool()))
        here = await shared.open(worker(bodies.tool()))
        await here.start("worker", "hi", run_id="r1")
        await trio.sleep(1)
        assert await there.store.bury(await shared.kill(here))
        run = await there.get("r1")
        outcome = await run.wait()
        assert isinstance(outcome, gr.Waiting)
        assert outcome.tickets[0].reason == "outcome_unknown"
        assert trio.current_time() < 5
        assert len(bodies.began) == 1


async def test_a_run_that_ends_its_processes_becomes_a_dead_letter_that_can_be_revived(autojump_clock):
    alive, began = None, []

    async def think(_):
        began.append(alive)
        if alive is not None:
            await trio.sleep_forever()
        return "done"

    poison = partial(gr.Agent, "poison", model=FunctionModel(think))
    async with cluster() as shared:
        gateway = await shared.open()
        run = None
        for _ in range(5):
            seen, alive = len(began), await shared.open(poison())
            run = run or await gateway.start("poison", "hi", run_id="r1")
            await until(lambda seen=seen: len(began) > seen, 200)
            assert await gateway.store.bury(await shared.kill(alive))
        alive = None
        await shared.open(poison())
        with pytest.raises(gr.RunDegradedError) as caught:
            await run.result()
        assert caught.value.reason == "dead_letter"
        assert "5 processes" in caught.value.detail
        view = await run.view()
        assert (view.degraded, view.waiting_for.kind) == ("dead_letter", "owner")
        with pytest.raises(gr.RunDegradedError):
            await events_of(run)
        await trio.sleep(300)
        assert len(began) == 5, "no process claims it any more"
        await gateway.resume("r1")
        assert (await run.result()).output == "done"


async def test_a_dead_letter_is_cancelled_from_any_process(autojump_clock):
    began = []

    async def think(_):
        began.append(trio.current_time())
        await trio.sleep_forever()

    poison = partial(gr.Agent, "poison", model=FunctionModel(think))
    async with cluster() as shared:
        gateway = await shared.open()
        run = None
        for _ in range(5):
            seen, alive = len(began), await shared.open(poison())
            run = run or await gateway.start("poison", "hi", run_id="r1")
            await until(lambda seen=seen: len(began) > seen, 200)
            assert await gateway.store.bury(await shared.kill(alive))
        assert (await run.cancel()).status == "accepted"
        assert isinstance(await run.result(), gr.Cancelled)
        assert types(await events_of(run)).count("cancelled") == 1
        assert len(began) == 5


# --- a process that was stopped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [25.0, 45.0], ids=["less than the lease", "more than the lease"])
async def test_a_stopped_process_ends_its_bodies_in_time_and_writes_nothing_more(autojump_clock, seconds):
    bodies = Bodies(1000)
    async with cluster() as shared:
        here, there = await shared.open(worker(bodies.tool())), await shared.open(worker(bodies.tool()))
        run = await here.start("worker", "hi", run_id="r1")
        await trio.sleep(4)
        here.store.freeze()
        await trio.sleep(seconds)
        assert bodies.ended == [pytest.approx(3 + GOOD, abs=TURN)], "it is cancelled while its claim is still its own"
        assert live(here) == 0
        here.store.thaw()
        run = await there.get("r1")
        outcome = await run.wait()
        assert isinstance(outcome, gr.Waiting)
        assert outcome.tickets[0].reason == "outcome_unknown"
        assert len(bodies.began) == 1
        await run.decide("c1", "approve", result="seen")
        assert (await run.result()).output == "done"
        events = await events_of(run)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_runs_of_a_voided_process_are_claimed_again_also_by_itself(autojump_clock):
    bodies = Bodies(40)
    async with cluster() as shared:
        here = await shared.open(worker(bodies.tool(replay="safe")))
        run = await here.start("worker", "hi", run_id="r1")
        await trio.sleep(1)
        here.store.freeze()
        await trio.sleep(28)
        here.store.thaw()
        assert (await run.result()).output == "done"
        assert len(bodies.began) == len(bodies.ended) == 2
        assert "degraded" not in types(await events_of(run))


@pytest.mark.parametrize("planted", [False, True], ids=["", "its store does not say so"])
async def test_no_body_begins_on_a_receipt_that_comes_too_late(autojump_clock, monkeypatch, planted):
    """The process was stopped between a commit and its receipt: by then another process may have the run."""
    if planted:
        receive = StoreReports.__call__

        def forgets(reports, event):
            if not isinstance(event, ClaimsVoided):
                receive(reports, event)

        monkeypatch.setattr(StoreReports, "__call__", forgets)
    bodies = Bodies(1)
    async with cluster() as shared:
        here = await shared.open(worker(bodies.tool(), 5.0))
        run = await here.start("worker", "hi", run_id="r1")
        submit, receipts = here.store.submit, []

        def late(claim, commit, frames, deliver):
            if any(type(event.payload).__name__ == "ToolStarted" for event in commit.events):
                submit(claim, commit, frames, lambda receipt: receipts.append(partial(deliver, receipt)))
                here.store.freeze()
                here.store.submit = submit
            else:
                submit(claim, commit, frames, deliver)

        here.store.submit = late
        await until(lambda: receipts)
        await trio.sleep(25)
        receipts[0]()
        await trio.sleep(0.5)
        assert not bodies.began, "its claims were void when the receipt came"
        here.store.thaw()
        outcome = await run.wait()
        if isinstance(outcome, gr.Waiting):
            await run.decide("c1", "approve", result="seen")
            outcome = await run.result()
        assert outcome.output == "done"


async def test_a_sync_body_that_waited_for_its_thread_does_not_begin_too_late():
    """In real time, because of the threads: the time until which claims are good is set by hand."""
    began = []

    @gr.tool
    def work() -> str:
        """Work."""
        began.append(True)
        return "worked"

    async with cluster() as shared:
        here = await shared.open(agent(call("work", id="c1"), "done", key="worker", tools=[work]))
        limiter = here._parts.services.threads
        holders = [object() for _ in range(int(limiter.total_tokens))]
        for holder in holders:
            limiter.acquire_on_behalf_of_nowait(holder)
        run = await here.start("worker", "hi", run_id="r1")
        await until(lambda: limiter.statistics().tasks_waiting == 1, 10)
        machine = here.store._peer.machine
        good, machine.good_until = machine.good_until, trio.current_time() - 1
        for holder in holders:
            limiter.release_on_behalf_of(holder)
        await trio.sleep(0.3)
        assert not began
        machine.good_until = good
        outcome = await run.wait()
        assert outcome.tickets[0].reason == "outcome_unknown", "the run cannot know it"


async def test_a_result_that_comes_after_the_run_was_taken_over_is_refused(autojump_clock):
    """A body that ignores its cancel: what it returns is in no log."""

    @gr.tool(grace=1.0)
    async def work() -> str:
        """Work."""
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return "too late"

    async with cluster() as shared:
        here, there = await shared.open(worker(work)), await shared.open(worker(work))
        await here.start("worker", "hi", run_id="r1")
        await trio.sleep(4)
        here.store.freeze()
        await trio.sleep(45)
        here.store.thaw()
        run = await there.get("r1")
        outcome = await run.wait()
        assert outcome.tickets[0].reason == "outcome_unknown"
        await trio.sleep(60)
        assert b"too late" not in b"".join(await there.store.events("r1"))
        await run.decide("c1", "approve", result="seen")
        assert (await run.result()).output == "done"


async def test_an_outage_of_the_storage_lets_no_process_take_over(autojump_clock):
    bodies = Bodies(10)
    async with cluster() as shared:
        processes = [await shared.open(worker(bodies.tool(replay="safe")), drain=0.0) for _ in range(2)]
        run = await processes[0].start("worker", "hi")
        await trio.sleep(1)
        for process in processes:
            process.store.freeze()
        await trio.sleep(2 * LEASE)
        for process in processes:
            process.store.thaw()
        assert (await run.result()).output == "done"
        assert types(await events_of(run)).count("completed") == 1


# --- child runs ------------------------------------------------------------------------------------------------------


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def parent(**options):
    helper = agent(call("pay", cents=5, id="c1"), [delay(1), "child done"], key="child", tools=[pay])
    return agent(call("child", input="go", id="p1"), "parent done", key="parent", tools=[helper.as_tool()], **options)


async def test_a_decision_about_a_child_run_is_made_in_another_process(autojump_clock):
    async with cluster() as shared:
        here, gateway = await shared.open(parent()), await shared.open()
        await here.start("parent", "hi", run_id="r1")
        run = await gateway.get("r1")
        outcome = await run.wait()
        assert outcome.tickets[0].reason == "child_approval"
        assert (await run.decide(outcome.tickets[0].approve())).status == "accepted"
        assert (await run.result()).output == "parent done"


async def test_parent_and_child_run_continue_in_whichever_processes_take_them(autojump_clock):
    async with cluster() as shared:
        gateway = await shared.open()
        here = await shared.open(parent())
        await here.start("parent", "hi", run_id="r1")
        run = await gateway.get("r1")
        outcome = await run.wait()
        await gateway.store.bury(await shared.kill(here))
        processes = [await shared.open(parent()) for _ in range(3)]
        assert (await run.decide(outcome.tickets[0].approve())).status == "accepted"
        assert (await run.result()).output == "parent done"
        await until(lambda: not any(live(process) for process in processes))


async def test_a_parent_run_with_mirrors_stays_in_memory_and_sees_its_child_run_move_elsewhere(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(parent()), await shared.open(parent())
        run = await here.start("parent", "hi", run_id="r1")
        outcome = await run.wait()
        await trio.sleep(200)
        child = await there.get(outcome.tickets[0].child_run_id)
        assert await owner_of(here, "r1") == here.store.process
        assert await owner_of(here, child.id) is None
        assert (await child.decide("c1", "approve")).status == "accepted"
        await trio.sleep(0.5)
        assert await owner_of(here, child.id) == there.store.process
        assert (await run.result()).output == "parent done"
        assert payloads(await events_of(run), "child.finished")
