"""Work on a shared store: which process takes which run, and when."""

from datetime import timedelta
from functools import partial

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import agent, home
from ..support.shared import cluster, live, owner_of, until


def slow(seconds=10.0, key="slow"):
    async def think(request):
        await trio.sleep(seconds)
        return "done"

    return gr.Agent(key, model=FunctionModel(think))


def quick(began, key="quick"):
    """An agent whose model notes when it is asked what."""

    async def think(request):
        began.append((request.messages[-1].content, trio.current_time()))
        return "done"

    return gr.Agent(key, model=FunctionModel(think))


# --- queues, on every kind of store ----------------------------------------------------------------------------------


async def test_a_run_in_the_background_works_as_soon_as_there_is_room(shelf, autojump_clock):
    began = []
    async with home(shelf, agents=[slow(), quick(began)], max_running=1) as runtime:
        await runtime.start("slow", "hi")
        run = await runtime.start("quick", "later", background=True)
        await trio.sleep(5)
        assert not began
        assert (await run.view()).status == "created"
        assert (await run.result()).output == "done"
        assert began == [("later", pytest.approx(10, abs=1.5))]


async def test_an_urgent_run_comes_first_and_the_others_in_their_order(shelf, autojump_clock):
    began = []
    async with home(shelf, agents=[slow(), quick(began)], max_running=1) as runtime:
        await runtime.start("slow", "hi")
        for text, priority in (("one", None), ("two", None), ("last", -1), ("first", 1)):
            await runtime.start("quick", text, background=True, priority=priority)
            await trio.sleep(0.1)
        await trio.sleep(60)
        assert [text for text, _ in began] == ["first", "one", "two", "last"]


async def test_a_run_does_not_begin_before_its_time(shelf, autojump_clock):
    began = []
    async with home(shelf, agents=[quick(began)]) as runtime:
        at = runtime.clock.now() + timedelta(seconds=100)
        run = await runtime.start("quick", "hi", at=at, priority=100)
        assert (await run.result()).output == "done"
        assert began == [("hi", pytest.approx(100, abs=0.5))]


async def test_a_run_that_is_ready_later_is_not_forgotten_when_the_runtime_is_opened_again(shelf, autojump_clock):
    began = []
    async with home(shelf, agents=[quick(began)]) as runtime:
        clock = runtime.clock
        await runtime.start("quick", "hi", at=clock.now() + timedelta(seconds=100), run_id="r1")
    async with home(shelf, agents=[quick(began)], clock=clock) as runtime:
        assert live(runtime) == 0
        assert (await (await runtime.get("r1")).result()).output == "done"
        assert began == [("hi", pytest.approx(100, abs=0.5))]


async def test_no_more_runs_of_a_limited_queue_work_at_once(shelf, autojump_clock):
    async with home(shelf, agents=[slow()]) as runtime:
        await runtime.store.set_queue("narrow", max_running=2)
        runs = [await runtime.start("slow", "hi", queue="narrow") for _ in range(5)]
        other = await runtime.start("slow", "hi", background=True)
        most = 0
        while [one for one in [await run.view() for run in runs] if one.status != "done"]:
            working = [one for one in [await run.view() for run in runs] if one.status == "running"]
            most = max(most, len(working))
            await trio.sleep(0.5)
        assert most == 2
        assert (await other.result()).output == "done"
        assert trio.current_time() < 40


async def test_a_paused_queue_waits_until_it_is_resumed(shelf, autojump_clock):
    began = []
    async with home(shelf, agents=[quick(began)]) as runtime:
        await runtime.store.set_queue("night", paused=True)
        run = await runtime.start("quick", "hi", queue="night")
        await trio.sleep(50)
        assert not began
        await runtime.store.set_queue("night")
        assert (await run.result()).output == "done"
        assert began == [("hi", pytest.approx(50, abs=2))]


async def test_a_start_with_the_key_of_an_open_run_returns_that_run(shelf, autojump_clock):
    async with home(shelf, agents=[slow()]) as runtime:
        first = await runtime.start("slow", "hi", dedupe="invoice 7")
        assert (await runtime.start("slow", "other words", dedupe="invoice 7")).id == first.id
        assert (await runtime.start("slow", "hi", dedupe="invoice 8")).id != first.id
        await first.result()
        assert (await runtime.start("slow", "hi", dedupe="invoice 7")).id != first.id


async def test_what_waits_for_nothing_is_not_polled(shelf, autojump_clock):
    """A store that is not shared is asked for work at its opening, and then no more."""
    store, asked = shelf.open(), []
    claim = store.claim_ready

    async def count(*args):
        asked.append(trio.current_time())
        return await claim(*args)

    store.claim_ready = count
    async with home(store, agents=[slow()]) as runtime:
        await (await runtime.start("slow", "hi")).result()
        await trio.sleep(1000)
        assert asked == [0.0]
        await (await runtime.start("slow", "hi", background=True)).result()
        count_after = len(asked)
        await trio.sleep(1000)
        assert len(asked) == count_after


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"background": 1}, "background=1: give True or False"),
        ({"queue": "two words"}, "queue='two words': use 1 to 128 letters"),
        ({"priority": 101}, "priority=101: give an int from -100 to 100"),
        ({"priority": True}, "priority=True: give an int"),
        ({"at": "noon"}, "at='noon': give a datetime with a timezone"),
        ({"dedupe": ""}, "dedupe='': give a str of 1 to 256 characters"),
        ({"dedupe": "x" * 257}, "give a str of 1 to 256 characters"),
        ({"dedupe": "a\x00b"}, "printable characters"),
        ({"background": False, "queue": "q"}, "background=False does not go with queue="),
        ({"background": True, "deps": "ada"}, r"open_runtime\(deps=provider\)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_options_of_a_queue_that_do_not_fit_are_refused_with_a_way_out(options, said):
    async with gr.open_runtime(agents=[slow()]) as runtime:
        with pytest.raises(gr.UsageError, match=said):
            await runtime.start("slow", "hi", **options)
        assert not (await runtime.runs()).runs


# --- several processes -----------------------------------------------------------------------------------------------


async def test_a_process_without_agents_starts_runs_of_others(autojump_clock):
    async with cluster() as shared:
        here, gateway = await shared.open(slow(5)), await shared.open()
        with pytest.raises(gr.UnknownAgent, match="slwo"):
            await gateway.start("slwo", "hi")
        run = await gateway.start("slow", "hi")
        assert (await run.result()).output == "done"
        assert trio.current_time() < 6
        with pytest.raises(gr.UsageError, match="only other processes can work on"):
            await gateway.start("slow", "hi", deps=object())
        info = await here.reader.info(run.id)
        assert info.agent_digest == here.agents["slow"].spec.digest


OWN = gr.ExecutionMode(bodies=3, suspended_blocks=True, batch=False, merges="at_once")


@pytest.mark.parametrize("mode", ["parallel_streaming", OWN], ids=["name", "own"])
async def test_a_run_that_is_started_elsewhere_has_the_execution_mode_of_its_agent(autojump_clock, mode):
    helper = gr.Agent("helper", model=FunctionModel(lambda _: "done"), execution=mode)
    async with cluster() as shared:
        await shared.open(helper)
        gateway = await shared.open()
        run = await gateway.start("helper", "hi")
        await run.result()
        assert (await gateway.reader.info(run.id)).execution == mode


async def test_a_start_without_room_here_works_where_there_is_some(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(slow(), max_running=1), await shared.open(slow(), max_running=1)
        runs = [await here.start("slow", "hi") for _ in range(2)]
        await until(lambda: live(there) == 1)
        assert [await owner_of(here, run.id) for run in runs] == [here.store.process, there.store.process]
        third = await here.start("slow", "hi")
        await trio.sleep(5)
        assert await owner_of(here, third.id) is None
        waits = (await third.view()).waiting_for
        assert waits.kind == "queue"
        assert "'slow'" in waits.detail
        assert (await third.result()).output == "done"
        assert trio.current_time() < 22


async def test_many_runs_are_shared_between_the_processes_and_one_queue_does_not_block_another(autojump_clock):
    async with cluster() as shared:
        starts = await shared.open()
        processes = [await shared.open(slow(3), slow(3, key="other"), max_running=10) for _ in range(3)]
        runs = [await starts.start("slow", str(n), queue="many") for n in range(200)]
        began = trio.current_time()
        one = await starts.start("other", "hi", queue="few")
        await one.result()
        assert trio.current_time() - began < 8, "round robin over the queues"
        for run in runs:
            await run.result()
        assert trio.current_time() - began == pytest.approx(200 / 30 * 3, abs=8)
        assert all(live(process) == 0 for process in processes)


async def test_a_process_with_room_for_any_number_leaves_some_to_others(autojump_clock):
    """One claim takes a hundred runs at most."""
    async with cluster() as shared:
        starts, worker = await shared.open(), await shared.open(slow(3))
        rooms, claim = [], worker.store.claim_ready

        async def claim_ready(room, *rest):
            rooms.append(room)
            return await claim(room, *rest)

        worker.store.claim_ready = claim_ready
        runs = [await starts.start("slow", str(n), background=True) for n in range(250)]
        for run in runs:
            await run.result()
        assert rooms
        assert max(rooms) == 100


async def test_a_limited_queue_is_limited_over_all_processes(autojump_clock):
    async with cluster() as shared:
        processes = [await shared.open(slow(3)) for _ in range(3)]
        await processes[0].store.set_queue("narrow", max_running=5)
        runs = [await processes[n % 3].start("slow", str(n), queue="narrow") for n in range(20)]
        most = 0
        while [one for one in [await run.view() for run in runs] if one.status != "done"]:
            most = max(most, sum(live(process) for process in processes))
            await trio.sleep(0.5)
        assert most == 5


async def test_a_deploy_replaces_processes_without_a_crash_or_a_long_wait(autojump_clock):
    async with cluster() as shared:
        follower = await shared.open()
        helper = partial(agent, [delay(1), call("work", id="c1")], "done", key="helper")
        began = []

        @gr.tool
        async def work() -> str:
            began.append(trio.current_time())
            await trio.sleep(2)
            return "worked"

        old = await shared.open(helper(tools=[work]))
        await old.start("helper", "hi", run_id="r1")
        await trio.sleep(0.5)
        await shared.open(helper(tools=[work]))
        await shared.close(old)
        run = await follower.get("r1")
        assert (await run.result()).output == "done"
        assert trio.current_time() < 12
        assert len(began) == 1
