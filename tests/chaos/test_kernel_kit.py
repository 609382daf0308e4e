"""The kit itself: it must find every planted bug and raise no false alarm."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
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
    for token in (
        chaos.CaseToken("cancel", 1, 17),
        chaos.CaseToken("pair", 2, 3, 4),
        chaos.CaseToken("schedule", 5),
        chaos.CaseToken("commit", 1, 6),
    ):
        assert chaos.CaseToken.parse(str(token)) == token


@pytest.mark.parametrize(
    "text", ["nonsense", "cancel:1", "cancel:1:2:3", "pair:1:2", "schedule", "cancel:1:-2", "cancel:a:b"]
)
def test_what_is_no_token_is_refused(text):
    with pytest.raises(ValueError, match="no token; tokens look like cancel:1:17"):
        chaos.CaseToken.parse(text)


# --- programs that have nothing to do with the kit -------------------------------------------------------------------


class Pot:
    """A world without a scope."""

    def __init__(self):
        self.full = 0


async def cook(pot):
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(fill, pot)


async def fill(pot):
    await trio.sleep(1)
    seen = pot.full
    if pot.full == 2:
        await trio.lowlevel.checkpoint()
    pot.full = seen + 1


def test_the_whole_scenario_is_cancelled_if_the_world_has_no_scope():
    report = chaos.sweep_cancel(Pot, cook).require()
    assert report.hits == report.runs == report.steps[1]


def test_a_crash_may_leave_a_correct_program_in_a_group():
    report = chaos.sweep_crash(Pot, cook, seeds=(1, 2, 3)).require()
    assert report.hits > 10
    contained = chaos.sweep_crash(Pot, cook, contained=True)
    assert {violation.message.partition(":")[0] for violation in contained.violations} == {"escaped"}


def test_another_error_beside_the_crash_is_a_violation():
    async def careless(pot):
        try:
            await cook(pot)
        except BaseException as error:  # noqa: BLE001 - planted on purpose
            raise BaseExceptionGroup("both", [error, KeyError("a bug")]) from None  # noqa: ASYNC104 - the border has raised what passes

    assert any("KeyError: 'a bug'" in violation.message for violation in chaos.sweep_crash(Pot, careless).violations)


def test_ctrl_c_ends_a_sweep():
    runs = []

    async def interrupted(_):
        runs.append(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            if len(runs) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chaos.sweep_cancel(Pot, interrupted)
    assert len(runs) == 3


@pytest.mark.slow
def test_a_real_interrupt_ends_a_sweep(tmp_path):
    script = tmp_path / "sweep.py"
    script.write_text(
        "import trio\nfrom greenroom.supervision import chaos\n"
        "async def work(_):\n    for _ in range(300):\n        await trio.lowlevel.checkpoint()\n"
        "print('begun', flush=True)\nchaos.sweep_cancel(object, work, seeds=range(10_000))\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert said.rstrip().endswith(b"KeyboardInterrupt")


def test_a_deadlock_without_a_fault_is_a_violation_with_seed_token_and_what_each_task_waits_for():
    async def stuck(_):
        lock = trio.Lock()
        async with trio.open_nursery() as nursery:
            await lock.acquire()
            nursery.start_soon(lock.acquire, name="second")

    report = chaos.sweep_cancel(object, stuck, seeds=(7,))
    (violation,) = report.violations
    assert str(violation.token) == "schedule:7"
    assert "deadlock under seed 7" in violation.message
    assert "second: " in violation.message
    assert "waits for Lock.acquire" in violation.message
    assert report.runs == 0
    replayed = chaos.sweep_schedules(object, stuck, only="schedule:7")
    assert "Lock.acquire" in str(replayed)


def test_a_race_that_only_some_orders_show_is_found_by_schedules_alone():
    def check(pot):
        if pot.full != 3:
            yield f"{pot.full} of 3"

    async def race(pot):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(pour, pot, number)

    async def pour(pot, number):
        seen = pot.full
        if number == 0 and seen == 0:  # the first one pauses only if none came before it
            await trio.lowlevel.checkpoint()
        pot.full = seen + 1

    report = chaos.sweep_schedules(Pot, race, check, seeds=range(40))
    assert 0 < len(report.violations) < 40
    assert report.schedules > 3
    again = chaos.sweep_schedules(Pot, race, check, only=str(report.violations[0].token))
    assert [str(violation) for violation in again.violations] == [str(report.violations[0])]
    chaos.sweep_schedules(Pot, race, seeds=range(40)).require()


def test_violations_of_one_place_are_one_line_with_their_tokens():
    text = str(sweep("leak", seeds=range(1, 9)))
    assert " x at test_kernel_kit.py:" in text
    assert "in task 'tests.chaos.test_kernel_kit.call'" in text or "in task '" in text
    assert "replay: cancel:" in text
    assert " more" in text


def test_a_replay_has_the_trace_with_the_place_of_the_fault():
    token = str(sweep("leak").violations[0].token)
    report = sweep("leak", only=token)
    assert [step.k for step in report.trace] == list(range(len(report.trace)))
    text = str(report)
    assert "the fault strikes here" in text
    assert "test_kernel_kit.py:" in text
    assert report.violations[0].task in {step.task for step in report.trace}


def test_no_site_is_inside_of_the_kit_or_of_trio():
    report = chaos.sweep_cancel(Pot, cook)
    assert {site.partition(":")[0] for site in report.sites | report.struck} <= {"test_kernel_kit.py", "start"}


# --- real work -------------------------------------------------------------------------------------------------------


def test_a_thread_is_waited_for_and_virtual_time_is_still_meanwhile():
    async def scenario():
        began = trio.current_time()
        with trio.move_on_after(100):
            await trio.to_thread.run_sync(threading.Event().wait, 0.2)
        return trio.current_time() - began

    assert chaos.run(scenario, io_budget=60.0) == 0


def test_threads_and_sockets_are_no_deadlock():
    async def scenario(_):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            async with trio.open_nursery() as nursery:

                async def listen():
                    await trio.lowlevel.wait_readable(ours)
                    ours.recv(1)

                nursery.start_soon(listen)
                await trio.to_thread.run_sync(threading.Event().wait, 0.05)
                await trio.to_thread.run_sync(theirs.send, b"x")

    report = chaos.sweep_schedules(object, scenario, seeds=range(3), io_budget=60.0).require()
    assert not report.violations


def test_what_never_comes_from_outside_is_waited_for_no_longer_than_its_budget():
    async def deaf():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            await trio.lowlevel.wait_readable(ours)

    with pytest.raises(chaos.DeadlockError, match="wait_readable"):
        chaos.run(deaf, io_budget=0.05)


def test_a_listener_holds_virtual_time_up_once_and_not_at_every_jump():
    async def scenario():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.wait_readable, ours)
                for _ in range(1000):
                    await trio.sleep(1)
                nursery.cancel_scope.cancel()
        return trio.current_time()

    assert chaos.run(scenario, io_budget=0.02) >= 1000


# --- the pytest plugin -----------------------------------------------------------------------------------------------

PROGRAM = """
import pytest
import trio

class Account:
    def __init__(self):
        self.locked = False

async def pay(account):
    account.locked = True
    await trio.sleep(1)
    account.locked = False

def check(account):
    if account.locked:
        yield "still locked"

@pytest.mark.chaos(seeds=(1, 2))
def test_pay(chaos):
    chaos.{kind}(Account, pay, check)
"""


@pytest.fixture
def tested(tmp_path):
    """Runs pytest on a program in a folder of its own."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["greenroom.supervision.chaos.pytest_plugin"]\n')

    def run(*options, kind="cancel", text=PROGRAM):
        (tmp_path / "test_pay.py").write_text(text.replace("{kind}", kind))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other installed plugins take most of the time
        found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
        return found.returncode, found.stdout + found.stderr

    return run


@pytest.mark.slow
def test_the_plugin_fails_a_test_with_the_command_that_replays_it(tested):
    code, said = tested()
    assert code == 1
    match = re.search(r"replay: pytest '(test_pay.py::test_pay)' --chaos-replay (cancel:1:\d+)", said)
    assert match, said
    code, said = tested(match[1], "--chaos-replay", match[2])
    assert code == 1
    assert "the fault strikes here" in said
    assert "still locked" in said


@pytest.mark.slow
def test_the_plugin_takes_the_number_of_cases_and_refuses_what_is_none(tested):
    assert tested(kind="schedules")[0] == 0
    code, said = tested("--chaos", "1", "-s")
    assert "1 runs" in said
    assert "--chaos many: give 'full' or a number" in tested("--chaos", "many")[1]
    assert "no token" in tested("--chaos-replay", "x")[1]
    assert "the marker chaos takes sample" in tested(text=PROGRAM.replace("seeds=", "sedes="))[1]
    assert code in (0, 1)
