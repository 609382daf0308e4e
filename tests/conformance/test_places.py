"""A run in a workspace is bound to a place: processes there alone work on it, and it waits until one is there."""

from datetime import timedelta
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import call, delay

from ..support.runs import agent, home
from ..support.scene_surroundings import Shop
from ..support.shared import LEASE, cluster, live, owner_of, until


@gr.tool(needs_approval=True)
async def ask() -> str:
    """Ask."""
    return "yes"


def worker(*script: Any) -> gr.Agent[Any]:
    return agent(*(script or ("done",)), tools=[ask])


def shop(place: str = "a", **more: Any) -> Shop:
    return Shop(place=place, seconds=more.pop("seconds", 1), **more)


async def offline(run: gr.Run[Any]) -> gr.RunDegradedError:
    """Wait until the run is shown as offline; returns what a waiter reads."""
    with trio.fail_after(200), pytest.raises(gr.RunDegradedError) as caught:
        await run.result()
    view = await run.view()
    assert (caught.value.reason, view.degraded) == ("target_offline", "target_offline")
    assert view.waiting_for is not None
    assert view.waiting_for.kind == "place"
    return caught.value


# --- one process -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-138")
@pytest.mark.parametrize("step", ["preparing", "model", "people"])
async def test_a_run_waits_for_its_place_and_goes_on_there(shelf, autojump_clock, step):
    script = {"people": [call("ask", id="c1"), "done"], "model": [delay(50), "done"], "preparing": ["done"]}[step]
    first = shop("a", seconds=50 if step == "preparing" else 1)
    helper = worker(*script)
    async with home(shelf, agents=[helper], workspaces=first, drain=0) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1", workspace="shop")
        await trio.sleep(10)
    for elsewhere in (None, shop("b")):
        async with home(shelf, agents=[helper], workspaces=elsewhere, drain=0) as runtime:
            run = await runtime.get("r1")
            if step == "people":
                assert (await run.view()).degraded == "target_offline"
            else:
                error = await offline(run)
                assert "the place of its workspace 'shop' is not here" in str(error)
            await trio.sleep(20)
    async with home(shelf, agents=[helper], workspaces=first) as runtime:
        run = await runtime.get("r1")
        if step == "people":
            assert (await run.view()).degraded is None
            outcome = await run.wait()
            await run.decide(outcome.tickets[0].approve())
        assert isinstance(await run.result(), gr.Completed)
        assert (await runtime.replay("r1")).equal
    assert first.begun == ["r1"] * (2 if step == "preparing" else 1)


@pytest.mark.rule("L-138")
async def test_a_cancel_ends_a_run_whose_place_is_not_here(shelf, autojump_clock):
    helper = worker([delay(50), "done"])
    async with home(shelf, agents=[helper], workspaces=shop(), drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="r1", workspace="shop")
        await trio.sleep(10)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.get("r1")
        assert (await run.cancel()).status == "accepted"
        assert isinstance(await run.result(), gr.Cancelled)


@pytest.mark.rule("L-138")
async def test_a_deadline_ends_a_run_whose_place_is_not_here(shelf, autojump_clock):
    clock, helper = Clock(), worker([delay(50), "done"])
    async with home(shelf, agents=[helper], workspaces=shop(), drain=0, clock=clock) as runtime:
        deadline = clock.now() + timedelta(seconds=60)
        await runtime.start(helper, "hi", run_id="r1", workspace="shop", deadline=deadline)
        await trio.sleep(10)
    async with home(shelf, agents=[helper], clock=clock) as runtime:
        run = await runtime.get("r1")
        await offline(run)
        await trio.sleep(60)
        assert (await run.result()).code == "run_timeout"


@pytest.mark.rule("L-137")
async def test_names_that_no_process_has_are_refused_at_the_start(shelf, autojump_clock):
    helper = worker()
    async with home(shelf, agents=[helper], workspaces=shop()) as runtime:
        with pytest.raises(
            gr.WorkspaceRefused, match=r"^no live process has the workspace 'docs'; there are: shop$"
        ) as no:
            await runtime.start(helper, "hi", workspace="docs")
        assert (no.value.code, no.value.names) == ("target_offline", ("shop",))
        with pytest.raises(gr.WorkspaceRefused, match="not a folder") as no:
            await runtime.start(helper, "hi", workspace="shop/../x")
        assert (no.value.code, no.value.names) == ("workspace_outside_allowlist", ())
        assert (await runtime.runs()).runs == ()
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", workspace="whatever it is")
        assert (await run.result()).output == "done"


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (["shop"], "return a dict of up to 1000"),
        ({"a/b": "here"}, "1 to 256 characters each, no slash in a name"),
        ({"shop": ""}, "1 to 256 characters each"),
        ({"x" * 257: "here"}, "1 to 256 characters each"),
        ({f"n{number}": "here" for number in range(1001)}, "return a dict of up to 1000"),
    ],
    ids=["list", "slash", "empty", "long", "many"],
)
async def test_names_and_places_have_a_form(autojump_clock, places, text):
    class Broken(Shop):
        async def open(self) -> Any:
            return places

    with pytest.raises(gr.UsageError, match=text):
        async with gr.open_runtime(workspaces=Broken()):
            raise AssertionError("it opened")


async def test_other_values_are_no_surroundings(autojump_clock):
    with pytest.raises(gr.UsageError, match=r"workspaces=.*give a Surroundings object, or None"):
        async with gr.open_runtime(workspaces={"shop": "here"}):  # type: ignore[arg-type]
            raise AssertionError("it opened")


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-136")
async def test_a_run_works_where_its_workspace_is_wherever_it_is_started(autojump_clock):
    async with cluster() as shared:
        helper = worker()
        at_a = shop("a")
        a, b = await shared.open(helper, workspaces=at_a), await shared.open(worker())
        await trio.sleep(5)  # both have published
        run = await b.start("helper", "hi", run_id="r1", workspace="shop")
        await until(lambda: at_a.begun == ["r1"])
        assert await owner_of(b, "r1") == a.store.process
        assert live(b) == 0
        assert (await run.result()).output == "done"
        fork = await b.fork("r1", step=0, new_run_id="r2")
        assert (await fork.result()).output == "done"
        assert at_a.begun == ["r1", "r2"]
        with pytest.raises(gr.UsageError, match="deps= does not go with"):
            await b.start("helper", "hi", workspace="shop", deps="own")


@pytest.mark.rule("L-138")
async def test_a_run_goes_offline_with_the_last_process_of_its_place_and_comes_back(autojump_clock):
    async with cluster() as shared:
        at_a, script = shop("a"), [delay(500), "done"]
        a = await shared.open(worker(script), workspaces=at_a)
        b = await shared.open(worker(script), workspaces=shop("b"))
        await trio.sleep(5)
        await a.start("helper", "hi", run_id="r1", workspace="shop")
        await trio.sleep(20)
        await shared.kill(a)
        await trio.sleep(2 * LEASE)
        run = await b.get("r1")
        await offline(run)
        assert await owner_of(b, "r1") is None
        again = await shared.open(worker("done"), workspaces=shop("a"))
        await until(lambda: live(again) == 1)
        assert (await run.result()).output == "done"
        assert (await run.view()).degraded is None


async def test_a_waiting_run_is_decided_anywhere_and_goes_on_at_its_place(autojump_clock):
    async with cluster() as shared:
        script = [call("ask", id="c1")], "done"
        a = await shared.open(worker(*script), workspaces=shop("a"))
        b = await shared.open(worker(*script))
        await trio.sleep(5)
        run = await b.start("helper", "hi", run_id="r1", workspace="shop")
        waiting = await run.wait()
        await shared.close(a)
        assert (await run.decide(waiting.tickets[0].approve())).status == "accepted"
        await offline(run)
        await shared.open(worker(*script), workspaces=shop("a"))
        assert (await run.result()).output == "done"


async def test_a_deadline_ends_a_run_whose_place_no_process_has(autojump_clock):
    async with cluster() as shared:
        a = await shared.open(worker([delay(500), "done"]), workspaces=shop("a"))
        b = await shared.open(worker(), workspaces=shop("b"))
        await trio.sleep(5)
        deadline = shared.clock.now() + timedelta(seconds=100)
        run = await a.start("helper", "hi", run_id="r1", workspace="shop", deadline=deadline)
        await trio.sleep(10)
        await shared.close(a)
        run = await b.get("r1")
        await offline(run)
        await trio.sleep(100)
        assert (await run.result()).code == "run_timeout"


@pytest.mark.rule("L-136", "L-137")
async def test_a_thread_stays_at_its_place(autojump_clock):
    async with cluster() as shared:
        at_a, at_b = shop("a"), shop("b")
        a, b = await shared.open(worker(), workspaces=at_a), await shared.open(worker(), workspaces=at_b)
        await trio.sleep(5)
        for number, runtime in enumerate((a, b, a)):
            run = await runtime.start("helper", "hi", run_id=f"r{number}", thread_id="t", workspace="shop")
            assert (await run.result()).output == "done"
        assert (at_a.begun, at_b.begun) == (["r0", "r1", "r2"], [])
        other = await b.start("helper", "hi", run_id="other", thread_id="t2", workspace="shop")
        await other.result()
        assert at_b.begun == ["other"]
        await shared.close(a)
        await trio.sleep(5)
        with pytest.raises(gr.WorkspaceRefused, match="at a place that no live process has") as no:
            await b.start("helper", "hi", run_id="r9", thread_id="t", workspace="shop")
        assert no.value.code == "target_offline"
        with pytest.raises(gr.ThreadForbidden):
            await b.start("helper", "hi", thread_id="t", workspace="shop", may_join=lambda info: False)
        again = await b.start("helper", "hi", run_id="r2", thread_id="t", workspace="shop")
        assert (await again.result()).output == "done"  # the same start again returns its run


async def test_a_question_about_a_changed_tool_is_asked_again_at_the_place(autojump_clock):
    """The process that is asked has the newer tool and not the place of the run, so another one asks people again."""

    @gr.tool(name="ask", needs_approval=True)
    async def asks_more(loudly: bool = False) -> str:
        """Ask."""
        return "yes"

    newer = agent([call("ask", id="c1")], "done", tools=[asks_more])
    async with cluster() as shared:
        script = [call("ask", id="c1")], "done"
        a = await shared.open(worker(*script), workspaces=shop("a"))
        run = await a.start("helper", "hi", run_id="r1", workspace="shop")
        old = (await run.wait()).tickets[0]
        await shared.close(a)
        b, c = await shared.open(newer), await shared.open(newer, workspaces=shop("a"))
        await trio.sleep(5)
        run = await b.get("r1")
        result = await run.decide(old.approve())
        assert result.code == "fingerprint_mismatch"
        await until(lambda: live(c) == 1)
        await trio.sleep(1)
        assert live(b) == 0
        (new,) = (await run.wait()).tickets
        assert new.replaces == old.ticket_id
        assert (await run.decide(new.approve())).status == "accepted"
        assert (await run.result()).output == "done"


@pytest.mark.rule("L-138")
async def test_a_run_is_offline_if_no_process_has_both_its_agent_and_its_place(autojump_clock):
    async with cluster() as shared:
        a = await shared.open(worker([delay(500), "done"]), workspaces=shop("a"))
        await trio.sleep(5)
        run = await a.start("helper", "hi", run_id="r1", workspace="shop")
        await trio.sleep(10)
        await shared.close(a)
        await shared.open(agent("x", key="another"), workspaces=shop("a"))  # the place without the agent
        b = await shared.open(worker())  # the agent without the place
        run = await b.get("r1")
        await offline(run)


@pytest.mark.slow
@pytest.mark.rule("L-136", "L-138")
async def test_two_places_share_a_database(postgres_url: str) -> None:
    """In real time: what the other process has is known a moment after it has opened."""
    times = {"lease": 3.0, "turn": 0.25, "margin": 0.6}
    script, at_a, at_b = ([call("ask", id="c1")], "done"), shop("a", seconds=0.1), shop("b", seconds=0.1)
    with trio.fail_after(60):
        async with gr.open_runtime(
            PostgresStore(postgres_url, **times), agents=[worker(*script)], workspaces=at_b
        ) as b:
            async with gr.open_runtime(
                PostgresStore(postgres_url, **times), agents=[worker(*script)], workspaces=at_a
            ) as a:
                started = await a.start("helper", "hi", run_id="r1", thread_id="t", workspace="shop")
                waiting = await started.wait()
                while len([one for one in await b.store.processes() if one.places]) < 2:  # noqa: ASYNC110 - a look
                    await trio.sleep(0.05)
                second = await b.start("helper", "hi", run_id="r2", thread_id="t", workspace="shop")
                assert (await second.view()).waiting_for.kind == "thread"
            run = await b.get("r1")
            assert (await run.decide(waiting.tickets[0].approve())).status == "accepted"
            await offline(run)
            assert await owner_of(b, "r1") is None
            with pytest.raises(gr.WorkspaceRefused, match="a place that no live process has"):
                await b.start("helper", "hi", run_id="r3", thread_id="t", workspace="shop")
            again = gr.open_runtime(PostgresStore(postgres_url, **times), agents=[worker(*script)], workspaces=at_a)
            async with again:
                assert (await run.result()).output == "done"
                assert isinstance(await (await b.get("r2")).wait(), gr.Waiting)
    assert (at_a.begun, at_b.begun) == (["r1", "r2"], [])
