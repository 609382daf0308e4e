"""Every life of a run can be run again from what a store keeps of it."""

from collections import defaultdict
from datetime import timedelta
from random import Random
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from greenroom.actors.contract import events as ev
from greenroom.actors.contract import stop
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.decisions import Block, InboxItem
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.lifecycle import Termination, TerminationKind
from greenroom.actors.contract.messages import ModelResponse, Usage
from greenroom.actors.contract.phases import Cursor, Phase
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.contract.rows import Commit, EventDraft, RunRow
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.contract.state import Batch, Write
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.effects import RunPhase
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.state import Step
from greenroom.actors.replay import machine
from greenroom.actors.replay.machine import Asked, replaying
from greenroom.actors.replay.record import Log, Record, make_record
from greenroom.actors.replay.report import ReplayReport

from .chaos import TOOLS, Chaos
from .test_properties import specs
from .world import START, World, call
from .writers import KEYS, Writers


class Remembered(World):
    """A world whose store keeps the bytes of events, and that remembers what its hooks have answered."""

    def __init__(self, spec: AgentSpec, **options: Any) -> None:
        self.answers: dict[Any, list[inp.PhaseDone]] = defaultdict(list)
        super().__init__(spec, **options)

    def feed(self, message: inp.Input) -> Step:
        if isinstance(message, inp.PhaseDone):
            known = self.answers[message.phase, message.step, message.call_id]
            if message not in known:
                known.append(message)
        if not hasattr(self, "frames"):
            self._watch()
        return super().feed(message)

    def _watch(self) -> None:
        encoder, apply = EventEncoder(self.store.info, Redactor()), self.store.apply
        created = EventDraft("run.created", self.store.events[0])
        self.frames = list(encoder.frames(0, START, (created,)))

        def kept(commit: Commit) -> None:
            apply(commit)
            self.frames.extend(encoder.frames(commit.expected_last, commit.at, commit.events))

        self.store.apply = kept  # type: ignore[method-assign]

    def replay(self, spec: AgentSpec | None = None) -> ReplayReport:
        """The replay of what the store has."""
        return played(self.recorded(), spec or self.spec, self.answers)

    def recorded(self) -> Record:
        """What the store has."""
        store = self.store
        rows = attrs.evolve(store.record(), calls=tuple(store.calls.values()), tickets=tuple(store.tickets.values()))
        commands = [InboxItem(position=n, command=command) for n, (command, _) in enumerate(store.inbox, 1)]
        record = make_record(
            rows, Log().read(self.frames), store.messages, commands, redactor=Redactor(), birth=RunRow(last_sequence=1)
        )
        return attrs.evolve(record, created=EventDraft("run.created", store.events[0]))


def played(record: Record, spec: AgentSpec, answers: Any) -> ReplayReport:
    replay, reply = replaying(record, spec), None
    try:
        while True:
            asked = replay.send(reply)
            reply = None if asked is None else answered(asked, spec, answers)
    except StopIteration as ended:
        report: ReplayReport = ended.value
        return report


def answered(asked: Asked, spec: AgentSpec, answers: Any) -> tuple[inp.PhaseDone, ...] | None:
    """Where there are plugins, what the record tells of them.

    Where there is none, predicates alone are asked; a life here has them say what only gates may.
    """
    effect = asked.effect
    return None if spec.hooked else tuple(answers[effect.phase, effect.step, effect.call_id])


def begun(spec: AgentSpec, seed: int, moves: int, **options: Any) -> tuple[Remembered, Chaos]:
    world = Remembered(spec, **options)
    chaos = Chaos(world, seed)
    for _ in range(moves):
        if world.finished:
            break
        chaos.move()
    return world, chaos


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=settings.default.max_examples * 2)
@given(
    spec=specs,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 150),
    deadline=st.sampled_from((None, None, 600.0)),
    admitted=st.booleans(),
    lazy=st.booleans(),
)
def test_every_life_of_a_run_is_replayed(
    mode: Any, spec: AgentSpec, seed: int, moves: int, deadline: float | None, admitted: bool, lazy: bool
) -> None:
    """Of a life that is over, and of what is durable in the middle of one, every event comes again."""
    world, chaos = begun(spec, seed, moves, execution=mode, deadline=deadline, admitted=admitted, lazy=lazy)
    for ends in (False, True):
        if ends:
            chaos.finish()
        report = world.replay()
        missing = report.unreplayable
        if missing is not None and missing.missing == "time" and any(isinstance(s, stop.Timeout) for s in spec.stop):
            continue  # an owner was lost where its return leaves no event, and a limit of active time was looked at
        if not report.equal:
            note("\n".join(world.trace))
        assert report.equal, report.difference or missing
        assert report.events == len(world.frames)


def test_a_task_that_was_being_cancelled_when_its_owner_went_is_replayed() -> None:
    """Nothing is seen of the cancel before the next owner ends the task."""
    world = Remembered(AgentSpec(key="a", tools=TOOLS))
    world.says(calls=[call("c1", "fetch", n=1), call("c2", "fetch", n=1)])
    world.asks(inp.CancelAsked, task_id="c2.task1")
    world.now += timedelta(seconds=3)
    world.crash()
    assert world.store.fold.finished == {"c2.task1": ("cancelled", "outcome_unknown")}
    assert world.replay().equal
    Chaos(world, 0).finish()
    assert world.replay().equal


def test_a_run_that_was_given_up_while_it_was_blocked_is_replayed() -> None:
    """Its termination tells of the giving up only; the block is read from the call."""
    world = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE, Phase.RUN_END})))
    world.says(calls=[call("c1", "read", n=1)])
    world.answer(inp.PhaseDone(phase=Phase.TOOL_GATE, step=1, call_id="c1", verdict=Block("never")))
    world.lose_owner()
    world.feed(inp.Abandon(detail="crashed three times"))
    world.answer(inp.WorkStopped())
    assert world.store.row.termination == Termination(
        kind=TerminationKind.ERROR, code="internal_error", detail="crashed three times", error_id="r/owner"
    )
    report = world.replay()
    assert report.equal, report.difference


def test_a_run_that_was_given_up_after_its_hooks_had_failed_is_replayed() -> None:
    """They left an event before they failed; that they did is stored nowhere."""
    phases = frozenset({Phase.BEFORE_TOOL_EXECUTE, Phase.RUN_END})
    world = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=phases))
    world.says(calls=[call("c1", "read", n=1)])
    asked = inp.PhaseDone(phase=Phase.BEFORE_TOOL_EXECUTE, step=1, call_id="c1")
    world.answer(msgspec.structs.replace(asked, ignored=("oh",), failure="no"))
    world.lose_owner()
    world.feed(inp.Abandon(detail="crashed three times"))
    world.answer(inp.WorkStopped())
    report = world.replay()
    assert report.equal, report.difference


def judged(w: Remembered, call_id: str, revision: int = 0, **more: Any) -> None:
    """The gate lets a call pass, on a revision of the state."""
    done = inp.PhaseDone(phase=Phase.TOOL_GATE, step=w.row.step, call_id=call_id, revision=revision, **more)
    w.answer(done)


def test_a_gate_that_had_judged_before_a_task_wrote_is_replayed() -> None:
    """It is asked again, which leaves no event; and nothing that could have written is alive any more."""
    spec = AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE}), keys=KEYS)
    w = Remembered(spec, execution="parallel_streaming")
    w.says(calls=[call("T", "crawl", n=1)])
    judged(w, "T")
    w.says(calls=[call("A", "read", n=1), call("B", "read", n=1)])
    _, batch, keys = Writers(Random(1)).write("T.task1", w.state.snapshot)
    w.answer(inp.CallReturned(call_id="T.task1", attempt=1, result=1, shown="1", batch=batch, keys=keys))
    judged(w, "A", revision=0, overruled=(inp.Overruled(plugin="a", verdict="set_result", by="b"),))
    judged(w, "B", revision=1)
    assert w.types()[-1] == "run.tool.started"
    report = w.replay()
    assert report.equal, report.difference
    judged(w, "A", revision=1)
    Chaos(w, 0).finish()
    report = w.replay()
    assert report.equal, report.difference


def test_a_limit_of_active_time_that_nobody_can_know_of_is_no_difference() -> None:
    """Without an owner for a while, unseen; and the end would first have told that a decision was of no use."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE}), stop=(stop.Timeout(60.0),)))
    w.says(calls=[call("A", "read", n=1)])
    assert w.decide("A").code == "early"
    w.pause()
    w.now += timedelta(seconds=400)
    w.crash()
    judged(w, "A")
    w.returns("A")
    assert w.row.cursor is Cursor.PAUSED
    report = w.replay()
    assert report.difference is None
    assert report.unreplayable is not None
    assert report.unreplayable.missing == "time"


def test_a_grace_that_was_overrun_after_the_work_had_stopped_is_replayed() -> None:
    """One body that was known to hang lived on then; another one is told of while the run_end hooks are asked."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.RUN_END})))
    w.says(calls=[call("A", "read", n=1)])
    w.feed(inp.Overran(item=inp.Stubborn(call_id="A")))
    w.cancel("now")
    w.answer(inp.WorkStopped(stubborn=(inp.Stubborn(call_id="A"),)))
    w.feed(inp.Overran(item=inp.Stubborn(call_id="model:r.m1")))
    w.answer(inp.PhaseDone(phase=Phase.RUN_END, step=1))
    assert w.row.stubborn == ("A", "model:r.m1")
    report = w.replay()
    assert report.equal, report.difference


def updates(number: int) -> Batch:
    """A body wanted this number to be the next turn, when nobody had had one."""
    return Batch(base=0, writes=(Write(name="turn", op="update", value=number, result=number),))


def test_reducers_that_failed_for_the_next_owner_are_replayed_each_in_its_words() -> None:
    """An owner knows the reducers of the keys that its agent declares, whoever had written before it came."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, keys=KEYS), execution="parallel_streaming")
    w.says(calls=[call(name, "read", n=number) for number, name in enumerate("ABCD")])
    for name, number in (("A", 1), ("B", 5), ("C", 7)):
        w.returns(name, batch=updates(number))
    w.crash()
    w.returns("D")
    told = [payload for event in w.store.events[1:] if isinstance(payload := event.payload, ev.StateConflict)]
    assert [one.detail.partition("ValueError: ")[2] for one in told] == [f"it is not the turn of {n}" for n in (5, 7)]
    report = w.replay()
    assert report.equal, report.difference


def test_a_body_that_had_returned_unseen_before_a_cancel_is_replayed() -> None:
    """It would have run again on a conflict: so it had not ended before the cancel, which merged what it wrote."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, keys=KEYS), execution="parallel_streaming")
    w.says(calls=[call("A", "tally", n=1), call("B", "read", n=1)])
    w.returns("A", batch=updates(1))
    w.cancel("now")
    w.answer(inp.WorkStopped())
    assert w.store.calls["A"].status is CallStatus.SUCCEEDED
    report = w.replay()
    assert report.equal, report.difference


# --- how long it takes ------------------------------------------------------------------------------------------------


def crowd(steps: int, calls: int) -> Remembered:
    """A run whose calls go side by side, with hooks in every phase that have nothing to say."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset(Phase)), execution="parallel_streaming")

    def hooks() -> None:
        while asked := [key for key in w.outstanding if key[0] == "phase"]:
            for effect in [w.outstanding[key] for key in asked]:
                assert isinstance(effect, RunPhase)
                w.phase(effect.phase, effect.call_id)

    hooks()
    for number in range(steps):
        names = [f"c{number}.{one}" for one in range(calls)]
        w.says(calls=[call(name, "read", n=1) for name in names])
        hooks()
        for name in names:
            w.returns(name)
        hooks()
    return w


@attrs.define
class Effort:
    """What a replay tries: inputs in all, and the most without a breath."""

    tried: int = 0
    longest: int = 0

    def replay(self, monkeypatch: pytest.MonkeyPatch, record: Record, spec: AgentSpec) -> ReplayReport:
        now = 0

        def counted(*args: Any) -> Step:
            nonlocal now
            now += 1
            self.tried += 1
            self.longest = max(self.longest, now)
            return step(*args)

        monkeypatch.setattr(machine, "step", counted)
        replay = replaying(record, spec)
        try:
            while True:
                if replay.send(None) is None:
                    now = 0
        except StopIteration as ended:
            report: ReplayReport = ended.value
            return report


def test_calls_side_by_side_under_hooks_are_replayed_in_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the many orders in which their hooks may have answered the first that explains the record is enough."""
    w, effort = crowd(steps=5, calls=8), Effort()
    report = effort.replay(monkeypatch, w.recorded(), w.spec)
    assert report.equal, report.unreplayable
    assert effort.tried < 60 * len(w.frames)
    assert effort.longest <= machine.BREATH


def test_a_replay_gives_up_after_so_much_work_and_lets_others_work_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """That none of the orders explains the record would be known too late: that is said, and no difference."""
    w, effort = crowd(steps=1, calls=12), Effort()
    w.frames[-1] = w.frames[-1].replace(b'"type":"run.', b'"type":"run.x')
    monkeypatch.setattr(machine, "EFFORT", 256)
    report = effort.replay(monkeypatch, w.recorded(), w.spec)
    assert report.difference is None
    assert report.unreplayable is not None
    assert report.unreplayable.missing == "ambiguous"
    assert effort.tried < 60 * (machine.EFFORT + machine.WIDTH * len(w.frames))
    assert effort.longest <= machine.BREATH


LOG_ALONE = (
    *("run.message.delta", "run.reasoning.delta", "run.tool.progress", "run.tool.output.delta"),
    *("run.task.progress", "run.task.output.delta"),
    *("run.cleanup.overrun", "run.degraded", "run.gate.overruled"),
)
"""Events whose payload is stored nowhere else: they are their own evidence."""
ALONE = (
    *(("run.inference.completed", "model"), ("run.task.started", "arguments")),
    *(("run.state.changed", "keys"), ("run.tool.edited", "by")),
)
"""And so are these in others."""


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 2)
@given(spec=specs, seed=st.integers(0, 2**32 - 1), moves=st.integers(0, 60), data=st.data())
def test_an_event_that_was_edited_is_found(spec: AgentSpec, seed: int, moves: int, data: st.DataObject) -> None:
    """Whatever event it is, and whatever in it: there, or where it first shows."""
    world, _ = begun(spec, seed, moves)
    frames = list(world.frames)
    at = data.draw(st.integers(0, len(frames) - 1))
    event = msgspec.json.decode(frames[at])
    assume(event["type"] not in LOG_ALONE)
    name = data.draw(st.sampled_from(sorted(event["payload"])))
    assume((event["type"], name) not in ALONE)
    event["payload"][name] = {"edited": event["payload"][name]}
    frames[at] = msgspec.json.encode(event)
    world.frames[:] = frames
    report = world.replay()
    found = report.difference or report.unreplayable
    assert found is not None
    assert found.sequence > at
    assert not report.equal


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 2)
@given(spec=specs, other=specs, seed=st.integers(0, 2**32 - 1), moves=st.integers(0, 100))
def test_another_agent_leads_to_a_report_and_never_to_an_error(
    spec: AgentSpec, other: AgentSpec, seed: int, moves: int
) -> None:
    """And what agrees up to there is what the report says."""
    world, _ = begun(spec, seed, moves)
    report = world.replay(other)
    if report.difference is not None:
        assert report.difference.sequence == report.events + 1
    assert report.equal == (report.difference is None and report.unreplayable is None)
    assert report.events == len(world.frames) or not report.equal


@pytest.mark.parametrize("ends", ["answers", "fails"])
def test_a_log_of_a_release_that_did_not_tell_waits_costs_and_reasons_is_replayed(ends: str) -> None:
    """Its events have neither delay_ms nor usage nor finish, and its failed requests do not count."""
    world = Remembered(AgentSpec(key="a", tools=TOOLS))
    old: dict[str, Any] = {"kind": "overloaded", "text": "later", "retryable": True, "usage": Usage(), "delay_ms": 0}
    world.answer(inp.ModelFailed(message_id=world.in_flight(), **old))
    world.lose_owner()
    world.feed(inp.Activate(agent_digest=world.spec.digest, counts=False))
    world.answer(inp.ModelFailed(message_id=world.in_flight(), **old))
    if ends == "answers":
        world.answer(inp.ModelAnswered(message_id=world.in_flight(), response=ModelResponse(text=("done",))))
    else:
        world.answer(inp.ModelFailed(message_id=world.in_flight(), **old))
    assert world.ended
    assert not any(word in frame for frame in world.frames for word in (b"delay_ms", b"finish_", b'"finish"'))
    assert world.row.usage.requests == (ends == "answers")
    assert world.replay().equal
