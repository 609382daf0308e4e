"""Every life of a run can be run again from its record: an exact fold, whatever happened."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from greenroom.actors.contract import events as ev
from greenroom.actors.contract import stop
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.commits import Commit
from greenroom.actors.contract.decisions import Block, InboxItem, Suspend
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.inference import ContextMessage, RequestChanges
from greenroom.actors.contract.lifecycle import TERMINAL, Termination, TerminationKind
from greenroom.actors.contract.messages import ModelResponse, Usage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.recording import RecordDelta, RecordEntry
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.contract.state import Batch, KeyId, KeySpec, StateWrite, Write
from greenroom.actors.engine import body_inputs as said
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine import recording as rec
from greenroom.actors.engine.initial_row import created
from greenroom.actors.engine.state import RunState, Transition
from greenroom.actors.replay.comparison import Replay, StoredRun
from greenroom.actors.replay.report import ReplayReport
from greenroom.actors.stores.common import _record_codec
from greenroom.actors.stores.common._record_codec import dump_taken, load_taken

from .chaos import TOOLS, Chaos
from .test_properties import specs
from .world import OWN, START, World, call
from .writers import KEYS, Writers


class Once(rec.Recorder):
    """A recorder for a world that steps its machine twice with each input."""

    __slots__ = ()

    def add(self, now: Any, entry: msgspec.Struct) -> None:
        """Note half of what the reducers returned."""
        del self._results[len(self._results) // 2 :]
        super().add(now, entry)


class Remembered(World):
    """A world whose store keeps the bytes of events, and what its machine took, as bytes too."""

    def __init__(self, spec: AgentSpec, **options: Any) -> None:
        self._carried: list[tuple[Commit, tuple[RecordEntry, ...]]] = []
        self._durable: list[Commit] = []
        super().__init__(spec, **options)

    def feed(self, message: inp.Input) -> Transition:
        if not hasattr(self, "frames"):
            self._watch()
        return super().feed(self.recorder.watched(message, self.spec))

    def _watch(self) -> None:
        encoder, apply = EventEncoder(self.store.info, Redactor()), self.store.apply
        self.recorder = Once(self.state, self.now, bare=False, on=True)
        self._born = RecordEntry(START, rec.CreatedEntry(row=self.store.row, text="hello"))
        self.frames = list(encoder.frames(0, START, (created(self.store.info, "hello"),)))

        def kept(commit: Commit) -> None:
            apply(commit)
            self._durable.append(commit)
            self.frames.extend(encoder.frames(commit.expected_last, commit.at, commit.events))

        self.store.apply = kept  # type: ignore[method-assign]

    def _take(self, before: RunState, message: inp.Input, taken: Transition) -> Transition:
        self._message = message
        return super()._take(before, message, taken)

    def _carry_out(self, taken: Transition) -> None:
        self.recorder.add(self.now, self._message)
        if taken.commit is not None:
            self._carried.append((taken.commit, self.recorder.carry()))
        super()._carry_out(taken)

    def ack(self) -> None:
        commit = self.unacked[0][0]
        if commit.row.stage in TERMINAL and len(self.store.inbox) > commit.row.inbox:
            self.recorder.undo(self._carried[-1][1])
        super().ack()

    def lose_owner(self) -> None:
        super().lose_owner()
        self.recorder = Once(self.state, self.now, bare=False, on=True)

    def stored(self) -> StoredRun:
        """What the store has. The record has been bytes."""
        durable = {id(commit) for commit in self._durable}
        items = {n: InboxItem(position=n, command=command) for n, (command, _) in enumerate(self.store.inbox, 1)}
        record = [RecordDelta(1, (self._born,))]
        record += [RecordDelta(commit.last, taken) for commit, taken in self._carried if id(commit) in durable]
        return StoredRun(
            info=self.store.info,
            definitions={name: row.definition for name, row in self.store.calls.items()},
            frames=self.frames,
            record=[RecordDelta(delta.last, load_taken(dump_taken(delta.taken), items)) for delta in record],
        )

    def replay(self, spec: AgentSpec | None = None) -> ReplayReport:
        """The replay of what the store has."""
        return played(self.stored(), spec or self.spec)


def played(stored: StoredRun, spec: AgentSpec) -> ReplayReport:
    replay = Replay(stored, spec, Redactor())
    for _ in replay.steps():
        pass
    return replay.report()


def begun(spec: AgentSpec, seed: int, moves: int, **options: Any) -> tuple[Remembered, Chaos]:
    world = Remembered(spec, **options)
    chaos = Chaos(world, seed)
    for _ in range(moves):
        if world.finished:
            break
        chaos.move()
    return world, chaos


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES, OWN], ids=[*MODES, "own"])
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
        if not report.equal:
            note("\n".join(world.trace))
        assert report.equal, report.difference or report.unreplayable
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
    world.feed(inp.FailUnrecoverable(detail="crashed three times"))
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
    world.feed(inp.FailUnrecoverable(detail="crashed three times"))
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


def test_time_without_an_owner_that_left_no_event_is_known() -> None:
    """The record says when the next owner came: a limit of active time is met in the replay when it was met."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE}), stop=(stop.Timeout(60.0),)))
    w.says(calls=[call("A", "read", n=1)])
    assert w.decide("A").code == "early"
    w.pause()
    w.now += timedelta(seconds=400)
    w.crash()
    judged(w, "A")
    w.returns("A")
    assert w.row.position is RunPosition.PAUSED
    assert w.replay().equal


def test_a_grace_that_was_overrun_after_the_work_had_stopped_is_replayed() -> None:
    """One body that was known to hang lived on then; another one is reported while the run_end hooks are asked."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.RUN_END})))
    w.says(calls=[call("A", "read", n=1)])
    w.feed(inp.BodyOverran(item=inp.Unfinished(call_id="A")))
    w.cancel("now")
    w.answer(inp.WorkStopped(stubborn=(inp.Unfinished(call_id="A"),)))
    w.feed(inp.BodyOverran(item=inp.Unfinished(call_id="model:r.m1")))
    w.answer(inp.PhaseDone(phase=Phase.RUN_END, step=1))
    assert w.row.stubborn == ("A", "model:r.m1")
    report = w.replay()
    assert report.equal, report.difference


def updates(number: int) -> Batch:
    """A body wanted this number to be the next turn, when there was none."""
    return Batch(base=0, writes=(Write(name="turn", op="update", value=number, result=number),))


def test_failures_of_the_next_owners_reducers_are_replayed_word_for_word() -> None:
    """An owner knows the reducers of the keys that its agent declares, whatever was written before it came."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS, keys=KEYS), execution="parallel_streaming")
    w.says(calls=[call(name, "read", n=number) for number, name in enumerate("ABCD")])
    for name, number in (("A", 1), ("B", 5), ("C", 7)):
        w.returns(name, batch=updates(number))
    w.crash()
    w.returns("D")
    reported = [payload for event in w.store.events[1:] if isinstance(payload := event.payload, ev.StateConflict)]
    assert [one.detail.partition("ValueError: ")[2] for one in reported] == [
        f"it is not the turn of {n}" for n in (5, 7)
    ]
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


# --- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 2)
@given(spec=specs, seed=st.integers(0, 2**32 - 1), moves=st.integers(0, 60), data=st.data())
def test_an_event_that_was_edited_is_found(spec: AgentSpec, seed: int, moves: int, data: st.DataObject) -> None:
    """Whatever event it is, and whatever in it: at its place, with the input that it came of."""
    world, _ = begun(spec, seed, moves)
    at = data.draw(st.integers(0, len(world.frames) - 1))
    event = msgspec.json.decode(world.frames[at])
    name = data.draw(st.sampled_from(sorted(event["payload"])))
    event["payload"][name] = {"edited": event["payload"][name]}
    world.frames[at] = msgspec.json.encode(event)
    found = world.replay().difference
    assert found is not None
    assert (found.sequence, found.path.split(".")[0]) == (at + 1, name)
    assert found.input.startswith("input ")


def test_events_that_were_added_dropped_or_exchanged_are_found() -> None:
    """At their place, or at the first one that is not where it was."""
    for number, forge in enumerate((lambda log: log.insert(3, log[2]), lambda log: log.pop(3), list.reverse)):
        world = Remembered(AgentSpec(key="a", tools=TOOLS))
        world.says("done")
        forge(world.frames)
        found = world.replay().difference
        assert found is not None
        assert found.sequence == (4, 4, 1)[number]


def test_a_log_that_ends_too_early_or_too_late_is_found() -> None:
    """Events that nothing leads to are named, and so are those that should follow."""
    world = Remembered(AgentSpec(key="a", tools=TOOLS))
    world.says("done")
    last = world.frames.pop()
    found = world.replay().difference
    assert found is not None
    assert (found.sequence, found.recorded) == (len(world.frames) + 1, None)
    world.frames += [last, last]
    found = world.replay().difference
    assert found is not None
    assert (found.sequence, found.replayed) == (len(world.frames), None)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 2)
@given(spec=specs, other=specs, seed=st.integers(0, 2**32 - 1), moves=st.integers(0, 100))
def test_another_agent_leads_to_a_report_and_never_to_an_error(
    spec: AgentSpec, other: AgentSpec, seed: int, moves: int
) -> None:
    """And what agrees up to there is what the report says."""
    world, _ = begun(spec, seed, moves)
    report = world.replay(other)
    assert report.unreplayable is None
    if report.difference is not None:
        assert report.difference.sequence == report.events + 1
    assert report.equal == (report.difference is None)
    assert report.events == len(world.frames) or not report.equal


# --- reducers that the agent does not declare -------------------------------------------------------------------------


def failing(value: Any, update: Any) -> Any:
    raise KeyError(f"{value} and {update}")


@pytest.mark.parametrize("reduce", [lambda value, update: [value, update], failing])
def test_results_and_errors_of_undeclared_reducers_are_recorded(reduce: Any) -> None:
    """It is a function that only the bodies know; a replay has none to call."""
    w = Remembered(AgentSpec(key="a", tools=TOOLS), execution="parallel_streaming")
    w.says(calls=[call(name, "read", n=number) for number, name in enumerate("AB")])
    key = KeyId("run", "turn")
    for name, number in (("A", 1), ("B", 5)):
        w.returns(name, batch=updates(number), keys={key: KeySpec(key=key, reduce=reduce)})
    assert ("run.state.conflict" in w.types()) == (reduce is failing)
    replay = Replay(w.stored(), w.spec, Redactor())
    folded = list(replay.steps())
    assert replay.report().equal, replay.report()
    assert folded[-1].after.snapshot == w.state.snapshot


# --- entries as bytes -------------------------------------------------------------------------------------------------

KEY = KeyId("thread", "k")
ENTRIES: Sequence[msgspec.Struct] = (
    *(
        inp.Activate(admitted=False, agent_digest="d"),
        inp.Admit(),
        inp.Admit(state=(StateWrite(key="k", scope="run", value=[1]),)),
    ),
    inp.PhaseDone(phase=Phase.TOOL_GATE, step=2, call_id="c", verdict=Suspend(message="may it?", expires_after=2.5)),
    inp.PhaseDone(
        phase=Phase.TOOL_GATE,
        step=2,
        verdict=Block("no"),
        overruled=(inp.Overruled(plugin="p", verdict="deny", by="q"),),
    ),
    inp.PhaseDone(
        phase=Phase.BEFORE_INFERENCE,
        step=3,
        batch=Batch(base=1, writes=(Write(name="k", scope="thread", value={"a": None}),)),
        keys={KEY: KeySpec(key=KEY, persistent=False)},
        request=RequestChanges(messages=(ContextMessage(content="brief"),), include=("a",), settings={"t": 0.5}),
        edits=(inp.CallEdit(call_id="c", by="p", arguments={"n": [1]}),),
        ticket_requests=(Suspend(reason="manual_pause"),),
    ),
    inp.ModelStreamed(message_id="m", text="a\nb", reasoning="c"),
    inp.ModelAnswered(message_id="m", response=ModelResponse(text=("a", "b"), calls=(call("c", "t", n=1),))),
    inp.ModelFailed(message_id="m", kind="overloaded", text="later", retry_after=float("inf"), usage=Usage(input=3)),
    inp.ModelCut(message_id="m", text="a", rest=("b", "c"), usage=Usage(requests=1, input=3, incomplete=1)),
    inp.ModelCut(message_id="m"),
    inp.CallReturned(call_id="c", attempt=1, result={"deep": [None, 1.5, "x"]}, shown="x", large=True),
    inp.CallReturned(
        call_id="c", attempt=1, result=1, shown="1", usage=(inp.Spent(by="t", usage=Usage(input=3), model="m"),)
    ),
    inp.CallRaised(call_id="c", attempt=1, code="tool_error", shown="x", fatal=True, run_code="target_offline"),
    said.BodySpoke(call_id="c", attempt=2, number=3, text="a", reasoning="b", index=4, reasoning_index=5),
    said.BodySpoke(call_id="c", attempt=2, number=3, whole="a", ask=7),
    said.BodyNoted(call_id="c", attempt=1, type="run.degraded", payload={"reason": "why", "detail": None}, ask=1),
    said.BodySaved(call_id="c", attempt=1, memo={"session": [1, None]}, ask=1),
    inp.PhaseDone(phase=Phase.TOOL_GATE, step=2, allowed=(inp.Allowed(plugin="p", note="rule 3"),)),
    inp.WorkStopped(stubborn=(inp.Unfinished(call_id="c", tool="t", stack="line"),)),
    inp.SpawnAsked(ask=1, spawner="c", attempt=1, tool="t", arguments={"n": 1}, mark="m", nth=1),
    rec.TakeoverEntry(bare=True, state=()),
    rec.ClockJump(seconds=-0.1),
    rec.ForcedEndEntry(why="crashes", posted=3, readable=False),
    rec.RecordGap(why="so"),
)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_record_entry_survives_encoding_and_decoding(entry: msgspec.Struct) -> None:
    taken = RecordEntry(START, entry, (({"a": 1},), ("KeyError", "no")))
    read = load_taken(dump_taken((taken, taken)), {})
    assert repr(read) == repr((taken, taken)), "a Suspend is an exception, and equal to itself only"


def test_an_entry_that_cannot_be_encoded_becomes_a_gap_of_the_record() -> None:
    """A commit does not fail of it."""
    (entry,) = load_taken(dump_taken((RecordEntry(START, inp.FailUnrecoverable(detail=object())),)), {})  # type: ignore[arg-type]
    assert isinstance(entry.entry, rec.RecordGap)
    assert "object" in entry.entry.why


def test_a_record_is_read_that_was_written_when_inputs_had_more_fields() -> None:
    """`Activate.counts` and `ModelFailed.delay_ms` are gone; they had their defaults, which are not written."""
    body = (
        b'{"v":2,"d":[[0,"Activate",{"agent_digest":"d1"}],'
        b'[5,"ModelFailed",{"message_id":"m1","kind":"timeout","text":"late","retryable":true,"jitter":0.75}]]}'
    )
    started, failed = (one.entry for one in load_taken(body, {}))
    assert started == inp.Activate(agent_digest="d1")
    assert failed == inp.ModelFailed(message_id="m1", kind="timeout", text="late", retryable=True, jitter=0.75)
    assert dump_taken(load_taken(body, {})) == body.replace(b'"v":2', b'"v":4', 1)


STORED = frozenset(
    {
        *("Abandon", "Activate", "Admit", "Born", "Buried", "CallPrinted", "CallProgressed", "CallRaised"),
        *("CallReturned", "ChildSeen", "CallSuspended", "CancelAsked", "CancelUnowned", "ClockMoved", "CommandArrived"),
        *(
            "DeadlinePassed",
            "ModelAnswered",
            "ModelCut",
            "ModelFailed",
            "ModelStreamed",
            "NotRecorded",
            "Overran",
            "PhaseDone",
            "Prepared",
        ),
        *("NestedCalled", "NestedDropped", "NestedEnded", "BodySpoke", "BodyNoted", "BodySaved", "PublishAsked"),
        *("GuardsDone", "ResultRefused", "SpawnAsked", "TakenUp", "TaskStopped", "TasksAsked", "WorkStopped"),
    }
)
"""The names of entries in files. One that was ever written stays; a class can be renamed."""


def test_entries_keep_the_names_that_files_have() -> None:
    assert frozenset(_record_codec._ENTRIES) == STORED
    body = b'{"v":2,"d":[[0,"ClockMoved",{"seconds":1.5}],[0,"NotRecorded",{"why":"x"}],[0,"Abandon",{"detail":"y"}]]}'
    entries = load_taken(body, {})
    assert [entry.entry for entry in entries] == [
        rec.ClockJump(seconds=1.5),
        rec.RecordGap(why="x"),
        inp.FailUnrecoverable(detail="y"),
    ]
    assert dump_taken(entries) == body.replace(b'"v":2', b'"v":4', 1)
