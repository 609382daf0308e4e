"""When runs that rest are ordered to leave memory: each once, in the order in which they came to rest."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from greenroom.actors.services.passivation import Passivation
from greenroom.supervision import ChildSpec, Mailbox, open_supervisor

PATIENCE = 10.0


@asynccontextmanager
async def passivating(*, patience: float | None = PATIENCE) -> AsyncIterator[Passivation]:
    passivation = Passivation(patience)
    async with open_supervisor(name="test") as supervisor:
        await supervisor.start_child_ready(ChildSpec(id="passivation", start=passivation.body))
        yield passivation


async def nudged(mailbox: Mailbox[None]) -> float:
    """When."""
    with trio.fail_after(1000):
        await mailbox.wait()
    return trio.current_time()


async def test_a_mailbox_is_nudged_after_it_rested_for_the_patience(autojump_clock):
    mailboxes: list[Mailbox[None]] = [Mailbox(f"run {number}") for number in range(3)]
    async with passivating() as passivation:
        moments = []
        for mailbox in mailboxes:
            moments.append(passivation.rests(mailbox))
            await trio.sleep(1.0)
        assert [await nudged(mailbox) for mailbox in mailboxes] == moments
        assert repr(passivation) == "<Passivation of 0 resting runs>"
        last: Mailbox[None] = Mailbox("later")  # when no run rests, the next one is seen all the same
        assert passivation.rests(last) == trio.current_time() + PATIENCE == await nudged(last)


async def test_a_mailbox_that_works_again_starts_a_new_patience_at_its_next_rest(autojump_clock):
    first: Mailbox[None] = Mailbox("first")
    second: Mailbox[None] = Mailbox("second")
    async with passivating() as passivation:
        passivation.rests(first)
        await trio.sleep(6.0)
        at = passivation.rests(second)
        passivation.forget(first)
        passivation.forget(first)
        again = passivation.rests(first)
        assert await nudged(second) == at
        assert await nudged(first) == again == at
        passivation.rests(first)
        passivation.forget(first)
        with trio.move_on_after(100) as scope:
            await first.wait()
        assert scope.cancelled_caught


async def test_without_patience_nobody_is_nudged(autojump_clock):
    mailbox: Mailbox[None] = Mailbox("run")
    async with passivating(patience=None) as passivation:
        assert passivation.rests(mailbox) == math.inf
        with trio.move_on_after(1000) as scope:
            await mailbox.wait()
        assert scope.cancelled_caught
