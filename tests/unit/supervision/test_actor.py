"""Refs, asks, monitors, the registry, the clean-up helper: an actor as others see it."""

# ruff: noqa: PT012 - what is raised comes out of the supervisor's block, which takes several statements

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.supervision import (
    ActorCancelled,
    ActorExited,
    ChildSpec,
    Crashed,
    GaveUp,
    MailboxFull,
    NameTaken,
    Normal,
    Registry,
    Reply,
    Shutdown,
    ask,
    cleanup,
    leaves,
    open_supervisor,
)

from ...support.stray_cancels import ESCAPES, ctrl_c, foreign_cancellation, to_its_end


async def answer(ctx):
    while True:
        await ctx.mailbox.wait()
        while len(ctx.mailbox):
            message = ctx.mailbox.peek()
            if isinstance(message, Exception):
                ctx.mailbox.pop()
                raise message
            if isinstance(message, Reply):
                message.send(ctx.attempt)
            ctx.mailbox.pop()


async def ignore(ctx):
    await trio.sleep_forever()


def child(start=answer, child_id="a", **kwargs):
    return ChildSpec(id=child_id, start=start, **kwargs)


async def test_a_restarted_actor_keeps_ref_and_mailbox_and_loses_its_state():
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child())
        assert await ask(ref, lambda reply: reply) == 0
        ref.tell(ValueError())
        assert await ask(ref, lambda reply: reply) == 1
        assert ref.exit is None


async def test_an_ask_fails_immediately_when_its_target_exits():
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(ignore))
        errors = []

        async def client():
            with pytest.raises(ActorExited) as caught:
                await ask(ref, lambda reply: reply)
            errors.append(caught.value.exit)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client)
            await wait_all_tasks_blocked()
            sup.cancel_child("a", reason="enough", by="me")
        assert errors == [ActorCancelled(reason="enough", by="me")] * 3
        with pytest.raises(ActorExited):
            await ask(ref, lambda reply: reply)


async def test_an_answer_that_comes_too_late_is_harmless(autojump_clock):
    replies = []

    async def late(ctx):
        await ctx.mailbox.wait()
        replies.append(ctx.mailbox.pop())
        await trio.sleep(10)
        replies.append(replies[0].send("late"))

    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(late, restart="temporary"))
        with trio.move_on_after(1) as scope:
            await ask(ref, lambda reply: reply)
        assert scope.cancelled_caught
        await ref.exited.wait()
        assert ref.exit == Normal()
        assert replies[1] is False


async def test_a_reply_resolves_once_and_can_carry_an_error():
    reply = Reply()
    assert reply.fail(KeyError("no"))
    assert not reply.send(1)
    with pytest.raises(KeyError):
        await reply.wait()


async def test_a_full_mailbox_fails_the_ask_and_leaves_no_reply_behind():
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(ignore, capacity=1))
        ref.tell("fills it")
        with pytest.raises(MailboxFull):
            await ask(ref, lambda reply: reply)
        assert not ref._replies


async def test_a_monitor_fires_once_synchronously_with_the_exit_and_at_once_for_the_dead():
    seen = []
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(restart="transient"))
        ref.monitor(lambda ref, exit_: seen.append((ref.id, exit_, ref.exited.is_set())))
        ref.tell(ValueError())
        await wait_all_tasks_blocked()
        assert seen == []  # a restart is no exit
        sup.cancel_child("a", reason="r", by="b")
        await ref.exited.wait()
    expected = ActorCancelled(reason="r", by="b")
    assert seen == [("a", expected, True)]
    late = []
    ref.monitor(lambda _, exit_: late.append(exit_))
    assert late == [expected]


async def test_a_monitor_can_be_taken_back():
    seen = []
    async with open_supervisor(name="s") as sup:
        demonitor = sup.start_child(child()).monitor(lambda *_: seen.append(1))
        demonitor()
        demonitor()
    assert seen == []


async def test_a_monitor_that_raises_harms_no_run_and_is_logged(caplog):
    seen = []
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child())
        ref.monitor(lambda *_: 1 / 0)
        ref.monitor(lambda *_: seen.append(1))
        await sup.stop_child("a")
    assert seen == [1]
    assert "ZeroDivisionError" in caplog.text


async def test_a_name_is_free_again_before_anybody_is_reported_the_exit():
    registry, seen = Registry(), []
    async with open_supervisor(name="s", registry=registry) as sup:
        ref = sup.start_child(child(name="writer"))
        assert registry.whereis("writer") is ref
        ref.monitor(lambda *_: seen.append("writer" in registry))
        with pytest.raises(NameTaken):
            sup.start_child(child(child_id="b", name="writer"))
        assert sup.get("b") is None
        await sup.stop_child("a")
    assert seen == [False]
    assert registry.names() == ()


async def test_unhandled_messages_are_counted_as_dead_letters():
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(ignore))
        ref.tell("one")
        ref.tell("two")
        await sup.stop_child("a")
        assert sup.statistics().dead_letters == 2
        assert ref.undelivered() == ("one", "two")
        with pytest.raises(ActorExited):
            ref.tell("three")


async def test_an_actor_that_cancels_itself_says_so():
    async def cancel_itself(ctx):
        ctx.scope.cancel()
        await trio.sleep_forever()

    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(cancel_itself))
        await ref.exited.wait()
    assert ref.exit == ActorCancelled(reason="its own scope was cancelled", by="s/a")


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_foreign_cancellation_is_a_crash_of_its_actor_only(grouped):
    async def let_out(ctx):
        error = await foreign_cancellation()
        raise BaseExceptionGroup("kept", [error]) if grouped else error

    async def scene():
        async with open_supervisor(name="s", max_restarts=0) as sup:
            ref, other = sup.start_child(child(let_out)), sup.start_child(child(child_id="b"))
            await ref.exited.wait()
            await wait_all_tasks_blocked()
            assert other.exit is None
        assert "a cancellation out that was not its own" in str(ref.exit)

    await to_its_end(scene)


async def test_work_that_was_finished_when_the_cancel_came_ends_normally():
    async def finish(ctx):
        with trio.CancelScope(shield=True):
            await done.wait()

    done = trio.Event()
    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(finish))
        await wait_all_tasks_blocked()
        sup.cancel_child("a", reason="too late", by="b")
        done.set()
    assert ref.exit == Normal()


async def test_a_crash_on_the_way_out_is_not_hidden_by_the_cancel():
    async def crash_late(ctx):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("on the way out")

    async with open_supervisor(name="s") as sup:
        sup.start_child(child(crash_late))
        await wait_all_tasks_blocked()
        exit_ = await sup.stop_child("a")
    assert isinstance(exit_, Crashed)
    assert repr(exit_.error) == "ValueError('on the way out')"


async def test_an_actor_that_is_cancelled_before_its_first_step_never_acts():
    acted = []

    async def act(ctx):
        acted.append(1)

    async with open_supervisor(name="s") as sup:
        ref = sup.start_child(child(act))
        sup.cancel_child("a", reason="r", by="b")
        await ref.exited.wait()
    assert (acted, ref.exit) == ([], ActorCancelled(reason="r", by="b"))


async def test_a_real_interrupt_leaves_the_supervisor_bare_after_the_exit_was_published():
    async def leave(ctx):
        ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        async with open_supervisor(name="s") as sup:
            ref = sup.start_child(child(leave))
            other = sup.start_child(child(child_id="b"))
            await trio.sleep_forever()
    assert isinstance(ref.exit, Crashed)
    assert other.exit == Shutdown()


@pytest.mark.parametrize("kind", ESCAPES)
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_base_exception_is_a_crash_of_its_actor_only(kind, grouped):
    async def leave(ctx):
        raise BaseExceptionGroup("two", [kind(), ValueError()]) if grouped else kind()

    async def scene():
        async with open_supervisor(name="s", max_restarts=0) as sup:
            ref, other = sup.start_child(child(leave)), sup.start_child(child(child_id="b"))
            await ref.exited.wait()
            await wait_all_tasks_blocked()
            assert other.exit is None
        assert isinstance(ref.exit, GaveUp)
        assert kind in {type(leaf) for leaf in leaves(ref.exit.error)}

    await to_its_end(scene)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, trio.TrioInternalError])
async def test_a_real_interrupt_inside_a_group_leaves_the_supervisor(kind):
    async def leave():
        if kind is KeyboardInterrupt:
            ctrl_c()
        raise kind

    async def body(ctx):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            nursery.start_soon(trio.sleep_forever)

    with pytest.raises((BaseExceptionGroup, KeyboardInterrupt)) as caught:  # noqa: ASYNC401 - the group's shape is what is tested
        async with open_supervisor(name="s") as sup:
            ref = sup.start_child(child(body))
            await trio.sleep_forever()
    assert kind in {type(leaf) for leaf in leaves(caught.value)}
    assert isinstance(ref.exit, Crashed)


async def test_a_clean_up_is_shielded_and_its_overrun_is_reported(autojump_clock):
    overruns, done = [], []
    with trio.CancelScope() as scope:
        scope.cancel()
        with cleanup(2, what="fast", on_overrun=overruns.append):
            await trio.sleep(1)
            done.append("fast")
        with cleanup(2, what="slow", on_overrun=overruns.append):
            await trio.sleep(3)
            done.append("slow")
    assert done == ["fast"]
    assert [overrun.what for overrun in overruns] == ["slow"]
    assert trio.current_time() == pytest.approx(3, abs=0.01)


async def test_an_overrun_is_logged_unless_a_handler_takes_it(autojump_clock, caplog):
    with cleanup(1, what="close the session"):
        await trio.sleep(2)
    assert "close the session" in caplog.text
