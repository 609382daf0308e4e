"""Runs on a shared store: any process starts, decides, follows and waits, and one of them works."""

from datetime import timedelta
from functools import partial

import pytest
import trio

import greenroom as gr
from greenroom.actors.runtime.run_registry import RunRegistry
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import SERVED, Shelf, agent, events_of, home, payloads, types
from ..support.shared import cluster, live, owner_of, until
from .conftest import placed

ALL = ("posted", "work", "thread_freed", "moved")


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@gr.tool
async def hold(ctx: gr.ToolContext) -> str | gr.Suspend:
    """Waits for an answer, for ten minutes at most."""
    if ctx.decision is None:
        return gr.Suspend(expires_after=600.0, on_expiry=gr.SetResult("no answer came"))
    return "answered"


def payer(**options):
    return agent(call("pay", cents=5, id="c1"), [delay(0.2), "done"], key="payer", tools=[pay, hold], **options)


def slow(seconds=10.0):
    return agent([delay(seconds), "done"], key="slow")


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [(), ALL], ids=["hints", "every hint lost"])
async def test_a_decision_in_another_process_continues_the_run_where_it_is(autojump_clock, lost):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        run = await here.start("payer", "hi")
        shared.lost.update(lost)
        other = await there.get(run.id)
        outcome = await other.wait()
        assert isinstance(outcome, gr.Waiting)
        began = trio.current_time()
        assert (await other.decide(outcome.tickets[0].approve())).status == "accepted"
        assert (await other.result()).output == "done"
        assert trio.current_time() - began < (12.0 if lost else 0.5)
        assert types(await events_of(other)) == types(await events_of(run))


async def test_of_the_same_decision_through_two_processes_one_acts(autojump_clock):
    async with cluster() as shared:
        here, one, two = await shared.open(payer()), await shared.open(), await shared.open()
        run = await here.start("payer", "hi")
        await run.wait()
        decision = gr.Decision(target="c1", action="resume", decision_id="d1")
        results = []
        async with trio.open_nursery() as nursery:
            for runtime in (one, two):

                async def decide(runtime=runtime):
                    results.append((await (await runtime.get(run.id)).decide(decision)).status)

                nursery.start_soon(decide)
        assert sorted(results) == ["accepted", "duplicate"]
        assert (await run.result()).output == "done"
        assert len(payloads(await events_of(run), "tool.started")) == 1


async def test_a_run_is_cancelled_and_gets_input_from_another_process(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow(100.0)), await shared.open()
        run = await here.start("slow", "hi")
        other = await there.get(run.id)
        await trio.sleep(1)
        assert (await other.send("more")).status == "accepted"
        assert (await other.cancel(reason="enough", by="ada")).status == "accepted"
        began = trio.current_time()
        outcome = await other.result()
        assert isinstance(outcome, gr.Cancelled)
        assert (outcome.reason, outcome.by) == ("enough", "ada")
        assert trio.current_time() - began < 1.0
        await until(lambda: live(here) == 0)


# --- following and waiting -------------------------------------------------------------------------------------------


async def test_a_run_is_followed_in_another_process_event_by_event(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(agent([delay(5), "one ", delay(5), "two"])), await shared.open()
        run = await here.start("helper", "hi")
        seen = []
        async with (await there.get(run.id)).events() as events:
            async for event in events:
                seen.append((event.sequence, event.type.removeprefix("run."), trio.current_time()))  # noqa: PERF401 - the time of each
        assert [sequence for sequence, _, _ in seen] == list(range(1, len(seen) + 1))
        late = [at for _, kind, at in seen if kind == "message.delta"]
        assert late, [kind for _, kind, _ in seen]
        assert max(late) - min(late) >= 4.0, "what is streamed arrives when it is streamed"
        assert types(await events_of(run)) == [kind for _, kind, _ in seen]


async def test_followers_of_a_process_share_one_page_for_each_report(autojump_clock):
    async with cluster() as shared:
        here, store = await shared.open(agent([delay(5), "one ", delay(5), "two"])), shared.store()
        pages = 0

        async def counted(*args, **options):
            nonlocal pages
            pages += 1
            return await type(store).events(store, *args, **options)

        there = await shared.open(store=store)
        run = await here.start("helper", "hi")
        store.events = counted
        followed = []
        async with trio.open_nursery() as nursery:

            async def follow():
                followed.append(types(await events_of(await there.get(run.id))))

            for _ in range(20):
                nursery.start_soon(follow)
            await trio.sleep(2)
            first = pages
        assert len(followed) == 20
        assert followed == [types(await events_of(run))] * 20
        assert pages - first < 20, "not one page for each follower"


async def test_a_watch_lasts_as_long_as_its_holders(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow()), await shared.open()
        hub = shared.first._hub
        run = await here.start("slow", "hi")
        other = await there.get(run.id)
        async with other.events() as events, other.events() as more:
            assert (await anext(events)).type == (await anext(more)).type == "run.created"
            assert hub.watches == {run.id: {there.store.process}}
        await trio.sleep(1)
        assert not hub.watches
        await run.result()
        assert not hub.watches, "no watch of the process that works on the run"


async def test_a_waiting_run_that_is_awaited_elsewhere_ends_for_its_waiter_without_hints(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        run = await here.start("payer", "hi")
        await run.wait()
        shared.lost.update(ALL)
        ended = []
        async with trio.open_nursery() as nursery:

            async def wait():
                ended.append((await (await there.get(run.id)).result()).output)

            nursery.start_soon(wait)
            await trio.sleep(1)
            await run.decide("c1", "approve")
            await run.result()
            await until(lambda: ended, 10)
        assert ended == ["done"]


async def test_a_watched_list_hears_of_runs_of_other_processes(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow()), await shared.open()
        swept = []
        end = there.reader.on_change(lambda *_: None, lambda: swept.append(trio.current_time()))
        await here.start("slow", "hi")
        await trio.sleep(5)
        end()
        count = len(swept)
        await trio.sleep(20)
        assert count >= 2
        assert len(swept) == count, "a list that is not watched costs nothing"


# --- leaving memory --------------------------------------------------------------------------------------------------


async def test_a_run_that_left_memory_is_worked_on_by_the_process_that_decides(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open(payer())
        run = await here.start("payer", "hi")
        await run.wait()
        await trio.sleep(100)
        assert live(here) == 0
        assert await owner_of(here, run.id) is None
        await (await there.get(run.id)).decide("c1", "approve")
        await trio.sleep(0.1)
        assert await owner_of(here, run.id) == there.store.process
        assert (await run.result()).output == "done", "who waits where the run was is informed"
        assert live(here) == 0


async def test_a_process_without_the_agent_leaves_a_waiting_run_to_the_others(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        run = await here.start("payer", "hi")
        await run.wait()
        await trio.sleep(100)
        assert (await (await there.get(run.id)).decide("c1", "approve")).status == "accepted"
        assert (await (await there.get(run.id)).result()).output == "done"


@pytest.mark.parametrize("after", [59.99, 60.0, 60.01])
@pytest.mark.parametrize("lost", [(), ALL], ids=["hints", "every hint lost"])
async def test_a_command_that_meets_a_run_on_its_way_out_of_memory_acts_once(autojump_clock, after, lost):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        run = await here.start("payer", "hi")
        await run.wait()
        shared.lost.update(lost)
        await trio.sleep(after)
        assert (await (await there.get(run.id)).decide("c1", "approve")).status == "accepted"
        assert (await run.result()).output == "done"
        assert len(payloads(await events_of(run), "tool.started")) == 1
        await trio.sleep(5)
        assert live(here) == live(there) == 0


async def test_a_run_whose_release_is_refused_stays_and_reads_the_command(autojump_clock):
    """The hint of the command is lost, so only the store knows of it when the run leaves memory."""
    async with cluster() as shared:
        here, there = await shared.open(payer(), passivate_after=61.0), await shared.open()
        run = await here.start("payer", "hi")
        await run.wait()
        shared.lost.add("posted")
        await trio.sleep(60.5)
        await (await there.get(run.id)).decide("c1", "approve")
        assert (await run.result()).output == "done"
        assert trio.current_time() < 62, "before the next turn of the store, which would report the command, too"


async def test_one_of_two_processes_expires_a_ticket(autojump_clock):
    helper = partial(agent, call("hold", id="c1"), "done", key="holder", tools=[hold])
    async with cluster() as shared:
        here, there = await shared.open(helper()), await shared.open(helper())
        run = await here.start("holder", "hi")
        await run.wait()
        await trio.sleep(300)
        assert live(here) == live(there) == 0
        began = trio.current_time()
        assert (await run.result()).output == "done"
        assert trio.current_time() - began == pytest.approx(300, abs=2)
        events = await events_of(run)
        assert payloads(events, "tool.result")[0]["result"] == "no answer came"
        assert types(events).count("completed") == 1


async def test_processes_look_for_a_timer_at_moments_of_their_own(autojump_clock):
    """Soon after it has fired, and not all at once."""
    helper = partial(agent, call("hold", id="c1"), "done", key="holder", tools=[hold])
    async with cluster() as shared:
        processes = [await shared.open(helper()) for _ in range(6)]
        run = await processes[0].start("holder", "hi")
        await run.wait()
        fires = trio.current_time() + 600
        looks: dict[int, float] = {}

        def watch(number, claim):
            async def claim_due(*arguments, **options):
                if trio.current_time() >= fires - 0.01:
                    looks.setdefault(number, trio.current_time() - fires)
                return await claim(*arguments, **options)

            return claim_due

        for number, process in enumerate(processes):
            process.store.claim_due = watch(number, process.store.claim_due)
        await run.result()
        await trio.sleep(2)
        first = [look for look in looks.values() if look < 1.0]
        assert len(first) >= 3
        assert len({round(look, 3) for look in first}) >= len(first) - 1
        assert max(first) <= 0.26


async def test_the_timer_of_a_run_whose_process_has_ended_fires_in_another(autojump_clock):
    helper = partial(agent, call("hold", id="c1"), "done", key="holder", tools=[hold])
    async with cluster() as shared:
        there = await shared.open(helper())
        here = await shared.open(helper())
        await (await here.start("holder", "hi", run_id="r1")).wait()
        await shared.close(here)
        run = await there.get("r1")
        began = trio.current_time()
        assert (await run.result()).output == "done"
        assert trio.current_time() - began == pytest.approx(600, abs=6)


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [(), ALL], ids=["hints", "every hint lost"])
async def test_the_runs_of_a_thread_work_one_after_the_other_over_all_processes(autojump_clock, lost):
    working, most = [], []

    async def think(request):
        working.append(request)
        most.append(len(working))
        await trio.sleep(3)
        working.remove(request)
        return str(len(request.messages))

    helper = partial(gr.Agent, "helper", model=FunctionModel(think))
    async with cluster() as shared:
        processes = [await shared.open(helper()) for _ in range(3)]
        shared.lost.update(lost)
        runs = [
            await processes[number % 3].start("helper", f"question {number}", thread_id="t", run_id=f"r{number}")
            for number in range(6)
        ]
        assert {await owner_of(processes[0], run.id) for run in runs} == {one.store.process for one in processes}
        for run in runs:
            assert (await run.result()).output
        assert max(most) == 1
        view = await runs[-1].view()
        asked = [message.content for message in view.messages if message.role == "user"]
        assert asked == [f"question {number}" for number in range(6)]
        assert [message.role for message in view.messages] == ["user", "assistant"] * 6


async def test_a_held_run_is_cancelled_from_another_process(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow(100)), await shared.open(slow(1))
        await here.start("slow", "one", thread_id="t", run_id="one")
        await there.start("slow", "two", thread_id="t", run_id="two")
        two = await here.get("two")
        assert (await two.view()).waiting_for.kind == "thread"
        await two.cancel()
        assert isinstance(await two.result(), gr.Cancelled)
        assert (await (await there.get("one")).view()).status == "running"


@pytest.mark.rule("L-112")
@pytest.mark.parametrize("until_freed", [False, True])
async def test_a_held_run_that_is_claimed_while_its_owner_leaves_does_not_begin(
    autojump_clock, until_freed, monkeypatch
):
    """A command gave it an owner that has nothing to do, and meanwhile a cancel lets this process claim the run."""
    async with cluster() as shared:
        here, there = await shared.open(slow(10), max_running=1), await shared.open(slow(1))
        edge, post = await shared.open(), RunRegistry.posted
        monkeypatch.setattr(RunRegistry, "posted", lambda at, *it: at is edge._parts.registry or post(at, *it))
        one = await here.start("slow", "one", thread_id="t", run_id="one")
        await edge.store.set_queue("later", paused=True)
        await edge.start("slow", "two", thread_id="t", run_id="two", queue="later")
        asked, look = trio.Event(), there.store.summaries

        async def summaries(run_ids):
            page = await look(run_ids)
            if run_ids == ("two",):
                await asked.wait()
            return page

        there.store.summaries = summaries
        assert (await (await there.get("two")).send("and this")).ok
        await until(lambda: live(there) == 1)
        await edge.store.set_queue("later")
        two = await edge.get("two")
        assert (await two.cancel()).ok
        await until(lambda: there._parts.registry._runs["two"].next_claim)
        if until_freed:
            await one.result()
        asked.set()
        assert isinstance(await two.result(), gr.Cancelled)
        assert {*types(await events_of(two))} & {"started", "step.started"} == set()
        assert until_freed or (await one.view()).status == "running"


async def test_an_owner_that_has_lost_its_claim_refuses_nothing(autojump_clock, caplog):
    """The process without agents ends cancelled runs; its claim is void before the end is written."""
    async with cluster() as shared:
        edge, _ = await shared.open(), await shared.open(slow(1))
        await edge.store.set_queue("later", paused=True)
        await edge.start("slow", "two", run_id="two", queue="later")
        load = edge.store.load

        async def load_and_lose(run_id, **options):
            record = await load(run_id, **options)
            actor = edge._parts.registry.get(run_id)
            if actor is not None and actor.claim is not None:
                edge.store.load, claim = load, actor.claim
                edge._parts.registry.voided()
                await edge.store.give_back((claim,))
                await edge.store.set_queue("later")
            return record

        edge.store.load = load_and_lose
        assert (await (await edge.get("two")).cancel()).ok
        assert isinstance(await (await edge.get("two")).result(), gr.Cancelled)
    assert "has no owner here" not in caplog.text


@pytest.mark.rule("L-112")
@pytest.mark.parametrize("how", ["send", "pause", "cancel"])
@pytest.mark.parametrize("waits", ["paused queue", "later"])
async def test_a_command_about_a_run_that_waits_for_its_turn_begins_the_run_nowhere(autojump_clock, how, waits):
    async with cluster() as shared:
        here, edge = await shared.open(slow(10)), await shared.open()
        await edge.store.set_queue("later", paused=waits == "paused queue")
        at = None if waits == "paused queue" else edge.clock.now() + timedelta(hours=1)
        await edge.start("slow", "two", run_id="two", queue="later", at=at)
        two = await here.get("two")
        assert (await {"send": lambda: two.send("more"), "pause": two.pause, "cancel": two.cancel}[how]()).ok
        await trio.sleep(30)
        assert (await two.view()).stage == ("cancelled" if how == "cancel" else "created")
        if how == "cancel":
            assert {*types(await events_of(two))} & {"started", "step.started"} == set()


@pytest.fixture(params=["peers", SERVED])
def shelf(request, tmp_path):
    """Storage that several processes may have open."""
    return placed(Shelf(request.param, tmp_path), request)


@pytest.mark.rule("L-112")
@pytest.mark.parametrize("how", ["send", "pause", "cancel"])
@pytest.mark.parametrize("waits", ["paused queue", "full queue"])
async def test_a_command_about_a_refused_run_that_waits_for_its_turn_again_begins_the_run_nowhere(
    shelf, autojump_clock, how, waits
):
    """The process of the command has refused the run before, and now the process has what was missing."""
    missing = {"two"}

    def deps(info):
        if info.run_id in missing:
            raise LookupError("not yet")

    async with home(shelf, agents=[slow(300)], deps=deps) as here, home(shelf) as edge:
        two = await here.start("slow", "two", run_id="two", queue="later")
        await until(lambda: here._parts.registry.degraded("two"))
        await edge.store.set_queue("later", paused=waits == "paused queue", max_running=1)
        if waits == "full queue":
            await here.start("slow", "one", run_id="one", queue="later")
            await until(lambda: live(here) == 1)
        missing.clear()
        assert (await {"send": lambda: two.send("more"), "pause": two.pause, "cancel": two.cancel}[how]()).ok
        await trio.sleep(100)
        assert (await two.view()).stage == ("cancelled" if how == "cancel" else "created")
        if how == "cancel":
            assert {*types(await events_of(two))} & {"started", "step.started"} == set()


@pytest.mark.rule("L-88")
async def test_a_refused_run_is_tried_again_after_a_pause_and_reads_the_commands_of_meanwhile(shelf, autojump_clock):
    missing = {"two"}

    def deps(info):
        if info.run_id in missing:
            raise LookupError("not yet")

    async with home(shelf, agents=[slow(1)], deps=deps) as runtime:
        two = await runtime.start("slow", "two", run_id="two")
        await until(lambda: runtime._parts.registry.degraded("two"))
        assert (await two.send("more")).ok
        missing.clear()
        with trio.fail_after(65):
            assert (await two.result()).output == "done"
        asked = [message.content for message in (await two.view()).messages if message.role == "user"]
        assert asked == ["two", "more"]


async def test_a_run_whose_thread_is_freed_where_there_is_no_room_works_elsewhere(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow(10), max_running=1), await shared.open(slow(10), max_running=1)
        await here.start("slow", "one", thread_id="t", run_id="one")
        two = await there.start("slow", "two", thread_id="t", run_id="two")
        blocks = await there.start("slow", "other", run_id="blocks")
        await trio.sleep(5)
        assert await owner_of(here, "two") == there.store.process
        await blocks.cancel()
        await there.start("slow", "again", run_id="again")
        assert (await two.result()).output == "done"
        assert trio.current_time() < 22, "two works where one has ended, beside what works there"


# --- what runs show --------------------------------------------------------------------------------------------------


async def test_a_run_that_works_elsewhere_is_not_degraded_here(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer(), slow()), await shared.open()
        for key in ("payer", "slow"):
            run = await there.get((await here.start(key, "hi")).id)
            await trio.sleep(1)
            view = await run.view()
            assert view.degraded is None
            assert (view.waiting_for is None) == (key == "slow")
        with trio.move_on_after(30) as patience:
            await run.result()
        assert not patience.cancelled_caught


async def test_a_run_whose_agent_no_live_process_has_is_degraded(autojump_clock):
    async with cluster() as shared:
        there = await shared.open()
        here = await shared.open(payer())
        await (await here.start("payer", "hi", run_id="r1")).wait()
        await shared.close(here)
        run = await there.get("r1")
        assert (await run.view()).degraded == "agent_unknown"
        assert isinstance(await run.wait(), gr.Waiting)
        with pytest.raises(gr.RunDegradedError) as caught:
            await run.result()
        assert caught.value.reason == "agent_unknown"
        with pytest.raises(gr.RunDegradedError):
            await events_of(run)
        await shared.open(payer())
        await trio.sleep(1)
        assert (await run.view()).degraded is None
        await run.decide("c1", "approve")
        assert (await run.result()).output == "done"


async def test_the_deadline_ends_a_run_whose_agent_no_live_process_has(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        deadline = shared.clock.now() + timedelta(seconds=100)
        await (await here.start("payer", "hi", run_id="r1", deadline=deadline)).wait()
        await shared.close(here)
        run = await there.get("r1")
        with pytest.raises(gr.RunDegradedError):
            await run.result()
        await trio.sleep(101)
        outcome = await run.result()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"


async def test_a_run_whose_deps_one_process_does_not_have_works_in_another(autojump_clock):
    @gr.tool
    async def whoami(ctx: gr.ToolContext) -> str:
        """Tell."""
        return str(ctx.deps)

    def none(_):
        raise LookupError("not here")

    helper = partial(agent, call("whoami", id="c1"), "done", key="helper", tools=[whoami])
    async with cluster() as shared:
        await shared.open(helper(), deps=none)
        gateway = await shared.open()
        run = await gateway.start("helper", "hi")
        with trio.move_on_after(20):
            await run.result()
        assert (await run.view()).status != "done"
        await shared.open(helper(), deps=lambda _: "ada")
        assert (await run.result()).output == "done"
        assert payloads(await events_of(run), "tool.result")[0]["result"] == "ada"
        assert "degraded" not in types(await events_of(run))


async def test_deadlines_mean_the_same_in_all_processes(autojump_clock):
    """The clock of the machine is wrong by an hour, and the process knows by how much."""
    async with cluster() as shared:
        here = await shared.open(slow(1000), clock=None)
        there = await shared.open(slow(1000), store=shared.store(offset=3600.0), clock=None)
        apart = there.clock.now() - here.clock.now()
        assert apart == pytest.approx(timedelta(hours=1), abs=timedelta(seconds=1))
        near = await shared.open(slow(1000), store=shared.store(offset=30.0), clock=None)
        apart = near.clock.now() - here.clock.now()
        assert apart == pytest.approx(timedelta(seconds=30), abs=timedelta(seconds=1)), "taken whole at the opening"
        there.store._offset = 3590.0
        before = there.clock.now()
        await trio.sleep(1)
        assert before < there.clock.now() < before + timedelta(seconds=1), "it is slewed, and never goes back"
        await trio.sleep(200)
        apart = there.clock.now() - here.clock.now()
        assert apart == pytest.approx(timedelta(seconds=3590), abs=timedelta(seconds=1))
        there.store._offset = 3590.0 + 120.0
        apart = there.clock.now() - here.clock.now()
        assert apart == pytest.approx(timedelta(seconds=3710), abs=timedelta(seconds=1)), "far ahead, it jumps"


async def test_a_follower_goes_on_when_its_store_could_not_be_read_at_the_newest_event(autojump_clock):
    """A store reports each move once; a report whose page could not be read is read again."""
    broken = False

    class Unreadable(gr.MemoryStore):
        async def events(self, run_id, **page):
            if broken:
                raise gr.StoreUnavailable("not now")
            return await super().events(run_id, **page)

    async with cluster() as shared:
        here = await shared.open(payer())
        store = shared.store()
        store.__class__ = Unreadable
        there = await shared.open(store=store)
        run = await here.start("payer", "hi")
        async with (await there.get(run.id)).events() as events:
            async for event in events:
                if event.type == "run.waiting":
                    break
            broken = True
            waiting = await run.wait()
            await run.decide(waiting.tickets[0].approve())
            assert (await run.result()).output == "done"
            await trio.sleep(3.0)
            broken = False
            with trio.fail_after(20.0):
                assert [event.type async for event in events][-1] == "run.completed"


async def test_a_process_that_begins_later_has_the_same_clock_of_the_storage(autojump_clock):
    async with cluster() as shared:
        first = await shared.open(payer())
        await trio.sleep(1_000)
        await shared.open(payer())
        early, late = sorted(one.started_at for one in await first.store.processes())
        assert late - early >= timedelta(seconds=1_000)
