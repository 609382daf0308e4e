"""Every life of a run can be run again from what a store keeps of it."""

from collections import defaultdict
from typing import Any

import attrs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from greenroom.actors.contract.decisions import InboxItem
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.contract.rows import Commit, EventDraft, RunRow
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.state import Step
from greenroom.actors.replay.machine import Asked, replaying
from greenroom.actors.replay.record import Record, make_record
from greenroom.actors.replay.report import ReplayReport

from .chaos import Chaos
from .test_properties import specs
from .world import START, World


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
            rows, self.frames, store.messages, commands, redactor=Redactor(), birth=RunRow(last_sequence=1)
        )
        return attrs.evolve(record, created=EventDraft("run.created", store.events[0]))


def played(record: Record, spec: AgentSpec, answers: Any) -> ReplayReport:
    replay, reply = replaying(record, spec), None
    try:
        while True:
            asked = replay.send(reply)
            reply = None if asked is None else tuple(_answered(asked, answers))
    except StopIteration as ended:
        report: ReplayReport = ended.value
        return report


def _answered(asked: Asked, answers: Any) -> list[inp.PhaseDone]:
    effect = asked.effect
    return list(answers[effect.phase, effect.step, effect.call_id])


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
    world = Remembered(spec, execution=mode, deadline=deadline, admitted=admitted, lazy=lazy)
    chaos = Chaos(world, seed)
    for _ in range(moves):
        if world.finished:
            break
        chaos.move()
    for report in (world.replay(), (chaos.finish(), world.replay())[1]):
        missing = report.unreplayable
        if missing is not None and missing.missing == "time":
            continue  # an owner was lost where its return leaves no event
        if not report.equal:
            note("\n".join(world.trace))
        assert report.equal, report.difference or missing
        assert report.events == len(world.frames)
