"""The supervisor: starting, restarting, giving up, stopping in order, and how its block is left."""

# ruff: noqa: PT012 - what is raised comes out of the supervisor's block, which takes several statements

from __future__ import annotations

import itertools
import random
from math import inf

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.supervision import (
    ActorCancelled,
    Backoff,
    ChildSpec,
    Crashed,
    DuplicateChild,
    GaveUp,
    Intensity,
    InvalidSpec,
    Normal,
    Registry,
    Shutdown,
    StartFailed,
    SupervisorGaveUp,
    SupervisorStopping,
    TooManyChildren,
    UnknownChild,
    Unresponsive,
    Window,
    chaos,
    cleanup,
    open_supervisor,
)
from greenroom.supervision.chaos._internals import inject
from greenroom.supervision.intensity import REMEMBERED

from ...support.stray_cancels import ctrl_c


async def forever(ctx):
    ctx.ready()
    await trio.sleep_forever()


async def crash(ctx):
    raise ValueError(ctx.attempt)


def recorder(order, stop_time=0.0):
    async def body(ctx):
        ctx.ready()
        try:
            await trio.sleep_forever()
        finally:
            with cleanup(60):
                await trio.sleep(stop_time)  # noqa: ASYNC102 - a clean-up that takes time is what is tested
            order.append(ctx.ref.id)

    return body


async def test_starting_a_child_is_synchronous_and_messages_may_be_sent_before_it_runs():
    got = []

    async def body(ctx):
        await ctx.mailbox.wait()
        got.append(ctx.mailbox.pop())

    async with open_supervisor(name="s") as sup:
        sup.start_child(ChildSpec(id="a", start=body, restart="temporary")).tell("early")
        await sup.join()
    assert got == ["early"]


async def test_a_child_that_exceeds_its_intensity_gives_up_alone():
    async with open_supervisor(name="s", max_restarts=2) as sup:
        ref = sup.start_child(ChildSpec(id="a", start=crash))
        other = sup.start_child(ChildSpec(id="b", start=forever))
        await ref.exited.wait()
        assert isinstance(ref.exit, GaveUp)
        assert (ref.exit.restarts, repr(ref.exit.error)) == (2, "ValueError(2)")
        assert other.exit is None
        statistics = sup.statistics()
        assert (statistics.crashes, statistics.restarts, statistics.gave_up) == (3, 2, 1)


async def test_the_windows_of_dynamic_children_are_their_own():
    async with open_supervisor(name="s", max_restarts=2) as sup:
        refs = [sup.start_child(ChildSpec(id=str(i), start=crash)) for i in range(3)]
        await sup.join()
    assert [ref.exit.restarts for ref in refs] == [2, 2, 2]


async def test_a_child_that_may_escalate_ends_the_supervisor_after_the_others_have_stopped():
    order = []
    with pytest.raises(SupervisorGaveUp) as caught:
        async with open_supervisor(name="s", max_restarts=0) as sup:
            await sup.start_child_ready(ChildSpec(id="writer", start=recorder(order)))
            sup.start_child(ChildSpec(id="a", start=crash, on_give_up="escalate"))
            await trio.sleep_forever()
    assert caught.value.child == "a"
    assert repr(caught.value.__cause__) == "ValueError(0)"
    assert order == ["writer"]


async def test_static_children_share_the_window_and_escalate_by_default(autojump_clock):
    async def crash_later(ctx):
        ctx.ready()
        await trio.sleep(1)
        raise ValueError(ctx.ref.id)

    with pytest.raises(SupervisorGaveUp):
        async with open_supervisor(name="s", max_restarts=2) as sup:
            await sup.start_child_ready(ChildSpec(id="a", start=crash_later))
            await sup.start_child_ready(ChildSpec(id="b", start=crash_later))
            await trio.sleep_forever()
    assert sup.statistics().restarts == 2


async def test_an_escalation_is_not_masked_by_a_cancellation_that_comes_at_the_same_time():
    with trio.CancelScope() as scope:
        with pytest.raises(SupervisorGaveUp):
            async with open_supervisor(name="s", max_restarts=0, on_exit=lambda *_: scope.cancel()) as sup:
                sup.start_child(ChildSpec(id="a", start=crash, on_give_up="escalate"))
                await trio.sleep_forever()


async def test_a_supervisor_that_gives_up_is_a_crash_that_its_parent_decides_upon():
    starts = []

    async def tree(ctx):
        starts.append(ctx.attempt)
        async with open_supervisor(name="inner", max_restarts=0, on_give_up="escalate") as sup:
            sup.start_child(ChildSpec(id="a", start=crash))
            await trio.sleep_forever()

    async with open_supervisor(name="outer", max_restarts=1) as sup:
        ref = sup.start_child(ChildSpec(id="tree", start=tree))
        await ref.exited.wait()
    assert starts == [0, 1]
    assert isinstance(ref.exit, GaveUp)
    assert isinstance(ref.exit.error, SupervisorGaveUp)


async def test_restarts_wait_for_their_backoff_and_the_same_seed_waits_the_same(autojump_clock):
    async def times(seed):
        starts, begin = [], trio.current_time()

        async def body(ctx):
            starts.append(trio.current_time() - begin)
            raise ValueError

        async with open_supervisor(name="s", rng=random.Random(seed)) as sup:
            sup.start_child(ChildSpec(id="a", start=body, backoff=Backoff(initial=1, factor=2)))
            await sup.join()
        return starts

    first, second = await times(1), await times(1)
    assert first == pytest.approx(second)
    assert first == pytest.approx([0, 1, 3, 7], rel=0.11)


async def test_a_child_is_stopped_while_it_waits_for_its_restart(autojump_clock):
    async with open_supervisor(name="s") as sup:
        sup.start_child(ChildSpec(id="a", start=crash, backoff=Backoff(initial=1000)))
        await trio.sleep(1)
        assert await sup.stop_child("a") == Shutdown()
        assert trio.current_time() < 10


async def test_a_crash_loop_does_not_starve_the_others():
    turns = []

    async def other(ctx):
        while not done:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    done = []
    async with open_supervisor(name="s", max_restarts=100) as sup:
        sup.start_child(ChildSpec(id="b", start=other, restart="temporary"))
        await sup.start_child(ChildSpec(id="a", start=crash)).exited.wait()
        done.append(1)
    assert len(turns) >= 90


async def test_dynamic_children_stop_first_and_static_ones_in_reverse_order(autojump_clock):
    order = []
    async with open_supervisor(name="s", slice_size=2) as sup:
        for name in ("writer", "index"):
            await sup.start_child_ready(ChildSpec(id=name, start=recorder(order, 1)))
        for i in range(5):
            sup.start_child(ChildSpec(id=f"run-{i}", start=recorder(order, 1)))
        await wait_all_tasks_blocked()
        began = trio.current_time()
    assert sorted(order[:5]) == [f"run-{i}" for i in range(5)]
    assert order[5:] == ["index", "writer"]
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)


async def test_an_outer_cancellation_is_received_by_the_body_alone_and_leaves_bare(autojump_clock):
    order, received = [], []
    with trio.CancelScope() as scope:
        try:
            async with open_supervisor(name="s") as sup:
                await sup.start_child_ready(ChildSpec(id="writer", start=recorder(order, 1)))
                sup.start_child(ChildSpec(id="run", start=recorder(order, 1)))
                scope.cancel()
                await trio.sleep_forever()
        except BaseException as error:
            received.append(type(error))
            raise
    assert received == [trio.Cancelled]
    assert scope.cancelled_caught
    assert order == ["writer"] or order == ["run", "writer"]


async def test_an_exception_of_the_body_leaves_bare_after_the_children_have_stopped():
    order, error = [], KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with open_supervisor(name="s") as sup:
            await sup.start_child_ready(ChildSpec(id="a", start=recorder(order)))
            raise error
    assert caught.value is error
    assert caught.value.__context__ is None
    assert order == ["a"]


async def test_a_group_that_the_body_raises_stays_as_it_is():
    own = ExceptionGroup("own", [ValueError()])
    with pytest.raises(ExceptionGroup) as caught:  # noqa: ASYNC401 - the group's shape is what is tested
        async with open_supervisor(name="s"):
            raise own
    assert caught.value is own


async def test_a_static_child_that_crashes_before_it_is_ready_fails_the_start_from_its_crash():
    async with open_supervisor(name="s") as sup:
        with pytest.raises(StartFailed) as caught:
            await sup.start_child_ready(ChildSpec(id="a", start=crash))
        assert isinstance(caught.value.__cause__, ValueError)
        assert sup.get("a") is None
        assert sup.statistics().restarts == 0


async def test_a_static_child_that_returns_before_it_is_ready_fails_the_start():
    async def leave(ctx):
        pass

    async with open_supervisor(name="s") as sup:
        with pytest.raises(StartFailed) as caught:
            await sup.start_child_ready(ChildSpec(id="a", start=leave))
        assert caught.value.exit == Normal()


async def test_a_failed_start_of_several_stops_those_already_started_in_reverse_order():
    order = []
    async with open_supervisor(name="s") as sup:
        specs = [ChildSpec(id=name, start=recorder(order)) for name in ("a", "b")]
        with pytest.raises(StartFailed):
            await sup.start_children([*specs, ChildSpec(id="c", start=crash)])
        assert order == ["b", "a"]
        assert sup.count_children().total == 0


async def test_a_cancelled_start_leaves_nothing_started(autojump_clock):
    async def never_ready(ctx):
        await trio.sleep_forever()

    async with open_supervisor(name="s") as sup:
        with trio.move_on_after(1):
            await sup.start_child_ready(ChildSpec(id="a", start=never_ready))
        assert sup.count_children().total == 0


async def test_a_duplicate_id_too_many_children_and_a_stopping_supervisor_are_refused():
    async def start_another(ctx):
        try:
            await trio.sleep_forever()
        finally:
            with pytest.raises(SupervisorStopping):
                sup.start_child(ChildSpec(id="late", start=forever))
            refused.append(1)

    refused = []
    async with open_supervisor(name="s", max_children=2) as sup:
        sup.start_child(ChildSpec(id="a", start=start_another))
        with pytest.raises(DuplicateChild):
            sup.start_child(ChildSpec(id="a", start=forever))
        sup.start_child(ChildSpec(id="b", start=forever))
        with pytest.raises(TooManyChildren):
            sup.start_child(ChildSpec(id="c", start=forever))
        await wait_all_tasks_blocked()
    assert refused == [1]


async def test_an_id_is_free_again_when_its_child_has_exited():
    async with open_supervisor(name="s") as sup:
        for _ in range(3):
            sup.start_child(ChildSpec(id="a", start=forever))
            await sup.stop_child("a")
        with pytest.raises(UnknownChild):
            await sup.stop_child("a")
        assert not sup.cancel_child("a", reason="r", by="b")


async def test_the_first_request_to_end_names_the_exit():
    async with open_supervisor(name="s") as sup:
        sup.start_child(ChildSpec(id="a", start=forever))
        assert sup.cancel_child("a", reason="first", by="x")
        assert sup.cancel_child("a", reason="second", by="y")
        assert await sup.stop_child("a") == ActorCancelled(reason="first", by="x")


async def stuck(ctx):
    with trio.CancelScope(shield=True):
        await trio.sleep(100)


async def test_a_child_that_does_not_end_is_reported_with_its_stack_and_waited_for(autojump_clock):
    reports = []
    async with open_supervisor(name="s", on_stubborn=lambda ref, it: reports.append((ref.id, it))) as sup:
        ref = sup.start_child(ChildSpec(id="a", start=stuck, shutdown=2.0))
        await wait_all_tasks_blocked()
        exit_ = await sup.stop_child("a")
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        assert reports == [("a", exit_)]
        assert any("stuck" in frame for frame in exit_.stack)
        assert sup.statistics().stubborn == ("a",)
        assert sup.count_children().stubborn == 1
        assert ref.exit is None
    assert trio.current_time() == pytest.approx(100, abs=0.1)
    assert ref.exit == Unresponsive(stack=exit_.stack, late=Shutdown()) or ref.exit.late == Normal()


async def test_a_stubborn_run_does_not_keep_the_static_children_from_their_ordered_stop(autojump_clock):
    order = []
    async with open_supervisor(name="s", stop_budget=3) as sup:
        await sup.start_child_ready(ChildSpec(id="writer", start=recorder(order)))
        sup.start_child(ChildSpec(id="a", start=stuck))
        await wait_all_tasks_blocked()
        writer = sup.get("writer")
        stopped = []
        writer.monitor(lambda *_: stopped.append(trio.current_time()))
    assert stopped == pytest.approx([3], abs=0.1)
    assert sup.statistics().overruns == 1


async def test_a_brutally_stopped_child_gets_no_time_to_clean_up(autojump_clock):
    async def slow(ctx):
        try:
            await trio.sleep_forever()
        finally:
            with cleanup(10, on_overrun=overruns.append):
                await trio.sleep(5)  # noqa: ASYNC102 - a clean-up that takes time is what is tested

    overruns = []
    async with open_supervisor(name="s") as sup:
        sup.start_child(ChildSpec(id="a", start=slow, shutdown="brutal"))
        await wait_all_tasks_blocked()
        assert await sup.stop_child("a") == Shutdown()
        assert trio.current_time() < 0.1
    assert len(overruns) == 1


async def test_a_child_can_be_looked_into_while_it_runs(mock_clock):
    async with open_supervisor(name="s", registry=Registry()) as sup:
        await sup.start_child_ready(ChildSpec(id="w", start=forever))
        ref = sup.start_child(ChildSpec(id="a", start=forever))
        ref.tell("unread")
        mock_clock.jump(4)
        await wait_all_tasks_blocked()
        static, dynamic = sup.which_children()
        assert (static.id, static.kind, static.state) == ("w", "static", "running")
        assert (dynamic.id, dynamic.kind, dynamic.depth, dynamic.restarts) == ("a", "dynamic", 1, 0)
        assert dynamic.oldest_age == pytest.approx(4)
        assert any("forever" in frame for frame in sup.await_stack("a"))
        assert sup.count_children().total == 2
        assert "1 static, 1 dynamic" in repr(sup)
        with pytest.raises(UnknownChild):
            sup.await_stack("nobody")


async def test_hooks_learn_of_every_restart_and_every_exit():
    events = []
    async with open_supervisor(
        name="s",
        max_restarts=1,
        on_exit=lambda ref, exit_: events.append(("exit", ref.id, type(exit_).__name__)),
        on_restart=lambda ref, exit_, attempt: events.append(("restart", ref.id, attempt)),
    ) as sup:
        sup.start_child(ChildSpec(id="a", start=crash))
        await sup.join()
    assert events == [("restart", "a", 1), ("exit", "a", "GaveUp")]


async def test_a_temporary_child_is_never_restarted():
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(ChildSpec(id="a", start=crash, restart="temporary"))
        await sup.join()
    assert isinstance(ref.exit, Crashed)


async def test_an_interrupt_of_the_stop_ends_its_order_and_no_task_is_left(autojump_clock, nursery):
    order, done = [], trio.Event()

    async def program():
        with pytest.raises(KeyboardInterrupt) as caught:
            async with open_supervisor(name="s") as sup:
                await sup.start_children([ChildSpec(id=name, start=recorder(order, 1.0)) for name in ("a", "b")])
                sup.start_child(ChildSpec(id="c", start=recorder(order, 2.0)))
                await wait_all_tasks_blocked()
                raise ValueError("mine")
        assert str(caught.value.__context__) == "mine"
        done.set()

    nursery.start_soon(program, name="program")
    await trio.sleep(0.5)  # the stop is at c
    (task,) = (task for task in chaos.program_tasks() if task.name == "program")
    assert inject(task, KeyboardInterrupt()) == "aborted"
    with trio.fail_after(60):
        await done.wait()
    assert order in (["a", "b", "c"], ["b", "a", "c"])
    assert trio.current_time() == pytest.approx(2.0)


async def test_an_error_of_the_body_is_the_context_of_a_real_interrupt():
    async def leave(ctx):
        await wait_all_tasks_blocked()
        ctrl_c()

    with pytest.raises(KeyboardInterrupt) as caught:
        async with open_supervisor(name="s") as sup:
            sup.start_child(ChildSpec(id="a", start=leave))
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("mine")
    assert str(caught.value.__context__) == "mine"


@pytest.mark.no_cover
@pytest.mark.slow
async def test_ten_thousand_children_are_stopped_in_slices_and_others_get_their_turns():
    turns = []

    async def bystander():
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        async with open_supervisor(name="s", stop_budget=60) as sup:
            refs = [sup.start_child(ChildSpec(id=str(i), start=forever)) for i in range(10_000)]
            await wait_all_tasks_blocked()
            nursery.start_soon(bystander)
        assert len(turns) >= 10_000 / 50
        nursery.cancel_scope.cancel()
    assert all(ref.exit == Shutdown() for ref in refs)


# --- what is logged, and children that are never given up ------------------------------------------------------------


def logged(caplog):
    return [(record.levelname, record.getMessage(), record.exc_text) for record in caplog.records]


async def test_the_last_crash_of_a_child_that_is_given_up_is_logged_with_its_traceback(caplog):
    with pytest.raises(SupervisorGaveUp):
        async with open_supervisor(name="s", max_restarts=1, on_give_up="escalate") as sup:
            sup.start_child(ChildSpec(id="a", start=crash))
            await trio.sleep_forever()
    first, last = logged(caplog)
    assert first[:2] == ("WARNING", "s/a crashed (ValueError); restart 1 follows")
    assert last[:2] == ("ERROR", "s/a has ended for good after 1 restarts (ValueError)")
    for number, (_, _, text) in enumerate((first, last)):
        assert text.startswith("Traceback")
        assert "in crash" in text
        assert text.endswith(f"ValueError: {number}")


async def test_a_crash_without_a_restart_is_logged_with_its_causes(caplog):
    async def hidden(ctx):
        raise ValueError("shown") from KeyError("the cause")

    async with open_supervisor(name="s") as sup:
        sup.start_child(ChildSpec(id="a", start=hidden, restart="temporary"))
        await sup.join()
    ((level, line, text),) = logged(caplog)
    assert (level, line) == ("ERROR", "s/a crashed (ValueError) and is not restarted")
    assert "the cause" in text


async def test_an_owner_that_logs_errors_itself_gets_lines_without_their_texts(caplog):
    async with open_supervisor(name="s", max_restarts=1, tracebacks=False) as sup:
        sup.start_child(ChildSpec(id="a", start=crash))
        await sup.join()
    assert [text for _, _, text in logged(caplog)] == [None, None]


async def test_a_child_without_a_limit_is_never_given_up_and_backs_off(autojump_clock):
    starts = []

    async def body(ctx):
        starts.append(trio.current_time())
        ctx.ready()
        raise ValueError(ctx.attempt)

    backoff = Backoff(initial=0.1, maximum=30.0, jitter=0.0)
    spec = ChildSpec(id="a", start=body, max_restarts=inf, within=60.0, backoff=backoff)
    async with open_supervisor(name="s", max_restarts=0) as sup:
        ref = await sup.start_child_ready(spec)
        await trio.sleep(1000)
        assert ref.exit is None
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert max(pauses) == pytest.approx(30.0)
    assert len(starts) > 30


def test_a_window_without_a_limit_remembers_a_bounded_number_of_restarts():
    window = Window(intensity=Intensity(max_restarts=inf))
    for _ in range(1000):
        window = window.record(1.0)
    assert window.allows(1.0)
    assert len(window.times) == REMEMBERED


@pytest.mark.parametrize("backoff", [None, Backoff(initial=0.0)])
def test_a_child_that_is_never_given_up_needs_a_backoff(backoff):
    with pytest.raises(InvalidSpec, match=r"max_restarts=inf of child 'a': give a backoff"):
        ChildSpec(id="a", start=forever, max_restarts=inf, backoff=backoff)
