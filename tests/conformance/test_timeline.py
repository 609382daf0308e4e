"""The timeline of three calls, two of which need an approval: as documented, and through crashes at every moment of it.

What must be seen is in `tests/support/timeline.py`, as tables; docs/diagrams/timeline.md is drawn from them.
"""

from collections import Counter
from collections.abc import Callable
from itertools import count, groupby
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.spec import MODES
from greenroom.actors.services.clock import Clock
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call

from ..support.process_death import Mortal
from ..support.promises import broken_history, broken_promises
from ..support.runs import KINDS, home
from ..support.scene_tools import TOOLS
from ..support.scenes import BIRTHDAY, RUN, THREAD, Life, after, approve, decide, pause
from ..support.timeline import CALLS, DECISIONS, END, SECONDS, TIMELINES, Moment

TOOL = {"A": "sign", "B": "sign", "C": "note"}
SCRIPT = ([call(TOOL[name], seconds=SECONDS[name], id=name) for name in CALLS], "done")
IN_TIME = [after(20, approve("A")), after(20, approve("B"))]
HISTORY = ["user: hi", "assistant: (A, B, C)", "A: signed 1", "B: signed 1", "C: noted C", "assistant: done"]


def without_repetitions(values: Any) -> list[Any]:
    """Each value once for every time that it comes anew."""
    return [value for value, _ in groupby(values)]


def seen(life: Life) -> list[tuple[int, tuple[str, ...], str]]:
    """(when, the calls' statuses, the run's status once that is durable) for each move of a call."""
    status_at = {commit.last: commit.row.status.value for commit in life.log}
    ends = sorted(status_at)
    calls: dict[str, str] = {}
    rows = []
    for event in life.events:
        if "status" in event.payload and event.type.startswith("run.tool."):
            calls[event.payload["callId"]] = event.payload["status"]
            if len(calls) == len(CALLS):
                at = round((event.timestamp - life.events[0].timestamp).total_seconds())
                durable = status_at[next(end for end in ends if end >= event.sequence)]
                rows.append((at, tuple(calls[name] for name in CALLS), durable))
    return rows


def timeline(mode: object) -> tuple[Moment, ...]:
    """The table of a mode; the scenes' own mode has the columns of the streaming one."""
    return TIMELINES[mode if isinstance(mode, str) else "parallel_streaming"]


def expected(moments: tuple[Moment, ...]) -> list[tuple[int, tuple[str, ...], str]]:
    """The same of a table."""
    return [(moment.at, moment.calls, moment.run) for moment in moments]


# --- as documented ---------------------------------------------------------------------------------------------------


async def test_the_timeline_is_as_its_table_says(play, autojump_clock):
    life = await play(*SCRIPT, do=IN_TIME)
    assert seen(life) == expected(timeline(play.mode))
    assert life.seconds("completed") == END


async def test_the_run_s_status_has_no_other_values_and_no_other_order(play, autojump_clock):
    life = await play(*SCRIPT, do=IN_TIME)
    column = list(life.statuses)
    if play.mode == "parallel_batch_approval":  # t4 follows the second decision
        assert column == ["created", "running", "waiting", "running", "done"]
    else:
        assert column == ["created", "running", "waiting", "running", "waiting", "running", "done"]
    table = without_repetitions(moment.run for moment in timeline(play.mode))
    assert column == ["created", *table, "done"]


async def test_each_call_goes_its_own_way(play, autojump_clock):
    life = await play(*SCRIPT, do=IN_TIME)
    approved = "new suspended resuming running succeeded"
    assert life.calls == {"A": approved, "B": approved, "C": "new running succeeded"}
    for number, name in enumerate(CALLS):
        table = without_repetitions(moment.calls[number] for moment in timeline(play.mode))
        assert life.calls[name].split() == table
    assert life.history == HISTORY


async def test_the_decisions_take_effect_in_their_order(play, autojump_clock):
    life = await play(*SCRIPT, do=IN_TIME)
    assert life.effects[0] == "C"
    if play.mode != "parallel_batch_approval":  # there they continue together
        assert life.effects == ["C", "A", "B"]
    resolved = [life.seconds("approval.resolved", call_id=name) for name in ("A", "B")]
    resumed = [life.seconds("tool.resumed", call_id=name) for name in ("A", "B")]
    assert resolved == [20.0, 40.0]
    assert resumed == ([40.0, 40.0] if play.mode == "parallel_batch_approval" else [20.0, 40.0])


async def test_the_other_order_of_decisions_is_the_other_order_of_effects(play, autojump_clock):
    life = await play(*SCRIPT, do=[after(20, approve("B")), after(20, approve("A"))])
    if play.mode == "parallel_batch_approval":  # both continue together then
        assert life.seconds("tool.started", call_id="A") == life.seconds("tool.started", call_id="B") == 40.0
    else:
        assert life.effects == ["C", "B", "A"]
    assert life.history == HISTORY


async def test_decisions_that_come_while_c_still_runs_let_nothing_wait(play, autojump_clock):
    """No person is asked twice, and the run is never seen waiting."""
    life = await play(*SCRIPT, do=[after(2, decide("A")), after(2, decide("B"))])
    assert life.statuses == ("created", "running", "done")
    starts = {one: life.seconds("tool.started", call_id=one) for one in CALLS}
    assert (
        starts
        == {
            "sequential": {"A": 10.0, "B": 20.0, "C": 0.0},
            "parallel_batch_approval": {"A": 4.0, "B": 4.0, "C": 0.0},
            "parallel_streaming": {"A": 2.0, "B": 4.0, "C": 0.0},
        }[play.mode if isinstance(play.mode, str) else "parallel_streaming"]
    )
    assert life.history == HISTORY


async def test_both_decisions_at_once_are_enough(play, autojump_clock):
    life = await play(*SCRIPT, do=[approve("A"), after(0, approve("B")), pause(1)])
    assert life.statuses == ("created", "running", "waiting", "running", "done")
    assert life.history == HISTORY


# --- through crashes -------------------------------------------------------------------------------------------------


@attrs.frozen
class Ended:
    """What a life came to that may have been cut in pieces."""

    outcome: Any
    calls: dict[str, str]
    history: list[str]
    effects: Counter[str]
    replies: dict[str, list[str]]
    unknown: list[str]


async def to_its_end(mortal: Mortal, mode: str, kill_at: tuple[float, ...] = ()) -> Ended:
    """Processes, one after the other, until the run has ended; a person decides as the timeline says."""
    clock, kills, ended = Clock(BIRTHDAY), iter(kill_at), None
    answers: dict[str, list[str]] = {}
    while ended is None:
        at = next(kills, None)
        async with trio.open_nursery() as nursery:
            if at is not None:
                nursery.start_soon(_kill_at, mortal, at)
            with mortal.scope:
                ended = await _one_process(mortal, mode, clock, answers)
            nursery.cancel_scope.cancel()
        if mortal.reopen():
            ended = None
    return ended


async def _kill_at(mortal: Mortal, at: float) -> None:
    await trio.sleep_until(at)
    mortal.kill()


async def _one_process(mortal: Mortal, mode: str, clock: Clock, answers: dict[str, list[str]]) -> Ended:
    agent = gr.Agent("helper", tools=TOOLS, model=ScriptedModel(list(SCRIPT)))
    async with home(mortal.store, agents=[agent], deps=mortal.outside, clock=clock, drain=0) as runtime:
        run = await runtime.start(agent, "hi", run_id=RUN, thread_id=THREAD, execution=mode)
        for at, name in DECISIONS:
            await trio.sleep_until(max(trio.current_time(), at))
            answer = await run.decide(name, "resume", decision_id=f"decides {name}", by="ada")
            if not mortal.scope.cancel_called:  # else no one has received it
                answers.setdefault(name, []).append(answer.status)
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                assert ticket.reason == "outcome_unknown", ticket
                await run.decide(_as_the_world_says(mortal, ticket))
        view = await run.view()
        frames = await mortal.store.events(RUN, limit=10_000)
        record = await mortal.store.load(RUN, calls="all")
        assert not list(broken_promises(frames, record, []))
        assert not list(broken_history(await mortal.store.messages(THREAD), "the thread"))
    return Ended(
        outcome=(type(outcome), outcome.output),
        calls={name: status.value for name, status in view.calls.items()},
        history=[f"{m.call_id or m.role}: {m.content}" for m in view.messages],
        effects=Counter(mortal.outside.effects),
        replies=answers,
        unknown=[t.call_id for t in record.tickets if t.reason == "outcome_unknown"],
    )


RESULTS = {"A": "signed 1", "B": "signed 1", "C": "noted C"}


def _as_the_world_says(mortal: Mortal, ticket: gr.Ticket) -> gr.Decision:
    """A client looks whether the call took effect: if so they say what came of it, else it may run again."""
    done = ticket.call_id in mortal.outside.effects
    return ticket.approve(RESULTS[ticket.call_id] if done else None, by="ada")


def played(mortal: Mortal, mode: str, *kill_at: float) -> Ended:
    """The whole, under virtual time and always by the same schedule: the n-th write is the n-th write."""
    return chaos.run(to_its_end, mortal, mode, kill_at, seed=1)


@pytest.fixture(params=KINDS)
def mortals(request: pytest.FixtureRequest, folder: Path) -> Callable[[], Mortal]:
    """Makes fresh ones."""
    numbers = count()

    def make() -> Mortal:
        place = folder / str(next(numbers))
        place.mkdir()
        return Mortal(request.param, place)

    return make


def undisturbed(mortals: Callable[[], Mortal], mode: str) -> tuple[Ended, int]:
    """The timeline without a crash, and how often the store wrote."""
    mortal, points = mortals(), []
    mortal.on_write = points.append
    ended = played(mortal, mode)
    assert ended.effects == {"A": 1, "B": 1, "C": 1}
    assert (ended.unknown, ended.calls) == ([], dict.fromkeys(CALLS, "succeeded"))
    return ended, len(points)


def killing(mortal: Mortal, point: int) -> Callable[[str], None]:
    """Kills at the n-th point of writing, from 0."""
    passed = count()

    def on_write(_: str) -> None:
        if next(passed) == point:
            mortal.kill()

    return on_write


def same(ended: Ended, first: Ended) -> None:
    """Everything is as without the crash, but that a person may have been asked what came of a call."""
    assert ended.outcome == first.outcome
    assert ended.calls == first.calls
    assert ended.history == first.history
    assert ended.effects == first.effects, (ended.effects, ended.unknown, ended.replies)
    for name in ("A", "B"):
        assert ended.replies[name].count("accepted") <= 1
        assert set(ended.replies[name]) <= {"accepted", "duplicate"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_between_any_two_events_changes_nothing(mortals, mode):
    """Before and after each write: what is in between two events that are not of one commit, which are never torn."""
    first, writes = undisturbed(mortals, mode)
    asked = 0
    for point in range(writes):
        mortal = mortals()
        mortal.on_write = killing(mortal, point)
        ended = played(mortal, mode)
        assert mortal.lives == 1, f"nobody died at write {point}"
        same(ended, first)
        asked += bool(ended.unknown)
    assert asked, "no crash met a body"


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_at_any_second_changes_nothing(mortals, mode):
    """In the middle of bodies, before and after they have touched the world, and while nothing happens."""
    first, _ = undisturbed(mortals, mode)
    for second in range(END):
        mortal = mortals()
        ended = played(mortal, mode, second + 0.5)
        assert mortal.lives == 1
        same(ended, first)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_two_crashes_change_no_more_than_one(mortals, mode, sampled):
    first, _ = undisturbed(mortals, mode)
    pairs = [(first + 0.5, second + 0.5) for first in range(END) for second in range(first + 1, END)]
    lives = set()
    for pair in sampled(pairs, 30):
        mortal = mortals()
        ended = played(mortal, mode, *pair)
        lives.add(mortal.lives)  # an answer to "what came of it" may bring the end before the second crash
        same(ended, first)
    assert lives <= {1, 2}
    assert 2 in lives


def test_the_test_would_see_an_effect_that_is_repeated_or_lost(mortals):
    first, _ = undisturbed(mortals, "sequential")
    for wrong in (Counter(A=2, B=1, C=1), Counter(A=1, C=1)):
        with pytest.raises(AssertionError):
            same(attrs.evolve(first, effects=wrong), first)
