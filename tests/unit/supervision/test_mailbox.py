"""The mailbox: bounded, peeked, popped, nudged."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.supervision import ActorExited, Mailbox, MailboxEmpty, MailboxFull, Normal


async def test_messages_come_out_in_the_order_in_which_they_were_sent():
    box = Mailbox("a")
    for i in range(5):
        box.tell(i)
    assert [box.pop() for _ in range(len(box))] == [0, 1, 2, 3, 4]


async def test_peeking_takes_nothing():
    box = Mailbox("a")
    box.tell("x")
    assert (box.peek(), box.peek(), len(box)) == ("x", "x", 1)


async def test_a_full_mailbox_refuses_and_names_actor_and_capacity():
    box = Mailbox("slow", 2)
    box.tell(1)
    box.tell(2)
    with pytest.raises(MailboxFull, match="'slow' holds 2") as caught:
        box.tell(3)
    assert (caught.value.actor, caught.value.capacity) == ("slow", 2)
    assert box.undelivered() == (1, 2)


async def test_capacity_counts_drained_messages_until_they_are_popped():
    box = Mailbox("a", 2)
    box.tell(1)
    box.peek()
    box.tell(2)
    with pytest.raises(MailboxFull):
        box.tell(3)
    box.pop()
    box.tell(3)
    assert box.undelivered() == (2, 3)


async def test_a_closed_mailbox_refuses_with_the_exit_and_keeps_its_dead_letters():
    box = Mailbox("a")
    box.tell("late")
    assert box.close(Normal()) == 1
    with pytest.raises(ActorExited) as caught:
        box.tell("later")
    assert caught.value.exit == Normal()
    assert box.undelivered() == ("late",)


@pytest.mark.parametrize("method", ["peek", "pop"])
async def test_taking_from_an_empty_mailbox_is_an_error_of_the_consumer(method):
    with pytest.raises(MailboxEmpty):
        getattr(Mailbox("a"), method)()


def test_a_mailbox_holds_at_least_one_message():
    with pytest.raises(ValueError, match="at least one"):
        Mailbox("a", 0)


async def test_waiting_ends_with_a_message():
    box = Mailbox("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.wait)
        await wait_all_tasks_blocked()
        box.tell(1)
    assert len(box) == 1


async def test_waiting_ends_with_a_nudge_and_the_nudge_is_then_used_up(autojump_clock):
    box = Mailbox("a")
    box.nudge()
    box.nudge()
    await box.wait()
    with trio.move_on_after(1) as scope:
        await box.wait()
    assert scope.cancelled_caught
    assert len(box) == 0


async def test_a_heeded_nudge_is_used_up_and_messages_stay(autojump_clock):
    box = Mailbox("a")
    box.nudge()
    box.heed()
    with trio.move_on_after(1) as scope:
        await box.wait()
    assert scope.cancelled_caught
    box.tell("x")
    box.heed()
    await box.wait()
    assert box.pop() == "x"


async def test_a_nudge_is_never_refused_even_when_the_mailbox_is_full():
    box = Mailbox("a", 1)
    box.tell(1)
    box.nudge()
    await box.wait()
    assert box.undelivered() == (1,)


async def test_a_nudge_wakes_a_parked_consumer():
    box = Mailbox("a")
    async with trio.open_nursery() as nursery:
        assert not box.parked
        nursery.start_soon(box.wait)
        await wait_all_tasks_blocked()
        assert box.parked
        box.nudge()
        assert not box.parked  # woken, though not running yet


async def test_a_cancelled_wait_does_not_use_up_a_nudge():
    box = Mailbox("a")
    box.nudge()
    box._turns = 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await box.wait()
    assert scope.cancelled_caught
    with trio.fail_after(60):
        await box.wait()


async def test_a_busy_consumer_yields_at_least_once_in_sixty_four_waits():
    box = Mailbox("a")
    box.tell(0)
    turns = []

    async def other():
        while len(turns) < 2:
            turns.append(spins)
            await trio.lowlevel.checkpoint()

    spins = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for spins in range(1, 200):  # noqa: B007
            await box.wait()
    assert turns[0] <= 128  # the yield is after 64; a task that got ready meanwhile may come second in its batch


async def test_a_second_consumer_is_refused():
    box = Mailbox("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.wait)
        await wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="one consumer"):
            await box.wait()
        box.nudge()


async def test_the_age_is_that_of_the_oldest_unpopped_message(mock_clock):
    box = Mailbox("a")
    assert box.oldest_age == 0.0
    box.tell(1)
    mock_clock.jump(2)
    box.tell(2)
    mock_clock.jump(3)
    assert box.oldest_age == pytest.approx(5)
    box.pop()
    assert box.oldest_age == pytest.approx(3)
