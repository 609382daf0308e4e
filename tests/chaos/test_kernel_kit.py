"""The kit itself: it must find every planted bug and raise no false alarm."""

from __future__ import annotations

from math import inf

import pytest
import trio
from attrs import define, field

from greenroom.supervision import chaos

BUGS = ("leak", "lost-message", "unshielded-cleanup", "swallow", "swallow-quiet", "endless-shield")


@define(eq=False)
class World:
    """A miniature run: tool calls wait for a decision, work, settle; everything observable is in the journal."""

    bug: str = ""
    scope: trio.CancelScope | None = None
    journal: list = field(factory=list)
    open: set = field(factory=set)
    live: set = field(factory=set)
    taken: list = field(factory=list)

    def log(self, *event):
        self.journal.append(event)


async def call(world, i, decisions, results):
    world.live.add(i)
    try:
        world.open.add(i)
        if world.bug == "leak":
            await trio.lowlevel.checkpoint()  # between acquiring and the try
        try:
            await work(world, i, decisions, results)
        finally:
            world.open.discard(i)
    finally:
        world.live.discard(i)


async def work(world, i, decisions, results):
    world.log("requested", i)
    try:
        decision = await decisions.receive()
        world.taken.append(i)
        if world.bug == "lost-message":
            await trio.lowlevel.checkpoint()  # between taking and recording
        world.log("decided", i, decision)
        await trio.sleep(0.5)
    except trio.Cancelled:
        if world.bug == "swallow":
            world.log("swallowed", i)
            await results.send((i, "swallowed"))  # noqa: ASYNC102 - planted on purpose
            return  # noqa: ASYNC104 - planted on purpose
        if world.bug == "swallow-quiet":
            world.log("swallowed", i)
            return  # noqa: ASYNC104 - planted on purpose
        await clean_up(world, i)  # noqa: ASYNC102 - planted on purpose
        raise
    world.log("settled", i)
    await results.send((i, "ok"))


async def clean_up(world, i):
    if world.bug == "unshielded-cleanup":
        await trio.sleep(0.01)
    elif world.bug == "endless-shield":
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)
    else:
        with trio.move_on_after(5, shield=True):
            await trio.sleep(0.01)
    world.log("settled", i)


async def scenario(world, n=3):
    with trio.CancelScope() as world.scope:
        send, receive = trio.open_memory_channel(inf)
        channels = [trio.open_memory_channel(1) for _ in range(n)]

        async def decide():
            for decisions, _ in channels:
                await trio.sleep(0.1)
                await decisions.send("approve")

        async with trio.open_nursery() as nursery:
            for i in range(n):
                nursery.start_soon(call, world, i, channels[i][1], send)
            nursery.start_soon(decide)
            for _ in range(n):
                await receive.receive()


def check(world):
    if world.open:
        yield f"leaked {sorted(world.open)}"
    if world.live:
        yield f"alive {sorted(world.live)}"
    settled = [event[1] for event in world.journal if event[0] == "settled"]
    for i in {event[1] for event in world.journal if event[0] == "requested"}:
        if settled.count(i) != 1:
            yield f"call {i} settled {settled.count(i)} times"
    decided = {event[1] for event in world.journal if event[0] == "decided"}
    yield from (f"decision of {i} taken but not recorded" for i in world.taken if i not in decided)


def sweep(bug, **kwargs):
    # a fault-free run must be clean even of a world with a bug, hence check is the same everywhere
    return chaos.sweep_cancel(lambda: World(bug), scenario, check, settle_within=5, **kwargs)


def test_no_false_alarm_on_the_correct_program():
    report = sweep("", seeds=(1, 2, 3)).require()
    assert report.sites & report.struck == report.sites - {"start"} or len(report.sites - report.struck) <= 1, report


@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_found_and_its_token_replays_it(bug):
    report = sweep(bug)
    assert report.violations, f"the kit no longer finds {bug!r}"
    first = report.violations[0]
    replayed = sweep(bug, only=str(first.token))
    assert replayed.runs == 1
    assert first.message in {violation.message for violation in replayed.violations}


def test_a_sample_runs_as_many_cases_as_asked_and_the_same_ones_each_time():
    first, second = (sweep("leak", sample=(7, 3)) for _ in range(2))
    assert first.runs == second.runs == 7
    assert [str(violation) for violation in first.violations] == [str(violation) for violation in second.violations]


def test_a_sweep_that_never_strikes_is_not_a_success():
    report = chaos.sweep_cancel(World, scenario, check, get_scope=lambda _: None)
    with pytest.raises(AssertionError, match="no fault has struck"):
        report.require()


def test_trio_is_the_one_that_the_kit_was_written_for():
    chaos.self_test()


def test_one_seed_gives_one_trace_and_seeds_give_many():
    def trace(seed):
        recorder = chaos.SiteRecorder()
        chaos.run(scenario, World(), seed=seed, instruments=[recorder])
        return tuple(recorder.steps)

    assert len({trace(1) for _ in range(5)}) == 1
    assert len({trace(seed) for seed in range(20)}) > 10


def test_steps_are_counted_alike_for_the_same_seed():
    assert chaos.count_steps(scenario, World(), seed=4) == chaos.count_steps(scenario, World(), seed=4) > 10


def test_a_deadlock_is_reported_with_who_waits_where_instead_of_hanging():
    async def stuck():
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - the nursery is what is tested
            nursery.start_soon(trio.sleep_forever, name="waits-for-ever")

    with pytest.raises(chaos.DeadlockError, match="waits-for-ever"):
        chaos.run(stuck)


def test_a_shielded_deadlock_is_reported_too():
    async def stuck():
        with trio.CancelScope(shield=True):
            await trio.Event().wait()

    with pytest.raises(chaos.DeadlockError):
        chaos.run(stuck)


def test_a_token_survives_being_printed():
    for token in (chaos.Token("cancel", 1, 17), chaos.Token("pair", 2, 3, 4)):
        assert chaos.Token.parse(str(token)) == token
    with pytest.raises(ValueError, match="no token"):
        chaos.Token.parse("nonsense")
